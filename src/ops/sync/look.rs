//! [`Machine`]: a machine that is synchronised, and what is on it: by listing directories, one request for each.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;

use futures_util::{StreamExt, TryStreamExt, stream};
use policy::{RelPath, UserId};
use sandbox::{ErrorKind, FileKind, Sandbox, SandboxPath};

use super::manifest::Manifest;

/// Requests to a machine at once.
pub(super) const AT_ONCE: usize = 8;

/// The workspace `root` of a machine, where `user` is.
pub(super) struct Machine<'a> {
    pub(super) user: &'a UserId,
    pub(super) sandbox: &'a dyn Sandbox,
    pub(super) root: SandboxPath,
}

impl Machine<'_> {
    pub(super) fn path(&self, relative: &str) -> sandbox::Result<SandboxPath> {
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
    pub(super) async fn look<'p>(
        &self,
        directories: &'p [RelPath],
        paths: impl Iterator<Item = &'p String>,
    ) -> sandbox::Result<BTreeMap<String, u64>> {
        let paths: BTreeSet<&str> = paths.map(String::as_str).collect();
        let above = paths.iter().filter_map(|path| path.rsplit_once('/').map(|(directory, _)| directory));
        let directories_of_all: Vec<&str> = directories.iter().map(RelPath::as_str).collect();
        let directories: BTreeSet<&str> = above.chain(directories_of_all.iter().copied()).collect();
        let skills: BTreeSet<&str> = directories
            .iter()
            .flat_map(|directory| prefixes(directory))
            .filter(|above| above.rsplit_once('/').is_some_and(|(top, _)| directories_of_all.contains(&top)))
            .collect();
        let lists = directories.into_iter().map(|directory| async move {
            match self.sandbox.read_dir(self.user, &self.path(directory)?).await {
                Ok(entries) => Ok((directory, entries)),
                // What is there instead keeps what is to be written from its place: that is told then.
                Err(error) if is_about_the_path(&error) => Ok((directory, Vec::new())),
                Err(error) => Err(error),
            }
        });
        let mut there = BTreeMap::new();
        let mut lists = stream::iter(boxed(lists)).buffer_unordered(AT_ONCE);
        while let Some((directory, entries)) = lists.try_next().await? {
            let is_top = directories_of_all.contains(&directory);
            for entry in entries.into_iter().filter(sandbox::DirEntry::is_one_segment) {
                let size = if entry.kind == FileKind::File { entry.size } else { u64::MAX };
                let path = format!("{directory}/{}", entry.name);
                // A machine may list more than is asked about.
                if paths.contains(path.as_str()) || is_top && skills.contains(path.as_str()) {
                    there.insert(path, size);
                }
            }
        }
        Ok(there)
    }
}

/// Directories of skills that are on the machine and of which no synchronisation has left anything.
pub(super) fn foreign(
    directories: &[RelPath],
    there: &BTreeMap<String, u64>,
    before: &Manifest,
) -> Vec<String> {
    let tops = there.iter().filter(|(path, size)| {
        let is_top = path
            .rsplit_once('/')
            .is_some_and(|(above, _)| directories.iter().any(|top| top.as_str() == above));
        is_top && **size == u64::MAX && !before.files.keys().any(|known| is_below(known, path))
    });
    tops.map(|(path, _)| path.clone()).collect()
}

/// A path, and all above it.
fn prefixes(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| path.rsplit_once('/').map(|(above, _)| above))
}

pub(super) fn is_below(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
}

/// Whether an error is about one path, where something else is on the machine, and not about the machine.
pub(super) fn is_about_the_path(error: &sandbox::Error) -> bool {
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
pub(super) fn boxed<'a, F: Future + Send + 'a>(
    futures: impl Iterator<Item = F>,
) -> Vec<Pin<Box<dyn Future<Output = F::Output> + Send + 'a>>> {
    futures.map(|future| Box::pin(future) as Pin<Box<dyn Future<Output = F::Output> + Send + 'a>>).collect()
}
