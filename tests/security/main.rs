//! Attacks on the running service by its callers and by their commands, each named after what it tries.
//!
//! The real service is started once for each tier that this host grants, as root and without; every attack is made on
//! each of them, as a client would: a payload is uploaded through the API, run with `exec`, and judged by what it
//! obtained and by what is different on the host afterwards. An exit code is no evidence. Before each attack the same
//! payload runs on something that it may have, and must obtain it: a sandbox that starts nothing would look safe.
//!
//! * [`attack`] says what an attack is, [`expectation`] what tiers promise about it.
//! * [`stage`] starts services and furnishes them with a victim; [`scene`] is one attacker there; [`host`] looks from
//!   outside.
//! * [`payload`] runs the Python files of `payloads/`; the modules named after themes hold the attacks.
//! * [`table`] keeps `docs/SECURITY.md` and prints what was found.
//!
//! * [`revival`] kills the services under attack before all of it, so that attacks are made on what came back.
//!
//! `cargo test --test security -- NAME` makes the attacks whose names hold `NAME`. `FILESECBOX_TEST_ATTACKS` holds several
//! such names with spaces between, in whose order the attacks are made. `FILESECBOX_URL` and `FILESECBOX_TOKEN` name a
//! running service to attack instead; what needs a look at the host is skipped then.
//! `FILESECBOX_REQUIRE=root,setpriv,perl,landlock,every-attack` makes a failure of what would be skipped, and of an attack that is
//! left out where the document says that it is stopped.
//! `FILESECBOX_TEST_SLOWNESS` says how slow the processor is ([`client::pace`]).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::disallowed_methods,
    dead_code,
    missing_docs,
    reason = "a test fails by panicking, looks at the host from outside, and shares the client with another suite"
)]

mod admission;
mod admittance;
mod attack;
mod bodies;
#[path = "../rest/support/client.rs"]
mod client;
mod copies;
mod devboxes;
mod disk;
mod environment;
mod expectation;
mod files;
mod headers;
mod host;
mod kernel;
mod layers;
mod modes;
mod neighbours;
mod network;
mod others;
mod paths;
mod payload;
mod planting;
mod ports;
mod processes;
mod programs;
mod publishing;
mod races;
#[path = "../load/random.rs"]
mod random;
mod records;
mod resources;
mod revival;
mod scene;
mod sockets;
mod stage;
mod table;
mod washing;
#[path = "../rest/support/zip.rs"]
mod zip;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};

use attack::Attack;
use expectation::Expected;
use scene::Scene;
use stage::Stage;
use table::{Found, Theme};

/// All attacks, by theme.
const THEMES: &[Theme] = &[
    ("Files of the host and of others", files::ATTACKS),
    ("Modes, times and owners", modes::ATTACKS),
    ("Other processes", others::ATTACKS),
    ("Programs", programs::ATTACKS),
    ("The kernel", kernel::ATTACKS),
    ("The network", network::ATTACKS),
    ("Other users on the network", neighbours::ATTACKS),
    ("Ports", ports::ATTACKS),
    ("UNIX sockets between runs", sockets::ATTACKS),
    ("What outlives a run", processes::ATTACKS),
    ("Resources", resources::ATTACKS),
    ("The disk", disk::ATTACKS),
    ("Things planted for the API", planting::ATTACKS),
    ("Races with the API", races::ATTACKS),
    ("Paths", paths::ATTACKS),
    ("Requests and their bodies", bodies::ATTACKS),
    ("Connections", admittance::ATTACKS),
    ("What skills say of themselves", headers::ATTACKS),
    ("Holding others up", admission::ATTACKS),
    ("Layers", layers::ATTACKS),
    ("Layers while commands run", publishing::ATTACKS),
    ("Copies in which commands run", copies::ATTACKS),
    ("What a restart believes", records::ATTACKS),
    ("Devboxes", devboxes::ATTACKS),
    ("Environment and identity", environment::ATTACKS),
    ("The audit log", washing::ATTACKS),
];

/// Runs by residents without which the attacks were not made by them: a few for each, of which there were 878.
const RESIDENT_RUNS_MIN: u64 = 500;

