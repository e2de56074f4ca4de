//! What a broken connection may cost: nothing that was acknowledged, and nothing twice.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::proxy::Proxy;
use super::{await_connected, lend};
use crate::client::Client;
use crate::server::Server;

/// How often the connection is cut, unless `FILESECBOX_CUTS` says otherwise.
const CUTS: usize = 6;
/// The lines of a run in the background.
const LINES: usize = 60;
/// The longest that any request may take: a command has half a minute, and a runner 15 s more to tell of it.
const LONGEST: Duration = Duration::from_secs(50);

/// The same of a large file.
const CARRYING: Duration = Duration::from_secs(85);
/// The bytes of a large file.
const LARGE: usize = 100_000_000;

const TREE: &str = "/v1/sandbox/cut/lent";

/// The outcome of a request: what was acknowledged, and what was not and may have been done.
#[derive(Default)]
struct Told {
    acknowledged: Vec<usize>,
    doubtful: Vec<usize>,
    longest: Duration,
}

impl Told {
    fn note(&mut self, number: usize, begun: Instant, status: u16, body: &[u8]) {
        self.longest = self.longest.max(begun.elapsed());
        match status {
            200 | 201 => self.acknowledged.push(number),
            // Away, cut, or silent.
            503 | 504 | 429 => self.doubtful.push(number),
            other => panic!("{other}: {}", String::from_utf8_lossy(body)),
        }
    }
}

fn text(number: usize) -> String {
    // Some are several pieces long.
    format!("{number}\n").repeat(if number.is_multiple_of(10) { 300_000 } else { 3 })
}

fn write(client: &Client, is_over: &AtomicBool) -> Told {
    let mut told = Told::default();
    for number in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let begun = Instant::now();
        let reply = client.put(format!("{TREE}/raw/f{number}"), text(number));
        told.note(number, begun, reply.status, &reply.body);
        std::thread::sleep(Duration::from_millis(20));
    }
    told
}

fn run(client: &Client, is_over: &AtomicBool) -> Told {
    let mut told = Told::default();
    for number in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let begun = Instant::now();
        let script = format!("echo {number} >> log; sleep 0.0{}", number % 7);
        let body: Value = json!({ "shell": script, "timeout_ms": 30_000 });
        let reply = client.post_json(format!("{TREE}/exec"), &body);
        told.note(number, begun, reply.status, &reply.body);
        std::thread::sleep(Duration::from_millis(20));
    }
    told
}

/// Runs in the background, one after the other: one that has begun tells all its lines, in order, across every cut.
fn in_the_background(client: &Client, is_over: &AtomicBool) -> Told {
    let mut told = Told::default();
    for number in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let begun = Instant::now();
        let lines = format!("for i in $(seq {LINES}); do echo $i; sleep 0.01; done");
        let spec =
            json!({ "shell": format!("echo {number} >> behind; {lines}"), "exec_id": format!("b{number}") });
        let reply = client.post_json(format!("{TREE}/exec?background=true"), &spec);
        told.note(number, begun, reply.status, &reply.body);
        if reply.status == 201 {
            let run = super::live::ended(client, TREE, &format!("b{number}"));
            assert_eq!(run["exit"]["exit_code"], 0, "{run}");
            let (output, _) = super::live::to_the_end(&mut client.resume(TREE, &format!("b{number}"), 0));
            let expected: String = (1..=LINES).map(|line| format!("{line}\n")).collect();
            assert!(output == expected, "{number}: {output:?}");
        }
    }
    told
}

/// Files of 100 MB, one after the other, which go over HTTP: one that was acknowledged is whole on the machine, and comes back whole or is
/// seen to break off.
fn transfer(client: &Client, machine: &Path, large: &[u8], is_over: &AtomicBool) -> Told {
    let mut told = Told::default();
    for number in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let begun = Instant::now();
        let path = format!("{TREE}/raw/large");
        let reply = client.put(&path, large);
        told.note(2 * number, begun, reply.status, &reply.body);
        if !matches!(reply.status, 200 | 201) {
            // What was there before, or the whole file.
            let there = std::fs::read(machine.join("large"));
            assert!(there.is_err() || there.is_ok_and(|there| there == *large), "half of it is there");
            continue;
        }
        assert!(std::fs::read(machine.join("large")).unwrap() == large, "an acknowledged file is another");
        let begun = Instant::now();
        let reply = client.get(&path);
        match reply.status {
            200 if reply.body.len() < LARGE => {
                assert!(large.starts_with(&reply.body), "other bytes came");
                told.doubtful.push(2 * number + 1);
            }
            200 => {
                assert!(reply.body == large, "other bytes came");
                told.note(2 * number + 1, begun, 200, &[]);
            }
            other => told.note(2 * number + 1, begun, other, &reply.body),
        }
    }
    told
}

