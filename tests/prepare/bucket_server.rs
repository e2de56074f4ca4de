//! An S3-compatible server that really runs (`s3s-fs`, over a directory), and the faults that a test has it make.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use tokio::net::{TcpListener, TcpStream};

pub(crate) const KEY_ID: &str = "AKIATESTKEYOFTHEBUCKET";
pub(crate) const SECRET: &str = "s3cret-of-the-bucket";

/// What the server does instead of what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Answers with this status.
    Status(u16),
    /// Ends the connection after half of the body.
    Cut,
    /// Sends half of the body, and then nothing for so long.
    Stall(Duration),
    /// Sends each piece of the body so late.
    Slow(Duration),
    /// Sends other bytes, as many.
    Wrong,
    /// Ends the connection without a word.
    Close,
}

/// Which requests a fault concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    /// All.
    Any,
    /// Those that read an object.
    Reads,
    /// Those that write an object or a part of one.
    Writes,
}

#[derive(Default)]
struct State {
    /// Each for one request, in order.
    faults: Vec<(Of, Fault)>,
    /// For all requests.
    standing: Option<(Of, Fault)>,
    seen: Vec<String>,
}

/// A server with one bucket, `skills`. It ends when dropped.
pub(crate) struct BucketServer {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    dir: tempfile::TempDir,
    runtime: Option<tokio::runtime::Runtime>,
}

impl BucketServer {
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("store/skills")).unwrap();
        for (name, text) in [("id", KEY_ID), ("secret", SECRET), ("wrong", "another-secret")] {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        let mut builder = S3ServiceBuilder::new(s3s_fs::FileSystem::new(dir.path().join("store")).unwrap());
        builder.set_auth(SimpleAuth::from_single(KEY_ID, SECRET));
        let (service, state) = (builder.build(), Arc::new(Mutex::new(State::default())));
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::clone(&state);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, service.clone(), Arc::clone(&shared)));
            }
        });
        Self { address, state, dir, runtime: Some(runtime) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Settings of a service that uses the bucket; `more` of `[prepare]`.
    pub(crate) fn config(&self, more: &str) -> String {
        self.config_with("secret", more)
    }

    /// The same, with the secret in the file `secret`.
    pub(crate) fn config_with(&self, secret: &str, more: &str) -> String {
        let (address, dir) = (self.address, self.dir.path().display());
        format!(
            "[prepare]\n{more}\n[prepare.bucket]\nurl = \"s3://skills/of/packages\"\nendpoint = \"http://{address}\"\n\
             allow_http = true\naccess_key_id_file = \"{dir}/id\"\nsecret_access_key_file = \"{dir}/{secret}\"\n\
             timeout_ms = 700\nretries = 3\n"
        )
    }

    /// Where the packages of a version are.
    pub(crate) fn objects(&self, version: &str) -> PathBuf {
        self.dir.path().join("store/skills/of/packages").join(version)
    }

    /// Has the next requests go wrong, each once.
    pub(crate) fn fail(&self, faults: &[(Of, Fault)]) {
        self.state.lock().faults.extend_from_slice(faults);
    }

    /// Has all requests go wrong, until told otherwise.
    pub(crate) fn fail_all(&self, fault: Option<(Of, Fault)>) {
        self.state.lock().standing = fault;
    }

    /// How many requests have read an object since [`Self::seen`].
    pub(crate) fn reads(&self) -> usize {
        let state = self.state.lock();
        state.seen.iter().filter(|line| line.starts_with("GET") && line.contains(".pkg")).count()
    }

    /// The requests since the last call: method, path, and `range` where there is one.
    pub(crate) fn seen(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().seen)
    }
}

impl Drop for BucketServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn serve(stream: TcpStream, service: S3Service, state: Arc<Mutex<State>>) {
    let answer = service_fn(move |request: Request<Incoming>| {
        let (service, state) = (service.clone(), Arc::clone(&state));
        async move { answer(service, &state, request).await }
    });
    // A fault ends the connection.
    let _ended =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
}

