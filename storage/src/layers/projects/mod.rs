//! [`Projects`]: the kernel keeps the limit of each tree, where the file system has project quotas.
//!
//! A *project* is a number that a file has besides owner and group. What is made in a directory that is *marked* has the
//! directory's project, and is marked too; the kernel counts what each project takes and refuses more than its limits
//! (`EDQUOT`). Every overlay of a skill is of a project of its own, and so are a workspace and the home together. The number
//! is read from the directory of the tree: no table says it, and only the service can change it.
//!
//! The kernel lets nothing of another project into a marked directory: rename(2) and link(2) answer `EXDEV`. What the service
//! has built in the stage is given to the project of the place where it goes ([`Projects::follow`]).
//!
//! | File | Holds |
//! | --- | --- |
//! | `mark` | giving what is there to a project |
//! | `probe` | whether the kernel keeps limits here |

mod mark;
mod probe;

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use parking_lot::Mutex;

use self::mark::Marking;
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::layers::names::Names;
use crate::stat::Use;

/// The first number that trees are given; 30 bits follow. Operators number their own projects from 1.
const FIRST: u32 = 0x4000_0000;
/// Numbers that are tried before a tree is left without one.
const DRAWS_MAX: usize = 100_000;
/// Projects whose limits are remembered. Beyond it they are forgotten, and set again.
const ALLOTTED_MAX: usize = 8192;
/// Projects of removed trees that are looked at again when another is removed.
const ENDING_MAX: usize = 256;

/// The project of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Project {
    /// Its number; 0 is none.
    pub id: u32,
    /// Whether what is made in the directory has the same project.
    pub is_inherited: bool,
}

