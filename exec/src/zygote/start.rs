//! The steps that the launcher takes once, before its first run.

use std::io;
use std::os::fd::AsFd;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::fs::{Mode, OFlags};
use rustix::thread::CapabilitySet;

use super::Loop;
use super::child::Spawner;
use super::crowd::Crowd;
use super::memory::{Means, Memory};
use super::users::Users;
use super::{network, root, supervision};
use crate::sys;
use crate::walls::seccomp::{self, Surroundings};
use crate::wire::{self, Hello, PACKET_BYTES_MAX, Setup};

/// Gives up everything a launcher does not need, once, so that no run has to.
pub(super) fn start() -> io::Result<Loop> {
    sys::close_from(3)?;
    sys::reset_signals();
    sys::find_processors();
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGCHLD);
    mask.thread_set_mask()?;
    let children = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    // Out of the terminal's foreground group: an interrupt typed there must not end runs before the service does.
    let _ = nix::unistd::setsid();
    // Where that is refused, so is looking at keys, or there are none.
    let _ = sys::leave_session_keyring();
    rustix::process::umask(Mode::from_raw_mode(0o022));
    rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(1))?;
    // No attach, no core, and the process directory belongs to root (PR_SET_DUMPABLE(2const)).
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    // One descriptor for each run; the runs have limits of their own.
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
    let main = rustix::stdio::stdin().try_clone_to_owned()?;
    let nothing = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&nothing)?;
    let mut buffer = vec![0; PACKET_BYTES_MAX];
    let (length, _) = wire::receive(main.as_fd(), &mut buffer)?;
    let setup: Setup = wire::decode(buffer.get(..length).unwrap_or_default())?;
    let means = Means::find(setup.root.is_some(), setup.control_groups);
    let crowd = Crowd::find();
    let (root, proc, mut namespaces) = match setup.root.as_ref().map(root::enter) {
        None => (None, None, None),
        Some(Ok((root, proc))) => {
            let offers = root.offers.clone();
            (Some(root), Some(proc), Some(Ok(offers)))
        }
        Some(Err(failure)) => (None, None, Some(Err(failure.to_string()))),
    };
    let surroundings = if root.is_some() { Surroundings::Namespaces } else { Surroundings::Host };
    let memory = Memory::start(means, surroundings)?;
    let port = setup.root.as_ref().and_then(|plan| plan.proxy_port);
    let networks = proc.map(|proc| {
        let myself =
            rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty())?;
        let empty = root.as_ref().and_then(|root| root.network.to_empty());
        network::start(myself.as_fd(), proc.as_fd(), port, empty)
    });
    let networks = networks.transpose()?;
    let can_change_identity = reduce_capabilities(root.is_some());
    rustix::thread::set_no_new_privs(true)?;
    // Before the filter, which is the launcher's own, too.
    let supervision = match surroundings {
        Surroundings::Host => supervision::probe(),
        Surroundings::Namespaces => Err("runs see nothing that a supervisor would keep from them".to_owned()),
    };
    let landlock = sys::landlock_abi().unwrap_or(0);
    let filter = match seccomp::load_opening(surroundings, setup.memory_files, landlock) {
        Ok(()) if seccomp::is_in_force() => Ok(()),
        Ok(()) => Err("the filter was accepted but refuses nothing".to_owned()),
        Err(error) => Err(format!("the kernel refuses the filter: {error}")),
    };
    let mut users = None;
    // Root gives each user a uid, which is counted apart anyhow.
    if let Some(Ok(offers)) = &mut namespaces
        && !rustix::process::geteuid().is_root()
    {
        match Users::start() {
            Ok(started) => users = Some(started),
            Err(reason) => offers.counted_apart = Err(reason),
        }
    }
    let filtered = filter.is_ok();
    let pid = nix::unistd::getpid().as_raw();
    let bound = memory.bound();
    let supervises = supervision.is_ok();
    let hello =
        wire::encode(&Hello { pid, filter, can_change_identity, supervision, namespaces, memory: bound })?;
    let mut shown = Vec::new();
    if let Some(root) = &root {
        shown.push(root.directory.as_fd());
    }
    shown.extend(networks.iter().map(|(_, socket)| socket.as_fd()));
    wire::send(main.as_fd(), &hello, &shown)?;
    let spawner = Spawner::new(root, filtered, supervises)?;
    let networks = networks.map(|(pid, _)| pid);
    Ok(Loop::new((main, children), spawner, filtered, (memory, crowd), users, networks))
}

/// Empties the bounding set and keeps what launching needs; tells whether that includes changing identity.
fn reduce_capabilities(mounts: bool) -> bool {
    let mut kept =
        CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::KILL | CapabilitySet::DAC_READ_SEARCH;
    if mounts {
        // SETFCAP: without it no process can make a user namespace that maps user 0 (Linux 5.12).
        kept |= CapabilitySet::SYS_ADMIN | CapabilitySet::SETFCAP;
    }
    let Ok(mut sets) = rustix::thread::capabilities(None) else { return false };
    // Inheritable before the bounding set is empty, which forbids adding to it (capabilities(7)); a run that cannot
    // reach its tree needs this one.
    sets.inheritable = sets.permitted & CapabilitySet::DAC_READ_SEARCH;
    let _ = rustix::thread::set_capabilities(None, sets);
    // Needs a capability that is about to go. Without it the set is left alone, which `no_new_privs` makes harmless.
    for capability in CapabilitySet::all().iter() {
        let _ = rustix::thread::remove_capability_from_bounding_set(capability);
    }
    sets.permitted &= kept;
    sets.effective = sets.permitted;
    let reduced = rustix::thread::set_capabilities(None, sets).is_ok();
    reduced && sets.permitted.contains(CapabilitySet::SETUID | CapabilitySet::SETGID)
}
