//! What operators order by a form: asked of the engine as over the API, and then the page again, as it is now.

use std::sync::Arc;
use std::time::Duration;

use axum::response::{IntoResponse, Redirect, Response};

use crate::api::app::App;
use crate::api::problem::Problem;
use crate::engine::request::Request;

/// Longest wait for the picture that shows what was done. It comes within 100 ms; without it the page follows by itself.
const SHOWN_WITHIN: Duration = Duration::from_millis(500);

/// Has the engine do it, and leads back to `page`, which then says that it was done: `done` is its word for that.
///
/// # Errors
/// Where the engine refuses.
pub(super) async fn order(app: &App, request: Request, page: &str, done: &str) -> Result<Response, Problem> {
    let mut view = app.sources.view.clone();
    app.sources.desk.ask(request).await?;
    let since = app.sources.clock.now();
    let shown = view.wait_for(|view: &Arc<_>| view.at >= since);
    let _ = tokio::time::timeout(SHOWN_WITHIN, shown).await;
    let joint = if page.contains('?') { '&' } else { '?' };
    Ok(Redirect::to(&format!("{page}{joint}done={done}")).into_response())
}
