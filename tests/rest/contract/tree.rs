//! Directories: listing, looking, making, moving, removing. Both kinds of tree, Chinese names, both forms of paths.

use serde_json::{Value, json};

use crate::support::{Service, encoded, skill, skill_zip, skills, workspace};

/// Both kinds of tree of one user: a skill over a baseline, a workspace; each with `文档/说明.md` and `a.txt`.
fn trees(service: &Service) -> [(String, String); 2] {
    let files = [("文档/说明.md", "说明\n"), ("a.txt", "a")];
    service.client.upload(&skills("anybody", "代理"), "baseline", &skill_zip("技能", &files));
    let (skill, workspace) = (skill("张三", "代理", "技能"), workspace("张三", "代理"));
    for (path, text) in files {
        service.client.write(&workspace, path, text);
    }
    service.client.write(&workspace, "SKILL.md", "# 工作\n");
    [(skill, "/workspace/skills/技能".to_owned()), (workspace, "/workspace".to_owned())]
}

fn names(listing: &Value, field: &str) -> Vec<String> {
    listing["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry[field].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn files_are_listed_relative_and_sorted() {
    let service = Service::start();
    for (tree, inside) in trees(&service) {
        assert_eq!(service.client.files(&tree), ["SKILL.md", "a.txt", "文档/说明.md"]);
        for path in ["文档".to_owned(), format!("{inside}/文档")] {
            let answer = service.client.get(format!("{tree}/files?path={}", encoded(path))).ok();
            assert_eq!(answer["data"], json!(["文档/说明.md"]));
        }
        let shallow = service.client.get(format!("{tree}/files?depth=1")).ok();
        assert_eq!(shallow["data"], json!(["SKILL.md", "a.txt"]));

        let detailed = service.client.get(format!("{tree}/files?detail=true")).ok();
        assert_eq!(names(&detailed, "path"), ["SKILL.md", "a.txt", "文档/说明.md"]);
        let entry = &detailed["data"][1];
        assert_eq!(
            (&entry["kind"], &entry["size"], &entry["mode"]),
            (&json!("file"), &json!(1), &json!("0644"))
        );
        assert_eq!(entry["etag"], service.client.get(format!("{tree}/raw/a.txt")).etag());
        assert!(entry["modified_at"].as_str().unwrap().contains('T'));
        assert!(matches!(entry["layer"].as_str(), Some("baseline" | "workspace" | "overlay")), "{entry}");
        service.client.get(format!("{tree}/files?path=none")).refused(404, "not_found");
    }
}

#[test]
fn paths_are_taken_as_people_write_them() {
    let service = Service::start();
    let client = &service.client;
    for (tree, inside) in trees(&service) {
        let below = encoded("文档");
        for path in
            [format!("./{below}/"), format!("{below}/"), format!("{inside}/{below}/"), format!("././{below}")]
        {
            for route in ["files", "dir"] {
                let found = client.get(format!("{tree}/{route}?path={path}")).ok();
                assert_eq!(found["data"].as_array().unwrap().len(), 1, "{route} {path}");
            }
            assert_eq!(client.get(format!("{tree}/stat?path={path}")).ok()["data"]["path"], "文档");
            let found = client.get(format!("{tree}/glob?pattern=./*.md&path={path}")).ok();
            assert_eq!(found["data"], json!(["文档/说明.md"]), "{path}");
            let found =
                client.post_json(format!("{tree}/grep"), &json!({"pattern": "说", "path": "./文档/"})).ok();
            assert_eq!(found["data"][0]["path"], "文档/说明.md");
        }
        assert_eq!(client.get(format!("{tree}/glob?pattern=./*.txt")).ok()["data"], json!(["a.txt"]));
        for path in [".", "./", "%2E/"] {
            assert_eq!(client.get(format!("{tree}/stat?path={path}")).ok()["data"]["path"], ".");
        }
        let ran = client.post_json(format!("{tree}/exec"), &json!({"command": "ls", "dir": "./文档/"})).ok();
        assert_eq!(ran["data"]["stdout"], "说明.md\n");

        client.put(format!("{tree}/edit?path=./b/c.txt"), "1\n").ok();
        assert_eq!(client.put(format!("{tree}/raw/./b/d.txt"), "2").status, 201);
        assert_eq!(client.get(format!("{tree}/content?path=./b/c.txt")).ok()["data"], "1\n");
        let edits = json!({"path": "./b/c.txt", "edits": [{"old_string": "1", "new_string": "3"}]});
        assert_eq!(client.post_json(format!("{tree}/replace"), &edits).ok()["path"], "b/c.txt");
        let patch = "--- ./b/c.txt\n+++ ./b/c.txt\n@@ -1 +1 @@\n-3\n+4\n";
        let etags = json!({"./b/c.txt": client.get(format!("{tree}/raw/b/c.txt")).etag()});
        client.post_json(format!("{tree}/patch"), &json!({"patch": patch, "etags": etags})).ok();
        client.post_json(format!("{tree}/mkdir"), &json!({"path": "./e/"})).ok();
        client.post_json(format!("{tree}/move"), &json!({"from": "./b/", "to": "e/b/"})).ok();
        client
            .post_json(format!("{tree}/copy"), &json!({"from": "e/b/", "to": "./b/", "recursive": true}))
            .ok();
        assert_eq!(client.text(&tree, "e/b/c.txt"), "4\n");
        client.delete(format!("{tree}/file?path=e/b/c.txt")).ok();
        client.delete(format!("{tree}/file?path=./e/&recursive=true")).ok();
        client.delete(format!("{tree}/raw/./b/?recursive=true")).ok();
        assert_eq!(client.files(&tree), ["SKILL.md", "a.txt", "文档/说明.md"]);
    }
}

#[test]
fn a_final_slash_names_a_directory_and_nothing_else() {
    let service = Service::start();
    let client = &service.client;
    for (tree, _) in trees(&service) {
        for route in ["content?path=a.txt/", "raw/a.txt/", "content?path=new/"] {
            client.get(format!("{tree}/{route}")).refused(400, "invalid");
        }
        for route in ["edit?path=a.txt/", "edit?path=new/", "raw/a.txt/", "raw/new/"] {
            client.put(format!("{tree}/{route}"), "evil").refused(400, "invalid");
        }
        let edits = json!({"path": "a.txt/", "edits": [{"old_string": "a", "new_string": "b"}]});
        client.post_json(format!("{tree}/replace"), &edits).refused(400, "invalid");
        for (route, body) in [
            ("move", json!({"from": "a.txt/", "to": "x"})),
            ("move", json!({"from": "a.txt", "to": "x/"})),
            ("copy", json!({"from": "a.txt/", "to": "x"})),
            ("copy", json!({"from": "a.txt", "to": "x/"})),
            ("grep", json!({"pattern": "a", "path": "a.txt/"})),
            ("mkdir", json!({"path": "a.txt/"})),
        ] {
            client.post_json(format!("{tree}/{route}"), &body).refused(409, "not_a_directory");
        }
        for route in ["stat?path=a.txt/", "dir?path=a.txt/", "glob?pattern=*&path=a.txt/"] {
            client.get(format!("{tree}/{route}")).refused(409, "not_a_directory");
        }
        for route in ["file?path=a.txt/&recursive=true", "raw/a.txt/?recursive=true"] {
            client.delete(format!("{tree}/{route}")).refused(409, "not_a_directory");
        }
        for path in ["./..", "../", "./../x", "文档/../a.txt", ".//etc/passwd"] {
            client.get(format!("{tree}/content?path={}", encoded(path))).refused(403, "path_escape");
        }
        assert_eq!(client.files(&tree), ["SKILL.md", "a.txt", "文档/说明.md"]);
    }
}

#[test]
fn a_long_listing_is_paged_by_a_cursor() {
    let service = Service::start();
    let tree = workspace("u", "a");
    for index in 0..7 {
        service.client.write(&tree, &format!("文{index}"), "");
    }
    let (mut cursor, mut pages, mut all) = (String::new(), 0, Vec::new());
    loop {
        let page = service.client.get(format!("{tree}/files?limit=3{cursor}")).ok();
        all.extend(page["data"].as_array().unwrap().iter().map(|path| path.as_str().unwrap().to_owned()));
        pages += 1;
        let Some(next) = page["next"].as_str() else { break };
        cursor = format!("&cursor={}", encoded(next));
    }
    assert_eq!(pages, 3);
    assert_eq!(all, service.client.files(&tree));
    let last = service.client.get(format!("{tree}/files?limit=7")).ok();
    assert_eq!(last["next"], Value::Null);
    // Without a limit, all that is left.
    let first = service.client.get(format!("{tree}/files?limit=3")).ok();
    let next = encoded(first["next"].as_str().unwrap());
    let rest = service.client.get(format!("{tree}/files?cursor={next}")).ok();
    let listed = [&first, &rest].map(|page| page["data"].as_array().unwrap().clone()).concat();
    assert_eq!((json!(listed), &rest["next"]), (json!(all), &Value::Null));
    service.client.get(format!("{tree}/files?limit=0")).refused(400, "invalid");
    service.client.get(format!("{tree}/files?depth=0")).refused(400, "invalid");
}

#[test]
fn a_workspace_nobody_wrote_to_is_empty_and_stays_unmade() {
    let service = Service::start();
    let tree = workspace("nobody", "a");
    assert_eq!(service.client.get(format!("{tree}/files")).ok()["data"], json!([]));
    assert_eq!(service.client.get(format!("{tree}/dir")).ok()["data"], json!([]));
    let refused = service.client.get(format!("{tree}/content?path=none.txt")).refused(404, "not_found");
    assert_eq!(refused["data"], "`none.txt` does not exist");
    service.client.get(format!("{tree}/stat?path=none.txt")).refused(404, "not_found");
    assert!(!service.root.join("sandbox/nobody").exists(), "reading makes nothing");
    // A skill that no layer has is not an empty one.
    service.client.get(format!("{}/files", skill("nobody", "a", "s"))).refused(404, "not_found");
}

#[test]
fn stat_and_dir_tell_what_is_there() {
    let service = Service::start();
    for (tree, inside) in trees(&service) {
        let stat = service.client.get(format!("{tree}/stat?path={}", encoded(format!("{inside}/a.txt"))));
        let facts = &stat.ok()["data"];
        assert_eq!(
            (&facts["path"], &facts["kind"], &facts["size"]),
            (&json!("a.txt"), &json!("file"), &json!(1))
        );
        assert_eq!(facts["etag"], stat.etag());
        let root = service.client.get(format!("{tree}/stat")).ok();
        assert_eq!((&root["data"]["kind"], &root["data"]["path"]), (&json!("directory"), &json!(".")));
        let dir = service.client.get(format!("{tree}/dir")).ok();
        assert_eq!(names(&dir, "name"), ["SKILL.md", "a.txt", "文档"]);
        assert_eq!(names(&dir, "kind"), ["file", "file", "directory"]);
        let inner = service.client.get(format!("{tree}/dir?path={}", encoded("文档"))).ok();
        assert_eq!(names(&inner, "name"), ["说明.md"]);
    }
}

#[test]
fn directories_are_made_with_and_without_parents() {
    let service = Service::start();
    for (tree, inside) in trees(&service) {
        let make = |body: Value| service.client.post_json(format!("{tree}/mkdir"), &body);
        make(json!({"path": "新/里"})).refused(404, "not_found");
        assert_eq!(make(json!({"path": "新/里", "parents": true, "mode": "0700"})).ok()["created"], true);
        assert_eq!(make(json!({"path": format!("{inside}/新/里"), "parents": true})).ok()["created"], false);
        make(json!({"path": "新/里"})).refused(409, "already_exists");
        make(json!({"path": "a.txt", "parents": true})).refused(409, "already_exists");
        make(json!({"path": "a.txt/x", "parents": true})).refused(409, "not_a_directory");
        for wrong in [json!({"path": "x", "mode": "rwx"}), json!({"path": "x", "mode": "4755"}), json!({})] {
            make(wrong).refused(400, "invalid");
        }
        let stat = service.client.get(format!("{tree}/stat?path={}", encoded("新/里"))).ok();
        assert_eq!((&stat["data"]["kind"], &stat["data"]["mode"]), (&json!("directory"), &json!("0700")));
    }
}

#[test]
fn files_and_directories_move() {
    let service = Service::start();
    for (tree, inside) in trees(&service) {
        let go = |body: Value| service.client.post_json(format!("{tree}/move"), &body);
        go(json!({"from": "a.txt", "to": format!("{inside}/文档/b.txt")})).ok();
        assert_eq!(service.client.files(&tree), ["SKILL.md", "文档/b.txt", "文档/说明.md"]);
        go(json!({"from": "文档", "to": "docs"})).ok();
        assert_eq!(service.client.files(&tree), ["SKILL.md", "docs/b.txt", "docs/说明.md"]);
        assert_eq!(service.client.text(&tree, "docs/说明.md"), "说明\n");
        go(json!({"from": "docs/b.txt", "to": "SKILL.md"})).refused(409, "already_exists");
        go(json!({"from": "docs/b.txt", "to": "SKILL.md", "overwrite": true})).ok();
        assert_eq!(service.client.text(&tree, "SKILL.md"), "a");
        go(json!({"from": "docs", "to": "docs/in"})).refused(400, "invalid");
        go(json!({"from": "none", "to": "x"})).refused(404, "not_found");
        go(json!({"from": "docs", "to": "no/where"})).refused(404, "not_found");
        assert_eq!(service.client.files(&tree), ["SKILL.md", "docs/说明.md"]);
    }
    // Another user's view of the skill is as it was.
    let others = service.client.files(&skill("李四", "代理", "技能"));
    assert_eq!(others, ["SKILL.md", "a.txt", "文档/说明.md"]);
}

#[test]
fn files_and_directories_are_removed() {
    let service = Service::start();
    for (tree, inside) in trees(&service) {
        let remove = |query: String| service.client.delete(format!("{tree}/file?{query}"));
        remove(format!("path={}", encoded("文档"))).refused(409, "not_empty");
        remove(format!("path={}&recursive=true", encoded(format!("{inside}/文档")))).ok();
        remove("path=a.txt".to_owned()).ok();
        remove("path=a.txt".to_owned()).refused(404, "not_found");
        remove(String::new()).refused(400, "invalid");
        assert_eq!(service.client.files(&tree), ["SKILL.md"]);
        // What was removed can be made again, and is new.
        service.client.write(&tree, "文档/x", "x");
        assert_eq!(service.client.files(&tree), ["SKILL.md", "文档/x"]);
    }
    let others = service.client.files(&skill("李四", "代理", "技能"));
    assert_eq!(others, ["SKILL.md", "a.txt", "文档/说明.md"]);
}

#[test]
fn the_root_of_a_tree_is_neither_moved_nor_removed_nor_written() {
    let service = Service::start();
    for (tree, inside) in trees(&service) {
        let root = encoded(&inside);
        let before = service.client.files(&tree);
        for reply in [
            service.client.delete(format!("{tree}/file?path={root}&recursive=true")),
            service.client.put(format!("{tree}/edit?path={root}"), "x"),
            service.client.post_json(format!("{tree}/move"), &json!({"from": inside, "to": "x"})),
            service.client.post_json(
                format!("{tree}/move"),
                &json!({"from": "a.txt", "to": inside, "overwrite": true}),
            ),
            service.client.post_json(format!("{tree}/mkdir"), &json!({"path": inside})),
        ] {
            reply.refused(400, "invalid");
        }
        assert_eq!(service.client.files(&tree), before);
    }
}

#[test]
fn two_users_never_meet() {
    let service = Service::start();
    let client = &service.client;
    client.upload(&skills("x", "a"), "baseline", &skill_zip("s", &[("f", "base")]));
    for user in ["甲", "乙"] {
        client.write(&workspace(user, "a"), "f", user);
        client.write(&skill(user, "a", "s"), "f", user);
    }
    client.write(&workspace("甲", "b"), "f", "other agent");
    for user in ["甲", "乙"] {
        assert_eq!(client.text(&workspace(user, "a"), "f"), user);
        assert_eq!(client.text(&skill(user, "a", "s"), "f"), user);
        let seen = client.execute(&workspace(user, "a"), "cat", &["f"]);
        assert_eq!(seen["result"]["stdout"], user);
    }
    assert_eq!(client.text(&skill("丙", "a", "s"), "f"), "base");
    assert_eq!(client.text(&workspace("甲", "b"), "f"), "other agent");
}

#[test]
fn owners_are_told_as_commands_see_them_and_never_as_user_ids_of_the_host() {
    for tier in ["namespaces", "landlock"] {
        let service = Service::configured(&format!("[isolation]\nmaximum = \"{tier}\"\n"));
        let client = &service.client;
        if !crate::support::landlocked(client) {
            return;
        }
        client.upload(&skills("u", "a"), "baseline", &skill_zip("s", &[("of-all", "x")]));
        let trees = [workspace("u", "a"), skill("u", "a", "s")];
        for tree in &trees {
            client.write(tree, "by-request", "x");
            client
                .post_json(format!("{tree}/exec"), &json!({ "shell": "echo x > by-command; mkdir dir" }))
                .ok();
            let listed = client.get(format!("{tree}/dir")).ok()["data"].clone();
            let names: Vec<&str> =
                listed.as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect();
            assert!(names.contains(&"by-request") && names.contains(&"by-command"), "{listed}");
            for entry in listed.as_array().unwrap() {
                let name = entry["name"].as_str().unwrap();
                let stat = client.get(format!("{tree}/stat?path={name}")).ok()["data"].clone();
                assert_eq!(stat["owner"], entry["owner"], "{tier} {tree}: {stat}");
                // As the command itself says: whether it is its own.
                let line = format!("test -O '{name}' && echo own");
                let own = client.post_json(format!("{tree}/exec"), &json!({ "shell": line })).ok();
                let is_own = own["data"]["stdout"] == "own\n";
                let is_root = client.post_json(format!("{tree}/exec"), &json!({ "shell": "id -u" })).ok();
                let expected = match is_root["data"]["stdout"] == "0\n" {
                    true => "root",
                    false => "sandbox",
                };
                assert!(is_own, "{tier} {tree} {name}: {own}");
                assert_eq!(stat["owner"], expected, "{tier} {tree} {name}");
                assert!(stat.as_object().unwrap().keys().all(|key| !key.contains("uid")), "{stat}");
            }
        }
    }
}
