//! Version 2 of control groups: one hierarchy, of which a part may have been handed over to this service.
//!
//! A group that has children with controllers may have no processes of its own ("no internal processes",
//! `cgroups(7)`), so the service and its launchers move to a leaf beside the groups of runs. That changes the group the
//! service was started in, so it is done only where that group is the service's alone: it is the root of a control
//! group namespace, as containers have, or systemd says so (`Delegate=`), and no other process is in it.
//!
//! # References
//! Documentation/admin-guide/cgroup-v2.rst; `systemd.resource-control(5)`, "Delegate="; systemd's
//! `CGROUP_DELEGATION` document, "user.delegate".

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::unistd::{getpid, getppid};
use rustix::fs::{Mode, OFlags, mkdirat, open, openat};

use super::base::{self, Base};
use super::place::{Hierarchy, own_group};
use super::{Groups, Setting};

/// The limits of a group, by file. With `memory.oom.group` all of a run dies together.
pub(super) const SETTINGS: &[(&str, Setting)] = &[
    ("memory.max", Setting::Memory),
    ("memory.swap.max", Setting::NoneIfThere),
    ("memory.oom.group", Setting::One),
    ("pids.max", Setting::Processes),
];
/// Where the kernel counts processes that it killed for want of memory.
pub(super) const WANTS: &str = "memory.events";

/// The leaf in which the service and its launchers live.
const LEAF: &str = "filesecbox-service";
/// How a manager marks a group that it has handed over.
const MARKS: [&str; 2] = ["user.delegate", "trusted.delegate"];

/// Moves the service and this process to a leaf, and makes a base beside it.
///
/// # Errors
/// In words, for results too and so without paths of the host: when there is no such hierarchy, or it is not this
/// service's to use.
pub(super) fn find(mounts: &str, own: &str) -> Result<Groups, String> {
    let group = own_group(Hierarchy::Unified, mounts, own).ok_or("it is not mounted")?;
    let is_in_leaf = group.file_name().is_some_and(|name| name == LEAF);
    let domain = if is_in_leaf { group.parent().unwrap_or(&group) } else { &group };
    let in_words = |what: &str, error: io::Error| format!("{what} below the service's group: {error}");
    let directory = open_group(domain).map_err(|error| in_words("nothing can be opened", error))?;
    let controllers = base::read(&directory, "cgroup.controllers")
        .map_err(|error| in_words("no controllers can be read", error))?;
    if let Some(lacking) = ["memory", "pids"].iter().find(|name| !has(&controllers, name)) {
        return Err(format!("the service's group has no controller `{lacking}`"));
    }
    if !is_in_leaf {
        check_ownership(&directory, own)?;
        occupy_leaf(&directory).map_err(|error| in_words("the service cannot be moved", error))?;
    }
    let enable = |directory: &OwnedFd| base::write(directory, "cgroup.subtree_control", "+memory +pids");
    enable(&directory).map_err(|error| in_words("no controllers can be enabled", error))?;
    let base = Base::make(domain).map_err(|error| in_words("no group can be made", error))?;
    if let Err(error) = enable(base.directory()) {
        base.remove();
        return Err(in_words("no controllers can be enabled", error));
    }
    Ok(Groups { places: vec![(base, SETTINGS)], wants: WANTS })
}

fn has(controllers: &str, name: &str) -> bool {
    controllers.split_whitespace().any(|other| other == name)
}

/// Checks that the group was handed over and that no other process lives in it.
fn check_ownership(directory: &OwnedFd, own: &str) -> Result<(), String> {
    let marked = MARKS.iter().any(|mark| {
        let mut value = [0; 8];
        rustix::fs::fgetxattr(directory, *mark, &mut value)
            .is_ok_and(|length| value.get(..length) == Some(b"1"))
    });
    // The root of a namespace is called `/` by those in it; the root of everything has no type (cgroup-v2.rst).
    let is_namespace_root =
        own.lines().any(|line| line == "0::/") && base::read(directory, "cgroup.type").is_ok();
    if !marked && !is_namespace_root {
        let advice =
            "set `Delegate=memory pids` in its unit, or give its container a control group namespace";
        return Err(format!("the service's group was not handed over to it: {advice}"));
    }
    let ours = [getpid().as_raw(), getppid().as_raw()];
    let inside =
        base::processes(directory).map_err(|error| format!("the service's group cannot be read: {error}"))?;
    if inside.iter().any(|pid| !ours.contains(pid)) {
        return Err("other processes than the service's are in its group".to_owned());
    }
    let below = base::groups_below(directory).unwrap_or_default();
    if below.iter().any(|name| !name.starts_with("filesecbox-")) {
        return Err("the service's group has groups below it that are not the service's".to_owned());
    }
    Ok(())
}

/// Moves the service and this process into the leaf of `domain`.
fn occupy_leaf(domain: &OwnedFd) -> io::Result<()> {
    match mkdirat(domain, LEAF, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let leaf = openat(domain.as_fd(), LEAF, flags, Mode::empty())?;
    for pid in [getpid(), getppid()] {
        base::write(&leaf, "cgroup.procs", &pid.to_string())?;
    }
    Ok(())
}

fn open_group(path: &Path) -> io::Result<OwnedFd> {
    Ok(open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}
