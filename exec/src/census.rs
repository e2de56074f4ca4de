//! How many processes and threads a uid has, which is what the kernel counts against `RLIMIT_NPROC`.
//!
//! Where a run shares the uid of the service, its limit on processes must leave room for those that exist already.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How old a count may be. Counting walks `/proc` and takes about 10 µs for each process of the machine.
const FRESH: Duration = Duration::from_secs(5);

/// Counts, and remembers the last count for a while.
#[derive(Debug, Default)]
pub(crate) struct Census {
    last: Mutex<Option<(Instant, u64)>>,
}

impl Census {
    /// Processes and threads of `uid` on this machine, at most five seconds old; 0 where `/proc` cannot be read.
    pub(crate) fn of(&self, uid: u32) -> u64 {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((when, count)) = *last
            && when.elapsed() < FRESH
        {
            return count;
        }
        let count = count(uid).unwrap_or(0);
        *last = Some((Instant::now(), count));
        count
    }
}

fn count(uid: u32) -> io::Result<u64> {
    let mut count = 0;
    for entry in std::fs::read_dir("/proc")?.filter_map(Result::ok) {
        if !entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit) {
            continue;
        }
        // A process may end between two lines of this loop; then it does not count.
        let tasks = entry.path().join("task");
        if entry.metadata().is_ok_and(|meta| meta.uid() == uid)
            && let Ok(tasks) = std::fs::read_dir(tasks)
        {
            count += tasks.count() as u64;
        }
    }
    Ok(count)
}
