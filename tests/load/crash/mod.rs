//! Killing the service: each actor knows what it was told and what it asked for last, and looks after every restart.
//!
//! An actor has trees of its own and one request under way at a time. So after a kill the trees are as the last
//! acknowledged request left them, or as the one request that got no answer would have.

pub(crate) mod disk;
pub(crate) mod editor;
mod keeper;
mod model;
mod registry;
mod runner;
mod sweeper;
mod versions;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::client::{Broken, Client};
use crate::random::{self, Random};
use crate::service::{self, Service};

/// A caller that changes trees which no other actor changes.
pub(crate) trait Actor: Send {
    /// Makes the trees, on a service that is not killed.
    fn prepare(&mut self, client: &Client) -> Result<(), Broken>;

    /// Looks whether the trees are as they must be, and goes on from what is there.
    ///
    /// # Panics
    /// When they are not.
    fn verify(&mut self, client: &Client) -> Result<(), Broken>;

    /// Makes one change; [`Broken`] when no answer came.
    ///
    /// # Panics
    /// When the service refuses what it must do.
    fn step(&mut self, client: &Client, random: &mut Random) -> Result<(), Broken>;

    /// A summary of what it has seen, for people.
    fn told(&self) -> Option<String> {
        None
    }
}

#[test]
fn what_was_acknowledged_survives_a_kill_and_what_was_not_is_whole_or_absent() {
    let usual = if std::env::var_os("FILESECBOX_LARGE").is_some() { 200 } else { 60 };
    let kills = random::setting("FILESECBOX_LOAD_KILLS", usual);
    let mut random = Random::new(random::seed("crash"));
    let temp = tempfile::tempdir().unwrap();
    let (root, log) = (temp.path().join("root"), temp.path().join("log"));
    let mut actors: Vec<Box<dyn Actor>> = vec![
        Box::new(versions::Publisher::default()),
        Box::new(versions::Uploader::default()),
        Box::new(editor::Editor::of_skill("甲")),
        Box::new(editor::Editor::of_skill("乙")),
        Box::new(editor::Editor::of_workspace("丙")),
        Box::new(runner::Runner::default()),
        Box::new(keeper::Keeper::default()),
        Box::new(sweeper::Sweeper::default()),
        Box::new(registry::Registrar::default()),
    ];
    let began = Instant::now();
    let idle_ms = u64::try_from(sweeper::IDLE.as_millis()).unwrap();
    let mut service = Service::start_sweeping("strict", idle_ms, &root, &log);
    each(&mut actors, |actor| actor.prepare(&Client::new(&service.url)).unwrap());
    let (mut acknowledged, mut killed, mut while_starting) = (0, 0, 0);
    while killed < kills {
        acknowledged += load_until_killed(service, &mut actors, &mut random);
        killed += 1;
        // A start mends what the kill before left; some starts are killed at that.
        while killed < kills && random.chance(15) {
            let mut starting = service::spawn_sweeping("strict", idle_ms, &root, &log);
            thread::sleep(Duration::from_millis(u64::try_from(random.below(60)).unwrap()));
            starting.kill().unwrap();
            starting.wait().unwrap();
            (killed, while_starting) = (killed + 1, while_starting + 1);
        }
        // The kernel outlives the service, so what was acknowledged survives with either.
        let durability = if random.chance(75) { "strict" } else { "relaxed" };
        service = Service::start_sweeping(durability, idle_ms, &root, &log);
        disk::check_swept(&root);
        disk::check_trees(&root);
        disk::check_snapshots(&root);
        let url = &service.url;
        each(&mut actors, |actor| actor.verify(&Client::new(url)).unwrap());
        if killed % 10 == 0 || killed == kills {
            let records = service::audited(&root);
            assert!(records >= acknowledged, "{records} records of {acknowledged} acknowledged changes");
        }
    }
    for told in actors.iter().filter_map(|actor| actor.told()) {
        random::tell(&format!("crash: {told}"));
    }
    random::tell(&format!(
        "crash: {killed} kills ({while_starting} while starting), {acknowledged} acknowledged changes, {:.0} s",
        began.elapsed().as_secs_f64()
    ));
}

