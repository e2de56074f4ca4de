//! The way to a tree: the directories above it, which tell when it is made, exchanged or removed.

use std::ffi::{OsStr, OsString};

use policy::{RelPath, TreeId};

use super::{TreeWatch, absent};
use crate::dir::Dir;
use crate::error::Result;
use crate::layout;

impl TreeWatch {
    /// Watches the way to the tree anew. Tells whether the baseline is another one than before.
    pub(super) fn find_way(&mut self) -> Result<bool> {
        for (watch, _) in std::mem::take(&mut self.ways) {
            self.inotify.forget(watch);
        }
        let (changing, baseline) = match &self.id {
            TreeId::Workspace(user, agent) => (layout::workspace(user, agent)?, None),
            TreeId::Skill(user, agent, skill) => (
                layout::overlay(user, agent)?.join(skill.as_str())?,
                Some(layout::baseline(agent)?.join(skill.as_str())?),
            ),
        };
        let before = self.changing.as_ref().map(Dir::stat).transpose()?.map(|stat| stat.inode);
        self.changing = self.walk_to(&changing)?;
        let now = self.changing.as_ref().map(Dir::stat).transpose()?.map(|stat| stat.inode);
        if before != now {
            // Watches of another directory than the tree's tell nothing about it.
            for (watch, _) in std::mem::take(&mut self.dirs) {
                self.inotify.forget(watch);
            }
        }
        let Some(baseline) = baseline else { return Ok(false) };
        let inode = self.walk_to(&baseline)?.map(|dir| dir.stat()).transpose()?.map(|stat| stat.inode);
        let before = std::mem::replace(&mut self.baseline_inode, inode);
        Ok(before.is_some() && before != inode)
    }

    /// Opens the directory at `place`, watching each directory on the way for the name that leads on.
    fn walk_to(&mut self, place: &RelPath) -> Result<Option<Dir>> {
        let mut dir = self.store.root().reopen()?;
        for name in place.segments() {
            let watch = self.inotify.watch(&dir)?;
            self.ways.insert(watch, OsString::from(name));
            match absent(dir.open_dir_entry(OsStr::new(name)))? {
                Some(below) => dir = below,
                None => return Ok(None),
            }
        }
        Ok(Some(dir))
    }
}
