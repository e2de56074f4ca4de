//! The abilities of commands behind the walls: live views, skills in a workspace, packages with native parts, the
//! proxy.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Client, Entry, Service, encoded, granted, skill, skill_zip, skills, workspace, zip};

/// Tells whether runs of `client`'s service live in namespaces; the test that asks is skipped loudly elsewhere.
pub(super) fn in_namespaces(client: &Client) -> bool {
    let info = client.get("/v1/info").ok();
    granted("namespaces", info["data"]["host"]["enforcement"]["tier"] == "namespaces")
}

fn shell(client: &Client, tree: &str, line: &str) -> Value {
    client.post_json(format!("{tree}/exec"), &json!({ "shell": line })).ok()["data"].clone()
}

#[test]
fn an_edit_is_seen_by_a_command_under_way_and_its_files_by_the_api() {
    let service = Service::start();
    let client = &service.client;
    if !in_namespaces(client) {
        return;
    }
    client.upload(&skills("u", "a"), "baseline", &skill_zip("技能", &[("文件.txt", "v1\n")]));
    let tree = skill("u", "a", "技能");
    thread::scope(|scope| {
        let line = "echo started > 开始.txt; for i in $(seq 200); do grep -q v2 文件.txt && break; sleep 0.05; done; \
                    cat 文件.txt; echo end >> 开始.txt";
        let command = scope.spawn(|| shell(client, &tree, line));
        let deadline = Instant::now() + Duration::from_secs(10);
        while client.get(format!("{tree}/raw/{}", encoded("开始.txt"))).status != 200 {
            assert!(Instant::now() < deadline, "the command's file is not seen while it runs");
            thread::sleep(Duration::from_millis(10));
        }
        client.write(&tree, "文件.txt", "v2\n");
        assert_eq!(command.join().unwrap()["stdout"], "v2\n");
    });
    assert_eq!(client.text(&tree, "开始.txt"), "started\nend\n");
    // The other way round too: what the one made, the other changes and removes, under any id it runs as.
    client.write(&tree, "api/made.txt", "api\n");
    let run =
        shell(client, &tree, "echo command >> api/made.txt; mkdir made; echo x > made/x; rm 开始.txt; ls -R");
    assert_eq!(run["stderr"], "");
    client.write(&tree, "made/x", "api again\n");
    assert_eq!(client.text(&tree, "api/made.txt"), "api\ncommand\n");
    assert_eq!(shell(client, &tree, "cat made/x; rm -r made api")["stdout"], "api again\n");
    let seen = client.get(format!("{tree}/files")).ok();
    assert_eq!(seen["data"], json!(["SKILL.md", "文件.txt"]));
    // No other user saw any of it.
    assert_eq!(client.text(&skill("other", "a", "技能"), "文件.txt"), "v1\n");
}

#[test]
fn a_command_of_a_workspace_sees_the_skills_it_asks_for_and_no_others() {
    let service = Service::start();
    let client = &service.client;
    if !in_namespaces(client) {
        return;
    }
    for name in ["甲", "乙", "丙"] {
        client.upload(&skills("u", "a"), "baseline", &skill_zip(name, &[("f", name)]));
    }
    let tree = workspace("u", "a");
    client.write(&tree, "own", "");
    let run = |wanted: Value, line: &str| {
        client.post_json(format!("{tree}/exec"), &json!({ "shell": line, "skills": wanted })).ok()["data"]
            .clone()
    };
    let line = "ls skills; cat skills/*/f; cat /workspace/skills/甲/f; echo changed > skills/甲/f";
    assert_eq!(run(json!(["甲", "丙"]), line)["stdout"], "丙\n甲\n丙甲甲");
    assert_eq!(client.text(&skill("u", "a", "甲"), "f"), "changed\n");
    assert_eq!(run(json!("all"), "ls skills | wc -l")["stdout"], "3\n");
    // Nothing of them stays in the workspace.
    assert_eq!(shell(client, &tree, "ls")["stdout"], "own\n");
    client
        .post_json(format!("{tree}/exec"), &json!({"shell": "ls", "skills": ["丁"]}))
        .refused(404, "not_found");
    let place = skill("u", "a", "甲");
    client
        .post_json(format!("{place}/exec"), &json!({"shell": "ls", "skills": ["乙"]}))
        .refused(400, "invalid");
}

