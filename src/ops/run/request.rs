//! [`RunRequest`] and [`RunOutcome`]: what a caller asks for, and what it gets.

use std::collections::BTreeMap;
use std::sync::Arc;

use egress::Reached;
use exec::{Encoding, ExecResult, Network, Tier};
use policy::{RelPath, SkillId, TreeId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use storage::Absorbed;

use super::changes::Changes;
use super::confined::Confined;
use crate::ops::remote::Backend;

/// Longest command that listings show, in characters.
const SHOWN_CHARACTERS: usize = 200;
/// The fields of a result with output, which streams have told already.
const OUTPUT: [&str; 7] =
    ["stdout", "stderr", "output", "stdout_base64", "stderr_base64", "truncated", "dropped_bytes"];

/// The tree that a command runs in, and the backend that answers for it where this service does not.
#[derive(Clone)]
pub struct RunTarget {
    pub(in crate::ops) tree: TreeId,
    pub(in crate::ops) backend: Option<Arc<Backend>>,
}

/// The command to run.
#[derive(Clone, Debug, Hash)]
pub enum Command {
    /// A program and its arguments.
    Program {
        /// Its bare name.
        name: String,
        /// Its arguments.
        args: Vec<String>,
    },
    /// A line for `bash -c`.
    Shell(String),
}

/// What a command sees besides its tree: skills in a workspace, at `/workspace/skills/<id>`, or the workspace around a skill.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Skills {
    /// None.
    #[default]
    None,
    /// All that the user has.
    All,
    /// These.
    Named(Vec<SkillId>),
    /// In a command of a skill, the workspace of the same user and agent.
    Workspace,
}

/// When what a run does to a skill counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Commit {
    /// At once, or when it has ended.
    #[default]
    Now,
    /// When a caller has said so, after a look at the changes.
    Ask,
}

/// A run as a caller asks for it.
#[derive(Clone, Debug, Hash)]
pub struct RunRequest {
    /// The command to run.
    pub command: Command,
    /// Working directory in the tree; the tree itself when empty.
    pub dir: RelPath,
    /// Further variables.
    pub env: BTreeMap<String, String>,
    /// Standard input.
    pub stdin: Option<Vec<u8>>,
    /// Deadline in milliseconds; never later than the configured one.
    pub timeout_ms: Option<u64>,
    /// Weakest confinement that will do.
    pub isolation: Option<Tier>,
    /// Skills that a command of the workspace sees besides.
    pub skills: Skills,
    /// The network that the command may reach; never more than configured.
    pub network: Option<Network>,
    /// Whether the result also carries raw bytes.
    pub encoding: Encoding,
    /// Whether the standard streams are a terminal.
    pub tty: bool,
    /// Whether the outcome tells which files it changed.
    pub changes: bool,
    /// Whether the outcome tells what it asked of the egress proxy.
    pub reached: bool,
    /// When what it does to a skill counts.
    pub commit: Commit,
}

/// The outcome of a run.
#[derive(Debug, Serialize, Deserialize)]
pub struct RunOutcome {
    /// How the command ended.
    pub result: ExecResult<Confined>,
    /// Its changes in a merged view.
    pub absorbed: Absorbed,
    /// Which files it changed, when that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<Changes>,
    /// What it asked of the egress proxy, when that was asked for; nothing without the proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<Reached>,
}

impl Command {
    /// The bare name of the program that is to run.
    pub(super) fn program(&self) -> &str {
        match self {
            Self::Program { name, .. } => name,
            Self::Shell(_) => "bash",
        }
    }

    /// The command for people, shortened.
    pub(super) fn shown(&self) -> String {
        let whole = match self {
            Self::Program { name, args } => {
                std::iter::once(name).chain(args).fold(String::new(), |mut line, word| {
                    if line.len() < 4 * SHOWN_CHARACTERS {
                        line.push_str(if line.is_empty() { "" } else { " " });
                        line.push_str(word);
                    }
                    line
                })
            }
            Self::Shell(line) => line.clone(),
        };
        whole.chars().take(SHOWN_CHARACTERS).collect()
    }
}

impl RunOutcome {
    /// Everything but the output, as one object.
    pub(super) fn without_output(&self) -> Value {
        let mut value = serde_json::to_value(&self.result).unwrap_or_default();
        if let Some(fields) = value.as_object_mut() {
            for name in OUTPUT {
                fields.remove(name);
            }
            if let Some(changes) = &self.changes {
                fields.insert("changes".to_owned(), serde_json::to_value(changes).unwrap_or_default());
            }
            if let Some(reached) = &self.reached {
                fields.insert("reached".to_owned(), serde_json::to_value(reached).unwrap_or_default());
            }
            if self.absorbed != Absorbed::default() {
                fields
                    .insert("absorbed".to_owned(), serde_json::to_value(&self.absorbed).unwrap_or_default());
            }
        }
        value
    }
}
