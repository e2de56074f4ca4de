//! A caller's stream on its way to a backend: counted, watched, and with its failure kept.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use parking_lot::Mutex;
use sandbox::{ByteStream, ErrorKind};
use tokio::sync::watch;

use crate::ops::error::Error;
use crate::ops::write::Unwritten;

/// The state of a stream while a backend has it.
pub(super) struct Feeding<E> {
    /// Whether the caller is waited for just now, and not the backend.
    waits_for_caller: watch::Receiver<bool>,
    ended: Arc<Mutex<Ended<E>>>,
}

struct Ended<E> {
    bytes: u64,
    /// Whether there are no more.
    is_whole: bool,
    failure: Option<Unwritten<E>>,
}

impl<E: Send + 'static> Feeding<E> {
    /// The stream for the backend, of at most `limit` bytes, and what becomes known of it.
    pub(super) fn new(
        pieces: impl Stream<Item = Result<Bytes, E>> + Send + Unpin + 'static,
        limit: u64,
    ) -> (ByteStream, Self) {
        let (waits, waits_for_caller) = watch::channel(false);
        let ended = Arc::new(Mutex::new(Ended { bytes: 0, is_whole: false, failure: None }));
        let shared = Arc::clone(&ended);
        let fed = stream::unfold(Some((pieces, waits, shared)), move |feeding| async move {
            let (mut pieces, waits, ended) = feeding?;
            waits.send_replace(true);
            let piece = pieces.next().await;
            waits.send_replace(false);
            let Some(piece) = piece else {
                ended.lock().is_whole = true;
                return None;
            };
            let failure = match piece {
                Err(failure) => Unwritten::Sender(failure),
                Ok(piece) => {
                    let mut came = ended.lock();
                    came.bytes = came.bytes.saturating_add(piece.len() as u64);
                    let fits = came.bytes <= limit;
                    drop(came);
                    if fits {
                        return Some((Ok(piece), Some((pieces, waits, ended))));
                    }
                    Error::Storage(storage::Error::TooLarge { what: "the file".to_owned(), limit }).into()
                }
            };
            ended.lock().failure = Some(failure);
            let given_up =
                sandbox::Error::new(ErrorKind::Invalid, "write_file", "the body did not come whole");
            Some((Err(given_up), None))
        });
        (fed.boxed(), Self { waits_for_caller, ended })
    }

    /// How many bytes there were.
    pub(super) fn bytes(&self) -> u64 {
        self.ended.lock().bytes
    }

    /// Whether the backend took them all: only then has it written the file.
    pub(super) fn is_whole(&self) -> bool {
        self.ended.lock().is_whole
    }

    /// Why the stream ended early, if it did.
    pub(super) fn failure(&self) -> Option<Unwritten<E>> {
        self.ended.lock().failure.take()
    }

    /// Ends when the backend has taken nothing for `patience`. A caller has a pace of its own, which is watched elsewhere.
    pub(super) async fn stalled(&self, patience: Duration) {
        let mut waits = self.waits_for_caller.clone();
        loop {
            let is_callers_turn = *waits.borrow_and_update();
            let changed = if is_callers_turn {
                waits.changed().await
            } else {
                match tokio::time::timeout(patience, waits.changed()).await {
                    Ok(changed) => changed,
                    Err(_) => return,
                }
            };
            if changed.is_err() {
                // All of it was taken, and only an answer is to come.
                return tokio::time::sleep(patience).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_backend_that_takes_nothing_is_given_up_and_a_slow_caller_is_not() {
        let slow = stream::unfold(0, |number| async move {
            tokio::time::sleep(Duration::from_secs(100)).await;
            (number < 3).then(|| (Ok::<_, ()>(Bytes::from_static(b"ab")), number + 1))
        });
        let (mut fed, feeding) = Feeding::new(slow.boxed(), 6);
        let stalled = feeding.stalled(Duration::from_secs(10));
        tokio::pin!(stalled);
        let read = async {
            let mut bytes = 0;
            while let Some(piece) = fed.next().await {
                bytes += piece.unwrap().len();
            }
            bytes
        };
        tokio::select! {
            () = &mut stalled => panic!("the caller was waited for"),
            bytes = read => assert_eq!(bytes, 6),
        }
        drop(fed);
        // Nothing more is asked for, and nothing is answered.
        stalled.await;
        assert!(feeding.failure().is_none() && feeding.bytes() == 6);
    }

    #[tokio::test]
    async fn a_byte_too_many_and_a_failure_of_the_caller_are_told_as_what_they_are() {
        let pieces = || stream::iter([Ok(Bytes::from_static(b"abc")), Err("gone")]);
        let (fed, feeding) = Feeding::new(pieces(), 3);
        assert!(fed.collect::<Vec<_>>().await.last().unwrap().is_err());
        assert!(matches!(feeding.failure(), Some(Unwritten::Sender("gone"))));
        let (fed, feeding) = Feeding::new(pieces(), 2);
        assert_eq!(fed.collect::<Vec<_>>().await.len(), 1);
        assert!(matches!(
            feeding.failure(),
            Some(Unwritten::Service(Error::Storage(storage::Error::TooLarge { limit: 2, .. })))
        ));
    }
}
