//! TOML: its parser knows the places of keys and values.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Inside, MAX_DEPTH, Spot, SyntaxError};

/// Most syntax errors that are reported.
const MAX_ERRORS: usize = 20;

pub(super) fn locate(text: &str) -> Result<Spot, Vec<SyntaxError>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut errors: Vec<_> = errors.iter().map(|error| syntax_error(text, error)).collect();
    if errors.is_empty() {
        let inside = fields(table.get_ref(), MAX_DEPTH, &mut errors);
        if errors.is_empty() {
            return Ok(Spot { key: None, value: 0..0, inside });
        }
    }
    // One mistake makes the parser stumble several times; the first of a line is the telling one.
    errors.sort_by_key(|error| error.at.start);
    let mut first: Vec<SyntaxError> = Vec::new();
    let mut next_line = 0;
    for error in errors {
        let start = error.at.start;
        if first.is_empty() || start >= next_line {
            next_line = start + text[start..].find('\n').map_or(usize::MAX / 2, |end| end + 1);
            first.push(error);
        }
        if first.len() == MAX_ERRORS {
            break;
        }
    }
    Err(first)
}

fn syntax_error(text: &str, error: &toml::de::Error) -> SyntaxError {
    let span = error.span().unwrap_or(0..0);
    let inside = |at: usize| (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    SyntaxError::new(inside(span.start)..inside(span.end), error.message().trim())
}

fn fields(table: &DeTable<'_>, depth: usize, errors: &mut Vec<SyntaxError>) -> Inside {
    let field = |(key, value): (&Spanned<_>, _)| {
        let name: &std::borrow::Cow<'_, str> = key.get_ref();
        (name.clone().into_owned(), Spot { key: Some(key.span()), ..spot(value, depth, errors) })
    };
    Inside::Table(table.iter().map(field).collect())
}

fn spot(value: &Spanned<DeValue<'_>>, depth: usize, errors: &mut Vec<SyntaxError>) -> Spot {
    let span = value.span();
    let Some(deeper) = depth.checked_sub(1) else {
        errors.push(SyntaxError::too_deep(span.start));
        return Spot::leaf(span);
    };
    let inside = match value.get_ref() {
        DeValue::Table(table) => fields(table, deeper, errors),
        DeValue::Array(items) => Inside::List(items.iter().map(|item| spot(item, deeper, errors)).collect()),
        DeValue::Integer(number) => {
            if i64::from_str_radix(number.as_str(), number.radix()).is_err() {
                errors.push(SyntaxError::new(span.clone(), "this number is too large"));
            }
            Inside::Nothing
        }
        DeValue::Float(number) => {
            if !number.as_str().parse::<f64>().is_ok_and(f64::is_finite) {
                errors.push(SyntaxError::new(span.clone(), "this is not a finite number"));
            }
            Inside::Nothing
        }
        DeValue::String(_) | DeValue::Boolean(_) | DeValue::Datetime(_) => Inside::Nothing,
    };
    Spot { key: None, value: span, inside }
}
