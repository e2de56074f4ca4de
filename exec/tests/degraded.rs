//! Hosts that grant less, made by taking system calls away from the thread that starts the launcher.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::print_stderr)]

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use exec::{Error, ExecResult, Isolation, Launcher, LauncherConfig, Tier};
use policy::command::Profile;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};
use support::{Sandbox, assert_gone, config, is_root, process_tier};

/// Runs `test` on a thread whose kernel, and whose launcher's kernel, answers `ENOSYS` to `calls`.
fn without<F, T>(calls: &'static [i64], test: T)
where
    F: Future<Output = ()>,
    T: FnOnce() -> F + Send + 'static,
{
    let thread = std::thread::spawn(move || {
        let rules: BTreeMap<i64, Vec<_>> = calls.iter().map(|number| (*number, Vec::new())).collect();
        let arch = if cfg!(target_arch = "x86_64") { TargetArch::x86_64 } else { TargetArch::aarch64 };
        let absent = SeccompAction::Errno(libc::ENOSYS as u32);
        let filter: BpfProgram =
            SeccompFilter::new(rules, SeccompAction::Allow, absent, arch).unwrap().try_into().unwrap();
        seccompiler::apply_filter(&filter).unwrap();
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test());
    });
    thread.join().unwrap();
}

fn weak() -> LauncherConfig {
    LauncherConfig { isolation: process_tier(), ..config(Profile::Default) }
}

async fn echo(sandbox: &Sandbox) -> ExecResult {
    sandbox.run("echo", &["hi"]).await
}

#[test]
fn without_landlock_nothing_starts_unless_tier_process_is_named() {
    without(&[libc::SYS_landlock_create_ruleset], || async {
        let error = Launcher::start(config(Profile::Default)).unwrap_err();
        assert!(
            matches!(&error, Error::Unsupported { wanted: Tier::Landlock, granted: Tier::Process, reason } if reason.contains("Landlock")),
            "{error:?}"
        );
        let sandbox = Sandbox::with(weak(), is_root()).unwrap();
        let result = echo(&sandbox).await;
        assert_eq!((result.stdout.as_str(), result.enforcement.tier), ("hi\n", Tier::Process));
        assert_eq!(result.enforcement.landlock_abi, 0);
        assert!(!result.enforcement.files.is_enforced() && !result.enforcement.programs.is_enforced());
        assert!(result.enforcement.system_calls.is_enforced(), "what the host has is used at every tier");
        let mut spec = sandbox.spec("echo", &["hi"]);
        spec.minimum = Some(Tier::Landlock);
        let error = sandbox.launcher.run(spec).await.unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
    });
}

#[test]
fn without_filters_the_tier_is_not_landlock() {
    without(&[libc::SYS_seccomp], || async {
        let error = Launcher::start(config(Profile::Default)).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
        let sandbox = Sandbox::with(weak(), is_root()).unwrap();
        let result = echo(&sandbox).await;
        assert_eq!((result.stdout.as_str(), result.enforcement.tier), ("hi\n", Tier::Process));
        assert!(!result.enforcement.system_calls.is_enforced());
        assert_eq!(result.enforcement.network.is_enforced(), sandbox.launcher.mounts());
        assert!(result.enforcement.files.is_enforced());
    });
}

#[test]
fn without_filters_a_daemon_that_left_the_group_dies_by_its_uid() {
    if !support::has("root", is_root()) {
        return;
    }
    without(&[libc::SYS_seccomp], || async {
        let sandbox = Sandbox::with(weak(), true).unwrap();
        let daemon =
            "import os\nif os.fork(): os._exit(0)\nos.setsid()\nos.execvp('sleep', ['sleep', '10201'])";
        let result = sandbox.bash(&format!("python3 -c \"{daemon}\"; sleep 0.2; echo end")).await;
        assert_eq!(result.stdout, "end\n", "{}", result.stderr);
        assert!(result.enforcement.termination.is_enforced());
        assert_gone("sleep 10201").await;
    });
}

#[test]
fn a_probe_without_landlock_reports_what_is_missing() {
    without(&[libc::SYS_landlock_create_ruleset], || async {
        let sandbox = Sandbox::with(weak(), is_root()).unwrap();
        let report = sandbox.launcher.probe(sandbox.root.path(), sandbox.view.owner).await.unwrap();
        assert_eq!(report.enforcement.tier, Tier::Process);
        assert!(report.enforcement.files.to_string().contains("no Landlock"), "{}", report.enforcement.files);
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<exec::HostReport>(&text).unwrap(), report);
    });
}

#[tokio::test]
async fn a_launcher_that_hangs_does_not_hold_the_answer() {
    let Some(sandbox) = Sandbox::new() else { return };
    let pid = nix::unistd::Pid::from_raw(sandbox.launcher.pid());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
    let mut spec = sandbox.spec("echo", &["hi"]);
    spec.timeout = Duration::from_millis(100);
    let began = std::time::Instant::now();
    let result = sandbox.launcher.run(spec).await.unwrap();
    assert!(result.timed_out && began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGCONT).unwrap();
    assert_eq!(echo(&sandbox).await.stdout, "hi\n");
}

#[test]
fn the_default_floor_is_landlock() {
    assert_eq!(Isolation::default().minimum, Tier::Landlock);
}
