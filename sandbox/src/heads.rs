//! Finding the files of one name below some directories, and how each begins: many calls about files that are one question, so
//! that a backend may answer it in one go ([`Sandbox::find_heads`]).

use bytes::Bytes;
use futures_util::{StreamExt, stream};

use crate::{DirEntry, Error, FileKind, ReadOptions, Result, Sandbox, SandboxPath, UserId};

/// Directories that are searched at once, and files that are read at once.
const AT_ONCE: usize = 4;

/// What is searched for, and within which bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadQuery {
    /// The directories whose files are searched, with all below them.
    pub roots: Vec<SandboxPath>,
    /// The name of the files; ASCII letters in either case.
    pub file_name: &'static str,
    /// Names of directories that are not searched.
    pub pruned: &'static [&'static str],
    /// Entries that are looked at below one root.
    pub entries_max: usize,
    /// Levels of directories below a root.
    pub levels_max: usize,
    /// Files that are read.
    pub files_max: usize,
    /// The beginning of a file that is read, in bytes.
    pub head_bytes: u64,
    /// Bytes of all beginnings together, which the answer holds at once: the files after that are not read.
    pub bytes_max: u64,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Heads {
    /// The path of each file and its beginning: root by root, sorted by path below one. Links are neither followed nor files.
    pub files: Vec<(SandboxPath, Result<Bytes>)>,
    /// What was not searched.
    pub left_out: Vec<LeftOut>,
}

/// Something that was not searched. Of one root, only the last is told.
#[derive(Debug)]
pub enum LeftOut {
    /// A directory that could not be listed.
    Directory(SandboxPath, Error),
    /// The rest of a root that has more entries than are looked at.
    Entries(SandboxPath),
    /// The files after those in the answer, because of [`HeadQuery::files_max`] or [`HeadQuery::bytes_max`].
    Files {
        /// Files that were found.
        found: usize,
        /// Files in the answer.
        read: usize,
    },
}

/// The search below one root, without the calls that it needs: its caller asks for the next directory until there is none.
///
/// ```text
/// while let Some(directory) = search.next_directory() { search.listed(list(&directory)); }
/// ```
#[derive(Debug)]
pub struct Search<'a> {
    query: &'a HeadQuery,
    root: &'a SandboxPath,
    /// Directories that are still to be listed, and their levels below the root.
    waiting: Vec<(SandboxPath, usize)>,
    /// The one that is being listed.
    current: Option<(SandboxPath, usize)>,
    seen: usize,
    result: Searched,
}

/// What the search below one root found.
#[derive(Debug, Default)]
pub struct Searched {
    /// The paths of the first files, at most [`HeadQuery::files_max`].
    paths: Vec<SandboxPath>,
    /// How many files there are.
    found: usize,
    left_out: Option<LeftOut>,
}

impl<'a> Search<'a> {
    /// The search of `query` below `root`.
    #[must_use]
    pub fn new(query: &'a HeadQuery, root: &'a SandboxPath) -> Self {
        let waiting = vec![(root.clone(), 0)];
        Self { query, root, waiting, current: None, seen: 0, result: Searched::default() }
    }

    /// The directory to list next.
    pub fn next_directory(&mut self) -> Option<SandboxPath> {
        self.current = self.waiting.pop();
        self.current.as_ref().map(|(directory, _)| directory.clone())
    }

    /// Takes the entries of the directory that was asked for. What is no name of an entry would lead out of it, and is passed over.
    pub fn listed(&mut self, entries: Result<Vec<DirEntry>>) {
        let Some((directory, level)) = self.current.take() else { return };
        let entries = match entries {
            Ok(entries) => entries,
            Err(error) => {
                self.result.left_out = Some(LeftOut::Directory(directory, error));
                return;
            }
        };
        let mut below = Vec::new();
        for entry in entries {
            self.seen += 1;
            if self.seen > self.query.entries_max {
                self.waiting.clear();
                self.result.left_out = Some(LeftOut::Entries(self.root.clone()));
                return;
            }
            let is_searched = match entry.kind {
                FileKind::Directory => {
                    level < self.query.levels_max && !self.query.pruned.contains(&entry.name.as_str())
                }
                FileKind::File => entry.name.eq_ignore_ascii_case(self.query.file_name),
                FileKind::Symlink | FileKind::Other => false,
            };
            if !is_searched || !entry.is_one_segment() {
                continue;
            }
            // Deeper than a path can say is not there for anyone.
            let Ok(path) = directory.join(&entry.name) else { continue };
            match entry.kind {
                FileKind::Directory => below.push((path, level + 1)),
                _ => {
                    self.result.found += 1;
                    if self.result.paths.len() < self.query.files_max {
                        self.result.paths.push(path);
                    }
                }
            }
        }
        self.waiting.extend(below.into_iter().rev());
    }

    /// What was found.
    #[must_use]
    pub fn end(mut self) -> Searched {
        self.result.paths.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
        self.result
    }
}

/// The reading of what the searches of all roots found, without the calls that it needs.
///
/// ```text
/// for path in paths { if !reading.take(path, head_of(path)) { break } }
/// ```
#[derive(Debug)]
pub struct Reading<'a> {
    query: &'a HeadQuery,
    found: usize,
    bytes: u64,
    heads: Heads,
}

impl<'a> Reading<'a> {
    /// Of the searches of all roots; and the paths to read, in order.
    #[must_use]
    pub fn new(query: &'a HeadQuery, searched: Vec<Searched>) -> (Self, Vec<SandboxPath>) {
        let found = searched.iter().map(|of_root| of_root.found).sum();
        let (mut paths, mut heads) = (Vec::new(), Heads::default());
        for of_root in searched {
            paths.extend(of_root.paths);
            heads.left_out.extend(of_root.left_out);
        }
        paths.truncate(query.files_max);
        (Self { query, found, bytes: 0, heads }, paths)
    }

