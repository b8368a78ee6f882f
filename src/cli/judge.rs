//! `pointsman judge`: a CSV of finished attempts in, one JSON line per state change out.
//!
//! The attempts go through the very machines that [`crate::quality`] gives the running program, so this answers "what
//! would it have done?" for last week's calls, and what another threshold would have done.
//!
//! A line of the file is a row: a quote that is never closed costs that row and not the rest of the file.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use serde::de::IntoDeserializer;
use serde::de::value::Error as WordError;
use serde::{Deserialize, Serialize};

use crate::call::outcome::Outcome;
use crate::cli::config_file::ConfigFile;
use crate::config::Config;
use crate::ids::QualityKey;
use crate::quality::book::{Book, Seat};
use crate::quality::history::{self, Attempt};
use crate::quality::machine::{Change, Reason, State};
use crate::time::Timestamp;

/// Arguments of `pointsman judge`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    config: ConfigFile,
    /// Attempts: connection,placed_at,ended_at,answered,duration_ms,pdd_ms,outcome; "-" reads standard input
    ///
    /// A header line names the columns, in any order; the rows may come in any order too. Times are seconds since the
    /// epoch with decimals, answered is true or false. An empty duration_ms is one that is not known, an empty pdd_ms
    /// is none; an empty outcome is taken as `answered` where the call was answered and its duration is not 0, else as
    /// `vendor_failed`.
    #[arg(value_name = "ATTEMPTS.csv")]
    attempts: PathBuf,
}

/// Judges the attempts: changes to stdout, rows that cannot be read to stderr.
///
/// # Errors
/// A configuration with errors; a file that cannot be read or has no usable header; stdout that cannot be written.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args { config, attempts: path } = args;
    let config = config.load_to_look()?.config;
    let mut input: Box<dyn BufRead> = if path == Path::new("-") {
        Box::new(BufReader::new(io::stdin().lock()))
    } else {
        Box::new(BufReader::new(File::open(&path).with_context(|| format!("cannot open {}", path.display()))?))
    };
    let verdict = judge(&config, &mut input, &mut io::stdout().lock(), &mut io::stderr().lock())
        .with_context(|| format!("cannot judge {}", path.display()))?;
    Ok(if verdict.bad_rows == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// How it went.
struct Verdict {
    bad_rows: usize,
}

fn judge(
    config: &Config,
    input: &mut dyn BufRead,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<Verdict> {
    let keys = config.judged();
    let mut book = Book::new(keys, Timestamp::default());
    let history = History::read(&book, input, &mut BufWriter::new(err))?;
    let mut out = BufWriter::new(out);
    history::play(&mut book, &history.attempts, history.last_end, |book, seat, change| {
        serde_json::to_writer(&mut out, &Line::of(book.key(seat), change))?;
        out.write_all(b"\n")
    })?;
    out.flush()?;
    Ok(Verdict { bad_rows: history.bad_rows })
}

/// A change of state as it is printed.
#[derive(Serialize)]
struct Line<'a> {
    at: f64,
    connection: &'a str,
    from: State,
    to: State,
    reason: Reason,
    calls: usize,
    asr: Option<f64>,
    acd: Option<f64>,
    pdd: Option<f64>,
}

impl<'a> Line<'a> {
    fn of(key: &'a QualityKey, change: &Change) -> Self {
        let Change { at, from, to, reason, epoch: _, figures } = *change;
        Self {
            at: at.as_secs_f64(),
            connection: key.connection.as_str(),
            from,
            to,
            reason,
            calls: figures.calls,
            asr: figures.asr,
            acd: figures.acd,
            pdd: figures.pdd,
        }
    }
}

/// All that was read.
struct History {
    attempts: Vec<Attempt>,
    /// The latest end in the file, that of connections which are not configured included.
    last_end: Timestamp,
    bad_rows: usize,
}

impl History {
    fn read(book: &Book, input: &mut dyn BufRead, notes: &mut dyn Write) -> anyhow::Result<Self> {
        let seats: HashMap<&str, (Seat, bool)> = (book.iter())
            .filter_map(|(key, machine)| {
                Some((key.connection.as_str(), (book.seat(key)?, machine.settings().is_monitored())))
            })
            .collect();
        let mut history = Self { attempts: Vec::new(), last_end: Timestamp::from_micros(i64::MIN), bad_rows: 0 };
        let mut noted: HashSet<String> = HashSet::new();
        let mut lines = Lines::new(input);
        let columns = loop {
            let Some((number, line)) = lines.next()? else {
                anyhow::bail!("it is empty: the first line must name the columns {}", COLUMNS.join(","));
            };
            if !line.is_empty() {
                break Columns::of(line).map_err(|problem| anyhow::anyhow!("line {number}: {problem}"))?;
            }
        };
        while let Some((number, line)) = lines.next()? {
            if line.is_empty() {
                continue;
            }
            let row = match columns.row(line) {
                Ok(row) => row,
                Err(problem) => {
                    history.bad_rows += 1;
                    writeln!(notes, "line {number}: {problem}; the row is left out")?;
                    continue;
                }
            };
            history.last_end = history.last_end.max(row.ended_at);
            let known = seats.get(&*row.connection).copied();
            if !known.is_some_and(|(_, monitored)| monitored) && !noted.contains(&*row.connection) {
                let why = if known.is_some() { "monitors nothing" } else { "is not configured" };
                writeln!(notes, "line {number}: connection {:?} {why}: its rows are not judged", row.connection)?;
                noted.insert(row.connection.to_string());
            }
            history.attempts.extend(known.map(|(seat, _)| row.attempt(seat)));
        }
        if history.bad_rows > 0 {
            let rows = if history.bad_rows == 1 { "row" } else { "rows" };
            writeln!(notes, "{} {rows} could not be read; the others were judged", history.bad_rows)?;
        }
        notes.flush()?;
        Ok(history)
    }
}

/// The lines of a file, numbered from 1, without their ends.
struct Lines<'a> {
    input: &'a mut dyn BufRead,
    line: Vec<u8>,
    number: usize,
}

