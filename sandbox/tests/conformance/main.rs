//! The contract suite over the backends and adapters of this crate, each law a test of its own: `none::LAW`.
//!
//! A law that a backend cannot be held to is skipped loudly; the last lines count, backend by backend.
//! `FILESECBOX_REQUIRE=docker-engine` makes a failure of a Docker engine that is not there.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    reason = "a test fails by panicking, and plants what only the host can plant"
)]

mod adapters;
mod docker;
mod memory;
mod none;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use libtest_mimic::{Arguments, Trial};
use sandbox::conformance::{Subject, Verdict, check, laws};
use tokio::runtime::{Builder, Runtime};

/// How many laws hold, and how many were skipped, by backend.
type Counts = Arc<Mutex<BTreeMap<&'static str, (usize, usize)>>>;

fn main() {
    let runtime = Arc::new(Builder::new_multi_thread().enable_all().build().unwrap());
    let arguments = Arguments::from_args();
    let mut subjects: Vec<(&str, Arc<dyn Subject>)> = vec![
        ("memory", Arc::new(memory::Memory::default())),
        ("read_only", Arc::new(adapters::Adapted::new(adapters::Adapter::ReadOnly))),
        ("limited", Arc::new(adapters::Adapted::new(adapters::Adapter::Limited))),
        ("none", Arc::new(none::Host::new())),
    ];
    let engine = runtime.block_on(docker::Engine::find()).map(Arc::new);
    let mut trials = Vec::new();
    match &engine {
        Ok(engine) => {
            subjects.push(("docker", engine.clone()));
            trials.extend(of_the_engine(&runtime, engine));
        }
        Err(reason) => {
            println!("SKIPPED: docker: {reason}");
            let required = std::env::var("FILESECBOX_REQUIRE").unwrap_or_default();
            assert!(
                !required.split(',').any(|name| name == "docker-engine"),
                "docker-engine is required: {reason}"
            );
        }
    }
    let counts = Counts::default();
    for (name, subject) in subjects {
        trials.extend(laws_of(&runtime, name, &subject, &counts));
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    for (name, (held, skipped)) in counts.lock().unwrap().iter() {
        println!("{name}: {held} laws hold, {skipped} skipped");
    }
    if let Ok(engine) = &engine {
        runtime.block_on(engine.clean_up());
    }
    conclusion.exit();
}

fn laws_of(
    runtime: &Arc<Runtime>,
    name: &'static str,
    subject: &Arc<dyn Subject>,
    counts: &Counts,
) -> Vec<Trial> {
    let trial = |law: &'static sandbox::conformance::Law| {
        let (runtime, subject, counts) = (runtime.clone(), subject.clone(), counts.clone());
        Trial::test(format!("{name}::{}", law.name), move || {
            let verdict = runtime.block_on(check(&subject, law));
            let mut counts = counts.lock().unwrap();
            let (held, skipped) = counts.entry(name).or_default();
            match verdict {
                Verdict::Holds => *held += 1,
                Verdict::Skipped(need) => {
                    *skipped += 1;
                    println!("SKIPPED: {name}::{}: this backend lacks {need:?}", law.name);
                }
            }
            Ok(())
        })
    };
    laws().map(trial).collect()
}

/// The promises of containers alone.
fn of_the_engine(runtime: &Arc<Runtime>, engine: &Arc<docker::Engine>) -> Vec<Trial> {
    macro_rules! trial {
        ($law:ident) => {{
            let (runtime, engine) = (runtime.clone(), engine.clone());
            Trial::test(concat!("docker::", stringify!($law)), move || {
                runtime.block_on(engine.$law());
                Ok(())
            })
        }};
    }
    vec![
        trial!(an_export_keeps_the_whole_container),
        trial!(an_idle_container_stops_and_starts_again),
        trial!(a_container_has_no_rights_and_bounds),
        trial!(agents_of_a_user_share_no_container),
        trial!(what_leaves_everything_behind_ends_with_its_run),
    ]
}
