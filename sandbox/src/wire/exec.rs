//! [`Exec`]: a command, as it is asked for.

use serde::{Deserialize, Serialize};

use super::data::Data;

/// A command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Exec {
    /// The script, when `shell`; else ignored.
    pub command: String,
    /// The program and its arguments, unless `shell`.
    pub args: Vec<String>,
    /// Whether a shell runs `command`.
    pub shell: bool,
    /// The directory; the workspace when empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub dir: String,
    /// `NAME=value`, beside what the runner sets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Standard input, as text.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub stdin: String,
    /// Deadline in seconds; 60 when it is 0 or less.
    pub timeout: i64,
    /// Deadline in milliseconds, in place of `timeout`. *Exact.*
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Standard input, as bytes, in place of `stdin`. *Exact.*
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdin_data: Option<Data>,
    /// The most bytes of each output stream to keep: the first and last halves of what is more. The output comes ahead of the result,
    /// as [`ExecOutput`](super::response::ExecOutput). *Exact.*
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_bytes_max: Option<u64>,
}
