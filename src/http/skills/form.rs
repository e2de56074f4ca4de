//! Feeds the reader of a form, which by itself would keep all that it cannot deliver.
//!
//! The reader takes all that is there and searches it for the next boundary. So that a form without one costs
//! neither memory nor time, it gets one piece at a time, and no more once too much is undelivered.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::{DefaultBodyLimit, Request};
use futures_util::Stream;

/// Bytes that a form may have before the next byte of an archive: what precedes it and the head of its part.
const UNDELIVERED_BYTES_MAX: usize = 1024 * 1024;

/// Bytes given to the reader since it last delivered some.
#[derive(Clone, Default)]
pub(in crate::http) struct Undelivered(Arc<AtomicUsize>);

impl Undelivered {
    /// Notes that the reader delivered what it had.
    pub(in crate::http) fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// A body that is given out in bounded doses.
struct Doses {
    body: BodyDataStream,
    undelivered: Undelivered,
    is_pausing: bool,
}

/// Wraps the body of a request with a form. Its length is for the caller to bound.
pub(in crate::http) fn in_doses(request: Request) -> (Request, Undelivered) {
    let undelivered = Undelivered::default();
    let mut request = request.map(|body| {
        let body = body.into_data_stream();
        Body::from_stream(Doses { body, undelivered: undelivered.clone(), is_pausing: false })
    });
    DefaultBodyLimit::disable().apply(&mut request);
    (request, undelivered)
}

impl Stream for Doses {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if std::mem::take(&mut self.is_pausing) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let next = Pin::new(&mut self.body).poll_next(context).map_err(io::Error::other);
        if let Poll::Ready(Some(Ok(piece))) = &next {
            self.is_pausing = true;
            let before = self.undelivered.0.fetch_add(piece.len(), Ordering::Relaxed);
            // A single piece may be large, and is here already.
            if before > UNDELIVERED_BYTES_MAX {
                let message = format!("more than {UNDELIVERED_BYTES_MAX} bytes and no archive among them");
                return Poll::Ready(Some(Err(io::Error::other(message))));
            }
        }
        next
    }
}
