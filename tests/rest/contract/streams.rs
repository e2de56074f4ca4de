//! Streamed runs: every byte once and in order, also over broken connections, in bounded memory.

use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::support::{Client, Events, Service, memory_peak_bytes, reset_memory_peak, workspace};

const MIB: usize = 1024 * 1024;
/// A program that writes this many MiB of lines, each different from its neighbours.
const WRITE: &str = "import sys\nfor i in range(int(sys.argv[1]) * 16384): sys.stdout.write('%063d\\n' % i)";

fn write_mib(mib: usize, id: &str) -> Value {
    json!({"command": "python3", "args": ["-c", WRITE, mib.to_string()], "exec_id": id})
}

/// The output of [`WRITE`], checked piece by piece.
#[derive(Default)]
struct Check {
    bytes: usize,
    line: Vec<u8>,
    number: u64,
}

impl Check {
    fn take(&mut self, text: &str) {
        self.bytes += text.len();
        for byte in text.bytes() {
            self.line.push(byte);
            if byte == b'\n' {
                assert_eq!(self.line, format!("{:063}\n", self.number).as_bytes());
                self.number += 1;
                self.line.clear();
            }
        }
    }
}

/// The last event of a stream, which must follow the one before.
fn end(events: &mut Events) -> Value {
    events.last().expect("an event")
}

#[test]
fn fifty_mebibytes_arrive_whole_and_in_order_in_bounded_memory() {
    let service = Service::start();
    let tree = workspace("u", "a");
    reset_memory_peak(service.pid());
    let before = memory_peak_bytes(service.pid());
    let mut check = Check::default();
    let mut seq = 0;
    let mut last = Value::Null;
    for event in service.client.stream_run(&tree, &write_mib(50, "big")) {
        seq += 1;
        assert_eq!(event["seq"], seq, "numbers have no gaps");
        if event["event"] == "stdout" {
            check.take(event["text"].as_str().unwrap());
        }
        last = event;
    }
    assert_eq!(check.bytes, 50 * MIB);
    assert_eq!((&last["event"], &last["result"]["exit_code"]), (&json!("exit"), &json!(0)), "{last}");
    assert_eq!(last["result"]["stdout_bytes"], 50 * MIB);
    let grown = memory_peak_bytes(service.pid()).saturating_sub(before);
    assert!(grown < 24 * MIB as u64, "the service grew by {grown} bytes");
    // What was streamed is there once more.
    let again: usize = service.client.resume(&tree, "big", 0).map(text_length).sum();
    assert_eq!(again, 50 * MIB);
}

fn text_length(event: Value) -> usize {
    event["text"].as_str().map_or(0, str::len)
}

#[test]
fn a_reader_that_disconnects_ten_times_gets_every_byte_once() {
    let service = Service::start();
    let tree = workspace("u", "a");
    let mut check = Check::default();
    let mut after = 0;
    let mut events = service.client.stream_run(&tree, &write_mib(50, "broken"));
    for connection in 1..=11 {
        if connection > 1 {
            events = service.client.resume(&tree, "broken", after);
            assert_eq!(events.status, 200);
        }
        for event in events.by_ref() {
            assert_eq!(event["seq"], after + 1);
            after += 1;
            check.take(event["text"].as_str().unwrap_or_default());
            if check.bytes > connection * 5 * MIB - MIB && connection < 11 {
                break;
            }
        }
    }
    assert_eq!(check.bytes, 50 * MIB);
    assert_eq!(service.client.resume(&tree, "broken", after).next(), None, "the exit was the last event");
}

#[test]
fn a_run_goes_on_when_its_stream_is_dropped() {
    let service = Service::start();
    let tree = workspace("u", "a");
    let spec = json!({"shell": "echo begun; sleep 0.5; echo done > done.txt; echo end", "exec_id": "x"});
    let mut events = service.client.stream_run(&tree, &spec);
    assert_eq!(events.next().unwrap()["exec_id"], "x");
    assert_eq!(events.next().unwrap()["text"], "begun\n");
    drop(events);
    let rest: Vec<Value> = service.client.resume(&tree, "x", 2).collect();
    assert_eq!((rest.len(), &rest[0]["text"], &rest[0]["seq"]), (2, &json!("end\n"), &json!(3)), "{rest:?}");
    assert_eq!(service.client.text(&tree, "done.txt"), "done\n");
}

