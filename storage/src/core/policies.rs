//! [`Policies`]: what was set for single agents, one proven record an agent, for the next start.
//!
//! The store keeps texts and does not read them. A record has another name each time, made of the agent and a number; the
//! one with the highest number counts, so that a crash between a new record and the removal of the one before leaves one of
//! both. Records are proven as those of changes are ([`Records`]).

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};

use parking_lot::Mutex;
use policy::AgentId;

use crate::error::{Error, Result};
use crate::layers::record::{Proof, Records};

/// Agents that have a policy of their own at once.
pub const AGENTS_MAX: usize = 1000;
/// Longest text of a policy, in bytes.
const TEXT_BYTES_MAX: usize = 1024 * 1024;
/// Digits of the name of a record that stand for the agent.
const AGENT_DIGITS: usize = 32;

/// The records of policies.
pub(crate) struct Policies {
    records: Mutex<Records>,
}

/// The policies that were read at a start.
#[derive(Debug, Default)]
pub struct AgentPolicies {
    /// The text of each agent.
    pub texts: HashMap<AgentId, String>,
    /// Files among the records that nothing proves to be the service's own; they are kept aside.
    pub refused: usize,
}

impl Policies {
    pub(crate) fn new(records: Records) -> Self {
        Self { records: Mutex::new(records) }
    }

    /// Reads what was set for agents.
    ///
    /// # Errors
    /// [`Error::TooManyEntries`], [`Error::Io`].
    pub(crate) fn read(&self) -> Result<AgentPolicies> {
        let records = self.records.lock();
        let mut read = AgentPolicies::default();
        let mut newest: HashMap<AgentId, (u64, OsString)> = HashMap::new();
        for name in records.names()? {
            let text = match records.read(&name)? {
                Proof::Genuine(text) => text,
                Proof::Draft => {
                    records.remove(&name)?;
                    continue;
                }
                Proof::Refused(reason) => {
                    tracing::warn!(
                        reason,
                        "a file among the policies of agents is not the service's: it is kept aside"
                    );
                    records.refuse(&name)?;
                    read.refused += 1;
                    continue;
                }
            };
            let text = String::from_utf8(text).ok();
            let parsed = text.as_deref().and_then(|text| text.split_once('\n'));
            let agent = parsed.and_then(|(agent, text)| Some((AgentId::parse(agent).ok()?, text)));
            let Some(((agent, text), number)) = agent.zip(number_of(&name)) else { continue };
            let older = match newest.get(&agent) {
                Some((known, _)) if *known > number => Some(name),
                _ => {
                    read.texts.insert(agent.clone(), text.to_owned());
                    newest.insert(agent, (number, name)).map(|(_, older)| older)
                }
            };
            if let Some(older) = older {
                records.remove(&older)?;
            }
        }
        Ok(read)
    }

    /// Keeps what was set for an agent, or forgets it. After this it is on the disk.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::TooManyEntries`] when too many agents have one; [`Error::NoSpace`], [`Error::Io`].
    pub(crate) fn keep(&self, agent: &AgentId, text: Option<&str>) -> Result<()> {
        let records = self.records.lock();
        let of_agent = digits_of(agent);
        let names = records.names()?;
        let is_its = |name: &&OsString| name.to_str().is_some_and(|name| name.starts_with(&of_agent));
        let former: Vec<&OsString> = names.iter().filter(is_its).collect();
        if let Some(text) = text {
            if text.len() > TEXT_BYTES_MAX {
                let what = "the policy of an agent".to_owned();
                return Err(Error::TooLarge { what, limit: TEXT_BYTES_MAX as u64 });
            }
            if former.is_empty() && names.len() >= AGENTS_MAX {
                return Err(Error::TooManyEntries(AGENTS_MAX));
            }
            let number = former.iter().filter_map(|name| number_of(name)).max().map_or(0, |last| last + 1);
            let name = OsString::from(format!("{of_agent}-{number:016x}"));
            let sync = |file: &std::fs::File| {
                file.sync_all().map_err(|error| Error::from_io("fsync", "record", error))
            };
            records.write(&name, format!("{agent}\n{text}").as_bytes(), true, sync)?;
        }
        for name in former {
            records.remove(name)?;
        }
        records.settle()
    }
}

/// The part of a name that stands for the agent: an id can end as drafts do, and can be longer than names are.
fn digits_of(agent: &AgentId) -> String {
    blake3::hash(agent.as_str().as_bytes()).to_hex().chars().take(AGENT_DIGITS).collect()
}

fn number_of(name: &OsStr) -> Option<u64> {
    u64::from_str_radix(name.to_str()?.split_once('-')?.1, 16).ok()
}
