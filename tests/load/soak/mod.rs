//! Honest and hostile users together for a long time, on a service that is killed and started again throughout.
//!
//! Honest users hold their trees against a model, across every kill. Hostile users do what one token allows, to take
//! memory, threads, descriptors, disk and time from the others. The test has three parts:
//!
//! 1. one service without kills, then a first measurement of the disk;
//! 2. kills at random moments, each followed by a start;
//! 3. one service without kills, measured after two thirds and at its end.
//!
//! Before each measurement all users pause, and what the hostile users left is removed through the interface. The audit
//! log must verify, and the registry must be what a rebuild makes.
//!
//! `FILESECBOX_SOAK_MINUTES` switches the test on; `scripts/soak` sets it.

mod control;
mod hostile;
mod measure;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::crash::Actor;
use crate::crash::disk;
use crate::crash::editor::Editor;
use crate::random::{self, Random};
use crate::service::{self, Service};
use control::{Control, Order};
use hostile::Hostile;
use measure::Measured;

/// Honest users of workspaces.
const WORKSPACES: usize = 100;
/// Honest users of a skill over a baseline.
const SKILLS: usize = 60;
/// Hostile users.
const HOSTILE: usize = 40;
/// Connections at once, each of which a few users share.
const WORKERS: usize = 16;
/// Steps of one user before its connection goes to the next one.
const STEPS: usize = 6;
/// Limits small enough that hostile users reach them within a step.
const SETTINGS: &str = "
[limits.disk]
bytes = 67108864
files = 5000
[limits.runs]
runs = 16
memory_bytes = 536870912
run_memory_bytes = 536870912
processes = 64
cpu_seconds = 5
file_bytes = 33554432
";

/// How many steps were made.
#[derive(Default)]
struct Counts {
    honest: AtomicUsize,
    hostile: AtomicUsize,
    refused: AtomicUsize,
}

/// The users of one connection.
struct Worker {
    honest: Vec<Editor>,
    hostile: Vec<Hostile>,
    random: Random,
}

#[test]
fn honest_and_hostile_users_together_leave_nothing_behind_and_lose_nothing() {
    let minutes = random::setting("FILESECBOX_SOAK_MINUTES", 0);
    if minutes == 0 {
        random::tell("SKIPPED: soak: it takes minutes; `scripts/soak` runs it");
        return;
    }
    let whole = Duration::from_secs(60 * u64::try_from(minutes).unwrap());
    let mut random = Random::new(random::seed("soak"));
    let temp = tempfile::tempdir().unwrap();
    let (root, log) = (temp.path().join("root"), temp.path().join("log"));
    let mut service = Service::start_configured(SETTINGS, &root, &log);
    let mut workers = workers(&mut random);
    for worker in &mut workers {
        let client = Client::new(&service.url);
        worker.honest.iter_mut().for_each(|user| user.prepare(&client).unwrap());
    }
    let (control, counts) = (Control::new(&service.url, WORKERS), Counts::default());
    thread::scope(|scope| {
        // After any failure the workers are told to end: else the scope waits for them for ever.
        let _end = control.end_when_dropped();
        for worker in workers {
            let (control, counts) = (&control, &counts);
            scope.spawn(move || work(worker, control, counts));
        }
        thread::sleep(whole.mul_f64(0.15));
        let first = quiet(&control, &service, &root, "after the first part");
        let kills = kill_for(whole.mul_f64(0.4), &mut service, &control, &mut random, &root, &log);
        random::tell(&format!("soak: {kills} kills"));
        control.replace(|| {
            service.stop_now();
            service = Service::start_configured(SETTINGS, &root, &log);
            service.url.clone()
        });
        // Until every user has worked often, so that caches are as full as they get.
        thread::sleep(whole.mul_f64(0.3));
        let warm = quiet(&control, &service, &root, "warm");
        thread::sleep(whole.mul_f64(0.15));
        let last = quiet(&control, &service, &root, "at the end");
        last.check_flat(&warm, &first);
        control.verify();
        check_truth(&service, &root);
    });
    let count = |count: &AtomicUsize| count.load(Ordering::Relaxed);
    let (honest, hostile, refused) = (count(&counts.honest), count(&counts.hostile), count(&counts.refused));
    random::tell(&format!("soak: {honest} honest steps ({refused} told to wait), {hostile} hostile ones"));
    assert!(honest > 0 && hostile > 0);
    // Honest users ask for nothing that is bounded; being told to wait is for the few moments of a crowd.
    assert!(refused * 20 <= honest, "honest users were refused {refused} times in {honest} steps");
}