async fn answer(
    service: S3Service,
    state: &Mutex<State>,
    request: Request<Incoming>,
) -> std::io::Result<Response<Faulty>> {
    let is_read = request.method() == Method::GET && request.uri().path().ends_with(".pkg");
    let is_write = request.method() == Method::PUT;
    let fault = {
        let mut state = state.lock();
        let range = request.headers().get("range").map(|range| format!(" {}", range.to_str().unwrap()));
        state.seen.push(format!("{} {}{}", request.method(), request.uri(), range.unwrap_or_default()));
        let concerns = |of: Of| of == Of::Any || of == Of::Reads && is_read || of == Of::Writes && is_write;
        let next = state.faults.iter().position(|(of, _)| concerns(*of));
        let standing = state.standing.filter(|(of, _)| concerns(*of));
        next.map(|at| state.faults.remove(at)).or(standing).map(|(_, fault)| fault)
    };
    let error = || std::io::Error::other("a fault of the test");
    match fault {
        Some(Fault::Close) => return Err(error()),
        Some(Fault::Status(status)) => {
            let text =
                format!("<Error><Code>InternalError</Code><AWSAccessKeyId>{KEY_ID}</AWSAccessKeyId></Error>");
            let mut response = Response::new(Faulty::whole(text.into()));
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            return Ok(response);
        }
        _ => {}
    }
    let response = service.call(request.map(s3s::Body::from)).await.map_err(|_| error())?;
    let (parts, body) = response.into_parts();
    let body = body.collect().await.map_err(|_| error())?.to_bytes();
    Ok(Response::from_parts(parts, Faulty::new(body, fault)))
}

/// A body in pieces, with a fault.
struct Faulty {
    left: Bytes,
    /// Bytes after which the fault comes.
    until_fault: usize,
    fault: Option<Fault>,
    wait: Option<Pin<Box<tokio::time::Sleep>>>,
    has_paused: bool,
}

impl Faulty {
    fn whole(body: Bytes) -> Self {
        Self::new(body, None)
    }

    fn new(body: Bytes, fault: Option<Fault>) -> Self {
        let body = match fault {
            Some(Fault::Wrong) => body.iter().map(|byte| byte ^ 1).collect::<Vec<_>>().into(),
            _ => body,
        };
        Self { until_fault: body.len() / 2, left: body, fault, wait: None, has_paused: false }
    }
}

impl Body for Faulty {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        if let Some(wait) = &mut self.wait {
            std::task::ready!(wait.as_mut().poll(context));
            self.wait = None;
        }
        if self.left.is_empty() {
            return Poll::Ready(None);
        }
        let piece = match self.fault {
            Some(Fault::Cut) if self.until_fault == 0 && !self.has_paused => {
                // So that what was sent before leaves.
                self.has_paused = true;
                self.wait = Some(Box::pin(tokio::time::sleep(Duration::from_millis(100))));
                return self.poll_frame(context);
            }
            Some(Fault::Cut) if self.until_fault == 0 => {
                return Poll::Ready(Some(Err(std::io::Error::other("cut"))));
            }
            Some(Fault::Stall(time)) if self.until_fault == 0 => {
                self.fault = None;
                self.wait = Some(Box::pin(tokio::time::sleep(time)));
                return self.poll_frame(context);
            }
            Some(Fault::Cut | Fault::Stall(_)) => {
                let piece = self.until_fault.min(16 * 1024);
                self.until_fault -= piece;
                piece
            }
            Some(Fault::Slow(time)) => {
                self.wait = Some(Box::pin(tokio::time::sleep(time)));
                (self.until_fault / 4).max(1).min(self.left.len())
            }
            _ => self.left.len(),
        };
        let piece = self.left.split_to(piece);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(u64::try_from(self.left.len()).unwrap())
    }
}
