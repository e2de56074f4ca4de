//! Events of trees: a listener is told what requests and commands do to files, in order, and is told when it missed
//! some.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{
    Client, Events, Service, Settings, digest, encoded, granted, skill, skill_zip, skills, workspace,
};

/// Both ways in which commands work on skills.
const TIERS: [&str; 2] = ["", "[isolation]\nmaximum = \"landlock\"\n"];

fn listen(client: &Client, tree: &str, after: &str) -> (Events, String) {
    let after = if after.is_empty() { String::new() } else { format!("?after={after}") };
    let mut events = client.stream("GET", &format!("{tree}/events{after}"), "application/x-ndjson", "");
    assert_eq!(events.status, 200);
    let ready = events.next().unwrap();
    assert_eq!(ready["event"], "ready", "{ready}");
    (events, ready["id"].as_str().unwrap().to_owned())
}

/// An event in short.
fn short(event: &Value) -> String {
    let word = |name: &str| event[name].as_str().map(|text| format!(" {text}")).unwrap_or_default();
    format!("{}{}{}", event["event"].as_str().unwrap(), word("from"), word("path"))
}

/// The next events up to and with the one that is `last` in short.
fn up_to(events: &mut Events, last: &str) -> Vec<String> {
    let mut heard = Vec::new();
    while heard.last().is_none_or(|heard| heard != last) {
        let event = events.next().unwrap_or_else(|| panic!("the stream ended before `{last}`: {heard:?}"));
        heard.push(short(&event));
    }
    heard
}

fn shell(client: &Client, tree: &str, line: &str) {
    let run = client.post_json(format!("{tree}/exec"), &json!({ "shell": line })).ok();
    assert_eq!(run["data"]["exit_code"], 0, "{run}");
}

#[test]
fn what_requests_and_commands_do_to_files_is_heard_at_every_tier() {
    for tier in TIERS {
        let service = Service::configured(tier);
        let client = &service.client;
        client.upload(&skills("u", "a"), "baseline", &skill_zip("技能", &[("f", "1"), ("d/x", "1")]));
        for tree in [workspace("u", "a"), skill("u", "a", "技能")] {
            let (mut events, _) = listen(client, &tree, "");
            client.write(&tree, "笔记.txt", "one\n");
            let created = events.next().unwrap();
            assert_eq!(short(&created), "created 笔记.txt");
            let stat = client.get(format!("{tree}/stat?path={}", encoded("笔记.txt"))).ok()["data"].clone();
            for fact in ["kind", "size", "mode", "etag", "modified_at"] {
                assert_eq!(created[fact], stat[fact], "{fact}");
            }
            client.write(&tree, "笔记.txt", "two\n");
            assert_eq!(short(&events.next().unwrap()), "modified 笔记.txt");
            shell(client, &tree, "mkdir -p a/b/c && echo x > a/b/c/d && echo y >> 笔记.txt && echo > end");
            let heard: BTreeSet<String> = up_to(&mut events, "created end").into_iter().collect();
            let heard: BTreeSet<String> = heard.into_iter().chain(rest(&mut events, client, &tree)).collect();
            for expected in
                ["created a", "created a/b", "created a/b/c", "created a/b/c/d", "modified 笔记.txt"]
            {
                assert!(heard.contains(expected), "{tier} {tree}: no `{expected}` in {heard:?}");
            }
            // What other users do is not heard.
            client.write(&tree.replace("/u/", "/v/"), "foreign", "x");
            shell(client, &tree, "mv a/b/c/d moved && rm -r a");
            let heard = rest(&mut events, client, &tree);
            assert!(heard.contains(&"deleted a".to_owned()), "{tier} {tree}: {heard:?}");
            let is_moved = heard.contains(&"moved a/b/c/d moved".to_owned())
                || heard.contains(&"created moved".to_owned());
            assert!(is_moved, "{tier} {tree}: {heard:?}");
            client.delete(format!("{tree}/raw/moved")).ok();
            assert_eq!(short(&events.next().unwrap()), "deleted moved");
        }
    }
}

