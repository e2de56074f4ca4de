//! The official suite of MCP on the server of the service, with the tools, resources and prompts of the suite's own server beside ours.
//!
//! `tests/mcp` runs the suite on the service as it is, where much of it has nothing to look at. Here nothing in the way of a message is
//! another: routes, guards, limits and transport are those of the service. What fails still is in `REVISION.yaml`, each with why.
//!
//! The process is the service as well, with [`Fixture`] around its handler; the test starts itself so.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    dead_code,
    unused_imports,
    missing_docs,
    reason = "a test fails by panicking, looks at the host from outside, and shares files with other suites"
)]

#[path = "../mcp/conformance.rs"]
mod conformance;
mod fixture;
mod rounds;
#[path = "../rest/support/mod.rs"]
mod support;

use std::path::Path;
use std::process::ExitCode;

use filesecbox::config::{Config, CredentialSources, Durability};
use filesecbox::mcp::wire;
use filesecbox::serve;
use futures_util::FutureExt;
use libtest_mimic::{Arguments, Trial};

use self::conformance::{checks, expected, packages};
use self::fixture::Fixture;
use self::support::{Service, Settings};

/// The argument with which this program is the service, followed by the program that it is instead of, and that one's arguments.
const INSTEAD: &str = "instead-of";
/// The workspace that the suite is told about.
const PATH: &str = "/mcp/alice/demo";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        Some(word) if word == exec::SUBCOMMAND => exec::launcher_main(),
        Some(INSTEAD) => serve(&words[3..]),
        _ => {
            let trial = |revision: &'static str, least| {
                Trial::test(format!("conforms_{}", revision.replace('-', "_")), move || {
                    conforms(revision, least);
                    Ok(())
                })
            };
            let trials = vec![trial("2026-07-28", 166), trial("2025-11-25", 65)];
            libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
        }
    }
}

/// Serves until it is told to stop.
fn serve(arguments: &[String]) -> ExitCode {
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name);
        at.map(|at| arguments[at + 1].clone())
    };
    let file = value("--config").unwrap();
    let mut config = Config::read(Some(Path::new(&file)), std::iter::empty()).unwrap();
    config.root = value("--root").unwrap().into();
    config.listen = value("--listen").unwrap().parse().unwrap();
    config.durability = Durability::Relaxed;
    let sources = CredentialSources::new(&config, Some(Path::new(&file)), None, None).unwrap();
    let served = serve::serve_with(config, sources, |mcp| {
        mcp.answering(Box::new(|handler, message| wire::answer(Fixture(handler), message).boxed()))
    });
    served.unwrap();
    ExitCode::SUCCESS
}

/// Has the suite look at a revision: what fails is what the list says, and `least` checks pass.
fn conforms(revision: &str, least: usize) {
    let Some(packages) = packages() else { return };
    let this = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    let service = Service::with(Settings {
        config: Some("[mcp]\nenabled = true\n".to_owned()),
        through: vec![this, INSTEAD.to_owned()],
        ..Settings::default()
    });
    let url = format!("http://{}{PATH}", service.client.address);
    let (failed, made) = checks(&packages, &url, &["--requirements", revision]);
    assert_eq!(failed, expected("mcp_fixture", revision), "what fails, and what is said to");
    assert!(made - failed.len() >= least, "{made} checks, of which {} fail", failed.len());
}
