//! What each path answers.

pub(super) mod changes;
pub(super) mod connections;
pub(super) mod endpoints;
pub(super) mod events;
pub(super) mod health;
pub(super) mod history;
pub(super) mod maps;
pub(super) mod nodes;
pub(super) mod outbox;
pub(super) mod reload;
pub(super) mod route;
pub(super) mod status;
pub(super) mod xds;

use axum::Extension;

use super::app::App;
use super::guard::Caller;
use super::problem::Problem;
use crate::engine::request::By;

/// The handlers' state.
type Asked = axum::extract::State<App>;

/// Who asks, put there by the guard.
type Who = Extension<Caller>;

/// What goes into the audit.
pub(super) fn by(caller: &Caller, why: &str) -> Result<By, Problem> {
    By::new(&caller.who(), why).map_err(|refused| Problem::illegal(refused.to_string()))
}
