//! Processes that die or stand still: the runner's, and the service's.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Client, Service, Settings};

const TREE: &str = "/v1/sandbox/alice/demo";
/// Longer than anything here takes, on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// Longer than either side takes the other's silence.
const STANDING_STILL: Duration = Duration::from_secs(75);
/// Seconds that a run in the background takes, one for each line: longer than a process stands still.
const LINES: usize = 85;

/// A service that is started anew at the same address with the same data, and a machine with its runner.
struct Pair {
    service: Option<Service>,
    runner: Child,
    address: String,
    around: TempDir,
}

impl Pair {
    fn start() -> Self {
        let around = tempfile::tempdir().unwrap();
        // An address that is free, and stays known when the service is started again.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let service = serve(&address, &around.path().join("data"));
        let runner = lend(&address, &around.path().join("work"));
        let pair = Self { service: Some(service), runner, address, around };
        pair.await_connected(true);
        pair
    }

    fn client(&self) -> &Client {
        &self.service.as_ref().unwrap().client
    }

    fn work(&self, below: &str) -> PathBuf {
        self.around.path().join("work").join(below)
    }

    fn await_connected(&self, is_connected: bool) {
        let begun = Instant::now();
        while (self.client().get("/v1/runners/alice").ok()["data"][0]["connected"] == true) != is_connected {
            assert!(begun.elapsed() < PATIENCE, "the runner is not as awaited: connected {is_connected}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn signal_runner(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.runner), signal).unwrap();
    }

    fn signal_service(&self, signal: Signal) {
        let process = self.service.as_ref().unwrap().pid();
        kill_process(Pid::from_raw(process.cast_signed()).unwrap(), signal).unwrap();
    }

    /// A command that notes that it runs, and takes a second.
    fn note(&self) -> (u16, Duration) {
        let begun = Instant::now();
        let body = json!({ "shell": "echo ran >> ran; sleep 1", "timeout_ms": 5_000 });
        let reply = self.client().post_json(format!("{TREE}/exec"), &body);
        (reply.status, begun.elapsed())
    }

    fn times(&self) -> usize {
        std::fs::read_to_string(self.work("ran")).unwrap_or_default().lines().count()
    }

    fn begin_in_the_background(&self) {
        let script = format!("for i in $(seq {LINES}); do echo $i; sleep 1; done");
        let body = json!({ "shell": script, "exec_id": "behind", "timeout_ms": 300_000 });
        assert_eq!(self.client().post_json(format!("{TREE}/exec?background=true"), &body).status, 201);
    }

    /// Awaits the end of the run in the background, of which nothing is missing.
    fn await_the_background(&self) {
        let begun = Instant::now();
        loop {
            let run = self.client().get(format!("{TREE}/exec/behind")).ok();
            if run["data"]["state"] == "ended" || run["data"]["exit"].is_object() {
                assert_eq!(run["data"]["exit"]["exit_code"], 0, "{run}");
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "{run}");
            std::thread::sleep(Duration::from_millis(200));
        }
        let mut output = String::new();
        for event in self.client().resume(TREE, "behind", 0) {
            if event["event"] == "stdout" {
                output.push_str(event["text"].as_str().unwrap());
            }
        }
        let expected: String = (1..=LINES).map(|line| format!("{line}\n")).collect();
        assert_eq!(output, expected);
    }

    fn write(&self, name: &str) {
        self.client().put(format!("{TREE}/raw/{name}"), name.repeat(1000)).ok();
        assert_eq!(std::fs::read_to_string(self.work(name)).unwrap(), name.repeat(1000));
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _ended = self.runner.kill();
        let _reaped = self.runner.wait();
    }
}

fn serve(address: &str, root: &Path) -> Service {
    Service::with(Settings {
        listen: Some(address.to_owned()),
        root: Some(root.to_owned()),
        ..Settings::default()
    })
}

fn lend(address: &str, workspace: &Path) -> Child {
    let program = Path::new(env!("CARGO_BIN_EXE_filesecbox")).with_file_name("filesecbox-runner");
    assert!(program.exists(), "build the runner first: cargo build --package runner");
    let server = format!("ws://{address}/ws/alice");
    let mut command = Command::new(program);
    command
        .args(["--server", &server, "--isolation", "none", "--reconnect-seconds", "1", "--workspace"])
        .arg(workspace)
        .env("FILESECBOX_LOG", "error")
        .env("FILESECBOX_RUNNER_TOKEN", "any");
    command.stdin(Stdio::null()).spawn().unwrap()
}

#[test]
fn what_waits_for_a_runner_that_is_killed_fails_within_its_time_and_is_not_run_again() {
    let mut pair = Pair::start();
    pair.write("before");
    let (status, took) = std::thread::scope(|scope| {
        let asked = scope.spawn(|| pair.note());
        let begun = Instant::now();
        while pair.times() == 0 {
            assert!(begun.elapsed() < PATIENCE, "the command does not begin");
            std::thread::sleep(Duration::from_millis(10));
        }
        pair.signal_runner(Signal::KILL);
        asked.join().unwrap()
    });
    assert!(matches!(status, 503 | 504), "{status}");
    // Its own five seconds, and those in which the runner may tell.
    assert!(took < Duration::from_secs(30), "{took:?}");
    pair.await_connected(false);
    pair.runner.wait().unwrap();
    pair.runner = lend(&pair.address, &pair.work(""));
    pair.await_connected(true);
    assert_eq!(pair.times(), 1, "it was run again");
    assert_eq!(pair.client().get(format!("{TREE}/raw/before")).body, "before".repeat(1000).as_bytes());
    pair.write("after");
}

#[test]
fn a_service_that_is_killed_has_its_runner_back_and_nothing_acknowledged_is_lost() {
    let mut pair = Pair::start();
    pair.write("before");
    let body = json!({ "shell": "echo ran >> ran; sleep 300", "exec_id": "left" });
    assert_eq!(pair.client().post_json(format!("{TREE}/exec?background=true"), &body).status, 201);
    let begun = Instant::now();
    while pair.times() == 0 {
        assert!(begun.elapsed() < PATIENCE, "the command does not begin");
        std::thread::sleep(Duration::from_millis(10));
    }
    pair.signal_service(Signal::KILL);
    drop(pair.service.take());
    pair.service = Some(serve(&pair.address, &pair.around.path().join("data")));
    pair.await_connected(true);
    assert_eq!(pair.client().get(format!("{TREE}/raw/before")).body, "before".repeat(1000).as_bytes());
    pair.write("after");
    // What runs under that name is of no service any more, and is not begun a second time.
    assert_eq!(pair.client().get(format!("{TREE}/exec/left")).status, 404);
    assert_eq!(pair.times(), 1);
}

#[test]
fn a_runner_that_stands_still_is_given_up_in_time_and_goes_on_where_it_was() {
    let pair = Pair::start();
    pair.write("before");
    pair.begin_in_the_background();
    pair.signal_runner(Signal::STOP);
    let still = Instant::now();
    let (status, took) = pair.note();
    assert!(matches!(status, 503 | 504), "{status}");
    // As long as a runner has to answer that a command runs.
    assert!(took < Duration::from_secs(45), "{took:?}");
    pair.await_connected(false);
    std::thread::sleep(STANDING_STILL.saturating_sub(still.elapsed()));
    pair.signal_runner(Signal::CONT);
    pair.await_connected(true);
    pair.write("after");
    pair.await_the_background();
    // It may have come to the runner, and was given up: never twice.
    assert!(pair.times() <= 1, "{}", pair.times());
}

#[test]
fn a_service_that_stands_still_answers_later_and_has_its_runner_back() {
    let pair = Pair::start();
    pair.write("before");
    pair.begin_in_the_background();
    pair.signal_service(Signal::STOP);
    std::thread::sleep(STANDING_STILL);
    pair.signal_service(Signal::CONT);
    pair.await_connected(true);
    let (status, _) = pair.note();
    assert_eq!((status, pair.times()), (200, 1));
    pair.write("after");
    pair.await_the_background();
}
