//! [`PlannedRun`] ([`plan`]) and [`PreparedRun`]: trees as a command will see them, and what the command did to them.
//!
//! A workspace is seen as it is, and a copy of it by a run whose changes are to be decided about. A merged view is seen in
//! one of two ways:
//!
//! * through its *live view* ([`crate::layers::live`]), where the host lets the service mount: what the command changes is
//!   changed, at once;
//! * *materialised*: copied into `work/`, run in, and compared with what it was before; the difference is *absorbed*
//!   into the overlay, deletions as whiteouts. Runs at the same time share the copy, and it stays for the next one
//!   ([`crate::core::copies`]). Changes that the service makes to the overlay during the run stay,
//!   unless the command changed the same entry: then the command, which ended later, wins.
//!
//! Where a run stands ([`Placement`]) is another matter: at the paths of the host, or at paths of its own to which the
//! trees are attached.

mod absorb;
mod absorbed;
mod attach;
mod copying;
mod difference;
mod gauge;
mod materialise;
mod plan;
mod points;
mod prepare;
mod ready;
mod scan;
mod see;
mod steps;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use policy::{TreeId, View, WorkspaceId};

pub use self::absorbed::Absorbed;
pub use self::attach::Attachment;
pub use self::difference::{Difference, Differing};
pub use self::gauge::{Gauge, GaugeKey, Look};
pub use self::plan::{Placement, PlannedRun, RUN_SKILLS_MAX};
use self::points::MountPoints;
use self::see::{By, Seen};
use crate::core::copies::Copy;
use crate::core::store::Store;
use crate::core::usage::Ceiling;
use crate::dir::Dir;
use crate::layers::view::Departure;
use crate::workspaces::Occupant;

/// A tree as a command will see it.
///
/// Dropping it removes what was made for the run, absorbing nothing, and gives back the seats in live views.
pub struct PreparedRun {
    store: Store,
    id: TreeId,
    view: View,
    temporary: PathBuf,
    /// How far the run may let grow what [`PreparedRun::gauges`] measure: the workspace with the home, then each skill.
    ceilings: Vec<Ceiling>,
    /// The mount points that the workspace holds for the run.
    points: Option<MountPoints>,
    home: Dir,
    run: OsString,
    /// Whether nothing that it did to copies which it shares is yet to be taken in.
    is_absorbed: AtomicBool,
    /// Whether no process of it lives any more.
    is_over: AtomicBool,
    /// Given back when nothing of the run is left in home and workspace: until then no request removes them.
    occupant: Occupant,
    /// Views that the run was the last to leave and that are still to be closed. Before the copies: requests in these skills
    /// wait for it.
    departures: Vec<Departure>,
    /// The trees that the run sees through a view or a copy: its own tree, or the skills that a run of the workspace
    /// asked for. The last to go: to remove the files of a copy may take long, and no workspace stays for that.
    skills: Vec<Seen>,
}

/// The runs in the trees of a store. Cloning gives another handle of the same.
#[derive(Clone)]
pub struct Runs {
    store: Store,
}

impl Store {
    /// Its runs.
    #[must_use]
    pub fn runs(&self) -> Runs {
        Runs { store: self.clone() }
    }
}

impl PreparedRun {
    /// The view of the command.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The directory for temporary files, as the command knows it.
    #[must_use]
    pub fn temporary(&self) -> &std::path::Path {
        &self.temporary
    }

    /// Says that no process of the run lives any more. A run that is dropped without may have some for a moment yet.
    pub fn note_end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Says that the command is over and nothing more will be absorbed, and gives back the seats in live views, so that the
    /// next run is not beside this one and begins with the current baseline. It remains to drop this, and a request that
    /// waits for the sandbox to be empty need not be refused ([`Workspaces::leaving`](crate::Workspaces::leaving)). Does not
    /// wait, which to drop this may.
    pub fn begin_to_leave(&mut self) {
        for seen in self.skills.extract_if(.., |seen| matches!(seen.by, By::Live(_))) {
            if let By::Live(seat) = seen.by {
                self.departures.extend(seat.give_back());
            }
        }
        self.occupant.begin_to_leave();
    }

    /// Tells whether there will be anything to absorb: a command works on copies, not on the trees themselves.
    #[must_use]
    pub fn is_copy(&self) -> bool {
        self.skills.iter().any(|seen| !matches!(seen.by, By::Live(_)))
    }

    /// Tells whether the next run that sees the same finds all of it where this one does: it works on no copy, and the
    /// directories that skills are attached to were there before.
    #[must_use]
    pub fn recurs(&self) -> bool {
        !self.is_copy() && self.points.as_ref().is_none_or(|points| points.are_kept)
    }

    /// Has the kernel keep the trees of the run within what they may take.
    fn allot(&self) {
        if self.store.kernel_keeps_quotas().is_err() {
            return;
        }
        let mut ceilings = self.ceilings.iter();
        if let Some(ceiling) = ceilings.next() {
            self.store.allot(&WorkspaceId::of(&self.id).workspace(), *ceiling);
        }
        for (seen, ceiling) in self.skills.iter().zip(ceilings) {
            match &seen.by {
                By::Live(_) => self.store.allot(&seen.id, *ceiling),
                By::Shared(lease) => {
                    if let Some(copy) = &lease.copy().copy.lock().made {
                        self.store.allot_copy(&seen.id, &copy.dir, copy.taken(), *ceiling);
                    }
                }
                By::Copy(copy) => self.store.allot_copy(&seen.id, &copy.dir, copy.taken(), *ceiling),
            }
        }
    }

    /// The copies that are the run's own.
    fn copies(&self) -> impl Iterator<Item = (&TreeId, &Copy)> {
        self.skills.iter().filter_map(|seen| match &seen.by {
            By::Copy(copy) => Some((&seen.id, copy)),
            By::Live(_) | By::Shared(_) => None,
        })
    }
}

impl Drop for PreparedRun {
    fn drop(&mut self) {
        if !self.is_over.load(Ordering::Relaxed) {
            self.store.points().doubt(&WorkspaceId::of(&self.id).workspace());
        }
        if self.is_absorbed.load(Ordering::Relaxed) {
            return;
        }
        for seen in &self.skills {
            if let By::Shared(lease) = &seen.by {
                // Its changes were not taken in. The next run that finds it alone begins with another copy.
                lease.copy().copy.lock().is_doubtful = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use policy::{AgentId, UserId};

    use super::*;
    use crate::core::options::Options;

    #[test]
    fn no_workspace_stays_for_the_files_of_a_copy() {
        let temp = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(temp.path(), Options::default()).unwrap();
        let id = TreeId::Workspace(UserId::parse("u").unwrap(), AgentId::parse("a").unwrap());
        let plan = store.runs().plan(&id, Placement::InPlace, &[]).unwrap();
        let run = plan.aside().unwrap().prepare().unwrap();
        let copy = run.view().tree.clone();
        run.note_end();
        // While this is held, no run is counted out.
        let held = store.occupancy().sandboxes.lock();
        let leaving = std::thread::spawn(move || drop(run));
        std::thread::sleep(Duration::from_millis(300));
        assert!(copy.exists(), "it was removed before the run was counted out");
        drop(held);
        leaving.join().unwrap();
        assert!(!copy.exists());
        assert_eq!(store.workspaces().occupants(&WorkspaceId::of(&id)), 0);
    }
}
