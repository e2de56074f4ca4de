//! The memory of a whole run, however many processes share it; each test with and without control groups.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::print_stderr)]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use exec::{ExecResult, Limit, MemoryBound, RunSpec};
use policy::command::Profile;
use support::{Sandbox, assert_gone, config, has, is_root, wait_for};

const MIB: u64 = 1024 * 1024;
/// `TMPFS_MAGIC` (linux/magic.h).
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// Sandboxes that use control groups where the host has them, and that use none.
fn sandboxes() -> Vec<Sandbox> {
    let with = |control_groups| {
        let config = exec::LauncherConfig { control_groups, ..config(Profile::Default) };
        Sandbox::with(config, is_root())
    };
    [true, false].into_iter().filter_map(with).collect()
}

fn limited(sandbox: &Sandbox, mib: u64, script: &str) -> RunSpec {
    let mut spec = sandbox.spec("python3", &["-c", script]);
    spec.limits.run_memory_bytes = mib * MIB;
    spec
}

fn assert_ended_for_memory(result: &ExecResult) {
    let ending = (result.exit_code, result.signal.as_deref(), result.timed_out, result.limit);
    assert_eq!(ending, (-1, Some("SIGKILL"), false, Some(Limit::Memory)), "{result:?}");
    assert!(result.hint.as_deref().is_some_and(|hint| hint.contains("memory")), "{:?}", result.hint);
}

#[tokio::test]
async fn a_process_that_allocates_without_end_is_ended_and_the_result_says_why() {
    for sandbox in sandboxes() {
        let script =
            "import time\nkept = []\nwhile True:\n    kept.append(bytearray(8 << 20))\n    time.sleep(0.005)";
        let result = sandbox.launcher.run(limited(&sandbox, 250, script)).await.unwrap();
        assert_ended_for_memory(&result);
        assert_eq!(sandbox.bash("echo still here").await.stdout, "still here\n");
    }
}

#[tokio::test]
async fn forty_processes_together_have_no_more_than_one() {
    for sandbox in sandboxes() {
        let script = "import os, time\nfor _ in range(40):\n    if os.fork() == 0:\n        kept = bytearray(20 << 20)\n        time.sleep(20)\n        os._exit(0)\nos.wait()";
        let result = sandbox.launcher.run(limited(&sandbox, 400, script)).await.unwrap();
        assert_ended_for_memory(&result);
        // Before they end by themselves.
        assert!(result.duration_ms < 20_000, "{} ms", result.duration_ms);
    }
}

/// Each generation outlives the one before it only by a moment, so that a list of processes is always late. One that is
/// refused a fork for want of memory goes on to touch some.
#[tokio::test]
async fn forking_does_not_escape_the_limit() {
    for sandbox in sandboxes() {
        let script = "import os, time\nkept = []\ndef fork():\n    while True:\n        try: return os.fork()\n        except OSError: kept.append(bytearray(2 << 20))\nfor generation in range(150):\n    if fork():\n        time.sleep(0.02)\n        if generation: os._exit(0)\n        time.sleep(25)\n        os._exit(3)\n    time.sleep(0.002)\n    kept.append(bytearray(2 << 20))\ntime.sleep(25)";
        let result = sandbox.launcher.run(limited(&sandbox, 200, script)).await.unwrap();
        assert_ended_for_memory(&result);
    }
}

#[tokio::test]
async fn a_process_that_is_refused_memory_is_told_how_much_there_is() {
    for sandbox in sandboxes() {
        let mut spec = sandbox.spec("python3", &["-c", "bytearray(2 << 30)"]);
        spec.limits.memory_bytes = 1024 * MIB;
        let result = sandbox.launcher.run(spec).await.unwrap();
        assert_eq!((result.exit_code, result.limit), (1, None), "{result:?}");
        assert!(
            result.hint.as_deref().is_some_and(|hint| hint.contains("1024 MiB of address")),
            "{result:?}"
        );
    }
}

#[tokio::test]
async fn what_processes_share_is_counted_once() {
    for sandbox in sandboxes() {
        let script = "import os, time\nkept = bytearray(300 << 20)\nchildren = []\nfor _ in range(20):\n    child = os.fork()\n    if child == 0:\n        time.sleep(1.5)\n        os._exit(0)\n    children.append(child)\nprint(sum(os.waitpid(child, 0)[1] for child in children))";
        // Closed directories above a tree leave its commands a capability, so that not everybody may look at their memory.
        for mode in support::modes_above() {
            fs::set_permissions(sandbox.root.path(), fs::Permissions::from_mode(mode)).unwrap();
            let result = sandbox.launcher.run(limited(&sandbox, 600, script)).await.unwrap();
            assert_eq!((result.stdout.as_str(), result.limit), ("0\n", None), "{mode:o}: {result:?}");
        }
    }
}

