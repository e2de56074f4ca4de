//! `POST T/grep`

use axum::extract::State;
use policy::RelPath;
use serde::{Deserialize, Serialize};
use storage::search::{GrepCursor, GrepQuery, PATTERNS_MAX, Stop};

use super::patterns;
use crate::http::App;
use crate::http::answer::problem::Problem;
use crate::http::answer::{Answer, made, success_with};
use crate::http::extract::bounded;
use crate::http::extract::{JsonBody, JsonLimit, Local, NoParams, SeenLayer, TreeQuestion};

/// Lines around a match, on each side.
const CONTEXT_MAX: usize = 20;
/// Matches in one answer, and when a request does not say.
const MATCHES_MAX: usize = 10_000;
const MATCHES: usize = 1_000;
/// About what a line takes in an answer, in bytes.
const LINE_BYTES: usize = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Body {
    pattern: String,
    path: Option<String>,
    #[serde(default, deserialize_with = "bounded::list::<_, _, PATTERNS_MAX>")]
    include: Vec<String>,
    #[serde(default, deserialize_with = "bounded::list::<_, _, PATTERNS_MAX>")]
    exclude: Vec<String>,
    #[serde(default)]
    ignore_case: bool,
    #[serde(default)]
    literal: bool,
    hidden: Option<bool>,
    #[serde(default)]
    context: usize,
    limit: Option<usize>,
    cursor: Option<String>,
    layer: Option<SeenLayer>,
    version: Option<String>,
}

impl JsonLimit for Body {
    /// Two lists of the longest patterns, each byte as JSON can spell it.
    fn bytes_max(_app: &App) -> usize {
        1024 * 1024
    }
}

#[derive(Serialize)]
struct Beside {
    truncated: bool,
    /// Why; null for a whole answer.
    stopped_by: Option<Stop>,
    /// Send it as `cursor` to go on.
    next: Option<String>,
    files_searched: usize,
    files_binary: usize,
    files_skipped: usize,
}

pub(in crate::http) async fn grep(
    State(app): State<App>,
    Local(TreeQuestion(tree)): Local<TreeQuestion>,
    _: NoParams,
    JsonBody(body): JsonBody<Body>,
) -> Answer {
    let tree = tree.seeing(body.layer, body.version.as_deref()).await?;
    let place = tree.dir(body.path.as_deref()).await?;
    let seen = place.tree.local_seen()?;
    let include = patterns(&place, &body.include)?;
    let exclude = patterns(&place, &body.exclude)?;
    if body.context > CONTEXT_MAX {
        return Err(Problem::invalid(format!("`context` is {CONTEXT_MAX} lines or less")));
    }
    if body.limit == Some(0) {
        return Err(Problem::invalid("`limit` is 1 or more"));
    }
    let query = GrepQuery {
        expression: body.pattern,
        literal: body.literal,
        ignore_case: body.ignore_case,
        path: place.path,
        hidden: body.hidden.unwrap_or_else(|| include.names_hidden()),
        include,
        exclude,
        context: body.context,
        limit: body.limit.unwrap_or(MATCHES).min(MATCHES_MAX),
        after: body.cursor.as_deref().map(parse).transpose()?,
    };
    let mut found = app.service.grep(seen, query).await?;
    for found in &mut found.matches {
        found.path = place.above.path(&found.path);
    }
    let beside = Beside {
        truncated: found.stop.is_some(),
        stopped_by: found.stop,
        next: found.next.map(|cursor| text(&cursor)),
        files_searched: found.searched,
        files_binary: found.binary,
        files_skipped: found.skipped,
    };
    let bytes = found.matches.len().saturating_mul((1 + 2 * body.context) * LINE_BYTES);
    made(app.service.admission(), bytes, move || success_with(found.matches, beside)).await
}

/// A cursor as it is sent: the line, or nothing for a whole file, then a `:` and the path.
fn text(cursor: &GrepCursor) -> String {
    let line = cursor.line.map_or(String::new(), |line| line.to_string());
    format!("{line}:{}", cursor.path)
}

fn parse(text: &str) -> Result<GrepCursor, Problem> {
    let wrong = || Problem::invalid(format!("`{text}` is no cursor: send `next` of the former answer"));
    let (line, path) = text.split_once(':').ok_or_else(wrong)?;
    let line = if line.is_empty() { None } else { Some(line.parse().map_err(|_| wrong())?) };
    let path = RelPath::parse(path).map_err(|_| wrong())?;
    Ok(GrepCursor { path: path.into(), line })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written_and_nothing_else_is() {
        for cursor in [
            GrepCursor { path: "文档/a:b.md".to_owned(), line: Some(7) },
            GrepCursor { path: "a".to_owned(), line: None },
        ] {
            assert_eq!(parse(&text(&cursor)).unwrap(), cursor);
        }
        for wrong in ["", "a", ":", "x:a", "-1:a", "1:", "1:../a", "1:/a", "99999999999999999999:a"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
