//! Snapshots of workspaces.

use std::time::Duration;

use policy::UserId;
use storage::{Forked, Leftovers, Snapshot, SnapshotId, SnapshotList, SnapshotNote, WorkspaceId};

use super::Service;
use super::admission::permit_kind::PermitKind;
use super::admission::permits::{Permit, Permits};
use super::admission::{Job, Weight};
use super::error::{Error, Result};

/// How long work on a snapshot waits for a permit.
const WAIT: Duration = Duration::from_secs(10);

/// Places for work on snapshots: `at_once`, of which one user has half at most.
#[must_use]
pub fn permits(at_once: usize) -> Permits {
    Permits::with(PermitKind::SNAPSHOTS, at_once, at_once.div_ceil(2), WAIT)
}

impl Service {
    /// Keeps the state of a workspace.
    ///
    /// # Errors
    /// [`Error::Busy`]; [`Error::Invalid`] for a name or note that is too long; as
    /// [`storage::Snapshots::take`].
    pub async fn take_snapshot(&self, id: WorkspaceId, note: SnapshotNote) -> Result<Snapshot> {
        check_text("name", note.name.as_deref(), storage::snapshot::NAME_BYTES_MAX)?;
        check_text("note", note.note.as_deref(), storage::snapshot::NOTE_BYTES_MAX)?;
        let (store, permit) = (self.store.clone(), self.snapshot_permit(&id.user).await?);
        self.work(Job::of(&id.user, Weight::Long), move || {
            let _permit = permit;
            Ok(store.snapshots().take(&id, note)?)
        })
        .await
    }

    /// The snapshots of a workspace, the oldest first.
    ///
    /// # Errors
    /// As [`storage::Snapshots::list`].
    pub async fn snapshots(&self, id: WorkspaceId) -> Result<SnapshotList> {
        let store = self.store.clone();
        self.work(Job::of(&id.user, Weight::Light), move || Ok(store.snapshots().list(&id)?)).await
    }

    /// One snapshot.
    ///
    /// # Errors
    /// As [`storage::Snapshots::get`].
    pub async fn snapshot(&self, id: WorkspaceId, snapshot: SnapshotId) -> Result<Snapshot> {
        let store = self.store.clone();
        self.work(Job::of(&id.user, Weight::Light), move || Ok(store.snapshots().get(&id, &snapshot)?)).await
    }

    /// Makes a workspace what it was.
    ///
    /// # Errors
    /// [`Error::Busy`]; as [`storage::Snapshots::restore`].
    pub async fn restore_snapshot(&self, id: WorkspaceId, snapshot: SnapshotId) -> Result<Forked> {
        self.left_by_ended_runs(&id).await;
        let (store, permit) = (self.store.clone(), self.snapshot_permit(&id.user).await?);
        let job = Job::of(&id.user, Weight::Long).going_on();
        self.restoring(job, permit, move || Ok(store.snapshots().restore(&id, &snapshot)?)).await
    }

    /// Makes what a workspace was another workspace.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where `to` is remote; [`Error::Busy`]; as [`storage::Snapshots::fork`].
    pub async fn fork_snapshot(
        &self,
        from: WorkspaceId,
        snapshot: SnapshotId,
        to: WorkspaceId,
        replace: bool,
    ) -> Result<Forked> {
        if let Some(backend) = self.backends.get(&to) {
            return Err(Error::Unsupported(format!(
                "that workspace is in `{}`: a snapshot becomes one of this service only",
                backend.name()
            )));
        }
        self.left_by_ended_runs(&to).await;
        self.note_use(to.clone()).await?;
        let (store, permit) = (self.store.clone(), self.snapshot_permit(&from.user).await?);
        let job = Job::of(&from.user, Weight::Long).going_on();
        self.restoring(job, permit, move || Ok(store.snapshots().fork(&from, &snapshot, &to, replace)?)).await
    }

    /// Removes a snapshot.
    ///
    /// # Errors
    /// [`Error::Busy`]; as [`storage::Snapshots::remove`].
    pub async fn remove_snapshot(&self, id: WorkspaceId, snapshot: SnapshotId) -> Result<()> {
        let (store, permit) = (self.store.clone(), self.snapshot_permit(&id.user).await?);
        self.work(Job::of(&id.user, Weight::Long), move || {
            let _permit = permit;
            Ok(store.snapshots().remove(&id, &snapshot)?)
        })
        .await
    }

    /// Makes a workspace, and removes what was replaced while the answer is on its way.
    ///
    /// The work itself holds the permit, because it goes on when the caller has left.
    async fn restoring(
        &self,
        job: Job,
        permit: Permit,
        restore: impl FnOnce() -> Result<(Forked, Leftovers)> + Send + 'static,
    ) -> Result<Forked> {
        let restored = self.admission.work_and_clear(job, move || {
            let (forked, leftovers) = restore()?;
            Ok((forked, (leftovers, permit)))
        });
        restored.await
    }

    async fn snapshot_permit(&self, user: &UserId) -> Result<Permit> {
        self.snapshot_permits.take(user).await
    }
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
