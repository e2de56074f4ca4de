//! The audit log: what is in it, what is not, and what a crash, a forger and a broken disk do to it.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Client, Service, Settings, digest, landlocked, run_program, skill_zip};

fn dir(root: &Path) -> PathBuf {
    root.join(".filesecbox/audit")
}

fn files(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir(root)).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "jsonl")).collect();
    files.sort();
    files
}

/// All records of a log, as JSON.
fn records(root: &Path) -> Vec<Value> {
    let texts = files(root).into_iter().map(|file| fs::read_to_string(file).unwrap());
    texts
        .flat_map(|text| text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<_>>())
        .collect()
}

/// The output of `filesecbox audit verify`, and whether it found the log whole.
fn verify(root: &Path, further: &[&str]) -> (bool, String) {
    let args = [&["audit", "verify", "--root", root.to_str().unwrap()], further].concat();
    let output = run_program(&args, &[]);
    let told =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.success(), told)
}

fn kill(service: &mut Service) {
    kill_process(Pid::from_raw(service.pid().cast_signed()).unwrap(), Signal::KILL).unwrap();
    service.wait();
}

fn again(root: &Path) -> Service {
    Service::with(Settings { root: Some(root.to_owned()), ..Settings::default() })
}

#[test]
fn every_change_run_and_refused_token_is_recorded_and_nothing_secret_is() {
    let token = |name: &str, role: &str| {
        format!("[[tokens]]\nsha256 = \"{}\"\n{role}\nname = \"{name}\"\n", digest(name))
    };
    let config = [
        token("boss", "role = \"admin\""),
        token("reader", "role = \"manager\"\nagent = \"a\""),
        token("alice", "role = \"user\"\nuser = \"alice\""),
    ];
    let service = Service::configured(&config.concat());
    let (boss, alice) = (service.client.with_token("boss"), service.client.with_token("alice"));
    boss.upload("/v1/skills/x/a", "baseline", &skill_zip("s", &[("f", "secret")]));
    alice.put("/v1/sandbox/alice/a/edit?path=%E6%95%B0%E6%8D%AE/n.md", "secret content").ok();
    alice.get("/v1/sandbox/alice/a/content?path=%E6%95%B0%E6%8D%AE/n.md").ok();
    alice
        .post_json("/v1/sandbox/alice/a/move", &serde_json::json!({ "from": "none", "to": "b" }))
        .refused(404, "not_found");
    let patch =
        "--- a/none\n+++ b/none\n@@ -1 +1 @@\n-secret\n+x\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+x\n";
    let patch = serde_json::json!({ "patch": patch });
    alice.post_json("/v1/sandbox/alice/a/patch", &patch).refused(404, "not_found");
    alice.post_json("/v1/sandbox/alice/a/grep", &serde_json::json!({ "pattern": "secret" })).ok();
    if landlocked(&alice) {
        alice.execute("/v1/sandbox/alice/a", "echo", &["secret-argument"]);
    }
    // Refused: another's tree, a role that may not, a token that is none, none at all.
    alice.get("/v1/sandbox/bob/a/files").refused(404, "not_found");
    service.client.with_token("reader").put("/v1/sandbox/alice/a/edit?path=f", "x").refused(403, "denied");
    service.client.with_token("secret-token").get("/v1/info").refused(401, "unauthenticated");
    service.client.put("/v1/sandbox/alice/a/edit?path=f", "x").refused(401, "unauthenticated");
    let issued = boss.post_json("/v1/tokens", &serde_json::json!({ "user": "carol" })).ok();

    let records = records(&service.root);
    let of = |outcome: &str, action: &str| {
        let found: Vec<&Value> = records
            .iter()
            .filter(|record| record["outcome"] == outcome && record["action"] == action)
            .collect();
        assert_eq!(found.len(), 1, "{outcome} {action}: {records:#?}");
        found[0].clone()
    };
    assert_eq!(of("ok", "start")["seq"], 1);
    let upload = of("ok", "POST /v1/skills/{u}/{a}/upload");
    assert_eq!(
        (&upload["scope"], &upload["token"], &upload["role"]),
        (&"baseline".into(), &"boss".into(), &"admin".into())
    );
    let edit = of("ok", "PUT /v1/sandbox/{u}/{a}/edit");
    assert_eq!(
        (&edit["tree"], &edit["paths"][0], &edit["user"]),
        (&"sandbox/alice/a".into(), &"数据/n.md".into(), &"alice".into())
    );
    assert_eq!(of("not_found", "POST /v1/sandbox/{u}/{a}/move")["paths"], serde_json::json!(["none", "b"]));
    let patch = of("not_found", "POST /v1/sandbox/{u}/{a}/patch");
    assert_eq!(patch["paths"], serde_json::json!(["none", "new"]));
    // A search changes nothing, though it takes a body.
    assert!(records.iter().all(|record| !record["action"].as_str().unwrap_or_default().ends_with("/grep")));
    assert_eq!(of("not_found", "GET /v1/sandbox/{u}/{a}/files")["tree"], "sandbox/bob/a");
    assert_eq!(of("denied", "PUT /v1/sandbox/{u}/{a}/edit")["token"], "reader");
    assert_eq!(of("unauthenticated", "GET /v1/info").get("role"), None);
    assert_eq!(of("unauthenticated", "PUT /v1/sandbox/{u}/{a}/edit")["status"], 401);
    let tokens = of("ok", "POST /v1/tokens");
    assert_eq!((&tokens["issued"], &tokens["user"]), (&issued["id"], &"carol".into()));
    if landlocked(&alice) {
        assert_eq!(of("ok", "POST /v1/sandbox/{u}/{a}/execute")["program"], "echo");
    }
    let text = records.iter().map(ToString::to_string).collect::<String>();
    assert!(!text.contains("secret") && !text.contains(issued["data"].as_str().unwrap()), "{text}");
    assert!(!text.contains(service.root.to_str().unwrap()));

    assert_eq!(fs::metadata(dir(&service.root)).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(&files(&service.root)[0]).unwrap().permissions().mode() & 0o777, 0o600);
    let (is_whole, told) = verify(&service.root, &[]);
    assert!(is_whole && told.contains("the chain is whole"), "{told}");
    let output = run_program(&["audit", "tail", "-n", "2", "--root", service.root.to_str().unwrap()], &[]);
    let tail = String::from_utf8(output.stdout).unwrap();
    assert!(tail.lines().count() == 2 && tail.contains("POST /v1/tokens"), "{tail}");
}

