//! The service's side of running commands: its handle on the launcher process, and what runs share and are lent.

pub(crate) mod canaries;
pub(crate) mod enforcement;
pub(crate) mod host;
pub(crate) mod host_namespaces;
pub(crate) mod launcher;
pub(crate) mod mounts;
pub(crate) mod networks;
pub(crate) mod own_mounts;
pub(crate) mod owners;
pub(crate) mod ports;
pub(crate) mod processor_share;
pub mod projects;
pub(crate) mod residents;
pub(crate) mod run;
