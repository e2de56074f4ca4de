//! A client that knows nothing but the OpenAPI document: Schemathesis makes up requests, good and bad, on a running
//! service, and holds the answers against the document.
//!
//! The commands that it makes up run for real, confined, without network and for a second at most. It is a program of its
//! own (`pip install schemathesis`); `FILESECBOX_REQUIRE=schemathesis` turns the skip without it into a failure, and
//! `FILESECBOX_LARGE=1` has it ask some ten times as much.
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
#[path = "../rest/support/zip.rs"]
mod zip;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use client::Client;
use service::Service;

/// A service whose runs, searches and waits are short.
const CONFIG: &str = r#"
[shares]
enabled = true
[devbox]
enabled = true
[mcp]
enabled = true
[commands]
network = "none"
[limits.runs]
timeout_ms = 1000
queue_ms = 1000
run_memory_bytes = 268435456
processes = 32
[limits.sessions]
background_ms = 1000
terminal_ms = 1000
[limits.files]
search_ms = 1000
[limits.disk]
bytes = 67108864
"#;
/// The checks of every answer.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_headers_conformance,response_schema_conformance";
/// How long one short and one long pass may take. Only one that hangs ever reaches it.
const PATIENCE: [Duration; 2] = [Duration::from_secs(400), Duration::from_secs(1800)];

#[test]
fn requests_that_the_document_allows_get_the_answers_that_it_promises() {
    let examples = if is_large() { "120" } else { "6" };
    let phases = ["--mode", "positive", "--phases", "examples,coverage,fuzzing,stateful", "-n", examples];
    // It would remove what all others are about; what becomes of files is told without end; and it is for tokens of users, of which
    // this service has none.
    let left_out = ["removeAllWorkspaces", "listenInSkill", "listenInWorkspace", "mcpOfOwnUser"];
    let left_out = left_out.iter().flat_map(|id| ["--exclude-operation-id", id]);
    let phases: Vec<&str> = phases.into_iter().chain(left_out).collect();
    let checks = format!("{CHECKS},use_after_free,ensure_resource_availability,no_valid_request_is_refused");
    let Some(requests) = ask(&checks, &phases, Some("hooks.py")) else { return };
    assert!(requests >= if is_large() { 8_000 } else { 1_000 }, "{requests} requests");
}

/// The routes of workspaces, where the other tree is read by the same handlers.
const WORKSPACES: &str = r"^/v1/sandbox/\{u\}/\{a\}/";
/// Those of skills.
const SKILLS: &str = r"^/v1/skills/\{u\}/\{a\}/\{s\}/";
/// Those that pass every method and every path on to another server, which answers them.
const SERVERS: &str = r"/ports/\{(port|token)\}/";

#[test]
fn requests_about_workspaces_that_the_document_forbids_are_refused_as_it_promises() {
    forbidden(&["--include-path-regex", WORKSPACES, "--exclude-path-regex", SERVERS]);
}

#[test]
fn requests_about_skills_that_the_document_forbids_are_refused_as_it_promises() {
    if is_large() {
        forbidden(&["--include-path-regex", SKILLS, "--exclude-path-regex", SERVERS]);
    } else {
        eprintln!("SKIPPED: set FILESECBOX_LARGE=1 to ask about skills what was asked about workspaces");
    }
}

#[test]
fn other_requests_that_the_document_forbids_are_refused_as_it_promises() {
    let others = format!("{WORKSPACES}|{SKILLS}|{SERVERS}");
    forbidden(&["--exclude-path-regex", &others]);
}

fn forbidden(paths: &[&str]) {
    let examples = if is_large() { "60" } else { "3" };
    let mut phases = vec!["--mode", "negative", "--phases", "coverage,fuzzing", "-n", examples];
    phases.extend(paths);
    if !is_large() {
        // Of its body alone the program thinks up forbidden ones for four minutes. tests/prepare has some, too.
        phases.extend(["--exclude-operation-id", "prepareWorkspace"]);
    }
    let checks = format!("{CHECKS},negative_data_rejection,unsupported_method,allow_header_conformance");
    let Some(requests) = ask(&checks, &phases, None) else { return };
    assert!(requests >= if is_large() { 2_000 } else { 1_000 }, "{requests} requests");
}

