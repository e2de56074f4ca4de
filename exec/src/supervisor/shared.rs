//! What stands for `/dev/shm` of a run that sees the host's.
//!
//! `sem_open(3)` and `shm_open(3)` keep semaphores and shared memory in files of that directory. Those of the host are not for
//! runs, so `/dev/shm/NAME` is the file `shm-NAME` in the run's directory for temporary files, whose disk space counts for the
//! user. It is opened beneath one of the run's own directories, through no link, with the ids of the run and behind its walls.

use std::os::fd::OwnedFd;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, fcntl_getfl, fcntl_setfl, fstat, linkat, openat2, unlinkat,
};
use rustix::io::Errno;

use super::temporary::Temporary;

const SHARED: &[u8] = b"/dev/shm/";
const PREFIX: &[u8] = b"shm-";
/// The longest name, in bytes: that of a file, without the prefix.
const NAME_BYTES_MAX: usize = 251;
/// The flags of a caller that count. A file that is new with `O_EXCL` or not at all, and none is shortened without being asked.
const FLAGS: OFlags = OFlags::RDWR.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::TRUNC);
/// Read and write; nothing runs from there.
const MODE: u32 = 0o666;

/// The name of the file that stands for `path`; `None` for a path elsewhere.
pub(super) fn name(path: &[u8]) -> Option<Vec<u8>> {
    let name = path.strip_prefix(SHARED)?;
    let is_one = !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.contains(&b'/');
    is_one.then(|| [PREFIX, name].concat())
}

/// Opens a file.
///
/// # Errors
/// As `openat2(2)`. `EACCES` for what is no regular file.
pub(super) fn open(temporary: &Temporary, name: &[u8], flags: OFlags, mode: u32) -> Result<OwnedFd, Errno> {
    // Without waiting: a planted pipe, or a lease on a file, would hold up all calls of the run.
    let own = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let mode = Mode::from_raw_mode(if flags.contains(OFlags::CREATE) { mode & MODE } else { 0 });
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let file = temporary.act(|directory| openat2(directory, name, flags & FLAGS | own, mode, resolve))?;
    if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
        return Err(Errno::ACCESS);
    }
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

/// Gives a file another name.
///
/// # Errors
/// As `linkat(2)`.
pub(super) fn link(temporary: &Temporary, name: &[u8], new: &[u8]) -> Result<(), Errno> {
    temporary.act(|directory| linkat(directory, name, directory, new, AtFlags::empty()))
}

/// Takes a name away.
///
/// # Errors
/// As `unlinkat(2)`.
pub(super) fn unlink(temporary: &Temporary, name: &[u8]) -> Result<(), Errno> {
    temporary.act(|directory| unlinkat(directory, name, AtFlags::empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_below_the_directory() {
        assert_eq!(name(b"/dev/shm/sem.a"), Some(b"shm-sem.a".to_vec()));
        assert_eq!(name(b"/dev/shm/.."), Some(b"shm-..".to_vec()));
        for path in
            [&b"/dev/shm/"[..], b"/dev/shm", b"/dev/shm/a/b", b"/dev/shm//a", b"dev/shm/a", b"/dev/null"]
        {
            assert_eq!(name(path), None);
        }
        assert_eq!(name(&[SHARED, &[b'x'; 252]].concat()), None);
    }
}
