//! Copying skills and agents between workspaces and packages.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::{StreamExt, TryStreamExt};
use parking_lot::Mutex;
use policy::skill_md;
use sandbox::{Error, ErrorKind, FileKind, ReadOptions, SandboxExt, WriteMode, WriteOptions};
use sha2::{Digest, Sha256};

use super::{AGENT_BYTES_MAX, Kind, RegistryError, Result, UNFINISHED};
use crate::catalogue::{AGENTS_DIRECTORY, SKILLS_DIRECTORY};
use crate::place::Directory;

/// Files of one package.
pub const PACKAGE_FILES_MAX: usize = 2_000;
/// Bytes of one package: 100 MiB.
pub const PACKAGE_BYTES_MAX: u64 = 100 << 20;
/// Directories that a package has above a file.
const DEPTH_MAX: usize = 24;

/// Copies what an author has under `name` into the package `to`; gives the number of files and their bytes.
///
/// Links are read through, and only where what they lead to is in the package anyway, byte for byte: what they show of
/// the rest of the workspace is the author's own business.
pub(super) async fn copy_out(
    workspace: &Directory<'_>,
    kind: Kind,
    name: &str,
    to: &Directory<'_>,
) -> Result<(usize, u64)> {
    to.make("").await?;
    if kind == Kind::Agent {
        let from = workspace.below(AGENTS_DIRECTORY)?;
        let file = format!("{name}.md");
        let bytes = from.read(&file, AGENT_BYTES_MAX).await?;
        let bytes = bytes.ok_or_else(|| RegistryError::NotYours { kind, name: name.to_owned() })?;
        let length = bytes.len() as u64;
        to.write(&file, bytes, WriteMode::Create, None).await?;
        return Ok((1, length));
    }
    let from = workspace.below(&format!("{SKILLS_DIRECTORY}/{name}"))?;
    let listed = list(&from).await?;
    let mut copy =
        Copy { from: &from, to, directories: HashSet::new(), digests: HashSet::new(), bytes: 0, files: 0 };
    for path in &listed.files {
        let digest = copy.file(path, path).await?;
        copy.digests.insert(digest);
    }
    for link in &listed.links {
        copy.link(link).await?;
    }
    Ok((copy.files, copy.bytes))
}

/// Copies a package of `files` files and `bytes` bytes into a skill's directory, its `SKILL.md` last.
///
/// A package that is not whole is refused before that: its author may be removing it.
pub(super) async fn copy_in(
    package: &Directory<'_>,
    skill: &Directory<'_>,
    (files, bytes): (usize, u64),
) -> Result<()> {
    let listed = list(package).await?;
    let mut copy = Copy {
        from: package,
        to: skill,
        directories: HashSet::new(),
        digests: HashSet::new(),
        bytes: 0,
        files: 0,
    };
    let marker = skill_md::marker(listed.files.iter().map(String::as_str)).skill_md.map(str::to_owned);
    let (last, first): (Vec<String>, Vec<String>) =
        listed.files.into_iter().partition(|path| Some(path) == marker.as_ref());
    let damaged = || {
        RegistryError::Content(
            "the package of this entry was changed just now, or is damaged: try again, or ask its author to \
             publish it again"
                .to_owned(),
        )
    };
    if first.len() + last.len() != files {
        return Err(damaged());
    }
    for path in &first {
        copy.file(path, path).await?;
    }
    let head = match last.first() {
        Some(path) => package.sandbox.stat(package.user, &package.path(path)?).await?.size,
        None => return Err(damaged()),
    };
    if copy.bytes + head != bytes {
        return Err(damaged());
    }
    for path in &last {
        copy.file(path, path).await?;
    }
    Ok(())
}

/// The files below a directory.
#[derive(Default)]
struct Listed {
    files: Vec<String>,
    links: Vec<String>,
}

async fn list(from: &Directory<'_>) -> Result<Listed> {
    let (entries, is_cut) = from.sandbox.walk(from.user, &from.root, 2 * PACKAGE_FILES_MAX).await?;
    let mut listed = Listed::default();
    for (path, entry) in entries {
        match entry.kind {
            FileKind::File if path == UNFINISHED => {}
            FileKind::File => listed.files.push(path),
            FileKind::Symlink => listed.links.push(path),
            FileKind::Directory | FileKind::Other => {
                return Err(RegistryError::Content(format!(
                    "`{}` is neither a file nor a directory: remove it",
                    path.escape_debug()
                )));
            }
        }
    }
    if is_cut || listed.files.len() + listed.links.len() > PACKAGE_FILES_MAX {
        return Err(too_many());
    }
    Ok(listed)
}

