//! Subscriptions: what becomes of files is told to who listens.

use serde_json::{Value, json};

use crate::client::{Era, LEGACY, Post, Stream, called, service};
use crate::support::{Client, Service, landlocked, skill, skill_zip};

const TREE: &str = "/v1/sandbox/alice/demo";

/// Begins to listen; the first message acknowledges what is accepted.
fn listen(client: &Client, wanted: Value) -> (Stream, Value) {
    let mut stream =
        Post::method(client, Era::Modern, "subscriptions/listen", json!({ "notifications": wanted })).begin();
    let first = stream.message().expect("an acknowledgement");
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged", "{first}");
    (stream, first["params"]["notifications"].clone())
}

/// The next notification, with its URI.
#[track_caller]
fn told(stream: &mut Stream) -> (String, Option<String>) {
    let message = stream.message().expect("a notification");
    let params = &message["params"];
    assert_eq!(params["_meta"]["io.modelcontextprotocol/subscriptionId"], 7, "{message}");
    let method = message["method"].as_str().unwrap_or_else(|| panic!("{message}"));
    (
        method.trim_start_matches("notifications/resources/").to_owned(),
        params["uri"].as_str().map(str::to_owned),
    )
}

/// What is told until `last` is.
#[track_caller]
fn until(stream: &mut Stream, last: &str) -> Vec<(String, Option<String>)> {
    let mut all = Vec::new();
    loop {
        let one = told(stream);
        let is_last = one.1.as_deref() == Some(last);
        all.push(one);
        if is_last {
            return all;
        }
    }
}

fn updated(uri: &str) -> (String, Option<String>) {
    ("updated".to_owned(), Some(uri.to_owned()))
}

#[test]
fn changes_by_every_way_are_told_and_those_of_other_files_are_not() {
    let service = service();
    let client = &service.client;
    for path in ["a.txt", "b.txt", "d/c.txt", "end.txt"] {
        client.write(TREE, path, "0");
    }
    let uris = ["workspace:///a.txt", "workspace:///d/", "workspace:///end.txt"];
    let (mut stream, accepted) = listen(client, json!({ "resourceSubscriptions": uris }));
    assert_eq!(accepted, json!({ "resourceSubscriptions": uris }));
    client.write(TREE, "b.txt", "not asked for");
    client.write(TREE, "a.txt", "by REST");
    assert_eq!(told(&mut stream), updated(uris[0]));
    let edit = json!({ "path": "a.txt", "mode": "create", "content": "by a tool", "rewrite": true });
    called(client, "Edit", edit);
    assert_eq!(told(&mut stream), updated(uris[0]));
    client.write(TREE, "d/new", "below a whole directory");
    assert_eq!(told(&mut stream), updated(uris[1]));
    if landlocked(client) {
        called(client, "Shell", json!({ "command": "echo by a command > a.txt; echo x > b.txt" }));
        assert_eq!(told(&mut stream), updated(uris[0]));
    }
    client.delete(format!("{TREE}/file?path=a.txt")).ok();
    assert_eq!(told(&mut stream), updated(uris[0]));
    client.write(TREE, "end.txt", "end");
    let rest = until(&mut stream, uris[2]);
    assert_eq!(rest, [updated(uris[2])], "nothing else, and not the list, which was not asked for");
}

#[test]
fn a_name_of_any_script_is_subscribed_to_as_its_client_spells_it() {
    let service = service();
    let client = &service.client;
    let path = "目录/你好 \"x\" %2F.txt";
    client.write(TREE, path, "0");
    let plain = "workspace:///目录/你好 \"x\" %252F.txt";
    let encoded = "workspace:///%E7%9B%AE%E5%BD%95/%E4%BD%A0%E5%A5%BD%20%22x%22%20%252F.txt";
    let (mut stream, _) = listen(client, json!({ "resourceSubscriptions": [plain, encoded] }));
    client.write(TREE, path, "1");
    assert_eq!([told(&mut stream), told(&mut stream)], [updated(plain), updated(encoded)]);
}

#[test]
fn what_comes_and_goes_changes_the_list() {
    let service = service();
    let client = &service.client;
    client.write(TREE, "a.txt", "0");
    let wanted = json!({ "resourcesListChanged": true, "toolsListChanged": true, "promptsListChanged": true,
        "resourceSubscriptions": ["workspace:///a.txt"] });
    let (mut stream, accepted) = listen(client, wanted);
    let expected = json!({ "resourcesListChanged": true, "resourceSubscriptions": ["workspace:///a.txt"] });
    assert_eq!(accepted, expected, "what can be fulfilled");
    let list_changed = ("list_changed".to_owned(), None);
    client.write(TREE, "new.txt", "new");
    assert_eq!(told(&mut stream), list_changed);
    client.write(TREE, "new.txt", "another");
    client.write(TREE, "a.txt", "1");
    assert_eq!(told(&mut stream), updated("workspace:///a.txt"), "a change of a file is none of the list");
    client.post_json(format!("{TREE}/move"), &json!({ "from": "a.txt", "to": "b.txt" })).ok();
    assert_eq!([told(&mut stream), told(&mut stream)], [list_changed, updated("workspace:///a.txt")]);
}

