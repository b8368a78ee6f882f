//! What each path answers.

pub(super) mod changes;
pub(super) mod connections;
pub(super) mod events;
pub(super) mod health;
pub(super) mod nodes;
pub(super) mod outbox;
pub(super) mod route;
pub(super) mod status;

use std::sync::Arc;

use axum::Extension;

use super::guard::Caller;
use super::problem::Problem;
use super::{MAX_WHY, app::App};
use crate::engine::request::By;

/// The handlers' state.
type Asked = axum::extract::State<App>;

/// Who asks, put there by the guard.
type Who = Extension<Caller>;

/// What goes into the audit.
fn by(caller: &Caller, why: &str) -> Result<By, Problem> {
    if why.chars().count() > MAX_WHY || why.chars().any(char::is_control) {
        return Err(Problem::illegal(format!("why: at most {MAX_WHY} characters on one line")));
    }
    Ok(By { who: caller.who(), why: Arc::from(why.trim()) })
}
