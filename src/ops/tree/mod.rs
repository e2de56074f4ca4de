//! [`Tree`]: one face for what is asked of a tree, whether this service holds it or a remote backend does.
//!
//! Each question is one method with one type of answer. Facts that a backend does not tell are `None` there. What no backend is
//! asked for is done on a tree that is [`Tree::local`], which refuses every other.
//!
//! | File | Holds |
//! | --- | --- |
//! | `mod.rs` | where a tree is, and which state of it is read |
//! | [`facts`] | what is told of entries and of changes |
//! | `look` | looking at entries, listing and walking directories |
//! | `texts` | reading and changing texts |
//! | `bytes` | reading and writing files as bytes |
//! | `change` | making directories, removing |
//! | `commands` | the conditions of commands, and preparing a workspace |
//!
//! [`Service::run`] and [`Service::begin`] run commands in a tree: [`Tree::to_run_in`].

mod bytes;
mod change;
mod commands;
pub mod facts;
mod look;
mod texts;

use std::sync::Arc;

use policy::{RelPath, TreeId};
use storage::{Kind, Version, WorkspaceId};

pub use self::bytes::{Content, Extent, Opened, Wanted};
pub use self::commands::{Conditions, OwnConditions};
pub use self::texts::ReadText;
use super::error::{Error, Result};
use super::remote::Backend;
use super::run::RunTarget;
use super::seen::{Published, Seen};
use super::service::Service;

/// A tree that is asked for.
///
/// * A skill is always local; only a workspace can be remote.
/// * A tree that was found to be remote, or local, stays so for the request that it was made for.
#[derive(Clone)]
pub struct Tree {
    service: Arc<Service>,
    id: TreeId,
    location: Location,
}

/// Where a tree is.
#[derive(Clone)]
enum Location {
    /// In this service: what its user sees, or a published version.
    Local { version: Option<Version> },
    /// Where a backend answers for it.
    Remote(Arc<Backend>),
}

impl Tree {
    /// The tree `id`, wherever it is. While no workspace is remote, that takes one atomic load to find out.
    #[must_use]
    pub fn of(service: &Arc<Service>, id: TreeId) -> Self {
        let may_be_remote = matches!(id, TreeId::Workspace(..)) && !service.backends.is_empty();
        let backend = may_be_remote.then(|| service.backends.get(&WorkspaceId::of(&id))).flatten();
        let location = backend.map_or(Location::Local { version: None }, Location::Remote);
        Self { service: Arc::clone(service), id, location }
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &TreeId {
        &self.id
    }

    /// The tree as one to run commands in.
    #[must_use]
    pub fn to_run_in(&self) -> RunTarget {
        RunTarget { tree: self.id.clone(), backend: self.remote().cloned() }
    }

    /// The backend that holds it; `None` where this service does.
    fn remote(&self) -> Option<&Arc<Backend>> {
        match &self.location {
            Location::Local { .. } => None,
            Location::Remote(backend) => Some(backend),
        }
    }

    /// The name of the backend that holds it; `None` where this service does.
    #[must_use]
    pub fn backend(&self) -> Option<&str> {
        self.remote().map(|backend| backend.name())
    }

    /// The id of a tree that this service holds, for what no backend is asked for.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where a backend holds the tree.
    pub fn local(&self) -> Result<&TreeId> {
        match &self.location {
            Location::Local { .. } => Ok(&self.id),
            Location::Remote(backend) => Err(Error::Unsupported(format!(
                "`{}`, where this workspace is, has nothing like it: use the other routes for files and commands",
                backend.name()
            ))),
        }
    }

    /// The tree as it is read, where this service holds it; of what a backend holds, nothing is asked.
    ///
    /// # Errors
    /// As [`Tree::local`].
    pub fn local_seen(&self) -> Result<Seen> {
        let id = self.local()?.clone();
        let version = match &self.location {
            Location::Local { version } => version.clone(),
            Location::Remote(_) => None,
        };
        Ok(Seen { id, version })
    }

    /// Notes that the tree is used. A request to a backend is no use of what lies here.
    ///
    /// # Errors
    /// As [`Service::note_use`].
    pub async fn note_use(&self) -> Result<()> {
        match &self.location {
            Location::Local { .. } => self.service.note_use(WorkspaceId::of(&self.id)).await,
            Location::Remote(_) => Ok(()),
        }
    }

    /// The published version of the skill that is `meant`, which is read instead of what the user sees.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a workspace; as [`Service::published_version`].
    pub async fn published(self, with_staged: bool, meant: Published) -> Result<Self> {
        let TreeId::Skill(user, agent, skill) = &self.id else {
            let message = "a workspace has no layers and no versions: leave `layer` and `version` out";
            return Err(Error::Invalid(message.to_owned()));
        };
        let (agent, skill) = (agent.clone(), skill.clone());
        let version = self.service.published_version(user, agent, skill, with_staged, meant).await?;
        Ok(Self { location: Location::Local { version: Some(version) }, ..self })
    }

    /// The skill that a path of this workspace leads to, if the user has it, and the path in the skill.
    ///
    /// # Errors
    /// As [`Service::stat`], but for a skill that is not there.
    pub async fn skill_at(&self, path: &RelPath) -> Result<Option<(Self, RelPath)>> {
        let Location::Local { .. } = self.location else { return Ok(None) };
        let Some((id, inside)) = self.id.skill_at(path) else { return Ok(None) };
        match self.service.stat(id.clone(), RelPath::root()).await {
            Ok((stat, _)) if stat.kind == Kind::Directory => {
                let location = Location::Local { version: None };
                Ok(Some((Self { service: Arc::clone(&self.service), id, location }, inside)))
            }
            Ok(_) | Err(Error::Storage(storage::Error::NotFound(_))) => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// The state that is read of a local tree.
    fn seen(&self, version: &Option<Version>) -> Seen {
        Seen { id: self.id.clone(), version: version.clone() }
    }
}