/// The events before that of a file which is made now.
fn rest(events: &mut Events, client: &Client, tree: &str) -> Vec<String> {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static MARKS: AtomicUsize = AtomicUsize::new(0);
    // Sorts behind all others: what is found at one look is told in the order of names.
    let mark = format!("終-{}", MARKS.fetch_add(1, Ordering::Relaxed));
    client.write(tree, &mark, "x");
    let mut heard = up_to(events, &format!("created {mark}"));
    heard.pop();
    heard
}

#[test]
fn who_comes_back_hears_what_happened_meanwhile_or_that_it_cannot_be_told() {
    let service = Service::configured("[limits.events]\nhistory = 8\n");
    let client = &service.client;
    let tree = workspace("u", "a");
    let (mut events, _) = listen(client, &tree, "");
    client.write(&tree, "1", "x");
    let id = events.next().unwrap()["id"].as_str().unwrap().to_owned();
    drop(events);
    for name in ["2", "3"] {
        client.write(&tree, name, "x");
    }
    let (mut events, position) = listen(client, &tree, &id);
    assert_eq!(position, id);
    assert_eq!(up_to(&mut events, "created 3"), ["created 2", "created 3"]);
    drop(events);
    // As a browser comes back; the stream is in its form.
    let mut sent = client.connect();
    use std::io::{BufRead, Write};
    let host = client.address;
    let head = format!(
        "GET {tree}/events HTTP/1.1\r\nhost: {host}\r\naccept: text/event-stream\r\nlast-event-id: {id}\r\n\r\n"
    );
    sent.write_all(head.as_bytes()).unwrap();
    let mut lines = std::io::BufReader::new(sent).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "content-type: text/event-stream"));
    assert!(lines.any(|line| line == "event: ready"));
    assert!(lines.any(|line| line == "event: created"));
    assert!(lines.next().unwrap().starts_with("data: {\"event\":\"created\""));
    // More than the history holds, one after the other.
    let (mut events, _) = listen(client, &tree, "");
    for number in 0..12 {
        let name = format!("more-{number}");
        client.write(&tree, &name, "x");
        up_to(&mut events, &format!("created {name}"));
    }
    for after in [id.as_str(), "00000000000000aa-1"] {
        let (mut events, _) = listen(client, &tree, after);
        let rescan = events.next().unwrap();
        assert_eq!((&rescan["event"], &rescan["reason"]), (&json!("rescan"), &json!("gone")));
        let name = format!("after-{}", &after[..4]);
        client.write(&tree, &name, "x");
        assert_eq!(short(&events.next().unwrap()), format!("created {name}"));
    }
    client.get(format!("{tree}/events?after=3")).refused(400, "invalid");
}

#[test]
fn a_burst_and_a_newer_baseline_are_told_as_reasons_to_look_again() {
    let service = Service::configured("[limits.events]\nhistory = 64\n");
    let client = &service.client;
    client.upload(&skills("m", "a"), "baseline", &skill_zip("s", &[("f", "1")]));
    let tree = skill("u", "a", "s");
    let (mut events, _) = listen(client, &tree, "");
    client.upload(&skills("m", "a"), "baseline", &skill_zip("s", &[("f", "2")]));
    let rescan = events.next().unwrap();
    assert_eq!((&rescan["event"], &rescan["reason"]), (&json!("rescan"), &json!("baseline")));
    client.write(&tree, "f", "3");
    assert_eq!(short(&events.next().unwrap()), "modified f");
    client.upload(&skills("u", "a"), "overlay", &skill_zip("s", &[("g", "2")]));
    let heard: BTreeSet<String> = (0..3).map(|_| short(&events.next().unwrap())).collect();
    let expected = ["created g", "deleted f", "modified SKILL.md"].map(str::to_owned);
    assert_eq!(heard, expected.into_iter().collect());
    let tree = workspace("u", "a");
    let (mut events, _) = listen(client, &tree, "");
    shell(client, &tree, "mkdir many && cd many && for i in $(seq 500); do echo $i > f$i; done");
    let mut reasons = BTreeSet::new();
    while !reasons.contains("overflow") {
        let event = events.next().unwrap();
        reasons.extend(event["reason"].as_str().map(str::to_owned));
    }
    assert_eq!(client.files(&tree).len(), 500);
    // When it has calmed down, single changes are told again.
    let mut number = 0;
    client.write(&tree, "last-0", "x");
    while !short(&events.next().unwrap()).starts_with("created last-") {
        number += 1;
        client.write(&tree, &format!("last-{number}"), "x");
    }
}

