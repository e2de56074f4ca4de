//! Commands elsewhere.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{exec, in_memory, on_the_host};
use crate::client::Client;
use crate::server::Server;

/// How long something that must happen may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn what_a_run_remotely_cannot_promise_is_refused(server: &Server) {
    let (client, tree) = (&server.client, on_the_host(server, "asking"));
    for (field, value) in [
        ("isolation", json!("process")),
        ("network", json!("none")),
        ("changes", json!(true)),
        ("commit", json!("ask")),
        ("skills", json!(["count"])),
        ("limits", json!({})),
    ] {
        let told = exec(client, &tree, json!({"command": "ls", field: value})).refused(501, "unsupported");
        assert!(told["data"].as_str().unwrap().contains(field), "{told}");
    }
    // All skills of a user who has none are none.
    exec(client, &tree, json!({"command": "ls", "skills": "all"})).ok();
    for (spec, code, status) in [
        (json!({"command": "ls", "shell": "ls"}), "invalid", 400),
        (json!({"command": "ls", "args": ["a\u{0}b"]}), "invalid", 400),
        (json!({"command": "ls", "dir": "../x"}), "path_escape", 403),
        (json!({"command": "ls", "dir": "missing"}), "not_found", 404),
        (json!({"command": "ls", "args": ["x".repeat(200_000)]}), "too_large", 413),
        (json!({"command": "no-such-program-anywhere"}), "not_found", 404),
        (json!({"command": "ls", "exec_id": "-"}), "invalid", 400),
    ] {
        exec(client, &tree, spec).refused(status, code);
    }
}

