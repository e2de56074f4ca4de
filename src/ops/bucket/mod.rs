//! [`Bucket`]: packages in a bucket of an S3-compatible store.
//!
//! A package is one object, `{prefix}/{version}/{digest}.pkg`, the digest being the SHA-256 of its bytes. So an operator reads
//! from the name what it is; an object is never replaced by other bytes; and no metadata is needed, which not every store keeps.
//! A version has one package. S3 knows no name that only one request may take on every store, so one who puts looks before and
//! after: whoever finds another package then takes its own back. Of two that were put at once, at most one is acknowledged.
//!
//! The client makes requests again that failed, and asks for the rest of a body that was cut, with growing pauses of random
//! length, by the settings `prepare.bucket.retries` and `timeout_ms`.

mod error;
mod http;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt, TryStreamExt};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, RetryConfig};
use policy::VersionId;
use tokio::time::{Instant, timeout_at};

pub use self::error::BucketError;
use self::error::{is_refusal, told};
use self::http::Http;
use crate::config::{BucketConfig, ConfigError};

/// How long finding, reading or writing one package may take in all, with every further try.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long one request may be made again and again.
const RETRY: Duration = Duration::from_secs(120);
/// How long an upload that failed may take to be given up.
const ABORT: Duration = Duration::from_secs(10);
/// Objects of one version that are looked at.
const OBJECTS_MAX: usize = 16;
/// Bytes of a part of an upload. All but the last have 5 MiB at least
/// (<https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html>).
const PART_BYTES: usize = 8 * 1024 * 1024;
/// The end of a package's name.
const SUFFIX: &str = ".pkg";
/// Digits of a digest.
const DIGITS: usize = 64;

/// The result of asking a bucket.
pub type Result<T, E = BucketError> = std::result::Result<T, E>;

/// A bucket, and the prefix of the packages in it.
pub struct Bucket {
    store: Arc<AmazonS3>,
    prefix: String,
}

/// A package that is in the bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The digest in its name.
    pub digest: String,
    /// Its length, as the bucket says.
    pub bytes: u64,
}

