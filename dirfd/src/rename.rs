//! Renaming: what makes a change visible, in one step.

use std::ffi::OsStr;

use rustix::fs::RenameFlags;
use rustix::io::Errno;

use crate::dir::{Dir, segment, shown};
use crate::error::{Error, Result};
use crate::stat::Kind;

impl Dir {
    /// Renames the entry `name` to `to_name` in `to`, replacing what a rename may replace (rename(2)).
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotEmpty`], [`Error::IsDirectory`], [`Error::NotADirectory`].
    pub fn rename(&self, name: &OsStr, to: &Self, to_name: &OsStr) -> Result<()> {
        self.rename_with(name, to, to_name, RenameFlags::empty())
    }

    /// Renames as [`Dir::rename`] but replaces nothing.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`], [`Error::NotFound`].
    pub fn rename_new(&self, name: &OsStr, to: &Self, to_name: &OsStr) -> Result<()> {
        self.rename_with(name, to, to_name, RenameFlags::NOREPLACE)
    }

    /// Lets `name` here and `to_name` in `to` change places in one step, of any kind.
    ///
    /// # Errors
    /// [`Error::NotFound`] when either is missing.
    pub fn exchange(&self, name: &OsStr, to: &Self, to_name: &OsStr) -> Result<()> {
        self.rename_with(name, to, to_name, RenameFlags::EXCHANGE)
    }

    /// Renames and leaves a whiteout under the old name, in one step (renameat2(2), `RENAME_WHITEOUT`).
    ///
    /// # Errors
    /// As [`Dir::rename`].
    pub fn rename_leaving_whiteout(&self, name: &OsStr, to: &Self, to_name: &OsStr) -> Result<()> {
        self.rename_with(name, to, to_name, RenameFlags::WHITEOUT)
    }

    fn rename_with(&self, name: &OsStr, to: &Self, to_name: &OsStr, flags: RenameFlags) -> Result<()> {
        #[cfg(feature = "trace")]
        crate::trace::note("rename", to_name);
        let (name, to_name) = (segment(name)?, segment(to_name)?);
        let rename = || rustix::fs::renameat_with(&self.fd, name, &to.fd, to_name, flags);
        let renamed = match rename() {
            Err(Errno::ACCESS) => {
                let also = flags.contains(RenameFlags::EXCHANGE).then_some((to, to_name));
                let opened = self.open_up_moved(name)?.into_iter();
                let opened =
                    opened.chain(also.map(|(to, name)| to.open_up_moved(name)).transpose()?.flatten());
                let opened: Vec<(Self, u32)> = opened.collect();
                let renamed = if opened.is_empty() { Err(Errno::ACCESS) } else { rename() };
                for (dir, mode) in &opened {
                    // The rename is done, or not, whatever becomes of the mode.
                    if let Err(error) = dir.set_mode(*mode) {
                        tracing::warn!(%error, "failed to close a directory that was moved: its owner may write to it");
                    }
                }
                renamed
            }
            renamed => renamed,
        };
        renamed.map_err(|errno| Error::from_errno("rename", shown(to_name), errno))
    }

    /// Lets the owner of the directory `name` write to it, and tells the permission bits that it had; `None` when it is no
    /// directory or its owner may write to it.
    ///
    /// A directory is written to when it comes to lie in another one: it holds the name `..` (rename(2), EACCES).
    fn open_up_moved(&self, name: &OsStr) -> Result<Option<(Self, u32)>> {
        match self.stat_entry(name)? {
            Some(stat) if stat.kind == Kind::Directory && stat.mode & 0o200 == 0 => {
                Ok(Some((self.open_closed_dir(name)?, stat.mode)))
            }
            _ => Ok(None),
        }
    }
}
