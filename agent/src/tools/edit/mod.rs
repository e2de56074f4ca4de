//! *Edit*: makes a file, replaces text in it, or changes its lines.

mod fuzzy;
mod hint;
mod line;
mod parameters;
mod replace;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::apart::apart;
use super::tool::parse;
use super::{Context, Refusal, Report, Tool};
use crate::text::format_size;
use sandbox::{
    ErrorKind, ReadOptions, Result as SandboxResult, SandboxExt, SandboxPath, Version, WriteMode,
    WriteOptions,
};

pub use fuzzy::{fuzzy_match, reindent};
pub use hint::hint;
pub use line::{Action, Position, edit_lines, insert_at};
pub use parameters::{Change, Parameters};
pub use replace::{Replacement, replace};

/// The largest file that is edited, in bytes: 10 MiB.
pub const FILE_BYTES_MAX: u64 = 10 << 20;
/// Edits that never wait for each other.
const TURNS: usize = 64;
/// How often a change is worked out anew when the file is changed meanwhile.
const TRIES: usize = 8;

/// The tool *Edit*. Edits of one file through one value of this take turns, so that none is lost; where the sandbox tells
/// versions, none that another caller makes is lost either.
#[derive(Clone, Debug)]
pub struct Edit {
    turns: Arc<[Mutex<()>]>,
    hasher: RandomState,
}

impl Default for Edit {
    fn default() -> Self {
        Self { turns: (0..TURNS).map(|_| Mutex::new(())).collect(), hasher: RandomState::new() }
    }
}

#[async_trait]
impl Tool for Edit {
    fn name(&self) -> &'static str {
        "Edit"
    }

    fn description(&self) -> &'static str {
        "Make or change a text file. mode `create` writes `content` to a new file (set `rewrite` to overwrite one). mode \
         `replace` replaces `old_string` by `new_string`, the first occurrence or with `replace_all` every one; with \
         `regex` old_string is a regular expression and `$1` in new_string a group. mode `line` changes lines by number: \
         action `insert_before`, `insert_after`, `replace` or `delete` at `line_number` (`count` lines for the last two), \
         or action `insert` at `position` start or end. Line ends and modes of files are kept."
    }

    fn parameters(&self) -> Value {
        let text = |description: &str| json!({ "type": "string", "description": description });
        let integer = |description: &str| json!({ "type": "integer", "description": description });
        let flag = |description: &str| json!({ "type": "boolean", "description": description });
        json!({
            "type": "object",
            "properties": {
                "path": text("Path of the file"),
                "mode": { "type": "string", "enum": ["create", "replace", "line"], "description": "What to do" },
                "content": text("create: the whole file; line: the text to insert or to replace by"),
                "rewrite": flag("create: overwrite a file that exists; false by default"),
                "old_string": text("replace: the text to look for, exactly as it is in the file"),
                "new_string": text("replace: what takes its place"),
                "regex": flag("replace: old_string is a regular expression; false by default"),
                "replace_all": flag("replace: every occurrence; false by default"),
                "start_line": integer("replace: only lines from this one"),
                "end_line": integer("replace: only lines to this one"),
                "action": { "type": "string", "enum": ["insert_before", "insert_after", "replace", "delete", "insert"], "description": "line: what to do" },
                "line_number": integer("line: at which line, from 1"),
                "count": integer("line: how many lines to replace or delete; 1 by default"),
                "position": { "type": "string", "enum": ["start", "end"], "description": "line: where action insert puts the content" }
            },
            "required": ["path", "mode"],
            "additionalProperties": false
        })
    }

    async fn run(&self, context: &Context<'_>, arguments: &str) -> Result<String, Refusal> {
        Ok(self.report(context, arguments).await?.text)
    }

    fn data_schema(&self) -> Option<Value> {
        Some(json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "description": "The absolute path of the file" },
                "created": { "type": "boolean", "description": "Whether mode create wrote it" },
                "changed": { "type": "boolean", "description": "Whether its content is another than before" }
            },
            "required": ["path", "created", "changed"]
        }))
    }

    async fn report(&self, context: &Context<'_>, arguments: &str) -> Result<Report, Refusal> {
        let parameters: Parameters = parse(arguments)?;
        if parameters.path.is_empty() {
            return Err(Refusal::new("path is required"));
        }
        let change = parameters.change().map_err(Refusal)?;
        let path = context.session.resolve(&parameters.path)?;
        let turn = self.hasher.hash_one((context.session.user(), &path)) % TURNS as u64;
        let turn = self.turns.get(usize::try_from(turn).unwrap_or(0)).map(Mutex::lock);
        let _turn = match turn {
            Some(turn) => Some(turn.await),
            None => None,
        };
        let (text, is_created, is_changed) = match change {
            Change::Create { content, rewrite } => {
                (create(context, &path, content, rewrite).await?, true, true)
            }
            other => {
                let (text, is_changed) = change_file(context, &path, other).await?;
                (text, false, is_changed)
            }
        };
        let data = json!({ "path": path.as_str(), "created": is_created, "changed": is_changed });
        Ok(Report { text, data: Some(data) })
    }
}

