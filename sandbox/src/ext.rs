//! [`SandboxExt`]: short forms over [`Sandbox`].

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, stream};

use crate::{
    DirEntry, FileKind, ReadOptions, Result, Sandbox, SandboxPath, UserId, Version, WriteMode, WriteOptions,
};

/// Short forms that every [`Sandbox`] has.
#[async_trait]
pub trait SandboxExt: Sandbox {
    /// Reads a whole file.
    async fn read(&self, user: &UserId, path: &SandboxPath) -> Result<Bytes> {
        self.read_file(user, path, ReadOptions::default()).await?.bytes().await
    }

    /// Replaces or makes a file of bytes that are there already.
    async fn write(&self, user: &UserId, path: &SandboxPath, bytes: Bytes) -> Result<()> {
        let body = stream::once(async { Ok(bytes) }).boxed();
        self.write_file(user, path, body, WriteOptions::default()).await.map(drop)
    }

    /// Reads a whole file, and tells its version, to be changed and [swapped](Self::swap).
    async fn read_versioned(&self, user: &UserId, path: &SandboxPath) -> Result<(Bytes, Option<Version>)> {
        let mut body = self.read_file(user, path, ReadOptions::default()).await?;
        let version = body.info.version.take();
        Ok((body.bytes().await?, version))
    }

    /// Replaces a file that still has this version ([`WriteMode::Swap`]), and gives the new one.
    async fn swap(
        &self,
        user: &UserId,
        path: &SandboxPath,
        bytes: Bytes,
        version: Version,
    ) -> Result<Option<Version>> {
        let body = stream::once(async { Ok(bytes) }).boxed();
        let options = WriteOptions { mode: WriteMode::Swap(version), permissions: None };
        self.write_file(user, path, body, options).await
    }

    /// Whether anything is at the path.
    async fn exists(&self, user: &UserId, path: &SandboxPath) -> Result<bool> {
        match self.stat(user, path).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// All entries below a directory that are no directories, each with its path relative to it, sorted by directory.
    ///
    /// Links are named and not followed, and at most `entries_max` entries are looked at; the flag tells whether there
    /// were more. What is no name of an entry ([`DirEntry::is_one_segment`]) is left out: each path stays below `root`.
    async fn walk(
        &self,
        user: &UserId,
        root: &SandboxPath,
        entries_max: usize,
    ) -> Result<(Vec<(String, DirEntry)>, bool)> {
        let (mut found, mut seen) = (Vec::new(), 0);
        let mut waiting = vec![(String::new(), root.clone())];
        while let Some((prefix, directory)) = waiting.pop() {
            let mut below = Vec::new();
            for entry in self.read_dir(user, &directory).await? {
                if seen == entries_max {
                    return Ok((found, true));
                }
                seen += 1;
                if !entry.is_one_segment() {
                    continue;
                }
                let path = format!("{prefix}{}", entry.name);
                match entry.kind {
                    FileKind::Directory => match directory.join(&entry.name) {
                        Ok(inside) => below.push((format!("{path}/"), inside)),
                        Err(_) => found.push((path, entry)), // deeper than a path can say
                    },
                    _ => found.push((path, entry)),
                }
            }
            waiting.extend(below.into_iter().rev());
        }
        Ok((found, false))
    }
}

impl<S: Sandbox + ?Sized> SandboxExt for S {}
