//! The bytes of filesecbox on disk: layers, the merged view, archives, skills.
//!
//! Everything here blocks. The on-disk format is specified in `docs/LAYERS.md`.
//!
//! | Module | Holds |
//! | --- | --- |
//! | [`dir`] | [`Dir`], an open directory: the only way to anything stored |
//! | [`spool`] | files of no name for what is on its way |
//! | [`stage`], `journal`, `record` | building things aside and making them visible at once |
//! | `trash` | what was thrown away, until it is removed |
//! | [`tree`] | the contract of a tree; [`union`], [`live`] and [`plain`] keep it |
//! | [`cached`] | reads that take no waiting |
//! | [`interrupt`] | ending a job early |
//! | [`search`] | names by patterns, lines by regular expressions |
//! | [`encoding`] | text that is not UTF-8 |
//! | [`sandbox`] | workspaces with their homes: who is in them, when they were used, removing them |
//! | [`snapshot`] | states of workspaces that are kept, and going back to them |
//! | [`usage`] | what trees take on the disk, and what they may take |
//! | [`text`] | lines and replacements |
//! | [`patch`] | unified diffs over several files |
//! | [`version`] | names of published states |
//! | [`provenance`] | who published what, and when |
//! | [`watch`] | what becomes of the files of a tree |
//! | [`archive`] | what platforms upload, and what a skill says of itself |

pub mod archive;
mod base;
pub mod cached;
mod carry;
mod copy;
mod destination;
pub mod dir;
mod download;
pub mod encoding;
pub mod error;
pub mod files;
pub mod interrupt;
mod journal;
pub mod life;
pub mod live;
mod lock;
pub mod metadata;
pub mod patch;
mod place;
pub mod plain;
pub mod provenance;
pub mod publish;
pub mod pull;
mod record;
pub mod run;
pub mod sandbox;
pub mod search;
pub mod sides;
pub mod skills;
pub mod snapshot;
pub mod spool;
pub mod stage;
pub mod stat;
pub mod status;
pub mod store;
pub mod text;
mod trash;
pub mod tree;
pub mod union;
pub mod usage;
pub mod version;
pub mod watch;

pub use dir::Dir;
pub use error::{Error, Result, Unmet};
pub use files::{Condition, Files, WriteOptions, Written};
pub use interrupt::Interrupt;
pub use life::KeptVersion;
pub use live::{Guests, LiveOptions, OwnerSwap};
pub use provenance::{Shelf, Standing};
pub use publish::{Publication, Published};
pub use pull::{Prefer, Pulled};
pub use run::{
    Absorbed, Attachment, Difference, Differing, Gauge, GaugeKey, Look, Placement, PlannedRun, PreparedRun,
    Role,
};
pub use sandbox::{SandboxFacts, SandboxId, Swept};
pub use sides::{Side, Sides};
pub use skills::Skill;
pub use snapshot::{Forked, Snapshot, SnapshotId, SnapshotNote, Snapshots};
pub use spool::Spool;
pub use stage::Durability;
pub use stat::{ETag, Kind, Layer, Stat};
pub use status::{Change, Changed, SkillStatus, Status};
pub use store::{Options, Recovery, Store};
pub use trash::Leftovers;
pub use tree::Tree;
pub use usage::{Ceiling, Flight, Use};
pub use version::{Contents, Version};
pub use watch::TreeWatch;
