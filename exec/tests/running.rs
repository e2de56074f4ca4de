//! Running commands end to end: output, input, endings, deadlines.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::disallowed_methods
)]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use exec::{Encoding, Error, Tier, Unbegun, Whitelist};
use policy::{CommandPolicy, Profile, RelPath};
use support::{Sandbox, assert_gone, has, is_root, wait_for};

macro_rules! sandbox {
    () => {
        match Sandbox::new() {
            Some(sandbox) => sandbox,
            None => return,
        }
    };
}

#[tokio::test]
async fn echo_prints_what_it_was_told() {
    let sandbox = sandbox!();
    let result = sandbox.run("echo", &["hi", "数据"]).await;
    assert_eq!((result.stdout.as_str(), result.exit_code), ("hi 数据\n", 0));
    assert_eq!(
        (result.stderr.as_str(), result.signal, result.timed_out, result.hint),
        ("", None, false, None)
    );
    let expected = if sandbox.launcher.mounts() { Tier::Namespaces } else { Tier::Landlock };
    assert_eq!(result.enforcement.tier, expected);
    assert!(result.enforcement.system_calls.is_enforced());
}

#[tokio::test]
async fn exit_codes_and_signals_are_results() {
    let sandbox = sandbox!();
    assert_eq!(sandbox.bash("exit 7").await.exit_code, 7);
    let killed = sandbox.bash("kill -TERM $$").await;
    assert_eq!((killed.exit_code, killed.signal.as_deref()), (-1, Some("SIGTERM")));
    assert!(!killed.timed_out);
}

#[tokio::test]
async fn both_streams_are_kept_apart_and_in_order() {
    let sandbox = sandbox!();
    let result = sandbox.bash("echo 1; sleep 0.5; echo 2 >&2; sleep 0.5; echo 3").await;
    assert_eq!((result.stdout.as_str(), result.stderr.as_str()), ("1\n3\n", "2\n"));
    assert_eq!(result.output, "1\n2\n3\n");
}

#[tokio::test]
async fn a_megabyte_at_once_does_not_block() {
    let sandbox = sandbox!();
    let result = sandbox.run("bash", &["-c", "head -c 1000000 /dev/zero"]).await;
    assert_eq!((result.stdout_bytes, result.exit_code), (1_000_000, 0));
    assert!(result.duration_ms < 5_000, "{} ms", result.duration_ms);
}

#[tokio::test]
async fn fifty_megabytes_are_bounded_counted_and_never_a_deadlock() {
    let sandbox = sandbox!();
    let mut spec = sandbox.spec("bash", &["-c", "echo begin; head -c 50000000 /dev/zero; echo; echo end"]);
    spec.limits.output_bytes = 100_000;
    let result = sandbox.launcher.run(spec).await.unwrap();
    assert_eq!(result.stdout_bytes, 50_000_000 + 6 + 5);
    assert!(result.truncated && result.stdout.len() < 100_100);
    assert_eq!(result.dropped_bytes, result.stdout_bytes - 100_000);
    assert!(result.stdout.starts_with("begin\n") && result.stdout.ends_with("end\n"));
    assert!(result.stdout.contains(&format!("{} bytes dropped", result.dropped_bytes)));
}

#[tokio::test]
async fn standard_input_is_delivered_whole_and_absent_input_is_empty() {
    let sandbox = sandbox!();
    assert_eq!(sandbox.run("cat", &[]).await.stdout, "");
    for size in [0, 1, 1_000_000] {
        let mut spec = sandbox.spec("bash", &["-c", "wc -c"]);
        spec.stdin = Some(vec![b'x'; size]);
        assert_eq!(sandbox.launcher.run(spec).await.unwrap().stdout.trim(), size.to_string());
    }
}

#[tokio::test]
async fn input_that_nobody_reads_is_no_error() {
    let sandbox = sandbox!();
    let mut spec = sandbox.spec("echo", &["done"]);
    spec.stdin = Some(vec![b'x'; 1_000_000]);
    assert_eq!(sandbox.launcher.run(spec).await.unwrap().stdout, "done\n");
}

#[tokio::test]
async fn binary_output_survives_in_base64() {
    let sandbox = sandbox!();
    let mut spec = sandbox.spec("python3", &["-c", "import os; os.write(1, bytes(range(256)))"]);
    spec.encoding = Encoding::Base64;
    let result = sandbox.launcher.run(spec).await.unwrap();
    use base64::Engine;
    let bytes = base64::engine::general_purpose::STANDARD.decode(result.stdout_base64.unwrap()).unwrap();
    assert!(bytes.iter().copied().eq(0..=255));
}

