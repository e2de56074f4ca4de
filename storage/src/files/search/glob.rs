//! Names that match patterns.

use policy::{RelPath, TreeId};
use serde::Deserialize;

use super::order::{Ordered, Selection};
use super::{Patience, Patterns, Stop};
use crate::error::{Error, Result};
use crate::files::Files;
use crate::layers::tree::Walked;
use crate::stat::{Kind, Layer};

/// Which kinds of entries are looked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kinds {
    /// Files and links.
    #[default]
    File,
    /// Directories.
    Directory,
    /// All of them.
    Any,
}

/// Which names are looked for.
#[derive(Clone, Debug)]
pub struct GlobQuery {
    /// Patterns, relative to `path`; any of them.
    pub include: Patterns,
    /// Files, and directories with all in them, that are left out.
    pub exclude: Patterns,
    /// Directory to begin at.
    pub path: RelPath,
    /// Kinds of entries to return.
    pub kinds: Kinds,
    /// Whether names that begin with a dot are met.
    pub hidden: bool,
    /// The path to go on after.
    pub after: Option<String>,
    /// Most entries to return.
    pub limit: usize,
    /// Whether to look at each ([`Walked::stat`]).
    pub look: bool,
}

/// Names that match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Globbed {
    /// Sorted by path, a directory by its path with a final `/`.
    pub entries: Vec<Walked>,
    /// Why there may be more.
    pub stop: Option<Stop>,
    /// The path to go on after, when the search stopped.
    pub next: Option<String>,
}

impl Files {
    /// Finds the entries below a directory that match.
    ///
    /// # Errors
    /// As [`Files::walk`].
    pub fn glob(&self, query: &GlobQuery, patience: &Patience) -> Result<Globbed> {
        let (store, id) = self.parts();
        let _held = store.locks().read(id);
        let dirs = match self.layers(&query.path) {
            // A workspace that was never written to is an empty one.
            Err(Error::NotFound(_)) if query.path.is_root() && matches!(id, TreeId::Workspace(..)) => {
                return Ok(Globbed::default());
            }
            Err(Error::NotFound(_)) => return Err(Error::NotFound(query.path.to_string())),
            dirs => dirs?,
        };
        let selection = Selection {
            base: &query.path,
            include: &query.include,
            exclude: &query.exclude,
            hidden: query.hidden,
            from: query.after.as_deref(),
            after: true,
            directories: query.kinds != Kinds::File,
        };
        let is_workspace = matches!(id, TreeId::Workspace(..));
        let mut walk = Ordered::new(dirs, selection, patience, store.options().files.tree_entries)?;
        let mut globbed = Globbed::default();
        while let Some(batch) = walk.next_batch()? {
            for (path, child) in batch.files {
                let is_wanted = match child.kind {
                    Kind::File | Kind::Symlink => query.kinds != Kinds::Directory,
                    Kind::Directory => true,
                    Kind::Other => false,
                };
                if !is_wanted {
                    continue;
                }
                if globbed.entries.len() >= query.limit {
                    globbed.stop_after_last(Stop::Limit);
                    return Ok(globbed);
                }
                let stat = match query.look {
                    true => batch.dirs.at(child.layer)?.stat_entry(&child.name)?,
                    false => None,
                };
                let layer = if is_workspace { Layer::Workspace } else { child.layer };
                globbed.entries.push(Walked { path, kind: child.kind, layer, stat });
            }
        }
        if let Some(dir) = walk.cut_at() {
            globbed.stop_after_last(Stop::Time);
            // Entries between the last one and the place of the cut need no second look.
            let cut = Some(dir.as_str().to_owned()).filter(|dir| !dir.is_empty());
            globbed.next = globbed.next.max(cut).max(query.after.clone());
        }
        Ok(globbed)
    }
}

impl Globbed {
    fn stop_after_last(&mut self, stop: Stop) {
        self.stop = Some(stop);
        self.next = self.entries.last().map(|entry| match entry.kind {
            Kind::Directory => format!("{}/", entry.path),
            _ => entry.path.as_str().to_owned(),
        });
    }
}
