//! What edges are told: the whole, and what changes of it.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::Asked;
use crate::api::problem::Problem;
use crate::edge::{EndpointGroup, Snapshot};
use crate::time::Timestamp;

/// A client may keep the answer, and asks each time whether it still holds.
const ASK_AGAIN: &str = "no-cache";

/// A snapshot for who holds the one before it.
#[derive(Debug, PartialEq, Serialize, ToSchema)]
pub(in crate::api) struct EndpointsEvent<'a> {
    /// That of the snapshot.
    generation: u64,
    /// The generation that the client must hold for `groups` to make it this one; `null`: `groups` is all.
    after: Option<u64>,
    /// When the snapshot was made.
    at: Timestamp,
    /// The groups that have changed, each whole; the others are as they were. No group ever goes while the program runs.
    groups: Vec<&'a EndpointGroup>,
}

impl<'a> EndpointsEvent<'a> {
    /// What a client that was told `before` is to be told; one that was told nothing holds generation 0.
    pub(super) fn after(before: &Snapshot, now: &'a Snapshot) -> Self {
        let has_changed = |group: &&EndpointGroup| !before.groups.contains(group);
        Self {
            generation: now.generation,
            after: Some(before.generation).filter(|generation| *generation > 0),
            at: now.at,
            groups: now.groups.iter().filter(has_changed).collect(),
        }
    }
}

/// What edges are told
///
/// The nodes in their groups, each with whether it takes calls and its share of them; the same that the xDS server serves
/// and that the event stream follows. The generation is the `ETag` too: with `If-None-Match` it costs nothing to ask for
/// what has not changed.
#[utoipa::path(get, path = "/api/endpoints", tag = "edges",
    params(("If-None-Match" = Option<String>, Header, description = "The `ETag` of the answer that the client holds")),
    responses(
    (status = 200, description = "The latest snapshot", body = Snapshot,
     headers(("ETag" = String, description = "Its generation, in quotes"))),
    (status = 304, description = "The client holds it"),
    (status = 503, description = "There is none yet: the program has just started", body = Problem,
     content_type = "application/problem+json"),
))]
pub(in crate::api) async fn endpoints(State(app): Asked, headers: HeaderMap) -> Result<Response, Problem> {
    let snapshot = app.sources.endpoints.borrow().clone();
    if snapshot.generation == 0 {
        return Err(Problem::unavailable(
            "nothing is known of the nodes yet: the first snapshot comes with their links, or a few seconds after the start; \
             go on with what you hold",
        ));
    }
    let tag = format!("\"{}\"", snapshot.generation);
    let known = is_known(&headers, &tag);
    let head = [(header::ETAG, tag), (header::CACHE_CONTROL, ASK_AGAIN.to_owned())];
    Ok(if known { (StatusCode::NOT_MODIFIED, head).into_response() } else { (head, Json(snapshot)).into_response() })
}

/// Whether the client holds what has this tag (RFC 9110, section 13.1.2).
fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let lines = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|line| line.to_str().ok());
    let mut held = lines.flat_map(|line| line.split(',')).map(str::trim);
    held.any(|held| held == "*" || held.strip_prefix("W/").unwrap_or(held) == tag)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;
    use crate::ids::GroupId;

    fn group(id: &str, cluster: &str) -> EndpointGroup {
        EndpointGroup { id: GroupId::new(id).unwrap(), cluster: cluster.to_owned(), endpoints: vec![] }
    }

    fn snapshot(generation: u64, groups: &[EndpointGroup]) -> Snapshot {
        Snapshot { generation, at: Timestamp::from_secs(7), groups: groups.to_vec() }
    }

    #[test]
    fn who_was_told_nothing_is_told_everything() {
        let now = snapshot(4, &[group("a", "x"), group("b", "x")]);
        let event = EndpointsEvent::after(&Snapshot::default(), &now);
        assert_eq!((event.generation, event.after, event.at), (4, None, now.at));
        assert_eq!(event.groups, now.groups.iter().collect::<Vec<_>>());
    }

    #[test]
    fn who_was_told_of_one_is_told_what_is_other_now() {
        let before = snapshot(4, &[group("a", "x"), group("b", "x")]);
        let now = snapshot(9, &[group("a", "x"), group("b", "y")]);
        let event = EndpointsEvent::after(&before, &now);
        assert_eq!((event.generation, event.after, event.groups), (9, Some(4), vec![&now.groups[1]]));
    }

    #[test]
    fn what_changed_and_changed_back_is_told_by_its_number_alone() {
        let before = snapshot(4, &[group("a", "x")]);
        let now = Snapshot { generation: 6, ..before.clone() };
        let event = EndpointsEvent::after(&before, &now);
        assert_eq!((event.generation, event.after, event.groups), (6, Some(4), vec![]));
    }

    #[test]
    fn a_tag_is_known_among_others() {
        let known = |lines: &[&[u8]]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(header::IF_NONE_MATCH, HeaderValue::from_bytes(line).unwrap());
            }
            is_known(&headers, "\"17\"")
        };
        for lines in
            [&[b"\"17\"" as &[u8]] as &[&[u8]], &[b"W/\"17\""], &[b"*"], &[b"\"1\", \"17\""], &[b"\"1\"", b"\"17\""]]
        {
            assert!(known(lines), "{lines:?}");
        }
        for lines in [&[] as &[&[u8]], &[b"17"], &[b"\"1\""], &[b"\"171\""], &[b"\xff"], &[b""]] {
            assert!(!known(lines), "{lines:?}");
        }
    }
}
