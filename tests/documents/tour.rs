//! The tours of README.md, in English and Chinese, docs/PREPARE.md and docs/RUNNER.md, run as a reader would run them.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::read;

const BEGIN: &str = "<!-- tour:begin -->";
const END: &str = "<!-- tour:end -->";
/// The address that the README has; the test's service listens elsewhere.
const ADDRESS: &str = "127.0.0.1:8003";

/// One fenced block of the tour.
struct Block {
    language: String,
    lines: Vec<String>,
}

/// A service of the test's own, killed when dropped.
struct Service {
    child: Child,
    address: String,
}

impl Service {
    fn start(root: &Path) -> Self {
        let mut child = filesecbox()
            .args(["serve", "--listen", "127.0.0.1:0", "--root"])
            .arg(root)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let address = ready.trim().strip_prefix("filesecbox listening on http://");
        let address = address.unwrap_or_else(|| panic!("not a ready line: `{ready}`")).to_owned();
        Self { child, address }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The binary, with nothing of this test's environment that would configure it.
fn filesecbox() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_filesecbox"));
    for name in ["CONFIG", "LISTEN", "ROOT", "DURABILITY", "TOKEN", "LOG"] {
        command.env_remove(format!("FILESECBOX_{name}"));
    }
    command
}

/// The search path, with the directory of the service's own program first.
fn path() -> std::ffi::OsString {
    let own = Path::new(env!("CARGO_BIN_EXE_filesecbox")).parent().unwrap().to_owned();
    let rest = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(std::iter::once(own).chain(std::env::split_paths(&rest))).unwrap()
}

/// Tells why the tour cannot be gone through here, if it cannot.
fn missing(root: &Path) -> Option<String> {
    let runs = |program: &str, argument: &str| {
        let tried = Command::new(program).arg(argument).stdout(Stdio::null()).stderr(Stdio::null()).status();
        tried.is_ok_and(|status| status.success())
    };
    let programs =
        [("bash", "--version"), ("curl", "--version"), ("zip", "-v"), ("unzip", "-v"), ("python3", "-V")];
    if let Some((program, _)) = programs.into_iter().find(|(program, argument)| !runs(program, argument)) {
        return Some(format!("`{program}` is not installed"));
    }
    let doctor = filesecbox().args(["doctor", "--root"]).arg(root).output().unwrap();
    let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
    (!doctor.status.success()).then(|| format!("the service cannot start here:\n{said}"))
}

fn blocks(document: &str) -> Vec<Block> {
    let (_, rest) = document.split_once(BEGIN).unwrap();
    let (tour, _) = rest.split_once(END).unwrap();
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for line in tour.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(language)) => {
                open = Some(Block { language: language.to_owned(), lines: Vec::new() });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => block.lines.push(line.to_owned()),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block of the tour is never closed");
    blocks
}

/// Tells whether `line` is `pattern`, in which `…` stands for anything.
fn matches(line: &str, pattern: &str) -> bool {
    let mut parts = pattern.split('…');
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[test]
fn a_pattern_matches_a_whole_line() {
    assert!(matches("abcdef", "abcdef") && matches("abcdef", "a…d…f") && matches("abc", "abc…"));
    for pattern in ["abc", "…e", "a…c", "b…f", "a…f…f"] {
        assert!(!matches("abcdef", pattern), "{pattern}");
    }
}

#[test]
fn the_tour_of_the_readme_prints_what_the_readme_says() {
    play("README.md");
}

#[test]
fn the_tour_of_the_chinese_readme_is_the_same_and_prints_what_that_readme_says() {
    let of = |document: &str| {
        let all = blocks(&read(document)).into_iter();
        all.map(|block| (block.language, block.lines)).collect::<Vec<_>>()
    };
    assert_eq!(of("README.zh-CN.md"), of("README.md"));
    play("README.zh-CN.md");
}

#[test]
fn the_example_of_preparing_prints_what_the_document_says() {
    play("docs/PREPARE.md");
}

#[test]
fn the_tour_of_lending_a_machine_prints_what_the_document_says() {
    let runner = Path::new(env!("CARGO_BIN_EXE_filesecbox")).with_file_name("filesecbox-runner");
    assert!(runner.exists(), "build the runner first: cargo build --package runner");
    play("docs/RUNNER.md");
}

/// Goes through the tour of a document.
fn play(document: &str) {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().join("data");
    if let Some(reason) = missing(&root) {
        let required = std::env::var("FILESECBOX_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|name| name.trim() == "tour"), "`tour` is required: {reason}");
        eprintln!("SKIPPED: the tour of {document}: {reason}");
        return;
    }
    let service = Service::start(&root);
    let blocks = blocks(&read(document));
    let of = |language: &str| {
        let found = blocks.iter().filter(|block| block.language == language);
        found.flat_map(|block| block.lines.clone()).collect::<Vec<String>>()
    };
    let (script, expected) = (of("bash").join("\n"), of("text"));
    assert!(script.contains(ADDRESS) && expected.len() > 5, "the tour was not found");

    let script = format!("set -euo pipefail\n{}\n", script.replace(ADDRESS, &service.address));
    let run = Command::new("bash")
        .args(["-c", &script])
        .current_dir(temp.path())
        // Where the tour's `mktemp -d` makes its directory.
        .env("TMPDIR", temp.path())
        // With what was built beside the service.
        .env("PATH", path())
        .env("LC_ALL", "C.UTF-8")
        .output()
        .unwrap();
    let (printed, complaints) =
        (String::from_utf8(run.stdout).unwrap(), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "the tour failed: {complaints}\n{printed}");

    let mut lines = printed.lines();
    for pattern in expected {
        assert!(
            lines.any(|line| matches(line, &pattern)),
            "{document} promises this line, and it does not come (after the lines above it):\n{pattern}\n\nprinted:\n{printed}"
        );
    }
}
