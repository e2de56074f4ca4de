//! Copying files, for copy-up, for moves of merged directories and for runs.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::ops::Range;

use rustix::fs::{SeekFrom, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;

use crate::dir::{DEPTH_MAX, Dir};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::stat::{Kind, Layer, Stat};
use crate::tree::Room;
use crate::union::layers::{Found, Layers};
use crate::usage::Use;

/// Bytes that are copied between two looks whether the copy is still wanted.
const SPAN_BYTES: u64 = 16 * 1024 * 1024;

/// Copies everything in the merged directory `from` into the empty directory `into`, which is one of at most
/// `levels` levels. All of it belongs to `owner`; `None` keeps the service's own.
///
/// # Errors
/// [`Error::TooManyEntries`] when it is deeper; [`Error::NoSpace`], [`Error::Io`]; those of [`interrupt::check`].
pub(crate) fn copy_tree(from: &Layers, into: &Dir, owner: Option<u32>, levels: usize) -> Result<()> {
    let Some(levels) = levels.checked_sub(1) else {
        return Err(Error::TooManyEntries(DEPTH_MAX));
    };
    for child in from.children()? {
        interrupt::check()?;
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

/// What a copy takes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CopiedUse {
    /// All of it.
    pub(crate) all: Use,
    /// What is of the upper layer.
    pub(crate) of_upper: Use,
    /// What is left of it when the upper layer's part of what was copied goes: the lower layer's part, and files of the
    /// upper one that have names elsewhere.
    pub(crate) stays: Use,
}

/// What a copy of everything in the merged directory `from` takes: each name by itself, because a copy shares nothing,
/// also those that cannot be spelled. Of a tree whose files belong to `owner`, at most `entries` entries.
///
/// # Errors
/// [`Error::Escape`] for somebody else's file that a command linked in; [`Error::TooManyEntries`]; those of
/// [`interrupt::check`].
pub(crate) fn taken_by_copy(from: &Layers, owner: Option<u32>, entries: usize) -> Result<CopiedUse> {
    let (mut room, mut taken) = (Room::of_entries(entries), CopiedUse::default());
    count_copy(from, owner, &mut room, &mut taken, DEPTH_MAX)?;
    Ok(taken)
}

fn count_copy(
    from: &Layers,
    owner: Option<u32>,
    room: &mut Room,
    taken: &mut CopiedUse,
    levels: usize,
) -> Result<()> {
    let levels = levels.checked_sub(1).ok_or(Error::TooManyEntries(DEPTH_MAX))?;
    let children = from.children()?;
    room.take_entries(children.len())?;
    for child in children {
        interrupt::check()?;
        let found = match from.lookup(&child.name) {
            // A command that has the view mounted removed or replaced it meanwhile.
            Ok(None) | Err(Error::NotFound(_) | Error::NotADirectory(_) | Error::Escape(_)) => continue,
            found => found?,
        };
        let Some(found) = found else { continue };
        let (stat, layer) = match &found {
            Found::Directory(_, stat, layer) | Found::Leaf(stat, layer) => (stat, *layer),
        };
        if stat.kind == Kind::File && stat.links > 1 && owner.is_some_and(|owner| stat.owner != owner) {
            return Err(Error::Escape(child.name.to_string_lossy().into_owned()));
        }
        let own = Use { bytes: stat.allocated, files: 1 };
        taken.all = taken.all.plus(own);
        if layer != Layer::Baseline {
            taken.of_upper = taken.of_upper.plus(own);
        }
        if layer == Layer::Baseline || (stat.kind == Kind::File && stat.links > 1) {
            taken.stays = taken.stays.plus(own);
        }
        if let Found::Directory(below, ..) = &found {
            count_copy(below, owner, room, taken, levels)?;
        }
    }
    Ok(())
}

/// Copies the content and the modification time of `from` as `stat` has them; the kernel copies without passing bytes
/// through us.
///
/// A copy takes no more than was counted: holes stay holes, and what a command adds meanwhile is left out.
pub(crate) fn copy_file(from: File, to: &File, stat: &Stat) -> Result<()> {
    if stat.allocated < stat.size {
        copy_data(&from, to, stat.size)?;
    } else {
        copy_span(&from, to, 0..stat.size)?;
    }
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec {
            tv_sec: i64::try_from(stat.modified_ns.div_euclid(1_000_000_000)).unwrap_or(0),
            tv_nsec: i64::try_from(stat.modified_ns.rem_euclid(1_000_000_000)).unwrap_or(0),
        },
    };
    rustix::fs::futimens(to, &times).map_err(|errno| Error::from_errno("utimens", "file", errno))
}

/// Copies what is data of the first `size` bytes of `from` (lseek(2), `SEEK_DATA`).
fn copy_data(from: &File, to: &File, size: u64) -> Result<()> {
    let mut at = 0;
    while at < size {
        let data = match rustix::fs::seek(from, SeekFrom::Data(at)) {
            Ok(data) => data,
            // None is left.
            Err(Errno::NXIO) => break,
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return copy_span(from, to, at..size),
            Err(errno) => return Err(Error::from_errno("seek", "file", errno)),
        };
        if data >= size {
            break;
        }
        let hole = rustix::fs::seek(from, SeekFrom::Hole(data))
            .map_err(|errno| Error::from_errno("seek", "file", errno))?
            .min(size);
        copy_span(from, to, data..hole)?;
        // It always grows: a hole comes after the data that was asked about.
        at = hole.max(data.saturating_add(1));
    }
    // The hole at the end, unless the file was cut meanwhile.
    let length = size.min(from.metadata().map_err(failed)?.len());
    if to.metadata().map_err(failed)?.len() < length { to.set_len(length).map_err(failed) } else { Ok(()) }
}

fn copy_span(mut from: &File, mut to: &File, span: Range<u64>) -> Result<()> {
    from.seek(io::SeekFrom::Start(span.start)).map_err(failed)?;
    to.seek(io::SeekFrom::Start(span.start)).map_err(failed)?;
    let mut left = span.end.saturating_sub(span.start);
    while left > 0 {
        interrupt::check()?;
        let most = left.min(SPAN_BYTES);
        let copied = io::copy(&mut from.take(most), &mut to).map_err(failed)?;
        // The file was cut meanwhile.
        if copied < most {
            break;
        }
        left -= copied;
    }
    Ok(())
}

fn failed(error: io::Error) -> Error {
    Error::from_io("copy", "file", error)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn holes_of_a_file_stay_holes_in_its_copy() {
        let (from, to) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let size = 64 * 1024 * 1024 + 5;
        from.set_len(size).unwrap();
        from.write_all_at(b"begins", 1).unwrap();
        from.write_all_at("中".as_bytes(), 32 * 1024 * 1024).unwrap();
        let of = |file: &File| Stat::from(rustix::fs::fstat(file).unwrap());
        copy_file(from.try_clone().unwrap(), &to, &of(&from)).unwrap();
        assert_eq!(of(&to).size, size);
        assert!(of(&to).allocated < 1024 * 1024, "{}", of(&to).allocated);
        let whole = |file: &File| {
            let mut bytes = vec![0; usize::try_from(size).unwrap()];
            file.read_exact_at(&mut bytes, 0).unwrap();
            bytes
        };
        assert!(whole(&to) == whole(&from));
    }

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
