//! The life of a devbox: phases, restarts, and what each of them lets through.

use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::adapter::{API, Adapter, ON, data, failed, kill, lasting, service};
use crate::support::{Service, children_of, digest, encoded, workspace};

#[test]
fn a_scripted_adapter_performs_a_whole_life() {
    let dir = tempfile::tempdir().unwrap();
    let running = lasting(dir.path(), "");
    let one = Adapter::new(&running, "session-1");
    let absent = failed(&running.client.get(one.url("")), 404);
    assert!(absent.contains("not found"), "{absent}");

    let created = one.create();
    assert_eq!(created, json!({ "name": "session-1", "namespace": "devbox", "state": "Running" }));
    assert_eq!(one.phase(), "Running");
    let ready = one.exec(&["true"]);
    assert_eq!(ready["exitCode"], 0, "{ready}");

    let files: [(&str, &str, &[u8]); 3] = [
        ("/workspace/a.txt", "0644", b"one\n"),
        ("/workspace/skills/run.sh", "0755", b"#!/bin/sh\necho ran\n"),
        ("\u{6570}\u{636e}/bytes.bin", "0600", b"\0\xff\n\r"),
    ];
    for (path, mode, bytes) in files {
        let told = one.upload(path, mode, bytes);
        assert_eq!(
            (&told["path"], &told["sizeBytes"], &told["mode"]),
            (&json!(path), &json!(bytes.len()), &json!(mode)),
            "{told}"
        );
        for (field, expected) in [("name", "session-1"), ("podName", "session-1"), ("container", "devbox")] {
            assert_eq!(told[field], expected, "{told}");
        }
        assert_eq!(one.download(path).bytes(200), bytes);
        let below = path.trim_start_matches("/workspace/");
        assert_eq!(one.line(&format!("stat -c %a '{below}'")).trim(), mode.trim_start_matches('0'));
    }
    assert_eq!(one.line("./skills/run.sh"), "ran\n");

    assert_eq!(one.change("pause")["state"], "Paused");
    assert_eq!(one.phase(), "Paused");
    for reply in [one.try_exec(&["true"]), one.try_upload("b.txt", "0644", b"x"), one.download("a.txt")] {
        let told = failed(&reply, 409);
        assert!(told.contains("is Paused") && !told.contains("not found"), "{told}");
    }

    kill(running);
    let running = lasting(dir.path(), "");
    let one = Adapter::new(&running, "session-1");
    assert_eq!(one.phase(), "Paused");
    failed(&one.try_exec(&["true"]), 409);
    assert_eq!(one.change("resume")["state"], "Running");
    for (path, _, bytes) in files {
        assert_eq!(one.download(path).bytes(200), bytes);
    }

    assert_eq!(one.change("stop")["state"], "Stopped");
    assert_eq!(one.phase(), "Stopped");
    let deleted = data(&running.client.delete(one.url("")));
    assert_eq!(deleted, json!({ "name": "session-1", "namespace": "devbox", "status": "deleted" }));
    for reply in [
        running.client.get(one.url("")),
        running.client.delete(one.url("")),
        running.client.post(one.url("/pause"), ""),
        running.client.post(one.url("/resume"), ""),
        one.try_exec(&["true"]),
        one.try_upload("a.txt", "0644", b"x"),
        one.download("a.txt"),
    ] {
        assert!(failed(&reply, 404).contains("not found"));
    }

    one.create();
    assert_eq!(one.phase(), "Running");
    assert_eq!(one.line("find . -mindepth 1"), "");
    kill(running);
    let running = lasting(dir.path(), "");
    assert_eq!(Adapter::new(&running, "session-1").phase(), "Running");
}

#[test]
fn the_facts_of_a_devbox_are_those_that_the_adapter_parses() {
    let service = service("");
    let body = json!({
        "name": "one", "image": "registry.example/devbox:v2", "cpu": 1, "memory": "512Mi", "storageLimit": "1Gi",
        "env": { "GREETING": "hello there" }, "labels": [{ "key": "a", "value": "b" }], "upstreamID": "session",
        "kubeAccess": { "enabled": false }, "pauseAt": "2026-03-03T09:00:00Z", "archiveAfterPauseTime": "24h"
    });
    data(&service.client.post_json(API, &body));
    let mut facts = data(&service.client.get(format!("{API}/one")));
    let created = facts["creationTimestamp"].take();
    assert!(created.as_str().unwrap().ends_with('Z'), "{created}");
    let expected = json!({
        "name": "one", "namespace": "devbox", "image": "registry.example/devbox:v2", "creationTimestamp": null,
        "deletionTimestamp": null, "state": { "spec": "Running", "status": "Running", "phase": "Running" },
        "ssh": null, "gateway": { "url": "", "uniqueID": "one" }
    });
    assert_eq!(facts, expected);

    let one = Adapter::new(&service, "one");
    let mut ran = one.exec(&["printenv", "GREETING"]);
    assert!(ran["executedAt"].take().as_str().unwrap().ends_with('Z'));
    let expected = json!({
        "podName": "one", "namespace": "devbox", "container": "devbox", "command": ["printenv", "GREETING"],
        "exitCode": 0, "stdout": "hello there\n", "stderr": "", "executedAt": null, "timeoutSeconds": 20,
        "timedOut": false, "truncated": false
    });
    assert_eq!(ran, expected);
    // Created again, it stays as it is.
    one.create();
    assert_eq!(one.line("echo $GREETING"), "hello there\n");
}