#[test]
fn files_of_skills_are_listened_to_by_their_names() {
    let service = service();
    let client = &service.client;
    client.upload("/v1/skills/alice/demo", "baseline", &skill_zip("notes", &[("a.md", "0")]));
    let uris = ["skill://notes/a.md", "skill://notes/SKILL.md"];
    let (mut stream, accepted) = listen(client, json!({ "resourceSubscriptions": uris }));
    assert_eq!(accepted["resourceSubscriptions"], json!(uris));
    client.write(&skill("alice", "demo", "notes"), "a.md", "1");
    assert_eq!(told(&mut stream), updated(uris[0]));
    // A new version of the application's skill may have changed any file.
    client.upload("/v1/skills/alice/demo", "baseline", &skill_zip("notes", &[("b.md", "2")]));
    let told: std::collections::BTreeSet<_> = [told(&mut stream), told(&mut stream)].into();
    assert_eq!(told, uris.map(updated).into());
    // Of one that is not there, nothing can be told.
    let params = json!({ "notifications": { "resourceSubscriptions": ["skill://none/SKILL.md"] } });
    let answer = Post::method(client, Era::Modern, "subscriptions/listen", params).send();
    assert_eq!(answer.last()["error"]["code"], -32602, "{answer:?}");
}

#[test]
fn a_user_has_so_many_listeners_and_uris_and_gives_them_back() {
    let service = Service::configured("[mcp]\nenabled = true\n[limits.events]\nlisteners_per_user = 2\n");
    let client = &service.client;
    client.write(TREE, "a.txt", "0");
    let uris: Vec<String> = (0..300).map(|number| format!("workspace:///{number}")).collect();
    let (first, accepted) = listen(client, json!({ "resourceSubscriptions": uris }));
    assert_eq!(accepted["resourceSubscriptions"], json!(uris[..256]));
    let skills: Vec<String> = (0..6).map(|number| format!("skill://s{number}/SKILL.md")).collect();
    let foreign = ["file:///etc/passwd", "workspace:///../x", "skill://", "", "workspace://a/b"];
    let wanted = [&["workspace:///a.txt"], &foreign[..]].concat();
    let (second, accepted) = listen(client, json!({ "resourceSubscriptions": wanted }));
    assert_eq!(accepted["resourceSubscriptions"], json!(["workspace:///a.txt"]));
    let more = || {
        let params = json!({ "notifications": { "resourcesListChanged": true } });
        let mut stream = Post::method(client, Era::Modern, "subscriptions/listen", params).begin();
        (stream.message().unwrap(), stream)
    };
    let (_, mut third) = more();
    let refused = third.message().expect("a refusal");
    assert_eq!(refused["error"]["data"]["code"], "busy", "{refused}");
    // Another user has places of its own, and those who leave give theirs back.
    let params = json!({ "notifications": { "resourceSubscriptions": skills } });
    let bob = Post::method(client, Era::Modern, "subscriptions/listen", params).to("/mcp/bob/demo").send();
    let accepted = &bob.messages()[0]["params"]["notifications"]["resourceSubscriptions"];
    assert_eq!(accepted, &json!(skills[..4]), "{bob:?}");
    drop((first, second));
    for number in 0.. {
        let (_, mut stream) = more();
        client.write(TREE, &format!("b{number}"), "");
        let next = stream.message().unwrap();
        if next["method"] == "notifications/resources/list_changed" {
            break;
        }
        assert_eq!(next["error"]["data"]["code"], "busy", "{next}");
    }
}

#[test]
fn a_stop_of_the_service_ends_a_subscription_with_its_result() {
    let mut service = Service::configured("shutdown_ms = 200\n[mcp]\nenabled = true\n");
    let (mut stream, _) = listen(&service.client.clone(), json!({ "resourcesListChanged": true }));
    service.terminate();
    let last = stream.message().expect("an answer");
    assert!(last["result"].is_object() && last["id"] == 7, "{last}");
    assert!(service.wait().success());
}

#[test]
fn a_client_of_an_older_revision_is_told_that_there_are_no_subscriptions() {
    let service = service();
    let hello = json!({ "protocolVersion": LEGACY, "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let begun = Post::method(&service.client, Era::Legacy, "initialize", hello).result();
    assert_eq!(begun["capabilities"]["resources"], json!({}));
    for method in ["resources/subscribe", "subscriptions/listen"] {
        let params = json!({ "uri": "workspace:///a", "notifications": {} });
        let answer = Post::method(&service.client, Era::Legacy, method, params).send();
        assert_eq!(answer.last()["error"]["code"], -32601, "{answer:?}");
    }
}
