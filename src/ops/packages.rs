//! Packages of versions of skills: receiving them, giving them out, and unpacking them for a preparation.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{Stream, StreamExt, TryStreamExt};
use policy::{RelPath, UserId, VersionId, WorkspaceId};
use sandbox::{ByteStream, ErrorKind};
use sha2::{Digest, Sha256};
use storage::{PackageFacts, PutPackage, UnpackedPackage};
use tokio::runtime::Handle;

use super::Service;
use super::admission::permit_kind::PermitKind;
use super::admission::permits::Permits;
use super::admission::{Job, Owner, Weight};
use super::error::{Error, Result};
use super::pieces::pieces;
use super::prepare::{EntryKind, Package, PackageEntry, Packages, Placing, occupied};
use super::write::{Unwritten, gather};

/// Packages that are received at once.
const AT_ONCE: usize = 8;

/// Places for packages on their way in; a further one waits for `queue_ms` at most.
#[must_use]
pub fn permits(queue_ms: u64) -> Permits<Owner> {
    Permits::with(PermitKind::PACKAGES, AT_ONCE, AT_ONCE, Duration::from_millis(queue_ms))
}

impl Service {
    /// Receives the package of a version. `expected` is the SHA-256 that its sender says it has, in lower case.
    ///
    /// # Errors
    /// [`Unwritten::Sender`] for the first failure among `parts`; [`Error::Invalid`] for another digest;
    /// [`storage::Error::TooLarge`]; as [`storage::Store::put_package`].
    pub async fn put_package<E>(
        &self,
        version: VersionId,
        mut parts: impl Stream<Item = Result<Bytes, E>> + Unpin,
        expected: Option<String>,
    ) -> Result<PutPackage, Unwritten<E>> {
        let _permit = self.package_permits.take(&Owner::Operators).await?;
        let limit = self.archive_limits.upload_bytes;
        let store = self.store.clone();
        let mut file = self.of_operators(Weight::Light, move || Ok(store.unnamed_file()?)).await?;
        let (mut left, mut hasher) = (limit, Sha256::new());
        loop {
            let (some, is_last) = gather(&mut parts, &mut left, limit).await?;
            let store = self.store.clone();
            let append = move || {
                store.admit_space()?;
                for part in &some {
                    hasher.update(part);
                    file.write_all(part)
                        .map_err(|error| storage::Error::from_io("write", "package", error))?;
                }
                Ok((file, hasher))
            };
            (file, hasher) = self.of_operators(Weight::Light, append).await?;
            if is_last {
                break;
            }
        }
        let digest: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        if let Some(expected) = expected.filter(|expected| *expected != digest) {
            let message = format!(
                "the bytes have the digest `sha256:{digest}`, not `sha256:{expected}`: send them again"
            );
            return Err(Error::Invalid(message).into());
        }
        let (store, limits, total) =
            (self.store.clone(), self.archive_limits.clone(), self.preparations.packages_bytes());
        let put = move || Ok(store.put_package(&version, &file, &digest, &limits, total)?);
        Ok(self.of_operators(Weight::Long, put).await?)
    }

    /// Opens the package of a version.
    ///
    /// # Errors
    /// As [`storage::Store::package`].
    pub async fn package(&self, version: VersionId) -> Result<(File, PackageFacts)> {
        let store = self.store.clone();
        self.of_operators(Weight::Light, move || Ok(store.package(&version)?)).await
    }

    async fn of_operators<T: Send + 'static>(
        &self,
        weight: Weight,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.work(Job::about(None, weight), work).await
    }
}

/// The packages that this service keeps, for a workspace of `user`.
pub(super) struct Kept {
    pub(super) service: Arc<Service>,
    pub(super) user: UserId,
    /// The workspace, when it is in the same store.
    pub(super) workspace: Option<WorkspaceId>,
}

#[async_trait]
impl Packages for Kept {
    async fn unpack(&self, version: &VersionId) -> Result<Option<Arc<dyn Package>>> {
        let (store, limits) = (self.service.store.clone(), self.service.archive_limits.clone());
        let (version, user) = (version.clone(), self.user.clone());
        let unpack = move || match store.unpack_package(&version, &user, &limits) {
            Ok(unpacked) => Ok(Some(unpacked)),
            Err(storage::Error::NotFound(_)) => Ok(None),
            Err(error) => Err(error.into()),
        };
        let unpacked = self.service.work(Job::of(&self.user, Weight::Long), unpack).await?;
        Ok(unpacked.map(|unpacked| {
            let entry = |(path, mode): &(RelPath, Option<u32>)| PackageEntry {
                path: path.to_string(),
                kind: mode.map_or(EntryKind::Directory, |mode| EntryKind::File { mode }),
            };
            let entries = unpacked.paths().iter().map(entry).collect();
            let (service, user) = (Arc::clone(&self.service), self.user.clone());
            Arc::new(Unpacked { service, user, entries, files: Some(Arc::new(unpacked)) }) as Arc<dyn Package>
        }))
    }

    async fn place(&self, version: &VersionId, into: &str) -> Result<Placing> {
        let Some(workspace) = self.workspace.clone() else { return Ok(Placing::ByFiles) };
        let (store, limits) = (self.service.store.clone(), self.service.archive_limits.clone());
        let (version, into) = (version.clone(), RelPath::parse(into)?);
        let place = move || match store.deploy_package(&version, &workspace, &into, &limits) {
            Ok(true) => Ok(Placing::Whole),
            Ok(false) => Ok(Placing::Absent),
            Err(storage::Error::AlreadyExists(_)) => Err(occupied(&version)),
            Err(error) => Err(error.into()),
        };
        self.service.work(Job::of(&self.user, Weight::Long), place).await
    }
}

/// A package that is unpacked aside for as long as this is there.
struct Unpacked {
    service: Arc<Service>,
    user: UserId,
    entries: Vec<PackageEntry>,
    /// `None` only while it is dropped.
    files: Option<Arc<UnpackedPackage>>,
}

#[async_trait]
impl Package for Unpacked {
    fn entries(&self) -> &[PackageEntry] {
        &self.entries
    }

    async fn open(&self, path: &str) -> Result<ByteStream> {
        let (files, path) = (self.files.clone(), RelPath::parse(path)?);
        let open = move || {
            let files = files.ok_or(Error::Panicked)?;
            Ok(files.open(&path)?)
        };
        let (file, bytes) = self.service.light(&self.user, open).await?;
        let parts = pieces(file, 0, bytes, self.service.admission.reads_of(&self.user));
        let broken = |error| {
            sandbox::Error::new(ErrorKind::Internal, "write_file", "the package cannot be read")
                .because(error)
        };
        Ok(parts.map_err(broken).boxed())
    }
}

impl Drop for Unpacked {
    fn drop(&mut self) {
        let files = self.files.take();
        // Removing many files takes long. Without a runtime no other task is kept waiting by that.
        if let Ok(runtime) = Handle::try_current() {
            drop(runtime.spawn_blocking(move || drop(files)));
        }
    }
}
