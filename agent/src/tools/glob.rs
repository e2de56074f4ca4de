//! *Glob*: files by a pattern for their paths.

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};

use super::apart::meant;
use super::listing::{self, Descend, ENTRIES_MAX};
use super::pattern::FindArgs;
use super::tool::parse;
use super::{Context, Refusal, Report, Tool};
use crate::text::shown;
use sandbox::{FileKind, SandboxPath};

pub use super::pattern::{PATTERN_BYTES_MAX, Pattern, glob_to_find_args};

/// Paths in one answer.
pub const RESULTS_MAX: usize = 200;

/// The tool *Glob*.
#[derive(Clone, Copy, Debug)]
pub struct Glob;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    #[serde(default)]
    pattern: String,
    #[serde(default)]
    path: String,
}

#[async_trait]
impl Tool for Glob {
    fn name(&self) -> &'static str {
        "Glob"
    }

    fn description(&self) -> &'static str {
        "Find files by a pattern for their paths, sorted. `*` and `?` match within a directory, `**` any number of \
         directories, `[a-z]` one character, `{a,b}` either. `*.py` finds files of the directory itself, `**/*.py` also \
         those below. Hidden files, hidden directories and node_modules are left out unless the pattern names them. At \
         most 200 paths are shown."
    }

    fn parameters(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "pattern": { "type": "string", "description": "Pattern for paths, such as `**/*.py` or `src/*.{js,ts}`" },
                "path": { "type": "string", "description": "Directory to search in; the current directory by default" }
            },
            "required": ["pattern"],
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
                "paths": { "type": "array", "items": { "type": "string" }, "description": "As in the text" },
                "truncated": { "type": "boolean", "description": "Whether there may be more" }
            },
            "required": ["paths", "truncated"]
        }))
    }

    async fn report(&self, context: &Context<'_>, arguments: &str) -> Result<Report, Refusal> {
        let Parameters { pattern, path } = parse(arguments)?;
        let (directory, pattern) = place(context, &path, &pattern)?;
        let pattern = Pattern::new(pattern).map_err(Refusal)?;
        base_directory(context, &directory).await?;
        let (files, is_cut) = files(context, &directory, &pattern).await?;
        let prefix = prefix(context, &directory);
        let paths: Vec<String> =
            files.iter().take(RESULTS_MAX).map(|file| format!("{prefix}{file}")).collect();
        let is_truncated = is_cut || files.len() > RESULTS_MAX;
        Ok(Report {
            text: render(&paths, files.len(), is_cut),
            data: Some(json!({ "paths": paths, "truncated": is_truncated })),
        })
    }
}

/// Where to search, and for what: a pattern that begins with the workspace's own path is one below it.
fn place<'p>(context: &Context<'_>, path: &str, pattern: &'p str) -> Result<(SandboxPath, &'p str), Refusal> {
    let directory = context.session.resolve(path)?;
    let workspace = context.session.workspace();
    let below = pattern.strip_prefix(workspace.as_str()).and_then(|rest| rest.strip_prefix('/'));
    Ok(match below {
        Some(below) if path.is_empty() => (workspace.clone(), below),
        _ => (directory, pattern),
    })
}

/// Refuses a directory to search in that is none.
pub(super) async fn base_directory(context: &Context<'_>, directory: &SandboxPath) -> Result<(), Refusal> {
    match context.sandbox.stat(context.session.user(), directory).await {
        Ok(info) if info.kind == FileKind::Directory => Ok(()),
        Ok(_) => Err(Refusal(format!("not a directory: {}", context.session.shown(directory)))),
        Err(error) if error.is_not_found() => {
            Err(Refusal(format!("base directory does not exist: {}", context.session.shown(directory))))
        }
        Err(error) => Err(error.into()),
    }
}

/// The files below `directory` that `pattern` means, relative to it and sorted.
async fn files(
    context: &Context<'_>,
    directory: &SandboxPath,
    pattern: &Pattern,
) -> Result<(Vec<String>, bool), Refusal> {
    let args = FindArgs::of(pattern);
    let base = directory.join(&args.base)?;
    let user = context.session.user();
    // A pattern that spells a hidden directory further down has to be looked for everywhere.
    let into = if pattern.names_hidden_below(args.base.split('/').filter(|name| !name.is_empty()).count()) {
        Descend::All
    } else {
        Descend::Usual
    };
    let listing = match listing::list(context.sandbox, user, &base, &args, into, context.search).await {
        Ok(listing) => listing,
        // The directory that the pattern begins with is not there, so nothing in it matches.
        Err(error)
            if !args.base.is_empty()
                && matches!(
                    error.kind(),
                    sandbox::ErrorKind::NotFound | sandbox::ErrorKind::NotADirectory
                ) =>
        {
            listing::Listing::default()
        }
        Err(error) => return Err(error.into()),
    };
    let prefix = if args.base.is_empty() { String::new() } else { format!("{}/", args.base) };
    let pattern = pattern.clone();
    let below = prefix.clone();
    let meant = meant(listing.files, move |path| pattern.matches(&format!("{below}{path}"))).await?;
    let mut files: Vec<String> = meant.into_iter().map(|(path, _)| format!("{prefix}{path}")).collect();
    files.sort_unstable();
    Ok((files, listing.is_cut))
}

/// The text before the paths of files below `directory`.
fn prefix(context: &Context<'_>, directory: &SandboxPath) -> String {
    match context.session.shown(directory) {
        current if current == "." => String::new(),
        other => format!("{}/", other.trim_end_matches('/')),
    }
}

/// The text of `paths`, the first ones of `found`.
fn render(paths: &[String], found: usize, is_cut: bool) -> String {
    let mut text = if paths.is_empty() {
        "No files matched the pattern.".to_owned()
    } else {
        format!("Found {found} matching file(s):")
    };
    for path in paths {
        text.push_str(&format!("\n{}", shown(path)));
    }
    if found > RESULTS_MAX {
        text.push_str(&format!("\n(Results truncated. Showing first {RESULTS_MAX} matches.)"));
    }
    if is_cut {
        text.push_str(&format!(
            "\n(Only the first {ENTRIES_MAX} entries were looked at: search in a directory further down.)"
        ));
    }
    text
}
