//! Routes below one tree, a skill or a workspace, one a file.

pub(super) mod content;
pub(super) mod dir;
pub(super) mod edit;
pub(super) mod exec;
pub(super) mod execute;
pub(super) mod files;
pub(super) mod mkdir;
pub(super) mod raw;
pub(super) mod remove;
pub(super) mod rename;
pub(super) mod replace;
pub(super) mod stat;
pub(super) mod terminal;

use policy::RelPath;
use serde::Serialize;
use storage::{ETag, Kind, Layer, Stat, Written};

use super::answer::{Answer, success_with, tagged};
use super::problem::Problem;
use super::time::rfc3339;

/// What is known of one entry.
#[derive(Serialize)]
struct EntryFacts {
    kind: Kind,
    /// In bytes; of a directory, 0.
    size: u64,
    /// Permission bits in octal, such as `0644`.
    mode: String,
    modified_at: String,
    layer: Layer,
    /// As the header `ETag` has it.
    etag: String,
}

impl EntryFacts {
    fn new(stat: &Stat, layer: Layer) -> Self {
        Self {
            kind: stat.kind,
            size: if stat.kind == Kind::Directory { 0 } else { stat.size },
            mode: format!("{:04o}", stat.mode),
            modified_at: rfc3339(stat.modified_ns),
            layer,
            etag: stat.etag().to_string(),
        }
    }
}

/// What stands beside the sentence of a change.
#[derive(Serialize)]
struct WrittenFacts {
    path: String,
    etag: String,
    size: u64,
    created: bool,
}

/// Answers a change of a file.
fn written(sentence: &str, path: &RelPath, written: &Written) -> Answer {
    let etag: ETag = written.stat.etag();
    let facts = WrittenFacts {
        path: path.to_string(),
        etag: etag.to_string(),
        size: written.stat.size,
        created: written.created,
    };
    Ok(tagged(success_with(sentence, facts)?, &etag))
}

/// Reads permission bits in octal.
fn mode(text: Option<&str>) -> Result<Option<u32>, Problem> {
    let Some(text) = text else { return Ok(None) };
    let digits = text.strip_prefix("0o").unwrap_or(text);
    match u32::from_str_radix(digits, 8) {
        Ok(mode) if mode <= 0o777 && !digits.starts_with('+') => Ok(Some(mode)),
        _ => Err(Problem::invalid(format!("`mode` is `{text}`: send octal permission bits such as `0644`"))),
    }
}
