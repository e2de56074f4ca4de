//! [`Stage`]: where things are built before a rename makes them visible.
//!
//! Everything staged lies in one directory on the store's file system. What a crash leaves there belongs to no
//! tree and is thrown away at the next start; nothing in it is ever read. What a change replaces goes from here to the
//! [trash](crate::layers::trash), and what is to be done again after a crash is in the [records](crate::layers::record).

mod draft;
mod file;

use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use policy::{RelPath, TreeId};

pub(crate) use self::draft::Draft;
pub(crate) use self::file::Allowance;
pub use self::file::StagedFile;
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::layers::durability::Durability;
use crate::layers::names::Names;
use crate::layers::projects::Projects;
use crate::layers::record::Records;
use crate::layers::trash::{Trash, TrashCan};

/// The staging directory of one store.
#[derive(Clone)]
pub struct Stage {
    inner: Arc<Inner>,
}

struct Inner {
    dir: Dir,
    names: Arc<Names>,
    trash: TrashCan,
    records: Records,
    projects: Projects,
    durability: Durability,
}

impl Stage {
    /// Uses `dir`, which nothing else writes to.
    pub(crate) fn new(
        dir: Dir,
        names: Arc<Names>,
        trash: TrashCan,
        records: Records,
        projects: Projects,
        durability: Durability,
    ) -> Self {
        Self { inner: Arc::new(Inner { dir, names, trash, records, projects, durability }) }
    }

    /// The directory itself.
    pub(crate) fn dir(&self) -> &Dir {
        &self.inner.dir
    }

    /// When a change counts as done.
    pub(crate) fn durability(&self) -> Durability {
        self.inner.durability
    }

    /// Opens the directory `path` below `root`, making each missing level (mode 0755).
    ///
    /// With strict durability a level that was made is on the disk before anything in it is acknowledged: a
    /// directory is only as durable as its name in the one above (fsync(2)).
    pub(crate) fn ensure_path(&self, root: &Dir, path: &RelPath) -> Result<Dir> {
        // A directory that a process closed is opened again on the way.
        match root.open_dir(path) {
            Err(Error::NotFound(_)) => {}
            opened => return opened,
        }
        let mut dir = root.reopen()?;
        for name in path.segments() {
            let name = OsStr::new(name);
            dir = match dir.open_dir_entry(name) {
                Err(Error::NotFound(_)) => {
                    let made = dir.ensure_dir(name)?;
                    if self.durability() == Durability::Strict {
                        dir.sync()?;
                    }
                    made
                }
                opened => opened?,
            };
        }
        Ok(dir)
    }

    /// A name that nothing in the stage has.
    pub(crate) fn fresh_name(&self) -> OsString {
        self.inner.names.fresh()
    }

    /// A name that nothing has, for something in the root of a live view.
    pub(crate) fn temporary_name(&self) -> OsString {
        self.inner.names.temporary()
    }

    /// Where what is thrown away goes.
    pub(crate) fn trash(&self) -> &TrashCan {
        &self.inner.trash
    }

    /// The changes that are to be done again after a crash.
    pub(crate) fn records(&self) -> &Records {
        &self.inner.records
    }

    /// What the kernel keeps of what trees may take.
    pub(crate) fn projects(&self) -> &Projects {
        &self.inner.projects
    }

    /// Does `rename`, which puts the entry `name` of `from` into the directory `into`. When the kernel refuses that because
    /// `into` is of another project, the entry is given to that one first.
    ///
    /// # Errors
    /// Those of `rename`; [`Error::NoSpace`], [`Error::Io`].
    pub(crate) fn put_in(
        &self,
        from: &Dir,
        name: &OsStr,
        into: &Dir,
        rename: impl Fn() -> Result<()>,
    ) -> Result<()> {
        match rename() {
            Err(Error::Escape(path)) => match self.projects().follow(from, name, into)? {
                true => rename(),
                false => Err(Error::Escape(path)),
            },
            renamed => renamed,
        }
    }

    /// Tells whether `name` was made by [`Stage::fresh_name`] in an earlier life of the service.
    pub(crate) fn is_left_over(&self, name: &OsStr) -> bool {
        let is_hex = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let parts = name.to_str().and_then(|name| name.split_once('-'));
        parts.is_some_and(|(session, number)| {
            session.len() == 16 && is_hex(session) && is_hex(number) && !self.inner.names.is_session(session)
        })
    }

    /// Throws away the entry `name` of `from`, which was in the tree `owner`: it is removed when the value is dropped.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Io`].
    pub(crate) fn discard(&self, from: &Dir, name: &OsStr, owner: Option<&TreeId>) -> Result<Trash> {
        self.trash().throw(from, name, owner)
    }
}
