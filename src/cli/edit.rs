//! `filesecbox edit`, against a running service.

use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::Outcome;
use super::client::{Client, ClientError};
use super::target::{Tree, say};

/// Largest text that is edited, in bytes; the service may take less.
const TEXT_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Changes a text file: in an editor, by a replacement, or by the content of another file
///
/// What another caller changed meanwhile is never overwritten.
#[derive(Args)]
pub(super) struct EditArgs {
    #[command(flatten)]
    tree: Tree,
    /// The file, in the tree
    path: String,
    /// Text that is to be replaced, which occurs once
    #[arg(long, value_name = "TEXT", requires = "new", conflicts_with = "from")]
    old: Option<String>,
    /// Its replacement
    #[arg(long, value_name = "TEXT", requires = "old")]
    new: Option<String>,
    /// A file of this machine whose content the file gets; `-` is standard input
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// The editor
    #[arg(long, env = "EDITOR", value_name = "PROGRAM", default_value = "vi")]
    editor: String,
}

pub(super) fn run(args: EditArgs) -> Outcome {
    let client = args.tree.client()?;
    if let (Some(old), Some(new)) = (&args.old, &args.new) {
        let edits = json!({"path": args.path, "edits": [{"old_string": old, "new_string": new}]}).to_string();
        let url = client.url(&args.tree.route(&["replace"]), &[]);
        let bytes = u64::try_from(edits.len()).unwrap_or(u64::MAX);
        let response = client.post(&url, "application/json", Some(bytes), edits.as_bytes())?;
        say(&client.data::<String>(response)?);
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(from) = &args.from {
        let text = content(from)?;
        put(&client, &args, &text, None)?;
        return Ok(ExitCode::SUCCESS);
    }
    let url = client.url(&args.tree.route(&["content"]), &[("path", &args.path)]);
    let response = client.get(&url)?;
    let tag = response.headers().get("etag").and_then(|tag| tag.to_str().ok()).map(str::to_owned);
    let before: String = client.data(response)?;
    let after = edited(&args, &before)?;
    if after == before {
        say("Nothing changed.");
        return Ok(ExitCode::SUCCESS);
    }
    put(&client, &args, &after, tag.as_deref())?;
    Ok(ExitCode::SUCCESS)
}

fn put(client: &Client, args: &EditArgs, text: &str, tag: Option<&str>) -> Result<(), ClientError> {
    let url = client.url(&args.tree.route(&["edit"]), &[("path", &args.path)]);
    say(&client.data::<String>(client.put_text(&url, text, tag)?)?);
    Ok(())
}

/// The text as the person leaves it in the editor.
fn edited(args: &EditArgs, text: &str) -> Result<String, Box<dyn std::error::Error>> {
    // The ending tells the editor what it is.
    let name = args.path.rsplit('/').next().unwrap_or_default();
    let dir = tempfile::Builder::new().prefix("filesecbox-").tempdir()?;
    let path = dir.path().join(if name.is_empty() { "text" } else { name });
    let mut file = File::create_new(&path)?;
    file.write_all(text.as_bytes())?;
    drop(file);
    // As sh(1) reads it, so that `EDITOR="code --wait"` works.
    #[expect(clippy::disallowed_methods, reason = "the editor of the person, not a command of a user")]
    let status = std::process::Command::new("sh")
        .arg("-c")
        .arg("exec $0 \"$1\"")
        .arg(&args.editor)
        .arg(&path)
        .status()?;
    if !status.success() {
        return Err(format!("the editor `{}` failed: nothing was changed", args.editor).into());
    }
    Ok(content(&path)?)
}

fn content(path: &std::path::Path) -> Result<String, ClientError> {
    let at_path = |source| ClientError::File { path: path.display().to_string(), source };
    let mut text = String::new();
    if path == std::path::Path::new("-") {
        std::io::stdin().take(TEXT_BYTES_MAX).read_to_string(&mut text).map_err(at_path)?;
    } else {
        #[expect(clippy::disallowed_methods, reason = "a file of the person at the command line")]
        let file = File::open(path).map_err(at_path)?;
        file.take(TEXT_BYTES_MAX).read_to_string(&mut text).map_err(at_path)?;
    }
    Ok(text)
}
