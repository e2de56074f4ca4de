//! [`Gauge`]: what a run may fill, to be looked at while it runs.

use std::ffi::OsStr;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use policy::TreeId;

use super::{By, PreparedRun};
use crate::core::copies::Copy;
use crate::core::count::Counted;
use crate::core::store::Store;
use crate::core::usage::Ceiling;
use crate::dir::Dir;
use crate::error::Result;
use crate::layout::TEMPORARY_NAME;
use crate::stat::Use;

/// The key of a measured tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GaugeKey {
    /// The tree.
    pub tree: TreeId,
    /// The inode number of the directory that runs have of it; 0 for what is in its place.
    inode: u64,
}

/// The inode number is enough: hashing three names for each skill of a run costs more.
impl Hash for GaugeKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self.inode {
            0 => self.tree.hash(state),
            inode => inode.hash(state),
        }
    }
}

/// One tree that a run may fill.
///
/// It measures what the run has, also when the service has put something else in the place of the tree meanwhile.
pub struct Gauge {
    store: Store,
    id: TreeId,
    inode: u64,
    measured: Measured,
    /// How far the run may let it grow.
    ceiling: Ceiling,
}

enum Measured {
    /// The tree itself.
    Tree(Vec<Dir>),
    /// The directory for temporary files in the home, which has a limit of its own beside that of the workspace.
    Temporary(Dir),
    /// The upper directory of the live view that the run is in.
    View { upper: Arc<Dir>, inode: u64 },
    /// A copy of a merged view. What is more in it than at first will be taken into the overlay.
    Copy { dir: Dir, first: Use },
    /// The directory that is in the place of the tree.
    PointKey,
}

impl Measured {
    fn of(copy: &Copy) -> Result<Self> {
        Ok(Self::Copy { dir: copy.dir.reopen()?, first: copy.taken() })
    }
}

/// The findings of a look at a gauge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// The room that the tree takes, or would take with the content of the copy.
    pub taken: Use,
    /// Whether that is all: not of trees with more names or levels than a look visits.
    pub is_whole: bool,
    /// How far all that the user has is above what runs may make it.
    pub excess: Use,
}

impl PreparedRun {
    /// The trees that the run may fill: the workspace with the home directory, each skill that it sees, and the temporary files.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) when descriptors run out.
    pub fn gauges(&self) -> Result<Vec<Gauge>> {
        let workspace = TreeId::Workspace(self.id.user().clone(), self.id.agent().clone());
        let dirs = self.store.counted_dirs(&workspace)?;
        let mut ceilings = self.ceilings.iter();
        let mut next = || ceilings.next().copied().unwrap_or(Ceiling::Unknown);
        let mut gauges = Vec::with_capacity(self.skills.len() + 2);
        gauges.push(Gauge::new(&self.store, workspace.clone(), Measured::Tree(dirs), next())?);
        for seen in &self.skills {
            let measured = match &seen.by {
                By::Live(seat) => Measured::View { upper: Arc::clone(seat.upper()), inode: seat.upper_inode },
                By::Copy(copy) => Measured::of(copy)?,
                By::Shared(lease) => match &lease.copy().copy.lock().made {
                    Some(copy) => Measured::of(copy)?,
                    None => Measured::PointKey,
                },
            };
            gauges.push(Gauge::new(&self.store, seen.id.clone(), measured, next())?);
        }
        // Another command of the user may have moved it; the workspace's own limit holds all the same.
        if let Ok(temporary) = self.home.open_dir_entry(OsStr::new(TEMPORARY_NAME)) {
            // What is in it is seen by the first look.
            gauges.push(Gauge::new(
                &self.store,
                workspace,
                Measured::Temporary(temporary),
                Ceiling::Unknown,
            )?);
        }
        for gauge in &gauges {
            // A run may change everything that is known of the tree.
            self.store.accounts().doubt(&gauge.id);
        }
        Ok(gauges)
    }
}

