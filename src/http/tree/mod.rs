//! Routes below one tree, a skill or a workspace, one a file.

pub(super) mod archive;
pub(super) mod content;
pub(super) mod copy;
pub(super) mod dir;
pub(super) mod edit;
mod entry_facts;
pub(super) mod events;
pub(super) mod exec;
pub(super) mod execute;
pub(super) mod files;
pub(super) mod glob;
pub(super) mod grep;
pub(super) mod info;
pub(super) mod mkdir;
pub(super) mod patch;
pub(super) mod ports;
pub(super) mod raw;
pub(super) mod remove;
pub(super) mod rename;
pub(super) mod replace;
mod run_skills;
pub(super) mod stat;
pub(super) mod terminal;
pub(in crate::http) mod walls;

use serde::Serialize;
use storage::ETag;
use storage::encoding::TextEncoding;
use storage::search::Patterns;

use super::answer::{Answer, success_with, tagged_if};
use super::extract::Place;
use crate::http::answer::problem::Problem;
use crate::ops::tree::facts::Written;

/// The fields beside the sentence of a change. Facts that another backend does not tell are left out.
#[derive(Serialize)]
pub(super) struct WrittenFacts {
    pub(super) path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) etag: Option<String>,
    pub(super) size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) created: Option<bool>,
    /// How a text lies on the disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) encoding: Option<TextEncoding>,
}

/// Answers a change of a file.
fn written(sentence: &str, place: &Place, written: Written) -> Answer {
    let Written { size, etag, created, encoding } = written;
    let shown = etag.as_ref().map(ETag::to_string);
    let facts = WrittenFacts { path: place.shown(), etag: shown, size, created, encoding };
    Ok(tagged_if(success_with(sentence, facts)?, etag.as_ref()))
}

/// Reads patterns for paths below the directory `base`. In sandbox form, they are brought to where they are relative to,
/// as they are with `./` before them.
fn patterns(Place { tree, path: base, .. }: &Place, texts: &[String]) -> Result<Patterns, Problem> {
    let root = format!("{}/", tree.id().sandbox_path());
    let relative = |text: &String| -> Result<String, Problem> {
        if let Some(below) = text.strip_prefix("./") {
            return Ok(format!("/{below}"));
        }
        let Some(below) = text.strip_prefix(&root) else { return Ok(text.clone()) };
        let inside =
            if base.is_root() { Some(below) } else { below.strip_prefix(&format!("{}/", base.as_str())) };
        let inside = inside.ok_or_else(|| {
            Problem::invalid(format!(
                "the pattern `{text}` is of another directory than `path`: leave `path` out"
            ))
        });
        Ok(format!("/{}", inside?))
    };
    let texts = texts.iter().map(relative).collect::<Result<Vec<String>, _>>()?;
    Ok(Patterns::new(&texts)?)
}

/// Reads permission bits in octal.
pub(in crate::http) fn mode(text: Option<&str>) -> Result<Option<u32>, Problem> {
    let Some(text) = text else { return Ok(None) };
    let digits = text.strip_prefix("0o").unwrap_or(text);
    match u32::from_str_radix(digits, 8) {
        Ok(mode) if mode <= 0o777 && !digits.starts_with('+') => Ok(Some(mode)),
        _ => Err(Problem::invalid(format!("`mode` is `{text}`: send octal permission bits such as `0644`"))),
    }
}
