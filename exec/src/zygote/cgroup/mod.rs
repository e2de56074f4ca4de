//! Control groups: the kernel's own limit on all processes of a run together.
//!
//! | Module | Holds |
//! | --- | --- |
//! | [`place`] | where this process's own group lies |
//! | [`base`] | the directory of this launcher's own, with a group for each run |
//! | [`v2`], [`v1`] | what differs between the versions |
//!
//! A process is born into a group for 12 µs (`CLONE_INTO_CGROUP`, version 2 alone) or moved into it for 220 µs, during
//! which no process of the machine can fork. So only runs that have lived for a while are moved, and never by the
//! launcher itself.
//!
//! # References
//! `cgroups(7)`; Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst.

mod base;
mod place;
mod v1;
mod v2;

use std::io;
use std::os::fd::{OwnedFd, RawFd};

use self::base::Base;
use crate::tier::MemoryBound;
use crate::wire::Whole;

/// The groups of all runs of one launcher.
#[derive(Debug)]
pub(super) struct Groups {
    /// One base in each hierarchy that is used, the one with memory first, and what is set in its groups.
    places: Vec<(Base, &'static [(&'static str, Setting)])>,
    /// The file in which the kernel tells of processes that want memory.
    wants: &'static str,
}

/// The text that is written to a file of a run's group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting {
    /// The limit on memory, in bytes.
    Memory,
    /// The same; the file is not everywhere.
    MemoryIfThere,
    /// 0; the file is not everywhere.
    NoneIfThere,
    /// 1: yes.
    One,
    /// The same; not every kernel takes it.
    OneIfPossible,
    /// The limit on processes and threads.
    Processes,
}

impl Setting {
    fn value(self, whole: Whole) -> String {
        match self {
            Self::Memory | Self::MemoryIfThere => whole.memory_bytes.to_string(),
            Self::NoneIfThere => "0".to_owned(),
            Self::One | Self::OneIfPossible => "1".to_owned(),
            Self::Processes => whole.processes.to_string(),
        }
    }

    fn is_optional(self) -> bool {
        matches!(self, Self::MemoryIfThere | Self::NoneIfThere)
    }
}

/// The group of one run.
#[derive(Debug)]
pub(super) struct Group {
    directories: Vec<OwnedFd>,
}

/// The strongest version of control groups that can be used here, and how it bounds runs.
///
/// `born` when processes can be started in a group; otherwise they are moved.
///
/// # Errors
/// In words, when there is none.
pub(super) fn find(born: bool) -> Result<(Groups, MemoryBound), String> {
    let text = |path| std::fs::read_to_string(path).map_err(|error| format!("`{path}`: {error}"));
    let (mounts, own) = (text("/proc/self/mountinfo")?, text("/proc/self/cgroup")?);
    let second = match v2::find(&mounts, &own).and_then(Groups::proven) {
        Ok(groups) if born => return Ok((groups, MemoryBound::CgroupV2)),
        Ok(groups) => return Ok((groups, MemoryBound::CgroupV2Later)),
        Err(reason) => reason,
    };
    match v1::find(&mounts, &own).and_then(Groups::proven) {
        Ok(groups) => Ok((groups, MemoryBound::CgroupV1)),
        Err(first) => Err(format!("cgroup v2: {second}; cgroup v1: {first}")),
    }
}

impl Groups {
    /// The descriptors that the methods use.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.places.iter().flat_map(|(base, _)| base.descriptors())
    }

    /// Proves by doing that groups can be made and limited.
    fn proven(self) -> Result<Self, String> {
        let tried = self.make(0, Whole { memory_bytes: 1 << 30, processes: 16, write_bytes_per_second: 0 });
        self.remove(0);
        match tried {
            Ok(_) => Ok(self),
            Err(error) => {
                self.remove_all();
                Err(format!("a group could not be made: {error}"))
            }
        }
    }

    /// Makes the group of the run `run` with its limits.
    ///
    /// # Errors
    /// As `mkdir(2)` and `write(2)`.
    pub(super) fn make(&self, run: u64, whole: Whole) -> io::Result<Group> {
        let mut directories = Vec::with_capacity(self.places.len());
        for (base, settings) in &self.places {
            let directory = base.make_group(run)?;
            for (file, setting) in settings.iter().copied() {
                match base::write(&directory, file, &setting.value(whole)) {
                    Err(_) if setting == Setting::OneIfPossible => {}
                    Err(error) if setting.is_optional() && error.kind() == io::ErrorKind::NotFound => {}
                    written => written?,
                }
            }
            directories.push(directory);
        }
        Ok(Group { directories })
    }

    /// Tells whether a process of the run `run` was killed for want of memory, or waits for some.
    pub(super) fn wants(&self, run: u64) -> bool {
        let counters = self.places.first().and_then(|(base, _)| base.read(run, self.wants).ok());
        counters.as_deref().is_some_and(is_wanting)
    }

    /// Removes the group of the run `run`; tells whether it is gone everywhere.
    pub(super) fn remove(&self, run: u64) -> bool {
        self.places.iter().fold(true, |gone, (base, _)| base.remove_group(run) && gone)
    }

    /// Kills what is left of all runs and removes everything; tells whether it is all gone.
    pub(super) fn remove_all(&self) -> bool {
        self.places.iter().fold(true, |gone, (base, _)| base.remove() && gone)
    }
}

impl Group {
    /// The directory that processes can be born into (version 2).
    pub(super) fn birthplace(&self) -> Option<&OwnedFd> {
        self.directories.first()
    }

    /// Moves a process into the group, with all its threads.
    ///
    /// # Errors
    /// `ESRCH` when it is gone.
    pub(super) fn join(&self, pid: i32) -> io::Result<()> {
        let text = pid.to_string();
        self.directories.iter().try_for_each(|directory| base::write(directory, "cgroup.procs", &text))
    }
}

/// Reads a file of lines `name number`: `oom_kill` counts killed processes, `under_oom` is 1 while some wait.
fn is_wanting(counters: &str) -> bool {
    let number = |line: &str| {
        ["oom_kill ", "under_oom "].iter().find_map(|name| line.strip_prefix(name)?.parse().ok())
    };
    counters.lines().filter_map(number).any(|count: u64| count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn want_of_memory_is_read_in_both_versions() {
        assert!(is_wanting("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"));
        assert!(is_wanting("oom_kill_disable 1\nunder_oom 1\noom_kill 0\n"));
        assert!(!is_wanting("oom_kill_disable 1\nunder_oom 0\noom_kill 0\n"));
        assert!(is_wanting("low 0\nhigh 0\nmax 9\noom 2\noom_kill 1\noom_group_kill 1\n"));
        assert!(!is_wanting("low 0\nhigh 0\nmax 9\noom 2\noom_kill 0\noom_group_kill 0\n"));
        assert!(!is_wanting(""));
    }
}
