//! [`Measured`]: what the service holds when its users pause.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::host::{self, Held};
use crate::service::Service;

/// How long what is kept for the next command, and what is removed in the background, may take to go.
const SETTLE: Duration = Duration::from_secs(60);
/// By how much resident memory may grow: what an allocator keeps of its peaks.
const GROWTH_KIB: usize = 64 * 1024;
/// By how many descriptors, threads and processes may grow: caches that are not full yet.
const GROWTH: usize = 64;
/// The descriptors that the service keeps open for later, and how many of each: walls of the 128 places that commands were
/// in last and two for the next ones, watched trees (`limits.events.listeners`), and logs and results of ended runs (`limits.sessions.ended`).
const CACHED: &[(&str, usize)] =
    &[("anon_inode:[landlock-ruleset]", 130), ("anon_inode:inotify", 100), (".filesecbox/stage", 576)];
/// Descriptors of one kind from which on they are shown.
const KIND_SHOWN: usize = 16;

/// The resources that the service holds.
pub(super) struct Measured {
    service: Held,
    launcher: Held,
    threads: usize,
    /// Descriptors of the service by what they lead to, to tell which of them grew.
    kinds: BTreeMap<String, usize>,
    /// Processes below the launcher.
    processes: usize,
    /// KiB and entries below the data directory, the audit log left out: it grows with every request.
    disk_kib: u64,
    entries: usize,
}

impl Measured {
    /// Measures when the number of processes has been the same for five seconds.
    pub(super) fn settled(service: &Service, root: &Path) -> Self {
        let (began, mut since, mut processes) = (Instant::now(), Instant::now(), usize::MAX);
        while began.elapsed() < SETTLE && since.elapsed() < Duration::from_secs(5) {
            let now = descendants(service.launcher());
            if now != processes {
                (since, processes) = (Instant::now(), now);
            }
            thread::sleep(Duration::from_millis(250));
        }
        let (disk_kib, entries) = disk(root);
        Self {
            service: Held::by(service.pid()),
            launcher: Held::by(service.launcher()),
            threads: host::entries(format!("/proc/{}/task", service.pid())),
            kinds: kinds(service.pid(), root),
            processes: descendants(service.launcher()),
            disk_kib,
            entries,
        }
    }

    /// Compares with the more of what this service held when it was warm and what the one before held at first: on a slow
    /// machine few users may have come by then. Compares the disk with what it was at first.
    ///
    /// # Panics
    /// When anything grew.
    pub(super) fn check_flat(&self, warm: &Self, first: &Self) {
        let flat = |what: &str, of: fn(&Self) -> usize, growth: usize| {
            let (now, then) = (of(self), of(warm).max(of(first)));
            assert!(now <= then + growth, "{what} grew from {then} to {now}");
        };
        flat("memory of the service", |held| held.service.resident_kib, GROWTH_KIB);
        flat("memory of the launcher", |held| held.launcher.resident_kib, GROWTH_KIB / 4);
        for (kind, most) in CACHED {
            let held = self.kinds.get(*kind).copied().unwrap_or(0);
            assert!(held <= *most, "{held} descriptors of `{kind}`, of which {most} may be kept");
        }
        flat("other descriptors of the service", Self::other_descriptors, GROWTH);
        flat("descriptors of the launcher", |held| held.launcher.descriptors, GROWTH);
        flat("mounts of the service", |held| held.service.mounts, GROWTH);
        flat("threads", |held| held.threads, GROWTH);
        flat("processes", |held| held.processes, GROWTH);
        // Models of honest users have at most 24 entries each, and homes are made once; the rest of the growth is theirs.
        assert!(
            self.entries <= first.entries * 2 + 10_000,
            "the entries on the disk grew from {} to {}",
            first.entries,
            self.entries
        );
        assert!(
            self.disk_kib <= first.disk_kib * 2 + 64 * 1024,
            "the disk grew from {} to {} KiB",
            first.disk_kib,
            self.disk_kib
        );
    }
}

impl Measured {
    /// Descriptors of the service without those that it keeps up to a number.
    fn other_descriptors(&self) -> usize {
        let cached: usize = CACHED.iter().filter_map(|(kind, _)| self.kinds.get(*kind)).sum();
        self.service.descriptors.saturating_sub(cached)
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "service {} KiB, {} descriptors, {} mounts, {} threads; launcher {} KiB, {} descriptors, {} processes below; \
             disk {} KiB in {} entries",
            self.service.resident_kib,
            self.service.descriptors,
            self.service.mounts,
            self.threads,
            self.launcher.resident_kib,
            self.launcher.descriptors,
            self.processes,
            self.disk_kib,
            self.entries
        )?;
        let many = self.kinds.iter().filter(|(_, count)| **count >= KIND_SHOWN);
        many.clone().try_for_each(|(kind, count)| write!(formatter, "; {count} × {kind}"))
    }
}

/// The targets of a process's descriptors, and how many lead to each. Names that differ from tree to tree are left out.
fn kinds(pid: u32, root: &Path) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        let kind = match target.strip_prefix(root) {
            Ok(below) => below.iter().take(2).collect::<std::path::PathBuf>().display().to_string(),
            Err(_) => {
                let target = target.to_string_lossy().into_owned();
                // The rest is a number: of a socket, a pipe, a namespace.
                target
                    .split_once(":[")
                    .filter(|(kind, _)| *kind != "anon_inode")
                    .map_or(target.clone(), |(kind, _)| kind.to_owned())
            }
        };
        *kinds.entry(kind).or_default() += 1;
    }
    kinds
}

/// How many processes there are below `pid`.
fn descendants(pid: u32) -> usize {
    let children = fs::read_dir(format!("/proc/{pid}/task"))
        .map(|tasks| {
            tasks
                .flatten()
                .flat_map(|task| {
                    let text = fs::read_to_string(task.path().join("children")).unwrap_or_default();
                    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()
                })
                .collect::<Vec<u32>>()
        })
        .unwrap_or_default();
    children.iter().map(|child| 1 + descendants(*child)).sum()
}

/// KiB and entries below a directory.
fn disk(root: &Path) -> (u64, usize) {
    let mut total = (0, 0);
    let mut left = vec![root.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.path().symlink_metadata() else { continue };
            total = (total.0 + metadata.blocks() / 2, total.1 + 1);
            if metadata.is_dir() && entry.path() != root.join(".filesecbox/audit") {
                left.push(entry.path());
            }
        }
    }
    total
}
