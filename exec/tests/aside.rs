//! Commands of a user who wants much leave one processor to others while others are there, and not for nobody.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::print_stderr)]

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use exec::{Isolation, LauncherConfig, Limit, Tier};
use policy::UserId;
use policy::command::Profile;
use support::{Sandbox, config};
use tokio::sync::Mutex;

/// The tiers that commands have by themselves, the best one first.
const TIERS: [Tier; 2] = [Tier::Namespaces, Tier::Landlock];
/// Each test takes all processors.
static ALONE: Mutex<()> = Mutex::const_new(());

/// A sandbox at a tier, on a machine of which a processor can be left.
fn sandbox(maximum: Tier) -> Option<(Sandbox, usize)> {
    sandbox_of(maximum, false)
}

/// The same, whose commands have a uid of their own with `has_uid`.
fn sandbox_of(maximum: Tier, has_uid: bool) -> Option<(Sandbox, usize)> {
    let processors = std::thread::available_parallelism().unwrap().get();
    if processors < 2 {
        eprintln!("SKIPPED: nothing can be left of one processor");
        return None;
    }
    let isolation = Isolation { maximum, ..Isolation::default() };
    Some((Sandbox::with(LauncherConfig { isolation, ..config(Profile::Default) }, has_uid)?, processors))
}

fn someone_else() -> UserId {
    UserId::parse("someone-else").unwrap()
}

/// The processors that a process may use.
fn processor_set(pid: i32) -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(rustix::process::Pid::from_raw(pid)).unwrap();
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|number| set.is_set(*number)).collect()
}

/// How many processors a process may use.
fn processors_of(pid: i32) -> usize {
    processor_set(pid).len()
}

/// The memory monitor is the launcher's oldest child.
fn monitor_of(launcher: i32) -> i32 {
    let children = std::fs::read_to_string(format!("/proc/{launcher}/task/{launcher}/children")).unwrap();
    children.split_whitespace().next().unwrap().parse().unwrap()
}

