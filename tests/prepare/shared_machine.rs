//! One machine that a user lends to two services, which share a store of leases: of all their requests one wins each time, and the
//! workspace is never half deployed, also when one of them is killed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::fixture::version;
use crate::leases::redis;
use crate::postgres_server::PostgresServer;
use crate::support::{Client, Entry, Service, workspace, zip};

const PATIENCE: Duration = Duration::from_secs(90);
const SKILL: &str = "---\nname: writer\ndescription: writes\n---\n";
/// Files of each version, besides its `SKILL.md`.
const FILES: usize = 40;

/// A machine: a directory and a home.
pub(crate) struct Machine {
    dir: tempfile::TempDir,
}

/// A runner, killed when dropped.
pub(crate) struct Runner(Child);

impl Drop for Runner {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

impl Machine {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["work", "home"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        Self { dir }
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    /// Lends it to a service as the machine of `u`, and waits until it is there.
    pub(crate) fn lend_to(&self, client: &Client) -> Runner {
        let program = Path::new(env!("CARGO_BIN_EXE_filesecbox")).with_file_name("filesecbox-runner");
        assert!(program.exists(), "build the runner first: cargo build --package runner");
        let child = Command::new(program)
            .args([
                "--server",
                &format!("ws://{}/ws/u", client.address),
                "--isolation",
                "none",
                "--workspace",
            ])
            .arg(self.work())
            .env("FILESECBOX_RUNNER_TOKEN", "any")
            .env("FILESECBOX_LOG", "error")
            .env("HOME", self.home())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let (runner, begun) = (Runner(child), Instant::now());
        while client.get("/v1/runners/u").ok()["data"][0]["connected"] != true {
            assert!(begun.elapsed() < PATIENCE, "the runner does not connect");
            thread::sleep(Duration::from_millis(10));
        }
        runner
    }
}

/// The versions in `projects` of a workspace, each whole.
pub(crate) fn versions_in(work: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(work.join("projects")) else { return Vec::new() };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let versions: Vec<String> = names.filter(|name| !name.starts_with(".tmp-")).collect();
    for version in &versions {
        let files = count_files(&work.join("projects").join(version));
        assert_eq!(files, FILES + 1, "{version} is half deployed");
    }
    versions
}

fn count_files(directory: &Path) -> usize {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| if entry.file_type().unwrap().is_dir() { count_files(&entry.path()) } else { 1 })
        .sum()
}

/// Puts the package of a version.
pub(crate) fn package(client: &Client, version: &str) {
    let mut entries = vec![Entry::file("SKILL.md", SKILL)];
    entries.extend(
        (0..FILES).map(|number| Entry::file(&format!("d{}/f{number}", number % 7), "x".repeat(1000))),
    );
    client.put(format!("/v1/packages/{version}"), zip(&entries)).ok();
}

pub(crate) fn selected(version: &str) -> Value {
    json!([{ "skill_id": "writer", "version_id": version }])
}

/// Two services that keep their leases in one store, each with the packages of two versions, and a machine that is lent to both.
pub(crate) struct Shared {
    pub(crate) services: [Service; 2],
    pub(crate) machine: Machine,
    pub(crate) versions: [String; 2],
    pub(crate) _runners: [Runner; 2],
}

impl Shared {
    /// `url` is where the leases are kept.
    pub(crate) fn new(url: &str) -> Self {
        let config = format!("[prepare]\nlease_url = \"{url}\"\n");
        let services = [Service::configured(&config), Service::configured(&config)];
        let machine = Machine::new();
        let _runners = services.each_ref().map(|service| machine.lend_to(&service.client));
        let versions = [version(1), version(2)];
        for (service, version) in
            services.iter().flat_map(|service| versions.iter().map(move |version| (service, version)))
        {
            package(&service.client, version);
        }
        Self { services, machine, versions, _runners }
    }
}

/// Fifty requests for one workspace, half at each service: the one that wins does not end before all others have been answered.
fn fifty_at_two_services(url: &str) {
    let Shared { services, machine, versions, _runners } = Shared::new(url);
    let target = format!("{}/prepare", workspace("u", "a"));
    for round in 0..3 {
        let script = format!(
            "touch begun{round}; while [ ! -e go{round} ]; do sleep 0.05; done; echo {round} >> runs"
        );
        let (answers, answered) = mpsc::channel();
        thread::scope(|scope| {
            for number in 0..50 {
                let (service, answers, target) = (&services[number % 2], answers.clone(), &target);
                // Not all want the same.
                let wanted = &versions[number / 2 % 2];
                let body =
                    json!({ "skills": selected(wanted), "entrypoint": script, "timeout_seconds": 600 });
                scope.spawn(move || answers.send((wanted, service.client.post_json(target, &body))).unwrap());
            }
            for _ in 0..49 {
                let (_, reply) = answered.recv().unwrap();
                assert_eq!(reply.refused(429, "busy")["initialising"], true);
            }
            // The winner waits in its script, so it has deployed.
            while !machine.work().join(format!("begun{round}")).exists() {
                assert!(answered.try_recv().is_err(), "the winner has no step left");
                thread::sleep(Duration::from_millis(10));
            }
            let deployed = versions_in(&machine.work());
            std::fs::write(machine.work().join(format!("go{round}")), "").unwrap();
            let (wanted, reply) = answered.recv().unwrap();
            let skills = reply.ok()["data"]["skills"].clone();
            assert_eq!(
                (skills[0]["version_id"].as_str(), deployed),
                (Some(wanted.as_str()), vec![wanted.clone()])
            );
        });
        let runs = std::fs::read_to_string(machine.work().join("runs")).unwrap();
        assert_eq!(runs.lines().count(), round + 1, "each script once: {runs}");
    }
}

#[test]
fn of_fifty_requests_at_two_services_one_wins_each_time_and_nothing_is_half_deployed() {
    let dir = tempfile::tempdir().unwrap();
    if let Some(_redis) = redis(dir.path()) {
        while !dir.path().join("real").exists() {
            thread::sleep(Duration::from_millis(5));
        }
        fifty_at_two_services(&format!("redis+unix://{}", dir.path().join("real").to_str().unwrap()));
    }
    if let Some(server) = PostgresServer::start() {
        fifty_at_two_services(&PostgresServer::url(server.socket_dir()));
    }
}
