//! The minimal root that mounted runs see, built once by the launcher, which moves into it.
//!
//! ```text
//! /usr /bin /lib …      the host's, read-only            /workspace      empty; a run's tree or skills go over it
//! /etc                  copies of what programs look for /home/sandbox   empty; a run's home goes over it
//! /dev                  six devices, shm                 /tmp            empty; temporary files go over it
//! /kernel/proc          /proc leads here                 /run/aliases    further names of programs
//! ```
//!
//! `/proc` is a link, because a Landlock rule holds for what is below a directory and skips the mount point itself: what is
//! another file system in every run needs a parent of its own that has a rule from the start.
//!
//! A run's mount namespace is a copy of the launcher's, and copying costs by the number of mounts. So the old root is
//! let go, and `/etc` is copied rather than mounted entry by entry ([`etc`]).
//!
//! # References
//! `mount_namespaces(7)`, `pivot_root(2)`, `fsopen(2)`, `open_tree(2)`.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::wait::{WaitStatus, waitpid};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, UnmountFlags,
    fsconfig_create, fsconfig_set_string, fsmount, fsopen, mount_change, move_mount, unmount,
};

use super::etc;
use super::mounting::{attach, close, make_dirs, memory_files, tree_of};
use crate::sys::{self, Extent, MountAttributes};
use crate::walls::programs::ALIASES;
use crate::wire::{self, Namespaces, RootPlan};

/// Where the processes of a run are shown; `/proc` leads here.
const PROC: &str = "/kernel/proc";
/// Memory shared between the processes of a run.
pub(super) const SHARED_MEMORY: &str = "/dev/shm";
/// Where a workspace, or a directory that holds skills, is mounted.
pub(super) const WORKSPACE: &str = "/workspace";

/// The name of the machine inside runs.
const HOST_NAME: &[u8] = b"sandbox";
/// Size of the root's own files, as `tmpfs(5)` takes it.
const ROOT_SIZE: &str = "64m";
/// Size of an empty directory; the smallest, because 0 is no limit.
const EMPTY_SIZE: &str = "4k";
/// Where the new root is attached until it is the root; every system has it, and its contents are held open.
const FOOTHOLD: &str = "/proc";

/// Devices of the root: name, major and minor number (Documentation/admin-guide/devices.txt).
const DEVICES: [(&str, u32, u32); 6] =
    [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];
/// Links of `/dev`, as programs expect them.
const DEVICE_LINKS: [(&str, &str); 4] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
];
/// The root once it is there.
pub(super) struct Root {
    /// Its directory, for the service, which adds Landlock rules for what is in it.
    pub(super) directory: OwnedFd,
    /// The network of the launcher itself, and the way from there to another.
    pub(super) network: LauncherNetwork,
    /// The namespaces and mounts that it offers.
    pub(super) offers: Namespaces,
}

/// The network namespace of the launcher, in which a run is that enters no other.
pub(super) enum LauncherNetwork {
    /// A network without any interface that is up. From here there is a way to the host's.
    Empty {
        /// The network of the host.
        host: OwnedFd,
    },
    /// The network of the host, because runs may be in it, and without root there would be no way back (setns(2): it takes
    /// `CAP_SYS_ADMIN` in the user namespace of the host).
    Hosts {
        /// A network without any interface that is up.
        empty: OwnedFd,
    },
}

impl LauncherNetwork {
    /// The network to enter for a run in that of the host; `None`: it is there already.
    pub(super) fn to_host(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Empty { host } => Some(host.as_fd()),
            Self::Hosts { .. } => None,
        }
    }

    /// The network to enter for a process that is to be in an empty one; `None`: it is there already.
    pub(super) fn to_empty(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Empty { .. } => None,
            Self::Hosts { empty } => Some(empty.as_fd()),
        }
    }

    /// Leaves the network of the host, unless runs need it and there would be no way back.
    fn choose(needs_host: bool) -> Result<Self, Failure> {
        let host = open_dir_or_file("/proc/self/ns/net").map_err(at("open(ns/net)"))?;
        if needs_host && let Some(empty) = empty_without_return(&host).map_err(at("try(network)"))? {
            return Ok(Self::Hosts { empty });
        }
        unshare(CloneFlags::CLONE_NEWNET).map_err(at("unshare(network)"))?;
        Ok(Self::Empty { host })
    }
}