#[test]
fn a_run_that_goes_on_has_a_record_of_its_beginning_and_one_of_its_end() {
    let service = Service::start();
    if !landlocked(&service.client) {
        return;
    }
    let body = serde_json::json!({ "command": "bash", "args": ["-c", "exit 3"], "exec_id": "mine" });
    let begun = service.client.post_json("/v1/sandbox/u/a/exec?background=true", &body);
    assert_eq!(begun.status, 201);
    let begin = std::time::Instant::now();
    let ended = loop {
        let ended = records(&service.root).into_iter().find(|record| record["action"] == "run ended");
        if let Some(ended) = ended {
            break ended;
        }
        assert!(begin.elapsed() < std::time::Duration::from_secs(30));
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    assert_eq!(
        (&ended["run"], &ended["outcome"], &ended["tree"]),
        (&"mine".into(), &"exited".into(), &"sandbox/u/a".into())
    );
    let records = records(&service.root);
    let begun = records.iter().find(|record| record["action"] == "POST /v1/sandbox/{u}/{a}/exec").unwrap();
    assert_eq!(
        (&begun["run"], &begun["program"], &begun["status"]),
        (&"mine".into(), &"bash".into(), &201.into())
    );
}

#[test]
fn a_change_whose_caller_has_gone_is_recorded_as_unanswered() {
    let service = Service::start();
    if !landlocked(&service.client) {
        return;
    }
    let mut stream = service.client.connect();
    let body = "[\"-c\", \"echo > begun; sleep 1\"]";
    let head =
        "POST /v1/sandbox/u/a/execute?command=bash HTTP/1.1\r\nhost: localhost\r\nx-request-id: gone\r\n";
    write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
    let begin = std::time::Instant::now();
    let wait = |until: &dyn Fn() -> bool| {
        while !until() {
            assert!(begin.elapsed() < std::time::Duration::from_secs(30));
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    };
    wait(&|| service.client.get("/v1/sandbox/u/a/raw/begun").status == 200);
    drop(stream);
    let left = || records(&service.root).into_iter().find(|record| record["caller_request"] == "gone");
    wait(&|| left().is_some());
    let left = left().unwrap();
    assert_ne!(left["request"], "gone", "a caller's id stands beside the service's own");
    assert_eq!(
        (&left["outcome"], &left["program"], left.get("status")),
        (&"unanswered".into(), &"bash".into(), None)
    );
}

#[test]
fn a_service_that_is_killed_while_writing_has_recorded_all_that_it_acknowledged() {
    let root = tempfile::tempdir().unwrap();
    let mut acknowledged = Vec::new();
    for round in 0..4 {
        let mut service = again(root.path());
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let client = service.client.clone();
                std::thread::spawn(move || write_until_it_dies(&client, &format!("{round}-{writer}")))
            })
            .collect();
        std::thread::sleep(std::time::Duration::from_millis(300));
        kill(&mut service);
        for writer in writers {
            acknowledged.extend(writer.join().unwrap());
        }
    }
    assert!(acknowledged.len() > 20, "the control: {}", acknowledged.len());
    let (is_whole, told) = verify(root.path(), &[]);
    assert!(is_whole, "{told}");
    let output = run_program(
        &["audit", "tail", "-n", "100000", "--json", "--root", root.path().to_str().unwrap()],
        &[],
    );
    let text = String::from_utf8(output.stdout).unwrap();
    for name in acknowledged {
        assert!(text.contains(&format!("\"{name}\"")), "{name} was acknowledged and is not recorded");
    }
}

