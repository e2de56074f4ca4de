//! [`extract()`]: writes one planned skill beneath a directory.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::iter::Enumerate;
use std::num::NonZero;
use std::slice::IterMut;
use std::thread;

use parking_lot::Mutex;
use policy::RelPath;
use rustix::fs::{Timespec, Timestamps, UTIME_OMIT};

use super::plan::{PlannedSkill, WholeTree};
use super::source::Source;
use super::tree::{Directory, Node, PackedFile};
use super::unpack::Unpacker;
use crate::dir::{DEPTH_MAX, Dir};
use crate::error::{ArchiveError, Error, Result};
use crate::interrupt;
use crate::version::{Contents, Digester};

/// Window for reading data.
const WINDOW_BYTES: usize = 256 * 1024;

/// Mode of every directory made.
pub(crate) const DIRECTORY_MODE: u32 = 0o755;

/// Threads that write one skill at most. Each takes about 0.5 MiB and, for the file it writes, one descriptor.
const THREADS_MAX: usize = 4;

/// From how many files, or unpacked bytes, on more than one thread is worth its start.
const FILES_PARALLEL: usize = 64;
const BYTES_PARALLEL: u64 = 1024 * 1024;

/// Writes the files and directories of `skill` into the empty directory `into`, and tells what they are, worked out
/// while their bytes passed.
///
/// `archive` is the file that was planned. Files get the mode and, where the archive has one, the modification
/// time that were planned; nothing is made durable, which is the publisher's one `syncfs`. A large skill is written
/// by up to four threads. After an error `into` holds a part of the skill and is to be removed.
///
/// # Errors
/// [`Error::Archive`] when data is damaged or not as declared, naming the first such file in the order of the tree
/// however many threads there are; [`Error::AlreadyExists`] when `into` was not empty; [`Error::TooManyEntries`] when
/// the skill is deeper than any walk goes; [`Error::NoSpace`], [`Error::Io`]; those of [`interrupt::check`].
pub fn extract(archive: &File, skill: &PlannedSkill, into: &Dir) -> Result<Contents> {
    extract_tree(archive, &skill.tree, (skill.files, skill.bytes), into)
}

/// The same, for everything in an archive.
///
/// # Errors
/// As [`extract`].
pub fn extract_whole(archive: &File, whole: &WholeTree, into: &Dir) -> Result<Contents> {
    extract_tree(archive, &whole.tree, (whole.files, whole.bytes), into)
}

fn extract_tree(archive: &File, tree: &Directory, extent: (usize, u64), into: &Dir) -> Result<Contents> {
    let mut entries = Vec::new();
    make_directories(tree, into, &RelPath::root(), DEPTH_MAX, &mut entries)?;
    write_files(archive, into, &mut entries, threads(extent))?;
    let mut digester = Digester::new();
    for entry in &entries {
        let path = entry.path.as_str().as_bytes();
        match &entry.content {
            Content::Directory => digester.directory(path),
            Content::File { packed, digest } => digester.file(path, packed.mode, digest, packed.size),
        }
    }
    Ok(digester.finish())
}

/// The entries to be written.
struct Entry<'plan> {
    path: RelPath,
    content: Content<'plan>,
}

enum Content<'plan> {
    Directory,
    File {
        packed: &'plan PackedFile,
        /// Of its bytes; zeros until they are written.
        digest: blake3::Hash,
    },
}

/// Makes every directory of `tree` and lists everything in it in the order in which a version is worked out.
///
/// One descriptor is open per level.
fn make_directories<'plan>(
    tree: &'plan Directory,
    into: &Dir,
    path: &RelPath,
    levels: usize,
    entries: &mut Vec<Entry<'plan>>,
) -> Result<()> {
    let Some(levels) = levels.checked_sub(1) else {
        return Err(Error::TooManyEntries(DEPTH_MAX));
    };
    for (name, node) in &tree.children {
        let path = path.join(name)?;
        match node {
            Node::File(packed) => {
                let digest = blake3::Hash::from_bytes([0; 32]);
                entries.push(Entry { path, content: Content::File { packed, digest } });
            }
            // Resolved while planning.
            Node::Link(_) => return Err(ArchiveError::Changed.into()),
            Node::Directory(below) => {
                let made = into.create_dir(OsStr::new(name), DIRECTORY_MODE)?;
                entries.push(Entry { path: path.clone(), content: Content::Directory });
                make_directories(below, &made, &path, levels, entries)?;
            }
        }
    }
    Ok(())
}

