//! Changes of a merged view: copy-up on write, whiteouts on delete.
//!
//! Each change becomes visible by one rename in the upper layer. Renaming has a file of its own.

use std::ffi::{OsStr, OsString};

use policy::{RelPath, TreeId};

use super::Union;
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::layers::chain::Chain;
use crate::layers::copy::copy_file;
use crate::layers::deferred::Deferred;
use crate::layers::stack::{Found, Layers};
use crate::layers::stage::{Stage, StagedFile};
use crate::layers::trash::Trash;
use crate::layers::tree::{Admit, Replaced};
use crate::layers::walk::{LastLink, Level, Resolved, renamed};
use crate::layers::whiteouts::OPAQUE;
use crate::stat::{Kind, Stat};

/// A name in a directory that exists in the upper layer.
pub(super) struct Target {
    pub(super) upper: Dir,
    pub(super) name: OsString,
    pub(super) found: Option<Found>,
    /// Whether the lower layer has the name too, so that removing it takes a whiteout.
    pub(super) in_lower: bool,
    /// Where `upper` lies, from the store's root.
    pub(super) place: RelPath,
}

impl Union {
    /// Copies up every directory on the way to `path`, so that the last name can be changed in the upper layer.
    pub(super) fn target(&self, path: &RelPath, last_link: LastLink) -> Result<Target> {
        let resolved = self.resolve(path, last_link)?;
        self.target_of(path, resolved)
    }

    pub(super) fn target_of(&self, path: &RelPath, resolved: Resolved) -> Result<Target> {
        let Resolved { levels, last } = resolved;
        let Some((name, found)) = last else {
            // The path ended in a directory that a link or the root names.
            return Err(Error::IsDirectory(path.to_string()));
        };
        let (upper, place, lower) = self.copy_up_dirs(levels)?;
        let in_lower = Layers { upper: None, lower }.lower_stat(&name)?.is_some();
        Ok(Target { upper, name, found, in_lower, place })
    }

    /// Makes every level exist in the upper layer, with the modes of the lower one, and returns the last level's
    /// upper directory, its place from the store's root, and its lower directory.
    fn copy_up_dirs(&self, levels: Vec<Level>) -> Result<(Dir, RelPath, Option<Dir>)> {
        let mut place = self.overlay.clone();
        let mut above: Option<Dir> = None;
        let mut lower = None;
        for level in levels {
            let Layers { upper, lower: level_lower } = level.dirs;
            let upper = match (upper, &above) {
                (Some(upper), _) => upper,
                (None, None) => self.stage.ensure_path(&self.root, &self.overlay)?,
                (None, Some(above)) => {
                    if place == self.overlay {
                        (self.before_first_write)()?;
                    }
                    let mode = match &level_lower {
                        Some(lower) => lower.stat()?.mode,
                        None => 0o755,
                    };
                    match above.create_dir(&level.name, mode) {
                        Ok(made) => {
                            if self.is_strict() {
                                above.sync()?;
                            }
                            made
                        }
                        Err(Error::AlreadyExists(_)) => above.open_dir_entry(&level.name)?,
                        Err(other) => return Err(other),
                    }
                }
            };
            if !level.name.is_empty() {
                place = join(&place, &level.name)?;
            }
            above = Some(upper);
            lower = level_lower;
        }
        let upper = above.ok_or_else(|| Error::NotFound(self.skill.to_string()))?;
        Ok((upper, place, lower))
    }

    pub(super) fn is_strict(&self) -> bool {
        self.stage.durability() == crate::layers::durability::Durability::Strict
    }

