//! Agents: those with which a user has anything, and what was set for each.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;

use policy::{AgentId, RelPath, UserId};

use crate::core::store::Store;
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::layout;
use crate::stat::Kind;

/// Where the directories of users lie.
const PLACES: [&str; 5] =
    [layout::OVERLAYS, layout::WORKSPACES, layout::HOMES, layout::KEPT, layout::SANDBOXES];
/// Names that one list has room for.
pub(crate) const LISTED_MAX: usize = 1_000_000;
/// Agents that have a policy of their own at once.
pub(crate) const AGENT_POLICIES_MAX: usize = 1000;

/// The policies that were read at a start.
#[derive(Debug, Default)]
pub struct AgentPolicies {
    /// The text of each agent.
    pub texts: HashMap<AgentId, String>,
    /// Files among the records that nothing proves to be the service's own; they are kept aside.
    pub refused: usize,
}

impl Store {
    /// The agents with which a user has anything.
    ///
    /// # Errors
    /// [`Error::TooManyEntries`], [`Error::Io`].
    pub fn agents_of(&self, user: &UserId) -> Result<BTreeSet<AgentId>> {
        let mut agents = BTreeSet::new();
        for place in self.places()? {
            let Some(dir) = entered(&place, user.as_str())? else { continue };
            let entries = dir.entries_at_most(LISTED_MAX)?.into_iter();
            let named = entries.filter(|entry| entry.kind == Kind::Directory);
            agents.extend(named.filter_map(|entry| AgentId::parse(entry.name.to_str()?).ok()));
            if agents.len() > LISTED_MAX {
                return Err(Error::TooManyEntries(LISTED_MAX));
            }
        }
        Ok(agents)
    }

    /// Reads what was set for agents.
    ///
    /// # Errors
    /// [`Error::TooManyEntries`], [`Error::Io`].
    pub fn agent_policies(&self) -> Result<AgentPolicies> {
        let kept = self.inner.policies.read()?;
        let texts =
            kept.texts.into_iter().filter_map(|(agent, text)| Some((AgentId::parse(&agent).ok()?, text)));
        Ok(AgentPolicies { texts: texts.collect(), refused: kept.refused })
    }

    /// Keeps what was set for an agent, or forgets it. After this it is on the disk.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::TooManyEntries`] when too many agents have one; [`Error::Full`], [`Error::NoSpace`],
    /// [`Error::Io`].
    pub fn keep_agent_policy(&self, agent: &AgentId, text: Option<&str>) -> Result<()> {
        if text.is_some() {
            self.admit_space()?;
        }
        self.inner.policies.keep(agent.as_str(), text)
    }

    /// Removes the directories of users that have nothing any more. No request uses the store yet.
    pub(super) fn tidy_users(&self) -> Result<()> {
        for place in [layout::WORKSPACES, layout::HOMES, layout::KEPT, layout::SANDBOXES] {
            let all = self.inner.root.open_dir(&RelPath::parse(place)?)?;
            for entry in all.entries()? {
                match all.remove_dir(&entry.name) {
                    Ok(()) | Err(Error::NotEmpty(_) | Error::NotADirectory(_)) => {}
                    Err(error) => {
                        tracing::warn!(
                            %error, place,
                            "failed to remove a user's directory: it stays until the next start"
                        )
                    }
                }
            }
        }
        Ok(())
    }

    pub(crate) fn places(&self) -> Result<Vec<Dir>> {
        PLACES.iter().map(|place| self.inner.root.open_dir(&RelPath::parse(place)?)).collect()
    }
}

/// The directory `name` in `dir`, if it is there.
pub(crate) fn entered(dir: &Dir, name: &str) -> Result<Option<Dir>> {
    match dir.open_dir_entry(OsStr::new(name)) {
        Ok(dir) => Ok(Some(dir)),
        Err(Error::NotFound(_) | Error::NotADirectory(_)) => Ok(None),
        Err(other) => Err(other),
    }
}
