//! `pointsman judge`: a CSV of finished attempts in, one JSON line per state change out.
//!
//! The attempts go through the very machines that [`crate::quality`] gives the running program, so this answers "what
//! would it have done?" for last week's calls, and what another threshold would have done.
//!
//! A connection that is judged per map needs to know to which map a row belongs: its column `map` says so, or the number in
//! its column `number`, as with calls.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufRead, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use serde::Serialize;

use crate::cli::attempts::{self, Attempts, MapColumns, Row};
use crate::cli::config_file::ConfigFile;
use crate::config::Config;
use crate::ids::{MapId, QualityKey};
use crate::quality::book::{Book, Seat};
use crate::quality::history::{self, Attempt};
use crate::quality::machine::{Change, Reason, State};
use crate::quality::settings::Settings;
use crate::routing::matching::Prefixes;
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
    /// `vendor_failed`. For connections that are judged per map: a column map, or where that is empty or not there a
    /// column number, says to which route map a row belongs.
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
    let mut input = attempts::open(&path)?;
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
    let maps = Prefixes::new(config.route_maps.iter().map(|map| (&map.id, &*map.prefixes)));
    let History { mut book, attempts, last_end, bad_rows } =
        History::read(config.judged(), &maps, input, &mut BufWriter::new(err))?;
    let mut out = BufWriter::new(out);
    history::play(&mut book, &attempts, last_end, |book, seat, change| {
        serde_json::to_writer(&mut out, &Line::of(book.key(seat), change))?;
        out.write_all(b"\n")
    })?;
    out.flush()?;
    Ok(Verdict { bad_rows })
}

/// A change of state as it is printed.
#[derive(Serialize)]
struct Line<'a> {
    at: f64,
    connection: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    map: Option<&'a str>,
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
            map: key.map.as_ref().map(MapId::as_str),
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

/// All that was read, and the machines to judge it.
struct History {
    book: Book,
    attempts: Vec<Attempt>,
    /// The latest end in the file, that of connections which are not configured included.
    last_end: Timestamp,
    bad_rows: usize,
}

impl History {
    fn read(
        keys: Vec<(QualityKey, Settings)>,
        maps: &Prefixes,
        input: &mut dyn BufRead,
        notes: &mut dyn Write,
    ) -> anyhow::Result<Self> {
        let of_pairs = keys.iter().filter(|(key, _)| key.map.is_some());
        let mut per_map: HashSet<String> = of_pairs.map(|(key, _)| key.connection.to_string()).collect();
        let file = Attempts::of(input, if per_map.is_empty() { MapColumns::Ignored } else { MapColumns::Read })?;
        if file.tell_maps() {
            per_map.clear();
        }
        // Of the pairs of such a connection the first is kept, for all of them.
        let whole = |key: QualityKey| match per_map.contains(key.connection.as_str()) {
            true => QualityKey::connection(key.connection),
            false => key,
        };
        let book = Book::new(keys.into_iter().map(|(key, settings)| (whole(key), settings)), Timestamp::default());
        let mut reader = Reader::new(&book, maps, per_map);
        let bad_rows = file.read(notes, |line, row, notes| reader.take(line, row, notes))?;
        attempts::note_bad_rows(notes, bad_rows, "were judged")?;
        let Reader { attempts, last_end, .. } = reader;
        Ok(Self { book, attempts, last_end, bad_rows })
    }
}

/// Where the attempts of a connection are judged.
#[derive(Default)]
struct Place {
    monitored: bool,
    /// By the index of the map; a connection that is judged over all its attempts has one, of no map.
    seats: Vec<(Option<usize>, Seat)>,
}

/// Takes the rows of a file to where they are judged.
struct Reader<'a> {
    places: HashMap<String, Place>,
    maps: &'a Prefixes,
    /// Connections that are to be judged per map, where the file does not say to which map a row belongs.
    whole: HashSet<String>,
    /// Connections of which something was said that holds for all their rows.
    noted: HashSet<String>,
    attempts: Vec<Attempt>,
    last_end: Timestamp,
}