/// Names of files whose writing was acknowledged before the service died.
fn write_until_it_dies(client: &Client, prefix: &str) -> Vec<String> {
    use std::io::Read;
    let mut acknowledged = Vec::new();
    for number in 0.. {
        let name = format!("{prefix}-{number}");
        let Ok(mut stream) = std::net::TcpStream::connect(client.address) else { break };
        let head =
            format!("PUT /v1/sandbox/u/a/raw/{name} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
        let mut reply = String::new();
        if write!(stream, "{head}content-length: 1\r\n\r\nx").is_err()
            || stream.read_to_string(&mut reply).is_err()
        {
            break;
        }
        if !reply.starts_with("HTTP/1.1 201") {
            break;
        }
        acknowledged.push(name);
    }
    acknowledged
}

#[test]
fn a_torn_last_line_is_told_and_sealed_by_the_next_start() {
    let root = tempfile::tempdir().unwrap();
    let mut service = again(root.path());
    service.client.write("/v1/sandbox/u/a", "f", "x");
    kill(&mut service);
    let file = files(root.path())[0].clone();
    let torn = b"{\"seq\":3,\"time\":\"20";
    fs::OpenOptions::new().append(true).open(&file).unwrap().write_all(torn).unwrap();
    let (is_whole, told) = verify(root.path(), &[]);
    assert!(is_whole && told.contains("open     19 bytes"), "{told}");
    // An empty file, which a crash can leave as well, prevents nothing.
    fs::write(dir(root.path()).join("0000000000000003.jsonl"), "{\"se").unwrap();
    let mut service = again(root.path());
    service.client.write("/v1/sandbox/u/a", "g", "x");
    kill(&mut service);
    let (is_whole, told) = verify(root.path(), &[]);
    assert!(
        is_whole && told.contains("torn     19 bytes") && told.contains("records  4 in 2 files"),
        "{told}"
    );
    // What was torn once is part of the record: it can neither go nor change.
    let before = fs::read(&file).unwrap();
    for changed in [before[..before.len() - torn.len()].to_vec(), [&before[..], b"x"].concat()] {
        fs::write(&file, changed).unwrap();
        assert!(!verify(root.path(), &[]).0);
    }
}

#[test]
fn whoever_changes_removes_or_inserts_a_record_is_found_out() {
    let root = tempfile::tempdir().unwrap();
    for start in 0..3 {
        let mut service = again(root.path());
        for name in ["a", "b", "c"] {
            service.client.write("/v1/sandbox/u/a", &format!("{start}{name}"), "x");
        }
        kill(&mut service);
    }
    let (is_whole, told) = verify(root.path(), &[]);
    assert!(is_whole && told.contains("records  12 in 3 files"), "{told}");
    let head = told.lines().find_map(|line| line.strip_prefix("head     ")).unwrap().to_owned();
    assert!(verify(root.path(), &["--contains", &head]).0);
    let all = files(root.path());
    let whole: Vec<Vec<u8>> = all.iter().map(|file| fs::read(file).unwrap()).collect();
    let restore = || all.iter().zip(&whole).for_each(|(file, bytes)| fs::write(file, bytes).unwrap());
    for (number, file) in all.iter().enumerate() {
        let text = String::from_utf8(whole[number].clone()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let joined = |lines: &[&str]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
        let forgeries = [
            text.replace("\"user\":\"u\"", "\"user\":\"v\""),
            joined(&[&lines[..2], &lines[3..]].concat()),
            joined(&[&lines[..2], &lines[1..]].concat()),
            joined(&[lines[0], lines[2], lines[1], lines[3]]),
        ];
        for forged in forgeries {
            fs::write(file, forged).unwrap();
            let (is_whole, told) = verify(root.path(), &[]);
            assert!(!is_whole && told.contains("BROKEN"), "{number}: {told}");
            restore();
        }
    }
    fs::remove_file(&all[1]).unwrap();
    assert!(!verify(root.path(), &[]).0, "a file in the middle is gone");
    restore();
    // Cutting off what has no seal yet leaves a whole chain; only a head kept elsewhere tells.
    fs::remove_file(&all[2]).unwrap();
    assert!(verify(root.path(), &[]).0);
    assert!(!verify(root.path(), &["--contains", &head]).0);
    restore();
    // What has a seal cannot go: neither at the end nor at the beginning, nor with the seals.
    for gone in [0, 1] {
        fs::remove_file(&all[gone]).unwrap();
        let (is_whole, told) = verify(root.path(), &[]);
        assert!(!is_whole && told.contains("is missing"), "{gone}: {told}");
        restore();
    }
    let seals = dir(root.path()).join("seals");
    let kept = fs::read(&seals).unwrap();
    for forged in [None, Some(kept[..kept.len() - 10].to_vec())] {
        match forged {
            None => fs::remove_file(&seals).unwrap(),
            Some(bytes) => fs::write(&seals, bytes).unwrap(),
        }
        let (is_whole, told) = verify(root.path(), &[]);
        assert!(!is_whole && told.contains("seals"), "{told}");
    }
    // A start goes on all the same, and its record tells what it found for ever.
    let mut started = again(root.path());
    // Its record is before that of an acknowledged change, and so on the disk with it.
    started.client.write("/v1/sandbox/u/a", "f", "x");
    kill(&mut started);
    let (is_whole, told) = verify(root.path(), &[]);
    assert!(!is_whole && told.contains("the seals are forged"), "{told}");
}

#[test]
fn a_log_of_another_key_is_not_taken_for_this_services() {
    let (root, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for place in [root.path(), other.path()] {
        let mut service = again(place);
        service.client.write("/v1/sandbox/u/a", "f", "x");
        service.terminate();
        assert!(service.wait().success());
        assert!(verify(place, &[]).0, "the control");
    }
    fs::remove_dir_all(dir(root.path())).unwrap();
    fs::create_dir(dir(root.path())).unwrap();
    for entry in fs::read_dir(dir(other.path())).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), dir(root.path()).join(entry.file_name())).unwrap();
    }
    let (is_whole, told) = verify(root.path(), &[]);
    assert!(!is_whole && told.contains("not the service's own"), "{told}");
}

