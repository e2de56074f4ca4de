//! Copying merged directories, and what a copy takes.

use crate::dir::{DEPTH_MAX, Dir};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::layers::copy::copy_file;
use crate::layers::room::Room;
use crate::layers::sharing::{may_share, share};
use crate::layers::stack::{Found, Layers};
use crate::stat::{Kind, Layer, Use};

/// Copies everything in the merged directory `from` into the empty directory `into`, which is one of at most
/// `levels` levels. All of it belongs to `owner`; `None` keeps the service's own.
///
/// # Errors
/// [`Error::TooManyEntries`] when it is deeper; [`Error::NoSpace`], [`Error::Io`]; those of [`interrupt::check`].
pub(crate) fn copy_tree(from: &Layers, into: &Dir, owner: Option<u32>, levels: usize) -> Result<()> {
    Copying { owner, shares: false }.tree(from, into, levels)
}

/// Makes everything in the merged directory `from` a version, in the empty directory `into`: it shares the files of the version that is
/// the lower layer, and has copies of the others.
///
/// # Errors
/// As [`copy_tree`].
pub(crate) fn copy_version(from: &Layers, into: &Dir) -> Result<()> {
    let shares = from.lower.as_ref().map(may_share).transpose()?.unwrap_or(false);
    Copying { owner: None, shares }.tree(from, into, DEPTH_MAX)
}

struct Copying {
    owner: Option<u32>,
    /// Whether files of the lower layer get one more name, and are not copied.
    shares: bool,
}

impl Copying {
    fn tree(&self, from: &Layers, into: &Dir, levels: usize) -> Result<()> {
        let Some(levels) = levels.checked_sub(1) else {
            return Err(Error::TooManyEntries(DEPTH_MAX));
        };
        for child in from.children()? {
            interrupt::check()?;
            match from.lookup(&child.name)? {
                Some(Found::Directory(dirs, stat, _)) => {
                    // The mode comes last: it may keep the service itself from filling the directory.
                    let made = into.create_dir(&child.name, stat.mode | 0o700)?;
                    self.tree(&dirs, &made, levels)?;
                    made.set_mode(stat.mode)?;
                }
                Some(Found::Leaf(stat, layer)) if stat.kind == Kind::File => {
                    let (file, stat) = from.at(layer)?.open_file_entry(&child.name)?;
                    let is_shared =
                        self.shares && layer == Layer::Baseline && share(&file, &stat, into, &child.name)?;
                    if !is_shared {
                        copy_file(file, &into.create_file(&child.name, stat.mode & 0o777)?, &stat)?;
                    }
                }
                Some(Found::Leaf(stat, layer)) if stat.kind == Kind::Symlink => {
                    into.create_symlink(&from.at(layer)?.read_link(&child.name)?, &child.name)?;
                }
                _ => continue,
            }
            if let Some(owner) = self.owner {
                into.set_entry_owner(&child.name, owner)?;
            }
        }
        Ok(())
    }
}

/// The room that a copy takes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CopiedUse {
    /// All of it.
    pub(crate) all: Use,
    /// The part of the upper layer.
    pub(crate) of_upper: Use,
    /// What is left of it when the upper layer's part of what was copied goes: the lower layer's part, and files of the
    /// upper one that have names elsewhere.
    pub(crate) stays: Use,
}

/// What a copy of everything in the merged directory `from` takes: each name by itself, because a copy shares nothing,
/// also those that cannot be spelled. Of a tree whose files belong to `owner`, at most `entries` entries.
///
/// # Errors
/// [`Error::Escape`] for a file of another owner that a command linked in; [`Error::TooManyEntries`]; those of
/// [`interrupt::check`].
pub(crate) fn taken_by_copy(from: &Layers, owner: Option<u32>, entries: usize) -> Result<CopiedUse> {
    let (mut room, mut taken) = (Room::of_entries(entries), CopiedUse::default());
    count_copy(from, owner, &mut room, &mut taken, DEPTH_MAX)?;
    Ok(taken)
}

fn count_copy(
    from: &Layers,
    owner: Option<u32>,
    room: &mut Room,
    taken: &mut CopiedUse,
    levels: usize,
) -> Result<()> {
    let levels = levels.checked_sub(1).ok_or(Error::TooManyEntries(DEPTH_MAX))?;
    let children = from.children()?;
    room.take_entries(children.len())?;
    for child in children {
        interrupt::check()?;
        let found = match from.lookup(&child.name) {
            // A command that has the view mounted removed or replaced it meanwhile.
            Ok(None) | Err(Error::NotFound(_) | Error::NotADirectory(_) | Error::Escape(_)) => continue,
            found => found?,
        };
        let Some(found) = found else { continue };
        let (stat, layer) = match &found {
            Found::Directory(_, stat, layer) | Found::Leaf(stat, layer) => (stat, *layer),
        };
        if stat.kind == Kind::File && stat.links > 1 && owner.is_some_and(|owner| stat.owner != owner) {
            return Err(Error::Escape(child.name.to_string_lossy().into_owned()));
        }
        let own = Use { bytes: stat.allocated, files: 1 };
        taken.all = taken.all.plus(own);
        if layer != Layer::Baseline {
            taken.of_upper = taken.of_upper.plus(own);
        }
        if layer == Layer::Baseline || (stat.kind == Kind::File && stat.links > 1) {
            taken.stays = taken.stays.plus(own);
        }
        if let Found::Directory(below, ..) = &found {
            count_copy(below, owner, room, taken, levels)?;
        }
    }
    Ok(())
}
