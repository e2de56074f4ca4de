//! Skill archives: ZIP files from strangers in, ZIP files for all programs out.
//!
//! [`plan()`] decides everything from the archive's structure before the first byte is written; [`extract()`] writes
//! one planned skill; [`pack()`] makes an archive of a tree. An archive that two programs could read differently is
//! refused, one [`ArchiveError`] for each way to lie.
//!
//! | Module | Holds, in the order in which an upload passes through |
//! | --- | --- |
//! | `source`, `wire` | bytes at offsets; records, fields and extra fields |
//! | `end` | the one end record, with zip64 |
//! | `entry` | the table of contents, entry by entry |
//! | `layout` | local headers and data fill the file as the table says |
//! | `charset` | the encoding of names, decided once for the archive |
//! | `name` | names become paths; links and devices are refused |
//! | `tree`, `shape` | paths become a tree, the tree becomes skills |
//! | `plan` | the order of all this, and the limits |
//! | `unpack`, `extract` | data out, counted and checked |
//! | `time` | MS-DOS and Unix times |
//! | `pack` | the other direction |
//!
//! Reading is our own because what must be proven here (one reading only, exact sizes, names of any encoding) is
//! what libraries leave open; inflating is `flate2`, writing is `zip`.

mod charset;
mod end;
mod entry;
mod extract;
mod layout;
mod name;
mod pack;
mod plan;
mod shape;
mod source;
mod time;
mod tree;
mod unpack;
mod wire;

pub use crate::error::ArchiveError;
pub use charset::{Charset, NameEncoding};
pub use extract::extract;
pub use pack::{PackEntry, PackLimits, PackSource, Packed, pack};
pub use plan::{Options, Plan, PlannedSkill, plan};
pub use shape::{SkipReason, Skipped};
