//! Commands: the founding `execute`, the richer `exec`, and what is said about the service.

use serde_json::{Value, json};

use crate::support::{Service, skill, skill_zip, skills, workspace};

#[test]
fn a_result_tells_the_tier_and_what_differs_unless_all_is_asked_for() {
    let service = Service::start();
    let (client, tree) = (&service.client, workspace("u", "a"));
    let host = client.get("/v1/info").ok()["data"]["host"]["enforcement"].clone();
    let short = client.execute(&tree, "ls", &[])["result"]["enforcement"].clone();
    assert_eq!(short["tier"], host["tier"]);
    for (name, value) in short.as_object().unwrap() {
        assert!(name == "tier" || host[name] != *value, "{name} is as in /v1/info: {short}");
    }
    let full = client.post(format!("{tree}/execute?command=ls&enforcement=full"), "").ok();
    let full = &full["result"]["enforcement"];
    assert!(full["files"]["state"].is_string() && full["notes"].is_array(), "{full}");
    // Together with what /v1/info says, the short one is the full one.
    for (name, value) in full.as_object().unwrap().iter().filter(|(name, _)| *name != "notes") {
        assert_eq!(short.get(name).unwrap_or(&host[name]), value, "{name}");
    }
    let exec = |query: &str, body: Value| client.post_json(format!("{tree}/exec{query}"), &body).ok();
    assert_eq!(exec("", json!({"command": "ls"}))["data"]["enforcement"], short);
    assert_eq!(exec("?enforcement=full", json!({"command": "ls"}))["data"]["enforcement"], *full);
    exec("", json!({"command": "ls", "exec_id": "x"}));
    let told =
        |query: &str| client.get(format!("{tree}/exec/x?{query}")).ok()["result"]["enforcement"].clone();
    assert_eq!((told(""), told("enforcement=full")), (short.clone(), full.clone()));
    assert_eq!(client.get(format!("{tree}/exec")).ok()["data"][0]["exit"]["enforcement"], short);
    client.post(format!("{tree}/execute?command=ls&enforcement=none"), "").refused(400, "invalid");
}

#[test]
fn execute_answers_the_founding_text_and_the_result_beside_it() {
    let service = Service::start();
    let tree = workspace("用户", "代理");
    let answer = service.client.execute(&tree, "bash", &["-c", "echo 出; echo 错 >&2; exit 3"]);
    assert_eq!(answer["data"], "Exit Code: 3\nOutput:\n出\n错\n");
    let result = &answer["result"];
    assert_eq!((&result["stdout"], &result["stderr"]), (&json!("出\n"), &json!("错\n")));
    assert_eq!(
        (&result["exit_code"], &result["timed_out"], &result["truncated"]),
        (&json!(3), &json!(false), &json!(false))
    );
    assert!(result["duration_ms"].is_u64(), "{answer}");
    assert!(result["enforcement"]["tier"].is_string(), "a result tells what confined it: {answer}");
    // The body is optional.
    let answer = service.client.post(format!("{tree}/execute?command=ls"), "").ok();
    assert_eq!(answer["data"], "Exit Code: 0\nOutput:\n");
    for body in ["{}", "[1]", "\"x\"", "[\"a\"", "null"] {
        service.client.post(format!("{tree}/execute?command=ls"), body).refused(400, "invalid");
    }
    service.client.post(format!("{tree}/execute"), "[]").refused(400, "invalid");
}

#[test]
fn only_the_direct_commands_are_started() {
    let service = Service::start();
    let tree = workspace("u", "a");
    for command in ["perl", "ls -la", "/bin/ls", "./ls", "head", "", "LS", "bash\n", "数"] {
        let refused = service.client.try_execute(&tree, command, &[]).refused(403, "command_not_allowed");
        assert_eq!(refused["allowed"].as_array().unwrap().len(), 17, "{refused}");
    }
    let python = service.client.execute(&tree, "python", &["-c", "print(1)"]);
    assert_eq!(python["data"], "Exit Code: 0\nOutput:\n1\n");
}

