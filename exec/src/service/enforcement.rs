//! The walls around a run, in words: the promises of each layer and the gaps that they leave.

use std::borrow::Cow;

use crate::service::launcher::Launcher;
use crate::service::launcher::known::Bounds;
use crate::service::networks::RunNetwork;
use crate::tier::{Enforcement, Layer, MemoryBound, Network};
use crate::walls::seccomp::{ABI_SIGNALS, ABI_TRUNCATE};
use crate::wire::Reach;

/// The circumstances of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Circumstances<'a> {
    /// Whether it had a uid of its own.
    pub(crate) own_uid: bool,
    /// How it got to its tree.
    pub(crate) reach: Reach,
    /// Its network mode.
    pub(crate) network: Network,
    /// The network it lived in.
    pub(crate) run_network: &'a RunNetwork,
    /// What it may execute.
    pub(crate) bounds: &'a Bounds,
}

/// The walls that the launcher has, without their reasons.
#[derive(Clone, Copy, Debug)]
struct WhatHolds {
    /// Landlock's ABI; 0 without Landlock.
    abi: u32,
    /// Whether system calls are filtered.
    is_filtered: bool,
    /// Whether a run sees mounts of its own.
    is_mounted: bool,
    /// Whether the service judges some of a run's system calls.
    is_supervised: bool,
    /// Whether a run is root.
    is_root: bool,
}

/// Landlock ABI from which device commands are mediated (`landlock(7)`).
const ABI_IOCTL: u32 = 5;

impl Launcher {
    /// Describes the confinement of a run in `circumstances`.
    pub(crate) fn enforcement(&self, circumstances: Circumstances<'_>) -> Enforcement {
        let own_uid = circumstances.own_uid;
        let held = self.held(own_uid);
        let filter = self.hello().filter;
        let (memory_bound, shortfall) = self.hello().memory;
        let landlock = match (&self.landlock, self.distrusted()) {
            (Ok(_), None) => Layer::Enforced,
            (Ok(_), Some(reason)) => Layer::unavailable(reason.to_owned()),
            (Err(reason), _) => Layer::unavailable(reason.clone()),
        };
        Enforcement {
            tier: self.tier(),
            landlock_abi: held.abi,
            files: landlock.clone(),
            programs: landlock,
            system_calls: filter.map_or_else(Layer::unavailable, |()| Layer::Enforced),
            identity: if own_uid { Layer::Enforced } else { Layer::unavailable(self.shared_uid()) },
            namespaces: match self.without_namespaces() {
                None => Layer::Enforced,
                Some(reason) => Layer::unavailable(reason.to_owned()),
            },
            signals: if held.is_mounted || own_uid || held.is_supervised || held.abi >= ABI_SIGNALS {
                Layer::Enforced
            } else {
                Layer::unavailable(
                    "the command has the service's uid and this kernel's Landlock does not stop signals",
                )
            },
            network: network(circumstances, held),
            limits: if held.is_root && !held.is_supervised && memory_bound != MemoryBound::CgroupV2 {
                Layer::unavailable("the kernel limits no processes of root; all other limits hold")
            } else {
                Layer::Enforced
            },
            memory: match (memory_bound, shortfall) {
                (MemoryBound::CgroupV2 | MemoryBound::CgroupV2Later | MemoryBound::CgroupV1, _) => {
                    Layer::Enforced
                }
                (bound, reason) => Layer::unavailable(format!("{bound}: {}", reason.unwrap_or_default())),
            },
            memory_bound,
            termination: if held.is_mounted || held.is_filtered || own_uid {
                Layer::Enforced
            } else {
                Layer::unavailable("a process that leaves its group outlives the run")
            },
            notes: self.notes(circumstances, held, memory_bound),
        }
    }

    /// What holds for every run that has a uid of its own, or for every one that has none.
    fn held(&self, own_uid: bool) -> WhatHolds {
        let is_mounted = self.mounts();
        WhatHolds {
            abi: self.landlock.as_ref().copied().unwrap_or(0),
            is_filtered: self.hello().filter.is_ok(),
            is_mounted,
            is_supervised: !is_mounted && self.supervises(),
            is_root: !own_uid && self.service.uid == 0,
        }
    }

