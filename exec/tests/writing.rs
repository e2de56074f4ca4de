//! Runs of a user who writes much to the disk pause while another user is there, and not while there is none.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr)]

mod support;

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use exec::{ExecResult, Isolation, LauncherConfig, Tier};
use policy::UserId;
use policy::command::Profile;
use support::{Sandbox, config};
use tokio::task::JoinHandle;

const TMPFS: i64 = 0x0102_1994;
/// Writes for a while, much more than it may. A child that it has stopped stays stopped.
const SCRIPT: &str = r"
import os, signal, sys, time
child = os.fork()
if not child:
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(0)
os.waitpid(child, os.WUNTRACED)
for number in range(7):
    with open('written', 'wb') as file: file.write(bytes(1 << 20))
    os.unlink('written')
    time.sleep(0.1)
print('all', os.waitpid(child, os.WNOHANG | os.WCONTINUED) == (0, 0))
os.kill(child, signal.SIGKILL)
";

/// Hides what it writes, and is at work.
const HIDING: &str = r"
import ctypes, time
ctypes.CDLL(None).prctl(4, 0)
end = time.process_time() + 5
while time.process_time() < end: pass
print('end')
";
/// Writes in children that it does not collect, and of which most end between two looks.
const UNCOLLECTED: &str = r"
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
end = time.process_time() + 3
while time.process_time() < end:
    child = os.fork()
    if not child:
        with open('written', 'wb') as file: file.write(bytes(1 << 16))
        os.unlink('written')
        time.sleep(0.02)
        os._exit(0)
    try: os.waitpid(child, 0)
    except ChildProcessError: pass
print('end')
";

/// Writes two gigabytes in one call, which takes longer than some looks.
const LARGE: &str = r"
import os, time
file = os.open('written', os.O_CREAT | os.O_WRONLY)
os.writev(file, [bytes(2_000_000)] * 1000)
time.sleep(60)
";

/// How many processes of the run in `sandbox` are stopped.
fn stopped(sandbox: &Sandbox) -> usize {
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let is_stopped = |process: &fs::DirEntry| {
        let text = |name: &str| fs::read_to_string(process.path().join(name)).unwrap_or_default();
        text("cmdline").contains(sandbox.tree.to_str().unwrap()) && text("status").contains("\nState:\tT")
    };
    processes.filter(is_stopped).count()
}

/// Tells whether what is written to the tree is not counted.
fn is_in_memory(sandbox: &Sandbox) -> bool {
    let is_so = rustix::fs::statfs(&sandbox.tree).unwrap().f_type == TMPFS;
    if is_so {
        eprintln!("SKIPPED: what is written to memory is not counted");
    }
    is_so
}

/// Runs a script of Python that may write 1 MiB in a second.
fn run(sandbox: &Sandbox, script: &str, user: &str) -> JoinHandle<ExecResult> {
    let mark = sandbox.tree.to_str().unwrap();
    let mut spec = sandbox.spec("python3", &["-c", script, mark]);
    spec.network_of.as_mut().unwrap().user = UserId::parse(user).unwrap();
    spec.limits.write_bytes_per_second = 1 << 20;
    spec.limits.file_bytes = 2 << 30;
    let launcher = Arc::clone(&sandbox.launcher);
    tokio::spawn(async move { launcher.run(spec).await.unwrap() })
}

#[tokio::test]
async fn runs_that_write_much_pause_while_another_user_is_there() {
    for maximum in [Tier::Namespaces, Tier::Landlock] {
        for has_uid in [false, true] {
            if has_uid && !rustix::process::geteuid().is_root() {
                continue;
            }
            let isolation = Isolation { maximum, ..Isolation::default() };
            let config = LauncherConfig { isolation, ..config(Profile::Default) };
            let Some(sandbox) = Sandbox::with(config, has_uid) else { continue };
            if is_in_memory(&sandbox) {
                return;
            }
            let run = |script, user| run(&sandbox, script, user);
            let (alone, mut seen) = (run(SCRIPT, "writes"), 0);
            while !alone.is_finished() {
                seen = seen.max(stopped(&sandbox));
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let result = alone.await.unwrap();
            assert_eq!((result.stdout.as_str(), seen), ("all True\n", 1), "{maximum:?}, alone: {result:?}");

            sandbox.launcher.note_user(&UserId::parse("someone-else").unwrap());
            let (company, begun) = (run(SCRIPT, "writes"), Instant::now());
            // The child, and with it the one that writes.
            while stopped(&sandbox) < 2 {
                assert!(!company.is_finished() && begun.elapsed() < Duration::from_secs(60), "{maximum:?}");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let result = company.await.unwrap();
            assert_eq!(result.stdout, "all True\n", "{maximum:?}, in company: {result:?}");

            for (script, user) in [(HIDING, "hides"), (UNCOLLECTED, "collects-not")] {
                let (deceives, begun) = (run(script, user), Instant::now());
                while stopped(&sandbox) == 0 {
                    assert!(
                        !deceives.is_finished(),
                        "{maximum:?}, {has_uid}, {script}: {:?}",
                        deceives.await
                    );
                    assert!(begun.elapsed() < Duration::from_secs(60), "{maximum:?}, {has_uid}, {script}");
                    sandbox.launcher.note_user(&UserId::parse("someone-else").unwrap());
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                deceives.abort();
            }
        }
    }
}

#[tokio::test]
async fn a_large_write_is_not_taken_for_one_that_goes_on_although_it_is_to_pause() {
    let isolation = Isolation { maximum: Tier::Landlock, ..Isolation::default() };
    let Some(sandbox) = Sandbox::with(LauncherConfig { isolation, ..config(Profile::Default) }, false) else {
        return;
    };
    if is_in_memory(&sandbox) {
        return;
    }
    sandbox.launcher.note_user(&UserId::parse("someone-else").unwrap());
    let (run, begun) = (run(&sandbox, LARGE, "writes"), Instant::now());
    while stopped(&sandbox) == 0 {
        assert!(!run.is_finished(), "{:?}", run.await);
        assert!(begun.elapsed() < Duration::from_secs(60));
        sandbox.launcher.note_user(&UserId::parse("someone-else").unwrap());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    run.abort();
}

#[test]
fn they_do_without_root_too() {
    support::repeat_without_root("runs_that_write_much_pause_while_another_user_is_there");
}
