//! [`Row`]: one publication that stands.

use policy::UserId;
use sha2::{Digest, Sha256};
use storage::{Shelf, Standing, Store, Version};

use super::Result;

/// One row of the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Follows from the shelf: the same for every publication on it, on every rebuild and on every host.
    pub id: String,
    /// Where it stands.
    pub shelf: Shelf,
    /// The name of its content.
    pub version: Version,
    /// The whole digest of its content, 64 hexadecimal digits.
    pub digest: String,
    /// Bytes in all its files.
    pub size: u64,
    /// Its name, as it gives itself.
    pub name: String,
    /// Its description of itself.
    pub description: String,
    /// Who published it: a user, or the name of another token; `None` when that is not known.
    pub uploaded_by: Option<String>,
    /// When it was published, in milliseconds since 1970.
    pub created_ms: i64,
}

impl Row {
    /// The row of what stands on `shelf`.
    #[must_use]
    pub fn new(shelf: Shelf, standing: Standing) -> Self {
        let Standing { contents, name, description, by, at_ms } = standing;
        Self {
            id: shelf_id(&shelf),
            shelf,
            version: contents.version,
            digest: contents.digest,
            size: contents.bytes,
            name,
            description,
            uploaded_by: by,
            created_ms: at_ms,
        }
    }

    /// The row of `shelf` as the disk has it; `None` when nothing stands there.
    ///
    /// # Errors
    /// As [`storage::Skills::standing`].
    pub fn read(store: &Store, shelf: Shelf) -> Result<Option<Self>> {
        Ok(store.skills().standing(&shelf)?.map(|standing| Self::new(shelf, standing)))
    }
}

/// The id of what is published on a shelf: the first 128 bits of a digest of the names, which cannot contain NUL.
#[must_use]
pub fn shelf_id(shelf: &Shelf) -> String {
    let user = shelf.user.as_ref().map_or("", UserId::as_str);
    let names = format!("{}\0{}\0{user}", shelf.agent, shelf.skill);
    let mut id = hex::encode(Sha256::digest(names.as_bytes()));
    id.truncate(32);
    id
}
