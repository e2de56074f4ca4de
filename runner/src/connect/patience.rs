//! [`Patient`]: a stream that fails when the other end is silent for too long.
//!
//! It is bytes that count, not frames: a large frame over a slow line takes its time while it moves.

use std::fmt::Debug;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use crate::status::Figures;

/// How long nothing may come.
const READ: Duration = Duration::from_secs(60);
/// How long nothing may be taken of a WebSocket.
pub(super) const WRITE: Duration = Duration::from_secs(10);

/// What a WebSocket is spoken over.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Debug + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Debug + Send + Unpin> Stream for S {}

/// A stream with deadlines for each step.
#[derive(Debug)]
pub(crate) struct Patient<S> {
    stream: S,
    reading: Deadline,
    writing: Deadline,
    figures: Arc<Figures>,
}

#[derive(Debug)]
struct Deadline {
    after: Duration,
    runs: Option<Pin<Box<Sleep>>>,
}

impl Deadline {
    /// Ends what is waited for when it has taken too long.
    fn hold<T>(&mut self, context: &mut Context<'_>, step: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if step.is_ready() {
            self.runs = None;
            return step;
        }
        let after = self.after;
        let sleep = self.runs.get_or_insert_with(|| Box::pin(tokio::time::sleep(after)));
        ready!(sleep.as_mut().poll(context));
        self.runs = None;
        let message = format!("the other end was silent for {} s", after.as_secs());
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, message)))
    }
}

impl<S> Patient<S> {
    /// For as long as `write` nothing may be taken.
    /// What goes is counted in `figures`.
    pub(crate) fn new(stream: S, write: Duration, figures: Arc<Figures>) -> Self {
        let deadline = |after| Deadline { after, runs: None };
        Self { stream, reading: deadline(READ), writing: deadline(write), figures }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let step = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.figures.count_received(buffer.filled().len().saturating_sub(before));
        self.reading.hold(context, step)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let step = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(written)) = step {
            self.figures.count_sent(written);
        }
        self.writing.hold(context, step)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let step = Pin::new(&mut self.stream).poll_flush(context);
        self.writing.hold(context, step)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let step = Pin::new(&mut self.stream).poll_shutdown(context);
        self.writing.hold(context, step)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_silent_end_is_given_up_and_a_slow_one_is_not() {
        let (near, mut far) = duplex(16);
        let mut near = Patient::new(near, WRITE, Arc::default());
        let slow = tokio::spawn(async move {
            for _ in 0..5 {
                tokio::time::sleep(READ - Duration::from_secs(1)).await;
                far.write_all(b"x").await.unwrap();
            }
            far
        });
        let mut came = [0; 5];
        near.read_exact(&mut came).await.unwrap();
        let _far = slow.await.unwrap();
        let begun = Instant::now();
        assert_eq!(near.read_u8().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed().as_secs(), READ.as_secs());
        let begun = Instant::now();
        assert_eq!(near.write_all(&[0; 17]).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed().as_secs(), WRITE.as_secs());
    }
}
