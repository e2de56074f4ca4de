//! The program at a terminal: what its help teaches, what `doctor` finds, skills end to end, starting and stopping.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{
    Service, Settings, assert_gone, children_of, granted, is_root, program, run_program, skill, skill_zip,
    workspace,
};

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn help_names_every_command_and_what_it_needs() {
    for (args, lines) in [
        (
            &["--help"][..],
            &[
                "serve",
                "doctor",
                "skill",
                "--listen",
                "--root",
                "--config",
                "FILESECBOX_TOKEN",
                "127.0.0.1:8003",
                "./data",
            ][..],
        ),
        (
            &["serve", "--help"],
            &["--listen", "--durability", "--allow-anonymous", "strict", "relaxed", "FILESECBOX_ROOT"],
        ),
        (&["doctor", "--help"], &["--root", "--config", "what this host grants"]),
        (&["health", "--help"], &["--url", "--listen", "--config", "exits with 1"]),
        (&["skill", "--help"], &["upload", "list", "download", "rm"]),
        (
            &["skill", "upload", "--help"],
            &[
                "--scope",
                "baseline",
                "overlay",
                "--charset",
                "--dry-run",
                "FILE|DIR",
                "--user",
                "--agent",
                "FILESECBOX_SERVER",
            ],
        ),
        (&["skill", "list", "--help"], &["--json", "--user"]),
        (&["skill", "download", "--help"], &["--output", "standard output"]),
        (&["skill", "rm", "--help"], &["--scope", "baseline"]),
        (&["workspace", "--help"], &["list", "usage", "rm"]),
        (&["workspace", "rm", "--help"], &["--force", "--snapshots", "skills stay"]),
        (&["exec", "--help"], &["--skill", "--shell", "--stdin", "exit as it did"]),
        (&["edit", "--help"], &["--old", "--new", "--from", "--editor", "EDITOR"]),
        (&["diff", "--help"], &["as a patch", "--json"]),
        (&["rollback", "--help"], &["for all users", "[VERSION]"]),
        (&["user", "--help"], &["list", "show", "delete"]),
        (&["user", "delete", "--help"], &["--yes", "snapshots"]),
        (&["--version"], &[env!("CARGO_PKG_VERSION")]),
    ] {
        let output = run_program(args, &[("FILESECBOX_TOKEN", "never-shown")]);
        assert!(output.status.success(), "{args:?}");
        let told = stdout(&output);
        for line in lines {
            assert!(told.contains(line), "{args:?} lacks `{line}`: {told}");
        }
        assert!(!told.contains("never-shown"), "{args:?} shows a token: {told}");
        assert!(!told.contains("launcher"), "{args:?} shows what is hidden: {told}");
    }
}

#[test]
fn a_wrong_command_line_is_named() {
    for (args, hint) in [
        (&["--lissten", "x"][..], "--listen"),
        (&["serve", "--listen", "localhost"], "localhost"),
        (&["serve", "--listen", "127.0.0.1:99999"], "99999"),
        (&["skill", "upload", "x.zip"], "--user"),
        (&["skill", "upload", "-u", "u", "-a", "a", "--scope", "all", "x.zip"], "overlay"),
        (&["frobnicate"], "frobnicate"),
    ] {
        let output = run_program(args, &[]);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).contains(hint), "{args:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_configuration_that_cannot_be_used_is_refused_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c.toml");
    let config = path.to_str().unwrap();
    let root = dir.path().join("data");
    for (text, hint) in [
        ("lissten = \"127.0.0.1:1\"", "lissten"),
        ("[limits.runs]\ntimeout = 1", "timeout"),
        ("[isolation]\nminimum = \"vm\"", "vm"),
        ("root = ", "line 1"),
        ("[commands]\nextra = [\"/bin/ls\"]", "commands"),
        ("[commands.environment]\nSECRET_X = \"1\"", "SECRET_X"),
    ] {
        std::fs::write(&path, text).unwrap();
        for command in ["serve", "doctor"] {
            if command == "doctor" && text.contains("SECRET") {
                continue;
            }
            let output = run_program(
                &[command, "--config", config, "--listen", "127.0.0.1:0", "--root", root.to_str().unwrap()],
                &[],
            );
            assert_eq!(output.status.code(), Some(1), "{command} {text}: {}", stdout(&output));
            assert!(stderr(&output).contains(hint), "{command} {text}: {}", stderr(&output));
        }
    }
    let output = run_program(&["serve", "--config", "/nonexistent/c.toml"], &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("/nonexistent/c.toml"), "{}", stderr(&output));
    assert!(!root.exists(), "a refused start makes nothing");
}

