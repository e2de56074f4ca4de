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
                "file": { "type": "string", "description": "load: path of a file in the skill; SKILL.md by default" }
            },
            "required": ["name"],
            "additionalProperties": false
        })
    }

    async fn run(&self, context: &Context<'_>, arguments: &str) -> Result<String, Refusal> {
        let Parameters { name, action, file } = parse(arguments)?;
        if name.is_empty() {
            return Err(Refusal::new("name is required"));
        }
        if matches!(name.as_str(), "." | "..") || name.contains(['/', '\\']) {
            return Err(Refusal::new("invalid skill name: it may have neither `..` nor `/` nor `\\`"));
        }
        if file.split(['/', '\\']).any(|segment| segment == "..") || file.starts_with('/') {
            return Err(Refusal::new("invalid file: send a path in the skill, without `..`"));
        }
        let (skill, described_by) = self.find(context, &name).await?;
        match action.as_str() {
            "" | "load" => load(&skill, &name, if file.is_empty() { &described_by } else { &file }).await,
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
    async fn find<'a>(
        &'a self,
        context: &Context<'a>,
        name: &str,
    ) -> Result<(Directory<'a>, String), Refusal> {
        let workspace = context.session.workspace().clone();
        let workspace = Directory { sandbox: context.sandbox, user: context.session.user(), root: workspace };
        let mut places = Vec::new();
        for directory in DIRECTORIES {
            places.push(workspace.below(directory)?);
        }
        places.extend(self.shared.iter().map(Place::directory));
        for place in &places {
            let Ok(skill) = place.below(name) else { continue };
            if let Some(file) = described::file(&skill).await? {
                return Ok((skill, file));
            }
        }
        for place in &places {
            let entries = place.entries().await?;
            for entry in
                entries.into_iter().filter(|entry| entry.kind == FileKind::Directory).take(SKILLS_MAX)
            {
                let Ok(skill) = place.below(&entry.name) else { continue };
                // A skill that cannot be read is not the wanted one.
                match described::describe(&skill, &entry.name).await {
                    Ok(Some(Described { file, name: own, .. })) if own == name => return Ok((skill, file)),
                    _ => {}
                }
            }
        }
        Err(Refusal(format!("skill `{}` not found", name.escape_debug())))
    }
}

async fn load(skill: &Directory<'_>, name: &str, file: &str) -> Result<String, Refusal> {
    let bytes = match skill.read(file, FILE_BYTES_MAX).await {
        Ok(Some(bytes)) => bytes,
        Ok(None) => {
            return Err(Refusal(format!("skill `{name}` has no file `{}`: use list_files", shown(file))));
        }
        Err(error) => return Err(error.into()),
    };
    let body = text(&shown(file), &bytes)?;
    let lines = body.split('\n').count();
    let mut out: String = body.split_inclusive('\n').take(LINES_MAX).collect();
    if lines > LINES_MAX {
        let path = skill.path(file)?;
        out.push_str(&format!(
            "\n... [truncated: showing {LINES_MAX} of {lines} lines, use Read with path {path} to see more]"
        ));
    }
    Ok(format!("# Skill: {name}\nDirectory: {}\nFile: {}\n\n{out}", skill.root, shown(file)))
}

async fn list_files(skill: &Directory<'_>, name: &str) -> Result<String, Refusal> {
    let (files, is_cut) = skill.sandbox.walk(skill.user, &skill.root, ENTRIES_MAX).await?;
    let mut files: Vec<String> = files.into_iter().map(|(path, _)| path).collect();
    files.sort_unstable();
    let mut out = format!(
        "Skill `{name}` in {} has {}{} file(s):",
        skill.root,
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
