//! Making what was changed durable.

use crate::dir::Dir;
use crate::error::{Error, Result};

impl Dir {
    /// Makes the entries of this directory durable (fsync(2) of the directory).
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn sync(&self) -> Result<()> {
        rustix::fs::fsync(&self.fd).map_err(|errno| Error::from_errno("fsync", ".", errno))
    }

    /// Makes everything on this directory's file system durable (syncfs(2)): one call for a whole tree.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn sync_file_system(&self) -> Result<()> {
        #[cfg(feature = "trace")]
        crate::trace::note("syncfs", std::ffi::OsStr::new(""));
        rustix::fs::syncfs(&self.fd).map_err(|errno| Error::from_errno("syncfs", ".", errno))
    }
}
