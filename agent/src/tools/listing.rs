//! The files below a directory, found by find(1) where the sandbox has it, else by reading directories.

use std::time::Duration;

use futures_util::{StreamExt, stream};

use super::pattern::{FindArgs, is_searched};
use sandbox::{ErrorKind, ExecSpec, FileKind, Result, Sandbox, SandboxPath, UserId};

/// How *Glob* and *Grep* look for files. Both ways answer the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Search {
    /// By `find` and `grep` in the sandbox, one command instead of a call for each directory or file; where that cannot
    /// be, by the files.
    #[default]
    Programs,
    /// By reading directories and files.
    Files,
}

/// The most entries of directories that are looked at.
pub(super) const ENTRIES_MAX: usize = 100_000;
/// Directories read at once.
const READS_MAX: usize = 8;
/// The most bytes of paths that a program may list.
const LISTED_BYTES_MAX: usize = 16 * 1024 * 1024;
/// How long a program may search.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Files of a directory, and whether there were more entries than are looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Listing {
    /// Paths relative to the directory, with sizes where they are known, in no order.
    pub(super) files: Vec<(String, Option<u64>)>,
    pub(super) is_cut: bool,
}

/// Which directories are gone into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Descend {
    /// Entries whose names do not begin with a dot, and are not `node_modules`.
    Usual,
    /// All: the caller sorts out what it did not mean.
    All,
}

/// Lists the regular files below `directory` that `args` may mean; links are not followed.
pub(super) async fn list(
    sandbox: &dyn Sandbox,
    user: &UserId,
    directory: &SandboxPath,
    args: &FindArgs,
    into: Descend,
    search: Search,
) -> Result<Listing> {
    if search == Search::Programs {
        let mut arguments: Vec<String> = vec![".".into()];
        arguments
            .extend(args.depth_max.into_iter().flat_map(|depth| ["-maxdepth".into(), depth.to_string()]));
        arguments.extend(pruned(into));
        arguments.extend(["-type".to_owned(), "f".to_owned()]);
        arguments.extend(args.test_words());
        arguments.push("-print0".into());
        if let Some(paths) = names(sandbox, user, directory, ExecSpec::argv("find", arguments), 0).await {
            return Ok(Listing {
                files: paths.into_iter().map(|path| (path, None)).collect(),
                is_cut: false,
            });
        }
    }
    walk(sandbox, user, directory, args.depth_max, into).await
}

/// The part of find(1)'s arguments that leaves out what is not gone into.
pub(super) fn pruned(into: Descend) -> Vec<String> {
    match into {
        Descend::All => Vec::new(),
        // `?*`: the directory that the search begins in is called `.`.
        Descend::Usual => {
            ["(", "-name", ".?*", "-o", "-name", "node_modules", ")", "-type", "d", "-prune", "-o"]
                .map(str::to_owned)
                .to_vec()
        }
    }
}

/// Runs a program that prints paths with NUL after each, and gives them relative to `directory`.
///
/// None when that is no full and sure answer: the sandbox runs no commands or not this one, an exit code above
/// `code_max`, too much output, or too late.
pub(super) async fn names(
    sandbox: &dyn Sandbox,
    user: &UserId,
    directory: &SandboxPath,
    mut spec: ExecSpec,
    code_max: i32,
) -> Option<Vec<String>> {
    spec.directory = Some(directory.clone());
    spec.timeout = Some(TIMEOUT);
    spec.output_bytes_max = LISTED_BYTES_MAX;
    spec.environment.insert("LC_ALL".into(), "C".into());
    let result = sandbox.exec(user, spec).await.ok()?;
    let is_whole = result.stdout_dropped_bytes == 0 && result.stderr.is_empty() && !result.timed_out;
    if !is_whole || !(0..=code_max).contains(&result.exit_code) {
        return None;
    }
    let Some(body) = result.stdout.strip_suffix(b"\0") else {
        return result.stdout.is_empty().then(Vec::new);
    };
    let path = |path: &[u8]| String::from_utf8_lossy(path.strip_prefix(b"./").unwrap_or(path)).into_owned();
    Some(body.split(|byte| *byte == 0).map(path).collect())
}

/// Reads directories, a level at a time, several at once.
async fn walk(
    sandbox: &dyn Sandbox,
    user: &UserId,
    root: &SandboxPath,
    depth_max: Option<usize>,
    into: Descend,
) -> Result<Listing> {
    let mut listing = Listing::default();
    let mut seen = 0;
    let mut level = vec![(String::new(), root.clone())];
    let mut depth = 0;
    while !level.is_empty() && depth_max.is_none_or(|depth_max| depth < depth_max) {
        let mut below = Vec::new();
        let is_first = depth == 0;
        let mut reads = stream::iter(level)
            .map(|(prefix, directory)| async move {
                let entries = sandbox.read_dir(user, &directory).await;
                (prefix, directory, entries)
            })
            .buffered(READS_MAX);
        while let Some((prefix, directory, entries)) = reads.next().await {
            let entries = match entries {
                Ok(entries) => entries,
                // Removed, replaced or closed since its name was read: it has no files to find.
                Err(error) if !is_first && is_passing(error.kind()) => continue,
                Err(error) => return Err(error),
            };
            for entry in entries {
                if seen == ENTRIES_MAX {
                    listing.is_cut = true;
                    return Ok(listing);
                }
                seen += 1;
                if !entry.is_one_segment() {
                    continue;
                }
                match entry.kind {
                    FileKind::File => {
                        listing.files.push((format!("{prefix}{}", entry.name), Some(entry.size)))
                    }
                    FileKind::Directory if into == Descend::All || is_searched(&entry.name) => {
                        // An entry that cannot be named, or is deeper than a path can say, cannot be opened either.
                        if let Ok(inside) = directory.join(&entry.name) {
                            below.push((format!("{prefix}{}/", entry.name), inside));
                        }
                    }
                    FileKind::Directory | FileKind::Symlink | FileKind::Other => {}
                }
            }
        }
        drop(reads);
        level = below;
        depth += 1;
    }
    Ok(listing)
}

fn is_passing(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied)
}
