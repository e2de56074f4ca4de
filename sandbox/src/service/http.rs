//! [`Http`]: requests to the service over kept connections, and answers as results.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::connector::connector;
use super::upload::{Body, Upload};
use crate::{Code, Error, ErrorKind, Result};

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(10);
/// How long an unused connection is kept: less than proxies usually do, so that none is found closed.
const IDLE: Duration = Duration::from_secs(30);
/// How long any answer may take that nothing is known about.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// The most bytes of a document: two outputs of 1 MiB each, as text, in base64, and both once more in their order.
const DOCUMENT_BYTES_MAX: usize = 64 << 20;
/// The most bytes of an answer that are read for nothing.
const DRAINED_BYTES_MAX: usize = 64 << 10;
/// The most of what the service says about a failure that is told, in characters.
const MESSAGE_CHARACTERS_MAX: usize = 1_000;

/// Requests to one service.
#[derive(Debug)]
pub(super) struct Http {
    client: Client<HttpsConnector<HttpConnector>, Body>,
    base: String,
    authorization: Option<HeaderValue>,
}

/// A document as the service sends it.
#[derive(Deserialize)]
struct Envelope<T> {
    data: T,
}

/// A failure as the service tells it.
#[derive(Deserialize)]
struct Failure {
    data: String,
    code: String,
}

impl Http {
    /// Requests to `base`, with `token`, trusting `authorities` (PEM) or those that the host trusts.
    pub(super) fn new(base: &str, token: Option<&str>, authorities: Option<&str>) -> Result<Self> {
        let refused = |message: &str| Error::new(ErrorKind::Invalid, "connect", message);
        let base = base.trim_end_matches('/');
        let uri: Uri =
            base.parse().map_err(|error| refused("the address of the service is none").because(error))?;
        let is_known = matches!(uri.scheme_str(), Some("http" | "https"));
        if !is_known || uri.authority().is_none() || uri.query().is_some() {
            return Err(refused("the address of the service is `http://HOST:PORT` or `https://HOST:PORT`"));
        }
        let authorization = token.map(|token| HeaderValue::try_from(format!("Bearer {token}")));
        let mut authorization =
            authorization.transpose().map_err(|error| refused("the token is none").because(error))?;
        if let Some(value) = &mut authorization {
            value.set_sensitive(true); // kept out of what is logged
        }
        let connector = connector(uri.scheme_str() == Some("https"), authorities, CONNECT)
            .map_err(|error| refused("the authorities to trust cannot be read").because(error))?;
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .build(connector);
        Ok(Self { client, base: base.to_owned(), authorization })
    }

    /// Sends a request whose answer begins within `patience`. One that reads, and has no body, is sent once more when its
    /// connection breaks: a kept connection may carry the rest of a body still that the service had refused, or be lost.
    pub(super) async fn send(
        &self,
        operation: &'static str,
        method: Method,
        target: &str,
        headers: &[(HeaderName, HeaderValue)],
        body: Body,
        patience: Duration,
    ) -> Result<Response<Incoming>> {
        let again = matches!(method, Method::GET | Method::HEAD)
            .then(|| self.request(operation, method.clone(), target, headers, nothing()))
            .transpose()?;
        let request = self.request(operation, method, target, headers, body)?;
        let asked = async {
            match (self.client.request(request).await, again) {
                (Err(error), Some(again)) if !error.is_connect() => self.client.request(again).await,
                (answered, _) => answered,
            }
        };
        match tokio::time::timeout(patience, asked).await {
            Err(_) => Err(Error::new(ErrorKind::Timeout, operation, "the service did not answer in time")),
            Ok(answered) => answered.map_err(|error| unanswered(operation, error)),
        }
    }

    /// Sends a stream; there is no end to the patience as long as it goes on.
    pub(super) async fn upload(
        &self,
        operation: &'static str,
        target: &str,
        headers: &[(HeaderName, HeaderValue)],
        upload: Upload,
    ) -> Result<Response<Incoming>> {
        let state = upload.state();
        let request = self.request(operation, Method::PUT, target, headers, upload.into_body())?;
        let answered = tokio::select! {
            answered = self.client.request(request) => answered,
            () = state.stalled(PATIENCE) => {
                return Err(Error::new(ErrorKind::Timeout, operation, "the service took nothing for too long"));
            }
        };
        // The caller's own failure is what broke the request off.
        match (state.failure(), answered) {
            (Some(failure), _) => Err(failure),
            (None, answered) => answered.map_err(|error| unanswered(operation, error)),
        }
    }

    fn request(
        &self,
        operation: &'static str,
        method: Method,
        target: &str,
        headers: &[(HeaderName, HeaderValue)],
        body: Body,
    ) -> Result<Request<Body>> {
        let mut request = Request::builder().method(method).uri(format!("{}{target}", self.base));
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        for (name, value) in headers {
            request = request.header(name, value);
        }
        request.body(body).map_err(|error| {
            Error::new(ErrorKind::Invalid, operation, "the request cannot be spelled").because(error)
        })
    }

