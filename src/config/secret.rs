//! Secrets stay out of everything that is shown.

use super::locate::{Inside, Span, Spot};
use super::suggest::{self, Homes};

/// Keys of a token that hold nothing secret.
const SHOWN_OF_TOKENS: [&str; 4] = ["name", "role", "token_file", "token_env"];

/// Where values stand that must not be shown: those of keys that are, or look like a misspelt, `password` or `token`, and
/// URLs that may hold one.
pub(super) fn spans(text: &str, root: &Spot) -> Vec<Span> {
    let mut spans = Vec::new();
    root.for_each_field(&mut |key, spot| {
        let value = text.get(spot.value.clone()).filter(|_| matches!(spot.inside, Inside::Nothing));
        if is_secret(key) || value.and_then(login_in_url).is_some() {
            let shown = if key == "tokens" { SHOWN_OF_TOKENS.as_slice() } else { &[] };
            leaves(spot, shown, &mut spans);
        }
    });
    spans
}

/// Where user and password stand in a text with a URL, which is no address here and is written for one all the same.
fn login_in_url(text: &str) -> Option<Span> {
    let start = text.find("://")? + 3;
    Some(start..text[start..].rfind('@')? + start)
}

/// The beginning of what somebody wrote, for a message; a login in a URL left out.
pub(super) fn shown(text: &str) -> String {
    let text = match login_in_url(text) {
        Some(Span { start, end }) => format!("{}***{}", &text[..start], &text[end..]),
        None => text.to_owned(),
    };
    text.chars().take(80).collect()
}

/// The values in there, but for those of the keys that may be `shown`.
fn leaves(spot: &Spot, shown: &[&str], spans: &mut Vec<Span>) {
    match &spot.inside {
        Inside::Nothing => spans.push(spot.value.clone()),
        Inside::List(items) => items.iter().for_each(|item| leaves(item, shown, spans)),
        Inside::Table(fields) => {
            let hidden = fields.iter().filter(|(key, _)| !shown.contains(&key.as_str()));
            hidden.for_each(|(_, field)| leaves(field, shown, spans));
        }
    }
}

fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    let names_a_place = key.ends_with("_file") || key.ends_with("_env");
    let says_so = ["pass", "secret", "token", "pwd"].iter().any(|word| key.contains(word));
    !names_a_place && (says_so || suggest::closest(&key, ["password", "token"]).is_some())
}

/// The text with other characters in those places. Every character keeps its length, so that all places stay valid.
pub(super) fn mask(text: &str, spans: &[Span]) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut spans: Vec<_> = spans.to_vec();
    spans.sort_by_key(|span| span.start);
    let mut spans = spans.iter().peekable();
    for (at, c) in text.char_indices() {
        while spans.next_if(|span| span.end <= at).is_some() {}
        let hidden = spans.peek().is_some_and(|span| span.contains(&at)) && !matches!(c, '\n' | '\r' | '"' | '\'');
        shown.push(if hidden { stand_in(c) } else { c });
    }
    shown
}

fn stand_in(c: char) -> char {
    match c.len_utf8() {
        1 => '*',
        2 => '\u{d7}',
        3 => '\u{2022}',
        _ => '\u{1f512}',
    }
}

/// Where secrets may stand in a text that cannot be parsed: everything but the values of keys that are known and no
/// secrets. What a broken line means nobody can tell, so what is not known is not shown.
pub(super) fn likely_spans(text: &str, homes: &Homes) -> Vec<Span> {
    let known = |word: &str| !is_secret(word) && homes.values().any(|keys| keys.contains(&word));
    let mut spans = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let end = start + line.trim_end().len();
        if let Some(hidden) = hidden_from(line, known).filter(|hidden| start + hidden < end) {
            spans.push(start + hidden..end);
        }
        start += line.len();
    }
    spans
}

/// From which byte on a line may hold a secret.
fn hidden_from(line: &str, known: impl Fn(&str) -> bool) -> Option<usize> {
    let indent = line.len() - line.trim_start().len();
    let mut separators = line.match_indices(['=', ':']).map(|(at, _)| at).peekable();
    let Some(first) = separators.peek() else {
        let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
        return (!words.all(known)).then_some(indent);
    };
    let key = last_word(&line[..*first]);
    let before = line[..*first].trim_end().trim_end_matches(['"', '\'']).strip_suffix(key).unwrap_or_default();
    if before.contains(|c: char| !c.is_whitespace() && !"{[,-#\"'".contains(c)) && !is_secret(key) {
        return Some(indent);
    }
    let at = separators.find(|at| !known(last_word(&line[..*at])))? + 1;
    Some(line.len() - line[at..].trim_start().len())
}

/// The word at the end of a text, quotes and blanks around it left out.
fn last_word(text: &str) -> &str {
    let text = text.trim_end().trim_end_matches(['"', '\'']);
    let start = text.char_indices().rev().take_while(|(_, c)| c.is_alphanumeric() || *c == '_').last();
    start.map_or("", |(at, _)| &text[at..])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::schema;

    #[test]
    fn a_masked_text_has_the_same_shape() {
        let text = "password = \"p\u{e4}\u{20ac}\u{1d11e}s\" # x\n";
        let shown = mask(text, &likely_spans(text, &Homes::new()));
        assert_eq!(shown.len(), text.len());
        assert_eq!(shown.chars().count(), text.chars().count());
        assert!(!shown.contains("p\u{e4}"), "{shown}");
    }

    #[test]
    fn what_looks_like_a_secret_is_one() {
        for key in ["password", "pasword", "Passwort", "secret", "api_token", "tokn", "tokens", "pwd"] {
            assert!(is_secret(key), "{key}");
        }
        for key in ["password_file", "password_env", "token_file", "address", "id", "map"] {
            assert!(!is_secret(key), "{key}");
        }
        let homes = schema::homes();
        let secrets: BTreeSet<_> = homes.values().copied().flatten().filter(|key| is_secret(key)).collect();
        assert_eq!(secrets, BTreeSet::from([&"password", &"token", &"tokens"]), "of the keys that there are");
    }

    #[test]
    fn a_login_in_a_url_is_not_shown() {
        assert_eq!(shown("smtp://user:hunter2@mail:25"), "smtp://***@mail:25");
        assert_eq!(shown("smtp://user:hunter2@@mail"), "smtp://***@mail");
        assert_eq!(shown("smtp://mail:25"), "smtp://mail:25");
        assert_eq!(shown("noc@acme.example"), "noc@acme.example");
        let homes = Homes::from([(String::new(), ["server"].as_slice())]);
        let text = "server = 'smtp://user:hunter2@mail\n";
        assert_eq!(mask(text, &likely_spans(text, &homes)), "server = 'smtp:*******************\n");
    }

    #[test]
    fn of_a_broken_text_only_what_is_known_is_shown() {
        let homes = Homes::from([(String::new(), ["id", "password"].as_slice())]);
        let text = "{\"id\": \"a\", \"password\": \"one}\nid: x\n pas\"sword: two\nid = 'x' password = 'id = three'\n[id\n} four\n";
        let shown = mask(text, &likely_spans(text, &homes));
        let expected = "{\"id\": \"a\", \"password\": \"****\nid: x\n ***\"**********\nid = 'x' password = '**********'\n[id\n******\n";
        assert_eq!(shown, expected);
    }
}
