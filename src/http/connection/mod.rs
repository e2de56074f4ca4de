//! Connections of callers: how many, how slow, and which one gives way.

mod client_connection;
mod connections;
pub mod listen;
mod under_way;
