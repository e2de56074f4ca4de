//! [`carry`]: one synchronisation. What has not changed costs no write, and what the machine's user made or changed stays.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt, TryStreamExt, stream};
use policy::{RelPath, UserId};
use sandbox::{ErrorKind, FileKind, ReadOptions, Sandbox, SandboxPath, WriteMode, WriteOptions};

use super::manifest::{Left, Manifest};
use super::source::{Wanted, collect};
use crate::config::RunnersConfig;
use crate::ops::Service;
use crate::ops::pieces::pieces;
use crate::ops::said::bounded;

/// Requests to a machine at once.
const AT_ONCE: usize = 8;
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

/// One synchronisation of the workspace of `machine`, where `user` is.
struct Carry<'a> {
    service: &'a Service,
    user: &'a UserId,
    machine: &'a dyn Sandbox,
    root: SandboxPath,
}

/// Brings the machine to what the service has.
///
/// # Errors
/// A sentence: what the service has cannot be read, or the machine does not answer as it should. What was brought over by then is
/// noted there, and the next synchronisation goes on.
pub(super) async fn carry(
    service: &Service,
    config: &RunnersConfig,
    user: &UserId,
    machine: &dyn Sandbox,
) -> Result<Synced, String> {
    let collected = collect(service, config, user).await.map_err(|error| bounded(&error.to_string()))?;
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
    let carry = Carry { service, user, machine, root };
    let carried = carry.all(&directories, &collected.files, &mut synced).await;
    // Without the machine's own paths.
    carried.map(|()| synced).map_err(|error| said(&error, Some(&carry.root)))
}