fn too_many() -> RegistryError {
    RegistryError::Content(format!("there are more than {PACKAGE_FILES_MAX} files: remove some"))
}

/// A copy that is under way.
struct Copy<'a> {
    from: &'a Directory<'a>,
    to: &'a Directory<'a>,
    directories: HashSet<String>,
    /// The contents of all regular files.
    digests: HashSet<[u8; 32]>,
    bytes: u64,
    files: usize,
}

impl Copy<'_> {
    /// Copies a file as a stream, with its execute bits; gives the digest of its bytes.
    async fn file(&mut self, path: &str, to: &str) -> Result<[u8; 32]> {
        if self.files == PACKAGE_FILES_MAX {
            return Err(too_many());
        }
        if to.matches('/').count() > DEPTH_MAX {
            return Err(RegistryError::Content(format!(
                "`{}` is more than {DEPTH_MAX} directories deep",
                to.escape_debug()
            )));
        }
        self.files += 1;
        if let Some((above, _)) = to.rsplit_once('/')
            && self.directories.insert(above.to_owned())
        {
            self.to.make(above).await?;
        }
        let room = PACKAGE_BYTES_MAX - self.bytes;
        let body = self.open(path).await?;
        let permissions = if body.info.mode & 0o111 == 0 { 0o644 } else { 0o755 };
        let state = Arc::new(Mutex::new(Sha256::new()));
        let read = Arc::new(AtomicU64::new(0));
        let (hasher, counter) = (Arc::clone(&state), Arc::clone(&read));
        // The file may grow while it is read, so its bytes are counted as they come.
        let body = body.stream.and_then(move |piece| {
            hasher.lock().update(&piece);
            let total = counter.fetch_add(piece.len() as u64, Ordering::Relaxed) + piece.len() as u64;
            std::future::ready(if total > room { Err(too_large()) } else { Ok(piece) })
        });
        let options = WriteOptions { mode: WriteMode::Create, permissions: Some(permissions) };
        match self.to.sandbox.write_file(self.to.user, &self.to.path(to)?, body.boxed(), options).await {
            Ok(_) => {}
            Err(_) if read.load(Ordering::Relaxed) > room => {
                return Err(RegistryError::Content(too_large().message().to_owned()));
            }
            Err(error) => return Err(error.into()),
        }
        self.bytes += read.load(Ordering::Relaxed);
        let digest = state.lock().clone().finalize();
        Ok(digest.into())
    }

    async fn open(&self, path: &str) -> Result<sandbox::FileBody> {
        let options = ReadOptions::default();
        Ok(self.from.sandbox.read_file(self.from.user, &self.from.path(path)?, options).await?)
    }

    /// Flattens a link to a file, or to a directory of files, whose contents are all in the package.
    async fn link(&mut self, link: &str) -> Result<()> {
        let refused = || {
            RegistryError::Content(format!(
                "`{}` is a link that leads out of the skill, or nowhere: replace it by a copy",
                link.escape_debug()
            ))
        };
        let kind = match self.from.kind(link).await {
            Ok(Some(kind)) => kind,
            Ok(None) => return Err(refused()),
            Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::Invalid) => {
                return Err(refused());
            }
            Err(error) => return Err(error.into()),
        };
        let files = match kind {
            FileKind::File => vec![link.to_owned()],
            FileKind::Directory => {
                let below = list(&self.from.below(link)?).await?;
                // A link within could lead round in a circle.
                if !below.links.is_empty() {
                    return Err(refused());
                }
                below.files.into_iter().map(|path| format!("{link}/{path}")).collect()
            }
            FileKind::Symlink | FileKind::Other => return Err(refused()),
        };
        for path in files {
            let digest = self.file(&path, &path).await?;
            if !self.digests.contains(&digest) {
                return Err(refused());
            }
        }
        Ok(())
    }
}

fn too_large() -> Error {
    Error::new(
        ErrorKind::TooLarge,
        "write_file",
        format!("there are more than {PACKAGE_BYTES_MAX} bytes: remove some"),
    )
}