fn workers(random: &mut Random) -> Vec<Worker> {
    let mut workers: Vec<Worker> = (0..WORKERS)
        .map(|_| Worker {
            honest: Vec::new(),
            hostile: Vec::new(),
            random: Random::new(u64::try_from(random.below(usize::MAX >> 1)).unwrap()),
        })
        .collect();
    for user in 0..WORKSPACES {
        workers[user % WORKERS].honest.push(Editor::of_workspace(&format!("honest-{user}")).bearing_busy());
    }
    for user in 0..SKILLS {
        workers[user % WORKERS].honest.push(Editor::of_skill(&format!("tailor-{user}")).bearing_busy());
    }
    for user in 0..HOSTILE {
        workers[user % WORKERS].hostile.push(Hostile::new(&format!("hostile-{user}")));
    }
    workers
}

/// Lets the users of one connection take turns until the end.
fn work(mut worker: Worker, control: &Control, counts: &Counts) {
    let (mut client, mut url) = (Client::new(""), String::new());
    // Honest users whose last request may or may not have been done.
    let mut doubtful = vec![false; worker.honest.len()];
    loop {
        match control.order() {
            Order::End => return,
            Order::Verify(now) => {
                let client = Client::patient(&now);
                for user in &mut worker.honest {
                    user.verify(&client).unwrap();
                }
                control.verified();
                continue;
            }
            Order::Work(now) if now != url => (client, url) = (Client::new(&now), now),
            Order::Work(_) => {}
        }
        if worker.random.chance(25) && !worker.hostile.is_empty() {
            let user = worker.random.below(worker.hostile.len());
            if worker.hostile[user].step(&url, &mut worker.random).is_ok() {
                counts.hostile.fetch_add(1, Ordering::Relaxed);
            } else {
                control.await_replacement(&url);
            }
            continue;
        }
        let index = worker.random.below(worker.honest.len());
        let user = &mut worker.honest[index];
        let before = user.refused();
        let mut made = if doubtful[index] { user.verify(&client) } else { Ok(()) };
        doubtful[index] &= made.is_err();
        for _ in 0..STEPS {
            if made.is_err() {
                break;
            }
            made = user.step(&client, &mut worker.random);
            counts.honest.fetch_add(usize::from(made.is_ok()), Ordering::Relaxed);
        }
        counts.refused.fetch_add(user.refused() - before, Ordering::Relaxed);
        if made.is_err() {
            doubtful[index] = true;
            control.await_replacement(&url);
        }
    }
}

/// Kills and starts the service at random moments. Returns how often.
fn kill_for(
    time: Duration,
    service: &mut Service,
    control: &Control,
    random: &mut Random,
    root: &Path,
    log: &Path,
) -> usize {
    let (began, mut kills) = (Instant::now(), 0);
    while began.elapsed() < time {
        thread::sleep(Duration::from_millis(u64::try_from(1_000 + random.below(14_000)).unwrap()));
        let politely = random.chance(25);
        control.replace(|| {
            if politely {
                service.stop_now()
            } else {
                service.kill_now()
            }
            *service = Service::start_configured(SETTINGS, root, log);
            service.url.clone()
        });
        disk::check_snapshots(root);
        kills += 1;
        if kills % 10 == 0 {
            service::audited(root);
        }
    }
    kills
}

/// Pauses all users, removes what the hostile ones left, and measures.
fn quiet(control: &Control, service: &Service, root: &Path, when: &str) -> Measured {
    control.pause();
    let client = Client::patient(&service.url);
    for user in 0..HOSTILE {
        Hostile::new(&format!("hostile-{user}")).remove(&client);
    }
    let measured = Measured::settled(service, root);
    random::tell(&format!("soak: {when}: {measured}"));
    control.resume();
    measured
}

/// The audit log is whole, and the registry is what a rebuild makes.
fn check_truth(service: &Service, root: &Path) {
    assert!(service::audited(root) > 0);
    let client = Client::patient(&service.url);
    let rows = |client: &Client| client.get("/v1/registry").unwrap().json();
    let before = rows(&client);
    let rebuilt = client.send("POST", "/v1/registry/rebuild", None, b"").unwrap();
    assert_eq!(rebuilt.status, 200, "{}", rebuilt.text());
    assert_eq!(rows(&client), before, "a rebuild makes other rows");
}
