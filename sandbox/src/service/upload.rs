//! [`Upload`]: a caller's stream as the body of a request, watched on the way.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use parking_lot::Mutex;

use crate::{ByteStream, Error, ErrorKind, FILE_BYTES_MAX, Result, SandboxPath};

/// The body of a request.
pub(super) type Body = http_body_util::combinators::UnsyncBoxBody<Bytes, Error>;

/// A stream of at most [`FILE_BYTES_MAX`] on its way to the service.
pub(super) struct Upload {
    stream: ByteStream,
    path: SandboxPath,
    came_bytes: u64,
    state: Arc<State>,
}

/// The state of an upload while the client has it.
#[derive(Debug)]
pub(super) struct State(Mutex<Progress>);

#[derive(Debug)]
struct Progress {
    /// When the last piece was handed to the connection; none while the caller's stream is waited for.
    handed_at: Option<Instant>,
    failure: Option<Error>,
}

impl Upload {
    pub(super) fn new(stream: ByteStream, path: &SandboxPath) -> Self {
        let progress = Progress { handed_at: Some(Instant::now()), failure: None };
        Self { stream, path: path.clone(), came_bytes: 0, state: Arc::new(State(Mutex::new(progress))) }
    }

    pub(super) fn state(&self) -> Arc<State> {
        self.state.clone()
    }

    pub(super) fn into_body(self) -> Body {
        StreamBody::new(self.map(|piece| piece.map(Frame::data))).boxed_unsync()
    }

    fn fail(&self, failure: Error) -> Error {
        let shown = Error::new(failure.kind(), "write_file", "the upload was given up");
        self.state.0.lock().failure = Some(failure);
        shown
    }
}

impl Stream for Upload {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.state.0.lock().handed_at = None;
        let polled = self.stream.poll_next_unpin(context);
        if polled.is_ready() {
            self.state.0.lock().handed_at = Some(Instant::now());
        }
        polled.map(|item| match item? {
            Ok(piece) => {
                self.came_bytes += piece.len() as u64;
                if self.came_bytes <= FILE_BYTES_MAX {
                    return Some(Ok(piece));
                }
                let failure = Error::about(ErrorKind::TooLarge, "write_file", &self.path);
                Some(Err(self.fail(failure)))
            }
            Err(error) => Some(Err(self.fail(error))),
        })
    }
}

impl State {
    /// Why the caller's stream ended early, if it did.
    pub(super) fn failure(&self) -> Option<Error> {
        self.0.lock().failure.take()
    }

    /// Ends when the connection has taken nothing for `patience`.
    pub(super) async fn stalled(&self, patience: Duration) {
        loop {
            let idle = self.0.lock().handed_at.map_or(Duration::ZERO, |at| at.elapsed());
            if idle >= patience {
                return;
            }
            tokio::time::sleep(patience - idle).await;
        }
    }
}
