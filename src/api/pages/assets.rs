//! Style sheet, script and icon: part of the program, under names that change with their content, so that browsers keep
//! them for good and never show a page of one version in the style of another.

use std::sync::LazyLock;

use axum::Router;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;
use xxhash_rust::xxh3::xxh3_64;

use crate::api::app::App;
use crate::plot;

/// How long browsers keep them: a year, which is as good as for ever.
const KEPT: &str = "public, max-age=31536000, immutable";

struct Asset {
    path: String,
    kind: &'static str,
    text: String,
}

impl Asset {
    fn new(name: &str, ending: &str, kind: &'static str, text: String) -> Self {
        Self { path: format!("/assets/{name}-{:016x}.{ending}", xxh3_64(text.as_bytes())), kind, text }
    }
}

static STYLE: LazyLock<Asset> = LazyLock::new(|| {
    let text = format!("{}\n{}", include_str!("assets/style.css"), plot::STYLE);
    Asset::new("style", "css", "text/css; charset=utf-8", text)
});

static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("live", "js", "text/javascript; charset=utf-8", include_str!("assets/live.js").to_owned())
});

static ICON: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("icon", "svg", "image/svg+xml", include_str!("assets/icon.svg").to_owned()));

pub(super) fn style_path() -> &'static str {
    &STYLE.path
}

pub(super) fn script_path() -> &'static str {
    &SCRIPT.path
}

pub(super) fn icon_path() -> &'static str {
    &ICON.path
}

pub(super) fn routes() -> Router<App> {
    [&STYLE, &SCRIPT, &ICON].into_iter().fold(Router::new(), |router, asset| {
        let answer = || async {
            ([(header::CONTENT_TYPE, asset.kind), (header::CACHE_CONTROL, KEPT)], asset.text.as_str()).into_response()
        };
        router.route(&asset.path, get(answer))
    })
}