    /// The gaps that a run should know of, each a sentence.
    fn notes(
        &self,
        circumstances: Circumstances<'_>,
        held: WhatHolds,
        memory_bound: MemoryBound,
    ) -> Vec<Cow<'static, str>> {
        let Circumstances { own_uid, reach, run_network, bounds, network: _ } = circumstances;
        let WhatHolds { abi, is_filtered, is_mounted, is_supervised, is_root } = held;
        let mut notes: Vec<Cow<'static, str>> = Vec::new();
        match memory_bound {
            MemoryBound::CgroupV2 => {}
            MemoryBound::CgroupV2Later | MemoryBound::CgroupV1 => notes.push(
                "for the first 100 ms of a run, and for what it took then, its memory is limited by a control group \
                 only as far as sampling shows"
                    .into(),
            ),
            MemoryBound::Sampled => {
                notes.push("memory that a run takes and gives back between two samples is not seen".into());
            }
            MemoryBound::EachProcess => {
                notes.push("memory is limited for each process, not for the run".into());
            }
        }
        if !is_mounted || bounds.code_in_trees {
            notes.push(
                "a native program in the tree can be loaded through an allowed one; it stays inside the same walls"
                    .into(),
            );
        }
        if let RunNetwork::Without(reason) = run_network {
            notes.push(
                format!(
                    "{reason}: the command could not use any socket, not even to itself, and had no /proc"
                )
                .into(),
            );
        }
        match reach {
            Reach::Open => {}
            Reach::ReadSearch => notes.push(
                "directories above the tree are closed to its uid, so the run keeps CAP_DAC_READ_SEARCH; Landlock \
                 still decides what it reads"
                    .into(),
            ),
            Reach::Closed => notes.push(
                "directories above the tree are closed to its uid: relative paths work, absolute ones do not".into(),
            ),
        }
        if abi != 0 && abi < ABI_TRUNCATE {
            let what = match (is_mounted, is_filtered) {
                (true, _) => "the command sees no file of others",
                (false, true) => "`truncate` by a file's name is refused, in the tree as well",
                (false, false) => "only the owner of a file does",
            };
            notes.push(format!("this kernel's Landlock does not stop truncating files; {what}").into());
        }
        if abi != 0 && abi < ABI_IOCTL {
            notes.push("this kernel's Landlock does not stop device commands".into());
        }
        if is_mounted && let Some(Err(reason)) = self.offers().map(|offers| offers.processes) {
            notes.push(format!("there is no /proc: {reason}").into());
        }
        if !own_uid && !is_root && !is_supervised && !self.counts_apart() {
            notes.push(
                "the limit on processes counts those of the service's uid, at most a quarter of a second old"
                    .into(),
            );
        }
        if bounds.programs.is_open() {
            notes.push("every program of the system directories may run".into());
        }
        notes
    }

    /// The note about a run that has the service's uid.
    fn shared_uid(&self) -> String {
        let shared = "the command runs as the service's own uid, without capabilities";
        if self.mounts() {
            return format!("{shared}; it sees no other file of it");
        }
        let hello = self.hello();
        match (hello.filter, hello.supervision, self.unreadable()) {
            (Ok(()), Ok(()), None) => format!(
                "{shared}: the service changes modes, times and owners of files for it, and only of the command's own"
            ),
            (Ok(()), Err(reason), _) => {
                format!("{shared}: changes of modes, times and owners of files are refused, because {reason}")
            }
            (Ok(()), Ok(()), Some(reason)) => {
                format!("{shared}: changes of modes, times and owners of files may be refused: {reason}")
            }
            (Err(_), ..) => {
                format!("{shared}: it can change mode and times of files that the service owns")
            }
        }
    }
}

/// The wall around the network of a run.
fn network(circumstances: Circumstances<'_>, held: WhatHolds) -> Layer {
    let Circumstances { network, run_network, .. } = circumstances;
    match network {
        Network::Host => {
            Layer::unavailable("mode `host`: every address that the host reaches is within reach")
        }
        Network::Proxy if let RunNetwork::Without(reason) = run_network => {
            Layer::unavailable(format!("{reason}: the command ran with network `none`"))
        }
        Network::None | Network::Proxy if held.is_mounted => Layer::Enforced,
        Network::None if held.is_filtered => Layer::Enforced,
        Network::Proxy if matches!(run_network, RunNetwork::Loopback(_)) => Layer::Enforced,
        Network::Proxy => Layer::unavailable("nothing keeps the command to the proxy"),
        Network::None => Layer::unavailable("sockets are refused by the filter, which this kernel lacks"),
    }
}
