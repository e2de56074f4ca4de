//! [`Error`]: the failures of operations on an open directory, by meaning.

use std::io;

use rustix::io::Errno;

/// The result of an operation on an open directory.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure of an operation on an open directory. A path in it is relative to that directory.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing has the path.
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
    /// A directory that was to be removed has entries.
    #[error("`{0}` is not empty")]
    NotEmpty(String),
    /// A path or a symbolic link leads out of the directory, a link that was not to be followed is there, or a name is
    /// none of an entry.
    #[error("`{0}` leads out of its directory")]
    Escape(String),
    /// A socket, pipe or device, which is never opened.
    #[error("`{0}` is neither a file nor a directory")]
    NotAFile(String),
    /// The permission bits keep this process out.
    #[error("`{0}` is closed by its permission bits")]
    Closed(String),
    /// Another process has a lease on the file, which the kernel takes from it soon (fcntl(2), `F_SETLEASE`).
    #[error("another process holds `{0}`: try again when it is done")]
    Held(String),
    /// A process moved a directory while its tree was being removed; a part of the tree is gone.
    #[error("a directory was moved while it was being removed: try again")]
    Moved,
    /// The directory has more entries than the caller allows.
    #[error("the directory has more than {0} entries")]
    TooManyEntries(usize),
    /// A name is longer than the file system allows.
    #[error("a name in `{0}` is too long")]
    NameTooLong(String),
    /// The file system is full.
    #[error("no space is left for `{0}`")]
    NoSpace(String),
    /// The kernel keeps a quota, which is used up.
    #[error("the quota is used up, and `{0}` needs more")]
    OverQuota(String),
    /// The operating system refused an operation for a reason without a name here.
    #[error("{operation} failed on `{path}`")]
    Io {
        /// The system call or step.
        operation: &'static str,
        /// The path, relative to the directory.
        path: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// Names the failure of the system call `operation` on `path`.
    pub fn from_errno(operation: &'static str, path: impl ToString, errno: Errno) -> Self {
        let path = path.to_string();
        match errno {
            Errno::NOENT => Self::NotFound(path),
            Errno::EXIST => Self::AlreadyExists(path),
            Errno::ISDIR => Self::IsDirectory(path),
            Errno::NOTDIR => Self::NotADirectory(path),
            Errno::NOTEMPTY => Self::NotEmpty(path),
            // `openat2` beneath: EXDEV for a way out, ELOOP for a link that was not to be followed or a cycle.
            Errno::XDEV | Errno::LOOP => Self::Escape(path),
            // Opening a socket, or a FIFO for writing without a reader.
            Errno::NXIO => Self::NotAFile(path),
            Errno::AGAIN if operation == "open" => Self::Held(path),
            Errno::ACCESS => Self::Closed(path),
            Errno::NOSPC => Self::NoSpace(path),
            Errno::DQUOT => Self::OverQuota(path),
            Errno::NAMETOOLONG => Self::NameTooLong(path),
            _ => Self::Io { operation, path, source: errno.into() },
        }
    }

    /// The error number that has this meaning (errno(3)), for callers who tell failures by number.
    ///
    /// It is the one that [`Error::from_errno`] was given, but for [`Error::Escape`], which two numbers have.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::NotFound(_) => Errno::NOENT,
            Self::AlreadyExists(_) => Errno::EXIST,
            Self::IsDirectory(_) => Errno::ISDIR,
            Self::NotADirectory(_) => Errno::NOTDIR,
            Self::NotEmpty(_) => Errno::NOTEMPTY,
            Self::Escape(_) => Errno::XDEV,
            Self::NotAFile(_) => Errno::NXIO,
            Self::Closed(_) => Errno::ACCESS,
            Self::Held(_) => Errno::AGAIN,
            Self::Moved => Errno::BUSY,
            Self::TooManyEntries(_) => Errno::OVERFLOW,
            Self::NameTooLong(_) => Errno::NAMETOOLONG,
            Self::NoSpace(_) => Errno::NOSPC,
            Self::OverQuota(_) => Errno::DQUOT,
            Self::Io { source, .. } => Errno::from_io_error(source).unwrap_or(Errno::IO),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_keeps_the_number_that_it_was_made_of() {
        let numbers = [
            Errno::NOENT,
            Errno::EXIST,
            Errno::ISDIR,
            Errno::NOTDIR,
            Errno::NOTEMPTY,
            Errno::XDEV,
            Errno::NXIO,
            Errno::AGAIN,
            Errno::ACCESS,
            Errno::NOSPC,
            Errno::DQUOT,
            Errno::NAMETOOLONG,
            Errno::PERM,
            Errno::ROFS,
        ];
        for errno in numbers {
            assert_eq!(Error::from_errno("open", "a", errno).errno(), errno);
        }
    }
}
