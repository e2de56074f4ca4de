//! [`Http`]: requests to a bucket, by hyper and rustls as everywhere, each wait of them bounded.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Limited;
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector as Connector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpResponseBody, HttpService,
};
use sandbox::connector;
use tokio::time::{Instant, Sleep, sleep, timeout};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long an idle connection is kept.
const IDLE: Duration = Duration::from_secs(30);
/// Idle connections that are kept.
const IDLE_MAX: usize = 8;
/// The largest answer that is no object, in bytes.
const DOCUMENT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A client of one bucket. It follows no redirections and uses no proxy of the environment.
#[derive(Clone, Debug)]
pub(super) struct Http {
    client: Client<HttpsConnector<HttpConnector>, HttpRequestBody>,
    /// For the head of an answer, and for each next piece of its body.
    patience: Duration,
}

impl Http {
    /// # Errors
    /// TLS cannot be spoken, or the host trusts no authority.
    pub(super) fn new(is_encrypted: bool, patience: Duration) -> io::Result<Self> {
        let connector = connector(is_encrypted, None, CONNECT)?;
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(IDLE_MAX)
            .pool_timer(TokioTimer::new())
            .build(connector);
        Ok(Self { client, patience })
    }
}

impl Connector for Http {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Http {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        // What has a query asks for a document, or is answered with one.
        let is_object = request.uri().query().is_none();
        // A part of some MiB is sent before the head comes.
        let asked = timeout(CONNECT + self.patience * 2, self.client.request(request)).await;
        let response = match asked {
            Ok(Ok(response)) => response,
            Ok(Err(error)) if error.is_connect() => {
                return Err(HttpError::new(HttpErrorKind::Connect, error));
            }
            // Every request here may be made twice: names have digests.
            Ok(Err(error)) => return Err(HttpError::new(HttpErrorKind::Request, error)),
            Err(elapsed) => return Err(HttpError::new(HttpErrorKind::Timeout, elapsed)),
        };
        let (parts, body) = response.into_parts();
        let body = Patient { body, wait: Box::pin(sleep(self.patience)), patience: self.patience };
        let body = match is_object && parts.status.is_success() {
            true => HttpResponseBody::new(body),
            false => {
                let limited =
                    http_body_util::BodyExt::map_err(Limited::new(body, DOCUMENT_BYTES_MAX), |error| {
                        HttpError::new(HttpErrorKind::Decode, io::Error::other(error))
                    });
                HttpResponseBody::new(limited)
            }
        };
        Ok(HttpResponse::from_parts(parts, body))
    }
}

/// A body whose next piece is not waited for without end.
struct Patient {
    body: Incoming,
    wait: Pin<Box<Sleep>>,
    patience: Duration,
}

impl Body for Patient {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            let next = Instant::now() + self.patience;
            self.wait.as_mut().reset(next);
            return Poll::Ready(
                frame.map(|frame| frame.map_err(|error| HttpError::new(HttpErrorKind::Interrupted, error))),
            );
        }
        ready!(self.wait.as_mut().poll(context));
        let silent = io::Error::new(io::ErrorKind::TimedOut, "no byte of the body came in time");
        Poll::Ready(Some(Err(HttpError::new(HttpErrorKind::Timeout, silent))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
