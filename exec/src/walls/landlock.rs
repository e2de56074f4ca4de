//! The Landlock rulesets of runs: the host's common surface plus one tree and its scratch directory.
//!
//! A ruleset of some hundred rules takes a few hundred microseconds to build and three to enforce, so the common
//! part is opened once, and finished rulesets are kept, because agents run one command after another in one tree. For the
//! first command in a tree, a ruleset of the common part waits; the next one is built while the command runs.
//!
//! # References
//! `landlock(7)`; `Documentation/userspace-api/landlock.rst` of Linux.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, Scope, make_bitflags,
};
use rustix::fs::{Mode, OFlags, fstat, open, openat};

use crate::walls::host_paths;
use crate::walls::programs::Programs;

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
// No devices or FIFOs: nothing that makes a later reader of the tree wait or reach further. No IOCTL_DEV, as there are no
// devices. EXECUTE comes besides where code may run from what runs write: for scripts, whose interpreter has to be a
// program of the list, and for what packages bring.
const OWN: BitFlags<AccessFs> = make_bitflags!(AccessFs::{
    ReadFile | ReadDir | WriteFile | Truncate | MakeReg | MakeDir | MakeSym | MakeSock | RemoveFile | RemoveDir | Refer
});

/// Builds and keeps the rulesets of runs.
#[derive(Debug)]
pub(crate) struct Walls {
    common: Vec<(OwnedFd, BitFlags<AccessFs>)>,
    /// The rights to the directories of a run.
    own: BitFlags<AccessFs>,
    /// Rulesets of the common part, which no run has yet: without ports, and with.
    spare: [Mutex<Option<RulesetCreated>>; 2],
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    rulesets: HashMap<RulesetKey, (Arc<OwnedFd>, u64)>,
    clock: u64,
}

/// The key of a ruleset: the directories that it is for. An inode with a rule is pinned, so its number cannot come to
/// mean another while kept; where a whole file system may go, its generation tells.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RulesetKey {
    own: Vec<(u64, u64, u64)>,
    has_ports: bool,
}

/// A directory of the run's own, with its generation (see [`Attachment`](crate::Attachment)).
pub(crate) type Own<'a> = (BorrowedFd<'a>, u64);

impl Walls {
    /// Opens what every run may read: the paths that [`host_paths`] lists, `programs`, and the `read_only` trees.
    ///
    /// With `root`, the minimal root of mounted runs, what is of its making counts instead of the host's. What does
    /// not exist on this host is left out. With `code`, runs may execute files of their own directories.
    pub(crate) fn prepare(
        programs: &Programs,
        read_only: &[PathBuf],
        root: Option<BorrowedFd<'_>>,
        code: bool,
    ) -> Self {
        let rights = if code { OWN | AccessFs::Execute } else { OWN };
        let mut common: HashMap<(u64, u64), (OwnedFd, BitFlags<AccessFs>)> = HashMap::new();
        // Many paths are links to one place (`/bin` is `/usr/bin`); one rule each is enough.
        let mut grant = |opened: io::Result<OwnedFd>, access: BitFlags<AccessFs>| {
            let Ok(file) = opened else { return };
            let Ok(place) = inode(file.as_fd()) else { return };
            common.entry(place).and_modify(|(_, granted)| *granted |= access).or_insert((file, access));
        };
        if let Some(root) = root {
            // Rules on parents, because what is mounted for each run is new to Landlock.
            let own = [(".", LIST), ("etc", READ_TREE), ("kernel", READ_TREE), ("dev", OWN | DEVICE)];
            for (path, access) in own {
                grant(open_below(root, path), access);
            }
        }
        let mut add = |path: &Path, access: BitFlags<AccessFs>| {
            if root.is_none() || !host_paths::is_of_the_root(path) {
                grant(open_path(path), access);
            }
        };
        for path in host_paths::TREES {
            add(Path::new(path), READ_TREE);
        }
        for path in host_paths::python_trees().iter().chain(read_only) {
            add(path, READ_TREE);
        }
        for path in programs.libraries() {
            add(path, READ_TREE);
        }
        for path in host_paths::FILES {
            add(Path::new(path), READ);
        }
        for path in host_paths::DEVICES {
            add(Path::new(path), DEVICE);
        }
        let listable = host_paths::LISTABLE.iter().map(Path::new);
        for path in listable.chain(programs.search_path().iter().map(PathBuf::as_path)) {
            add(path, if programs.is_open() { RUN_TREE } else { LIST });
        }
        if programs.is_open() {
            for path in ["/usr/lib", "/usr/libexec", "/usr/local/lib", "/lib", "/lib64"] {
                add(Path::new(path), RUN_TREE);
            }
        }
        for path in programs.directories() {
            add(path, RUN_TREE);
        }
        for path in programs.executable() {
            add(path, RUN);
        }
        let common = common.into_values().collect();
        Self { common, own: rights, spare: <[Mutex<_>; 2]>::default(), kept: Mutex::default() }
    }