/// Waits until a run is in a state.
#[track_caller]
fn wait(client: &Client, tree: &str, run: &str, state: &str) -> Value {
    let begin = Instant::now();
    loop {
        let run = client.get(format!("{tree}/exec/{run}")).ok();
        if run["data"]["state"] == state {
            return run;
        }
        assert!(begin.elapsed() < PATIENCE, "{run}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn wait_for_file(client: &Client, tree: &str, path: &str) {
    let begin = Instant::now();
    while client.get(format!("{tree}/stat?path={path}")).status != 200 {
        assert!(begin.elapsed() < PATIENCE, "{path} never came");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(super) fn a_run_is_listed_and_killed_by_its_name(server: &Server) {
    let (client, tree) = (&server.client, on_the_host(server, "killing"));
    std::thread::scope(|scope| {
        let spec = json!({"shell": "echo > begun; sleep 300; echo > late", "exec_id": "long"});
        let running = scope.spawn(|| exec(client, &tree, spec).ok());
        wait_for_file(client, &tree, "begun");
        let listed = client.get(format!("{tree}/exec")).ok()["data"].clone();
        assert_eq!((&listed[0]["exec_id"], &listed[0]["state"]), (&json!("long"), &json!("running")));
        client.with_token("mallory").delete(format!("{tree}/exec/long")).refused(404, "not_found");
        let figures = client.with_token("monitor").get("/metrics");
        let figures = String::from_utf8(figures.bytes(200).to_vec()).unwrap();
        let under_way = figures.lines().find_map(|line| line.strip_prefix("filesecbox_runs_running "));
        assert!(under_way.unwrap().parse::<u64>().unwrap() >= 1, "{figures}");
        let killed = client.delete(format!("{tree}/exec/long")).ok();
        assert_eq!(killed["ended"], true);
        let ended = running.join().unwrap();
        let result = &ended["data"];
        assert_eq!((&result["exit_code"], &result["signal"]), (&json!(-1), &json!("SIGKILL")));
        assert!(result["hint"].as_str().unwrap().contains("given up"), "{ended}");
    });
    assert_eq!(wait(client, &tree, "long", "ended")["data"]["exit"]["enforcement"]["tier"], "elsewhere");
    client.delete(format!("{tree}/exec/never")).refused(404, "not_found");
}

pub(super) fn the_same_name_is_the_same_run(server: &Server) {
    let (client, tree) = (&server.client, on_the_host(server, "twice"));
    let spec = json!({"shell": "echo ran >> runs; cat runs", "exec_id": "once"});
    let (first, second) = (exec(client, &tree, spec.clone()).ok(), exec(client, &tree, spec).ok());
    assert_eq!((&first["data"], &first["data"]["stdout"]), (&second["data"], &json!("ran\n")));
    assert_eq!(client.text(&tree, "runs"), "ran\n");
    exec(client, &tree, json!({"shell": "echo other", "exec_id": "once"})).refused(409, "conflict");
    // A command that never ran gives its name back.
    let missing = json!({"command": "no-such-program-anywhere", "exec_id": "name"});
    exec(client, &tree, missing).refused(404, "not_found");
    exec(client, &tree, json!({"command": "ls", "exec_id": "name"})).ok();
}

pub(super) fn events_tell_all_output_and_can_be_read_again(server: &Server) {
    let (client, tree) = (&server.client, on_the_host(server, "telling"));
    let spec =
        json!({"shell": "for i in $(seq 300000); do echo 行$i; done; echo trouble >&2", "exec_id": "much"});
    let streamed: Vec<Value> = client.stream_run(&tree, &spec).collect();
    let text = |events: &[Value], kind: &str| -> String {
        let of_kind = events.iter().filter(|event| event["event"] == kind);
        of_kind.map(|event| event["text"].as_str().unwrap().to_owned()).collect()
    };
    let expected: String = (1..=300_000).map(|number| format!("行{number}\n")).collect();
    assert!(text(&streamed, "stdout") == expected);
    assert_eq!(text(&streamed, "stderr"), "trouble\n");
    let seqs: Vec<u64> = streamed.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
    let last = streamed.last().unwrap();
    assert_eq!((&last["event"], &last["result"]["exit_code"]), (&json!("exit"), &json!(0)));
    assert_eq!(last["result"]["enforcement"]["backend"], "none");
    // Of the result, the ends are kept; of the events, all.
    assert_eq!(client.resume(&tree, "much", 2).collect::<Vec<_>>(), streamed[2..]);
    let run = client.get(format!("{tree}/exec/much")).ok();
    assert_eq!(run["result"]["stdout_bytes"], expected.len());
    assert!(
        run["result"]["truncated"] == true
            && run["result"]["stdout"].as_str().unwrap().contains("bytes dropped")
    );
}

pub(super) fn a_command_in_the_background_goes_on(server: &Server) {
    let (client, tree) = (&server.client, on_the_host(server, "behind"));
    let spec = json!({"shell": "while ! test -e go; do sleep 0.05; done; echo went", "exec_id": "later"});
    let begun = client.post_json(format!("{tree}/exec?background=true"), &spec);
    assert_eq!((begun.status, &begun.ok()["data"]["state"]), (201, &json!("running")));
    assert_eq!(client.post_json(format!("{tree}/exec?background=true"), &spec).status, 200);
    client.put(format!("{tree}/raw/go"), "").ok();
    let ended = wait(client, &tree, "later", "ended");
    assert_eq!(ended["result"]["stdout"], "went\n");
}

pub(super) fn a_backend_that_refuses_a_command_is_heard_however_it_was_asked_for(server: &Server) {
    let (client, tree) = (&server.client, in_memory(server, "unable"));
    let spec = json!({"command": "ls"});
    exec(client, &tree, spec.clone()).refused(501, "unsupported");
    client.post_json(format!("{tree}/exec?background=true"), &spec).refused(501, "unsupported");
    let asked = client.request("POST", format!("{tree}/exec")).header("accept", "application/x-ndjson");
    asked.body(spec.to_string()).send().refused(501, "unsupported");
    client.try_execute(&tree, "ls", &[]).refused(501, "unsupported");
    exec(client, &tree, json!({"command": "ls", "exec_id": "r"})).refused(501, "unsupported");
    assert_eq!(client.get(format!("{tree}/exec")).ok()["data"], json!([]));
}

pub(super) fn arguments_that_name_the_workspace_reach_it(server: &Server) {
    let (client, tree) = (&server.client, on_the_host(server, "naming"));
    client.put(format!("{tree}/raw/%E6%96%87"), "found").ok();
    assert_eq!(client.execute(&tree, "cat", &["/workspace/文"])["data"], "Exit Code: 0\nOutput:\nfound");
    assert_eq!(client.execute(&tree, "ls", &["/workspace"])["data"], "Exit Code: 0\nOutput:\n文\n");
    let other = client.execute(&tree, "echo", &["/workspace-evil", "x/workspace"]);
    assert_eq!(other["data"], "Exit Code: 0\nOutput:\n/workspace-evil x/workspace\n");
    let told = exec(client, &tree, json!({"shell": "cat $WORKSPACE/文"})).ok();
    assert_eq!(told["data"]["stdout"], "found");
}