/// One shell in a terminal, spoken to all the time: every line is answered once and in order.
fn in_a_terminal(client: &Client, is_over: &AtomicBool) -> usize {
    let mut socket = client.websocket(&format!("{TREE}/terminal"), "").expect("a WebSocket");
    socket.type_in("stty -echo; PS1=; echo ready\n");
    socket.shown_until("ready\r\n");
    let mut lines = 0;
    while !is_over.load(Ordering::Relaxed) {
        lines += 1;
        socket.type_in(&format!("echo line-{lines}.; echo {lines} >> typed\n"));
        socket.shown_until(&format!("line-{lines}."));
        std::thread::sleep(Duration::from_millis(20));
    }
    socket.type_in("exit\n");
    socket.told("exit");
    lines
}

pub(super) fn nothing_acknowledged_is_lost_and_nothing_is_done_twice(server: &Server) {
    let cuts = std::env::var("FILESECBOX_CUTS").map_or(CUTS, |cuts| cuts.parse().unwrap());
    let proxy = Proxy::wide(server.client.address);
    let machine = server.place("cut");
    let _runner = lend(&proxy.address.to_string(), "cut", &machine);
    await_connected(&server.client, "cut");
    let (is_over, large) = (AtomicBool::new(false), super::large::bytes(LARGE));
    let (written, ran, behind, typed, carried) = std::thread::scope(|scope| {
        let carrier = scope.spawn(|| transfer(&server.client, &machine, &large, &is_over));
        let behind = scope.spawn(|| in_the_background(&server.client, &is_over));
        let typed = scope.spawn(|| in_a_terminal(&server.client, &is_over));
        let writer = scope.spawn(|| write(&server.client, &is_over));
        let runner = scope.spawn(|| run(&server.client, &is_over));
        for cut in 0..cuts {
            await_connected(&server.client, "cut");
            // At another moment of the load each time.
            std::thread::sleep(Duration::from_millis(300 + 137 * (cut as u64 % 11)));
            proxy.cut();
        }
        await_connected(&server.client, "cut");
        std::thread::sleep(Duration::from_millis(300));
        is_over.store(true, Ordering::Relaxed);
        let (written, ran) = (writer.join().unwrap(), runner.join().unwrap());
        (written, ran, behind.join().unwrap(), typed.join().unwrap(), carrier.join().unwrap())
    });
    for number in &written.acknowledged {
        let there = std::fs::read_to_string(machine.join(format!("f{number}"))).unwrap();
        assert!(there == text(*number), "f{number} has {} bytes", there.len());
    }
    for number in &written.doubtful {
        // The whole file or none.
        if let Ok(there) = std::fs::read_to_string(machine.join(format!("f{number}"))) {
            assert!(there == text(*number), "f{number} has {} bytes", there.len());
        }
    }
    for (log, ran) in [("log", &ran), ("behind", &behind)] {
        let mut times = BTreeMap::<usize, usize>::new();
        for line in std::fs::read_to_string(machine.join(log)).unwrap().lines() {
            *times.entry(line.parse().unwrap()).or_default() += 1;
        }
        for number in &ran.acknowledged {
            assert_eq!(times.get(number), Some(&1), "{log}: command {number}");
        }
        assert!(times.values().all(|times| *times == 1), "{log}: {times:?}");
    }
    let lines: String = (1..=typed).map(|line| format!("{line}\n")).collect();
    assert_eq!(std::fs::read_to_string(machine.join("typed")).unwrap(), lines);
    assert!(written.longest < LONGEST && ran.longest < LONGEST, "{:?} {:?}", written.longest, ran.longest);
    assert!(!carried.acknowledged.is_empty() || !carried.doubtful.is_empty());
    assert!(carried.longest < CARRYING, "{:?}", carried.longest);
    let (sure, doubtful) =
        (written.acknowledged.len() + ran.acknowledged.len(), written.doubtful.len() + ran.doubtful.len());
    assert!(sure > cuts, "{sure}");
    println!(
        "{cuts} cuts: {sure} requests were acknowledged, {doubtful} were not; {} runs in the background, {typed} lines typed; of files of 100 \
         MB {} went or came whole and {} did not",
        behind.acknowledged.len(),
        carried.acknowledged.len(),
        carried.doubtful.len()
    );
}

pub(super) fn slow_and_split_frames_carry_the_same(server: &Server) {
    let proxy = Proxy::start(server.client.address, Duration::from_millis(2));
    let machine = server.place("slow");
    let _runner = lend(&proxy.address.to_string(), "slow", &machine);
    await_connected(&server.client, "slow");
    let tree = "/v1/sandbox/slow/lent";
    let large: Vec<u8> = (0..1_500_000_u32).map(|number| (number % 251) as u8).collect();
    server.client.put(format!("{tree}/raw/large"), &large).ok();
    assert_eq!(std::fs::read(machine.join("large")).unwrap(), large);
    assert!(server.client.get(format!("{tree}/raw/large")).body == large);
    let ran = server.client.post_json(format!("{tree}/exec"), &json!({ "shell": "wc -c <large" })).ok();
    assert_eq!(ran["data"]["stdout"], "1500000\n");
}
