//! Copying files, for copy-up, for moves of merged directories and for runs.

use std::fs::File;
use std::io::{self, Read, Write};

use rustix::fs::{Timespec, Timestamps, UTIME_OMIT};

use crate::error::{Error, Result};

/// Copies the content and the modification time of `from`; the kernel copies without passing bytes through us.
pub(crate) fn copy_file(mut from: File, mut to: &File, modified_ns: i128) -> Result<()> {
    io::copy(&mut Read::by_ref(&mut from), &mut to).map_err(|error| Error::from_io("copy", "file", error))?;
    to.flush().map_err(|error| Error::from_io("copy", "file", error))?;
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec {
            tv_sec: i64::try_from(modified_ns.div_euclid(1_000_000_000)).unwrap_or(0),
            tv_nsec: i64::try_from(modified_ns.rem_euclid(1_000_000_000)).unwrap_or(0),
        },
    };
    rustix::fs::futimens(to, &times).map_err(|errno| Error::from_errno("utimens", "file", errno))
}