#[test]
fn streams_are_as_many_as_they_may_be_are_their_users_and_end_with_the_service() {
    let tokens: String = [("engine", "role = \"engine\""), ("u", "role = \"user\"\nuser = \"u\"")]
        .iter()
        .map(|(token, role)| format!("[[tokens]]\nsha256 = \"{}\"\n{role}\n", digest(token)))
        .collect();
    let config = format!("{tokens}[limits.events]\nlisteners = 3\nlisteners_per_user = 2\nentries = 10\n");
    let mut service = Service::configured(&config);
    let client = service.client.with_token("u");
    let engine = service.client.with_token("engine");
    client.get(format!("{}/events", workspace("v", "a"))).refused(404, "not_found");
    client.get(format!("{}/events", skill("u", "a", "none"))).refused(404, "not_found");
    let (first, _) = listen(&client, &workspace("u", "a"), "");
    let (second, _) = listen(&client, &workspace("u", "b"), "");
    client.get(format!("{}/events", workspace("u", "c"))).refused(429, "busy");
    let (mut third, _) = listen(&engine, &workspace("v", "a"), "");
    engine.get(format!("{}/events", workspace("w", "a"))).refused(429, "busy");
    drop((first, second));
    // Places are free as soon as the service notices that the readers are gone.
    let listened = (0..600).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        engine.write(&workspace("u", "a"), "f", "x");
        engine.write(&workspace("u", "b"), "f", "x");
        let mut events =
            engine.stream("GET", &format!("{}/events", workspace("w", "a")), "application/x-ndjson", "");
        events.status == 200 && events.next().is_some()
    });
    assert!(listened, "places are never given back");
    for number in 0..10 {
        engine.write(&workspace("v", "a"), &format!("f{number}"), "x");
        up_to(&mut third, &format!("created f{number}"));
    }
    engine.write(&workspace("v", "a"), "one-too-many", "x");
    let end = third.next().unwrap();
    assert_eq!((&end["event"], &end["reason"]), (&json!("end"), &json!("too many entries")));
    assert_eq!(third.next(), None);
    engine.get(format!("{}/events", workspace("v", "a"))).refused(413, "too_large");
    let (mut last, _) = listen(&engine, &workspace("x", "a"), "");
    service.terminate();
    let told: Vec<Value> = last.by_ref().collect();
    let end = told.last().unwrap_or_else(|| panic!("the stream ended without a word"));
    assert_eq!(
        (told.len(), &end["event"], &end["reason"]),
        (1, &json!("end"), &json!("stopped")),
        "{told:?}"
    );
    assert!(service.wait().success());
}

/// Instances of inotify(7) are counted for each user, and also for each user namespace, where this test gets few of them.
#[test]
fn watches_that_no_listener_needs_give_way_when_the_kernel_has_no_more() {
    let few = "echo 3 > /proc/sys/user/max_inotify_instances && exec \"$0\" \"$@\"";
    let through = ["unshare", "--user", "--map-root-user", "sh", "-c", few].map(str::to_owned).to_vec();
    let has_namespaces = std::process::Command::new("unshare").args(["--user", "true"]).status();
    if !granted("namespaces", has_namespaces.is_ok_and(|status| status.success())) {
        return;
    }
    let service = Service::with(Settings { through, ..Settings::default() });
    let client = &service.client;
    let tree = |name: &str| workspace("u", name);
    let events = |name: &str| format!("{}/events", tree(name));
    let mut listening: Vec<Events> = ["a", "b", "c"].map(|name| listen(client, &tree(name), "").0).into();
    client.get(events("d")).refused(429, "busy");
    // Those who listen go on listening.
    client.write(&tree("c"), "f", "x");
    up_to(&mut listening[2], "created f");
    // One leaves, which the service notices at its next word.
    drop(listening.remove(0));
    let is_heard = (0..600).any(|number| {
        client.write(&tree("a"), &format!("f{number}"), "x");
        std::thread::sleep(std::time::Duration::from_millis(20));
        client.stream("GET", &events("d"), "application/x-ndjson", "").status == 200
    });
    assert!(is_heard, "an idle watch never gave way");
}
