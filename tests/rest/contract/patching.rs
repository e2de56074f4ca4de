//! Patches over several files, and copies: all or nothing, in both kinds of tree.

use serde_json::{Value, json};

use crate::support::{Client, Reply, Service, Snapshot, encoded, skill, skill_zip, skills, workspace};

const FILES: [(&str, &str); 3] =
    [("a.txt", "one\ntwo\nthree\n"), ("文档/说明.md", "# 说明\n旧的一行\n"), ("gone.txt", "x\ny\n")];

fn trees(service: &Service) -> [String; 2] {
    let (skill, workspace) = (skill("张三", "代理", "技能"), workspace("张三", "代理"));
    service.client.upload(&skills("anybody", "代理"), "baseline", &skill_zip("技能", &FILES));
    for (path, text) in FILES {
        service.client.write(&workspace, path, text);
    }
    service.client.write(&workspace, "SKILL.md", "# 工作\n");
    [skill, workspace]
}

const PATCH: &str = concat!(
    "diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n",
    "diff --git \"a/\\346\\226\\207\\346\\241\\243/\\350\\257\\264\\346\\230\\216.md\" b/文档/新名.md\n",
    "rename from \"\\346\\226\\207\\346\\241\\243/\\350\\257\\264\\346\\230\\216.md\"\nrename to 文档/新名.md\n",
    "--- \"a/\\346\\226\\207\\346\\241\\243/\\350\\257\\264\\346\\230\\216.md\"\n+++ b/文档/新名.md\n",
    "@@ -2 +2 @@\n-旧的一行\n+新的一行\n",
    "diff --git a/gone.txt b/gone.txt\ndeleted file mode 100644\n--- a/gone.txt\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-x\n-y\n",
    "diff --git a/新/run.sh b/新/run.sh\nnew file mode 100755\n--- /dev/null\n+++ b/新/run.sh\n@@ -0,0 +1 @@\n+echo hi\n",
);

fn patched(client: &Client, tree: &str, body: Value) -> Reply {
    client.post_json(format!("{tree}/patch"), &body)
}

#[test]
fn a_patch_changes_makes_moves_and_removes_files_at_once() {
    let service = Service::start();
    let client = &service.client;
    for tree in trees(&service) {
        let before = Snapshot::of(&service.root);
        let tried = patched(client, &tree, json!({"patch": PATCH, "dry_run": true})).ok();
        before.unchanged(&service.root, "a dry run");
        assert_eq!(
            (&tried["data"], &tried["dry_run"]),
            (&json!("The patch can be made: 4 files."), &json!(true))
        );
        let made = patched(client, &tree, json!({"patch": PATCH})).ok();
        assert_eq!(made["data"], "Patch made: 4 files.");
        let files = made["files"].as_array().unwrap();
        let shown: Vec<_> = files
            .iter()
            .map(|file| {
                (file["path"].as_str().unwrap(), file["change"].as_str().unwrap(), file["etag"].is_string())
            })
            .collect();
        assert_eq!(
            shown,
            [
                ("a.txt", "modified", true),
                ("文档/新名.md", "renamed", true),
                ("gone.txt", "deleted", false),
                ("新/run.sh", "created", true)
            ]
        );
        assert_eq!((&files[1]["from"], &files[1]["lines_added"]), (&json!("文档/说明.md"), &json!(1)));
        assert_eq!(client.files(&tree), ["SKILL.md", "a.txt", "文档/新名.md", "新/run.sh"]);
        assert_eq!(client.text(&tree, "a.txt"), "one\n2\nthree\n");
        assert_eq!(client.text(&tree, "文档/新名.md"), "# 说明\n新的一行\n");
        let stat = client.get(format!("{tree}/stat?path={}", encoded("新/run.sh"))).ok();
        assert_eq!((&stat["data"]["mode"], &stat["data"]["etag"]), (&json!("0755"), &files[3]["etag"]));
        // What was made is the base of the next one.
        let etag = files[0]["etag"].clone();
        let next = "--- a/a.txt\n+++ b/a.txt\n@@ -2 +2 @@\n-2\n+zwei\n";
        let stale = json!({"patch": next, "etags": {"a.txt": "\"old\""}});
        assert_eq!(patched(client, &tree, stale).refused(412, "stale")["current_etag"], etag);
        patched(client, &tree, json!({"patch": next, "etags": {"a.txt": etag}})).ok();
        assert_eq!(client.text(&tree, "a.txt"), "one\nzwei\nthree\n");
    }
    // Another user's view of the skill is as it was.
    let others = skill("李四", "代理", "技能");
    assert_eq!(client.files(&others), ["SKILL.md", "a.txt", "gone.txt", "文档/说明.md"]);
}

