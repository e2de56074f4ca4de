//! [`AgentPolicy`]: what holds for the runs and trees of one agent, where that is not what holds for all.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::command::{CommandPolicy, PolicyError, Profile};
use crate::limits::{RunLimits, SessionLimits};

/// Programs that one policy may name.
pub const PROGRAMS_MAX: usize = 64;
/// Hosts that each list of one policy may name.
pub const HOSTS_MAX: usize = 256;
/// Longest name or range of a host, in bytes: that of a domain name, with `*.` before it.
pub const HOST_BYTES_MAX: usize = 255;
/// The longest deadline that a policy may set, in milliseconds: a week.
pub const TIMEOUT_MS_MAX: u64 = 7 * 24 * 3600 * 1000;

/// What holds for the runs and trees of one agent. What it does not say is as for every agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentPolicy {
    /// How far the whitelist reaches below the command itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// Bare names of programs that callers may start besides those that all agents may.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extra: Vec<String>,
    /// The network that runs may reach at most; never more than the service grants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<AgentNetwork>,
    /// The hosts that runs reach through the egress proxy.
    #[serde(skip_serializing_if = "AgentHosts::is_empty")]
    pub hosts: AgentHosts,
    /// What each tree with the agent may take on the disk.
    #[serde(skip_serializing_if = "AgentDisk::is_empty")]
    pub disk: AgentDisk,
    /// Limits on runs.
    #[serde(skip_serializing_if = "AgentRuns::is_empty")]
    pub runs: AgentRuns,
}

/// A network mode, least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AgentNetwork {
    /// Nothing.
    None,
    /// The hosts that the egress proxy lets pass.
    Proxy,
    /// Everything that the host reaches.
    Host,
}

/// The hosts that runs of one agent reach through the egress proxy: names, `*.` before a name, addresses, ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentHosts {
    /// Stands in the place of the hosts that all agents may reach; empty is every public host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
    /// Refused besides those that all agents are refused.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
}

/// What each tree with one agent may take on the disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentDisk {
    /// In bytes of whole blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// In names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
}

/// Limits on the runs of one agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentRuns {
    /// Longest run whose caller waits, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Longest background run, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub background_ms: Option<u64>,
    /// Longest life of a terminal, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminal_ms: Option<u64>,
    /// Address space of one process, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Memory of all processes of one run together, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_memory_bytes: Option<u64>,
    /// Processes and threads of one sandbox at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// Processor time of one process, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<u64>,
    /// Size of a file that a command writes, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_bytes: Option<u64>,
    /// Open files of one process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
}

/// Why a policy of an agent cannot be.
#[derive(Debug, Error)]
pub enum AgentPolicyError {
    /// A name of a program is none.
    #[error("`extra`: {0}")]
    Program(#[from] PolicyError),
    /// A list is longer than it may be.
    #[error("`{list}` names {count}, at most {most} are possible: leave some out")]
    TooMany {
        /// Which list.
        list: &'static str,
        /// How many it names.
        count: usize,
        /// How many it may name.
        most: usize,
    },
    /// A host is longer than any is.
    #[error("a host in `{list}` has more than {HOST_BYTES_MAX} bytes: write a name, an address or a range")]
    Host {
        /// Which list.
        list: &'static str,
    },
    /// A limit is nothing, or beyond what there can be.
    #[error("`{name}` is {value}: send {least} to {most}")]
    Limit {
        /// Which limit.
        name: &'static str,
        /// Its value.
        value: u64,
        /// The least that it can be.
        least: u64,
        /// The most that it can be.
        most: u64,
    },
}

impl AgentPolicy {
    /// Checks what can be told without the host: names, lengths, numbers.
    ///
    /// # Errors
    /// Every [`AgentPolicyError`].
    pub fn check(&self) -> Result<(), AgentPolicyError> {
        let at_most = |list, count, most| match count > most {
            true => Err(AgentPolicyError::TooMany { list, count, most }),
            false => Ok(()),
        };
        at_most("extra", self.extra.len(), PROGRAMS_MAX)?;
        CommandPolicy::new(Profile::Strict, &self.extra)?;
        let allow = self.hosts.allow.as_deref().unwrap_or_default();
        for (list, hosts) in [("hosts.allow", allow), ("hosts.deny", self.hosts.deny.as_slice())] {
            at_most(list, hosts.len(), HOSTS_MAX)?;
            if hosts.iter().any(|host| host.len() > HOST_BYTES_MAX) {
                return Err(AgentPolicyError::Host { list });
            }
        }
        // With less than this no command starts: an address space, processes for a shell and its children, descriptors.
        const MIB: u64 = 1 << 20;
        const MOST: u64 = 1 << 50;
        let AgentRuns { timeout_ms, background_ms, terminal_ms, memory_bytes, run_memory_bytes, .. } =
            self.runs;
        let AgentRuns { processes, cpu_seconds, file_bytes, open_files, .. } = self.runs;
        let AgentDisk { bytes, files } = self.disk;
        for (name, value, least, most) in [
            ("runs.timeout_ms", timeout_ms, 1, TIMEOUT_MS_MAX),
            ("runs.background_ms", background_ms, 1, TIMEOUT_MS_MAX),
            ("runs.terminal_ms", terminal_ms, 1, TIMEOUT_MS_MAX),
            ("runs.memory_bytes", memory_bytes, 64 * MIB, MOST),
            ("runs.run_memory_bytes", run_memory_bytes, 16 * MIB, MOST),
            ("runs.processes", processes, 4, 1 << 20),
            ("runs.cpu_seconds", cpu_seconds, 1, TIMEOUT_MS_MAX / 1000),
            ("runs.file_bytes", file_bytes, 1, MOST),
            ("runs.open_files", open_files, 16, 1 << 20),
            ("disk.bytes", bytes, 1, MOST),
            ("disk.files", files, 1, 1 << 32),
        ] {
            if let Some(value) = value.filter(|value| !(least..=most).contains(value)) {
                return Err(AgentPolicyError::Limit { name, value, least, most });
            }
        }
        Ok(())
    }

