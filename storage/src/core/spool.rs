//! [`Spool`]: a file of no name for what is on its way.

use std::fs::File;
use std::io::Write;

use policy::UserId;

use crate::core::store::Store;
use crate::core::usage::Flight;
use crate::error::{Error, Result};

/// A file of no name whose bytes count for a user ([`Flight`]). It goes when it is closed.
pub struct Spool {
    file: File,
    flight: Flight,
}

impl Store {
    /// Makes a file of no name for an upload or a download of `user`.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::NoSpace`], [`Error::Io`].
    pub fn spool(&self, user: &UserId) -> Result<Spool> {
        Ok(Spool { file: self.unnamed_file()?, flight: self.flight(user) })
    }

    /// Makes a file of no name in the store. It goes when it is closed; the code that writes to it bounds it.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::NoSpace`], [`Error::Io`].
    pub fn unnamed_file(&self) -> Result<File> {
        self.admit_space()?;
        let name = self.inner.stage.fresh_name();
        let file = self.inner.stage.dir().create_file(&name, 0o600)?;
        self.inner.stage.dir().remove_file(&name)?;
        Ok(file)
    }
}

impl Spool {
    /// The open file.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The open file, and what it counts as.
    pub(crate) fn parts(&mut self) -> (&File, &mut Flight) {
        (&self.file, &mut self.flight)
    }

    /// Appends `bytes`, once there is room for them.
    ///
    /// # Errors
    /// As [`Flight::take`]; [`Error::NoSpace`], [`Error::Io`].
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.flight.take(u64::try_from(bytes.len()).unwrap_or(u64::MAX))?;
        self.file.write_all(bytes).map_err(|error| Error::from_io("write", "spool", error))
    }

    /// The file, and what counts for as long as it is open.
    #[must_use]
    pub fn into_parts(self) -> (File, Flight) {
        (self.file, self.flight)
    }
}