#[test]
fn a_command_and_the_api_see_the_same_files() {
    let service = Service::start();
    let client = &service.client;
    client.upload(&skills("x", "代理"), "baseline", &skill_zip("技能", &[("数据/表.csv", "a,b\n1,2\n")]));
    for tree in [skill("张三", "代理", "技能"), workspace("张三", "代理")] {
        client.write(&tree, "目录/api.txt", "由接口\n");
        let run = client.execute(
            &tree,
            "bash",
            &["-c", "cat 目录/api.txt; echo 由命令 > 目录/cmd.txt; echo + >> 目录/api.txt"],
        );
        assert_eq!(run["data"], "Exit Code: 0\nOutput:\n由接口\n", "{run}");
        assert_eq!(client.text(&tree, "目录/cmd.txt"), "由命令\n");
        assert_eq!(client.text(&tree, "目录/api.txt"), "由接口\n+\n");
        client.write(&tree, "目录/cmd.txt", "again\n");
        assert_eq!(client.execute(&tree, "cat", &["目录/cmd.txt"])["result"]["stdout"], "again\n");
    }
    let theirs = skill("李四", "代理", "技能");
    assert_eq!(client.files(&theirs), ["SKILL.md", "数据/表.csv"]);
    assert_eq!(client.execute(&theirs, "cat", &["数据/表.csv"])["result"]["stdout"], "a,b\n1,2\n");
}

#[test]
fn paths_in_sandbox_form_reach_the_tree() {
    let service = Service::start();
    let client = &service.client;
    client.upload(&skills("x", "a"), "baseline", &skill_zip("技能", &[("f.txt", "skill")]));
    client.write(&workspace("u", "a"), "f.txt", "workspace");
    let seen = client.execute(&workspace("u", "a"), "cat", &["/workspace/f.txt"]);
    assert_eq!(seen["result"]["stdout"], "workspace", "{seen}");
    let seen = client.execute(&skill("u", "a", "技能"), "cat", &["/workspace/skills/技能/f.txt"]);
    assert_eq!(seen["result"]["stdout"], "skill", "{seen}");
    client.try_execute(&skill("u", "a", "技能"), "cat", &["/workspace/f.txt"]).refused(403, "path_escape");
    // The physical path of the founding design.
    let physical = format!("{}/sandbox/u/a/f.txt", client.root);
    let seen = client.execute(&workspace("u", "a"), "cat", &[&physical]);
    assert_eq!(seen["result"]["stdout"], "workspace", "{seen}");
}

#[test]
fn exec_takes_a_specification_and_answers_the_result() {
    let service = Service::start();
    let client = &service.client;
    let tree = workspace("u", "a");
    client.write(&tree, "d/f", "");
    let exec = |spec: Value| client.post_json(format!("{tree}/exec"), &spec);
    let run = exec(json!({"command": "cat", "args": ["-"], "stdin": "输入"})).ok();
    assert_eq!((&run["data"]["stdout"], &run["data"]["exit_code"]), (&json!("输入"), &json!(0)));
    let run =
        exec(json!({"shell": "printf %s \"$GREETING\"; ls", "dir": "d", "env": {"GREETING": "你好 "}})).ok();
    assert_eq!(run["data"]["stdout"], "你好 f\n");
    let run = exec(json!({"shell": "ls", "dir": "/workspace/d"})).ok();
    assert_eq!(run["data"]["stdout"], "f\n");
    let run = exec(json!({"shell": "printf '\\377'", "encoding": "base64"})).ok();
    assert_eq!((&run["data"]["stdout"], &run["data"]["stdout_base64"]), (&json!("\u{fffd}"), &json!("/w==")));
    let run = exec(json!({"command": "cat", "stdin_base64": "AP8K", "encoding": "base64"})).ok();
    assert_eq!(run["data"]["stdout_base64"], "AP8K");
    exec(json!({"command": "cat", "stdin_base64": "A"})).refused(400, "invalid");
    exec(json!({"command": "cat", "stdin_base64": "AP8K", "stdin": "x"})).refused(400, "invalid");
    exec(json!({"command": "ls", "dir": "none"})).refused(404, "not_found");
    exec(json!({"command": "ls", "dir": "../x"})).refused(403, "path_escape");
    let best = exec(json!({"command": "ls"})).ok()["data"]["enforcement"]["tier"].clone();
    let mounted = best == "namespaces";
    let unseen = if mounted { (404, "not_found") } else { (501, "unsupported") };
    let demanded = exec(json!({"command": "ls", "isolation": "namespaces"}));
    if mounted {
        demanded.ok();
    } else {
        demanded.refused(501, "unsupported");
    }
    exec(json!({"command": "ls", "network": "host"})).refused(501, "unsupported");
    for (wrong, status, code) in [
        (json!({}), 400, "invalid"),
        (json!({"command": "ls", "shell": "ls"}), 400, "invalid"),
        (json!({"shell": "ls", "args": ["x"]}), 400, "invalid"),
        (json!({"command": "ls", "timeout": 1}), 400, "invalid"),
        (json!({"command": "ls", "timeout_ms": -1}), 400, "invalid"),
        (json!({"command": "ls", "isolation": "vm"}), 400, "invalid"),
        (json!({"command": "ls", "env": {"A=B": "x"}}), 400, "invalid"),
        (json!({"command": "ls", "env": {"A": "x\0"}}), 400, "invalid"),
        (json!({"command": "ls", "args": ["a\0b"]}), 400, "invalid"),
        (json!({"command": "ls", "args": [format!("-{}", "x".repeat(200_000))]}), 400, "invalid"),
        (json!({"command": "ls", "skills": ["none-such"]}), unseen.0, unseen.1),
        (json!({"command": "ls", "skills": "some"}), 400, "invalid"),
        (json!({"command": "ls", "skills": ["../x"]}), 400, "invalid"),
        (json!({"command": "ls", "skills": vec!["s"; 65]}), 400, "invalid"),
        (json!({"command": "ls", "exec_id": "../x"}), 400, "invalid"),
        (json!({"command": "ls", "exec_id": ""}), 400, "invalid"),
        (json!({"command": "ls", "exec_id": 5}), 400, "invalid"),
        (json!({"command": "ls", "limits": {}}), 501, "unsupported"),
        (json!({"command": "perl"}), 403, "command_not_allowed"),
    ] {
        exec(wrong).refused(status, code);
    }
}

