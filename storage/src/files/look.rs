//! Looking at entries themselves: links are not followed, and where they point to is told.

use std::ffi::OsString;
use std::path::Path;

use policy::{RelPath, TreeId};

use super::Files;
use crate::error::{Error, Result};
use crate::layers::tree::Child;
use crate::layout;
use crate::stat::{Kind, Layer, Stat};

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name, kind and layer.
    pub child: Child,
    /// Its facts; `None` when a command has removed it meanwhile.
    pub stat: Option<Stat>,
    /// Where a link points to, as [`Files::look`] tells it.
    pub target: Option<String>,
}

impl Files {
    /// Lists the directory `path` as [`Files::list`] does, each link with where it points to.
    ///
    /// # Errors
    /// As [`Files::list`] and [`Tree::read_links`](crate::layers::tree::Tree::read_links).
    pub fn list_with_links(&self, path: &RelPath) -> Result<Vec<Entry>> {
        let limit = self.store.options().files.list_entries;
        let listed = self.read(path, |tree| {
            let listed = tree.list_looking(path, limit)?;
            if listed.iter().all(|(child, _)| child.kind != Kind::Symlink) {
                return Ok(listed
                    .into_iter()
                    .map(|(child, stat)| Entry { child, stat, target: None })
                    .collect());
            }
            let (children, stats): (Vec<Child>, Vec<_>) = listed.into_iter().unzip();
            let targets = tree.read_links(path, &children)?;
            let entries = children.into_iter().zip(stats).zip(targets);
            let entry = |((child, stat), target): ((Child, _), Option<OsString>)| Entry {
                child,
                stat,
                target: target.and_then(|target| self.shown(target)),
            };
            Ok(entries.map(entry).collect())
        });
        self.empty_if_unmade(path, listed)
    }

    /// Tells what `path` itself is, and of a link where it points to.
    ///
    /// # Errors
    /// [`Error::NotFound`]; as [`Tree::stat_entry`](crate::layers::tree::Tree::stat_entry).
    pub fn look(&self, path: &RelPath) -> Result<(Stat, Layer, Option<String>)> {
        self.read(path, |tree| {
            let (stat, layer) = tree.stat_entry(path)?.ok_or_else(|| Error::NotFound(path.to_string()))?;
            let target = match stat.kind {
                Kind::Symlink => self.shown(tree.read_link(path)?),
                Kind::File | Kind::Directory | Kind::Other => None,
            };
            Ok((stat, layer, target))
        })
    }

    /// The target of a link as a caller may see it. Where nothing can be mounted, a run knows its tree by the path of the
    /// host: below the workspace that is the sandbox form, elsewhere in the data directory nothing is told.
    fn shown(&self, target: OsString) -> Option<String> {
        let Ok(below) = Path::new(&target).strip_prefix(self.store.root_path()) else {
            return Some(target.to_string_lossy().into_owned());
        };
        let TreeId::Workspace(user, agent) = &self.id else { return None };
        let below = below.strip_prefix(layout::workspace(user, agent).ok()?.as_str()).ok()?;
        Some(Path::new(&self.id.sandbox_path()).join(below).to_string_lossy().into_owned())
    }
}
