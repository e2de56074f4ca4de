//! Where this process's own group lies in each hierarchy, from what the kernel says of mounts and groups.
//!
//! # References
//! `cgroups(7)` ("/proc files"), `proc_pid_mountinfo(5)`.

use std::path::{Path, PathBuf};

/// One tree of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hierarchy {
    /// The one of version 2.
    Unified,
    /// The one of version 1 that has this controller.
    Controller(&'static str),
}

/// The directory of the group that `groups` names, below a mount of its hierarchy.
///
/// `mounts` is `/proc/self/mountinfo`, `groups` is `/proc/self/cgroup`. `None` when the hierarchy is not mounted, or
/// none of its mounts shows the group: it lies outside the control group namespace, say.
pub(super) fn own_group(hierarchy: Hierarchy, mounts: &str, groups: &str) -> Option<PathBuf> {
    let group = groups.lines().find_map(|line| path_in(hierarchy, line))?;
    if leads_out(group) {
        return None;
    }
    mounts.lines().find_map(|line| {
        let (root, point) = mount_of(hierarchy, line)?;
        let below = Path::new(group).strip_prefix(root).ok()?;
        Some(if below.as_os_str().is_empty() { point.to_path_buf() } else { point.join(below) })
    })
}

/// The group's path in a line `number:controllers:path`.
fn path_in(hierarchy: Hierarchy, line: &str) -> Option<&str> {
    let (number, rest) = line.split_once(':')?;
    let (controllers, path) = rest.split_once(':')?;
    let matches = match hierarchy {
        Hierarchy::Unified => number == "0" && controllers.is_empty(),
        Hierarchy::Controller(name) => controllers.split(',').any(|other| other == name),
    };
    matches.then_some(path)
}

/// The root within the hierarchy and the mount point in a line
/// `id parent device root point options optional… - type source options`.
fn mount_of(hierarchy: Hierarchy, line: &str) -> Option<(&str, &Path)> {
    let (mount, filesystem) = line.split_once(" - ")?;
    let mut fields = mount.split(' ').skip(3);
    let (root, point) = (fields.next()?, fields.next()?);
    let mut fields = filesystem.split(' ');
    let (kind, options) = (fields.next()?, fields.nth(1)?);
    let matches = match hierarchy {
        Hierarchy::Unified => kind == "cgroup2",
        Hierarchy::Controller(name) => kind == "cgroup" && options.split(',').any(|other| other == name),
    };
    // Blanks and the like are written as octal numbers; no host mounts control groups at such a place.
    (matches && !leads_out(root) && !point.contains('\\')).then_some((root, Path::new(point)))
}

fn leads_out(path: &str) -> bool {
    path.split('/').any(|name| name == "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";
    const GROUPS: &str = "4:memory:/box/1\n2:cpu,cpuacct:/\n0::/init.scope\n";

    fn found(hierarchy: Hierarchy, mounts: &str, groups: &str) -> Option<String> {
        own_group(hierarchy, mounts, groups).map(|path| path.display().to_string())
    }

    #[test]
    fn each_hierarchy_has_its_own_group() {
        let of = |hierarchy| found(hierarchy, HYBRID, GROUPS);
        assert_eq!(of(Hierarchy::Controller("memory")).as_deref(), Some("/sys/fs/cgroup/memory/box/1"));
        assert_eq!(of(Hierarchy::Controller("cpu")).as_deref(), Some("/sys/fs/cgroup/cpu,cpuacct"));
        assert_eq!(of(Hierarchy::Unified).as_deref(), Some("/sys/fs/cgroup/unified/init.scope"));
        assert_eq!(of(Hierarchy::Controller("pids")), None);
    }

    #[test]
    fn a_mount_of_a_part_shows_what_lies_below_it() {
        let mounts = "35 31 0:32 /docker/ab /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        let of = |groups| found(Hierarchy::Controller("memory"), mounts, groups);
        assert_eq!(of("4:memory:/docker/ab\n").as_deref(), Some("/sys/fs/cgroup/memory"));
        assert_eq!(of("4:memory:/docker/ab/c\n").as_deref(), Some("/sys/fs/cgroup/memory/c"));
        assert_eq!(of("4:memory:/docker/abc\n"), None);
    }

    #[test]
    fn a_group_outside_the_namespace_is_not_found() {
        let mounts = "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(found(Hierarchy::Unified, mounts, "0::/../other\n"), None);
        assert_eq!(found(Hierarchy::Unified, mounts, ""), None);
        let outside = "41 31 0:38 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(found(Hierarchy::Unified, outside, "0::/\n"), None);
    }
}
