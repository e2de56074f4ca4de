//! Attending a run: one that ends with the caller that waits for it.

use std::sync::Arc;

use policy::TreeId;
use tokio::runtime::Handle;

use super::event::Event;
use super::id::ExecId;
#[cfg(doc)]
use super::record::Recorded;
use super::record::{Found, Purpose};
use super::session::Recording;
use super::{RunOutcome, RunRequest, RunTarget};
use crate::ops::{Error, Result, Service};

/// A run that no other caller knows. Dropping it kills the run, if it still goes on, and forgets it.
struct Attended {
    service: Arc<Service>,
    tree: TreeId,
    id: ExecId,
}

impl Service {
    /// Runs a command, and gives its events to `hear` as they come. Dropping the future kills the command.
    ///
    /// # Errors
    /// As [`Service::begin`] and [`Recorded::outcome`]; [`Error::Gone`] when `hear` was too slow.
    pub async fn attend(
        self: &Arc<Self>,
        tree: TreeId,
        request: RunRequest,
        mut hear: impl FnMut(Event),
    ) -> Result<RunOutcome> {
        let id = ExecId::fresh()?;
        // From before it begins: who goes away while it waits for a permit gives that up as well.
        let attended = Attended { service: Arc::clone(self), tree: tree.clone(), id: id.clone() };
        let recording =
            Recording { id: Some(id), purpose: Purpose::Attached, stdin_open: false, is_streamed: true };
        let mut follower =
            self.begin(RunTarget { tree, backend: None }, request, recording).await?.follow()?;
        let recorded = Arc::clone(&follower.recorded);
        loop {
            match follower.next().await? {
                Found::Events(events) => events.into_iter().for_each(&mut hear),
                Found::Nothing => {}
                Found::End => break,
                Found::Gone { first } => return Err(Error::Gone(first)),
            }
        }
        let outcome = recorded.outcome().await;
        drop(attended);
        outcome
    }
}

impl Drop for Attended {
    fn drop(&mut self) {
        // A run that did not begin is forgotten already.
        let Some(recorded) = self.service.table.take(&self.tree, &self.id) else { return };
        recorded.kill();
        // Closing a large log frees its blocks. Without a runtime no other task is kept waiting by that.
        if let Ok(runtime) = Handle::try_current() {
            drop(runtime.spawn_blocking(move || drop(recorded)));
        }
    }
}
