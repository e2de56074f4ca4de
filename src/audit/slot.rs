//! [`Slot`]: room for one record, from before a change to its answer.

use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::writer::Job;
use super::{Account, Effect, Entry, Unwritable, Way};

/// How long the answer to a change waits for its record.
const PATIENCE: Duration = Duration::from_secs(10);

/// Room for one record about a change.
pub struct Slot {
    pub(super) room: Option<(Way, OwnedSemaphorePermit)>,
    /// The record of a request whose caller has left, and the account that it is charged to.
    pub(super) unanswered: Option<Box<dyn FnOnce() -> (Account, Entry) + Send>>,
}

impl Slot {
    /// Lets `entry` be recorded if this slot is dropped before it is written to.
    pub fn expect(&mut self, entry: impl FnOnce() -> (Account, Entry) + Send + 'static) {
        self.unanswered = Some(Box::new(entry));
    }

    /// Gives the room back unused.
    pub fn release(mut self) {
        self.unanswered = None;
    }

    /// Charges `entry` to an account, and records it as [`Self::write`] does, or counts it: see [`account`](super::account).
    ///
    /// # Errors
    /// [`Unwritable::Late`].
    pub async fn charge(mut self, account: &Account, effect: Effect, entry: Entry) -> Result<(), Unwritable> {
        self.unanswered = None;
        let Some((way, _)) = &self.room else { return Ok(()) };
        match way.charge(account, effect, entry) {
            Some(entry) => self.write(entry).await,
            None => Ok(()),
        }
    }

    /// Records `entry` and waits until it is written.
    ///
    /// # Errors
    /// [`Unwritable::Late`]: the record is kept and will be written when that becomes possible.
    pub async fn write(mut self, entry: Entry) -> Result<(), Unwritable> {
        self.unanswered = None;
        let Some((way, permit)) = self.room.take() else { return Ok(()) };
        let is_durable = way.shared.waits_for(&entry);
        let entry = way.write_now(entry).err();
        if entry.is_none() && !is_durable {
            return Ok(());
        }
        let (told, done) = oneshot::channel();
        let job = Job { entry, is_durable, done: Some(told), permit: Some(permit) };
        way.jobs.try_send(job).map_err(|_| Unwritable::Late)?;
        match tokio::time::timeout(PATIENCE, done).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Unwritable::Late),
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let (Some(entry), Some((way, permit))) = (self.unanswered.take(), self.room.take()) else { return };
        let (account, entry) = entry();
        let Some(entry) = way.charge(&account, Effect::Change, entry) else { return };
        let Err(entry) = way.write_now(entry) else { return };
        let job = Job { entry: Some(entry), is_durable: false, done: None, permit: Some(permit) };
        if way.jobs.try_send(job).is_err() {
            tracing::error!(
                "dropped the audit record of a change: its caller had left and too many records wait"
            );
        }
    }
}