#[tokio::test]
async fn written_files_do_not_end_a_run() {
    // Files in memory are memory, and count.
    let files = rustix::fs::statfs(std::env::temp_dir().as_path()).unwrap();
    if !has("disk", files.f_type != TMPFS_MAGIC) {
        return;
    }
    for sandbox in sandboxes() {
        let script = "for i in 1 2 3; do head -c 80000000 /dev/zero > file$i; sleep 0.1; done; cat file* | wc -c; rm file*";
        let mut spec = sandbox.spec("bash", &["-c", script]);
        spec.limits.run_memory_bytes = 100 * MIB;
        let result = sandbox.launcher.run(spec).await.unwrap();
        assert_eq!((result.stdout.as_str(), result.limit), ("240000000\n", None), "{result:?}");
    }
}

#[tokio::test]
async fn a_launcher_whose_warden_is_gone_ends_and_another_takes_over() {
    for sandbox in sandboxes() {
        let launcher = sandbox.launcher.pid();
        let children = fs::read_to_string(format!("/proc/{launcher}/task/{launcher}/children")).unwrap();
        // It is the launcher's first child.
        let monitor = children.split_whitespace().next().unwrap();
        let monitor = nix::unistd::Pid::from_raw(monitor.parse().unwrap());
        nix::sys::signal::kill(monitor, nix::sys::signal::Signal::SIGKILL).unwrap();
        let stat = || fs::read_to_string(format!("/proc/{launcher}/stat"));
        let gone = || stat().map_or(true, |stat| stat.contains(") Z "));
        until("the launcher of a dead monitor", gone).await;
        assert_eq!(sandbox.bash("echo again").await.stdout, "again\n");
        assert_ne!(sandbox.launcher.pid(), launcher);
        until("groups of a launcher without a monitor", || groups(launcher).is_empty()).await;
    }
}

#[tokio::test]
async fn a_neighbour_goes_on_when_a_run_is_ended_for_its_memory() {
    for sandbox in sandboxes() {
        let quiet = sandbox.spec("bash", &["-c", "sleep 3; echo survived"]);
        let greedy = "kept = []\nwhile True: kept.append(bytearray(8 << 20))";
        let (quiet, greedy) =
            tokio::join!(sandbox.launcher.run(quiet), sandbox.launcher.run(limited(&sandbox, 300, greedy)));
        assert_ended_for_memory(&greedy.unwrap());
        let quiet = quiet.unwrap();
        assert_eq!((quiet.stdout.as_str(), quiet.limit), ("survived\n", None));
    }
}

#[tokio::test]
async fn the_result_says_what_bounds_its_memory() {
    for (sandbox, groups) in sandboxes().iter().zip([true, false]) {
        let enforcement = sandbox.bash("exit 0").await.enforcement;
        let bound = enforcement.memory_bound;
        let is_group = !matches!(bound, MemoryBound::Sampled | MemoryBound::EachProcess);
        assert_eq!(enforcement.memory.is_enforced(), is_group, "{bound}");
        assert!(groups || bound == MemoryBound::Sampled, "{bound}: {}", enforcement.memory);
        if groups && is_root() {
            let version_2 = matches!(bound, MemoryBound::CgroupV2 | MemoryBound::CgroupV2Later);
            has("cgroup-v2", version_2);
            has("cgroup-v1", version_2 || bound == MemoryBound::CgroupV1);
        }
    }
}

#[tokio::test]
async fn the_limits_of_one_process_are_named_when_they_end_a_run() {
    for sandbox in sandboxes() {
        let mut spec = sandbox.spec("python3", &["-c", "while True: pass"]);
        spec.limits.cpu_seconds = 1;
        let result = sandbox.launcher.run(spec).await.unwrap();
        assert_eq!((result.signal.as_deref(), result.limit), (Some("SIGXCPU"), Some(Limit::Cpu)));
        let mut spec = sandbox.spec("bash", &["-c", "exec head -c 100000 /dev/zero > file"]);
        spec.limits.file_bytes = 1000;
        let result = sandbox.launcher.run(spec).await.unwrap();
        assert_eq!((result.signal.as_deref(), result.limit), (Some("SIGXFSZ"), Some(Limit::FileSize)));
        assert_eq!(sandbox.bash("exit 3").await.limit, None);
    }
}

