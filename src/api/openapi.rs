//! The OpenAPI document. It is made of the handlers themselves, so that no path can be in one and not in the other.

use serde_json::Value;
use utoipa::openapi::path::Operation;
use utoipa::openapi::response::ResponseBuilder;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ContentBuilder, OpenApi, PathItem, Ref};
use utoipa::{Modify, OpenApi as _};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::app::App;
use super::problem::{PROBLEM_JSON, Problem};
use super::routes::{
    changes, connections, endpoints, events, health, history, maps, nodes, outbox, reload, route, status, xds,
};

/// What is said of all paths together.
#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "pointsman",
        description = "Which node the next call should go to, what pointsman sees, and what it is told.\n\n\
            Times are microseconds since 1970-01-01 UTC; durations have their unit in their name. Every error is a problem \
            detail (RFC 9457). Answers show the picture of a moment; a change is done when it is answered, and in the next \
            picture at most 100 ms later.",
    ),
    tags(
        (name = "routing", description = "Which node the next call should go to"),
        (name = "nodes", description = "The PBXs"),
        (name = "edges", description = "What edges are told"),
        (name = "connections", description = "The vendors' trunks"),
        (name = "maps", description = "Route maps: their hunt orders, and what a call would try"),
        (name = "status", description = "Everything at once"),
        (name = "outbox", description = "Mails"),
        (name = "health", description = "For whoever watches the process"),
    ),
    components(schemas(Problem, events::Hello<'_>, events::Lost, endpoints::EndpointsEvent<'_>, changes::ChangeAnswer<'_>)),
    security((), ("token" = [])),
    modifiers(&Token),
)]
struct Document;

/// How callers show who they are.
struct Token;

impl Modify for Token {
    fn modify(&self, document: &mut OpenApi) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some(
                "A token of the configuration. The role read suffices for GET, everything else needs operate. Where no \
                 tokens are configured none is needed, and the API listens on loopback only.",
            ))
            .build();
        document.components.get_or_insert_default().add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}

/// Every path with its handler.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(route::route))
        .routes(routes!(nodes::nodes))
        .routes(routes!(nodes::node))
        .routes(routes!(history::node))
        .routes(routes!(nodes::put_load))
        .routes(routes!(nodes::put_admin))
        .routes(routes!(connections::connections))
        .routes(routes!(connections::connection))
        .routes(routes!(history::connection))
        .routes(routes!(history::plot))
        .routes(routes!(connections::put_pin, connections::delete_pin))
        .routes(routes!(connections::reset))
        .routes(routes!(changes::changes))
        .routes(routes!(events::events))
        .routes(routes!(endpoints::endpoints))
        .routes(routes!(xds::xds))
        .routes(routes!(status::status))
        .routes(routes!(maps::maps))
        .routes(routes!(maps::map))
        .routes(routes!(maps::test_call))
        .routes(routes!(maps::test_dialplan))
        .routes(routes!(status::document))
        .routes(routes!(reload::reload_route_maps))
        .routes(routes!(outbox::outbox))
        .routes(routes!(outbox::retry))
        .routes(routes!(outbox::discard))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(health::metrics))
}

/// The document, as the server answers it at `/api/openapi.json`.
#[must_use]
pub fn document() -> Value {
    finish(routes().into_openapi())
}

/// Adds what can happen to every request of a kind.
pub(super) fn finish(mut document: OpenApi) -> Value {
    for item in document.paths.paths.values_mut() {
        for operation in operations(item) {
            let open = operation.security.is_some();
            let takes_input = operation.parameters.is_some() || operation.request_body.is_some();
            let takes_body = operation.request_body.is_some();
            let cases = [
                (takes_input, "400", "A parameter or a body that is not understood"),
                (!open, "401", "A token is needed"),
                (!open, "403", "The token may not, or the request comes from another web site"),
                (takes_body, "413", "The body is longer than 64 KiB"),
                (takes_body, "415", "The body is not declared as JSON"),
                (takes_body, "422", "The body has a value that cannot be"),
                (!open, "503", "Not in time, or not now"),
            ];
            for (_, status, description) in cases.into_iter().filter(|(applies, ..)| *applies) {
                let problem = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
                let response = ResponseBuilder::new().description(description).content(PROBLEM_JSON, problem).build();
                operation.responses.responses.entry(status.to_owned()).or_insert_with(|| response.into());
            }
        }
    }
    let mut document = serde_json::to_value(document).unwrap_or_default();
    unlink(&mut document);
    document
}

/// Descriptions come from the sources, where they have links to other items of the program.
fn unlink(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(unlink),
        Value::Object(values) => values.values_mut().for_each(unlink),
        Value::String(text) if text.contains("[`") => *text = without_links(text),
        _ => {}
    }
}

/// "[`Name`](path)" and "[`Name`]" as "Name".
fn without_links(mut text: &str) -> String {
    let mut plain = String::new();
    while let Some((before, (name, after))) =
        text.split_once("[`").and_then(|(before, rest)| Some((before, rest.split_once("`]")?)))
    {
        plain.push_str(before);
        plain.push_str(name);
        text = after.strip_prefix('(').and_then(|path| path.split_once(')')).map_or(after, |(_, after)| after);
    }
    plain + text
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let PathItem { get, put, post, delete, .. } = item;
    [get, put, post, delete].into_iter().filter_map(Option::as_mut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_the_sources_become_words() {
        assert_eq!(
            without_links("0 to 100, or [`EXCLUDED`](crate::score::EXCLUDED); [`State::Bad`] (x)."),
            "0 to 100, or EXCLUDED; State::Bad (x)."
        );
        assert_eq!(without_links("a [`b"), "a [`b");
    }
}