#[test]
fn the_command_line_counts_more_than_the_environment_and_that_more_than_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("c.toml");
    let place = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(&config, format!("root = {:?}", place("file"))).unwrap();
    let config = config.to_str().unwrap();
    let shown =
        |args: &[&str], env: &[(&str, &str)]| stdout(&run_program(&[&["doctor"], args].concat(), env));
    let environment = place("environment");
    let env = [("FILESECBOX_CONFIG", config), ("FILESECBOX_ROOT", environment.as_str())];
    assert!(shown(&[], &env[..1]).contains(&place("file")));
    assert!(shown(&[], &env).contains(&environment));
    assert!(shown(&["--root", &place("argument")], &env).contains(&place("argument")));
}

#[test]
fn a_root_that_may_make_no_root_of_a_user_namespace_gives_runs_ids_of_their_own_all_the_same() {
    if !is_root() || !granted("setpriv", Path::new("/usr/bin/setpriv").exists()) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // What docs/DEPLOYMENT.md gives a container of root; without CAP_SETFCAP the kernel maps no root.
    let bounds = "--bounding-set=-all,+chown,+dac_override,+fowner,+kill,+setgid,+setuid";
    let mut command = Command::new("/usr/bin/setpriv");
    command.args([bounds, "--inh-caps=-all", "--no-new-privs", env!("CARGO_BIN_EXE_filesecbox"), "doctor"]);
    let output = command.arg("--root").arg(dir.path().join("data")).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    let line = |word: &str| told.lines().find(|line| line.starts_with(word)).unwrap_or_default().to_owned();
    assert!(line("tier").contains(" landlock"), "{told}");
    assert!(line("identity").ends_with(" enforced"), "{told}");
}

#[test]
fn the_doctor_says_whether_the_service_can_start_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("data");
    let doctor = |args: &[&str]| {
        program().arg("doctor").args(["--root", root.to_str().unwrap()]).args(args).output().unwrap()
    };
    let output = doctor(&[]);
    let told = stdout(&output);
    for line in ["data directory", "tier", "landlock", "system calls", "network", "tried"] {
        assert!(told.contains(line), "lacks `{line}`: {told}");
    }
    let verdict = if output.status.success() { "The service can start here." } else { "cannot start here" };
    assert!(told.contains(verdict), "{told}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");

    // More than the configuration itself allows.
    let config = dir.path().join("c.toml");
    std::fs::write(&config, "[isolation]\nminimum = \"namespaces\"\nmaximum = \"landlock\"\n").unwrap();
    let output = doctor(&["--config", config.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stdout(&output).contains("BELOW") && stdout(&output).contains("cannot start here"),
        "{}",
        stdout(&output)
    );

    std::fs::write(&root, "a file").unwrap();
    let output = doctor(&[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("NOT USABLE") || !stderr(&output).is_empty(), "{}", stdout(&output));
}

#[test]
fn the_health_of_a_service_is_told_by_an_exit_status_and_needs_no_token() {
    let mut service = Service::with(Settings {
        listen: Some("0.0.0.0:0".to_owned()),
        env: vec![("FILESECBOX_TOKEN".to_owned(), "t".to_owned())],
        ..Settings::default()
    });
    let url = format!("http://{}", service.client.address);
    let everywhere = format!("0.0.0.0:{}", service.client.address.port());
    for (args, env) in [
        (&["health", "--url", &url][..], &[][..]),
        (&["health", "--listen", &everywhere], &[]),
        (&["health"], &[("FILESECBOX_LISTEN", everywhere.as_str())]),
    ] {
        let output = run_program(args, env);
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        assert_eq!(stdout(&output), format!("{url} serves\n"));
    }
    service.terminate();
    service.wait();
    let output = run_program(&["health", "--url", &url], &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("is it running?"), "{}", stderr(&output));
}

#[test]
fn a_port_that_says_something_else_or_nothing_is_not_healthy() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 1024]);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
        drop(stream);
        // The second caller is never answered.
        let silent = listener.accept().unwrap();
        (listener, silent)
    });
    let output = run_program(&["health", "--url", &url], &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("is it a filesecbox?"), "{}", stderr(&output));
    let begun = Instant::now();
    let output = run_program(&["health", "--url", &url], &[]);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    other.join().unwrap();
}

