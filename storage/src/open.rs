//! [`Store::open`]: the core of a store, with what the floors above do for it.

use std::path::Path;

use policy::TreeId;

use crate::core::open::Recovery;
use crate::core::options::Options;
use crate::core::store::Store;
use crate::error::Result;
use crate::files::patch;

impl Store {
    /// Opens the store below `path`, makes what is missing and mends what a crash left.
    ///
    /// # Errors
    /// [`Error::Conflict`](crate::Error::Conflict) when another process has the store open; [`Error::Unsupported`](crate::Error::Unsupported) when the file system
    /// keeps no user attributes or no whiteouts, or when the layout is of another version; [`Error::Io`](crate::Error::Io).
    pub fn open(path: &Path, options: Options) -> Result<(Self, Recovery)> {
        let settle = |store: &Self, id: &TreeId| store.skills().settle_promoted(id);
        let (store, mut recovery, patches) = Self::open_core(path, options, settle)?;
        recovery.finished += patch::redo_patches(&store, patches)?;
        Ok((store, recovery))
    }
}
