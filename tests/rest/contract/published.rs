//! Published states of a skill: read beside what the user sees, compared, pulled with choices, and promoted on trial.

use serde_json::{Value, json};

use crate::support::{Client, Entry, Service, digest, skill, skills, workspace, zip};

fn target() -> String {
    skill("keeper", "x", "s")
}

/// Publishes a version for all users: its `SKILL.md`, and these files.
fn publish(client: &Client, query: &str, files: &[(&str, &str)]) {
    let head = Entry::file("s/SKILL.md", "---\nname: s\ndescription: d\n---\n");
    let files = files.iter().map(|(path, text)| Entry::file(&format!("s/{path}"), text));
    let archive = zip(&std::iter::once(head).chain(files).collect::<Vec<_>>());
    let upload = format!("{}/upload?scope=baseline{query}", skills("keeper", "x"));
    client.request("POST", upload).body(&archive).send().ok();
}

fn text(client: &Client, query: &str) -> Value {
    client.get(format!("{}/content?{query}", target())).ok()["data"].clone()
}

#[test]
fn a_skill_is_read_at_its_baseline_and_at_any_version() {
    let service = Service::start();
    let client = &service.client;
    publish(client, "", &[("f", "1"), ("old/g", "g")]);
    publish(client, "", &[("f", "2")]);
    client.write(&target(), "f", "mine");
    client.write(&target(), "own", "own");
    let first = client.get(format!("{}/versions/1", target())).ok()["data"]["version"].clone();
    let first = first.as_str().unwrap();
    for (state, expected) in [
        ("layer=merged", "mine"),
        ("layer=baseline", "2"),
        ("version=2", "2"),
        ("version=1", "1"),
        (&format!("version={first}"), "1"),
    ] {
        let read = client.get(format!("{}/content?path=f&{state}", target())).ok();
        assert_eq!(read["data"], expected, "{state}");
        let layer = if expected == "mine" { "overlay" } else { "baseline" };
        assert_eq!(read["layer"], layer, "{state}");
        let raw = client.get(format!("{}/raw/f?{state}", target()));
        assert_eq!(raw.bytes(200), expected.as_bytes(), "{state}");
        let head = client.request("HEAD", format!("{}/raw/f?{state}", target())).send();
        assert_eq!(head.header("etag"), raw.header("etag"), "{state}");
        let facts = client.get(format!("{}/stat?path=f&{state}", target())).ok()["data"].clone();
        assert_eq!((&facts["size"], &facts["layer"]), (&json!(expected.len()), &json!(layer)), "{state}");
        assert_eq!(facts["etag"].as_str(), raw.header("etag"));
    }
    for (state, files) in [
        ("layer=merged", json!(["SKILL.md", "f", "own"])),
        ("layer=baseline", json!(["SKILL.md", "f"])),
        ("version=1", json!(["SKILL.md", "f", "old/g"])),
    ] {
        assert_eq!(client.get(format!("{}/files?{state}", target())).ok()["data"], files, "{state}");
    }
    let dir = client.get(format!("{}/dir?path=old&version=1", target())).ok();
    assert_eq!((&dir["data"][0]["name"], &dir["data"][0]["layer"]), (&json!("g"), &json!("baseline")));
    assert_eq!(
        client.get(format!("{}/raw/f?version=1&range=", target())).refused(400, "invalid")["code"],
        "invalid"
    );
    let part = client
        .request("GET", format!("{}/raw/old/g?version=1", target()))
        .header("range", "bytes=0-0")
        .send();
    assert_eq!(part.bytes(206), b"g");
    // What a user hid is there for who asks for the baseline, and a version does not come from a change.
    client.delete(format!("{}/file?path=f", target())).ok();
    client.get(format!("{}/content?path=f", target())).refused(404, "not_found");
    assert_eq!(text(client, "path=f&layer=baseline"), "2");
    for (query, status, code) in [
        ("path=f&version=9", 404, "not_found"),
        ("path=own&layer=baseline", 404, "not_found"),
        ("path=old/g&version=2", 404, "not_found"),
        ("path=f&layer=baseline&version=1", 400, "invalid"),
        ("path=f&layer=merged&version=1", 400, "invalid"),
        ("path=f&layer=overlay", 400, "invalid"),
        ("path=f&version=x", 400, "invalid"),
        ("path=../f&version=1", 403, "path_escape"),
    ] {
        client.get(format!("{}/content?{query}", target())).refused(status, code);
    }
    client.get(format!("{}/content?path=f&version=1", workspace("keeper", "x"))).refused(400, "invalid");
    client.get(format!("{}/files?layer=baseline", skill("keeper", "x", "none"))).refused(404, "not_found");
    client.put(format!("{}/raw/f?version=1", target()), "x").refused(400, "invalid");
}

