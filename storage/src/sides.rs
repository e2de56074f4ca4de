//! [`Store::sides`]: a file of a skill as the application has it and as a user has it.

use std::fs::File;
use std::io::Read;

use policy::{RelPath, TreeId};

use crate::error::{Error, Result};
use crate::stat::Stat;
use crate::store::Store;

/// One side of a changed file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// Its size, in bytes.
    pub bytes: u64,
    /// What is in it; `None` when that is more than was asked for.
    pub content: Option<Vec<u8>>,
}

/// Both sides of a changed file. A side is `None` when it has no regular file of that path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sides {
    /// The application's current version.
    pub before: Option<Side>,
    /// What the user sees.
    pub after: Option<Side>,
}

impl Store {
    /// Reads the file `path` of the skill `id` on both sides, each up to `most` bytes.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the user has no such skill; [`Error::Io`].
    pub fn sides(&self, id: &TreeId, path: &RelPath, most: u64) -> Result<Sides> {
        let TreeId::Skill(_, agent, skill) = id else { return Err(Error::NotFound(id.sandbox_path())) };
        let _held = self.inner.locks.read(id);
        let before = match self.baseline_dir(agent, skill)? {
            Some(dir) => side(dir.open_file(path), path, most)?,
            None => None,
        };
        let opened = self.tree(id)?.open(path).map(|opened| (opened.file, opened.stat));
        Ok(Sides { before, after: side(opened, path, most)? })
    }
}

fn side(opened: Result<(File, Stat)>, path: &RelPath, most: u64) -> Result<Option<Side>> {
    let (file, stat) = match opened {
        Err(
            Error::NotFound(_)
            | Error::IsDirectory(_)
            | Error::NotADirectory(_)
            | Error::NotAFile(_)
            | Error::Escape(_),
        ) => return Ok(None),
        opened => opened?,
    };
    if stat.size > most {
        return Ok(Some(Side { bytes: stat.size, content: None }));
    }
    let mut content = Vec::new();
    // One more than may be: a command may write meanwhile.
    file.take(most.saturating_add(1))
        .read_to_end(&mut content)
        .map_err(|error| Error::from_io("read", path, error))?;
    let bytes = u64::try_from(content.len()).unwrap_or(u64::MAX);
    let content = (bytes <= most).then_some(content);
    Ok(Some(Side { bytes, content }))
}