    /// Takes how a file begins. `false` when that is one too many: it is passed over, and no more are to be read.
    pub fn take(&mut self, path: SandboxPath, head: Result<Bytes>) -> bool {
        self.bytes += head.as_ref().map_or(0, |head| head.len() as u64);
        let fits = self.bytes <= self.query.bytes_max;
        if fits {
            self.heads.files.push((path, head));
        }
        fits
    }

    /// The answer.
    #[must_use]
    pub fn end(mut self) -> Heads {
        let (found, read) = (self.found, self.heads.files.len());
        if read < found {
            self.heads.left_out.push(LeftOut::Files { found, read });
        }
        self.heads
    }
}

/// Answers `query` by one call for each directory and each file.
pub async fn find_by_calls<S: Sandbox + ?Sized>(sandbox: &S, user: &UserId, query: &HeadQuery) -> Heads {
    let searches: Vec<_> = query
        .roots
        .iter()
        .map(|root| async move {
            let mut search = Search::new(query, root);
            while let Some(directory) = search.next_directory() {
                search.listed(sandbox.read_dir(user, &directory).await);
            }
            search.end()
        })
        .collect();
    let searched = stream::iter(searches).buffered(AT_ONCE).collect::<Vec<_>>().await;
    let (mut reading, paths) = Reading::new(query, searched);
    let reads: Vec<_> = paths
        .into_iter()
        .map(|path| async move {
            let options = ReadOptions { range: Some(0..query.head_bytes), bytes_max: None };
            let read = async { sandbox.read_file(user, &path, options).await?.bytes().await };
            let read = read.await;
            (path, read)
        })
        .collect();
    let mut reads = stream::iter(reads).buffered(AT_ONCE);
    while let Some((path, head)) = reads.next().await {
        if !reading.take(path, head) {
            break;
        }
    }
    reading.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(entries_max: usize) -> HeadQuery {
        HeadQuery {
            roots: vec![SandboxPath::workspace()],
            file_name: "SKILL.md",
            pruned: &["node_modules"],
            entries_max,
            levels_max: 2,
            files_max: 2,
            head_bytes: 16,
            bytes_max: 20,
        }
    }

    fn entries(names: &[&str]) -> Result<Vec<DirEntry>> {
        let kind = |name: &str| match name.contains('.') || name.is_empty() {
            true => FileKind::File,
            false => FileKind::Directory,
        };
        let entry = |name: &&str| DirEntry { name: (*name).to_owned(), kind: kind(name), size: 0 };
        Ok(names.iter().map(entry).collect())
    }

    #[test]
    fn only_what_is_within_the_bounds_is_listed_and_found() {
        let query = query(100);
        let [root] = query.roots.as_slice() else { unreachable!("one root") };
        let mut search = Search::new(&query, root);
        let mut asked = Vec::new();
        while let Some(directory) = search.next_directory() {
            asked.push(directory.as_str().to_owned());
            search.listed(match directory.as_str() {
                "/workspace" => entries(&["b", "a", "node_modules", "skill.MD", "SKILL.md.txt"]),
                "/workspace/a" => entries(&["SKILL.md", "deep"]),
                "/workspace/a/deep" => entries(&["SKILL.md", "deeper"]),
                _ => Err(Error::new(crate::ErrorKind::PermissionDenied, "read_dir", "closed")),
            });
        }
        assert_eq!(asked, ["/workspace", "/workspace/b", "/workspace/a", "/workspace/a/deep"]);
        let Searched { paths, found, left_out } = search.end();
        let paths: Vec<_> = paths.iter().map(SandboxPath::as_str).collect();
        // The first two that were met, and all three counted.
        assert_eq!((paths, found), (vec!["/workspace/a/SKILL.md", "/workspace/skill.MD"], 3));
        assert!(matches!(left_out, Some(LeftOut::Directory(path, _)) if path.as_str() == "/workspace/b"));
    }

    #[test]
    fn the_entry_after_the_last_ends_the_search_of_its_root() {
        let query = query(2);
        let [root] = query.roots.as_slice() else { unreachable!("one root") };
        let mut search = Search::new(&query, root);
        assert!(search.next_directory().is_some());
        search.listed(entries(&["a", "SKILL.md", "b"]));
        assert_eq!(search.next_directory(), None);
        let Searched { found, left_out, .. } = search.end();
        assert_eq!(found, 1);
        assert!(matches!(left_out, Some(LeftOut::Entries(_))));
    }

    #[test]
    fn files_after_the_last_and_bytes_after_the_last_are_counted_and_not_in_the_answer() {
        let query = query(100);
        let path = |text: &str| SandboxPath::workspace().join(text).unwrap();
        let of = |names: &[&str], found| Searched {
            paths: names.iter().map(|name| path(name)).collect(),
            found,
            left_out: None,
        };
        let (mut reading, paths) = Reading::new(&query, vec![of(&["a", "b"], 7), of(&["c"], 1)]);
        assert_eq!(paths, [path("a"), path("b")]);
        assert!(reading.take(path("a"), Ok(Bytes::from_static(&[0; 20]))));
        assert!(!reading.take(path("b"), Ok(Bytes::from_static(&[0; 1]))));
        let heads = reading.end();
        assert_eq!(heads.files.len(), 1);
        assert!(matches!(heads.left_out.as_slice(), [LeftOut::Files { found: 8, read: 1 }]));
    }
}
