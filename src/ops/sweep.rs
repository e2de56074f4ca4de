//! Setting unused workspaces aside, removing them later, and keeping the uptime that decides about it.
//!
//! One task for the service, which looks at all sandboxes [`LOOKS`] times in the time after which they go, and sweeps
//! at most [`REMOVED_MAX`] of them a look, one after the other, each with an audit record. It always runs: the time is
//! kept also while nothing is to be removed.

use std::sync::Arc;
use std::time::Duration;

use storage::{Swept, WorkspaceId};

use super::{Service, blocking};
use crate::audit::Entry;

const LOOKS: u32 = 8;
const LOOK_MIN: Duration = Duration::from_millis(20);
const LOOK_MAX: Duration = Duration::from_secs(600);
/// Workspaces that one look removes.
const REMOVED_MAX: usize = 256;

/// Looks for idle workspaces until the service stops.
pub async fn sweep(service: Arc<Service>) {
    let idle = service.store.options().idle;
    let pause = idle.map_or(LOOK_MAX, |idle| (idle / LOOKS).clamp(LOOK_MIN, LOOK_MAX));
    let mut after = None;
    loop {
        tokio::select! {
            () = service.stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        let (store, begin) = (service.store.clone(), after.take());
        let found = blocking(move || Ok(store.workspaces().idle(begin.as_ref(), REMOVED_MAX)?)).await;
        let idle = found.unwrap_or_else(|error| {
            tracing::warn!(%error, "failed to list idle workspaces: they stay until the next look");
            Vec::new()
        });
        // Those that cannot be removed must not keep the others.
        after = idle.get(REMOVED_MAX - 1).cloned();
        for id in idle {
            if service.stop.is_cancelled() || !remove(&service, id).await {
                break;
            }
        }
    }
}

/// Removes a workspace if it is still idle. Tells whether it makes sense to go on with others.
async fn remove(service: &Service, id: WorkspaceId) -> bool {
    let slot = match service.audit.reserve() {
        Ok(slot) => slot,
        Err(error) => {
            tracing::warn!(%error, "failed to sweep idle workspaces: they stay until the next look");
            return false;
        }
    };
    let (store, sandbox) = (service.store.clone(), id.clone());
    match blocking(move || Ok(store.workspaces().sweep(&sandbox)?)).await {
        Ok(None) => slot.release(),
        Ok(Some(swept)) => {
            let (action, leftovers) = match swept {
                Swept::SetAside(leftovers) => {
                    service.metrics.set_aside.inc();
                    ("set aside", leftovers)
                }
                Swept::Removed(leftovers) => {
                    service.metrics.swept.inc();
                    ("sweep", leftovers)
                }
            };
            tracing::info!(user = %id.user, agent = %id.agent, action, "an unused workspace was set aside or removed");
            let written = slot.write(Entry::of_workspace(action, &id.workspace())).await;
            if let Err(error) = written {
                tracing::error!(%error, action, "failed to record the sweep of an idle workspace in the audit log");
            }
            // Before the next, so that no more than one is being removed.
            let _ = tokio::task::spawn_blocking(move || drop(leftovers)).await;
        }
        Err(error) => {
            slot.release();
            tracing::warn!(%error, "failed to sweep an idle workspace: it stays until the next look");
        }
    }
    true
}