#[test]
fn an_orderly_stop_seals_the_end_so_that_nothing_can_be_cut_off_until_the_next_start() {
    let root = tempfile::tempdir().unwrap();
    let mut service = again(root.path());
    service.client.write("/v1/sandbox/u/a", "f", "x");
    service.terminate();
    assert!(service.wait().success());
    let file = files(root.path())[0].clone();
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.lines().count() >= 3 && verify(root.path(), &[]).0, "the control");
    let shorter: String = text.lines().take(2).map(|line| format!("{line}\n")).collect();
    fs::write(&file, shorter).unwrap();
    assert!(!verify(root.path(), &[]).0);
    let mut next = again(root.path());
    // Acknowledged, so that the record of the start is written.
    next.client.write("/v1/sandbox/u/a", "f", "y");
    kill(&mut next);
    let (is_whole, told) = verify(root.path(), &[]);
    assert!(!is_whole && told.contains("missing or cut off"), "{told}");
}

#[test]
fn files_that_are_too_young_stay_and_the_operator_decides_whether_changes_go_on() {
    let sizes = "[audit]\nfile_bytes = 65536\ntotal_bytes = 100000\n";
    let long = "n".repeat(200);
    for (setting, refuses) in [("", false), ("when_full = \"refuse\"\n", true)] {
        let service = Service::configured(&format!("{sizes}{setting}"));
        let refused = (0..600).find_map(|number| {
            let reply = service.client.put(format!("/v1/sandbox/u/a/edit?path={long}/{}", number % 10), "x");
            (reply.status != 200).then_some(reply)
        });
        let figures = service.client.get("/metrics");
        assert!(String::from_utf8_lossy(&figures.body).contains("filesecbox_audit_overdue 1"));
        assert!(service.log().contains("audit.keep_days"), "{}", service.log());
        if refuses {
            let told = refused.expect("a change is refused").refused(429, "busy");
            assert!(told["data"].as_str().unwrap().contains("audit.keep_days"), "{told}");
            service.client.get(format!("/v1/sandbox/u/a/content?path={long}/1")).ok();
        } else {
            assert!(refused.is_none(), "the control: it grows");
        }
        let (is_whole, told) = verify(&service.root, &[]);
        assert!(is_whole && !told.contains("older files are gone"), "{told}");
    }
}

