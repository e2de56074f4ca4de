//! Runs by name: asked for twice and begun once, listed, fed, signalled, killed, forgotten; what they changed.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{
    Client, Service, assert_gone, children_of, is_root, landlocked, skill, skill_zip, skills, workspace,
};

fn begin(client: &Client, tree: &str, spec: &Value) -> Value {
    client.post_json(format!("{tree}/exec?background=true"), spec).ok()["data"].clone()
}

fn ended(client: &Client, tree: &str, id: &str) -> Value {
    client.get(format!("{tree}/exec/{id}?follow")).ok()
}

/// Waits until a run has written `text`.
fn wrote(client: &Client, tree: &str, id: &str, text: &str) {
    let mut events = client.resume(tree, id, 0);
    let mut seen = String::new();
    while !seen.contains(text) {
        let event = events.next().unwrap_or_else(|| panic!("no `{text}` in {seen}"));
        seen.push_str(event["text"].as_str().unwrap_or_default());
    }
}

#[test]
fn a_deadline_that_passes_before_the_command_begins_is_a_result() {
    let service = Service::start();
    let (client, tree) = (&service.client, workspace("u", "a"));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let tree = &tree;
            scope.spawn(move || {
                for number in 0..8 {
                    let id = format!("late-{thread}-{number}");
                    let spec = json!({"shell": "sleep 300", "timeout_ms": 0, "exec_id": id});
                    let run = client.post_json(format!("{tree}/exec"), &spec).ok();
                    assert_eq!(
                        (&run["data"]["timed_out"], &run["data"]["exit_code"]),
                        (&json!(true), &json!(-1))
                    );
                    let listed = client.get(format!("{tree}/exec/{id}")).ok();
                    assert_eq!(listed["data"]["state"], "ended");
                }
            });
        }
    });
}

#[test]
fn a_run_that_has_ended_keeps_no_handle_on_its_process() {
    let service = Service::start();
    let (client, tree) = (&service.client, workspace("u", "a"));
    let handles = || {
        let links = std::fs::read_dir(format!("/proc/{}/fd", service.pid())).unwrap().flatten();
        let targets = links.filter_map(|link| std::fs::read_link(link.path()).ok());
        targets.filter(|target| target.as_os_str() == "anon_inode:[pidfd]").count()
    };
    let before = handles();
    for number in 0..20 {
        let id = format!("short-{number}");
        begin(client, &tree, &json!({"shell": "true", "exec_id": id}));
        assert_eq!(ended(client, &tree, &id)["data"]["state"], "ended");
    }
    // What waits for the next command may have come to have a few.
    assert!(handles() < before + 10, "{} handles, before {before}", handles());
}

#[test]
fn the_same_name_twice_is_the_same_run() {
    let service = Service::start();
    let (client, tree) = (&service.client, workspace("u", "a"));
    let spec = json!({"shell": "echo x >> count; cat count", "exec_id": "once"});
    let first = client.post_json(format!("{tree}/exec"), &spec).ok();
    let second = client.post_json(format!("{tree}/exec"), &spec).ok();
    assert_eq!((&first["data"], &first["exec_id"]), (&second["data"], &second["exec_id"]));
    assert_eq!(client.text(&tree, "count"), "x\n");
    let other = json!({"shell": "echo y", "exec_id": "once"});
    client.post_json(format!("{tree}/exec"), &other).refused(409, "conflict");
    // Elsewhere the name is free.
    client.post_json(format!("{}/exec", workspace("v", "a")), &other).ok();
    // Asked for at once by many, it begins once.
    let spec = json!({"shell": "sleep 0.2; echo x >> many; echo done", "exec_id": "many"});
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let run = client.post_json(format!("{tree}/exec"), &spec).ok();
                assert_eq!(run["data"]["stdout"], "done\n");
            });
        }
    });
    assert_eq!(client.text(&tree, "many"), "x\n");
    // A name that did not begin is free again.
    client
        .post_json(format!("{tree}/exec"), &json!({"command": "perl", "exec_id": "n"}))
        .refused(403, "command_not_allowed");
    client
        .post_json(format!("{tree}/exec"), &json!({"command": "ls", "dir": "none", "exec_id": "n"}))
        .refused(404, "not_found");
    client.post_json(format!("{tree}/exec"), &json!({"command": "ls", "exec_id": "n"})).ok();
}

