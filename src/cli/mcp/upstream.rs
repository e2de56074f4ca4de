//! [`Upstream`]: the service that the bridge leads to.

use std::io;
use std::path::Path;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, Uri};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use sandbox::connector;
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
        let authorities = ca_file.map(authorities).transpose()?;
        let connector = connector(uri.scheme_str() == Some("https"), authorities.as_deref(), CONNECT)?;
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

/// Reads a file of certificates.
#[expect(clippy::disallowed_methods, reason = "a file that the caller names; nothing stored")]
fn authorities(path: &Path) -> io::Result<String> {
    std::fs::read_to_string(path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}
