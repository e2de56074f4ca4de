//! Requests of which one may succeed, sent at the same moment: the others are refused, and what the one left is whole.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{
    AT_ONCE, Client, Entry, Reply, Service, at_once, digest, skill, skill_zip, skills, workspace, zip,
};

/// How often each race is run.
const ROUNDS: usize = 6;

/// Requests in a tree of which one may succeed.
struct Race {
    name: &'static str,
    /// What they meet.
    prepare: fn(&Client, &str),
    /// Sends the request of one caller.
    ask: fn(&Client, &str, usize, &Value) -> Reply,
    /// The codes of those who come too late.
    late: &'static [&'static str],
    /// What the tree has of the caller who succeeded.
    left: fn(&Client, &str) -> String,
}

const RACES: &[Race] = &[
    Race {
        name: "a new file",
        prepare: |client, tree| {
            client.post_json(format!("{tree}/mkdir"), &json!({ "path": "race" })).ok();
        },
        ask: |client, tree, number, _| {
            let request = client.request("PUT", format!("{tree}/raw/race/file"));
            request.header("if-none-match", "*").body(number.to_string()).send()
        },
        late: &["stale"],
        left: |client, tree| client.text(tree, "race/file"),
    },
    Race {
        name: "a change of one version",
        prepare: |client, tree| {
            client.put(format!("{tree}/raw/race/file?parents=true"), "old").ok();
        },
        ask: |client, tree, number, meant| {
            let route = if number % 2 == 0 { "raw/race/file" } else { "edit?path=race/file" };
            let request = client.request("PUT", format!("{tree}/{route}"));
            request.header("if-match", meant["tag"].as_str().unwrap()).body(number.to_string()).send()
        },
        late: &["stale"],
        left: |client, tree| client.text(tree, "race/file"),
    },
    Race {
        name: "a replacement of one text",
        prepare: |client, tree| {
            client.put(format!("{tree}/raw/race/file?parents=true"), "old").ok();
        },
        ask: |client, tree, number, _| {
            let edits = json!([{ "old_string": "old", "new_string": number.to_string() }]);
            client.post_json(format!("{tree}/replace"), &json!({ "path": "race/file", "edits": edits }))
        },
        late: &["edit_mismatch"],
        left: |client, tree| client.text(tree, "race/file"),
    },
    Race {
        name: "a patch that makes two files",
        prepare: |client, tree| {
            client.post_json(format!("{tree}/mkdir"), &json!({ "path": "race" })).ok();
        },
        ask: |client, tree, number, _| {
            let made = |name: &str| {
                format!(
                    "--- /dev/null\n+++ b/race/{name}\n@@ -0,0 +1 @@\n+{number}\n\\ No newline at end of file\n"
                )
            };
            let patch = format!("{}{}", made("file"), made("other"));
            client.post_json(format!("{tree}/patch"), &json!({ "patch": patch }))
        },
        late: &["already_exists"],
        left: |client, tree| {
            let text = client.text(tree, "race/file");
            assert_eq!(text, client.text(tree, "race/other"));
            text
        },
    },
    Race {
        name: "a directory",
        prepare: |client, tree| {
            client.post_json(format!("{tree}/mkdir"), &json!({ "path": "race" })).ok();
        },
        ask: |client, tree, number, _| {
            let asked = json!({ "path": "race/dir", "mode": format!("071{number}") });
            client.post_json(format!("{tree}/mkdir"), &asked)
        },
        late: &["already_exists"],
        left: |client, tree| {
            let mode = client.get(format!("{tree}/stat?path=race/dir")).ok()["data"]["mode"].clone();
            mode.as_str().unwrap().strip_prefix("071").unwrap().to_owned()
        },
    },
    Race {
        name: "an archive as a new directory",
        prepare: |client, tree| {
            client.post_json(format!("{tree}/mkdir"), &json!({ "path": "race" })).ok();
        },
        ask: |client, tree, number, _| {
            let number = number.to_string();
            let archive = zip(&["a", "b/c"].map(|name| Entry::file(name, &number)));
            client.put(format!("{tree}/archive?path=race/dir"), archive)
        },
        late: &["already_exists"],
        left: |client, tree| {
            let text = client.text(tree, "race/dir/a");
            assert_eq!(text, client.text(tree, "race/dir/b/c"));
            text
        },
    },
    Race {
        name: "one file moved to several places",
        prepare: |client, tree| {
            client.put(format!("{tree}/raw/race/file?parents=true"), "old").ok();
        },
        ask: |client, tree, number, _| {
            let asked = json!({ "from": "race/file", "to": format!("race/{number}") });
            client.post_json(format!("{tree}/move"), &asked)
        },
        late: &["not_found"],
        left: |client, tree| {
            let entries = client.get(format!("{tree}/dir?path=race")).ok();
            let names: Vec<_> =
                entries["data"].as_array().unwrap().iter().map(|entry| &entry["name"]).collect();
            assert_eq!(names.len(), 1, "{entries}");
            names[0].as_str().unwrap().to_owned()
        },
    },
    Race {
        name: "several files moved to one place",
        prepare: |client, tree| {
            for number in 0..AT_ONCE {
                client.put(format!("{tree}/raw/race/{number}?parents=true"), number.to_string()).ok();
            }
        },
        ask: |client, tree, number, _| {
            let asked = json!({ "from": format!("race/{number}"), "to": "race/file" });
            client.post_json(format!("{tree}/move"), &asked)
        },
        late: &["already_exists"],
        left: |client, tree| {
            let text = client.text(tree, "race/file");
            for number in (0..AT_ONCE).map(|number| number.to_string()).filter(|number| *number != text) {
                assert_eq!(client.text(tree, &format!("race/{number}")), number);
            }
            text
        },
    },
    Race {
        name: "several directories copied to one place",
        prepare: |client, tree| {
            for number in 0..AT_ONCE {
                client.put(format!("{tree}/raw/race/{number}/file?parents=true"), number.to_string()).ok();
            }
        },
        ask: |client, tree, number, _| {
            let asked = json!({ "from": format!("race/{number}"), "to": "race/copy", "recursive": true });
            client.post_json(format!("{tree}/copy"), &asked)
        },
        late: &["already_exists"],
        left: |client, tree| client.text(tree, "race/copy/file"),
    },
    Race {
        name: "a directory that is removed",
        prepare: |client, tree| {
            client.put(format!("{tree}/raw/race/dir/file?parents=true"), "old").ok();
        },
        ask: |client, tree, _, _| client.delete(format!("{tree}/file?path=race/dir&recursive=true")),
        late: &["not_found"],
        left: |client, tree| {
            client.get(format!("{tree}/stat?path=race/dir")).refused(404, "not_found");
            String::new()
        },
    },
    Race {
        name: "runs of one name",
        prepare: |_, _| (),
        ask: |client, tree, number, meant| {
            let command = format!("mkdir -p race && printf {number} >>race/file");
            let asked = json!({ "shell": command, "exec_id": meant["round"] });
            client.post_json(format!("{tree}/exec"), &asked)
        },
        late: &["conflict"],
        left: |client, tree| client.text(tree, "race/file"),
    },
];

