//! A CSV of finished attempts, as `judge` and `test-call` read it.
//!
//! A line of the file is a row: a quote that is never closed costs that row and not the rest of the file.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

use anyhow::Context;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error as WordError;

use crate::call::outcome::Outcome;
use crate::quality::book::Seat;
use crate::quality::history::Attempt;
use crate::time::Timestamp;

/// Opens a file; "-" is standard input.
///
/// # Errors
/// A file that cannot be opened.
pub(super) fn open(path: &Path) -> anyhow::Result<Box<dyn BufRead>> {
    if path == Path::new("-") {
        return Ok(Box::new(BufReader::new(io::stdin().lock())));
    }
    Ok(Box::new(BufReader::new(File::open(path).with_context(|| format!("cannot open {}", path.display()))?)))
}

/// Whether it is of interest to which route map a row belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MapColumns {
    /// The columns `map` and `number` are read, where the file has them.
    Read,
    /// They are columns as any other.
    Ignored,
}

/// A file whose header was read.
pub(super) struct Attempts<'a> {
    lines: Lines<'a>,
    columns: Columns,
}

impl<'a> Attempts<'a> {
    /// Reads the header.
    ///
    /// # Errors
    /// A file that cannot be read, is empty, or does not name the columns.
    pub(super) fn of(input: &'a mut dyn BufRead, map_columns: MapColumns) -> anyhow::Result<Self> {
        let mut lines = Lines::new(input);
        loop {
            let Some((number, line)) = lines.next()? else {
                anyhow::bail!("it is empty: the first line must name the columns {}", COLUMNS.join(","));
            };
            if !line.is_empty() {
                let columns = Columns::of(line, map_columns);
                let columns = columns.map_err(|problem| anyhow::anyhow!("line {number}: {problem}"))?;
                return Ok(Self { lines, columns });
            }
        }
    }

    /// Whether the file says of its rows to which route map they belong.
    pub(super) fn tell_maps(&self) -> bool {
        self.columns.map.is_some() || self.columns.number.is_some()
    }

    /// Hands every row to `take`, with the number of its line; a row that cannot be read is noted and left out. Gives how
    /// many those were.
    ///
    /// # Errors
    /// A file that cannot be read further; notes that cannot be written.
    pub(super) fn read(
        mut self,
        notes: &mut dyn Write,
        mut take: impl FnMut(usize, &Row<'_>, &mut dyn Write) -> io::Result<()>,
    ) -> anyhow::Result<usize> {
        let mut bad_rows = 0;
        while let Some((number, line)) = self.lines.next()? {
            if line.is_empty() {
                continue;
            }
            match self.columns.row(line) {
                Ok(row) => take(number, &row, notes)?,
                Err(problem) => {
                    bad_rows += 1;
                    writeln!(notes, "line {number}: {problem}; the row is left out")?;
                }
            }
        }
        Ok(bad_rows)
    }
}

/// Says how many rows could not be read, where there are such, and what became of the others.
///
/// # Errors
/// Notes that cannot be written.
pub(super) fn note_bad_rows(notes: &mut dyn Write, bad_rows: usize, others: &str) -> io::Result<()> {
    if bad_rows > 0 {
        let rows = if bad_rows == 1 { "row" } else { "rows" };
        writeln!(notes, "{bad_rows} {rows} could not be read; the others {others}")?;
    }
    notes.flush()
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

/// Where each of [`COLUMNS`] is, and those that a file need not have.
struct Columns {
    places: [usize; COLUMNS.len()],
    map: Option<usize>,
    number: Option<usize>,
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

/// A finished attempt.
pub(super) struct Row<'a> {
    pub(super) connection: Cow<'a, str>,
    /// The route map by name; `None` where the file does not say.
    pub(super) map: Option<Cow<'a, str>>,
    /// The number dialled; `None` where the file does not say.
    pub(super) number: Option<Cow<'a, str>>,
    placed_at: Timestamp,
    pub(super) ended_at: Timestamp,
    outcome: Outcome,
    duration_ms: Option<u64>,
    pdd_ms: Option<u64>,
}

impl Row<'_> {
    /// As it is judged at that place.
    pub(super) fn attempt(&self, seat: Seat) -> Attempt {
        let Self { connection: _, map: _, number: _, placed_at, ended_at, outcome, duration_ms, pdd_ms } = *self;
        Attempt { seat, placed_at, ended_at, outcome, duration_ms, pdd_ms }
    }
}

impl Columns {
    fn of(header: &[u8], map_columns: MapColumns) -> Result<Self, Problem> {
        let fields = fields(header);
        let place = |name: &'static str| {
            let mut found = (0..fields.len()).filter(|i| fields[*i].trim_ascii().eq_ignore_ascii_case(name.as_bytes()));
            match (found.next(), found.next()) {
                (place, None) => Ok(place),
                (_, Some(_)) => Err(Problem::TwoColumns(name)),
            }
        };
        let mut places = [0; COLUMNS.len()];
        for (at, name) in places.iter_mut().zip(COLUMNS) {
            *at = place(name)?.ok_or(Problem::NoColumn(name))?;
        }
        let [map, number] = match map_columns {
            MapColumns::Read => [place("map")?, place("number")?],
            MapColumns::Ignored => [None, None],
        };
        Ok(Self { places, map, number, count: fields.len() })
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
        let text = |field: &[u8]| Cow::Owned(String::from_utf8_lossy(field).into_owned());
        let connection = text(connection);
        let [map, number] = [self.map, self.number]
            .map(|at| at.map(|at| fields[at].trim_ascii()).filter(|field| !field.is_empty()).map(text));
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
        Ok(Row { connection, map, number, placed_at, ended_at, outcome, duration_ms, pdd_ms: millis("pdd_ms", pdd)? })
    }
}

type Fields<'a> = Vec<Cow<'a, [u8]>>;

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
}
