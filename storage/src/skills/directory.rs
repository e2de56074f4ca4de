//! A directory of a tree as an archive, in one piece: in by [`Skills::unpack_directory`], out by [`Skills::pack_directory`].

use std::fs::File;

use policy::{ArchiveLimits, RelPath, TreeId};

use super::archive::{self, Charset, Compression, Options};
use super::download::Packing;
use crate::core::spool::Spool;
use crate::error::Result;
use crate::skills::Skills;
use crate::version::Version;

pub use super::archive::PackFormat;

/// What came out of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnpackedDirectory {
    /// Files, at any depth.
    pub files: usize,
    /// Bytes in them.
    pub bytes: u64,
}

impl Skills {
    /// Unpacks the archive in `file` (ZIP, tar, tar.gz, tar.zst) as the directory `to`, where nothing may be. Links become what they lead
    /// to in the archive; one that leads out of it is refused. What a compressed tar takes meanwhile counts for the user of the tree.
    ///
    /// After an error, and after a crash, nothing is there.
    ///
    /// # Errors
    /// [`Error::Archive`](crate::Error::Archive), [`Error::AlreadyExists`](crate::Error::AlreadyExists),
    /// [`Error::NotFound`](crate::Error::NotFound) without the directory above, unless `parents`; [`Error::Quota`](crate::Error::Quota),
    /// [`Error::Full`](crate::Error::Full), [`Error::NoSpace`](crate::Error::NoSpace), [`Error::Io`](crate::Error::Io); those of
    /// [`crate::interrupt::check`].
    pub fn unpack_directory(
        &self,
        id: &TreeId,
        to: &RelPath,
        file: &File,
        charset: Charset,
        limits: &ArchiveLimits,
        parents: bool,
    ) -> Result<UnpackedDirectory> {
        let plain = match Compression::of(file)? {
            None => None,
            Some(compression) => {
                let mut plain = self.store.spool(id.user())?;
                compression.unpack(file, limits, |bytes| plain.write(bytes))?;
                Some(plain)
            }
        };
        let archive = plain.as_ref().map_or(file, Spool::file);
        let whole =
            archive::plan_whole(archive, &Options { limits: limits.clone(), charset, file_name: None })?;
        let (files, bytes) = (whole.files, whole.bytes);
        let fill = |dir: &_| archive::extract_whole(archive, &whole, dir).map(drop);
        self.store.files(id.clone()).make_filled_dir(to, parents, whole.taken(), fill)?;
        Ok(UnpackedDirectory { files, bytes })
    }

    /// Packs the directory `from` of a tree, or of a published `version` of a skill, into a spool of its user and returns it with its
    /// size in bytes, at its beginning. Names are relative to the directory. A link to a file of the tree becomes that file; other links are left out.
    ///
    /// # Errors
    /// As [`Skills::pack`]; [`Error::NotADirectory`](crate::Error::NotADirectory).
    pub fn pack_directory(
        &self,
        id: &TreeId,
        version: Option<&Version>,
        from: &RelPath,
        format: PackFormat,
    ) -> Result<(Spool, u64)> {
        self.packed(&Packing { format, version, ..Packing::new(id, from) })
            .map(|(spool, bytes, _)| (spool, bytes))
    }
}