#[test]
fn a_background_run_is_listed_killed_and_its_end_is_told() {
    let service = Service::start();
    let (client, tree) = (&service.client, workspace("u", "a"));
    let spec = json!({"shell": "echo up; sleep 1000 & sleep 1000", "exec_id": "dev"});
    let reply = client.post_json(format!("{tree}/exec?background=true"), &spec);
    assert_eq!((reply.status, &reply.ok()["data"]["state"]), (201, &json!("running")));
    // Once more is no second one.
    assert_eq!(client.post_json(format!("{tree}/exec?background=true"), &spec).status, 200);
    wrote(client, &tree, "dev", "up");
    let listed = client.get(format!("{tree}/exec")).ok()["data"].clone();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    assert_eq!((&listed[0]["exec_id"], &listed[0]["kind"]), (&json!("dev"), &json!("background")));
    assert_eq!((&listed[0]["exit"], &listed[0]["command"]), (&Value::Null, &spec["shell"]));
    let begun = Instant::now();
    assert_eq!(client.delete(format!("{tree}/exec/dev")).ok()["ended"], true);
    assert!(begun.elapsed() < Duration::from_secs(5));
    let end = ended(client, &tree, "dev");
    assert_eq!((&end["data"]["state"], &end["result"]["exit_code"]), (&json!("ended"), &json!(-1)), "{end}");
    assert_eq!((&end["result"]["signal"], &end["result"]["stdout"]), (&json!("SIGKILL"), &json!("up\n")));
    client.delete(format!("{tree}/exec/dev")).ok();
    client.get(format!("{tree}/exec/none")).refused(404, "not_found");
    client.delete(format!("{tree}/exec/none")).refused(404, "not_found");
}

#[test]
fn background_runs_have_places_and_a_deadline_of_their_own() {
    let config = "[limits.runs]\ntimeout_ms = 1000\n[limits.sessions]\nbackground_per_user = 1\nbackground_ms = 3000\n";
    let service = Service::configured(config);
    let (client, tree) = (&service.client, workspace("u", "a"));
    begin(client, &tree, &json!({"shell": "sleep 1000", "exec_id": "one"}));
    let again = client.post_json(format!("{tree}/exec?background=true"), &json!({"command": "ls"}));
    again.refused(429, "busy");
    client.execute(&tree, "ls", &[]);
    begin(client, &workspace("v", "a"), &json!({"shell": "sleep 1000"}));
    let begun = Instant::now();
    let end = ended(client, &tree, "one");
    assert_eq!(end["result"]["timed_out"], true, "{end}");
    assert!(
        begun.elapsed() > Duration::from_millis(1500),
        "longer than a run that a caller waits for may take"
    );
}

/// Where a user and agent have a uid of their own, the kernel counts the processes of all their runs together.
#[test]
fn a_user_whose_runs_have_all_processes_that_they_may_is_told_so() {
    let service = Service::configured("[limits.runs]\nprocesses = 8\n");
    if !is_root() || !landlocked(&service.client) {
        return;
    }
    let (client, tree) = (&service.client, workspace("u", "a"));
    let fork = "import os, time
try:
    while os.fork(): pass
except BlockingIOError: print('full', flush=True)
time.sleep(1000)";
    let run = json!({"command": "python3", "args": ["-c", fork], "exec_id": "many"});
    begin(client, &tree, &run);
    wrote(client, &tree, "many", "full");
    // The kernel looks before it counts a process that takes the uid, so that one more can begin.
    begin(client, &tree, &json!({"shell": "exec sleep 1000", "exec_id": "more"}));
    let reply = client.post_json(format!("{tree}/exec"), &json!({"command": "ls"}));
    let refusal = reply.refused(429, "busy")["data"].to_string();
    assert!(refusal.contains("as many processes as they may"), "{refusal}");
    client.execute(&workspace("v", "a"), "ls", &[]);
    for run in ["many", "more"] {
        client.delete(format!("{tree}/exec/{run}")).ok();
    }
    client.execute(&tree, "ls", &[]);
}

