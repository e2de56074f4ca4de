//! The bytes of filesecbox on disk: layers, the merged view, archives, skills.
//!
//! Everything here blocks. The on-disk format is specified in `docs/LAYERS.md`.
//!
//! Each floor knows only those below it.
//!
//! | Floor | Holds |
//! | --- | --- |
//! | `open` | [`Store::open`], which ties the floors together |
//! | [`runs`] | what a run sees, and what becomes of its changes |
//! | [`skills`], [`workspaces`] | what is published, copied and compared; workspaces with their homes and snapshots |
//! | [`files`] | operations on the files of a tree: reading, writing, patches, searching, listening |
//! | [`core`] | [`Store`], one root directory and everything in it: locks, what trees may take |
//! | [`layers`] | the contract of a tree and its kinds; building things aside and making them visible at once |
//! | [`dir`], [`stat`], [`error`], [`interrupt`], [`encoding`], [`version`], `layout` | open directories and what is in them, names and places |

pub mod core;
pub mod dir;
pub mod encoding;
pub mod error;
pub mod files;
pub mod interrupt;
pub mod layers;
mod layout;
mod open;
pub mod runs;
pub mod skills;
pub mod stat;
pub mod version;
pub mod workspaces;

pub use core::agents::AgentPolicies;
pub use core::allowances::Allowance;
pub use core::devboxes::DEVBOXES_MAX;
pub use core::open::Recovery;
pub use core::options::Options;
pub use core::revocations::REVOCATIONS_MAX;
pub use core::shares::SHARES_MAX;
pub use core::spool::{self, Spool};
pub use core::store::Store;
pub use core::usage::{Ceiling, Flight};
pub use dir::Dir;
pub use error::{Error, Result, Unmet};
pub use files::{
    Condition, Files, WriteOptions, Written, cached, patch, search, text, watch, watch::TreeWatch,
};
pub use interrupt::Interrupt;
pub use layers::durability::Durability;
pub use layers::projects::{Project, ProjectQuotas};
pub use layers::sharing::Predecessor;
pub use layers::stage;
pub use layers::trash::Leftovers;
pub use layers::tree::{self, Tree};
pub use layers::view::{self as live, Guests, LiveOptions, OwnerSwap};
pub use policy::WorkspaceId;
pub use policy::attachment::Role;
pub use policy::skill_md as metadata;
pub use runs::{
    Absorbed, Attachment, Difference, Differing, Gauge, GaugeKey, Look, Placement, PlannedRun, PreparedRun,
    Runs,
};
pub use skills::Skills;
pub use skills::archive;
pub use skills::artifact::{Artifact, ArtifactForm};
pub use skills::directory::UnpackedDirectory;
pub use skills::gathered::{Gathered, Gathering, OnlyFile};
pub use skills::list::Skill;
pub use skills::packages::{PackageFacts, Packages, PutPackage, UnpackedPackage};
pub use skills::provenance::{Shelf, Standing};
pub use skills::publish::{Presence, Publication, PublishOptions, Published};
pub use skills::pull::{Choices, Prefer, Pulled};
pub use skills::sides::{Side, Sides};
pub use skills::status::{Change, Changed, SkillStatus, Status};
pub use skills::version_note::{NoteError, VersionNote};
pub use skills::versions::{
    KeptVersion, LoggedPublication, PINS_MAX, RemovedVersion, SkillVersions, VersionDescription, VersionName,
    VersionState,
};
pub use stat::{ETag, Kind, Layer, Owner, Stat, Use};
pub use version::{Contents, Version};
pub use workspaces::snapshots::{
    self as snapshot, Forked, Snapshot, SnapshotId, SnapshotList, SnapshotNote, Snapshots,
};
pub use workspaces::{Agent, AgentFacts, SandboxFacts, Swept, Workspaces};
