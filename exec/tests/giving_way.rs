//! Supervisors give way with the user for whom they work. They are looked for among all threads, so no other test is in this
//! program.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::print_stderr)]

mod support;

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use exec::{Isolation, LauncherConfig, RunSpec, Tier};
use policy::UserId;
use policy::command::Profile;
use support::{Sandbox, config};

fn sandbox() -> Option<Sandbox> {
    let isolation = Isolation { maximum: Tier::Landlock, ..Isolation::default() };
    Sandbox::with(LauncherConfig { isolation, ..config(Profile::Default) }, false)
}

/// How many supervisors this process has, and how many of them give way to all other threads.
fn supervisors() -> (usize, usize) {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    // A thread may end meanwhile. The policy is the forty-first field (proc_pid_stat(5)), the name the second.
    let stats = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("stat")).ok());
    let policies = stats.filter_map(|stat| {
        let (_, rest) = stat.split_once("(supervisor) ")?;
        rest.split(' ').nth(38).map(str::to_owned)
    });
    let policies: Vec<String> = policies.collect();
    (policies.len(), policies.iter().filter(|policy| **policy == "5").count())
}

/// Runs a command until it is given up.
fn run(sandbox: &Sandbox, spec: RunSpec) -> impl Future<Output = ()> + Send + use<> {
    let launcher = Arc::clone(&sandbox.launcher);
    async move { drop(launcher.run(spec).await.unwrap()) }
}

#[tokio::test]
async fn the_supervisor_of_a_user_who_has_used_too_much_gives_way() {
    let Some(sandbox) = sandbox() else { return };
    let began = Instant::now();
    let is_early = || began.elapsed() < Duration::from_secs(100);
    // A shell opens a file in each round, and the supervisor opens it for it.
    let script = "for i in 1 2 3; do while :; do read -r line </proc/self/status; done & done; wait";
    let mut spec = sandbox.spec("sh", &["-c", script]);
    spec.timeout = Duration::from_secs(110);
    let script = "import time\nwhile True: time.sleep(0.1); open('/proc/self/status').close()";
    let mut honest = sandbox.spec("python3", &["-c", script]);
    honest.timeout = spec.timeout;
    honest.network_of.as_mut().unwrap().user = UserId::parse("honest").unwrap();
    let runs = [spec, honest].map(|spec| tokio::spawn(run(&sandbox, spec)));
    while supervisors() != (2, 0) {
        assert!(is_early(), "{:?}", supervisors());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut has_given_way = false;
    while !has_given_way {
        assert!(is_early(), "no supervisor gives way");
        // Each is ended by force, and counts as if it had used all processors.
        let ended = (0..8).map(|_| {
            let mut spec = sandbox.spec("python3", &["-c", "import time; time.sleep(60)"]);
            spec.timeout = Duration::from_millis(300);
            tokio::spawn(run(&sandbox, spec))
        });
        for ended in ended.collect::<Vec<_>>() {
            ended.await.unwrap();
        }
        // What was worked is worked off in a second and a half.
        for _ in 0..15 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let (all, lowered) = supervisors();
            has_given_way |= lowered > 0;
            assert!(lowered < all, "that of the other user gives way, too");
        }
    }
    runs.iter().for_each(tokio::task::JoinHandle::abort);
}