#[test]
fn a_first_start_that_is_killed_leaves_a_directory_that_can_be_started_on() {
    let mut random = Random::new(random::seed("first start"));
    for _ in 0..40 {
        let temp = tempfile::tempdir().unwrap();
        let (root, log) = (temp.path().join("root"), temp.path().join("log"));
        let mut starting = service::spawn("strict", &root, &log);
        wait("the service does not begin to start", || root.exists());
        thread::sleep(Duration::from_micros(u64::try_from(random.below(12_000)).unwrap()));
        starting.kill().unwrap();
        starting.wait().unwrap();
        Service::start(&root, &log).kill();
    }
}

#[test]
fn a_killed_service_takes_its_commands_with_it() {
    let temp = tempfile::tempdir().unwrap();
    let service = Service::start(&temp.path().join("root"), &temp.path().join("log"));
    // A number that no other process has among its arguments.
    let seconds = format!("98765.{}", std::process::id());
    let tree = "/v1/sandbox/sleeper/agent";
    thread::scope(|scope| {
        let client = Client::new(&service.url);
        let line = format!("(setsid sleep {seconds} &) ; echo started > started; sleep {seconds}");
        scope.spawn(move || assert!(client.shell(tree, &line).is_err(), "a killed service cannot answer"));
        let client = Client::new(&service.url);
        wait("the command does not start", || {
            client.get(&format!("{tree}/raw/started")).unwrap().status == 200
        });
        wait("the command does not sleep", || is_running(&seconds));
        service.kill();
    });
    wait("a command outlives the service", || !is_running(&seconds));
}

#[test]
fn a_service_that_is_stuck_keeps_no_command_past_its_deadline() {
    let temp = tempfile::tempdir().unwrap();
    let service = Service::start(&temp.path().join("root"), &temp.path().join("log"));
    let seconds = format!("98764.{}", std::process::id());
    thread::scope(|scope| {
        let client = Client::new(&service.url);
        let body =
            serde_json::json!({ "shell": format!("sleep {seconds} & sleep {seconds}"), "timeout_ms": 2000 });
        scope.spawn(move || client.post("/v1/sandbox/sleeper/agent/exec", &body).map(drop));
        wait("the command does not sleep", || is_running(&seconds));
        service.signal(rustix::process::Signal::STOP);
        wait("a command outlives its deadline", || !is_running(&seconds));
        service.signal(rustix::process::Signal::CONT);
    });
}

/// Tells whether a process has `argument` among its arguments.
fn is_running(argument: &str) -> bool {
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == argument.as_bytes())
    })
}

/// Waits until something holds.
fn wait(complaint: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(20), "{complaint}");
        thread::sleep(Duration::from_micros(100));
    }
}

/// Lets every actor change its trees until the service is killed, at a random moment after a random number of
/// changes. Returns how many changes were acknowledged.
fn load_until_killed(service: Service, actors: &mut [Box<dyn Actor>], random: &mut Random) -> usize {
    let (acknowledged, dying) = (AtomicUsize::new(0), AtomicBool::new(false));
    let url = service.url.clone();
    let changes = random.below(40);
    let pause = Duration::from_millis(u64::try_from(5 + random.below(146)).unwrap());
    thread::scope(|scope| {
        for actor in actors {
            let mut random = Random::new(u64::try_from(random.below(usize::MAX >> 1)).unwrap());
            let (acknowledged, dying, url) = (&acknowledged, &dying, &url);
            scope.spawn(move || {
                let client = Client::new(url);
                while actor.step(&client, &mut random).is_ok() {
                    acknowledged.fetch_add(1, Ordering::Relaxed);
                }
                assert!(
                    dying.load(Ordering::SeqCst),
                    "a connection broke although the service was not killed"
                );
            });
        }
        let began = Instant::now();
        while acknowledged.load(Ordering::Relaxed) < changes && began.elapsed() < Duration::from_secs(2) {
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(pause);
        dying.store(true, Ordering::SeqCst);
        service.kill();
    });
    acknowledged.into_inner()
}

/// Does something with every actor at once.
fn each(actors: &mut [Box<dyn Actor>], work: impl Fn(&mut dyn Actor) + Sync) {
    thread::scope(|scope| {
        for actor in actors {
            scope.spawn(|| work(actor.as_mut()));
        }
    });
}