/// How many runs were a resident's.
#[test]
fn tmp_is_a_directory_in_which_the_next_command_finds_what_was_left() {
    let service = Service::start();
    let client = &service.client;
    if !in_namespaces(client) {
        return;
    }
    client.upload(&skills("u", "a"), "baseline", &skill_zip("s", &[]));
    let look = "stat -c %F /tmp /var/tmp/d; find /tmp -type f; ls -A /tmp; cd /tmp && pwd -P; mv d /tmp/e && ls /tmp; \
                rmdir /tmp; rm -r /tmp/e";
    for tree in [workspace("u", "a"), skill("u", "a", "s")] {
        assert_eq!(shell(client, &tree, "mkdir /tmp/d; echo x > /tmp/d/f; echo $TMPDIR")["stdout"], "/tmp\n");
        let seen = shell(client, &tree, look);
        assert_eq!(seen["stdout"], "directory\ndirectory\n/tmp/d/f\nd\n/tmp\ne\n", "{seen}");
        assert_eq!(shell(client, &workspace("other", "a"), "find /tmp")["stdout"], "/tmp\n");
    }
}

fn residents_runs(client: &Client) -> u64 {
    let figures = client.get("/metrics");
    let figures = String::from_utf8_lossy(&figures.body).into_owned();
    let line = figures.lines().find_map(|line| line.strip_prefix("filesecbox_resident_runs_total "));
    line.unwrap().parse().unwrap()
}

#[test]
fn what_becomes_of_skills_between_two_runs_is_what_the_second_sees() {
    let service = Service::start();
    let client = &service.client;
    if !in_namespaces(client) {
        return;
    }
    for name in ["甲", "乙", "丙"] {
        client.upload(&skills("u", "a"), "baseline", &skill_zip(name, &[("f", name), ("g", name)]));
    }
    let tree = workspace("u", "a");
    let line = "for f in skills/*/*; do echo $f $(head -c 100 $f); done | grep -v SKILL.md";
    let look = |tree: &str| {
        let body = json!({ "shell": line, "skills": "all" });
        client.post_json(format!("{tree}/exec"), &body).ok()["data"]["stdout"].as_str().unwrap().to_owned()
    };
    let shown = |files: &[(&str, &str)]| -> String {
        files.iter().map(|(path, text)| format!("skills/{path} {text}\n")).collect()
    };
    let all =
        [("丙/f", "丙"), ("丙/g", "丙"), ("乙/f", "乙"), ("乙/g", "乙"), ("甲/f", "甲"), ("甲/g", "甲")];
    // Until runs with these skills are residents' ones.
    let warm = |expected: &[(&str, &str)]| {
        let before = residents_runs(client);
        for _ in 0..20 {
            assert_eq!(look(&tree), shown(expected));
        }
        assert!(residents_runs(client) > before);
    };
    warm(&all);
    // A request writes, and another removes.
    client.write(&skill("u", "a", "甲"), "f", "written");
    client.delete(format!("{}/file?path=g", skill("u", "a", "甲"))).ok();
    let changed = [&all[..4], &[("甲/f", "written")]].concat();
    warm(&changed);
    // A run writes, and removes.
    let body = json!({ "shell": "echo by run > skills/乙/f; rm skills/乙/g", "skills": "all" });
    client.post_json(format!("{tree}/exec"), &body).ok();
    let changed = [("丙/f", "丙"), ("丙/g", "丙"), ("乙/f", "by run"), ("甲/f", "written")];
    warm(&changed);
    assert_eq!(client.text(&skill("u", "a", "乙"), "f"), "by run\n");
    // The changes are dropped.
    client.post_json(format!("{}/reset", skill("u", "a", "乙")), &json!({})).ok();
    let changed = [&all[..4], &[("甲/f", "written")]].concat();
    warm(&changed);
    // A new version is published.
    client.upload(&skills("u", "a"), "baseline", &skill_zip("丙", &[("f", "second")]));
    let changed = [("丙/f", "second"), ("乙/f", "乙"), ("乙/g", "乙"), ("甲/f", "written")];
    warm(&changed);
    // A skill is removed for this user alone; another one never saw any of this.
    client.delete(format!("{}?scope=overlay", skill("u", "a", "乙"))).ok();
    warm(&[("丙/f", "second"), ("甲/f", "written")]);
    let others = [("丙/f", "second"), ("乙/f", "乙"), ("乙/g", "乙"), ("甲/f", "甲"), ("甲/g", "甲")];
    assert_eq!(look(&workspace("other", "a")), shown(&others));
    // A user gets a skill, and a run without skills sees none.
    client.upload(&skills("u", "a"), "overlay", &skill_zip("丁", &[("f", "own")]));
    warm(&[("丁/f", "own"), ("丙/f", "second"), ("甲/f", "written")]);
    assert_eq!(shell(client, &tree, "ls -a")["stdout"], ".\n..\n");
    assert_eq!(client.get(format!("{tree}/dir")).ok()["data"], json!([]));
    warm(&[("丁/f", "own"), ("丙/f", "second"), ("甲/f", "written")]);
}

