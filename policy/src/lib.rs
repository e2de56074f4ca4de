//! Names, paths, rules, limits and views: everything filesecbox decides, and nothing it does.
//!
//! This crate performs no I/O at all (guarded by its own `clippy.toml`): the same input gives the same answer on
//! any machine, so every rule here can be tested as data.
//!
//! | Module | Holds |
//! | --- | --- |
//! | [`path`] | [`RelPath`], the proof that a path is well spelled and stays inside its tree |
//! | [`id`] | [`UserId`], [`AgentId`], [`SkillId`] |
//! | [`scope`] | [`Scope`]: baseline or overlay |
//! | [`tree`] | [`TreeId`]: which tree a request means, and its sandbox path |
//! | [`agent_policy`] | [`AgentPolicy`]: what holds for one agent and not for all |
//! | [`limits`] | every bound, with its unit |
//! | [`view`] | [`View`]: what a command may see, handed from storage to exec |
//! | [`attachment`] | [`Attachment`](attachment::Attachment): a directory that stands at a path of its own in a run |
//! | [`command`] | which programs may run and where their arguments may point |
//! | [`signal`] | the names of signals |
//! | [`environment`] | the environment a command starts with |
//! | [`front_matter`] | the YAML head of a Markdown file, read in bounded time and memory |
//! | [`version_id`] | [`VersionId`]: the name of one immutable version of a skill's package |
//! | [`skill_md`] | what a skill says of itself: the one reader of `SKILL.md` |
//! | [`glob`] | patterns for paths, in two dialects |

pub mod agent_policy;
pub mod attachment;
pub mod command;
pub mod environment;
pub mod front_matter;
pub mod glob;
pub mod id;
pub mod limits;
pub mod path;
pub mod scope;
pub mod signal;
pub mod skill_md;
pub mod tree;
pub mod version_id;
pub mod view;

pub use agent_policy::{AgentNetwork, AgentPolicy};
pub use command::{Anchors, CheckedCommand, CommandPolicy, Profile, Refusal};
pub use id::{AgentId, IdError, SkillId, UserId};
pub use limits::{
    ArchiveLimits, DiskLimits, EventLimits, FileLimits, NetworkLimits, PortLimits, RunLimits, SessionLimits,
    SnapshotLimits, WorkLimits,
};
pub use path::{PathError, RelPath};
pub use scope::Scope;
pub use tree::{TreeId, WorkspaceId};
pub use version_id::{VersionId, VersionIdError};
pub use view::View;
