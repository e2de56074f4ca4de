//! Accepting connections, a bounded number, and serving each until it ends, gives way, or the service stops.
//!
//! In place of `axum::serve`, which bounds neither connections nor heads nor the time that they take.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::ConnectionLimits;
use crate::http::answer::problem;
use crate::http::connection::client_connection::ClientConnection;
use crate::http::connection::connections::{ConnectionSlot, Connections};
use crate::http::connection::under_way::UnderWay;
use crate::metrics::Shared;

/// How long and how far one for whom there is no place is listened to.
const SPARE_TIME: Duration = Duration::from_secs(5);
const SPARE_BYTES: u64 = 64 * 1024;
/// The requests of a spare place.
const HEALTH: [&str; 2] = ["/healthz", "/readyz"];
/// Bytes that a connection buffers of a body.
const BUFFER_BYTES: usize = 256 * 1024;
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
    let server = Server {
        builder: builder(limits),
        service: TowerToHyperService::new(router),
        patience: Duration::from_millis(limits.send_idle_ms),
        connections: Connections::new(limits, Arc::clone(&metrics)),
        metrics,
        stopping,
        tasks: TaskTracker::new(),
    };
    let mut tick = tokio::time::interval(server.connections.tick());
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let (stream, peer) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    server.rest(&error).await;
                    continue;
                }
            },
            _ = tick.tick() => {
                server.connections.end_overdue();
                continue;
            }
            () = server.stopping.cancelled() => break,
        };
        // Small answers must not wait for the acknowledgement of the one before (Nagle's algorithm, tcp(7)).
        let _ = stream.set_nodelay(true);
        server.admit(stream, peer);
    }
    drop(listener);
    server.tasks.close();
    loop {
        tokio::select! {
            () = server.tasks.wait() => return,
            _ = tick.tick() => server.connections.end_overdue(),
        }
    }
}

struct Server {
    builder: http1::Builder,
    service: TowerToHyperService<Router>,
    patience: Duration,
    connections: Arc<Connections>,
    metrics: Shared,
    stopping: CancellationToken,
    tasks: TaskTracker,
}

fn builder(limits: &ConnectionLimits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    // How long heads take is looked after by `Connections`, which knows a first one from a later one.
    builder.header_read_timeout(None);
    builder
        .max_header_size(limits.head_bytes)
        .max_buf_size(limits.head_bytes.saturating_add(1).max(BUFFER_BYTES));
    builder
}

impl Server {
    fn admit(&self, stream: TcpStream, peer: SocketAddr) {
        // A caller on this host comes from loopback, or from the address at which it asks.
        let own = stream.local_addr().map(|own| own.ip().to_canonical());
        let of_peer = peer.ip().to_canonical();
        let is_local = of_peer.is_loopback() || own.is_ok_and(|own| own == of_peer);
        let Some(place) = self.connections.admit(peer.ip(), is_local) else {
            self.metrics.refused_connections.inc();
            return;
        };
        let (connections, metrics) = (Arc::clone(&self.connections), Arc::clone(&self.metrics));
        let link = ClientConnection::new(stream, metrics, self.patience, connections, Arc::clone(&place));
        if place.is_spare {
            self.metrics.refused_connections.inc();
            self.turn_away(link, place);
        } else {
            self.take(link, place);
        }
    }

    /// Serves a connection.
    fn take(&self, link: ClientConnection, place: Arc<ConnectionSlot>) {
        let (service, connections) = (self.service.clone(), Arc::clone(&self.connections));
        let of_requests = Arc::clone(&place);
        let service = service_fn(move |request: Request<Incoming>| {
            let under_way = UnderWay::begin(&connections, &of_requests);
            let answering = under_way.is_some().then(|| service.call(request));
            async move {
                let (Some(under_way), Some(answering)) = (under_way, answering) else {
                    // The connection has given way, and ends with this task.
                    return pending().await;
                };
                let response = answering.await?;
                Ok::<_, Infallible>(under_way.until_sent(response))
            }
        });
        let connection = self.builder.serve_connection(TokioIo::new(link), service).with_upgrades();
        let stopping = self.stopping.clone();
        self.tasks.spawn(async move {
            let mut connection = pin!(connection);
            let ended = tokio::select! {
                ended = connection.as_mut() => ended,
                () = place.ended() => return,
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

    /// Tells a caller that there are too many; one who asks for the health of the service is told about it.
    fn turn_away(&self, link: ClientConnection, place: Arc<ConnectionSlot>) {
        let (service, connections) = (self.service.clone(), Arc::clone(&self.connections));
        let of_requests = Arc::clone(&place);
        let service = service_fn(move |request: Request<Incoming>| {
            let under_way = UnderWay::begin(&connections, &of_requests);
            let answering = HEALTH.contains(&request.uri().path()).then(|| service.call(request));
            async move {
                let _under_way = under_way;
                let response: Response = match answering {
                    Some(answering) => answering.await?,
                    None => problem::too_many_connections().into_response(),
                };
                Ok::<_, Infallible>(response)
            }
        });
        let mut builder = self.builder.clone();
        let connection = builder.keep_alive(false).serve_connection(TokioIo::new(link), service);
        self.tasks.spawn(async move {
            let told = async {
                let parts = connection.without_shutdown().await.map_err(io::Error::other)?;
                let mut link = parts.io.into_inner();
                link.shutdown().await?;
                // To close on what was sent would reset the connection, and the answer with it.
                tokio::io::copy(&mut link.take(SPARE_BYTES), &mut tokio::io::sink()).await
            };
            tokio::select! {
                _ = tokio::time::timeout(SPARE_TIME, told) => {}
                () = place.ended() => {}
            }
        });
    }

    /// Waits where the fault is ours; a caller who is gone already is nothing to wait for.
    async fn rest(&self, error: &io::Error) {
        use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
        if matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
            return;
        }
        tracing::error!(%error, "connections cannot be accepted");
        // Most likely the process has no descriptor left, and a waiting connection has one.
        self.connections.end_longest_waiting();
        tokio::time::sleep(PAUSE).await;
    }
}
