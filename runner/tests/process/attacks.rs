//! What commands try in a runner that confines them. Each is tried without walls as well, where it must succeed: else it would prove
//! nothing.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

use serde_json::json;

use crate::support::{Place, Service, program};

/// What a script of an attack names.
struct Names {
    place: Place,
    runner: u32,
}

impl Names {
    fn fill(&self, script: &str) -> String {
        script
            .replace("OUT", self.place.path("").to_str().unwrap().trim_end_matches('/'))
            .replace("RUNNER", &self.runner.to_string())
    }
}

/// Runs `script` with walls, where it must fail, and without, where it must succeed. `OUT` is the directory around the workspace.
async fn attack(script: &str) {
    for (isolation, succeeds) in [("landlock", false), ("none", true)] {
        let (place, service) = (Place::new(), Service::listen().await);
        let _listener = UnixListener::bind(place.path("socket")).unwrap();
        let runner = place.runner(&service.url(), &["--isolation", isolation]).spawn().unwrap();
        let mut connection = service.take().await;
        let names = Names { place, runner: runner.id().unwrap() };
        let (code, stdout, stderr) = connection.run(&names.fill(script)).await;
        assert_eq!(code == 0, succeeds, "{isolation}: {script}: {code} {stdout} {stderr}");
        assert!(succeeds || !stdout.contains("secret"), "{isolation}: {script}: {stdout}");
        assert_eq!(names.place.path("made").exists(), succeeds && script.contains("OUT/made"));
    }
}

#[tokio::test]
async fn reading_the_keys_in_the_home() {
    attack("cat OUT/home/.ssh/id").await;
}

#[tokio::test]
async fn listing_the_home() {
    attack("ls OUT/home").await;
}

#[tokio::test]
async fn reading_a_sibling_with_the_same_prefix() {
    attack("cat ../w-evil/s").await;
}

#[tokio::test]
async fn reading_through_a_link_that_leaves() {
    attack("ln -s OUT/home link; cat link/.ssh/id").await;
}

#[tokio::test]
async fn reading_through_a_hard_link_to_outside() {
    attack("ln OUT/home/.ssh/id here && cat here").await;
}

#[tokio::test]
async fn moving_a_file_of_outside_into_the_workspace() {
    attack("mv OUT/w-evil/s . && cat s").await;
}

#[tokio::test]
async fn writing_outside() {
    attack("echo x > OUT/made").await;
}

#[tokio::test]
async fn writing_outside_through_the_root_of_a_process() {
    attack("echo x > /proc/self/root/OUT/made").await;
}

#[tokio::test]
async fn removing_outside() {
    attack("rm OUT/home/.ssh/id").await;
}

#[tokio::test]
async fn signalling_the_runner() {
    attack("kill -0 RUNNER").await;
}

#[tokio::test]
async fn connecting_to_a_socket_of_a_file() {
    if program("/usr/bin/python3") {
        attack("/usr/bin/python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"OUT/socket\")'")
            .await;
    }
}

#[tokio::test]
async fn setting_limits_of_the_runner() {
    if program("/usr/bin/prlimit") {
        attack("prlimit --pid RUNNER --core=0").await;
    }
}

#[tokio::test]
async fn looking_into_the_runner() {
    let (place, service) = (Place::new(), Service::listen().await);
    let runner = place.runner(&service.url(), &["--isolation", "landlock"]).spawn().unwrap();
    let mut connection = service.take().await;
    let names = Names { place, runner: runner.id().unwrap() };
    for script in [
        "cat /proc/RUNNER/environ",
        "cat /proc/$PPID/environ",
        "readlink /proc/RUNNER/exe",
        "cat /proc/RUNNER/root/etc/hostname",
        "ls /proc/RUNNER/cwd/",
        "head -c 1 /proc/RUNNER/mem",
        "cat /proc/RUNNER/maps",
    ] {
        let (code, stdout, _) = connection.run(&names.fill(script)).await;
        assert!(code != 0 && stdout.is_empty(), "{script}: {stdout}");
    }
    let (_, stdout, _) = connection.run(&names.fill("cat /proc/RUNNER/cmdline; env")).await;
    assert!(
        stdout.contains("filesecbox-runner") && !stdout.contains("secret") && !stdout.contains("token"),
        "{stdout}"
    );
    if program("/usr/bin/python3") {
        // PTRACE_ATTACH is 16, PTRACE_SEIZE 0x4206.
        let script = "/usr/bin/python3 -c 'import ctypes; l = ctypes.CDLL(None); print(l.ptrace(16, RUNNER, 0, 0), l.ptrace(0x4206, RUNNER, 0, 0))'";
        assert_eq!(connection.run(&names.fill(script)).await, (0, "-1 -1\n".to_owned(), String::new()));
    }
}