/// Runs that are ended by force count as if they had used all processors. Whoever gives way leaves one processor to others, while they
/// ask for something.
#[test]
fn commands_of_a_user_who_has_used_most_of_the_processors_give_way() {
    let service = Service::configured("[limits.sessions]\nbackground_ms = 1000\n");
    let client = &service.client;
    let told = |user| {
        let script = "import os; print(os.nice(0), len(os.sched_getaffinity(0)))";
        let run = json!({"command": "python3", "args": ["-c", script]});
        let ran = client.post_json(format!("{}/exec", workspace(user, "a")), &run).ok();
        ran["data"]["stdout"].as_str().unwrap().trim().to_owned()
    };
    let processors = std::thread::available_parallelism().unwrap().get();
    // That of a command that has just begun, or that was found at work.
    let usual = ["5", "10"].map(|niceness| format!("{niceness} {processors}"));
    assert!(usual.contains(&told("heavy")));
    // What was used is forgotten in a second and a half, which a slow machine may spend between two requests.
    let gives_way = |expected: &str, number: usize, others_ask: &dyn Fn()| {
        (0..10).any(|attempt| {
            let ids = ["a", "b", "c", "d"].map(|letter| format!("{letter}{number}-{attempt}"));
            for id in &ids {
                begin(client, &workspace("heavy", "a"), &json!({"shell": "sleep 1000", "exec_id": id}));
            }
            ids.iter().for_each(|id| drop(ended(client, &workspace("heavy", "a"), id)));
            others_ask();
            told("heavy") == expected && told("heavy") == expected
        })
    };
    assert!(gives_way(&format!("19 {processors}"), 0, &|| {}));
    let left = format!("19 {}", (processors - 1).max(1));
    let light = workspace("light", "a");
    assert!(gives_way(&left, 1, &|| drop(client.get(format!("{light}/raw/none")))));
    assert!(usual.contains(&told("light")));
}

#[test]
fn signals_reach_the_command_and_only_those_on_the_list() {
    let service = Service::start();
    let (client, tree) = (&service.client, workspace("u", "a"));
    let shell =
        "trap 'echo usr1' USR1; trap 'echo int; exit 5' INT; echo ready; while :; do sleep 0.05; done";
    begin(client, &tree, &json!({"shell": shell, "exec_id": "s"}));
    wrote(client, &tree, "s", "ready");
    let send = |id: &str, signal: &str| {
        client.post_json(format!("{tree}/exec/{id}/signal"), &json!({ "signal": signal }))
    };
    send("s", "USR1").ok();
    wrote(client, &tree, "s", "usr1");
    for wrong in ["SEGV", "sigint", "", "9", "SIGSIGINT", "RTMIN"] {
        send("s", wrong).refused(400, "invalid");
    }
    send("s", "SIGINT").ok();
    assert_eq!(ended(client, &tree, "s")["result"]["exit_code"], 5);
    send("s", "INT").refused(409, "conflict");
    send("none", "INT").refused(404, "not_found");
    begin(client, &tree, &json!({"shell": "echo ready; sleep 1000", "exec_id": "t"}));
    wrote(client, &tree, "t", "ready");
    send("t", "TERM").ok();
    assert_eq!(ended(client, &tree, "t")["result"]["signal"], "SIGTERM");
}

