//! JSON: `serde_json` judges the text, then a scan that may rely on its being well-formed notes the places.

use std::collections::BTreeMap;

use super::{Inside, MAX_DEPTH, Span, Spot, SyntaxError};

pub(super) fn locate(text: &str) -> Result<Spot, SyntaxError> {
    serde_json::from_str::<serde_json::Value>(text).map_err(|error| syntax_error(text, &error))?;
    Scan { text, at: 0 }.value(MAX_DEPTH)
}

fn syntax_error(text: &str, error: &serde_json::Error) -> SyntaxError {
    let line: usize = text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
    let at = (line + error.column().saturating_sub(1)).min(text.len());
    let at = (0..=at).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    let message = error.to_string();
    let message = message.split(" at line ").next().unwrap_or(&message);
    SyntaxError::new(at..at, message)
}

struct Scan<'a> {
    text: &'a str,
    at: usize,
}

impl Scan<'_> {
    fn peek(&mut self) -> Option<u8> {
        let rest = &self.text.as_bytes()[self.at..];
        self.at += rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        self.text.as_bytes().get(self.at).copied()
    }

    /// Steps over the byte if it comes next.
    fn eat(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn value(&mut self, depth: usize) -> Result<Spot, SyntaxError> {
        let next = self.peek();
        let start = self.at;
        let Some(deeper) = depth.checked_sub(1) else { return Err(SyntaxError::too_deep(start)) };
        let inside = match next {
            Some(b'{') => self.table(deeper)?,
            Some(b'[') => self.list(deeper)?,
            Some(b'"') => {
                self.string();
                Inside::Nothing
            }
            _ => {
                let rest = &self.text[self.at..];
                self.at += rest.find([',', ']', '}', ' ', '\t', '\r', '\n']).unwrap_or(rest.len());
                Inside::Nothing
            }
        };
        Ok(Spot { key: None, value: start..self.at, inside })
    }

    fn string(&mut self) -> Span {
        let start = self.at;
        let mut escaped = false;
        let rest = self.text.as_bytes().iter().skip(start + 1);
        let inside = rest.take_while(|&&byte| {
            let ends = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            !ends
        });
        self.at = (start + inside.count() + 2).min(self.text.len());
        start..self.at
    }

    fn table(&mut self, depth: usize) -> Result<Inside, SyntaxError> {
        self.eat(b'{');
        let mut fields: BTreeMap<String, Spot> = BTreeMap::new();
        while self.peek() == Some(b'"') {
            let key = self.string();
            let name: String = serde_json::from_str(&self.text[key.clone()]).unwrap_or_default();
            if let Some(before) = fields.get(&name) {
                return Err(SyntaxError::duplicate(&name, key, before.key.clone().unwrap_or(0..0)));
            }
            self.eat(b':');
            let spot = self.value(depth)?;
            fields.insert(name, Spot { key: Some(key), ..spot });
            self.eat(b',');
        }
        self.eat(b'}');
        Ok(Inside::Table(fields))
    }

    fn list(&mut self, depth: usize) -> Result<Inside, SyntaxError> {
        self.eat(b'[');
        let mut items = Vec::new();
        while self.peek().is_some_and(|byte| byte != b']') {
            items.push(self.value(depth)?);
            self.eat(b',');
        }
        self.eat(b']');
        Ok(Inside::List(items))
    }
}
