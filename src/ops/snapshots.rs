//! Snapshots of workspaces.

use std::sync::Arc;
use std::time::Duration;

use storage::{Forked, Leftovers, SandboxId, Snapshot, SnapshotId, SnapshotNote, Snapshots};
use tokio::sync::OwnedSemaphorePermit;

use super::error::{Error, Result};
use super::{Service, blocking};

/// How long work on a snapshot waits for a place.
const PATIENCE: Duration = Duration::from_secs(10);

impl Service {
    /// Keeps the state of a workspace.
    ///
    /// # Errors
    /// [`Error::Busy`]; [`Error::Invalid`] for a name or note that is too long; as
    /// [`storage::Store::take_snapshot`].
    pub async fn take_snapshot(&self, id: SandboxId, note: SnapshotNote) -> Result<Snapshot> {
        check_text("name", note.name.as_deref(), storage::snapshot::NAME_BYTES_MAX)?;
        check_text("note", note.note.as_deref(), storage::snapshot::NOTE_BYTES_MAX)?;
        let (store, place) = (self.store.clone(), self.snapshot_place().await?);
        blocking(move || {
            let _place = place;
            Ok(store.take_snapshot(&id, note)?)
        })
        .await
    }

    /// The snapshots of a workspace, the oldest first.
    ///
    /// # Errors
    /// As [`storage::Store::snapshots`].
    pub async fn snapshots(&self, id: SandboxId) -> Result<Snapshots> {
        let store = self.store.clone();
        blocking(move || Ok(store.snapshots(&id)?)).await
    }

    /// One snapshot.
    ///
    /// # Errors
    /// As [`storage::Store::snapshot`].
    pub async fn snapshot(&self, id: SandboxId, snapshot: SnapshotId) -> Result<Snapshot> {
        let store = self.store.clone();
        blocking(move || Ok(store.snapshot(&id, &snapshot)?)).await
    }

    /// Makes a workspace what it was.
    ///
    /// # Errors
    /// [`Error::Busy`]; as [`storage::Store::restore_snapshot`].
    pub async fn restore_snapshot(&self, id: SandboxId, snapshot: SnapshotId) -> Result<Forked> {
        let (store, place) = (self.store.clone(), self.snapshot_place().await?);
        let restored = blocking(move || Ok(store.restore_snapshot(&id, &snapshot)?)).await;
        Ok(and_clean_up(restored?, place))
    }

    /// Makes what a workspace was another workspace.
    ///
    /// # Errors
    /// [`Error::Busy`]; as [`storage::Store::fork_snapshot`].
    pub async fn fork_snapshot(
        &self,
        from: SandboxId,
        snapshot: SnapshotId,
        to: SandboxId,
        replace: bool,
    ) -> Result<Forked> {
        let (store, place) = (self.store.clone(), self.snapshot_place().await?);
        let forked = blocking(move || Ok(store.fork_snapshot(&from, &snapshot, &to, replace)?)).await;
        Ok(and_clean_up(forked?, place))
    }

    /// Removes a snapshot.
    ///
    /// # Errors
    /// [`Error::Busy`]; as [`storage::Store::remove_snapshot`].
    pub async fn remove_snapshot(&self, id: SandboxId, snapshot: SnapshotId) -> Result<()> {
        let (store, place) = (self.store.clone(), self.snapshot_place().await?);
        blocking(move || {
            let _place = place;
            Ok(store.remove_snapshot(&id, &snapshot)?)
        })
        .await
    }

    async fn snapshot_place(&self) -> Result<OwnedSemaphorePermit> {
        let place = Arc::clone(&self.snapshot_places).acquire_owned();
        match tokio::time::timeout(PATIENCE, place).await {
            Ok(Ok(place)) => Ok(place),
            Ok(Err(_)) => Err(Error::Stopping),
            Err(_) => {
                Err(Error::Busy { what: "too many snapshots are being worked on", retry_after_seconds: 5 })
            }
        }
    }
}

/// Removes what was replaced while the answer is on its way; the place is free only afterwards.
fn and_clean_up((forked, leftovers): (Forked, Leftovers), place: OwnedSemaphorePermit) -> Forked {
    tokio::task::spawn_blocking(move || {
        drop(leftovers);
        drop(place);
    });
    forked
}

fn check_text(field: &str, text: Option<&str>, most: usize) -> Result<()> {
    let Some(text) = text else { return Ok(()) };
    if text.len() > most {
        return Err(Error::Invalid(format!("`{field}` has more than {most} bytes: send fewer")));
    }
    if text.chars().any(|character| character.is_control() && character != '\n') {
        return Err(Error::Invalid(format!("`{field}` has a control character: leave it out")));
    }
    Ok(())
}
