//! [`Draft`]: something that is built under a name in the stage, and then gets its own.

use std::ffi::{OsStr, OsString};

use policy::TreeId;

use super::Stage;
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::layers::trash::Trash;

/// A name in the stage at which something is being built. What it still has when this is dropped is removed.
#[must_use]
pub(crate) struct Draft {
    stage: Stage,
    pub(crate) name: OsString,
}

impl Stage {
    /// Reserves a name in the stage; an entry of that name is removed when the value is dropped.
    pub(crate) fn draft(&self) -> Draft {
        Draft { stage: self.clone(), name: self.fresh_name() }
    }
}

impl Draft {
    /// Gives what was built the name `name` in `into`, where nothing may have it.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`], [`Error::NotFound`], [`Error::NoSpace`], [`Error::Io`].
    pub(crate) fn place_new(&self, into: &Dir, name: &OsStr) -> Result<()> {
        let stage = self.stage.dir();
        self.stage.put_in(stage, &self.name, into, || stage.rename_new(&self.name, into, name))
    }

    /// Gives what was built the name `name` in `into`, replacing what a rename may replace (rename(2)).
    ///
    /// # Errors
    /// As [`Dir::rename`].
    pub(crate) fn place_over(&self, into: &Dir, name: &OsStr) -> Result<()> {
        let stage = self.stage.dir();
        self.stage.put_in(stage, &self.name, into, || stage.rename(&self.name, into, name))
    }

    /// Lets what was built and `name` in `into` change places in one step.
    ///
    /// # Errors
    /// As [`Dir::exchange`].
    pub(crate) fn exchange(&self, into: &Dir, name: &OsStr) -> Result<()> {
        let stage = self.stage.dir();
        self.stage.put_in(stage, &self.name, into, || stage.exchange(&self.name, into, name))
    }

    /// Throws away what has taken the place of what was built, and was in the tree `owner`.
    ///
    /// The change is made by now, so this does not fail: what cannot be moved is removed at once.
    pub(crate) fn thrown(self, owner: &TreeId) -> Option<Trash> {
        match self.stage.discard(self.stage.dir(), &self.name, Some(owner)) {
            Ok(trash) => Some(trash),
            Err(Error::NotFound(_)) => None,
            Err(error) => {
                tracing::warn!(%error, "what was replaced is removed at once");
                None
            }
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Err(error) = self.stage.dir().remove_tree(&self.name) {
            tracing::warn!(%error, "a staged entry stays until the next start");
        }
    }
}