impl<'a> Reader<'a> {
    fn new(book: &Book, maps: &'a Prefixes, whole: HashSet<String>) -> Self {
        let mut places: HashMap<String, Place> = HashMap::new();
        for (key, machine) in book.iter() {
            let place = places.entry(key.connection.to_string()).or_default();
            place.monitored = machine.settings().is_monitored();
            let map = key.map.as_ref().and_then(|map| maps.named(map.as_str()));
            place.seats.extend(book.seat(key).map(|seat| (map, seat)));
        }
        let last_end = Timestamp::from_micros(i64::MIN);
        Self { places, maps, whole, noted: HashSet::new(), attempts: Vec::new(), last_end }
    }

    fn take(&mut self, line: usize, row: &Row<'_>, notes: &mut dyn Write) -> io::Result<()> {
        self.last_end = self.last_end.max(row.ended_at);
        let place = self.places.get(&*row.connection);
        let seat = place.and_then(|place| place.seat(row, self.maps));
        self.attempts.extend(seat.map(|seat| row.attempt(seat)));
        let note = match place {
            None => "is not configured: its rows are not judged",
            Some(Place { monitored: false, .. }) => "monitors nothing: its rows are not judged",
            Some(_) if seat.is_none() => {
                "is judged per map, and this row belongs to none that holds it: such rows are not judged"
            }
            // Said once for the whole file.
            Some(_) if self.whole.contains(&*row.connection) => {
                self.whole.clear();
                "is judged per map, and the file has no column map or number: \
                 such connections are judged over all their rows"
            }
            Some(_) => return Ok(()),
        };
        if self.noted.contains(&*row.connection) {
            return Ok(());
        }
        self.noted.insert(row.connection.to_string());
        writeln!(notes, "line {line}: connection {:?} {note}", row.connection)
    }
}

impl Place {
    fn seat(&self, row: &Row<'_>, maps: &Prefixes) -> Option<Seat> {
        if let [(None, seat)] = self.seats[..] {
            return Some(seat);
        }
        let map = maps.of_call(row.map.as_deref(), row.number.as_deref())?;
        self.seats.iter().find(|(of, _)| *of == Some(map)).map(|(_, seat)| *seat)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::outcome::Outcome;
    use crate::ids::ConnectionId;

    fn keys() -> Vec<(QualityKey, Settings)> {
        let settings = Settings {
            asr_threshold_percent: Some(50.0),
            statistics_window: 2,
            min_calls: 2,
            retry_interval_sec: 10,
            retry_batch: 1,
            ..Settings::default()
        };
        let key = |id| QualityKey::connection(ConnectionId::new(id).expect("an id"));
        vec![(key("v1"), settings), (key("idle"), Settings::default())]
    }

    fn read(csv: &str) -> (History, String) {
        let mut notes = Vec::new();
        let history = History::read(keys(), &Prefixes::default(), &mut csv.as_bytes(), &mut notes).expect("a history");
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
            let read = History::read(keys(), &Prefixes::default(), &mut csv.as_bytes(), &mut Vec::new());
            let error = read.err().expect("an error");
            assert!(error.to_string().starts_with(problem), "{error}");
        }
    }

    #[test]
    fn at_one_instant_timers_come_first_then_ends_then_placements() {
        // Bad at 2 (early batch of 1), the timer is due at 12. At 12: the timer, then the end of a call of the bad
        // epoch (no say), then two placements of the retry epoch, one of which ends at once and is good.
        let (mut history, notes) = read(&format!(
            "{HEADER}v1,12,12,true,5000,,\nv1,3,12,false,0,,\nv1,1,2,false,0,,\nv1,0,2,false,0,,\nv1,12,20,false,0,,\n"
        ));
        assert_eq!(notes, "");
        let mut lines = Vec::new();
        let until = history.last_end;
        history::play::<serde_json::Error>(&mut history.book, &history.attempts, until, |book, seat, change| {
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
