//! The namespaces the service itself stands in: without a mount namespace of its own it could not hold mounts, and
//! without privileges it needs a user namespace to be allowed to.
//!
//! # References
//! `user_namespaces(7)` (also for `CAP_SETFCAP`, without which no namespace gets a root), `mount_namespaces(7)`, `capabilities(7)` ("Ambient").

use std::fs;
use std::io;

use nix::sched::{CloneFlags, unshare};
use nix::sys::wait::{WaitStatus, waitpid};
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::thread::CapabilitySet;

use crate::sys;

/// What the launcher does in a user namespace, and so what must survive its start: programs lose capabilities that
/// are not ambient when they are executed by another user than root.
const FOR_THE_LAUNCHER: CapabilitySet = CapabilitySet::SYS_ADMIN
    .union(CapabilitySet::SYS_CHROOT)
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::KILL);

/// Where the service stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostNamespaces {
    /// In a mount namespace of its own, with the privilege to mount.
    Privileged,
    /// In a user and a mount namespace of its own: it may mount there, and is itself everywhere else.
    UserNamespace,
    /// Where it was started; mounting is not possible, for this reason.
    Host(String),
}

impl HostNamespaces {
    /// Moves this process to where it may mount, if there is such a place.
    ///
    /// To be called before any thread is started and before anything is opened that shall be seen from outside:
    /// a process with threads gets no user namespace. Mounts that the host makes later are still seen here, those
    /// made here never there.
    #[must_use]
    pub fn enter() -> Self {
        let may_mount = rustix::thread::capabilities(None)
            .is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN));
        let (entered, place) = if may_mount {
            (own_mounts(CloneFlags::CLONE_NEWNS), Self::Privileged)
        } else {
            (try_in_another_process(own_user).and_then(|()| own_user()), Self::UserNamespace)
        };
        match entered {
            Ok(()) => place,
            Err(error) if may_mount => Self::Host(format!("no mount namespace can be made: {error}")),
            Err(error) => Self::Host(format!(
                "the service has no CAP_SYS_ADMIN, and no user namespace can be made: {error}"
            )),
        }
    }
}

fn own_mounts(namespaces: CloneFlags) -> io::Result<()> {
    unshare(namespaces)?;
    Ok(mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?)
}

/// Does `act` in a process that goes. Half of the way into a user namespace there is no way back: the service would have no user
/// that the namespace knows, and could give runs none of their own.
fn try_in_another_process(act: fn() -> io::Result<()>) -> io::Result<()> {
    let Some(trial) = sys::fork_single_threaded()? else {
        let errno = act().err().map_or(0, |error| error.raw_os_error().unwrap_or(libc::EINVAL));
        sys::exit_now(errno);
    };
    match waitpid(trial, None)? {
        WaitStatus::Exited(_, 0) => Ok(()),
        WaitStatus::Exited(_, errno) => Err(io::Error::from_raw_os_error(errno)),
        _ => Err(io::Error::other("the process that tried it was killed")),
    }
}

/// Enters a user namespace in which this user is the only one and has the same number.
fn own_user() -> io::Result<()> {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    unshare(CloneFlags::CLONE_NEWUSER)?;
    write_own("/proc/self/setgroups", "deny")?;
    write_own("/proc/self/uid_map", &format!("{user} {user} 1\n"))?;
    write_own("/proc/self/gid_map", &format!("{group} {group} 1\n"))?;
    own_mounts(CloneFlags::CLONE_NEWNS)?;
    let mut sets = rustix::thread::capabilities(None)?;
    sets.inheritable |= FOR_THE_LAUNCHER & sets.permitted;
    rustix::thread::set_capabilities(None, sets)?;
    for capability in (FOR_THE_LAUNCHER & sets.permitted).iter() {
        rustix::thread::configure_capability_in_ambient_set(capability, true)?;
    }
    Ok(())
}

/// Writes to a file of this process's own in `/proc`.
fn write_own(path: &str, text: &str) -> io::Result<()> {
    fs::write(path, text)
}
