//! The vendors' packages, unmodified, each in a version of every generation.
//!
//! `FILESECBOX_COMPAT_CLIENTS` names a directory with a directory for each package and version, such as `anthropic-2.12.0`, that
//! `pip install --target` made (`.ci/run` does). Without it, the tests are left out; `FILESECBOX_REQUIRE=compat-clients` turns
//! that into a failure.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::between::{Between, Fate};
use crate::doors::{ON, TOKENS};
use crate::support::{Service, granted};
use crate::transcripts;

/// The packages of either vendor, in a version of every generation.
pub(crate) const PACKAGES: [&str; 6] = [
    "anthropic-0.71.0",
    "anthropic-0.125.0",
    "anthropic-1.17.0",
    "anthropic-2.12.0",
    "openai-2.54.0",
    "openai-3.54.0",
];

/// Where a package is; without the packages, a test is left out.
pub(crate) fn place(package: &str) -> Option<PathBuf> {
    let clients = std::env::var("FILESECBOX_COMPAT_CLIENTS").unwrap_or_default();
    if !granted("compat-clients", !clients.is_empty()) {
        return None;
    }
    let place = Path::new(&clients).join(package);
    assert!(place.is_dir(), "FILESECBOX_COMPAT_CLIENTS has no {package}");
    Some(place)
}

/// Runs a program of this directory, which says `done` at its end. Returns what it said.
pub(crate) fn run(program: &[&str], variables: &[(&str, &str)]) -> String {
    let output = Command::new(program[0])
        .args(&program[1..])
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONWARNINGS", "error::RuntimeWarning")
        .envs(variables.iter().copied())
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/compat"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (told, warned) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && told.trim_end().ends_with("done"), "{program:?}: {told}\n{warned}");
    told.into_owned()
}

/// Has a package use a service by a URL, and writes down what it sends where that is asked for.
pub(crate) fn recorded(package: &str, service: &Service, use_it: impl Fn(&str) -> String) -> String {
    if !transcripts::are_recorded() {
        return use_it(&format!("http://{}", service.client.address));
    }
    let between = Between::start(service.client.address, |_, _| Fate::Passed);
    let told = use_it(&format!("http://{}", between.address));
    transcripts::record(package, &between.passed());
    told
}

/// Has a package do everything at the door of its vendor, for all users of an agent and for one. Returns the digests of what it
/// downloaded.
fn drive(package: &str) -> BTreeSet<String> {
    let Some(place) = place(package) else { return BTreeSet::new() };
    let service = Service::configured(&format!("{ON}{}", TOKENS.concat()));
    let script = format!("{}_client.py", package.split('-').next().unwrap());
    let told = recorded(package, &service, |url| {
        run(&["python3", &script, url], &[("PYTHONPATH", place.to_str().unwrap())])
    });
    told.lines().filter_map(|line| line.strip_prefix("digest ")).map(str::to_owned).collect()
}

#[test]
fn anthropic_of_every_generation_does_everything() {
    let of_vendor = PACKAGES.iter().filter(|package| package.starts_with("anthropic"));
    let digests: BTreeSet<String> = of_vendor.flat_map(|package| drive(package)).collect();
    assert!(digests.len() <= 1, "one version became several archives: {digests:?}");
}

#[test]
fn openai_of_every_generation_does_everything() {
    for package in PACKAGES.iter().filter(|package| package.starts_with("openai")) {
        drop(drive(package));
    }
}
