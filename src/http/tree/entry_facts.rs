//! [`EntryFacts`]: what an answer tells of one entry of a tree.
//!
//! A long list has thousands of them, so nothing is made into text before it is written into the answer.

use std::fmt;

use serde::{Serialize, Serializer};
use storage::{ETag, Kind, Layer, Owner};

use crate::http::answer::time::Rfc3339Text;
use crate::ops::tree::facts::Facts;

/// The facts of one entry. Facts that another backend does not tell are left out.
#[derive(Serialize)]
pub(in crate::http) struct EntryFacts {
    kind: Kind,
    /// In bytes; of a directory, 0.
    size: u64,
    /// Permission bits in octal, such as `0644`.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "octal")]
    mode: Option<u32>,
    /// In nanoseconds since 1970; told as RFC 3339.
    #[serde(
        rename = "modified_at",
        skip_serializing_if = "Option::is_none",
        serialize_with = "rfc3339_text"
    )]
    modified_ns: Option<i128>,
    #[serde(skip_serializing_if = "Option::is_none")]
    layer: Option<Layer>,
    /// As the header `ETag` has it.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "text")]
    etag: Option<ETag>,
    /// Where a link points to.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    /// As commands see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<Owner>,
}

impl From<Facts> for EntryFacts {
    fn from(facts: Facts) -> Self {
        Self {
            kind: facts.kind,
            size: facts.size,
            mode: facts.mode,
            modified_ns: facts.modified_ns,
            layer: facts.layer,
            etag: facts.etag(),
            target: facts.target,
            owner: facts.owner,
        }
    }
}

fn text<S: Serializer>(told: &Option<impl fmt::Display>, serializer: S) -> Result<S::Ok, S::Error> {
    match told {
        Some(told) => serializer.collect_str(told),
        None => serializer.serialize_none(),
    }
}

fn octal<S: Serializer>(mode: &Option<u32>, serializer: S) -> Result<S::Ok, S::Error> {
    text(&mode.map(|mode| fmt::from_fn(move |formatter| write!(formatter, "{mode:04o}"))), serializer)
}

fn rfc3339_text<S: Serializer>(nanoseconds: &Option<i128>, serializer: S) -> Result<S::Ok, S::Error> {
    text(&nanoseconds.map(Rfc3339Text::new), serializer)
}
