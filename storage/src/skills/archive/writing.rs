//! [`Writing`]: a file that comes out of an archive, written or taken from the version before.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;

use policy::RelPath;
use rustix::fs::{Timespec, Timestamps, UTIME_OMIT};

use super::tree::PackedFile;
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::layers::copy::copy_span;
use crate::layers::sharing::{Predecessor, share};
use crate::stat::Stat;

/// Bytes of the version before that are compared at once.
const COMPARED_BYTES: usize = 64 * 1024;

/// One file of an archive on its way. As long as its bytes are those that the version before has at its path, nothing is written.
pub(super) struct Writing<'a> {
    into: &'a Dir,
    path: &'a RelPath,
    packed: &'a PackedFile,
    so_far: SoFar,
}

enum SoFar {
    /// The first `done` bytes are those of the version before.
    Same {
        file: File,
        stat: Stat,
        done: u64,
    },
    Written(File),
}

impl<'a> Writing<'a> {
    /// Begins with no byte. `into` is the root of a tree that nobody else can reach.
    ///
    /// # Errors
    /// Those of [`Dir::create_file_beneath`].
    pub(super) fn begin(
        predecessor: Option<&Predecessor>,
        into: &'a Dir,
        path: &'a RelPath,
        packed: &'a PackedFile,
    ) -> Result<Self> {
        let so_far =
            match predecessor.and_then(|predecessor| predecessor.alike(path, packed.mode, packed.size)) {
                Some((file, stat)) => SoFar::Same { file, stat, done: 0 },
                None => SoFar::Written(into.create_file_beneath(path, packed.mode)?),
            };
        Ok(Self { into, path, packed, so_far })
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Io`].
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<()> {
        if let SoFar::Same { file, done, .. } = &mut self.so_far {
            if has(file, *done, bytes) {
                *done += bytes.len() as u64;
                return Ok(());
            }
            self.so_far = SoFar::Written(self.written_so_far()?);
        }
        match &mut self.so_far {
            SoFar::Written(file) => {
                file.write_all(bytes).map_err(|error| Error::from_io("write", self.path, error))
            }
            SoFar::Same { .. } => Ok(()),
        }
    }

    /// Ends the file. One that was written gets the modification time that the archive has for it; one that is as before keeps its own.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Io`].
    pub(super) fn end(self) -> Result<()> {
        if let SoFar::Same { file, stat, .. } = &self.so_far {
            let parent = self.path.parent().unwrap_or_else(RelPath::root);
            let name = OsStr::new(self.path.file_name().unwrap_or_default());
            if share(file, stat, &self.into.open_dir(&parent)?, name)? {
                return Ok(());
            }
        }
        let written = match &self.so_far {
            SoFar::Same { .. } => &self.written_so_far()?,
            SoFar::Written(file) => file,
        };
        set_modified(written, self.packed.modified, self.path)
    }

    /// A file of its own with the bytes that came so far.
    fn written_so_far(&self) -> Result<File> {
        let written = self.into.create_file_beneath(self.path, self.packed.mode)?;
        if let SoFar::Same { file, done, .. } = &self.so_far {
            copy_span(file, &written, 0..*done)?;
        }
        Ok(written)
    }
}

/// Tells whether `file` has these bytes at `offset`. What cannot be read is not the same.
fn has(file: &File, mut offset: u64, bytes: &[u8]) -> bool {
    let mut buffer = [0; COMPARED_BYTES];
    bytes.chunks(COMPARED_BYTES).all(|piece| {
        let before = buffer.get_mut(..piece.len()).unwrap_or_default();
        let is_same = file.read_exact_at(before, offset).is_ok() && before == piece;
        offset += piece.len() as u64;
        is_same
    })
}

/// Gives a file the modification time that an archive has for it, in seconds since 1970.
pub(crate) fn set_modified(file: &File, modified: Option<i64>, path: &RelPath) -> Result<()> {
    let Some(seconds) = modified else { return Ok(()) };
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: seconds, tv_nsec: 0 },
    };
    rustix::fs::futimens(file, &times).map_err(|errno| Error::from_errno("utimens", path, errno))
}
