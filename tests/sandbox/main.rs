//! The contract of `sandbox` over a running service: `service::LAW` for each law, and what that backend alone promises.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    dead_code,
    missing_docs,
    reason = "a test fails by panicking, looks at the host from outside, and shares the service with another suite"
)]

#[path = "../rest/support/client.rs"]
mod client;
#[path = "../../agent/tests/transcript/play.rs"]
mod play;
mod remote;
#[path = "../rest/support/service.rs"]
mod service;
#[path = "../../agent/tests/agent/tapped.rs"]
mod tapped;
mod tools;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use libtest_mimic::{Arguments, Trial};
use sandbox::conformance::{Subject, Verdict, check, laws};

use client::Client;

fn main() {
    let runtime = Arc::new(tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap());
    let arguments = Arguments::from_args();
    let remote = Arc::new(remote::Remote::new());
    let subjects: Vec<(&str, Arc<dyn Subject>)> = vec![("service", remote.clone())];
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
    trials.extend(tools::trials(&runtime, &remote));
    let conclusion = libtest_mimic::run(&arguments, trials);
    for (name, (held, skipped)) in counts.lock().unwrap().iter() {
        println!("{name}: {held} laws hold, {skipped} skipped");
    }
    remote.stop();
    conclusion.exit();
}