    /// Asks with nothing in the body, and reads the document that comes.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        operation: &'static str,
        method: Method,
        target: &str,
    ) -> Result<T> {
        let response = self.send(operation, method, target, &[], nothing(), PATIENCE).await?;
        document(operation, success(operation, response).await?).await
    }

    /// Sends a document, and reads the one that comes.
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        operation: &'static str,
        target: &str,
        body: &impl serde::Serialize,
        patience: Duration,
    ) -> Result<T> {
        let headers = [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
        let response =
            self.send(operation, Method::POST, target, &headers, json(operation, body)?, patience).await?;
        document(operation, success(operation, response).await?).await
    }
}

pub(super) fn nothing() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

pub(super) fn whole(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

pub(super) fn json(operation: &'static str, value: &impl serde::Serialize) -> Result<Body> {
    let text = serde_json::to_vec(value).map_err(|error| {
        Error::new(ErrorKind::Invalid, operation, "the request cannot be written as JSON").because(error)
    })?;
    Ok(whole(text.into()))
}

/// The response, when it is a success; else the failure that it tells.
pub(super) async fn success(
    operation: &'static str,
    response: Response<Incoming>,
) -> Result<Response<Incoming>> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let bytes = bytes(operation, response).await?;
    if status == StatusCode::NOT_MODIFIED || bytes.is_empty() {
        let message = format!("the service answered with status {}", status.as_u16());
        return Err(Error::new(kind_of_status(status.as_u16()), operation, message));
    }
    Err(match serde_json::from_slice::<Failure>(&bytes) {
        Ok(failure) => {
            let mut message = failure.data;
            if message.chars().count() > MESSAGE_CHARACTERS_MAX {
                message = message.chars().take(MESSAGE_CHARACTERS_MAX - 3).chain("...".chars()).collect();
            }
            Error::new(Code::parse(&failure.code).map_or(ErrorKind::Internal, Code::kind), operation, message)
        }
        Err(error) => {
            let message =
                format!("no answer of the service, but status {} of something in between", status.as_u16());
            Error::new(kind_of_status(status.as_u16()), operation, message).because(error)
        }
    })
}

/// The fields of a successful document.
pub(super) async fn document<T: DeserializeOwned>(
    operation: &'static str,
    response: Response<Incoming>,
) -> Result<T> {
    let bytes = bytes(operation, response).await?;
    let parsed = serde_json::from_slice::<Envelope<T>>(&bytes);
    parsed.map(|envelope| envelope.data).map_err(|error| {
        Error::new(ErrorKind::Internal, operation, "the answer cannot be understood: is it a filesecbox?")
            .because(error)
    })
}

async fn bytes(operation: &'static str, response: Response<Incoming>) -> Result<Bytes> {
    let collected = Limited::new(response.into_body(), DOCUMENT_BYTES_MAX).collect();
    match tokio::time::timeout(PATIENCE, collected).await {
        Err(_) => {
            Err(Error::new(ErrorKind::Timeout, operation, "the answer did not come to its end in time"))
        }
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) => Err(broken(operation).because(error)),
    }
}

/// Reads an answer of which nothing is wanted, so that its connection serves once more; a long one is let go.
pub(super) async fn drain(response: Response<Incoming>) {
    let collected = Limited::new(response.into_body(), DRAINED_BYTES_MAX).collect();
    let _rest = tokio::time::timeout(Duration::from_secs(1), collected).await;
}

/// Tells whether the other side has no certificate that is trusted.
fn is_untrusted(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(found) = cause {
        if matches!(found.downcast_ref(), Some(rustls::Error::InvalidCertificate(_))) {
            return true;
        }
        // What an `io::Error` wraps is not its source.
        let wrapped = found.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        cause = wrapped.map(|wrapped| wrapped as _).or_else(|| found.source());
    }
    false
}

/// Why no answer came.
fn unanswered(operation: &'static str, error: hyper_util::client::legacy::Error) -> Error {
    if is_untrusted(&error) {
        let message =
            "the certificate of the service is not trusted: name its authority, or correct the address";
        return Error::new(ErrorKind::PermissionDenied, operation, message).because(error);
    }
    broken(operation).because(error)
}

pub(super) fn broken(operation: &'static str) -> Error {
    Error::new(ErrorKind::Disconnected, operation, "the service cannot be reached, or broke off")
}

/// A shared client that closing takes away.
pub(super) type Shared = parking_lot::RwLock<Option<Arc<Http>>>;

/// The kind of an answer that is none of the service's, but of something in between.
fn kind_of_status(status: u16) -> ErrorKind {
    match status {
        401 | 403 => ErrorKind::PermissionDenied,
        408 | 504 => ErrorKind::Timeout,
        413 => ErrorKind::TooLarge,
        429 => ErrorKind::Busy,
        502 | 503 => ErrorKind::Disconnected,
        _ => ErrorKind::Internal,
    }
}
