//! [`Courier`]: the rest of a large open file over HTTP, to the service and from it.
//!
//! It goes to the host and port of the WebSocket, in the same way, and no redirect is followed. A connection that is cut is replaced by
//! another, which goes on where the bytes stopped, as long as some move every [`SILENCE`].

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt;
use futures_util::future::BoxFuture;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use sandbox::wire::response::Failed;
use sandbox::wire::transfer::TRANSFER_SECONDS_MAX;
use sandbox::wire::{Moved, Transfer};
use sandbox::{ByteStream, ErrorKind};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::debug;

use crate::connect::{REQUEST_ID, Way};
use crate::screen::{Carried, Screen};

/// How long nothing may move before a transfer is given up: sooner than the service gives it up.
const SILENCE: Duration = Duration::from_secs(20);
/// The first pause before another connection, and the longest.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(3);
/// The longest answer of the service that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 4096;
/// The longest that a transfer may take.
const LONGEST: Duration = Duration::from_secs(TRANSFER_SECONDS_MAX);

/// Opens a file at one of its bytes.
pub(crate) type Open<'a> = &'a mut (dyn FnMut(u64) -> BoxFuture<'static, Result<ByteStream, Failed>> + Send);

type Body = UnsyncBoxBody<Bytes, sandbox::Error>;

/// Carries files between this machine and the service.
#[derive(Clone, Debug)]
pub(crate) struct Courier {
    way: Arc<Way>,
    screen: Screen,
}

/// Why one connection did not carry the transfer to its end.
enum Stopped {
    /// Another connection may.
    Cut(String),
    /// The service, or this machine, does not want it any more.
    Over(Failed),
    /// What answers is not the service: it cannot be reached so.
    NoService(String),
}

/// What has been sent so far.
#[derive(Default)]
struct Tally {
    digest: blake3::Hasher,
    /// How many bytes the digest is of.
    digested: u64,
    /// The byte that goes next.
    at: u64,
    /// Why the file cannot be read.
    failed: Option<Failed>,
    shown: Option<Carried>,
}

impl Tally {
    /// Counts what goes; what goes again was digested before.
    fn note(&mut self, part: &[u8]) {
        let again = usize::try_from(self.digested - self.at).unwrap_or(usize::MAX).min(part.len());
        let fresh = part.get(again..).unwrap_or_default();
        self.digest.update(fresh);
        self.digested += fresh.len() as u64;
        self.at += part.len() as u64;
        if let Some(shown) = &self.shown {
            shown.at(self.at);
        }
    }
}

impl Courier {
    pub(crate) fn new(way: Arc<Way>, screen: Screen) -> Self {
        Self { way, screen }
    }

    /// The way to the service.
    pub(crate) fn way(&self) -> Arc<Way> {
        Arc::clone(&self.way)
    }

    /// Sends `total` bytes of the file `name`: those of `open`, called with the number of the byte to begin with.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] when the service cannot be reached so, and nothing was opened.
    pub(crate) async fn send(
        &self,
        transfer: &Transfer,
        name: &str,
        total: u64,
        open: Open<'_>,
    ) -> Result<Moved, Failed> {
        let shown = Some(self.screen.carry(name, true, Some(total)));
        let tally = Arc::new(Mutex::new(Tally { shown, ..Tally::default() }));
        let mut attempts = Attempts::new();
        loop {
            match self.send_once(transfer, total, open, &tally, &mut attempts).await {
                Ok(()) => break,
                Err(stopped) => attempts.again(stopped).await?,
            }
        }
        let tally = tally.lock();
        Ok(Moved { bytes: tally.digested, digest: tally.digest.finalize().to_hex().to_string() })
    }

    /// One connection.
    async fn send_once(
        &self,
        transfer: &Transfer,
        total: u64,
        open: Open<'_>,
        tally: &Arc<Mutex<Tally>>,
        attempts: &mut Attempts,
    ) -> Result<(), Stopped> {
        let mut connection = self.connect().await?;
        let asked = self.request(Method::GET, transfer, "/received", Body::default())?;
        let from = received(connection.ask(asked).await?).await?;
        attempts.reached(from);
        if from > tally.lock().digested || from > total {
            let message = "the service has more of the file than was sent";
            return Err(Stopped::Over(Failed::new(ErrorKind::Internal, message)));
        }
        tally.lock().at = from;
        let stream = open(from).await.map_err(Stopped::Over)?;
        let counted = Arc::clone(tally);
        let frames = stream
            .inspect_err({
                let failed = Arc::clone(tally);
                move |error| failed.lock().failed = Some(Failed::of(error))
            })
            .map_ok(move |part| {
                counted.lock().note(&part);
                Frame::data(part)
            });
        let body = BodyExt::boxed_unsync(StreamBody::new(frames));
        let mut request = self.request(Method::PUT, transfer, &format!("?from={from}"), body)?;
        request.headers_mut().insert(header::CONTENT_LENGTH, (total - from).into());
        let answered = connection.ask(request).await;
        if let Some(failed) = tally.lock().failed.take() {
            return Err(Stopped::Over(failed));
        }
        judge(answered?).await.map(drop)
    }

    /// Fetches the file `name`, whose bytes go to `feed`.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] when the service cannot be reached so, and nothing was taken.
    pub(crate) async fn fetch<F: From<Bytes>>(
        &self,
        transfer: &Transfer,
        name: &str,
        feed: &mpsc::Sender<F>,
    ) -> Result<Moved, Failed> {
        let shown = self.screen.carry(name, false, None);
        let mut digest = blake3::Hasher::new();
        let mut bytes = 0;
        let mut attempts = Attempts::new();
        loop {
            match self.fetch_once(transfer, (&mut digest, &mut bytes, &shown), feed, &mut attempts).await {
                Ok(()) => break,
                Err(stopped) => attempts.again(stopped).await?,
            }
        }
        Ok(Moved { bytes, digest: digest.finalize().to_hex().to_string() })
    }

    async fn fetch_once<F: From<Bytes>>(
        &self,
        transfer: &Transfer,
        (digest, bytes, shown): (&mut blake3::Hasher, &mut u64, &Carried),
        feed: &mpsc::Sender<F>,
        attempts: &mut Attempts,
    ) -> Result<(), Stopped> {
        let mut connection = self.connect().await?;
        let request = self.request(Method::GET, transfer, &format!("?from={bytes}"), Body::default())?;
        let mut body = judge(connection.ask(request).await?).await?.into_body();
        attempts.reached(*bytes);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Stopped::Cut(error.to_string()))?;
            let Ok(part) = frame.into_data() else { continue };
            digest.update(&part);
            *bytes += part.len() as u64;
            attempts.reached(*bytes);
            shown.at(*bytes);
            let gone = || Failed::new(ErrorKind::Disconnected, "the file is not written any more");
            feed.send(part.into()).await.map_err(|_| Stopped::Over(gone()))?;
        }
        Ok(())
    }

    async fn connect(&self) -> Result<Connection, Stopped> {
        let cut = |error: String| Stopped::Cut(error);
        let stream = self.way.connect_for_file().await.map_err(|error| cut(error.to_string()))?;
        let (requests, connection) =
            handshake::<_, Body>(TokioIo::new(stream)).await.map_err(|error| cut(error.to_string()))?;
        let carrying = tokio::spawn(async move {
            if let Err(error) = connection.await {
                debug!(%error, "a connection for a file has ended");
            }
        });
        Ok(Connection { requests, carrying })
    }

    fn request(
        &self,
        method: Method,
        transfer: &Transfer,
        after: &str,
        body: Body,
    ) -> Result<Request<Body>, Stopped> {
        let address = self.way.address();
        let path = address.path_of(&format!("/v1/transfers/{}{after}", transfer.id));
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, address.authority())
            .header(header::AUTHORIZATION, format!("Bearer {}", transfer.token))
            .body(body);
        request
            .map_err(|_| Stopped::Over(Failed::new(ErrorKind::Invalid, "the token of the transfer is none")))
    }
}