#[tokio::test]
async fn a_command_finds_what_it_needs() {
    let (place, service) = (Place::new(), Service::listen().await);
    let _runner = place.runner(&service.url(), &[]).spawn().unwrap();
    let mut connection = service.take().await;
    let script = "set -e; mkdir -p a/b; echo x > a/f; mv a/f a/b/f; ln -s b/f a/l; cat a/l > /dev/null; mkfifo p
        printf '#!/bin/sh\\necho ran $1\\n' > s; chmod +x s; ./s 1; f=$(mktemp); echo $f $HOME; echo ok > $f; cat $f
        echo y > ~/config; cat /etc/passwd > /dev/null; ls /usr/bin /proc/self > /dev/null; sleep 60 & kill $!";
    let (code, stdout, stderr) = connection.run(script).await;
    assert_eq!((code, &*stderr), (0, ""));
    let lines: Vec<&str> = stdout.lines().collect();
    let temporary = place.path("tmp");
    assert_eq!((lines[0], lines[2]), ("ran 1", "ok"));
    assert!(lines[1].split(' ').all(|path| path.starts_with(temporary.to_str().unwrap())), "{stdout}");
    if program("/usr/bin/python3") {
        let script = "/usr/bin/python3 -c 'import socket; socket.socketpair(); socket.socket(); import subprocess; subprocess.run([\"true\"], check=True)'";
        assert_eq!(connection.run(script).await, (0, String::new(), String::new()));
    }
}

/// By itself, without walls; root sees everything.
#[tokio::test]
async fn the_environment_of_a_runner_is_not_for_commands_of_the_same_user() {
    if rustix::process::geteuid().is_root() {
        println!("SKIPPED: root may look into every process");
        return;
    }
    let (place, service) = (Place::new(), Service::listen().await);
    let runner = place.runner(&service.url(), &["--isolation", "none"]).spawn().unwrap();
    let mut connection = service.take().await;
    let script = format!("cat /proc/{}/environ", runner.id().unwrap());
    let (code, stdout, _) = connection.run(&script).await;
    assert!(code != 0 && stdout.is_empty(), "{stdout}");
}

#[tokio::test]
async fn a_directory_that_is_named_is_readable_and_not_writable() {
    let (place, service) = (Place::new(), Service::listen().await);
    std::fs::write(place.path("w-evil/run"), "#!/bin/sh\necho ran").unwrap();
    std::fs::set_permissions(place.path("w-evil/run"), PermissionsExt::from_mode(0o755)).unwrap();
    let directory = place.path("w-evil");
    let arguments = ["--readable", directory.to_str().unwrap(), "--isolation", "landlock"];
    let _runner = place.runner(&service.url(), &arguments).spawn().unwrap();
    let mut connection = service.take().await;
    assert_eq!(connection.run("../w-evil/run; echo x > ../w-evil/s").await.1, "ran\n");
    assert_eq!(std::fs::read_to_string(place.path("w-evil/s")).unwrap(), "secret-sibling");
}

#[tokio::test]
async fn a_command_of_root_has_no_more_than_files_and_ports() {
    let (place, service) = (Place::new(), Service::listen().await);
    let _runner = place.runner(&service.url(), &["--isolation", "landlock"]).spawn().unwrap();
    let mut connection = service.take().await;
    let (_, stdout, _) = connection.run("grep ^Cap /proc/self/status").await;
    for (line, name) in stdout.lines().zip(["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"]) {
        let (told, bits) = line.split_once(":\t").unwrap();
        assert_eq!(told, name);
        let bits = u64::from_str_radix(bits, 16).unwrap();
        // CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, NET_BIND_SERVICE; what bounds a user without any is no matter.
        assert!(bits & !0x4fb == 0 || name == "CapBnd" && !rustix::process::geteuid().is_root(), "{stdout}");
    }
}

#[tokio::test]
async fn a_program_that_cannot_be_started_is_an_error_and_no_result() {
    let (place, service) = (Place::new(), Service::listen().await);
    let _runner = place.runner(&service.url(), &["--isolation", "landlock"]).spawn().unwrap();
    let mut connection = service.take().await;
    std::fs::write(place.path("w/text"), "x").unwrap();
    for (program, kind) in
        [("no-such-program", "not_found"), ("/no/such", "not_found"), ("./text", "permission_denied")]
    {
        let answer = connection.ask("exec", json!({"args": [program]})).await;
        assert_eq!(
            (&answer["body"]["code"], &answer["body"]["kind"]),
            (&json!("EIO"), &json!(kind)),
            "{answer}"
        );
    }
    // A command that only exits like a launcher is a result.
    let (code, ..) = connection.run("echo not launched x 2 >&2; exit 127").await;
    assert_eq!(code, 127);
    // Outside, what is there is not told from what is not.
    let there = place.path("home/.ssh/id");
    let missing = place.path("home/.ssh/none");
    let mut told = Vec::new();
    for path in [there, missing] {
        told.push(connection.ask("exec", json!({"args": [path]})).await["body"]["kind"].clone());
    }
    println!("{told:?}");
}

