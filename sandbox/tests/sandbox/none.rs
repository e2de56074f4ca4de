//! The promises of the host backend alone, beside the contract of all backends.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, Instant};

use sandbox::live::{Input, LiveSpec, WindowSize};
use sandbox::{
    ErrorKind, ExecSpec, NoneOptions, NoneSandbox, Reach, Root, Sandbox, SandboxExt, SandboxPath, UserId,
    WriteOptions,
};
use serde_json::Value;
use tempfile::TempDir;

struct Host {
    root: TempDir,
    sandbox: NoneSandbox,
    alice: UserId,
    workspace: SandboxPath,
}

async fn host() -> Host {
    let root = tempfile::tempdir().unwrap();
    let sandbox = NoneSandbox::open(NoneOptions::new(Root::PerUser(root.path().join("ws")))).unwrap();
    let alice = UserId::parse("alice").unwrap();
    let workspace = sandbox.workspace(&alice).await.unwrap();
    Host { root, sandbox, alice, workspace }
}

impl Host {
    fn path(&self, text: &str) -> SandboxPath {
        self.workspace.join(text).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_end_as_the_recorded_cases_say() {
    let mut tried = 0;
    for case in include_str!("../cases/none.jsonl").lines() {
        let case: Value = serde_json::from_str(case).unwrap();
        let (input, expected) = (&case["input"], &case["expected"]);
        let host = host().await;
        let begin = Instant::now();
        let mut spec = ExecSpec::shell(input["command"].as_str().unwrap());
        spec.timeout = input["cancel_after_s"].as_f64().map(Duration::from_secs_f64);
        // A slow machine may need longer than the case gives a shell to start.
        spec.timeout = spec.timeout.map(|timeout| timeout.max(Duration::from_secs(1)));
        let result = host.sandbox.exec(&host.alice, spec).await.unwrap();
        assert_eq!(result.stdout_text(), expected["stdout"].as_str().unwrap(), "{case}");
        let code = expected["exit_code"].as_i64().unwrap_or(-1);
        assert_eq!(i64::from(result.exit_code), code, "{case}");
        assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
        tried += 1;
    }
    assert_eq!(tried, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_finds_descendants_that_left_group_and_session() {
    let host = host().await;
    let script = "setsid sh -c 'while :; do echo tick >> ticks; sleep 0.05; done' & \
                  while ! test -s ticks; do sleep 0.05; done; sleep 300";
    let spec = ExecSpec { timeout: Some(Duration::from_secs(3)), ..ExecSpec::shell(script) };
    assert!(host.sandbox.exec(&host.alice, spec).await.unwrap().timed_out);
    let ticks = host.path("ticks");
    let mut before = host.sandbox.read(&host.alice, &ticks).await.unwrap();
    let begin = Instant::now();
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = host.sandbox.read(&host.alice, &ticks).await.unwrap();
        if now == before {
            break;
        }
        before = now;
        assert!(begin.elapsed() < Duration::from_secs(30), "it goes on");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_command_leaves_in_its_group_ends_with_it() {
    let host = host().await;
    let script = "sh -c 'while :; do sleep 0.05; done' >/dev/null 2>&1 & echo $!";
    let result = host.sandbox.exec(&host.alice, ExecSpec::shell(script)).await.unwrap();
    let stat = format!("/proc/{}/stat", result.stdout_text().trim());
    let begin = Instant::now();
    // Gone, or a zombie of an init that collects late.
    while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(begin.elapsed() < Duration::from_secs(30), "it goes on");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_sibling_with_the_same_beginning_is_another_workspace_and_links_to_it_lead_out() {
    let host = host().await;
    let evil = host.root.path().join("ws/alice-evil");
    std::fs::create_dir(&evil).unwrap();
    std::fs::write(evil.join("secret"), "of another").unwrap();
    let direct: SandboxPath = format!("{}-evil/secret", host.workspace).parse().unwrap();
    let read = async |path: &SandboxPath| host.sandbox.read(&host.alice, path).await.unwrap_err().kind();
    assert_eq!(read(&direct).await, ErrorKind::PermissionDenied);
    let inside = std::path::Path::new(host.workspace.as_str());
    symlink(&evil, inside.join("absolute")).unwrap();
    symlink("../alice-evil", inside.join("relative")).unwrap();
    for link in ["absolute", "relative"] {
        assert_eq!(read(&host.path(&format!("{link}/secret"))).await, ErrorKind::PermissionDenied, "{link}");
        let written = host.sandbox.write(&host.alice, &host.path(&format!("{link}/new")), "x".into()).await;
        assert_eq!(written.unwrap_err().kind(), ErrorKind::PermissionDenied, "{link}");
    }
    assert_eq!(std::fs::read_dir(&evil).unwrap().count(), 1);
}

#[tokio::test]
async fn an_absolute_link_into_the_workspace_is_followed() {
    let host = host().await;
    host.sandbox.write(&host.alice, &host.path("file"), "old".into()).await.unwrap();
    symlink(host.path("file").as_str(), host.path("link").as_str()).unwrap();
    assert_eq!(host.sandbox.read(&host.alice, &host.path("link")).await.unwrap(), "old");
    host.sandbox.write(&host.alice, &host.path("link"), "new".into()).await.unwrap();
    assert_eq!(host.sandbox.read(&host.alice, &host.path("file")).await.unwrap(), "new");
}

#[tokio::test]
async fn a_directory_that_becomes_a_link_while_it_is_used_leads_nowhere_else() {
    let host = host().await;
    let outside = host.root.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    let (dir, aside) = (host.path("dir"), host.path("aside"));
    host.sandbox.mkdir_all(&host.alice, &dir, 0o755).await.unwrap();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let swapping = std::thread::spawn({
        let (stop, outside) = (stop.clone(), outside.clone());
        move || {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                std::fs::rename(dir.as_str(), aside.as_str()).unwrap();
                symlink(&outside, dir.as_str()).unwrap();
                std::fs::remove_file(dir.as_str()).unwrap();
                std::fs::rename(aside.as_str(), dir.as_str()).unwrap();
            }
        }
    });
    let begin = Instant::now();
    let mut written = 0;
    while begin.elapsed() < Duration::from_secs(2) {
        let path = host.path(&format!("dir/{written}"));
        written += u32::from(host.sandbox.write(&host.alice, &path, "x".into()).await.is_ok());
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    swapping.join().unwrap();
    assert!(written > 0, "nothing was tried");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
}

#[tokio::test]
async fn a_tree_deeper_than_descriptors_and_paths_is_removed() {
    let host = host().await;
    let mut at = std::fs::File::open(host.workspace.as_str()).unwrap();
    for _ in 0..3000 {
        rustix::fs::mkdirat(&at, "d", rustix::fs::Mode::RWXU).unwrap();
        rustix::fs::mkdirat(&at, "e", rustix::fs::Mode::RWXU).unwrap();
        let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
        at = rustix::fs::openat(&at, "d", flags, rustix::fs::Mode::empty()).unwrap().into();
    }
    host.sandbox.remove_all(&host.alice, &host.path("d")).await.unwrap();
    host.sandbox.remove_all(&host.alice, &host.path("e")).await.unwrap();
    assert_eq!(host.sandbox.read_dir(&host.alice, &host.workspace).await.unwrap(), []);
}

#[tokio::test]
async fn what_cannot_be_removed_is_not_said_to_be_removed() {
    use rustix::fs::{IFlags, ioctl_setflags};
    let host = host().await;
    std::fs::create_dir(std::path::Path::new(host.workspace.as_str()).join("d")).unwrap();
    for name in ["f", "d/f"] {
        std::fs::write(std::path::Path::new(host.workspace.as_str()).join(name), "x").unwrap();
    }
    let kept = [
        std::fs::File::open(std::path::Path::new(host.workspace.as_str()).join("f")).unwrap(),
        std::fs::File::open(std::path::Path::new(host.workspace.as_str()).join("d/f")).unwrap(),
    ];
    // Only root may mark a file so (ioctl_iflags(2)), and not every file system has the mark.
    if !kept.iter().all(|file| ioctl_setflags(file, IFlags::IMMUTABLE).is_ok()) {
        let required = std::env::var("FILESECBOX_REQUIRE").unwrap_or_default();
        let is_required = required.split(',').any(|name| name.trim() == "immutable-files");
        assert!(!is_required, "this host lacks `immutable-files`, which is required");
        println!("SKIPPED: this host lacks `immutable-files`");
        return;
    }
    let mut told = Vec::new();
    for name in ["f", "d"] {
        told.push(host.sandbox.remove_all(&host.alice, &host.path(name)).await.map_err(|error| error.kind()));
    }
    kept.iter().for_each(|file| ioctl_setflags(file, IFlags::empty()).unwrap());
    assert_eq!(told, [Err(ErrorKind::PermissionDenied), Err(ErrorKind::PermissionDenied)]);
}

#[tokio::test]
async fn a_write_that_is_given_up_leaves_nothing_and_one_that_is_synced_is_there() {
    let root = tempfile::tempdir().unwrap();
    let options = NoneOptions { sync: true, ..NoneOptions::new(Root::Shared(root.path().join("mine"))) };
    let sandbox = NoneSandbox::open(options).unwrap();
    let user = UserId::parse("anybody").unwrap();
    let path = sandbox.workspace(&user).await.unwrap().join("file").unwrap();
    let begun = futures_util::stream::iter([(); 3].map(|()| Ok(vec![b'x'; 1 << 20].into())));
    let pieces = futures_util::StreamExt::chain(begun, futures_util::stream::pending());
    let write = sandbox.write_file(&user, &path, Box::pin(pieces), WriteOptions::default());
    assert!(tokio::time::timeout(Duration::from_millis(200), write).await.is_err(), "it never ends");
    // A thread that is still writing ends its piece by itself.
    let begin = Instant::now();
    while std::fs::read_dir(root.path().join("mine")).unwrap().count() > 0 {
        assert!(begin.elapsed() < Duration::from_secs(30));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    sandbox.write(&user, &path, "kept".into()).await.unwrap();
    let place = root.path().join("mine/file");
    assert_eq!(std::fs::read(&place).unwrap(), b"kept");
    assert_eq!(place.metadata().unwrap().permissions().mode() & 0o7777, 0o644);
}

#[test]
fn a_root_that_cannot_be_one_is_refused() {
    let open = |root: Root| NoneSandbox::open(NoneOptions::new(root)).unwrap_err().kind();
    assert_eq!(open(Root::Shared("/".into())), ErrorKind::Invalid);
    let file = tempfile::NamedTempFile::new().unwrap();
    assert_eq!(open(Root::PerUser(file.path().to_owned())), ErrorKind::Invalid);
}

#[tokio::test]
async fn a_launcher_stands_before_every_command_and_its_failure_is_no_result() {
    let root = tempfile::tempdir().unwrap();
    let options = NoneOptions {
        launcher: ["/bin/sh", "-c", "echo before; exec \"$@\"", "launcher"].map(str::to_owned).to_vec(),
        variables: [("A".to_owned(), "set".to_owned()), ("HOME".to_owned(), "/h".to_owned())].into(),
        ..NoneOptions::new(Root::Shared(root.path().join("w")))
    };
    let sandbox = NoneSandbox::open(options.clone()).unwrap();
    let alice = UserId::parse("alice").unwrap();
    let mut spec = ExecSpec::shell("echo $A $HOME");
    spec.environment.insert("A".to_owned(), "own".to_owned());
    for spec in [spec, ExecSpec::argv("echo", ["own", "/h"])] {
        assert_eq!(sandbox.exec(&alice, spec).await.unwrap().stdout_text(), "before\nown /h\n");
    }

    // Every way to say that it failed, and two that say nothing.
    for (script, kind) in [
        ("echo not launched $FILESECBOX_RUN 2 >&2; exit 127", Some(ErrorKind::NotFound)),
        ("echo not launched $FILESECBOX_RUN 13 >&2; exit 127", Some(ErrorKind::PermissionDenied)),
        ("echo not launched $FILESECBOX_RUN 0 >&2; exit 127", Some(ErrorKind::Internal)),
        ("echo not launched $FILESECBOX_RUN 2 >&2; exit 1", None),
        ("echo not launched other 2 >&2; exit 127", None),
    ] {
        let launcher = ["/bin/sh", "-c", script, "launcher"].map(str::to_owned).to_vec();
        let sandbox = NoneSandbox::open(NoneOptions { launcher, ..options.clone() }).unwrap();
        let ended = sandbox.exec(&alice, ExecSpec::shell("true")).await;
        assert_eq!(ended.err().map(|error| error.kind()), kind, "{script}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn renames_elsewhere_disturb_no_path_with_dots() {
    let host = host().await;
    let file = host.path("file");
    host.sandbox.write(&host.alice, &file, "bytes".into()).await.unwrap();
    host.sandbox.mkdir_all(&host.alice, &host.path("a/b"), 0o755).await.unwrap();
    symlink("../../file", host.root.path().join("ws/alice/a/b/link")).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let (one, other) = (elsewhere.path().join("one"), elsewhere.path().join("other"));
    std::fs::write(&one, "").unwrap();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let link = host.path("a/b/link");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                std::fs::rename(&one, &other).unwrap();
                std::fs::rename(&other, &one).unwrap();
            }
        });
        let runtime = tokio::runtime::Handle::current();
        let read = tokio::task::block_in_place(|| {
            runtime.block_on(async {
                for _ in 0..3000 {
                    host.sandbox.read(&host.alice, &link).await?;
                }
                Ok::<_, sandbox::Error>(())
            })
        });
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        read.unwrap();
    });
}

/// The processes whose command line begins so.
fn running(beginning: &[u8]) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    lines.filter(|line| line.starts_with(beginning)).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_given_up_finds_a_descendant_that_becomes_another_program_just_then() {
    let host = host().await;
    // What has left its group already has no environment to be known by while it becomes another program.
    let script = "for number in 1 2 3 4 5 6 7 8; do setsid sleep 98765 & done; exec sleep 60";
    for attempt in 0..200 {
        let patience = Duration::from_micros(1000 + 150 * (attempt % 100));
        let asked = host.sandbox.exec(&host.alice, ExecSpec::shell(script));
        assert!(tokio::time::timeout(patience, asked).await.is_err());
    }
    let begun = Instant::now();
    while running(b"sleep\098765") + running(b"setsid\0sleep\098765") > 0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "{} are left", running(b"sleep\098765"));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn the_keys_of_a_terminal_are_signals() {
    let host = host().await;
    let script = "trap 'exit 9' INT; echo ready; while :; do sleep 0.05; done";
    let spec = LiveSpec {
        command: ExecSpec { timeout: Some(Duration::from_secs(20)), ..ExecSpec::shell(script) },
        stdin_open: true,
        terminal: Some(WindowSize { rows: 24, cols: 80 }),
    };
    let mut run = host.sandbox.begin(&host.alice, spec).await.unwrap();
    run.output.recv().await.unwrap();
    run.input.send(Input::Bytes("\u{3}".into())).await.unwrap();
    while run.output.recv().await.is_some() {}
    let ended = run.end.wait().await.unwrap();
    assert_eq!((ended.exit_code, ended.timed_out), (9, false));
}

#[test]
fn so_they_are_where_this_process_was_started_with_them_ignored() {
    let again = "trap '' INT QUIT; exec \"$0\" --exact none::the_keys_of_a_terminal_are_signals";
    let mut shell = std::process::Command::new("/bin/sh");
    let ran = shell.args(["-c", again]).arg(std::env::current_exe().unwrap()).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_reach_of_the_machine_files_outside_are_used_and_the_workspace_stays() {
    let root = tempfile::tempdir().unwrap();
    let place = root.path().canonicalize().unwrap();
    let options = |reach| NoneOptions { reach, ..NoneOptions::new(Root::Shared(place.join("w"))) };
    let alice = UserId::parse("alice").unwrap();
    std::fs::create_dir(place.join("out")).unwrap();
    std::fs::write(place.join("out/file"), "outside").unwrap();
    let held = NoneSandbox::open(options(Reach::Workspace)).unwrap();
    let free = NoneSandbox::open(options(Reach::Machine)).unwrap();
    symlink(place.join("out"), place.join("w/link")).unwrap();
    symlink(&place, place.join("out/up")).unwrap();
    let workspace = free.workspace(&alice).await.unwrap();
    let path = |text: &str| workspace.join(text).unwrap();
    for text in ["../out/file", "link/file"] {
        let refused = held.read(&alice, &path(text)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{text}");
        assert_eq!(free.read(&alice, &path(text)).await.unwrap(), "outside", "{text}");
    }
    free.write(&alice, &path("link/new"), "new".into()).await.unwrap();
    assert_eq!(std::fs::read_to_string(place.join("out/new")).unwrap(), "new");
    let there = ExecSpec { directory: Some(path("../out")), ..ExecSpec::shell("pwd") };
    assert_eq!(
        free.exec(&alice, there).await.unwrap().stdout_text().trim(),
        place.join("out").to_str().unwrap()
    );
    for text in ["", "..", "/", "../out/up/w", "link/up"] {
        if text == "link/up" {
            // The link itself, which holds nothing.
            free.remove_all(&alice, &path(text)).await.unwrap();
            continue;
        }
        for removed in [free.remove(&alice, &path(text)).await, free.remove_all(&alice, &path(text)).await] {
            assert_eq!(removed.unwrap_err().kind(), ErrorKind::Invalid, "{text}");
        }
    }
    free.remove_all(&alice, &path("../out")).await.unwrap();
    assert!(!place.join("out").exists() && place.join("w").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_is_found_in_the_path_that_its_command_has() {
    let host = host().await;
    let (first, second) = (host.root.path().join("first"), host.root.path().join("second"));
    let program = |directory: &std::path::Path, text: &str| {
        std::fs::create_dir_all(directory).unwrap();
        std::fs::write(directory.join("tool"), text).unwrap();
        std::fs::set_permissions(directory.join("tool"), PermissionsExt::from_mode(0o755)).unwrap();
    };
    program(&second, "#!/bin/sh\necho second \"$0\" \"$1\"\n");
    // One without an interpreter is a script of the shell to execvp(3).
    program(&first, "echo first $1\n");
    let run = async |path: String| {
        let mut spec = ExecSpec::argv("tool", ["word"]);
        spec.environment.insert("PATH".to_owned(), path);
        host.sandbox.exec(&host.alice, spec).await
    };
    let (first, second) = (first.display().to_string(), second.display().to_string());
    let told = run(format!("{second}:{first}:/bin:/usr/bin")).await.unwrap();
    assert_eq!(told.stdout_text(), format!("second {second}/tool word\n"));
    let told = run(format!("{first}:{second}:/bin:/usr/bin")).await.unwrap();
    assert_eq!(told.stdout_text(), "first word\n");
    let none = run("/nowhere".to_owned()).await.unwrap_err();
    assert_eq!(none.kind(), ErrorKind::NotFound);
    // A program sees the name by which it was called.
    let spec = ExecSpec::argv("cat", ["/proc/self/cmdline"]);
    let told = host.sandbox.exec(&host.alice, spec).await.unwrap();
    assert_eq!(told.stdout_text(), "cat\0/proc/self/cmdline\0");
}
