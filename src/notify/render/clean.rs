//! What goes into a mail and what leaves as one, made harmless: text from callers, subject lines, the text part.

use textwrap::core::display_width;
use textwrap::{Options, WordSeparator};

use super::speech::JOINER;

/// Longest number shown. E.164 has 15 digits; what is longer is prefixes, or nonsense.
const MAX_NUMBER: usize = 32;

/// Longest name of a customer shown.
pub(super) const MAX_NAME: usize = 80;

/// Longest detail of a condition shown: an error message, or a few.
pub(super) const MAX_DETAIL: usize = 500;

/// Longest subject line. Mail programs show some 70 characters of it.
const MAX_SUBJECT: usize = 200;

/// Columns of the text part: what a terminal of 80 shows with a quote mark before it.
const COLUMNS: usize = 76;

/// How many digits at the beginning a mask leaves at most: country and area, enough to see a pattern.
const MASK_LEAVES: usize = 5;

/// How many digits at the end a mask always covers.
const MASK_COVERS: usize = 6;

/// What a masked digit is replaced by.
const MASK: char = 'x';

/// The text on one line, without what cannot be seen, at most `longest` characters.
pub(crate) fn line(text: &str, longest: usize) -> String {
    let mut line = String::new();
    let visible = text.chars().map(|c| if c.is_whitespace() || c.is_control() { ' ' } else { c });
    for c in visible.filter(|c| !is_invisible(*c)) {
        if c != ' ' || !(line.is_empty() || line.ends_with(' ')) {
            line.push(c);
        }
    }
    let line = line.trim_end();
    match line.char_indices().nth(longest) {
        None => line.to_owned(),
        Some(_) => {
            let kept: String = line.chars().take(longest.saturating_sub(1)).collect();
            format!("{}…", kept.trim_end())
        }
    }
}

/// Characters that have no width, or that change in which direction the others are read.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// A subject line: nothing in it can begin another header.
pub(super) fn subject(text: &str) -> String {
    line(text, MAX_SUBJECT)
}

/// A called number, fit to be shown; `None` where nothing of it can be.
pub(crate) fn number(text: &str, masked: bool) -> Option<String> {
    let number = line(text, MAX_NUMBER);
    let number = if masked { mask(&number) } else { number };
    (!number.is_empty()).then_some(number)
}

/// Every digit and letter after the first few replaced; signs like `+` and `#` stay.
fn mask(number: &str) -> String {
    let is_sign = |c: char| c.is_ascii_punctuation() || c == ' ';
    let length = number.chars().filter(|c| !is_sign(*c)).count();
    let mut left = length.saturating_sub(MASK_COVERS).min(MASK_LEAVES);
    let masked = number.chars().map(|c| {
        if is_sign(c) {
            return c;
        }
        let shown = left > 0;
        left = left.saturating_sub(1);
        if shown { c } else { MASK }
    });
    masked.collect()
}

