//! [`Transfers`]: large files on their way over HTTP connections that runners open.
//!
//! * [`table`]: which are under way.
//!
//! A transfer is begun for one open file of one connection, and forgotten when its request is over: its token then opens nothing.
//! Bytes move in order and one connection at a time. A newer connection ends the one before, so that a runner whose connection was cut
//! goes on at once: at the byte that did not come, or out of the last [`WINDOW_BYTES`] that it may not have got.

mod table;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt, stream};
use parking_lot::Mutex;
use thiserror::Error as ThisError;
use tokio::sync::{OwnedMutexGuard, mpsc, oneshot, watch};

pub(super) use self::table::Ticket;
pub use self::table::Transfers;
use crate::UserId;

/// Parts of a body that wait for the other side.
const PARTS_WAITING: usize = 4;
/// What those may take, in bytes: a connection of the service buffers 256 KiB.
const WAITING_BYTES: usize = PARTS_WAITING * (256 << 10);
/// The bytes that are kept of what a runner fetches, in case that its connection is cut: more than the kernels of both ends buffer.
const WINDOW_BYTES: usize = 16 << 20;
/// The times that a runner may connect for one transfer.
const ATTEMPTS_MAX: u64 = 256;
/// Stands for the attempts of a transfer that is over.
const OVER: u64 = u64::MAX;

/// Which way the bytes go, as the runner sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the runner to the service.
    Send,
    /// From the service to the runner.
    Fetch,
}

/// Why a connection of a transfer ends before the transfer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ThisError)]
pub enum TransferError {
    /// The transfer goes on at another byte.
    #[error("the transfer goes on at byte {0}: go on there")]
    Offset(u64),
    /// The bytes that a runner fetches are not kept any more.
    #[error("the bytes from there on are not kept any more: the file must be transferred anew")]
    Lost,
    /// The runner sent more bytes than it has told.
    #[error("more bytes came than the file has")]
    TooMany,
    /// The body ended early.
    #[error("fewer bytes came than the file has")]
    TooFew,
    /// A newer connection of the transfer is there.
    #[error("a newer connection carries the transfer")]
    Overtaken,
    /// The runner connected too often.
    #[error("the transfer has had too many connections: the file must be transferred anew")]
    TooOften,
    /// The request that the transfer is for has ended.
    #[error("the transfer is over")]
    Over,
    /// The body broke off.
    #[error("the body broke off")]
    Broken,
}

/// A transfer, as a connection of its runner sees it.
pub struct TransferUnderWay {
    user: UserId,
    /// Equal digests are compared in constant time.
    token: blake3::Hash,
    lane: Lane,
    /// The number of the newest connection; [`OVER`] at the end.
    attempts: watch::Sender<u64>,
    charge: Mutex<Option<Box<dyn Any + Send>>>,
}

/// What the connection that carries the transfer has for itself.
enum Lane {
    Sent(Arc<tokio::sync::Mutex<Sent>>),
    Fetched(Arc<tokio::sync::Mutex<Fetched>>),
}

struct Sent {
    bytes: u64,
    received: u64,
    /// `None` when no more bytes are taken.
    out: Option<mpsc::Sender<Bytes>>,
    begun: Option<oneshot::Sender<()>>,
}

struct Fetched {
    source: mpsc::Receiver<Fed>,
    /// How many bytes have left the source.
    moved: u64,
    /// The last of them.
    window: VecDeque<Bytes>,
    window_bytes: usize,
    is_whole: bool,
    begun: Option<oneshot::Sender<()>>,
}

/// What a runner is to fetch. A source that ends without [`Fed::End`] was given up.
pub(super) enum Fed {
    Part(Bytes),
    End,
}

impl TransferUnderWay {
    /// The user whose file it is.
    #[must_use]
    pub fn user(&self) -> &UserId {
        &self.user
    }

