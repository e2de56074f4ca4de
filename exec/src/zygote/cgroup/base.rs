//! A directory of this launcher's own in one hierarchy, with a group below it for each run.
//!
//! ```text
//! <group of the launcher>/filesecbox-<pid>-<start>/run-<number>
//! ```
//!
//! Its name tells its owner, and a lock (`flock(2)`) tells whether the owner lives: what a former life left behind is
//! removed at the next start, and nothing else ever is.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::fs::{AtFlags, CWD, Dir, FlockOperation, Mode, OFlags, flock, mkdirat, openat, unlinkat};

/// The beginning of every base's name.
const PREFIX: &str = "filesecbox-";
/// The beginning of the name of every run's group.
const RUN: &str = "run-";
/// Most bytes read of one file: the numbers of all processes of a group.
const FILE_BYTES_MAX: usize = 256 * 1024;

/// The directory; removed by [`Base::remove`], not by `drop`, because two processes share it.
#[derive(Debug)]
pub(super) struct Base {
    parent: OwnedFd,
    name: String,
    directory: OwnedFd,
}

impl Base {
    /// Removes what former launchers left in the group at `parent`, and makes this one's directory there.
    ///
    /// # Errors
    /// As `mkdir(2)`: `EROFS` or `EACCES` where groups are not this process's to make.
    pub(super) fn make(parent: &Path) -> io::Result<Self> {
        let parent = open_dir(CWD, parent)?;
        sweep(&parent);
        let pid = std::process::id();
        let start = start_time(pid).unwrap_or_default();
        let name = format!("{PREFIX}{pid}-{start}");
        mkdirat(&parent, &name, Mode::from_raw_mode(0o755))?;
        let directory = open_dir(&parent, &name)?;
        flock(&directory, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { parent, name, directory })
    }

    /// Its directory.
    pub(super) fn directory(&self) -> &OwnedFd {
        &self.directory
    }

    /// Its descriptors.
    pub(super) fn descriptors(&self) -> [RawFd; 2] {
        [self.parent.as_raw_fd(), self.directory.as_raw_fd()]
    }

    /// Makes the group of the run `run`.
    ///
    /// # Errors
    /// As `mkdir(2)`: `EAGAIN` at a limit on groups.
    pub(super) fn make_group(&self, run: u64) -> io::Result<OwnedFd> {
        let name = group_name(run);
        mkdirat(&self.directory, &name, Mode::from_raw_mode(0o755))?;
        Ok(open_dir(&self.directory, &name)?)
    }

    /// Removes the group of the run `run`; tells whether it is gone, which it is not while a process is in it.
    pub(super) fn remove_group(&self, run: u64) -> bool {
        is_removed(&self.directory, &group_name(run))
    }

    /// Reads a file of the group of the run `run`.
    ///
    /// # Errors
    /// `ENOENT` when there is no such group.
    pub(super) fn read(&self, run: u64, file: &str) -> io::Result<String> {
        read(&self.directory, &format!("{}/{file}", group_name(run)))
    }

    /// Kills what is left in the groups, and removes them and the directory; tells whether all is gone.
    pub(super) fn remove(&self) -> bool {
        clear(&self.directory) && is_removed(&self.parent, &self.name)
    }
}

/// Reads a small file below `directory`.
///
/// # Errors
/// As `open(2)` and `read(2)`.
pub(super) fn read(directory: impl AsFd, file: &str) -> io::Result<String> {
    let file = openat(directory, file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(std::fs::File::from(file), FILE_BYTES_MAX as u64), &mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Writes a setting below `directory`.
///
/// # Errors
/// As `open(2)` and `write(2)`.
pub(super) fn write(directory: impl AsFd, file: &str, value: &str) -> io::Result<()> {
    let file = openat(directory, file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, value.as_bytes())?;
    Ok(())
}

/// The names of the directories below `directory`.
///
/// # Errors
/// As `getdents(2)`.
pub(super) fn groups_below(directory: impl AsFd) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy();
        if entry.file_type().is_dir() && name != "." && name != ".." {
            names.push(name.into_owned());
        }
    }
    Ok(names)
}

/// The processes that a `cgroup.procs` names; 0 stands for one of another process namespace.
pub(super) fn processes(directory: impl AsFd) -> io::Result<Vec<i32>> {
    let text = read(directory, "cgroup.procs")?;
    Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
}

fn group_name(run: u64) -> String {
    format!("{RUN}{run}")
}

/// Opens a directory through no link.
fn open_dir(at: impl AsFd, path: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(at, path, flags, Mode::empty())
}

fn is_removed(parent: &OwnedFd, name: &str) -> bool {
    matches!(unlinkat(parent, name, AtFlags::REMOVEDIR), Ok(()) | Err(rustix::io::Errno::NOENT))
}

/// Removes what dead launchers left below `parent`.
fn sweep(parent: &OwnedFd) {
    for name in groups_below(parent).unwrap_or_default() {
        let Some((pid, start)) = owner(&name) else { continue };
        // In the moment before it is locked, a directory has its owner's life to speak for it.
        let lives = start_time(pid).is_some_and(|time| time == start);
        let Ok(directory) = open_dir(parent, &name) else { continue };
        if lives || flock(&directory, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        if clear(&directory) {
            let _ = is_removed(parent, &name);
        }
    }
}

/// Kills what is in the groups of runs below `base` and removes them; tells whether all are gone.
fn clear(base: &OwnedFd) -> bool {
    let mut gone = true;
    for name in groups_below(base).unwrap_or_default() {
        if !name.starts_with(RUN) {
            continue;
        }
        if let Ok(group) = open_dir(base, &name) {
            end(&group);
        }
        gone &= is_removed(base, &name);
    }
    gone
}

/// Kills everything in a group: at once where the kernel can (version 2, Linux 5.14), one by one elsewhere.
fn end(group: &OwnedFd) {
    if write(group, "cgroup.kill", "1").is_ok() {
        return;
    }
    for pid in processes(group).unwrap_or_default().into_iter().filter(|pid| *pid > 1) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

/// The launcher that a directory is named after: its process id and start time.
fn owner(name: &str) -> Option<(u32, u64)> {
    let (pid, start) = name.strip_prefix(PREFIX)?.split_once('-')?;
    Some((pid.parse().ok()?, start.parse().ok()?))
}

/// When a process started, in clock ticks since boot (proc_pid_stat(5), field 22).
fn start_time(pid: u32) -> Option<u64> {
    let path: PathBuf = format!("/proc/{pid}/stat").into();
    let stat = std::fs::read_to_string(path).ok()?;
    // The name of the program comes second, in parentheses, and may have blanks and parentheses in it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_names_are_recognised() {
        assert_eq!(owner("filesecbox-12-345"), Some((12, 345)));
        for other in ["filesecbox-service", "filesecbox-12", "filesecbox-a-1", "docker", "xfilesecbox-1-2"] {
            assert_eq!(owner(other), None, "{other}");
        }
    }

    #[test]
    fn a_process_has_a_start_time_and_an_absent_one_has_none() {
        assert!(start_time(std::process::id()).is_some_and(|ticks| ticks > 0));
        assert_eq!(start_time(u32::MAX), None);
    }
}
