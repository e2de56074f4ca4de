//! Which sandboxes there are, and what is known of each.

use std::collections::BTreeSet;
use std::ffi::OsStr;

use policy::{AgentId, RelPath, SkillId, TreeId, UserId};

use super::Workspaces;
use super::used::directory;
use crate::error::{Error, Result};
use crate::layout;
use crate::stat::Kind;
use crate::stat::Use;
use policy::WorkspaceId;

/// Sandboxes that one list has room for.
const LISTED_MAX: usize = 1_000_000;
/// Skills of one user and agent whose overlays are counted one by one.
const OVERLAYS_MAX: usize = 1000;

/// The facts of a sandbox that need no counting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxFacts {
    /// Which one.
    pub id: WorkspaceId,
    /// Whether it has a workspace.
    pub has_workspace: bool,
    /// Whether it has a home directory.
    pub has_home: bool,
    /// Whether something of it is set aside because it was not used; the next use brings it back.
    pub is_kept: bool,
    /// Its snapshots.
    pub snapshots: usize,
    /// When it was used last, in nanoseconds since 1970, to some minutes; `None` when that is not known.
    pub used_ns: Option<i128>,
}

impl Workspaces {
    /// The sandboxes of which there is anything: of one user, or of all. Sorted.
    ///
    /// # Errors
    /// [`Error::TooManyEntries`], [`Error::Io`].
    pub fn list(&self, of: Option<&UserId>) -> Result<Vec<WorkspaceId>> {
        let mut found = BTreeSet::new();
        for place in [layout::WORKSPACES, layout::HOMES, layout::KEPT, layout::SANDBOXES] {
            let all = self.store.root().open_dir(&RelPath::parse(place)?)?;
            let users = match of {
                Some(user) => vec![user.clone()],
                None => {
                    let names = all.entries_at_most(LISTED_MAX)?.into_iter();
                    names.filter_map(|entry| UserId::parse(entry.name.to_str()?).ok()).collect()
                }
            };
            for user in users {
                let agents = match all.open_dir_entry(OsStr::new(user.as_str())) {
                    Err(Error::NotFound(_) | Error::NotADirectory(_)) => continue,
                    agents => agents?,
                };
                for entry in agents.entries_at_most(LISTED_MAX)? {
                    if let (Kind::Directory, Some(agent)) = (entry.kind, agent_of(&entry.name)) {
                        found.insert(WorkspaceId { user: user.clone(), agent });
                    }
                }
                if found.len() > LISTED_MAX {
                    return Err(Error::TooManyEntries(LISTED_MAX));
                }
            }
        }
        Ok(found.into_iter().collect())
    }

    /// The facts of a sandbox, which need not be there.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn facts(&self, id: &WorkspaceId) -> Result<SandboxFacts> {
        let [workspace, home] = layout::of_sandbox(&id.user, &id.agent)?;
        let root = self.store.root();
        Ok(SandboxFacts {
            id: id.clone(),
            has_workspace: directory(root, &workspace)?.is_some(),
            has_home: directory(root, &home)?.is_some(),
            is_kept: self.is_kept(id)?,
            snapshots: self.store.snapshots().count(id)?,
            used_ns: self.used(id)?.map(|used| i128::from(used.unix_ms) * 1_000_000),
        })
    }

    /// The room that each overlay of a user with an agent takes, sorted by skill; of at most 1000, and how many more
    /// there are.
    ///
    /// # Errors
    /// [`Error::TooManyEntries`], [`Error::Io`].
    pub fn overlays(&self, id: &WorkspaceId) -> Result<(Vec<(SkillId, Use)>, usize)> {
        let Some(dir) = directory(self.store.root(), &layout::overlay(&id.user, &id.agent)?)? else {
            return Ok((Vec::new(), 0));
        };
        let entries = dir.entries_at_most(LISTED_MAX)?.into_iter();
        let mut skills: Vec<SkillId> =
            entries.filter_map(|entry| SkillId::parse(entry.name.to_str()?).ok()).collect();
        skills.sort_unstable();
        let more = skills.len().saturating_sub(OVERLAYS_MAX);
        skills.truncate(OVERLAYS_MAX);
        let counted = skills.into_iter().map(|skill| {
            let tree = TreeId::Skill(id.user.clone(), id.agent.clone(), skill.clone());
            Ok((skill, self.store.usage(&tree)?))
        });
        Ok((counted.collect::<Result<_>>()?, more))
    }
}

fn agent_of(name: &OsStr) -> Option<AgentId> {
    AgentId::parse(name.to_str()?).ok()
}
