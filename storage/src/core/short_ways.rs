//! Short ways to the directories for temporary files in homes, for commands that see the paths of the host.

use std::ffi::OsStr;

use policy::{RelPath, TreeId};

use crate::core::store::Store;
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::layout;

impl Store {
    /// The link to the directory for temporary files of commands in the tree `id`, below the root.
    pub(crate) fn short_way(&self, id: &TreeId) -> Result<RelPath> {
        Ok(self.link(id)?.0)
    }

    /// Makes that link, where it is not there.
    pub(crate) fn make_short_way(&self, id: &TreeId) -> Result<()> {
        let (link, target) = self.link(id)?;
        match self.short_ways()?.create_symlink(OsStr::new(&target), name(&link)) {
            Err(Error::AlreadyExists(_)) => Ok(()),
            made => made,
        }
    }

    /// Removes it, of a workspace whose home goes.
    pub(crate) fn remove_short_way(&self, id: &TreeId) -> Result<()> {
        match self.short_ways()?.remove_tree(name(&self.short_way(id)?)) {
            Err(Error::NotFound(_)) => Ok(()),
            removed => removed,
        }
    }

    fn link(&self, id: &TreeId) -> Result<(RelPath, String)> {
        layout::short_way(&self.inner.salt, id.user(), id.agent())
    }

    fn short_ways(&self) -> Result<Dir> {
        self.inner.root.open_dir(&RelPath::parse(layout::SHORT_WAYS)?)
    }
}

fn name(link: &RelPath) -> &OsStr {
    OsStr::new(link.file_name().unwrap_or_default())
}

/// Removes the links that a former service left, and lets commands pass.
pub(crate) fn sweep(ways: &Dir) -> Result<()> {
    ways.set_mode(0o711)?;
    for entry in ways.entries()? {
        ways.remove_tree(&entry.name)?;
    }
    Ok(())
}
