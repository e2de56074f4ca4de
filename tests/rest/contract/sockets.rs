//! UNIX sockets of commands, and what their names in a tree are to the interface: nothing that hangs, opens or is copied.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::isolation::in_namespaces;
use crate::support::{Client, Service, skill, skill_zip, skills, workspace};

/// Leaves a socket in the tree beside a file.
const LEAVE: &str = "import os, socket; os.makedirs('d', exist_ok=True); open('d/file', 'w').write('text'); \
                     s = socket.socket(socket.AF_UNIX); s.bind('d/socket'); s.listen()";

fn python(client: &Client, tree: &str, script: &str, more: Value) -> Value {
    let mut run = json!({"command": "python3", "args": ["-c", script]});
    run.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    client.post_json(format!("{tree}/exec"), &run).ok()
}

#[test]
fn commands_have_sockets_in_their_tree_their_home_and_tmp_also_from_run_to_run() {
    let service = Service::start();
    let (client, tree) = (&service.client, workspace("u", "a"));
    if !in_namespaces(client) {
        return;
    }
    let serve = "import os, socket\n\
                 ends = []\n\
                 for at in ('s', os.environ['HOME'] + '/s', '/tmp/s'):\n\
                \x20   end = socket.socket(socket.AF_UNIX); end.bind(at); end.listen(); ends.append(end)\n\
                 inner = socket.socket(socket.AF_UNIX); inner.connect('/tmp/s'); ends[2].accept()[0].send(b'tmp')\n\
                 print(inner.recv(9), flush=True)\n\
                 open('ready', 'w').close()\n\
                 for end in ends: end.accept()[0].send(b'from the first run')";
    let run = json!({"command": "python3", "args": ["-c", serve], "exec_id": "server"});
    assert_eq!(client.post_json(format!("{tree}/exec?background=true"), &run).status, 201);
    let begun = Instant::now();
    while client.get(format!("{tree}/stat?path=ready")).status != 200 {
        assert!(begun.elapsed() < Duration::from_secs(20), "{}", client.get(format!("{tree}/exec")).ok());
        std::thread::sleep(Duration::from_millis(20));
    }
    let connect = "import os, socket\n\
                   for at in ('s', os.environ['HOME'] + '/s', '/tmp/s'):\n\
                  \x20   end = socket.socket(socket.AF_UNIX); end.connect(at); print(end.recv(99).decode())";
    let reached = python(client, &tree, connect, json!({}));
    assert_eq!(reached["data"]["stdout"], "from the first run\n".repeat(3), "{reached}");
    let ended = client.get(format!("{tree}/exec/server?follow")).ok();
    assert_eq!(ended["result"]["stdout"], "b'tmp'\n", "{ended}");
}

#[test]
fn a_socket_that_is_left_in_a_tree_is_named_and_neither_read_copied_nor_packed() {
    let service = Service::start();
    let client = &service.client;
    if !in_namespaces(client) {
        return;
    }
    client.upload(&skills("u", "a"), "baseline", &skill_zip("s", &[]));
    for tree in [workspace("u", "a"), skill("u", "a", "s")] {
        let left = python(client, &tree, LEAVE, json!({}));
        assert_eq!(left["data"]["exit_code"], 0, "{left}");
        assert_eq!(client.get(format!("{tree}/stat?path=d/socket")).ok()["data"]["kind"], "other");
        let listed = client.get(format!("{tree}/dir?path=d")).ok()["data"].to_string();
        assert!(listed.contains("file"), "{listed}");
        assert!(client.files(&tree).contains(&"d/file".to_owned()));
        for route in ["content?path=d/socket", "raw/d/socket"] {
            client.get(format!("{tree}/{route}")).refused(409, "not_a_file");
        }
        client.put(format!("{tree}/edit?path=d/socket&start=1&end=1"), "x").refused(409, "not_a_file");
        client.post_json(format!("{tree}/grep"), &json!({"pattern": "text"})).ok();
        client.get(format!("{tree}/glob?pattern=**/*")).ok();
        // A run that is decided about later works on a copy, which has no socket.
        let aside = python(
            client,
            &tree,
            "open('d/aside', 'w').write('x')",
            json!({"commit": "ask", "exec_id": "aside"}),
        );
        assert_eq!(aside["data"]["exit_code"], 0, "{aside}");
        client.post(format!("{tree}/exec/aside/commit"), "").ok();
        assert_eq!(client.text(&tree, "d/aside"), "x");
        // It can be removed as any entry, and another run can bind the name again.
        client.delete(format!("{tree}/file?path=d/socket")).ok();
        assert_eq!(python(client, &tree, LEAVE, json!({}))["data"]["exit_code"], 0);
    }
    let (tree, of_skill) = (workspace("u", "a"), skill("u", "a", "s"));
    let copied =
        client.post_json(format!("{tree}/copy"), &json!({"from": "d", "to": "e", "recursive": true}));
    assert_eq!(copied.status, 200, "{copied:?}");
    let of_copy = client.get(format!("{tree}/dir?path=e")).ok()["data"].to_string();
    assert!(of_copy.contains("file") && !of_copy.contains("socket"), "{of_copy}");
    let taken = client.post_json(format!("{tree}/snapshots"), &json!({}));
    assert_eq!((taken.status, &taken.json()["data"]["skipped"]), (201, &json!(1)), "{taken:?}");
    let id = taken.json()["data"]["id"].as_str().unwrap().to_owned();
    client.write(&tree, "d/file", "changed");
    client.post(format!("{tree}/snapshots/{id}/restore"), "").ok();
    assert_eq!(client.text(&tree, "d/file"), "text");
    let archive = client.get(format!("{of_skill}/download"));
    let names = String::from_utf8_lossy(archive.bytes(200)).into_owned();
    assert!(names.contains("d/file") && !names.contains("d/socket"));
    client.get(format!("{of_skill}/diff")).ok();
    client.post(format!("{of_skill}/promote"), "").ok();
    let of_others = client.files(&skill("v", "a", "s"));
    assert!(of_others.contains(&"d/file".to_owned()) && !of_others.contains(&"d/socket".to_owned()));
}

#[test]
fn multiprocessing_has_its_pools_and_managers() {
    for configuration in ["", "[isolation]\nmaximum = \"landlock\"\n"] {
        let service = Service::configured(configuration);
        let (client, tree) = (&service.client, workspace("u", "a"));
        client.write(
            &tree,
            "many.py",
            "import multiprocessing as m\n\
             def double(x): return 2 * x\n\
             if __name__ == '__main__':\n\
            \x20   with m.Pool(2) as pool: print(pool.map(double, [1, 2]))\n\
            \x20   with m.Manager() as manager:\n\
            \x20       shared = manager.list([1]); shared.append(2); print(list(shared))\n",
        );
        for network in ["none", "proxy"] {
            let run = json!({"command": "python3", "args": ["many.py"], "network": network});
            let ran = client.post_json(format!("{tree}/exec"), &run).ok();
            assert_eq!(ran["data"]["stdout"], "[2, 4]\n[1, 2]\n", "{configuration}: {ran}");
        }
    }
}
