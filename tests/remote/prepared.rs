//! Preparing workspaces that another backend answers for: on the host, on a machine that a user lends, in a container, and in memory.

use std::path::Path;
use std::sync::Arc;

use libtest_mimic::Trial;
use sandbox::{
    AgentId, DockerOptions, DockerSandbox, MemSandbox, NoneOptions, NoneSandbox, Root, Sandbox, UserId,
};
use serde_json::{Value, json};

use crate::client::Client;
use crate::lent::{await_connected, lend_with};
use crate::own::Law;
use crate::server::Server;

const SKILL: &str = "---\nname: writer\ndescription: writes\n---\n";

pub(crate) fn trials(server: &Arc<Server>) -> Vec<Trial> {
    let laws: [(&str, Law); 4] = [
        ("a_workspace_on_the_host_is_prepared", on_the_host),
        ("a_machine_that_is_lent_is_prepared", on_a_lent_machine),
        ("a_container_of_the_docker_engine_is_prepared", in_a_container),
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

/// Two rounds in a workspace of commands, whose working directory is `place`.
fn rounds(client: &Client, tree: &str, version: &str, place: &Path) {
    let body = json!({
        "skills": [{ "skill_id": "writer", "version_id": version }],
        "entrypoint": "cat user_files/in.txt > order; echo sandbox >> order",
        "files": [{ "name": "in.txt", "content": "files\n" }],
    });
    let read = |path: &str| client.get(format!("{tree}/content?path={path}"));
    let data = client.post_json(format!("{tree}/prepare"), &body).ok()["data"].clone();
    assert_eq!(read("order").ok()["data"], "files\nsandbox\nskill\n", "{data}");
    assert_eq!(data["workdir"], place.to_str().unwrap());
    assert_eq!(
        data["skills"][0]["directory"],
        format!("{}/projects/{version}/a", data["workdir"].as_str().unwrap())
    );
    assert_eq!(read(&format!("projects/{version}/a/deep/er/run.py")).ok()["data"], "print(1)");
    let again = client.post_json(format!("{tree}/prepare"), &body).ok()["data"].clone();
    assert_eq!(outcome(&again, "entrypoint"), "skipped");
    assert_eq!(outcome(&again, &format!("skill:{version}")), "skipped");
    client.post_json(format!("{tree}/prepare"), &json!({})).ok();
    assert_eq!(client.get(format!("{tree}/dir?path=projects")).ok()["data"], json!([]));
}

fn on_the_host(server: &Server) {
    let version = package(&server.client, 1);
    let (place, home) = (server.place("prepared"), server.place("prepared-home"));
    std::fs::create_dir_all(&home).unwrap();
    let mut options = NoneOptions::new(Root::PerUser(place.clone()));
    options.variables.insert("HOME".to_owned(), home.to_str().unwrap().to_owned());
    let host: Arc<dyn Sandbox> = Arc::new(NoneSandbox::open(options).unwrap());
    server.lend(&["preparing"], "host", &host);
    std::fs::create_dir_all(place.join("preparing")).unwrap();
    let place = place.join("preparing").canonicalize().unwrap();
    rounds(&server.client, "/v1/sandbox/preparing/host", &version, &place);
    assert_eq!(std::fs::read_to_string(place.join("order")).unwrap(), "files\nsandbox\nskill\n");
    assert!(home.join(".fastgpt/agent-skill-entrypoints/state.json").exists());
    assert!(!server.root.join("sandbox/preparing").exists(), "nothing of it is here");
}

fn on_a_lent_machine(server: &Server) {
    let version = package(&server.client, 2);
    let (place, home) = (server.place("lent-prepared"), server.place("lent-prepared-home"));
    std::fs::create_dir_all(&home).unwrap();
    let _runner = lend_with(&server.client.address.to_string(), "lent-prepared", &place, &home);
    await_connected(&server.client, "lent-prepared");
    rounds(&server.client, "/v1/sandbox/lent-prepared/any", &version, &place.canonicalize().unwrap());
    assert_eq!(std::fs::read_to_string(place.join("order")).unwrap(), "files\nsandbox\nskill\n");
    assert!(home.join(".fastgpt/agent-skill-entrypoints/state.json").exists());
    assert!(!server.root.join("sandbox/lent-prepared").exists(), "nothing of it is here");
}

/// Of the engine that `DOCKER_HOST` names, or the usual one, from the image `FILESECBOX_DOCKER_IMAGE`.
fn in_a_container(server: &Server) {
    let Ok(image) = std::env::var("FILESECBOX_DOCKER_IMAGE") else {
        let required = std::env::var("FILESECBOX_REQUIRE").unwrap_or_default();
        assert!(
            !required.split(',').any(|name| name.trim() == "docker-engine"),
            "`docker-engine` is required"
        );
        println!("SKIPPED: prepared::a_container: FILESECBOX_DOCKER_IMAGE names no image to begin with");
        return;
    };
    let version = package(&server.client, 4);
    let host = std::env::var("DOCKER_HOST").unwrap_or_else(|_| "unix:///var/run/docker.sock".to_owned());
    let options = DockerOptions {
        socket: host.strip_prefix("unix://").unwrap().to_owned(),
        prefix: format!("filesecbox-prepared-{}", std::process::id()),
        ..DockerOptions::new(image)
    };
    let engine = DockerSandbox::connect(options, AgentId::parse("docker").unwrap());
    let engine = Arc::new(server.runtime.block_on(engine).unwrap());
    let container: Arc<dyn Sandbox> = engine.clone();
    server.lend(&["contained"], "docker", &container);
    rounds(&server.client, "/v1/sandbox/contained/docker", &version, Path::new("/workspace"));
    assert!(!server.root.join("sandbox/contained").exists(), "nothing of it is here");
    server.runtime.block_on(engine.remove_user(&UserId::parse("contained").unwrap())).unwrap();
}

fn in_memory(server: &Server) {
    let version = package(&server.client, 3);
    let memory: Arc<dyn Sandbox> = Arc::new(MemSandbox::new());
    server.lend(&["remembered"], "memory", &memory);
    let tree = "/v1/sandbox/remembered/memory";
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
