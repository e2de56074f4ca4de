//! Many commands at once in one skill, and the interface beside them: each sees what the others do while they do it.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::Client;
use crate::host;
use crate::service::Service;
use crate::skill;

/// Commands at once.
const COMMANDS: usize = 50;
/// The tree they share.
const TREE: &str = "/v1/skills/user/agent/shared";
/// How long each part of the test waits for another.
const PATIENCE: Duration = Duration::from_secs(60);

/// Says that it is there, waits for a question, answers it, and stays until all are told to go.
const SCRIPT: &str = "echo here > up/$N.txt; until [ -e ask/$N.txt ]; do sleep 0.1; done; \
                      sed s/question/answer/ ask/$N.txt > answer/$N.txt; \
                      until [ -e enough.txt ]; do sleep 0.1; done; cat head.txt";

#[test]
fn fifty_commands_in_one_skill_see_every_edit_and_are_seen() {
    let temp = tempfile::tempdir().unwrap();
    let settings = format!("[limits.runs]\nruns_per_user = {COMMANDS}\n");
    let service = Service::start_configured(&settings, &temp.path().join("root"), &temp.path().join("log"));
    let client = Client::new(&service.url);
    if !host::has_namespaces(&client) {
        return;
    }
    assert!(client.upload("user/agent", "baseline", &skill::archive(&["shared"], 1)).unwrap().is_success());
    for directory in ["up", "ask", "answer"] {
        let made = client.post(&format!("{TREE}/mkdir"), &json!({ "path": directory })).unwrap();
        assert!(made.is_success(), "{}", made.text());
    }
    thread::scope(|scope| {
        let commands: Vec<_> = (0..COMMANDS)
            .map(|number| {
                let url = &service.url;
                scope.spawn(move || {
                    let body =
                        json!({ "shell": SCRIPT, "env": { "N": number.to_string() }, "timeout_ms": 120_000 });
                    Client::patient(url).post(&format!("{TREE}/exec"), &body).unwrap()
                })
            })
            .collect();
        wait_for(&client, "up");
        // From here on all of them run at once. An edit of a file of the baseline, and a question to each.
        let edited = client.put(&format!("{TREE}/edit?path=head.txt"), &skill::proof("edited")).unwrap();
        assert!(edited.is_success(), "{}", edited.text());
        for number in 0..COMMANDS {
            let question = skill::proof(&format!("question {number}"));
            let asked = client.put(&format!("{TREE}/raw/ask/{number}.txt"), &question).unwrap();
            assert_eq!(asked.status, 201, "{}", asked.text());
        }
        wait_for(&client, "answer");
        for number in 0..COMMANDS {
            let deadline = Instant::now() + PATIENCE;
            loop {
                let read = client.get(&format!("{TREE}/raw/answer/{number}.txt")).unwrap();
                assert_eq!(read.status, 200, "{}", read.text());
                // `sed` writes in pieces; the whole is there when it has ended.
                if read.body == skill::proof(&format!("answer {number}")) {
                    break;
                }
                assert!(Instant::now() < deadline, "command {number} did not answer: {}", read.text());
                thread::sleep(Duration::from_millis(20));
            }
        }
        assert_eq!(client.put(&format!("{TREE}/raw/enough.txt"), b"").unwrap().status, 201);
        for command in commands {
            let ran = command.join().unwrap();
            let data = &ran.json()["data"];
            assert_eq!((ran.status, &data["exit_code"]), (200, &json!(0)), "{}", ran.text());
            assert_eq!(skill::mark_of("head.txt", data["stdout"].as_str().unwrap().as_bytes()), "edited");
        }
    });
}

/// Waits until every command has a file in `directory`, as the interface lists it.
fn wait_for(client: &Client, directory: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let files = client.files(TREE).unwrap().unwrap();
        let there = files.iter().filter(|path| path.starts_with(&format!("{directory}/"))).count();
        if there == COMMANDS {
            return;
        }
        assert!(Instant::now() < deadline, "{there} of {COMMANDS} commands are in `{directory}`");
        thread::sleep(Duration::from_millis(50));
    }
}
