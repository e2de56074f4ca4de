//! [`Transfers`]: the transfers under way, by their names.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};

use super::{Direction, Fed, Fetched, Lane, OVER, PARTS_WAITING, Sent, TransferUnderWay};
use crate::UserId;
use crate::wire::transfer::TRANSFER_ID_DIGITS;

/// Transfers of one user that are under way at once; further large files go in pieces.
pub(super) const OF_USER_MAX: usize = 4;
/// Transfers of all users.
pub(super) const OF_ALL_MAX: usize = 64;

/// The transfers of all connections.
#[derive(Debug, Default)]
pub struct Transfers {
    under_way: Mutex<HashMap<String, Arc<TransferUnderWay>>>,
}

/// The place of a transfer in the table, given back when this is dropped.
pub(in crate::remote) struct Ticket {
    pub(in crate::remote) id: String,
    pub(in crate::remote) token: String,
    transfers: Arc<Transfers>,
    /// Comes when the runner has connected and bytes begin to move.
    pub(in crate::remote) begun: oneshot::Receiver<()>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let over = self.transfers.under_way.lock().remove(&self.id);
        if let Some(over) = over {
            over.attempts.send_replace(OVER);
        }
    }
}

impl Transfers {
    /// The transfer `id` in this direction, for who has its `token`.
    #[must_use]
    pub fn find(&self, id: &str, token: &str, direction: Direction) -> Option<Arc<TransferUnderWay>> {
        let found = self.under_way.lock().get(id).cloned()?;
        let is_that_way = found.direction() == direction;
        (found.token == blake3::hash(token.as_bytes()) && is_that_way).then_some(found)
    }

    /// How many there are.
    #[cfg(test)]
    pub(in crate::remote) fn under_way(&self) -> usize {
        self.under_way.lock().len()
    }

    /// Begins a transfer of `bytes` from the runner of `user`, which come out of the receiver; `None` when there are too many.
    pub(in crate::remote) fn send(
        self: &Arc<Self>,
        user: &UserId,
        bytes: u64,
    ) -> Option<(Ticket, mpsc::Receiver<Bytes>)> {
        let (out, came) = mpsc::channel(PARTS_WAITING);
        let (begun, begins) = oneshot::channel();
        let sent = Sent { bytes, received: 0, out: Some(out), begun: Some(begun) };
        let ticket = self.enter(user, Lane::Sent(Arc::new(tokio::sync::Mutex::new(sent))), begins)?;
        Some((ticket, came))
    }

    /// Begins a transfer to the runner of `user` of what is put into the sender; `None` when there are too many.
    pub(in crate::remote) fn fetch(self: &Arc<Self>, user: &UserId) -> Option<(Ticket, mpsc::Sender<Fed>)> {
        let (feed, source) = mpsc::channel(PARTS_WAITING);
        let (begun, begins) = oneshot::channel();
        let fetched = Fetched {
            source,
            moved: 0,
            window: VecDeque::new(),
            window_bytes: 0,
            is_whole: false,
            begun: Some(begun),
        };
        let ticket = self.enter(user, Lane::Fetched(Arc::new(tokio::sync::Mutex::new(fetched))), begins)?;
        Some((ticket, feed))
    }

    fn enter(self: &Arc<Self>, user: &UserId, lane: Lane, begun: oneshot::Receiver<()>) -> Option<Ticket> {
        let (id, token) = (secret()?, secret()? + &secret()?);
        let mut under_way = self.under_way.lock();
        let of_user = under_way.values().filter(|transfer| transfer.user == *user).count();
        if of_user >= OF_USER_MAX || under_way.len() >= OF_ALL_MAX {
            return None;
        }
        let transfer = TransferUnderWay {
            user: user.clone(),
            token: blake3::hash(token.as_bytes()),
            lane,
            attempts: watch::Sender::new(0),
            charge: Mutex::new(None),
        };
        under_way.insert(id.clone(), Arc::new(transfer));
        drop(under_way);
        Some(Ticket { id, token, transfers: Arc::clone(self), begun })
    }
}

/// Random hexadecimal digits.
fn secret() -> Option<String> {
    let (high, low) = (getrandom::u64().ok()?, getrandom::u64().ok()?);
    let digits = format!("{high:016x}{low:016x}");
    debug_assert_eq!(digits.len(), TRANSFER_ID_DIGITS);
    Some(digits)
}