#[test]
fn fifty_at_once_create_one_devbox() {
    let service = service("");
    thread::scope(|scope| {
        let create = || scope.spawn(|| Adapter::new(&service, "one").create()["state"].clone());
        let all: Vec<_> = (0..50).map(|_| create()).collect();
        all.into_iter().for_each(|one| assert_eq!(one.join().unwrap(), "Running"));
    });
    assert_eq!(Adapter::new(&service, "one").exec(&["true"])["exitCode"], 0);
}

#[test]
fn pausing_ends_what_runs_and_deleting_leaves_nothing() {
    let service = service("");
    let one = Adapter::new(&service, "one");
    one.create();
    let tree = "/v1/sandbox/devbox-one/devbox";
    for (end, state) in [("pause", "Paused"), ("stop", "Stopped")] {
        let background = json!({ "shell": "sleep 600", "exec_id": end });
        let began = service.client.post_json(format!("{tree}/exec?background=true"), &background);
        assert_eq!(began.status, 201, "{}", began.json());
        thread::scope(|scope| {
            let waits = scope.spawn(|| one.try_exec(&["sh", "-c", "echo here > mark; sleep 600"]));
            let begun = Instant::now();
            while service.client.get(format!("{tree}/stat?path=mark")).status != 200 {
                assert!(begun.elapsed() < Duration::from_secs(30));
                thread::sleep(Duration::from_millis(5));
            }
            assert_eq!(one.change(end)["state"], state);
            let told = failed(&waits.join().unwrap(), 409);
            assert!(told.contains("while the command ran"), "{told}");
        });
        service.client.get(format!("{tree}/exec/{end}")).refused(503, "disconnected");
        one.change("resume");
        one.line("rm mark");
    }
    one.line("echo x > ~/in-home; echo x > file");
    data(&service.client.delete(one.url("")));
    one.create();
    assert_eq!(one.line("ls -A ~/in-home file 2>/dev/null || echo gone"), "gone\n");
}

#[test]
fn an_upload_that_is_under_way_breaks_off_when_the_devbox_is_deleted() {
    use std::io::Write;
    let service = service("");
    let one = Adapter::new(&service, "one");
    one.create();
    one.exec(&["true"]);
    let mut connection = service.client.connect();
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: {}\r\ncontent-length: 1000000\r\n\r\n",
        one.url("/files/upload?path=late.txt"),
        service.client.address
    );
    connection.write_all(head.as_bytes()).unwrap();
    connection.write_all(&[b'x'; 1000]).unwrap();
    thread::sleep(Duration::from_millis(200));
    data(&service.client.delete(one.url("")));
    let mut answer = [0; 12];
    std::io::Read::read_exact(&mut connection, &mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 409");
    one.create();
    assert_eq!(one.line("ls -A"), "");
}

#[test]
fn without_the_setting_the_routes_are_none() {
    let service = Service::start();
    service.client.post_json(API, &json!({ "name": "one" })).refused(404, "not_found");
    service.client.get(format!("{API}/one")).refused(404, "not_found");
}

#[test]
fn devboxes_of_another_agent_are_other_ones() {
    let dir = tempfile::tempdir().unwrap();
    let first = lasting(dir.path(), "");
    let one = Adapter::new(&first, "one");
    one.create();
    one.upload("a.txt", "0644", b"first");
    kill(first);
    let second = lasting(dir.path(), "agent = \"other\"\n");
    let one = Adapter::new(&second, "one");
    failed(&second.client.get(one.url("")), 404);
    one.create();
    failed(&one.download("a.txt"), 404);
    data(&second.client.delete(one.url("")));
    kill(second);
    let third = lasting(dir.path(), "");
    assert_eq!(Adapter::new(&third, "one").download("a.txt").bytes(200), b"first");
}

#[test]
fn a_devbox_is_not_paused_while_a_command_in_it_goes_on() {
    let service = service("");
    let one = Adapter::new(&service, "one");
    one.create();
    let size = || {
        let reply = service.client.get(format!("{}/stat?path=mark", workspace("devbox-one", "devbox")));
        assert!(matches!(reply.status, 200 | 404), "{}", reply.json());
        reply.json()["data"]["size"].as_u64().unwrap_or(0)
    };
    let grows = || {
        let before = size();
        while size() == before {
            thread::sleep(Duration::from_millis(5));
        }
    };
    thread::scope(|threads| {
        threads.spawn(|| one.try_exec(&["sh", "-c", "while echo x >> mark; do sleep 0.01; done"]));
        grows();
        // The launcher ends commands, and takes its time.
        let launcher = children_of(service.pid())[0];
        let signal =
            |signal| kill_process(Pid::from_raw(launcher.try_into().unwrap()).unwrap(), signal).unwrap();
        signal(Signal::STOP);
        let pausing = threads.spawn(|| one.change("pause"));
        while one.phase() == "Running" {
            thread::sleep(Duration::from_millis(5));
        }
        grows();
        let phase = one.phase();
        signal(Signal::CONT);
        assert_eq!(phase, "Pausing");
        assert_eq!(pausing.join().unwrap()["state"], "Paused");
        let left = size();
        thread::sleep(Duration::from_millis(100));
        assert_eq!(size(), left);
    });
}
