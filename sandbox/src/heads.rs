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
    /// The files after the first [`HeadQuery::files_max`], of this many.
    Files(usize),
}

/// The search below one root, without the calls that it needs: whoever makes them asks for the next directory until there is none.
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
    found: Vec<SandboxPath>,
    left_out: Option<LeftOut>,
}

impl<'a> Search<'a> {
    /// The search of `query` below `root`.
    #[must_use]
    pub fn new(query: &'a HeadQuery, root: &'a SandboxPath) -> Self {
        let waiting = vec![(root.clone(), 0)];
        Self { query, root, waiting, current: None, seen: 0, found: Vec::new(), left_out: None }
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
                self.left_out = Some(LeftOut::Directory(directory, error));
                return;
            }
        };
        let mut below = Vec::new();
        for entry in entries {
            self.seen += 1;
            if self.seen > self.query.entries_max {
                self.waiting.clear();
                self.left_out = Some(LeftOut::Entries(self.root.clone()));
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
                _ => self.found.push(path),
            }
        }
        self.waiting.extend(below.into_iter().rev());
    }

    /// The paths of the files, sorted, and what was not searched.
    #[must_use]
    pub fn end(mut self) -> (Vec<SandboxPath>, Option<LeftOut>) {
        self.found.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
        (self.found, self.left_out)
    }
}

/// Puts the searches of all roots together: the paths to read, and what was not searched.
#[must_use]
pub fn to_read(
    query: &HeadQuery,
    searched: Vec<(Vec<SandboxPath>, Option<LeftOut>)>,
) -> (Vec<SandboxPath>, Vec<LeftOut>) {
    let (mut paths, mut left_out) = (Vec::new(), Vec::new());
    for (found, of_root) in searched {
        paths.extend(found);
        left_out.extend(of_root);
    }
    if paths.len() > query.files_max {
        left_out.push(LeftOut::Files(paths.len()));
        paths.truncate(query.files_max);
    }
    (paths, left_out)
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
    let (paths, left_out) = to_read(query, searched);
    let reads: Vec<_> = paths
        .into_iter()
        .map(|path| async move {
            let options = ReadOptions { range: Some(0..query.head_bytes), bytes_max: None };
            let read = async { sandbox.read_file(user, &path, options).await?.bytes().await };
            let read = read.await;
            (path, read)
        })
        .collect();
    Heads { files: stream::iter(reads).buffered(AT_ONCE).collect().await, left_out }
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
        let (found, left_out) = search.end();
        let found: Vec<_> = found.iter().map(SandboxPath::as_str).collect();
        assert_eq!(found, ["/workspace/a/SKILL.md", "/workspace/a/deep/SKILL.md", "/workspace/skill.MD"]);
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
        let (found, left_out) = search.end();
        assert_eq!(found.len(), 1);
        assert!(matches!(left_out, Some(LeftOut::Entries(_))));
    }

    #[test]
    fn files_after_the_last_are_counted_and_not_read() {
        let query = query(100);
        let path = |text: &str| SandboxPath::workspace().join(text).unwrap();
        let (read, left_out) =
            to_read(&query, vec![(vec![path("a"), path("b")], None), (vec![path("c")], None)]);
        assert_eq!(read, [path("a"), path("b")]);
        assert!(matches!(left_out.as_slice(), [LeftOut::Files(3)]));
    }
}