#[tokio::test]
async fn the_environment_is_exactly_what_was_given() {
    let sandbox = sandbox!();
    let mut spec = sandbox.spec("python3", &["-c", "import os; print(sorted(os.environ.items()))"]);
    spec.environment = vec![("A".to_owned(), "1=2".to_owned()), ("LC_ALL".to_owned(), "C.UTF-8".to_owned())];
    let result = sandbox.launcher.run(spec).await.unwrap();
    assert_eq!(result.stdout, "[('A', '1=2'), ('LC_ALL', 'C.UTF-8')]\n");
}

#[tokio::test]
async fn a_command_gives_way_to_the_service_and_cannot_change_that() {
    let sandbox = sandbox!();
    let script = "import ctypes, os, platform, struct, time
def seen():
    attributes = ctypes.create_string_buffer(48)
    if libc.syscall(number + 1, 0, attributes, 48, 0) < 0: raise OSError(ctypes.get_errno(), 'sched_getattr')
    # None is told before Linux 6.12.
    policy, slice = os.sched_getscheduler(0), struct.unpack('IIQiIQQQ', attributes.raw)[5]
    return os.getpriority(os.PRIO_PROCESS, 0), policy == os.SCHED_BATCH, slice in (0, 10_000_000 if policy else 5_000_000)
def claim():
    while (found := seen()) != seen(): pass
    return found
def attempt(act):
    try: act(); print('done')
    except PermissionError: print('refused')
libc = ctypes.CDLL(None, use_errno=True)
number = 314 if platform.machine() == 'x86_64' else 274
def slices():
    attributes = struct.pack('IIQiIQQQ', 48, os.SCHED_OTHER, 0, 10, 0, 100_000, 0, 0)
    if libc.syscall(number, 0, attributes, 0) < 0: raise OSError(ctypes.get_errno(), 'sched_setattr')
def attempts():
    attempt(lambda: os.setpriority(os.PRIO_PROCESS, 0, 0))
    attempt(lambda: os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0)))
    attempt(slices)
print(claim())
attempts()
until = time.monotonic() + 30
while not claim()[1] and time.monotonic() < until: pass
print(claim())
attempts()";
    let refused = "refused\n".repeat(3);
    let (fresh, halfway, at_work) = ("(5, False, True)\n", "(10, False, True)\n", "(10, True, True)\n");
    // On a busy machine it may be found at work before it can tell how it began, and the niceness is the first that changes then.
    for _ in 0..50 {
        let mut spec = sandbox.spec("python3", &["-c", script]);
        spec.timeout = Duration::from_secs(60);
        let result = sandbox.launcher.run(spec).await.unwrap();
        let begun = result.stdout.strip_suffix(&format!("{refused}{at_work}{refused}"));
        if begun == Some(fresh) {
            return;
        }
        assert!(begun == Some(halfway) || begun == Some(at_work), "{result:?}");
    }
    panic!("it is never told as fresh");
}

/// Processes, threads and what they make later. One with few busy threads keeps what it has.
#[tokio::test]
async fn a_run_that_wants_many_processors_gives_way_to_all_others() {
    let sandbox = sandbox!();
    let script = "import os, signal, sys, threading, time
def spin():
    while True: pass
children = []
for number in range(int(sys.argv[1])):
    child = os.fork()
    if child == 0:
        if number % 2: os.setsid()
        spin()
    children.append(child)
thread = threading.Thread(target=time.sleep, args=(60,), daemon=True)
thread.start()
niceness = lambda: {os.getpriority(os.PRIO_PROCESS, each) for each in children + [0, thread.native_id]}
begun = time.monotonic()
while niceness() != {19} and time.monotonic() - begun < float(sys.argv[2]): time.sleep(0.01)
read, write = os.pipe()
child = os.fork()
if child == 0:
    os.write(write, f'{niceness()} {os.nice(0)}'.encode())
    os._exit(0)
print(os.read(read, 99).decode(), flush=True)
for child in children: os.kill(child, signal.SIGKILL)
os._exit(0)";
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let many = (2 * processors + 2).to_string();
    let result = sandbox.run("python3", &["-c", script, &many, "30"]).await;
    assert_eq!((result.stdout.as_str(), result.stderr.as_str()), ("{19} 19\n", ""));
    let result = sandbox.run("python3", &["-c", script, "1", "0.5"]).await;
    assert!(result.stdout.starts_with('{') && !result.stdout.contains("19"), "{result:?}");
}

