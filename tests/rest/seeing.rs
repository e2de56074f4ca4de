//! Request ids, log lines, figures, readiness.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{Service, Settings, digest, have, landlocked};

/// A service that logs requests as JSON.
fn logging(config: &str) -> Service {
    let env = vec![("FILESECBOX_LOG".to_owned(), "info".to_owned())];
    let config = Some(format!("{config}\n[log]\nformat = \"json\"\n"));
    Service::with(Settings { env, config, ..Settings::default() })
}

/// The line of the request to which its sender gave this id.
fn line(service: &Service, id: &str) -> Value {
    let lines: Vec<Value> = service.log().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut found =
        lines.into_iter().filter(|line| line["caller_request_id"] == id && line["message"] == "answered");
    let line = found.next().unwrap_or_else(|| panic!("no line for {id}: {}", service.log()));
    assert!(found.next().is_none(), "one line a request");
    line
}

#[test]
fn every_answer_has_an_id_of_its_own_whatever_its_sender_calls_the_request() {
    let service = Service::start();
    let ask = |method: &str, target: &str, id: Option<&str>| {
        let request = service.client.request(method, target);
        let reply = match id {
            Some(id) => request.header("x-request-id", id).send(),
            None => request.send(),
        };
        reply.header("x-request-id").unwrap_or_else(|| panic!("{method} {target}: no id")).to_owned()
    };
    for (method, target) in [
        ("GET", "/healthz"),
        ("GET", "/v1/sandbox/u/a/files"),
        ("GET", "/v1/sandbox/u/a/raw/none"),
        ("POST", "/v1/sandbox/u/a/mkdir"),
        ("GET", "/no/route"),
        ("PUT", "/healthz"),
        ("GET", "/v1/sandbox/%ff/a/files"),
    ] {
        let own = ask(method, target, Some("my.own_id-1"));
        assert!(own != "my.own_id-1" && own != ask(method, target, Some("my.own_id-1")), "{own}");
        let (one, other) = (ask(method, target, None), ask(method, target, Some("not a sane id")));
        assert!(one != other && one.len() <= 64 && !other.contains(' '), "{one} {other}");
    }
}

#[test]
fn each_request_has_one_line_that_tells_who_and_what_and_no_secret() {
    let service =
        logging(&format!("[[tokens]]\nsha256 = \"{}\"\nrole = \"engine\"\nname = \"platform\"", digest("t")));
    let engine = service.client.with_token("t");
    let send = |client: &crate::support::Client, id: &str, target: &str, body: &str| {
        client.request("PUT", target).header("x-request-id", id).body(body).send()
    };
    send(&engine, "one", "/v1/sandbox/alice/demo/edit?path=secret-name.md", "secret content").ok();
    send(&service.client, "two", "/v1/sandbox/alice/demo/edit?path=secret-name.md", "secret content");
    let wrong = service.client.with_token("secret-token");
    send(&wrong, "three", "/v1/sandbox/alice/demo/edit?path=secret-name.md", "secret content");
    let told = line(&service, "one");
    assert_ne!(told["request_id"], "one");
    assert_eq!(told["route"], "/v1/sandbox/{u}/{a}/edit");
    assert_eq!((&told["method"], &told["status"]), (&"PUT".into(), &200.into()));
    assert_eq!(
        (&told["user"], &told["role"], &told["token"]),
        (&"alice".into(), &"engine".into(), &"platform".into())
    );
    assert!(told["took_us"].as_u64().unwrap() > 0);
    for id in ["two", "three"] {
        let told = line(&service, id);
        assert_eq!((&told["status"], told.get("role")), (&401.into(), None));
    }
    assert!(!service.log().contains("secret"), "{}", service.log());
    assert!(!service.log().contains(service.root.to_str().unwrap()), "{}", service.log());
}

#[test]
fn a_service_can_be_told_not_to_log_requests() {
    let service = logging("[limits]\nviews = 1\n").log();
    assert!(!service.is_empty(), "the control: it logs");
    let env = vec![
        ("FILESECBOX_LOG".to_owned(), "info".to_owned()),
        ("FILESECBOX_LOG__REQUESTS".to_owned(), "false".to_owned()),
    ];
    let mut service = Service::with(Settings { env, ..Settings::default() });
    service.client.get("/healthz").ok();
    service.terminate();
    assert!(service.wait().success());
    assert!(!service.log().contains("filesecbox::request"), "{}", service.log());
}

/// The value of one figure.
fn figure(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no `{name}` in {text}")).parse().unwrap()
}

