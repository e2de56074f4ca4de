//! [`SlowBody`]: the body of a request whose sender must keep going.
//!
//! Only the time in which the service waits for the sender counts. A body fails when it brings nothing for
//! `body_idle_ms`, and when in as much waiting it brings less than `body_bytes_per_second` on average.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep};

use super::request_log::RequestLog;

/// How slow a sender may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// How long nothing may come.
    pub(super) idle: Duration,
    /// The least average rate, in bytes a second.
    pub(super) bytes_per_second: u64,
}

/// The body of a request.
pub(super) struct SlowBody {
    body: Body,
    pace: Pace,
    facts: Arc<RequestLog>,
    timer: Option<Pin<Box<Sleep>>>,
    waiting_since: Option<Instant>,
    /// The waiting time and the bytes since the last look at the average.
    waited: Duration,
    received: u64,
}

impl SlowBody {
    /// Wraps `body`, and tells `facts` when it fails for being slow.
    pub(super) fn new(body: Body, pace: Pace, facts: Arc<RequestLog>) -> Self {
        Self { body, pace, facts, timer: None, waiting_since: None, waited: Duration::ZERO, received: 0 }
    }

    /// Counts what came. Tells whether it was enough.
    fn count(&mut self, bytes: usize) -> bool {
        if let Some(since) = self.waiting_since.take() {
            self.waited += since.elapsed();
        }
        self.received += u64::try_from(bytes).unwrap_or(u64::MAX);
        if self.waited < self.pace.idle {
            return true;
        }
        let wanted = self.waited.as_millis() * u128::from(self.pace.bytes_per_second) / 1000;
        let is_enough = u128::from(self.received) >= wanted;
        (self.waited, self.received) = (Duration::ZERO, 0);
        is_enough
    }

    fn fail<T>(&self) -> Poll<Option<Result<T, axum::Error>>> {
        self.facts.is_slow.store(true, Ordering::Relaxed);
        Poll::Ready(Some(Err(axum::Error::new(std::io::Error::from(std::io::ErrorKind::TimedOut)))))
    }
}

impl http_body::Body for SlowBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                if self.count(bytes) { Poll::Ready(Some(Ok(frame))) } else { self.fail() }
            }
            Poll::Ready(other) => Poll::Ready(other),
            Poll::Pending => {
                let idle = self.pace.idle;
                if self.waiting_since.is_none() {
                    let now = Instant::now();
                    self.waiting_since = Some(now);
                    match &mut self.timer {
                        Some(timer) => timer.as_mut().reset(now + idle),
                        None => self.timer = Some(Box::pin(sleep(idle))),
                    }
                }
                let is_over =
                    self.timer.as_mut().is_some_and(|timer| timer.as_mut().poll(context).is_ready());
                if is_over { self.fail() } else { Poll::Pending }
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
    use axum::http::HeaderMap;
    use futures_util::StreamExt;

    /// The outcome of a body of pieces, each after a pause in milliseconds, and whether it was found slow.
    async fn receive(pauses: &[(u64, usize)], pace: Pace) -> (usize, bool) {
        let pieces = pauses.to_vec();
        let stream = futures_util::stream::iter(pieces).then(|(pause, bytes)| async move {
            sleep(Duration::from_millis(pause)).await;
            Ok::<_, std::io::Error>(Bytes::from(vec![0; bytes]))
        });
        let facts = Arc::new(RequestLog::new(&HeaderMap::new(), false));
        let paced = SlowBody::new(Body::from_stream(stream), pace, Arc::clone(&facts));
        let mut stream = Body::new(paced).into_data_stream();
        let mut received = 0;
        while let Some(Ok(piece)) = stream.next().await {
            received += piece.len();
        }
        (received, facts.is_slow.load(Ordering::Relaxed))
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stalls_or_trickles_fails_and_one_that_flows_does_not() {
        let pace = Pace { idle: Duration::from_millis(1000), bytes_per_second: 100 };
        assert_eq!(receive(&[(900, 90), (900, 200), (900, 200)], pace).await, (490, false));
        assert_eq!(receive(&[(0, 500), (1100, 500)], pace).await, (500, true), "it stalls");
        assert_eq!(receive(&[(600, 10), (600, 10), (600, 10)], pace).await, (10, true), "it trickles");
        let forgiving = Pace { bytes_per_second: 0, ..pace };
        assert_eq!(receive(&[(600, 10), (600, 10), (600, 10)], forgiving).await, (30, false));
    }
}
