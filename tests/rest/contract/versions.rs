//! Versions of a skill: numbered, described, staged, pinned, removed, downloaded.

use serde_json::{Value, json};

use crate::support::{Client, Reply, Service, digest, skill, skill_zip, skills};

fn served() -> (Service, String) {
    (Service::start(), skill("keeper", "x", "报表"))
}

fn publish(client: &Client, query: &str, text: &str) -> Value {
    let archive = skill_zip("报表", &[("f", text)]);
    let target = format!("{}/upload?scope=baseline{query}", skills("keeper", "x"));
    client.request("POST", target).body(&archive).send().ok()["result"]["skills"][0].clone()
}

fn numbers(client: &Client, target: &str) -> (Vec<u64>, Value) {
    let answer = client.get(target).ok();
    let list = answer["data"].as_array().unwrap();
    (list.iter().map(|kept| kept["number"].as_u64().unwrap()).collect(), answer["next"].clone())
}

#[test]
fn versions_tell_when_by_whom_and_why_and_come_in_pages() {
    let (service, skill) = served();
    let client = &service.client;
    assert_eq!(publish(client, "&title=First&message=%E5%A5%BD", "1")["number"], 1);
    publish(client, "", "22");
    let answer = client.get(format!("{skill}/versions")).ok();
    let (second, first) = (&answer["data"][0], &answer["data"][1]);
    assert!(answer.get("next").is_none(), "{answer}");
    assert!(first["published_at"].is_string() && first["replaced_at"].is_string(), "{first}");
    for (version, expected) in [
        (first, json!([1, "kept", false, false, "First", "好", "报表", "about 报表", 2, "anonymous"])),
        (second, json!([2, "current", true, false, null, null, "报表", "about 报表", 2, "anonymous"])),
    ] {
        let fields = [
            "number",
            "state",
            "current",
            "pinned",
            "title",
            "message",
            "name",
            "description",
            "files",
            "published_by",
        ];
        assert_eq!(Value::from_iter(fields.map(|field| version[field].clone())), expected);
    }
    for name in [json!(1), first["version"].clone()] {
        let name = name.as_str().map_or_else(|| name.to_string(), str::to_owned);
        assert_eq!(client.get(format!("{skill}/versions/{name}")).ok()["data"], *first);
    }
    publish(client, "", "333");
    assert_eq!(numbers(client, &format!("{skill}/versions?limit=2")), (vec![3, 2], json!("2")));
    assert_eq!(numbers(client, &format!("{skill}/versions?limit=2&cursor=2")), (vec![1], Value::Null));
    assert_eq!(numbers(client, &format!("{skill}/versions?cursor=1")), (vec![], Value::Null));
    for wrong in ["limit=0", "cursor=x", "cursor=0", "none=1"] {
        client.get(format!("{skill}/versions?{wrong}")).refused(400, "invalid");
    }
    for (name, status, code) in [("4", 404, "not_found"), ("0", 400, "invalid"), ("x", 400, "invalid")] {
        client.get(format!("{skill}/versions/{name}")).refused(status, code);
    }
    for (query, scope) in [("title=x", "overlay"), ("current=false", "overlay"), ("title=%09", "baseline")] {
        let target = format!("{}/upload?scope={scope}&{query}", skills("keeper", "x"));
        client.request("POST", target).body(skill_zip("s", &[("f", "1")])).send().refused(400, "invalid");
    }
}