#[test]
fn figures_count_requests_runs_bytes_and_refusals_and_name_nobody() {
    let service = Service::configured("[limits.disk]\nfiles = 3\n");
    let client = &service.client;
    for name in ["secret-a", "secret-b"] {
        client.write("/v1/sandbox/secret-user/secret-agent", name, "x");
    }
    client.put("/v1/sandbox/secret-user/secret-agent/raw/one-too-many", "x");
    client.put("/v1/sandbox/secret-user/secret-agent/raw/two-too-many", "x");
    client.get("/v1/secret-route");
    let ran = landlocked(client);
    if ran {
        client.try_execute("/v1/sandbox/u/a", "bash", &["-c", "exit 3"]);
    }
    let reply = client.get("/metrics");
    assert_eq!(reply.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let text = String::from_utf8(reply.bytes(200).to_vec()).unwrap();
    let edits =
        "filesecbox_http_requests_total{route=\"/v1/sandbox/{u}/{a}/edit\",method=\"PUT\",status=\"200\"}";
    assert_eq!(figure(&text, edits), 2.0);
    assert!(figure(&text, "filesecbox_http_failures_total{code=\"quota\"}") >= 1.0);
    assert_eq!(
        figure(&text, "filesecbox_http_requests_total{route=\"none\",method=\"GET\",status=\"404\"}"),
        1.0
    );
    assert!(figure(&text, "filesecbox_received_bytes_total") > 100.0);
    assert!(figure(&text, "filesecbox_sent_bytes_total") > 100.0);
    assert_eq!(figure(&text, "filesecbox_connections"), 1.0);
    assert_eq!(figure(&text, "filesecbox_audit_writable"), 1.0);
    assert!(figure(&text, "filesecbox_disk_free_bytes") > 1.0);
    if ran {
        let exited = text.lines().find(|line| line.starts_with("filesecbox_runs_total{outcome=\"exited\""));
        assert!(exited.is_some_and(|line| line.ends_with(" 1")), "{text}");
    }
    assert!(!text.contains("secret"), "{text}");
}

#[test]
fn prometheus_finds_no_fault_in_the_figures() {
    let service = Service::start();
    let client = &service.client;
    client.write("/v1/sandbox/u/a", "a", "x");
    client.get("/v1/none");
    if landlocked(client) {
        client.execute("/v1/sandbox/u/a", "ls", &[]);
    }
    let asked =
        client.request("GET", "/metrics").header("accept", "application/openmetrics-text;version=1.0.0");
    let open = asked.send();
    assert_eq!(
        open.header("content-type"),
        Some("application/openmetrics-text; version=1.0.0; charset=utf-8")
    );
    assert!(open.bytes(200).ends_with(b"# EOF\n"));
    if !have("promtool") {
        return;
    }
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped()).stdout(Stdio::piped());
    let mut check = promtool.spawn().unwrap();
    check.stdin.take().unwrap().write_all(client.get("/metrics").bytes(200)).unwrap();
    let checked = check.wait_with_output().unwrap();
    let told = [checked.stdout, checked.stderr].concat();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&told));
    assert!(told.is_empty(), "{}", String::from_utf8_lossy(&told));
}

#[test]
fn commands_under_way_are_counted_also_in_the_background() {
    let service = Service::start();
    let client = &service.client;
    if !landlocked(client) {
        return;
    }
    let running = || {
        let text = String::from_utf8(client.get("/metrics").bytes(200).to_vec()).unwrap();
        figure(&text, "filesecbox_runs_running")
    };
    assert_eq!(running(), 0.0);
    let body = serde_json::json!({ "command": "bash", "args": ["-c", "sleep 60"], "exec_id": "long" });
    assert_eq!(client.post_json("/v1/sandbox/u/a/exec?background=true", &body).status, 201);
    assert_eq!(running(), 1.0);
    client.delete("/v1/sandbox/u/a/exec/long").ok();
    let begin = std::time::Instant::now();
    while running() != 0.0 {
        assert!(begin.elapsed() < std::time::Duration::from_secs(30));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn a_service_is_ready_until_the_disk_has_less_room_than_it_is_to_keep() {
    let service = Service::start();
    assert_eq!(service.client.get("/readyz").ok()["data"]["disk"], true);
    let full = Service::configured("[limits.disk]\nfree_bytes = 9000000000000000000\n");
    full.client.get("/healthz").ok();
    let answer = full.client.get("/readyz").refused(503, "disconnected");
    assert_eq!((&answer["disk"], &answer["audit"]), (&false.into(), &true.into()));
}
