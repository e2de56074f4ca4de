//! Skills: what is published, kept, copied and compared.

pub mod archive;
mod carry;
mod deploy;
pub mod directory;
mod download;
pub mod ids;
pub mod list;
pub mod packages;
pub mod provenance;
pub mod publish;
pub mod pull;
mod remove;
pub mod sides;
pub mod status;
pub mod versions;
