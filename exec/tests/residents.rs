//! First processes that stay for the next run that sees the same: that such a run is no different, and that nothing of
//! the run before reaches it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::print_stderr)]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use exec::{ExecResult, Limit, Network, Role, RunSpec, Tier};
use support::{Sandbox, assert_gone, attach, has, is_root};

const MIB: u64 = 1024 * 1024;
/// More runs than it takes until one stays.
const WARMING: usize = 3;
/// How many residents wait at most, as the library has it.
const WAITING_MAX: usize = 16;

/// A sandbox where first processes may stay; `None` on hosts that do not grant it.
fn sandbox() -> Option<Sandbox> {
    let sandbox = Sandbox::new()?;
    let is_here = sandbox.launcher.tier() == Tier::Namespaces && is_root();
    has("namespaces", is_here).then_some(sandbox)
}

/// Runs until the next run with these surroundings is a resident's.
async fn warm(sandbox: &Sandbox, spec: &RunSpec) {
    for _ in 0..WARMING {
        let warming = RunSpec { arguments: Vec::new(), program: "echo".to_owned(), ..spec.clone() };
        assert_eq!(sandbox.launcher.run(warming).await.unwrap().exit_code, 0);
    }
}

/// Runs a script as a resident's run.
async fn again(sandbox: &Sandbox, spec: RunSpec) -> ExecResult {
    warm(sandbox, &spec).await;
    let result = sandbox.launcher.run(spec).await.unwrap();
    assert!(result.is_residents, "{result:?}");
    result
}

/// How many processes the launcher has.
fn children(sandbox: &Sandbox) -> usize {
    children_of(sandbox.launcher.pid()).len()
}

