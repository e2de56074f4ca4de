//! [`Buffers`]: memory into which the output of runs is read.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Read buffers, lent to runs and taken back.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    idle: Mutex<Vec<Box<[u8]>>>,
}

impl Buffers {
    /// Size of each buffer, in bytes.
    pub(crate) const BYTES: usize = 64 * 1024;
    /// The most unused buffers that are kept.
    const IDLE_MAX: usize = 32;

    /// Lends a buffer; its contents are left over from others and never shown.
    pub(crate) fn lend(&self) -> Box<[u8]> {
        self.idle().pop().unwrap_or_else(|| vec![0; Self::BYTES].into_boxed_slice())
    }

    /// Takes a buffer back.
    pub(crate) fn take_back(&self, buffer: Box<[u8]>) {
        let mut idle = self.idle();
        if idle.len() < Self::IDLE_MAX {
            idle.push(buffer);
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Box<[u8]>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
