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
use super::bucket::Found;
use super::error::{Error, Result};
use super::pieces::pieces;
use super::prepare::{EntryKind, Package, PackageEntry, Packages, Placing, occupied};
use super::write::{Unwritten, gather};

/// Packages that are received at once.
const AT_ONCE: usize = 8;

/// How often a package is fetched that others have made give way before it was used.
const TRIES: usize = 3;

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
    /// [`storage::Error::TooLarge`]; as [`storage::Packages::put`]; [`Error::Bucket`]: it is not kept here either then.
    pub async fn put_package<E>(
        &self,
        version: VersionId,
        mut parts: impl Stream<Item = Result<Bytes, E>> + Unpin,
        expected: Option<String>,
    ) -> Result<PutPackage, Unwritten<E>> {
        let _permit = self.package_permits.take(&Owner::Operators).await?;
        let (file, digest) = self.receive(&mut parts).await?;
        if let Some(expected) = expected.filter(|expected| *expected != digest) {
            let message = format!(
                "the bytes have the digest `sha256:{digest}`, not `sha256:{expected}`: send them again"
            );
            return Err(Error::Invalid(message).into());
        }
        let (store, limits, at) = (self.store.clone(), self.archive_limits.clone(), version.clone());
        let of = digest.clone();
        let check = move || {
            store.packages().check(&file, &of, &limits)?;
            let kept = store.packages().facts(&at)?;
            Ok((file, kept))
        };
        let (file, kept) = self.of_operators(Weight::Long, check).await?;
        if kept.is_some_and(|kept| kept.digest != digest) {
            let taken = storage::Error::AlreadyExists(format!("the package {version} with other bytes"));
            return Err(Error::from(taken).into());
        }
        // First: a package that is acknowledged is in the bucket.
        let is_new = match self.preparations.bucket() {
            Some(bucket) => Some(self.put_in_bucket(bucket, &version, &digest, &file).await?),
            None => None,
        };
        let (store, total) = (self.store.clone(), self.preparations.packages_bytes());
        let keep = move || Ok(store.packages().keep(&version, &file, &digest, total)?);
        let kept = self.of_operators(Weight::Long, keep).await?;
        Ok(PutPackage { is_new: is_new.unwrap_or(kept.is_new), ..kept })
    }

    /// Receives the bytes of a package into a file of no name; the file, and their SHA-256.
    pub(super) async fn receive<E>(
        &self,
        parts: &mut (impl Stream<Item = Result<Bytes, E>> + Unpin),
    ) -> Result<(File, String), Unwritten<E>> {
        let limit = self.archive_limits.upload_bytes;
        let store = self.store.clone();
        let mut file = self.of_operators(Weight::Light, move || Ok(store.unnamed_file()?)).await?;
        let (mut left, mut hasher) = (limit, Sha256::new());
        loop {
            let (some, is_last) = gather(parts, &mut left, limit).await?;
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
        Ok((file, hex::encode(hasher.finalize())))
    }

    /// Opens the package of a version, fetched from the bucket where it is missing.
    ///
    /// # Errors
    /// As [`storage::Packages::open`]; [`Error::Bucket`].
    pub async fn package(self: &Arc<Self>, version: VersionId) -> Result<(File, PackageFacts)> {
        for _ in 0..TRIES {
            let (store, at) = (self.store.clone(), version.clone());
            match self.of_operators(Weight::Light, move || Ok(store.packages().open(&at)?)).await {
                Err(Error::Storage(storage::Error::NotFound(_))) => {}
                other => return other,
            }
            if !self.fetch_package(&version).await? {
                break;
            }
        }
        Err(storage::Error::NotFound(format!("the package {version}")).into())
    }

    /// What is known of the package of a version, here or in the bucket. Nothing is fetched.
    ///
    /// # Errors
    /// [`storage::Error::NotFound`], [`storage::Error::Io`]; [`Error::Bucket`].
    pub async fn package_facts(&self, version: VersionId) -> Result<PackageFacts> {
        let (store, at) = (self.store.clone(), version.clone());
        let kept = self.of_operators(Weight::Light, move || Ok(store.packages().facts(&at)?)).await?;
        if let Some(kept) = kept {
            return Ok(kept);
        }
        let found = match self.preparations.bucket() {
            Some(bucket) => bucket.find(&version).await?,
            None => None,
        };
        let Found { digest, bytes } =
            found.ok_or_else(|| storage::Error::NotFound(format!("the package {version}")))?;
        Ok(PackageFacts { version, digest, bytes })
    }

    pub(super) async fn of_operators<T: Send + 'static>(
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
    async fn bring(&self, versions: &[VersionId]) -> Result<()> {
        self.service.fetch_missing(versions).await
    }

    async fn unpack(&self, version: &VersionId) -> Result<Option<Arc<dyn Package>>> {
        for _ in 0..TRIES {
            match self.unpack_kept(version).await {
                Ok(unpacked) => return Ok(Some(unpacked)),
                Err(Error::Storage(storage::Error::NotFound(_))) => {}
                // Removed: the bucket has it whole.
                Err(Error::Storage(storage::Error::Damaged(_)))
                    if self.service.preparations.bucket().is_some() => {}
                Err(error) => return Err(error),
            }
            if !self.service.fetch_package(version).await? {
                return Ok(None);
            }
        }
        Err(restless(version))
    }

    async fn place(&self, version: &VersionId, into: &str) -> Result<Placing> {
        let Some(workspace) = &self.workspace else { return Ok(Placing::ByFiles) };
        let into = RelPath::parse(into)?;
        for _ in 0..TRIES {
            match self.place_kept(version, workspace.clone(), into.clone()).await {
                Ok(Placing::Absent) => {}
                // Removed: the bucket has it whole.
                Err(Error::Storage(storage::Error::Damaged(_)))
                    if self.service.preparations.bucket().is_some() => {}
                placed => return placed,
            }
            if !self.service.fetch_package(version).await? {
                return Ok(Placing::Absent);
            }
        }
        Err(restless(version))
    }
}

/// Others have made a package give way each time that it was fetched.
fn restless(version: &VersionId) -> Error {
    Error::RunFailed(format!(
        "the package {version} went again and again before it was deployed: raise `prepare.packages_bytes`"
    ))
}

impl Kept {
    async fn unpack_kept(&self, version: &VersionId) -> Result<Arc<dyn Package>> {
        let (store, limits) = (self.service.store.clone(), self.service.archive_limits.clone());
        let (version, user) = (version.clone(), self.user.clone());
        let unpack = move || Ok(store.packages().unpack(&version, &user, &limits)?);
        let unpacked = self.service.work(Job::of(&self.user, Weight::Long), unpack).await?;
        let entry = |(path, mode): &(RelPath, Option<u32>)| PackageEntry {
            path: path.to_string(),
            kind: mode.map_or(EntryKind::Directory, |mode| EntryKind::File { mode }),
        };
        let entries = unpacked.paths().iter().map(entry).collect();
        let (service, user) = (Arc::clone(&self.service), self.user.clone());
        Ok(Arc::new(Unpacked { service, user, entries, files: Some(Arc::new(unpacked)) }))
    }

    /// Places a package that is kept here, in one step.
    async fn place_kept(
        &self,
        version: &VersionId,
        workspace: WorkspaceId,
        into: RelPath,
    ) -> Result<Placing> {
        let (store, limits) = (self.service.store.clone(), self.service.archive_limits.clone());
        let version = version.clone();
        let place = move || match store.packages().deploy(&version, &workspace, &into, &limits) {
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
