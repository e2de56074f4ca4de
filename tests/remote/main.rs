//! Workspaces that another backend answers for: the contract of `sandbox` over REST, with a backend in memory, one on the host behind the
//! service, and machines that are lent, each law under its own name (`memory::LAW`, `none::LAW`, `lent::LAW`); and what the routes
//! promise beside it. Every answer of it all is held against the OpenAPI document.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    dead_code,
    missing_docs,
    reason = "a test fails by panicking, looks at the host from outside, and shares files with other suites"
)]

#[path = "../rest/support/client.rs"]
mod client;
#[path = "../rest/support/events.rs"]
mod events;
mod hostile;
mod lent;
mod own;
#[path = "../../agent/tests/transcript/play.rs"]
mod play;
mod prepared;
mod promised;
mod server;
mod subjects;
#[path = "../rest/support/websocket.rs"]
mod websocket;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use libtest_mimic::{Arguments, Trial};
use sandbox::conformance::{Subject, Verdict, check, laws};

use client::Client;
use server::Server;

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == exec::SUBCOMMAND) {
        return exec::launcher_main();
    }
    let arguments = Arguments::from_args();
    let server = Arc::new(Server::start());
    let subjects: [(&str, Arc<dyn Subject>); 3] = [
        ("memory", Arc::new(subjects::Memory::new(&server))),
        ("none", Arc::new(subjects::Host::new(&server))),
        ("lent", Arc::new(lent::Lent::new(&server))),
    ];
    let counts = Arc::new(Mutex::new(BTreeMap::<&str, (usize, usize)>::new()));
    let mut trials = Vec::new();
    for (name, subject) in &subjects {
        for law in laws() {
            let (server, subject, counts) = (server.clone(), subject.clone(), counts.clone());
            let name = *name;
            trials.push(Trial::test(format!("{name}::{}", law.name), move || {
                let verdict = server.runtime.block_on(check(&subject, law));
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
    trials.extend(own::trials(&server));
    trials.extend(hostile::trials(&server));
    trials.extend(lent::trials(&server));
    trials.extend(prepared::trials(&server));
    let conclusion = libtest_mimic::run(&arguments, trials);
    for (name, (held, skipped)) in counts.lock().unwrap().iter() {
        println!("{name}: {held} laws hold, {skipped} skipped");
    }
    let (answers, complaints) = promised::so_far();
    println!("{answers} answers were held against the OpenAPI document");
    complaints.iter().take(20).for_each(|complaint| println!("BROKEN PROMISE: {complaint}"));
    drop(subjects);
    Server::stop(server);
    if complaints.is_empty() { conclusion.exit_code() } else { ExitCode::FAILURE }
}
