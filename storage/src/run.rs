//! [`PlannedRun`] and [`PreparedRun`]: a tree as a command will see it, and what the command did to it.
//!
//! A workspace is seen as it is. A merged view is *materialised*: copied into `work/`, run in, and compared with
//! what it was before; the difference is *absorbed* into the overlay, deletions as whiteouts. Changes that the
//! service makes to the overlay during the run stay, unless the command changed the same entry: then the command,
//! which ended later, wins.

mod absorb;
mod materialise;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use policy::{RelPath, TreeId, View};

pub use self::absorb::Absorbed;
use self::materialise::{Copy, give};
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::place;
use crate::store::Store;

/// Entries of the directory of temporary directories that are looked at, at the start of a run. A command may put any
/// number there.
const LEFT_OVER_MAX: usize = 1000;

/// A tree as a command will see it.
///
/// Dropping it removes what was made for the run, absorbing nothing.
pub struct PreparedRun {
    store: Store,
    id: TreeId,
    view: View,
    temporary: PathBuf,
    /// The merged view's copy; `None` for a workspace.
    copy: Option<Copy>,
    home: Dir,
    run: OsString,
}

/// A run that nothing was made for yet: what it will see, known before it costs anything.
pub struct PlannedRun {
    store: Store,
    id: TreeId,
    view: View,
    temporary: PathBuf,
    run: OsString,
}

impl Store {
    /// Plans a run in the tree `id`.
    ///
    /// # Errors
    /// [`Error::Path`] never happens for ids that were parsed.
    pub fn plan_run(&self, id: &TreeId) -> Result<PlannedRun> {
        let run = self.inner.stage.fresh_name();
        let place = |place: RelPath| self.root_path().join(place.as_str());
        let scratch = place(place::packages(id.user(), id.agent())?);
        let temporary = scratch.join("tmp").join(&run);
        let (tree, aliases) = match id {
            TreeId::Workspace(user, agent) => (place(place::workspace(user, agent)?), Vec::new()),
            TreeId::Skill(user, agent, skill) => {
                let layers = [place::overlay(user, agent)?, place::baseline(agent)?];
                let tree = place(RelPath::parse(place::WORK)?).join(&run);
                (tree, layers.map(|layer| place(layer).join(skill.as_str())).to_vec())
            }
        };
        let view = View { tree, scratch, sandbox_path: id.sandbox_path(), aliases, owner: self.owner(id) };
        Ok(PlannedRun { store: self.clone(), id: id.clone(), view, temporary, run })
    }

    /// Plans a run in the tree `id` and makes what it needs.
    ///
    /// # Errors
    /// As [`PlannedRun::prepare`].
    pub fn prepare_run(&self, id: &TreeId) -> Result<PreparedRun> {
        self.plan_run(id)?.prepare()
    }

    /// The directory of the runs' temporary directories, swept of those that a crash left.
    fn temporaries(&self, home: &Dir) -> Result<Dir> {
        let name = OsStr::new("tmp");
        let dir = match home.ensure_dir(name) {
            // A command may put anything in its home. It must not lock itself out for ever.
            Err(Error::NotADirectory(_) | Error::Escape(_)) => {
                drop(self.inner.stage.discard(home, name)?);
                home.ensure_dir(name)?
            }
            Err(Error::Closed(_)) => home.open_closed_dir(name)?,
            made => made?,
        };
        for entry in dir.first_entries(LEFT_OVER_MAX)? {
            if self.inner.stage.is_left_over(&entry.name)
                && let Err(error) = dir.remove_tree(&entry.name)
            {
                tracing::warn!(%error, "a run's temporary files stay until the next run");
            }
        }
        Ok(dir)
    }
}

impl PlannedRun {
    /// What the command will see.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The host path of the run's own temporary directory, below [`View::scratch`].
    #[must_use]
    pub fn temporary(&self) -> &std::path::Path {
        &self.temporary
    }

    /// Makes what the run needs: the workspace, or the copy of the merged view.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the user has no such skill; [`Error::TooLarge`], [`Error::TooManyEntries`],
    /// [`Error::NoSpace`].
    pub fn prepare(self) -> Result<PreparedRun> {
        let Self { store, id, view, temporary, run } = self;
        let owner = view.owner;
        let home = store.inner.root.ensure_path(&place::packages(id.user(), id.agent())?)?;
        if owner.is_some() && home.stat()?.mode != 0o700 {
            home.set_mode(0o700)?;
        }
        give(&home, owner)?;
        let temporaries = store.temporaries(&home)?;
        give(&temporaries, owner)?;
        give(&temporaries.create_dir(&run, 0o700)?, owner)?;
        // From here on, dropping it removes what was made.
        let mut prepared = PreparedRun { store, id, view, temporary, copy: None, home, run };
        match &prepared.id {
            TreeId::Workspace(..) => {
                // Not while a first change is about to put its own in place.
                let _held = prepared.store.inner.locks.read(&prepared.id);
                drop(prepared.store.plain(&prepared.id, true)?);
            }
            TreeId::Skill(..) => {
                prepared.copy = Some(prepared.store.materialise(&prepared.id, &prepared.run, owner)?);
            }
        }
        Ok(prepared)
    }
}

impl PreparedRun {
    /// What the command may see.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The host path of the run's own temporary directory, below [`View::scratch`].
    #[must_use]
    pub fn temporary(&self) -> &std::path::Path {
        &self.temporary
    }

    /// Tells whether there will be anything to absorb: a command works on a copy, not on the tree itself.
    #[must_use]
    pub fn is_copy(&self) -> bool {
        self.copy.is_some()
    }
}

impl Drop for PreparedRun {
    fn drop(&mut self) {
        let work = || match self.id {
            TreeId::Skill(..) => {
                self.store.inner.root.open_dir(&RelPath::parse(place::WORK)?)?.remove_tree(&self.run)
            }
            TreeId::Workspace(..) => Ok(()),
        };
        // Each for itself: the command may have removed or replaced `tmp`.
        let temporary = || match self.home.open_dir_entry(OsStr::new("tmp")) {
            Err(Error::NotFound(_) | Error::NotADirectory(_)) => Ok(()),
            tmp => tmp?.remove_tree(&self.run),
        };
        for removed in [work(), temporary()] {
            if let Err(error) = removed {
                tracing::warn!(%error, "a run's files stay until the next start");
            }
        }
    }
}