    pub(super) fn put_file(
        &self,
        path: &RelPath,
        mut file: StagedFile,
        admit: &mut Admit<'_>,
    ) -> Result<Deferred> {
        if path.is_root() {
            return Err(Error::IsDirectory(path.to_string()));
        }
        let resolved = match self.resolve(path, LastLink::Follow) {
            Err(Error::NotFound(missing)) => {
                admit(Replaced { made_dirs: 1, ..Replaced::default() }, &mut file)?;
                return match self.is_first_entry(path)? {
                    true => self.make_skill(Chain::of_directory(0o755).holding(&first_name(path)?, file)),
                    false => Err(Error::NotFound(missing)),
                };
            }
            resolved => resolved?,
        };
        if resolved.last.is_none() {
            return Err(Error::IsDirectory(path.to_string()));
        }
        admit(resolved.replaced(), &mut file)?;
        let target = self.target_of(path, resolved)?;
        check_replaceable(&target, path)?;
        file.place(&target.upper, &target.name).map_err(|error| renamed(error, path))?;
        Ok(Deferred::sync(target.upper))
    }

    pub(super) fn put_symlink(&self, path: &RelPath, link: &OsStr) -> Result<Deferred> {
        if self.is_first_entry(path)? {
            let _settled_below = self.make_skill(Chain::of_directory(0o755))?;
        }
        let target = self.target(path, LastLink::Keep)?;
        check_replaceable(&target, path)?;
        let draft = self.stage.draft();
        self.stage.dir().create_symlink(link, &draft.name)?;
        draft.place_over(&target.upper, &target.name)?;
        Ok(Deferred::sync(target.upper))
    }

    pub(super) fn make_directory(&self, path: &RelPath, chain: Chain<'_>) -> Result<Deferred> {
        if self.is_first_entry(path)? {
            return self.make_skill(chain.within_parent(&first_name(path)?));
        }
        let target = match self.target(path, LastLink::Keep) {
            Err(Error::IsDirectory(_)) => return Err(Error::AlreadyExists(path.to_string())),
            target => target?,
        };
        if target.found.is_some() {
            return Err(Error::AlreadyExists(path.to_string()));
        }
        self.place_directory(target.upper, &target.name, chain)
    }

    /// Builds a new directory aside and makes it `name` in `upper`, where nothing may be but a whiteout.
    fn place_directory(&self, upper: Dir, name: &OsStr, chain: Chain<'_>) -> Result<Deferred> {
        let draft = self.stage.draft();
        let mode = chain.first_mode();
        // An attribute is set by who may write (xattr(7)).
        let made = self.stage.dir().create_dir(&draft.name, mode | 0o200)?;
        let hides = upper.stat_entry(name)?.is_some_and(|stat| stat.is_whiteout());
        if hides {
            // Or what the whiteout hid would show again.
            made.set_attribute(OPAQUE, b"y")?;
        }
        if mode & 0o200 == 0 {
            made.set_mode(mode)?;
        }
        chain.fill(&made, None, self.stage.durability(), StagedFile::place)?;
        match hides {
            // The whiteout goes with the draft.
            true => draft.exchange(&upper, name)?,
            false => draft.place_new(&upper, name)?,
        }
        Ok(Deferred::sync(upper))
    }

    pub(super) fn change_mode(&self, path: &RelPath, mode: u32) -> Result<Deferred> {
        let resolved = self.resolve(path, LastLink::Keep)?;
        if resolved.last.is_none() {
            let (upper, ..) = self.copy_up_dirs(resolved.levels)?;
            upper.set_mode(mode)?;
            return Ok(Deferred::sync(upper));
        }
        let Resolved { mut levels, last } = resolved;
        match last {
            Some((name, Some(Found::Directory(dirs, ..)))) => {
                levels.push(Level { name, dirs });
                let (upper, ..) = self.copy_up_dirs(levels)?;
                upper.set_mode(mode)?;
                Ok(Deferred::sync(upper))
            }
            Some((name, Some(Found::Leaf(stat, layer)))) if stat.kind == Kind::File => {
                let source = match levels.last() {
                    Some(level) => level.dirs.at(layer)?.open_file_entry(&name)?.0,
                    None => return Err(Error::NotFound(path.to_string())),
                };
                let copy = self.copy_of(source, mode, &stat)?;
                let target = self.target(path, LastLink::Keep)?;
                copy.place(&target.upper, &target.name)?;
                Ok(Deferred::sync(target.upper))
            }
            Some((_, Some(_))) => Err(Error::NotAFile(path.to_string())),
            _ => Err(Error::NotFound(path.to_string())),
        }
    }