/// The number of the only caller who succeeded; the others have one of the codes `late`.
fn winner(replies: &[Reply], late: &[&str], what: &str) -> usize {
    let won: Vec<usize> = (0..replies.len()).filter(|number| replies[*number].status < 300).collect();
    for reply in replies.iter().filter(|reply| reply.status >= 300) {
        let code = reply.json()["code"].clone();
        assert!(late.iter().any(|late| code == *late), "{what}: {}", reply.json());
    }
    assert_eq!(won.len(), 1, "{what}");
    won[0]
}

fn run_all(client: &Client, tree: &str) {
    for race in RACES {
        for round in 0..ROUNDS {
            client.delete(format!("{tree}/file?path=race&recursive=true"));
            (race.prepare)(client, tree);
            let tag = client.get(format!("{tree}/raw/race/file")).header("etag").map(str::to_owned);
            let meant = json!({ "tag": tag, "round": format!("{}-{round}", digest(tree)) });
            let what = format!("{}, {tree}, round {round}", race.name);
            let replies = at_once(|number| (race.ask)(client, tree, number, &meant));
            let winner = winner(&replies, race.late, &what);
            let left = (race.left)(client, tree);
            assert!(left.is_empty() || left == winner.to_string(), "{what}: {left} of {winner}");
        }
    }
}

