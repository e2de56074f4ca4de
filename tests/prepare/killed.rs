//! A service that is killed at random points of a round: whole versions only are there, and the next round succeeds.

use std::io::{Read, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::fixture::version;
use crate::shared_machine::{Machine, package, selected, versions_in};
use crate::support::{Client, Service, Settings, workspace};

/// Kills while the service deploys in a workspace of its own, and while it does on a machine that is lent: usually, and with
/// `FILESECBOX_LARGE`. `FILESECBOX_KILLS` is another number of all.
const KILLS: [u32; 2] = [60, 200];
const KILLS_LENT: [u32; 2] = [20, 40];

fn kills([usual, large]: [u32; 2]) -> u32 {
    let count = if std::env::var_os("FILESECBOX_LARGE").is_some() { large } else { usual };
    std::env::var("FILESECBOX_KILLS").map_or(count, |text| text.parse().unwrap())
}

/// A sequence of no pattern: a point of `0..time`.
struct Points(u64);

impl Points {
    fn next(&mut self, time: Duration) -> Duration {
        self.0 = self.0 * 1_103_515_245 % 2_147_483_647;
        time * u32::try_from(self.0 % 1000).unwrap() / 1000
    }
}

fn send(client: &Client, target: &str, body: &serde_json::Value) -> std::net::TcpStream {
    let (mut stream, sent) = (client.connect(), body.to_string());
    let head = format!(
        "POST {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{sent}",
        sent.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

/// Ends a service as a loss of power does.
fn kill(mut service: Service) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(service.pid()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    service.wait();
}

/// The names in a directory; none when it is not there.
fn names(directory: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Kills services `count` times while a round of theirs deploys one of two versions, on `machine` or else in a workspace of their
/// own, which is looked at after each; then a clean round succeeds.
fn killed(count: u32, machine: Option<&Machine>) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("data");
    let work = machine.map_or_else(|| root.join("sandbox/u/a"), Machine::work);
    let start = || Service::with(Settings { root: Some(root.clone()), ..Settings::default() });
    let lend = |service: &Service| machine.map(|machine| machine.lend_to(&service.client));
    let versions = [version(1), version(2)];
    let target = format!("{}/prepare", workspace("u", "a"));
    let body =
        |number: u32| json!({ "skills": selected(&versions[number as usize % 2]), "entrypoint": "true" });
    let first = start();
    let lent = lend(&first);
    for version in &versions {
        package(&first.client, version);
    }
    first.client.post_json(&target, &body(0)).ok();
    // So long a round takes on this host: the time of one.
    let began = Instant::now();
    first.client.post_json(&target, &body(1)).ok();
    let mut latest = began.elapsed();
    drop((first, lent));
    let (begun, mut points, mut under_way) = (Instant::now(), Points(1), 0);
    for number in 0..count {
        let service = start();
        let lent = lend(&service);
        let mut answer = send(&service.client, &target, &body(number));
        thread::sleep(points.next(latest));
        kill(service);
        let mut told = Vec::new();
        let came_first = answer.read_to_end(&mut told).is_err() || told.is_empty();
        under_way += u32::from(came_first);
        // Rounds take longer or shorter with what else this host does: later kills where they come before the end, earlier ones
        // where they do not.
        latest = if came_first { latest * 21 / 20 } else { latest * 9 / 10 };
        drop(lent);
        versions_in(&work);
    }
    println!("{count} kills in {:?}, {under_way} of them before the round had ended", begun.elapsed());
    assert!(under_way > count / 4, "{under_way} of {count}");
    let service = start();
    let _lent = lend(&service);
    service.client.post_json(&target, &body(0)).ok();
    assert_eq!(names(&work.join("projects")), [versions[0].clone()]);
    assert_eq!(versions_in(&work), [versions[0].clone()]);
    assert_eq!(names(&root.join(".filesecbox/stage")).len(), 0);
}

#[test]
fn a_service_that_is_killed_leaves_whole_versions_only_and_the_next_round_succeeds() {
    killed(kills(KILLS), None);
}

#[test]
fn a_service_that_is_killed_leaves_whole_versions_only_on_a_machine_that_is_lent() {
    killed(kills(KILLS_LENT), Some(&Machine::new()));
}