#[test]
fn a_version_is_searched_and_packed_like_what_the_user_sees() {
    let service = Service::start();
    let client = &service.client;
    publish(client, "", &[("f", "first\n"), ("old/g", "first too\n")]);
    publish(client, "", &[("f", "second\n"), ("new/h", "second too\n")]);
    client.write(&target(), "f", "mine\n");
    client.delete(format!("{}/file?path=new&recursive=true", target())).ok();
    for (state, files, found, below) in [
        (None, json!(["f"]), json!(["f"]), ("old", 404)),
        (Some(("layer", "merged")), json!(["f"]), json!(["f"]), ("old", 404)),
        (Some(("layer", "baseline")), json!(["f", "new/h"]), json!(["f", "new/h"]), ("new", 200)),
        (Some(("version", "2")), json!(["f", "new/h"]), json!(["f", "new/h"]), ("new", 200)),
        (Some(("version", "1")), json!(["f", "old/g"]), json!(["f", "old/g"]), ("old", 200)),
    ] {
        let query = state.map_or(String::new(), |(name, value)| format!("&{name}={value}"));
        let get = |path: &str| client.get(format!("{}/{path}{query}", target()));
        let names = get("glob?pattern=[!S]*").ok()["data"].clone();
        assert_eq!(names, files, "{query}");
        let facts = get("glob?pattern=f&detail=true").ok()["data"][0].clone();
        let is_own = state.is_none_or(|(_, value)| value == "merged");
        assert_eq!(facts["layer"], if is_own { "overlay" } else { "baseline" }, "{query}");
        let mut body = json!({ "pattern": "first|second|mine" });
        if let Some((name, value)) = state {
            body[name] = value.into();
        }
        let lines = client.post_json(format!("{}/grep", target()), &body).ok()["data"].clone();
        let in_files: Vec<&Value> = lines.as_array().unwrap().iter().map(|line| &line["path"]).collect();
        assert_eq!(json!(in_files), found, "{query}");
        body["path"] = "f".into();
        let lines = client.post_json(format!("{}/grep", target()), &body).ok()["data"].clone();
        assert_eq!(
            lines[0]["text"],
            text(client, &format!("path=f{query}")).as_str().unwrap().trim_end(),
            "{query}"
        );
        let packed = get("archive?path=.");
        let mut archive = ::zip::ZipArchive::new(std::io::Cursor::new(packed.bytes(200))).unwrap();
        let mut held = String::new();
        std::io::Read::read_to_string(&mut archive.by_name("f").unwrap(), &mut held).unwrap();
        assert_eq!(text(client, &format!("path=f{query}")), held, "{query}");
        let (directory, status) = below;
        assert_eq!(get(&format!("archive?path={directory}")).status, status, "{query}");
        assert_eq!(get(&format!("glob?pattern=*&path={directory}")).status, status, "{query}");
    }
    for path in ["glob?pattern=*&version=9", "archive?version=9"] {
        client.get(format!("{}/{path}", target())).refused(404, "not_found");
    }
    for path in ["glob?pattern=*&layer=baseline", "archive?version=1"] {
        client.get(format!("{}/{path}", workspace("keeper", "x"))).refused(400, "invalid");
    }
    let both = json!({ "pattern": "x", "layer": "baseline", "version": "1" });
    client.post_json(format!("{}/grep", target()), &both).refused(400, "invalid");
}

#[test]
fn a_staged_version_is_read_and_compared_by_those_who_decide_about_it() {
    let tokens = ["admin", "user", "other"].map(|name| {
        let role = if name == "admin" { "role = \"admin\"" } else { "role = \"user\"\nuser = \"keeper\"" };
        let role = if name == "other" { "role = \"user\"\nuser = \"other\"" } else { role };
        format!("[[tokens]]\nname = \"{name}\"\n{role}\nsha256 = \"{}\"\n", digest(name))
    });
    let service = Service::configured(&tokens.concat());
    let [admin, user, other] = ["admin", "user", "other"].map(|token| service.client.with_token(token));
    publish(&admin, "", &[("f", "1\n")]);
    publish(&admin, "&current=false", &[("f", "2\n")]);
    assert_eq!(text(&admin, "path=f&version=2"), "2\n");
    assert_eq!(admin.get(format!("{}/diff?from=1&to=2", target())).ok()["data"][0]["path"], "f");
    assert_eq!(text(&user, "path=f&version=1"), "1\n");
    for path in [
        "content?path=f&version=2",
        "files?version=2",
        "raw/f?version=2",
        "diff?from=1&to=2",
        "diff?from=2",
        "glob?pattern=*&version=2",
        "archive?version=2",
    ] {
        user.get(format!("{}/{path}", target())).refused(404, "not_found");
    }
    for path in ["content?path=f&version=1", "files?layer=baseline", "diff?from=1"] {
        other.get(format!("{}/{path}", target())).refused(404, "not_found");
    }
}

