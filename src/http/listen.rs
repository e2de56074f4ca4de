//! Accepting connections, a bounded number, and serving each until it ends or the service stops.
//!
//! In place of `axum::serve`, which bounds neither connections nor heads nor the time that they take.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::link::Link;
use super::problem;
use crate::config::ConnectionLimits;
use crate::metrics::Shared;

/// Connections beyond the limit that are told so at once; any more are closed without a word.
const REFUSALS_AT_ONCE: usize = 64;
/// How long and how far one that is refused is listened to, so that it gets to read why.
const REFUSAL_TIME: Duration = Duration::from_secs(1);
const REFUSAL_BYTES: u64 = 64 * 1024;
/// How long to wait when the process has no descriptor left.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves `router` on `listener` until `stopping`, then until every connection has ended.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: &ConnectionLimits,
    metrics: Shared,
    stopping: CancellationToken,
) {
    let places = Arc::new(Semaphore::new(limits.connections.min(Semaphore::MAX_PERMITS)));
    let refusals = Arc::new(Semaphore::new(REFUSALS_AT_ONCE));
    let server = Server {
        builder: builder(limits),
        service: TowerToHyperService::new(router),
        patience: Duration::from_millis(limits.send_idle_ms),
        metrics,
        stopping,
        connections: TaskTracker::new(),
    };
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    rest(&error).await;
                    continue;
                }
            },
            () = server.stopping.cancelled() => break,
        };
        // Small answers must not wait for the acknowledgement of the one before (Nagle's algorithm, tcp(7)).
        let _ = stream.set_nodelay(true);
        if let Ok(place) = Arc::clone(&places).try_acquire_owned() {
            server.take(stream, place);
        } else {
            server.metrics.refused_connections.inc();
            if let Ok(place) = Arc::clone(&refusals).try_acquire_owned() {
                tokio::spawn(refuse(stream, place));
            }
        }
    }
    drop(listener);
    server.connections.close();
    server.connections.wait().await;
}

struct Server {
    builder: http1::Builder,
    service: TowerToHyperService<Router>,
    patience: Duration,
    metrics: Shared,
    stopping: CancellationToken,
    connections: TaskTracker,
}

fn builder(limits: &ConnectionLimits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(limits.head_ms))
        .max_buf_size(limits.head_bytes.max(8192));
    builder
}

impl Server {
    fn take(&self, stream: TcpStream, place: OwnedSemaphorePermit) {
        let link = Link::new(stream, Arc::clone(&self.metrics), self.patience, place);
        let connection =
            self.builder.serve_connection(TokioIo::new(link), self.service.clone()).with_upgrades();
        let stopping = self.stopping.clone();
        self.connections.spawn(async move {
            let mut connection = pin!(connection);
            let ended = tokio::select! {
                ended = connection.as_mut() => ended,
                () = stopping.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection broke");
            }
        });
    }
}

/// Waits where the fault is ours; a caller who is gone already is nothing to wait for.
async fn rest(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        tracing::error!(%error, "connections cannot be accepted");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Tells a caller that there are too many.
async fn refuse(mut stream: TcpStream, place: OwnedSemaphorePermit) {
    let told = async {
        stream.write_all(&problem::too_many_connections()).await?;
        stream.shutdown().await?;
        // To close on what was sent would reset the connection, and the answer with it.
        let mut rest = stream.take(REFUSAL_BYTES);
        tokio::io::copy(&mut rest, &mut tokio::io::sink()).await
    };
    let _ = tokio::time::timeout(REFUSAL_TIME, told).await;
    drop(place);
}
