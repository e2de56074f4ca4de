//! The ground of the tests: a running service, an HTTP client that sends exactly what it is told, archives.

mod at_once;
mod client;
mod collector;
mod events;
mod host;
mod service;
mod snapshot;
mod websocket;
mod zip;

pub(crate) use at_once::{AT_ONCE, at_once};
pub(crate) use client::promise::PROMISE;
pub(crate) use client::{Client, Reply, encoded};
pub(crate) use collector::{Answer, Collector, Told};
pub(crate) use events::Events;
pub(crate) use host::{granted, have, is_root, landlocked};
pub(crate) use service::{
    Service, Settings, assert_gone, children_of, memory_peak_bytes, program, reset_memory_peak, run_program,
};
pub(crate) use snapshot::Snapshot;
pub(crate) use websocket::{Message, Socket};
pub(crate) use zip::{Entry, random_bytes, skill_zip, zip};

/// The SHA-256 of a token, as configurations have it.
pub(crate) fn digest(text: &str) -> String {
    use sha2::Digest;
    hex::encode(sha2::Sha256::digest(text.as_bytes()))
}

/// The path of a skill's routes.
pub(crate) fn skill(user: &str, agent: &str, skill: &str) -> String {
    format!("/v1/skills/{}/{}/{}", encoded(user), encoded(agent), encoded(skill))
}

/// The path of a workspace's routes.
pub(crate) fn workspace(user: &str, agent: &str) -> String {
    format!("/v1/sandbox/{}/{}", encoded(user), encoded(agent))
}

/// The path of the routes about all skills of a user.
pub(crate) fn skills(user: &str, agent: &str) -> String {
    format!("/v1/skills/{}/{}", encoded(user), encoded(agent))
}