#[test]
fn a_caller_who_has_filled_its_part_is_busy_and_others_go_on() {
    let token = |user: &str| {
        format!("[[tokens]]\nsha256 = \"{}\"\nrole = \"user\"\nuser = \"{user}\"\n", digest(user))
    };
    let config = format!("[audit]\naccount_bytes = 20000\n{}{}", token("alice"), token("bob"));
    let service = Service::configured(&config);
    let (alice, bob) = (service.client.with_token("alice"), service.client.with_token("bob"));
    let mut made = 0;
    let refused = loop {
        let reply = alice.put(format!("/v1/sandbox/alice/a/edit?path=f{made}"), "x");
        if reply.status != 200 {
            break reply;
        }
        made += 1;
        assert!(made < 100);
    };
    let told = refused.refused(429, "busy");
    assert!(told["data"].as_str().unwrap().contains("audit.account_bytes"), "{told}");
    assert!(refused.header("retry-after").unwrap().parse::<u64>().unwrap() > 1);
    alice.get(format!("/v1/sandbox/alice/a/content?path=f{made}")).refused(404, "not_found");
    assert_eq!(alice.text("/v1/sandbox/alice/a", "f0"), "x");
    bob.write("/v1/sandbox/bob/a", "f", "x");
    // Every change has its record: none is counted only.
    let records = records(&service.root);
    let changes = |user: &str| {
        let of = records.iter().filter(|record| record["user"] == user && record["outcome"] == "ok");
        of.count()
    };
    assert_eq!((changes("alice"), changes("bob")), (made, 1));
}

