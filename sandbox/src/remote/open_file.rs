//! [`OpenFile`]: a file that a runner has open for this side.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::link::Link;
use crate::wire::Request;
use crate::wire::request::Handle;

/// An open file of a runner, forgotten there when this is dropped.
pub(super) struct OpenFile {
    pub(super) link: Arc<Link>,
    pub(super) handle: u64,
    is_over: AtomicBool,
}

impl OpenFile {
    /// The file that the runner calls `handle`.
    pub(super) fn new(link: Arc<Link>, handle: u64, is_over: bool) -> Self {
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
