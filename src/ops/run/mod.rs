//! Running a command: policy decides, storage prepares the view, exec runs, storage takes in the difference.
//!
//! | Module | Holds |
//! | --- | --- |
//! | [`request`], [`fingerprint`] | what is asked for, and whether it is the same as before |
//! | [`id`], [`table`], [`record`] | runs that have a name, and what can be done with them by it |
//! | [`unnamed`] | runs without a name, as long as they go on |
//! | [`under_way`] | which sandboxes have how many runs, named or not |
//! | [`plan`], [`task`] | what a command will see, and a run from its permit to its result |
//! | [`session`] | how a run that has a name begins, and its task |
//! | [`errand`], [`remote`], [`remote_live`] | what a remote backend is asked for, and a run that it makes: to its end, or with the caller taking part |
//! | [`confined`] | what is said of the walls around a run |
//! | [`control`] | signals and sizes for a command that runs |
//! | [`seat`] | who sits before a terminal |
//! | [`attended`] | one that ends with the caller that waits for it |
//! | [`pending`] | what a run did aside, until a caller decides about it |
//! | [`changes`] | which files a run made, changed and removed |
//! | [`event`], [`log`], [`ring`], [`budget`] | what it did, event by event, on a bounded part of the disk |

mod attended;
mod budget;
pub mod changes;
pub mod confined;
mod control;
mod decide;
mod errand;
pub mod event;
mod fingerprint;
pub mod id;
mod log;
pub mod pending;
mod plan;
pub mod record;
mod remote;
mod remote_live;
mod request;
mod ring;
pub mod seat;
pub mod session;
pub mod table;
mod task;
pub mod under_way;
pub mod unnamed;

use std::sync::Arc;

use exec::Live;
use tokio::sync::{mpsc, oneshot};

use self::fingerprint::Fingerprint;
use self::id::ExecId;
pub(super) use self::plan::word;
pub use self::request::{Command, Commit, RunOutcome, RunRequest, RunTarget, Skills};
use super::Service;
use super::error::{Error, Result};

impl Service {
    /// Commands under way, and requests that wait for a permit to run one: attended or in the background, in terminals, and
    /// in remote workspaces.
    #[must_use]
    pub fn commands(&self) -> (usize, usize) {
        let all = [&self.permits, &self.background, &self.terminals, &self.backends.permits];
        (all.iter().map(|permits| permits.taken()).sum(), all.iter().map(|permits| permits.waiting()).sum())
    }

    /// Runs a command and waits for its end.
    ///
    /// The run goes on when the caller goes away, because what it does to the tree must be taken in.
    ///
    /// # Errors
    /// [`Error::Refused`] when policy says no; [`Error::Busy`]; [`Error::Stopping`]; [`Error::Storage`] when the
    /// view cannot be made or taken in; [`Error::Exec`]; [`Error::Remote`].
    pub async fn run(self: &Arc<Self>, target: RunTarget, request: RunRequest) -> Result<RunOutcome> {
        if self.stopping.has_begun() {
            return Err(Error::Stopping);
        }
        let RunTarget { tree, backend } = target;
        if let Some(backend) = backend {
            return self.run_remotely(tree, backend, request).await;
        }
        let command = request.command.shown();
        let planned = self.plan(&tree, request, None).await?;
        let permit = self.permits.take(tree.user()).await?;
        let listed = self.unnamed.enter(ExecId::fresh()?, tree, command);
        let service = Arc::clone(self);
        let run = self.runs.spawn(async move {
            // No caller takes its output as it comes; the result has all of it.
            let live = Live {
                output: mpsc::channel(1).0,
                input: None,
                begun: oneshot::channel().0,
                kill: listed.killed.clone(),
                terminal: None,
            };
            let ended = service.run_planned(permit, planned, Some(live)).await;
            drop(listed);
            ended.map(|(mut outcome, _)| {
                service.stopping.explain(&mut outcome.result);
                outcome
            })
        });
        run.await.map_err(|_| Error::Panicked)?
    }
}