/// How many threads are worth their start.
fn threads((files, bytes): (usize, u64)) -> usize {
    if files < FILES_PARALLEL && bytes < BYTES_PARALLEL {
        return 1;
    }
    thread::available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX).min(files.max(1))
}

/// Writes every file of `entries` and notes its digest.
fn write_files(archive: &File, into: &Dir, entries: &mut [Entry<'_>], threads: usize) -> Result<()> {
    let queue = Mutex::new(Queue { left: entries.iter_mut().enumerate(), failure: None });
    // A thread that helps ends when the job does.
    let interrupt = interrupt::current();
    let help = || match &interrupt {
        Some(interrupt) => interrupt.enter(|| work(archive, into, &queue)),
        None => work(archive, into, &queue),
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            // Without another thread the work is done all the same.
            let thread = thread::Builder::new().name("extract".to_owned());
            if thread.spawn_scoped(scope, help).is_err() {
                break;
            }
        }
        help();
    });
    match queue.into_inner().failure {
        Some((_, error)) => Err(error),
        None => Ok(()),
    }
}

/// The entries left to write, and the first failure.
struct Queue<'entries, 'plan> {
    left: Enumerate<IterMut<'entries, Entry<'plan>>>,
    /// Of the first entry that failed. Entries are taken in order and each one taken is written, even when another
    /// fails meanwhile, so this is the failure that one thread alone would have met.
    failure: Option<(usize, Error)>,
}

impl<'entries, 'plan> Queue<'entries, 'plan> {
    fn take(&mut self) -> Option<(usize, &'entries mut Entry<'plan>)> {
        if self.failure.is_some() { None } else { self.left.next() }
    }

    fn fail(&mut self, number: usize, error: Error) {
        if self.failure.as_ref().is_none_or(|(first, _)| number < *first) {
            self.failure = Some((number, error));
        }
    }
}

/// Writes entries until none is left or one fails.
fn work(archive: &File, into: &Dir, queue: &Mutex<Queue<'_, '_>>) {
    let mut writer = match Source::new(archive, WINDOW_BYTES) {
        Ok(source) => Writer { source, unpacker: Unpacker::new(), into },
        Err(error) => return queue.lock().fail(0, error),
    };
    loop {
        let taken = queue.lock().take();
        let Some((number, entry)) = taken else { return };
        let Content::File { packed, digest } = &mut entry.content else { continue };
        match writer.file(&entry.path, packed) {
            Ok(written) => *digest = written,
            Err(error) => queue.lock().fail(number, error),
        }
    }
}

/// One thread's part.
struct Writer<'run> {
    source: Source<'run>,
    unpacker: Unpacker,
    into: &'run Dir,
}

impl Writer<'_> {
    /// Returns the digest of the file's bytes.
    fn file(&mut self, path: &RelPath, packed: &PackedFile) -> Result<blake3::Hash> {
        let mut file = self.into.create_file_beneath(path, packed.mode)?;
        let mut hasher = blake3::Hasher::new();
        self.unpacker.unpack(&mut self.source, packed, path.as_str(), |chunk| {
            interrupt::check()?;
            hasher.update(chunk);
            file.write_all(chunk).map_err(|error| Error::from_io("write", path, error))
        })?;
        if let Some(seconds) = packed.modified {
            let times = Timestamps {
                last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
                last_modification: Timespec { tv_sec: seconds, tv_nsec: 0 },
            };
            rustix::fs::futimens(&file, &times).map_err(|errno| Error::from_errno("utimens", path, errno))?;
        }
        Ok(hasher.finalize())
    }
}
