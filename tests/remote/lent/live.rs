//! Commands on a lent machine in which a caller takes part: streams, input, signals, terminals, and all of that across broken
//! connections.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::proxy::Proxy;
use super::{Runner, await_connected, lend};
use crate::client::Client;
use crate::events::Events;
use crate::server::Server;
use crate::websocket::Message;

/// Longer than anything here takes, on the slowest machine.
const MANY_SECONDS: Duration = Duration::from_secs(120);

/// A machine of `user` behind a connection that can be cut.
struct Machine {
    tree: String,
    user: String,
    place: PathBuf,
    proxy: Proxy,
    runner: Runner,
}

impl Machine {
    fn lend(server: &Server, user: &str) -> Self {
        let proxy = Proxy::start(server.client.address, Duration::ZERO);
        let place = server.place(user);
        let runner = lend(&proxy.address.to_string(), user, &place);
        await_connected(&server.client, user);
        Self { tree: format!("/v1/sandbox/{user}/live"), user: user.to_owned(), place, proxy, runner }
    }

    /// Cuts the connection, and waits until there is another one.
    fn cut(&self, client: &Client) {
        let since = |client: &Client| {
            client.get(format!("/v1/runners/{}", self.user)).ok()["data"][0]["since"].clone()
        };
        let former = since(client);
        self.proxy.cut();
        let begun = Instant::now();
        while since(client) == former || since(client).is_null() {
            assert!(begun.elapsed() < MANY_SECONDS, "it does not connect again");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Reads events until standard output has `text`; all of it, and the number of the last event.
fn output_until(events: &mut Events, text: &str) -> (String, u64) {
    let mut output = String::new();
    loop {
        let event = events.next().unwrap_or_else(|| panic!("it ended before {text:?}: {output:?}"));
        if event["event"] == "stdout" {
            output.push_str(event["text"].as_str().unwrap());
        }
        if output.contains(text) {
            return (output, event["seq"].as_u64().unwrap());
        }
    }
}

/// Reads events to the end: all of standard output, and the result.
pub(super) fn to_the_end(events: &mut Events) -> (String, Value) {
    let mut output = String::new();
    for event in events.by_ref() {
        match event["event"].as_str().unwrap() {
            "stdout" => output.push_str(event["text"].as_str().unwrap()),
            "exit" => return (output, event["result"].clone()),
            _ => {}
        }
    }
    panic!("no end after {} bytes", output.len());
}

/// The run `id`, when it has ended.
pub(super) fn ended(client: &Client, tree: &str, id: &str) -> Value {
    let begun = Instant::now();
    loop {
        let run = client.get(format!("{tree}/exec/{id}")).ok();
        if run["data"]["state"] == "ended" {
            return run["data"].clone();
        }
        assert!(begun.elapsed() < MANY_SECONDS, "{run}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(super) fn output_comes_as_it_is_written_and_input_goes_there(server: &Server) {
    let (client, machine) = (&server.client, Machine::lend(server, "live-streams"));
    let tree = &machine.tree;
    let spec = json!({ "shell": "echo 一; read line; echo got $line; cat; exit 3", "stdin_open": true, "exec_id": "talk" });
    let mut events = client.stream_run(tree, &spec);
    output_until(&mut events, "一\n");
    client.post(format!("{tree}/exec/talk/stdin"), "two\n").ok();
    output_until(&mut events, "got two\n");
    client.post(format!("{tree}/exec/talk/stdin?close=true"), "rest").ok();
    let (output, exit) = to_the_end(&mut events);
    assert_eq!((output.as_str(), &exit["exit_code"]), ("rest", &json!(3)), "{exit}");
    assert_eq!(exit["enforcement"]["backend"], "remote", "{exit}");
    client.post(format!("{tree}/exec/talk/stdin"), "late").refused(409, "conflict");
}

pub(super) fn signals_and_killing_reach_the_command(server: &Server) {
    let (client, machine) = (&server.client, Machine::lend(server, "live-signals"));
    let tree = &machine.tree;
    let script = "trap 'echo caught; exit 7' TERM; echo ready; while :; do sleep 0.05; done";
    let mut events = client.stream_run(tree, &json!({ "shell": script, "exec_id": "trap" }));
    output_until(&mut events, "ready\n");
    client.post_json(format!("{tree}/exec/trap/signal"), &json!({ "signal": "TERM" })).ok();
    let (output, exit) = to_the_end(&mut events);
    assert_eq!((output.as_str(), &exit["exit_code"]), ("caught\n", &json!(7)));

    let script = "(while :; do echo tick >> ticks; sleep 0.05; done) & echo on; wait";
    let mut events = client.stream_run(tree, &json!({ "shell": script, "exec_id": "ticks" }));
    output_until(&mut events, "on\n");
    client.delete(format!("{tree}/exec/ticks")).ok();
    let (_, exit) = to_the_end(&mut events);
    assert_eq!(exit["signal"], "SIGKILL", "{exit}");
    let ticks = || std::fs::read(machine.place.join("ticks")).map_or(0, |ticks| ticks.len());
    let begun = Instant::now();
    loop {
        let before = ticks();
        std::thread::sleep(Duration::from_millis(500));
        if ticks() == before {
            break;
        }
        assert!(begun.elapsed() < MANY_SECONDS, "it goes on");
    }
}

pub(super) fn a_terminal_is_there_and_outlives_a_cut(server: &Server) {
    let (client, machine) = (&server.client, Machine::lend(server, "live-terminal"));
    let target = format!("{}/terminal?rows=30&cols=100", machine.tree);
    let mut socket = client.websocket(&target, "").expect("a WebSocket");
    assert!(socket.told("started")["exec_id"].is_string());
    socket.type_in("stty size; x=kept; echo one$((1+1))\n");
    let shown = socket.shown_until("one2");
    assert!(shown.contains("30 100"), "{shown}");
    // What is asked while the machine is away comes to it in order.
    for rows in 50..58 {
        machine.proxy.cut();
        socket.say(&json!({ "type": "resize", "rows": rows, "cols": 132 }));
        socket.type_in(&format!("stty size; echo $x-$(({rows}+0))\n"));
        let shown = socket.shown_until(&format!("kept-{rows}"));
        assert!(shown.contains(&format!("{rows} 132")), "{shown}");
    }
    socket.type_in("exit 9\n");
    let exit = socket.told("exit");
    assert_eq!(exit["result"]["exit_code"], 9, "{exit}");
    assert_eq!(socket.next(), Message::Close);
}

pub(super) fn a_background_run_survives_cuts_and_tells_all_in_order(server: &Server) {
    const LINES: usize = 20_000;
    let (client, machine) = (&server.client, Machine::lend(server, "live-cuts"));
    let tree = &machine.tree;
    let script = format!(
        "echo begun >> times; i=0; while [ $i -lt {LINES} ]; do i=$((i+1)); echo line $i; [ $((i % 100)) = 0 ] && sleep 0.02; done"
    );
    let spec = json!({ "shell": script, "exec_id": "count", "timeout_ms": 300_000 });
    let begun = client.post_json(format!("{tree}/exec?background=true"), &spec);
    assert_eq!(begun.status, 201);
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(400));
        machine.cut(client);
    }
    let run = ended(client, tree, "count");
    assert_eq!(run["exit"]["exit_code"], 0, "{run}");
    let (output, _) = to_the_end(&mut client.resume(tree, "count", 0));
    let expected: String = (1..=LINES).map(|number| format!("line {number}\n")).collect();
    assert!(output == expected, "{} of {} bytes", output.len(), expected.len());
    assert_eq!(std::fs::read_to_string(machine.place.join("times")).unwrap(), "begun\n");
}

pub(super) fn input_across_a_cut_comes_once_and_whole(server: &Server) {
    let (client, machine) = (&server.client, Machine::lend(server, "live-input"));
    let tree = &machine.tree;
    let spec = json!({ "shell": "cat > taken; wc -c < taken", "stdin_open": true, "exec_id": "in" });
    let mut events = client.stream_run(tree, &spec);
    let piece: Vec<u8> = (0..=255).cycle().take(200_000).collect();
    for number in 0..6 {
        client.post(format!("{tree}/exec/in/stdin"), &piece).ok();
        if number % 2 == 1 {
            machine.proxy.cut();
            // What is sent while the machine is away waits for it.
            client.post(format!("{tree}/exec/in/stdin"), "|").ok();
            await_connected(client, &machine.user);
        }
    }
    client.post(format!("{tree}/exec/in/stdin?close=true"), "").ok();
    let (output, exit) = to_the_end(&mut events);
    assert_eq!((output.trim(), &exit["exit_code"]), ("1200003", &json!(0)), "{exit}");
    let mut expected = [piece.clone(), piece.clone(), b"|".to_vec()].concat();
    expected = expected.repeat(3);
    assert!(std::fs::read(machine.place.join("taken")).unwrap() == expected);
}

pub(super) fn a_runner_that_dies_ends_its_runs(server: &Server) {
    let (client, mut machine) = (&server.client, Machine::lend(server, "live-death"));
    let tree = machine.tree.clone();
    let spec = json!({ "shell": "echo before; sleep 600", "exec_id": "lost" });
    let mut events = client.stream_run(&tree, &spec);
    output_until(&mut events, "before\n");
    machine.runner.0.kill().unwrap();
    machine.runner = lend(&machine.proxy.address.to_string(), &machine.user, &machine.place);
    let begun = Instant::now();
    let (_, exit) = to_the_end(&mut events);
    // Another process of the runner knows nothing of it.
    assert!(exit["error"].is_string(), "{exit}");
    assert!(begun.elapsed() < MANY_SECONDS);
}

pub(super) fn a_command_that_cannot_begin_is_refused(server: &Server) {
    let (client, machine) = (&server.client, Machine::lend(server, "live-refused"));
    let tree = &machine.tree;
    let missing = json!({ "command": "no-such-program" });
    client.post_json(format!("{tree}/exec?background=true"), &missing).refused(404, "not_found");
    let outside = json!({ "shell": "true", "dir": "nowhere" });
    client.post_json(format!("{tree}/exec?background=true"), &outside).refused(404, "not_found");
}
