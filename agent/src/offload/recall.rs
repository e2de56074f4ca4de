//! [`Recall`]: reads kept results again.

use std::sync::Arc;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};

use super::OffloadStore;
use crate::tools::{Context, Refusal, Tool, parse_arguments};

/// Characters in one answer unless said otherwise.
const LIMIT_DEFAULT: usize = 8_000;
/// Characters in one answer at most.
const LIMIT_MAX: usize = 16_000;

/// The tool *offload_recall*, for one conversation.
#[derive(Clone, Debug)]
pub struct Recall {
    store: Arc<OffloadStore>,
    session: String,
}

impl Recall {
    /// The tool over what `store` keeps of the conversation `session`.
    #[must_use]
    pub fn new(store: Arc<OffloadStore>, session: impl Into<String>) -> Self {
        Self { store, session: session.into() }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    id: String,
    #[serde(default)]
    offset: usize,
    #[serde(default)]
    limit: usize,
}

#[async_trait]
impl Tool for Recall {
    fn name(&self) -> &'static str {
        "offload_recall"
    }

    fn description(&self) -> &'static str {
        "Read a result that was kept aside, by the id in `[offload:ID]`, a piece at a time."
    }

    fn parameters(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "id": { "type": "string", "description": "The id, such as ol_0123abcd" },
                "offset": { "type": "integer", "minimum": 0, "description": "The first character, from 0" },
                "limit": { "type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "description": "The most characters; 8000 by default" }
            },
            "required": ["id"],
            "additionalProperties": false
        })
    }

    async fn run(&self, _context: &Context<'_>, arguments: &str) -> Result<String, Refusal> {
        let Parameters { id, offset, limit } = parse_arguments(arguments)?;
        let Some((tool, content)) = self.store.recall(&self.session, &id).await? else {
            return Err(Refusal(format!(
                "`{}` was not found in this conversation",
                crate::text::truncate(&id.escape_debug().to_string(), 40)
            )));
        };
        Ok(page(&id, &tool, &content, offset, limit))
    }
}

/// The characters of `content` from `offset`, under a line that says which these are. A limit of 0 stands for 8 000, and
/// more than 16 000 are never given.
#[must_use]
pub fn page(id: &str, tool: &str, content: &str, offset: usize, limit: usize) -> String {
    let total = content.chars().count();
    let limit = if limit == 0 { LIMIT_DEFAULT } else { limit.min(LIMIT_MAX) };
    if offset > 0 && offset >= total {
        return format!("[offload:{id}] offset {offset} exceeds total length {total}");
    }
    let end = total.min(offset + limit);
    let mut text = format!("[offload:{id}] {tool} bytes:{} runes:{offset}-{end}/{total}", content.len());
    if end < total {
        text.push_str(&format!(" | more content: offset={end}"));
    }
    if offset > 0 {
        text.push_str(&format!(" | previous: offset={}", offset.saturating_sub(limit)));
    }
    text.push('\n');
    text.extend(content.chars().skip(offset).take(limit));
    text
}