fn children_of(launcher: i32) -> Vec<i32> {
    let children = fs::read_to_string(format!("/proc/{launcher}/task/{launcher}/children"));
    children.unwrap_or_default().split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

#[tokio::test]
async fn the_runs_of_one_who_goes_on_are_a_residents_and_the_first_are_not() {
    let Some(sandbox) = sandbox() else { return };
    let mut found = Vec::new();
    for number in 0..6 {
        let result = sandbox.bash(&format!("echo {number}; echo {number} >> lines")).await;
        assert_eq!((result.stdout, result.exit_code), (format!("{number}\n"), 0));
        found.push(result.is_residents);
    }
    assert_eq!(found, [false, false, true, true, true, true]);
    assert_eq!(fs::read_to_string(sandbox.tree.join("lines")).unwrap(), "0\n1\n2\n3\n4\n5\n");
}

/// All that a process can see of how it is confined, but for what numbers processes and mounts.
const CONFINEMENT: &str = r#"
import os, resource, signal
facts = ("Uid", "Gid", "Groups", "Cap", "NoNewPrivs", "Seccomp", "Sig", "Shd", "Umask", "NSpid", "Threads", "CoreDump",
    "Tracer", "FDSize")
for line in open("/proc/self/status"):
    if line.startswith(facts) and not line.startswith(("NSpid", "FDSize", "SigQ")): print(line.strip())
for line in sorted((line.split()[3:6], line.split(" - ")[1].split()[0]) for line in open("/proc/self/mountinfo")):
    print(line)
for name in sorted(os.listdir("/proc/self/ns")): print(name)
for name in sorted(n for n in dir(resource) if n.startswith("RLIMIT_")):
    print(name, resource.getrlimit(getattr(resource, name)))
# As a command that has just begun, or as one that has been found at work: the niceness is the first that changes then.
print((os.sched_getscheduler(0), os.nice(0)) in ((os.SCHED_OTHER, 5), (os.SCHED_OTHER, 10), (os.SCHED_BATCH, 10)))
print(sorted(os.environ.items()), os.getcwd(), os.sched_getaffinity(0))
print(open("/proc/self/oom_score_adj").read(), open("/proc/self/cgroup").read().count("\n"))
print(os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid(), os.getppid() == 1, len(os.listdir("/proc/self/fd")))
print([name for name in os.listdir("/proc") if name.isdigit() and name != str(os.getpid())], os.uname().nodename)
print(sorted(os.listdir("/tmp")), sorted(os.listdir("/dev/shm")), signal.pthread_sigmask(signal.SIG_BLOCK, []))
"#;

#[tokio::test]
async fn a_residents_run_is_confined_as_the_first_was() {
    let Some(sandbox) = sandbox() else { return };
    for network in [Network::None, Network::Host] {
        let spec = RunSpec { network, ..sandbox.spec("python3", &["-c", CONFINEMENT]) };
        let first = sandbox.launcher.run(spec.clone()).await.unwrap();
        assert!(!first.is_residents && first.exit_code == 0, "{first:?}");
        let later = again(&sandbox, spec).await;
        assert_eq!(later.stdout, first.stdout);
        assert_eq!(later.enforcement, first.enforcement);
    }
}

#[tokio::test]
async fn streams_environment_directory_and_arguments_are_of_each_run() {
    let Some(sandbox) = sandbox() else { return };
    fs::create_dir(sandbox.tree.join("目录")).unwrap();
    support::own(&sandbox.tree.join("目录"), sandbox.view.owner);
    let mut spec = sandbox.spec("bash", &["-c", "cat; pwd; echo $0 $WORD; echo err >&2", "数据"]);
    warm(&sandbox, &spec).await;
    for word in ["one", "two", "three"] {
        spec.stdin = Some(format!("{word} in\n").into_bytes());
        spec.directory = policy::RelPath::parse("目录").unwrap();
        spec.environment.retain(|(name, _)| name != "WORD");
        spec.environment.push(("WORD".to_owned(), word.to_owned()));
        let result = sandbox.launcher.run(spec.clone()).await.unwrap();
        let expected = format!("{word} in\n/workspace/目录\n数据 {word}\n");
        assert_eq!((result.stdout, result.stderr), (expected, "err\n".to_owned()));
        assert!(result.is_residents);
    }
    let other = sandbox.spec("bash", &["-c", "echo $WORD; cat; pwd"]);
    let result = sandbox.launcher.run(other).await.unwrap();
    assert_eq!((result.stdout.as_str(), result.is_residents), ("\n/workspace\n", true));
}

#[tokio::test]
async fn a_directory_that_is_not_there_is_told_as_ever_and_the_next_run_goes_on() {
    let Some(sandbox) = sandbox() else { return };
    let mut spec = sandbox.spec("echo", &[]);
    warm(&sandbox, &spec).await;
    spec.stdin = None;
    spec.directory = policy::RelPath::parse("nowhere").unwrap();
    let error = sandbox.launcher.run(spec).await.unwrap_err();
    assert!(matches!(error, exec::Error::Directory { .. }), "{error:?}");
    assert_eq!(sandbox.bash("echo on").await.stdout, "on\n");
}

/// Scripts whose leftovers no later run may find: each with the script by which the next run looks, which prints
/// nothing.
const LEFT_BEHIND: [(&str, &str); 4] = [
    ("sleep 600 & disown", "pgrep sleep; ls /proc | grep -v '^[0-9]*$' | grep sleep"),
    // Not by setsid(1), which is on no list: a shell that may not start it is gone at once.
    (
        "python3 -c 'import os, time; os.fork() or (os.setsid(), time.sleep(600))' >/dev/null 2>&1",
        "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -o 's[e]tsid'",
    ),
    ("echo secret > /dev/shm/left", "cat /dev/shm/left 2>/dev/null; ls /dev/shm"),
    ("mkdir /dev/shm/directory", "ls /dev/shm"),
];

#[tokio::test]
async fn a_run_that_leaves_something_behind_is_the_last_of_its_process() {
    let Some(sandbox) = sandbox() else { return };
    for (leave, look) in LEFT_BEHIND {
        let left = again(&sandbox, sandbox.spec("bash", &["-c", leave])).await;
        assert_eq!(left.exit_code, 0, "{left:?}");
        let found = sandbox.bash(look).await;
        assert_eq!((found.stdout.as_str(), found.is_residents), ("", false), "after `{leave}`: {found:?}");
    }
    assert_gone("sleep 600").await;
    assert_gone("setsid").await;
}

#[tokio::test]
async fn a_run_that_was_ended_is_the_last_of_its_process() {
    let Some(sandbox) = sandbox() else { return };
    let mut overdue = sandbox.spec("bash", &["-c", "echo begun; sleep 601"]);
    overdue.timeout = Duration::from_secs(1);
    warm(&sandbox, &overdue).await;
    let began = Instant::now();
    let result = sandbox.launcher.run(overdue).await.unwrap();
    assert!(result.is_residents && result.timed_out && result.stdout == "begun\n", "{result:?}");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_gone("sleep 601").await;
    assert!(!sandbox.bash("true").await.is_residents);

    let result = again(&sandbox, sandbox.spec("bash", &["-c", "kill -9 $$"])).await;
    assert_eq!(result.signal.as_deref(), Some("SIGKILL"));
    assert!(!sandbox.bash("true").await.is_residents);

    // The caller who waits goes away.
    warm(&sandbox, &sandbox.spec("bash", &["-c", "sleep 602"])).await;
    let waiting = sandbox.launcher.run(sandbox.spec("bash", &["-c", "sleep 602"]));
    assert!(tokio::time::timeout(Duration::from_millis(500), waiting).await.is_err());
    assert_gone("sleep 602").await;
}

#[tokio::test]
async fn memory_is_bounded_in_a_residents_run_too() {
    let Some(sandbox) = sandbox() else { return };
    let script =
        "import time\nkept = []\nwhile True:\n    kept.append(bytearray(8 << 20))\n    time.sleep(0.005)";
    let mut spec = sandbox.spec("python3", &["-c", script]);
    spec.limits.run_memory_bytes = 250 * MIB;
    let result = again(&sandbox, spec.clone()).await;
    assert_eq!(
        (result.signal.as_deref(), result.limit),
        (Some("SIGKILL"), Some(Limit::Memory)),
        "{result:?}"
    );
    // A run that lived long enough to be watched, and ended by itself.
    spec.arguments = vec!["-c".to_owned(), "import time; time.sleep(0.5)".to_owned()];
    let result = again(&sandbox, spec.clone()).await;
    assert_eq!(result.exit_code, 0, "{result:?}");
    spec.arguments = vec!["-c".to_owned(), script.to_owned()];
    let result = sandbox.launcher.run(spec).await.unwrap();
    assert_eq!(
        (result.signal.as_deref(), result.limit),
        (Some("SIGKILL"), Some(Limit::Memory)),
        "{result:?}"
    );
}

#[tokio::test]
async fn other_surroundings_get_another_process() {
    let Some(sandbox) = sandbox() else { return };
    let spec = sandbox.spec("echo", &[]);
    // Any user can begin there.
    fs::set_permissions(&sandbox.tree, fs::Permissions::from_mode(0o777)).unwrap();
    let directory = sandbox.root.path().join("other");
    fs::create_dir(&directory).unwrap();
    support::own(&directory, sandbox.view.owner);
    let is_residents = async |change: &dyn Fn(&mut RunSpec)| {
        warm(&sandbox, &spec).await;
        let mut changed = spec.clone();
        change(&mut changed);
        sandbox.launcher.run(changed).await.unwrap().is_residents
    };
    assert!(is_residents(&|_| {}).await);
    assert!(!is_residents(&|spec| spec.network = Network::Host).await);
    assert!(!is_residents(&|spec| spec.limits.memory_bytes += MIB).await);
    assert!(!is_residents(&|spec| spec.limits.run_memory_bytes += MIB).await);
    assert!(!is_residents(&|spec| spec.limits.processes += 1).await);
    assert!(!is_residents(&|spec| spec.attachments[0].generation = 7).await);
    assert!(!is_residents(&|spec| spec.attachments[1] = attach(exec::HOME, &directory, Role::Home)).await);
    let temporary = || attach(exec::TEMPORARY, &directory, Role::Temporary);
    assert!(!is_residents(&|spec| spec.attachments.push(temporary())).await);
    let next = sandbox.view.owner.map(|uid| uid + 500);
    assert!(!is_residents(&|spec| spec.view.owner = next).await);
    assert!(!is_residents(&|spec| spec.view.owner = None).await);
    assert!(!is_residents(&|spec| spec.recurs = false).await);
}

#[tokio::test]
async fn command_lines_of_any_size_arrive_and_do_not_pile_up() {
    let Some(sandbox) = sandbox() else { return };
    let long = "长".repeat(40_000);
    let mut last = false;
    let mut changes = 0;
    warm(&sandbox, &sandbox.spec("echo", &[])).await;
    for _ in 0..30 {
        let result = sandbox.run("bash", &["-c", "echo ${#0}", &long]).await;
        assert_eq!(result.stdout.trim(), long.len().to_string(), "{result:?}");
        changes += usize::from(last != result.is_residents);
        last = result.is_residents;
    }
    // One after the other had enough and went.
    assert!(changes > 2, "{changes}");
}

#[tokio::test]
async fn runs_at_once_have_a_process_each() {
    let Some(sandbox) = sandbox() else { return };
    let script = "echo $$ >> pids; for i in $(seq 100); do [ $(wc -l < pids) = 8 ] && break; sleep 0.05; done; ls /proc | grep -c '^[0-9]'";
    for round in 0..3 {
        fs::remove_file(sandbox.tree.join("pids")).ok();
        let runs: Vec<_> = (0..8)
            .map(|_| {
                let (launcher, spec) = (Arc::clone(&sandbox.launcher), sandbox.spec("bash", &["-c", script]));
                tokio::spawn(async move { launcher.run(spec).await.unwrap() })
            })
            .collect();
        for run in runs {
            let result = run.await.unwrap();
            // The shell, the one that lists and the one that counts.
            let seen: usize = result.stdout.trim().parse().unwrap();
            assert!((2..=4).contains(&seen), "round {round}: {result:?}");
        }
    }
}

#[tokio::test]
async fn residents_are_few_and_go_when_nobody_comes() {
    let Some(sandbox) = sandbox() else { return };
    let quiet = children(&sandbox);
    for number in 0..u32::try_from(WAITING_MAX).unwrap() + 8 {
        let mut spec = sandbox.spec("echo", &[]);
        spec.limits.processes += u64::from(number);
        warm(&sandbox, &spec).await;
    }
    // Those made ahead, the one that watches memory, and one that is going.
    assert!(children(&sandbox) <= WAITING_MAX + 6, "{}", children(&sandbox));
    let began = Instant::now();
    while children(&sandbox) > quiet + 4 {
        assert!(began.elapsed() < Duration::from_secs(90), "{} processes stay", children(&sandbox));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn they_die_with_their_launcher_and_another_takes_over() {
    let Some(sandbox) = sandbox() else { return };
    warm(&sandbox, &sandbox.spec("echo", &[])).await;
    let launcher = sandbox.launcher.pid();
    let family = children_of(launcher);
    assert!(!family.is_empty());
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(launcher), nix::sys::signal::Signal::SIGKILL).unwrap();
    // Until they are dead, one of them may still take a run.
    let is_dead = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z")
    };
    let begin = Instant::now();
    while !family.iter().all(is_dead) {
        assert!(begin.elapsed() < Duration::from_secs(30), "{family:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let result = loop {
        match sandbox.launcher.run(sandbox.spec("echo", &["on"])).await {
            Ok(result) => break result,
            Err(exec::Error::LauncherDied) => {}
            Err(error) => panic!("{error:?}"),
        }
    };
    assert_eq!((result.stdout.as_str(), result.is_residents), ("on\n", false));
    assert!(again(&sandbox, sandbox.spec("echo", &["on"])).await.is_residents);
}

#[tokio::test]
async fn a_service_without_root_keeps_none() {
    let Some(sandbox) = Sandbox::with_own_uid_of_service() else { return };
    for _ in 0..4 {
        assert!(!sandbox.bash("true").await.is_residents);
    }
}

#[tokio::test]
async fn a_skill_whose_mount_point_was_made_anew_is_still_seen() {
    let Some(sandbox) = sandbox() else { return };
    let skill = sandbox.root.path().join("skill");
    let point = sandbox.tree.join("skills");
    for directory in [&skill, &point, &point.join("天气")] {
        fs::create_dir(directory).unwrap();
        support::own(directory, sandbox.view.owner);
    }
    fs::write(skill.join("SKILL.md"), "晴\n").unwrap();
    support::own(&skill.join("SKILL.md"), sandbox.view.owner);
    let mut spec = sandbox.spec("cat", &["skills/天气/SKILL.md"]);
    spec.attachments.push(attach("/workspace/skills/天气", &skill, Role::Skill));
    for run in 0..5 {
        let result = sandbox.launcher.run(spec.clone()).await.unwrap();
        assert_eq!((result.stdout.as_str(), result.exit_code), ("晴\n", 0), "run {run}: {result:?}");
        // As the service does when no run needs it, and as any command of the user may.
        fs::remove_dir(point.join("天气")).unwrap();
        fs::create_dir(point.join("天气")).unwrap();
        support::own(&point.join("天气"), sandbox.view.owner);
    }
}

/// A run of `cat` that sees a skill in its workspace, the directory of the skill, and the one that it is mounted on.
fn with_skill(sandbox: &Sandbox) -> (RunSpec, PathBuf, PathBuf) {
    let (skill, point) = (sandbox.root.path().join("skill"), sandbox.tree.join("skills/天气"));
    for directory in [&skill, &sandbox.tree.join("skills"), &point] {
        fs::create_dir(directory).unwrap();
        support::own(directory, sandbox.view.owner);
    }
    fs::write(skill.join("SKILL.md"), "晴\n").unwrap();
    support::own(&skill.join("SKILL.md"), sandbox.view.owner);
    let mut spec = sandbox.spec("cat", &["skills/天气/SKILL.md"]);
    spec.attachments.push(attach("/workspace/skills/天气", &skill, Role::Skill));
    (spec, skill, point)
}

#[tokio::test]
async fn a_run_that_sees_skills_is_a_residents_as_long_as_all_of_them_are_mounted_where_they_were() {
    let Some(sandbox) = sandbox() else { return };
    let (spec, _, point) = with_skill(&sandbox);
    let (skills, aside) = (sandbox.tree.join("skills"), sandbox.root.path().join("aside"));
    let run = async || {
        let result = sandbox.launcher.run(spec.clone()).await.unwrap();
        assert_eq!((result.stdout.as_str(), result.exit_code), ("晴\n", 0), "{result:?}");
        result.is_residents
    };
    let warm = async || {
        for _ in 0..WARMING {
            run().await;
        }
        assert!(run().await);
    };
    warm().await;
    // As the service does between two runs.
    fs::rename(&skills, &aside).unwrap();
    fs::rename(&aside, &skills).unwrap();
    assert!(run().await);
    // As any process of the user may, from another mount namespace.
    let changes: [&dyn Fn(); 4] = [
        &|| fs::remove_dir(&point).unwrap(),
        &|| fs::rename(&point, skills.join("other")).unwrap(),
        &|| fs::rename(&skills, sandbox.tree.join("other")).unwrap(),
        &|| {
            fs::rename(&skills, sandbox.tree.join("led to")).unwrap();
            std::os::unix::fs::symlink("led to", &skills).unwrap();
        },
    ];
    for change in changes {
        warm().await;
        change();
        if skills.is_symlink() {
            fs::remove_file(&skills).unwrap();
        }
        for directory in [&skills, &point] {
            if !directory.exists() {
                fs::create_dir(directory).unwrap();
                support::own(directory, sandbox.view.owner);
            }
        }
        assert!(!run().await, "a mount was lost");
    }
}

#[tokio::test]
async fn a_run_is_no_residents_that_sees_another_version_of_a_skill_or_fewer_or_others() {
    let Some(sandbox) = sandbox() else { return };
    let (mut spec, _, _) = with_skill(&sandbox);
    spec.attachments.last_mut().unwrap().generation = 7;
    let run = async |spec: &RunSpec| {
        let result = sandbox.launcher.run(spec.clone()).await.unwrap();
        (result.stdout, result.is_residents)
    };
    for _ in 0..WARMING {
        run(&spec).await;
    }
    assert_eq!(run(&spec).await, ("晴\n".to_owned(), true));
    let next = sandbox.root.path().join("next");
    fs::create_dir(&next).unwrap();
    fs::write(next.join("SKILL.md"), "雨\n").unwrap();
    let mut other = spec.clone();
    *other.attachments.last_mut().unwrap() = attach("/workspace/skills/天气", &next, Role::Skill);
    other.attachments.last_mut().unwrap().generation = 8;
    assert_eq!(run(&other).await, ("雨\n".to_owned(), false));
    let mut none = spec.clone();
    none.attachments.pop();
    assert_eq!(run(&none).await, (String::new(), false));
    // The view goes, and with it who sees it.
    assert_eq!(run(&spec).await, ("晴\n".to_owned(), true));
    sandbox.launcher.let_go(7);
    assert_eq!(run(&spec).await, ("晴\n".to_owned(), false));
}

#[tokio::test]
async fn what_the_first_run_of_a_process_leaves_in_memory_at_once_is_not_there_in_the_next() {
    let Some(sandbox) = sandbox() else { return };
    // Which of the command and the first process is quicker is not settled: each time a new process.
    for number in 0..100 {
        let mut spec = sandbox.spec("echo", &[]);
        spec.limits.processes += number;
        let run = |program: &str, arguments: &[&str]| {
            let other = sandbox.spec(program, arguments);
            sandbox.launcher.run(RunSpec { limits: spec.limits.clone(), ..other })
        };
        assert_eq!(run("echo", &[]).await.unwrap().exit_code, 0);
        assert_eq!(run("mkdir", &["/dev/shm/left"]).await.unwrap().exit_code, 0);
        let found = run("ls", &["/dev/shm"]).await.unwrap();
        assert_eq!((found.stdout.as_str(), found.is_residents), ("", false), "process {number}");
    }
}

#[tokio::test]
async fn a_long_command_line_needs_no_more_memory_and_descriptors_than_in_a_first_run() {
    let Some(sandbox) = sandbox() else { return };
    let mut spec = sandbox.spec("echo", &[]);
    spec.arguments = vec!["长".repeat(20_000); 10];
    spec.limits.arguments_bytes = 1 << 20;
    // Less than the launcher itself has, and enough for the command.
    spec.limits.memory_bytes = 4 * MIB;
    spec.limits.open_files = 4;
    for run in 0..3 {
        let result = sandbox.launcher.run(spec.clone()).await.unwrap();
        assert_eq!((result.exit_code, result.signal.as_deref()), (0, None), "run {run}: {}", result.stderr);
        assert_eq!(result.is_residents, run == 2);
    }
}

#[tokio::test]
async fn a_directory_that_only_its_path_closes_is_where_a_run_begins_as_in_a_first_run() {
    let Some(sandbox) = sandbox() else { return };
    let made = sandbox.bash("mkdir -p shut/目录 && chmod 000 shut").await;
    assert_eq!(made.exit_code, 0, "{made:?}");
    let mut spec = sandbox.spec("ls", &["-a"]);
    spec.directory = policy::RelPath::parse("shut/目录").unwrap();
    for run in 0..4 {
        let result = sandbox.launcher.run(spec.clone()).await.unwrap();
        assert_eq!((result.stdout.as_str(), result.exit_code), (".\n..\n", 0), "{result:?}");
        assert_eq!(result.is_residents, run > 0, "run {run}");
    }
}

/// How many processes of this machine see the tree of `sandbox` as a mount of their own.
fn who_see_the_tree(sandbox: &Sandbox) -> usize {
    let tree = sandbox.tree.strip_prefix("/tmp").unwrap_or(&sandbox.tree).display().to_string();
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let mounts = processes.filter_map(|entry| fs::read_to_string(entry.path().join("mountinfo")).ok());
    mounts.filter(|mounts| mounts.lines().any(|line| line.contains(&tree))).count()
}

#[tokio::test]
async fn those_in_a_view_that_goes_are_gone_before_it() {
    let Some(sandbox) = sandbox() else { return };
    let mut spec = sandbox.spec("echo", &[]);
    spec.attachments[0].generation = 7;
    for _ in 0..20 {
        warm(&sandbox, &spec).await;
        assert!(who_see_the_tree(&sandbox) > 0);
        sandbox.launcher.let_go(8);
        assert!(who_see_the_tree(&sandbox) > 0);
        sandbox.launcher.let_go(7);
        assert_eq!(who_see_the_tree(&sandbox), 0);
    }
}
