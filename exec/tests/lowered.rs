//! Nobody waits for a command that gives way to all others: not the launcher, which starts the commands of everybody else.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::print_stderr)]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use exec::{Isolation, LauncherConfig, Tier};
use policy::UserId;
use policy::command::Profile;
use support::{Sandbox, config};

/// When commands begin that give way, after others that are ended by force before.
const LATER: Duration = Duration::from_millis(400);

/// The state of a process: the third field of proc_pid_stat(5).
fn state(pid: i32) -> char {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_gives_way_does_not_hold_the_launcher_while_it_waits_for_a_processor() {
    let isolation = Isolation { maximum: Tier::Landlock, ..Isolation::default() };
    let config = LauncherConfig { isolation, ..config(Profile::Default) };
    let Some(sandbox) = Sandbox::with(config, false) else { return };
    // As many busy processes as a user may have without giving way.
    let busy = 2 * std::thread::available_parallelism().unwrap().get();
    let script = format!("for i in $(seq {busy}); do while :; do :; done & done; wait");
    let mut honest = sandbox.spec("sh", &["-c", &script]);
    honest.timeout = Duration::from_secs(100);
    honest.network_of.as_mut().unwrap().user = UserId::parse("honest").unwrap();
    let launcher = Arc::clone(&sandbox.launcher);
    let honest = tokio::spawn(async move { launcher.run(honest).await });

    let (mut looks, mut held) = (0_u32, 0_u32);
    let began = Instant::now();
    while looks < 1000 {
        assert!(began.elapsed() < Duration::from_secs(90), "{looks} looks");
        // Each is ended by force, and counts as if it had used all processors, so that the next one gives way.
        let runs = (0..8).map(|number| {
            let forced = number < 6;
            let script = if forced { "import time; time.sleep(60)" } else { "" };
            let mut spec = sandbox.spec("python3", &["-c", script]);
            spec.timeout = Duration::from_millis(if forced { 200 } else { 20_000 });
            let launcher = Arc::clone(&sandbox.launcher);
            tokio::spawn(async move {
                tokio::time::sleep(if forced { Duration::ZERO } else { LATER }).await;
                drop(launcher.run(spec).await.unwrap());
            })
        });
        let runs: Vec<_> = runs.collect();
        tokio::time::sleep(LATER).await;
        while !runs.iter().all(tokio::task::JoinHandle::is_finished) {
            looks += 1;
            // Whoever has made a process in his own memory (`CLONE_VFORK`) waits so until that has executed a program.
            held += u32::from(state(sandbox.launcher.pid()) == 'D');
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    honest.abort();
    assert!(held * 50 < looks, "in {held} of {looks} looks the launcher waited");
}

/// They are in its session, whose place among all sessions is a file of `/proc` (sched(7), "The autogroup feature").
#[tokio::test]
async fn a_command_cannot_lower_the_session_of_the_launcher() {
    let isolation = Isolation { maximum: Tier::Landlock, ..Isolation::default() };
    let Some(sandbox) = Sandbox::with(LauncherConfig { isolation, ..config(Profile::Default) }, false) else {
        return;
    };
    let place = || fs::read_to_string(format!("/proc/{}/autogroup", sandbox.launcher.pid())).ok();
    let before = place();
    let script = "echo 19 >/dev/null && echo begun; echo 19 >/proc/self/autogroup && echo lowered";
    let result = sandbox.run("sh", &["-c", script]).await;
    assert_eq!(result.stdout, "begun\n", "{result:?}");
    assert_eq!(place(), before);
}

/// Many busy processes of a user id of their own are behind all others soon, also where directories above their tree are closed to it, so
/// that they keep a capability (not every container grants it), without which the kernel lets nobody change their priority.
async fn many_busy_processes_of_an_own_uid_go_last(maximum: Tier, mode: u32) {
    let isolation = Isolation { maximum, ..Isolation::default() };
    let Some(sandbox) =
        Sandbox::with(LauncherConfig { isolation, ..config(Profile::Default) }, support::is_root())
    else {
        return;
    };
    fs::set_permissions(sandbox.root.path(), fs::Permissions::from_mode(mode)).unwrap();
    let busy = 4 * std::thread::available_parallelism().unwrap().get();
    let script = support::with_busy_children(
        busy,
        "until = time.monotonic() + 30
niceness = lambda: sorted(dict.fromkeys(os.getpriority(os.PRIO_PROCESS, child) for child in children))
while niceness() != [19] and time.monotonic() < until: time.sleep(0.02)
print(niceness())",
    );
    let mut spec = sandbox.spec("python3", &["-c", &script]);
    spec.timeout = Duration::from_secs(60);
    let result = sandbox.launcher.run(spec).await.unwrap();
    assert_eq!(result.stdout, "[19]\n", "{mode:o}: {result:?}");
}

#[tokio::test]
async fn many_busy_processes_go_last_whatever_stands_above_their_tree() {
    for maximum in [Tier::Namespaces, Tier::Landlock] {
        for mode in support::modes_above() {
            many_busy_processes_of_an_own_uid_go_last(maximum, mode).await;
        }
    }
}