async fn create(
    context: &Context<'_>,
    path: &SandboxPath,
    content: String,
    rewrite: bool,
) -> Result<String, Refusal> {
    let (sandbox, user, shown) = (context.sandbox, context.session.user(), context.session.shown(path));
    let size = format_size(content.len() as u64);
    if path == context.session.workspace() {
        return Err(Refusal::new("the path is the workspace itself: name a file in it"));
    }
    if let Some(parent) = path.parent()
        && !sandbox.exists(user, &parent).await?
    {
        sandbox.mkdir_all(user, &parent, 0o755).await?;
    }
    let mode = if rewrite { WriteMode::Replace } else { WriteMode::Create };
    let body = stream::once(async move { Ok(Bytes::from(content)) }).boxed();
    let written = sandbox.write_file(user, path, body, WriteOptions { mode, permissions: None }).await;
    match written {
        Ok(_) => Ok(format!("Created {shown} ({size})")),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(Refusal(format!(
            "{shown} already exists: set rewrite to overwrite it, or use mode replace or line"
        ))),
        Err(error) => Err(error.into()),
    }
}

/// Changes a file. Tells whether its content is another than before.
async fn change_file(
    context: &Context<'_>,
    path: &SandboxPath,
    change: Change,
) -> Result<(String, bool), Refusal> {
    let shown = context.session.shown(path);
    for _ in 0..TRIES {
        let (bytes, version) = read(context, path).await?;
        std::str::from_utf8(&bytes).map_err(|_| Refusal(format!("{shown} is not text in UTF-8")))?;
        let (text, wanted) = (bytes.clone(), change.clone());
        let applied = apart(move || apply(std::str::from_utf8(&text).unwrap_or_default(), &wanted)).await?;
        let (changed, summary) = applied.map_err(|reason| Refusal(format!("{reason} ({shown})")))?;
        let is_changed = changed.as_bytes() != bytes;
        if is_changed {
            match write(context, path, Bytes::from(changed), version).await {
                // Worked out anew for what is there now.
                Err(error) if error.kind() == ErrorKind::Stale => continue,
                written => written?,
            }
        }
        return Ok((format!("{summary} in {shown}"), is_changed));
    }
    Err(Refusal(format!("{shown} keeps changing: try again when what writes it is done")))
}

/// The bytes of a file that is to be changed, and its version where the sandbox tells one.
async fn read(context: &Context<'_>, path: &SandboxPath) -> Result<(Bytes, Option<Version>), Refusal> {
    let (sandbox, user, shown) = (context.sandbox, context.session.user(), context.session.shown(path));
    let options = ReadOptions { range: None, bytes_max: Some(FILE_BYTES_MAX) };
    let read = async {
        let mut body = sandbox.read_file(user, path, options).await?;
        let version = body.info.version.take();
        Ok::<_, sandbox::Error>((body.bytes().await?, version))
    };
    match read.await {
        Ok(read) => Ok(read),
        Err(error) if error.is_not_found() => {
            Err(Refusal(format!("no such file: {shown}: use mode create to make it")))
        }
        Err(error) if error.kind() == ErrorKind::TooLarge => Err(Refusal(format!(
            "{shown} is larger than {}: use Shell to change it",
            format_size(FILE_BYTES_MAX)
        ))),
        Err(error) => Err(error.into()),
    }
}

