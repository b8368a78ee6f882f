//! YAML: the parser's events carry the places where values begin; where they end is read off the text.
//!
//! The events are taken one at a time and the nesting is kept on a stack of our own, so that neither depth nor
//! aliases of aliases can exhaust anything.

use std::collections::{BTreeMap, HashMap};

use yaml_rust2::parser::{Event, Parser};
use yaml_rust2::scanner::{Marker, ScanError, TScalarStyle};

use super::{Inside, MAX_DEPTH, MAX_VALUES, Span, Spot, SyntaxError};

pub(super) fn locate(text: &str) -> Result<Spot, SyntaxError> {
    let mut parser = Parser::new_from_str(text);
    let mut build = Build::new(text);
    loop {
        let (event, mark) = parser.next_token().map_err(|error| build.syntax_error(&error))?;
        match event {
            Event::StreamEnd => return Ok(build.finish()),
            Event::DocumentStart => build.document(&mark)?,
            Event::Scalar(value, style, anchor, _) => build.scalar(value, style, anchor, &mark)?,
            Event::SequenceStart(anchor, _) => build.open(Inside::List(Vec::new()), anchor, &mark)?,
            Event::MappingStart(anchor, _) => build.open(Inside::Table(BTreeMap::new()), anchor, &mark)?,
            Event::SequenceEnd | Event::MappingEnd => build.close()?,
            Event::Alias(anchor) => build.alias(anchor, &mark)?,
            Event::Nothing | Event::StreamStart | Event::DocumentEnd => {}
        }
    }
}

/// A list or a table that is not complete yet.
struct Open {
    spot: Spot,
    anchor: usize,
    key: Option<(String, Span)>,
    values: usize,
}

struct Build<'a> {
    text: &'a str,
    /// Byte offset of each 64th character: marks count characters.
    chars: Vec<usize>,
    stack: Vec<Open>,
    root: Option<Spot>,
    documents: usize,
    anchors: HashMap<usize, (Spot, usize)>,
    values: usize,
}

const STRIDE: usize = 64;

impl<'a> Build<'a> {
    fn new(text: &'a str) -> Self {
        let chars = text.char_indices().step_by(STRIDE).map(|(at, _)| at).collect();
        let (stack, anchors) = (Vec::new(), HashMap::new());
        Self { text, chars, stack, root: None, documents: 0, anchors, values: 0 }
    }

    fn byte(&self, mark: &Marker) -> usize {
        let from = self.chars.get(mark.index() / STRIDE).copied().unwrap_or(self.text.len());
        let rest = &self.text[from..];
        rest.char_indices().nth(mark.index() % STRIDE).map_or(self.text.len(), |(at, _)| from + at)
    }

    fn syntax_error(&self, error: &ScanError) -> SyntaxError {
        let at = self.byte(error.marker());
        SyntaxError::new(at..at, error.info())
    }

    fn document(&mut self, mark: &Marker) -> Result<(), SyntaxError> {
        self.documents += 1;
        if self.documents > 1 {
            let at = self.byte(mark);
            return Err(SyntaxError::new(at..at, "a second document begins here: put everything into one"));
        }
        Ok(())
    }

    fn finish(self) -> Spot {
        self.root.unwrap_or(Spot { key: None, value: 0..0, inside: Inside::Table(BTreeMap::new()) })
    }

    fn open(&mut self, inside: Inside, anchor: usize, mark: &Marker) -> Result<(), SyntaxError> {
        let at = self.byte(mark);
        if self.stack.len() >= MAX_DEPTH {
            return Err(SyntaxError::too_deep(at));
        }
        if self.expects_key() {
            return Err(SyntaxError::new(at..at, "a key must be text"));
        }
        let end = at + self.text[at..].chars().next().map_or(0, char::len_utf8);
        let spot = Spot { key: None, value: at..end, inside };
        self.stack.push(Open { spot, anchor, key: None, values: self.values });
        Ok(())
    }

    fn close(&mut self) -> Result<(), SyntaxError> {
        let Some(mut done) = self.stack.pop() else { return Ok(()) };
        // The mark of a table without braces is at its first colon: its first key shows it better.
        let braces = self.text[done.spot.value.clone()].starts_with(['{', '[']);
        match &done.spot.inside {
            Inside::Table(fields) if !braces => {
                let keys = fields.values().filter_map(|spot| spot.key.clone());
                done.spot.value = keys.min_by_key(|key| key.start).unwrap_or(done.spot.value);
            }
            Inside::List(items) if !braces => {
                done.spot.value = items.first().map_or(done.spot.value, |item| item.value.clone());
            }
            _ => {}
        }
        let values = self.values - done.values;
        self.remember(done.anchor, &done.spot, values);
        self.put(done.spot)
    }

