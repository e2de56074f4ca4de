//! Preparing workspaces that another backend answers for: on the host, on a machine that a user lends, and in memory.

use std::path::Path;
use std::sync::Arc;

use libtest_mimic::Trial;
use sandbox::{MemSandbox, NoneOptions, NoneSandbox, Root, Sandbox};
use serde_json::{Value, json};

use crate::client::Client;
use crate::lent::{await_connected, lend_with};
use crate::own::Law;
use crate::server::Server;

const SKILL: &str = "---\nname: writer\ndescription: writes\n---\n";

pub(crate) fn trials(server: &Arc<Server>) -> Vec<Trial> {
    let laws: [(&str, Law); 3] = [
        ("a_workspace_on_the_host_is_prepared", on_the_host),
        ("a_machine_that_is_lent_is_prepared", on_a_lent_machine),
        ("where_no_command_runs_nothing_is_half_deployed", in_memory),
    ];
    let trial = |(name, law): (&str, Law)| {
        let server = Arc::clone(server);
        Trial::test(format!("prepared::{name}"), move || {
            law(&server);
            Ok(())
        })
    };
    laws.into_iter().map(trial).collect()
}

/// A tar of these files.
fn tar(files: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o755);
        builder.append_data(&mut header, path, text.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap()
}

fn package(client: &Client, number: u8) -> String {
    let version = format!("{number:024x}");
    let script = "echo skill >> ../../order; cat a/SKILL.md | head -n 1";
    let files = [("a/SKILL.md", SKILL), ("a/deep/er/run.py", "print(1)"), ("entrypoint.sh", script)];
    client.put(format!("/v1/packages/{version}"), tar(&files)).ok();
    version
}

fn outcome(data: &Value, name: &str) -> Value {
    let steps = data["steps"].as_array().unwrap();
    steps.iter().find(|step| step["name"] == name).unwrap_or_else(|| panic!("{name}: {data}"))["outcome"]
        .clone()
}

/// Two rounds in a workspace of commands, which lies at `place` on this host.
fn rounds(client: &Client, tree: &str, version: &str, place: &Path) {
    let body = json!({
        "skills": [{ "skill_id": "writer", "version_id": version }],
        "entrypoint": "cat user_files/in.txt > order; echo sandbox >> order",
        "files": [{ "name": "in.txt", "content": "files\n" }],
    });
    let data = client.post_json(format!("{tree}/prepare"), &body).ok()["data"].clone();
    assert_eq!(std::fs::read_to_string(place.join("order")).unwrap(), "files\nsandbox\nskill\n", "{data}");
    assert_eq!(data["workdir"], place.canonicalize().unwrap().to_str().unwrap());
    assert_eq!(
        data["skills"][0]["directory"],
        format!("{}/projects/{version}/a", data["workdir"].as_str().unwrap())
    );
    assert!(place.join(format!("projects/{version}/a/deep/er/run.py")).exists());
    let again = client.post_json(format!("{tree}/prepare"), &body).ok()["data"].clone();
    assert_eq!(outcome(&again, "entrypoint"), "skipped");
    assert_eq!(outcome(&again, &format!("skill:{version}")), "skipped");
    client.post_json(format!("{tree}/prepare"), &json!({})).ok();
    assert_eq!(std::fs::read_dir(place.join("projects")).unwrap().count(), 0);
}

fn on_the_host(server: &Server) {
    let version = package(&server.client, 1);
    let (place, home) = (server.place("prepared"), server.place("prepared-home"));
    std::fs::create_dir_all(&home).unwrap();
    let mut options = NoneOptions::new(Root::PerUser(place.clone()));
    options.variables.insert("HOME".to_owned(), home.to_str().unwrap().to_owned());
    let host: Arc<dyn Sandbox> = Arc::new(NoneSandbox::open(options).unwrap());
    server.lend(&["preparing"], "host", &host);
    rounds(&server.client, "/v1/sandbox/preparing/host", &version, &place.join("preparing"));
    assert!(home.join(".fastgpt/agent-skill-entrypoints/state.json").exists());
    assert!(!server.root.join("sandbox/preparing").exists(), "nothing of it is here");
}

fn on_a_lent_machine(server: &Server) {
    let version = package(&server.client, 2);
    let (place, home) = (server.place("lent-prepared"), server.place("lent-prepared-home"));
    std::fs::create_dir_all(&home).unwrap();
    let _runner = lend_with(&server.client.address.to_string(), "lent-prepared", &place, &home);
    await_connected(&server.client, "lent-prepared");
    rounds(&server.client, "/v1/sandbox/lent-prepared/any", &version, &place);
    assert!(home.join(".fastgpt/agent-skill-entrypoints/state.json").exists());
    assert!(!server.root.join("sandbox/lent-prepared").exists(), "nothing of it is here");
}

fn in_memory(server: &Server) {
    let version = package(&server.client, 3);
    let memory: Arc<dyn Sandbox> = Arc::new(MemSandbox::new());
    server.lend(&["preparing"], "memory", &memory);
    let tree = "/v1/sandbox/preparing/memory";
    let selected = json!([{ "skill_id": "writer", "version_id": version }]);
    server
        .client
        .post_json(format!("{tree}/prepare"), &json!({ "skills": selected }))
        .refused(501, "unsupported");
    let entries = server.client.get(format!("{tree}/dir?path=projects")).ok();
    assert_eq!(entries["data"], json!([]));
    // What needs no command is done.
    let body =
        json!({ "mode": "tool_call", "entrypoint": "true", "files": [{ "name": "a", "content": "b" }] });
    let data = server.client.post_json(format!("{tree}/prepare"), &body).ok()["data"].clone();
    assert_eq!((&data["workdir"], outcome(&data, "entrypoint")), (&json!("/workspace"), json!("failed")));
    assert_eq!(server.client.get(format!("{tree}/content?path=user_files/a")).ok()["data"], "b");
}