/// An empty network, if a process that is in it has no way back to `host`. A process tries that which then ends.
fn empty_without_return(host: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let (ours, theirs) = wire::packet_sockets()?;
    let Some(pid) = sys::fork_single_threaded()? else {
        let tried = unshare(CloneFlags::CLONE_NEWNET).map_err(io::Error::from).and_then(|()| {
            let empty = open_dir_or_file("/proc/self/ns/net")?;
            let can_return = setns(host, CloneFlags::CLONE_NEWNET).is_ok();
            wire::send(theirs.as_fd(), &[u8::from(can_return)], &[empty.as_fd()])
        });
        sys::exit_now(i32::from(tried.is_err()))
    };
    drop(theirs);
    let mut can_return = [0];
    let (said, networks) = wire::receive(ours.as_fd(), &mut can_return)?;
    waitpid(pid, None)?;
    match (said, can_return, networks.into_iter().next()) {
        (1, [0], Some(empty)) => Ok(Some(empty)),
        (1, [1], _) => Ok(None),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// A step of building the root that failed.
pub(super) struct Failure {
    what: &'static str,
    error: io::Error,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "`{}` failed: {}", self.what, self.error)
    }
}

fn at<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Failure {
    move |error| Failure { what, error: error.into() }
}

/// Moves this process into namespaces of its own with the root that `plan` describes.
///
/// When it fails half-way, this process is of no further use. Besides the root, it gives `/proc` as it was found.
pub(super) fn enter(plan: &RootPlan) -> Result<(Root, OwnedFd), Failure> {
    let network = LauncherNetwork::choose(plan.host_network)?;
    let found_proc = open_dir_or_file("/proc").map_err(at("open(/proc)"))?;
    let namespaces = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWIPC;
    unshare(namespaces).map_err(at("unshare"))?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).map_err(at("mount(MS_PRIVATE)"))?;
    rustix::system::sethostname(HOST_NAME).map_err(at("sethostname"))?;

    // All that is taken from the old root is opened before its directory is covered.
    let bound: Vec<(PathBuf, OwnedFd)> =
        plan.bound.iter().filter_map(|path| Some((path.clone(), tree_of(path).ok()?))).collect();
    let devices: Vec<(&str, Option<OwnedFd>)> =
        DEVICES.iter().map(|(name, ..)| (*name, tree_of(&Path::new("/dev").join(name)).ok())).collect();
    // The launcher itself writes to it, when it makes user namespaces. In a user namespace of our own the processes of
    // the host cannot be mounted anew, only shown again; every run covers them with its own.
    let proc = new_proc(&[], MountAttrFlags::empty()).or_else(|_| tree_of(Path::new("/proc")));

    let root = memory_files("0755", ROOT_SIZE, MountAttrFlags::empty()).map_err(at("fsmount(tmpfs)"))?;
    move_mount(&root, "", CWD, FOOTHOLD, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .map_err(at("move_mount"))?;
    let new = Path::new(FOOTHOLD);
    fill(new).map_err(at("mkdir"))?;
    etc::copy(new).map_err(at("copy(/etc)"))?;
    name_programs(new, &plan.aliases).map_err(at("symlink"))?;
    make_devices(new, &devices).map_err(at("mknod"))?;
    for (path, tree) in &bound {
        bind(new, path, tree).map_err(at("bind"))?;
    }
    if let Ok(proc) = &proc {
        attach(proc, new.join(PROC.trim_start_matches('/'))).map_err(at("move_mount(/proc)"))?;
    }
    sys::restrict_mount(
        root.as_fd(),
        Extent::One,
        MountAttributes::READ_ONLY.and(MountAttributes::NO_SETUID),
    )
    .map_err(at("mount_setattr"))?;
    change_root(&root).map_err(at("pivot_root"))?;

    let processes = try_own_processes();
    if processes.is_err() {
        // No run could cover it, and none shall see the processes of others.
        let _ = unmount(PROC, UnmountFlags::DETACH);
    }
    let directory = open_dir_or_file("/").map_err(at("open(/)"))?;
    Ok((Root { directory, network, offers: Namespaces { processes, counted_apart: Ok(()) } }, found_proc))
}

/// Makes the directories and links of the root.
fn fill(root: &Path) -> io::Result<()> {
    for directory in ["etc", "dev/shm", "kernel/proc", "tmp", "home/sandbox", "workspace", "run", "var"] {
        make_dirs(&root.join(directory))?;
    }
    symlink("kernel/proc", root.join("proc"))?;
    symlink("/tmp", root.join("var/tmp"))?;
    for (name, target) in DEVICE_LINKS {
        symlink(target, root.join("dev").join(name))?;
    }
    Ok(())
}

/// Makes the links of [`ALIASES`].
fn name_programs(root: &Path, aliases: &[(String, PathBuf)]) -> io::Result<()> {
    let directory = root.join(ALIASES.trim_start_matches('/'));
    make_dirs(&directory)?;
    aliases.iter().try_for_each(|(name, file)| symlink(file, directory.join(name)))
}