#[test]
fn server_sent_events_have_numbers_names_and_data() {
    let service = Service::start();
    let tree = workspace("u", "a");
    let body = json!({"shell": "echo 甲; echo 乙 >&2", "exec_id": "s"}).to_string();
    let mut events = service.client.stream("POST", &format!("{tree}/exec"), "text/event-stream", &body);
    let mut text = String::new();
    while let Some(line) = events.line() {
        text.push_str(&line);
    }
    let blocks: Vec<Vec<&str>> = text.trim_end().split("\n\n").map(|block| block.lines().collect()).collect();
    assert_eq!(blocks.len(), 4, "{text}");
    let outputs: Vec<&Vec<&str>> = blocks[1..3].iter().collect();
    for (event, sent) in [("stdout", "甲\\n"), ("stderr", "乙\\n")] {
        let found = outputs.iter().find(|block| block[1] == format!("event: {event}")).unwrap();
        assert!(found[2].starts_with("data: {") && found[2].contains(sent), "{found:?}");
    }
    assert_eq!(blocks[0][..2], ["id: 1", "event: started"]);
    assert_eq!(blocks[3][..2], ["id: 4", "event: exit"]);
    // A browser that comes back says what it had.
    let reply = service
        .client
        .stream("GET", &format!("{tree}/exec/s?follow=true"), "text/event-stream\r\nlast-event-id: 3", "")
        .line();
    assert_eq!(reply.as_deref(), Some("id: 4\n"));
}

#[test]
fn no_event_cuts_a_character_wherever_the_command_pauses() {
    let service = Service::start();
    let tree = workspace("u", "a");
    let text = "数据😀é";
    let script = "import os, sys, time\nfor byte in sys.argv[1].encode():\n os.write(1, bytes([byte])); time.sleep(0.01)";
    let spec = json!({"command": "python3", "args": ["-c", script, text]});
    let pieces: Vec<String> = service
        .client
        .stream_run(&tree, &spec)
        .filter(|event| event["event"] == "stdout")
        .map(|event| event["text"].as_str().unwrap().to_owned())
        .collect();
    assert!(pieces.len() > 1, "it came in pieces: {pieces:?}");
    assert!(!pieces.concat().contains('\u{FFFD}'), "{pieces:?}");
    assert_eq!(pieces.concat(), text);
}

#[test]
fn bytes_that_are_no_text_come_unharmed_in_base64() {
    let service = Service::start();
    let tree = workspace("u", "a");
    let script = "import os\nfor i in range(64): os.write(1, bytes(range(256)))";
    let spec = json!({"command": "python3", "args": ["-c", script], "encoding": "base64", "exec_id": "b"});
    let bytes = |events: Events| -> Vec<u8> {
        events
            .filter_map(|event| Some(STANDARD.decode(event["base64"].as_str()?).unwrap()))
            .flatten()
            .collect()
    };
    let wanted: Vec<u8> = (0..64).flat_map(|_| 0..=255).collect();
    assert!(bytes(service.client.stream_run(&tree, &spec)) == wanted);
    let target = format!("{tree}/exec/b?encoding=base64");
    assert!(bytes(service.client.stream("GET", &target, "application/x-ndjson", "")) == wanted);
}