    pub(super) fn remove_entry(&self, path: &RelPath) -> Result<Deferred> {
        if path.is_root() {
            // One level up the skill is an entry like any other, but a tree does not remove itself.
            return Err(Error::IsDirectory(path.to_string()));
        }
        let resolved = self.resolve(path, LastLink::Keep)?;
        if !matches!(resolved.last, Some((_, Some(_)))) {
            let missing = resolved.last.is_some();
            let path = path.to_string();
            return Err(if missing { Error::NotFound(path) } else { Error::IsDirectory(path) });
        }
        let target = self.target_of(path, resolved)?;
        let trash = hide(&self.stage, &self.id, &target.upper, &target.name, target.in_lower)?;
        let trash = trash.into_iter().collect();
        Ok(Deferred { sync: vec![target.upper], trash, ..Deferred::default() })
    }

    /// Copies a file into the stage, with permission bits `mode` and its modification time.
    pub(super) fn copy_of(&self, source: std::fs::File, mode: u32, stat: &Stat) -> Result<StagedFile> {
        let mut copy = self.stage.file(mode, None)?;
        copy_file(source, copy.file(), stat)?;
        copy.finish_keeping_time()?;
        Ok(copy)
    }

    /// Tells whether `path` would be the first entry of a skill that no layer has.
    ///
    /// Only an entry of the root can be. Deeper ones lack their parent, and nothing may change.
    fn is_first_entry(&self, path: &RelPath) -> Result<bool> {
        if path.parent().is_none_or(|parent| !parent.is_root()) {
            return Ok(false);
        }
        Ok(self.agent_level()?.lookup(OsStr::new(self.skill.as_str()))?.is_none())
    }

    /// Makes the skill itself in the overlay, where no layer has it.
    fn make_skill(&self, chain: Chain<'_>) -> Result<Deferred> {
        let upper = self.stage.ensure_path(&self.root, &self.overlay)?;
        (self.before_first_write)()?;
        self.place_directory(upper, OsStr::new(self.skill.as_str()), chain)
    }
}

/// Takes `name` out of a merged directory of the tree `id` in one step, leaving a whiteout when the lower layer has it.
/// The former entry of the upper layer, if any, goes with the value returned.
pub(crate) fn hide(
    stage: &Stage,
    id: &TreeId,
    upper: &Dir,
    name: &OsStr,
    in_lower: bool,
) -> Result<Option<Trash>> {
    if !in_lower {
        return stage.discard(upper, name, Some(id)).map(Some);
    }
    let draft = stage.draft();
    stage.dir().create_whiteout(&draft.name)?;
    match draft.place_new(upper, name) {
        Err(Error::AlreadyExists(_)) => {
            draft.exchange(upper, name)?;
            Ok(draft.thrown(id))
        }
        placed => placed.map(|()| None),
    }
}

/// The name of an entry of the root.
fn first_name(path: &RelPath) -> Result<OsString> {
    path.file_name().map(OsString::from).ok_or_else(|| Error::IsDirectory(path.to_string()))
}

fn check_replaceable(target: &Target, path: &RelPath) -> Result<()> {
    match &target.found {
        Some(Found::Directory(..)) => Err(Error::IsDirectory(path.to_string())),
        Some(Found::Leaf(stat, _)) if stat.kind == Kind::Other => Err(Error::NotAFile(path.to_string())),
        _ => Ok(()),
    }
}

pub(super) fn utf8(name: &OsStr) -> Result<&str> {
    name.to_str().ok_or_else(|| {
        Error::Unsupported(format!("`{}` is not UTF-8 and cannot be moved", name.to_string_lossy()))
    })
}

pub(super) fn join(place: &RelPath, name: &OsStr) -> Result<RelPath> {
    Ok(place.join(utf8(name)?)?)
}
