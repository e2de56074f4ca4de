//! How strongly a run is confined: what was asked for, and what was in force.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The strength of confinement a host grants, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Policy, environment, limits and deadline only; no wall that a program could not climb.
    Process,
    /// Landlock, the system call filter, limits, and an own uid where the service is root.
    #[default]
    Landlock,
    /// All of that, in namespaces of the run's own: it sees a minimal root, its own processes, and a network in
    /// which there is nothing but its user's own servers and the proxy.
    Namespaces,
}

impl fmt::Display for Tier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Process => "process",
            Self::Landlock => "landlock",
            Self::Namespaces => "namespaces",
        })
    }
}

/// The floor a deployment sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Isolation {
    /// The weakest tier in which anything runs. [`Tier::Process`] is allowed by naming it here, and only so.
    pub minimum: Tier,
    /// The strongest tier that is used, however much more the host grants.
    pub maximum: Tier,
}

impl Default for Isolation {
    fn default() -> Self {
        Self { minimum: Tier::default(), maximum: Tier::Namespaces }
    }
}

/// The network that a run may reach, least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// Nothing outside. Runs of one user and agent reach each other over the loopback address: that of their own network at tier
    /// [`Tier::Namespaces`], and at tier [`Tier::Landlock`] one that the service connects them at, which takes seccomp's notifications.
    #[default]
    None,
    /// The same, and the egress proxy, and through it what the proxy lets pass. Below tier [`Tier::Namespaces`] the service
    /// makes the connections of the run, for which the kernel needs seccomp's notifications (Linux 5.9).
    Proxy,
    /// Every address that the host reaches, unfiltered, over TCP and UDP. The service's own ports are within reach too.
    Host,
}

/// Whether one layer of confinement was in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Layer {
    /// The kernel enforces it.
    Enforced,
    /// It is not in force, or only in part.
    Unavailable {
        /// Why, and what follows from it, for an operator.
        reason: Cow<'static, str>,
    },
}

impl Layer {
    /// A layer that is not in force for `reason`.
    pub(crate) fn unavailable(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Unavailable { reason: reason.into() }
    }

    /// Tells whether the kernel enforces it.
    #[must_use]
    pub fn is_enforced(&self) -> bool {
        matches!(self, Self::Enforced)
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Enforced => formatter.write_str("enforced"),
            Self::Unavailable { reason } => write!(formatter, "unavailable: {reason}"),
        }
    }
}

/// The means that bounds the memory of a run as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryBound {
    /// A control group of version 2, which the run is born into.
    CgroupV2,
    /// A control group of version 2, to which a run is moved when it has lived for 100 ms.
    CgroupV2Later,
    /// A control group of version 1, to which a run is moved when it has lived for 100 ms.
    CgroupV1,
    /// The launcher looks at all processes every 100 ms and ends a run that has too much.
    Sampled,
    /// Nothing: only each process has a limit.
    EachProcess,
}

impl MemoryBound {
    /// Tells whether processes are moved to a control group during the run.
    pub(crate) fn is_by_moving(self) -> bool {
        matches!(self, Self::CgroupV2Later | Self::CgroupV1)
    }
}

impl fmt::Display for MemoryBound {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::CgroupV2 => "cgroup v2",
            Self::CgroupV2Later => "cgroup v2, from 100 ms on",
            Self::CgroupV1 => "cgroup v1, from 100 ms on",
            Self::Sampled => "sampled every 100 ms",
            Self::EachProcess => "for each process only",
        })
    }
}

/// The walls around a run, layer by layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enforcement {
    /// The tier as a whole.
    pub tier: Tier,
    /// The kernel's Landlock ABI, 0 without Landlock. Higher ones mediate more (`landlock(7)`).
    pub landlock_abi: u32,
    /// Landlock: files outside the tree are out of reach.
    pub files: Layer,
    /// Landlock: only listed programs are executed, by any process of the run.
    pub programs: Layer,
    /// seccomp: the kernel's riskier calls are refused.
    pub system_calls: Layer,
    /// A uid of the sandbox's own, and no capabilities.
    pub identity: Layer,
    /// Namespaces: the run sees a root, processes, a host name and a network of its own.
    pub namespaces: Layer,
    /// Processes outside the run cannot be signalled.
    pub signals: Layer,
    /// The network mode asked for.
    pub network: Layer,
    /// Limits on the address space, processor time, file size and open files of each process, and on processes.
    pub limits: Layer,
    /// A limit on the memory of all processes of the run together.
    pub memory: Layer,
    /// The means that keeps that limit.
    pub memory_bound: MemoryBound,
    /// Nothing outlives the run.
    pub termination: Layer,
    /// The gaps of these layers, in words.
    pub notes: Vec<Cow<'static, str>>,
}
