//! The machine as seen from outside: whether it has what a test needs, and what a service holds of it.

use std::fs;
use std::path::Path;

use crate::client::Client;
use crate::random;

/// Tells whether commands run in namespaces here, over live views; fails where `FILESECBOX_REQUIRE` names `namespaces`
/// and they do not.
pub(crate) fn has_namespaces(client: &Client) -> bool {
    let info = client.get("/v1/info").unwrap().json();
    if info["data"]["host"]["enforcement"]["tier"] == "namespaces" {
        return true;
    }
    let required = std::env::var("FILESECBOX_REQUIRE").unwrap_or_default();
    let is_required = required.split(',').any(|name| name.trim() == "namespaces");
    assert!(!is_required, "this host lacks `namespaces`, which is required");
    random::tell("SKIPPED: this host lacks `namespaces`");
    false
}

/// The resources that one process holds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Held {
    /// Open descriptors.
    pub(crate) descriptors: usize,
    /// Mounts in its namespace.
    pub(crate) mounts: usize,
    /// Resident memory, in KiB.
    pub(crate) resident_kib: usize,
}

impl Held {
    /// Looks at the process `pid` (proc(5)).
    pub(crate) fn by(pid: u32) -> Self {
        let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap();
        let status = read("status");
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        Self {
            descriptors: entries(format!("/proc/{pid}/fd")),
            mounts: read("mountinfo").lines().count(),
            resident_kib: resident.trim().trim_end_matches(" kB").parse().unwrap(),
        }
    }

    /// The most of each.
    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            descriptors: self.descriptors.max(other.descriptors),
            mounts: self.mounts.max(other.mounts),
            resident_kib: self.resident_kib.max(other.resident_kib),
        }
    }
}

/// How many entries a directory has; none when it is not there.
pub(crate) fn entries(directory: impl AsRef<Path>) -> usize {
    fs::read_dir(directory).map_or(0, Iterator::count)
}

/// The children of the process `pid`.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of_task = |path: &Path| fs::read_to_string(path.join("children")).unwrap_or_default();
    tasks
        .flatten()
        .flat_map(|task| {
            let text = of_task(&task.path());
            text.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<u32>>()
        })
        .collect()
}
