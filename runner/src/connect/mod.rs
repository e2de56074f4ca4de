//! The way to the service: an open WebSocket, or why there is none.
//!
//! * [`address`]: where it is. [`proxy`]: what may stand before it. [`tls`]: who may answer there. [`patience`]: how long the other end
//!   may be silent.

mod address;
mod patience;
mod proxy;
mod tls;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sandbox::wire::FRAME_BYTES_MAX;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_tungstenite::tungstenite;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::http::header::AUTHORIZATION;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

pub(crate) use self::address::Address;
pub(crate) use self::patience::{Patient, Stream};
pub(crate) use self::proxy::Proxies;
pub(crate) use self::tls::Trust;
pub(crate) use self::tls::TrustError;
use crate::status::Figures;

/// How long connecting may take: name, proxy, TLS and HTTP together.
const CONNECTING: Duration = Duration::from_secs(30);

/// The same of a connection for a file, which is tried again soon.
const CONNECTING_FOR_FILE: Duration = Duration::from_secs(10);
/// How long a service may take nothing of a file.
const WRITE_FILE: Duration = Duration::from_secs(60);

/// The header that every answer of the service has.
pub(crate) const REQUEST_ID: &str = "x-request-id";

/// An open connection.
pub(crate) type Socket = tokio_tungstenite::WebSocketStream<Box<dyn Stream>>;

/// Why there is no connection.
#[derive(Debug, Error)]
pub(crate) enum ConnectError {
    /// HTTP 401 or 403; 404 where the service says that the token is none of that user's.
    #[error("the service refuses this runner (HTTP {0}): check the token and the user in the URL")]
    Refused(u16),
    /// Another HTTP status than 101.
    #[error("the service answers HTTP {0} in place of a WebSocket: check the URL")]
    Status(u16),
    /// The certificate is not one for this name that this machine trusts.
    #[error("the certificate of the service is not trusted: {0}; `--ca-file` names further authorities")]
    Certificate(rustls::Error),
    /// The proxy cannot be used.
    #[error("the proxy {0}")]
    Proxy(String),
    /// It did not come about within 30 seconds.
    #[error("no connection within 30 s")]
    Late,
    /// The network or the other end failed.
    #[error("no connection: {0}")]
    Io(#[from] std::io::Error),
    /// The other end speaks no WebSocket.
    #[error("no WebSocket: {0}")]
    WebSocket(tungstenite::Error),
}

/// What is needed to connect, again and again.
#[derive(Debug)]
pub(crate) struct Way {
    address: Address,
    proxies: Proxies,
    trust: Trust,
    /// Further authorities.
    ca_file: Option<PathBuf>,
    /// The token in the head, so that the service keeps a place for it; founding services look at that of the first frame alone.
    authorization: Option<HeaderValue>,
    /// What the connections carry is counted there.
    pub(crate) figures: Arc<Figures>,
}

impl Way {
    /// The way to `address`, for who has `token`.
    ///
    /// # Errors
    /// The file of further authorities cannot be used.
    pub(crate) fn new(
        address: Address,
        proxies: Proxies,
        ca_file: Option<&Path>,
        token: &str,
    ) -> Result<Self, TrustError> {
        let trust = if address.is_encrypted { Trust::new(ca_file)? } else { Trust::none() };
        let authorization = Some(token).filter(|token| !token.is_empty());
        // A token that no head can carry stays in the frame.
        let mut authorization =
            authorization.and_then(|token| HeaderValue::try_from(format!("Bearer {token}")).ok());
        if let Some(value) = &mut authorization {
            value.set_sensitive(true);
        }
        let ca_file = ca_file.map(Path::to_owned);
        Ok(Self { address, proxies, trust, ca_file, authorization, figures: Arc::default() })
    }

    /// The way to another host, through the same proxies and with the same authorities, without the token.
    ///
    /// # Errors
    /// As [`Way::new`].
    pub(crate) fn beside(&self, address: Address) -> Result<Self, TrustError> {
        Self::new(address, self.proxies.clone(), self.ca_file.as_deref(), "")
    }

    /// Connects.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub(crate) async fn connect(&self) -> Result<Socket, ConnectError> {
        tokio::time::timeout(CONNECTING, self.connect_in_time()).await.map_err(|_| ConnectError::Late)?
    }

    /// A connection for the bytes of a file: its other end may take none for a minute, because the agent may.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub(crate) async fn connect_for_file(&self) -> Result<Box<dyn Stream>, ConnectError> {
        let reached = tokio::time::timeout(CONNECTING_FOR_FILE, self.reach(WRITE_FILE));
        reached.await.map_err(|_| ConnectError::Late)?
    }

    /// The service.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Connects, through the proxy and with TLS as they are asked for.
    async fn reach(&self, write: Duration) -> Result<Box<dyn Stream>, ConnectError> {
        let address = &self.address;
        let stream = match self.proxies.before(address)? {
            None => TcpStream::connect((address.host.as_str(), address.port)).await?,
            Some(proxy) => proxy.reach(address).await?,
        };
        stream.set_nodelay(true)?;
        let stream: Box<dyn Stream> = match &self.trust.config {
            None => Box::new(Patient::new(stream, write, Arc::clone(&self.figures))),
            Some(config) => {
                let name = address.server_name()?;
                let connecting = TlsConnector::from(config.clone())
                    .connect(name, Patient::new(stream, write, Arc::clone(&self.figures)));
                Box::new(connecting.await.map_err(untrusted)?)
            }
        };
        Ok(stream)
    }

    async fn connect_in_time(&self) -> Result<Socket, ConnectError> {
        let stream = self.reach(patience::WRITE).await?;
        let address = &self.address;
        let config = WebSocketConfig::default()
            .max_message_size(Some(FRAME_BYTES_MAX))
            .max_frame_size(Some(FRAME_BYTES_MAX));
        let mut request = address.url.as_str().into_client_request().map_err(ConnectError::WebSocket)?;
        request.headers_mut().extend(self.authorization.clone().map(|value| (AUTHORIZATION, value)));
        match tokio_tungstenite::client_async_with_config(request, stream, Some(config)).await {
            Ok((socket, _response)) => Ok(socket),
            Err(tungstenite::Error::Http(response)) => Err(match response.status().as_u16() {
                status @ (401 | 403) => ConnectError::Refused(status),
                // The service's own word, and not that of a proxy: the token is none of that user's.
                status @ 404 if response.headers().contains_key(REQUEST_ID) => ConnectError::Refused(status),
                status => ConnectError::Status(status),
            }),
            Err(tungstenite::Error::Io(error)) => Err(ConnectError::Io(error)),
            Err(error) => Err(ConnectError::WebSocket(error)),
        }
    }
}

/// Tells a certificate that is refused from a network that fails.
fn untrusted(error: std::io::Error) -> ConnectError {
    match error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>()) {
        Some(cause @ (rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented)) => {
            ConnectError::Certificate(cause.clone())
        }
        _ => ConnectError::Io(error),
    }
}