#[tokio::test]
async fn how_commands_are_held_is_told_at_the_start_and_to_the_service() {
    for (isolation, word, sentence) in [
        ("landlock", "landlock ", "commands are confined by Landlock"),
        ("none", "none", "the agent may do everything that you may"),
    ] {
        let (place, service) = (Place::new(), Service::listen().await);
        let runner = place.runner(&service.url(), &["--isolation", isolation]).spawn().unwrap();
        let (_connection, first) = service.accept().await;
        assert!(first["body"]["isolation"].as_str().unwrap().starts_with(word), "{first}");
        crate::support::signal(&runner, rustix::process::Signal::TERM);
        let (_, log) = crate::support::end(runner).await;
        assert!(log.contains(sentence), "{log}");
    }
}

#[tokio::test]
async fn full_control_is_asked_for_by_name_said_at_every_start_and_told_to_the_service() {
    for (arguments, is_free) in
        [(vec!["--isolation", "landlock"], false), (vec!["--isolation", "landlock", "--full-control"], true)]
    {
        let (place, service) = (Place::new(), Service::listen().await);
        let runner = place.runner(&service.url(), &arguments).spawn().unwrap();
        let (mut connection, first) = service.accept().await;
        assert_eq!(first["body"]["isolation"].as_str().unwrap().contains("full control"), is_free, "{first}");
        connection.say(json!({"type": "register_ok", "body": {"features": ["exact"]}})).await;
        let outside = place.path("w-evil/s");
        let read = connection.ask("read_file", json!({"path": outside.to_str().unwrap()})).await;
        assert_eq!(read["type"] == "file_content", is_free, "{read}");
        // Commands are held as before.
        let (code, stdout, _) = connection.run(&format!("cat {}", outside.display())).await;
        assert!(code != 0 && stdout.is_empty(), "{stdout}");
        for path in ["", ".", place.path("").to_str().unwrap()] {
            let removed = connection.ask("remove_all", json!({"path": path})).await;
            assert_eq!(removed["type"], "error", "{path}: {removed}");
        }
        assert!(place.path("home/.ssh/id").exists());
        crate::support::signal(&runner, rustix::process::Signal::TERM);
        let (_, log) = crate::support::end(runner).await;
        assert_eq!(log.matches("full control:").count(), usize::from(is_free), "{log}");
    }
}

#[tokio::test]
async fn what_a_founding_service_starts_is_held_as_other_commands_are() {
    let (place, service) = (Place::new(), Service::listen().await);
    let _runner = place.runner(&service.url(), &["--isolation", "landlock"]).spawn().unwrap();
    let (mut connection, _) = service.accept().await;
    connection.say(json!({"type": "register_ok", "body": {"status": "ok"}})).await;
    let (key, outside) = (place.path("home/.ssh/id"), place.path("w-evil"));
    let (key, outside) = (key.to_str().unwrap(), outside.to_str().unwrap());
    for (kind, name) in [("stdio_start", "stream_id"), ("pty_create", "stream_id"), ("bg_exec", "task_id")] {
        let asked = json!({name: "out", "command": "true", "args": ["true"], "dir": outside});
        let answer = connection.ask(kind, asked).await;
        assert_eq!(answer["type"], "error", "{kind}: {answer}");
    }
    let script = format!("cat {key}; echo over");
    let asked = json!({"task_id": "t", "command": script, "shell": true});
    assert_eq!(connection.ask("bg_exec", asked).await["type"], "bg_started");
    let told = loop {
        let told = connection.ask("bg_status", json!({"task_id": "t"})).await;
        if told["body"]["status"] != "running" {
            break told;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    assert_eq!(told["body"]["stdout"], "over\n", "{told}");
    let variables = connection.ask("bg_exec", json!({"task_id": "v", "args": ["env"]})).await;
    assert_eq!(variables["type"], "bg_started");
    let told = loop {
        let told = connection.ask("bg_status", json!({"task_id": "v"})).await;
        if told["body"]["status"] != "running" {
            break told["body"]["stdout"].as_str().unwrap().to_owned();
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    assert!(told.contains("PATH=") && !told.contains("secret"), "{told}");
}
