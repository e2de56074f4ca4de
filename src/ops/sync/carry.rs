//! [`carry`]: one synchronisation. What has not changed costs no write, and what the machine's user made or changed stays.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;
use policy::{RelPath, UserId};
use sandbox::{ErrorKind, ReadOptions, Sandbox, SandboxPath, WriteMode, WriteOptions};

use super::look::{AT_ONCE, Machine, boxed, foreign, is_about_the_path, is_below};
use super::manifest::{Left, Manifest};
use super::source::{Collected, Wanted};
use crate::config::RunnersConfig;
use crate::ops::Service;
use crate::ops::pieces::pieces;
use crate::ops::said::bounded;

/// Paths that are told of each kind.
const TOLD_MAX: usize = 16;
/// Permission bits of directories that are made.
const DIRECTORY_MODE: u32 = 0o755;

/// What a synchronisation came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Synced {
    /// Files that are there as the service has them.
    pub files: usize,
    /// Those of them that were written now.
    pub written: usize,
    /// Files that were removed, because the service has them no longer.
    pub removed: usize,
    /// Files that the service would have written or removed, and that the machine's user made or changed: they stay.
    pub kept: usize,
    /// Some of what was left out or kept, in words.
    pub notes: Vec<String>,
}

impl Synced {
    fn keep(&mut self, path: &str, why: &str) {
        self.kept += 1;
        self.note(format!("`{path}` stays: {why}"));
    }

    fn note(&mut self, text: String) {
        if self.notes.len() < TOLD_MAX {
            self.notes.push(bounded(&text));
        }
    }
}

/// A file that is to be written.
struct Write<'a> {
    path: &'a str,
    wanted: &'a Wanted,
    /// Whether nothing may be there yet.
    is_new: bool,
}

/// One synchronisation.
struct Carry<'a> {
    service: &'a Service,
    at: Machine<'a>,
}

/// Brings the machine to what was collected, with these digests.
///
/// # Errors
/// A sentence: the machine does not answer as it should. What was brought over by then is noted there, and the next
/// synchronisation goes on.
pub(super) async fn carry(
    service: &Service,
    config: &RunnersConfig,
    (user, machine): (&UserId, &dyn Sandbox),
    collected: &Collected,
    digests: &BTreeMap<String, String>,
) -> Result<Synced, String> {
    let mut synced = Synced::default();
    for text in &collected.left_out {
        synced.note(text.clone());
    }
    let said = |error: &sandbox::Error, root: Option<&SandboxPath>| {
        let path = root.and_then(|root| error.path().and_then(|path| path.below(root)));
        let path = path.map_or_else(String::new, |path| format!("`{path}`: "));
        bounded(&format!("{path}{}", error.message()))
    };
    let root = machine.workspace(user).await.map_err(|error| said(&error, None))?;
    let directories = [config.skills_directory.clone(), config.agents_directory.clone()];
    let carry = Carry { service, at: Machine { user, sandbox: machine, root } };
    let carried = carry.all(&directories, &collected.files, digests, &mut synced).await;
    // Without the machine's own paths.
    carried.map(|()| synced).map_err(|error| said(&error, Some(&carry.at.root)))
}

