//! Who looks, and how they like it: language, light or dark, time zone. Chosen by cookies that hold nothing else, so that
//! a choice needs no login and costs no memory.

use std::convert::Infallible;

use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{AppendHeaders, IntoResponse, Redirect, Response};
use jiff::tz::TimeZone;
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize, Serializer};

use super::login::own_path;
use crate::api::app::App;
use crate::api::guard::Caller;
use crate::api::session::cookies;
use crate::config::model::Language;
use crate::notify::render::speech;

/// How long a choice is kept: a year.
const KEPT_SEC: u32 = 31_536_000;

/// Light or dark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Theme {
    /// As the reader's system is.
    #[default]
    System,
    Light,
    Dark,
}

impl Theme {
    fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }
}

/// Who looks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Look {
    pub(super) language: Language,
    pub(super) theme: Theme,
    #[serde(serialize_with = "zone_name")]
    pub(super) zone: TimeZone,
    /// Whether the browser has said which time zone it is in.
    pub(super) zone_known: bool,
    /// Whether they may look at all: a guest sees the login only.
    pub(super) may_look: bool,
    /// Whether they may change anything.
    pub(super) may_operate: bool,
    /// Who logged in; `None` where nobody has to.
    pub(super) who: Option<String>,
}

fn zone_name<S: Serializer>(zone: &TimeZone, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&speech::zone(zone))
}

impl Look {
    pub(super) fn of(parts: &Parts) -> Self {
        let chosen = |name| cookies(&parts.headers, name).next();
        let caller = parts.extensions.get::<Caller>();
        let language = chosen("pm_language").and_then(language).or_else(|| accepted(&parts.headers));
        let theme = chosen("pm_theme").and_then(theme).unwrap_or_default();
        let zone = chosen("pm_zone").and_then(|name| percent_decode_str(name).decode_utf8().ok());
        let zone = zone.and_then(|name| TimeZone::get(&name).ok());
        Self {
            language: language.unwrap_or_default(),
            theme,
            zone_known: zone.is_some(),
            zone: zone.unwrap_or(TimeZone::UTC),
            may_look: caller.is_some_and(|caller| !caller.is_guest()),
            may_operate: caller.is_some_and(Caller::may_operate),
            who: caller.filter(|caller| caller.is_known()).map(|caller| caller.who().to_string()),
        }
    }

    /// All of it that a part of a page depends on.
    pub(super) fn key(&self) -> String {
        format!("{:?} {} {}", self.language, speech::zone(&self.zone), self.may_operate)
    }
}

impl FromRequestParts<App> for Look {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Infallible> {
        Ok(Self::of(parts))
    }
}

fn language(code: &str) -> Option<Language> {
    match code {
        "en" => Some(Language::En),
        "ru" => Some(Language::Ru),
        _ => None,
    }
}

fn theme(name: &str) -> Option<Theme> {
    [Theme::System, Theme::Light, Theme::Dark].into_iter().find(|theme| theme.as_str() == name)
}

/// The first of the languages that the browser asks for that we have; browsers send them in the order of preference.
fn accepted(headers: &HeaderMap) -> Option<Language> {
    let wanted = headers.get(header::ACCEPT_LANGUAGE)?.to_str().ok()?;
    let codes = wanted.split(',').filter_map(|range| range.split([';', '-']).next());
    codes.map(|code| code.trim().to_ascii_lowercase()).find_map(|code| language(&code))
}

/// A choice.
#[derive(Deserialize)]
pub(super) struct Choice {
    language: Option<Language>,
    theme: Option<Theme>,
    /// The page to go back to.
    #[serde(default)]
    back: String,
}

/// Keeps a choice and goes back.
pub(super) async fn choose(Query(Choice { language, theme, back }): Query<Choice>) -> Response {
    let language = language.map(|language| match language {
        Language::En => cookie_for("pm_language", "en"),
        Language::Ru => cookie_for("pm_language", "ru"),
    });
    let theme = theme.map(|theme| cookie_for("pm_theme", theme.as_str()));
    let cookies: Vec<_> = language.into_iter().chain(theme).map(|cookie| (header::SET_COOKIE, cookie)).collect();
    (AppendHeaders(cookies), Redirect::to(own_path(&back))).into_response()
}

fn cookie_for(name: &str, value: &'static str) -> HeaderValue {
    let text = format!("{name}={value}; Path=/; Max-Age={KEPT_SEC}; SameSite=Lax");
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(headers: &[(&str, &str)]) -> Look {
        let mut request = axum::http::Request::builder();
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Look::of(&request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn a_browser_gets_its_first_language_that_there_is() {
        let accepted = |text| look(&[("accept-language", text)]).language;
        assert_eq!(accepted("ru-RU,ru;q=0.9,en;q=0.8"), Language::Ru);
        assert_eq!(accepted("de-DE, RU;q=0.5, en"), Language::Ru);
        assert_eq!(accepted("de,fr"), Language::En);
        assert_eq!(accepted("rung"), Language::En);
        assert_eq!(look(&[]).language, Language::En);
    }

    #[test]
    fn a_choice_goes_before_what_the_browser_asks_for() {
        let look = look(&[
            ("accept-language", "ru"),
            ("cookie", "other=1; pm_language=en; pm_theme=dark"),
            ("cookie", "pm_zone=Europe%2FBerlin"),
        ]);
        assert_eq!((look.language, look.theme, look.zone_known), (Language::En, Theme::Dark, true));
        assert_eq!(look.zone.iana_name(), Some("Europe/Berlin"));
    }

    #[test]
    fn a_zone_is_found_however_the_browser_writes_its_name() {
        for (written, name) in [("Etc%2FGMT%2B5", "Etc/GMT+5"), ("Etc/GMT+5", "Etc/GMT+5"), ("UTC", "UTC")] {
            let look = look(&[("cookie", &format!("pm_zone={written}"))]);
            assert_eq!((look.zone.iana_name(), look.zone_known), (Some(name), true), "{written}");
        }
        for wrong in ["%2e%2e%2fetc%2fpasswd", "%ff", "%00", "", "%2FUTC"] {
            assert!(!look(&[("cookie", &format!("pm_zone={wrong}"))]).zone_known, "{wrong}");
        }
    }

    #[test]
    fn cookies_that_make_no_sense_choose_nothing() {
        let look = look(&[("cookie", "pm_language=xx;pm_theme;=;pm_zone=../../etc/passwd; pm_language=ru")]);
        assert_eq!((look.language, look.theme, look.zone_known), (Language::En, Theme::System, false));
    }
}
