//! MCP over standard input and output: `filesecbox mcp`, with a running service and with one inside.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::bridge::{Bridge, call, command, request};
use crate::client::{ERAS, Era, ON};
use crate::support::{Client, Service, Settings, assert_gone, children_of, digest, landlocked, program};

const TREE: &str = "/v1/sandbox/alice/demo";

/// Longest wait for something that happens. Only a service that hangs reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

fn wait(what: &str, until: impl Fn() -> bool) {
    let begin = Instant::now();
    while !until() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn url(client: &Client) -> String {
    format!("http://{}", client.address)
}

fn exists(client: &Client, name: &str) -> bool {
    client.get(format!("{TREE}/raw/{name}")).status == 200
}

fn runs(client: &Client) -> usize {
    client.get("/v1/runs").ok()["data"].as_array().unwrap().len()
}

/// A service that knows alice by the token `her-secret`.
fn closed() -> Service {
    let digest = digest("her-secret");
    Service::configured(&format!(
        "{ON}[[tokens]]\nsha256 = \"{digest}\"\nrole = \"user\"\nuser = \"alice\"\n"
    ))
}

#[test]
fn clients_of_both_eras_use_a_workspace_and_nothing_but_messages_is_written() {
    let service = closed();
    let client = service.client.with_token("her-secret");
    for era in ERAS {
        let mut command = command(&url(&client));
        command.env("FILESECBOX_TOKEN", "her-secret").env("RUST_LOG", "trace").env("FILESECBOX_LOG", "trace");
        let mut bridge = Bridge::begun(command, era);
        let tools = bridge.ask(&request(era, "list", "tools/list", json!({})));
        assert_eq!(tools["result"]["tools"].as_array().unwrap().len(), 6, "{tools}");
        let path = "目录/a b.txt";
        let edit = json!({ "path": path, "mode": "create", "content": "一\n二\n", "rewrite": true });
        let edited = bridge.ask(&call(era, 1, "Edit", edit));
        assert_eq!(edited["result"]["isError"], false, "{edited}");
        let read = bridge.ask(&call(era, 2, "Read", json!({ "path": path })));
        assert_eq!(read["result"]["structuredContent"]["text"], "一\n二\n");
        assert_eq!(read["result"].get("resultType").is_some(), era == Era::Modern);
        let listed = bridge.ask(&request(era, 3, "resources/list", json!({})));
        let uri = &listed["result"]["resources"][0]["uri"];
        let resource = bridge.ask(&request(era, 4, "resources/read", json!({ "uri": uri })));
        assert_eq!(resource["result"]["contents"][0]["text"], "一\n二\n");
        // A client need not encode what it names.
        let uri = format!("workspace:///{path}");
        let resource = bridge.ask(&request(era, 5, "resources/read", json!({ "uri": uri })));
        assert_eq!(resource["result"]["contents"][0]["text"], "一\n二\n");
        assert_eq!(bridge.ask(&call(era, 6, "Nope", json!({})))["error"]["code"], -32602);
        assert_eq!(bridge.ask(&request(era, 7, "no/such", json!({})))["error"]["code"], -32601);
        let (status, written, errors) = bridge.end();
        assert_eq!((status.code(), written.as_str(), errors.as_str()), (Some(0), "", ""));
    }
}

#[test]
fn what_is_no_message_is_answered_and_the_next_one_works() {
    let service = crate::client::service();
    let mut bridge = Bridge::start(command(&url(&service.client)));
    let long = call(Era::Legacy, 1, "Edit", json!({ "content": "x".repeat(5 << 20) }));
    for (line, code) in
        [("no", -32700), ("[]", -32600), ("[{}", -32600), (&*long.to_string(), -32600), ("\u{1}", -32700)]
    {
        bridge.line(line);
        let answer = bridge.message();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!(code)), "{answer}");
    }
    bridge.line("\r\n");
    assert_eq!(bridge.ask(&request(Era::Legacy, 1, "ping", json!({})))["result"], json!({}));
    let (status, written, _) = bridge.end();
    assert_eq!((status.code(), written.as_str()), (Some(0), ""));
}

#[test]
fn a_refusal_of_the_service_is_an_error_with_its_code_and_no_token_is_told() {
    let service = closed();
    let address = url(&service.client);
    for (token, user, code) in [
        ("wrong-secret", "alice", "unauthenticated"),
        ("her-secret", "bob", "not_found"),
        ("", "alice", "unauthenticated"),
    ] {
        let mut command = program();
        command.args(["mcp", "--server", &address, "--user", user, "--agent", "demo"]);
        if !token.is_empty() {
            command.env("FILESECBOX_TOKEN", token);
        }
        let mut bridge = Bridge::start(command);
        let answer = bridge.ask(&request(Era::Modern, 1, "server/discover", json!({})));
        assert_eq!(answer["error"]["data"]["code"], code, "{answer}");
        assert!(!answer.to_string().contains("secret"), "{answer}");
        let (_, written, errors) = bridge.end();
        assert_eq!((written.as_str(), errors.as_str()), ("", ""));
    }
}

