//! One message over the SDK's transport: *Streamable HTTP*, in all revisions of the protocol, without sessions.

use std::convert::Infallible;
use std::sync::Arc;

use axum::http::{Request, Response};
use bytes::Bytes;
use http_body_util::Full;
use http_body_util::combinators::BoxBody;
use rmcp::ServerHandler;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};

use super::MESSAGE_BYTES_MAX;

/// An answer as it is sent: JSON, or a stream of events.
pub type Answer = Response<BoxBody<Bytes, Infallible>>;

/// Answers a message by the methods of `handler`.
pub async fn answer(handler: impl ServerHandler + Clone, message: Request<Bytes>) -> Answer {
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        // The routes of the service have one guard for all.
        .disable_allowed_hosts()
        .with_max_request_body_bytes(MESSAGE_BYTES_MAX);
    let sessions = Arc::new(NeverSessionManager::default());
    let server = StreamableHttpService::new(move || Ok(handler.clone()), sessions, config);
    server.handle(message.map(Full::new)).await
}
