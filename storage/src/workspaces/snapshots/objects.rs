//! [`Objects`]: contents of files, each once, under its digest.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Seek;

use policy::UserId;

use super::OBJECTS;
use super::manifest::Digest;
use crate::core::growth::Growth;
use crate::core::store::Store;
use crate::core::usage::Admitted;
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::layers::copy_hashed::copy_hashed;
use crate::stat::Stat;
use crate::stat::Use;

/// How often a file is read again that changes while it is read.
pub(super) const TRIES: usize = 3;

/// The objects of one sandbox, to be added to.
pub(super) struct Objects<'a> {
    store: &'a Store,
    dir: Dir,
    /// The room that all snapshots of the sandbox take, with the added objects.
    taken: Use,
    /// The added objects, in bytes on the disk.
    pub(super) added_bytes: u64,
    /// The room that was promised for them among all that the user may have.
    admitted: Admitted,
    /// Bytes that may yet be read: a file can have far more than it takes on the disk.
    readable_bytes: u64,
}

/// A content that was put among the objects.
pub(super) struct Put {
    pub(super) digest: Digest,
    /// The file that it is of, as it was when it was read.
    pub(super) stat: Stat,
    /// Whether no process wrote to the file meanwhile.
    pub(super) is_settled: bool,
}

impl<'a> Objects<'a> {
    /// Those of `user` in `own`, of which all snapshots together take `taken`.
    pub(super) fn new(store: &'a Store, user: &UserId, own: &Dir, taken: Use) -> Result<Self> {
        let dir = own.ensure_dir(OsStr::new(OBJECTS))?;
        let readable_bytes = store.options().snapshots.bytes.saturating_mul(2);
        let admitted = Admitted::nothing(store, user);
        Ok(Self { store, dir, taken, added_bytes: 0, admitted, readable_bytes })
    }

    /// Keeps the content of `file`, reading it at most `tries` times until no process writes to it meanwhile.
    ///
    /// # Errors
    /// [`Error::Quota`], [`Error::Full`], [`Error::NoSpace`], [`Error::Io`].
    pub(super) fn put(&mut self, mut file: File, mut stat: Stat, tries: usize) -> Result<Put> {
        for left in (0..tries.max(1)).rev() {
            self.store.admit_space_for(stat.allocated)?;
            self.check(stat.allocated)?;
            let read = self.readable_bytes.checked_sub(stat.size);
            self.readable_bytes = read.ok_or_else(|| self.beyond_bytes(stat.size))?;
            let staged = self.store.stage().file(0o600, None)?;
            file.rewind().map_err(|error| Error::from_io("seek", "file", error))?;
            // A file that grows faster than it is read would be read for ever.
            let digest = Digest(*copy_hashed(&file, staged.file(), stat.size)?.as_bytes());
            let after: Stat =
                rustix::fs::fstat(&file).map_err(|errno| Error::from_errno("stat", "file", errno))?.into();
            let is_settled = after.etag() == stat.etag();
            if is_settled || left == 0 {
                let size = staged.stat()?;
                self.place(staged, digest, size.allocated)?;
                // The size is that of the content which was read, even when the file has another size by now.
                return Ok(Put { digest, stat: Stat { size: size.size, ..stat }, is_settled });
            }
            stat = after;
        }
        Err(Error::NotFound("file".to_owned()))
    }

    fn place(
        &mut self,
        staged: crate::layers::stage::StagedFile,
        digest: Digest,
        allocated: u64,
    ) -> Result<()> {
        let name = digest.hex();
        let above = self.dir.ensure_dir(OsStr::new(name.get(..2).unwrap_or_default()))?;
        if above.stat_entry(OsStr::new(&name))?.is_some() {
            return Ok(());
        }
        self.check(allocated)?;
        let adds = Use { bytes: allocated, files: 1 };
        self.admitted.add(&Growth { adds, takes: Use::default(), is_exact: true })?;
        staged.place(&above, OsStr::new(&name))?;
        self.taken = self.taken.plus(adds);
        self.added_bytes += allocated;
        Ok(())
    }

    /// Refuses a content of so many bytes when there would be too much.
    fn check(&self, bytes: u64) -> Result<()> {
        let limits = &self.store.options().snapshots;
        if self.taken.bytes.saturating_add(bytes) > limits.bytes {
            return Err(self.beyond_bytes(bytes));
        }
        if self.taken.files >= limits.files {
            return Err(Error::Quota {
                tree: "the snapshots of the workspace".to_owned(),
                setting: "limits.snapshots.files",
                unit: "files",
                used: self.taken.files,
                limit: limits.files,
                needs: 1,
            });
        }
        Ok(())
    }

    fn beyond_bytes(&self, needs: u64) -> Error {
        Error::Quota {
            tree: "the snapshots of the workspace".to_owned(),
            setting: "limits.snapshots.bytes",
            unit: "bytes",
            used: self.taken.bytes,
            limit: self.store.options().snapshots.bytes,
            needs,
        }
    }
}

/// Opens an object in `own`.
///
/// # Errors
/// [`Error::NotFound`], [`Error::Io`].
pub(super) fn open(own: &Dir, digest: Digest) -> Result<File> {
    let name = digest.hex();
    let objects = own.open_dir_entry(OsStr::new(OBJECTS))?;
    let above = objects.open_dir_entry(OsStr::new(name.get(..2).unwrap_or_default()))?;
    Ok(above.open_file_entry(OsStr::new(&name))?.0)
}
