//! Directories of trees in and out as archives.

use policy::{RelPath, TreeId};
use storage::archive::{Charset, PackFormat};
use storage::{Spool, UnpackedDirectory};

use super::Service;
use super::admission::holds::Mode;
use super::admission::{Job, Weight};
use super::error::Result;
use super::seen::Seen;

impl Service {
    /// Packs a directory of a tree, or of a published version of a skill. Returns a spool of the archive and its size in bytes.
    ///
    /// # Errors
    /// As [`storage::Skills::pack_directory`].
    pub async fn pack_directory(
        &self,
        Seen { id, version }: Seen,
        from: RelPath,
        format: PackFormat,
    ) -> Result<(Spool, u64)> {
        let (store, job) = (self.store.clone(), Job::on(&id, Weight::Long, Mode::LongRead));
        self.work(job, move || Ok(store.skills().pack_directory(&id, version.as_ref(), &from, format)?)).await
    }

    /// Unpacks an archive as a new directory of a tree.
    ///
    /// # Errors
    /// As [`storage::Skills::unpack_directory`].
    pub async fn unpack_directory(
        &self,
        id: TreeId,
        to: RelPath,
        archive: Spool,
        charset: Charset,
        parents: bool,
    ) -> Result<UnpackedDirectory> {
        let (store, limits) = (self.store.clone(), self.archive_limits.clone());
        let job = Job::on(&id, Weight::Long, Mode::LongChange);
        let unpack = move || {
            Ok(store.skills().unpack_directory(&id, &to, archive.file(), charset, &limits, parents)?)
        };
        self.work(job, unpack).await
    }
}
