//! Copying files, for copy-up, for moves of merged directories and for runs.

use std::fs::File;
use std::io::{self, Read, Write};

use rustix::fs::{Timespec, Timestamps, UTIME_OMIT};

use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::stat::{Kind, Stat};
use crate::union::layers::{Found, Layers};

/// Copies everything in the merged directory `from` into the empty directory `into`, which is one of at most
/// `levels` levels. All of it belongs to `owner`; `None` keeps the service's own.
///
/// # Errors
/// [`Error::TooManyEntries`] when it is deeper; [`Error::NoSpace`], [`Error::Io`].
pub(crate) fn copy_tree(from: &Layers, into: &Dir, owner: Option<u32>, levels: usize) -> Result<()> {
    let Some(levels) = levels.checked_sub(1) else {
        return Err(Error::TooManyEntries(crate::dir::DEPTH_MAX));
    };
    for child in from.children()? {
        match from.lookup(&child.name)? {
            Some(Found::Directory(dirs, stat, _)) => {
                // The mode comes last: it may keep the service itself from filling the directory.
                let made = into.create_dir(&child.name, stat.mode | 0o700)?;
                copy_tree(&dirs, &made, owner, levels)?;
                made.set_mode(stat.mode)?;
            }
            Some(Found::Leaf(stat, layer)) if stat.kind == Kind::File => {
                let (file, stat) = from.at(layer)?.open_file_entry(&child.name)?;
                copy_file(file, &into.create_file(&child.name, stat.mode & 0o777)?, &stat)?;
            }
            Some(Found::Leaf(stat, layer)) if stat.kind == Kind::Symlink => {
                into.create_symlink(&from.at(layer)?.read_link(&child.name)?, &child.name)?;
            }
            _ => continue,
        }
        if let Some(owner) = owner {
            into.set_entry_owner(&child.name, owner)?;
        }
    }
    Ok(())
}

/// Copies the content and the modification time of `from` as `stat` has them; the kernel copies without passing bytes
/// through us.
///
/// What a command adds meanwhile is left out: it may add more than anybody has counted.
pub(crate) fn copy_file(from: File, mut to: &File, stat: &Stat) -> Result<()> {
    io::copy(&mut from.take(stat.size), &mut to).map_err(|error| Error::from_io("copy", "file", error))?;
    to.flush().map_err(|error| Error::from_io("copy", "file", error))?;
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec {
            tv_sec: i64::try_from(stat.modified_ns.div_euclid(1_000_000_000)).unwrap_or(0),
            tv_nsec: i64::try_from(stat.modified_ns.rem_euclid(1_000_000_000)).unwrap_or(0),
        },
    };
    rustix::fs::futimens(to, &times).map_err(|errno| Error::from_errno("utimens", "file", errno))
}

#[cfg(test)]
mod tests {
    use std::io::Seek;

    use super::*;

    #[test]
    fn a_file_that_grows_while_it_is_copied_is_copied_as_large_as_it_was() {
        let (mut from, to) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        from.write_all(b"first").unwrap();
        let stat = Stat::from(rustix::fs::fstat(&from).unwrap());
        from.write_all(b" and more").unwrap();
        from.rewind().unwrap();
        copy_file(from, &to, &stat).unwrap();
        let copied = Stat::from(rustix::fs::fstat(&to).unwrap());
        assert_eq!((copied.size, copied.modified_ns), (5, stat.modified_ns));
    }
}