/// An extension module that needs no header of Python's: what it uses is stable (PEP 384, PEP 3121).
const NATIVE: &str = r#"
typedef struct { long references; void *type; void *init; long index; void *copy;
  const char *name; const char *doc; long size; void *methods, *slots, *traverse, *clear, *free; } Definition;
static Definition definition = { .references = 1, .name = "native_probe", .size = -1 };
extern void *PyModule_Create2(Definition *, int);
extern int PyModule_AddIntConstant(void *, const char *, long);
void *PyInit_native_probe(void) {
  void *module = PyModule_Create2(&definition, 3);
  if (module) PyModule_AddIntConstant(module, "answer", 42);
  return module;
}
"#;

/// A wheel with a native part, built here.
fn native_wheel() -> Option<Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    let (source, library) = (dir.path().join("native.c"), dir.path().join("native.so"));
    std::fs::write(&source, NATIVE).unwrap();
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    if !granted("cc", compiled.is_ok_and(|status| status.success())) {
        return None;
    }
    let tag = format!("cp39-abi3-linux_{}", std::env::consts::ARCH);
    let wheel = format!("Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: {tag}\n");
    Some(zip(&[
        Entry::file("native_probe.abi3.so", std::fs::read(library).unwrap()),
        Entry::file(
            "native_probe-1.0.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: native-probe\nVersion: 1.0\n",
        ),
        Entry::file("native_probe-1.0.dist-info/WHEEL", wheel),
        Entry::file("native_probe-1.0.dist-info/RECORD", ""),
    ]))
}

fn wheel_name() -> String {
    format!("native_probe-1.0-cp39-abi3-linux_{}.whl", std::env::consts::ARCH)
}

#[test]
fn pip_installs_a_wheel_with_native_parts_into_the_workspace_and_it_is_imported() {
    let Some(wheel) = native_wheel() else { return };
    let service = Service::start();
    let client = &service.client;
    let tree = workspace("u", "a");
    client.put(format!("{tree}/raw/{}", wheel_name()), wheel).ok();
    let line = format!(
        "pip install --quiet --no-index --target lib ./{} && PYTHONPATH=lib python3 -c \
         'import native_probe; print(native_probe.answer)'",
        wheel_name()
    );
    let run = shell(client, &tree, &line);
    assert_eq!(run["stdout"], "42\n", "{run}");
    // And where it goes without being told.
    let line = format!(
        "pip install --quiet --no-index --user ./{} ; python3 -c 'import native_probe'",
        wheel_name()
    );
    assert_eq!(shell(client, &tree, &line)["exit_code"], 0);
}

/// A web server of one package, as an index has it (PEP 503), and of one page.
fn index(wheel: Vec<u8>) -> SocketAddr {
    // An address that programs ask the proxy for: not the one of a run's own network.
    let listener = TcpListener::bind("127.0.0.2:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream);
            let mut first = String::new();
            reader.read_line(&mut first).unwrap();
            let mut line = String::new();
            while reader.read_line(&mut line).is_ok_and(|length| length > 2) {
                line.clear();
            }
            let path = first.split(' ').nth(1).unwrap_or_default();
            let (kind, body) = match path {
                "/page" => ("text/plain", b"the page\n".to_vec()),
                "/simple/native-probe/" => {
                    ("text/html", format!("<a href=\"/{0}\">{0}</a>", wheel_name()).into_bytes())
                }
                _ => ("application/zip", wheel.clone()),
            };
            let head =
                format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n", body.len());
            let mut stream = reader.into_inner();
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
        }
    });
    address
}

#[test]
fn curl_and_pip_reach_through_the_proxy_what_is_open_and_nothing_else() {
    reaches_through_the_proxy("");
}

#[test]
fn curl_and_pip_reach_through_the_proxy_the_same_without_namespaces() {
    reaches_through_the_proxy("[isolation]\nmaximum = \"landlock\"\n");
}

