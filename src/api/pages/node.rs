//! A node: what its score is made of and where each figure comes from, its link and its variables, its past, and what the
//! operator wants of it.

use axum::Extension;
use axum::extract::{Form, FromRequestParts, Path, Query, State};
use axum::response::Response;
use minijinja::context;
use minijinja::value::{Serde, Value};
use serde::{Deserialize, Serialize};

use super::edges::{Membership, memberships};
use super::order::order;
use super::part::When;
use super::past::Past;
use super::{Asked, Page, said};
use crate::api::app::App;
use crate::api::guard::Caller;
use crate::api::problem::Problem;
use crate::api::routes::by;
use crate::api::routes::nodes::no_such;
use crate::config::model::Language;
use crate::engine::request::Request;
use crate::engine::view::{LinkState, LinkView, NodeView, VariablesView, View};
use crate::pbx::PbxKind;
use crate::score::{Admin, Figure, Figures, Term};
use crate::store::history::Span;

/// Every figure that a score can be made of, by the name of a term that it is in.
const FIGURES: [&str; 7] =
    ["call_score", "load_score", "idle_score", "fail_score", "rate_headroom", "latency", "memory"];

/// What an operator can want.
const ADMINS: [Admin; 3] = [Admin::Enabled, Admin::Draining, Admin::Disabled];

/// The page.
#[derive(Clone, FromRequestParts)]
pub(super) struct Node {
    #[from_request(via(Path))]
    id: String,
    #[from_request(via(Query))]
    of: Of,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct Of {
    span: Span,
    /// What was just done here.
    done: String,
    /// The route map whose variables are to be read back.
    read: String,
}

#[derive(Serialize)]
struct Facts<'a> {
    node: About<'a>,
    done: &'a str,
    admins: Vec<(Admin, &'static str)>,
    maps: Vec<&'a str>,
}

#[derive(Serialize)]
struct About<'a> {
    id: &'a str,
    kind: PbxKind,
    address: &'a str,
    sip_address: &'a str,
    best: bool,
    score: f64,
    /// What the score would be without anything that keeps calls away.
    fitness: f64,
    excluded_since: Option<When>,
    lethal: Vec<String>,
    terms: Vec<Share<'a>>,
    figures: Vec<Known>,
    admin: Admin,
    admin_words: &'static str,
    breaker: String,
    trial_at: Option<When>,
    link: &'a LinkView,
    link_up: bool,
    link_words: &'static str,
    link_since: When,
    next_try_at: Option<When>,
    variables: &'a VariablesView,
    in_step_at: Option<When>,
    edges: Vec<Membership<'a>>,
}

/// A term of the score.
#[derive(Serialize)]
struct Share<'a> {
    name: &'a str,
    about: &'a str,
    /// The figure that it is made of.
    figure: String,
    value: Option<f64>,
    weight: f64,
    weight_used: f64,
    /// Points of the score that it brings.
    points: Option<f64>,
}

impl<'a> Share<'a> {
    fn new(term: &'a Term, figures: &Figures, language: Language) -> Self {
        Self {
            name: &term.name,
            about: said::term(&term.name, language),
            figure: said::term_figure(&term.name, figures, language),
            value: term.value,
            weight: term.weight,
            weight_used: term.weight_used,
            points: term.value.map(|value| value * term.weight_used),
        }
    }
}

/// A figure, with where it comes from and when it was true, where somebody told it.
#[derive(Serialize)]
struct Known {
    about: String,
    shown: String,
    /// Whether pointsman counts or measures it itself; the others are told to it.
    own: bool,
    source: Option<&'static str>,
    at: Option<When>,
}

impl Known {
    fn new(name: &'static str, figures: &Figures, asked: &Asked<'_>) -> Self {
        let language = asked.look.language;
        let told: Option<Figure> = match name {
            "load_score" => figures.load_avg,
            "idle_score" => figures.idle_cpu,
            "memory" => figures.memory_free,
            _ => None,
        };
        Self {
            about: said::term(name, language).to_owned(),
            shown: said::term_figure(name, figures, language),
            own: !["load_score", "idle_score", "memory"].contains(&name),
            source: told.map(|figure| said::source(figure.source, language)),
            at: told.map(|figure| asked.when(figure.at)),
        }
    }
}

