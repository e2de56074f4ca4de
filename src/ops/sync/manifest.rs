//! [`Manifest`]: what synchronisations have left on a machine, kept there in one file.
//!
//! The machine's user can write the file. What it names is therefore believed only below the two directories, and nothing is removed
//! or replaced whose bytes are not those that it says were left.

use std::collections::BTreeMap;

use policy::RelPath;
use sandbox::{ErrorKind, Result, Sandbox, SandboxExt, SandboxPath, UserId};
use serde::{Deserialize, Serialize};

/// The file, in the workspace.
const NAME: &str = ".filesecbox-sync.json";
/// Bytes of it that are read.
const BYTES_MAX: u64 = 16 * 1024 * 1024;
/// The form of the file. Another one is taken for none: what it names stays.
const VERSION: u32 = 1;

/// The files that are there from a synchronisation, by their paths in the workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Manifest {
    pub(super) files: BTreeMap<String, Left>,
}

/// The file's text.
#[derive(Serialize, Deserialize)]
struct Text<F> {
    version: u32,
    files: F,
}

/// A file that was left.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Left {
    /// BLAKE3 of its bytes, in hexadecimal digits.
    pub(super) digest: String,
    /// Its length.
    pub(super) bytes: u64,
    /// Whether it can be executed.
    pub(super) executable: bool,
    /// What was there before, while it is not certain that these bytes arrived; empty for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) instead_of: Option<String>,
}

impl Manifest {
    /// Reads the manifest of the workspace `root`. One that is missing, or none, is empty; of one that is there, only what lies below
    /// `directories` counts.
    pub(super) async fn read(
        machine: &dyn Sandbox,
        user: &UserId,
        root: &SandboxPath,
        directories: &[RelPath],
    ) -> Result<Self> {
        let path = Self::path(root)?;
        let text = match machine.stat(user, &path).await {
            Ok(info) if info.size <= BYTES_MAX => machine.read(user, &path).await?,
            Ok(_) => return Ok(Self::default()),
            Err(error) if error.is_not_found() => return Ok(Self::default()),
            Err(error) => return Err(error),
        };
        let mut files = match serde_json::from_slice::<Text<BTreeMap<String, Left>>>(&text) {
            Ok(text) if text.version == VERSION => text.files,
            _ => return Ok(Self::default()),
        };
        let is_below = |path: &RelPath| {
            directories.iter().any(|directory| path.starts_with(directory) && path != directory)
        };
        files.retain(|path, _| RelPath::parse(path).is_ok_and(|path| is_below(&path)));
        Ok(Self { files })
    }

    /// Writes it, whole or not at all.
    pub(super) async fn write(&self, machine: &dyn Sandbox, user: &UserId, root: &SandboxPath) -> Result<()> {
        let text = Text { version: VERSION, files: &self.files };
        let text = serde_json::to_vec(&text).map_err(|error| {
            sandbox::Error::new(ErrorKind::Internal, "write_file", "the manifest cannot be written")
                .because(error)
        })?;
        machine.write(user, &Self::path(root)?, text.into()).await
    }

    fn path(root: &SandboxPath) -> Result<SandboxPath> {
        root.join(NAME).map_err(|error| sandbox::Error::new(ErrorKind::Invalid, "sync", error.to_string()))
    }
}