async fn becomes(expected: usize, now: impl Fn() -> usize) {
    for _ in 0..1000 {
        if now() == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{} and not {expected}", now());
}

/// The supervisor of another user's command keeps to the processor of the launcher, and the command does not.
async fn answers_are_given_there(sandbox: &Sandbox, launcher: i32, processors: u32) {
    // When nobody is there any more, both have all processors.
    let spare = processor_set(launcher);
    assert_eq!(spare.len(), 1);
    let mut spec = sandbox.spec("python3", &["-c", "import time; time.sleep(60)"]);
    spec.network_of.as_mut().unwrap().user = someone_else();
    let command = {
        let launcher = Arc::clone(&sandbox.launcher);
        tokio::spawn(async move { launcher.run(spec).await })
    };
    let supervisors = || {
        let threads = std::fs::read_dir("/proc/self/task").unwrap().map(|entry| entry.unwrap());
        threads.filter(|entry| {
            std::fs::read_to_string(entry.path().join("comm")).is_ok_and(|name| name == "supervisor\n")
        })
    };
    becomes(1, || {
        let of = |name: std::ffi::OsString| processor_set(name.to_str().unwrap().parse().unwrap());
        supervisors().filter(|thread| of(thread.file_name()) == spare).count()
    })
    .await;
    command.abort();
    // It begins there, and gets all processors with its program.
    for _ in 0..20 {
        let mut spec = sandbox.spec("cat", &["/proc/self/status"]);
        spec.network_of.as_mut().unwrap().user = someone_else();
        let told = sandbox.launcher.run(spec).await.unwrap().stdout;
        let may =
            told.lines().find_map(|line| line.strip_prefix("Cpus_allowed:\t")).unwrap().replace(',', "");
        assert_eq!(u128::from_str_radix(&may, 16).unwrap().count_ones(), processors, "{told}");
    }
}

/// A busy run tells each change of how many processors it may use: all, one less once another user is there, and all when that one has
/// left for ten seconds. Meanwhile the launcher has the one that is left, and the memory monitor, which has much to look at, the others.
async fn many_busy_processes_leave_one_processor_while_another_user_is_there(maximum: Tier, has_uid: bool) {
    let _one_at_a_time = ALONE.lock().await;
    let Some((sandbox, processors)) = sandbox_of(maximum, has_uid) else { return };
    let script = support::with_busy_children(
        4 * processors,
        "seen, until = [], time.monotonic() + 60
while len(seen) < 3 and time.monotonic() < until:
    now = (len(os.sched_getaffinity(0)), len(os.sched_getaffinity(children[-1])))
    if seen[-1:] != [now] and len(set(now)) == 1: seen.append(now)
    time.sleep(0.02)
print([mine for mine, _ in seen])",
    );
    let mut spec = sandbox.spec("python3", &["-c", &script]);
    spec.timeout = Duration::from_secs(90);
    let launcher = Arc::clone(&sandbox.launcher);
    let run = tokio::spawn(async move { launcher.run(spec).await.unwrap() });
    // Its own user is no company.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let (launcher, monitor) = (sandbox.launcher.pid(), monitor_of(sandbox.launcher.pid()));
    assert_eq!([launcher, monitor].map(processors_of), [processors; 2]);
    sandbox.launcher.note_user(&someone_else());
    becomes(1, || processors_of(launcher)).await;
    becomes(processors - 1, || processors_of(monitor)).await;
    assert!(!processor_set(monitor).contains(&processor_set(launcher)[0]));
    if maximum == Tier::Landlock {
        answers_are_given_there(&sandbox, launcher, u32::try_from(processors).unwrap()).await;
    }
    let result = run.await.unwrap();
    assert_eq!(result.stdout, format!("[{processors}, {}, {processors}]\n", processors - 1), "{result:?}");
    for process in [launcher, monitor] {
        becomes(processors, || processors_of(process)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_busy_processes_leave_one_processor() {
    for maximum in TIERS {
        many_busy_processes_leave_one_processor_while_another_user_is_there(maximum, false).await;
    }
    if support::is_root() {
        many_busy_processes_leave_one_processor_while_another_user_is_there(Tier::Landlock, true).await;
    }
}

/// A command tells how many processors it may use, and its niceness.
const TELLING: &str = "import os; print(len(os.sched_getaffinity(0)), os.nice(0))";
/// For how long work is remembered that is too much, at least.
const REMEMBERED: Duration = Duration::from_secs(1);

/// What commands [tell](TELLING) of a user who has just had many that were ended by force, each of which counts as one that used all
/// processors; `beside` another user.
async fn after_much_work(sandbox: &Sandbox, beside: Option<&UserId>) -> Vec<String> {
    let forced = (0..6).map(|_| {
        let mut spec = sandbox.spec("python3", &["-c", "import time; time.sleep(60)"]);
        spec.timeout = Duration::from_millis(200);
        let launcher = Arc::clone(&sandbox.launcher);
        tokio::spawn(async move { launcher.run(spec).await.unwrap() })
    });
    for run in forced.collect::<Vec<_>>() {
        run.await.unwrap();
    }
    let ended = Instant::now();
    if let Some(other) = beside {
        sandbox.launcher.note_user(other);
    }
    let mut told = Vec::new();
    // The later ones may be those of a first process that has stayed.
    while told.is_empty() || (told.len() < 4 && ended.elapsed() < REMEMBERED) {
        told.push(sandbox.run("python3", &["-c", TELLING]).await.stdout);
    }
    told
}

async fn a_user_who_worked_much_leaves_one_processor_to_others_from_the_start(maximum: Tier) {
    let _one_at_a_time = ALONE.lock().await;
    let Some((sandbox, processors)) = sandbox(maximum) else { return };
    for (other, left) in [(None, 0), (Some(someone_else()), 1)] {
        let told = after_much_work(&sandbox, other.as_ref()).await;
        let expected = format!("{} 19\n", processors - left);
        assert!(told.iter().all(|told| *told == expected), "{left}: {told:?}");
    }
    // The control: without so much work.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let told = sandbox.run("python3", &["-c", TELLING]).await.stdout;
    assert!([5, 10].iter().any(|niceness| told == format!("{processors} {niceness}\n")), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_worked_much_leaves_one_processor() {
    for maximum in TIERS {
        a_user_who_worked_much_leaves_one_processor_to_others_from_the_start(maximum).await;
    }
}

/// Of processes that such a run has before it is moved to a control group, where there is one, few are moved.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_leaves_a_processor_has_no_more_memory_than_others() {
    let _one_at_a_time = ALONE.lock().await;
    for maximum in TIERS {
        let Some((sandbox, processors)) = sandbox(maximum) else { return };
        let told = after_much_work(&sandbox, Some(&someone_else())).await;
        assert_eq!(told[0], format!("{} 19\n", processors - 1), "the control");
        let script = "import os, time
for _ in range(8):
    if os.fork() == 0:
        time.sleep(0.3)
        held = b'x' * (60 << 20)
        time.sleep(60)
time.sleep(60)";
        let mut spec = sandbox.spec("python3", &["-c", script]);
        spec.timeout = Duration::from_secs(30);
        spec.limits.run_memory_bytes = 200 << 20;
        let result = sandbox.launcher.run(spec).await.unwrap();
        assert_eq!(result.limit, Some(Limit::Memory), "{maximum:?}: {result:?}");
    }
}

/// Each run alone wants no more than it may. Those that have run for long are looked at once a second where a control group keeps their memory.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_runs_of_a_user_want_counts_together() {
    let _one_at_a_time = ALONE.lock().await;
    for maximum in TIERS {
        let Some((sandbox, processors)) = sandbox(maximum) else { return };
        let script = support::with_busy_children(
            "int(sys.argv[2])",
            "until = time.monotonic() + float(sys.argv[1])
stays = sys.argv[3] == 'stays'
while (stays or os.getpriority(os.PRIO_PROCESS, children[0]) != 19) and time.monotonic() < until: time.sleep(0.05)
print(os.getpriority(os.PRIO_PROCESS, children[0]))",
        );
        let begin = |seconds: &str, busy: usize, until: &str| {
            let mut spec = sandbox.spec("python3", &["-c", &script, seconds, &busy.to_string(), until]);
            spec.timeout = Duration::from_secs(90);
            let launcher = Arc::clone(&sandbox.launcher);
            tokio::spawn(async move { launcher.run(spec).await.unwrap().stdout })
        };
        assert_eq!(begin("1", processors, "last").await.unwrap(), "10\n", "the control: one alone");
        let one = begin("60", processors, "stays");
        tokio::time::sleep(Duration::from_millis(300)).await;
        let other = begin("60", processors / 2, "stays");
        tokio::time::sleep(Duration::from_secs(2)).await;
        let third = begin("30", processors, "last");
        assert_eq!(third.await.unwrap(), "19\n", "{maximum:?}");
        // Dropped, they are ended.
        one.abort();
        other.abort();
    }
}

#[tokio::test]
async fn a_command_does_not_choose_its_processors() {
    for maximum in TIERS {
        let Some((sandbox, processors)) = sandbox(maximum) else { return };
        let script = "import os
all = os.sched_getaffinity(0)
for who in (0, os.getpid()):
    try: os.sched_setaffinity(who, all)
    except PermissionError: print('refused')
try: os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
except PermissionError: print('refused')
print(len(all))";
        let result = sandbox.run("python3", &["-c", script]).await;
        assert_eq!(result.stdout, format!("refused\nrefused\nrefused\n{processors}\n"), "{result:?}");
    }
}

#[test]
fn long_work_of_the_service_leaves_one_processor_to_other_users_where_its_niceness_does_not_count() {
    let Some((sandbox, _)) = sandbox(Tier::Landlock) else { return };
    let user = UserId::parse("at-work").unwrap();
    let left = |user: Option<&UserId>| {
        std::thread::scope(|threads| {
            let work = || {
                let before = processors_of(0);
                sandbox.launcher.leave_processor_to_others(user);
                before - processors_of(0)
            };
            threads.spawn(work).join().unwrap()
        })
    };
    sandbox.launcher.note_user(&user);
    assert_eq!(left(Some(&user)), 0);
    sandbox.launcher.note_user(&someone_else());
    let expected = usize::from(exec::sessions_have_shares());
    assert_eq!((left(Some(&user)), left(None)), (expected, expected));
}
