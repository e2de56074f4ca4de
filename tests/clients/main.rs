//! Clients that ordinary generators make of the OpenAPI document, used on a running service as a newcomer would.
//!
//! * `openapi-python-client` (`pip install openapi-python-client`) with `python.yaml`, used by `client.py`;
//! * `openapi-typescript` with `openapi-fetch` and `typescript` (`npm install`), used by `client.ts` in strict mode.
//!
//! A generator that leaves an operation out, or has a warning, fails the test. Without the programs it is skipped;
//! `FILESECBOX_REQUIRE=openapi-python-client,openapi-typescript` turns the skip into a failure.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::disallowed_methods,
    dead_code,
    missing_docs,
    reason = "a test fails by panicking, speaks through stderr, and shares the client with another suite"
)]

#[path = "../rest/support/client.rs"]
mod client;
#[path = "../rest/support/host.rs"]
mod host;
#[path = "../rest/support/service.rs"]
mod service;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use client::Client;
use client::promise::PROMISE;
use service::Service;

/// The admin's token, and its SHA-256.
const TOKEN: &str = "secret";
const CONFIG: &str = "[[tokens]]\nrole = \"admin\"\n\
                      sha256 = \"2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\"\n";

fn of_test(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name)
}

/// Runs a program in `directory`, which must succeed, and returns what it wrote.
fn run(directory: &Path, program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory).stdin(Stdio::null());
    command
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONPATH", directory.join("made"))
        .env("NO_COLOR", "1");
    let output = command.output().unwrap();
    let written = [output.stdout, output.stderr].concat();
    let written = String::from_utf8_lossy(&written).into_owned();
    assert!(output.status.success(), "{command:?}\n{written}");
    written
}

/// Where a program is that is found by its name.
fn found(program: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    let all = std::env::split_paths(&path).map(|directory| directory.join(program));
    fs::canonicalize(all.into_iter().find(|file| file.is_file()).unwrap()).unwrap()
}

/// Begins a service and puts its document into a directory.
fn begin() -> (Service, String, tempfile::TempDir) {
    let service = Service::configured(CONFIG);
    let address = format!("http://{}", service.client.address);
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("openapi.json"), service.client.get("/openapi.json").bytes(200)).unwrap();
    (service, address, place)
}

fn operations() -> usize {
    let paths = PROMISE.document["paths"].as_object().unwrap();
    paths.values().map(|item| item.as_object().unwrap().len()).sum()
}

#[test]
fn openapi_python_client_makes_a_whole_client_that_works() {
    if !host::have("openapi-python-client") {
        return;
    }
    let (_service, address, place) = begin();
    let directory = place.path();
    let config = of_test("python.yaml");
    let told = run(
        directory,
        "openapi-python-client",
        &[
            "generate",
            "--path",
            "openapi.json",
            "--output-path",
            "made",
            "--config",
            config.to_str().unwrap(),
        ],
    );
    assert!(!told.to_ascii_lowercase().contains("warning"), "{told}");
    // One module an operation, in a package for each group.
    let packages = fs::read_dir(directory.join("made/filesecbox_client/api")).unwrap().flatten();
    let modules =
        packages.filter(|entry| entry.path().is_dir()).flat_map(|entry| fs::read_dir(entry.path()).unwrap());
    let is_operation = |name: &str| name.ends_with(".py") && name != "__init__.py";
    let made = modules.flatten().filter(|entry| is_operation(&entry.file_name().to_string_lossy())).count();
    assert_eq!(made, operations(), "an operation was left out");
    // The interpreter of the generator has what its clients need.
    let generator = fs::read_to_string(found("openapi-python-client")).unwrap();
    let interpreter = generator.lines().next().unwrap().trim_start_matches("#!").to_owned();
    let told = run(directory, interpreter, &[of_test("client.py").to_str().unwrap(), &address, TOKEN]);
    assert!(told.contains("all of it works"), "{told}");
}

#[test]
fn openapi_typescript_makes_types_of_all_that_has_a_shape() {
    if !host::have("openapi-typescript") {
        return;
    }
    let (_service, address, place) = begin();
    let directory = place.path();
    run(
        directory,
        "openapi-typescript",
        &["openapi.json", "--default-non-nullable=false", "--output", "schema.d.ts"],
    );
    let types = fs::read_to_string(directory.join("schema.d.ts")).unwrap();
    let (_, of_operations) = types.split_once("export interface operations {").unwrap();
    let made = of_operations.lines().filter(|line| line.starts_with("    ") && line.ends_with(": {"));
    assert_eq!(
        made.filter(|line| !line.starts_with("     ")).count(),
        operations(),
        "an operation was left out"
    );
    // The packages are beside the program.
    let program = found("openapi-typescript");
    let packages = program.ancestors().find(|directory| directory.ends_with("node_modules")).unwrap();
    std::os::unix::fs::symlink(packages, directory.join("node_modules")).unwrap();
    fs::copy(of_test("client.ts"), directory.join("client.ts")).unwrap();
    fs::write(directory.join("package.json"), "{\"type\": \"module\"}").unwrap();
    let modules = ["--module", "esnext", "--moduleResolution", "bundler", "--target", "es2022"];
    let libraries = ["--lib", "es2022,dom,dom.iterable", "--skipLibCheck", "--types", "openapi-fetch"];
    let strict = ["--strict", "--noEmitOnError", "client.ts"];
    run(directory, packages.join(".bin/tsc"), &[&modules[..], &libraries[..], &strict[..]].concat());
    let told = run(directory, "node", &["client.js", &address, TOKEN]);
    assert!(told.contains("all of it works"), "{told}");
}
