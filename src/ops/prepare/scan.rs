//! Finding each `SKILL.md` below directories of the workspace, and what it says of itself.

use policy::VersionId;
use policy::front_matter::head as head_of;
use sandbox::SandboxPath;
use sandbox::heads::{HeadQuery, LeftOut};
use serde::Serialize;

use super::deploy::Deployed;
use super::site::Site;
use super::steps::{Begun, Outcome, Steps};

/// Entries that are looked at below one directory.
const ENTRIES_MAX: usize = 20_000;
/// `SKILL.md`s of one round.
const SKILLS_MAX: usize = 500;
/// What is looked for.
const SKILL_MD: HeadQuery = HeadQuery {
    roots: Vec::new(),
    file_name: "SKILL.md",
    pruned: &["node_modules", ".venv", "venv"],
    entries_max: ENTRIES_MAX,
    levels_max: 32,
    files_max: SKILLS_MAX,
    head_bytes: 64 * 1024,
    // Front matter has at most 16 KiB.
    bytes_max: SKILLS_MAX as u64 * 16 * 1024,
};
/// Characters of a name and of a description.
const NAME_CHARACTERS: usize = 256;
const DESCRIPTION_CHARACTERS: usize = 4096;

/// A skill as a model is told of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SkillInfo {
    /// The path of its `SKILL.md`, which no other skill has.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its description; may be empty.
    pub description: String,
    /// The directory of its `SKILL.md`, as commands name it.
    pub directory: String,
    /// The path of its `SKILL.md`, as commands name it.
    pub skill_md_path: String,
    /// The version that it came with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version_id: Option<VersionId>,
    /// The skill that the version is of, as the caller selected it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skill_id: Option<String>,
}

/// What is looked through.
pub(super) enum Scope<'a> {
    /// The directories of these versions.
    Versions(&'a [Deployed]),
    /// The whole workspace.
    Everything,
}

/// What was found, before it is told.
pub(super) struct Found {
    /// The path, the name and the description of each skill.
    skills: Vec<(String, String, String)>,
    /// What was left out, and why.
    log: Vec<String>,
    /// Whether nothing could be looked through.
    is_failed: bool,
}

/// Finds the skills. What cannot be read is left out, and the log says so.
pub(super) async fn find(site: &Site, scope: &Scope<'_>) -> Found {
    let roots: Vec<String> = match scope {
        Scope::Versions(versions) => versions.iter().map(|version| version.directory.clone()).collect(),
        Scope::Everything => vec![String::new()],
    };
    let heads = match site.find_heads(&roots, &SKILL_MD).await {
        Ok(heads) => heads,
        Err(error) => {
            return Found {
                skills: Vec::new(),
                log: vec![format!("nothing could be looked through: {error}")],
                is_failed: true,
            };
        }
    };
    let mut log: Vec<String> = heads.left_out.into_iter().map(|left_out| say(site, left_out)).collect();
    let mut skills = Vec::new();
    for (path, head) in heads.files {
        let Some(path) = path.below(site.root()).map(str::to_owned) else { continue };
        let head = head.map_err(|error| site.failure(error).to_string());
        match head.and_then(|head| described(&head)) {
            Ok((name, description)) => skills.push((path, name, description)),
            Err(problem) => log.push(format!("`{path}` is left out: {problem}")),
        }
    }
    Found { skills, log, is_failed: false }
}

/// What was not looked through, as the log says it.
fn say(site: &Site, left_out: LeftOut) -> String {
    let relative = |path: &SandboxPath| path.below(site.root()).unwrap_or_default().to_owned();
    match left_out {
        LeftOut::Directory(path, error) => {
            format!("`{}` cannot be looked through: {}", relative(&path), site.failure(error))
        }
        LeftOut::Entries(root) => {
            let root = relative(&root);
            format!("`{root}` has more than {ENTRIES_MAX} entries: the rest is not looked through")
        }
        LeftOut::Files { found, read } => {
            format!("there are {found} `SKILL.md`s: only the first {read} are told")
        }
    }
}

impl Found {
    /// The skills as a model is told of them, where commands have the working directory `workdir`.
    pub(super) fn tell(
        mut self,
        scope: &Scope<'_>,
        workdir: &str,
        steps: &mut Steps,
        begun: Begun,
    ) -> Vec<SkillInfo> {
        let versions: &[Deployed] = match scope {
            Scope::Versions(versions) => versions,
            Scope::Everything => &[],
        };
        self.log.insert(0, format!("{} skills found", self.skills.len()));
        let outcome = if self.is_failed { Outcome::Failed } else { Outcome::Done };
        steps.end(begun, outcome, &self.log.join("\n"));
        let told =
            |(path, name, description): (String, _, _)| info(&path, name, description, workdir, versions);
        self.skills.into_iter().map(told).collect()
    }
}

/// The name and the description of a skill, of how its `SKILL.md` begins.
fn described(head: &[u8]) -> Result<(String, String), String> {
    let head = head_of(&String::from_utf8_lossy(head));
    let name = head.name.ok_or_else(|| "its front matter has no `name`".to_owned())?;
    let cut = |text: String, most| text.chars().take(most).collect::<String>();
    let description = cut(head.description.unwrap_or_default(), DESCRIPTION_CHARACTERS);
    Ok((cut(name, NAME_CHARACTERS), description))
}

fn info(path: &str, name: String, description: String, workdir: &str, versions: &[Deployed]) -> SkillInfo {
    let absolute = |relative: &str| match (workdir.trim_end_matches('/'), relative) {
        ("", "") => "/".to_owned(),
        (workdir, "") => workdir.to_owned(),
        (workdir, relative) => format!("{workdir}/{relative}"),
    };
    let (directory, _) = path.rsplit_once('/').unwrap_or(("", path));
    let of = owner(path, versions);
    SkillInfo {
        id: absolute(path),
        name,
        description,
        directory: absolute(directory),
        skill_md_path: absolute(path),
        version_id: of.map(|version| version.version.clone()),
        skill_id: of.map(|version| version.skill.to_string()),
    }
}

/// The version whose directory holds `path`: that with the longest path of several.
fn owner<'a>(path: &str, versions: &'a [Deployed]) -> Option<&'a Deployed> {
    let holds = |version: &&Deployed| {
        path.strip_prefix(version.directory.as_str()).is_some_and(|rest| rest.starts_with('/'))
    };
    versions.iter().filter(holds).max_by_key(|version| version.directory.len())
}

#[cfg(test)]
mod tests {
    use policy::SkillId;

    use super::*;

    #[test]
    fn of_nested_directories_the_longest_owns_a_skill() {
        let deployed = |number: u8, directory: &str| Deployed {
            skill: SkillId::parse("s").unwrap(),
            version: VersionId::parse(&format!("{number:024}")).unwrap(),
            directory: directory.to_owned(),
        };
        let versions = [deployed(1, "projects/a"), deployed(2, "projects/a/b"), deployed(3, "projects/ab")];
        let of = |path| owner(path, &versions).map(|version| version.directory.as_str());
        assert_eq!(of("projects/a/b/SKILL.md"), Some("projects/a/b"));
        assert_eq!(of("projects/a/bc/SKILL.md"), Some("projects/a"));
        assert_eq!(of("projects/ab/SKILL.md"), Some("projects/ab"));
        assert_eq!(of("projects/SKILL.md"), None);
    }
}