/// An HTTP connection, closed when this is dropped.
struct Connection {
    requests: SendRequest<Body>,
    carrying: tokio::task::JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.carrying.abort();
    }
}

impl Connection {
    async fn ask(&mut self, request: Request<Body>) -> Result<Response<Incoming>, Stopped> {
        let cut = |error: hyper::Error| Stopped::Cut(error.to_string());
        self.requests.ready().await.map_err(cut)?;
        self.requests.send_request(request).await.map_err(cut)
    }
}

/// What an answer means for the transfer.
async fn judge(answer: Response<Incoming>) -> Result<Response<Incoming>, Stopped> {
    let status = answer.status();
    let is_of_service = answer.headers().contains_key(REQUEST_ID);
    let told = || format!("HTTP {}", status.as_u16());
    match status {
        StatusCode::OK if is_of_service => Ok(answer),
        _ if !is_of_service => Err(Stopped::NoService(told())),
        // Ours is not the newest connection, or not at the right byte: the next asks first.
        StatusCode::CONFLICT | StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => {
            Err(Stopped::Cut(told()))
        }
        StatusCode::BAD_REQUEST | StatusCode::SERVICE_UNAVAILABLE => Err(Stopped::Cut(told())),
        _ => {
            let message = format!("the service has given up the transfer ({})", told());
            Err(Stopped::Over(Failed::new(ErrorKind::Disconnected, message)))
        }
    }
}

