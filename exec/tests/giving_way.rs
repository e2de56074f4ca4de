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
    async move { drop(launcher.run(spec).await) }
}

#[tokio::test]
async fn a_user_for_whom_supervisors_work_without_end_gives_way_with_them() {
    let Some(sandbox) = sandbox() else { return };
    let began = Instant::now();
    let patience = || assert!(began.elapsed() < Duration::from_secs(100), "{:?}", supervisors());
    let mut honest = sandbox.spec("sh", &["-c", "while sleep 0.2; do cat a >b 2>&1; done"]);
    honest.network_of.as_mut().unwrap().user = UserId::parse("honest").unwrap();
    let mut runs = vec![tokio::spawn(run(&sandbox, honest))];
    while supervisors() != (1, 0) {
        patience();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // The shell opens a file in each round, and its supervisor opens it for it.
    let script = "for i in 1 2 3; do while :; do read -r line </proc/self/status; done & done; wait";
    let count = 2 * std::thread::available_parallelism().unwrap().get();
    runs.extend((0..count).map(|_| {
        let mut spec = sandbox.spec("sh", &["-c", script]);
        spec.timeout = Duration::from_secs(110);
        tokio::spawn(run(&sandbox, spec))
    }));
    // All of theirs, and not that of the other user.
    while supervisors() != (count + 1, count) {
        patience();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for run in runs {
        run.abort();
    }
}
