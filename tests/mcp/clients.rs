//! Clients that agents are built with: the official Python client, of both eras, and those of LangChain and of the OpenAI Agents SDK.
//!
//! The interpreters are those of virtual environments, each with one package:
//!
//! | Variable | Package | In `FILESECBOX_REQUIRE` |
//! | --- | --- | --- |
//! | `FILESECBOX_MCP_PYTHON_1` | `mcp==1.30.0` | `mcp-python-1` |
//! | `FILESECBOX_MCP_PYTHON_2` | `mcp==2.3.0` | `mcp-python-2` |
//! | `FILESECBOX_MCP_LANGCHAIN` | `langchain-mcp-adapters==0.3.2` | `mcp-langchain` |
//! | `FILESECBOX_MCP_OPENAI_AGENTS` | `openai-agents==0.24.0` | `mcp-openai-agents` |
//!
//! Without one, its tests are left out; `FILESECBOX_REQUIRE` turns that into a failure.

use std::process::{Command, Stdio};

use crate::client::{ON, PATH};
use crate::support::{Service, digest, granted, landlocked, skill_zip};

/// How the client reaches the service.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Transport {
    Http,
    Stdio,
}

/// Has a client list the tools, call each of them, be refused, and read a file and a skill. `name` is what `FILESECBOX_REQUIRE` calls
/// it.
fn drive(name: &str, script: &str, transport: Transport) {
    let python = std::env::var(format!("FILESECBOX_{}", name.to_uppercase().replace('-', "_")));
    if !granted(name, python.is_ok()) {
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
    drive("mcp-python-1", "python_1.py", Transport::Http);
}

#[test]
fn the_python_client_of_version_1_uses_a_workspace_over_stdio() {
    drive("mcp-python-1", "python_1.py", Transport::Stdio);
}

#[test]
fn the_python_client_of_version_2_uses_a_workspace() {
    drive("mcp-python-2", "python_2.py", Transport::Http);
}

#[test]
fn the_python_client_of_version_2_uses_a_workspace_over_stdio() {
    drive("mcp-python-2", "python_2.py", Transport::Stdio);
}

#[test]
fn langchain_uses_a_workspace() {
    drive("mcp-langchain", "langchain_client.py", Transport::Http);
}

#[test]
fn langchain_uses_a_workspace_over_stdio() {
    drive("mcp-langchain", "langchain_client.py", Transport::Stdio);
}

#[test]
fn the_openai_agents_sdk_uses_a_workspace() {
    drive("mcp-openai-agents", "openai_agents_client.py", Transport::Http);
}

#[test]
fn the_openai_agents_sdk_uses_a_workspace_over_stdio() {
    drive("mcp-openai-agents", "openai_agents_client.py", Transport::Stdio);
}
