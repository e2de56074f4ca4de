//! [`Skills::pack_artifact`]: a skill as installers take it, in an archive that follows from its version.

use policy::{RelPath, TreeId, UserId};

use super::download::Packing;
use crate::core::spool::Spool;
use crate::error::{Error, Result};
use crate::skills::Skills;
use crate::skills::archive::{PackFormat, Packed};
use crate::version::Version;

/// The form of an artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArtifactForm {
    /// A ZIP with the files of the skill at its top.
    Flat,
    /// A tar.gz with the files of the skill in the directory `under`, behind the files `beside`.
    Within {
        /// Where the files of the skill stand.
        under: RelPath,
        /// Paths in the archive, and what is there.
        beside: Vec<(RelPath, Vec<u8>)>,
    },
}

/// A packed artifact.
pub struct Artifact {
    /// The archive, at its beginning.
    pub spool: Spool,
    /// Its size in bytes.
    pub bytes: u64,
    /// What is in it.
    pub content: Packed,
}

impl Skills {
    /// Packs a skill for strangers: `version` of it, or without one what the user of `id` sees. The archive counts for the user
    /// `account` while it is there, not for the user of `id`, and has no more than `bytes_max` bytes in its files.
    ///
    /// Equal versions become equal archives, as those of [`Skills::pack_version`] do.
    ///
    /// # Errors
    /// [`Error::Unpackable`] for more bytes; as [`Skills::pack`].
    pub fn pack_artifact(
        &self,
        id: &TreeId,
        version: Option<&Version>,
        form: &ArtifactForm,
        account: &UserId,
        bytes_max: u64,
    ) -> Result<Artifact> {
        if !matches!(id, TreeId::Skill(..)) {
            return Err(Error::NotFound(id.sandbox_path()));
        }
        let root = RelPath::root();
        let packing = Packing { account, bytes_max, version, is_plain: true, ..Packing::new(id, &root) };
        let packing = match form {
            ArtifactForm::Flat => packing,
            ArtifactForm::Within { under, beside } => {
                Packing { format: PackFormat::TarGz, under: Some(under), beside, ..packing }
            }
        };
        let (spool, bytes, content) = self.packed(&packing)?;
        Ok(Artifact { spool, bytes, content })
    }
}
