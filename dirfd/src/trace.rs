//! The order in which a thread renames and synchronises, for tests of what a loss of power leaves.

use std::cell::RefCell;
use std::ffi::OsStr;

thread_local! {
    static DONE: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Notes what this thread does next.
pub(crate) fn note(what: &str, name: &OsStr) {
    DONE.with_borrow_mut(|done| {
        done.push(format!("{what} {}", name.to_string_lossy()).trim_end().to_owned())
    });
}

/// Everything that this thread did since it was asked last.
pub fn taken() -> Vec<String> {
    DONE.take()
}
