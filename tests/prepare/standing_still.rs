//! Two services with one lent machine, one of which is suspended in the middle of a round (SIGSTOP) and goes on when the other has
//! prepared the workspace: what the other one left stays.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::leases::redis;
use crate::postgres_server::PostgresServer;
use crate::shared_machine::{Machine, Shared, selected, versions_in};
use crate::support::{Service, workspace};

const PATIENCE: Duration = Duration::from_secs(90);

/// When the first service is suspended.
#[derive(Debug)]
enum Moment {
    /// That long after it was asked.
    After(Duration),
    /// When its script has begun.
    InTheScript,
}

/// A process that stands still, until this is dropped.
struct Suspended(Pid);

impl Suspended {
    fn new(pid: Pid) -> Self {
        kill_process(pid, Signal::STOP).unwrap();
        Self(pid)
    }
}

impl Drop for Suspended {
    fn drop(&mut self) {
        // It may have ended; to panic while a failure unwinds would hide which.
        let _gone = kill_process(self.0, Signal::CONT);
    }
}

/// The files beside the state, without the mark of the lease, which a round leaves when it ends as well.
fn state(machine: &Machine) -> BTreeMap<PathBuf, Vec<u8>> {
    let directory = machine.home().join(".fastgpt/agent-skill-entrypoints");
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.filter(|path| !path.to_str().unwrap().contains("/lease-"));
    files.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

/// `expire` ends the lease in the store, as three minutes would.
fn suspended(url: &str, expire: &dyn Fn()) {
    let Shared { services, machine, versions, _runners } = Shared::new(url);
    let [first, second] = &services;
    let target = format!("{}/prepare", workspace("u", "a"));
    let pid = Pid::from_raw(i32::try_from(first.pid()).unwrap()).unwrap();
    second.client.post_json(&target, &json!({ "entrypoint": "true" })).ok();
    let moments = (0..8).map(|number| Moment::After(Duration::from_millis(number * 9)));
    for (round, moment) in moments.chain([Moment::InTheScript]).enumerate() {
        let script = format!("touch begun{round}; while [ ! -e go{round} ]; do sleep 0.05; done");
        thread::scope(|scope| {
            let asked = scope.spawn(|| {
                let body =
                    json!({ "skills": selected(&versions[0]), "entrypoint": script, "timeout_seconds": 600 });
                first.client.post_json(&target, &body)
            });
            let begun = || machine.work().join(format!("begun{round}")).exists();
            match moment {
                Moment::After(time) => thread::sleep(time),
                Moment::InTheScript => {
                    let waiting = Instant::now();
                    while !begun() {
                        assert!(waiting.elapsed() < PATIENCE, "its script does not begin");
                        thread::sleep(Duration::from_millis(5));
                    }
                }
            }
            let suspended = Suspended::new(pid);
            // What it has sent to the machine arrives.
            thread::sleep(Duration::from_millis(50));
            expire();
            let body =
                json!({ "skills": selected(&versions[1]), "entrypoint": format!("touch second{round}") });
            second.client.post_json(&target, &body).ok();
            let (left, deployed) = (state(&machine), versions_in(&machine.work()));
            assert_eq!(deployed, [versions[1].clone()], "{moment:?}");
            let had_begun = begun();
            drop(suspended);
            std::fs::write(machine.work().join(format!("go{round}")), "").unwrap();
            let answer = asked.join().unwrap();
            if answer.status == 200 {
                // It had not taken the lease yet, and did its whole round after the other one.
                assert!(!had_begun, "{moment:?}: a round whose lease has passed to another cannot succeed");
                assert_eq!(versions_in(&machine.work()), [versions[0].clone()], "{moment:?}");
                return;
            }
            assert_eq!(answer.refused(429, "busy")["initialising"], true, "{moment:?}");
            assert_eq!(versions_in(&machine.work()), deployed, "{moment:?}");
            assert_eq!(state(&machine), left, "{moment:?}");
        });
        // And the workspace is anybody's again.
        let body = json!({ "skills": selected(&versions[0]), "entrypoint": "true" });
        first.client.post_json(&target, &body).ok();
        assert_eq!(versions_in(&machine.work()), [versions[0].clone()]);
    }
}

/// Runs a client of the store.
fn ask(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).env("PGPASSWORD", "s3cret").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_service_that_was_suspended_in_a_round_changes_nothing_after_the_round_of_another() {
    let dir = tempfile::tempdir().unwrap();
    if let Some(_redis) = redis(dir.path()) {
        let socket = dir.path().join("real");
        while !socket.exists() {
            thread::sleep(Duration::from_millis(5));
        }
        let socket = socket.to_str().unwrap();
        suspended(&format!("redis+unix://{socket}"), &|| {
            ask("redis-cli", &["-s", socket, "DEL", "lock:agent-sandbox:init:u"]);
        });
    }
    if let Some(server) = PostgresServer::start() {
        let place = format!("host={} dbname=postgres user=filesecbox", server.socket_dir().to_str().unwrap());
        let expired = "UPDATE filesecbox_leases SET until = clock_timestamp() - interval '1 second'";
        suspended(&PostgresServer::url(server.socket_dir()), &|| {
            ask("psql", &[&place, "-c", expired]);
        });
    }
}
