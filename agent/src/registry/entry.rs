//! [`Entry`]: something published.

use std::fmt;

use sandbox::UserId;
use serde::{Deserialize, Serialize};

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A directory with a `SKILL.md`.
    Skill,
    /// A file that describes an agent.
    Agent,
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Skill => "skill",
            Self::Agent => "agent",
        })
    }
}

/// The users who may find and install an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharing {
    /// All users.
    Public,
    /// Its author.
    Private,
}

/// Something published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// From 1; the same for as long as the entry is there.
    pub id: u64,
    /// Its kind.
    pub kind: Kind,
    /// The name it had in its author's workspace, and gets where it is installed.
    pub name: String,
    /// The user who published it.
    pub author: UserId,
    /// From its front matter.
    pub description: String,
    /// Words to be found by.
    pub tags: String,
    /// The users who may find it.
    pub sharing: Sharing,
    /// When it was published last, in seconds since 1970.
    pub published_seconds: u64,
    /// Its files.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
    /// The directory of its files.
    pub(super) package: String,
}

/// The entries of a user: published, and in the workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mine {
    /// By age, newest first.
    pub published: Vec<Entry>,
    /// `skill:name` and `agent:name`, sorted.
    pub installed: Vec<String>,
}

impl Entry {
    pub(super) fn is_seen_by(&self, user: &UserId) -> bool {
        self.sharing == Sharing::Public || self.author == *user
    }
}
