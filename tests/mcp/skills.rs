//! The skills extension: the skills that a user sees, with the digests of their files.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base64::Engine;
use serde_json::{Value, json};
use sha2::Digest;

use crate::client::{ERAS, Era, ON, Post, called, service};
use crate::resources::read;
use crate::support::{Client, Entry, Service, digest, landlocked, skill, skill_zip, zip};

const SKILLS: &str = "/v1/skills/alice/demo";

fn list(client: &Client, params: Value) -> Value {
    Post::method(client, Era::Modern, "skills/list", params).result()
}

fn get(client: &Client, uri: &str) -> Post {
    Post::method(client, Era::Modern, "skills/get", json!({ "uri": uri }))
}

fn directory(client: &Client, uri: &str) -> Post {
    Post::method(client, Era::Modern, "resources/directory/read", json!({ "uri": uri }))
}

fn uris(result: &Value) -> Vec<&str> {
    result["skills"].as_array().unwrap().iter().map(|skill| skill["uri"].as_str().unwrap()).collect()
}

/// The digest of bytes, as the extension has it.
fn sha256(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(sha2::Sha256::digest(bytes)))
}

/// The bytes of what `resources/read` gives.
fn bytes(result: &Value) -> Vec<u8> {
    let content = &result["contents"][0];
    match content["text"].as_str() {
        Some(text) => text.as_bytes().to_vec(),
        None => base64::engine::general_purpose::STANDARD.decode(content["blob"].as_str().unwrap()).unwrap(),
    }
}

/// Holds every file of a skill against its digest.
#[track_caller]
fn verify(client: &Client, skill: &Value) -> usize {
    let files = skill["resources"].as_array().unwrap();
    for file in files {
        let bytes = bytes(&read(client, Era::Modern, file["uri"].as_str().unwrap()).result());
        assert_eq!((&file["digest"], &file["size"]), (&json!(sha256(&bytes)), &json!(bytes.len())), "{file}");
    }
    files.len()
}

#[test]
fn a_user_has_the_merged_skills_with_digests_that_fit_the_bytes() {
    let service = service();
    let client = &service.client;
    let head =
        "---\nname: 数据统计\ndescription: 统计行数。\nlicense: MIT\nmetadata:\n  level: 2\n---\n# x\n";
    client.upload(
        SKILLS,
        "baseline",
        &zip(&[
            Entry::file("数据统计/SKILL.md", head),
            Entry::file("数据统计/scripts/a b.py", "print(1)\n"),
            Entry::file("数据统计/raw", [0, 0xff]),
        ]),
    );
    client.upload(SKILLS, "baseline", &skill_zip("gone", &[]));
    client.upload(SKILLS, "overlay", &skill_zip("own", &[("more.md", "more")]));
    client.delete(skill("alice", "demo", "gone")).ok();
    let name = "skill://%E6%95%B0%E6%8D%AE%E7%BB%9F%E8%AE%A1";
    let listed = list(client, json!({}));
    assert_eq!(uris(&listed), ["skill://own/SKILL.md", &format!("{name}/SKILL.md")]);
    assert_eq!((&listed["ttlMs"], &listed["cacheScope"]), (&json!(0), &json!("private")));
    assert!(listed.get("nextCursor").is_none() && listed.get("_meta").is_none(), "{listed}");
    let chinese = &listed["skills"][1];
    let front = json!({ "name": "数据统计", "description": "统计行数。", "license": "MIT", "metadata": { "level": 2 } });
    assert_eq!(chinese["frontmatter"], front);
    let of = |path: &str, bytes: &[u8]| json!({ "uri": format!("{name}/{path}"), "digest": sha256(bytes), "size": bytes.len() });
    let files =
        [of("SKILL.md", head.as_bytes()), of("raw", &[0, 0xff]), of("scripts/a%20b.py", b"print(1)\n")];
    assert_eq!(chinese["resources"], json!(files));
    for one in listed["skills"].as_array().unwrap() {
        verify(client, one);
        assert_eq!(get(client, one["uri"].as_str().unwrap()).result()["skill"], *one);
    }
    // A client that does not encode gets what it asked for under its own name.
    let plain = "skill://数据统计/SKILL.md";
    let got = get(client, plain).result();
    assert_eq!(got["skill"]["uri"], plain);
    verify(client, &got["skill"]);
    // The files stand at the beginning of the resources, too.
    let resources = Post::method(client, Era::Modern, "resources/list", json!({})).result();
    let expected = json!({ "uri": format!("{name}/SKILL.md"), "name": "数据统计", "description": "统计行数。", "mimeType": "text/markdown" });
    assert_eq!(resources["resources"][1], expected);
    // Another user sees the baseline, and clients of the older revisions are answered alike.
    let bob = Post::method(client, Era::Modern, "skills/list", json!({})).to("/mcp/bob/demo").result();
    assert_eq!(uris(&bob), ["skill://gone/SKILL.md", &format!("{name}/SKILL.md")]);
    let legacy = Post::method(client, Era::Legacy, "skills/list", json!({})).result();
    assert_eq!(legacy["skills"], listed["skills"]);
}