impl<'a> Lines<'a> {
    fn new(input: &'a mut dyn BufRead) -> Self {
        Self { input, line: Vec::new(), number: 0 }
    }

    fn next(&mut self) -> anyhow::Result<Option<(usize, &[u8])>> {
        self.line.clear();
        self.number += 1;
        let read = self.input.read_until(b'\n', &mut self.line);
        if read.with_context(|| format!("reading stopped at line {}", self.number))? == 0 {
            return Ok(None);
        }
        let bom: &[u8] = if self.number == 1 { "\u{feff}".as_bytes() } else { b"" };
        let line = self.line.strip_prefix(bom).unwrap_or(&self.line);
        Ok(Some((self.number, line.trim_ascii())))
    }
}

/// The columns that a file must have.
const COLUMNS: [&str; 7] = ["connection", "placed_at", "ended_at", "answered", "duration_ms", "pdd_ms", "outcome"];

/// Where each of [`COLUMNS`] is.
struct Columns {
    places: [usize; COLUMNS.len()],
    count: usize,
}

/// Why a row or a header cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Problem {
    #[error("the header has no column {0}; it must name {list}", list = COLUMNS.join(","))]
    NoColumn(&'static str),
    #[error("the header names the column {0} twice")]
    TwoColumns(&'static str),
    #[error("{found} fields where the header has {wanted}")]
    Fields { found: usize, wanted: usize },
    #[error("{0} is missing")]
    Missing(&'static str),
    #[error("{column} {text:?} is not {wanted}")]
    Value { column: &'static str, text: String, wanted: &'static str },
    #[error("it ended before it was placed")]
    EndsBeforePlaced,
}

impl Problem {
    fn value(column: &'static str, text: &[u8], wanted: &'static str) -> Self {
        let text = String::from_utf8_lossy(text).chars().take(80).collect();
        Self::Value { column, text, wanted }
    }
}

/// A row that can be judged.
struct Row<'a> {
    connection: std::borrow::Cow<'a, str>,
    placed_at: Timestamp,
    ended_at: Timestamp,
    outcome: Outcome,
    duration_ms: Option<u64>,
    pdd_ms: Option<u64>,
}

impl Row<'_> {
    fn attempt(&self, seat: Seat) -> Attempt {
        let Self { connection: _, placed_at, ended_at, outcome, duration_ms, pdd_ms } = *self;
        Attempt { seat, placed_at, ended_at, outcome, duration_ms, pdd_ms }
    }
}

