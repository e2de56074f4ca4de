//! [`OffloadStore`]: long results of tools, kept aside and read again in pieces.
//!
//! * `summary`: what stands in the conversation in the place of a result.
//! * `session`: what is kept of one conversation, and where.
//! * [`Recall`]: the tool that reads it again.

mod recall;
mod session;
mod summary;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use futures_util::TryStreamExt;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::Place;
use crate::catalogue::Clock;
use crate::tools::read::FILE_BYTES_MAX;
use sandbox::{Error, ErrorKind, ReadOptions, Result, Sandbox, SandboxPath, UserId};
use session::{Offloaded, Session, random_id};

pub use recall::{Recall, page};
pub use session::{is_id, session_directory};
pub use summary::{estimated_tokens, summary};

/// When results are kept aside, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffloadOptions {
    /// Results of at least this many tokens, as [`estimated_tokens`] counts.
    pub result_tokens_min: usize,
    /// Results of at least this many bytes.
    pub result_bytes_min: usize,
    /// Conversations in which nothing was kept for this long are cleaned up.
    pub age_max: Duration,
}

impl Default for OffloadOptions {
    fn default() -> Self {
        Self {
            result_tokens_min: 2_000,
            result_bytes_min: 10 * 1024,
            age_max: Duration::from_secs(7 * 24 * 60 * 60),
        }
    }
}

/// Longest result that is kept, in bytes: 16 MiB.
pub const RESULT_BYTES_MAX: usize = 16 << 20;
/// Results kept of one conversation; the oldest go when there are more.
pub const RESULTS_MAX: usize = 500;
/// Tools whose results are never kept aside: they are long on purpose.
const NEVER: [&str; 3] = ["offload_recall", "recall_masked", "Skill"];

/// A call that has been answered.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The tool.
    pub tool: &'a str,
    /// Its arguments, as JSON.
    pub arguments: &'a str,
    /// Its answer.
    pub result: &'a str,
    /// Of *Read*: the file that was read, resolved when it was.
    pub read_path: Option<&'a SandboxPath>,
}

/// A message of a conversation, as far as this store looks at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// `tool`, `user`, `assistant`, …
    pub role: String,
    /// Its text.
    pub content: String,
}

/// Long results, by conversation, in a [`Place`] that is this value's alone.
///
/// * Nothing is held in memory: after a restart everything is there.
/// * A result is written before the index names it. An id is looked up in the index of its conversation and never made a
///   path of by itself.
/// * Of a file that was read whole, the digest is kept, taken through the sandbox from the path as it was resolved then.
///   When the file is another or gone, the result is *stale*; when it cannot be read for any other reason, its state is
///   unknown.
#[derive(Debug)]
pub struct OffloadStore {
    place: Place,
    clock: Clock,
    options: OffloadOptions,
    /// Changes of indexes take turns.
    turn: tokio::sync::Mutex<()>,
}

impl OffloadStore {
    /// A store in `place`.
    #[must_use]
    pub fn new(place: Place, clock: Clock, options: OffloadOptions) -> Self {
        Self { place, clock, options, turn: tokio::sync::Mutex::new(()) }
    }

    /// Keeps a result when it is long; gives its id and what to put in its place.
    ///
    /// # Errors
    /// It could not be written; use the result as it is then.
    pub async fn maybe_offload(
        &self,
        sandbox: &dyn Sandbox,
        user: &UserId,
        session: &str,
        call: Call<'_>,
    ) -> Result<Option<(String, String)>> {
        let is_long = estimated_tokens(call.result) >= self.options.result_tokens_min
            || call.result.len() >= self.options.result_bytes_min;
        let is_partial = call.tool == "Read" && read_is_partial(call.arguments);
        if call.result.is_empty() || !is_long || NEVER.contains(&call.tool) || is_partial {
            return Ok(None);
        }
        if call.result.len() > RESULT_BYTES_MAX {
            let message =
                format!("the result has {} bytes: at most {RESULT_BYTES_MAX} are kept", call.result.len());
            return Err(Error::new(ErrorKind::TooLarge, "offload", message));
        }
        let content_hash = match call.read_path {
            // Without a digest the result can never be called stale.
            Some(path) if call.tool == "Read" => digest(sandbox, user, path).await.unwrap_or_default(),
            _ => None,
        };
        let id = random_id()?;
        let text = format!("{}\n{}", heading(&id, &call), summary(call.tool, call.arguments, call.result));
        let offloaded = Offloaded::new(&id, &call, &text, content_hash, self.clock.now());
        let _turn = self.turn.lock().await;
        Session::open(self.place.directory(), session)?.add(offloaded, call.result).await?;
        Ok(Some((id, text)))
    }

    /// A kept result, whole; none when this conversation has none of that id.
    ///
    /// # Errors
    /// An error of reading the file.
    pub async fn recall(&self, session: &str, id: &str) -> Result<Option<(String, String)>> {
        Session::open(self.place.directory(), session)?.content(id).await
    }

