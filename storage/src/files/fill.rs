//! [`Files::make_filled_dir`]: a new directory with everything in it, which comes in one step.

use policy::RelPath;

use super::{Files, dirs_to_make};
use crate::core::growth::Growth;
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::layers::chain::Chain;
use crate::stat::Use;

impl Files {
    /// Makes the directory `path`, where nothing may be, and has `fill` fill it before any reader sees it. `taken` is the room
    /// that it will take, itself included.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`]; [`Error::NotFound`] without the directory above, unless `parents`; [`Error::Quota`], [`Error::Full`],
    /// [`Error::NoSpace`], [`Error::Io`]; those of `fill`: then nothing is there.
    pub(crate) fn make_filled_dir(
        &self,
        path: &RelPath,
        parents: bool,
        taken: Use,
        fill: impl FnOnce(&Dir) -> Result<()>,
    ) -> Result<()> {
        let (store, id) = self.parts();
        store.admit_space_for(taken.bytes)?;
        self.change(|tree| {
            let Some(parent) = path.parent() else { return Err(Error::AlreadyExists(path.to_string())) };
            if tree.stat_entry(path)?.is_some() {
                return Err(Error::AlreadyExists(path.to_string()));
            }
            let above = Growth::of_dirs(dirs_to_make(tree, &parent)?).adds;
            let growth = Growth { adds: taken.plus(above), ..Growth::REMOVAL };
            let admitted = store.admit(id, &growth)?;
            let missing = if parents { tree.first_missing(path)? } else { None };
            let first = missing.unwrap_or_else(|| path.clone());
            let chain = Chain::of_directories(&first, path).filled_by(fill);
            let made = tree.make_chain(&first, chain)?;
            self.account(&growth);
            drop(admitted);
            Ok(((), made))
        })
    }
}