fn reaches_through_the_proxy(config: &str) {
    let Some(wheel) = native_wheel() else { return };
    let address = index(wheel);
    let service = Service::configured(&format!(
        "{config}[commands.proxy]\nallow_private = [\"127.0.0.0/30\"]\nports = [{}]\n",
        address.port()
    ));
    let client = &service.client;
    if config.is_empty() && !in_namespaces(client) {
        return;
    }
    assert_eq!(client.get("/v1/info").ok()["data"]["network"], "proxy");
    let tree = workspace("u", "a");
    assert_eq!(shell(client, &tree, &format!("curl -sS http://{address}/page"))["stdout"], "the page\n");
    let line = format!(
        "pip install --quiet --trusted-host 127.0.0.2 --index-url http://{address}/simple --target lib native-probe && \
         PYTHONPATH=lib python3 -c 'import native_probe; print(native_probe.answer)'"
    );
    let run = shell(client, &tree, &line);
    assert_eq!(run["stdout"], "42\n", "{run}");
    // Not without the proxy, not another port, not the service, not the metadata address.
    let own = client.address;
    for (line, clue) in [
        (format!("curl -sS -m 5 --noproxy '*' http://{address}/page"), "connect"),
        (format!("curl -sS -m 5 --noproxy '' http://{own}/healthz"), "filesecbox:"),
        ("curl -sS -m 5 --noproxy '' http://127.0.0.1:1/".to_owned(), "filesecbox:"),
        (format!("curl -sS -m 5 http://{own}/healthz"), "connect"),
        ("curl -sS -m 5 http://169.254.169.254/".to_owned(), "filesecbox:"),
        (
            "unset http_proxy; curl -sS -m 5 --noproxy '' --proxy http://127.0.0.1:3128 http://127.0.0.1/"
                .to_owned(),
            "filesecbox:",
        ),
    ] {
        let run = shell(client, &tree, &line);
        let told = format!("{}{}", run["stdout"], run["stderr"]);
        assert!(told.contains(clue) && !told.contains("the page"), "{line}: {told}");
    }
    // What was reached is told, and stands in the audit log whether it was asked for or not.
    let line = format!("curl -sS http://{address}/page http://{address}/page; curl -sS http://192.0.2.7/");
    let run = client.post_json(format!("{tree}/exec"), &json!({"shell": line, "reached": true})).ok();
    let hosts = run["reached"]["hosts"].as_array().unwrap();
    let told: Vec<_> = hosts
        .iter()
        .map(|host| (&host["host"], &host["port"], &host["outcome"], &host["requests"]))
        .collect();
    assert_eq!(
        told,
        [
            (&json!("127.0.0.2"), &json!(address.port()), &json!("complete"), &json!(2)),
            (&json!("192.0.2.7"), &json!(80), &json!("port"), &json!(1)),
        ],
        "{run}"
    );
    assert!(hosts[0]["bytes_in"].as_u64().unwrap() > 18 && hosts[0]["bytes_out"].as_u64().unwrap() > 0);
    let audit =
        std::fs::read_to_string(service.root.join(".filesecbox/audit/0000000000000001.jsonl")).unwrap();
    let records: Vec<Value> = audit.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let reached: Vec<_> = records.iter().filter(|record| record["action"] == "run reached").collect();
    assert_eq!(reached.last().unwrap()["reached"], run["reached"]["hosts"], "{records:?}");
    assert_eq!(reached.last().unwrap()["tree"], "sandbox/u/a");
    // A request may ask for less.
    let line = format!("curl -sS -m 5 http://{address}/page");
    let none = client.post_json(format!("{tree}/exec"), &json!({"shell": line, "network": "none"})).ok();
    assert_ne!(none["data"]["exit_code"], 0);
    assert_eq!(none["data"]["stdout"], "");
}

#[test]
fn a_server_in_the_background_is_reached_by_the_next_command_and_by_no_other_user() {
    let service = Service::configured("");
    let client = &service.client;
    if !in_namespaces(client) {
        return;
    }
    let (tree, other) = (workspace("u", "a"), workspace("v", "a"));
    client.write(&tree, "page", "the page\n");
    for network in ["proxy", "none"] {
        let server = json!({
            "command": "python3", "args": ["-u", "-m", "http.server", "8000"], "exec_id": format!("server-{network}"),
            "network": network,
        });
        assert_eq!(client.post_json(format!("{tree}/exec?background=true"), &server).status, 201);
        // As people write it: the variables of the proxy do not stand in the way.
        let line = "curl -sS --retry 50 --retry-delay 1 --retry-connrefused http://localhost:8000/page && \
                    python3 -c 'import urllib.request as r; print(r.urlopen(\"http://127.0.0.1:8000/page\").read())'";
        let ask = json!({ "shell": line, "network": network });
        let run = client.post_json(format!("{tree}/exec"), &ask).ok();
        assert_eq!(run["data"]["stdout"], "the page\nb'the page\\n'\n", "{run}");
        let ask = json!({ "shell": "curl -sS http://localhost:8000/page", "network": network });
        let refused = client.post_json(format!("{other}/exec"), &ask).ok();
        assert_eq!(
            (&refused["data"]["exit_code"], &refused["data"]["stdout"]),
            (&json!(7), &json!("")),
            "{refused}"
        );
    }
}
