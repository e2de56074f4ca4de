//! [`SlowBody`]: the body of a request whose sender must keep going.
//!
//! Only the time in which the service waits for the sender counts. A body fails when it brings nothing for
//! `body_idle_ms`, and when in as much waiting it brings less than `body_bytes_per_second` on average.
//!
//! A body that comes as fast as it is received gives others a turn again and again: its task would keep a thread of the runtime until
//! its end.
//!
//! The rest of a body that a handler did not want is thrown away by [`rest`].

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep};

use super::rest;
use crate::http::request_log::RequestLog;

/// After so many bytes that were there without waiting other tasks have their turn.
const BYTES_AT_ONCE: usize = 64 * 1024;

/// How slow a sender may be.
#[derive(Clone, Copy, Debug)]
pub(in crate::http) struct Pace {
    /// How long nothing may come.
    pub(in crate::http) idle: Duration,
    /// The least average rate, in bytes a second.
    pub(in crate::http) bytes_per_second: u64,
}

/// The body of a request.
pub(in crate::http) struct SlowBody {
    body: Body,
    pace: Pace,
    facts: Arc<RequestLog>,
    timer: Option<Pin<Box<Sleep>>>,
    waiting_since: Option<Instant>,
    /// The waiting time and the bytes since the last look at the average.
    waited: Duration,
    received: u64,
    /// Bytes that came since its task last waited.
    at_once: usize,
    /// Whether its rest is received when it is dropped.
    has_rest: bool,
}

impl SlowBody {
    /// Wraps `body`, and tells `facts` when it fails for being slow. `is_coming`: its sender does not wait to be told to go on
    /// (RFC 9110, 10.1.1).
    pub(in crate::http) fn new(body: Body, pace: Pace, is_coming: bool, facts: Arc<RequestLog>) -> Self {
        let (timer, waiting_since, waited, received, at_once) = (None, None, Duration::ZERO, 0, 0);
        Self { body, pace, facts, timer, waiting_since, waited, received, at_once, has_rest: is_coming }
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

    fn fail<T>(&mut self) -> Poll<Option<Result<T, axum::Error>>> {
        self.has_rest = false;
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
        if self.at_once >= BYTES_AT_ONCE {
            self.at_once = 0;
            // Threads that wait for this processor have theirs, and not at the kernel's next tick only: another of the runtime's, with
            // small requests in its queue, may be among them.
            std::thread::yield_now();
            // Not ready the first time; the task is woken up after the others, and after a look at what else has come.
            if pin!(tokio::task::yield_now()).poll(context).is_pending() {
                return Poll::Pending;
            }
        }
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                self.has_rest = true;
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                self.at_once += bytes;
                if self.count(bytes) { Poll::Ready(Some(Ok(frame))) } else { self.fail() }
            }
            Poll::Ready(other) => {
                self.has_rest = false;
                Poll::Ready(other)
            }
            Poll::Pending => {
                self.at_once = 0;
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

impl Drop for SlowBody {
    fn drop(&mut self) {
        if !self.has_rest || http_body::Body::is_end_stream(&self.body) {
            return;
        }
        rest::discard(std::mem::take(&mut self.body), self.facts.account());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderMap;
    use futures_util::StreamExt;
    use http_body_util::BodyExt;

    /// The outcome of a body of pieces, each after a pause in milliseconds, and whether it was found slow.
    async fn receive(pauses: &[(u64, usize)], pace: Pace) -> (usize, bool) {
        let pieces = pauses.to_vec();
        let stream = futures_util::stream::iter(pieces).then(|(pause, bytes)| async move {
            sleep(Duration::from_millis(pause)).await;
            Ok::<_, std::io::Error>(Bytes::from(vec![0; bytes]))
        });
        let facts = Arc::new(RequestLog::new(&HeaderMap::new(), false));
        let paced = SlowBody::new(Body::from_stream(stream), pace, true, Arc::clone(&facts));
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

    #[tokio::test]
    async fn others_have_their_turn_while_a_body_comes_as_fast_as_it_is_received() {
        let turns = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counted = Arc::clone(&turns);
        let other = tokio::spawn(async move {
            loop {
                counted.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        });
        let pieces = (0..64).map(|_| Ok::<_, std::io::Error>(Bytes::from(vec![0; BYTES_AT_ONCE])));
        let body = Body::from_stream(futures_util::stream::iter(pieces));
        let pace = Pace { idle: Duration::from_secs(60), bytes_per_second: 0 };
        let facts = Arc::new(RequestLog::new(&HeaderMap::new(), false));
        let received = Body::new(SlowBody::new(body, pace, true, facts)).collect().await.unwrap().to_bytes();
        other.abort();
        assert_eq!(received.len(), 64 * BYTES_AT_ONCE);
        assert!(turns.load(Ordering::Relaxed) >= 63, "{turns:?}");
    }

    #[test]
    fn threads_on_the_same_processor_have_their_turn_while_a_body_comes_as_fast_as_it_is_received() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (turns, is_over) =
            (std::sync::atomic::AtomicUsize::new(0), std::sync::atomic::AtomicBool::new(false));
        let pieces = 256;
        let received = std::thread::scope(|scope| {
            let receiving = scope.spawn(|| {
                let mut one = rustix::thread::CpuSet::new();
                one.set(rustix::thread::sched_getcpu());
                rustix::thread::sched_setaffinity(None, &one).unwrap();
                // Begins on the processor of the thread that makes it, and stays there.
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        turns.fetch_add(1, Ordering::Relaxed);
                        std::thread::yield_now();
                    }
                });
                while turns.load(Ordering::Relaxed) == 0 {
                    std::thread::yield_now();
                }
                turns.store(0, Ordering::Relaxed);
                let stream =
                    (0..pieces).map(|_| Ok::<_, std::io::Error>(Bytes::from_static(&[0; BYTES_AT_ONCE])));
                let body = Body::from_stream(futures_util::stream::iter(stream));
                let pace = Pace { idle: Duration::from_secs(60), bytes_per_second: 0 };
                let facts = Arc::new(RequestLog::new(&HeaderMap::new(), false));
                let mut paced = Body::new(SlowBody::new(body, pace, true, facts));
                let received = runtime.block_on(async {
                    let mut received = 0;
                    while let Some(Ok(piece)) = paced.frame().await {
                        received += piece.data_ref().unwrap().len();
                    }
                    received
                });
                let turns = turns.load(Ordering::Relaxed);
                is_over.store(true, Ordering::Relaxed);
                (received, turns)
            });
            receiving.join().unwrap()
        });
        assert_eq!(received.0, pieces * BYTES_AT_ONCE);
        assert!(received.1 >= pieces / 8, "{received:?}");
    }
}
