//! *Skill*: the instructions of a skill, and the files beside them.

use std::sync::Arc;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};

use super::read::text;
use super::tool::parse;
use super::{Context, Refusal, Tool};
use crate::Place;
use crate::catalogue::described::{self, Described};
use crate::catalogue::{HIDDEN_SKILLS_DIRECTORY, SKILLS_DIRECTORY};
use crate::place::Directory;
use crate::text::shown;
use sandbox::{FileKind, SandboxExt};

/// Lines of a file in one answer.
pub const LINES_MAX: usize = 300;
/// Files in a list.
pub const FILES_MAX: usize = 20;
/// The largest file that is loaded, in bytes: 1 MiB.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Skills of one directory that are looked at.
const SKILLS_MAX: usize = 1_000;
/// Entries of a skill that are looked at.
const ENTRIES_MAX: usize = 2_000;
/// Where a workspace has skills, in this order.
const DIRECTORIES: [&str; 2] = [SKILLS_DIRECTORY, HIDDEN_SKILLS_DIRECTORY];

/// The tool *Skill*.
#[derive(Clone, Debug, Default)]
pub struct Skill {
    shared: Arc<[Place]>,
}

impl Skill {
    /// The tool over the user's skills and those of `shared` directories, which come after the user's.
    #[must_use]
    pub fn with_shared(shared: impl IntoIterator<Item = Place>) -> Self {
        Self { shared: shared.into_iter().collect() }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    #[serde(default)]
    name: String,
    #[serde(default)]
    action: String,
    #[serde(default)]
    file: String,
    #[serde(default)]
    offset: i64,
}

/// A skill that was found.
struct Found<'a> {
    directory: Directory<'a>,
    /// The file that describes it.
    described_by: String,
    /// Whether it is in a shared place, whose paths mean nothing in the user's sandbox.
    is_shared: bool,
}

impl Found<'_> {
    /// Where the skill is, as a model is told.
    fn place(&self) -> String {
        match self.is_shared {
            true => "shared, and read by this tool alone".to_owned(),
            false => self.directory.root.to_string(),
        }
    }
}

#[async_trait]
impl Tool for Skill {
    fn name(&self) -> &'static str {
        "Skill"
    }

    fn description(&self) -> &'static str {
        "Use a skill. action `load` shows its SKILL.md, or another of its `file`s; action `list_files` lists its files."
    }

    fn parameters(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "name": { "type": "string", "description": "Name of the skill" },
                "action": { "type": "string", "enum": ["load", "list_files"], "description": "What to do; load by default" },
                "file": { "type": "string", "description": "load: path of a file in the skill; SKILL.md by default" },
                "offset": { "type": "integer", "description": "load: the first line to show, from 1" }
            },
            "required": ["name"],
            "additionalProperties": false
        })
    }

    async fn run(&self, context: &Context<'_>, arguments: &str) -> Result<String, Refusal> {
        let Parameters { name, action, file, offset } = parse(arguments)?;
        if name.is_empty() {
            return Err(Refusal::new("name is required"));
        }
        if matches!(name.as_str(), "." | "..") || name.contains(['/', '\\']) {
            return Err(Refusal::new("invalid skill name: it may have neither `..` nor `/` nor `\\`"));
        }
        if file.split(['/', '\\']).any(|segment| segment == "..") || file.starts_with('/') {
            return Err(Refusal::new("invalid file: send a path in the skill, without `..`"));
        }
        let skill = self.find(context, &name).await?;
        match action.as_str() {
            "" | "load" => load(&skill, &name, &file, usize::try_from(offset).unwrap_or(0)).await,
            "list_files" => list_files(&skill, &name).await,
            other => {
                Err(Refusal(format!("unknown action `{}`: use load or list_files", other.escape_debug())))
            }
        }
    }
}

impl Skill {
    /// The skill's directory, and the file that describes it: by the directory's own name in any place, else by the name that
    /// the skill gives itself.
    async fn find<'a>(&'a self, context: &Context<'a>, name: &str) -> Result<Found<'a>, Refusal> {
        let workspace = context.session.workspace().clone();
        let workspace = Directory { sandbox: context.sandbox, user: context.session.user(), root: workspace };
        let mut places = Vec::new();
        for directory in DIRECTORIES {
            places.push((workspace.below(directory)?, false));
        }
        places.extend(self.shared.iter().map(|place| (place.directory(), true)));
        for (place, is_shared) in &places {
            let Ok(directory) = place.below(name) else { continue };
            if let Some(described_by) = described::file(&directory).await? {
                return Ok(Found { directory, described_by, is_shared: *is_shared });
            }
        }
        for (place, is_shared) in &places {
            let entries = place.entries().await?;
            for entry in
                entries.into_iter().filter(|entry| entry.kind == FileKind::Directory).take(SKILLS_MAX)
            {
                let Ok(directory) = place.below(&entry.name) else { continue };
                // A skill that cannot be read is not the wanted one.
                match described::describe(&directory, &entry.name).await {
                    Ok(Some(Described { file, name: own, .. })) if own == name => {
                        return Ok(Found { directory, described_by: file, is_shared: *is_shared });
                    }
                    _ => {}
                }
            }
        }
        Err(Refusal(format!("skill `{}` not found", name.escape_debug())))
    }
}

/// Shows lines of `file`, from the line `offset` on, or of the file that describes the skill when `file` is empty.
async fn load(skill: &Found<'_>, name: &str, file: &str, offset: usize) -> Result<String, Refusal> {
    let file = if file.is_empty() { &skill.described_by } else { file };
    let bytes = match skill.directory.read(file, FILE_BYTES_MAX).await {
        Ok(Some(bytes)) => bytes,
        Ok(None) => {
            return Err(Refusal(format!("skill `{name}` has no file `{}`: use list_files", shown(file))));
        }
        Err(error) => return Err(error.into()),
    };
    let body = text(&shown(file), &bytes)?;
    let (before, lines) = (offset.saturating_sub(1), body.split('\n').count());
    if before >= lines {
        return Err(Refusal(format!("`{}` has {lines} lines: send a smaller offset", shown(file))));
    }
    let mut rest = body.split_inclusive('\n').skip(before);
    let mut out: String = rest.by_ref().take(LINES_MAX).collect();
    if rest.next().is_some() {
        let how = match skill.is_shared {
            true => format!("Skill with offset {}", before + LINES_MAX + 1),
            false => format!("Read with path {}", skill.directory.path(file)?),
        };
        out.push_str(&format!(
            "\n... [truncated: showing {LINES_MAX} of {lines} lines, use {how} to see more]"
        ));
    }
    Ok(format!("# Skill: {name}\nDirectory: {}\nFile: {}\n\n{out}", skill.place(), shown(file)))
}

async fn list_files(skill: &Found<'_>, name: &str) -> Result<String, Refusal> {
    let Directory { sandbox, user, root } = &skill.directory;
    let (files, is_cut) = sandbox.walk(user, root, ENTRIES_MAX).await?;
    let mut files: Vec<String> = files.into_iter().map(|(path, _)| path).collect();
    files.sort_unstable();
    let place = if skill.is_shared { "(shared)".to_owned() } else { format!("in {root}") };
    let mut out = format!(
        "Skill `{name}` {place} has {}{} file(s):",
        if is_cut { "more than " } else { "" },
        files.len()
    );
    for file in files.iter().take(FILES_MAX) {
        out.push_str(&format!("\n{}", shown(file)));
    }
    if files.len() > FILES_MAX {
        out.push_str(&format!("\n... ({} more)", files.len() - FILES_MAX));
    }
    Ok(out)
}