    /// Marks results of files that are other ones now, or gone; gives the ids that were not marked before.
    ///
    /// # Errors
    /// The index could not be read or written.
    pub async fn invalidate_stale(
        &self,
        sandbox: &dyn Sandbox,
        user: &UserId,
        session: &str,
    ) -> Result<Vec<String>> {
        let session = Session::open(self.place.directory(), session)?;
        // Files are read before it is this call's turn: a slow sandbox keeps no other conversation waiting.
        let mut stale = HashSet::new();
        // A file that was read often is looked at once.
        let mut digests: HashMap<SandboxPath, Option<Option<String>>> = HashMap::new();
        for entry in session.index().await?.into_iter().filter(|entry| !entry.stale) {
            let (Some(hash), Some(path)) = (entry.content_hash, entry.read_path) else { continue };
            let now = match digests.get(&path) {
                Some(now) => now.clone(),
                None => {
                    digests.entry(path.clone()).or_insert(digest(sandbox, user, &path).await.ok()).clone()
                }
            };
            if now.is_some_and(|now| now.as_ref() != Some(&hash)) {
                stale.insert(entry.id);
            }
        }
        if stale.is_empty() {
            return Ok(Vec::new());
        }
        let _turn = self.turn.lock().await;
        let mut index = session.index().await?;
        let mut marked = Vec::new();
        for entry in index.iter_mut().filter(|entry| !entry.stale && stale.contains(&entry.id)) {
            entry.stale = true;
            marked.push(entry.id.clone());
        }
        session.write_index(&index).await?;
        Ok(marked)
    }

    /// The messages with every stale result told to be so, in the place of its summary.
    ///
    /// # Errors
    /// The index could not be read.
    pub async fn purge_stale(&self, session: &str, messages: &[Message]) -> Result<Vec<Message>> {
        let index = Session::open(self.place.directory(), session)?.index().await?;
        let stale: Vec<_> = index.into_iter().filter(|entry| entry.stale).collect();
        let purged = messages.iter().map(|message| {
            let of = stale.iter().find(|entry| {
                message.role == "tool" && message.content.contains(&format!("[offload:{}]", entry.id))
            });
            match of {
                Some(entry) => Message {
                    role: message.role.clone(),
                    content: format!(
                        "⚠️ [offload:{}] STALE — the file has changed since it was read: read {} again",
                        entry.id,
                        entry.read_path.as_ref().map_or("it", SandboxPath::as_str)
                    ),
                },
                None => message.clone(),
            }
        });
        Ok(purged.collect())
    }

    /// Removes everything of a conversation.
    ///
    /// # Errors
    /// An error of removing files.
    pub async fn clean_session(&self, session: &str) -> Result<()> {
        let _turn = self.turn.lock().await;
        Session::open(self.place.directory(), session)?.remove().await
    }

    /// Removes conversations in which nothing was kept for [`OffloadOptions::age_max`]; gives how many.
    ///
    /// # Errors
    /// An error of listing or removing files.
    pub async fn clean_old(&self) -> Result<usize> {
        let _turn = self.turn.lock().await;
        let mut removed = 0;
        let store = self.place.directory();
        for entry in store.entries().await? {
            let path = store.path(&entry.name)?;
            // The index is replaced with every result, which touches the directory.
            let info = match store.sandbox.stat(store.user, &path).await {
                Ok(info) => info,
                Err(error) if error.is_not_found() => continue,
                Err(error) => return Err(error),
            };
            let last = Session::in_directory(store.below(&entry.name)?).last().await.unwrap_or(None);
            let last = last.unwrap_or(info.modified);
            if self.clock.now().duration_since(last).is_ok_and(|age| age >= self.options.age_max) {
                store.remove_all(&entry.name).await?;
                removed += 1;
            }
        }
        Ok(removed)
    }
}

/// The name of a conversation in a channel.
#[must_use]
pub fn session_key(channel: &str, chat: &str) -> String {
    format!("{channel}:{chat}")
}

/// Whether the arguments of *Read* ask for a part of a file.
#[must_use]
pub fn read_is_partial(arguments: &str) -> bool {
    let Ok(Value::Object(arguments)) = serde_json::from_str(arguments) else { return false };
    ["offset", "max_lines"]
        .iter()
        .any(|key| arguments.get(*key).and_then(Value::as_f64).is_some_and(|number| number > 0.0))
}

/// A text of a JSON object; empty when there is none.
#[must_use]
pub fn json_field(json: &str, field: &str) -> String {
    let json: Value = serde_json::from_str(json).unwrap_or_default();
    json.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn heading(id: &str, call: &Call<'_>) -> String {
    let arguments: String = call
        .arguments
        .chars()
        .map(|character| if character.is_control() { ' ' } else { character })
        .collect();
    format!("📂 [offload:{id}] {}({})", call.tool, crate::text::truncate(&arguments, 80))
}

/// The digest of a whole file; none when nothing is there that *Read* could have shown.
async fn digest(sandbox: &dyn Sandbox, user: &UserId, path: &SandboxPath) -> Result<Option<String>> {
    let options = ReadOptions { range: None, bytes_max: Some(FILE_BYTES_MAX) };
    let mut stream = match sandbox.read_file(user, path, options).await {
        Ok(body) => body.stream,
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::NotFound | ErrorKind::IsDirectory | ErrorKind::NotADirectory | ErrorKind::TooLarge
            ) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let mut hasher = Sha256::new();
    while let Some(piece) = stream.try_next().await? {
        hasher.update(&piece);
    }
    Ok(Some(hex::encode(hasher.finalize())))
}
