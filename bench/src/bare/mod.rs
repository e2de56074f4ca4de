//! The service to compare with: the same routes on axum, without checks, layers, locks or isolation.
//!
//! It does what a careful author would write first: one hop off the runtime per request, writes through a temporary
//! name and a rename, commands as child processes. A path of the URL is a path of the disk. Never expose it.

mod archive;
mod files;
mod run;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::extract::ws::{Message, WebSocketUpgrade};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::serve::ListenerExt;
use axum::{Json, Router};
use serde::Serialize;
use serde_json::json;

use crate::error::{Failure, Result};

/// The state that every handler gets.
#[derive(Clone)]
struct Bare {
    root: Arc<PathBuf>,
    /// Whether writes wait for the disk.
    strict: bool,
}

impl Bare {
    /// The directory of a skill or workspace.
    fn tree(&self, segments: &[&str]) -> PathBuf {
        self.root.join(segments.join("/"))
    }
}

/// Serves until it is killed. Says where on standard output, as the service under test does.
///
/// # Errors
/// [`Failure::Io`] when the port cannot be had.
pub(crate) fn serve(root: PathBuf, strict: bool) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Failure::io("start the runtime"))?;
    runtime.block_on(async move {
        let listener =
            tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.map_err(Failure::io("listen"))?;
        let address = listener.local_addr().map_err(Failure::io("listen"))?;
        let listener = listener.tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        writeln!(std::io::stdout(), "bare listening on http://{address}").map_err(Failure::io("print"))?;
        let app = router(Bare { root: Arc::new(root), strict });
        axum::serve(listener, app).await.map_err(Failure::io("serve"))
    })
}

fn router(bare: Bare) -> Router {
    Router::new()
        .route("/healthz", get(|| async { success("ok") }))
        .route("/echo", get(echo))
        .route("/v1/skills/{u}/{a}/upload", post(archive::upload))
        .merge(tree_routes("/v1/skills/{u}/{a}/{s}"))
        .merge(tree_routes("/v1/sandbox/{u}/{a}"))
        .layer(DefaultBodyLimit::disable())
        .with_state(bare)
}

/// Sends back every text that comes.
async fn echo(upgrade: WebSocketUpgrade) -> Response {
    upgrade.on_upgrade(|mut socket| async move {
        while let Some(Ok(message)) = socket.recv().await {
            if matches!(message, Message::Text(_)) && socket.send(message).await.is_err() {
                return;
            }
        }
    })
}

fn tree_routes(tree: &str) -> Router<Bare> {
    Router::new()
        .route(&format!("{tree}/files"), get(files::list))
        .route(&format!("{tree}/content"), get(files::content))
        .route(&format!("{tree}/edit"), put(files::edit))
        .route(&format!("{tree}/execute"), post(run::execute))
        .route(&format!("{tree}/raw/{{*path}}"), get(files::read).put(files::write))
}

fn success(data: impl Serialize) -> Response {
    Json(json!({ "status": "success", "data": data })).into_response()
}

/// Any failure: the fixture is only ever asked for what is there.
struct Broken(std::io::Error);

impl<E: Into<std::io::Error>> From<E> for Broken {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for Broken {
    fn into_response(self) -> Response {
        let head = [(header::CONTENT_TYPE, "text/plain")];
        (StatusCode::INTERNAL_SERVER_ERROR, head, self.0.to_string()).into_response()
    }
}

/// Does blocking work off the runtime.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, Broken> {
    Ok(tokio::task::spawn_blocking(work).await.map_err(std::io::Error::other)??)
}
