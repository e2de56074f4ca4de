//! [`Names`]: names that nothing else has.

use std::ffi::OsString;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};

/// The beginning of the names that something in the root of a live view has for a moment; 16 and more hexadecimal digits and a
/// `-` follow.
pub(crate) const TEMPORARY_PREFIX: &str = ".filesecbox-";

/// Names that nothing else has.
pub(crate) struct Names {
    session: u64,
    next: AtomicU64,
}

impl Names {
    /// Names of a session of their own.
    ///
    /// # Errors
    /// [`Error::Io`] when the kernel gives no random bytes.
    pub(crate) fn new() -> Result<Self> {
        let mut session = [0; 8];
        getrandom::fill(&mut session)
            .map_err(|error| Error::from_io("getrandom", "stage", io::Error::other(error.to_string())))?;
        Ok(Self { session: u64::from_le_bytes(session), next: AtomicU64::new(0) })
    }

    /// Tells whether `session` is what the names of this session begin with.
    pub(crate) fn is_session(&self, session: &str) -> bool {
        session == format!("{:016x}", self.session)
    }

    /// A name that nothing has.
    pub(crate) fn fresh(&self) -> OsString {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        format!("{:016x}-{number:x}", self.session).into()
    }

    /// A name that nothing has, for something in the root of a live view.
    pub(crate) fn temporary(&self) -> OsString {
        let mut name = OsString::from(TEMPORARY_PREFIX);
        name.push(self.fresh());
        name
    }
}
