//! What a run reads of `/proc` about its own processes: lists of their open files and threads, and files that tell of their state.
//!
//! A Landlock rule would open one process, or all. So these are opened here, and handed over; browsers do not start without the
//! lists. Landlock goes on judging what a program opens beneath a list, so that it has the names in there and nothing else.
//!
//! A program that opens `/proc` itself, to begin other paths there, gets a directory of the run's own in which there is nothing
//! but `self`.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2, symlinkat};
use rustix::io::Errno;

use super::beneath::path_of;
use super::target::Target;
use super::temporary::Temporary;

const PROC: &str = "/proc";
/// What stands for it, in the run's directory for temporary files, and the name in there.
const STANDS: &str = ".proc";
const OWN: &str = "self";
/// The directories of a process that only say what it has, and the files that say how it is.
const LISTS: [&str; 3] = ["fd", "fdinfo", "task"];
const FILES: [&str; 7] = ["cmdline", "comm", "limits", "maps", "stat", "statm", "status"];
/// How much is read of what `/proc` tells of a process, in bytes; its number and its group are at the beginning.
const STAT_BYTES: usize = 512;

/// What a path in `/proc` names.
#[derive(Debug, PartialEq, Eq)]
enum Named<'a> {
    Root,
    /// A list or file of the caller's own process.
    Own(&'a str),
    /// A list or file of the process of this number.
    Of(i32, &'a str),
}

/// Opens `path`, which begins at `from`, for the caller to read; `None` where the kernel is to judge.
///
/// `group` is that of the run's processes.
///
/// # Errors
/// `EPERM` when the process hides itself (PR_SET_DUMPABLE(2const)). Otherwise as `openat(2)`.
pub(super) fn open(
    (target, group): (&Target, i32),
    temporary: Option<&Temporary>,
    (from, path): (i32, &str),
    flags: OFlags,
) -> Result<Option<OwnedFd>, Errno> {
    let whole;
    let path = match temporary {
        Some(temporary) if !path.starts_with('/') && from != libc::AT_FDCWD => {
            if !is_stand_in(temporary, &target.descriptor(from)?)? {
                return Ok(None);
            }
            whole = format!("{PROC}/{path}");
            &whole
        }
        _ => path,
    };
    let (number, entry) = match (parse(path), temporary) {
        // opendir(3) has both flags: what lists processes is refused, and does not find that there are none.
        (Some(Named::Root), Some(temporary))
            if flags & (OFlags::DIRECTORY | OFlags::NONBLOCK) == OFlags::DIRECTORY =>
        {
            return stand_in(temporary).map(Some);
        }
        (Some(Named::Own(entry)), _) => (target.process()?, entry),
        (Some(Named::Of(number, entry)), _) => (number, entry),
        _ => return Ok(None),
    };
    let place = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(process) = openat(CWD, format!("{PROC}/{number}"), place, Mode::empty()) else { return Ok(None) };
    if group_of(&process) != Some(group) {
        return Ok(None);
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | (flags & OFlags::DIRECTORY);
    let opened = openat(&process, entry, flags, Mode::empty());
    opened.map(Some).map_err(|error| if error == Errno::ACCESS { Errno::PERM } else { error })
}

/// Makes what stands for `/proc`, where it is not there, and opens it.
fn stand_in(temporary: &Temporary) -> Result<OwnedFd, Errno> {
    let exists = |error| if error == Errno::EXIST { Ok(()) } else { Err(error) };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    temporary.act(|directory| {
        mkdirat(directory, STANDS, Mode::RWXU).or_else(exists)?;
        let place = openat2(directory, STANDS, flags, Mode::empty(), resolve)?;
        symlinkat(format!("{PROC}/{OWN}"), &place, OWN).or_else(exists)?;
        Ok(place)
    })
}

/// Tells whether a descriptor of the caller is what stands for `/proc`.
fn is_stand_in(temporary: &Temporary, found: &OwnedFd) -> Result<bool, Errno> {
    let place = path_of(found.as_fd())?;
    let Some(above) = place.strip_suffix(STANDS.as_bytes()) else { return Ok(false) };
    Ok(above.strip_suffix(b"/") == Some(path_of(temporary.directory())?.as_slice()))
}

fn parse(path: &str) -> Option<Named<'_>> {
    let mut names = path.split('/').filter(|name| !name.is_empty());
    let (first, second, third, fourth) = (names.next()?, names.next(), names.next(), names.next());
    if !path.starts_with('/') || fourth.is_some() {
        return None;
    }
    let entry = |name: &str| LISTS.into_iter().chain(FILES).find(|entry| *entry == name);
    match (first, second, third) {
        ("dev", Some("fd"), None) => Some(Named::Own("fd")),
        ("proc", None, None) => Some(Named::Root),
        ("proc", Some("self" | "thread-self"), Some(name)) => Some(Named::Own(entry(name)?)),
        ("proc", Some(number), Some(name)) => {
            let number = number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse().ok())??;
            Some(Named::Of(number, entry(name)?))
        }
        _ => None,
    }
}

/// The group of the process whose directory of `/proc` this is (proc_pid_stat(5)).
fn group_of(process: &OwnedFd) -> Option<i32> {
    let file = openat(process, "stat", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = [0; STAT_BYTES];
    let length = rustix::io::read(&file, &mut text).ok()?;
    let text = String::from_utf8_lossy(text.get(..length)?);
    // A program chooses its name, which stands before in brackets.
    let (_, fields) = text.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lists_files_and_the_root_are_named_however_they_are_written() {
        for (path, named) in [
            ("/proc", Some(Named::Root)),
            ("//proc/", Some(Named::Root)),
            ("/proc/self/fd/", Some(Named::Own("fd"))),
            ("/proc/thread-self//task", Some(Named::Own("task"))),
            ("/dev/fd", Some(Named::Own("fd"))),
            ("/proc/17/fdinfo", Some(Named::Of(17, "fdinfo"))),
            ("/proc/self/status", Some(Named::Own("status"))),
            ("/proc/self/environ", None),
            ("/proc/self/mountinfo", None),
            ("/proc/self", None),
            ("/proc/17", None),
            ("/proc/self/ns", None),
            ("/proc/self/fd/3", None),
            ("/proc/../proc/self/fd", None),
            ("/proc/+7/fd", None),
            ("/proc/99999999999/fd", None),
            ("proc/self/fd", None),
            ("/dev", None),
            ("", None),
        ] {
            assert_eq!(parse(path), named, "{path}");
        }
    }
}