/// What a command has left behind worked for it, although nobody waits for it any more.
#[tokio::test]
async fn a_user_whose_commands_leave_busy_processes_behind_gives_way() {
    let sandbox = sandbox!();
    let niceness = async || {
        let spec = sandbox.spec("python3", &["-c", "import os; print(os.nice(0))"]);
        sandbox.launcher.run(spec).await.unwrap().stdout
    };
    assert_ne!(niceness().await, "19\n");
    // What was worked is worked off in a second and a half, and the machine may be busy with other things.
    for _ in 0..30 {
        let leaving = (0..8).map(|_| {
            let script = "import os, time
for _ in range(4):
    if os.fork() == 0:
        while True: pass
time.sleep(0.3)";
            let (launcher, spec) = (sandbox.launcher.clone(), sandbox.spec("python3", &["-c", script]));
            tokio::spawn(async move { launcher.run(spec).await.unwrap().exit_code })
        });
        for left in leaving.collect::<Vec<_>>() {
            assert_eq!(left.await.unwrap(), 0);
        }
        if niceness().await == "19\n" {
            return;
        }
    }
    panic!("it does not give way");
}

#[tokio::test]
async fn arguments_of_128_kib_arrive_and_more_is_refused() {
    let sandbox = sandbox!();
    let long = "\u{1}é".repeat(30_000);
    let result = sandbox.run("python3", &["-c", "import sys; print(len(sys.argv[1]))", &long]).await;
    assert_eq!(result.stdout, "60000\n");
    let too_long = "x".repeat(131_072);
    let error = sandbox.launcher.run(sandbox.spec("echo", &[&too_long])).await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error:?}");
    let error = sandbox.launcher.run(sandbox.spec("echo", &["a\0b"])).await.unwrap_err();
    assert!(matches!(error, Error::Unpassable { .. }), "{error:?}");
}