#[test]
fn of_requests_at_once_of_which_one_may_succeed_one_does() {
    let service = Service::configured("[limits.sessions]\nended_per_user = 256\n");
    let client = &service.client;
    client.upload(&skills("u", "a"), "baseline", &skill_zip("s", &[("race/first", "baseline")]));
    client.upload(&skills("u", "a"), "baseline", &skill_zip("live", &[("race/first", "baseline")]));
    let live = skill("u", "a", "live");
    // A command that stays keeps the view of its skill mounted, where it can be: another way into the tree.
    let stays = json!({ "shell": "sleep 600", "exec_id": "stays", "timeout_ms": 300_000 });
    client.post_json(format!("{live}/exec?background=true"), &stays).ok();
    for tree in [workspace("u", "a"), skill("u", "a", "s"), live.clone()] {
        run_all(client, &tree);
    }
    client.delete(format!("{live}/exec/stays")).ok();
}

#[test]
fn of_promotions_at_once_none_covers_another() {
    let service = Service::start();
    let client = &service.client;
    for round in 0..ROUNDS {
        let name = format!("s-{round}");
        client.upload(&skills("admin", "a"), "baseline", &skill_zip(&name, &[("list", "first\n")]));
        let user = |number: usize| skill(&format!("u{number}"), "a", &name);
        for number in 0..AT_ONCE {
            client.write(&user(number), "list", &format!("{number}\n"));
        }
        let replies = at_once(|number| client.post(format!("{}/promote", user(number)), ""));
        let winner = winner(&replies, &["conflict"], &name);
        assert_eq!(client.text(&skill("nobody", "a", &name), "list"), format!("{winner}\n"), "{name}");
        for number in 0..AT_ONCE {
            assert_eq!(client.text(&user(number), "list"), format!("{number}\n"), "{name}");
        }
        let versions = client.get(format!("{}/versions", user(0))).ok();
        assert_eq!(versions["data"].as_array().unwrap().len(), 2, "{versions}");
    }
}

#[test]
fn uploads_at_once_leave_one_of_them_whole_and_each_version_once() {
    let service = Service::start();
    let client = &service.client;
    for scope in ["baseline", "overlay"] {
        for round in 0..ROUNDS {
            let name = format!("{scope}-{round}");
            let replies = at_once(|number| {
                let text = number.to_string();
                let archive = skill_zip(&name, &[("a", &text), ("d/b", &text)]);
                client.try_upload(&skills("u", "a"), scope, &archive)
            });
            replies.iter().for_each(|reply| drop(reply.ok()));
            let tree = skill("u", "a", &name);
            assert_eq!(client.text(&tree, "a"), client.text(&tree, "d/b"), "{name}");
            if scope == "baseline" {
                let versions = client.get(format!("{tree}/versions")).ok();
                let numbers: BTreeSet<u64> = versions["data"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|one| one["number"].as_u64().unwrap())
                    .collect();
                assert_eq!(numbers, (1..=AT_ONCE as u64).collect(), "{versions}");
            }
        }
    }
}

#[test]
fn a_snapshot_that_is_restored_many_times_at_once_is_there_whole() {
    let service = Service::start();
    let client = &service.client;
    let tree = workspace("u", "a");
    for name in ["a", "d/b"] {
        client.write(&tree, name, "kept");
    }
    let taken = client.post(format!("{tree}/snapshots"), "").ok();
    let id =
        taken["id"].as_str().or(taken["data"]["id"].as_str()).unwrap_or_else(|| panic!("{taken}")).to_owned();
    for round in 0..ROUNDS {
        for name in ["a", "d/b", "new"] {
            client.write(&tree, name, "changed");
        }
        let replies = at_once(|_| client.post(format!("{tree}/snapshots/{id}/restore"), ""));
        let done = replies.iter().filter(|reply| reply.status < 300).count();
        for reply in replies.iter().filter(|reply| reply.status >= 300) {
            let code = reply.json()["code"].clone();
            assert!(code == "conflict" || code == "busy", "round {round}: {}", reply.json());
        }
        assert!(done >= 1, "round {round}");
        assert_eq!(client.files(&tree), ["a", "d/b"], "round {round}");
        assert_eq!((client.text(&tree, "a"), client.text(&tree, "d/b")), ("kept".into(), "kept".into()));
    }
}
