//! How many processes and threads a uid or a process group has.
//!
//! Where a run shares the uid of the service, the kernel's limit on the processes of a uid (`RLIMIT_NPROC`) holds for
//! all of them together, so that runs have to be counted one by one, or have to leave room for those that exist already.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How old a count may be. Counting walks `/proc` and takes about 10 µs for each process of the machine.
const FRESH: Duration = Duration::from_millis(250);

/// Counts, and remembers the last count for a while.
#[derive(Debug, Default)]
pub(crate) struct Census {
    last: Mutex<Option<(Instant, u64)>>,
}

impl Census {
    /// Processes and threads of `uid` on this machine, a quarter of a second old at most; 0 where `/proc` cannot be
    /// read.
    pub(crate) fn of(&self, uid: u32) -> u64 {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((when, count)) = *last
            && when.elapsed() < FRESH
        {
            return count;
        }
        let count = of_uid(uid).unwrap_or(0);
        *last = Some((Instant::now(), count));
        count
    }
}

fn of_uid(uid: u32) -> io::Result<u64> {
    let mut count = 0;
    for path in processes()? {
        // A process may end between two lines of this loop; then it does not count.
        if std::fs::metadata(&path).is_ok_and(|meta| meta.uid() == uid)
            && let Ok(tasks) = std::fs::read_dir(path.join("task"))
        {
            count += tasks.count() as u64;
        }
    }
    Ok(count)
}

/// Processes and threads of the process group `group` at this moment; `None` where `/proc` cannot be read. One that is
/// being made may be missing.
pub(crate) fn of_group(group: i32) -> Option<u64> {
    let stats = processes().ok()?.filter_map(|path| std::fs::read(path.join("stat")).ok());
    // A program may name itself as no text is.
    let stats = stats.map(|stat| String::from_utf8_lossy(&stat).into_owned());
    Some(stats.filter(|stat| group_in(stat) == Some(group)).map(|stat| threads_in(&stat)).sum())
}

/// The directories of all processes of this machine.
fn processes() -> io::Result<impl Iterator<Item = std::path::PathBuf>> {
    let entries = std::fs::read_dir("/proc")?.filter_map(Result::ok);
    let is_process = |name: &std::ffi::OsStr| name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
    Ok(entries.filter(move |entry| is_process(&entry.file_name())).map(|entry| entry.path()))
}

/// The process group in a `stat` (field 5, proc_pid_stat(5)); the program's name before it may hold anything.
pub(crate) fn group_in(stat: &str) -> Option<i32> {
    field(stat, 5)?.parse().ok()
}

/// The number of threads in a `stat` (field 20); a process that its parent has not collected yet counts, too.
fn threads_in(stat: &str) -> u64 {
    field(stat, 20).and_then(|threads| threads.parse().ok()).unwrap_or(0).max(1)
}

/// A field after the program's name, which is the second.
pub(crate) fn field(stat: &str, number: usize) -> Option<&str> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(number.checked_sub(3)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_named_to_confuse_keeps_its_group() {
        assert_eq!(group_in("77 (a) S 1 2 3 (b)) S 5 66 66 0 -1 4194560"), Some(66));
        assert_eq!(group_in(""), None);
    }

    #[test]
    fn threads_of_a_group_count() {
        let group = rustix::process::getpgrp().as_raw_pid();
        let before = of_group(group).unwrap();
        let (told, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || wait.recv());
        // Other tests of this process start and end threads, too.
        assert!(before >= 1 && of_group(group).unwrap() >= 2);
        drop(told);
        let _ = thread.join().unwrap();
        assert_eq!(of_group(i32::MAX), Some(0));
    }
}
