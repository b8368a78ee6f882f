//! What was probably meant.

use std::collections::BTreeMap;

/// The keys of every table of the configuration, by the table's path: `""`, `nodes`, `connections.quality`.
pub(super) type Homes = BTreeMap<String, &'static [&'static str]>;

/// Keys that other programs use for what is called otherwise here.
const SYNONYMS: &[(&str, &str)] = &[
    ("addr", "address"),
    ("address", "listen"),
    ("bind", "listen"),
    ("emails", "email"),
    ("gateway", "names"),
    ("host", "address"),
    ("host", "server"),
    ("id", "name"),
    ("language_code", "language"),
    ("mail", "email"),
    ("name", "id"),
    ("owner", "customer"),
    ("password", "token"),
    ("port", "address"),
    ("port", "listen"),
    ("port", "server"),
    ("prefix", "prefixes"),
    ("routes", "entries"),
    ("secret", "password"),
    ("secret", "token"),
    ("smtp", "email"),
    ("smtp", "server"),
    ("tls", "security"),
    ("type", "kind"),
    ("url", "address"),
    ("user", "username"),
    ("window", "statistics_window"),
];

/// The candidate that is closest to `word`, where one is close enough to be what was meant.
pub(crate) fn closest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word: String = word.chars().take(80).flat_map(char::to_lowercase).collect();
    let tolerated = (word.chars().count() / 3).max(1);
    let distance = |candidate: &str| strsim::damerau_levenshtein(&word, &candidate.to_lowercase());
    let ranked = candidates.into_iter().map(|candidate| (distance(candidate), candidate));
    ranked.filter(|(distance, _)| *distance <= tolerated).min().map(|(_, candidate)| candidate)
}

/// What to do about an unknown key.
pub(super) fn unknown_key(key: &str, known: &[&str], homes: &Homes) -> Option<String> {
    let synonym =
        || SYNONYMS.iter().find(|(word, meant)| *word == key && known.contains(meant)).map(|(_, meant)| *meant);
    let beginning = || known.iter().copied().find(|known| key.len() >= 3 && known.starts_with(key));
    if let Some(meant) = synonym().or_else(|| closest(key, known.iter().copied())).or_else(beginning) {
        return Some(format!("did you mean `{meant}`?"));
    }
    let home = homes.iter().filter(|(_, keys)| keys.contains(&key)).map(|(path, _)| path.as_str());
    let home: Vec<_> =
        home.map(|path| if path.is_empty() { "the top of the file".to_owned() } else { format!("`{path}`") }).collect();
    if !home.is_empty() {
        return Some(format!("`{key}` belongs in {}", home.join(" or in ")));
    }
    Some(format!("the keys here are {}", known.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ")))
}

/// `"a", "b" or "c"`.
pub(super) fn one_of(choices: &[&str]) -> String {
    let quoted: Vec<_> = choices.iter().map(|choice| format!("\"{choice}\"")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_error_is_understood_and_another_word_is_not() {
        let keys = ["asr_threshold_percent", "acd_threshold_sec", "monitor_asr"];
        assert_eq!(closest("asr_treshold_percent", keys), Some("asr_threshold_percent"));
        assert_eq!(closest("Monitor_ASR", keys), Some("monitor_asr"));
        assert_eq!(closest("listen", keys), None);
    }

    #[test]
    fn choices_read_as_a_sentence() {
        assert_eq!(one_of(&["a", "b", "c"]), "\"a\", \"b\" or \"c\"");
        assert_eq!(one_of(&["a"]), "\"a\"");
    }
}
