//! `GET T/content?path&start&end&layer&version`

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use storage::Layer;
use storage::encoding::TextEncoding;

use crate::http::App;
use crate::http::answer::{Answer, bare, made, success_with, tagged_if};
use crate::http::extract::conditional::{self, Fresh};
use crate::http::extract::{Params, SeenLayer, TreeRequest};
use crate::ops::texts::{LineRange, Text};
use crate::ops::tree::ReadText;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Query {
    pub(in crate::http) path: Option<String>,
    pub(in crate::http) start: Option<u64>,
    pub(in crate::http) end: Option<u64>,
    pub(in crate::http) layer: Option<SeenLayer>,
    pub(in crate::http) version: Option<String>,
}

/// The fields beside a text.
#[derive(Clone, Copy)]
pub(in crate::http) struct About {
    pub(in crate::http) encoding: TextEncoding,
    pub(in crate::http) size: u64,
    /// None where a remote backend holds the text.
    pub(in crate::http) layer: Option<Layer>,
}

#[derive(Serialize)]
struct Beside {
    total_lines: u64,
    /// The line to go on with; null at the end.
    next: Option<u64>,
    encoding: TextEncoding,
    size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    layer: Option<Layer>,
}

pub(in crate::http) async fn content(
    State(app): State<App>,
    request: TreeRequest,
    Params(query): Params<Query>,
    headers: HeaderMap,
) -> Answer {
    let request = request.seeing(query.layer, query.version.as_deref()).await?;
    let place = request.file(query.path.as_deref()).await?;
    let range = LineRange { start: query.start, end: query.end };
    let ReadText { text, encoding, size, etag, layer } = place.tree.read_text(&place.path, range).await?;
    let response = match conditional::of_read(&headers, etag.as_ref(), place.path.as_str())? {
        Fresh::NotModified => bare(StatusCode::NOT_MODIFIED),
        Fresh::Send => answer(&app, text, About { encoding, size, layer }).await?,
    };
    Ok(tagged_if(response, etag.as_ref()))
}

/// Answers with a text, or lines of it.
pub(in crate::http) async fn answer(app: &App, text: Text, About { encoding, size, layer }: About) -> Answer {
    let bytes = match &text {
        Text::Whole(text) => text.len(),
        Text::Lines { lines, .. } => lines.iter().map(String::len).sum::<usize>() + lines.len(),
    };
    let beside = move |total_lines, next| Beside { total_lines, next, encoding, size, layer };
    made(app.service.admission(), bytes, move || match text {
        Text::Whole(text) => {
            let total_lines = storage::text::count_lines(&text);
            success_with(text, beside(total_lines, None))
        }
        Text::Lines { lines, total, next } => success_with(lines, beside(total, next)),
    })
    .await
}
