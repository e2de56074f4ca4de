//! [`Activity`] and the bodies that note it: how long a server in a sandbox may be silent.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::ops::admission::permits::Permit;

/// When something last went through a connection.
#[derive(Clone, Debug)]
pub(super) struct Activity {
    began: Instant,
    /// Milliseconds after `began`.
    last_ms: Arc<AtomicU64>,
}

impl Activity {
    /// Begins now.
    pub(super) fn new() -> Self {
        Self { began: Instant::now(), last_ms: Arc::default() }
    }

    pub(super) fn note(&self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.store(now, Ordering::Relaxed);
    }

    /// Returns when nothing was noted for `patience`.
    pub(super) async fn silent_for(&self, patience: Duration) {
        loop {
            let due = self.began + Duration::from_millis(self.last_ms.load(Ordering::Relaxed)) + patience;
            if Instant::now() >= due {
                return;
            }
            sleep_until(due).await;
        }
    }
}

/// The body of a request on its way to a server.
pub(super) struct Sent {
    pub(super) body: Body,
    pub(super) activity: Activity,
}

impl http_body::Body for Sent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let poll = Pin::new(&mut self.body).poll_frame(context);
        if poll.is_ready() {
            self.activity.note();
        }
        poll
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The connection to a server; it ends when this is dropped.
pub(super) struct Link {
    pub(super) connection: JoinHandle<()>,
    /// The right to have it.
    pub(super) _permit: Permit,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// The body of a server's answer, which fails when nothing comes for too long, and when the right to it expires.
pub(super) struct Answered {
    body: Incoming,
    idle: Duration,
    until: Option<Instant>,
    timer: Pin<Box<Sleep>>,
    is_waiting: bool,
    _link: Link,
}

impl Answered {
    pub(super) fn new(body: Incoming, idle: Duration, until: Option<Instant>, link: Link) -> Self {
        let timer = Box::pin(sleep_until(Instant::now() + idle));
        Self { body, idle, until, timer, is_waiting: false, _link: link }
    }
}

impl http_body::Body for Answered {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let late = || Poll::Ready(Some(Err(axum::Error::new(io::Error::from(io::ErrorKind::TimedOut)))));
        if self.until.is_some_and(|until| Instant::now() >= until) {
            return late();
        }
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                self.is_waiting = false;
                // Trailers are headers that no list was asked about.
                let ended = frame.is_trailers();
                Poll::Ready((!ended).then_some(Ok(frame)))
            }
            Poll::Ready(other) => Poll::Ready(other.map(|frame| frame.map_err(axum::Error::new))),
            Poll::Pending => {
                if !self.is_waiting {
                    self.is_waiting = true;
                    let due = Instant::now() + self.idle;
                    let due = self.until.map_or(due, |until| until.min(due));
                    self.timer.as_mut().reset(due);
                }
                if self.timer.as_mut().poll(context).is_ready() { late() } else { Poll::Pending }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silence_is_counted_from_what_was_noted_last() {
        let activity = Activity::new();
        let noting = activity.clone();
        tokio::spawn(async move {
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_millis(800)).await;
                noting.note();
            }
        });
        let begun = Instant::now();
        activity.silent_for(Duration::from_secs(1)).await;
        assert_eq!(begun.elapsed().as_millis(), 3400);
    }
}
