//! Whether the kernel shares out the processors by session among the processes of the service and of its commands (sched(7), "The
//! autogroup feature"): then a command that begins many sessions has many shares, and the priority of its processes does not count.

use std::path::Path;

/// Where control groups of version 2 are mounted, usually (cgroups(7)).
const CGROUPS: &str = "/sys/fs/cgroup";

/// Tells whether each session has a share of its own here: the kernel groups by session, and this process is in no control group for the
/// share of the processors. False where that cannot be read.
#[must_use]
pub fn sessions_have_shares() -> bool {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let is_enabled = read("/proc/sys/kernel/sched_autogroup_enabled").trim() == "1";
    let has_weight = |group: &str| Path::new(&format!("{CGROUPS}{group}/cpu.weight")).exists();
    is_enabled && !has_group(&read("/proc/self/cgroup"), has_weight)
}

/// Tells whether the text of `/proc/self/cgroup` names a group with a share of the processors; `has_weight` tells it of one of version 2.
fn has_group(text: &str, has_weight: impl Fn(&str) -> bool) -> bool {
    let groups = text.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        Some((controllers, path))
    });
    groups.into_iter().any(|(controllers, path)| match controllers {
        // The share of a group without the controller is that of the next group above it with one.
        "" => Path::new(path)
            .ancestors()
            .filter_map(Path::to_str)
            .any(|group| has_weight(group.trim_end_matches('/'))),
        _ => controllers.split(',').any(|controller| controller == "cpu") && path != "/",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_with_a_share_is_found_in_both_versions() {
        let has = |text: &str, weighted: &[&str]| has_group(text, |group| weighted.contains(&group));
        assert!(has("4:cpu,cpuacct:/docker/1f\n1:name=systemd:/x\n", &[]));
        assert!(!has("4:cpu,cpuacct:/\n2:cpuset:/x\n0::/\n", &[]));
        assert!(has("0::/system.slice/filesecbox.service/a\n", &["/system.slice/filesecbox.service"]));
        assert!(!has("0::/system.slice/filesecbox.service\n", &["/user.slice"]));
        // A container in a control group namespace of its own.
        assert!(has("0::/\n", &[""]));
        assert!(!has("", &[""]));
    }
}
