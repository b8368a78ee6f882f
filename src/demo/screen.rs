//! Lines for people (with colours, where the terminal has them) or for programs (JSON, one object a line).

use std::io::{self, Write};

use serde::Serialize;

/// What a line is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// How to read what follows.
    Note,
    /// Something happened on the stage, unknown to the program.
    Scene,
    /// A link or a switch changed.
    Node,
    /// A vendor was found bad.
    Bad,
    /// A vendor gets its retry batch, or is in it.
    Retry,
    /// A vendor recovered.
    Recovered,
    /// Calls try the vendors in another order.
    Order,
    /// A mail was delivered.
    Mail,
    /// At the end: what was shown.
    Summary,
}

impl Kind {
    fn label(self) -> &'static str {
        match self {
            Self::Note => "",
            Self::Scene => "STAGE",
            Self::Node => "link",
            Self::Bad => "BAD",
            Self::Retry => "retry",
            Self::Recovered => "GOOD",
            Self::Order => "order",
            Self::Mail => "mail",
            Self::Summary => "shown",
        }
    }

    /// The parameters of the terminal's colour sequence.
    fn colour(self) -> &'static str {
        match self {
            Self::Note | Self::Mail | Self::Summary => "0",
            Self::Scene => "35",
            Self::Node => "36",
            Self::Bad => "1;31",
            Self::Retry => "33",
            Self::Recovered => "1;32",
            Self::Order => "34",
        }
    }
}

/// One thing to tell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Seconds of the demo clock since the start.
    pub at_sec: f64,
    /// What it is about.
    pub kind: Kind,
    /// In words.
    pub text: String,
}

/// A table: its head and its rows, in text and for programs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Picture {
    /// Seconds of the demo clock since the start.
    pub at_sec: f64,
    /// The lines of the table, laid out, each with what it is about; the first is the head.
    #[serde(skip)]
    pub lines: Vec<(Option<Kind>, String)>,
    /// The same for programs.
    pub picture: serde_json::Value,
}

/// Where the lines go.
pub struct Screen<'a> {
    out: &'a mut (dyn Write + Send),
    colour: bool,
    json: bool,
    /// The latest time shown: a picture is a little older than the change that it follows.
    latest_sec: f64,
}

impl std::fmt::Debug for Screen<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Screen").field("colour", &self.colour).field("json", &self.json).finish_non_exhaustive()
    }
}

/// `min:sec` of the demo clock.
pub(super) fn clock_text(secs: f64) -> String {
    let secs = secs.max(0.0) as u64;
    format!("{:02}:{:02}", secs / 60, secs % 60)
}

impl<'a> Screen<'a> {
    /// A screen on this output.
    #[must_use]
    pub fn new(out: &'a mut (dyn Write + Send), colour: bool, json: bool) -> Self {
        Self { out, colour, json, latest_sec: 0.0 }
    }

    /// Shows a line.
    ///
    /// # Errors
    /// Where the output takes nothing more.
    pub fn show(&mut self, line: &Line) -> io::Result<()> {
        if self.json {
            serde_json::to_writer(&mut *self.out, line)?;
            writeln!(self.out)?;
            return self.out.flush();
        }
        self.latest_sec = self.latest_sec.max(line.at_sec);
        let (at, label) = (clock_text(self.latest_sec), line.kind.label());
        if self.colour {
            writeln!(self.out, "\x1b[2m{at}\x1b[0m \x1b[{}m{label:<6}{}\x1b[0m", line.kind.colour(), line.text)?;
        } else {
            writeln!(self.out, "{at} {label:<6}{}", line.text)?;
        }
        self.out.flush()
    }

    /// Shows a table.
    ///
    /// # Errors
    /// Where the output takes nothing more.
    pub fn table(&mut self, picture: &Picture) -> io::Result<()> {
        if self.json {
            serde_json::to_writer(&mut *self.out, picture)?;
            writeln!(self.out)?;
            return self.out.flush();
        }
        writeln!(self.out)?;
        for (place, (kind, line)) in picture.lines.iter().enumerate() {
            match kind {
                Some(kind) if self.colour => writeln!(self.out, "  \x1b[{}m{line}\x1b[0m", kind.colour())?,
                None if self.colour && place == 0 => writeln!(self.out, "  \x1b[2m{line}\x1b[0m")?,
                _ => writeln!(self.out, "  {line}")?,
            }
        }
        writeln!(self.out)?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(colour: bool, json: bool) -> String {
        let mut out = Vec::new();
        let mut screen = Screen::new(&mut out, colour, json);
        screen.show(&Line { at_sec: 83.4, kind: Kind::Bad, text: "vendor-a: lowered".into() }).unwrap();
        screen.show(&Line { at_sec: 82.0, kind: Kind::Order, text: "calls of intl".into() }).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lines_are_plain_coloured_or_objects() {
        assert_eq!(shown(false, false), "01:23 BAD   vendor-a: lowered\n01:23 order calls of intl\n");
        assert!(shown(true, false).starts_with("\x1b[2m01:23\x1b[0m \x1b[1;31mBAD   vendor-a: lowered\x1b[0m\n"));
        let json = shown(false, true);
        assert!(json.starts_with(r#"{"at_sec":83.4,"kind":"bad","text":"vendor-a: lowered"}"#), "{json}");
    }
}
