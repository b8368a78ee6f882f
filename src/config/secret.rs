//! Secrets stay out of everything that is shown.

use super::locate::{Inside, Span, Spot};
use super::suggest;

/// Where values stand that must not be shown: those of keys that are, or look like a misspelt, `password`.
pub(super) fn spans(root: &Spot) -> Vec<Span> {
    let mut spans = Vec::new();
    root.for_each_field(&mut |key, spot| {
        if is_secret(key) {
            leaves(spot, &mut spans);
        }
    });
    spans
}

fn leaves(spot: &Spot, spans: &mut Vec<Span>) {
    match &spot.inside {
        Inside::Nothing => spans.push(spot.value.clone()),
        Inside::List(items) => items.iter().for_each(|item| leaves(item, spans)),
        Inside::Table(fields) => fields.values().for_each(|field| leaves(field, spans)),
    }
}

fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    let names_a_place = key.ends_with("_file") || key.ends_with("_env");
    let says_so = ["pass", "secret", "token", "pwd"].iter().any(|word| key.contains(word));
    !names_a_place && (says_so || suggest::closest(&key, ["password"]).is_some())
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

/// Where secrets may stand in a text that cannot be parsed: what follows a key that looks like one, to the end of its
/// line.
pub(super) fn likely_spans(text: &str) -> Vec<Span> {
    let mut spans = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let end = start + line.trim_end().len();
        for (at, _) in line.match_indices(['=', ':']) {
            let before = line[..at].trim_end().trim_end_matches(['"', '\'']);
            let word = before.rfind(|c: char| !c.is_alphanumeric() && c != '_').map_or(before, |at| &before[at..]);
            if is_secret(word.trim_start_matches(|c: char| !c.is_alphanumeric())) && start + at + 1 < end {
                spans.push(start + at + 1..end);
                break;
            }
        }
        start += line.len();
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_masked_text_has_the_same_shape() {
        let text = "password = \"p\u{e4}\u{20ac}\u{1d11e}s\" # x\n";
        let shown = mask(text, &likely_spans(text));
        assert_eq!(shown.len(), text.len());
        assert_eq!(shown.chars().count(), text.chars().count());
        assert!(!shown.contains("p\u{e4}"), "{shown}");
    }

    #[test]
    fn what_looks_like_a_secret_is_one() {
        for key in ["password", "pasword", "Passwort", "secret", "api_token", "pwd"] {
            assert!(is_secret(key), "{key}");
        }
        for key in ["password_file", "password_env", "address", "id", "map"] {
            assert!(!is_secret(key), "{key}");
        }
    }

    #[test]
    fn a_broken_line_is_masked_after_the_key() {
        let text = "{\"id\": \"a\", \"password\": \"hunter2}\nid: x\n  pasword: hunter3\n";
        let shown = mask(text, &likely_spans(text));
        assert!(!shown.contains("hunter"), "{shown}");
        assert!(shown.contains("\"id\": \"a\", \"password\":"), "{shown}");
    }
}
