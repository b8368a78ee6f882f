//! `pointsman replay`: a captured ESL or AMI byte stream in, one line of JSON per finished attempt out.
//!
//! The stream goes through the very code that follows a live link, from the bytes to the attempts, so a recording
//! shows what pointsman would make of it. It needs no configuration: connections keep the names that the PBX gives
//! them, and the outcomes are those of the default table.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use bytes::BytesMut;
use serde::Serialize;
use tokio_util::codec::Decoder;

use crate::call::attempt::{CallEvent, Finished};
use crate::call::outcome::{CauseTable, Outcome};
use crate::call::tracker::{Output, Tracker};
use crate::cli::WrongUsage;
use crate::pbx::PbxKind;
use crate::pbx::asterisk::{self, AstMapper, ChannelList};
use crate::pbx::event::PbxEvent;
use crate::pbx::freeswitch::{self, FsMapper};
use crate::time::Timestamp;
use crate::wire::ami::{AmiCodec, AmiFrame};
use crate::wire::esl::{EslCodec, EslFrame};
use crate::wire::limits::FrameError;

/// How much is read at once.
const READ: usize = 64 * 1024;

/// How many damaged places are named one by one; of the others only the number is told.
const NAMED: usize = 20;

/// Arguments of `pointsman replay`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Protocol of the recording
    #[arg(long, value_name = "KIND", value_enum)]
    kind: Kind,
    /// Arrival times: one line `byte-offset time` per read, as recorded beside the stream; used where the PBX sends
    /// no time
    #[arg(long, value_name = "FILE")]
    index: Option<PathBuf>,
    /// The recording, from the first byte of the socket or events only; `-` is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Protocol of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// FreeSWITCH, event socket.
    Esl,
    /// Asterisk, manager interface.
    Ami,
}

/// Replays the recording. The exit code is 1 where a part of it could not be read; what could be is printed.
///
/// # Errors
/// Where a file cannot be opened (wrong usage) or read, or the output cannot be written.
#[expect(clippy::needless_pass_by_value, reason = "every command takes its arguments")]
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let index = match &args.index {
        Some(path) => Index::read(open(path)?, path)?,
        None => Index::default(),
    };
    let mut input: Box<dyn Read> = match args.file.to_str() {
        Some("-") => Box::new(io::stdin().lock()),
        _ => Box::new(open(&args.file)?),
    };
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut replay = Replay::new(args.kind, index);
    let mut counts = BTreeMap::new();
    let mut timeless = false;
    let read = pump(&mut *input, &mut replay, &mut |attempt| {
        *counts.entry(attempt.outcome).or_insert(0u64) += 1;
        timeless |= attempt.placed_at_us == 0;
        serde_json::to_writer(&mut out, attempt)?;
        out.write_all(b"\n")
    });
    out.flush()?;
    report(&args.file, replay.problems(), &counts);
    if timeless {
        let _ = writeln!(io::stderr(), "pointsman: the recording tells no times, so they are 0: give --index");
    }
    read.with_context(|| args.file.display().to_string())?;
    Ok(if replay.problems().count > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Tells on stderr what could not be read, and on a terminal what there was.
fn report(file: &Path, problems: &Problems, counts: &BTreeMap<Outcome, u64>) {
    let mut err = io::stderr().lock();
    // Nobody is left to tell that stderr cannot be written.
    for Problem { offset, what } in &problems.first {
        let _ = writeln!(err, "pointsman: {}: byte {offset}: {what}", file.display());
    }
    let more = problems.count - problems.first.len();
    if more > 0 {
        let _ = writeln!(err, "pointsman: {}: {more} more such places", file.display());
    }
    if err.is_terminal() {
        let counted: Vec<_> = counts.iter().map(|(outcome, count)| format!("{count} {outcome}")).collect();
        let total: u64 = counts.values().sum();
        let colon = if total > 0 { ": " } else { "" };
        let _ = writeln!(err, "{total} attempts{colon}{}", counted.join(", "));
    }
}

fn open(path: &Path) -> anyhow::Result<File> {
    let wrong = |what: &dyn std::fmt::Display| WrongUsage(format!("{}: {what}", path.display()));
    let file = File::open(path).map_err(|error| wrong(&error))?;
    if file.metadata().is_ok_and(|about| about.is_dir()) {
        return Err(wrong(&"this is a directory").into());
    }
    Ok(file)
}

/// Reads to the end, or to where the stream breaks.
fn pump(input: &mut dyn Read, replay: &mut Replay, print: &mut Print<'_>) -> io::Result<()> {
    let mut chunk = vec![0; READ];
    loop {
        let length = match input.read(&mut chunk) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                replay.end(print)?;
                return Err(error);
            }
        };
        if length == 0 {
            return replay.end(print);
        }
        replay.feed(&chunk[..length], print)?;
        if replay.broken {
            return replay.end(print);
        }
    }
}

type Print<'a> = dyn FnMut(&Attempt) -> io::Result<()> + 'a;

