//! Skill archives.
use thiserror::Error;
/// Why an archive was refused.
#[derive(Debug, Error)]
pub enum ArchiveError {}