#[test]
fn standard_input_can_be_fed_until_it_is_closed() {
    let service = Service::start();
    let (client, tree) = (&service.client, workspace("u", "a"));
    let spec = json!({"command": "cat", "stdin": "一", "stdin_open": true, "exec_id": "c"});
    begin(client, &tree, &spec);
    wrote(client, &tree, "c", "一");
    let feed =
        |id: &str, query: &str, bytes: &[u8]| client.post(format!("{tree}/exec/{id}/stdin{query}"), bytes);
    assert_eq!(feed("c", "", "二".as_bytes()).ok()["bytes"], 3);
    wrote(client, &tree, "c", "二");
    assert_eq!(feed("c", "?close=true", &b"x".repeat(300_000)).ok()["closed"], true);
    feed("c", "", b"late").refused(409, "conflict");
    let end = ended(client, &tree, "c");
    assert_eq!((&end["result"]["exit_code"], &end["result"]["stdout_bytes"]), (&json!(0), &json!(300_006)));
    feed("none", "", b"x").refused(404, "not_found");
    // Without having asked for it, a command reads the end at once.
    begin(client, &tree, &json!({"command": "cat", "exec_id": "d"}));
    assert_eq!(ended(client, &tree, "d")["result"]["stdout"], "");
    begin(client, &tree, &json!({"command": "cat", "stdin_open": true, "exec_id": "e"}));
    client.delete(format!("{tree}/exec/e")).ok();
    feed("e", "", b"x").refused(409, "conflict");
}

#[test]
fn a_stranger_finds_no_run() {
    let service = Service::start();
    let (client, mine, theirs) = (&service.client, workspace("u", "a"), workspace("v", "a"));
    client.upload(&skills("u", "a"), "baseline", &skill_zip("s", &[]));
    begin(client, &mine, &json!({"shell": "sleep 1000", "exec_id": "x", "stdin_open": true}));
    for tree in [&theirs, &workspace("u", "b"), &skill("u", "a", "s")] {
        client.get(format!("{tree}/exec/x")).refused(404, "not_found");
        client.get(format!("{tree}/exec/x?follow")).refused(404, "not_found");
        client.delete(format!("{tree}/exec/x")).refused(404, "not_found");
        client.post(format!("{tree}/exec/x/stdin"), "x").refused(404, "not_found");
        client
            .post_json(format!("{tree}/exec/x/signal"), &json!({"signal": "INT"}))
            .refused(404, "not_found");
        assert_eq!(client.get(format!("{tree}/exec")).ok()["data"], json!([]));
    }
    assert_eq!(client.get(format!("{mine}/exec/x")).ok()["data"]["state"], "running");
}

