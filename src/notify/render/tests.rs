//! The mails as they leave, and what may go wrong with templates.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;
use textwrap::core::display_width;

use super::engine::LANGUAGES;
use super::*;

/// Set, the expected mails are written anew instead of compared; look at the difference before you commit it.
const REGENERATE: &str = "POINTSMAN_WRITE_MAILS";

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/mails")
}

#[test]
fn every_mail_is_as_it_was_approved() {
    let templates = Templates::built_in();
    let mut expected = BTreeSet::new();
    for (language, sample) in samples::in_every_language() {
        let facts = facts(&sample.mail(), &sample.reader(language));
        let mail = compose(&templates.built_in, &sample.mail(), language, &facts).unwrap();
        assert_eq!(mail, templates.render(&sample.mail(), &sample.reader(language)));
        if sample.name == "digest-of-many" {
            continue;
        }
        let name = format!("{}.{}", sample.name, engine::folder(language));
        for (ending, text) in [("txt", format!("Subject: {}\n\n{}", mail.subject, mail.text)), ("html", mail.html)] {
            let path = fixtures().join(format!("{name}.{ending}"));
            if std::env::var_os(REGENERATE).is_some() {
                fs::write(&path, &text).unwrap();
            }
            assert_eq!(text, fs::read_to_string(&path).unwrap_or_default(), "{}", path.display());
            expected.insert(path);
        }
    }
    let found: BTreeSet<PathBuf> = fs::read_dir(fixtures()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(found, expected);
}

/// The three parts of every sample in every language.
fn mails() -> Vec<(String, Rendered)> {
    let templates = Templates::built_in();
    let render = |(language, sample): (Language, samples::Sample)| {
        let name = format!("{} in {}", sample.name, engine::folder(language));
        (name, templates.render(&sample.mail(), &sample.reader(language)))
    };
    samples::in_every_language().map(render).collect()
}

#[test]
fn text_parts_fit_a_terminal() {
    for (name, mail) in mails() {
        assert!(mail.text.lines().all(|line| display_width(line) <= 76 && line == line.trim_end()), "{name}");
        assert!(!mail.text.contains("\n\n\n") && mail.text.ends_with('\n') && !mail.text.ends_with("\n\n"), "{name}");
        assert!(!mail.text.contains(['\u{a0}', '\t', '{', '<', '&']), "{name}");
    }
}

#[test]
fn html_parts_load_nothing_and_close_what_they_open() {
    for (name, mail) in mails() {
        let language = &name[name.len() - 2..];
        assert!(mail.html.starts_with("<!DOCTYPE html>") && mail.html.contains(&format!("<html lang=\"{language}\">")));
        for external in ["http", "src=", "<img", "<script", "<link", "url(", "@import"] {
            assert!(!mail.html.contains(external), "{name}: {external}");
        }
        for tag in ["table", "tr", "td", "p", "span", "h1", "h2", "strong", "style", "title", "body", "html"] {
            let opened =
                mail.html.matches(&format!("<{tag}>")).count() + mail.html.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, mail.html.matches(&format!("</{tag}>")).count(), "{name}: {tag}");
        }
        assert!(mail.html.len() < 100 * 1024, "{name}: {} bytes are cut off by some mail programs", mail.html.len());
        assert!(!mail.html.contains("&lt;") && !mail.html.contains("&amp;"), "{name}: escaped twice");
    }
}

#[test]
fn a_digest_counts_what_it_does_not_show() {
    let many = samples::all().into_iter().find(|sample| sample.name == "digest-of-many").unwrap();
    let mail = Templates::built_in().render(&many.mail(), &many.reader(Language::En));
    assert_eq!(mail.subject, "Connections: 48 became bad, 60 recovered");
    assert!(mail.text.contains("The first 48 changes of this list are left out."), "{}", mail.text);
    assert!(mail.text.find("12:03:05") < mail.text.find("12:28:10"));
}

#[test]
fn a_digest_shows_a_failed_call_once() {
    let digest = samples::all().into_iter().find(|sample| sample.name == "digest").unwrap();
    let Mail::Digest(notices) = digest.mail() else { unreachable!("a digest") };
    let twice: Vec<Notice> = notices.iter().take(3).chain(notices.iter().take(3)).cloned().collect();
    let mail = Templates::built_in().render(&Mail::Digest(&twice), &digest.reader(Language::En));
    assert_eq!(mail.text.matches("12:02:41  vendor-a ").count(), 1, "{}", mail.text);
    assert_eq!(mail.text.matches("12:02:41").count(), 3, "each connection has one at that time");
}

#[test]
fn the_longest_mail_takes_a_tenth_of_the_fuel() {
    let many = samples::all().into_iter().find(|sample| sample.name == "digest-of-many").unwrap();
    for language in LANGUAGES {
        let facts = facts(&many.mail(), &many.reader(language));
        compose(&Engines::built_in().with_fuel(engine::FUEL / 10), &many.mail(), language, &facts).unwrap();
    }
}