impl Carry<'_> {
    async fn all(
        &self,
        directories: &[RelPath],
        wanted: &BTreeMap<String, Wanted>,
        synced: &mut Synced,
    ) -> sandbox::Result<()> {
        let before = Manifest::read(self.machine, self.user, &self.root, directories).await?;
        let there = self.look(directories, wanted.keys().chain(before.files.keys())).await?;
        let foreign = foreign(directories, &there, &before);
        let mut told = BTreeSet::new();
        let digests = self.digests(wanted).await?;
        let (mut after, mut writes) = (Manifest::default(), Vec::new());
        for (path, file) in wanted {
            let former = before.files.get(path);
            let Some(digest) = digests.get(path.as_str()) else {
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
                (Some(size), Some(former)) if *former == left && *size == left.bytes => {
                    synced.files += 1;
                    after.files.insert(path.clone(), left);
                }
                (Some(size), Some(former)) => match self.is_ours(path, *size, former).await? {
                    true => {
                        writes.push(Write { path, wanted: file, is_new: false });
                        after
                            .files
                            .insert(path.clone(), Left { instead_of: Some(former.digest.clone()), ..left });
                    }
                    false => {
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
            intended.write(self.machine, self.user, &self.root).await?;
        }
        for path in self.write_all(&writes, synced).await? {
            after.files.remove(&path);
        }
        self.remove_all(&gone, &there, synced).await?;
        for left in after.files.values_mut() {
            left.instead_of = None;
        }
        if !writes.is_empty() || after.files != before.files {
            after.write(self.machine, self.user, &self.root).await?;
        }
        Ok(())
    }

    fn path(&self, relative: &str) -> sandbox::Result<SandboxPath> {
        let path = self.root.join(relative).ok().filter(|path| path.below(&self.root).is_some());
        path.ok_or_else(|| {
            sandbox::Error::new(
                ErrorKind::Invalid,
                "sync",
                format!("`{relative}` is no path in the workspace"),
            )
        })
    }

    /// The lengths of those of `paths` at which something is, of what is no regular file `u64::MAX`: by listing their directories.
    async fn look<'p>(
        &self,
        directories: &'p [RelPath],
        paths: impl Iterator<Item = &'p String>,
    ) -> sandbox::Result<BTreeMap<String, u64>> {
        let above = paths.filter_map(|path| path.rsplit_once('/').map(|(directory, _)| directory));
        let directories: BTreeSet<&str> = above.chain(directories.iter().map(RelPath::as_str)).collect();
        let lists = directories.into_iter().map(|directory| async move {
            match self.machine.read_dir(self.user, &self.path(directory)?).await {
                Ok(entries) => Ok((directory, entries)),
                // What is there instead keeps what is to be written from its place: that is told then.
                Err(error) if is_about_the_path(&error) => Ok((directory, Vec::new())),
                Err(error) => Err(error),
            }
        });
        let mut there = BTreeMap::new();
        let mut lists = stream::iter(boxed(lists)).buffer_unordered(AT_ONCE);
        while let Some((directory, entries)) = lists.try_next().await? {
            for entry in entries.into_iter().filter(sandbox::DirEntry::is_one_segment) {
                let size = if entry.kind == FileKind::File { entry.size } else { u64::MAX };
                there.insert(format!("{directory}/{}", entry.name), size);
            }
        }
        Ok(there)
    }

    /// The digests of what the service has. What cannot be read any more is left out.
    async fn digests<'p>(
        &self,
        wanted: &'p BTreeMap<String, Wanted>,
    ) -> sandbox::Result<BTreeMap<&'p str, String>> {
        let digests = wanted.iter().map(|(path, file)| async move {
            let digest = self.digest(file).await;
            Ok::<_, sandbox::Error>(digest.map(|digest| (path.as_str(), digest)))
        });
        let digests = stream::iter(boxed(digests)).buffer_unordered(AT_ONCE).try_collect::<Vec<_>>().await?;
        Ok(digests.into_iter().flatten().collect())
    }

    async fn digest(&self, wanted: &Wanted) -> Option<String> {
        let (file, bytes) = wanted.from.open(self.service, self.user).await.ok()?;
        let parts = pieces(file, 0, bytes, self.service.admission.reads_of(self.user));
        let hasher = parts.try_fold(blake3::Hasher::new(), |mut hasher, part| async move {
            hasher.update(&part);
            Ok(hasher)
        });
        Some(hasher.await.ok()?.finalize().to_hex().to_string())
    }

    /// Whether a file on the machine has the bytes that a synchronisation left there.
    async fn is_ours(&self, path: &str, size: u64, former: &Left) -> sandbox::Result<bool> {
        let is_pending = former.instead_of.is_some();
        if size != former.bytes && !is_pending || size > sandbox::FILE_BYTES_MAX {
            return Ok(false);
        }
        let body = self.machine.read_file(self.user, &self.path(path)?, ReadOptions::default()).await?;
        let mut hasher = blake3::Hasher::new();
        let mut parts = body.stream;
        while let Some(part) = parts.try_next().await? {
            hasher.update(&part);
        }
        let digest = hasher.finalize().to_hex().to_string();
        Ok(digest == former.digest || former.instead_of.as_ref() == Some(&digest))
    }

    /// Writes the files. Gives the paths of those that were not written, because something is in their place.
    async fn write_all(&self, writes: &[Write<'_>], synced: &mut Synced) -> sandbox::Result<Vec<String>> {
        let mut unwritten = Vec::new();
        let directories: BTreeSet<&str> =
            writes.iter().filter_map(|write| write.path.rsplit_once('/').map(|(above, _)| above)).collect();
        for directory in directories {
            match self.machine.mkdir_all(self.user, &self.path(directory)?, DIRECTORY_MODE).await {
                Err(error) if !is_about_the_path(&error) => return Err(error),
                _ => {}
            }
        }
        let sent = writes.iter().map(|write| async move {
            match self.write(write).await {
                // Something of the user's stands in the way, perhaps since its directory was listed.
                Err(error) if is_about_the_path(&error) => Ok((write.path, false)),
                written => written.map(|()| (write.path, true)),
            }
        });
        let mut sent = stream::iter(boxed(sent)).buffer_unordered(AT_ONCE);
        while let Some((path, is_written)) = sent.try_next().await? {
            if is_written {
                synced.files += 1;
                synced.written += 1;
            } else {
                synced.keep(path, "something is in its place on the machine");
                unwritten.push(path.to_owned());
            }
        }
        Ok(unwritten)
    }

    async fn write(&self, write: &Write<'_>) -> sandbox::Result<()> {
        let unread = |error: String| sandbox::Error::new(ErrorKind::Internal, "write_file", error);
        let (file, bytes) = write
            .wanted
            .from
            .open(self.service, self.user)
            .await
            .map_err(|error| unread(error.to_string()))?;
        let parts = pieces(file, 0, bytes, self.service.admission.reads_of(self.user));
        let body = parts.map_err(move |error| unread(error.to_string())).boxed();
        let options = WriteOptions {
            mode: if write.is_new { WriteMode::Create } else { WriteMode::Replace },
            permissions: Some(if write.wanted.executable { 0o755 } else { 0o644 }),
        };
        self.machine.write_file(self.user, &self.path(write.path)?, body, options).await
    }

    /// Removes what the service has no longer, and the directories that are empty then.
    async fn remove_all(
        &self,
        gone: &[(&String, &Left)],
        there: &BTreeMap<String, u64>,
        synced: &mut Synced,
    ) -> sandbox::Result<()> {
        let mut emptied = BTreeSet::new();
        for (path, left) in gone {
            let Some(size) = there.get(*path) else { continue };
            if !self.is_ours(path, *size, left).await? {
                synced.keep(path, "it was changed on the machine");
                continue;
            }
            match self.machine.remove(self.user, &self.path(path)?).await {
                Ok(()) => synced.removed += 1,
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
            // All above but the directory of all skills or agents itself.
            let mut above = path.as_str();
            while let Some((directory, _)) = above.rsplit_once('/').filter(|(above, _)| above.contains('/')) {
                emptied.insert(directory);
                above = directory;
            }
        }
        // What is below comes first. One with anything in it stays.
        for directory in emptied.into_iter().rev() {
            if let Err(error) = self.machine.remove(self.user, &self.path(directory)?).await
                && matches!(error.kind(), ErrorKind::Disconnected | ErrorKind::Timeout)
            {
                return Err(error);
            }
        }
        Ok(())
    }
}

/// Directories of skills that are on the machine and of which no synchronisation has left anything.
fn foreign(directories: &[RelPath], there: &BTreeMap<String, u64>, before: &Manifest) -> Vec<String> {
    let tops = there.iter().filter(|(path, size)| {
        let is_top = path
            .rsplit_once('/')
            .is_some_and(|(above, _)| directories.iter().any(|top| top.as_str() == above));
        is_top && **size == u64::MAX && !before.files.keys().any(|known| is_below(known, path))
    });
    tops.map(|(path, _)| path.clone()).collect()
}

fn is_below(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
}

/// Whether an error is about one path, where something else is on the machine, and not about the machine.
fn is_about_the_path(error: &sandbox::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::AlreadyExists
            | ErrorKind::PermissionDenied
            | ErrorKind::NotADirectory
            | ErrorKind::IsDirectory
            | ErrorKind::NotFound
    )
}

/// The futures, each boxed: a stream of borrowing ones is not known to be sent between threads.
fn boxed<'a, F: Future + Send + 'a>(
    futures: impl Iterator<Item = F>,
) -> Vec<std::pin::Pin<Box<dyn Future<Output = F::Output> + Send + 'a>>> {
    futures
        .map(|future| Box::pin(future) as std::pin::Pin<Box<dyn Future<Output = F::Output> + Send + 'a>>)
        .collect()
}