/// Writes the changed file, in place of the one of `version` alone where that is known.
async fn write(
    context: &Context<'_>,
    path: &SandboxPath,
    bytes: Bytes,
    version: Option<Version>,
) -> SandboxResult<()> {
    let (sandbox, user) = (context.sandbox, context.session.user());
    match version {
        Some(version) => sandbox.swap(user, path, bytes, version).await.map(drop),
        None => sandbox.write(user, path, bytes).await,
    }
}

/// Makes a change to the text of a file; gives the new text and a summary.
///
/// Where every line ends with `\r\n`, the change is made as if they ended with `\n`, and they end with `\r\n` again.
///
/// # Errors
/// Why it cannot be made.
pub fn apply(text: &str, change: &Change) -> Result<(String, String), String> {
    let ends = text.matches('\n').count();
    if ends == 0 || text.matches("\r\n").count() != ends || text.matches('\r').count() != ends {
        return apply_as_is(text, change);
    }
    let unix = |text: &String| text.replace("\r\n", "\n");
    let change = match change {
        Change::Replace(replacement) => {
            let Replacement { old, new, .. } = replacement;
            Change::Replace(Replacement { old: unix(old), new: unix(new), ..replacement.clone() })
        }
        Change::Lines { line, action, text } => {
            Change::Lines { line: *line, action: action.clone(), text: unix(text) }
        }
        Change::Insert { position, text } => Change::Insert { position: *position, text: unix(text) },
        Change::Create { .. } => change.clone(),
    };
    let (changed, summary) = apply_as_is(&text.replace("\r\n", "\n"), &change)?;
    Ok((changed.replace('\n', "\r\n"), summary))
}

fn apply_as_is(text: &str, change: &Change) -> Result<(String, String), String> {
    let new = match change {
        Change::Lines { action: Action::Delete(_), .. } | Change::Create { .. } | Change::Replace(_) => None,
        Change::Lines { text, .. } | Change::Insert { text, .. } => Some(text),
    };
    if new.is_some_and(String::is_empty) {
        return Err("content is required: send the text, or use action delete".to_owned());
    }
    match change {
        Change::Create { content, .. } => Ok((content.clone(), "Created".to_owned())),
        Change::Replace(replacement) => replace(text, replacement),
        Change::Lines { line, action, text: new } => edit_lines(text, *line, action, new),
        Change::Insert { position, text: new } => Ok(insert_at(text, *position, new)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(text: &str, old: &str, new: &str) -> Result<String, String> {
        let replacement = Replacement { old: old.into(), new: new.into(), ..Replacement::default() };
        apply(text, &Change::Replace(replacement)).map(|(text, _)| text)
    }

    #[test]
    fn line_ends_of_windows_are_kept_and_need_not_be_written() {
        assert_eq!(replaced("a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz").unwrap(), "x\r\ny\r\nz\r\nc\r\n");
        assert_eq!(replaced("a\r\nb\r\n", "a\r\nb", "x").unwrap(), "x\r\n");
        assert_eq!(replaced("a\r\nb\nc", "b", "x\ny").unwrap(), "a\r\nx\ny\nc");
        let insert = Change::Lines { line: 1, action: Action::InsertAfter, text: "新".into() };
        assert_eq!(apply("a\r\nb\r\n", &insert).unwrap().0, "a\r\n新\r\nb\r\n");
    }

    #[test]
    fn text_that_is_not_there_is_answered_with_the_nearest_line() {
        let error =
            replaced("fn main() {\n    println!(\"你好\");\n}\n", "println!(\"你号\")", "").unwrap_err();
        assert!(error.contains("text not found") && error.contains("line 2"), "{error}");
    }
}