#[test]
fn files_follow_one_another_by_size_and_the_oldest_go() {
    let service = Service::configured("[audit]\nfile_bytes = 65536\ntotal_bytes = 200000\nkeep_days = 0\n");
    let long = "n".repeat(200);
    for number in 0..900 {
        service.client.put(format!("/v1/sandbox/u/a/edit?path={long}/{}", number % 10), "x").ok();
    }
    let sizes: Vec<u64> = files(&service.root).iter().map(|file| fs::metadata(file).unwrap().len()).collect();
    assert!(sizes.len() >= 3 && sizes.iter().sum::<u64>() < 300_000, "{sizes:?}");
    let (is_whole, told) = verify(&service.root, &[]);
    assert!(is_whole && told.contains("older files are gone: the service removed"), "{told}");
    // `verify` notices another removed file, though the chain of the files that are left is whole.
    let oldest = files(&service.root)[0].clone();
    fs::rename(&oldest, service.root.join("aside")).unwrap();
    let (is_whole, told) = verify(&service.root, &[]);
    assert!(!is_whole && told.contains("is missing"), "{told}");
    fs::rename(service.root.join("aside"), &oldest).unwrap();
    assert!(verify(&service.root, &[]).0);
}

#[test]
fn what_cannot_be_recorded_is_not_changed_and_can_still_be_read() {
    let service = Service::configured("[audit]\nfile_bytes = 65536\n");
    service.client.write("/v1/sandbox/u/a", "f", "x");
    // The next file cannot be made where the directory is gone.
    fs::remove_dir_all(dir(&service.root)).unwrap();
    let long = "n".repeat(250);
    let refused = (0..2000).find_map(|_| {
        let reply = service.client.put(format!("/v1/sandbox/u/a/edit?path={long}/{long}/{long}"), "x");
        (reply.status != 200).then_some(reply)
    });
    refused.expect("a change is refused").refused(503, "disconnected");
    let reply = service.client.put("/v1/sandbox/u/a/edit?path=new", "x");
    assert_eq!(reply.refused(503, "disconnected")["request_id"], reply.header("x-request-id").unwrap());
    service.client.get("/v1/sandbox/u/a/content?path=new").refused(404, "not_found");
    assert_eq!(service.client.text("/v1/sandbox/u/a", "f"), "x");
    service.client.post_json("/v1/sandbox/u/a/grep", &serde_json::json!({ "pattern": "x" })).ok();
    let answer = service.client.get("/readyz").refused(503, "disconnected");
    assert_eq!(answer["audit"], false);
    let figures = service.client.get("/metrics");
    assert!(String::from_utf8_lossy(&figures.body).contains("filesecbox_audit_writable 0"));
}

#[test]
fn changes_beyond_the_queue_are_busy_and_reading_goes_on() {
    let service = Service::configured("[audit]\nqueue = 1\n");
    service.client.write("/v1/sandbox/u/a", "f", "x");
    // A change is under way until its body is there. It is asked for when there is room for the record.
    let mut slow = service.client.connect();
    let head = "PUT /v1/sandbox/u/a/edit?path=slow HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
    write!(slow, "{head}expect: 100-continue\r\ncontent-length: 4\r\n\r\n").unwrap();
    let mut asked = [0; 25];
    slow.read_exact(&mut asked).unwrap();
    assert_eq!(&asked, b"HTTP/1.1 100 Continue\r\n\r\n");
    let reply = service.client.put("/v1/sandbox/u/a/edit?path=g", "x");
    reply.refused(429, "busy");
    assert_eq!(service.client.text("/v1/sandbox/u/a", "f"), "x");
    slow.write_all(b"text").unwrap();
    assert!(std::io::read_to_string(&mut slow).unwrap().starts_with("HTTP/1.1 200"));
    service.client.write("/v1/sandbox/u/a", "g", "x");
}