impl Gauge {
    fn new(store: &Store, id: TreeId, measured: Measured, ceiling: Ceiling) -> Result<Self> {
        let inode_of =
            |dir: Option<&Dir>| dir.map(Dir::stat).transpose().map(|stat| stat.map_or(0, |stat| stat.inode));
        let inode = match &measured {
            Measured::Tree(dirs) => inode_of(dirs.first())?,
            Measured::View { inode, .. } => *inode,
            Measured::Copy { dir, .. } | Measured::Temporary(dir) => inode_of(Some(dir))?,
            Measured::PointKey => 0,
        };
        Ok(Self { store: store.clone(), id, inode, measured, ceiling })
    }

    /// The key of the measured tree. Gauges with one key measure the same.
    #[must_use]
    pub fn key(&self) -> GaugeKey {
        GaugeKey { tree: self.id.clone(), inode: self.inode }
    }

    /// How far the run may let it grow.
    #[must_use]
    pub fn ceiling(&self) -> Ceiling {
        self.ceiling
    }

    /// The room that the tree may take.
    #[must_use]
    pub fn limits(&self) -> Use {
        let tree = self.store.limits_of(&self.id);
        match &self.measured {
            Measured::Temporary(_) => Use { bytes: self.store.disk_limits().tmp_bytes, ..tree },
            _ => tree,
        }
    }

    /// A gauge of the same tree for when nothing runs in it any more; it holds nothing open. `None` for a copy, which
    /// goes with its run, and for temporary files, which are in the workspace.
    #[must_use]
    pub fn afterwards(&self) -> Option<Self> {
        let is_the_runs = matches!(self.measured, Measured::Copy { .. } | Measured::Temporary(_));
        (!is_the_runs).then(|| Self {
            store: self.store.clone(),
            id: self.id.clone(),
            inode: self.inode,
            measured: Measured::PointKey,
            ceiling: self.ceiling,
        })
    }

    /// Counts, by a walk.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io).
    pub fn look(&self) -> Result<Look> {
        let accounts = self.store.accounts();
        match &self.measured {
            Measured::Tree(dirs) => self.look_at(dirs.iter()),
            Measured::Temporary(dir) => {
                let mut counter = self.store.counter_of(&self.id);
                counter.tree(dir)?;
                let Counted { taken, is_whole } = counter.end();
                Ok(Look { taken, is_whole, excess: Use::default() })
            }
            Measured::View { upper, .. } => self.look_at(std::iter::once(upper.as_ref())),
            Measured::PointKey => self.seen(self.store.count(&self.id)?, Use::default()),
            Measured::Copy { dir, first } => {
                let mut counter = self.store.counter_of(&self.id);
                counter.tree(dir)?;
                let copy = counter.end();
                let overlay = match accounts.known(&self.id) {
                    Some(known) => known.counted.taken,
                    None => self.store.count(&self.id)?.taken,
                };
                let more = copy.taken.minus(*first);
                self.seen(Counted { taken: overlay.plus(more), is_whole: copy.is_whole }, more)
            }
        }
    }

    /// Counts what is in `dirs`, which the run has.
    fn look_at<'a>(&self, dirs: impl Iterator<Item = &'a Dir>) -> Result<Look> {
        let accounts = self.store.accounts();
        let mut counter = self.store.counter_of(&self.id);
        let mut known = Vec::new();
        for dir in dirs {
            counter.tree(dir)?;
            known.push(dir.stat()?.inode);
        }
        // The run's directory may have been thrown away meanwhile.
        self.store.count_trash(&self.id, &known, &mut counter)?;
        let counted = counter.end();
        if self.is_current()? {
            accounts.counted(&self.id, counted, self.limits());
            // The run goes on and may change the tree.
            accounts.doubt(&self.id);
        }
        self.seen(counted, Use::default())
    }

    /// The findings, of which `more` is in no tree yet.
    fn seen(&self, Counted { taken, is_whole }: Counted, more: Use) -> Result<Look> {
        Ok(Look { taken, is_whole, excess: self.store.user_excess(self.id.user(), more)? })
    }

    /// Whether the tree is still what the run has.
    fn is_current(&self) -> Result<bool> {
        let dirs = self.store.counted_dirs(&self.id)?;
        let current = dirs.first().map(Dir::stat).transpose()?;
        Ok(current.is_some_and(|stat| stat.inode == self.inode))
    }
}