    fn scalar(&mut self, value: String, style: TScalarStyle, anchor: usize, mark: &Marker) -> Result<(), SyntaxError> {
        let start = self.byte(mark);
        let span = start..self.scalar_end(start, &value, style);
        let plain = style == TScalarStyle::Plain;
        if self.expects_key() {
            if plain && matches!(value.as_str(), "" | "~" | "null") {
                return Err(SyntaxError::new(span, "a key must be text"));
            }
            return self.key(value, span);
        }
        if plain && is_endless(&value) {
            return Err(SyntaxError::new(span, "this is not a finite number"));
        }
        let spot = Spot::leaf(span);
        self.remember(anchor, &spot, 1);
        self.put(spot)
    }

    fn alias(&mut self, anchor: usize, mark: &Marker) -> Result<(), SyntaxError> {
        let start = self.byte(mark);
        let rest = &self.text[start..];
        let end = start + rest.find([' ', ',', ']', '}', '\r', '\n']).unwrap_or(rest.len());
        if self.expects_key() {
            return Err(SyntaxError::new(start..end, "a key must be text"));
        }
        let (spot, values) = self.anchors.get(&anchor).cloned().unwrap_or((Spot::leaf(start..end), 1));
        self.values += values;
        if self.values > MAX_VALUES {
            return Err(SyntaxError::new(start..end, format!("more than {MAX_VALUES} values with this alias")));
        }
        self.put(Spot { value: start..end, ..spot })
    }

    fn remember(&mut self, anchor: usize, spot: &Spot, values: usize) {
        if anchor > 0 {
            self.anchors.insert(anchor, (spot.clone(), values));
        }
    }

    fn expects_key(&self) -> bool {
        self.stack.last().is_some_and(|open| matches!(open.spot.inside, Inside::Table(_)) && open.key.is_none())
    }

    fn key(&mut self, name: String, span: Span) -> Result<(), SyntaxError> {
        let Some(open) = self.stack.last_mut() else { return Ok(()) };
        if let Some(before) = open.spot.field(&name) {
            let before = before.key.clone().unwrap_or(0..0);
            return Err(SyntaxError::duplicate(&name, span, before));
        }
        open.key = Some((name, span));
        Ok(())
    }

    fn put(&mut self, mut spot: Spot) -> Result<(), SyntaxError> {
        self.values += 1;
        if self.values > MAX_VALUES {
            return Err(SyntaxError::new(spot.value, format!("more than {MAX_VALUES} values")));
        }
        match self.stack.last_mut() {
            None => self.root = Some(spot),
            Some(Open { spot: Spot { inside: Inside::List(items), .. }, .. }) => items.push(spot),
            Some(Open { spot: Spot { inside: Inside::Table(fields), .. }, key, .. }) => {
                let Some((name, span)) = key.take() else { return Ok(()) };
                spot.key = Some(span);
                fields.insert(name, spot);
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// The byte after a scalar.
    fn scalar_end(&self, start: usize, value: &str, style: TScalarStyle) -> usize {
        let rest = &self.text[start..];
        let length = match style {
            TScalarStyle::Plain if rest.starts_with(value) => Some(value.len()),
            TScalarStyle::SingleQuoted => quoted(rest, '\''),
            TScalarStyle::DoubleQuoted => quoted(rest, '"'),
            _ => None,
        };
        length.map_or_else(|| self.block_end(start), |length| start + length)
    }

    /// The byte after a text that goes on over the following lines: those that are indented deeper than its first.
    fn block_end(&self, start: usize) -> usize {
        let line_start = self.text[..start].rfind('\n').map_or(0, |at| at + 1);
        let indent = |line: &str| line.len() - line.trim_start().len();
        let outer = indent(&self.text[line_start..]);
        let mut end = start;
        for (index, line) in self.text[start..].split_inclusive('\n').enumerate() {
            if index > 0 && !line.trim().is_empty() && indent(line) <= outer {
                break;
            }
            end += line.len();
        }
        start + self.text[start..end].trim_end().len()
    }
}

/// Whether YAML takes the text for a number that is none, or too large to be one.
fn is_endless(text: &str) -> bool {
    let word = text.trim_start_matches(['+', '-']).to_ascii_lowercase();
    let number = text.bytes().any(|byte| byte.is_ascii_digit()).then(|| text.parse::<f64>());
    matches!(word.as_str(), ".inf" | ".nan") || matches!(number, Some(Ok(number)) if !number.is_finite())
}

/// Length of the quoted text that `rest` begins with, quotes included.
fn quoted(rest: &str, quote: char) -> Option<usize> {
    let mut chars = rest.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        let doubled = |next: Option<&(usize, char)>| quote == '\'' && next.is_some_and(|(_, next)| *next == quote);
        if c == '\\' && quote == '"' || c == quote && doubled(chars.peek()) {
            chars.next();
        } else if c == quote {
            return Some(at + 1);
        }
    }
    None
}