fn is_large() -> bool {
    std::env::var_os("FILESECBOX_LARGE").is_some()
}

/// Has a service of its own asked; how many requests were made, or nothing without the program.
fn ask(checks: &str, arguments: &[&str], hooks: Option<&str>) -> Option<usize> {
    if !host::have("schemathesis") {
        return None;
    }
    let service = Service::configured(CONFIG);
    fill(&service.client);
    // The files that the program leaves behind stay in a directory that goes.
    let place = tempfile::tempdir().unwrap();
    let of_test = |name: &str| format!("{}/tests/promise/{name}", env!("CARGO_MANIFEST_DIR"));
    let printed = place.path().join("printed");
    let mut command = Command::new("schemathesis");
    command
        .arg("--config-file")
        .arg(of_test("schemathesis.toml"))
        .args(["run", "--checks", checks])
        .args(arguments);
    command.args(["--workers", "1", "--request-timeout", "60", "--warnings", "off"]);
    if !is_large() {
        // The same requests every time.
        command.args(["--seed", "1"]);
    }
    if let Some(hooks) = hooks {
        command.env("SCHEMATHESIS_HOOKS", of_test(hooks));
    }
    command.arg(format!("http://{}/openapi.json", service.client.address));
    command.current_dir(place.path()).env("PYTHONDONTWRITEBYTECODE", "1").env("NO_COLOR", "1");
    let mut asking = command
        .stdin(Stdio::null())
        .stdout(std::fs::File::create(&printed).unwrap())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = asking.try_wait().unwrap() {
            break status;
        }
        if begun.elapsed() > PATIENCE[usize::from(is_large())] {
            asking.kill().unwrap();
            asking.wait().unwrap();
            panic!("no end after {:?}", begun.elapsed());
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let printed = std::fs::read_to_string(&printed).unwrap();
    assert!(status.success(), "{printed}\n--- log of the service ---\n{}", service.log());
    // A failure of the service itself is in its log, after any answer.
    assert!(!service.log().contains("ERROR"), "{}", service.log());
    service.client.get("/healthz").ok();
    let counted =
        printed.lines().find_map(|line| line.trim().strip_suffix(" passed")?.split_once(" generated"));
    let requests = counted.unwrap_or_else(|| panic!("no count in {printed}")).0.replace(',', "");
    eprintln!("{requests} requests in {:?}", begun.elapsed());
    Some(requests.parse().unwrap())
}

/// Gives requests something to be about; `hooks.py` knows the names.
fn fill(client: &Client) {
    let file = "#!/usr/bin/env python3\nprint('one')\n# 二\n# three\n";
    client.upload(
        "/v1/skills/alice/demo",
        "baseline",
        &zip::skill_zip("count", &[("scripts/count.py", file)]),
    );
    client.upload("/v1/skills/alice/demo", "baseline", &zip::skill_zip("数据统计", &[("notes.txt", file)]));
    client.post("/api/v1/devbox", r#"{"name":"session-1"}"#);
    client.post("/api/v1/devbox/session-1/files/upload?path=notes.txt", file);
    for user in ["alice", "%E5%BC%A0%E4%B8%89"] {
        let trees = [
            format!("/v1/sandbox/{user}/demo"),
            format!("/v1/skills/{user}/demo/count"),
            format!("/v1/skills/{user}/demo/%E6%95%B0%E6%8D%AE%E7%BB%9F%E8%AE%A1"),
        ];
        for tree in &trees {
            for path in ["notes.txt", "scripts/count.py", "docs/数据.md"] {
                client.write(tree, path, file);
            }
            client.put(format!("{tree}/raw/gbk.txt"), b"\xD6\xD0\xCE\xC4\n").ok();
            client.put(format!("{tree}/raw/bytes.bin"), zip::random_bytes(7, 3000)).ok();
            client.execute(tree, "bash", &["-c", "ln -s notes.txt link"]);
        }
    }
}