    /// Tells whether other programs may run than with every agent.
    #[must_use]
    pub fn changes_programs(&self) -> bool {
        self.profile.is_some() || !self.extra.is_empty()
    }
}

impl AgentHosts {
    /// Tells whether it says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl AgentDisk {
    /// Tells whether it says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl AgentRuns {
    /// Tells whether it says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The limits of a run of the agent, where those of all are `limits`.
    #[must_use]
    pub fn over(&self, limits: &RunLimits) -> RunLimits {
        RunLimits {
            timeout_ms: self.timeout_ms.unwrap_or(limits.timeout_ms),
            memory_bytes: self.memory_bytes.unwrap_or(limits.memory_bytes),
            run_memory_bytes: self.run_memory_bytes.unwrap_or(limits.run_memory_bytes),
            processes: self.processes.unwrap_or(limits.processes),
            cpu_seconds: self.cpu_seconds.unwrap_or(limits.cpu_seconds),
            file_bytes: self.file_bytes.unwrap_or(limits.file_bytes),
            open_files: self.open_files.unwrap_or(limits.open_files),
            ..limits.clone()
        }
    }

    /// The limits of background runs and terminals of the agent, where those of all are `limits`.
    #[must_use]
    pub fn over_sessions(&self, limits: &SessionLimits) -> SessionLimits {
        SessionLimits {
            background_ms: self.background_ms.unwrap_or(limits.background_ms),
            terminal_ms: self.terminal_ms.unwrap_or(limits.terminal_ms),
            ..limits.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_policy_does_not_say_is_as_for_every_agent() {
        let limits = RunLimits::default();
        assert_eq!(AgentRuns::default().over(&limits), limits);
        let runs = AgentRuns { timeout_ms: Some(5), processes: Some(8), ..AgentRuns::default() };
        assert_eq!(runs.over(&limits), RunLimits { timeout_ms: 5, processes: 8, ..limits });
        let limits = SessionLimits::default();
        assert_eq!(AgentRuns::default().over_sessions(&limits), limits);
        let runs = AgentRuns { background_ms: Some(6), terminal_ms: Some(7), ..AgentRuns::default() };
        let expected = SessionLimits { background_ms: 6, terminal_ms: 7, ..limits.clone() };
        assert_eq!(runs.over_sessions(&limits), expected);
        assert!(AgentPolicy::default().check().is_ok() && !AgentPolicy::default().changes_programs());
    }

    #[test]
    fn a_policy_that_says_nothing_has_no_text_and_is_read_back() {
        let text = serde_json::to_string(&AgentPolicy::default()).unwrap();
        assert_eq!(text, "{}");
        let policy = AgentPolicy {
            profile: Some(Profile::Strict),
            extra: vec!["jq".to_owned()],
            network: Some(AgentNetwork::None),
            hosts: AgentHosts { allow: Some(Vec::new()), deny: vec!["*.example.com".to_owned()] },
            disk: AgentDisk { bytes: Some(1), files: None },
            runs: AgentRuns { timeout_ms: Some(1), ..AgentRuns::default() },
        };
        let text = serde_json::to_string(&policy).unwrap();
        assert_eq!(serde_json::from_str::<AgentPolicy>(&text).unwrap(), policy);
    }

    #[test]
    fn what_cannot_be_meant_is_refused_by_name() {
        let long = vec!["x".to_owned(); HOSTS_MAX + 1];
        let hosts = |allow, deny| AgentPolicy { hosts: AgentHosts { allow, deny }, ..AgentPolicy::default() };
        let extra = |name: &str| AgentPolicy { extra: vec![name.to_owned()], ..AgentPolicy::default() };
        let runs = |runs| AgentPolicy { runs, ..AgentPolicy::default() };
        for (policy, told) in [
            (extra("/bin/perl"), "extra"),
            (extra("../x"), "extra"),
            (extra(""), "extra"),
            (
                AgentPolicy { extra: vec!["x".to_owned(); PROGRAMS_MAX + 1], ..AgentPolicy::default() },
                "extra",
            ),
            (hosts(Some(long.clone()), Vec::new()), "hosts.allow"),
            (hosts(None, long), "hosts.deny"),
            (hosts(None, vec!["x".repeat(HOST_BYTES_MAX + 1)]), "hosts.deny"),
            (runs(AgentRuns { timeout_ms: Some(0), ..AgentRuns::default() }), "runs.timeout_ms"),
            (runs(AgentRuns { background_ms: Some(u64::MAX), ..AgentRuns::default() }), "runs.background_ms"),
            (runs(AgentRuns { memory_bytes: Some(1), ..AgentRuns::default() }), "runs.memory_bytes"),
            (
                AgentPolicy { disk: AgentDisk { bytes: Some(0), files: None }, ..AgentPolicy::default() },
                "disk.bytes",
            ),
        ] {
            let refused = policy.check().unwrap_err().to_string();
            assert!(refused.contains(told), "{refused}");
        }
    }
}
