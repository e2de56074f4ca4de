//! Skill archives: ZIP and tar files from strangers in, ZIP files for all programs out.
//!
//! [`Compression`] makes a tar of a `.tar.gz` or `.tar.zst`; [`plan()`] decides everything from the archive's structure before the first byte is written; [`extract()`] writes
//! one planned skill, and [`plan_whole()`] with [`extract_whole()`] take an archive as one tree; [`pack()`] makes an archive of a tree. An archive that two programs could read differently is
//! refused, one [`ArchiveError`] for each way to lie.
//!
//! | Module | Holds, in the order in which an upload passes through |
//! | --- | --- |
//! | `source`, `wire` | bytes at offsets; records, fields and extra fields |
//! | `end` | the one end record, with zip64 |
//! | `entry` | the table of contents, entry by entry |
//! | `layout` | local headers and data fill the file as the table says |
//! | `charset` | the encoding of names, decided once for the archive |
//! | `compression`, `tar` | the tar in a compressed file; its headers, as entries of the same kind |
//! | `name` | names become paths; devices are refused |
//! | `tree`, `shape`, `skipped` | paths become a tree, the tree becomes skills; what is left out, and why |
//! | `links` | links in a skill become what they lead to; the limits |
//! | `manifest`, `naming` | names of plugins; the id of each skill |
//! | `reader` | content that planning needs |
//! | `plan` | the order of all this |
//! | `unpack`, `writing`, `extract` | data out, counted and checked, and shared with the version before |
//! | `time` | MS-DOS and Unix times |
//! | `pack` | the other direction |
//!
//! Reading is our own because what must be proven here (one reading only, exact sizes, names of any encoding) is
//! what libraries leave open; inflating is `flate2` and `zstd`, headers of a tar are `tar`, writing is `zip`.

mod charset;
mod compression;
mod end;
mod entry;
mod extract;
mod layout;
mod links;
mod manifest;
mod name;
mod naming;
mod pack;
pub(crate) mod parallel;
mod plan;
mod reader;
mod shape;
mod skipped;
mod source;
mod tar;
mod time;
mod tree;
mod unpack;
mod wire;
mod writing;

pub use crate::error::ArchiveError;
pub use charset::{Charset, NameEncoding};
pub use compression::Compression;
pub(crate) use extract::DIRECTORY_MODE;
pub use extract::{Written, WrittenFile, extract, extract_whole};
pub use pack::{PackEntry, PackFormat, PackLimits, PackSource, Packed, pack};
pub use plan::{Options, Plan, PlannedSkill, WholeTree, plan, plan_beside, plan_whole};
pub use skipped::{SkipReason, Skipped};
pub(crate) use writing::set_modified;
