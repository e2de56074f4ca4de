//! The machines that users lend: their connections, and the routes about them.

pub(super) mod connect;
pub(super) mod manage;
pub(super) mod transfer;