#[test]
fn every_file_of_the_folder_is_built_in() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("config/templates");
    let mut found = BTreeSet::new();
    for path in ["", "en", "ru"].iter().flat_map(|sub| fs::read_dir(folder.join(sub)).unwrap()) {
        let path = path.unwrap().path();
        if path.is_file() {
            found.insert(path.strip_prefix(&folder).unwrap().to_str().unwrap().to_owned());
        }
    }
    assert_eq!(found, Templates::sources().map(|(path, _)| path.to_owned()).collect());
}

/// A folder with these templates.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, source) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, source).unwrap();
    }
    folder
}

fn problems(files: &[(&str, &str)]) -> Vec<String> {
    let folder = folder(files);
    let bad = Templates::load(folder.path()).unwrap_err();
    let prefix = format!("{}/", folder.path().display());
    bad.iter().map(|bad| bad.to_string().replace(&prefix, "")).collect()
}

/// The alarm of the first sample, in English.
fn alarm(templates: &Templates) -> Rendered {
    let sample = &samples::all()[0];
    templates.render(&sample.mail(), &sample.reader(Language::En))
}

#[test]
fn everything_that_is_wrong_is_said_at_once_with_file_and_line() {
    let found = problems(&[
        ("en/alarm.txt", "Hello\n\n{{ chnage.connection }}\n"),
        ("en/alram.html", "x"),
        ("en/digest.txt", "{% extends \"layout.txt\" %}\n{% block body %}{{ changes[0].nothing }}{% endblock %}"),
        ("en/recovery.txt", "{% if change.retyr_at %}x{% endif %}"),
        ("en/test.html", "{% include \"en/test.html\" %}"),
        ("en/test.txt", "{% for a in range(9999) %}{% for b in range(9999) %}{{ b }}{% endfor %}{% endfor %}"),
        ("ru/digest.html", "<p>\n{% if %}\n"),
        ("ru/digest.txt", "{% extends \"ru/digest.txt\" %}"),
        ("ru/recovery.html", "{{ change.connection|shiny }}"),
        ("ru/test.subject.txt", "{% include \"ru/nothing.txt\" %}"),
        ("ru/words.jinja.bak", "x"),
        (".git/config", "x"),
    ]);
    let expected = [
        "en/alarm.txt:3: undefined value: `chnage` is undefined",
        "en/alram.html: there is no template of this name to be replaced; did you mean \"en/alarm.html\"?",
        "en/digest.txt:2: undefined value: `changes[0].nothing` is undefined",
        "en/recovery.txt:1: undefined value: `change.retyr_at` is undefined",
        "en/test.html:1: invalid operation: recursion limit exceeded",
        "en/test.txt:1: rendering takes too long: is there a loop without end?",
        "ru/digest.html:2: syntax error: unexpected end of block",
        "ru/digest.txt:1: invalid operation: cycle in template inheritance. \"ru/digest.txt\" was referenced more than once",
        "ru/recovery.html:1: unknown filter: filter shiny is unknown",
        "ru/test.subject.txt:1: template not found: tried to include non-existing template 'ru/nothing.txt'",
        "ru/words.jinja.bak: there is no template of this name to be replaced; did you mean \"ru/words.jinja\"?",
    ];
    assert_eq!(found, expected, "\n{}", found.join("\n"));
}

#[test]
fn a_part_that_misses_what_others_use_is_a_problem() {
    let found = problems(&[("parts.html", "{% macro lead(text) %}{{ text }}{% endmacro %}")]);
    assert_eq!(found.len(), 1);
    let message = "a template that is not replaced fails with those that are: layout.html:37: unknown method: ";
    assert!(found[0].contains(message), "{found:?}");
}

#[test]
fn a_folder_that_is_none_is_a_problem() {
    let folder = tempfile::tempdir().unwrap();
    let bad = Templates::load(&folder.path().join("missing")).unwrap_err();
    assert!(bad[0].to_string().contains("missing: cannot be read: "), "{bad:?}");
    assert!(Templates::load(folder.path()).is_ok(), "an empty one replaces nothing");
}

#[test]
fn a_replacement_can_build_on_what_it_replaces() {
    let source = "{% extends \"built-in/en/alarm.txt\" %}{% block body %}Dear partner,\n\n{{ super() }}{% endblock %}";
    let layout = "{% extends \"built-in/layout.html\" %}{% block accent %}#123456{% endblock %}";
    let folder = folder(&[("en/alarm.txt", source), ("layout.html", layout)]);
    let (own, built_in) = (alarm(&Templates::load(folder.path()).unwrap()), alarm(&Templates::built_in()));
    assert_eq!(own.text, format!("Dear partner,\n\n{}", built_in.text));
    assert_eq!(own.subject, built_in.subject);
    assert_eq!(own.html, built_in.html, "the block of the mail overrides that of the layout");
}