impl<'a> About<'a> {
    fn new(node: &'a NodeView, asked: &Asked<'a>) -> Self {
        let (language, assessment) = (asked.look.language, &node.assessment);
        Self {
            id: node.id.as_str(),
            kind: node.kind,
            address: &node.address,
            sip_address: &node.sip_address,
            best: asked.view.routing.best_node.as_ref() == Some(&node.id),
            score: assessment.score,
            fitness: assessment.fitness,
            excluded_since: node.excluded_since.map(|at| asked.when(at)),
            lethal: assessment.lethal.iter().map(|why| said::lethal(why, language)).collect(),
            terms: assessment.terms.iter().map(|term| Share::new(term, &node.figures, language)).collect(),
            figures: FIGURES.map(|name| Known::new(name, &node.figures, asked)).into(),
            admin: node.admin,
            admin_words: said::admin(node.admin, language),
            breaker: said::breaker(&node.breaker, language),
            trial_at: node.breaker.trial_at.map(|at| asked.when(at)),
            link: &node.link,
            link_up: node.link.state == LinkState::Up,
            link_words: said::link_state(node.link.state, language),
            link_since: asked.when(node.link.since),
            next_try_at: node.link.next_try_at.map(|at| asked.when(at)),
            variables: &node.variables,
            in_step_at: node.variables.in_step_at.map(|at| asked.when(at)),
            edges: memberships(asked, node.id.as_str()),
        }
    }
}

impl Page for Node {
    const TEMPLATE: &'static str = "node.html";
    const LIVE: &'static [&'static str] = &["standing", "terms", "figures", "link", "variables", "edges"];
    const PAST: &'static [&'static str] = &["plots"];

    fn facts(&self, asked: &Asked<'_>) -> Result<Value, Problem> {
        let node = find(asked.view, &self.id)?;
        Ok(Value::from(Serde(&Facts {
            node: About::new(node, asked),
            done: &self.of.done,
            admins: ADMINS.map(|admin| (admin, said::admin(admin, asked.look.language))).into(),
            maps: asked.view.maps.iter().map(|map| map.id.as_str()).collect(),
        })))
    }

    async fn past(&self, asked: &Asked<'_>) -> Value {
        let past = match find(asked.view, &self.id) {
            Ok(node) => Past::of_node(asked, &node.id, self.of.span).await,
            Err(_) => Past::default(),
        };
        context! { past => Serde(&past) }
    }

    /// What the PBX holds of a map, where that is asked for: each time costs it some commands.
    async fn once(&self, asked: &Asked<'_>) -> Result<Value, Problem> {
        let wanted = self.of.read.as_str();
        if wanted.is_empty() {
            return Ok(context! { read => Option::<bool>::None });
        }
        let map = asked.view.maps.iter().find(|map| map.id.as_str() == wanted);
        let map = map.ok_or_else(|| Problem::not_found(format!("there is no route map {wanted:?}")))?;
        let read = asked.app.sources.probes.read(map).await;
        let read = read.map_err(|busy| Problem::unavailable(busy.to_string()))?;
        let own = read.into_iter().find(|seen| seen.node.as_str() == self.id);
        Ok(context! { read => context! { map => wanted, seen => Serde(&own) } })
    }
}

fn find<'a>(view: &'a View, id: &str) -> Result<&'a NodeView, Problem> {
    view.nodes.iter().find(|node| node.id.as_str() == id).ok_or_else(|| no_such(id))
}

#[derive(Deserialize)]
pub(super) struct AdminForm {
    admin: Admin,
    #[serde(default)]
    why: String,
}

/// `POST /nodes/{id}/admin`
pub(super) async fn admin(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Form(form): Form<AdminForm>,
) -> Result<Response, Problem> {
    let node = find(&app.view(), &id)?.id.clone();
    if form.why.trim().is_empty() {
        return Err(Problem::illegal("say why: others will want to know"));
    }
    let page = format!("/nodes/{node}");
    let request = Request::SetAdmin { node, admin: form.admin, by: by(&caller, &form.why)? };
    order(&app, request, &page, form.admin.as_str()).await
}
