//! [`MemTree`]: one user's files, and what Linux would say to each use of them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use bytes::Bytes;

use super::contents::Contents;
use crate::{
    DirEntry, Error, ErrorKind, FileInfo, FileKind, Result, SandboxPath, Version, WriteMode, WriteOptions,
};

/// Links that a path may lead through (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// Numbers for versions: each entry of every tree of this process takes another one.
static ENTRIES: AtomicU64 = AtomicU64::new(0);
/// Names this process in versions, so that none of an earlier one is taken for one of this.
static PROCESS: LazyLock<u64> = LazyLock::new(|| getrandom::u64().unwrap_or_default());

/// A workspace in memory: what a process that owns all of it and is not root would find.
#[derive(Clone, Debug)]
pub struct MemTree {
    workspace: SandboxPath,
    root: Entry,
}

#[derive(Clone, Debug)]
struct Entry {
    mode: u32,
    modified: SystemTime,
    number: u64,
    node: Node,
}

#[derive(Clone, Debug)]
enum Node {
    File(Contents),
    Directory(BTreeMap<String, Entry>),
    Link(String),
    Pipe,
}

/// Whether a link at the very end of a path is followed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    Follow,
    Keep,
}

impl Entry {
    fn new(mode: u32, node: Node) -> Self {
        let number = ENTRIES.fetch_add(1, Ordering::Relaxed);
        Self { mode, modified: SystemTime::now(), number, node }
    }

    fn kind(&self) -> FileKind {
        match self.node {
            Node::File(_) => FileKind::File,
            Node::Directory(_) => FileKind::Directory,
            Node::Link(_) => FileKind::Symlink,
            Node::Pipe => FileKind::Other,
        }
    }

    fn size(&self) -> u64 {
        match &self.node {
            Node::File(contents) => contents.len(),
            Node::Link(target) => target.len() as u64,
            Node::Directory(_) | Node::Pipe => 0,
        }
    }

    fn version(&self) -> Option<Version> {
        match self.node {
            Node::File(_) => Version::parse(&format!("{:x}-{:x}", *PROCESS, self.number)).ok(),
            Node::Directory(_) | Node::Link(_) | Node::Pipe => None,
        }
    }

    fn allows(&self, bits: u32) -> Result<(), ErrorKind> {
        if self.mode & bits == bits { Ok(()) } else { Err(ErrorKind::PermissionDenied) }
    }

    fn entries(&self) -> Result<&BTreeMap<String, Self>, ErrorKind> {
        match &self.node {
            Node::Directory(entries) => Ok(entries),
            _ => Err(ErrorKind::NotADirectory),
        }
    }
}

const READ: u32 = 0o400;
const SEARCH: u32 = 0o100;
/// To make and remove entries.
const CHANGE: u32 = 0o300;

impl MemTree {
    /// An empty workspace at `workspace`.
    #[must_use]
    pub fn new(workspace: SandboxPath) -> Self {
        Self { workspace, root: Entry::new(0o755, Node::Directory(BTreeMap::new())) }
    }

    /// Where it is.
    #[must_use]
    pub fn workspace(&self) -> &SandboxPath {
        &self.workspace
    }

