//! The cost of one token to others: each thing that a user may have is spent to the end, while another user reads,
//! writes and runs commands.
//!
//! A round measures the other user alone, beside the spender, and alone again. When the medians of the two figures alone
//! differ too much, the machine itself was busy and the round is made again. Beside each request a plain process is started
//! and a file written, without the service: how much longer that takes is the machine's part, because spender, service and
//! test share its processors. The machine's part of a write is that of a file which is written and synchronised, if that is more. What counts is the median, over the rounds, of how much longer the 99th percentile takes
//! beside the spender, divided by the machine's part, of which four times are taken off at most. Whatever the machine does
//! meanwhile, a request that takes a second was held up; and a spending that cannot be measured is a failure, because it may
//! be what keeps the machine busy.
//!
//! It is measured when `FILESECBOX_LOAD_COST` is set, to the name of one spending or to nothing for all: it takes a machine on
//! which nothing else works. `FILESECBOX_TEST_TIER` names another tier than the strongest that the machine grants. The service has
//! the user of whoever makes the test; without root, all commands share it.

mod holding;
mod spending;

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::{Broken, Client};
use crate::random;
use crate::service::Service;
use holding::HELD;
use spending::{ALL, Spending};

/// How often as long others may take at the 99th percentile.
const TIMES_MAX: f64 = 3.0;
/// The time that timer and scheduler of a test machine add to a percentile of a few requests.
const GRACE: Duration = Duration::from_millis(4);
/// Rounds that count.
const ROUNDS: usize = 5;
/// Rounds in which the machine was busy, at most.
const BUSY_ROUNDS: usize = 12;
/// What a request of others takes at most at the 99th percentile, whatever else the machine does.
const HELD_UP: Duration = Duration::from_secs(1);
/// The most that is taken for the machine's part.
const MACHINE_MAX: f64 = 4.0;
/// How far the two figures alone of one round may lie apart.
const QUIET: f64 = 2.0;
/// How long one measurement goes on at least.
const MEASURED: Duration = Duration::from_millis(300);
/// How many samples it has: of fewer than a hundred the 99th percentile would be the slowest one.
const SAMPLES: usize = 200;
/// How long one measurement may go on for so many, and how many it has even then.
const MEASURED_MAX: Duration = Duration::from_secs(3);
const SAMPLES_MIN: usize = 10;
/// How long a spender may take to reach its limit.
const PATIENCE: Duration = Duration::from_secs(60);

/// The measured cases; the last two are controls, of which the second is for what is written.
const KINDS: [&str; 5] = ["read", "write", "run", "fork", "synchronise"];
const WRITE: usize = 1;
const FORK: usize = 3;
const SYNCHRONISE: usize = 4;
const BYSTANDER: &str = "/v1/sandbox/bystander/agent";

const SETTINGS: &str = "
[limits.files]
search_ms = 50
tree_entries = 20000
[limits.disk]
bytes = 100663296
files = 2000
tmp_bytes = 50331648
user_bytes = 167772160
user_files = 3000
in_flight_bytes = 33554432
[limits.work]
light_per_user = 4
scans_per_user = 2
long_per_user = 2
queue_ms = 2
bodies_bytes_per_user = 33554432
[limits.connections]
connections = 400
per_peer = 400
[audit]
account_bytes = 8388608
";

/// The service, and what its spender has come to.
struct Arena {
    url: String,
    token: String,
    /// Refusals at the limit.
    refused: AtomicUsize,
    is_over: AtomicBool,
    /// Runs that have got a name.
    number: AtomicUsize,
}

/// The median and the 99th percentile of each kind.
type Figures = [[Duration; 2]; KINDS.len()];

