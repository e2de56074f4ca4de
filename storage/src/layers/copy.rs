//! Copying files, for copy-up, for moves of merged directories and for runs.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::ops::Range;

use rustix::fs::{SeekFrom, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::interrupt;
use crate::stat::Stat;

/// Bytes that are copied between two looks whether the copy is still wanted.
const SPAN_BYTES: u64 = 16 * 1024 * 1024;

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

/// Copies the bytes `span` of `from` to the same place in `to`, or as many as there are.
///
/// # Errors
/// [`Error::NoSpace`], [`Error::Io`]; those of [`interrupt::check`].
pub(crate) fn copy_span(mut from: &File, mut to: &File, span: Range<u64>) -> Result<()> {
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
