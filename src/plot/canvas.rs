//! What plotters draws on. Its own SVG has fixed colours; here a colour is the number of an [`Ink`], which becomes a class,
//! and what follows in the same ink becomes one path of short relative steps.

use std::convert::Infallible;
use std::fmt::Write;

use plotters::style::RGBColor;
use plotters::style::text_anchor::{HPos, VPos};
use plotters_backend::{BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind};

type Drawn = Result<(), DrawingErrorKind<Infallible>>;

/// What something is drawn with: its class in the style sheet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ink {
    Text,
    Caption,
    Axis,
    Grid,
    Bad,
    Retry,
    Change,
    Line,
    Area,
    Limit,
    /// One of [`OUTCOMES`](crate::store::OUTCOMES).
    Outcome(u8),
}

const PLAIN: [Ink; 10] = [
    Ink::Text,
    Ink::Caption,
    Ink::Axis,
    Ink::Grid,
    Ink::Bad,
    Ink::Retry,
    Ink::Change,
    Ink::Line,
    Ink::Area,
    Ink::Limit,
];

/// Set in the red of an outcome's colour.
const OUTCOME: u8 = 1;

impl Ink {
    /// The colour that stands for it in plotters.
    pub(super) fn colour(self) -> RGBColor {
        match self {
            Self::Outcome(place) => RGBColor(OUTCOME, 0, place),
            plain => RGBColor(0, 0, PLAIN.iter().position(|ink| *ink == plain).map_or(0, |place| place as u8)),
        }
    }

    fn of(colour: BackendColor) -> Self {
        match colour.rgb {
            (OUTCOME, _, place) => Self::Outcome(place),
            (_, _, place) => PLAIN.get(usize::from(place)).copied().unwrap_or(Self::Text),
        }
    }

    fn class(self) -> String {
        match self {
            Self::Outcome(place) => format!("o{place}"),
            plain => format!("{plain:?}").to_lowercase(),
        }
    }
}

/// How wide a letter is, of its height: rather too much, so that texts side by side do not touch.
const LETTER: f64 = 0.6;

/// About how wide a text is, in units of the plot.
pub(super) fn width_of(text: &str, size: f64) -> f64 {
    super::float(text.chars().count() as u64) * LETTER * size
}

/// What was drawn.
#[derive(Debug)]
pub(super) struct Sheet {
    size: (u32, u32),
    elements: String,
    /// The path that is not closed yet: its ink, and what it says.
    open: Option<(Ink, String)>,
}

impl Sheet {
    pub(super) fn new(width: u32, height: u32) -> Self {
        Self { size: (width, height), elements: String::new(), open: None }
    }

    pub(super) fn size(&self) -> (u32, u32) {
        self.size
    }

    pub(super) fn elements(mut self) -> String {
        self.finish_path();
        self.elements
    }

    /// Nothing is drawn outside the sheet, whatever the data are.
    fn inside(&self, (x, y): BackendCoord) -> BackendCoord {
        let most = |size: u32| i32::try_from(size).unwrap_or(i32::MAX);
        (x.clamp(0, most(self.size.0)), y.clamp(0, most(self.size.1)))
    }

    fn path(&mut self, ink: Ink, points: impl IntoIterator<Item = BackendCoord>, close: bool) {
        if self.open.as_ref().is_some_and(|(open, _)| *open != ink) {
            self.finish_path();
        }
        let mut steps = String::new();
        let mut last = None;
        for point in points.into_iter().map(|point| self.inside(point)) {
            match last {
                None => drop(write!(steps, "M{} {}", point.0, point.1)),
                Some(last) => step(&mut steps, last, point),
            }
            last = Some(point);
        }
        // A path of one point is a dot, because the ends of lines are round.
        if !close && !steps.contains(['h', 'v', 'l']) {
            steps.push_str("h0");
        }
        if close {
            steps.push('z');
        }
        if last.is_some() {
            self.open.get_or_insert_with(|| (ink, String::new())).1.push_str(&steps);
        }
    }

    fn finish_path(&mut self) {
        if let Some((ink, steps)) = self.open.take() {
            let _ = write!(self.elements, "<path class=\"{}\" d=\"{steps}\"/>", ink.class());
        }
    }

    fn text(&mut self, text: &str, ink: Ink, (x, y): BackendCoord, anchor: HPos) {
        self.finish_path();
        let anchor = match anchor {
            HPos::Left => "",
            HPos::Center => " text-anchor=\"middle\"",
            HPos::Right => " text-anchor=\"end\"",
        };
        let class = ink.class();
        let _ = write!(self.elements, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\"{anchor}>{}</text>", escape(text));
    }
}

fn step(steps: &mut String, from: BackendCoord, to: BackendCoord) {
    let _ = match (to.0 - from.0, to.1 - from.1) {
        (0, 0) => Ok(()),
        (x, 0) => write!(steps, "h{x}"),
        (0, y) => write!(steps, "v{y}"),
        (x, y) if y < 0 => write!(steps, "l{x}{y}"),
        (x, y) => write!(steps, "l{x} {y}"),
    };
}

/// Text as it may stand in XML and HTML. What XML cannot hold at all is left out.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\u{fffe}' | '\u{ffff}' => {}
            letter if letter.is_control() => {}
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// The sheet, for plotters.
#[derive(Debug)]
pub(super) struct Canvas<'a>(pub(super) &'a mut Sheet);

impl DrawingBackend for Canvas<'_> {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        self.0.size
    }

    fn ensure_prepared(&mut self) -> Drawn {
        Ok(())
    }

    fn present(&mut self) -> Drawn {
        Ok(())
    }

    fn draw_pixel(&mut self, point: BackendCoord, colour: BackendColor) -> Drawn {
        self.0.path(Ink::of(colour), [point], false);
        Ok(())
    }

    fn draw_line<S: BackendStyle>(&mut self, from: BackendCoord, to: BackendCoord, style: &S) -> Drawn {
        self.draw_path([from, to], style)
    }

    fn draw_rect<S: BackendStyle>(&mut self, a: BackendCoord, b: BackendCoord, style: &S, _fill: bool) -> Drawn {
        self.fill_polygon([a, (b.0, a.1), b, (a.0, b.1)], style)
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(&mut self, path: I, style: &S) -> Drawn {
        if style.color().alpha > 0.0 {
            self.0.path(Ink::of(style.color()), path, false);
        }
        Ok(())
    }

    fn fill_polygon<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(&mut self, points: I, style: &S) -> Drawn {
        self.0.path(Ink::of(style.color()), points, true);
        Ok(())
    }

    fn draw_text<S: BackendTextStyle>(&mut self, text: &str, style: &S, (x, y): BackendCoord) -> Drawn {
        let anchor = style.anchor();
        let rise = match anchor.v_pos {
            VPos::Top => 0.8,
            VPos::Center => 0.35,
            VPos::Bottom => -0.2,
        };
        #[expect(clippy::cast_possible_truncation, reason = "the size of a font")]
        let baseline = y + (style.size() * rise).round() as i32;
        self.0.text(text, Ink::of(style.color()), (x, baseline), anchor.h_pos);
        Ok(())
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sizes of short texts")]
    fn estimate_text_size<S: BackendTextStyle>(
        &self,
        text: &str,
        style: &S,
    ) -> Result<(u32, u32), DrawingErrorKind<Infallible>> {
        Ok((width_of(text, style.size()).ceil() as u32, style.size().ceil() as u32))
    }
}