/// A finished attempt as it is printed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Attempt {
    /// What the PBX calls the connection.
    pub connection: String,
    /// The PBX's own identifier of the leg.
    pub leg: String,
    /// The outcome by the default table.
    pub outcome: Outcome,
    /// Post-dial delay in milliseconds; null where nothing came from the far end.
    pub pdd_ms: Option<u64>,
    /// Answer to end in milliseconds; 0 where unanswered, null where not known.
    pub duration_ms: Option<u64>,
    /// The Q.850 cause as the switch gives it.
    pub cause: Option<u16>,
    /// The SIP status, where the vendor sent it.
    pub sip_status: Option<u16>,
    /// Microseconds since the epoch, by the PBX's clock.
    pub placed_at_us: i64,
    /// Microseconds since the epoch, by the PBX's clock.
    pub ended_at_us: i64,
}

impl From<&Finished> for Attempt {
    fn from(finished: &Finished) -> Self {
        Self {
            connection: finished.trunk.to_string(),
            leg: finished.leg.to_string(),
            outcome: CauseTable::default().outcome(&finished.evidence),
            pdd_ms: finished.pdd_ms,
            duration_ms: finished.duration_ms,
            cause: finished.cause,
            sip_status: finished.sip_status,
            placed_at_us: finished.placed_at.as_micros(),
            ended_at_us: finished.ended_at.as_micros(),
        }
    }
}

/// What of a recording could not be read.
#[derive(Debug, Default)]
pub struct Problems {
    /// How many places.
    pub count: usize,
    /// The first of them.
    pub first: Vec<Problem>,
}

impl Problems {
    fn add(&mut self, offset: u64, what: String) {
        self.count += 1;
        if self.first.len() < NAMED {
            self.first.push(Problem { offset, what });
        }
    }
}

/// A place that could not be read.
#[derive(Debug)]
pub struct Problem {
    /// Offset of the frame in the recording, in bytes.
    pub offset: u64,
    /// What is wrong there.
    pub what: String,
}

/// Turns the bytes of a recording into attempts. The result does not depend on how the bytes are cut into pieces.
#[derive(Debug)]
pub struct Replay {
    stream: Stream,
    tracker: Tracker,
    index: Index,
    buffer: BytesMut,
    /// Offset of the buffer's first byte in the recording.
    offset: u64,
    /// Offset of the frame that is being read.
    started: Option<u64>,
    /// The latest time that the PBX told.
    told: Timestamp,
    problems: Problems,
    broken: bool,
}

#[derive(Debug)]
enum Stream {
    Esl(EslCodec, FsMapper),
    Ami(AmiCodec, AstMapper, ChannelList),
}

impl Replay {
    /// Nothing read yet.
    #[must_use]
    pub fn new(kind: Kind, index: Index) -> Self {
        let (stream, kind) = match kind {
            Kind::Esl => (Stream::Esl(EslCodec::default(), FsMapper::new(false)), PbxKind::FreeSwitch),
            Kind::Ami => {
                (Stream::Ami(AmiCodec::default(), AstMapper::default(), ChannelList::default()), PbxKind::Asterisk)
            }
        };
        Self {
            stream,
            tracker: Tracker::for_recording(kind),
            index,
            buffer: BytesMut::new(),
            offset: 0,
            started: None,
            told: Timestamp::default(),
            problems: Problems::default(),
            broken: false,
        }
    }

    /// Takes the next piece.
    ///
    /// # Errors
    /// Those of `print`.
    pub fn feed(&mut self, piece: &[u8], print: &mut Print<'_>) -> io::Result<()> {
        if self.broken {
            return Ok(());
        }
        self.buffer.extend_from_slice(piece);
        while self.step(false, print)? {}
        Ok(())
    }

    /// There are no more pieces.
    ///
    /// # Errors
    /// Those of `print`.
    pub fn end(&mut self, print: &mut Print<'_>) -> io::Result<()> {
        while !self.broken && self.step(true, print)? {}
        let output = self.tracker.finish(self.told);
        print_finished(&output, print)
    }

    /// What could not be read so far.
    #[must_use]
    pub fn problems(&self) -> &Problems {
        &self.problems
    }

    /// Offset of the frame that is being read. A codec may take its head before its body has come; the empty lines before
    /// a frame are no part of it.
    fn frame_start(&mut self) -> u64 {
        let blank = self.buffer.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        let begins = self.offset + u64::try_from(blank).unwrap_or(0);
        let is_begun = blank < self.buffer.len();
        if self.started.is_none() && is_begun {
            self.started = Some(begins);
        }
        self.started.unwrap_or(begins)
    }

    /// Counts the damage among the events, and says so to the tracker as a live link does.
    fn damage_told(&mut self, offset: u64, events: Vec<PbxEvent>) -> Vec<PbxEvent> {
        let damage = events.iter().filter(|event| asterisk::is_damage(event)).count();
        if damage == 0 {
            return events;
        }
        self.problems.add(offset, "a damaged message is left out".into());
        let told = events.into_iter().filter(|event| !matches!(event, PbxEvent::Lost(_)));
        told.chain([PbxEvent::Lost(1)]).collect()
    }

