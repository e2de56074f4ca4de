//! [`ClientConnection`]: a caller's connection, which counts its bytes and gives up on one who takes nothing.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

use crate::http::connection::connections::{ConnectionSlot, Connections};
use crate::metrics::Shared;

/// A connection of a caller.
pub(in crate::http) struct ClientConnection {
    stream: TcpStream,
    metrics: Shared,
    patience: Duration,
    /// Runs while the caller takes nothing of what is to be sent.
    stalled: Option<Pin<Box<Sleep>>>,
    connections: Arc<Connections>,
    /// Given back when the connection ends, also one that has become a WebSocket.
    place: Arc<ConnectionSlot>,
}

impl ClientConnection {
    /// Wraps `stream`, which fails when for `patience` not a byte can be sent.
    pub(in crate::http) fn new(
        stream: TcpStream,
        metrics: Shared,
        patience: Duration,
        connections: Arc<Connections>,
        place: Arc<ConnectionSlot>,
    ) -> Self {
        metrics.connections.inc();
        Self { stream, metrics, patience, stalled: None, connections, place }
    }

    /// Looks at an attempt to send `poll`.
    fn notice<T>(&mut self, context: &mut Context<'_>, poll: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            // Kept for the next stall: a large answer has many.
            if let Some(stalled) = &mut self.stalled {
                stalled.as_mut().reset(Instant::now() + self.patience);
            }
            self.connections.sent(&self.place, false);
            return poll;
        }
        self.connections.sent(&self.place, true);
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(self.patience)));
        match stalled.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }

    fn count_sent(&self, poll: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = poll {
            self.metrics.sent.inc_by(u64::try_from(*bytes).unwrap_or(0));
        }
    }
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        self.metrics.connections.dec();
        self.connections.leave(&self.place);
    }
}

impl AsyncRead for ClientConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let poll = Pin::new(&mut self.stream).poll_read(context, buffer);
        let received = buffer.filled().len().saturating_sub(before);
        self.metrics.received.inc_by(u64::try_from(received).unwrap_or(0));
        if received > 0 {
            self.connections.received(&self.place, received);
        }
        poll
    }
}

impl AsyncWrite for ClientConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.count_sent(&poll);
        self.notice(context, poll)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.count_sent(&poll);
        self.notice(context, poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
