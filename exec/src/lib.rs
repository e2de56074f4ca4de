//! Running one command under isolation.
//!
//! The service describes a run ([`RunSpec`]) and gets a result ([`ExecResult`]) that says how it ended, what it wrote
//! and what confined it. In between a small launcher process starts it behind walls that the kernel keeps: Landlock
//! (files, programs, signals), seccomp (system calls), a uid of its own, resource limits.
//!
//! | Module | Holds |
//! | --- | --- |
//! | [`tier`] | the strengths of confinement, asked for and granted |
//! | [`programs`], [`binary`] | which files the allowed programs are |
//! | [`surface`], [`walls`] | what of the host a run may read; Landlock rulesets |
//! | [`seccomp`] | the system call filter |
//! | [`mounts`], [`owners`] | what a run in namespaces sees, and as whose |
//! | [`networks`] | the network namespaces that runs live in |
//! | [`wire`] | what service and launcher say to each other |
//! | [`zygote`] | the launcher process |
//! | [`launcher`] | the service's handle on it |
//! | [`run`], [`watch`], [`output`], [`result`], [`enforcement`], [`hint`] | one run and its result |
//! | [`live`], [`ends`], [`input`] | taking part in a run under way; its standard streams |
//! | [`ground`] | the namespaces that the service itself stands in |
//! | [`host`] | what this host grants, found out by doing |
//! | [`sys`] | the system calls without a safe wrapper |
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

mod begun;
mod binary;
mod census;
mod ends;
mod enforcement;
pub mod error;
pub mod ground;
mod hint;
pub mod host;
mod input;
pub mod launcher;
pub mod live;
pub mod mounts;
pub mod networks;
mod output;
pub mod owners;
pub mod programs;
pub mod residents;
mod result;
pub mod run;
mod seccomp;
pub mod step;
mod supervisor;
mod surface;
mod sys;
pub mod tier;
mod tube;
mod walls;
mod watch;
mod wire;
mod zygote;

pub use begun::Begun;
pub use error::Error;
pub use ground::Ground;
pub use host::{Canary, HostReport};
pub use launcher::{Launcher, LauncherConfig};
pub use live::{Chunk, Control, Feed, Live, Signal, Stream, WindowSize};
pub use mounts::{Attachment, Role};
pub use networks::{Listening, NetworkOwner};
pub use output::unfinished_character;
pub use owners::OwnerMaps;
pub use programs::{Programs, SEARCH_PATH, Whitelist};
pub use result::{Encoding, ExecResult, Limit, Told};
pub use run::{Halt, RunSpec};
pub use step::Step;
pub use sys::watch as watch_descriptor;
pub use tier::{Enforcement, Isolation, Layer, MemoryBound, Network, Tier};
pub use zygote::launcher_main;

/// The argument by which the service's binary is told to be a launcher.
pub const SUBCOMMAND: &str = "__launcher";
