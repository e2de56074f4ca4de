//! [`Files::make_filled_dir`]: a new directory with everything in it, which comes in one step.

use policy::{RelPath, TreeId};

use super::{Files, dirs_to_make};
use crate::core::growth::Growth;
use crate::core::store::Store;
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::layers::chain::Chain;
use crate::layers::stage::Draft;
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
        fill: impl Fn(&Dir) -> Result<()>,
    ) -> Result<()> {
        let (store, id) = self.parts();
        store.admit_space_for(taken.bytes)?;
        // On its way to the tree until it is counted there.
        let mut flight = store.flight_to(id);
        flight.take(taken.bytes)?;
        store.admit_arriving(id, 0).map_err(|error| store.in_numbers(id, error))?;
        // A workspace is filled before it is held: filling takes as long as the directory is large. A skill can be a view of the
        // kernel's by then, into which nothing is moved from elsewhere.
        let aside = matches!(id, TreeId::Workspace(..)).then(|| filled_aside(store, &fill)).transpose()?;
        self.change(|tree| {
            let Some(parent) = path.parent() else { return Err(Error::AlreadyExists(path.to_string())) };
            if tree.stat_entry(path)?.is_some() {
                return Err(Error::AlreadyExists(path.to_string()));
            }
            let above = Growth::of_dirs(dirs_to_make(tree, &parent)?).adds;
            let growth = Growth { adds: taken.plus(above), ..Growth::REMOVAL };
            drop(flight);
            let admitted = store.admit(id, &growth)?;
            let missing = if parents { tree.first_missing(path)? } else { None };
            let first = missing.unwrap_or_else(|| path.clone());
            let chain = Chain::of_directories(&first, path).filled_by(|dir| match &aside {
                Some((_, aside)) => move_all(aside, dir),
                None => fill(dir),
            });
            let made = tree.make_chain(&first, chain)?;
            self.account(&growth);
            drop(admitted);
            Ok(((), made))
        })
    }
}

/// A directory in the stage that `fill` has filled, with the draft that removes it.
fn filled_aside(store: &Store, fill: impl Fn(&Dir) -> Result<()>) -> Result<(Draft, Dir)> {
    let draft = store.stage().draft();
    let dir = store.stage().dir().create_dir(&draft.name, 0o700)?;
    fill(&dir)?;
    Ok((draft, dir))
}

/// Moves everything in `from` to `to`.
fn move_all(from: &Dir, to: &Dir) -> Result<()> {
    for entry in from.entries()? {
        from.rename_new(&entry.name, to, &entry.name)?;
    }
    Ok(())
}