/// The log holds 256 KiB, and no reader is attached while the command writes a mebibyte.
#[test]
fn what_has_given_way_is_gone_and_says_so() {
    let service = Service::configured("[limits.sessions]\nlog_bytes = 262144\n");
    let tree = workspace("u", "a");
    let mut spec = write_mib(1, "g");
    service.client.post_json(format!("{tree}/exec?background=true"), &spec).ok();
    let ended = service.client.get(format!("{tree}/exec/g?follow=true")).ok();
    let first = ended["data"]["first_seq"].as_u64().unwrap();
    let last = ended["data"]["last_seq"].as_u64().unwrap();
    assert!(first > 1 && last > first, "{}", ended["data"]);
    for after in [0, first - 2] {
        let reply = service
            .client
            .request("GET", format!("{tree}/exec/g?after={after}"))
            .header("accept", "application/x-ndjson")
            .send();
        assert_eq!(reply.refused(410, "gone")["first_seq"], first);
    }
    assert_eq!(service.client.resume(&tree, "g", first - 1).next().unwrap()["seq"], first);
    service
        .client
        .request("GET", format!("{tree}/exec/g?after={}", last + 1))
        .header("accept", "application/x-ndjson")
        .send()
        .refused(400, "invalid");
    // The result, which keeps head and tail, is another thing.
    assert_eq!(ended["result"]["stdout_bytes"], MIB);
    // A reader that is attached is waited for, so that nothing gives way before it.
    spec["exec_id"] = json!("h");
    let (mut check, mut last) = (Check::default(), Value::Null);
    for (number, event) in service.client.stream_run(&tree, &spec).enumerate() {
        if number == 3 {
            std::thread::sleep(Duration::from_millis(300));
        }
        check.take(event["text"].as_str().unwrap_or_default());
        last = event;
    }
    assert_eq!(check.bytes, MIB, "{last}");
}

#[test]
fn a_reader_that_takes_nothing_holds_the_command_up_only_so_long() {
    let service = Service::configured("[limits.sessions]\nlog_bytes = 262144\npatience_ms = 500\n");
    let tree = workspace("u", "a");
    // Far more than the buffers of a connection hold.
    let mut events = service.client.stream_run(&tree, &write_mib(32, "slow"));
    assert_eq!(events.next().unwrap()["event"], "started");
    let begun = Instant::now();
    let ended = service.client.get(format!("{tree}/exec/slow?follow=true")).ok();
    assert_eq!(ended["data"]["exit"]["exit_code"], 0, "{}", ended["data"]);
    assert!(begun.elapsed() < Duration::from_secs(30));
    let last = end(&mut events);
    assert_eq!(last["event"], "gone", "{last}");
    assert!(last["first_seq"].as_u64().unwrap() > 1);
}

fn stream_at_once(service: &Service, count: usize) {
    let client: &Client = &service.client;
    let sum: usize = std::thread::scope(|scope| {
        let stream = |number: usize| {
            let tree = workspace(&format!("u{number}"), "a");
            let script = format!("for i in 1 2 3 4 5; do echo {number}-$i; sleep 0.1; done");
            let events = client.stream_run(&tree, &json!({ "shell": script }));
            let text: String = events.filter_map(|event| Some(event["text"].as_str()?.to_owned())).collect();
            let wanted: String = (1..=5).map(|i| format!("{number}-{i}\n")).collect();
            assert_eq!(text, wanted);
            1
        };
        let readers: Vec<_> = (0..count).map(|number| scope.spawn(move || stream(number))).collect();
        readers.into_iter().map(|reader| reader.join().unwrap()).sum()
    });
    assert_eq!(sum, count);
}

#[test]
fn a_hundred_streams_at_once_each_get_their_own() {
    let service = Service::configured("[limits.runs]\nruns = 100\nqueue_ms = 60000\n");
    stream_at_once(&service, 100);
}

#[test]
fn five_hundred_streams_at_once_each_get_their_own() {
    if std::env::var_os("FILESECBOX_LARGE").is_none() {
        eprintln!("SKIPPED: set FILESECBOX_LARGE=1 for 500 streams at once");
        return;
    }
    let service = Service::configured("[limits.runs]\nruns = 500\nqueue_ms = 60000\n");
    stream_at_once(&service, 500);
    eprintln!("500 streams: {} MiB at most", memory_peak_bytes(service.pid()) / MIB as u64);
}

#[test]
fn a_failure_before_the_command_runs_has_its_status_in_a_stream_too() {
    let service = Service::start();
    let tree = workspace("u", "a");
    for (spec, status) in [
        (json!({"command": "perl"}), 403),
        (json!({"command": "ls", "dir": "none"}), 404),
        (json!({"command": "ls", "exec_id": "a/b"}), 400),
    ] {
        assert_eq!(service.client.stream_run(&tree, &spec).status, status, "{spec}");
    }
    assert_eq!(service.client.get(format!("{tree}/exec")).ok()["data"], json!([]));
}
