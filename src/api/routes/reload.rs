//! Another configuration.

use axum::extract::State;
use axum::{Extension, Json};
use serde::Deserialize;
use utoipa::ToSchema;

use super::{Asked, Who, by};
use crate::api::problem::Problem;
use crate::engine::reload::{self, Reloaded};

/// How the configuration is to be reloaded.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct Order {
    /// Only show what would change.
    #[serde(default)]
    dry_run: bool,
    /// Why, for the log; at most 500 characters on one line.
    #[serde(default)]
    #[schema(max_length = 500, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
    why: String,
}

/// Reads the configuration again and puts it in force, as a whole or not at all
///
/// Customers, connections, route maps and routing rules can change. Links, windows, states and calls of what does not
/// change are untouched; what the routing rules learnt begins anew. Needs the role operate.
#[utoipa::path(post, path = "/api/reload-route-maps", tag = "maps", request_body = Order, responses(
    (status = 200, description = "What changed, or would", body = Reloaded),
    (status = 409, description = "This pointsman was started without a file", body = Problem,
     content_type = "application/problem+json"),
    (status = 422, description = "The configuration has errors, or something in it takes a restart: nothing was changed, and \
        `reasons` has each of them",
     body = Problem, content_type = "application/problem+json"),
))]
pub(in crate::api) async fn reload_route_maps(
    State(app): Asked,
    Extension(caller): Who,
    Json(order): Json<Order>,
) -> Result<Json<Reloaded>, Problem> {
    let order = reload::Order { dry_run: order.dry_run, by: by(&caller, &order.why)? };
    Ok(Json(app.sources.reloader.reload(order).await?))
}