#[test]
fn a_patch_of_which_one_file_fails_changes_nothing() {
    let service = Service::start();
    let client = &service.client;
    let good = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+1\n--- /dev/null\n+++ b/new/deep/x\n@@ -0,0 +1 @@\n+x\n";
    for tree in trees(&service) {
        let before = Snapshot::of(&service.root);
        for (bad, status, code) in [
            ("--- a/gone.txt\n+++ b/gone.txt\n@@ -1 +1 @@\n-nothing\n+y\n", 409, "edit_mismatch"),
            ("--- a/none\n+++ b/none\n@@ -1 +1 @@\n-x\n+y\n", 404, "not_found"),
            ("--- /dev/null\n+++ b/gone.txt\n@@ -0,0 +1 @@\n+y\n", 409, "already_exists"),
            ("--- a/gone.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n", 400, "invalid"),
            ("--- /dev/null\n+++ b/gone.txt/below\n@@ -0,0 +1 @@\n+y\n", 409, "not_a_directory"),
            ("--- /dev/null\n+++ b/文档\n@@ -0,0 +1 @@\n+y\n", 409, "already_exists"),
            ("--- a/文档\n+++ b/文档\n@@ -1 +1 @@\n-x\n+y\n", 409, "is_directory"),
            ("--- a/../x\n+++ b/../x\n@@ -1 +1 @@\n-x\n+y\n", 403, "path_escape"),
            ("--- /etc/passwd\n+++ /etc/passwd\n@@ -1 +1 @@\n-x\n+y\n", 403, "path_escape"),
            ("--- a/gone.txt\n+++ b/gone.txt\n@@ -1,2 +1 @@\n-x\n+y\n", 400, "invalid"),
            (
                "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc\n",
                400,
                "invalid",
            ),
            // Nothing tells before it is made: a file where a directory of another file is to be.
            ("--- /dev/null\n+++ b/new/deep/x/y\n@@ -0,0 +1 @@\n+y\n", 409, "not_a_directory"),
        ] {
            let refused =
                patched(client, &tree, json!({"patch": format!("{good}{bad}")})).refused(status, code);
            assert!(!refused["data"].as_str().unwrap().is_empty());
            before.unchanged(&service.root, bad);
        }
        let mismatch = "--- a/a.txt\n+++ b/a.txt\n@@ -9 +9 @@\n-o\n+y\n";
        let refused = patched(client, &tree, json!({"patch": mismatch})).refused(409, "edit_mismatch");
        assert_eq!(
            (&refused["hunk"], &refused["line"], &refused["found"]),
            (&json!(1), &json!(3), &json!(0))
        );
        for body in [
            json!({"patch": ""}),
            json!({"patch": good, "etags": {"other": null}}),
            json!({"patch": good, "etags": {"a.txt": "unquoted"}}),
            json!({"patch": good, "fuzz": 2}),
            json!({"diff": good}),
        ] {
            patched(client, &tree, body).refused(400, "invalid");
        }
        let request = client.request("POST", format!("{tree}/patch")).header("if-match", "\"x\"");
        request.body(json!({"patch": good}).to_string()).send().refused(400, "invalid");
        before.unchanged(&service.root, "conditions");
    }
}

#[test]
fn a_first_patch_makes_the_workspace_and_a_refused_one_does_not() {
    let service = Service::start();
    let tree = workspace("new", "a");
    let patch = "--- /dev/null\n+++ b/d/x\n@@ -0,0 +1 @@\n+x\n--- /dev/null\n+++ b/y\n@@ -0,0 +1 @@\n+y\n";
    let clash = format!("{patch}--- /dev/null\n+++ b/y/z\n@@ -0,0 +1 @@\n+z\n");
    patched(&service.client, &tree, json!({"patch": clash})).refused(409, "not_a_directory");
    assert!(!service.root.join("sandbox/new").exists());
    patched(&service.client, &tree, json!({"patch": patch, "dry_run": true})).ok();
    assert!(!service.root.join("sandbox/new").exists());
    patched(&service.client, &tree, json!({"patch": patch})).ok();
    assert_eq!(service.client.files(&tree), ["d/x", "y"]);
}

#[test]
fn a_patch_goes_through_no_link() {
    let service = Service::start();
    let tree = workspace("u", "a");
    service.client.write(&tree, "f", "one\n");
    std::fs::write(service.outside().join("secret"), "one\n").unwrap();
    let root = service.root.join("sandbox/u/a");
    for (target, link) in
        [(service.outside().join("secret"), "out"), ("f".into(), "in"), (service.outside().into(), "dir")]
    {
        std::os::unix::fs::symlink(target, root.join(link)).unwrap();
    }
    for (path, status, code) in
        [("out", 409, "conflict"), ("in", 409, "conflict"), ("dir/secret", 403, "path_escape")]
    {
        let patch = format!("--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-one\n+two\n");
        patched(&service.client, &tree, json!({"patch": patch})).refused(status, code);
    }
    let made = "--- /dev/null\n+++ b/dir/new\n@@ -0,0 +1 @@\n+x\n";
    patched(&service.client, &tree, json!({"patch": made})).refused(403, "path_escape");
    assert_eq!(std::fs::read_to_string(service.outside().join("secret")).unwrap(), "one\n");
    assert!(!service.outside().join("new").exists());
}

