//! What is known of an entry of a tree without reading it, and the room that trees take.

pub use dirfd::{ETag, Kind, Stat};
use policy::DiskLimits;
use serde::{Deserialize, Serialize};

/// Who owns an entry, as commands see it. No user id of the host is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Owner {
    /// The user of runs: its name in them, where they have namespaces.
    Sandbox,
    /// The superuser: of a run's namespaces, or the run itself where the service is root and cannot change owners.
    Root,
    /// Any other.
    Nobody,
}

/// Which layer an entry comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// The application's baseline.
    Baseline,
    /// The user's overlay.
    Overlay,
    /// A workspace, which has no layers.
    Workspace,
}

/// The room that something takes on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// Bytes of whole blocks, each file once however many names it has.
    pub bytes: u64,
    /// Names: files, directories, links, whiteouts; the tree's own directory too.
    pub files: u64,
}

/// What file systems give out room in, in bytes.
const ROOM_BYTES: u64 = 4096;

impl Use {
    /// What a directory is taken to need before it is there.
    pub(crate) const DIRECTORY: Self = Self { bytes: ROOM_BYTES, files: 1 };

    /// What a file of this length is taken to need before it is there.
    pub(crate) fn of_file(size: u64) -> Self {
        Self { bytes: size.div_ceil(ROOM_BYTES).saturating_mul(ROOM_BYTES), files: 1 }
    }

    /// Both added up.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_add(other.bytes), files: self.files.saturating_add(other.files) }
    }

    /// This without the other; nothing falls below 0.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_sub(other.bytes), files: self.files.saturating_sub(other.files) }
    }

    pub(crate) fn at_least(self, other: Self) -> Self {
        Self { bytes: self.bytes.max(other.bytes), files: self.files.max(other.files) }
    }

    /// Tells whether there is more than `most` of either.
    #[must_use]
    pub fn exceeds(self, most: Self) -> bool {
        self.bytes > most.bytes || self.files > most.files
    }
}

impl From<&DiskLimits> for Use {
    fn from(limits: &DiskLimits) -> Self {
        Self { bytes: limits.bytes, files: limits.files }
    }
}
