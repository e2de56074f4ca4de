//! [`Upstream`]: the service that the bridge leads to.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, Uri};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::time::{Instant, sleep, timeout};

use super::super::client::encode;
use super::super::target::Owner;

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(5);
/// How long an unused connection is kept: less than the service and proxies keep it.
const IDLE: Duration = Duration::from_secs(10);
/// How long the head of an answer may take. In the current revision it comes with the first message, which may be the result of a
/// command of ten minutes.
const HEAD: Duration = Duration::from_secs(15 * 60);
/// How often a silent connection is asked whether its other end is there still.
const KEEPALIVE: Duration = Duration::from_secs(20);
/// How long a request waits for a service that cannot be reached.
const PATIENCE: Duration = Duration::from_secs(10);
/// The first pause before another attempt, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(8));

/// A workspace of a service, by its route for MCP.
pub(super) struct Upstream {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    uri: Uri,
    authorization: Option<HeaderValue>,
}

impl Upstream {
    /// The workspace of `owner` at `server`, trusting the certificates of `ca_file` (PEM), or those that the host trusts.
    ///
    /// # Errors
    /// The address or the token is none, or the certificates cannot be read.
    pub(super) fn new(
        server: &str,
        token: Option<&str>,
        ca_file: Option<&Path>,
        owner: &Owner,
    ) -> io::Result<Self> {
        let invalid = |text: &str| io::Error::new(io::ErrorKind::InvalidInput, text);
        let mut address = server.trim_end_matches('/').to_owned();
        for segment in ["mcp", &owner.user, &owner.agent] {
            address.push('/');
            encode(segment, &mut address);
        }
        let no_address = "the address of the service is `http://HOST:PORT` or `https://HOST:PORT`";
        let uri: Uri = address.parse().map_err(|_| invalid(no_address))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.query().is_some() {
            return Err(invalid(no_address));
        }
        let authorization = token.map(|token| HeaderValue::try_from(format!("Bearer {token}"))).transpose();
        let mut authorization =
            authorization.map_err(|_| invalid("the token has characters that no token has"))?;
        if let Some(value) = &mut authorization {
            value.set_sensitive(true); // kept out of what is logged
        }
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT));
        // A host that has gone must not hold a request for all that time.
        connector.set_keepalive(Some(KEEPALIVE));
        connector.set_keepalive_interval(Some(KEEPALIVE));
        connector.set_keepalive_retries(Some(3));
        connector.enforce_http(false);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls(uri.scheme_str() == Some("https"), ca_file)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .build(connector);
        Ok(Self { client, uri, authorization })
    }

    /// Sends a message. While nothing listens there, it is tried again for ten seconds; what may have been received is sent once.
    ///
    /// # Errors
    /// The sentence for the client.
    pub(super) async fn send(
        &self,
        body: &Bytes,
        headers: &[(HeaderName, HeaderValue)],
    ) -> Result<Response<Incoming>, &'static str> {
        let begin = Instant::now();
        let mut pause = PAUSE.0;
        loop {
            let request = self.request(body.clone(), headers).map_err(|_| "the message cannot be sent")?;
            match timeout(HEAD, self.client.request(request)).await {
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(error)) if !error.is_connect() => {
                    return Err("the service broke off before its answer: look at what the call has done");
                }
                Ok(Err(_)) if begin.elapsed() >= PATIENCE => {
                    return Err("the service cannot be reached: is it running, and its certificate trusted?");
                }
                Ok(Err(_)) => sleep(pause.min(PATIENCE.saturating_sub(begin.elapsed()))).await,
                Err(_) => return Err("the service did not answer in time: look at what the call has done"),
            }
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    fn request(
        &self,
        body: Bytes,
        headers: &[(HeaderName, HeaderValue)],
    ) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(self.uri.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        request.body(Full::new(body))
    }
}

/// What is trusted. The authorities of the host are read only where TLS is spoken.
#[expect(clippy::disallowed_methods, reason = "a file that the caller names; nothing stored")]
fn tls(is_spoken: bool, ca_file: Option<&Path>) -> io::Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    let config = match ca_file {
        Some(path) => {
            let mut trusted = RootCertStore::empty();
            for certificate in CertificateDer::pem_slice_iter(&std::fs::read(path)?) {
                trusted.add(certificate.map_err(io::Error::other)?).map_err(io::Error::other)?;
            }
            if trusted.is_empty() {
                let text = format!("{} holds no certificate in PEM", path.display());
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            config.with_root_certificates(trusted)
        }
        None if is_spoken => config.with_native_roots()?,
        None => config.with_root_certificates(RootCertStore::empty()),
    };
    Ok(config.with_no_client_auth())
}
