//! [`Packages`]: where the files of versions come from.

use std::sync::Arc;

use async_trait::async_trait;
use policy::VersionId;
use sandbox::ByteStream;

use crate::ops::error::Result;

/// The packages that a round may deploy.
#[async_trait]
pub trait Packages: Send + Sync {
    /// Brings packages near that are to be unpacked, several at once. Those that are not there are left out.
    ///
    /// # Errors
    /// A package cannot be brought.
    async fn bring(&self, versions: &[VersionId]) -> Result<()> {
        let _near_already = versions;
        Ok(())
    }

    /// Unpacks the package of a version aside. `None` when there is none, or when the round may not have it.
    ///
    /// # Errors
    /// The package cannot be unpacked whole.
    async fn unpack(&self, version: &VersionId) -> Result<Option<Arc<dyn Package>>>;

    /// Makes the package of a version the directory `into` of the round's workspace in one step, where packages and workspace lie
    /// in one store.
    ///
    /// # Errors
    /// As [`Packages::unpack`]; something is at `into`, or there is no room. Nothing of it is there then.
    async fn place(&self, version: &VersionId, into: &str) -> Result<Placing> {
        let _ = (version, into);
        Ok(Placing::ByFiles)
    }
}

/// What became of placing a package in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placing {
    /// It is there.
    Whole,
    /// There is none, or the round may not have it.
    Absent,
    /// The workspace lies elsewhere: the package is to be unpacked and written file by file.
    ByFiles,
}

/// The files of one version, which were judged when they were unpacked: paths are relative, without `..`, and none is a link.
#[async_trait]
pub trait Package: Send + Sync {
    /// Everything in it; a directory comes before what is in it.
    fn entries(&self) -> &[PackageEntry];

    /// The bytes of a file.
    ///
    /// # Errors
    /// The file cannot be read.
    async fn open(&self, path: &str) -> Result<ByteStream>;
}

/// A file or directory of a package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageEntry {
    /// Its path in the package.
    pub path: String,
    /// What it is.
    pub kind: EntryKind,
}

/// The kind of an entry of a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A directory.
    Directory,
    /// A file with these permission bits.
    File {
        /// 0644 or 0755.
        mode: u32,
    },
}
