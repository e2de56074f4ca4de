//! A few numbers that a process shares with those it forks.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// How many there are.
const WORDS: usize = 4;

/// Numbers in memory that forked processes go on sharing, until they execute a program. They begin as 0.
#[derive(Debug)]
pub(crate) struct Shared {
    words: NonNull<[AtomicU64; WORDS]>,
}

impl Shared {
    /// Takes a page for them.
    ///
    /// # Errors
    /// As `mmap(2)`: `ENOMEM`.
    pub(crate) fn new() -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at a place of the kernel's choice overlaps nothing.
        let at =
            unsafe { libc::mmap(std::ptr::null_mut(), size_of::<[AtomicU64; WORDS]>(), access, kind, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let words = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { words })
    }

    /// The numbers.
    pub(crate) fn words(&self) -> &[AtomicU64; WORDS] {
        // SAFETY: the mapping is aligned to a page, large enough, filled with zeros, which every `AtomicU64` may hold,
        // and stays until `self` is dropped; the processes that share it only make atomic accesses.
        unsafe { self.words.as_ref() }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: `new` mapped exactly this, and no reference outlives `self`. Other processes keep theirs.
        unsafe { libc::munmap(self.words.as_ptr().cast(), size_of::<[AtomicU64; WORDS]>()) };
    }
}
