//! The failures of operations on stored bytes, by meaning.

mod archive;

use std::io;

use policy::PathError;
use thiserror::Error;

pub use self::archive::ArchiveError;
pub(crate) use self::archive::excerpt;
use crate::encoding::{TextEncoding, Unencodable};
use crate::stat::ETag;

/// The result of a storage operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why a condition of a change does not hold, and the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Unmet {
    /// The file is there and has another tag.
    #[error("has changed: read it again and repeat the change with its new tag")]
    Changed,
    /// The file is there, and the caller gave no tag that could be its own.
    #[error("is compared with strong tags only, and `W/` marks a weak one: send the tag that `ETag` gave")]
    Weak,
    /// Nothing is there.
    #[error("does not exist, so that no tag is its own: to make it, send the change without `If-Match`")]
    Missing,
    /// Something is there and nothing was to be.
    #[error("exists already: choose another path, or read it and send `If-Match` with its tag to replace it")]
    Exists,
}

/// A failure of a storage operation, named by what it means to the sender.
#[derive(Debug, Error)]
pub enum Error {
    /// No layer has the path, or a whiteout hides it.
    #[error("`{0}` does not exist")]
    NotFound(String),
    /// The path is taken.
    #[error("`{0}` already exists")]
    AlreadyExists(String),
    /// A file was needed and a directory is there.
    #[error("`{0}` is a directory")]
    IsDirectory(String),
    /// A directory was needed and something else is there.
    #[error("`{0}` is not a directory")]
    NotADirectory(String),
    /// A directory that is not empty was to be removed without `recursive`.
    #[error("`{0}` is not empty: remove it with `recursive`")]
    NotEmpty(String),
    /// A symbolic link or hard link leads out of the tree.
    #[error("`{0}` leads out of its tree")]
    Escape(String),
    /// A socket, pipe or device, which is never opened.
    #[error("`{0}` is neither a file nor a directory")]
    NotAFile(String),
    /// The permission bits keep the service out: a command of the same user closed it.
    #[error("`{0}` is closed by its permission bits: open it with `chmod` in a command")]
    Closed(String),
    /// Nothing can be moved or copied into itself.
    #[error("`{from}` cannot be moved or copied into itself (`{to}`)")]
    IntoItself {
        /// The source of the move or copy.
        from: String,
        /// Where to.
        to: String,
    },
    /// The name cannot be spelled here.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The caller's condition does not hold; nothing was changed.
    #[error("`{path}` {unmet}")]
    Stale {
        /// The file.
        path: String,
        /// The reason.
        unmet: Unmet,
        /// Its tag now; `None` when it does not exist.
        current: Option<ETag>,
    },
    /// The bytes are not text.
    #[error("`{0}` is not text in UTF-8, UTF-16 or GB 18030: use `raw`")]
    NotText(String),
    /// A change would put a character into a file that its encoding does not have; nothing was changed.
    #[error(
        "`{path}` is in {encoding}, which has no {character:?} (line {line} of the new text): leave it out, or convert \
         the file with `edit` and `encoding=utf-8`"
    )]
    Unencodable {
        /// The file.
        path: String,
        /// Its encoding.
        encoding: TextEncoding,
        /// The first such character.
        character: char,
        /// Its line, 1-based.
        line: u64,
    },
    /// The old lines of a hunk are not in the file, or at several places and not at the one named; nothing was changed.
    #[error(
        "hunk {hunk} of `{path}` (line {line} of the patch): its old lines are there {found} times{}: {}",
        .nearest.map_or(String::new(), |line| format!(" (line {line} of the file comes nearest)")),
        if *.found == 0 { "send them exactly as the file has them" } else { "name the right line, or send more context" }
    )]
    HunkMismatch {
        /// The file.
        path: String,
        /// Which hunk of the file, from 1.
        hunk: usize,
        /// The line of the patch where it begins, 1-based.
        line: u64,
        /// At how many places its old lines are.
        found: usize,
        /// The line of the file that comes nearest, 1-based.
        nearest: Option<u64>,
    },
    /// A patch that cannot be read, or cannot be meant.
    #[error("line {line} of the patch: {reason}")]
    Patch {
        /// The line, 1-based.
        line: u64,
        /// The fault.
        reason: String,
    },
    /// A pattern for paths, or a regular expression, that cannot be meant or costs too much.
    #[error("the pattern `{pattern}` is refused: {reason}")]
    Pattern {
        /// The pattern, or its beginning.
        pattern: String,
        /// The fault.
        reason: String,
    },
    /// A line range that cannot be meant.
    #[error("lines {start}..{end} of `{path}` ({total} lines) cannot be replaced: {rule}")]
    LineRange {
        /// The file.
        path: String,
        /// First line asked for.
        start: u64,
        /// Last line asked for.
        end: u64,
        /// Lines in the file.
        total: u64,
        /// The rule that was broken.
        rule: &'static str,
    },
    /// The text to replace occurs another number of times than expected.
    #[error(
        "edit {index}: the old string occurs {found} times in `{path}`, expected {expected}{}: {}",
        .nearest.map_or(String::new(), |line| format!(" (line {line} comes nearest)")),
        if *.found == 0 { "send the text exactly as the file has it" } else { "include more surrounding lines" }
    )]
    EditMismatch {
        /// The file.
        path: String,
        /// Which edit of the request, from 0.
        index: usize,
        /// How often the text occurs.
        found: usize,
        /// How often it should.
        expected: usize,
        /// The line that resembles its first line most, 1-based.
        nearest: Option<u64>,
    },
    /// More bytes than a limit allows.
    #[error("{what} is larger than {limit} bytes")]
    TooLarge {
        /// The text or file that is too large.
        what: String,
        /// The limit, in bytes.
        limit: u64,
    },
    /// A walk met more entries, or went down more levels, than a limit allows.
    #[error("the tree has more than {0} entries or levels: name a directory in it")]
    TooManyEntries(usize),
    /// The archive was refused.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// A package that was kept has other bytes than it was kept with. It was removed.
    #[error("the package {0} that was kept here is damaged and was removed: put it again")]
    Damaged(String),
    /// Another change of the whole skill came between.
    #[error("{0}")]
    Conflict(String),
    /// The file system is full.
    #[error("no space is left for `{0}`")]
    NoSpace(String),
    /// The kernel keeps what a tree may take, and that is used up.
    #[error(
        "what its tree may take on the disk is used up, and `{0}` needs more (`limits.disk`): remove something there first"
    )]
    OverQuota(String),
    /// A tree would take more than it may; nothing was changed.
    #[error(
        "{tree} takes {used} of {limit} {unit} and {needs} more are needed (`{setting}`): remove something there first"
    )]
    Quota {
        /// The tree, as callers know it.
        tree: String,
        /// The setting that limits it.
        setting: &'static str,
        /// The counted unit: `bytes` or `files`.
        unit: &'static str,
        /// The present use of the tree.
        used: u64,
        /// The limit of the tree.
        limit: u64,
        /// The growth by the change.
        needs: u64,
    },
    /// A tree that commands have filled so that it cannot be counted any more; nothing was changed.
    #[error(
        "{0} has more files than twice `limits.disk.files`, or more than 256 levels: remove directories there by \
         requests, commands do not start in it before"
    )]
    Countless(String),
    /// The file system has less room left than it is to keep; nothing was changed.
    #[error(
        "{free} bytes are free on the disk and {floor} stay free (`limits.disk.free_bytes`): remove something, or ask \
         the operator for room"
    )]
    Full {
        /// Bytes that are free.
        free: u64,
        /// Bytes that are to stay free.
        floor: u64,
    },
    /// A user's requests have too much on its way; nothing was changed.
    #[error(
        "{used} bytes of this user's unfinished changes, uploads and downloads are on the disk and {needs} more are needed \
         (at most {limit}, `limits.disk.in_flight_bytes`): end one of them, then try again"
    )]
    InFlight {
        /// The present use of all of them, in bytes.
        used: u64,
        /// The further need of one of them.
        needs: u64,
        /// Their limit together.
        limit: u64,
    },
    /// A directory that is too large to be packed; nothing was packed.
    #[error(
        "`{what}` has {bytes} bytes, every name by itself and holes of files included, and a download packs at most {limit} \
         (`limits.files.download_bytes`): read its files one by one, or remove large files and second names first"
    )]
    Unpackable {
        /// The skill, or the directory.
        what: String,
        /// The amount to be packed, or that was met before the packing was given up.
        bytes: u64,
        /// The limit of packing.
        limit: u64,
    },
    /// The kernel watches no more directories for this user.
    #[error(
        "the kernel watches no more directories: try again later; the operator raises `fs.inotify`'s limits"
    )]
    Watches,
    /// The caller left before the work was done; nothing was changed.
    #[error("the caller left before the work was done")]
    Abandoned,
    /// The work takes longer than one request may; nothing was changed.
    #[error(
        "the work takes more than {seconds} s (`limits.work.long_ms`): name less of the tree, or do it in several requests"
    )]
    TooLong {
        /// How long it may take, in seconds.
        seconds: u64,
    },
    /// The file system or kernel lacks something the store needs.
    #[error("{0}")]
    Unsupported(String),
    /// The operating system refused an operation for a reason without a name here.
    #[error("{operation} failed on `{path}`")]
    Io {
        /// The system call or step.
        operation: &'static str,
        /// The path, relative to a tree or to the store.
        path: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// The error for the file `path` with a character that its encoding lacks.
    pub(crate) fn unencodable(path: &str, lacking: Unencodable) -> Self {
        let Unencodable { encoding, character, line } = lacking;
        Self::Unencodable { path: path.to_owned(), encoding, character, line }
    }

    /// Names the failure of a system call on `path`, as [`dirfd::Error`] does.
    pub(crate) fn from_errno(operation: &'static str, path: impl ToString, errno: rustix::io::Errno) -> Self {
        dirfd::Error::from_errno(operation, path, errno).into()
    }

    /// Names the failure of reading or writing an open file: [`Error::NoSpace`] for a full disk, and so on.
    #[must_use]
    pub fn from_io(operation: &'static str, path: impl ToString, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(code) => Self::from_errno(operation, path, rustix::io::Errno::from_raw_os_error(code)),
            None => Self::Io { operation, path: path.to_string(), source },
        }
    }
}

impl From<dirfd::Error> for Error {
    /// Tells an agent what to do about it, where there is something to be done.
    fn from(error: dirfd::Error) -> Self {
        use dirfd::Error as E;
        match error {
            E::NotFound(path) => Self::NotFound(path),
            E::AlreadyExists(path) => Self::AlreadyExists(path),
            E::IsDirectory(path) => Self::IsDirectory(path),
            E::NotADirectory(path) => Self::NotADirectory(path),
            E::NotEmpty(path) => Self::NotEmpty(path),
            E::Escape(path) => Self::Escape(path),
            E::NotAFile(path) => Self::NotAFile(path),
            E::Closed(path) => Self::Closed(path),
            E::Held(path) => Self::Conflict(format!("a command holds `{path}`: try again when it is done")),
            E::Moved => Self::Conflict(error.to_string()),
            E::TooManyEntries(limit) => Self::TooManyEntries(limit),
            E::NameTooLong(path) => Self::Path(PathError::SegmentTooLong(path.len())),
            E::NoSpace(path) => Self::NoSpace(path),
            E::OverQuota(path) => Self::OverQuota(path),
            E::Io { operation, path, source } => Self::Io { operation, path, source },
        }
    }
}
