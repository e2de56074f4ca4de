//! The acceptance table of the founding document once more, S26 to S32, each against a service that runs: leases, what a crash left,
//! times, and what a platform sets up.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::leases::redis;
use crate::postgres_server::PostgresServer;
use crate::served::{Row, SKILL, outcome, row, selected, step};
use crate::support::{Reply, Service};

/// A script that goes on until `go` is there.
const WAITS: &str = "while [ ! -e go ]; do sleep 0.02; done; echo > ran";

/// Has a round wait in its script, does `meanwhile`, lets the script end, and gives what became of the round.
fn while_it_runs(row: &Row, meanwhile: impl FnOnce()) -> Reply {
    thread::scope(|scope| {
        let (begun, begins) = mpsc::channel();
        let asked = scope.spawn(move || {
            begun.send(()).unwrap();
            row.ask(&json!({ "entrypoint": format!("echo > begun; {WAITS}"), "timeout_seconds": 600 }))
        });
        begins.recv().unwrap();
        while row.text("begun").is_empty() {
            assert!(!asked.is_finished(), "{:?}", asked.join());
            thread::sleep(Duration::from_millis(5));
        }
        meanwhile();
        row.client.write(&row.tree, "go", "");
        asked.join().unwrap()
    })
}

fn initialising(reply: &Reply) {
    assert_eq!(reply.refused(429, "busy")["initialising"], true);
}

#[test]
fn s26_while_the_lease_is_held_the_answer_is_initialising_and_nothing_is_done() {
    let row = row(26);
    let v1 = row.put(1, &[("SKILL.md", SKILL)]);
    let won = while_it_runs(&row, || {
        let body = json!({ "skills": selected(&[&v1]), "files": [{ "name": "a", "content": "" }], "entrypoint": "echo > other" });
        initialising(&row.ask(&body));
    });
    won.ok();
    assert_eq!((row.projects(), row.has("user_files"), row.has("other")), (vec![], false, false));
}

#[test]
fn s27_a_lease_that_another_token_took_overrides_the_result() {
    let dir = tempfile::tempdir().unwrap();
    let Some(_redis) = redis(dir.path()) else { return };
    let socket = dir.path().join("real");
    while !socket.exists() {
        thread::sleep(Duration::from_millis(5));
    }
    let config = format!("[prepare]\nlease_url = \"redis+unix://{}\"\n", socket.to_str().unwrap());
    let service = Service::configured(&config);
    let row = Row::of(&service, 27);
    let reply = while_it_runs(&row, || {
        let client = redis::Client::open(format!("redis+unix://{}", socket.to_str().unwrap())).unwrap();
        let mut connection = client.get_connection().unwrap();
        let set = redis::cmd("SET")
            .arg("lock:agent-sandbox:init:row-27/demo")
            .arg("another")
            .query::<()>(&mut connection);
        set.unwrap();
    });
    initialising(&reply);
    assert!(row.has("ran"), "the round was done, and does not count");
}

#[test]
fn s28_without_the_store_of_leases_nothing_is_done() {
    let service = Service::configured("[prepare]\nlease_url = \"redis+unix:///nowhere/redis.sock\"\n");
    let row = Row::of(&service, 28);
    initialising(&row.ask(&json!({ "entrypoint": "echo > ran", "files": [{ "name": "a", "content": "" }] })));
    assert!(!service.root.join("sandbox/row-28/demo").exists());
}

#[test]
fn s29_a_store_that_fails_for_less_than_the_leases_time_loses_no_lease() {
    let Some(mut server) = PostgresServer::start() else { return };
    let config = format!("[prepare]\nlease_url = \"{}\"\n", PostgresServer::url(server.socket_dir()));
    let service = Service::configured(&config);
    let row = Row::of(&service, 29);
    let reply = while_it_runs(&row, || {
        server.stop();
        server.restart();
    });
    reply.ok();
    assert!(row.has("ran"));
}

#[test]
fn s30_what_a_crash_left_between_unpacking_and_moving_goes_and_the_version_is_deployed() {
    let row = row(30);
    let v1 = row.put(1, &[("SKILL.md", SKILL)]);
    row.exec(&format!(
        "mkdir -p projects/.tmp-{v1}-1700000000000-abc; echo > projects/.tmp-{v1}-1700000000000-abc/half"
    ));
    row.round(&[&v1], "");
    assert_eq!((row.projects(), row.text(&format!("projects/{v1}/SKILL.md")).as_str()), (vec![v1], SKILL));
}

#[test]
fn s31_the_time_of_scripts_is_clamped() {
    let row = row(31);
    for seconds in [0, -1] {
        let data = row.prepare(json!({ "entrypoint": "sleep 600", "timeout_seconds": seconds }));
        let entrypoint = step(&data, "entrypoint");
        assert_eq!(
            (&entrypoint["outcome"], entrypoint["log"].as_str().unwrap().trim()),
            (&json!("timed_out"), "it was ended after 1 s")
        );
    }
    assert_eq!(
        outcome(&row.prepare(json!({ "entrypoint": "true", "timeout_seconds": 9999 })), "entrypoint"),
        "done"
    );
}

#[test]
fn s32_what_a_platform_sets_up_comes_first_and_not_in_a_preview() {
    let config = "[[prepare.bootstrap]]\nname = \"mirror\"\ncommand = \"ls >> seen\"\nfiles = { \"pip.conf\" = \"[global]\\n\" }\n";
    let service = Service::configured(config);
    let row = Row::of(&service, 32);
    let body = |mode: &str| json!({ "mode": mode, "bootstrap": ["mirror"], "files": [{ "name": "a", "content": "a" }] });
    assert_eq!(outcome(&row.prepare(body("run")), "bootstrap:mirror"), "done");
    assert_eq!(row.text("seen"), "pip.conf\nseen\n", "before any file of the user");
    assert_eq!(outcome(&row.prepare(body("edit_debug")), "bootstrap:mirror"), "skipped");
    assert_eq!(row.text("seen").lines().count(), 2);
}
