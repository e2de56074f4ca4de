//! The contract of `sandbox` over the service in this very process: `local::LAW` for each law, and what that backend
//! alone promises.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    dead_code,
    missing_docs,
    reason = "a test fails by panicking, looks at the host from outside, and shares files with other suites"
)]

mod host;
mod own;
#[path = "../../agent/tests/transcript/play.rs"]
mod play;
mod preparing;
#[path = "../rest/support/zip.rs"]
mod zip;

use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use filesecbox::{config, serve};
use libtest_mimic::{Arguments, Trial};
use sandbox::conformance::{Subject, Verdict, check, laws};

/// How long runs may take when all tests have ended.
const GRACE: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == exec::SUBCOMMAND) {
        return exec::launcher_main();
    }
    let arguments = Arguments::from_args();
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("data");
    let config = config::Config {
        root: root.clone(),
        durability: config::Durability::Relaxed,
        ..config::Config::default()
    };
    // No thread is there yet.
    let service = serve::start(&config).unwrap();
    let runtime = Arc::new(tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap());
    runtime.block_on(async { serve::tend(&service) });
    let host = Arc::new(host::Host::new(Arc::clone(&service), root));
    let subject: Arc<dyn Subject> = host.clone();
    let counts = Arc::new(Mutex::new((0, 0)));
    let mut trials = Vec::new();
    for law in laws() {
        let (runtime, subject, counts) = (runtime.clone(), subject.clone(), counts.clone());
        trials.push(Trial::test(format!("local::{}", law.name), move || {
            let verdict = runtime.block_on(check(&subject, law));
            let mut counts = counts.lock().unwrap();
            match verdict {
                Verdict::Holds => counts.0 += 1,
                Verdict::Skipped(need) => {
                    counts.1 += 1;
                    println!("SKIPPED: local::{}: this backend lacks {need:?}", law.name);
                }
            }
            Ok(())
        }));
    }
    trials.extend(own::trials(&runtime, &host));
    let conclusion = libtest_mimic::run(&arguments, trials);
    let (held, skipped) = *counts.lock().unwrap();
    println!("local ({}): {held} laws hold, {skipped} skipped", service.host().enforcement.tier);
    drop((host, subject));
    runtime.block_on(serve::stop(&service, GRACE));
    drop(runtime);
    serve::close(&service);
    conclusion.exit_code()
}
