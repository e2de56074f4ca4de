//! Fetching packages from the bucket into this host's store: only those that are missing, each once however many ask for it.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt, Shared};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use parking_lot::Mutex;
use policy::VersionId;
use tokio::sync::Semaphore;

use super::Service;
use super::admission::Weight;
use super::bucket::{Bucket, BucketError, Found};
use super::error::{Error, Result};
use super::write::Unwritten;

/// Packages that one round fetches at once.
const OF_A_ROUND: usize = 4;
/// Packages that are fetched at once; further ones wait, no longer than the round that asked.
const AT_ONCE: usize = 16;
/// Bytes that are read at once of a package that is put.
const READ_BYTES: usize = 512 * 1024;

/// Whether the bucket had the package, which is kept here then.
type Fetching = Shared<BoxFuture<'static, Result<bool, BucketError>>>;

/// The packages that are on their way.
pub(super) struct Fetches {
    under_way: Mutex<HashMap<VersionId, Fetching>>,
    permits: Arc<Semaphore>,
}

impl Default for Fetches {
    fn default() -> Self {
        Self { under_way: Mutex::default(), permits: Arc::new(Semaphore::new(AT_ONCE)) }
    }
}

/// A package that is noted as on its way until this is dropped.
struct Noted {
    service: Arc<Service>,
    version: VersionId,
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.service.preparations.fetches().under_way.lock().remove(&self.version);
    }
}

impl Service {
    /// Fetches the package of a version; tells whether the bucket has it. Another request for it gets the same answer. It goes on
    /// when the caller leaves.
    ///
    /// # Errors
    /// [`Error::Bucket`]; [`Error::Stopping`].
    pub(super) async fn fetch_package(self: &Arc<Self>, version: &VersionId) -> Result<bool> {
        let Some(bucket) = self.preparations.bucket() else { return Ok(false) };
        let fetching = {
            let mut under_way = self.preparations.fetches().under_way.lock();
            match under_way.get(version) {
                Some(fetching) => fetching.clone(),
                None => {
                    let (service, bucket, at) = (Arc::clone(self), Arc::clone(bucket), version.clone());
                    let fetching = self.runs.spawn(async move {
                        let _noted = Noted { service: Arc::clone(&service), version: at.clone() };
                        service.fetch_now(&bucket, &at).await
                    });
                    let fetching = fetching.map(|ended| ended.unwrap_or(Err(BucketError::Unreachable)));
                    let fetching = fetching.boxed().shared();
                    under_way.insert(version.clone(), fetching.clone());
                    fetching
                }
            }
        };
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(Error::Stopping),
            fetched = fetching => Ok(fetched?),
        }
    }

    /// Fetches those packages that are not kept here, several at once.
    ///
    /// # Errors
    /// As [`Service::fetch_package`].
    pub(super) async fn fetch_missing(self: &Arc<Self>, versions: &[VersionId]) -> Result<()> {
        if self.preparations.bucket().is_none() {
            return Ok(());
        }
        let (store, versions) = (self.store.clone(), versions.to_vec());
        let look = move || {
            let mut missing = Vec::new();
            for version in versions {
                if store.packages().facts(&version)?.is_none() {
                    missing.push(version);
                }
            }
            Ok(missing)
        };
        let missing = self.of_operators(Weight::Light, look).await?;
        let fetches = missing.into_iter().map(|version| {
            let service = Arc::clone(self);
            async move { service.fetch_package(&version).await.map(drop) }.boxed()
        });
        stream::iter(fetches.collect::<Vec<_>>()).buffer_unordered(OF_A_ROUND).try_collect().await
    }

    async fn fetch_now(self: &Arc<Self>, bucket: &Bucket, version: &VersionId) -> Result<bool, BucketError> {
        let stop = self.stop.clone();
        let fetch = async {
            let permits = Arc::clone(&self.preparations.fetches().permits);
            let _permit = permits.acquire_owned().await.map_err(|_| Error::Stopping)?;
            self.fetch_into_store(bucket, version).await
        };
        let fetched = tokio::select! {
            biased;
            () = stop.cancelled() => Err(Error::Stopping),
            fetched = fetch => fetched,
        };
        fetched.map_err(|error| match error {
            Error::Bucket(error) => error,
            other => {
                tracing::warn!(%version, error = %other, "a package that was fetched cannot be kept: it is not deployed");
                BucketError::Unkept { version: version.clone(), problem: other.to_string() }
            }
        })
    }

    async fn fetch_into_store(&self, bucket: &Bucket, version: &VersionId) -> Result<bool> {
        let Some(found) = bucket.find(version).await? else { return Ok(false) };
        let limit = self.archive_limits.upload_bytes.min(self.preparations.packages_bytes());
        if found.bytes > limit {
            let what = "the package (`limits.archive.upload_bytes`, `prepare.packages_bytes`)".to_owned();
            return Err(storage::Error::TooLarge { what, limit }.into());
        }
        if self.share_kept(version, &found).await? {
            return Ok(true);
        }
        let mut parts = bucket.read(version, &found).await?;
        let received = self.receive(&mut parts).await;
        let (file, digest) = received.map_err(|unwritten| match unwritten {
            Unwritten::Sender(error) => error.into(),
            Unwritten::Service(error) => error,
        })?;
        if digest != found.digest {
            tracing::error!(%version, digest, "the bucket has other bytes than the name says: they are not kept");
            return Err(BucketError::Damaged { version: version.clone() }.into());
        }
        let (store, total, at) = (self.store.clone(), self.preparations.packages_bytes(), version.clone());
        let keep = move || Ok(store.packages().keep(&at, &file, &digest, total)?);
        let kept = self.of_operators(Weight::Long, keep).await?;
        tracing::info!(%version, bytes = kept.facts.bytes, collected = kept.collected, "fetched a package");
        Ok(true)
    }

    /// Keeps a package without fetching it, where another version with the same bytes is kept here. Tells whether one is.
    async fn share_kept(&self, version: &VersionId, found: &Found) -> Result<bool> {
        let (store, total) = (self.store.clone(), self.preparations.packages_bytes());
        let (at, digest) = (version.clone(), found.digest.clone());
        let share = move || Ok(store.packages().share(&at, &digest, total)?);
        Ok(self.of_operators(Weight::Long, share).await?.is_some())
    }

    /// Puts a package that was received into the bucket. Tells whether its version had none there.
    pub(super) async fn put_in_bucket(
        &self,
        bucket: &Bucket,
        version: &VersionId,
        digest: &str,
        file: &File,
    ) -> Result<bool> {
        let file = file.try_clone().map_err(|error| storage::Error::from_io("dup", "package", error))?;
        let file = Arc::new(file);
        let parts = stream::try_unfold(0, move |at: u64| {
            let file = Arc::clone(&file);
            async move {
                let read = move || {
                    let mut part = vec![0; READ_BYTES];
                    let read = file.read_at(&mut part, at);
                    part.truncate(read.map_err(|error| storage::Error::from_io("read", "package", error))?);
                    Ok(Bytes::from(part))
                };
                let part = self.of_operators(Weight::Light, read).await?;
                let next = at + u64::try_from(part.len()).unwrap_or(u64::MAX);
                Ok((!part.is_empty()).then_some((part, next)))
            }
        });
        bucket.put(version, digest, parts.boxed()).await
    }
}
