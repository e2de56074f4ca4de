//! [`each`]: the same work on many items, by several threads where that is worth their start.

use std::iter::Enumerate;
use std::num::NonZero;
use std::slice::IterMut;
use std::thread;

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::interrupt;

/// Threads of one call at most. Each takes about 0.5 MiB and, for the file that it writes, one descriptor or two.
const THREADS_MAX: usize = 4;

/// From how many files, or bytes, on more than one thread is worth its start.
const FILES_PARALLEL: usize = 64;
const BYTES_PARALLEL: u64 = 1024 * 1024;

/// How much work there is.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) files: usize,
    pub(crate) bytes: u64,
}

impl Extent {
    fn threads(self) -> usize {
        if self.files < FILES_PARALLEL && self.bytes < BYTES_PARALLEL {
            return 1;
        }
        thread::available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX).min(self.files.max(1))
    }
}

/// Does `work` on every item, in their order; each thread has what `begin` made for it.
///
/// # Errors
/// The failure of the first item that fails, however many threads there are.
pub(crate) fn each<T: Send, W>(
    items: &mut [T],
    extent: Extent,
    begin: impl Fn() -> Result<W> + Sync,
    work: impl Fn(&mut W, &mut T) -> Result<()> + Sync,
) -> Result<()> {
    let queue = Mutex::new(Queue { left: items.iter_mut().enumerate(), failure: None });
    let run = || {
        let mut tools = match begin() {
            Ok(tools) => tools,
            Err(error) => return queue.lock().fail(0, error),
        };
        loop {
            let taken = queue.lock().take();
            let Some((number, item)) = taken else { return };
            if let Err(error) = work(&mut tools, item) {
                queue.lock().fail(number, error);
            }
        }
    };
    // A thread that helps ends when the job does.
    let interrupt = interrupt::current();
    let help = || match &interrupt {
        Some(interrupt) => interrupt.enter(run),
        None => run(),
    };
    thread::scope(|scope| {
        for _ in 1..extent.threads() {
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

/// The items that are left, and the first failure.
struct Queue<'items, T> {
    left: Enumerate<IterMut<'items, T>>,
    /// Of the first item that failed. Items are taken in order and each one taken is worked on, even when another fails
    /// meanwhile, so this is the failure that one thread alone would have met.
    failure: Option<(usize, Error)>,
}

impl<'items, T> Queue<'items, T> {
    fn take(&mut self) -> Option<(usize, &'items mut T)> {
        if self.failure.is_some() { None } else { self.left.next() }
    }

    fn fail(&mut self, number: usize, error: Error) {
        if self.failure.as_ref().is_none_or(|(first, _)| number < *first) {
            self.failure = Some((number, error));
        }
    }
}