    /// Makes a symbolic link with any text, as a command could.
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyExists`], and what the path meets.
    pub fn symlink(&mut self, target: &str, path: &SandboxPath) -> Result<()> {
        self.place(path, Entry::new(0o777, Node::Link(target.to_owned()))).map_err(about("symlink", path))
    }

    /// Makes a named pipe, as a command could.
    ///
    /// # Errors
    /// As [`MemTree::symlink`].
    pub fn pipe(&mut self, path: &SandboxPath) -> Result<()> {
        self.place(path, Entry::new(0o644, Node::Pipe)).map_err(about("mkfifo", path))
    }

    /// Sets the permission bits of a file or directory, as a command could.
    ///
    /// # Errors
    /// An error of looking the path up.
    pub fn set_permissions(&mut self, path: &SandboxPath, mode: u32) -> Result<()> {
        let found = self.resolve(path, Last::Follow).and_then(|names| self.entry_mut(&names));
        found.map(|entry| entry.mode = mode).map_err(about("chmod", path))
    }

    /// The whole of a file.
    ///
    /// # Errors
    /// As [`Sandbox::read_file`](crate::Sandbox::read_file).
    pub fn read(&self, path: &SandboxPath) -> Result<Bytes> {
        Ok(self.open(path)?.1.bytes())
    }

    /// Makes or replaces a file.
    ///
    /// # Errors
    /// As [`Sandbox::write_file`](crate::Sandbox::write_file).
    pub fn write(&mut self, path: &SandboxPath, bytes: Bytes) -> Result<()> {
        self.put(path, Contents::from(bytes), WriteOptions::default()).map(drop)
    }

    pub(super) fn open(&self, path: &SandboxPath) -> Result<(FileInfo, Contents)> {
        let open = || {
            let entry = self.entry(&self.resolve(path, Last::Follow)?)?;
            match &entry.node {
                Node::Directory(_) => Err(ErrorKind::IsDirectory),
                Node::File(contents) => entry.allows(READ).map(|()| (info(path, entry), contents.clone())),
                Node::Link(_) | Node::Pipe => Err(ErrorKind::PermissionDenied),
            }
        };
        open().map_err(about("read_file", path))
    }

    pub(super) fn put(
        &mut self,
        path: &SandboxPath,
        contents: Contents,
        options: WriteOptions,
    ) -> Result<Option<Version>> {
        let put = || {
            let last = if options.mode == WriteMode::Create { Last::Keep } else { Last::Follow };
            let is_swap = matches!(options.mode, WriteMode::Swap(_));
            let names = self.resolve(path, last).map_err(|kind| match kind {
                ErrorKind::NotFound if is_swap => ErrorKind::Stale,
                kind => kind,
            })?;
            let mode = match self.entry(&names) {
                Ok(_) if options.mode == WriteMode::Create => return Err(ErrorKind::AlreadyExists),
                Ok(entry) => match (entry.kind(), &options.mode) {
                    (FileKind::File, WriteMode::Swap(version))
                        if entry.version().as_ref() != Some(version) =>
                    {
                        return Err(ErrorKind::Stale);
                    }
                    (FileKind::File, _) => entry.mode,
                    (FileKind::Directory, _) => return Err(ErrorKind::IsDirectory),
                    _ => return Err(ErrorKind::PermissionDenied),
                },
                Err(ErrorKind::NotFound) if is_swap => return Err(ErrorKind::Stale),
                Err(ErrorKind::NotFound) => 0o644,
                Err(kind) => return Err(kind),
            };
            let (directory, name) = self.above(&names)?;
            let file = Entry::new(options.permissions.unwrap_or(mode), Node::File(contents));
            let version = file.version();
            directory.insert(name, file);
            Ok(version)
        };
        put().map_err(about("write_file", path))
    }

    pub(super) fn stat(&self, path: &SandboxPath) -> Result<FileInfo> {
        let entry = self.resolve(path, Last::Follow).and_then(|names| self.entry(&names));
        entry.map(|entry| info(path, entry)).map_err(about("stat", path))
    }

    pub(super) fn read_dir(&self, path: &SandboxPath) -> Result<Vec<DirEntry>> {
        let list = || {
            let entry = self.entry(&self.resolve(path, Last::Follow)?)?;
            let entries = entry.entries()?;
            entry.allows(READ)?;
            let facts = |(name, entry): (&String, &Entry)| DirEntry {
                name: name.clone(),
                kind: entry.kind(),
                size: entry.size(),
            };
            Ok(entries.iter().map(facts).collect())
        };
        list().map_err(about("read_dir", path))
    }

    pub(super) fn mkdir_all(&mut self, path: &SandboxPath, mode: u32) -> Result<()> {
        let mut make = || {
            let mut at = self.workspace.clone();
            let below = path.below(&self.workspace).ok_or(ErrorKind::PermissionDenied)?;
            for segment in below.split('/').filter(|segment| !segment.is_empty()) {
                at = at.join(segment).map_err(|_| ErrorKind::Invalid)?;
                let names = self.resolve(&at, Last::Follow)?;
                match self.entry(&names) {
                    Ok(entry) if entry.kind() == FileKind::Directory => {}
                    Ok(_) => return Err(ErrorKind::NotADirectory),
                    Err(ErrorKind::NotFound) if self.resolve(&at, Last::Keep)? != names => {
                        return Err(ErrorKind::NotADirectory); // a link to nothing
                    }
                    Err(ErrorKind::NotFound) => {
                        let (directory, name) = self.above(&names)?;
                        directory.insert(name, Entry::new(mode, Node::Directory(BTreeMap::new())));
                    }
                    Err(kind) => return Err(kind),
                }
            }
            Ok(())
        };
        make().map_err(about("mkdir_all", path))
    }

    pub(super) fn remove(&mut self, path: &SandboxPath) -> Result<()> {
        let mut remove = || {
            let names = self.resolve(path, Last::Keep)?;
            if names.is_empty() {
                return Err(ErrorKind::Invalid);
            }
            if self.entry(&names)?.entries().is_ok_and(|entries| !entries.is_empty()) {
                return Err(ErrorKind::NotEmpty);
            }
            let (directory, name) = self.above(&names)?;
            directory.remove(&name);
            Ok(())
        };
        remove().map_err(about("remove", path))
    }

    pub(super) fn remove_all(&mut self, path: &SandboxPath) -> Result<()> {
        let mut remove = || {
            let names = self.resolve(path, Last::Keep)?;
            if names.is_empty() {
                return Err(ErrorKind::Invalid);
            }
            self.entry(&names)?;
            let (directory, name) = self.above(&names)?;
            directory.remove(&name);
            Ok(())
        };
        match remove() {
            Ok(()) | Err(ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(()),
            Err(kind) => Err(Error::about(kind, "remove_all", path)),
        }
    }

    /// The names from the workspace down to where `path` really is; the last may be missing.
    fn resolve(&self, path: &SandboxPath, last: Last) -> Result<Vec<String>, ErrorKind> {
        let below = path.below(&self.workspace).ok_or(ErrorKind::PermissionDenied)?;
        let mut waiting: VecDeque<String> = segments(below);
        let (mut names, mut links) = (Vec::new(), 0);
        while let Some(segment) = waiting.pop_front() {
            if segment == ".." {
                names.pop().ok_or(ErrorKind::PermissionDenied)?;
                continue;
            }
            let directory = self.entry(&names)?;
            let entries = directory.entries()?;
            directory.allows(SEARCH)?;
            match entries.get(&segment).map(|entry| &entry.node) {
                Some(Node::Link(target)) if last == Last::Follow || !waiting.is_empty() => {
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(ErrorKind::PermissionDenied);
                    }
                    let mut target = target.as_str();
                    if target.starts_with('/') {
                        let inside = SandboxPath::parse(target).ok();
                        let inside = inside.as_ref().and_then(|inside| inside.below(&self.workspace));
                        if inside.is_none() {
                            return Err(ErrorKind::PermissionDenied);
                        }
                        names.clear();
                        target = target.strip_prefix(self.workspace.as_str()).unwrap_or_default();
                    }
                    let mut first = segments(target);
                    first.append(&mut waiting);
                    waiting = first;
                }
                None if !waiting.is_empty() => return Err(ErrorKind::NotFound),
                _ => names.push(segment),
            }
        }
        Ok(names)
    }

    fn entry(&self, names: &[String]) -> Result<&Entry, ErrorKind> {
        names.iter().try_fold(&self.root, |at, name| at.entries()?.get(name).ok_or(ErrorKind::NotFound))
    }

    fn entry_mut(&mut self, names: &[String]) -> Result<&mut Entry, ErrorKind> {
        names.iter().try_fold(&mut self.root, |at, name| match &mut at.node {
            Node::Directory(entries) => entries.get_mut(name).ok_or(ErrorKind::NotFound),
            _ => Err(ErrorKind::NotADirectory),
        })
    }

    /// The entries of the directory in which the last of `names` is or is to be, which may be changed.
    fn above(&mut self, names: &[String]) -> Result<(&mut BTreeMap<String, Entry>, String), ErrorKind> {
        let (name, above) = names.split_last().ok_or(ErrorKind::IsDirectory)?;
        let directory = self.entry_mut(above)?;
        directory.allows(CHANGE)?;
        directory.modified = SystemTime::now();
        match &mut directory.node {
            Node::Directory(entries) => Ok((entries, name.clone())),
            _ => Err(ErrorKind::NotADirectory),
        }
    }

    fn place(&mut self, path: &SandboxPath, entry: Entry) -> Result<(), ErrorKind> {
        let names = self.resolve(path, Last::Keep)?;
        if self.entry(&names).is_ok() {
            return Err(ErrorKind::AlreadyExists);
        }
        let (directory, name) = self.above(&names)?;
        directory.insert(name, entry);
        Ok(())
    }
}

fn segments(text: &str) -> VecDeque<String> {
    text.split('/').filter(|segment| !matches!(*segment, "" | ".")).map(str::to_owned).collect()
}

fn info(path: &SandboxPath, entry: &Entry) -> FileInfo {
    FileInfo {
        name: path.file_name().unwrap_or_default().to_owned(),
        kind: entry.kind(),
        size: entry.size(),
        mode: entry.mode,
        modified: entry.modified,
        version: entry.version(),
    }
}

fn about(operation: &'static str, path: &SandboxPath) -> impl FnOnce(ErrorKind) -> Error {
    let path = path.clone();
    move |kind| Error::about(kind, operation, &path)
}