#[test]
fn an_edit_changes_the_digest_for_its_user_only() {
    let config = ["alice", "bob"].map(|user| {
        format!("[[tokens]]\nsha256 = \"{}\"\nrole = \"user\"\nuser = \"{user}\"\n", digest(user))
    });
    let admin = format!("[[tokens]]\nsha256 = \"{}\"\nrole = \"admin\"\n", digest("admin"));
    let service = Service::configured(&format!("{ON}{}{admin}", config.concat()));
    let of = |token: &str| service.client.with_token(token);
    of("admin").upload(SKILLS, "baseline", &skill_zip("notes", &[("a.md", "for all")]));
    let seen = |user: &str| {
        let path = format!("/mcp/{user}/demo");
        let list = Post::method(&of(user), Era::Modern, "skills/list", json!({})).to(&path).result();
        list["skills"][0]["resources"][1]["digest"].clone()
    };
    assert_eq!((seen("alice"), seen("bob")), (json!(sha256(b"for all")), json!(sha256(b"for all"))));
    let edit = json!({ "path": "skills/notes/a.md", "mode": "create", "content": "of bob", "rewrite": true });
    let edited = Post::call(&of("bob"), Era::Modern, "Edit", edit).to("/mcp/bob/demo").result();
    assert_eq!(edited["isError"], false, "{edited}");
    assert_eq!((seen("alice"), seen("bob")), (json!(sha256(b"for all")), json!(sha256(b"of bob"))));
    for (method, params) in
        [("skills/list", json!({})), ("skills/get", json!({ "uri": "skill://notes/SKILL.md" }))]
    {
        assert_eq!(
            Post::method(&of("alice"), Era::Modern, method, params).to("/mcp/bob/demo").send().status,
            404
        );
    }
}