    /// The memory that it may take, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match self.direction() {
            Direction::Send => WAITING_BYTES,
            Direction::Fetch => WINDOW_BYTES + WAITING_BYTES,
        }
    }

    /// Keeps what was paid for that memory until the transfer is over.
    pub fn charge(&self, charge: Box<dyn Any + Send>) {
        self.charge.lock().get_or_insert(charge);
    }

    /// Whether the memory is paid for.
    #[must_use]
    pub fn is_charged(&self) -> bool {
        self.charge.lock().is_some()
    }

    fn direction(&self) -> Direction {
        match self.lane {
            Lane::Sent(_) => Direction::Send,
            Lane::Fetched(_) => Direction::Fetch,
        }
    }

    /// Has the lane for a new connection; the one before ends.
    async fn turn<L>(
        &self,
        lane: &Arc<tokio::sync::Mutex<L>>,
    ) -> Result<(OwnedMutexGuard<L>, Overtaking), TransferError> {
        let mut number = OVER;
        self.attempts.send_if_modified(|newest| {
            if *newest != OVER {
                *newest += 1;
            }
            number = *newest;
            true
        });
        match number {
            OVER => return Err(TransferError::Over),
            1..=ATTEMPTS_MAX => {}
            _ => return Err(TransferError::TooOften),
        }
        let mut overtaking = Overtaking { number, attempts: self.attempts.subscribe() };
        tokio::select! {
            why = overtaking.happens() => Err(why),
            lane = Arc::clone(lane).lock_owned() => Ok((lane, overtaking)),
        }
    }

    /// How many bytes have come from the runner. The connection that carries the transfer ends.
    ///
    /// # Errors
    /// [`TransferError::Over`], [`TransferError::TooOften`], [`TransferError::Overtaken`].
    pub async fn received(&self) -> Result<u64, TransferError> {
        let Lane::Sent(lane) = &self.lane else { return Err(TransferError::Over) };
        Ok(self.turn(lane).await?.0.received)
    }

    /// Takes the bytes of the runner's file from the byte `from` on, as fast as the caller of the service takes them.
    ///
    /// # Errors
    /// [`TransferError`]; bytes that came before it count.
    pub async fn take<E>(
        &self,
        from: u64,
        body: impl Stream<Item = Result<Bytes, E>>,
    ) -> Result<(), TransferError> {
        let Lane::Sent(lane) = &self.lane else { return Err(TransferError::Over) };
        let (mut lane, mut overtaking) = self.turn(lane).await?;
        if lane.received != from {
            return Err(TransferError::Offset(lane.received));
        }
        let out = lane.out.clone().ok_or(TransferError::Over)?;
        let _begins = lane.begun.take().map(|begun| begun.send(()));
        let mut body = pin!(body);
        loop {
            // Room first: a part that has come and finds none would be lost when the connection is overtaken.
            let room = tokio::select! {
                why = overtaking.happens() => return Err(why),
                room = out.reserve() => room.map_err(|_| TransferError::Over)?,
            };
            let part = tokio::select! {
                why = overtaking.happens() => return Err(why),
                () = out.closed() => return Err(TransferError::Over),
                part = body.next() => part,
            };
            match part {
                Some(Ok(part)) if part.len() as u64 > lane.bytes - lane.received => {
                    // The reader of the file sees that it breaks off.
                    lane.out = None;
                    return Err(TransferError::TooMany);
                }
                Some(Ok(part)) if part.is_empty() => {}
                Some(Ok(part)) => {
                    lane.received += part.len() as u64;
                    room.send(part);
                }
                Some(Err(_)) => return Err(TransferError::Broken),
                None => break,
            }
        }
        lane.out = None;
        if lane.received == lane.bytes { Ok(()) } else { Err(TransferError::TooFew) }
    }

    /// Gives the bytes of the file that the runner fetches, from the byte `from` on, as they come from the caller of the service.
    ///
    /// # Errors
    /// [`TransferError`]; the stream fails when the transfer is over before it is whole.
    pub async fn give(&self, from: u64) -> Result<BoxStream<'static, io::Result<Bytes>>, TransferError> {
        let Lane::Fetched(shared) = &self.lane else { return Err(TransferError::Over) };
        let (mut lane, overtaking) = self.turn(shared).await?;
        if from > lane.moved {
            return Err(TransferError::Offset(lane.moved));
        }
        let again = lane.since(from).ok_or(TransferError::Lost)?;
        let _begins = lane.begun.take().map(|begun| begun.send(()));
        drop(lane);
        let rest =
            stream::try_unfold((Arc::clone(shared), overtaking), |(shared, mut overtaking)| async move {
                // Held for one part only: a connection that is stuck does not ask for the next, and must not keep newer ones out.
                let mut lane = tokio::select! {
                    biased;
                    why = overtaking.happens() => return Err(io::Error::other(why)),
                    lane = Arc::clone(&shared).lock_owned() => lane,
                };
                if lane.is_whole {
                    return Ok(None);
                }
                let fed = tokio::select! {
                    biased;
                    why = overtaking.happens() => return Err(io::Error::other(why)),
                    fed = lane.source.recv() => fed,
                };
                match fed {
                    Some(Fed::Part(part)) => {
                        lane.keep(part.clone());
                        Ok(Some((part, (shared, overtaking))))
                    }
                    Some(Fed::End) => {
                        lane.is_whole = true;
                        Ok(None)
                    }
                    None => Err(io::Error::other(TransferError::Over)),
                }
            });
        Ok(stream::iter(again.into_iter().map(Ok)).chain(rest).boxed())
    }
}

impl Fetched {
    fn keep(&mut self, part: Bytes) {
        self.moved += part.len() as u64;
        self.window_bytes += part.len();
        self.window.push_back(part);
        while self.window_bytes > WINDOW_BYTES
            && let Some(oldest) = self.window.pop_front()
        {
            self.window_bytes -= oldest.len();
        }
    }

    /// What has left the source since the byte `from`; `None` when some of it is not kept.
    fn since(&self, from: u64) -> Option<Vec<Bytes>> {
        let mut missing = self.moved - from;
        let mut parts = Vec::new();
        for part in self.window.iter().rev() {
            if missing == 0 {
                break;
            }
            let wanted = usize::try_from(missing).unwrap_or(usize::MAX).min(part.len());
            parts.push(part.slice(part.len() - wanted..));
            missing -= wanted as u64;
        }
        parts.reverse();
        (missing == 0).then_some(parts)
    }
}

/// Notices that a newer connection has come, or that the transfer is over.
struct Overtaking {
    number: u64,
    attempts: watch::Receiver<u64>,
}

impl Overtaking {
    async fn happens(&mut self) -> TransferError {
        let number = self.number;
        match self.attempts.wait_for(|newest| *newest != number).await {
            Ok(newest) if *newest != OVER => TransferError::Overtaken,
            _ => TransferError::Over,
        }
    }
}

impl std::fmt::Debug for TransferUnderWay {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("TransferUnderWay").field("user", &self.user).finish_non_exhaustive()
    }
}