#[test]
fn the_deadline_ends_a_run_and_is_a_result() {
    let service = Service::start();
    let tree = workspace("u", "a");
    let run = service.client.post_json(
        format!("{tree}/execute?command=bash&timeout_ms=400"),
        &json!(["-c", "echo begun; sleep 600"]),
    );
    let answer = run.ok();
    let told = answer["data"].as_str().unwrap();
    assert!(
        told.starts_with("Exit Code: -1\nOutput:\nbegun\n[the deadline ended the run after 400 ms"),
        "{told}"
    );
    assert_eq!((&answer["result"]["timed_out"], &answer["result"]["exit_code"]), (&json!(true), &json!(-1)));
}

#[test]
fn the_environment_of_the_service_stays_with_the_service() {
    let service = Service::with(crate::support::Settings {
        env: ["KUBERNETES_PORT", "SERVICE_HOST", "SECRET_KEY", "ORDINARY"]
            .map(|name| (name.to_owned(), "leaked-value".to_owned()))
            .into(),
        ..Default::default()
    });
    let tree = workspace("u", "a");
    let run =
        service.client.execute(&tree, "bash", &["-c", "env; cat $(echo /pro)c/*/environ | tr '\\0' '\\n'"]);
    let seen = run["result"]["stdout"].as_str().unwrap();
    assert!(seen.contains("PATH="), "the control: {run}");
    assert!(!seen.contains("leaked-value"), "{seen}");
    for name in ["KUBERNETES_X", "SERVICE_X", "SECRET_X"] {
        let spec = json!({"shell": "env", "env": {name: "sent-value"}});
        let reply = service.client.post_json(format!("{tree}/exec"), &spec);
        assert!(!String::from_utf8_lossy(&reply.body).contains("sent-value"), "{name}");
    }
}

#[test]
fn the_service_tells_that_it_lives_and_what_it_is() {
    let service = Service::start();
    assert_eq!(service.client.get("/healthz").ok()["data"], "ok");
    let info = service.client.get("/v1/info");
    let data = &info.ok()["data"];
    assert_eq!(data["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(
        data["commands"],
        json!(
            "python3 pip pip3 bash sh ls cat grep sed awk echo cp mv rm mkdir find curl"
                .split(' ')
                .collect::<Vec<_>>()
        )
    );
    assert!(data["host"]["enforcement"]["tier"].is_string());
    assert_eq!(data["limits"]["runs"]["timeout_ms"], 300_000);
    assert!(!String::from_utf8_lossy(&info.body).contains(&service.client.root));
}

#[test]
fn two_services_of_one_machine_leave_each_others_runs_alone() {
    let (one, two) = (Service::start(), Service::start());
    let tree = workspace("u", "a");
    std::thread::scope(|scope| {
        let long = scope.spawn(|| {
            let args = json!(["-c", "echo x > begun; while [ ! -e stop ]; do sleep 0.05; done; echo whole"]);
            one.client.post_json(format!("{tree}/execute?command=bash"), &args).ok()
        });
        while one.client.get(format!("{tree}/stat?path=begun")).status != 200 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        // The same user and agent, and a run that leaves something to kill.
        two.client.execute(&tree, "bash", &["-c", "sleep 1000 >/dev/null 2>&1 & echo done"]);
        one.client.write(&tree, "stop", "");
        let run = long.join().unwrap();
        assert_eq!(run["data"], "Exit Code: 0\nOutput:\nwhole\n", "{run}");
    });
}