#[test]
fn strangers_cannot_push_the_records_of_others_out() {
    let service =
        Service::configured(&format!("[[tokens]]\nsha256 = \"{}\"\nrole = \"admin\"\n", digest("t")));
    for _ in 0..200 {
        service.client.get("/v1/info").refused(401, "unauthenticated");
    }
    std::thread::sleep(std::time::Duration::from_millis(1100));
    service.client.get("/v1/info").refused(401, "unauthenticated");
    service.client.with_token("t").write("/v1/sandbox/u/a", "f", "x");
    let records = records(&service.root);
    let strangers: Vec<&Value> =
        records.iter().filter(|record| record["outcome"] == "unauthenticated").collect();
    let suppressed: u64 = strangers.iter().filter_map(|record| record["suppressed"].as_u64()).sum();
    assert_eq!(strangers.len() as u64 + suppressed, 201, "{strangers:?}");
    assert!(suppressed > 20, "{suppressed}");
}

#[test]
fn an_operator_reads_the_log_by_number_user_and_action_while_it_is_written() {
    let token = |name: &str, role: &str| {
        format!("[[tokens]]\nsha256 = \"{}\"\n{role}\nname = \"{name}\"\n", digest(name))
    };
    // A file holds fewer records than there will be.
    let config = format!(
        "[audit]\nfile_bytes = 65536\n{}",
        token("boss", "role = \"admin\"") + &token("engine", "role = \"engine\"")
    );
    let service = Service::configured(&config);
    let (boss, engine) = (service.client.with_token("boss"), service.client.with_token("engine"));
    for number in 0..240 {
        let user = ["alice", "bob"][number % 2];
        engine.put(format!("/v1/sandbox/{user}/a/raw/f{number}"), "text").ok();
    }
    engine.delete("/v1/sandbox/alice/a/file?path=f0").ok();
    let long = vec!["x".repeat(200); 15].join("/");
    engine.put(format!("/v1/sandbox/carol/a/raw/{long}?parents=true"), "text").ok();
    assert!(files(&service.root).len() > 1, "the log has several files");
    let all = boss.get("/v1/audit?limit=10000").ok();
    assert_eq!(all["data"].as_array().unwrap(), &records(&service.root));
    assert_eq!(
        (&all["last"], &all["more"]),
        (&all["data"].as_array().unwrap().last().unwrap()["seq"], &false.into())
    );
    // In pages, and on from the last one.
    let (mut after, mut paged) = (0, Vec::new());
    loop {
        let page = boss.get(format!("/v1/audit?after={after}&limit=7")).ok();
        let records = page["data"].as_array().unwrap();
        assert!(records.len() <= 7);
        paged.extend(records.clone());
        after = page["last"].as_u64().unwrap();
        if page["more"] == false {
            break;
        }
    }
    assert_eq!(&paged, all["data"].as_array().unwrap());
    engine.put("/v1/sandbox/bob/a/raw/later", "text").ok();
    let new = boss.get(format!("/v1/audit?after={after}")).ok();
    assert_eq!(new["data"].as_array().unwrap().len(), 1);
    assert_eq!(new["data"][0]["paths"], serde_json::json!(["later"]));
    let of_bob = boss.get("/v1/audit?user=bob&limit=1000").ok();
    assert_eq!(of_bob["data"].as_array().unwrap().len(), 121);
    let deleted =
        boss.get("/v1/audit?limit=5&user=alice&action=DELETE%20/v1/sandbox/%7Bu%7D/%7Ba%7D/file").ok();
    assert_eq!(deleted["data"].as_array().unwrap().len(), 1, "{deleted}");
    assert_eq!(deleted["more"], false);
    for wrong in ["?after=-1", "?after=x", "?limit=0", "?user=..", "?actions=x"] {
        boss.get(format!("/v1/audit{wrong}")).refused(400, "invalid");
    }
    engine.get("/v1/audit").refused(403, "denied");
    service.client.get("/v1/audit").refused(401, "unauthenticated");
    let silent = Service::configured("[audit]\nenabled = false\n");
    silent.client.get("/v1/audit").refused(501, "unsupported");
}
