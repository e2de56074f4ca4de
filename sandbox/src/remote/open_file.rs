//! [`OpenFile`]: a file that a runner has open for this side.

use std::sync::atomic::{AtomicBool, Ordering};

use super::machine::Lent;
use crate::wire::Request;
use crate::wire::request::Handle;

/// An open file of a runner, forgotten there when this is dropped.
pub(super) struct OpenFile {
    pub(super) link: Lent,
    pub(super) handle: u64,
    is_over: AtomicBool,
}

impl OpenFile {
    /// The file that the runner calls `handle`.
    pub(super) fn new(link: Lent, handle: u64, is_over: bool) -> Self {
        Self { link, handle, is_over: AtomicBool::new(is_over) }
    }

    /// Notes that the runner has closed it.
    pub(super) fn is_over(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if !self.is_over.load(Ordering::Relaxed) {
            self.link.tell(&Request::Close(Handle { handle: self.handle }));
        }
    }
}