#[tokio::test]
async fn the_working_directory_is_inside_the_tree_or_refused() {
    let sandbox = sandbox!();
    sandbox.bash("mkdir -p a/b; ln -s / out").await;
    let mut spec = sandbox.spec("bash", &["-c", "pwd"]);
    spec.directory = RelPath::parse("a/b").unwrap();
    let result = sandbox.launcher.run(spec.clone()).await.unwrap();
    assert_eq!(result.stdout.trim(), sandbox.view.tree.join("a/b").to_str().unwrap());
    for outside in ["out", "out/etc", "missing"] {
        spec.directory = RelPath::parse(outside).unwrap();
        let error = sandbox.launcher.run(spec.clone()).await.unwrap_err();
        assert!(matches!(error, Error::Directory { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn at_the_deadline_the_whole_tree_dies_and_partial_output_is_returned() {
    let sandbox = sandbox!();
    let mut spec = sandbox.spec("sh", &["-c", "echo partial; sleep 10041 & sleep 10042 & wait"]);
    // Beside tests that keep all processors busy, it may take more than half a second to begin.
    spec.timeout = Duration::from_secs(4);
    let began = Instant::now();
    let result = sandbox.launcher.run(spec).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!((result.stdout.as_str(), result.timed_out, result.exit_code), ("partial\n", true, -1));
    assert_gone("sleep 1004").await;
}

#[tokio::test]
async fn what_went_by_before_the_command_began_counts_for_its_deadline() {
    let sandbox = sandbox!();
    let mut spec = sandbox.spec("bash", &["-c", "sleep 10061"]);
    (spec.timeout, spec.spent) = (Duration::from_secs(60), Duration::from_secs(60));
    let began = Instant::now();
    let result = sandbox.launcher.run(spec).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    assert!(result.timed_out && result.duration_ms >= 60_000, "{} ms", result.duration_ms);
    assert!(result.hint.unwrap().contains("took 60000 ms of that"));
    assert_gone("sleep 10061").await;
}

#[tokio::test]
async fn a_run_that_ended_before_its_command_began_has_a_result_that_says_so() {
    let sandbox = sandbox!();
    let spec = sandbox.spec("bash", &["-c", "echo > made"]);
    let walls = sandbox.run("echo", &[]).await.enforcement;
    let late = sandbox.launcher.unbegun(&spec, Unbegun::Late, Duration::from_millis(7)).unwrap();
    assert_eq!((late.timed_out, late.exit_code, late.signal, late.duration_ms), (true, -1, None, 7));
    assert!(late.hint.unwrap().contains("did not begin"));
    assert_eq!((late.enforcement.tier, late.enforcement.identity), (walls.tier, walls.identity));
    let killed = sandbox.launcher.unbegun(&spec, Unbegun::Killed, Duration::ZERO).unwrap();
    assert_eq!((killed.timed_out, killed.signal.as_deref(), killed.hint), (false, Some("SIGKILL"), None));
    assert!(!sandbox.tree.join("made").exists());
}

const DAEMON: &str = "import os, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
print('daemon', flush=True)
os.execvp('sleep', ['sleep', os.environ['NAP']])";

#[tokio::test]
async fn a_daemon_does_not_outlive_a_normal_end() {
    let sandbox = sandbox!();
    let mut spec = sandbox.spec("bash", &["-c", "python3 -c \"$DAEMON\"; sleep 0.3; echo end"]);
    spec.environment
        .extend([("DAEMON".to_owned(), DAEMON.to_owned()), ("NAP".to_owned(), "10051".to_owned())]);
    let result = sandbox.launcher.run(spec).await.unwrap();
    assert_eq!((result.stdout.as_str(), result.exit_code), ("daemon\nend\n", 0), "{}", result.stderr);
    assert_gone("sleep 10051").await;
}

#[tokio::test]
async fn a_daemon_does_not_outlive_the_deadline() {
    let sandbox = sandbox!();
    let mut spec = sandbox.spec("bash", &["-c", "python3 -c \"$DAEMON\"; sleep 10053"]);
    spec.environment
        .extend([("DAEMON".to_owned(), DAEMON.to_owned()), ("NAP".to_owned(), "10052".to_owned())]);
    spec.timeout = Duration::from_secs(1);
    assert!(sandbox.launcher.run(spec).await.unwrap().timed_out);
    assert_gone("sleep 1005").await;
}

#[tokio::test]
async fn a_grandchild_that_holds_the_pipe_does_not_delay_the_answer() {
    let sandbox = sandbox!();
    let began = Instant::now();
    let result = sandbox.bash("sleep 10061 & echo done").await;
    assert_eq!(result.stdout, "done\n");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_gone("sleep 10061").await;
}

#[tokio::test]
async fn dropping_the_future_kills_the_tree() {
    let sandbox = sandbox!();
    let launcher = sandbox.launcher.clone();
    let spec = sandbox.spec("sh", &["-c", "sleep 10071 & sleep 10072; wait"]);
    let task = tokio::spawn(async move { launcher.run(spec).await });
    wait_for("sleep 10072").await;
    task.abort();
    assert_gone("sleep 1007").await;
}

#[tokio::test]
async fn a_dead_launcher_is_a_named_error_and_the_next_run_works() {
    let sandbox = sandbox!();
    let launcher = sandbox.launcher.clone();
    let spec = sandbox.spec("sh", &["-c", "sleep 10081 & sleep 10082; wait"]);
    let task = tokio::spawn(async move { launcher.run(spec).await });
    wait_for("sleep 10082").await;
    let pid = nix::unistd::Pid::from_raw(sandbox.launcher.pid());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    let error = task.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::LauncherDied), "{error:?}");
    assert_gone("sleep 1008").await;
    assert_eq!(sandbox.run("echo", &["again"]).await.stdout, "again\n");
    assert_ne!(sandbox.launcher.pid(), pid.as_raw());
}

#[tokio::test]
async fn dropping_the_launcher_kills_its_runs() {
    let sandbox = sandbox!();
    let pid = sandbox.launcher.pid();
    let launcher = sandbox.launcher.clone();
    let spec = sandbox.spec("sleep", &["10091"]);
    drop(launcher);
    let mut spec = spec;
    spec.program = "bash".to_owned();
    spec.arguments = vec!["-c".to_owned(), "sleep 10091; true".to_owned()];
    let launcher = sandbox.launcher.clone();
    let task = tokio::spawn(async move { launcher.run(spec).await });
    wait_for("sleep 10091").await;
    task.abort();
    let _ = task.await;
    drop(sandbox);
    assert_gone("sleep 10091").await;
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
}

#[tokio::test]
async fn many_runs_at_once_do_not_mix() {
    let sandbox = sandbox!();
    let mut tasks = Vec::new();
    for number in 0..40 {
        let launcher = sandbox.launcher.clone();
        let spec = sandbox.spec("bash", &["-c", &format!("echo {number}; exit {number}")]);
        tasks.push(tokio::spawn(async move { launcher.run(spec).await.unwrap() }));
    }
    for (number, task) in tasks.into_iter().enumerate() {
        let result = task.await.unwrap();
        assert_eq!((result.stdout, result.exit_code), (format!("{number}\n"), number as i32));
    }
}

#[tokio::test]
async fn a_floor_that_the_host_cannot_give_is_refused_in_words() {
    let sandbox = sandbox!();
    let mut spec = sandbox.spec("echo", &["hi"]);
    spec.minimum = Some(Tier::Namespaces);
    if sandbox.launcher.mounts() {
        assert_eq!(sandbox.launcher.run(spec).await.unwrap().stdout, "hi\n");
        return;
    }
    let error = sandbox.launcher.run(spec).await.unwrap_err();
    assert!(matches!(error, Error::Unsupported { wanted: Tier::Namespaces, .. }), "{error:?}");
}

#[tokio::test]
async fn a_program_off_the_list_is_refused_by_name_with_the_list() {
    let sandbox = sandbox!();
    for program in ["perl", "/bin/echo", "../echo", ""] {
        let error = sandbox.launcher.run(sandbox.spec(program, &[])).await.unwrap_err();
        assert!(matches!(error, Error::ProgramNotAllowed { .. }), "{error:?}");
        assert!(error.to_string().contains("python3"), "{error}");
    }
}

#[tokio::test]
async fn ordinary_tools_work() {
    let sandbox = sandbox!();
    for (script, expected) in [
        ("python3 -c 'import ssl, sqlite3, multiprocessing, asyncio, json; print(1)'", "1\n"),
        ("pip --version | head -c 4", "pip "),
        ("pip3 --version | head -c 4", "pip "),
        ("printf 'b\\na\\n' | sort | tee x | tr a-z A-Z", "A\nB\n"),
        ("cat <(echo substituted)", "substituted\n"),
        ("mkdir d && cp x d/y && mv d/y z && rm -r d && find . -name z", "./z\n"),
        (
            "echo '{print $1}' > p.awk && echo 'a b' | awk -f p.awk && sed -i s/a/A/ x && grep -c A x",
            "a\n1\n",
        ),
        ("echo x > $TMPDIR/t && mv $TMPDIR/t moved && ln -s moved link && cat link", "x\n"),
        ("echo 'echo script' > run.sh && bash run.sh", "script\n"),
        ("echo hidden > /dev/null; head -c 1 /dev/urandom | wc -c", "1\n"),
        ("python3 -m venv --without-pip v && echo made", "made\n"),
        ("grep -c processor /proc/cpuinfo > /dev/null && echo machine", "machine\n"),
        ("touch f && chmod 640 f && stat -c %a f", "640\n"),
        ("curl --version | head -c 4", "curl"),
    ] {
        let result = sandbox.bash(script).await;
        assert_eq!(result.stdout, expected, "{script}: {}", result.stderr);
    }
}

/// Files in the root are as old as on the host: a source that looks younger than its byte code is compiled at every
/// start.
#[tokio::test]
async fn python_uses_the_byte_code_that_it_uses_outside() {
    let sandbox = sandbox!();
    let stale = |told: &str| {
        let lines = told.lines().filter(|line| line.contains("bytecode is stale"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let inside = sandbox.run("python3", &["-v", "-c", "import ssl, json"]).await;
    assert!(inside.exit_code == 0 && inside.stderr.contains("code object from"), "{inside:?}");
    let mut outside = std::process::Command::new("python3");
    outside.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("PYTHONDONTWRITEBYTECODE", "1");
    let outside = outside.args(["-v", "-c", "import ssl, json"]).output().unwrap();
    assert_eq!(stale(&inside.stderr), stale(&String::from_utf8_lossy(&outside.stderr)));
}

#[tokio::test]
async fn a_wheel_with_native_code_can_be_installed_and_loaded() {
    let sandbox = sandbox!();
    let script = r#"
set -e
python3 - <<'END'
import glob, zipfile
library = sorted(glob.glob('/lib/*/libz.so.1') + glob.glob('/lib*/libz.so.1'))[0]
module = "import ctypes, os; z = ctypes.CDLL(os.path.join(os.path.dirname(__file__), 'native.so'))"
info = 'demo-1.0.dist-info/'
with zipfile.ZipFile('demo-1.0-py3-none-any.whl', 'w') as wheel:
    wheel.writestr('demo.py', module)
    wheel.write(library, 'native.so')
    wheel.writestr(info + 'METADATA', 'Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n')
    wheel.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n')
    wheel.writestr(info + 'RECORD', '')
END
pip install -q --no-index --no-deps --target site demo-1.0-py3-none-any.whl
PYTHONPATH=site python3 -c 'import demo; print(demo.z.zlibCompileFlags() != 0)'
"#;
    let result = sandbox.bash(script).await;
    assert_eq!(result.stdout, "True\n", "{}", result.stderr);
}

#[test]
fn all_of_this_holds_at_tier_landlock() {
    support::repeat_at_landlock("echo_prints_what_it_was_told");
}

#[test]
fn all_of_this_holds_without_root() {
    support::repeat_without_root("echo_prints_what_it_was_told");
}

#[tokio::test]
async fn what_was_written_first_stands_first_in_the_output_of_both_streams() {
    let Some(sandbox) = Sandbox::new() else { return };
    for _ in 0..10 {
        assert_eq!(sandbox.bash("echo 一; echo 二 >&2").await.output, "一\n二\n");
    }
    let slow =
        sandbox.bash("echo 一; sleep 0.1; echo 二 >&2; sleep 0.1; echo 三; sleep 0.1; echo 四 >&2").await;
    assert_eq!(slow.output, "一\n二\n三\n四\n");
}

/// Ends by a signal that has no name (real-time signals, signal(7)), and leaves a process that does, too.
const NAMELESS: &str = "
import os, time
if os.fork() == 0:
    if os.fork() == 0:
        os.kill(os.getpid(), 41)
    os._exit(0)
os.wait()
time.sleep(0.2)
print('done', flush=True)
os.kill(os.getpid(), 40)";

#[tokio::test]
async fn a_signal_without_a_name_ends_one_command_and_no_other() {
    let Some(sandbox) = Sandbox::new() else { return };
    for _ in 0..3 {
        let result = sandbox.python(NAMELESS).await;
        assert_eq!(
            (result.stdout.as_str(), result.signal.as_deref(), result.exit_code),
            ("done\n", Some("signal 40"), -1),
            "{result:?}"
        );
        // The nameless signal of the process left behind must not count for the next command.
        let result = sandbox.bash("exit 7").await;
        assert_eq!((result.exit_code, result.timed_out), (7, false), "{result:?}");
    }
}

#[tokio::test]
async fn a_program_that_the_host_replaces_is_found_again_by_the_run_that_meets_it() {
    if !has("root", is_root()) {
        return;
    }
    // What lies in the temporary directory of the host is not where programs are looked for.
    let programs = tempfile::tempdir_in("/opt").unwrap();
    fs::set_permissions(programs.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let install = |text: &str| {
        let draft = programs.path().join("draft");
        fs::write(&draft, format!("#!/bin/sh\necho {text}\n")).unwrap();
        fs::set_permissions(&draft, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(&draft, programs.path().join("tool")).unwrap();
    };
    install("old");
    let policy = CommandPolicy::new(Profile::Default, &["tool".to_owned()]).unwrap();
    let mut config = support::config(Profile::Default);
    config.whitelist = Whitelist::from(&policy);
    config.search_path = vec![programs.path().to_path_buf(), "/usr/bin".into(), "/bin".into()];
    let Some(sandbox) = Sandbox::with(config, is_root()) else { return };
    assert_eq!(sandbox.run("tool", &[]).await.stdout, "old\n");
    install("new");
    let met = sandbox.launcher.run(sandbox.spec("tool", &[])).await;
    assert!(matches!(&met, Err(Error::ProgramReplaced { program }) if program == "tool"), "{met:?}");
    assert_eq!(sandbox.run("tool", &[]).await.stdout, "new\n");
    let by_path = programs.path().join("tool").display().to_string();
    assert_eq!(sandbox.bash(&by_path).await.stdout, "new\n");
}
