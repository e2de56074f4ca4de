//! Running one command under isolation.
//!
//! The service describes a run ([`RunSpec`]) and gets a result ([`ExecResult`]) that says how it ended, what it wrote
//! and what confined it. In between a small launcher process starts it behind walls that the kernel keeps: Landlock
//! (files, programs, signals), seccomp (system calls), a uid of its own, resource limits.
//!
//! | Module | Holds |
//! | --- | --- |
//! | [`tier`], [`limit`], [`step`], [`error`] | the strengths of confinement, and what can stop a run |
//! | [`service`] | the service's side: its handle on the launcher, one run and its result, what runs are lent |
//! | [`wire`] | what service and launcher say to each other |
//! | [`zygote`] | the launcher process |
//! | [`supervisor`] | system calls of a run that the service answers |
//! | [`walls`] | programs, Landlock rulesets, the system call filter |
//! | [`loopback`], [`socket_tables`] | loopback addresses of runs, and what listens there |
//! | [`census`] | how many processes there are |
//! | [`workloads`] | how much of the processors each user has used |
//! | [`company`] | whether a user is alone |
//! | [`sys`] | the system calls without a safe wrapper |
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

mod census;
mod company;
mod error;
#[cfg(fuzzing)]
pub mod fuzzing;
mod limit;
mod loopback;
mod network_owner;
mod service;
mod socket_tables;
mod step;
mod supervisor;
mod sys;
mod tier;
mod walls;
mod wire;
mod workloads;
mod zygote;

pub use error::Error;
pub use limit::Limit;
pub use network_owner::NetworkOwner;
pub use policy::attachment::{HOME, Role, TEMPORARY};
pub use service::canaries::Canary;
pub use service::host::HostReport;
pub use service::host_namespaces::HostNamespaces;
pub use service::launcher::{Launcher, LauncherConfig};
pub use service::mounts::Attachment;
pub use service::networks::Listening;
pub use service::owners::OwnerMaps;
pub use service::ports::ListeningSocket;
pub use service::ports::holders::{Holder, RunNumber};
pub use service::processor_share::sessions_have_shares;
pub use service::projects;
pub use service::run::handle::RunHandle;
pub use service::run::live::{Chunk, Control, Feed, Live, Signal, Stream, WindowSize};
pub use service::run::output::unfinished_character;
pub use service::run::result::{Encoding, ExecResult, ForeignResult};
pub use service::run::spec::{Halt, HaltReason, RunSpec};
pub use service::run::unbegun::Unbegun;
pub use socket_tables::Protocol;
pub use step::Step;
pub use supervisor::ProxyConnection;
pub use sys::{
    begin_as_command, return_free_memory, return_large_allocations, take_short_slices,
    watch as watch_descriptor, work_for_long,
};
pub use tier::{Enforcement, Isolation, Layer, MemoryBound, Network, Tier};
pub use walls::programs::{ALIASES, Allowed, Programs, SEARCH_PATH, Whitelist};
pub use zygote::launcher_main;

/// The argument by which the service's binary is told to be a launcher.
pub const SUBCOMMAND: &str = "__launcher";