impl Columns {
    fn of(header: &[u8]) -> Result<Self, Problem> {
        let fields = fields(header);
        let place = |name: &'static str| {
            let mut found = (0..fields.len()).filter(|i| fields[*i].trim_ascii().eq_ignore_ascii_case(name.as_bytes()));
            match (found.next(), found.next()) {
                (None, _) => Err(Problem::NoColumn(name)),
                (Some(place), None) => Ok(place),
                (Some(_), Some(_)) => Err(Problem::TwoColumns(name)),
            }
        };
        let mut places = [0; COLUMNS.len()];
        for (at, name) in places.iter_mut().zip(COLUMNS) {
            *at = place(name)?;
        }
        Ok(Self { places, count: fields.len() })
    }

    fn row<'a>(&self, line: &'a [u8]) -> Result<Row<'a>, Problem> {
        let fields = fields(line);
        if fields.len() != self.count {
            return Err(Problem::Fields { found: fields.len(), wanted: self.count });
        }
        let [connection, placed, ended, answered, duration, pdd, outcome] =
            self.places.map(|at| fields[at].trim_ascii());
        if connection.is_empty() {
            return Err(Problem::Missing("connection"));
        }
        let connection = String::from_utf8_lossy(connection).into_owned().into();
        let placed_at = time("placed_at", placed)?;
        let ended_at = time("ended_at", ended)?;
        if ended_at < placed_at {
            return Err(Problem::EndsBeforePlaced);
        }
        let answered = yes_or_no("answered", answered)?;
        let duration_ms = millis("duration_ms", duration)?;
        // What was not answered has no duration, whatever its column says of the ringing.
        let duration_ms = if answered { duration_ms } else { Some(0) };
        let outcome = match outcome {
            b"" if duration_ms == Some(0) => Outcome::VendorFailed,
            b"" => Outcome::Answered,
            word => outcome_of(word)?,
        };
        Ok(Row { connection, placed_at, ended_at, outcome, duration_ms, pdd_ms: millis("pdd_ms", pdd)? })
    }
}

type Fields<'a> = Vec<std::borrow::Cow<'a, [u8]>>;

/// The fields of one line.
fn fields(line: &[u8]) -> Fields<'_> {
    if !line.contains(&b'"') {
        return line.split(|byte| *byte == b',').map(Into::into).collect();
    }
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(line);
    let mut record = csv::ByteRecord::new();
    match reader.read_byte_record(&mut record) {
        Ok(true) => record.iter().map(|field| field.to_vec().into()).collect(),
        // Reading from memory cannot fail, and a line with a quote has at least one field.
        Ok(false) | Err(_) => Vec::new(),
    }
}

/// A decimal number: its sign, and its digits as a count of `10^-decimals`, rounded half up there. Exact: a `f64` would
/// make neighbouring microseconds of one instant and tear one instant apart.
fn decimal(text: &[u8], decimals: usize) -> Option<(bool, u64)> {
    let (negative, digits) = match text.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix(b"+").unwrap_or(text)),
    };
    let (whole, fraction) = match digits.iter().position(|byte| *byte == b'.') {
        Some(dot) => (&digits[..dot], &digits[dot + 1..]),
        None => (digits, &b""[..]),
    };
    if whole.len() + fraction.len() == 0 || !whole.iter().chain(fraction).all(u8::is_ascii_digit) {
        return None;
    }
    let padded = fraction.iter().copied().chain(std::iter::repeat(b'0')).take(decimals);
    let mut units: u64 = 0;
    for digit in whole.iter().copied().chain(padded) {
        units = units.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
    }
    let round_up = fraction.get(decimals).is_some_and(|digit| *digit >= b'5');
    Some((negative, units.checked_add(u64::from(round_up))?))
}

fn time(column: &'static str, text: &[u8]) -> Result<Timestamp, Problem> {
    if text.is_empty() {
        return Err(Problem::Missing(column));
    }
    let micros = decimal(text, 6).and_then(|(negative, micros)| {
        let micros = i64::try_from(micros).ok()?;
        Some(if negative { -micros } else { micros })
    });
    micros.map(Timestamp::from_micros).ok_or_else(|| Problem::value(column, text, "a time in seconds since the epoch"))
}

/// Milliseconds; empty is `None`. Decimals are rounded, but what is not 0 does not become 0: that would turn a success
/// into a failure.
fn millis(column: &'static str, text: &[u8]) -> Result<Option<u64>, Problem> {
    if text.is_empty() {
        return Ok(None);
    }
    let ms = match decimal(text, 0) {
        Some((false, 0)) if text.iter().any(|byte| (b'1'..=b'9').contains(byte)) => Some(1),
        Some((false, ms)) => Some(ms),
        Some((true, 0)) if text.iter().all(|byte| !(b'1'..=b'9').contains(byte)) => Some(0),
        Some((true, _)) | None => None,
    };
    ms.map(Some).ok_or_else(|| Problem::value(column, text, "a number of milliseconds, 0 or more"))
}

