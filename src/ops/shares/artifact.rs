//! A skill that a link shows, as an archive; and [`KnownDigests`], so that a catalog packs a skill once and not for each reader.

use std::collections::HashMap;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;

use parking_lot::Mutex;
use policy::TreeId;
use sha2::{Digest, Sha256, Sha512};
use storage::{Artifact, ArtifactForm, Spool};

use super::Share;
use super::catalog::SharedSkill;
use crate::ops::Service;
use crate::ops::admission::holds::Mode;
use crate::ops::admission::{Job, Weight};
use crate::ops::error::{Error, Result};

/// Bytes in the files of a skill that installers take, at most, and files (agent skills discovery 0.2.0).
const BYTES_MAX: u64 = 50 * 1024 * 1024;
const FILES_MAX: usize = 1000;
/// Digests that are known; beyond it they are forgotten, and worked out again.
const KNOWN_MAX: usize = 4096;
const BUFFER_BYTES: usize = 64 * 1024;

/// The digests of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digests {
    /// Of its bytes.
    pub sha256: [u8; 32],
    /// The same.
    pub sha512: [u8; 64],
}

/// A skill as an archive; or, of one that installers would not take, why.
pub type Packed<T> = std::result::Result<T, &'static str>;

/// The digests of archives of skills, or why there are none.
#[derive(Default)]
pub(super) struct KnownDigests(Mutex<HashMap<String, Packed<Digests>>>);

impl KnownDigests {
    fn get(&self, key: &str) -> Option<Packed<Digests>> {
        self.0.lock().get(key).copied()
    }

    fn put(&self, key: String, digests: Packed<Digests>) {
        let mut known = self.0.lock();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(key, digests);
    }
}

impl Service {
    /// The digests of a skill of a link in this form.
    ///
    /// # Errors
    /// As [`Service::pack_shared`].
    pub async fn shared_digests(
        &self,
        share: &Arc<Share>,
        skill: &SharedSkill,
        form: &ArtifactForm,
    ) -> Result<Packed<Digests>> {
        if let Some(known) = self.known_digests(share, skill, form) {
            return Ok(known);
        }
        Ok(self.pack_shared(share, skill, form).await?.map(|(_, digests)| digests))
    }

    /// The same, where they are known without work.
    #[must_use]
    pub fn known_digests(
        &self,
        share: &Share,
        skill: &SharedSkill,
        form: &ArtifactForm,
    ) -> Option<Packed<Digests>> {
        self.shares.known.get(&key(share, skill, form))
    }

    /// Packs a skill of a link in this form, as [`storage::Skills::pack_artifact`] does. Returns a spool of the archive with its size
    /// in bytes, and its digests.
    ///
    /// # Errors
    /// [`storage::Error::NotFound`] when it is another version by now; as [`storage::Skills::pack_artifact`].
    pub async fn pack_shared(
        &self,
        share: &Arc<Share>,
        skill: &SharedSkill,
        form: &ArtifactForm,
    ) -> Result<Packed<((Spool, u64), Digests)>> {
        let (store, shares, account) = (self.store.clone(), Arc::clone(&self.shares), share.account()?);
        let tree = TreeId::Skill(share.user.clone(), share.agent.clone(), skill.skill.clone());
        let mut job = Job::of(&account, Weight::Long);
        // A published version stays what it is; what a user has changes.
        job.hold = skill.is_own.then(|| (tree.clone(), Mode::LongRead));
        let (key, form, version, is_own) =
            (key(share, skill, form), form.clone(), skill.version.clone(), skill.is_own);
        self.work(job, move || {
            let of = (!is_own).then_some(&version);
            let packed = store.skills().pack_artifact(&tree, of, &form, &account, BYTES_MAX);
            let packed = match packed {
                Err(storage::Error::Unpackable { .. }) => Err("it has more than 50 MiB"),
                packed => match packed? {
                    Artifact { content, .. } if content.files > FILES_MAX => {
                        Err("it has more than 1000 files")
                    }
                    Artifact { spool, bytes, .. } => {
                        let digests = digests(&spool).map_err(unreadable)?;
                        Ok(((spool, bytes), digests))
                    }
                },
            };
            if is_own && store.skills().seen(&tree)?.0 != version {
                return Err(storage::Error::NotFound("this version of the skill".to_owned()).into());
            }
            shares.known.put(key, packed.as_ref().map(|(_, digests)| *digests).map_err(|why| *why));
            Ok(packed)
        })
        .await
    }
}

/// What the bytes of an archive follow from. A user's own state is known by its user and skill, too: while it was packed, it may have
/// been another one for a moment, which must not be another user's harm.
fn key(share: &Share, skill: &SharedSkill, form: &ArtifactForm) -> String {
    let of = match skill.is_own {
        true => format!("{}/{}/{}/", share.user, share.agent, skill.skill),
        false => String::new(),
    };
    let form = match form {
        ArtifactForm::Flat => "flat".to_owned(),
        ArtifactForm::Within { under, beside } => {
            let mut hasher = blake3::Hasher::new();
            for (path, bytes) in beside {
                hasher.update(path.as_str().as_bytes()).update(&[0]).update(blake3::hash(bytes).as_bytes());
            }
            format!("{under} {}", hasher.finalize().to_hex())
        }
    };
    format!("{of}{} {form}", skill.version)
}

fn unreadable(source: io::Error) -> Error {
    storage::Error::Io { operation: "read", path: "archive".to_owned(), source }.into()
}

/// Reads a spool from its beginning, and leaves it there.
fn digests(spool: &Spool) -> io::Result<Digests> {
    let mut file = spool.file();
    let (mut sha256, mut sha512) = (Sha256::new(), Sha512::new());
    let mut buffer = vec![0; BUFFER_BYTES];
    file.seek(SeekFrom::Start(0))?;
    loop {
        let read = file.read(&mut buffer)?;
        let bytes = buffer.get(..read).unwrap_or_default();
        if bytes.is_empty() {
            break;
        }
        sha256.update(bytes);
        sha512.update(bytes);
    }
    file.seek(SeekFrom::Start(0))?;
    Ok(Digests { sha256: sha256.finalize().into(), sha512: sha512.finalize().into() })
}
