//! [`Digests`]: what is in the files of the service. Each is read once for as long as it does not change.

use std::collections::{BTreeMap, HashMap};

use futures_util::{StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;
use policy::UserId;
use storage::ETag;

use super::source::Wanted;
use crate::ops::Service;
use crate::ops::pieces::pieces;

/// Files that are known. When there are more, all are forgotten.
const KNOWN_MAX: usize = 200_000;
/// Files that are read at once.
const AT_ONCE: usize = 4;

/// BLAKE3 of files, in hexadecimal digits, by what changes when they do.
#[derive(Default)]
pub(super) struct Digests(Mutex<HashMap<ETag, String>>);

impl Digests {
    /// The digests of `wanted`, by path. What cannot be read any more is left out.
    pub(super) async fn of(
        &self,
        service: &Service,
        user: &UserId,
        wanted: &BTreeMap<String, Wanted>,
    ) -> BTreeMap<String, String> {
        let (mut digests, mut unknown) = (BTreeMap::new(), Vec::new());
        {
            let known = self.0.lock();
            for (path, file) in wanted {
                match known.get(&file.tag) {
                    Some(digest) => drop(digests.insert(path.clone(), digest.clone())),
                    None => unknown.push((path.clone(), file.clone())),
                }
            }
        }
        let read = unknown.into_iter().map(|(path, file)| async move {
            let digest = digest(service, user, &file).await;
            digest.map(|digest| (path, file.tag, digest))
        });
        let mut read = stream::iter(read.map(Box::pin).collect::<Vec<_>>()).buffer_unordered(AT_ONCE);
        while let Some(read) = read.next().await {
            let Some((path, tag, digest)) = read else { continue };
            let mut known = self.0.lock();
            if known.len() >= KNOWN_MAX {
                known.clear();
            }
            known.insert(tag, digest.clone());
            drop(known);
            digests.insert(path, digest);
        }
        digests
    }
}

async fn digest(service: &Service, user: &UserId, wanted: &Wanted) -> Option<String> {
    let (file, stat) = wanted.from.open(service, user).await.ok()?;
    // Changed since it was listed: the next synchronisation brings it.
    if stat.etag() != wanted.tag {
        return None;
    }
    let parts = pieces(file, 0, stat.size, service.admission.reads_of(user));
    let hasher = parts.try_fold(blake3::Hasher::new(), |mut hasher, part| async move {
        hasher.update(&part);
        Ok(hasher)
    });
    Some(hasher.await.ok()?.finalize().to_hex().to_string())
}