/// The text part as it leaves: no line longer than the columns unless a word is, no blanks at the ends of lines, no two
/// empty lines in a row.
pub(super) fn text(rendered: &str) -> String {
    let mut text = String::new();
    for line in rendered.lines() {
        for line in wrapped(line.trim_end()) {
            let line = line.trim_end().replace(JOINER, " ");
            if !line.is_empty() || !(text.is_empty() || text.ends_with("\n\n")) {
                text.push_str(&line);
                text.push('\n');
            }
        }
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

/// A line in pieces that fit. The later ones begin under the line's last column, so that tables stay tables.
fn wrapped(line: &str) -> Vec<String> {
    if display_width(line) <= COLUMNS {
        return vec![line.to_owned()];
    }
    let indent = " ".repeat(last_column(line));
    let options = Options::new(COLUMNS)
        .subsequent_indent(&indent)
        .word_separator(WordSeparator::AsciiSpace)
        .word_splitter(textwrap::WordSplitter::NoHyphenation)
        .break_words(false);
    textwrap::wrap(line, options).into_iter().map(std::borrow::Cow::into_owned).collect()
}

/// Where the last column begins: after two blanks, in the left two thirds; else where the line does.
fn last_column(line: &str) -> usize {
    let starts = line.match_indices("  ").filter_map(|(gap, _)| {
        let rest = line.get(gap..)?.trim_start();
        let start = line.get(..line.len() - rest.len())?;
        Some(display_width(start))
    });
    starts.filter(|start| *start <= COLUMNS * 2 / 3).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_mask_leaves_what_shows_a_pattern_and_no_more() {
        let masked = |text| number(text, true).unwrap();
        assert_eq!(masked("+4930123456"), "+4930xxxxxx");
        assert_eq!(masked("+49301234567890"), "+49301xxxxxxxxx");
        assert_eq!(masked("0049 (30) 123-456"), "0049 (3x) xxx-xxx");
        assert_eq!(masked("1234567"), "1xxxxxx");
        assert_eq!(masked("123456"), "xxxxxx");
        assert_eq!(masked("110"), "xxx");
        assert_eq!(masked("*31#anna"), "*xx#xxxx");
        assert_eq!(number("+4930123456", false).unwrap(), "+4930123456");
        assert_eq!(number("\u{202e}\r\n\u{200b}", true), None);
    }

    #[test]
    fn a_number_loses_what_could_do_harm() {
        assert_eq!(number("+49\r\nBcc: x@y\u{7}\u{202e}1", false).unwrap(), "+49 Bcc: x@y 1");
        assert_eq!(number(&"7".repeat(500), false).unwrap().chars().count(), MAX_NUMBER);
    }

    #[test]
    fn long_lines_are_broken_under_their_last_column() {
        let words = "word ".repeat(20);
        let cell = text(&format!("  12:03:05  +49301xxxxxx  {words}"));
        let lines: Vec<&str> = cell.lines().collect();
        assert!(lines.len() > 1 && lines[1].starts_with("                          word"), "{cell}");
        assert!(text(&format!("- {words}")).lines().nth(1).unwrap().starts_with("word"));
        assert_eq!(text("\n\na  \n\n\n\nb\n\n"), "a\n\nb\n");
        let long = "x".repeat(200);
        assert_eq!(text(&long), format!("{long}\n"), "a word stays whole");
    }

    proptest! {
        #[test]
        fn a_masked_number_shows_only_its_beginning(dialled in "\\PC{0,60}|[0-9+*# -]{0,40}") {
            let plain = number(&dialled, false).unwrap_or_default();
            let masked = number(&dialled, true).unwrap_or_default();
            prop_assert_eq!(plain.chars().count(), masked.chars().count());
            let is_sign = |c: &char| c.is_ascii_punctuation() || *c == ' ';
            let length = plain.chars().filter(|c| !is_sign(c)).count();
            let left = length.saturating_sub(6).min(5);
            let pairs = plain.chars().zip(masked.chars()).filter(|(c, _)| !is_sign(c));
            for (place, (had, shown)) in pairs.enumerate() {
                prop_assert_eq!(shown, if place < left { had } else { 'x' });
            }
        }

        #[test]
        fn a_subject_is_one_short_line(text in any::<String>(), long in "(\\PC|\\s|[\0-\u{a0}]){0,400}") {
            for text in [text, long] {
                let subject = subject(&text);
                prop_assert!(subject.chars().count() <= MAX_SUBJECT);
                let breaks = |c: char| c.is_control() || c == '\u{2028}' || c == '\u{2029}';
                prop_assert!(!subject.chars().any(breaks));
                prop_assert_eq!(&subject, &subject.split_whitespace().collect::<Vec<_>>().join(" "));
            }
        }

        #[test]
        fn no_text_has_ragged_ends_or_wide_lines(rendered in "([a-zа-я]{1,12}|[ ]{1,9}|\n|[0-9é中]){0,200}") {
            let text = text(&rendered);
            prop_assert!(!text.contains("\n\n\n") && text.ends_with('\n'));
            for line in text.lines() {
                prop_assert_eq!(line, line.trim_end());
                let one_word = line.trim_start().split(' ').count() == 1;
                prop_assert!(display_width(line) <= COLUMNS || one_word, "{}", line);
            }
        }
    }
}
