//! The official Python client, of both eras: what agents are built with.
//!
//! The interpreters are those of virtual environments with the package `mcp`: `FILESECBOX_MCP_PYTHON_1` with version 1
//! (`pip install mcp==1.30.0`), `FILESECBOX_MCP_PYTHON_2` with version 2 (`pip install mcp==2.3.0`). Without one, the test
//! is left out; `FILESECBOX_REQUIRE=mcp-python-1,mcp-python-2` turns that into a failure.

use std::process::{Command, Stdio};

use crate::client::{ON, PATH};
use crate::support::{Service, digest, granted, landlocked, skill_zip};

/// How the client reaches the service.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Transport {
    Http,
    Stdio,
}

/// Has the client of a version list the tools, call each of them, be refused, and read a file and a skill.
fn drive(version: &str, script: &str, transport: Transport) {
    let python = std::env::var(format!("FILESECBOX_MCP_PYTHON_{version}"));
    if !granted(&format!("mcp-python-{version}"), python.is_ok()) {
        return;
    }
    let config =
        format!("{ON}[[tokens]]\nsha256 = \"{}\"\nrole = \"user\"\nuser = \"alice\"\n", digest("alice"));
    let service = Service::configured(&config);
    let client = service.client.with_token("alice");
    if !landlocked(&client) {
        return;
    }
    client.upload("/v1/skills/alice/demo", "overlay", &skill_zip("notes", &[]));
    let mut command = Command::new(python.unwrap());
    command.args(["-W", "error::RuntimeWarning", script]);
    let url = format!("http://{}", client.address);
    match transport {
        Transport::Http => command.arg(format!("{url}{PATH}")),
        Transport::Stdio => command
            .arg(env!("CARGO_BIN_EXE_filesecbox"))
            .args(["mcp", "--server", &url, "--user", "alice", "--agent", "demo"]),
    };
    let output = command
        .env("FILESECBOX_TOKEN", "alice")
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mcp"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (told, warned) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && told.trim_end() == "done", "{told}\n{warned}");
    assert_eq!(warned, "", "no warning");
    assert_eq!(client.text("/v1/sandbox/alice/demo", "笔记/a.md"), "第二\n");
}

#[test]
fn the_python_client_of_version_1_uses_a_workspace() {
    drive("1", "python_1.py", Transport::Http);
}

#[test]
fn the_python_client_of_version_1_uses_a_workspace_over_stdio() {
    drive("1", "python_1.py", Transport::Stdio);
}

#[test]
fn the_python_client_of_version_2_uses_a_workspace() {
    drive("2", "python_2.py", Transport::Http);
}

#[test]
fn the_python_client_of_version_2_uses_a_workspace_over_stdio() {
    drive("2", "python_2.py", Transport::Stdio);
}