/// Makes the devices, or mounts the host's where this process may not make any.
fn make_devices(root: &Path, host: &[(&str, Option<OwnedFd>)]) -> io::Result<()> {
    for ((name, major, minor), (_, tree)) in DEVICES.iter().zip(host) {
        let path = root.join("dev").join(name);
        let device = rustix::fs::makedev(*major, *minor);
        if mknodat(CWD, &path, FileType::CharacterDevice, Mode::from_raw_mode(0o666), device).is_ok() {
            // The process's mask has taken bits away (umask(2)).
            fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
            continue;
        }
        let Some(tree) = tree else { continue };
        fs::write(&path, "")?;
        sys::restrict_mount(tree.as_fd(), Extent::One, MountAttributes::NO_SETUID)?;
        attach(tree, &path)?;
    }
    Ok(())
}

/// Lets the host's `path` stand in the root, read-only, or repeats the link that it is.
fn bind(root: &Path, path: &Path, tree: &OwnedFd) -> io::Result<()> {
    let Ok(relative) = path.strip_prefix("/") else { return Ok(()) };
    let target = root.join(relative);
    let stat = rustix::fs::fstat(tree)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => {
            if let Some(parent) = target.parent() {
                make_dirs(parent)?;
            }
            let link = rustix::fs::readlinkat(tree, "", Vec::new())?;
            return match symlink(std::ffi::OsStr::new(link.to_string_lossy().as_ref()), &target) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                made => made,
            };
        }
        FileType::Directory => make_dirs(&target)?,
        _ => {
            if let Some(parent) = target.parent() {
                make_dirs(parent)?;
            }
            if !target.exists() {
                fs::write(&target, "")?;
            }
        }
    }
    close(tree)?;
    attach(tree, &target)
}

/// Makes the new root the root, and lets the old one go.
fn change_root(root: &OwnedFd) -> io::Result<()> {
    rustix::process::fchdir(root)?;
    match rustix::process::pivot_root(".", ".") {
        Ok(()) => {
            // The old root lies over the new one now; this process stands in the new.
            unmount(".", UnmountFlags::DETACH)?;
            rustix::process::chdir("/")?;
        }
        // Where a container's filter forbids it: over the old root, which stays below and out of reach, as leaving
        // it would take CAP_SYS_CHROOT.
        Err(rustix::io::Errno::PERM) => {
            move_mount(root, "", CWD, "/", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
            rustix::process::chroot(".")?;
            rustix::process::chdir("/")?;
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Mounts `/proc` once as every run will, in a process that goes; otherwise why runs have none.
///
/// In a user namespace the kernel shows processes anew only where they are shown already, and nothing of them is
/// covered, as containers like to do it (`mount_too_revealing` in fs/namespace.c of Linux).
fn try_own_processes() -> Result<(), String> {
    let refused = |error: io::Error| format!("the kernel refuses a new /proc here: {error}");
    let namespaces = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID;
    let Some(trial) = sys::fork_into(namespaces, None).map_err(refused)? else {
        let tried = own_processes();
        let errno = tried.err().map_or(0, |error| error.raw_os_error().unwrap_or(libc::EINVAL));
        sys::exit_now(errno);
    };
    match waitpid(trial, None) {
        Ok(WaitStatus::Exited(_, 0)) => Ok(()),
        Ok(WaitStatus::Exited(_, errno)) => Err(refused(io::Error::from_raw_os_error(errno))),
        Ok(_) => Err("a process that was to try it was killed".to_owned()),
        Err(error) => Err(refused(error.into())),
    }
}

/// Lets an empty directory stand over the `/proc` of a run whose network is not its own: `/proc/net` tells of the
/// sockets of all that are in it.
pub(super) fn cover_processes() -> io::Result<()> {
    let closed = MountAttrFlags::MOUNT_ATTR_RDONLY
        .union(MountAttrFlags::MOUNT_ATTR_NOEXEC)
        .union(MountAttrFlags::MOUNT_ATTR_NODEV);
    attach(&memory_files("0555", EMPTY_SIZE, closed)?, PROC)
}

/// Mounts the `/proc` of a run. Processes of other users are not shown, so the first process is not either (proc(5)).
pub(super) fn own_processes() -> io::Result<()> {
    let proc = new_proc(&[("hidepid", "invisible")], MountAttrFlags::MOUNT_ATTR_RDONLY)?;
    attach(&proc, PROC)
}

/// A detached `/proc` of the process namespace of the caller, with `options` and further `attributes`.
fn new_proc(options: &[(&str, &str)], attributes: MountAttrFlags) -> io::Result<OwnedFd> {
    let context = fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        fsconfig_set_string(&context, *key, *value)?;
    }
    fsconfig_create(&context)?;
    let closed = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC
        | attributes;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, closed)?)
}

fn open_dir_or_file(path: &str) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}