#[test]
fn files_and_directories_are_copied() {
    let service = Service::start();
    for tree in trees(&service) {
        let client = &service.client;
        let copy = |body: Value| client.post_json(format!("{tree}/copy"), &body);
        let copied = copy(json!({"from": "a.txt", "to": "文档/b.txt"})).ok();
        assert_eq!((&copied["data"], &copied["created"]), (&json!("Copied."), &json!(true)));
        assert_eq!(client.text(&tree, "文档/b.txt"), FILES[0].1);
        copy(json!({"from": "a.txt", "to": "gone.txt"})).refused(409, "already_exists");
        copy(json!({"from": "a.txt", "to": "gone.txt", "overwrite": true})).ok();
        assert_eq!(client.text(&tree, "gone.txt"), FILES[0].1);
        copy(json!({"from": "文档", "to": "docs"})).refused(409, "is_directory");
        copy(json!({"from": "文档", "to": "docs", "recursive": true})).ok();
        assert_eq!(
            client.files(&tree),
            ["SKILL.md", "a.txt", "docs/b.txt", "docs/说明.md", "gone.txt", "文档/b.txt", "文档/说明.md"]
        );
        // The copy is a file of its own.
        client.write(&tree, "docs/b.txt", "changed");
        assert_eq!(client.text(&tree, "文档/b.txt"), FILES[0].1);
        let before = Snapshot::of(&service.root);
        for (body, status, code) in [
            (json!({"from": "文档", "to": "docs", "recursive": true}), 409, "already_exists"),
            (
                json!({"from": "文档", "to": "docs", "recursive": true, "overwrite": true}),
                409,
                "is_directory",
            ),
            (
                json!({"from": "文档", "to": "a.txt", "recursive": true, "overwrite": true}),
                409,
                "not_a_directory",
            ),
            (json!({"from": "a.txt", "to": "docs", "overwrite": true}), 409, "is_directory"),
            (json!({"from": "文档", "to": "文档/里", "recursive": true}), 400, "invalid"),
            (json!({"from": "a.txt", "to": "a.txt", "overwrite": true}), 400, "invalid"),
            (json!({"from": "none", "to": "x"}), 404, "not_found"),
            (json!({"from": "a.txt", "to": "no/where"}), 404, "not_found"),
            (json!({"from": "文档", "to": "no/where", "recursive": true}), 404, "not_found"),
            (json!({"from": "../a.txt", "to": "x"}), 403, "path_escape"),
            (json!({"from": "a.txt", "to": "/etc/x"}), 403, "path_escape"),
            (json!({"from": "/workspace", "to": "x", "recursive": true}), 400, "invalid"),
            (json!({"from": "a.txt"}), 400, "invalid"),
            (json!({"from": "a.txt", "to": "x", "force": true}), 400, "invalid"),
        ] {
            if tree.contains("/skills/") && body["from"] == "/workspace" {
                continue;
            }
            copy(body.clone()).refused(status, code);
            before.unchanged(&service.root, &body.to_string());
        }
        let stale = client.request("POST", format!("{tree}/copy")).header("if-match", "\"old\"");
        stale
            .body(json!({"from": "a.txt", "to": "gone.txt", "overwrite": true}).to_string())
            .send()
            .refused(412, "stale");
        // What was hidden can be a copy's name, and nothing of it shines through.
        client.delete(format!("{tree}/file?path={}&recursive=true", encoded("文档"))).ok();
        copy(json!({"from": "docs", "to": "文档", "recursive": true})).ok();
        assert_eq!(client.text(&tree, "文档/b.txt"), "changed");
    }
    let others = service.client.files(&skill("李四", "代理", "技能"));
    assert_eq!(others, ["SKILL.md", "a.txt", "gone.txt", "文档/说明.md"]);
}

#[test]
fn a_copy_follows_links_within_the_tree_and_never_out_of_it() {
    let service = Service::start();
    let tree = workspace("u", "a");
    service.client.write(&tree, "d/f", "x");
    std::fs::write(service.outside().join("secret"), "s").unwrap();
    let root = service.root.join("sandbox/u/a");
    for (target, link) in [
        (service.outside().join("secret"), "out"),
        ("d/f".into(), "in"),
        ("d".into(), "dir"),
        (".".into(), "self"),
    ] {
        std::os::unix::fs::symlink(target, root.join(link)).unwrap();
    }
    let copy = |body: Value| service.client.post_json(format!("{tree}/copy"), &body);
    copy(json!({"from": "out", "to": "x"})).refused(403, "path_escape");
    copy(json!({"from": "d/f", "to": "out", "overwrite": true})).refused(403, "path_escape");
    copy(json!({"from": "self", "to": "x", "recursive": true})).refused(400, "invalid");
    copy(json!({"from": "in", "to": "x"})).ok();
    copy(json!({"from": "dir", "to": "y", "recursive": true})).ok();
    assert_eq!(
        (service.client.text(&tree, "x"), service.client.text(&tree, "y/f")),
        ("x".into(), "x".into())
    );
    assert_eq!(std::fs::read_to_string(service.outside().join("secret")).unwrap(), "s");
}
