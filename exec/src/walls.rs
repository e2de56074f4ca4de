//! The Landlock rulesets of runs: the host's common surface plus one tree and its scratch directory.
//!
//! A ruleset of some hundred rules takes a few hundred microseconds to build and three to enforce, so the common
//! part is opened once, and finished rulesets are kept, because agents run one command after another in one tree.
//!
//! # References
//! `landlock(7)`; `Documentation/userspace-api/landlock.rst` of Linux.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, Scope, make_bitflags,
};
use rustix::fs::{Mode, OFlags, fstat, open};

use crate::programs::Programs;
use crate::surface;
use crate::tier::Network;

/// Rulesets kept; each is one file descriptor of the service.
const KEPT_MAX: usize = 128;

/// The newest rights asked for; the crate leaves out what the kernel lacks.
const NEWEST: ABI = ABI::V7;

const READ_TREE: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir});
const READ: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile});
const LIST: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadDir});
// `execve` opens the file for reading too.
const RUN: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | Execute});
const RUN_TREE: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir | Execute});
const DEVICE: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | WriteFile | Truncate});
// No devices, sockets or FIFOs: nothing that makes a later reader of the tree wait or reach further. No EXECUTE:
// a script is run by naming its interpreter. No IOCTL_DEV, as there are no devices.
const OWN: BitFlags<AccessFs> = make_bitflags!(AccessFs::{
    ReadFile | ReadDir | WriteFile | Truncate | MakeReg | MakeDir | MakeSym | RemoveFile | RemoveDir | Refer
});

/// Builds and keeps the rulesets of runs.
#[derive(Debug)]
pub(crate) struct Walls {
    common: Vec<(OwnedFd, BitFlags<AccessFs>)>,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    rulesets: HashMap<Place, (Arc<OwnedFd>, u64)>,
    clock: u64,
}

/// What a ruleset is for. An inode with a rule is pinned, so its number cannot come to mean another while kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Place {
    tree: (u64, u64),
    scratch: (u64, u64),
    network: Network,
}

impl Walls {
    /// Opens the common surface: what [`surface`] lists, `programs`, and the `read_only` trees.
    ///
    /// What does not exist on this host is left out.
    pub(crate) fn prepare(programs: &Programs, read_only: &[PathBuf]) -> Self {
        let mut common: HashMap<(u64, u64), (OwnedFd, BitFlags<AccessFs>)> = HashMap::new();
        // Many paths are links to one place (`/bin` is `/usr/bin`); one rule each is enough.
        let mut add = |path: &Path, access: BitFlags<AccessFs>| {
            let Ok(file) = open_path(path) else { return };
            let Ok(place) = inode(file.as_fd()) else { return };
            common.entry(place).and_modify(|(_, granted)| *granted |= access).or_insert((file, access));
        };
        for path in surface::TREES {
            add(Path::new(path), READ_TREE);
        }
        for path in surface::python_trees().iter().chain(read_only) {
            add(path, READ_TREE);
        }
        for path in programs.libraries() {
            add(path, READ_TREE);
        }
        for path in surface::FILES {
            add(Path::new(path), READ);
        }
        for path in surface::DEVICES {
            add(Path::new(path), DEVICE);
        }
        let listable = surface::LISTABLE.iter().map(Path::new);
        for path in listable.chain(programs.search_path().iter().map(PathBuf::as_path)) {
            add(path, if programs.is_open() { RUN_TREE } else { LIST });
        }
        if programs.is_open() {
            for path in ["/usr/lib", "/usr/libexec", "/usr/local/lib", "/lib", "/lib64"] {
                add(Path::new(path), RUN_TREE);
            }
        }
        for path in programs.executable() {
            add(path, RUN);
        }
        Self { common: common.into_values().collect(), kept: Mutex::default() }
    }

    /// The ruleset of runs in `tree` and `scratch`, kept or new.
    ///
    /// # Errors
    /// What `landlock_create_ruleset(2)` and `landlock_add_rule(2)` answer.
    pub(crate) fn ruleset(
        &self,
        tree: BorrowedFd<'_>,
        scratch: BorrowedFd<'_>,
        network: Network,
    ) -> io::Result<Arc<OwnedFd>> {
        let place = Place { tree: inode(tree)?, scratch: inode(scratch)?, network };
        if let Some(ruleset) = self.kept().find(place) {
            return Ok(ruleset);
        }
        let ruleset =
            Arc::new(self.build(tree, scratch, network).map_err(io::Error::other)?.ok_or_else(absent)?);
        self.kept().keep(place, Arc::clone(&ruleset));
        Ok(ruleset)
    }

    fn build(
        &self,
        tree: BorrowedFd<'_>,
        scratch: BorrowedFd<'_>,
        network: Network,
    ) -> Result<Option<OwnedFd>, RulesetError> {
        let mut ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(NEWEST))?
            .scope(Scope::from_all(NEWEST))?;
        if network == Network::None {
            ruleset = ruleset.handle_access(AccessNet::from_all(NEWEST))?;
        }
        let mut created = ruleset.create()?;
        for (file, access) in &self.common {
            created = created.add_rule(PathBeneath::new(file, *access))?;
        }
        let created =
            created.add_rule(PathBeneath::new(tree, OWN))?.add_rule(PathBeneath::new(scratch, OWN))?;
        Ok(created.into())
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        // Nothing in the table is half-changed at a point that can panic.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn find(&mut self, place: Place) -> Option<Arc<OwnedFd>> {
        self.clock += 1;
        let (ruleset, used) = self.rulesets.get_mut(&place)?;
        *used = self.clock;
        Some(Arc::clone(ruleset))
    }

    fn keep(&mut self, place: Place, ruleset: Arc<OwnedFd>) {
        if self.rulesets.len() >= KEPT_MAX {
            let oldest = self.rulesets.iter().min_by_key(|(_, (_, used))| *used).map(|(place, _)| *place);
            oldest.map(|place| self.rulesets.remove(&place));
        }
        self.rulesets.insert(place, (ruleset, self.clock));
    }
}

/// Opens a directory or file as a place, without reading it.
///
/// # Errors
/// As `open(2)`.
pub(crate) fn open_path(path: &Path) -> io::Result<OwnedFd> {
    Ok(open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

fn inode(file: BorrowedFd<'_>) -> io::Result<(u64, u64)> {
    let meta = fstat(file.as_fd())?;
    Ok((meta.st_dev, meta.st_ino))
}

fn absent() -> io::Error {
    io::Error::from(io::ErrorKind::Unsupported)
}
