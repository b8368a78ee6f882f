//! What people look at.

pub(super) mod login;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};

use super::app::App;

/// Every page with its handler.
pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/login", get(login::form).merge(post(login::log_in).layer(DefaultBodyLimit::max(login::MAX_FORM))))
        .route("/logout", post(login::log_out))
}