#[test]
fn ended_runs_are_remembered_for_a_while_and_up_to_a_number() {
    let service = Service::configured("[limits.sessions]\nended_per_user = 3\nended_ms = 1500\n");
    let (client, tree) = (&service.client, workspace("u", "a"));
    let names = || -> Vec<String> {
        let listed = client.get(format!("{tree}/exec")).ok();
        listed["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|run| run["exec_id"].as_str().unwrap().to_owned())
            .collect()
    };
    for number in 0..5 {
        let spec = json!({"command": "echo", "args": ["x"], "exec_id": format!("r{number}")});
        client.post_json(format!("{tree}/exec"), &spec).ok();
    }
    assert_eq!(names(), ["r2", "r3", "r4"]);
    client.get(format!("{tree}/exec/r0")).refused(404, "not_found");
    let begun = Instant::now();
    while !names().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_run_tells_which_files_it_changed() {
    let service = Service::start();
    let client = &service.client;
    client.upload(
        &skills("u", "a"),
        "baseline",
        &skill_zip("技能", &[("keep", "k"), ("改", "old"), ("d/gone", "123")]),
    );
    for tree in [workspace("u", "a"), skill("u", "a", "技能")] {
        if tree.contains("sandbox") {
            for (path, text) in [("keep", "k"), ("改", "old"), ("d/gone", "123")] {
                client.write(&tree, path, text);
            }
        }
        let shell = "cat keep; echo longer > 改; rm d/gone; mkdir -p n; echo 新 > n/文; echo t > t; rm t";
        let run = client.post_json(format!("{tree}/exec"), &json!({"shell": shell, "changes": true})).ok();
        let wanted = json!({
            "created": [{"path": "n/文", "size": 4}],
            "modified": [{"path": "改", "size": 7}],
            "deleted": [{"path": "d/gone", "size": 3}],
        });
        assert_eq!(run["changes"], wanted, "{tree}: {run}");
        // In a stream the last event has them.
        let spec = json!({"shell": "rm n/文", "changes": true});
        let last = client.stream_run(&tree, &spec).last().unwrap();
        let wanted = json!({"created": [], "modified": [], "deleted": [{"path": "n/文", "size": 4}]});
        assert_eq!(last["result"]["changes"], wanted, "{last}");
        let run = client.post_json(format!("{tree}/exec"), &json!({"shell": "ls; echo x > keep"})).ok();
        assert_eq!(run.get("changes"), None, "the request did not ask");
    }
}

#[test]
fn the_changes_of_a_run_are_named_up_to_a_number() {
    let service = Service::start();
    let tree = workspace("u", "a");
    let shell = "for i in {1..1200}; do echo > f$i; done";
    let run =
        service.client.post_json(format!("{tree}/exec"), &json!({"shell": shell, "changes": true})).ok();
    assert_eq!(run["changes"]["created"].as_array().unwrap().len(), 1000);
    assert_eq!(run["changes"]["unnamed"], 200);
}

#[test]
fn a_stopping_service_ends_background_runs_and_leaves_no_process() {
    let mut service = Service::configured("shutdown_ms = 200\n");
    let (client, tree) = (service.client.clone(), workspace("u", "a"));
    begin(&client, &tree, &json!({"shell": "echo partial; sleep 1000 & sleep 1000", "exec_id": "x"}));
    let mut events = client.resume(&tree, "x", 0);
    assert_eq!(events.next().unwrap()["event"], "started");
    assert_eq!(events.next().unwrap()["text"], "partial\n");
    let children = children_of(service.pid());
    assert!(!children.is_empty());
    service.terminate();
    let last = events.last().unwrap();
    assert_eq!(last["event"], "exit", "{last}");
    let hint = last["result"]["hint"].as_str().unwrap();
    assert!(hint.starts_with("the service is stopping"), "{last}");
    assert_eq!(last["result"]["exit_code"], -1, "{last}");
    service.wait();
    assert_gone(&children);
}

/// Without namespaces a skill is a copy, and the command the launcher's own child.
#[test]
fn runs_by_name_are_the_same_at_a_weaker_tier() {
    let service = Service::configured("[isolation]\nmaximum = \"landlock\"\n");
    let client = &service.client;
    if !landlocked(client) {
        return;
    }
    client.upload(&skills("u", "a"), "baseline", &skill_zip("s", &[("f", "old")]));
    for tree in [workspace("u", "a"), skill("u", "a", "s")] {
        let shell = "trap 'echo int; echo new > g; exit 5' INT; echo ready; while :; do sleep 0.05; done";
        begin(client, &tree, &json!({"shell": shell, "exec_id": "s", "changes": true}));
        wrote(client, &tree, "s", "ready");
        client.post_json(format!("{tree}/exec/s/signal"), &json!({"signal": "INT"})).ok();
        let end = ended(client, &tree, "s");
        assert_eq!(
            (&end["result"]["exit_code"], &end["result"]["stdout"]),
            (&json!(5), &json!("ready\nint\n"))
        );
        assert_eq!(end["changes"]["created"], json!([{"path": "g", "size": 4}]), "{end}");
        begin(client, &tree, &json!({"shell": "(setsid sleep 1000 &); echo up; sleep 1000", "exec_id": "k"}));
        wrote(client, &tree, "k", "up");
        client.delete(format!("{tree}/exec/k")).ok();
        assert_eq!(ended(client, &tree, "k")["result"]["signal"], "SIGKILL");
        let mut socket =
            client.websocket(&format!("{tree}/terminal?rows=7&cols=70"), "").expect("a WebSocket");
        socket.type_in("python3 -c 'import os; print(os.get_terminal_size())'\n");
        socket.shown_until("(columns=70, lines=7)");
        socket.type_in("echo x > t.txt; exit 3\n");
        assert_eq!(socket.told("exit")["result"]["exit_code"], 3);
        assert_eq!(client.text(&tree, "t.txt"), "x\n");
    }
}

#[test]
fn a_run_can_be_looked_at_before_what_it_did_counts() {
    for config in ["", "[isolation]\nmaximum = \"landlock\"\n"] {
        let service = Service::configured(config);
        let (client, tree) = (&service.client, skill("u", "a", "技能"));
        client.upload(
            &skills("u", "a"),
            "baseline",
            &skill_zip("技能", &[("keep", "k"), ("改", "old"), ("d/gone", "123")]),
        );
        let before = client.files(&tree);
        let ask = |id: &str| {
            let shell = "echo longer > 改; rm -r d; mkdir n; echo 新 > n/文; cat keep";
            let spec = json!({"shell": shell, "commit": "ask", "exec_id": id});
            client.post_json(format!("{tree}/exec"), &spec).ok()
        };
        let changes = json!({
            "created": [{"path": "n/文", "size": 4}],
            "modified": [{"path": "改", "size": 7}],
            "deleted": [{"path": "d/gone", "size": 3}],
        });
        let decide = |id: &str, what: &str| client.post(format!("{tree}/exec/{id}/{what}"), "");
        let state = |id: &str| client.get(format!("{tree}/exec/{id}")).ok()["data"]["decision"].clone();

        let run = ask("one");
        assert_eq!((&run["data"]["stdout"], &run["changes"]), (&json!("k"), &changes), "{run}");
        assert_eq!((client.files(&tree), client.text(&tree, "改")), (before.clone(), "old".to_owned()));
        assert_eq!(state("one"), "open");
        decide("one", "discard").ok();
        assert_eq!((state("one"), client.files(&tree)), (json!("discarded"), before));
        decide("one", "commit").refused(409, "conflict");
        decide("one", "discard").refused(409, "conflict");

        ask("two");
        // Changes of other requests meanwhile stay.
        client.write(&tree, "mine", "m");
        let taken = decide("two", "commit").ok();
        assert_eq!(taken["absorbed"]["modified"], 1, "{taken}");
        assert_eq!(client.files(&tree), ["SKILL.md", "keep", "mine", "n/文", "改"]);
        assert_eq!((client.text(&tree, "改"), state("two")), ("longer\n".to_owned(), json!("committed")));
        decide("two", "commit").refused(409, "conflict");
        decide("none", "commit").refused(404, "not_found");
        // A stranger's overlay is as it was.
        assert_eq!(client.text(&skill("v", "a", "技能"), "改"), "old");
    }
}

#[test]
fn a_run_in_a_workspace_can_be_looked_at_before_what_it_did_counts() {
    for config in ["", "[isolation]\nmaximum = \"landlock\"\n"] {
        let service = Service::configured(config);
        let (client, tree) = (&service.client, workspace("u", "工作"));
        for (path, text) in [("keep", "k"), ("改", "old"), ("d/gone", "123")] {
            client.write(&tree, path, text);
        }
        let shell = |line: &str| {
            let answer = client.post_json(format!("{tree}/exec"), &json!({ "shell": line })).ok();
            assert_eq!(answer["data"]["exit_code"], 0, "{answer}");
            answer["data"]["stdout"].as_str().unwrap().to_owned()
        };
        shell("chmod 600 keep; ln -s keep link; mkdir own; chmod 700 own; echo x > own/f");
        let before = client.files(&tree);
        let ask = |id: &str| {
            let shell = "echo longer > 改; rm -r d; mkdir n; echo 新 > n/文; chmod 755 n/文; ln -sfn 改 link; cat keep; pwd";
            let spec = json!({"shell": shell, "commit": "ask", "exec_id": id});
            let answer = client.post_json(format!("{tree}/exec"), &spec).ok();
            assert_eq!(answer["data"]["exit_code"], 0, "{answer}");
            answer
        };
        let decide = |id: &str, what: &str| client.post(format!("{tree}/exec/{id}/{what}"), "");
        let run = ask("one");
        assert!(run["data"]["stdout"].as_str().unwrap().starts_with('k'), "{run}");
        let paths = |kind: &str| {
            let list = run["changes"][kind].as_array().unwrap().iter();
            list.map(|change| change["path"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(paths("created"), ["n/文"]);
        assert_eq!(
            (paths("modified"), paths("deleted")),
            (vec!["link".to_owned(), "改".to_owned()], vec!["d/gone".to_owned()])
        );
        assert_eq!((client.files(&tree), client.text(&tree, "改")), (before.clone(), "old".to_owned()));
        // Requests and other commands go on meanwhile, but no request removes the workspace.
        client.delete(&tree).refused(409, "conflict");
        decide("one", "discard").ok();
        assert_eq!(client.files(&tree), before);
        ask("two");
        client.write(&tree, "mine", "m");
        shell("echo theirs > own/theirs; echo other > 改");
        assert_eq!(decide("two", "commit").ok()["absorbed"]["created"], 2);
        assert_eq!(client.files(&tree), ["keep", "link", "mine", "n/文", "own/f", "own/theirs", "改"]);
        // The command that was decided about later wins, and everything is the commands' own.
        let told =
            shell("cat link n/文; echo more >> 改; echo more >> n/文; stat -c %a n/文 keep own; rm -r n");
        assert_eq!(told, "longer\n新\n755\n600\n700\n");
        assert_eq!(client.text(&tree, "改"), "longer\nmore\n");
    }
}

#[test]
fn what_nobody_decides_about_is_bounded_and_goes() {
    let service = Service::configured("[limits.sessions]\nundecided_per_user = 1\nended_ms = 1500\n");
    let (client, tree) = (&service.client, skill("u", "a", "s"));
    client.upload(&skills("u", "a"), "baseline", &skill_zip("s", &[]));
    let spec = json!({"shell": "echo x > f", "commit": "ask"});
    let ask = || client.post_json(format!("{tree}/exec"), &spec);
    let id = ask().ok()["exec_id"].as_str().unwrap().to_owned();
    ask().refused(429, "busy");
    let begun = Instant::now();
    while client.get(format!("{tree}/exec/{id}")).status == 200 {
        assert!(begun.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(50));
    }
    while ask().status != 200 {
        assert!(begun.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(client.files(&tree), ["SKILL.md"]);
    // A run that is to be decided about and goes on has nothing to decide yet.
    let service = Service::start();
    let client = &service.client;
    client.upload(&skills("u", "a"), "baseline", &skill_zip("s", &[]));
    let spec = json!({"shell": "sleep 1000", "commit": "ask", "exec_id": "x"});
    client.post_json(format!("{tree}/exec?background=true"), &spec).ok();
    client.post(format!("{tree}/exec/x/commit"), "").refused(409, "conflict");
    client.delete(format!("{tree}/exec/x")).ok();
    client.post(format!("{tree}/exec/x/discard"), "").ok();
    let with_skills = json!({"shell": "ls", "commit": "ask", "skills": ["s"]});
    client.post_json(format!("{}/exec", workspace("u", "a")), &with_skills).refused(501, "unsupported");
    client
        .post_json(format!("{tree}/exec"), &json!({"shell": "ls", "commit": "later"}))
        .refused(400, "invalid");
}

#[test]
fn whoever_waits_for_a_run_that_is_not_started_is_told() {
    let service = Service::configured("[limits.runs]\nruns_per_user = 1\nqueue_ms = 1500\n");
    let (client, tree) = (&service.client, workspace("u", "a"));
    std::thread::scope(|scope| {
        let spec = json!({"shell": "echo up; sleep 4", "exec_id": "long"});
        let mut long = client.stream_run(&tree, &spec);
        assert_eq!(long.next().unwrap()["event"], "started");
        let queued = scope.spawn(|| {
            client
                .post_json(format!("{tree}/exec"), &json!({"command": "ls", "exec_id": "x"}))
                .refused(429, "busy");
        });
        while client.get(format!("{tree}/exec/x")).status != 200 {
            std::thread::sleep(Duration::from_millis(10));
        }
        let waits = scope.spawn(|| client.get(format!("{tree}/exec/x?follow")).refused(404, "not_found"));
        assert_eq!(client.resume(&tree, "x", 0).next(), None, "a stream of nothing");
        waits.join().unwrap();
        queued.join().unwrap();
        client.delete(format!("{tree}/exec/long")).ok();
    });
}
