//! The contract suite over the backends and adapters of this crate, each law a test of its own: `none::LAW`.
//!
//! A law that a backend cannot be held to is skipped loudly; the last lines count, backend by backend.
//! `FILESECBOX_REQUIRE=docker-engine` makes a failure of a Docker engine that is not there.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    reason = "a test fails by panicking, and plants what only the host can plant"
)]

mod adapters;
mod memory;
mod none;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use libtest_mimic::{Arguments, Trial};
use sandbox::conformance::{Subject, Verdict, check, laws};

fn main() {
    let runtime = Arc::new(tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap());
    let subjects: Vec<(&str, Arc<dyn Subject>)> = vec![
        ("memory", Arc::new(memory::Memory::default())),
        ("read_only", Arc::new(adapters::Adapted::new(adapters::Adapter::ReadOnly))),
        ("limited", Arc::new(adapters::Adapted::new(adapters::Adapter::Limited))),
        ("none", Arc::new(none::Host::new())),
    ];
    let counts = Arc::new(Mutex::new(BTreeMap::<&str, (usize, usize)>::new()));
    let mut trials = Vec::new();
    for (name, subject) in subjects {
        for law in laws() {
            let (runtime, subject, counts) = (runtime.clone(), subject.clone(), counts.clone());
            trials.push(Trial::test(format!("{name}::{}", law.name), move || {
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
            }));
        }
    }
    let conclusion = libtest_mimic::run(&Arguments::from_args(), trials);
    for (name, (held, skipped)) in counts.lock().unwrap().iter() {
        println!("{name}: {held} laws hold, {skipped} skipped");
    }
    conclusion.exit();
}