fn yes_or_no(column: &'static str, text: &[u8]) -> Result<bool, Problem> {
    let is = |words: &[&str]| words.iter().any(|word| text.eq_ignore_ascii_case(word.as_bytes()));
    if text.is_empty() {
        Err(Problem::Missing(column))
    } else if is(&["true", "1", "yes", "t", "y"]) {
        Ok(true)
    } else if is(&["false", "0", "no", "f", "n"]) {
        Ok(false)
    } else {
        Err(Problem::value(column, text, "true or false"))
    }
}

fn outcome_of(word: &[u8]) -> Result<Outcome, Problem> {
    let unknown = || Problem::value("outcome", word, "an outcome (answered, busy, no_answer, ...)");
    let text = std::str::from_utf8(word).map_err(|_| unknown())?;
    Outcome::deserialize(IntoDeserializer::<WordError>::into_deserializer(text)).map_err(|_| unknown())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ConnectionId;
    use crate::quality::settings::Settings;

    fn micros(text: &str) -> Option<i64> {
        time("placed_at", text.as_bytes()).ok().map(Timestamp::as_micros)
    }

    #[test]
    fn times_are_read_exactly() {
        for (text, expected) in [
            ("1700000000.123456", Some(1_700_000_000_123_456)),
            ("1700000000", Some(1_700_000_000_000_000)),
            ("0.1", Some(100_000)),
            (".5", Some(500_000)),
            ("5.", Some(5_000_000)),
            ("1.0000005", Some(1_000_001)),
            ("1.0000004999", Some(1_000_000)),
            ("-1.5", Some(-1_500_000)),
            ("", None),
            (".", None),
            ("-", None),
            ("1e9", None),
            ("nan", None),
            ("1.2.3", None),
            ("12:00", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(micros(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_not_zero_does_not_become_zero() {
        let read = |text: &str| millis("duration_ms", text.as_bytes()).ok();
        assert_eq!(read(""), Some(None));
        for (text, expected) in [("0", 0), ("0.0", 0), ("-0", 0), ("0.2", 1), ("1499.5", 1500), ("30000.0", 30_000)] {
            assert_eq!(read(text), Some(Some(expected)), "{text}");
        }
        for text in ["-1", "-0.3", "x", "1s", "inf"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    fn book() -> Book {
        let settings = Settings {
            asr_threshold_percent: Some(50.0),
            statistics_window: 2,
            min_calls: 2,
            retry_interval_sec: 10,
            retry_batch: 1,
            ..Settings::default()
        };
        let key = |id| QualityKey::connection(ConnectionId::new(id).expect("an id"));
        Book::new([(key("v1"), settings), (key("idle"), Settings::default())], Timestamp::default())
    }

    fn read(csv: &str) -> (History, String) {
        let mut notes = Vec::new();
        let history = History::read(&book(), &mut csv.as_bytes(), &mut notes).expect("a history");
        (history, String::from_utf8(notes).expect("text"))
    }

    const HEADER: &str = "connection,placed_at,ended_at,answered,duration_ms,pdd_ms,outcome\n";

    #[test]
    fn columns_come_in_any_order_and_the_file_from_anywhere() {
        let csv = "\u{feff}outcome, ended_at ,placed_at,note,PDD_ms,\"duration_ms\",answered,connection\r\n\
                   busy,2.5,1,\"a, b\",300,0,false,\"v1\"\r\n\r\n,9,8,,,,True,v1\r\n";
        let (history, notes) = read(csv);
        assert_eq!((notes.as_str(), history.bad_rows, history.attempts.len()), ("", 0, 2));
        assert_eq!(history.last_end, Timestamp::from_secs(9));
        let [busy, unknown] = history.attempts[..] else { panic!("two") };
        assert_eq!((busy.outcome, busy.pdd_ms, busy.duration_ms), (Outcome::Busy, Some(300), Some(0)));
        assert_eq!((unknown.outcome, unknown.pdd_ms, unknown.duration_ms), (Outcome::Answered, None, None));
    }

    #[test]
    fn an_empty_outcome_follows_from_the_answer_and_the_duration() {
        for (answered, duration, outcome) in [
            ("true", "1", Outcome::Answered),
            ("true", "", Outcome::Answered),
            ("true", "0", Outcome::VendorFailed),
            ("false", "0", Outcome::VendorFailed),
            ("false", "", Outcome::VendorFailed),
            ("false", "9000", Outcome::VendorFailed),
        ] {
            let (history, _) = read(&format!("{HEADER}v1,1,2,{answered},{duration},,\n"));
            assert_eq!(history.attempts.first().map(|a| a.outcome), Some(outcome), "{answered} {duration}");
        }
    }

    #[test]
    fn every_bad_row_is_named_by_its_line_and_costs_no_other() {
        let rows = [
            ("v1,1,2,true,1,,", None),
            ("v1,1,2,true,1,", Some("6 fields where the header has 7")),
            ("v1,1,2,true,1,,,", Some("8 fields where the header has 7")),
            (",1,2,true,1,,", Some("connection is missing")),
            ("v1,,2,true,1,,", Some("placed_at is missing")),
            ("v1,1,soon,true,1,,", Some("ended_at \"soon\" is not a time in seconds since the epoch")),
            ("v1,1,0.5,true,1,,", Some("it ended before it was placed")),
            ("v1,1,2,,1,,", Some("answered is missing")),
            ("v1,1,2,maybe,1,,", Some("answered \"maybe\" is not true or false")),
            ("v1,1,2,true,-1,,", Some("duration_ms \"-1\" is not a number of milliseconds, 0 or more")),
            ("v1,1,2,true,1,x,", Some("pdd_ms \"x\" is not a number of milliseconds, 0 or more")),
            ("v1,1,2,true,1,,great", Some("outcome \"great\" is not an outcome (answered, busy, no_answer, ...)")),
            ("\"v1,1,2,true,1,,", Some("1 fields where the header has 7")),
            ("v1,1,1,1,1,,", None),
        ];
        let csv: String =
            HEADER.lines().chain(rows.iter().map(|(row, _)| *row)).map(|row| format!("{row}\n")).collect();
        let (history, notes) = read(&csv);
        let mut expected: Vec<String> = (2..)
            .zip(rows)
            .filter_map(|(line, (_, problem))| Some(format!("line {line}: {}; the row is left out", problem?)))
            .collect();
        expected.push("12 rows could not be read; the others were judged".to_owned());
        assert_eq!(notes.lines().collect::<Vec<_>>(), expected);
        assert_eq!((history.bad_rows, history.attempts.len()), (12, 2));
    }

    #[test]
    fn who_is_not_judged_is_noted_once_and_still_ends_the_file() {
        let (history, notes) = read(&format!(
            "{HEADER}x,1,2,true,1,,\nx,1,99,true,1,,\nidle,1,2,true,1,,\nidle,1,2,true,1,,\nv1,1,2,true,1,,\n"
        ));
        assert_eq!(
            notes,
            "line 2: connection \"x\" is not configured: its rows are not judged\n\
             line 4: connection \"idle\" monitors nothing: its rows are not judged\n"
        );
        assert_eq!((history.bad_rows, history.last_end), (0, Timestamp::from_secs(99)));
    }

    #[test]
    fn a_header_that_is_not_one_is_an_error() {
        for (csv, problem) in [
            ("", "it is empty: the first line must name the columns"),
            ("v1,1,2,true,1,,\n", "line 1: the header has no column connection"),
            ("\nconnection,connection\n", "line 2: the header names the column connection twice"),
        ] {
            let error = History::read(&book(), &mut csv.as_bytes(), &mut Vec::new()).err().expect("an error");
            assert!(error.to_string().starts_with(problem), "{error}");
        }
    }

    #[test]
    fn at_one_instant_timers_come_first_then_ends_then_placements() {
        // Bad at 2 (early batch of 1), the timer is due at 12. At 12: the timer, then the end of a call of the bad
        // epoch (no say), then two placements of the retry epoch, one of which ends at once and is good.
        let (history, notes) = read(&format!(
            "{HEADER}v1,12,12,true,5000,,\nv1,3,12,false,0,,\nv1,1,2,false,0,,\nv1,0,2,false,0,,\nv1,12,20,false,0,,\n"
        ));
        assert_eq!(notes, "");
        let mut book = book();
        let mut lines = Vec::new();
        let until = history.last_end;
        history::play::<serde_json::Error>(&mut book, &history.attempts, until, |book, seat, change| {
            lines.push(serde_json::to_string(&Line::of(book.key(seat), change))?);
            Ok(())
        })
        .expect("played");
        assert_eq!(
            lines,
            [
                r#"{"at":2.0,"connection":"v1","from":"good","to":"bad","reason":"asr","calls":2,"asr":0.0,"acd":null,"pdd":null}"#,
                r#"{"at":12.0,"connection":"v1","from":"bad","to":"retry","reason":"retry_interval","calls":0,"asr":null,"acd":null,"pdd":null}"#,
                r#"{"at":12.0,"connection":"v1","from":"retry","to":"good","reason":"batch","calls":1,"asr":100.0,"acd":5.0,"pdd":null}"#,
            ]
        );
    }
}
