//! [`Growth`]: what a change adds to a tree.

use crate::error::Result;
use crate::layers::stage::StagedFile;
use crate::layers::tree::Replaced;
use crate::stat::{Layer, Stat, Use};

/// How far a run may let what is above its limit grow: it is there to delete things.
pub(crate) const GRACE: Use = Use { bytes: 16 * 1024 * 1024, files: 1000 };
/// The room that a directory is taken to need before it is made. Its real use is counted later.
const DIR_BYTES: u64 = 4096;

/// The room that a change adds to a tree and takes from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Growth {
    pub(crate) adds: Use,
    pub(crate) takes: Use,
    /// Whether that is all of it, to the byte.
    pub(crate) is_exact: bool,
}

impl Growth {
    /// A change that removes, and what it leaves behind at most; how much goes is counted when it matters.
    pub(crate) const REMOVAL: Self =
        Self { adds: Use { bytes: 0, files: 0 }, takes: Use { bytes: 0, files: 0 }, is_exact: false };

    /// `count` directories.
    pub(crate) fn of_dirs(count: u64) -> Self {
        let adds = Use { bytes: count.saturating_mul(DIR_BYTES), files: count };
        Self { adds, takes: Use::default(), is_exact: count == 0 }
    }

    /// A staged file in the place of what was there.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io).
    pub(crate) fn of_file(replaced: &Replaced<'_>, file: &StagedFile) -> Result<Self> {
        let dirs = Self::of_dirs(replaced.made_dirs);
        let adds = Use { bytes: file.stat()?.allocated, files: 1 };
        let takes = match replaced.existing {
            Some((stat, Layer::Overlay | Layer::Workspace)) => of_leaf(stat),
            Some((_, Layer::Baseline)) | None => Use::default(),
        };
        Ok(Self { adds: adds.plus(dirs.adds), takes, is_exact: dirs.is_exact && !replaced.may_be_whiteout })
    }

    /// Both changes together.
    pub(crate) fn plus(&self, other: &Self) -> Self {
        Self {
            adds: self.adds.plus(other.adds),
            takes: self.takes.plus(other.takes),
            is_exact: self.is_exact && other.is_exact,
        }
    }

    /// The use after the change, when it was `taken` before.
    pub(crate) fn after(&self, taken: Use) -> Use {
        taken.plus(self.adds).minus(self.takes)
    }

    pub(crate) fn adds_bytes(&self) -> bool {
        self.adds.bytes > self.takes.bytes
    }

    pub(crate) fn adds_files(&self) -> bool {
        self.adds.files > self.takes.files
    }
}

/// The room that goes with a name: its bytes too, unless the file has other names.
fn of_leaf(stat: &Stat) -> Use {
    Use { bytes: if stat.links > 1 { 0 } else { stat.allocated }, files: 1 }
}
