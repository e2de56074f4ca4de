//! The corpus: skills as people have them, uploaded as people pack them, and run to their end as an agent would.
//!
//! Each directory of `skills/` is a skill, and the file of its name beside it (`skills/NAME.toml`) is its [`plan`]: how it
//! is packed, what the user has in the workspace, the commands with what each must say, and the files that must be there
//! in the end, each read by another program than the one that made it. The data is made by the skills themselves.
//!
//! * [`stage`] starts services: at the tiers `namespaces` and `landlock`, as root and without, profile `developer`.
//! * [`pack`] packs a skill; [`play`] uploads and runs it; [`reader`] reads what came out.
//! * [`repository`] serves a repository of git over HTTPS; [`table`] keeps the table in `docs/SKILLS.md`.
//!
//! `cargo test --test corpus -- NAME` plays the skills whose names hold `NAME`. A skill whose programs the service's host
//! lacks is skipped; `FILESECBOX_REQUIRE=corpus` makes that a failure. `FILESECBOX_CORPUS_AT=http://ADDRESS:PORT`, with
//! `FILESECBOX_TOKEN`, names a running service to play on instead, such as one in a container.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::disallowed_methods,
    dead_code,
    missing_docs,
    reason = "a test fails by panicking, reads results with other programs, and shares the client with other suites"
)]

#[path = "../rest/support/client.rs"]
mod client;
#[path = "../security/host.rs"]
mod host;
mod pack;
mod plan;
mod play;
mod reader;
mod repository;
mod stage;
mod table;
#[path = "../rest/support/zip.rs"]
mod zip;

use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Trial};

use plan::Plan;
use play::Outcome;
use repository::Repository;
use stage::Stage;

/// The fewest skills that make a corpus.
const SKILLS_MIN: usize = 25;

/// The outcome of each trial that was played, with its name and the time that it took.
type Played = Arc<Mutex<Vec<(String, Outcome, Duration)>>>;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let plans = plan::all();
    let repository = if arguments.list { None } else { Repository::serve() };
    let stages = if arguments.list { Vec::new() } else { Stage::all(repository.as_ref(), &plans) };
    let repository = Arc::new(repository);
    let stages: Vec<Arc<Stage>> = stages.into_iter().map(Arc::new).collect();
    let played = Played::default();
    let mut trials = vec![law("the_corpus_has_at_least_twenty_five_skills", {
        let count = plans.len();
        move || assert!(count >= SKILLS_MIN, "{count} skills")
    })];
    trials.push(law("the_document_has_the_table_of_this_suite", {
        let plans = plans.clone();
        move || table::check_document(&plans)
    }));
    trials.push(law("the_document_names_every_package_of_the_corpus", table::check_packages));
    for stage in &stages {
        for plan in &plans {
            trials.push(trial(stage, plan, &repository, &played));
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    report(&mut played.lock().unwrap());
    drop(stages);
    conclusion.exit_code()
}

/// A law about the corpus itself.
fn law(name: &str, check: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(name, move || {
        check();
        Ok(())
    })
}

/// One skill on one stage.
fn trial(
    stage: &Arc<Stage>,
    plan: &Arc<Plan>,
    repository: &Arc<Option<Repository>>,
    played: &Played,
) -> Trial {
    let name = format!("{}::{}", stage.name, plan.name);
    let (stage, plan, repository, played) =
        (Arc::clone(stage), Arc::clone(plan), Arc::clone(repository), Arc::clone(played));
    Trial::test(name.clone(), move || {
        let begun = Instant::now();
        let outcome = play::play(&stage, &plan, repository.as_ref().as_ref());
        if let Outcome::Skipped(what) = &outcome {
            assert!(host::may_lack("corpus"), "skipped, which is not to be: {what}");
            eprintln!("SKIPPED: {name}: {what}");
        }
        played.lock().unwrap().push((name, outcome, begun.elapsed()));
        Ok(())
    })
}

/// Tells how many skills ran to their end, which did not and why, and which took longest.
fn report(played: &mut [(String, Outcome, Duration)]) {
    let count =
        |wanted: fn(&Outcome) -> bool| played.iter().filter(|(_, outcome, _)| wanted(outcome)).count();
    let whole = count(|outcome| matches!(outcome, Outcome::Whole));
    let refused = count(|outcome| matches!(outcome, Outcome::Refused(_)));
    let skipped = count(|outcome| matches!(outcome, Outcome::Skipped(_)));
    println!("corpus: {whole} ran to their end, {refused} were refused as stated, {skipped} skipped");
    played.sort_by_key(|(.., took)| std::cmp::Reverse(*took));
    for (name, _, took) in played.iter().take(8) {
        println!("{name}: {:.1} s", took.as_secs_f64());
    }
}
