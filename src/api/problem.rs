//! What went wrong, as problem details (RFC 9457): every error of the API has this form, whoever found it.

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::http::response::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::engine::{reload, request};
use crate::notify::run;

/// The media type of problem details.
pub(super) const PROBLEM_JSON: &str = "application/problem+json";

/// Longest text of a rejection that is read to become a detail.
const MAX_DETAIL: usize = 4096;

/// What went wrong.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct Problem {
    /// Always `about:blank`: the status says what kind of problem it is.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The words for the status.
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// What is wrong, and what to do about it.
    detail: String,
    /// The path that was asked for.
    instance: String,
    /// One by one: what is not ready (of `/readyz`), what is wrong with a configuration, or what of it takes a restart.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    reasons: Vec<String>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            kind: "about:blank",
            title: status.canonical_reason().unwrap_or("Error"),
            status: status.as_u16(),
            detail: detail.into(),
            instance: String::new(),
            reasons: Vec::new(),
        }
    }

    pub(super) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    pub(super) fn is_not_found(&self) -> bool {
        self.status == StatusCode::NOT_FOUND.as_u16()
    }

    /// What is wrong, and what to do about it.
    pub(super) fn detail(&self) -> &str {
        &self.detail
    }

    pub(super) fn illegal(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
    }

    pub(super) fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }

    pub(super) fn because(self, reasons: Vec<String>) -> Self {
        Self { reasons, ..self }
    }
}

impl From<request::Refused> for Problem {
    fn from(refused: request::Refused) -> Self {
        use request::Refused::{Illegal, NoSuchConnection, NoSuchNode, NotNow};
        let detail = refused.to_string();
        match refused {
            NoSuchNode(_) | NoSuchConnection(_) => Self::not_found(detail),
            Illegal(_) => Self::illegal(detail),
            NotNow => Self::unavailable(detail),
        }
    }
}

impl From<reload::Failed> for Problem {
    fn from(failed: reload::Failed) -> Self {
        use reload::Failed::{NoFile, NotNow, Refused, TakesRestart, TooSlow, Unusable};
        let detail = failed.to_string();
        match failed {
            Unusable { problems, .. } => {
                Self::illegal("the configuration cannot be used, and nothing was changed").because(problems)
            }
            TakesRestart(parts) => Self::illegal(detail).because(parts),
            // It was started so, and will stay so.
            NoFile => Self::new(StatusCode::CONFLICT, detail),
            TooSlow | NotNow => Self::unavailable(detail),
            Refused(refused) => refused.into(),
        }
    }
}

impl From<run::Refused> for Problem {
    fn from(refused: run::Refused) -> Self {
        match refused {
            run::Refused::NoMail | run::Refused::NoSuchLetter(_) => Self::not_found(refused.to_string()),
            run::Refused::Closed => Self::unavailable(refused.to_string()),
        }
    }
}

impl IntoResponse for Problem {
    /// Without a body yet: [`finish`] writes it, and knows the path.
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Gives an answer that is an error its body, unless it is a page and has one.
pub(super) async fn finish(response: Response, path: &str) -> Response {
    let status = response.status();
    if !(status.is_client_error() || status.is_server_error()) || is_page(response.headers()) {
        return response;
    }
    let (parts, mut problem) = of(response).await;
    path.clone_into(&mut problem.instance);
    let mut answer = Json(problem).into_response();
    *answer.status_mut() = parts.status;
    answer.headers_mut().extend(parts.headers);
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
    answer
}

/// What an answer that is an error says, and its head. One that comes from the framework has its reason as text.
pub(super) async fn of(response: Response) -> (Parts, Problem) {
    let (mut parts, body) = response.into_parts();
    let problem = match parts.extensions.remove::<Problem>() {
        Some(problem) => problem,
        None => Problem::new(parts.status, text_of(body, parts.status).await),
    };
    parts.headers.remove(header::CONTENT_LENGTH);
    (parts, problem)
}

/// Whether this is the answer's header of a page.
pub(super) fn is_page(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/html"))
}

async fn text_of(body: Body, status: StatusCode) -> String {
    let text = to_bytes(body, MAX_DETAIL).await.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    match (text, status) {
        (Ok(text), _) if !text.is_empty() => text,
        (_, StatusCode::NOT_FOUND) => "there is nothing at this path; /api/openapi.json lists what there is".to_owned(),
        (_, StatusCode::METHOD_NOT_ALLOWED) => {
            "this path has no such method; the Allow header lists those it has".to_owned()
        }
        _ => String::new(),
    }
}
