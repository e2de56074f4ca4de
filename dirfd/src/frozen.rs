//! What is known of files that never change, and may get and lose names.
//!
//! The change time of a file moves with each name that it gets or loses (inode(7)). Who knows that nothing writes into a file
//! tells it from others by the time of its birth: another file with the same inode number was born later.

use std::ffi::OsStr;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, FileType, Mode, Statx, StatxFlags, StatxTimestamp, makedev};
use rustix::io::Errno;

use crate::dir::{Dir, segment, shown};
use crate::error::{Error, Result};
use crate::stat::{BLOCK_BYTES, Kind, Stat};

/// What is asked of the kernel.
const WANTED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

/// What an open file is that never changes: as `stat`, with the time of its birth for its change time. Where the file system keeps no such
/// time, or the kernel is not to be asked for it, `stat` itself.
#[must_use]
pub fn frozen(file: impl AsFd, stat: Stat) -> Stat {
    if stat.kind != Kind::File {
        return stat;
    }
    let asked = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::BTIME);
    match asked.ok().and_then(|found| born_ns(&found)) {
        Some(born_ns) => Stat { changed_ns: born_ns, ..stat },
        None => stat,
    }
}

impl Dir {
    /// As [`Dir::stat_entry`], of a directory whose files never change: a file has the time of its birth for its change time, as
    /// [`frozen`] says.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn stat_frozen_entry(&self, name: &OsStr) -> Result<Option<Stat>> {
        let name = segment(name)?;
        match rustix::fs::statx(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW, WANTED) {
            Ok(found) => Ok(Some(facts(&found))),
            Err(Errno::NOENT) => Ok(None),
            // What keeps this program from some calls may not know this one (seccomp(2)).
            Err(Errno::NOSYS | Errno::PERM) => self.stat_entry(name),
            Err(errno) => Err(Error::from_errno("stat", shown(name), errno)),
        }
    }

    /// Tells whether the file system of this directory keeps the times at which files were born.
    #[must_use]
    pub fn keeps_births(&self) -> bool {
        let asked = rustix::fs::statx(&self.fd, "", AtFlags::EMPTY_PATH, StatxFlags::BTIME);
        asked.is_ok_and(|found| born_ns(&found).is_some())
    }
}

/// When a file was born, in nanoseconds since 1970; `None` where the file system does not keep that.
fn born_ns(found: &Statx) -> Option<i128> {
    let is_told = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
    is_told.then(|| nanoseconds(&found.stx_btime))
}

fn nanoseconds(time: &StatxTimestamp) -> i128 {
    i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
}

fn facts(found: &Statx) -> Stat {
    let mode = u32::from(found.stx_mode);
    let file_type = FileType::from_raw_mode(mode);
    let kind = Kind::from(file_type);
    let born_ns = born_ns(found).filter(|_| kind == Kind::File);
    Stat {
        kind,
        size: found.stx_size,
        allocated: found.stx_blocks.saturating_mul(BLOCK_BYTES),
        mode: Mode::from_raw_mode(mode).as_raw_mode() & 0o7777,
        modified_ns: nanoseconds(&found.stx_mtime),
        changed_ns: born_ns.unwrap_or_else(|| nanoseconds(&found.stx_ctime)),
        inode: found.stx_ino,
        links: found.stx_nlink.into(),
        owner: found.stx_uid,
        device: makedev(found.stx_rdev_major, found.stx_rdev_minor),
        is_character_device: file_type == FileType::CharacterDevice,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::fixture::fixture;

    #[test]
    #[expect(clippy::print_stderr, reason = "a test says what it does not look at")]
    fn a_file_that_never_changes_is_the_same_with_every_name_that_it_gets_and_loses() {
        let (_temp, dir) = fixture();
        if !dir.keeps_births() {
            eprintln!("SKIPPED: the file system keeps no times of birth");
            return;
        }
        let name = OsStr::new("a");
        dir.create_file(name, 0o644).unwrap().write_all(b"text").unwrap();
        let tag = || dir.stat_frozen_entry(name).unwrap().unwrap().etag();
        let (first, plain) = (tag(), dir.stat_entry(name).unwrap().unwrap());
        let (file, stat) = dir.open_file_entry(name).unwrap();
        assert_eq!(frozen(&file, stat.clone()).etag(), first);
        // The kernel's clock for files stands still for some milliseconds.
        while dir.stat_entry(name).unwrap().unwrap().changed_ns == plain.changed_ns {
            dir.link(&file, OsStr::new("b")).unwrap();
            dir.remove_file(OsStr::new("b")).unwrap();
        }
        dir.link(&file, OsStr::new("b")).unwrap();
        assert_eq!((tag(), dir.stat_frozen_entry(name).unwrap().unwrap().links), (first, 2));
    }

    #[test]
    fn the_two_ways_to_ask_differ_in_the_change_time_of_files_alone() {
        let (_temp, dir) = fixture();
        dir.create_file(OsStr::new("file"), 0o751).unwrap().write_all(b"text").unwrap();
        drop(dir.create_dir(OsStr::new("directory"), 0o755).unwrap());
        dir.create_symlink(OsStr::new("file"), OsStr::new("link")).unwrap();
        for name in ["file", "directory", "link"] {
            let plain = dir.stat_entry(OsStr::new(name)).unwrap().unwrap();
            let frozen = dir.stat_frozen_entry(OsStr::new(name)).unwrap().unwrap();
            if name != "file" {
                assert_eq!(frozen.changed_ns, plain.changed_ns, "{name}");
            }
            assert_eq!(Stat { changed_ns: plain.changed_ns, ..frozen }, plain, "{name}");
        }
        assert_eq!(dir.stat_frozen_entry(OsStr::new("none")).unwrap(), None);
    }
}