/// The stages and what was found on them.
struct Campaign {
    stages: Vec<Stage>,
    findings: Mutex<BTreeMap<&'static str, BTreeMap<String, Found>>>,
    /// How long each attack took on all stages.
    times: Mutex<Vec<(Duration, &'static str)>>,
    /// Held shared by most attacks, alone by those that measure.
    quiet: RwLock<()>,
}

fn main() {
    let arguments = Arguments::from_args();
    let mut stages = if arguments.list { Vec::new() } else { Stage::all() };
    let before: Vec<_> = stages.iter().map(Stage::belongings).collect();
    let is_whole = arguments.filter.is_none() && arguments.skip.is_empty() && chosen().is_none();
    let mut is_well = true;
    if !arguments.list && (is_whole || revival::is_asked_for()) {
        is_well &= revival::kill_all(&mut stages, THEMES, &before);
    }
    let (conclusion, stages) = Campaign::run(&arguments, stages);
    if arguments.list {
        return;
    }
    let (mut stages, mut conclusions) = (stages, vec![conclusion]);
    is_well &= are_well(&stages, &before, is_whole);
    if revival::is_asked_for() {
        is_well &= revival::restart_all(&mut stages, &before);
        let (conclusion, again) = Campaign::run(&arguments, stages);
        conclusions.push(conclusion);
        stages = again;
        is_well &= are_well(&stages, &before, is_whole);
    }
    for stage in &mut stages {
        stage.host.iter_mut().for_each(stage::Host::stop);
        is_well &= revival::has_whole_audit(stage);
    }
    // Removes what the services had before the exit that runs no destructors.
    drop(stages);
    if !is_well || conclusions.iter().any(libtest_mimic::Conclusion::has_failed) {
        std::process::exit(101);
    }
}

/// Tells whether nothing is harmed, and whether residents made what they were to make.
fn are_well(stages: &[Stage], before: &[Vec<(String, String)>], is_whole: bool) -> bool {
    let unharmed = stages.iter().zip(before).all(|(stage, before)| is_unharmed(stage, before));
    let mut is_warm = true;
    for stage in stages.iter().filter(|stage| stage.is_warm) {
        let runs = stage.resident_runs();
        println!("{}: {runs} runs", place_of(stage));
        is_warm &= !is_whole || runs >= RESIDENT_RUNS_MIN;
    }
    if !is_warm {
        println!("too few of them: what was to be made by residents was made by first processes");
    }
    unharmed && is_warm
}

/// Parts of names, of which the attacks to be made hold one, so that many attacks are made on services that start once.
fn chosen() -> Option<String> {
    std::env::var("FILESECBOX_TEST_ATTACKS").ok().filter(|names| !names.trim().is_empty())
}

/// The place of an attack in that order; `None` when it is not to be made.
fn turn(attack: &Attack) -> Option<usize> {
    chosen().map_or(Some(0), |names| names.split_whitespace().position(|name| attack.name.contains(name)))
}

impl Campaign {
    /// Makes the attacks that are asked for, tells what was found, and gives the stages back.
    fn run(arguments: &Arguments, stages: Vec<Stage>) -> (libtest_mimic::Conclusion, Vec<Stage>) {
        let campaign = Arc::new(Self {
            stages,
            findings: Mutex::default(),
            times: Mutex::default(),
            quiet: RwLock::default(),
        });
        let mut attacks: Vec<_> = THEMES
            .iter()
            .flat_map(|(_, attacks)| *attacks)
            .filter_map(|attack| Some((turn(attack)?, attack)))
            .collect();
        attacks.sort_by_key(|(turn, _)| *turn);
        let mut trials: Vec<Trial> = attacks
            .into_iter()
            .map(|(_, attack)| {
                let campaign = Arc::clone(&campaign);
                Trial::test(attack.name, move || campaign.make(attack))
            })
            .collect();
        trials.push(Trial::test("the_document_has_the_table_of_this_suite", || {
            table::check_document(THEMES);
            Ok(())
        }));
        let conclusion = libtest_mimic::run(arguments, trials);
        if !arguments.list {
            println!("{}", table::found(&campaign.findings.lock().unwrap()));
            println!("{}", table::slowest(&mut campaign.times.lock().unwrap()));
        }
        let campaign = Arc::into_inner(campaign).expect("all trials have ended");
        (conclusion, campaign.stages)
    }

    /// Makes an attack on every stage.
    fn make(&self, attack: &'static Attack) -> Result<(), Failed> {
        let (shared, alone);
        if attack.alone {
            alone = self.quiet.write().unwrap_or_else(std::sync::PoisonError::into_inner);
            let _ = &alone;
        } else {
            shared = self.quiet.read().unwrap_or_else(std::sync::PoisonError::into_inner);
            let _ = &shared;
        }
        let begun = Instant::now();
        let made = |stage: &Stage| (place_of(stage), attempt(attack, &Scene::new(stage, attack.name)));
        let found: Vec<(String, Found)> = if attack.waits {
            std::thread::scope(|threads| {
                let made = &made;
                let running: Vec<_> =
                    self.stages.iter().map(|stage| threads.spawn(move || made(stage))).collect();
                running.into_iter().map(|thread| thread.join().unwrap()).collect()
            })
        } else {
            self.stages.iter().map(made).collect()
        };
        let complaints: Vec<String> = found
            .iter()
            .filter_map(|(place, found)| Some(format!("{place}: {}", found.complaint()?)))
            .collect();
        // At once, because a run that is cut short prints nothing in the end.
        complaints.iter().for_each(|complaint| eprintln!("{}: {complaint}", attack.name));
        let found: BTreeMap<String, Found> = found.into_iter().collect();
        if chosen().is_some() {
            eprintln!("made: {}", table::line(attack.name, &found));
        }
        self.findings.lock().unwrap().insert(attack.name, found);
        self.times.lock().unwrap().push((begun.elapsed(), attack.name));
        if complaints.is_empty() { Ok(()) } else { Err(complaints.join("\n").into()) }
    }
}

/// Makes one attack on one stage.
fn attempt(attack: &Attack, scene: &Scene<'_>) -> Found {
    let expected = attack.expected(scene);
    if matches!(expected, Expected::NotRun(_)) {
        return Found::NotRun;
    }
    match catch_unwind(AssertUnwindSafe(|| attack.make(scene))) {
        Ok(finding) => Found::Made(expected, finding),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Found::Broken(text.unwrap_or_else(|| "panicked".to_owned()))
        }
    }
}

/// Tells whether the baseline and the victim's things are as they were, and whether the service still answers.
fn is_unharmed(stage: &Stage, before: &[(String, String)]) -> bool {
    let place = place_of(stage);
    let after = stage.belongings();
    let changed: Vec<&str> = before
        .iter()
        .filter(|entry| !after.contains(entry))
        .chain(after.iter().filter(|entry| !before.contains(entry)))
        .map(|(name, _)| name.as_str())
        .collect();
    if changed.is_empty() {
        println!("{place}: baseline and victim are unchanged after all of it ({} entries)", before.len());
    } else {
        println!("{place}: CHANGED after all of it: {changed:?}");
    }
    changed.is_empty()
}

/// A stage as the report names it.
fn place_of(stage: &Stage) -> String {
    let who = if stage.is_root { "root" } else { "no root" };
    format!("{}, {who}{}", stage.tier, if stage.is_warm { ", by residents" } else { "" })
}
