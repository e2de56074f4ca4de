//! What users take on the disk, agent by agent.

use serde_json::{Value, json};

use crate::support::{Client, Service, digest, skill, workspace};

fn seen(client: &Client, query: &str) -> Vec<Value> {
    client.get(format!("/v1/usage{query}")).ok()["data"].as_array().unwrap().clone()
}

/// The pairs of an answer.
fn pairs(client: &Client, query: &str) -> Vec<String> {
    let pair = |one: &Value| format!("{}/{}", one["user"].as_str().unwrap(), one["agent"].as_str().unwrap());
    seen(client, query).iter().map(pair).collect()
}

#[test]
fn what_users_take_is_told_to_those_who_may_know() {
    let mut config = String::new();
    for (name, role) in [
        ("admin", "role = \"admin\""),
        ("manager", "role = \"manager\"\nagent = \"a\""),
        ("alice", "role = \"user\"\nuser = \"alice\""),
        ("bound", "role = \"user\"\nuser = \"alice\"\nagent = \"b\""),
    ] {
        config.push_str(&format!("[[tokens]]\nname = \"{name}\"\n{role}\nsha256 = \"{}\"\n", digest(name)));
    }
    let service = Service::configured(&config);
    let [admin, manager, alice, bound] =
        ["admin", "manager", "alice", "bound"].map(|token| service.client.with_token(token));
    assert_eq!(seen(&admin, ""), Vec::<Value>::new());
    admin.put(format!("{}/raw/f", workspace("alice", "a")), vec![b'x'; 100_000]).ok();
    admin.write(&workspace("bob", "a"), "f", "x");
    // With an overlay alone, and without a workspace.
    admin.put(format!("{}/edit?path=f", skill("alice", "b", "own")), vec![b'x'; 50_000]).ok();
    assert_eq!(admin.post_json(format!("{}/snapshots", workspace("alice", "a")), &json!({})).status, 201);
    let own = &seen(&admin, "?user=alice&agent=a")[0];
    assert!(own["workspace"]["bytes"].as_u64().unwrap() >= 100_000, "{own}");
    assert!(own["snapshots"]["bytes"].as_u64().unwrap() >= 100_000, "{own}");
    assert_eq!((&own["skills"], &own["more_skills"]), (&json!({ "bytes": 0, "files": 0 }), &json!(0)));
    let overlay = &seen(&admin, "?agent=b")[0];
    assert!(overlay["skills"]["bytes"].as_u64().unwrap() >= 50_000, "{overlay}");
    for (client, query, expected) in [
        (&admin, "", &["alice/a", "alice/b", "bob/a"][..]),
        (&admin, "?user=bob", &["bob/a"]),
        (&admin, "?user=nobody", &[]),
        (&manager, "", &["alice/a", "bob/a"]),
        (&alice, "", &["alice/a", "alice/b"]),
        (&bound, "", &["alice/b"]),
    ] {
        assert_eq!(pairs(client, query), expected, "{query}");
    }
    for (client, query) in [(&manager, "?agent=b"), (&alice, "?user=bob"), (&bound, "?agent=a")] {
        client.get(format!("/v1/usage{query}")).refused(404, "not_found");
    }
    let first = admin.get("/v1/usage?limit=2").ok();
    assert_eq!((first["data"].as_array().unwrap().len(), &first["next"]), (2, &json!("alice/b")));
    let second = admin.get("/v1/usage?limit=2&cursor=alice/b").ok();
    assert_eq!((&second["data"][0]["user"], &second["next"]), (&json!("bob"), &Value::Null));
    for wrong in ["?limit=0", "?user=..", "?agent=a%2Fb", "?none=1"] {
        admin.get(format!("/v1/usage{wrong}")).refused(400, "invalid");
    }
}
