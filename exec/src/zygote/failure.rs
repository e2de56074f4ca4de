//! [`Failure`]: a step of starting a run that failed.

use std::io;
use std::os::fd::BorrowedFd;

use crate::step::Step;
use crate::wire::{self, Report};

/// A step that failed, and why.
pub(super) struct Failure(pub(super) Step, pub(super) io::Error);

impl Failure {
    /// Tells the service.
    pub(super) fn report(&self, run: BorrowedFd<'_>) {
        let Self(step, error) = self;
        let errno = error.raw_os_error().unwrap_or(libc::EINVAL);
        let _ = wire::send_message(run, &Report::Failed { step: *step, errno });
    }
}

/// Names the step in which an error happened.
pub(super) fn at<E: Into<io::Error>>(step: Step) -> impl FnOnce(E) -> Failure {
    move |error| Failure(step, error.into())
}
