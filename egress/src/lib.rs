//! The egress proxy: the only way from a sandbox to the network.
//!
//! The commands of a user and agent live in a network namespace with nothing else in it but a listener at [`ADDRESS`].
//! The service holds the listener of each and accepts there, with the network of its own; where commands have no
//! namespace, the service makes their connections itself and hands them in. A run gets a token ([`Pass`]) that ends with
//! it. Each connection carries one request, a tunnel (`CONNECT`) or a plain one (`GET http://…`):
//!
//! ```text
//! head ── token ── target ── rules ── addresses ── rules ── connect ── bytes
//!  16 KiB  407     one        lists    resolved     every    to what    counted,
//!  10 s            spelling   ports    once         one      was judged bounded
//! ```
//!
//! | Module | Holds |
//! | --- | --- |
//! | [`settings`], [`pattern`] | what the operator says |
//! | [`proxy`], [`accept`], [`pending`], [`connection`] | accepting, and one connection from head to log line |
//! | [`pass`], [`share`], [`meter`] | which run connects, what its user may have at once, and how much the run has
//! moved |
//! | [`head`], [`request`], [`body`] | reading a request so that no server can read it differently |
//! | [`target`], [`address`], [`rules`] | judging it |
//! | [`hosts`] | the hosts of single agents |
//! | [`names`], [`route`] | resolving and connecting |
//! | [`relay`], [`forward`] | moving bytes |
//! | [`reached`] | what a run has asked for, and what came of it |
//! | [`refusal`] | every way to say no |

mod accept;
mod address;
mod body;
mod connection;
mod forward;
#[cfg(fuzzing)]
pub mod fuzzing;
mod head;
mod hosts;
mod meter;
mod names;
mod pass;
mod pattern;
mod pending;
mod proxy;
mod reached;
mod refusal;
mod relay;
mod request;
mod route;
mod rules;
mod settings;
mod share;
mod target;

pub use head::HEAD_BYTES_MAX;
pub use hosts::Hosts;
pub use names::{Resolve, SystemResolver};
pub use pass::{Account, Pass, Who};
pub use pattern::{Pattern, PatternError};
pub use proxy::Egress;
pub use reached::{Reached, ReachedHost};
pub use refusal::Refusal;
pub use settings::{EgressConfig, ProxySettings, SettingsError};
pub use target::{Host, Target};

/// Where commands find the proxy, in their own network namespace.
pub const ADDRESS: &str = "127.0.0.1:3128";

/// The port of [`ADDRESS`].
pub const PORT: u16 = 3128;