impl Carry<'_> {
    async fn all(
        &self,
        directories: &[RelPath],
        wanted: &BTreeMap<String, Wanted>,
        digests: &BTreeMap<String, String>,
        synced: &mut Synced,
    ) -> sandbox::Result<()> {
        let before = Manifest::read(self.at.sandbox, self.at.user, &self.at.root, directories).await?;
        let there = self.at.look(directories, wanted.keys().chain(before.files.keys())).await?;
        let foreign = foreign(directories, &there, &before);
        let mut told = BTreeSet::new();
        let doubtful = wanted.iter().filter_map(|(path, file)| {
            let (size, former) = (there.get(path)?, before.files.get(path)?);
            let is_current = digests.get(path) == Some(&former.digest)
                && *size == former.bytes
                && former.executable == file.executable
                && former.instead_of.is_none();
            (!is_current).then_some((path.as_str(), *size, former))
        });
        let ours = self.all_ours(doubtful).await?;
        let (mut after, mut writes) = (Manifest::default(), Vec::new());
        for (path, file) in wanted {
            let former = before.files.get(path);
            let Some(digest) = digests.get(path) else {
                // It goes or comes with the next synchronisation.
                after.files.extend(former.map(|former| (path.clone(), former.clone())));
                continue;
            };
            if let Some(directory) = foreign.iter().find(|directory| is_below(path, directory)) {
                if told.insert(directory.as_str()) {
                    synced.keep(
                        directory,
                        "the machine has a skill of this name that the service has not written",
                    );
                }
                continue;
            }
            let left = Left {
                digest: digest.clone(),
                bytes: file.bytes,
                executable: file.executable,
                instead_of: None,
            };
            match (there.get(path), former) {
                (None, _) => {
                    writes.push(Write { path, wanted: file, is_new: true });
                    after.files.insert(path.clone(), Left { instead_of: Some(String::new()), ..left });
                }
                (Some(_), None) => synced.keep(path, "the service has not written it"),
                (Some(_), Some(former)) if !ours.contains_key(path.as_str()) => {
                    synced.files += 1;
                    after.files.insert(path.clone(), former.clone());
                }
                (Some(_), Some(former)) => match ours.get(path.as_str()).cloned().flatten() {
                    Some(there) => {
                        writes.push(Write { path, wanted: file, is_new: false });
                        after.files.insert(path.clone(), Left { instead_of: Some(there), ..left });
                    }
                    None => {
                        synced.keep(path, "it was changed on the machine");
                        after.files.insert(path.clone(), former.clone());
                    }
                },
            }
        }
        let gone: Vec<(&String, &Left)> =
            before.files.iter().filter(|(path, _)| !wanted.contains_key(*path)).collect();
        // Before anything of it is done: a synchronisation that is cut knows its own.
        let intended = Manifest {
            files: gone
                .iter()
                .map(|(path, left)| ((*path).clone(), (*left).clone()))
                .chain(after.files.clone())
                .collect(),
        };
        if !writes.is_empty() {
            intended.write(self.at.sandbox, self.at.user, &self.at.root).await?;
        }
        self.write_all(&writes, &mut after, synced).await?;
        self.remove_all(&gone, &there, synced).await?;
        if !writes.is_empty() || after.files != before.files {
            after.write(self.at.sandbox, self.at.user, &self.at.root).await?;
        }
        Ok(())
    }

    /// As [`Carry::ours`], of several files.
    async fn all_ours<'p>(
        &self,
        files: impl Iterator<Item = (&'p str, u64, &'p Left)>,
    ) -> sandbox::Result<BTreeMap<&'p str, Option<String>>> {
        let ours =
            files.map(|(path, size, left)| async move { Ok((path, self.ours(path, size, left).await?)) });
        stream::iter(boxed(ours)).buffer_unordered(AT_ONCE).try_collect().await
    }

    /// The digest of a file on the machine, if it has bytes that a synchronisation left there.
    async fn ours(&self, path: &str, size: u64, former: &Left) -> sandbox::Result<Option<String>> {
        let is_pending = former.instead_of.is_some();
        if size != former.bytes && !is_pending || size > sandbox::FILE_BYTES_MAX {
            return Ok(None);
        }
        let body =
            self.at.sandbox.read_file(self.at.user, &self.at.path(path)?, ReadOptions::default()).await?;
        let mut hasher = blake3::Hasher::new();
        let mut parts = body.stream;
        while let Some(part) = parts.try_next().await? {
            hasher.update(&part);
        }
        let digest = hasher.finalize().to_hex().to_string();
        let is_ours = digest == former.digest || former.instead_of.as_ref() == Some(&digest);
        Ok(is_ours.then_some(digest))
    }

    /// Writes the files, and notes in `after` what was written. Where something is in the place of one, it is not.
    async fn write_all(
        &self,
        writes: &[Write<'_>],
        after: &mut Manifest,
        synced: &mut Synced,
    ) -> sandbox::Result<()> {
        let directories: BTreeSet<&str> =
            writes.iter().filter_map(|write| write.path.rsplit_once('/').map(|(above, _)| above)).collect();
        for directory in directories {
            match self.at.sandbox.mkdir_all(self.at.user, &self.at.path(directory)?, DIRECTORY_MODE).await {
                Err(error) if !is_about_the_path(&error) => return Err(error),
                _ => {}
            }
        }
        let sent = writes.iter().map(|write| async move {
            match self.write(write).await {
                // Something of the user's stands in the way, perhaps since its directory was listed.
                Err(error) if is_about_the_path(&error) => Ok((write.path, None)),
                written => written.map(|sent| (write.path, Some(sent))),
            }
        });
        let mut sent = stream::iter(boxed(sent)).buffer_unordered(AT_ONCE);
        while let Some((path, written)) = sent.try_next().await? {
            if let Some((digest, bytes)) = written {
                synced.files += 1;
                synced.written += 1;
                if let Some(left) = after.files.get_mut(path) {
                    *left = Left { digest, bytes, executable: left.executable, instead_of: None };
                }
            } else {
                synced.keep(path, "something is in its place on the machine");
                after.files.remove(path);
            }
        }
        Ok(())
    }

    /// Writes a file; the digest of what was sent, and its length: it may have changed since it was read last.
    async fn write(&self, write: &Write<'_>) -> sandbox::Result<(String, u64)> {
        let unread = |error: String| sandbox::Error::new(ErrorKind::Internal, "write_file", error);
        let (file, stat) = write
            .wanted
            .from
            .open(self.service, self.at.user)
            .await
            .map_err(|error| unread(error.to_string()))?;
        let hasher = Arc::new(Mutex::new(blake3::Hasher::new()));
        let sent = Arc::clone(&hasher);
        let parts = pieces(file, 0, stat.size, self.service.admission.reads_of(self.at.user));
        let parts = parts.inspect_ok(move |part| {
            sent.lock().update(part);
        });
        let body = parts.map_err(move |error| unread(error.to_string())).boxed();
        let options = WriteOptions {
            mode: if write.is_new { WriteMode::Create } else { WriteMode::Replace },
            permissions: Some(if write.wanted.executable { 0o755 } else { 0o644 }),
        };
        self.at.sandbox.write_file(self.at.user, &self.at.path(write.path)?, body, options).await?;
        let digest = hasher.lock().finalize().to_hex().to_string();
        Ok((digest, stat.size))
    }

    /// Removes what the service has no longer, and the directories that are empty then.
    async fn remove_all(
        &self,
        gone: &[(&String, &Left)],
        there: &BTreeMap<String, u64>,
        synced: &mut Synced,
    ) -> sandbox::Result<()> {
        let mut emptied = BTreeSet::new();
        let found = gone.iter().filter_map(|(path, left)| Some((path.as_str(), *there.get(*path)?, *left)));
        for (path, ours) in self.all_ours(found).await? {
            if ours.is_none() {
                synced.keep(path, "it was changed on the machine");
                continue;
            }
            match self.at.sandbox.remove(self.at.user, &self.at.path(path)?).await {
                Ok(()) => synced.removed += 1,
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
            // All above but the directory of all skills or agents itself.
            let mut above = path;
            while let Some((directory, _)) = above.rsplit_once('/').filter(|(above, _)| above.contains('/')) {
                emptied.insert(directory);
                above = directory;
            }
        }
        // What is below comes first. One with anything in it stays.
        for directory in emptied.into_iter().rev() {
            if let Err(error) = self.at.sandbox.remove(self.at.user, &self.at.path(directory)?).await
                && matches!(error.kind(), ErrorKind::Disconnected | ErrorKind::Timeout)
            {
                return Err(error);
            }
        }
        Ok(())
    }
}
