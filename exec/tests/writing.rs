//! Runs of a user who writes much to the disk pause while another user is there, and for nobody.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr)]

mod support;

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use exec::{Isolation, LauncherConfig, Tier};
use policy::UserId;
use policy::command::Profile;
use support::{Sandbox, config};

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

/// How many processes of the run in `sandbox` are stopped.
fn stopped(sandbox: &Sandbox) -> usize {
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let is_stopped = |process: &fs::DirEntry| {
        let text = |name: &str| fs::read_to_string(process.path().join(name)).unwrap_or_default();
        text("cmdline").contains(sandbox.tree.to_str().unwrap()) && text("status").contains("\nState:\tT")
    };
    processes.filter(is_stopped).count()
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
            if rustix::fs::statfs(&sandbox.tree).unwrap().f_type == TMPFS {
                eprintln!("SKIPPED: what is written to memory is not counted");
                return;
            }
            let run = || {
                let mark = sandbox.tree.to_str().unwrap();
                let mut spec = sandbox.spec("python3", &["-c", SCRIPT, mark]);
                spec.limits.write_bytes_per_second = 1 << 20;
                let launcher = Arc::clone(&sandbox.launcher);
                tokio::spawn(async move { launcher.run(spec).await.unwrap() })
            };
            let (alone, mut seen) = (run(), 0);
            while !alone.is_finished() {
                seen = seen.max(stopped(&sandbox));
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let result = alone.await.unwrap();
            assert_eq!((result.stdout.as_str(), seen), ("all True\n", 1), "{maximum:?}, alone: {result:?}");

            sandbox.launcher.note_user(&UserId::parse("someone-else").unwrap());
            let (company, begun) = (run(), Instant::now());
            // The child, and with it the one that writes.
            while stopped(&sandbox) < 2 {
                assert!(!company.is_finished() && begun.elapsed() < Duration::from_secs(60), "{maximum:?}");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let result = company.await.unwrap();
            assert_eq!(result.stdout, "all True\n", "{maximum:?}, in company: {result:?}");
        }
    }
}

#[test]
fn they_do_without_root_too() {
    support::repeat_without_root("runs_that_write_much_pause_while_another_user_is_there");
}