#[tokio::test]
async fn no_group_outlives_its_run_and_none_its_launcher() {
    for (number, sandbox) in sandboxes().into_iter().enumerate() {
        let marker = format!("sleep {}", 10_300 + number);
        let mut spec = sandbox.spec("bash", &["-c", &format!("{marker} & sleep 0.6; echo end")]);
        spec.limits.run_memory_bytes = 100 * MIB;
        assert_eq!(sandbox.launcher.run(spec).await.unwrap().stdout, "end\n");
        assert_gone(&marker).await;
        let pid = sandbox.launcher.pid();
        // First processes of runs to come may wait, each in the group that it was born into.
        let left = || groups(pid).into_iter().filter(|group| is_of_run(group)).collect::<Vec<_>>();
        let waits = |group: &PathBuf| processes(group) <= 1;
        until("groups of an ended run", || left().len() <= 2 && left().iter().all(waits)).await;
        drop(sandbox);
        until("groups of a dropped launcher", || groups(pid).is_empty()).await;
    }
}

#[tokio::test]
async fn a_killed_launcher_leaves_no_group_and_no_process() {
    for (number, sandbox) in sandboxes().into_iter().enumerate() {
        let marker = format!("sleep {}", 10_310 + number);
        let pid = sandbox.launcher.pid();
        let spec = sandbox.spec("bash", &["-c", &marker]);
        let launcher = std::sync::Arc::clone(&sandbox.launcher);
        let run = tokio::spawn(async move { launcher.run(spec).await });
        wait_for(&marker).await;
        tokio::time::sleep(Duration::from_millis(400)).await;
        let launcher = nix::unistd::Pid::from_raw(pid);
        nix::sys::signal::kill(launcher, nix::sys::signal::Signal::SIGKILL).unwrap();
        assert!(run.await.unwrap().is_err());
        assert_gone(&marker).await;
        until("groups of a killed launcher", || groups(pid).is_empty()).await;
        assert_eq!(sandbox.bash("echo again").await.stdout, "again\n");
    }
}

#[tokio::test]
async fn a_long_run_is_moved_and_its_descendants_with_it() {
    let Some(sandbox) = Sandbox::new() else { return };
    let bound = sandbox.bash("exit 0").await.enforcement.memory_bound;
    let moves = matches!(bound, MemoryBound::CgroupV1 | MemoryBound::CgroupV2Later);
    if is_root() && !has("cgroup-v1", moves || bound == MemoryBound::CgroupV2) || !moves {
        return;
    }
    let spec = sandbox.spec("bash", &["-c", "(sleep 10320; echo) & (sleep 10320; echo) & sleep 1.5"]);
    let launcher = std::sync::Arc::clone(&sandbox.launcher);
    let run = tokio::spawn(async move { launcher.run(spec).await });
    let pid = sandbox.launcher.pid();
    let inside = || {
        let procs =
            groups(pid).into_iter().filter(|group| is_of_run(group)).map(|group| group.join("cgroup.procs"));
        procs.map(|file| fs::read_to_string(file).unwrap_or_default().lines().count()).max().unwrap_or(0)
    };
    // The shell, two more, and three times `sleep`; the first process too where there is one.
    let expected = if sandbox.launcher.mounts() { 7 } else { 6 };
    until("all processes in the group", || inside() == expected).await;
    run.await.unwrap().unwrap();
    assert_gone("sleep 10320").await;
}

#[test]
fn all_of_this_holds_at_tier_landlock() {
    support::repeat_at_landlock("what_processes_share_is_counted_once");
}

#[test]
fn all_of_this_holds_without_root() {
    support::repeat_without_root("what_processes_share_is_counted_once");
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < support::paced(Duration::from_secs(12)), "not within 12 s: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn is_of_run(group: &Path) -> bool {
    group.file_name().is_some_and(|name| name.to_string_lossy().starts_with("run-"))
}

fn processes(group: &Path) -> usize {
    fs::read_to_string(group.join("cgroup.procs")).map_or(0, |processes| processes.lines().count())
}

/// All control groups of the launcher `pid`.
fn groups(pid: i32) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(directory) = open.pop() {
        let Ok(entries) = fs::read_dir(directory) else { continue };
        for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
            if path.is_dir() && !path.is_symlink() {
                if path.to_string_lossy().contains(&format!("/filesecbox-{pid}-")) {
                    found.push(path.clone());
                }
                open.push(path);
            }
        }
    }
    found
}