#[test]
fn a_skill_that_breaks_a_rule_is_left_out_and_told_why() {
    let service = Service::configured("[mcp]\nenabled = true\nskill_names = \"ascii\"\n");
    let client = &service.client;
    let with = |id: &str, head: &str, more: &[(&str, &str)]| {
        let mut entries = vec![Entry::file(&format!("{id}/SKILL.md"), head)];
        entries.extend(more.iter().map(|(path, text)| Entry::file(&format!("{id}/{path}"), text)));
        client.upload(SKILLS, "baseline", &zip(&entries));
    };
    with("bare", "# no head\n", &[]);
    with("half", "---\nname: half\n---\n", &[]);
    with("loud", "---\nname: LOUD\ndescription: d\n---\n", &[]);
    with("数", "---\nname: 数\ndescription: d\n---\n", &[]);
    with("other", "---\nname: named\ndescription: d\n---\n", &[("x/SKILL.md", "inner")]);
    let many: Vec<(String, &str)> = (0..512).map(|number| (format!("f{number}"), "")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    with("many", "---\nname: many\ndescription: d\n---\n", &many);
    with("fits", "---\nname: fits\ndescription: d\n---\n", &many[1..]);
    let large = "x".repeat(16 << 20);
    with("large", "---\nname: large\ndescription: d\n---\n", &[("f", &large)]);
    client.write(&skill("alice", "demo", "lower"), "skill.md", "---\nname: lower\ndescription: d\n---\n");
    let (mut found, mut left_out, mut cursor) = (Vec::new(), Vec::new(), json!({}));
    loop {
        let page = list(client, cursor);
        found.extend(page["skills"].as_array().unwrap().clone());
        left_out.extend(
            page["_meta"]["io.modelcontextprotocol.skills/left-out"].as_array().cloned().unwrap_or_default(),
        );
        match page.get("nextCursor") {
            Some(next) => cursor = json!({ "cursor": next }),
            None => break,
        }
    }
    let names: Vec<&str> = found.iter().map(|one| one["uri"].as_str().unwrap()).collect();
    assert_eq!(names, ["skill://fits/SKILL.md", "skill://other/named/SKILL.md"]);
    assert_eq!(verify(client, &found[1]), 2, "a skill inside of a skill belongs to the outer one");
    let told: Vec<(&str, &str)> = left_out
        .iter()
        .map(|one| (one["skill_id"].as_str().unwrap(), one["why"].as_str().unwrap()))
        .collect();
    let name = "the `name` is not of 1 to 64 small letters, digits and single hyphens";
    assert_eq!(
        told,
        [
            ("bare", "`SKILL.md` does not begin with front matter in YAML"),
            ("half", "the front matter has no `name` or no `description` that is a text"),
            ("large", "it has more than 16 MiB"),
            ("loud", name),
            ("lower", "it has no file `SKILL.md`, spelled so"),
            ("many", "it has more than 512 files"),
            ("数", name),
        ]
    );
    for uri in [
        "skill://many/SKILL.md",
        "skill://bare/SKILL.md",
        "skill://other/SKILL.md",
        "skill://other/named/x/SKILL.md",
        "skill://none/SKILL.md",
        "skill://fits/f1",
        "skill://../fits/SKILL.md",
        "workspace:///skills/fits/SKILL.md",
        "",
    ] {
        assert_eq!(get(client, uri).error(200)["code"], -32602, "{uri}");
    }
    for cursor in ["x", "Li4", "/"] {
        let error = Post::method(client, Era::Modern, "skills/list", json!({ "cursor": cursor })).error(200);
        assert_eq!(error["code"], -32602, "{cursor}");
    }
}

#[test]
fn a_link_that_leads_out_leaves_its_skill_out() {
    let service = service();
    let client = &service.client;
    if !landlocked(client) {
        return;
    }
    client.upload(SKILLS, "overlay", &skill_zip("notes", &[("a.md", "a")]));
    let links = json!({ "command": "ln -s a.md in; ln -s none nothing; ln -s . around", "directory": "skills/notes" });
    called(client, "Shell", links);
    let listed = list(client, json!({}));
    // A link to a file is that file, as it is when the skill is downloaded.
    assert_eq!(verify(client, &listed["skills"][0]), 3, "{listed}");
    called(client, "Shell", json!({ "command": "ln -s /etc/passwd out", "directory": "skills/notes" }));
    let listed = list(client, json!({}));
    assert_eq!(listed["skills"], json!([]));
    let left_out = &listed["_meta"]["io.modelcontextprotocol.skills/left-out"];
    assert_eq!(left_out, &json!([{ "skill_id": "notes", "why": "a link leads out of it" }]));
    assert_eq!(read(client, Era::Modern, "skill://notes/out").error(200)["code"], -32602);
}

#[test]
fn many_skills_come_in_pages_and_none_is_cut() {
    let service = service();
    let client = &service.client;
    let head = |id: usize| format!("---\nname: s{id:03}\ndescription: d\n---\n");
    let entries: Vec<Entry> =
        (0..230).map(|id| Entry::file(&format!("s{id:03}/SKILL.md"), head(id))).collect();
    client.upload(SKILLS, "baseline", &zip(&entries));
    let (mut seen, mut cursor, mut pages) = (Vec::new(), json!({}), 0);
    loop {
        let page = list(client, cursor);
        seen.extend(uris(&page).into_iter().map(str::to_owned));
        pages += 1;
        match page.get("nextCursor") {
            Some(next) => cursor = json!({ "cursor": next }),
            None => break,
        }
    }
    let expected: Vec<String> = (0..230).map(|id| format!("skill://s{id:03}/SKILL.md")).collect();
    assert_eq!((seen, pages), (expected, 3));
}

#[test]
fn a_manifest_fits_the_bytes_while_a_writer_changes_them() {
    let service = service();
    let client = &service.client;
    let text = |round: usize| format!("{round:06}\n").repeat(4_000);
    client.upload(SKILLS, "overlay", &skill_zip("notes", &[("a.md", &text(0))]));
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut round = 0;
            while !is_done.load(Ordering::Relaxed) {
                round += 1;
                client.write(&skill("alice", "demo", "notes"), "a.md", &text(round));
            }
            round
        });
        // As long as it takes to see some states of it.
        let (mut digests, begin) = (std::collections::HashSet::new(), Instant::now());
        while digests.len() < 20 && begin.elapsed() < Duration::from_secs(60) {
            let got = get(client, "skill://notes/SKILL.md").result();
            let file = &got["skill"]["resources"][1];
            let body = bytes(&read(client, Era::Modern, "skill://notes/a.md").result());
            let round: usize = std::str::from_utf8(&body[..6]).unwrap().parse().unwrap();
            assert_eq!(body, text(round).into_bytes(), "never a torn file");
            // Both are of a state that there was: the digest of one before or of the same.
            let mut before = (0..=round).rev().map(|round| sha256(text(round).as_bytes()));
            assert!(before.any(|known| file["digest"] == *known), "{file}");
            digests.insert(file["digest"].to_string());
        }
        is_done.store(true, Ordering::Relaxed);
        assert!(writer.join().unwrap() > 0 && digests.len() >= 20);
    });
    let got = get(client, "skill://notes/SKILL.md").result();
    verify(client, &got["skill"]);
}