    /// Takes one frame from the buffer; whether there was one.
    fn step(&mut self, at_end: bool, print: &mut Print<'_>) -> io::Result<bool> {
        let held = self.buffer.len();
        let start = self.frame_start();
        let events = match &mut self.stream {
            Stream::Esl(codec, mapper) => {
                next(codec, &mut self.buffer, at_end).map(|frame| frame.map(|frame| esl_events(&frame, mapper)))
            }
            Stream::Ami(codec, mapper, list) => {
                next(codec, &mut self.buffer, at_end).map(|frame| frame.map(|frame| ami_events(&frame, mapper, list)))
            }
        };
        let taken = held.saturating_sub(self.buffer.len());
        self.offset += u64::try_from(taken).unwrap_or(0);
        if !matches!(events, Ok(None)) {
            self.started = None;
        }
        match events {
            Err(error) => {
                self.broken = true;
                self.problems.add(start, format!("{error}; what follows cannot be read"));
                Ok(false)
            }
            Ok(None) => Ok(false),
            Ok(Some(events)) => {
                let received = self.index.at(self.offset.saturating_sub(1));
                for event in self.damage_told(start, events) {
                    self.told = self.told.max(told(&event).unwrap_or(self.told));
                    let output = self.tracker.apply(&event, received.unwrap_or(self.told));
                    print_finished(&output, print)?;
                }
                Ok(true)
            }
        }
    }
}

fn next<D: Decoder<Error = FrameError>>(
    codec: &mut D,
    buffer: &mut BytesMut,
    at_end: bool,
) -> Result<Option<D::Item>, FrameError> {
    if at_end { codec.decode_eof(buffer) } else { codec.decode(buffer) }
}

fn esl_events(frame: &EslFrame, mapper: &mut FsMapper) -> Vec<PbxEvent> {
    match frame.content_type() {
        // A greeting: a link begins, in a recording of several of them perhaps after a gap.
        b"auth/request" => vec![PbxEvent::Unlinked, PbxEvent::Linked],
        b"api/response" if frame.body.starts_with(b"{") => match freeswitch::snapshot(&frame.body) {
            // An empty list may be one of anything.
            Ok(list) if list.legs.is_empty() => Vec::new(),
            Ok(list) => vec![PbxEvent::Snapshot(list)],
            Err(_) => freeswitch::described(&frame.body).ok().flatten().into_iter().collect(),
        },
        _ => mapper.frame(frame),
    }
}

fn ami_events(frame: &AmiFrame, mapper: &mut AstMapper, list: &mut ChannelList) -> Vec<PbxEvent> {
    let AmiFrame::Message(message) = frame else { return Vec::new() };
    match list.message(message) {
        Ok(Some(snapshot)) => vec![PbxEvent::Snapshot(snapshot)],
        Ok(None) => mapper.event(message).into_iter().collect(),
        Err(asterisk::Damaged) => vec![PbxEvent::Lost(1)],
    }
}

/// The time that an event carries.
fn told(event: &PbxEvent) -> Option<Timestamp> {
    match event {
        PbxEvent::FreeSwitch(event) => event.at,
        PbxEvent::Asterisk(event) => event.at,
        _ => None,
    }
}

fn print_finished(output: &Output, print: &mut Print<'_>) -> io::Result<()> {
    for event in &output.events {
        if let CallEvent::Finished(finished) = event {
            print(&Attempt::from(&**finished))?;
        }
    }
    Ok(())
}

/// When each part of a recording was received.
#[derive(Debug, Default)]
pub struct Index {
    /// Offset of the first byte of each read, and when it came; in order.
    reads: Vec<(u64, Timestamp)>,
}

impl Index {
    /// Reads lines `byte-offset time`, time in seconds since the epoch with decimals.
    ///
    /// # Errors
    /// Where the file cannot be read, or a line is something else: it is named.
    pub fn read(mut file: impl Read, name: &Path) -> anyhow::Result<Self> {
        let mut text = String::new();
        file.read_to_string(&mut text).with_context(|| name.display().to_string())?;
        let mut reads: Vec<(u64, Timestamp)> = Vec::new();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let read = index_line(line).filter(|(offset, _)| reads.last().is_none_or(|(before, _)| before <= offset));
            let Some(read) = read else {
                let at = format!("{}:{}", name.display(), number + 1);
                let what = "expected a byte offset not smaller than the one before, and a time in seconds";
                return Err(WrongUsage(format!("{at}: {what}, not {line:?}")).into());
            };
            reads.push(read);
        }
        Ok(Self { reads })
    }

    /// When the byte at `offset` was received.
    fn at(&self, offset: u64) -> Option<Timestamp> {
        let after = self.reads.partition_point(|(start, _)| *start <= offset);
        self.reads.get(after.checked_sub(1)?).map(|(_, at)| *at)
    }
}

fn index_line(line: &str) -> Option<(u64, Timestamp)> {
    let mut words = line.split_whitespace();
    let read = (words.next()?.parse().ok()?, asterisk::time(words.next()?.as_bytes())?);
    words.next().is_none().then_some(read)
}