#[test]
fn a_staged_version_is_for_those_who_decide_about_it() {
    let tokens = ["admin", "engine", "user"].map(|role| {
        let user = if role == "user" { "user = \"keeper\"\n" } else { "" };
        let digest = digest(role);
        format!("[[tokens]]\nname = \"{role}\"\nrole = \"{role}\"\n{user}sha256 = \"{digest}\"\n")
    });
    let service = Service::configured(&tokens.concat());
    let [admin, engine, user] = ["admin", "engine", "user"].map(|token| service.client.with_token(token));
    let skill = skill("keeper", "x", "报表");
    publish(&admin, "&current=false", "0");
    for reader in [&engine, &user] {
        reader.get(format!("{skill}/versions")).refused(404, "not_found");
    }
    publish(&admin, "", "1");
    let staged = publish(&admin, "&current=false&title=next", "2");
    assert_eq!((&staged["number"], &staged["replaced"]), (&json!(3), &json!(true)));
    assert_eq!(admin.get(format!("{skill}/versions/3")).ok()["data"]["state"], "staged");
    assert_eq!(numbers(&admin, &format!("{skill}/versions")).0, [3, 2, 1]);
    for reader in [&engine, &user] {
        assert_eq!(numbers(reader, &format!("{skill}/versions")).0, [2]);
        for rest in ["3", "3/download", staged["version"].as_str().unwrap()] {
            reader.get(format!("{skill}/versions/{rest}")).refused(404, "not_found");
        }
        assert_eq!(reader.text(&skill, "f"), "1");
    }
    let live = admin.post(format!("{skill}/rollback?version=3&message=reviewed"), "").ok();
    assert_eq!((&live["number"], &live["changed"]), (&json!(4), &json!(true)));
    assert_eq!(user.text(&skill, "f"), "2");
    assert_eq!(user.get(format!("{skill}/versions/3")).ok()["data"]["message"], "reviewed");
}

#[test]
fn a_version_is_pinned_unpinned_and_removed() {
    let (service, skill) = served();
    let client = &service.client;
    for text in ["1", "2", "3"] {
        publish(client, "", text);
    }
    let set = |method: &str, rest: &str| client.request(method, format!("{skill}/versions/{rest}")).send();
    for (method, changed) in [("PUT", true), ("PUT", false), ("DELETE", true), ("DELETE", false)] {
        assert_eq!(set(method, "1/pin").ok()["changed"], changed, "{method}");
    }
    set("PUT", "1/pin").ok();
    assert_eq!(client.get(format!("{skill}/versions/1")).ok()["data"]["pinned"], true);
    set("DELETE", "3").refused(409, "conflict");
    set("DELETE", "1").refused(409, "conflict");
    set("DELETE", "4").refused(404, "not_found");
    assert_eq!(set("DELETE", "2").ok()["skill_removed"], false);
    assert_eq!(set("DELETE", "1?force=true").ok()["skill_removed"], false);
    let last = set("DELETE", "3").ok();
    assert_eq!(
        (&last["skill_removed"], &last["data"]),
        (&json!(true), &json!("Version 3 of skill '报表' removed"))
    );
    client.get(format!("{skill}/versions")).refused(404, "not_found");
    assert_eq!(client.get(format!("{}/list", skills("keeper", "x"))).ok()["data"], json!([]));
    assert_eq!(client.get("/v1/registry").ok()["data"], json!([]));
    assert_eq!(publish(client, "", "1")["number"], 4);
}

#[test]
fn a_version_is_downloaded_as_the_same_bytes_and_only_when_the_caller_lacks_them() {
    let (service, skill) = served();
    let client = &service.client;
    let version = publish(client, "", "1")["version"].as_str().unwrap().to_owned();
    let first = client.get(format!("{skill}/versions/1/download")).bytes(200).to_vec();
    publish(client, "", "2");
    client.write(&skill, "f", "mine");
    let other = Service::start();
    std::thread::sleep(std::time::Duration::from_millis(2100));
    publish(&other.client, "", "1");
    for (client, name) in [(client, "1"), (client, version.as_str()), (&other.client, "1")] {
        assert_eq!(client.get(format!("{skill}/versions/{name}/download")).bytes(200), first, "{name}");
    }
    let asked = |layout: &str, tag: &str| -> Reply {
        let target = format!("{skill}/versions/1/download?layout={layout}");
        client.request("GET", target).header("If-None-Match", tag).send()
    };
    let flat = asked("flat", "\"none\"");
    assert!(flat.status == 200 && flat.body != first);
    assert_eq!(flat.header("etag"), Some(format!("\"{version}-flat\"").as_str()));
    let tag = format!("\"{version}\"");
    let unchanged = asked("wrapped", &tag);
    assert_eq!((unchanged.status, unchanged.header("etag")), (304, Some(tag.as_str())));
    assert_eq!(asked("flat", &tag).status, 200);
    client.get(format!("{skill}/versions/1/download?layout=odd")).refused(400, "invalid");
    let head = client.request("HEAD", format!("{skill}/versions/1/download")).send();
    assert_eq!((head.status, head.header("content-type")), (200, Some("application/zip")));
}
