//! The official conformance suite, and the inspector.
//!
//! `FILESECBOX_MCP_SUITE` is a directory with the packages, and with a Node.js of version 22 or later, which the suite needs:
//! `npm install --prefix DIRECTORY node@22 @modelcontextprotocol/conformance@0.2.0-alpha.12 @modelcontextprotocol/inspector@2.12.0`. Without
//! it, tests that need it are left out; `FILESECBOX_REQUIRE=mcp-suite` turns that into a failure.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::support::granted;

/// The directory with the packages.
pub(crate) fn packages() -> Option<PathBuf> {
    let packages = std::env::var_os("FILESECBOX_MCP_SUITE").map(PathBuf::from);
    granted("mcp-suite", packages.is_some()).then_some(packages).flatten()
}

/// Runs one of the programs, with the Node.js of the packages.
pub(crate) fn run(packages: &Path, program: &str, arguments: &[&str]) -> Output {
    let programs = packages.join("node_modules/.bin");
    let home = tempfile::tempdir().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(programs.join(program));
    command.args(arguments).env("PATH", path).env("HOME", home.path()).current_dir(home.path());
    command.env("NO_COLOR", "1").stdin(Stdio::null()).output().unwrap()
}

/// The checks of the server at `url` that fail, as `scenario:check`, and how many were made. Warnings count as failures.
pub(crate) fn checks(packages: &Path, url: &str, arguments: &[&str]) -> (BTreeSet<String>, usize) {
    let results = tempfile::tempdir().unwrap();
    let out = results.path().to_str().unwrap();
    let output =
        run(packages, "conformance", &[&["server", "--url", url, "--output-dir", out], arguments].concat());
    let (mut failed, mut made) = (BTreeSet::new(), 0);
    for scenario in fs::read_dir(results.path()).unwrap() {
        let scenario = scenario.unwrap();
        let name = scenario.file_name().into_string().unwrap();
        // `server-SCENARIO-TIME`
        let name = name.strip_prefix("server-").unwrap().strip_suffix('Z').unwrap();
        let name = &name[..name.len() - "-2026-01-01T00-00-00-000".len()];
        let text = fs::read_to_string(scenario.path().join("checks.json")).unwrap();
        for check in serde_json::from_str::<Vec<Value>>(&text).unwrap() {
            made += 1;
            if matches!(check["status"].as_str(), Some("FAILURE" | "WARNING")) {
                failed.insert(format!("{name}:{}", check["id"].as_str().unwrap()));
            }
        }
    }
    assert!(made > 0, "{output:?}");
    (failed, made)
}

/// The checks that are known to fail, of the list `tests/DIRECTORY/REVISION.yaml`, each with why. It is exact: a check that fails without
/// being there, and one that is there without failing, fail the test.
pub(crate) fn expected(directory: &str, revision: &str) -> BTreeSet<String> {
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/{directory}/{revision}.yaml"));
    let list = fs::read_to_string(list).unwrap();
    list.lines().filter_map(|line| line.strip_prefix("  - ")).map(str::to_owned).collect()
}