#[test]
fn requests_are_under_way_at_once_and_a_cancelled_one_ends_without_an_answer() {
    let service = crate::client::service();
    let client = &service.client;
    if !landlocked(client) {
        return;
    }
    for (round, era) in ERAS.into_iter().enumerate() {
        let mut bridge = Bridge::begun(command(&url(client)), era);
        let slow = format!("touch begun{round}; while ! test -e go; do sleep 0.05; done; touch late{round}");
        bridge.send(&call(era, "slow", "Shell", json!({ "command": slow })));
        wait("it begins", || exists(client, &format!("begun{round}")));
        let again = bridge.ask(&call(era, "slow", "Read", json!({ "path": "x" })));
        assert_eq!(again["error"]["code"], -32600, "an id that is under way");
        let read = bridge.ask(&call(era, 2, "Read", json!({ "path": format!("begun{round}") })));
        assert_eq!(read["result"]["isError"], false, "{read}");
        let cancelled = json!({ "requestId": "slow", "reason": "a person left" });
        bridge.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled }));
        wait("it ends", || runs(client) == 0);
        client.write(TREE, "go", "");
        let read = bridge.ask(&call(era, "slow", "Read", json!({ "path": "go" })));
        assert_eq!(
            read["result"]["isError"], false,
            "the id is free again, and the next answer is of it: {read}"
        );
        assert!(!exists(client, &format!("late{round}")));
        assert_eq!(bridge.end().1, "");
        client.delete(format!("{TREE}/file?path=go")).ok();
    }
}

#[test]
fn one_request_more_than_there_may_be_is_told_busy() {
    let service = crate::client::service();
    let client = &service.client;
    if !landlocked(client) {
        return;
    }
    let mut bridge = Bridge::begun(command(&url(client)), Era::Modern);
    for id in 0..32 {
        let wait = json!({ "command": "while ! test -e go; do sleep 0.05; done" });
        bridge.send(&call(Era::Modern, id, "Shell", wait));
    }
    let busy = bridge.ask(&request(Era::Modern, "more", "tools/list", json!({})));
    assert_eq!(busy["error"]["data"]["code"], "busy", "{busy}");
    client.write(TREE, "go", "");
    let mut answered: Vec<u64> = (0..32).map(|_| bridge.message()["id"].as_u64().unwrap()).collect();
    answered.sort_unstable();
    assert_eq!(answered, (0..32).collect::<Vec<_>>());
}

#[test]
fn the_end_of_the_client_ends_the_bridge_and_what_it_runs() {
    let service = crate::client::service();
    let client = &service.client;
    if !landlocked(client) {
        return;
    }
    for signal in [None, Some(Signal::TERM), Some(Signal::KILL)] {
        let mut bridge = Bridge::begun(command(&url(client)), Era::Modern);
        let slow = json!({ "command": "touch begun; while ! test -e go; do sleep 0.05; done; touch late" });
        bridge.send(&call(Era::Modern, 1, "Shell", slow));
        wait("it begins", || exists(client, "begun"));
        match signal {
            None => {
                let (status, written, _) = bridge.end();
                assert_eq!((status.code(), written.as_str()), (Some(0), ""));
            }
            Some(signal) => {
                kill_process(Pid::from_child(&bridge.child), signal).unwrap();
                assert!(!bridge.wait().success());
            }
        }
        wait("the run ends", || runs(client) == 0);
        client.write(TREE, "go", "");
        assert!(!exists(client, "late"));
        client.delete(format!("{TREE}/file?path=go")).ok();
        client.delete(format!("{TREE}/file?path=begun")).ok();
    }
}

#[test]
fn a_service_that_comes_later_is_waited_for() {
    // A free port, which the service takes after the bridge has begun.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let mut bridge = Bridge::start(command(&format!("http://{address}")));
    bridge.send(&request(Era::Modern, 1, "server/discover", json!({})));
    let listen = Some(address);
    let service = Service::with(Settings { config: Some(ON.to_owned()), listen, ..Settings::default() });
    let mut answer = bridge.message();
    // On a slow machine it may come later than a request waits.
    while answer["error"]["data"]["code"] == "disconnected" {
        answer = bridge.ask(&request(Era::Modern, 2, "server/discover", json!({})));
    }
    assert!(answer["result"]["supportedVersions"].is_array(), "{answer}");
    drop(service);
}

#[test]
fn an_address_that_is_none_is_told_on_standard_error() {
    for address in ["ftp://127.0.0.1", "127.0.0.1:1", "http://127.0.0.1/?a=b", "http://"] {
        let (status, written, errors) = Bridge::start(command(address)).end();
        assert_eq!((status.code(), written.as_str()), (Some(1), ""), "{address}");
        assert!(errors.contains("http://HOST:PORT"), "{errors}");
    }
}

#[test]
fn with_a_service_inside_nothing_else_need_run_and_nothing_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let inside = || {
        let mut command = program();
        command.args(["mcp", "--user", "alice", "--agent", "demo", "--root"]).arg(dir.path());
        command.env("FILESECBOX_LOG", "warn");
        command
    };
    let mut bridge = Bridge::begun(inside(), Era::Modern);
    let started = children_of(bridge.child.id());
    assert!(!started.is_empty());
    let edit = json!({ "path": "a.txt", "mode": "create", "content": "kept\n" });
    assert_eq!(bridge.ask(&call(Era::Modern, 1, "Edit", edit))["result"]["isError"], false);
    let (status, written, _) = bridge.end();
    assert_eq!((status.code(), written.as_str()), (Some(0), ""));
    assert_gone(&started);
    // The data directory is free again, and has what was written.
    let mut bridge = Bridge::begun(inside(), Era::Legacy);
    let started = children_of(bridge.child.id());
    let read = bridge.ask(&call(Era::Legacy, 1, "Read", json!({ "path": "a.txt" })));
    assert_eq!(read["result"]["structuredContent"]["text"], "kept\n");
    // Two at once have no directory together.
    let (status, written, errors) = Bridge::start(inside()).end();
    assert_eq!((status.code(), written.as_str()), (Some(1), ""), "{errors}");
    assert!(errors.contains("did not start"), "{errors}");
    kill_process(Pid::from_child(&bridge.child), Signal::KILL).unwrap();
    bridge.wait();
    assert_gone(&started);
}