/// The calls of the kernel on projects, which the store knows how to use and not how to make.
pub trait ProjectQuotas: Send + Sync + Debug {
    /// The project of an open file (`FS_IOC_FSGETXATTR`).
    ///
    /// # Errors
    /// Those of the kernel; also for a file system without projects.
    fn project_of(&self, file: BorrowedFd<'_>) -> io::Result<Project>;

    /// Gives an open file to a project (`FS_IOC_FSSETXATTR`).
    ///
    /// # Errors
    /// Those of the kernel.
    fn set_project(&self, file: BorrowedFd<'_>, project: Project) -> io::Result<()>;

    /// What the project `id` takes on the file system of `file` (quotactl_fd(2), `Q_GETQUOTA`).
    ///
    /// # Errors
    /// Those of the kernel; also where it keeps no limits of projects.
    fn taken(&self, file: BorrowedFd<'_>, id: u32) -> io::Result<Use>;

    /// Lets the project `id` take at most `limits`; 0 is no limit (`Q_SETQUOTA`).
    ///
    /// # Errors
    /// Those of the kernel.
    fn allot(&self, file: BorrowedFd<'_>, id: u32, limits: Use) -> io::Result<()>;
}

/// The projects of one store. Cloning gives another handle.
#[derive(Clone, Default)]
pub(crate) struct Projects {
    shared: Option<Arc<Shared>>,
}

struct Shared {
    system: Arc<dyn ProjectQuotas>,
    /// Where things are made that have a project from the beginning.
    stage: Dir,
    names: Arc<Names>,
    /// Whether the kernel keeps limits. Where it does not, what a former service has marked is still to be followed.
    keeps: bool,
    /// The number that is tried next.
    next: Mutex<u32>,
    allotted: Mutex<HashMap<u32, Use>>,
    /// Those of trees that were removed and still have something.
    ending: Mutex<HashSet<u32>>,
}

fn failed(operation: &'static str) -> impl Fn(io::Error) -> Error {
    move |error| Error::from_io(operation, "project", error)
}

impl Shared {
    fn project_of(&self, file: impl AsFd) -> Result<Project> {
        self.system.project_of(file.as_fd()).map_err(failed("read project"))
    }

    /// Gives `file` to `project`, unless it is of that.
    fn set(&self, file: impl AsFd, project: Project) -> Result<bool> {
        let file = file.as_fd();
        if self.project_of(file)? == project {
            return Ok(false);
        }
        self.system.set_project(file, project).map_err(failed("set project")).map(|()| true)
    }

    fn taken(&self, id: u32) -> Result<Use> {
        self.system.taken(self.stage.as_fd(), id).map_err(failed("quotactl"))
    }

    fn allot(&self, id: u32, limits: Use) -> Result<()> {
        self.system.allot(self.stage.as_fd(), id, limits).map_err(failed("quotactl"))
    }

    /// Marks the empty directory `dir` as the first of a project that nothing else on the file system is of.
    ///
    /// The kernel itself says which numbers are in use: a marked directory is a file of its project. Two that draw at the same
    /// time see two files, and both draw again.
    fn draw(&self, dir: &Dir) -> Result<u32> {
        let mut next = self.next.lock();
        for _ in 0..DRAWS_MAX {
            let id = FIRST | (*next & (FIRST - 1));
            *next = next.wrapping_add(1);
            if self.taken(id)? != Use::default() {
                continue;
            }
            self.set(dir, Project { id, is_inherited: true })?;
            if self.taken(id)?.files == 1 {
                return Ok(id);
            }
        }
        self.set(dir, Project { id: 0, is_inherited: false })?;
        Err(Error::Conflict("no number is free for another project".to_owned()))
    }
}

impl Projects {
    /// Whether the kernel keeps limits of trees.
    pub(crate) fn keep(&self) -> bool {
        self.keeping().is_some()
    }

    fn keeping(&self) -> Option<&Arc<Shared>> {
        self.shared.as_ref().filter(|shared| shared.keeps)
    }

    /// The project that `dir` is marked with; `None` too where the kernel keeps no limits.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn of(&self, dir: &Dir) -> Result<Option<u32>> {
        let Some(shared) = self.keeping() else { return Ok(None) };
        let project = shared.project_of(dir)?;
        Ok((project.is_inherited && project.id != 0).then_some(project.id))
    }

    /// Marks the empty directory `dir`, the root of a tree, with the project `id`, or with one of its own.
    ///
    /// What fails is told to the operator: the tree is kept within its limit by the service alone.
    pub(crate) fn begin(&self, dir: &Dir, id: Option<u32>) {
        let Some(shared) = self.keeping() else { return };
        let marked = match id {
            Some(id) => shared.set(dir, Project { id, is_inherited: true }).map(drop),
            None => shared.draw(dir).map(drop),
        };
        if let Err(error) = marked {
            tracing::warn!(%error, "the kernel does not keep the quota of a tree: giving it a project failed");
        }
    }

    /// Marks the empty directory `made` as `like` is marked, so that what is built in it can be put there. Where the kernel
    /// keeps no limits, too: a former service may have marked `like`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn mark_like(&self, made: &Dir, like: &Dir) -> Result<()> {
        let Some(shared) = &self.shared else { return Ok(()) };
        match shared.project_of(like) {
            Ok(project) if project.is_inherited => shared.set(made, project).map(drop),
            // The file system has no projects.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Takes the mark off the directory `dir`, so that anything may be put into it. What is in it keeps its project.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn unmark(&self, dir: &Dir) -> Result<()> {
        let Some(shared) = &self.shared else { return Ok(()) };
        match shared.project_of(dir) {
            Ok(project) if project.id != 0 => {
                shared.set(dir, Project { id: 0, is_inherited: false }).map(drop)
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Gives the file `file` to the project of the directory `into`, where it is to be put: to none when that is not marked.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn take_along(&self, file: &File, into: &Dir) -> Result<()> {
        let Some(shared) = self.keeping() else { return Ok(()) };
        let project = shared.project_of(into)?;
        let id = if project.is_inherited { project.id } else { 0 };
        shared.set(file, Project { id, is_inherited: false }).map(drop)
    }

    /// Gives the entry `name` of `from`, and what is in it, to the project of the directory `into`, which refused it. Tells
    /// whether that changed anything.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Io`].
    pub(crate) fn follow(&self, from: &Dir, name: &OsStr, into: &Dir) -> Result<bool> {
        let Some(shared) = &self.shared else { return Ok(false) };
        let project = shared.project_of(into)?;
        if !project.is_inherited {
            return Ok(false);
        }
        let mut marking = Marking::new(shared, Some(project.id), None, usize::MAX)?;
        marking.entry(from, name)?;
        Ok(marking.has_changed)
    }

    /// Gives `dir` and everything in it to the project `id`, or to one of its own: at most `most` entries, none that another
    /// than `owner` has linked in. `dir` itself comes last, so that a tree whose directory is marked is marked as a whole.
    ///
    /// Nothing else may be changing it.
    ///
    /// # Errors
    /// [`Error::TooManyEntries`], [`Error::NoSpace`], [`Error::Io`]. It can be done again.
    pub(crate) fn mark_tree(
        &self,
        dir: &Dir,
        id: Option<u32>,
        owner: Option<u32>,
        most: usize,
    ) -> Result<()> {
        let Some(shared) = self.keeping() else { return Ok(()) };
        Marking::new(shared, id, owner, most)?.root(dir)
    }

    /// What the kernel says that the project `id` takes.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn taken(&self, id: u32) -> Result<Use> {
        self.keeping().map_or(Ok(Use::default()), |shared| shared.taken(id))
    }

    /// Lets the project `id` take at most `limits`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn allot(&self, id: u32, limits: Use) -> Result<()> {
        let Some(shared) = self.keeping() else { return Ok(()) };
        let mut allotted = shared.allotted.lock();
        if allotted.get(&id) == Some(&limits) {
            return Ok(());
        }
        // Under the lock: what is remembered is what was set last.
        shared.allot(id, limits)?;
        if allotted.len() >= ALLOTTED_MAX {
            allotted.clear();
        }
        allotted.insert(id, limits);
        Ok(())
    }

    /// Takes the limits off the project `id` of a tree that was removed, once nothing is of it any more: what is open goes
    /// when it is closed, and is looked for again when the next tree is removed.
    pub(crate) fn end(&self, id: u32) {
        let Some(shared) = self.keeping() else { return };
        let mut ending = shared.ending.lock();
        ending.insert(id);
        ending.retain(|id| match shared.end(*id) {
            Ok(has_ended) => !has_ended,
            Err(error) => {
                tracing::warn!(%error, "the limits of a project that has gone stay");
                false
            }
        });
        if ending.len() > ENDING_MAX {
            // Their limits stay until other trees are given their numbers.
            ending.clear();
        }
    }
}

impl Shared {
    /// Takes the limits off a project that nothing is of. Tells whether that is so.
    fn end(&self, id: u32) -> Result<bool> {
        let mut allotted = self.allotted.lock();
        // A tree that is given this number anew has a file by now.
        if self.taken(id)? != Use::default() {
            return Ok(false);
        }
        self.allot(id, Use::default())?;
        allotted.remove(&id);
        Ok(true)
    }
}
