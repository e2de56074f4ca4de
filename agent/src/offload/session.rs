//! [`Session`]: what is kept of one conversation: an index, and a file for each result.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::summary::estimated_tokens;
use super::{Call, RESULT_BYTES_MAX, RESULTS_MAX};
use crate::place::Directory;
use sandbox::{Error, ErrorKind, Result, SandboxPath, WriteMode};

const INDEX: &str = "index.json";
/// The largest index that is read, in bytes.
const INDEX_BYTES_MAX: u64 = 64 << 20;
/// The largest file of a result, in bytes: JSON writes a byte in six at most.
const CONTENT_BYTES_MAX: u64 = RESULT_BYTES_MAX as u64 * 6 + (8 << 20);
/// Longest arguments that are kept, in characters.
const ARGUMENTS_CHARACTERS_MAX: usize = 4096;
/// Of a conversation's key, what its directory's name says, in characters.
const KEY_CHARACTERS_MAX: usize = 60;

/// A result that was kept, in the index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Offloaded {
    pub(super) id: String,
    pub(super) tool_name: String,
    pub(super) args: String,
    pub(super) file_path: String,
    pub(super) token_size: usize,
    /// Seconds since 1970.
    pub(super) timestamp: u64,
    pub(super) summary: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) content_hash: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) read_path: Option<SandboxPath>,
    #[serde(default)]
    pub(super) stale: bool,
}

/// The file of a result.
#[derive(Serialize, Deserialize)]
struct Content {
    id: String,
    tool_name: String,
    args: String,
    content: String,
    timestamp: u64,
}

impl Offloaded {
    pub(super) fn new(
        id: &str,
        call: &Call<'_>,
        summary: &str,
        content_hash: Option<String>,
        now: SystemTime,
    ) -> Self {
        Self {
            id: id.to_owned(),
            tool_name: call.tool.to_owned(),
            args: crate::text::truncate(call.arguments, ARGUMENTS_CHARACTERS_MAX),
            file_path: format!("{id}.json"),
            token_size: estimated_tokens(call.result),
            timestamp: now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            summary: summary.to_owned(),
            read_path: content_hash.is_some().then(|| call.read_path.cloned()).flatten(),
            content_hash,
            stale: false,
        }
    }
}

/// The directory of one conversation.
pub(super) struct Session<'a>(Directory<'a>);

impl<'a> Session<'a> {
    pub(super) fn open(store: Directory<'a>, key: &str) -> Result<Self> {
        Ok(Self(store.below(&session_directory(key))?))
    }

    pub(super) fn in_directory(directory: Directory<'a>) -> Self {
        Self(directory)
    }

    /// All that is kept, in the order it came.
    pub(super) async fn index(&self) -> Result<Vec<Offloaded>> {
        let Some(bytes) = self.0.read(INDEX, INDEX_BYTES_MAX).await? else { return Ok(Vec::new()) };
        serde_json::from_slice(&bytes).map_err(|error| {
            Error::new(ErrorKind::Internal, "offload", "the index of a conversation is damaged")
                .because(error)
        })
    }

    pub(super) async fn write_index(&self, index: &[Offloaded]) -> Result<()> {
        self.write(INDEX, &index).await
    }

    /// Keeps a result, and lets the oldest go when there are too many.
    pub(super) async fn add(&self, offloaded: Offloaded, result: &str) -> Result<()> {
        self.0.make("").await?;
        let content = Content {
            id: offloaded.id.clone(),
            tool_name: offloaded.tool_name.clone(),
            args: offloaded.args.clone(),
            content: result.to_owned(),
            timestamp: offloaded.timestamp,
        };
        self.write(&offloaded.file_path, &content).await?;
        let mut index = self.index().await?;
        index.push(offloaded);
        let gone: Vec<Offloaded> = index.drain(..index.len().saturating_sub(RESULTS_MAX)).collect();
        self.write_index(&index).await?;
        for entry in gone.iter().filter(|entry| is_id(&entry.id)) {
            self.0.remove_all(&format!("{}.json", entry.id)).await?;
        }
        Ok(())
    }

    /// The tool and the text of a result that the index names.
    pub(super) async fn content(&self, id: &str) -> Result<Option<(String, String)>> {
        if !is_id(id) || !self.index().await?.iter().any(|entry| entry.id == id) {
            return Ok(None);
        }
        let Some(bytes) = self.0.read(&format!("{id}.json"), CONTENT_BYTES_MAX).await? else {
            return Ok(None);
        };
        let content: Content = serde_json::from_slice(&bytes).map_err(|error| {
            Error::new(ErrorKind::Internal, "offload", "a kept result is damaged").because(error)
        })?;
        Ok(Some((content.tool_name, content.content)))
    }

    /// When something was kept last.
    pub(super) async fn last(&self) -> Result<Option<SystemTime>> {
        let last = self.index().await?.iter().map(|entry| entry.timestamp).max();
        Ok(last.and_then(|last| UNIX_EPOCH.checked_add(Duration::from_secs(last))))
    }

    pub(super) async fn remove(&self) -> Result<()> {
        self.0.remove_all("").await
    }

    async fn write(&self, file: &str, value: &impl Serialize) -> Result<()> {
        let bytes = serde_json::to_vec(value).map_err(|error| {
            Error::new(ErrorKind::Internal, "offload", "a result cannot be written").because(error)
        })?;
        self.0.write(file, Bytes::from(bytes), WriteMode::Replace, Some(0o600)).await
    }
}

/// The name of a conversation's directory: what can be read of its key, and a digest that tells it from others.
#[must_use]
pub fn session_directory(key: &str) -> String {
    let readable = key.chars().take(KEY_CHARACTERS_MAX).map(|character| {
        if character.is_alphanumeric() || matches!(character, '-' | '_') { character } else { '_' }
    });
    let mut digest = hex::encode(Sha256::digest(key.as_bytes()));
    digest.truncate(16);
    format!("{}-{digest}", readable.collect::<String>())
}

/// Whether a text is an id of a result: `ol_` and eight hexadecimal digits.
#[must_use]
pub fn is_id(text: &str) -> bool {
    text.strip_prefix("ol_").is_some_and(|digits| {
        digits.len() == 8 && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
    })
}

pub(super) fn random_id() -> Result<String> {
    let mut bytes = [0_u8; 4];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::new(ErrorKind::Internal, "offload", "no random numbers").because(error))?;
    Ok(format!("ol_{:08x}", u32::from_ne_bytes(bytes)))
}