impl fmt::Debug for Bucket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the store, which has the keys.
        formatter.debug_struct("Bucket").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl Bucket {
    /// The bucket of the configuration, `None` without one. Reads the credentials, and sends nothing.
    ///
    /// # Errors
    /// [`ConfigError::Value`], [`ConfigError::Secret`].
    pub fn open(config: &BucketConfig) -> std::result::Result<Option<Self>, ConfigError> {
        if !config.is_set() {
            return Ok(None);
        }
        let (name, prefix) = config.place()?;
        let credentials = config.credentials(|name| std::env::var(name).ok())?;
        let is_encrypted = !config.endpoint.starts_with("http:");
        let unusable = |problem: String| ConfigError::Value {
            setting: "prepare.bucket.endpoint",
            value: problem,
            advice: "look at the other settings of `prepare.bucket`, and at the certificates that the host trusts",
        };
        let http = Http::new(is_encrypted, config.timeout()).map_err(|error| unusable(error.to_string()))?;
        let retry =
            RetryConfig { max_retries: config.retries, retry_timeout: RETRY, ..RetryConfig::default() };
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(name)
            .with_region(&config.region)
            .with_access_key_id(credentials.key_id)
            .with_secret_access_key(credentials.secret)
            .with_virtual_hosted_style_request(!config.path_style)
            .with_allow_http(config.allow_http)
            .with_retry(retry)
            .with_http_connector(http);
        if let Some(token) = credentials.token {
            builder = builder.with_token(token);
        }
        if !config.endpoint.is_empty() {
            builder = builder.with_endpoint(endpoint(config, name));
        }
        let store = builder.build().map_err(|error| unusable(told(&error)))?;
        Ok(Some(Self { store: Arc::new(store), prefix: prefix.to_owned() }))
    }

    /// The package of a version.
    ///
    /// # Errors
    /// [`BucketError`].
    pub async fn find(&self, version: &VersionId) -> Result<Option<Found>> {
        let mut found = self.list(version).await?;
        match found.len() {
            0 | 1 => Ok(found.pop()),
            _ => Err(BucketError::Several { version: version.clone() }),
        }
    }

    /// The bytes of a package, as they come; a body that is cut goes on where it was cut.
    ///
    /// # Errors
    /// [`BucketError`], before the first piece or in the place of one.
    pub async fn read(
        &self,
        version: &VersionId,
        found: &Found,
    ) -> Result<BoxStream<'static, Result<Bytes>>> {
        let until = Instant::now() + PATIENCE;
        let path = self.path(version, &found.digest);
        let got = bounded(until, "read", self.store.get(&path)).await?;
        let pieces = got.into_stream().boxed();
        let next = move |mut pieces: BoxStream<'static, object_store::Result<Bytes>>| async move {
            let piece = bounded(until, "read", pieces.try_next()).await?;
            Ok(piece.map(|piece| (piece, pieces)))
        };
        Ok(futures_util::stream::try_unfold(pieces, next).boxed())
    }

    /// Puts a package of `bytes` bytes, unless it is there. Tells whether the version had none.
    ///
    /// # Errors
    /// [`BucketError::Taken`] when the version has other bytes, or gets others at the same time; that of `parts`; any other
    /// [`BucketError`]. Then it is not there, or another request with the same bytes has put it.
    pub async fn put<E: From<BucketError>>(
        &self,
        version: &VersionId,
        digest: &str,
        parts: impl Stream<Item = Result<Bytes, E>> + Unpin + Send,
    ) -> Result<bool, E> {
        let before = self.list(version).await?;
        if before.iter().any(|found| found.digest != digest) {
            return Err(BucketError::Taken { version: version.clone() }.into());
        }
        if !before.is_empty() {
            return Ok(false);
        }
        let path = self.path(version, digest);
        self.upload(&path, parts).await?;
        let after = self.list(version).await?;
        if after.iter().any(|found| found.digest != digest) {
            let until = Instant::now() + ABORT;
            bounded(until, "delete", self.store.delete(&path)).await?;
            return Err(BucketError::Taken { version: version.clone() }.into());
        }
        Ok(true)
    }

    async fn upload<E: From<BucketError>>(
        &self,
        path: &Path,
        mut parts: impl Stream<Item = Result<Bytes, E>> + Unpin + Send,
    ) -> Result<(), E> {
        let until = Instant::now() + PATIENCE;
        let (first, is_last) = part(&mut parts).await?;
        if is_last {
            bounded(until, "write", self.store.put(path, first.into())).await?;
            return Ok(());
        }
        let mut upload = bounded(until, "write", self.store.put_multipart(path)).await?;
        let all = async {
            let (mut next, mut is_last) = (first, false);
            loop {
                bounded(until, "write", upload.put_part(next.into())).await?;
                if is_last {
                    break;
                }
                (next, is_last) = part(&mut parts).await?;
            }
            bounded(until, "write", upload.complete()).await?;
            Ok(())
        };
        let done = all.await;
        if done.is_err() {
            // What a crash leaves is for the bucket's own rule about unfinished uploads.
            if let Err(error) = bounded(Instant::now() + ABORT, "abort", upload.abort()).await {
                tracing::warn!(%error, "an upload to the bucket could not be given up: its parts stay there");
            }
        }
        done
    }

    /// What the bucket has of a version.
    async fn list(&self, version: &VersionId) -> Result<Vec<Found>> {
        let until = Instant::now() + PATIENCE;
        let prefix = self.dir(version);
        let listed = self.store.list(Some(&prefix)).take(OBJECTS_MAX).try_collect::<Vec<_>>();
        let listed = bounded(until, "list", listed).await?;
        let found = listed.into_iter().filter_map(|object| {
            let digest = object.location.filename()?.strip_suffix(SUFFIX)?;
            let is_digest = digest.len() == DIGITS
                && digest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
                && object.location == self.path(version, digest);
            is_digest.then(|| Found { digest: digest.to_owned(), bytes: object.size })
        });
        Ok(found.collect())
    }

    fn dir(&self, version: &VersionId) -> Path {
        Path::from(format!("{}/{version}", self.prefix))
    }

    fn path(&self, version: &VersionId, digest: &str) -> Path {
        Path::from(format!("{}/{version}/{digest}{SUFFIX}", self.prefix))
    }
}

/// The endpoint as the client wants it: with the bucket in the name of the host where it is to stand there.
fn endpoint(config: &BucketConfig, bucket: &str) -> String {
    match config.endpoint.split_once("://") {
        Some((scheme, host)) if !config.path_style => format!("{scheme}://{bucket}.{host}"),
        _ => config.endpoint.clone(),
    }
}

/// The next part of an upload, and whether it is the last one.
async fn part<E>(pieces: &mut (impl Stream<Item = Result<Bytes, E>> + Unpin)) -> Result<(Bytes, bool), E> {
    let mut part = BytesMut::new();
    while part.len() < PART_BYTES {
        match pieces.try_next().await? {
            Some(piece) => part.extend_from_slice(&piece),
            None => return Ok((part.freeze(), true)),
        }
    }
    Ok((part.freeze(), false))
}

/// What an answer of the bucket comes to, which is waited for until then. The cause is logged here, once.
async fn bounded<T>(
    until: Instant,
    operation: &'static str,
    answer: impl Future<Output = object_store::Result<T>>,
) -> Result<T> {
    let Ok(answer) = timeout_at(until, answer).await else {
        return Err(BucketError::Slow { seconds: PATIENCE.as_secs() });
    };
    answer.map_err(|error| {
        tracing::warn!(
            error = told(&error),
            operation,
            "the bucket of packages failed: the request is refused"
        );
        if is_refusal(&error) { BucketError::Refused } else { BucketError::Unreachable }
    })
}
