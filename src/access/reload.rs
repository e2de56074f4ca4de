//! Noticing that the files which hold tokens and keys have changed.
//!
//! Without requests the files are not looked at: a request that comes a second or more after the last look looks at the
//! files' identity, size and times, which takes some microseconds, and reads them again when one of these differs.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use super::signed::Keys;
use super::token::Token;

/// How long after a look the next one may come, in milliseconds.
const PAUSE_MS: u64 = 1000;

/// The tokens and keys by which callers are known.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// Static tokens.
    pub tokens: Vec<Token>,
    /// Keys of signed tokens.
    pub keys: Keys,
}

/// Reads credentials, or says why not.
type Read = dyn Fn() -> Result<Credentials, String> + Send + Sync;

/// Files that hold credentials, and how to read them.
pub struct Sources {
    /// Looked at for changes.
    pub files: Vec<PathBuf>,
    /// Reads all of them.
    pub read: Box<Read>,
}

impl std::fmt::Debug for Sources {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Sources").field("files", &self.files).finish_non_exhaustive()
    }
}

/// The values that differ when a file has changed: device, inode, size and times of change; `None` when it is not
/// there.
type Look = Option<(u64, u64, u64, i64, i64, i64)>;

/// Sources with what they looked like when they were read last.
#[derive(Debug)]
pub(super) struct Watch {
    sources: Sources,
    since: Instant,
    /// Milliseconds from `since` to the last look.
    looked_ms: AtomicU64,
    last: Mutex<Vec<Look>>,
}

impl Watch {
    pub(super) fn new(sources: Sources) -> Self {
        let last = Mutex::new(looks(&sources.files));
        Self { sources, since: Instant::now(), looked_ms: AtomicU64::new(0), last }
    }

    /// Reads the sources when they have changed, or `is_asked`.
    pub(super) fn changed(&self, is_asked: bool) -> Option<Result<Credentials, String>> {
        let now = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        let looked = self.looked_ms.load(Ordering::Relaxed);
        if !is_asked {
            if now.saturating_sub(looked) < PAUSE_MS {
                return None;
            }
            // Of several requests at the same time, one looks.
            self.looked_ms.compare_exchange(looked, now, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        }
        let mut last = self.last.lock();
        // Before they are read: a change in between is noticed next time.
        let looks = looks(&self.sources.files);
        if *last == looks && !is_asked {
            return None;
        }
        *last = looks;
        Some((self.sources.read)())
    }
}

fn looks(files: &[PathBuf]) -> Vec<Look> {
    files.iter().map(|path| look(path)).collect()
}

fn look(path: &Path) -> Look {
    let stat = std::fs::metadata(path).ok()?;
    Some((stat.dev(), stat.ino(), stat.size(), stat.mtime(), stat.mtime_nsec(), stat.ctime_nsec()))
}