#[test]
fn the_documented_example_works() {
    let example = DOCUMENT.split("```jinja\n").nth(1).unwrap().split("```").next().unwrap();
    let folder = folder(&[("en/alarm.txt", example)]);
    let text = alarm(&Templates::load(folder.path()).unwrap()).text;
    assert!(
        text.starts_with("Dear partner,\n\nOn 30 November") && text.contains("\nOur NOC: +49 30 1234567\n"),
        "{text}"
    );
}

#[test]
fn a_template_that_fails_later_costs_no_mail() {
    let source = "{% if customer == \"odd\" %}{{ nothing }}{% endif %}mine";
    let folder = folder(&[("en/test.txt", source)]);
    let templates = Templates::load(folder.path()).unwrap();
    let zone = TimeZone::UTC;
    let reader = |name| Reader { name, language: Language::En, time_zone: &zone, mask_numbers: true };
    assert_eq!(templates.render(&Mail::Test, &reader("even")).text, "mine\n");
    let built_in = Templates::built_in().render(&Mail::Test, &reader("odd"));
    assert_eq!(templates.render(&Mail::Test, &reader("odd")), built_in);
}

#[test]
fn what_is_left_without_templates_still_says_what_happened() {
    let said: Vec<String> = samples::all().iter().map(|sample| bare(&sample.mail()).text).collect();
    assert_eq!(said[0], "2026-11-30T11:03:05.000Z vendor-a: bad\n");
    assert!(said.iter().all(|text| !text.trim().is_empty()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn nothing_that_others_write_breaks_a_mail(
        name in any::<String>(),
        number in any::<String>(),
        detail in any::<String>(),
        mask_numbers: bool,
        micros: i64,
    ) {
        const EVIL: &str = "<i>\"'&{{ x }}{% x %}\r\nBcc: x";
        let templates = Templates::built_in();
        let (name, detail) = (format!("{EVIL}{name}"), format!("{EVIL}{detail}"));
        let all = samples::all();
        let Mail::Alarm(alarm) = all[0].mail() else { unreachable!("the first sample is an alarm") };
        let mut alarm = alarm.clone();
        for (place, call) in alarm.failed.iter_mut().enumerate() {
            call.number = Some(if place == 0 { EVIL.into() } else { number.as_str().into() });
            call.at = Timestamp::from_micros(micros);
        }
        alarm.change.at = Timestamp::from_micros(micros);
        let (condition, notices) = (Condition::Storage, [alarm.clone()]);
        let (began_at, over_at) = (alarm.change.at, None);
        let trouble = Mail::Condition { condition: &condition, detail: &detail, began_at, over_at };
        for language in LANGUAGES {
            let reader = Reader { name: &name, language, time_zone: &TimeZone::UTC, mask_numbers };
            for mail in [Mail::Alarm(&alarm), Mail::Digest(&notices), trouble, Mail::Test] {
                let rendered = compose(&templates.built_in, &mail, language, &facts(&mail, &reader)).unwrap();
                prop_assert!(!rendered.html.contains("<i>"));
                prop_assert!(!rendered.subject.contains(['\r', '\n']));
                let allowed = |c: char| !c.is_control() || c == '\n';
                prop_assert!(rendered.text.chars().all(allowed) && rendered.html.chars().all(allowed));
            }
        }
    }
}

const DOCUMENT: &str = include_str!("../../../docs/mail-templates.md");

/// The first cells of the document's tables, without their backticks.
fn documented() -> BTreeSet<String> {
    let cells = DOCUMENT.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    cells.map(|(name, _)| name.to_owned()).filter(|name| !name.contains("txt") && !name.contains('/')).collect()
}

/// Names of all that a value holds, under the names that the document has for it.
fn names(value: &serde_json::Value, path: &str, names_found: &mut BTreeSet<String>) {
    let path = match path {
        "changes[]" => "change",
        "failed[]" | "change.failed[]" => "call",
        "change.figures[]" | "change.crossed[]" => "figure",
        other => other,
    };
    match value {
        serde_json::Value::Object(fields) => {
            let path = if fields.contains_key("iso") { "time" } else { path };
            for (field, value) in fields {
                let name = if path.is_empty() { field.clone() } else { format!("{path}.{field}") };
                if !matches!(name.as_str(), "change" | "condition") {
                    names_found.insert(name.clone());
                }
                names(value, &name, names_found);
            }
        }
        serde_json::Value::Array(values) => {
            values.iter().for_each(|value| names(value, &format!("{path}[]"), names_found));
        }
        _ => {}
    }
}

#[test]
fn every_variable_and_filter_is_documented_and_no_other() {
    let mut given: BTreeSet<String> = ["subject", "language"].map(str::to_owned).into();
    for sample in samples::all() {
        let facts = facts(&sample.mail(), &sample.reader(Language::En));
        names(&serde_json::to_value(&facts).unwrap(), "", &mut given);
    }
    given.extend(engine::FILTERS.iter().map(|filter| (*filter).to_owned()));
    assert_eq!(given, documented());
}