#[test]
fn two_versions_are_compared_and_the_patch_makes_the_one_of_the_other() {
    let service = Service::start();
    let client = &service.client;
    publish(client, "", &[("same", "s\n"), ("f", "1\n2\n"), ("gone/a", "a\n"), ("kind", "file\n")]);
    publish(client, "", &[("same", "s\n"), ("f", "1\n3\n"), ("new/b", "b\n"), ("kind/now", "directory\n")]);
    publish(client, "", &[("same", "s\n")]);
    // What a user changes is no part of it.
    client.write(&target(), "same", "mine\n");
    let answer = client.get(format!("{}/diff?from=1&to=2", target())).ok();
    let told: Vec<(&str, &str)> = answer["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["path"].as_str().unwrap(), one["change"].as_str().unwrap()))
        .collect();
    let expected = [
        ("f", "modified"),
        ("gone/a", "deleted"),
        ("kind", "deleted"),
        ("kind/now", "created"),
        ("new/b", "created"),
    ];
    assert_eq!(told, expected);
    assert_eq!(answer["data"][0]["diff"], "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n 1\n-2\n+3\n");
    assert_eq!(
        (&answer["data"][0]["before_bytes"], &answer["data"][1]["after_bytes"]),
        (&json!(4), &Value::Null)
    );
    let named =
        |number: u64| client.get(format!("{}/versions/{number}", target())).ok()["data"]["version"].clone();
    assert_eq!((&answer["from"], &answer["to"]), (&named(1), &named(2)));
    assert!(answer.get("skill_status").is_none());
    let back = client.get(format!("{}/diff?from=2&to=1&limit=2", target())).ok();
    assert_eq!((back["data"].as_array().unwrap().len(), &back["next"]), (2, &json!("gone/a")));
    let to_current = client.get(format!("{}/diff?from=2", target())).ok();
    assert_eq!((to_current["data"].as_array().unwrap().len(), &to_current["to"]), (3, &named(3)));
    assert_eq!(client.get(format!("{}/diff?from=2&to=2", target())).ok()["data"], json!([]));
    for (query, status, code) in [
        ("to=1", 400, "invalid"),
        ("from=x", 400, "invalid"),
        ("from=1&to=", 400, "invalid"),
        ("from=9", 404, "not_found"),
        ("from=1&to=9", 404, "not_found"),
    ] {
        client.get(format!("{}/diff?{query}", target())).refused(status, code);
    }
}

#[test]
fn a_pull_decides_about_conflicts_one_by_one() {
    let service = Service::start();
    let client = &service.client;
    publish(client, "", &[("a", "1"), ("b", "1"), ("c", "1")]);
    for path in ["a", "b", "c"] {
        client.write(&target(), path, "mine");
    }
    publish(client, "", &[("a", "2"), ("b", "2"), ("c", "1")]);
    let pull = |query: &str, body: Value| {
        client.request("POST", format!("{}/pull{query}", target())).body(body.to_string()).send()
    };
    let would = pull("?dry_run=true", json!({ "choices": { "a": "theirs" } })).ok();
    assert_eq!((&would["conflicts"], &would["refreshed"]), (&json!(["a", "b"]), &json!(1)));
    for (body, status, code) in [
        (json!({ "choices": { "c": "theirs" } }), 409, "conflict"),
        (json!({ "choices": { "none": "ours", "a": "theirs" } }), 409, "conflict"),
        (json!({ "choices": { "a": "both" } }), 400, "invalid"),
        (json!({ "choice": {} }), 400, "invalid"),
        (json!([]), 400, "invalid"),
    ] {
        pull("", body.clone()).refused(status, code);
        pull("?dry_run=true", body).refused(status, code);
    }
    let many: serde_json::Map<String, Value> =
        (0..1_001).map(|number| (number.to_string(), json!("ours"))).collect();
    pull("", json!({ "choices": many })).refused(400, "invalid");
    assert_eq!(text(client, "path=a"), "mine", "nothing was done");
    let pulled = pull("", json!({ "choices": { "a": "theirs" } })).ok();
    assert_eq!((&pulled["conflicts"], &pulled["refreshed"]), (&json!(["a", "b"]), &json!(1)));
    assert_eq!(["a", "b", "c"].map(|path| text(client, &format!("path={path}"))), ["2", "mine", "mine"]);
    // The other way round, and nothing is left to decide.
    publish(client, "", &[("a", "2"), ("b", "3"), ("c", "3")]);
    let pulled = pull("?prefer=theirs", json!({ "choices": { "c": "ours" } })).ok();
    assert_eq!(pulled["conflicts"], json!(["b", "c"]));
    assert_eq!(["a", "b", "c"].map(|path| text(client, &format!("path={path}"))), ["2", "3", "mine"]);
    pull("", json!({ "choices": { "c": "ours" } })).refused(409, "conflict");
    assert_eq!(pull("", json!({})).ok()["changed"], false);
}

#[test]
fn a_promotion_on_trial_tells_what_it_would_publish_and_publishes_nothing() {
    let service = Service::start();
    let client = &service.client;
    let promote = |query: &str| client.post(format!("{}/promote?dry_run=true{query}", target()), "");
    publish(client, "", &[("a", "1"), ("b", "1")]);
    promote("").refused(409, "conflict");
    client.write(&target(), "a", "mine");
    client.write(&target(), "new", "new");
    let versions = || client.get(format!("{}/versions", target())).ok()["data"].clone();
    let before = versions();
    let would = promote("&title=x").ok();
    assert_eq!(
        (&would["version"], &would["number"], &would["replaced"]),
        (&Value::Null, &Value::Null, &json!(true))
    );
    assert_eq!(would["replaces"], before[0]["version"]);
    assert_eq!((&would["changes_total"], &would["conflicts"]), (&json!(2), &json!([])));
    publish(client, "", &[("a", "2"), ("b", "1")]);
    let before = versions();
    let would = promote("").ok();
    assert_eq!((&would["conflicts"], &would["conflicts_total"]), (&json!(["a"]), &json!(1)));
    assert_eq!(versions(), before);
    client.post(format!("{}/promote", target()), "").refused(409, "conflict");
    // One that only the user has replaces nothing.
    let own = skill("keeper", "x", "own");
    client.write(&own, "f", "1");
    let would = client.post(format!("{own}/promote?dry_run=true"), "").ok();
    assert_eq!((&would["replaced"], &would["replaces"]), (&json!(false), &Value::Null));
    client
        .post(format!("{}/promote?dry_run=true", skill("keeper", "x", "none")), "")
        .refused(404, "not_found");
}

#[test]
fn a_trial_is_for_those_who_may_promote() {
    let digest = digest("user");
    let config = format!("[[tokens]]\nrole = \"user\"\nuser = \"keeper\"\nsha256 = \"{digest}\"\n");
    let service = Service::configured(&config);
    let user = service.client.with_token("user");
    user.write(&target(), "f", "1");
    user.post(format!("{}/promote?dry_run=true", target()), "").refused(403, "denied");
}

#[test]
fn only_the_documents_that_are_the_same_for_all_are_compressed() {
    let service = Service::start();
    let client = &service.client;
    let asked =
        |path: &str, codings: &str| client.request("GET", path).header("accept-encoding", codings).send();
    for path in ["/openapi.json", "/docs"] {
        let plain = client.get(path);
        assert_eq!((plain.header("content-encoding"), plain.header("vary")), (None, Some("accept-encoding")));
        let packed = asked(path, "br;q=1, gzip;q=0.5");
        assert_eq!(
            (packed.header("content-encoding"), packed.header("vary")),
            (Some("gzip"), Some("accept-encoding"))
        );
        assert_eq!(packed.header("content-type"), plain.header("content-type"));
        let (packed, plain) = (packed.bytes(200), plain.bytes(200));
        assert!(packed.len() * 3 < plain.len(), "{} of {}", packed.len(), plain.len());
        let mut unpacked = Vec::new();
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(packed), &mut unpacked).unwrap();
        assert!(unpacked == plain);
        assert_eq!(asked(path, "gzip;q=0, *").header("content-encoding"), None);
    }
    for path in ["/v1/info", "/v1/whoami", "/metrics"] {
        assert_eq!(asked(path, "gzip").header("content-encoding"), None, "{path}");
    }
}
