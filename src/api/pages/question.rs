//! What would a call try, and do the PBXs know? Asked by a form whose address can be passed on.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::response::Redirect;
use minijinja::value::{Serde, Value};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;

use super::hunt::{Hunt, Placed};
use super::{Asked, said};
use crate::api::app::App;
use crate::dialplan::readback::{Busy, NodeVariables};
use crate::engine::view::MapView;
use crate::ids::ConnectionId;
use crate::routing::matching::Match;
use crate::routing::picture::{Assumed, BadAssumption, WhatIf, assumption};
use crate::routing::question::{Answer, Question as OfCall, Unanswerable};

/// Longest number that is taken from an address; a longer one is no number.
const MAX_NUMBER: usize = 200;

/// Most connections that the form has, and most assumptions: so many selects are a long form already.
const MAX_ASSUMED: usize = 100;

/// Most connections of an answer that are shown: a call has given up long before.
const ROWS: usize = 100;

/// The word for a connection that is assumed not to be there.
const AWAY: &str = "away";

/// A question, as the address has it.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Question {
    /// `None`: nothing was asked.
    number: Option<String>,
    /// Whether the PBXs are to be asked too.
    dialplan: bool,
    /// Such as `vendor-a=bad` or `vendor-a=away`.
    assume: Vec<String>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoAnswer {
    #[error(transparent)]
    Unanswerable(#[from] Unanswerable),
    #[error(transparent)]
    Assumption(#[from] BadAssumption),
    #[error("at most {MAX_ASSUMED} assumptions can be made at a time")]
    TooMany,
    #[error(transparent)]
    Busy(#[from] Busy),
}

/// The form as it was sent, and what came of it.
#[derive(Serialize)]
struct Form<'a> {
    number: &'a str,
    choices: Vec<Choice>,
    choices_more: usize,
    /// Whether anything is assumed.
    assumed: bool,
    problem: Option<String>,
    answer: Option<Shown>,
}

/// What is assumed of a connection.
#[derive(Serialize)]
struct Choice {
    connection: String,
    /// The word for the state; empty: as it is.
    assumed: String,
}

#[derive(Serialize)]
struct Shown {
    number: String,
    why: String,
    /// Where the number leads to another map than this.
    elsewhere: Option<Elsewhere>,
    panic: bool,
    /// Whether a rule adds to the priorities.
    ruled: bool,
    routes: Vec<Placed>,
    more: usize,
    /// What the PBXs hold, where that was asked.
    nodes: Option<Vec<NodeVariables>>,
}

/// The map that calls to the number belong to.
#[derive(Serialize)]
struct Elsewhere {
    /// `None`: no map serves it.
    map: Option<String>,
    /// The same question there.
    href: String,
}

impl Question {
    pub(super) fn of(query: &[(String, String)]) -> Self {
        let mut question = Self::default();
        for (name, value) in query {
            match &**name {
                "number" => question.number = Some(value.chars().take(MAX_NUMBER).collect()),
                "ask" => question.dialplan = value == "dialplan",
                "assume" if !value.is_empty() => question.assume.push(value.clone()),
                _ => {}
            }
        }
        question
    }

    /// Of the page of a map: calls that the dialplan sends to it, whatever their number.
    pub(super) async fn of_map(&self, map: &MapView, asked: &Asked<'_>) -> Value {
        let mut form = Form::new(self, Some(map));
        if let Some(number) = &self.number {
            match self.answer(number, map, asked).await {
                Ok(answer) => form.answer = Some(answer),
                Err(why) => form.problem = Some(said::no_answer(&why, asked.look.language)),
            }
        }
        minijinja::context! { form => Serde(&form) }
    }

    /// Of the page of all maps, which only has to say why no map answers.
    pub(super) fn by_number(&self, asked: &Asked<'_>) -> Value {
        let mut form = Form::new(self, None);
        let why = self.number.as_ref().and_then(|number| served(number, &asked.view.maps).err());
        form.problem = why.map(|why| said::no_answer(&why.into(), asked.look.language));
        minijinja::context! { form => Serde(&form) }
    }

    async fn answer(&self, number: &str, map: &MapView, asked: &Asked<'_>) -> Result<Shown, NoAnswer> {
        let what_if = self.what_if()?;
        let of_call = OfCall { number: number.to_owned(), map: Some(map.id.to_string()), what_if };
        let Answer { number, matched, map: assumed } = of_call.answer(&asked.view.maps)?;
        let nodes = if self.dialplan { Some(asked.app.sources.probes.read(&assumed).await?) } else { None };
        let by_number = served(&number, &asked.view.maps);
        let (matched, elsewhere) = match by_number {
            Ok((served, matched)) if served.id == map.id => (matched, None),
            Ok((served, _)) => (matched, Some(self.elsewhere(served))),
            Err(_) => (matched, Some(Elsewhere { map: None, href: String::new() })),
        };
        let hunt = Hunt::new(&assumed, asked);
        Ok(Shown {
            why: said::why_map(&matched, &number, asked.look.language),
            number,
            elsewhere,
            panic: assumed.panic,
            ruled: assumed.rule.is_some(),
            routes: hunt.placed(0, ROWS),
            more: assumed.routes.len().saturating_sub(ROWS),
            nodes,
        })
    }

    /// The same question of another map, as far as it has the connections that it is about.
    fn elsewhere(&self, map: &MapView) -> Elsewhere {
        let known = |text: &&String| {
            let named = text.split_once('=').map(|(connection, _)| connection);
            map.routes.iter().any(|route| Some(route.connection.as_str()) == named)
        };
        let assume = self.assume.iter().filter(known).cloned().collect();
        let same = Self { number: self.number.clone(), dialplan: self.dialplan, assume };
        Elsewhere { map: Some(map.id.to_string()), href: same.path(map.id.as_str()) }
    }

    /// Where the page of that map answers it.
    fn path(&self, map: &str) -> String {
        format!("/maps/{map}?{}#h-question", self.query())
    }

    fn query(&self) -> String {
        let word = if self.dialplan { "dialplan" } else { "call" };
        let number = encoded(self.number.as_deref().unwrap_or_default());
        let assume: String = self.assume.iter().map(|text| format!("&assume={}", encoded(text))).collect();
        format!("number={number}&ask={word}{assume}")
    }

    fn what_if(&self) -> Result<WhatIf, NoAnswer> {
        if self.assume.len() > MAX_ASSUMED {
            return Err(NoAnswer::TooMany);
        }
        let mut what_if = WhatIf::default();
        for text in &self.assume {
            match read(text)? {
                (connection, Some(state)) => what_if.assume.push((connection, state)),
                (connection, None) => what_if.without.push(connection),
            }
        }
        Ok(what_if)
    }
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// A connection with the state that is assumed; `None`: it is not there.
fn read(text: &str) -> Result<(ConnectionId, Option<Assumed>), BadAssumption> {
    let away = text.split_once('=').filter(|(_, word)| *word == AWAY);
    if let Some(connection) = away.and_then(|(name, _)| ConnectionId::new(name).ok()) {
        return Ok((connection, None));
    }
    assumption(text).map(|(connection, state)| (connection, Some(state)))
}

/// The map that calls to the number belong to, and why.
fn served<'a>(number: &str, maps: &'a [Arc<MapView>]) -> Result<(&'a MapView, Match), Unanswerable> {
    let question = OfCall { number: number.to_owned(), ..OfCall::default() };
    let (_, map, matched) = question.find(maps)?;
    Ok((map, matched))
}

impl<'a> Form<'a> {
    fn new(question: &'a Question, map: Option<&MapView>) -> Self {
        let mut routes: Vec<_> = map.into_iter().flat_map(|map| &map.routes).collect();
        routes.sort_by_key(|route| (route.static_priority, route.written));
        let chosen = |connection: &str| {
            let words = question.assume.iter().rev().filter_map(|text| text.split_once('='));
            words.filter(|(named, _)| *named == connection).map(|(_, word)| word.to_owned()).next()
        };
        let choice = |connection: &ConnectionId| Choice {
            connection: connection.to_string(),
            assumed: chosen(connection.as_str()).unwrap_or_default(),
        };
        Self {
            number: question.number.as_deref().unwrap_or_default(),
            choices: routes.iter().take(MAX_ASSUMED).map(|route| choice(&route.connection)).collect(),
            choices_more: routes.len().saturating_sub(MAX_ASSUMED),
            assumed: !question.assume.is_empty(),
            problem: None,
            answer: None,
        }
    }
}

/// `GET /call`: leads to the map that calls to the number belong to, which answers; or back, where there is none.
pub(super) async fn by_number(State(app): State<App>, Query(query): Query<Vec<(String, String)>>) -> Redirect {
    let question = Question::of(&query);
    let view = app.view();
    match served(question.number.as_deref().unwrap_or_default(), &view.maps) {
        Ok((map, _)) => Redirect::to(&question.path(map.id.as_str())),
        Err(_) => Redirect::to(&format!("/maps?{}#h-question", question.query())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(query: &[(&str, &str)]) -> Question {
        let query: Vec<_> = query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Question::of(&query)
    }

    #[test]
    fn a_question_is_read_of_an_address_and_written_into_one() {
        let asked = question(&[
            ("number", "+44 (20)"),
            ("assume", ""),
            ("assume", "vendor-a=bad"),
            ("assume", "vendor-b=away"),
            ("page", "2"),
            ("ask", "dialplan"),
        ]);
        assert_eq!(
            asked.path("uk"),
            "/maps/uk?number=%2B44%20%2820%29&ask=dialplan&assume=vendor%2Da%3Dbad&assume=vendor%2Db%3Daway#h-question"
        );
        let what_if = asked.what_if().unwrap();
        assert_eq!(what_if.assume, [(ConnectionId::new("vendor-a").unwrap(), Assumed::Bad)]);
        assert_eq!(what_if.without, [ConnectionId::new("vendor-b").unwrap()]);
        assert_eq!(question(&[("q", "intl")]), Question::default());
    }

    #[test]
    fn what_is_no_assumption_is_refused_and_so_are_too_many() {
        for bad in ["vendor-a", "=away", "a b=away", "vendor-a=worse", "vendor-a=away=bad"] {
            assert!(matches!(question(&[("assume", bad)]).what_if(), Err(NoAnswer::Assumption(_))), "{bad}");
        }
        let many = vec![("assume", "vendor-a=bad"); MAX_ASSUMED + 1];
        assert_eq!(question(&many).what_if(), Err(NoAnswer::TooMany));
        assert!(question(&many[1..]).what_if().is_ok());
    }

    #[test]
    fn a_number_without_end_is_cut_in_the_midst_of_nothing() {
        let long = "\u{e4}".repeat(MAX_NUMBER + 1);
        assert_eq!(question(&[("number", &long)]).number.unwrap().chars().count(), MAX_NUMBER);
    }
}