/// A call of `filesecbox skill` against a service.
fn call(service: &Service, args: &[&str]) -> Output {
    call_of("skill", service, args)
}

/// A call of `filesecbox` against a service.
fn call_of(what: &str, service: &Service, args: &[&str]) -> Output {
    let server = format!("http://{}", service.client.address);
    let mut command = program();
    command.current_dir(service.outside()).arg(what).args(args);
    command.env("FILESECBOX_SERVER", server).env("FILESECBOX_USER", "张三").env("FILESECBOX_AGENT", "代理");
    if let Some(token) = &service.client.token {
        command.env("FILESECBOX_TOKEN", token);
    }
    command.output().unwrap()
}

#[test]
fn skills_go_up_are_listed_come_down_and_are_removed() {
    let service = Service::start();
    let archive = skill_zip("报表", &[("数据/表.csv", "a,b\n")]);
    std::fs::write(service.outside().join("报表.zip"), &archive).unwrap();

    let output = call(&service, &["upload", "--scope", "baseline", "报表.zip"]);
    assert_eq!(
        stdout(&output),
        "Upload successful: skill '报表' to 'baseline/代理/报表'\n",
        "{}",
        stderr(&output)
    );
    let output = call(&service, &["upload", "报表.zip"]);
    assert_eq!(stdout(&output), "Upload successful: skill '报表' to 'overlay/张三/代理/报表'\n");

    let output = call(&service, &["list"]);
    let list = stdout(&output);
    assert!(list.contains("报表: about 报表"), "{list}");
    let list: serde_json::Value =
        serde_json::from_str(&stdout(&call(&service, &["list", "--json"]))).unwrap();
    assert_eq!(list[0]["skill_id"], "报表");

    let output = call(&service, &["download", "报表"]);
    assert_eq!(stdout(&output), "Saved 报表.zip\n", "{}", stderr(&output));
    let saved = std::fs::read(service.outside().join("报表.zip")).unwrap();
    let output = call(&service, &["download", "报表", "--output", "-"]);
    assert!(output.stdout == saved, "standard output has the same bytes");
    assert!(saved.starts_with(b"PK\x03\x04"));
    assert_eq!(service.client.files(&skill("张三", "代理", "报表")), ["SKILL.md", "数据/表.csv"]);

    assert_eq!(stdout(&call(&service, &["rm", "报表"])), "Skill '报表' removed from 'overlay'\n");
    assert_eq!(stdout(&call(&service, &["list"])), "");
    let output = call(&service, &["rm", "--scope", "baseline", "报表"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let left: Vec<_> =
        std::fs::read_dir(service.outside()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("part")), "{left:?}");
}

#[test]
fn a_folder_goes_up_as_it_is_and_says_what_was_odd() {
    let service = Service::start();
    let folder = service.outside().join("我的 repo");
    let write = |path: &str, text: &str| {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let long = "l".repeat(150);
    write(".git/config", "secret");
    write("README.md", "# Repository\n");
    write("skills/pdf/SKILL.md", "---\nname: pdf\ndescription: d\nversion: 1\n---\n");
    write(&format!("skills/pdf/数据/{long}.txt"), "long");
    write("skills/pdf/run.sh", "#!/bin/sh\n");
    use std::os::unix::fs::{PermissionsExt, symlink};
    std::fs::set_permissions(folder.join("skills/pdf/run.sh"), PermissionsExt::from_mode(0o755)).unwrap();
    symlink("SKILL.md", folder.join("skills/pdf/AGENTS.md")).unwrap();
    symlink("/etc/passwd", folder.join("CLAUDE.md")).unwrap();

    let output = call(&service, &["upload", "--dry-run", "我的 repo"]);
    assert_eq!(
        stdout(&output),
        "Dry run, nothing was uploaded: skill 'pdf' to 'overlay/张三/代理/pdf'\n",
        "{output:?}"
    );
    assert_eq!(stdout(&call(&service, &["list"])), "");
    let output = call(&service, &["upload", "./我的 repo/"]);
    assert_eq!(stdout(&output), "Upload successful: skill 'pdf' to 'overlay/张三/代理/pdf'\n", "{output:?}");
    let told = stderr(&output);
    for line in [
        "pdf: warning: the front matter has fields",
        "skipped: 我的 repo/CLAUDE.md (link)",
        "README.md (beside skills)",
    ] {
        assert!(told.contains(line), "{told}");
    }
    assert!(!told.contains(".git"), "{told}");
    let tree = skill("张三", "代理", "pdf");
    let file = format!("数据/{long}.txt");
    assert_eq!(service.client.files(&tree), ["AGENTS.md", "SKILL.md", "run.sh", &file]);
    let ran = service.client.execute(&tree, "bash", &["-c", "test -x run.sh && cat AGENTS.md"]);
    assert!(ran["result"]["stdout"].as_str().unwrap().contains("name: pdf"), "{ran}");

    // A skill's own folder, from within.
    let server = format!("http://{}", service.client.address);
    let mut command = program();
    command.current_dir(folder.join("skills/pdf")).args(["skill", "upload", "."]);
    command.env("FILESECBOX_SERVER", server).env("FILESECBOX_USER", "李四").env("FILESECBOX_AGENT", "代理");
    assert_eq!(
        stdout(&command.output().unwrap()),
        "Upload successful: skill 'pdf' to 'overlay/李四/代理/pdf'\n"
    );

    symlink("/etc/passwd", folder.join("skills/pdf/out")).unwrap();
    let output = call(&service, &["upload", "我的 repo"]);
    assert!(!output.status.success() && stderr(&output).contains("skills/pdf/out"), "{output:?}");
    let output = call(&service, &["upload", "gone"]);
    assert!(!output.status.success() && stderr(&output).contains("gone"), "{output:?}");
    assert!(!stderr(&output).contains("cannot be reached"), "{output:?}");
}

#[test]
fn what_is_larger_than_an_upload_may_be_is_refused_before_it_is_sent() {
    let service = Service::configured("[limits.archive]\nupload_bytes = 100000\n");
    let folder = service.outside().join("big");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("SKILL.md"), "x".repeat(200_000)).unwrap();
    for path in ["big", "big/SKILL.md"] {
        let output = call(&service, &["upload", path]);
        let told = stderr(&output);
        assert!(!output.status.success() && told.contains("at most 100000 in one upload"), "{told}");
    }
}

#[test]
fn workspaces_are_listed_measured_and_removed() {
    let service = Service::start();
    for agent in ["代理", "x"] {
        service.client.write(&workspace("张三", agent), "f", &"x".repeat(10_000));
    }
    let list = stdout(&call_of("workspace", &service, &["list"]));
    assert_eq!(list.lines().count(), 2, "{list}");
    assert!(list.contains("张三/代理: runs 0, terminals 0, snapshots 0"), "{list}");
    let usage = stdout(&call_of("workspace", &service, &["usage"]));
    assert!(usage.lines().next().unwrap().ends_with("workspace and home"), "{usage}");
    let usage = stdout(&call_of("workspace", &service, &["usage", "--json"]));
    let usage: serde_json::Value = serde_json::from_str(&usage).unwrap();
    assert!(usage["taken"]["bytes"].as_u64().unwrap() >= 10_000, "{usage}");
    // Whom it is about is never taken from the environment.
    assert_eq!(call_of("workspace", &service, &["rm"]).status.code(), Some(2));
    let removed = call_of("workspace", &service, &["rm", "-u", "张三", "-a", "x"]);
    assert_eq!(stdout(&removed), "Workspace of '张三' with 'x' removed\n", "{}", stderr(&removed));
    let removed = call_of("workspace", &service, &["rm", "-u", "张三", "--force", "--snapshots"]);
    assert_eq!(stdout(&removed), "1 workspaces removed\n", "{}", stderr(&removed));
    assert_eq!(stdout(&call_of("workspace", &service, &["list"])), "");
}

#[test]
fn a_call_that_fails_says_why_and_what_to_do() {
    let mut service = Service::start();
    std::fs::write(service.outside().join("bad.zip"), "no archive").unwrap();
    for (args, hint) in [
        (&["upload", "bad.zip"][..], "bad_archive"),
        (&["upload", "none.zip"], "none.zip"),
        (&["download", "none"], "not_found"),
        (&["rm", "none"], "not_found"),
        (&["download", ".."], "begins with a dot"),
    ] {
        let output = call(&service, args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(
            stderr(&output).starts_with("filesecbox: ") && stderr(&output).contains(hint),
            "{args:?}: {}",
            stderr(&output)
        );
        assert!(output.stdout.is_empty(), "{args:?}");
    }
    assert!(!service.outside().join("none.zip").exists(), "a failed download leaves nothing");
    service.terminate();
    service.wait();
    let output = call(&service, &["list"]);
    assert!(stderr(&output).contains("is it running?"), "{}", stderr(&output));
    let closed = Service::with(Settings {
        env: vec![("FILESECBOX_TOKEN".to_owned(), "t".to_owned())],
        ..Settings::default()
    });
    assert!(stderr(&call(&closed, &["list"])).contains("unauthenticated"));
}

#[test]
fn a_second_service_on_the_same_directory_is_refused() {
    let service = Service::start();
    service.client.write(&workspace("u", "a"), "f", "x");
    let root = service.root.to_str().unwrap();
    let output = run_program(&["serve", "--listen", "127.0.0.1:0", "--root", root], &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("another filesecbox uses this data directory"), "{}", stderr(&output));
    assert_eq!(service.client.text(&workspace("u", "a"), "f"), "x");
    let taken = service.client.address.to_string();
    let other = service.outside().join("other");
    let output = run_program(&["serve", "--listen", &taken, "--root", other.to_str().unwrap()], &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains(&taken), "{}", stderr(&output));
}

/// Starts a run that waits for a file, and returns when it has begun.
fn begin_run(service: &Service, script: &str) -> std::net::TcpStream {
    let tree = workspace("u", "stopping");
    let body = json!(["-c", script]).to_string();
    let mut stream = service.client.connect();
    let host = service.client.address;
    let head = format!(
        "POST {tree}/execute?command=bash HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let begun = service.root.join("sandbox/u/stopping/begun");
    // What a shell makes is empty first.
    while std::fs::read(&begun).unwrap_or_default() != b"x\n" {
        std::thread::sleep(Duration::from_millis(5));
    }
    stream
}

fn answer(mut stream: std::net::TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn sigterm_lets_a_run_finish_and_answers_it() {
    let mut service = Service::start();
    let stream =
        begin_run(&service, "echo x > begun; while [ ! -e stop ]; do sleep 0.05; done; echo finished");
    let processes = children_of(service.pid());
    assert!(!processes.is_empty());
    service.terminate();
    // It still runs. What reads is answered, and no further run begins.
    let (client, tree) = (&service.client, workspace("u", "stopping"));
    let begin = Instant::now();
    let told = loop {
        let ready = client.get("/readyz");
        if ready.status != 200 {
            break ready.refused(503, "disconnected");
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "the service does not say that it stops");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!((&told["stopping"], &told["disk"]), (&json!(true), &json!(true)), "{told}");
    assert_eq!(client.text(&tree, "begun"), "x\n");
    client.get("/healthz").ok();
    client.try_execute(&tree, "ls", &[]).refused(503, "disconnected");
    std::fs::write(service.root.join("sandbox/u/stopping/stop"), "").unwrap();
    assert!(answer(stream).contains("finished"));
    assert_eq!(service.wait().code(), Some(0));
    assert_gone(&processes);
}

#[test]
fn sigterm_kills_what_does_not_end_and_leaves_no_process() {
    let mut service = Service::configured("shutdown_ms = 100\n");
    let stream = begin_run(&service, "(setsid sleep 1000 &); echo partial; echo x > begun; sleep 1000; true");
    // The launcher, bash and what bash waits for.
    let mut processes = children_of(service.pid());
    while processes.len() < 3 {
        std::thread::sleep(Duration::from_millis(5));
        processes = children_of(service.pid());
    }
    service.terminate();
    let text = answer(stream);
    assert!(text.starts_with("HTTP/1.1 200") && text.contains("Exit Code: -1\\n"), "{text}");
    assert!(text.contains("\"stdout\":\"partial\\n\""), "{text}");
    assert!(text.contains("the service is stopping and ended the run"), "{text}");
    assert_eq!(service.wait().code(), Some(0));
    assert_gone(&processes);
}

#[test]
fn a_service_that_is_killed_leaves_no_run_and_the_next_one_starts() {
    let mut service = Service::start();
    let _stream = begin_run(&service, "(setsid sleep 1000 &); echo x > begun; sleep 1000; true");
    let processes = children_of(service.pid());
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(i32::try_from(service.pid()).unwrap()).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    service.wait();
    assert_gone(&processes);
    let next = Service::with(Settings { root: Some(service.root.clone()), ..Settings::default() });
    assert_eq!(next.client.text(&workspace("u", "stopping"), "begun"), "x\n");
    let run = next.client.execute(&workspace("u", "stopping"), "cat", &["begun"]);
    assert_eq!(run["result"]["stdout"], "x\n");
}

#[test]
fn an_interrupt_stops_the_service_as_well() {
    let mut service = Service::start();
    let pid = service.pid().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    assert_eq!(service.wait().code(), Some(0));
}

/// The program against a service, as `u` with agent `a`.
fn asked(service: &Service, args: &[&str]) -> Output {
    let server = format!("http://{}", service.client.address);
    let env = [("FILESECBOX_SERVER", server.as_str()), ("FILESECBOX_USER", "u"), ("FILESECBOX_AGENT", "a")];
    run_program(args, &env)
}

#[test]
fn a_command_is_run_and_its_output_and_exit_code_are_those_of_the_program() {
    let service = Service::start();
    service.client.upload("/v1/skills/u/a", "baseline", &skill_zip("s", &[("f.txt", "in the skill\n")]));
    let ran = asked(&service, &["exec", "--shell", "echo out; echo err >&2; exit 7"]);
    assert_eq!((stdout(&ran), ran.status.code()), ("out\n".to_owned(), Some(7)));
    assert!(stderr(&ran).starts_with("err\n"), "{}", stderr(&ran));
    let ran = asked(&service, &["exec", "--skill", "s", "--", "cat", "f.txt"]);
    assert_eq!((stdout(&ran), ran.status.code()), ("in the skill\n".to_owned(), Some(0)));
    let ran = asked(&service, &["exec", "--skills", "all", "--", "cat", "skills/s/f.txt"]);
    assert_eq!(stdout(&ran), "in the skill\n", "{}", stderr(&ran));
    // Bytes that are no text come as they are.
    let ran = asked(&service, &["exec", "--shell", "printf '\\377\\000x'"]);
    assert_eq!(ran.stdout, b"\xff\0x");
    let ran = asked(&service, &["exec", "--timeout-ms", "200", "--shell", "echo begun; sleep 60"]);
    assert_eq!((stdout(&ran), ran.status.code()), ("begun\n".to_owned(), Some(124)));
    let ran = asked(&service, &["exec", "--", "perl"]);
    assert_eq!(ran.status.code(), Some(1));
    assert!(stderr(&ran).contains("command_not_allowed"), "{}", stderr(&ran));
    assert_eq!(asked(&service, &["exec"]).status.code(), Some(2));
    assert_eq!(asked(&service, &["exec", "--shell", "ls", "--", "ls"]).status.code(), Some(2));
}

#[test]
fn a_text_is_edited_and_the_change_shown_and_an_older_version_comes_back() {
    let service = Service::start();
    let client = &service.client;
    for text in ["one\n", "two\n"] {
        client.upload("/v1/skills/u/a", "baseline", &skill_zip("s", &[("f.txt", text)]));
    }
    let edit = |rest: &[&str]| asked(&service, &[&["edit"], rest].concat());
    // In the workspace, from a file; with a replacement; in an editor.
    let file = service.outside().join("text");
    std::fs::write(&file, "new\n").unwrap();
    let done = edit(&["notes.md", "--from", file.to_str().unwrap()]);
    assert!(done.status.success(), "{}", stderr(&done));
    assert!(edit(&["notes.md", "--old", "new", "--new", "newer"]).status.success());
    assert!(edit(&["notes.md", "--editor", "sed -i s/newer/newest/"]).status.success());
    assert_eq!(client.text(&workspace("u", "a"), "notes.md"), "newest\n");
    assert_eq!(stdout(&edit(&["notes.md", "--editor", "true"])), "Nothing changed.\n");
    let failed = edit(&["notes.md", "--editor", "false"]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(stderr(&failed).contains("nothing was changed"), "{}", stderr(&failed));
    // What another changes meanwhile is not overwritten.
    let url = format!("http://{}/v1/sandbox/u/a/edit?path=notes.md", client.address);
    let rival = service.outside().join("rival");
    std::fs::write(&rival, format!("curl -s -X PUT --data-binary theirs {url}\necho mine > \"$1\"\n"))
        .unwrap();
    let refused = edit(&["notes.md", "--editor", &format!("sh {}", rival.display())]);
    assert_eq!(refused.status.code(), Some(1), "{}", stdout(&refused));
    assert!(stderr(&refused).contains("stale"), "{}", stderr(&refused));
    assert_eq!(client.text(&workspace("u", "a"), "notes.md"), "theirs");

    assert!(edit(&["f.txt", "--skill", "s", "--old", "two", "--new", "mine"]).status.success());
    let shown = stdout(&asked(&service, &["diff", "s"]));
    assert!(shown.contains("--- a/f.txt\n+++ b/f.txt\n") && shown.contains("-two\n+mine\n"), "{shown}");
    client.post(format!("{}/reset", skill("u", "a", "s")), "").ok();
    assert_eq!(stdout(&asked(&service, &["diff", "s"])), "");

    let kept = stdout(&asked(&service, &["rollback", "s"]));
    let versions: Vec<&str> = kept.lines().collect();
    assert!(versions.len() == 2 && versions[0].ends_with("current"), "{kept}");
    let former = versions[1].split(' ').next().unwrap();
    assert!(asked(&service, &["rollback", "s", former]).status.success());
    assert_eq!(client.text(&skill("u", "a", "s"), "f.txt"), "one\n");
}

#[test]
fn a_share_link_is_made_listed_and_revoked() {
    let service = Service::configured("[shares]\nenabled = true\n");
    service.client.upload("/v1/skills/u/a", "baseline", &skill_zip("s", &[("f", "x")]));
    let made = asked(
        &service,
        &["share", "make", "-u", "u", "-a", "a", "--ttl", "1h", "--note", "for the page", "s"],
    );
    let link = stdout(&made);
    let target = link.trim_end().strip_prefix(&format!("http://{}", service.client.address)).unwrap();
    assert!(String::from_utf8_lossy(service.client.get(target).bytes(200)).contains("\"name\":\"s\""));
    let listed = stdout(&asked(&service, &["share", "list", "-u", "u", "-a", "a"]));
    let (id, rest) = listed.split_once("  ").unwrap();
    assert!(
        rest.starts_with("user: s, by anonymous, until 2") && rest.contains("(for the page)"),
        "{listed}"
    );
    assert!(stderr(&made).contains(id));
    assert!(asked(&service, &["share", "revoke", "-u", "u", "-a", "a", id]).status.success());
    assert_eq!(service.client.get(target).status, 404);
}

#[test]
fn users_are_listed_shown_and_removed_only_when_that_is_meant() {
    let service = Service::start();
    for user in ["alice", "bob"] {
        service.client.write(&workspace(user, "demo"), "a", "x");
    }
    assert_eq!(stdout(&asked(&service, &["user", "list"])), "alice\nbob\n");
    let shown = stdout(&asked(&service, &["user", "show", "alice"]));
    assert!(shown.contains("demo: skills 0, workspace yes"), "{shown}");
    let unsure = asked(&service, &["user", "delete", "alice"]);
    assert_eq!(unsure.status.code(), Some(1));
    assert!(stdout(&unsure).contains("--yes"), "{}", stdout(&unsure));
    assert_eq!(stdout(&asked(&service, &["user", "list"])), "alice\nbob\n");
    let removed = asked(&service, &["user", "delete", "alice", "--yes"]);
    assert_eq!(stdout(&removed), "User 'alice' removed\n");
    assert_eq!(stdout(&asked(&service, &["user", "list"])), "bob\n");
    assert_eq!(asked(&service, &["user", "show", "alice"]).status.code(), Some(1));
}