    /// The ruleset of runs that have the directories `own`, kept or new.
    ///
    /// With `has_ports`, runs may bind and connect TCP sockets: in a network of their own, where nothing but their
    /// user's is, or where the configuration lets them use the host's.
    ///
    /// # Errors
    /// As `landlock_create_ruleset(2)` and `landlock_add_rule(2)`.
    pub(crate) fn ruleset(self: &Arc<Self>, own: &[Own<'_>], has_ports: bool) -> io::Result<Arc<OwnedFd>> {
        let inodes = own.iter().map(|(fd, generation)| {
            let (device, number) = inode(*fd)?;
            Ok((device, number, *generation))
        });
        let place = RulesetKey { own: inodes.collect::<io::Result<_>>()?, has_ports };
        if let Some(ruleset) = self.kept().find(&place) {
            return Ok(ruleset);
        }
        let built = self.build(own, has_ports).map_err(io::Error::other)?.ok_or_else(absent)?;
        let ruleset = Arc::new(built);
        self.kept().keep(place, Arc::clone(&ruleset));
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let walls = Arc::clone(self);
            drop(runtime.spawn_blocking(move || walls.make_spare(has_ports)));
        }
        Ok(ruleset)
    }

    /// The common part and the directories `own`; `None` on a kernel without Landlock.
    fn build(&self, own: &[Own<'_>], has_ports: bool) -> Result<Option<OwnedFd>, RulesetError> {
        let spare = locked(self.spare(has_ports)).take();
        let mut created = spare.map_or_else(|| self.build_common(has_ports), Ok)?;
        for (directory, _) in own {
            created = created.add_rule(PathBeneath::new(directory, self.own))?;
        }
        Ok(created.into())
    }

    /// Builds the common part for a next run, where none waits. What fails here fails again where it is told.
    fn make_spare(&self, has_ports: bool) {
        if locked(self.spare(has_ports)).is_none()
            && let Ok(common) = self.build_common(has_ports)
        {
            *locked(self.spare(has_ports)) = Some(common);
        }
    }

    fn spare(&self, has_ports: bool) -> &Mutex<Option<RulesetCreated>> {
        let [without, with] = &self.spare;
        if has_ports { with } else { without }
    }

    fn build_common(&self, has_ports: bool) -> Result<RulesetCreated, RulesetError> {
        let mut ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(NEWEST))?
            .scope(Scope::from_all(NEWEST))?;
        if !has_ports {
            ruleset = ruleset.handle_access(AccessNet::from_all(NEWEST))?;
        }
        let mut created = ruleset.create()?;
        for (file, access) in &self.common {
            created = created.add_rule(PathBeneath::new(file, *access))?;
        }
        Ok(created)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        locked(&self.kept)
    }
}

/// Nothing behind these locks is half-changed at a point that can panic.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kept {
    fn find(&mut self, place: &RulesetKey) -> Option<Arc<OwnedFd>> {
        self.clock += 1;
        let (ruleset, used) = self.rulesets.get_mut(place)?;
        *used = self.clock;
        Some(Arc::clone(ruleset))
    }

    fn keep(&mut self, place: RulesetKey, ruleset: Arc<OwnedFd>) {
        if self.rulesets.len() >= KEPT_MAX {
            let oldest =
                self.rulesets.iter().min_by_key(|(_, (_, used))| *used).map(|(place, _)| place.clone());
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

/// Opens what `path` names in the root `root`.
fn open_below(root: BorrowedFd<'_>, path: &str) -> io::Result<OwnedFd> {
    Ok(openat(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

fn inode(file: BorrowedFd<'_>) -> io::Result<(u64, u64)> {
    let meta = fstat(file.as_fd())?;
    Ok((meta.st_dev, meta.st_ino))
}

fn absent() -> io::Error {
    io::Error::from(io::ErrorKind::Unsupported)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ruleset_of_the_common_part_is_given_to_one_run_alone() {
        let walls = Arc::new(Walls {
            common: vec![(open_path(Path::new("/usr")).unwrap(), READ_TREE)],
            own: OWN,
            spare: <[Mutex<_>; 2]>::default(),
            kept: Mutex::default(),
        });
        let waits = |has_ports| locked(walls.spare(has_ports)).is_some();
        walls.make_spare(true);
        assert!(waits(true) && !waits(false));
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let of = |directory: &tempfile::TempDir| {
            let directory = open_path(directory.path()).unwrap();
            walls.ruleset(&[(directory.as_fd(), 0)], true)
        };
        match of(&one) {
            Ok(first) => {
                assert!(!waits(true), "it is the run's now");
                assert!(!Arc::ptr_eq(&first, &of(&other).unwrap()));
                assert!(Arc::ptr_eq(&first, &of(&one).unwrap()), "the control: a ruleset is kept");
            }
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{error}"),
        }
    }
}