#[test]
fn directories_are_read_one_level_at_a_time() {
    let service = service();
    let client = &service.client;
    client.upload(SKILLS, "baseline", &skill_zip("notes", &[("目录/b.md", "b"), ("a.py", "a")]));
    client.write("/v1/sandbox/alice/demo", "d/x y.txt", "x");
    let entry = |uri: &str, name: &str, mime: &str| json!({ "uri": uri, "name": name, "mimeType": mime });
    let dir = "inode/directory";
    for era in ERAS {
        for (uri, expected) in [
            (
                "skill://notes",
                vec![
                    entry("skill://notes/SKILL.md", "SKILL.md", "text/markdown"),
                    entry("skill://notes/a.py", "a.py", "text/x-python"),
                    entry("skill://notes/%E7%9B%AE%E5%BD%95", "目录", dir),
                ],
            ),
            ("skill://notes/目录/", vec![entry("skill://notes/目录/b.md", "b.md", "text/markdown")]),
            ("workspace:///", vec![entry("workspace:///d", "d", dir)]),
            ("workspace:///d", vec![entry("workspace:///d/x%20y.txt", "x y.txt", "text/plain")]),
        ] {
            let post = Post::method(client, era, "resources/directory/read", json!({ "uri": uri }));
            assert_eq!(post.result()["resources"], json!(expected), "{uri}");
        }
    }
    for uri in [
        "skill://notes/SKILL.md",
        "skill://none",
        "skill://",
        "workspace:///none",
        "workspace:///..",
        "file:///etc",
        "",
    ] {
        assert_eq!(directory(client, uri).error(200)["code"], -32602, "{uri}");
    }
    // A workspace that was never written to is an empty one.
    assert_eq!(directory(client, "workspace:///").to("/mcp/bob/demo").result()["resources"], json!([]));
    let many: Vec<Entry> = (0..1_001).map(|number| Entry::file(&format!("f{number:04}"), "")).collect();
    let put = client.request("PUT", "/v1/sandbox/alice/demo/archive?path=many");
    put.header("content-type", "application/zip").body(zip(&many)).send().ok();
    let (mut seen, mut params, mut pages) = (Vec::new(), json!({ "uri": "workspace:///many" }), 0);
    loop {
        let page = Post::method(client, Era::Modern, "resources/directory/read", params.clone()).result();
        seen.extend(
            page["resources"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()),
        );
        pages += 1;
        let Some(next) = page.get("nextCursor") else { break };
        params["cursor"] = next.clone();
    }
    assert_eq!((seen.len(), pages), (1_001, 3));
    assert!(seen.is_sorted());
}
