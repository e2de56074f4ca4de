//! [`UnderWay`]: a request, from its head to the last byte of its answer; meanwhile its connection does not wait.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::response::Response;
use http_body::{Frame, SizeHint};

use crate::http::connection::connections::{ConnectionSlot, Connections};

/// A request that is under way.
pub(in crate::http) struct UnderWay {
    connections: Arc<Connections>,
    place: Arc<ConnectionSlot>,
}

/// The body of an answer, with which its request ends.
pub(in crate::http) struct Sent {
    body: Body,
    _under_way: UnderWay,
}

impl UnderWay {
    /// Begins a request; not on a connection that has given way.
    pub(in crate::http) fn begin(
        connections: &Arc<Connections>,
        place: &Arc<ConnectionSlot>,
    ) -> Option<Self> {
        let may = connections.begin(place);
        may.then(|| Self { connections: Arc::clone(connections), place: Arc::clone(place) })
    }

    /// Lets the request end with the answer's body.
    pub(in crate::http) fn until_sent(self, response: Response) -> Response<Sent> {
        if response.status().is_informational() {
            self.place.upgraded();
        }
        response.map(|body| Sent { body, _under_way: self })
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.connections.finish(&self.place);
    }
}

impl http_body::Body for Sent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