/// How many bytes the service says that it has.
async fn received(answer: Response<Incoming>) -> Result<u64, Stopped> {
    let body = http_body_util::Limited::new(judge(answer).await?.into_body(), ANSWER_BYTES_MAX);
    let body = body.collect().await.map_err(|error| Stopped::Cut(error.to_string()))?.to_bytes();
    let told = serde_json::from_slice::<Value>(&body).ok();
    let bytes = told.as_ref().and_then(|told| told.get("data")?.get("bytes")?.as_u64());
    bytes.ok_or_else(|| Stopped::NoService("an answer that is none".to_owned()))
}

/// How often, and how long, a transfer is tried.
struct Attempts {
    begun: Instant,
    /// When bytes have moved last, and how many had by then.
    moved: (Instant, u64),
    pause: Duration,
    has_answered: bool,
}

impl Attempts {
    fn new() -> Self {
        let now = Instant::now();
        Self { begun: now, moved: (now, 0), pause: PAUSE, has_answered: false }
    }

    /// Notes that the service has answered, and that so many bytes have arrived.
    fn reached(&mut self, moved: u64) {
        self.has_answered = true;
        if moved > self.moved.1 {
            (self.moved, self.pause) = ((Instant::now(), moved), PAUSE);
        }
    }

    /// Waits until another connection may be tried.
    ///
    /// # Errors
    /// Why none is.
    async fn again(&mut self, stopped: Stopped) -> Result<(), Failed> {
        let why = match stopped {
            Stopped::Over(failed) => return Err(failed),
            Stopped::NoService(why) if !self.has_answered => return Err(no_way(&why)),
            Stopped::NoService(why) => why,
            Stopped::Cut(why) => why,
        };
        debug!(%why, moved = self.moved.1, "a transfer was cut");
        if self.moved.0.elapsed() > SILENCE || self.begun.elapsed() > LONGEST {
            if !self.has_answered {
                return Err(no_way(&why));
            }
            return Err(Failed::new(
                ErrorKind::Timeout,
                format!("the transfer was cut and does not go on ({why})"),
            ));
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        Ok(())
    }
}

/// Nothing has moved: the service may take the file in another way.
fn no_way(why: &str) -> Failed {
    let message = format!("the service cannot be reached over HTTP ({why})");
    Failed::new(ErrorKind::Unsupported, message)
}
