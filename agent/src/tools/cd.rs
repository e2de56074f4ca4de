//! *Cd*: the current directory of the session.

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};

use super::tool::parse;
use super::{Context, Refusal, Tool};
use crate::text::shown;
use sandbox::{DirEntry, FileKind, SandboxPath};

/// Entries of the tree that is shown.
pub const TREE_ENTRIES_MAX: usize = 30;
/// Marker files that are named.
pub const MARKERS_MAX: usize = 12;

/// Hidden entries that say something about a project.
const KNOWN_HIDDEN: [&str; 8] = [
    ".gitignore",
    ".github",
    ".env.example",
    ".dockerignore",
    ".editorconfig",
    ".eslintrc.json",
    ".prettierrc",
    ".gitlab-ci.yml",
];

/// Files that say what a project is.
const MARKERS: [(&str, &str); 26] = [
    ("go.mod", "Go"),
    ("go.sum", "Go"),
    ("Cargo.toml", "Rust"),
    ("package.json", "Node.js"),
    ("tsconfig.json", "TypeScript"),
    ("deno.json", "Deno"),
    ("pyproject.toml", "Python"),
    ("requirements.txt", "Python"),
    ("setup.py", "Python"),
    ("Pipfile", "Python"),
    ("environment.yml", "Conda"),
    ("pom.xml", "Java (Maven)"),
    ("build.gradle", "Java (Gradle)"),
    ("build.gradle.kts", "Kotlin (Gradle)"),
    ("Gemfile", "Ruby"),
    ("composer.json", "PHP"),
    ("mix.exs", "Elixir"),
    ("Package.swift", "Swift"),
    ("pubspec.yaml", "Dart"),
    ("CMakeLists.txt", "C/C++ (CMake)"),
    ("Makefile", "Make"),
    ("Dockerfile", "Docker"),
    ("docker-compose.yml", "Docker Compose"),
    ("compose.yaml", "Docker Compose"),
    ("SKILL.md", "Skill"),
    ("README.md", "README"),
];

/// The tool *Cd*.
#[derive(Clone, Copy, Debug)]
pub struct Cd;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    #[serde(default)]
    path: String,
}

#[async_trait]
impl Tool for Cd {
    fn name(&self) -> &'static str {
        "Cd"
    }

    fn description(&self) -> &'static str {
        "Change the current directory, where relative paths of all tools begin and commands of Shell run. Tells what is \
         in the directory. It stays inside the workspace."
    }

    fn parameters(&self) -> Value {
        json!({
            "type": "object",
            "properties": { "path": { "type": "string", "description": "Directory, from the current one or absolute" } },
            "required": ["path"],
            "additionalProperties": false
        })
    }

    async fn run(&self, context: &Context<'_>, arguments: &str) -> Result<String, Refusal> {
        let Parameters { path } = parse(arguments)?;
        if path.is_empty() {
            return Err(Refusal::new("path is required"));
        }
        let (sandbox, session) = (context.sandbox, context.session);
        let directory = session.resolve(&path)?;
        match sandbox.stat(session.user(), &directory).await {
            Ok(info) if info.kind == FileKind::Directory => {}
            Ok(_) => return Err(Refusal(format!("not a directory: {}", session.shown(&directory)))),
            Err(error) if error.is_not_found() => {
                return Err(Refusal(format!("no such directory: {}", session.shown(&directory))));
            }
            Err(error) => return Err(error.into()),
        }
        let entries = sandbox.read_dir(session.user(), &directory).await?;
        session.enter(directory.clone());
        let mut text = format!("Changed directory to {directory}");
        for part in [project(&entries), tree(&children(context, &directory, entries).await)] {
            if !part.is_empty() {
                text.push_str(&format!("\n\n{part}"));
            }
        }
        Ok(text)
    }
}

/// The entries that are shown, each directory with those in it, until there are more than are shown.
async fn children(
    context: &Context<'_>,
    directory: &SandboxPath,
    entries: Vec<DirEntry>,
) -> Vec<(DirEntry, Vec<DirEntry>)> {
    let mut all = Vec::new();
    let entries: Vec<DirEntry> = entries.into_iter().filter(is_shown).collect();
    let mut room = TREE_ENTRIES_MAX.saturating_sub(entries.len());
    for entry in entries {
        let mut below = Vec::new();
        if entry.kind == FileKind::Directory
            && room > 0
            && entry.name != "node_modules"
            && let Ok(path) = directory.join(&entry.name)
        {
            // A directory that cannot be listed is shown without its entries.
            below = context.sandbox.read_dir(context.session.user(), &path).await.unwrap_or_default();
            below.retain(is_shown);
            room = room.saturating_sub(below.len());
        }
        all.push((entry, below));
    }
    all
}

fn is_shown(entry: &DirEntry) -> bool {
    let name = entry.name.as_str();
    entry.is_one_segment() && (!name.starts_with('.') || KNOWN_HIDDEN.contains(&name))
}

/// The kind of project in a directory with these entries, and the files that tell; empty when none tells.
#[must_use]
pub fn project(entries: &[DirEntry]) -> String {
    let found: Vec<(&str, &str)> = MARKERS
        .into_iter()
        .filter(|(name, _)| entries.iter().any(|entry| entry.name == *name))
        .take(MARKERS_MAX)
        .collect();
    if found.is_empty() {
        return String::new();
    }
    let mut kinds: Vec<&str> = found.iter().map(|(_, kind)| *kind).filter(|kind| *kind != "README").collect();
    kinds.dedup();
    let names: Vec<&str> = found.iter().map(|(name, _)| *name).collect();
    match kinds.is_empty() {
        true => format!("Project files: {}", names.join(", ")),
        false => format!("Project: {}\nProject files: {}", kinds.join(", "), names.join(", ")),
    }
}

/// Two levels of a directory, at most [`TREE_ENTRIES_MAX`] entries; empty for an empty one.
fn tree(entries: &[(DirEntry, Vec<DirEntry>)]) -> String {
    let line = |depth: usize, entry: &DirEntry| {
        let slash = if entry.kind == FileKind::Directory { "/" } else { "" };
        format!("\n{}{}{slash}", "  ".repeat(depth), shown(&entry.name))
    };
    let lines: Vec<String> = entries
        .iter()
        .flat_map(|(entry, below)| {
            std::iter::once(line(1, entry)).chain(below.iter().map(|entry| line(2, entry)))
        })
        .collect();
    if lines.is_empty() {
        return String::new();
    }
    let mut text = "Directory structure:".to_owned();
    text.extend(lines.iter().take(TREE_ENTRIES_MAX).map(String::as_str));
    if lines.len() > TREE_ENTRIES_MAX {
        text.push_str(&format!("\n  ... ({} more entries)", lines.len() - TREE_ENTRIES_MAX));
    }
    text
}
