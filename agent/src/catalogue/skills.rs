//! [`SkillStore`]: the skills that a user has.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::{StreamExt, stream};

use super::cache::{Cache, Clock, Weigh};
use super::described::{Described, describe};
use super::render::{CHARACTERS_MAX, element};
use super::{ENTRIES_MAX, Forget, HIDDEN_SKILLS_DIRECTORY, READS_MAX, SKILLS_DIRECTORY};
use crate::Place;
use crate::place::Directory;
use crate::text::truncate;
use sandbox::{FileKind, Result, Sandbox, UserId};

/// A skill as a model is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skill {
    /// From its front matter, else its directory's name.
    pub name: String,
    /// From its front matter, else its first paragraph; may be empty.
    pub description: String,
}

/// The skills of one user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skills {
    /// By name.
    pub skills: Vec<Skill>,
    /// The skills that could not be read, one sentence each; the rest is there.
    pub problems: Vec<String>,
}

/// The skills that all users share, and those in each user's `.skills` and `skills`, which take the place of shared ones of
/// their name, the latter before the former.
#[derive(Debug)]
pub struct SkillStore {
    shared: Vec<Place>,
    sandbox: Arc<dyn Sandbox>,
    cache: Cache<Skills>,
}

impl SkillStore {
    /// A store of skills in `shared` directories, later ones before earlier ones, and in the workspaces of `sandbox`.
    #[must_use]
    pub fn new(shared: Vec<Place>, sandbox: Arc<dyn Sandbox>, clock: Clock) -> Self {
        Self { shared, sandbox, cache: Cache::new(clock) }
    }

    /// The skills of a user, as they were at most [`TTL`](super::TTL) ago.
    ///
    /// # Errors
    /// A directory of skills could not be listed.
    pub async fn skills(&self, user: &UserId) -> Result<Arc<Skills>> {
        self.cache.get(user, || self.read(user)).await
    }

    /// The skills of a user as a block of a prompt; empty when there are none.
    ///
    /// # Errors
    /// As for [`SkillStore::skills`].
    pub async fn catalogue(&self, user: &UserId) -> Result<String> {
        Ok(self.skills(user).await?.render())
    }

    async fn read(&self, user: &UserId) -> Result<Skills> {
        let workspace = self.sandbox.workspace(user).await?;
        let workspace = Directory { sandbox: &*self.sandbox, user, root: workspace };
        let mut directories: Vec<Directory<'_>> = self.shared.iter().map(Place::directory).collect();
        directories.push(workspace.below(HIDDEN_SKILLS_DIRECTORY)?);
        directories.push(workspace.below(SKILLS_DIRECTORY)?);
        let (mut skills, mut problems) = (BTreeMap::new(), Vec::new());
        for directory in directories {
            scan(&directory, &mut skills, &mut problems).await?;
        }
        Ok(Skills { skills: skills.into_values().collect(), problems })
    }
}

impl Forget for SkillStore {
    fn forget(&self, user: &UserId) {
        self.cache.forget(user);
    }

    fn forget_all(&self) {
        self.cache.forget_all();
    }
}

/// Adds the skills of a directory: its directories that hold a `SKILL.md` or `README.md`.
async fn scan(
    directory: &Directory<'_>,
    skills: &mut BTreeMap<String, Skill>,
    problems: &mut Vec<String>,
) -> Result<()> {
    let is_candidate = |kind: FileKind| matches!(kind, FileKind::Directory | FileKind::Symlink);
    let mut names: Vec<String> = directory
        .entries()
        .await?
        .into_iter()
        .filter(|entry| is_candidate(entry.kind))
        .map(|entry| entry.name)
        .collect();
    names.retain(|name| !name.starts_with('.'));
    if names.len() > ENTRIES_MAX {
        problems.push(format!("{} has {} skills: only {ENTRIES_MAX} are told", directory.root, names.len()));
        names.truncate(ENTRIES_MAX);
    }
    let mut reads = stream::iter(names)
        .map(|name| async move {
            let described = async { describe(&directory.below(&name)?, &name).await };
            let described = described.await;
            (name, described)
        })
        .buffered(READS_MAX);
    while let Some((name, described)) = reads.next().await {
        match described {
            Ok(Some(Described { name, description, .. })) => {
                let skill = Skill {
                    name: truncate(&name, CHARACTERS_MAX),
                    description: truncate(&description, CHARACTERS_MAX),
                };
                skills.insert(skill.name.clone(), skill);
            }
            Ok(None) => {}
            Err(error) if is_of_the_backend(error.kind()) => return Err(error),
            Err(error) => problems.push(format!("skill `{}`: {}", name.escape_debug(), error.kind())),
        }
    }
    Ok(())
}

/// Whether a failure says something about the backend, not about the file.
pub(super) fn is_of_the_backend(kind: sandbox::ErrorKind) -> bool {
    use sandbox::ErrorKind::{Busy, Disconnected, Timeout};
    matches!(kind, Busy | Disconnected | Timeout)
}

impl Weigh for Skills {
    fn bytes(&self) -> usize {
        let skills: usize =
            self.skills.iter().map(|skill| skill.name.len() + skill.description.len() + 64).sum();
        skills + self.problems.iter().map(String::len).sum::<usize>()
    }
}

impl Skills {
    /// A block of a prompt; empty when there are none.
    #[must_use]
    pub fn render(&self) -> String {
        if self.skills.is_empty() {
            return String::new();
        }
        let mut text = "# Available Skills\n\nA skill is a set of instructions and files for one kind of task. When one fits the task, \
                        load it with the tool Skill before you begin.\n\n<available_skills>\n"
            .to_owned();
        for skill in &self.skills {
            text.push_str("  <skill>\n");
            text.push_str(&element("name", &skill.name));
            text.push_str(&element("description", &skill.description));
            text.push_str("  </skill>\n");
        }
        text.push_str("</available_skills>\n");
        text
    }
}
