//! What an agent does in a sandbox, over any backend of the trait [`Sandbox`](sandbox::Sandbox).
//!
//! * [`tools`]: what a model calls; [`catalogue`]: the skills and agents that it is told of.
//! * [`registry`]: skills and agents that users publish for each other; [`offload`]: long results of tools, kept aside.
//! * [`Place`]: a directory of a sandbox, where stores keep what is theirs.

pub mod catalogue;
pub mod offload;
mod place;
pub mod registry;
mod text;
pub mod tools;

pub use place::Place;

/// The examples of the document for those who build agents, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../docs/AGENT.md")]
struct AgentDocument;
