//! The operations of the service. They know no HTTP: the same operations stand under REST and under other interfaces.
//!
//! `storage` blocks, so each operation enters it once, through [`admission`].

pub mod admission;
pub mod agents;
pub mod archives;
pub mod audited;
pub mod backends;
pub mod bucket;
pub mod code;
pub mod devbox;
mod difference;
pub mod disk;
pub mod error;
pub mod events;
pub mod facts;
pub mod fetch;
pub mod files;
pub mod lease;
mod lint;
pub mod manifests;
pub mod packages;
pub mod pieces;
pub mod ports;
pub mod preparations;
pub mod prepare;
pub mod readiness;
pub mod registry;
pub mod remote;
pub mod revocations;
pub mod run;
pub mod runners;
pub(crate) mod said;
pub mod sandboxes;
pub mod search;
pub mod seen;
pub mod service;
pub mod shares;
pub mod shown;
pub mod skills;
pub mod snapshots;
pub mod stopping;
pub mod sweep;
pub mod sync;
pub mod texts;
pub mod tree;
pub mod upload;
pub mod usages;
pub mod users;
pub mod version_differences;
pub mod versions;
pub mod write;

pub use difference::Text;
pub use error::{Error, Result};
pub use service::Service;
pub use versions::FileDifference;

/// Runs blocking work off the runtime: of runs and feeds, which have permits of their own. Requests take [`Service::work`].
///
/// # Errors
/// The result of `work`; [`Error::Panicked`] when it panics.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Error::Panicked)?
}
