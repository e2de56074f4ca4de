//! Links that runs make, and what the routes tell of them; directories among what is found.

use serde_json::{Value, json};

use crate::support::{Service, skill, skill_zip, skills, workspace};

/// Both kinds of tree, with `t.txt` and links that a run made, and the place of the tree in a run.
fn trees(service: &Service) -> [(String, &'static str); 2] {
    service.client.upload(&skills("anybody", "a"), "baseline", &skill_zip("s", &[("t.txt", "text\n")]));
    let trees = [(skill("u", "a", "s"), "/workspace/skills/s"), (workspace("u", "a"), "/workspace")];
    service.client.write(&trees[1].0, "t.txt", "text\n");
    for (tree, inside) in &trees {
        let line = format!(
            "mkdir -p d/e; ln -s {inside}/t.txt absolute; ln -s t.txt relative; ln -s {inside}/d dir; ln -s gone dangling"
        );
        let ran = service.client.post_json(format!("{tree}/exec"), &json!({"shell": line})).ok();
        assert_eq!(ran["data"]["exit_code"], 0, "{ran}");
    }
    trees
}

fn entry<'a>(listing: &'a Value, name: &str) -> &'a Value {
    listing["data"].as_array().unwrap().iter().find(|entry| entry["name"] == name).unwrap()
}

#[test]
fn a_link_that_a_run_made_is_read_as_the_run_reads_it() {
    let service = Service::start();
    let client = &service.client;
    for (tree, _) in trees(&service) {
        for link in ["absolute", "relative"] {
            assert_eq!(client.text(&tree, link), "text\n");
            assert_eq!(client.get(format!("{tree}/raw/{link}")).body, b"text\n");
            assert_eq!(client.get(format!("{tree}/stat?path={link}")).ok()["data"]["kind"], "file");
        }
        client.write(&tree, "dir/new.txt", "new\n");
        assert_eq!(client.text(&tree, "d/new.txt"), "new\n");
        client.write(&tree, "absolute", "more\n");
        assert_eq!(client.text(&tree, "t.txt"), "more\n");
        let kept = client.get(format!("{tree}/stat?path=absolute&follow=false")).ok();
        assert_eq!(kept["data"]["kind"], "symlink", "the link is still one");
    }
}

#[test]
fn of_a_link_stat_and_dir_tell_where_it_points_to() {
    let service = Service::start();
    let client = &service.client;
    for (tree, inside) in trees(&service) {
        let listing = client.get(format!("{tree}/dir")).ok();
        for (link, target) in [
            ("absolute", format!("{inside}/t.txt")),
            ("relative", "t.txt".to_owned()),
            ("dir", format!("{inside}/d")),
            ("dangling", "gone".to_owned()),
        ] {
            let own = client.get(format!("{tree}/stat?path={link}&follow=false")).ok();
            assert_eq!((&own["data"]["kind"], &own["data"]["target"]), (&json!("symlink"), &json!(target)));
            assert_eq!(entry(&listing, link)["target"], json!(target));
        }
        for other in ["t.txt", "d"] {
            let own = client.get(format!("{tree}/stat?path={other}&follow=false")).ok();
            let followed = client.get(format!("{tree}/stat?path={other}")).ok();
            assert_eq!((&own, own["data"].get("target")), (&followed, None));
            assert_eq!(entry(&listing, other).get("target"), None);
        }
        client.get(format!("{tree}/stat?path=dangling")).refused(404, "not_found");
        client.get(format!("{tree}/stat?path=none&follow=false")).refused(404, "not_found");
        client.get(format!("{tree}/stat?path=t.txt&follow=perhaps")).refused(400, "invalid");
    }
}

#[test]
fn no_target_tells_where_the_data_directory_is() {
    let service = Service::start();
    let (client, tree) = (&service.client, workspace("u", "a"));
    client.write(&tree, "t.txt", "text\n");
    let own = service.root.join("sandbox/u/a");
    let links = [
        ("own", own.join("t.txt")),
        ("other", service.root.join("sandbox/v/a/secret")),
        ("up", service.root.clone()),
    ];
    for (link, target) in &links {
        std::os::unix::fs::symlink(target, own.join(link)).unwrap();
    }
    let listing = client.get(format!("{tree}/dir")).ok();
    assert!(!listing.to_string().contains(service.root.to_str().unwrap()), "{listing}");
    assert_eq!(entry(&listing, "own")["target"], "/workspace/t.txt");
    for link in ["other", "up"] {
        assert_eq!(entry(&listing, link).get("target"), None);
        assert_eq!(
            client.get(format!("{tree}/stat?path={link}&follow=false")).ok()["data"].get("target"),
            None
        );
        client.get(format!("{tree}/content?path={link}")).refused(403, "path_escape");
    }
    client.get(format!("{tree}/content?path=own")).refused(403, "path_escape");
}

#[test]
fn directories_are_found_when_they_are_asked_for() {
    let service = Service::start();
    let client = &service.client;
    client.upload(
        &skills("anybody", "a"),
        "baseline",
        &skill_zip("s", &[("src/lib/a.rs", ""), ("src-2/b.rs", "")]),
    );
    let trees = [skill("u", "a", "s"), workspace("u", "a")];
    for path in ["SKILL.md", "src/lib/a.rs", "src-2/b.rs"] {
        client.write(&trees[1], path, "# x\n");
    }
    for tree in trees {
        client.post_json(format!("{tree}/mkdir"), &json!({"path": "src/empty/.git", "parents": true})).ok();
        let glob = |query: &str| client.get(format!("{tree}/glob?{query}")).ok()["data"].clone();
        assert_eq!(glob("pattern=**&type=directory"), json!(["src-2/", "src/", "src/empty/", "src/lib/"]));
        let all = ["SKILL.md", "src-2/", "src-2/b.rs", "src/", "src/empty/", "src/lib/", "src/lib/a.rs"];
        assert_eq!(glob("pattern=**&type=any"), json!(all));
        assert_eq!(glob("pattern=**"), json!(["SKILL.md", "src-2/b.rs", "src/lib/a.rs"]));
        assert_eq!(glob("pattern=**&type=file"), glob("pattern=**"));
        assert_eq!(glob("pattern=lib&type=directory"), json!(["src/lib/"]));
        assert_eq!(glob("pattern=**&type=directory&hidden=true&path=src/empty"), json!(["src/empty/.git/"]));
        let detailed = client.get(format!("{tree}/glob?pattern=src&type=directory&detail=true")).ok();
        assert_eq!(
            (&detailed["data"][0]["path"], &detailed["data"][0]["kind"]),
            (&json!("src"), &json!("directory"))
        );
        // One by one gives the same, in the same order.
        for (kinds, whole) in
            [("any", glob("pattern=**&type=any")), ("directory", glob("pattern=**&type=directory"))]
        {
            let (mut found, mut cursor) = (Vec::new(), String::new());
            loop {
                let page = client.get(format!("{tree}/glob?pattern=**&type={kinds}&limit=1{cursor}")).ok();
                found.extend(page["data"].as_array().unwrap().iter().cloned());
                let Some(next) = page["next"].as_str() else { break };
                cursor = format!("&cursor={next}");
            }
            assert_eq!(json!(found), whole);
        }
        // What it answers can be asked for.
        for path in all {
            client.get(format!("{tree}/stat?path={path}")).ok();
        }
        client.get(format!("{tree}/glob?pattern=x&type=socket")).refused(400, "invalid");
    }
}