/// In italics, and nothing else is.
#[test]
fn the_document_names_what_is_spent() {
    let document = include_str!("../../../docs/SECURITY.md");
    let (_, section) = document.split_once("## What one token can cost others").unwrap();
    let rows = section.split("\n## ").next().unwrap().lines().filter(|line| line.starts_with("| "));
    let named: Vec<String> = rows
        .filter_map(|row| row.split(" | ").next())
        .flat_map(|cell| cell.split('*').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let mut spent: Vec<&str> = ALL.iter().chain(HELD).map(|spending| spending.name).collect();
    let mut named: Vec<&str> = named.iter().map(String::as_str).collect();
    spent.sort_unstable();
    named.sort_unstable();
    assert_eq!(named, spent);
}

#[test]
fn what_one_user_spends_to_the_end_costs_others_three_times_the_time_at_most() {
    let Ok(only) = std::env::var("FILESECBOX_LOAD_COST") else {
        random::tell(
            "SKIPPED: what a user can cost others is measured with `FILESECBOX_LOAD_COST=` on a quiet machine",
        );
        return;
    };
    let temp = tempfile::tempdir().unwrap();
    let tokens = ["spender", "bystander"].map(|user| {
        let digest = spending::digest(user);
        format!("[[tokens]]\nsha256 = \"{digest}\"\nrole = \"user\"\nuser = \"{user}\"\n")
    });
    let mut complaints = Vec::new();
    for spending in ALL.iter().chain(HELD).filter(|spending| spending.name.contains(&only)) {
        let place = temp.path().join(spending.name.replace(' ', "-"));
        std::fs::create_dir(&place).unwrap();
        let isolation = std::env::var("FILESECBOX_TEST_TIER")
            .map_or_else(|_| String::new(), |tier| format!("[isolation]\nmaximum = \"{tier}\"\n"));
        let settings = format!("{SETTINGS}{isolation}{}{}", holding::SETTINGS, tokens.concat());
        let service = Service::start_configured(&settings, &place.join("root"), &place.join("log"));
        complaints.extend(judge(spending, &service.url));
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// Measures one spending. What is wrong, if something is.
fn judge(spending: &Spending, url: &str) -> Option<String> {
    let bystander = Client::with_token(url, spending::token("bystander"));
    sample(&bystander);
    let arena = Arena {
        url: url.to_owned(),
        token: spending::token("spender"),
        refused: AtomicUsize::new(0),
        is_over: AtomicBool::new(false),
        number: AtomicUsize::new(0),
    };
    (spending.prepare)(&arena);
    let (mut rounds, mut busy) = (Vec::<(Figures, Figures)>::new(), 0);
    while rounds.len() < ROUNDS && busy < BUSY_ROUNDS {
        let before = percentiles(&bystander);
        let beside = spend(&arena, spending, || percentiles(&bystander));
        if let Some(kind) = (0..FORK).find(|kind| beside[*kind][1] > HELD_UP) {
            return Some(format!(
                "{}: a {} takes {:?} beside it",
                spending.name, KINDS[kind], beside[kind][1]
            ));
        }
        let after = percentiles(&bystander);
        let differs = |kind: usize| {
            let ([one, _], [other, _]) = (before[kind], after[kind]);
            times(one.max(other), one.min(other)) > QUIET
        };
        if !(0..KINDS.len()).any(differs) {
            let alone = std::array::from_fn(|kind| before[kind].max(after[kind]));
            rounds.push((alone, beside));
        } else {
            busy += 1;
        }
    }
    if rounds.len() < ROUNDS {
        return Some(format!("{}: the machine was busy in {busy} rounds", spending.name));
    }
    let complaints: Vec<String> = (0..FORK)
        .filter_map(|kind| {
            let mut ratios: Vec<(f64, f64, Duration, Duration)> = rounds
                .iter()
                .map(|(alone, beside)| {
                    let slower = |control: usize| times(beside[control][1], alone[control][1]);
                    let machine = match kind {
                        WRITE => slower(FORK).max(slower(SYNCHRONISE)),
                        _ => slower(FORK),
                    };
                    let machine = machine.clamp(1.0, MACHINE_MAX);
                    let ([_, alone], [_, beside]) = (alone[kind], beside[kind]);
                    (times(beside, alone) / machine, machine, alone, beside)
                })
                .collect();
            ratios.sort_by(|one, other| one.0.total_cmp(&other.0));
            let (ratio, machine, alone, beside) = ratios[ratios.len() / 2];
            let (name, kind) = (spending.name, KINDS[kind]);
            let line = format!(
                "{name}: {kind} {alone:.1?} alone, {beside:.1?}: {:.1} times, machine {machine:.1}, service {ratio:.1}",
                times(beside, alone)
            );
            random::tell(&line);
            (ratio > TIMES_MAX && beside > alone.mul_f64(TIMES_MAX * machine) + GRACE).then_some(line)
        })
        .collect();
    (!complaints.is_empty()).then(|| complaints.join("\n"))
}

fn times(one: Duration, other: Duration) -> f64 {
    one.as_secs_f64() / other.as_secs_f64().max(1e-9)
}

/// Spends while `measure` goes on, which begins when the limit is reached.
fn spend<T>(arena: &Arena, spending: &Spending, measure: impl FnOnce() -> T) -> T {
    arena.is_over.store(false, Ordering::Relaxed);
    arena.refused.store(0, Ordering::Relaxed);
    thread::scope(|threads| {
        for number in 0..spending.at_once {
            threads.spawn(move || (spending.spend)(arena, number));
        }
        let begun = Instant::now();
        while !(spending.is_spent)(arena) {
            if begun.elapsed() > PATIENCE {
                arena.is_over.store(true, Ordering::Relaxed);
                panic!("the control: {} are never spent", spending.name);
            }
            thread::sleep(Duration::from_millis(5));
        }
        let measured = measure();
        arena.is_over.store(true, Ordering::Relaxed);
        measured
    })
}

/// Samples for a while, and tells the 99th percentile of each kind.
fn percentiles(bystander: &Client) -> Figures {
    let mut samples: [Vec<Duration>; KINDS.len()] = Default::default();
    let begun = Instant::now();
    let has_enough = |samples: usize| {
        let wanted = if begun.elapsed() < MEASURED_MAX { SAMPLES } else { SAMPLES_MIN };
        begun.elapsed() >= MEASURED && samples >= wanted
    };
    while !has_enough(samples[0].len()) {
        for (samples, took) in samples.iter_mut().zip(sample(bystander)) {
            samples.push(took);
        }
    }
    samples.map(|mut samples| {
        samples.sort_unstable();
        [50, 99].map(|percent| samples[(samples.len() * percent).div_ceil(100) - 1])
    })
}

/// One read, one write and one run of the bystander, which must succeed, and the control.
fn sample(bystander: &Client) -> [Duration; KINDS.len()] {
    let timed = |ask: &dyn Fn() -> Result<u16, Broken>| {
        let begun = Instant::now();
        // A kept connection that is idle may have given way.
        let status = ask().or_else(|Broken| ask()).expect("an answer");
        assert!(matches!(status, 200 | 201), "the bystander gets {status}");
        begun.elapsed()
    };
    let write = timed(&|| Ok(bystander.put(&format!("{BYSTANDER}/raw/f"), &[b'x'; 4096])?.status));
    let read = timed(&|| Ok(bystander.get(&format!("{BYSTANDER}/raw/f"))?.status));
    let echo = json!({ "command": "echo", "args": ["here"] });
    let run = timed(&|| {
        let ran = bystander.post(&format!("{BYSTANDER}/exec"), &echo)?;
        assert_eq!(ran.json()["data"]["stdout"], "here\n", "{}", ran.text());
        Ok(ran.status)
    });
    let fork = timed(&|| {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[b'x'; 4096]).unwrap();
        let status = Command::new("true").stdin(Stdio::null()).status().unwrap();
        Ok(if status.success() { 200 } else { 500 })
    });
    let synchronise = timed(&|| {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[b'x'; 4096]).unwrap();
        file.sync_all().unwrap();
        Ok(200)
    });
    [read, write, run, fork, synchronise]
}
