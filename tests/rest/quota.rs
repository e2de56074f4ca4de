//! Quotas, as callers meet them: `quota` (507) for requests, and runs that are ended.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Service, Snapshot, landlocked, skill, skill_zip, skills, workspace};

const MIB: u64 = 1024 * 1024;
const LIMIT: u64 = 32 * MIB;
const FILES: u64 = 2000;

/// A service with small limits, at the strongest tier or at `landlock`.
fn service(tier: &str) -> Option<Service> {
    limited(tier, &format!("bytes = {LIMIT}\nfiles = {FILES}\n"))
}

/// A service with these `limits.disk`.
fn limited(tier: &str, limits: &str) -> Option<Service> {
    let service = Service::configured(&format!(
        "durability = \"relaxed\"\n[isolation]\nmaximum = \"{tier}\"\n[limits.disk]\n{limits}"
    ));
    if !landlocked(&service.client) {
        return None;
    }
    let info = service.client.get("/v1/info").ok();
    let granted = info["data"]["host"]["enforcement"]["tier"].as_str().unwrap();
    if granted != tier {
        eprintln!("SKIPPED: tier `{tier}`, because the host grants `{granted}`");
        return None;
    }
    Some(service)
}

fn services() -> impl Iterator<Item = Service> {
    ["namespaces", "landlock"].into_iter().filter_map(service)
}

fn exec(service: &Service, tree: &str, line: &str) -> Value {
    service.client.post_json(format!("{tree}/exec"), &json!({ "shell": line })).ok()
}

/// Bytes and names below a directory.
fn measure(dir: &Path) -> (u64, u64) {
    let Ok(entries) = std::fs::read_dir(dir) else { return (0, 0) };
    entries.map(Result::unwrap).fold((0, 0), |(bytes, names), entry| {
        let metadata = entry.metadata().unwrap();
        let below = if metadata.is_dir() { measure(&entry.path()) } else { (0, 0) };
        (bytes + below.0 + metadata.len(), names + below.1 + 1)
    })
}

/// Waits until the service has seen what a run left: a new file is refused, or is not.
fn wait_until_writes_are(service: &Service, tree: &str, status: u16) {
    let begun = Instant::now();
    loop {
        let reply = service.client.put(format!("{tree}/raw/probe"), "x".repeat(5000));
        if reply.status == 201 {
            // One that takes the place of as much would always be let in.
            service.client.delete(format!("{tree}/file?path=probe")).ok();
        }
        if reply.status == status {
            return;
        }
        let used = || service.client.get(format!("{tree}/usage")).ok();
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(30), "not {status}, but {}; {}", reply.json(), used());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn every_request_that_would_exceed_the_limit_is_507_and_changes_nothing() {
    let Some(service) = service("landlock") else { return };
    let client = &service.client;
    let large = "x".repeat(usize::try_from(24 * MIB).unwrap());
    client.upload(&skills("u", "a"), "baseline", &skill_zip("s", &[("large", &large), ("d/large", &large)]));
    let archive = skill_zip("s", &[("one", &large), ("two", &large)]);
    for tree in [workspace("u", "a"), skill("u", "a", "s")] {
        client.put(format!("{tree}/raw/mine"), &large).ok();
        client.write(&tree, "text", "line\n");
        let before = Snapshot::of(&service.root);
        let long = "y".repeat(usize::try_from(9 * MIB).unwrap());
        let mut refused = vec![
            client.put(format!("{tree}/raw/new/dir/file?parents=true"), &long),
            client.put(format!("{tree}/edit?path=text&start=1&end=1"), &long),
            client.put(format!("{tree}/edit?path=new"), &long),
            client.post_json(
                format!("{tree}/replace"),
                &json!({ "path": "text", "edits": [{ "old_string": "line", "new_string": long }] }),
            ),
            client.post_json(format!("{tree}/copy"), &json!({ "from": "mine", "to": "copy" })),
            client.post_json(
                format!("{tree}/patch"),
                &json!({ "patch": "diff --git a/mine b/new/copy\ncopy from mine\ncopy to new/copy\n" }),
            ),
        ];
        if tree.starts_with("/v1/skills") {
            let rename = |from: &str| {
                client.post_json(format!("{tree}/move"), &json!({ "from": from, "to": "moved" }))
            };
            let copied = json!({ "from": "d", "to": "copied", "recursive": true });
            refused.extend([
                client.post_json(format!("{tree}/copy"), &copied),
                rename("large"),
                rename("d"),
                client.try_upload(&skills("u", "a"), "overlay", &archive),
            ]);
        }
        for reply in refused {
            let answer = reply.json();
            assert_eq!((reply.status, &answer["code"]), (507, &json!("quota")), "{answer}");
            assert_eq!(answer["limit"], "limits.disk.bytes", "{answer}");
            assert_eq!(answer["limit_bytes"], LIMIT, "{answer}");
            assert!(
                answer["used_bytes"].as_u64().unwrap() + answer["needed_bytes"].as_u64().unwrap() > LIMIT
            );
            before.unchanged(&service.root, &answer.to_string());
        }
        client.delete(format!("{tree}/file?path=mine")).ok();
        client.write(&tree, "new", &long);
    }
}

/// Runs `line`, which goes on filling `tree`, and expects that it is ended soon.
fn ended(service: &Service, tree: &str, line: &str) -> Value {
    let begun = Instant::now();
    let answer = exec(service, tree, line);
    let (result, took) = (&answer["data"], begun.elapsed());
    assert_eq!(result["limit"], "disk", "{answer}");
    assert_eq!((&result["exit_code"], &result["signal"]), (&json!(-1), &json!("SIGKILL")), "{answer}");
    assert_eq!(result["timed_out"], false, "{answer}");
    assert!(result["hint"].is_string(), "{answer}");
    // A second on an idle machine; far from the deadline, which would end it too.
    assert!(took < Duration::from_secs(20), "ended after {took:?}");
    eprintln!("ended after {took:?} {tree}");
    answer
}

/// 1 MiB files without end; and an end all the same, which stays below 300 MB, should the service not stop it.
const FILLING: &str =
    "i=0; while [ $i -lt 250 ]; do head -c 1048576 /dev/zero > f$i; sleep 0.02; i=$((i+1)); done";
#[test]
fn temporary_files_have_a_limit_of_their_own_beside_that_of_the_workspace() {
    for tier in ["namespaces", "landlock"] {
        let limits = format!("bytes = {}\ntmp_bytes = {}\n", 2048 * MIB, 8 * MIB);
        let Some(service) = limited(tier, &limits) else { continue };
        service.client.upload(&skills("u", "a"), "baseline", &skill_zip("s", &[]));
        for tree in [workspace("u", "a"), skill("u", "a", "s")] {
            let answer = ended(&service, &tree, &format!("cd $TMPDIR; {FILLING}"));
            assert!(answer["data"]["hint"].as_str().unwrap().contains("$TMPDIR"), "{answer}");
            // Nothing else is full, and the same user's commands find room again.
            service.client.write(&tree, "file", "text");
            let line = "rm $TMPDIR/f*; head -c 4000000 /dev/zero > $TMPDIR/f; head -c 40000000 /dev/zero > f; sleep 1; \
                        rm f $TMPDIR/f; echo done";
            let answer = exec(&service, &tree, line);
            assert_eq!(
                (&answer["data"]["stdout"], &answer["data"]["limit"]),
                (&json!("done\n"), &Value::Null)
            );
        }
    }
}

/// Empty files without end, but for 60 000. With rests, so that a busy machine looks before there are twice as many as may
/// be, which no command could remove.
const LITTERING: &str =
    "i=0; while [ $i -lt 60000 ]; do : > e$i; i=$((i+1)); [ $((i % 200)) = 0 ] && sleep 0.02; done; sleep 5";

#[test]
fn a_command_that_fills_a_workspace_is_ended_and_the_user_can_clear_up() {
    for service in services() {
        let tree = workspace("u", "a");
        let place = service.root.join("sandbox/u/a");
        for (line, clear) in [(FILLING, "rm -f f*"), (LITTERING, "find . -name 'e*' -delete")] {
            ended(&service, &tree, line);
            let (bytes, names) = measure(&place);
            assert!(bytes < 200 * MIB && names < 55_000, "{bytes} bytes in {names} names");
            wait_until_writes_are(&service, &tree, 507);
            // Others do not notice, and a command that removes things may.
            assert_eq!(exec(&service, &workspace("v", "a"), "echo 1 > f; cat f")["data"]["stdout"], "1\n");
            let cleared = exec(&service, &tree, clear);
            assert_eq!((&cleared["data"]["exit_code"], &cleared["data"]["limit"]), (&json!(0), &Value::Null));
            wait_until_writes_are(&service, &tree, 201);
        }
    }
}

#[test]
fn what_a_command_leaves_in_its_home_counts() {
    for service in services() {
        let tree = workspace("u", "a");
        ended(&service, &tree, &format!("cd \"$HOME\"; {FILLING}"));
        wait_until_writes_are(&service, &tree, 507);
        exec(&service, &tree, "rm -f \"$HOME\"/f*");
        wait_until_writes_are(&service, &tree, 201);
    }
}

#[test]
fn a_command_that_fills_a_skill_is_ended_and_a_copy_is_not_taken_in() {
    for service in services() {
        service.client.upload(&skills("u", "a"), "baseline", &skill_zip("s", &[("f", "1")]));
        let tree = skill("u", "a", "s");
        let answer = ended(&service, &tree, FILLING);
        let is_copy = answer["absorbed"]["refused"].is_string();
        let (bytes, names) = measure(&service.root.join("skill/overlay/u/a"));
        assert!(bytes < 200 * MIB, "{bytes} bytes");
        assert_eq!(is_copy, names == 0, "{names} names in the overlay: {answer}");
        if !is_copy {
            wait_until_writes_are(&service, &tree, 507);
            assert_eq!(exec(&service, &tree, "rm f*")["data"]["exit_code"], 0);
        }
        wait_until_writes_are(&service, &tree, 201);
    }
}

#[test]
fn a_short_command_that_writes_too_much_to_a_copy_is_told_that_nothing_was_kept() {
    let Some(service) = service("landlock") else { return };
    service.client.upload(&skills("u", "a"), "baseline", &skill_zip("s", &[("f", "1")]));
    let tree = skill("u", "a", "s");
    let before = Snapshot::of(&service.root.join("skill"));
    let line = format!("echo done; rm f; head -c {} /dev/zero > large", LIMIT + MIB);
    let answer = exec(&service, &tree, &line);
    assert_eq!((&answer["data"]["stdout"], &answer["data"]["limit"]), (&json!("done\n"), &json!("disk")));
    assert!(answer["data"]["hint"].as_str().unwrap().contains("nothing"), "{answer}");
    let refused = answer["absorbed"]["refused"].as_str().unwrap();
    assert!(refused.contains("limits.disk.bytes"), "{answer}");
    let answer = service.client.execute(&tree, "bash", &["-c", &line]);
    assert!(answer["data"].as_str().unwrap().contains("nothing that the run changed"), "{answer}");
    before.unchanged(&service.root.join("skill"), "a refused run");
}

#[test]
fn a_run_above_the_limit_may_add_a_little_and_those_that_go_on_are_refused() {
    let Some(service) = services().next() else { return };
    let tree = workspace("u", "a");
    // Short runs, which end before they are looked at; one that is looked at is ended, and the next one goes on.
    exec(&service, &tree, &format!("head -c {} /dev/zero > large", LIMIT + MIB));
    let size =
        || service.client.get(format!("{tree}/stat?path=large")).ok()["data"]["size"].as_u64().unwrap();
    while size() <= LIMIT {
        exec(&service, &tree, &format!("head -c {MIB} /dev/zero >> large"));
    }
    wait_until_writes_are(&service, &tree, 507);
    let answer = exec(&service, &tree, "echo more > more; sleep 0.8");
    assert_eq!(
        (&answer["data"]["exit_code"], &answer["data"]["limit"]),
        (&json!(0), &Value::Null),
        "{answer}"
    );
    let begun = Instant::now();
    let line = format!("head -c {} /dev/zero > again$RANDOM", 17 * MIB);
    let refused = (0..20).find_map(|_| {
        std::thread::sleep(Duration::from_millis(600));
        let reply = service.client.post_json(format!("{tree}/exec"), &json!({ "shell": line }));
        (reply.status != 200).then_some(reply)
    });
    let refused = refused.expect("short runs go on for ever");
    assert_eq!((refused.status, &refused.json()["code"]), (507, &json!("quota")), "{}", refused.json());
    eprintln!("refused after {:?}", begun.elapsed());
    let (bytes, _) = measure(&service.root.join("sandbox/u/a"));
    assert!(bytes < 300 * MIB, "{bytes} bytes");
    // Requests still remove, and that is enough.
    let names = service.client.files(&tree);
    for name in names.iter().filter(|name| name.starts_with("again")) {
        service.client.delete(format!("{tree}/file?path={name}")).ok();
    }
    assert_eq!(exec(&service, &tree, "rm large")["data"]["exit_code"], 0);
    wait_until_writes_are(&service, &tree, 201);
}

#[test]
fn nothing_is_written_when_the_disk_is_to_stay_free() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path().join("data");
    let with = |free: u64| {
        Service::with(crate::support::Settings {
            config: Some(format!("[limits.disk]\nfree_bytes = {free}\n")),
            root: Some(root.clone()),
            ..Default::default()
        })
    };
    let tree = workspace("u", "a");
    with(0).client.write(&tree, "f", "1");
    let there = rustix::fs::statvfs(&root).unwrap();
    // Not so high that another program which fills this disk ends every run.
    let floor = there.f_bavail * there.f_frsize / 4 * 5;
    let service = with(floor);
    let reply = service.client.put(format!("{tree}/raw/g"), "1");
    let answer = reply.json();
    assert_eq!((reply.status, &answer["code"]), (507, &json!("quota")));
    assert_eq!((&answer["limit"], &answer["limit_bytes"]), (&json!("limits.disk.free_bytes"), &json!(floor)));
    assert_eq!(service.client.try_upload(&skills("u", "a"), "overlay", &skill_zip("s", &[])).status, 507);
    service.client.delete(format!("{tree}/file?path=f")).ok();
    if landlocked(&service.client) {
        // A run that writes is ended at the first look that finds so; one that does not goes on.
        let ran = exec(
            &service,
            &tree,
            "i=0; while [ $i -lt 100 ]; do echo x >> a; sleep 0.05; head -c 50000 a >> a; i=$((i+1)); done",
        );
        assert_eq!(ran["data"]["limit"], "disk", "{ran}");
        let ran = exec(&service, &tree, "sleep 1; echo quiet");
        assert_eq!(
            (&ran["data"]["stdout"], &ran["data"]["limit"]),
            (&json!("quiet\n"), &Value::Null),
            "{ran}"
        );
    }
}

/// Not a law but a figure: `FILESECBOX_LARGE=1 cargo test --release --test rest figures_of_quotas -- --nocapture`.
#[test]
fn figures_of_quotas() {
    if std::env::var_os("FILESECBOX_LARGE").is_none() {
        return;
    }
    for service in services() {
        let (small, large) = (workspace("small", "a"), workspace("large", "a"));
        exec(
            &service,
            &large,
            "for d in 0 1 2 3 4 5 6 7 8 9; do mkdir $d; for f in 0 1 2 3 4 5 6 7 8 9; do mkdir $d/$f; done; done",
        );
        for dir in 0..100 {
            let at = service.root.join(format!("sandbox/large/a/{}/{}", dir / 10, dir % 10));
            (0..100).for_each(|file| std::fs::write(at.join(file.to_string()), "1").unwrap());
        }
        std::thread::sleep(Duration::from_secs(2));
        for _ in 0..2 {
            for (what, tree) in [("an empty workspace", &small), ("10 000 files", &large)] {
                let mut times: Vec<u128> = (0..300)
                    .map(|_| {
                        let begun = Instant::now();
                        exec(&service, tree, "true");
                        begun.elapsed().as_micros()
                    })
                    .collect();
                times.sort_unstable();
                eprintln!("run in {what}: p50 {} µs, p90 {} µs", times[150], times[270]);
            }
        }
    }
}

#[test]
fn what_a_user_has_in_all_is_told_and_bounds_every_request() {
    const ALL: u64 = 4 * MIB;
    let service = Service::configured(&format!(
        "durability = \"relaxed\"\n[limits.disk]\nuser_bytes = {ALL}\nuser_files = 60\n"
    ));
    let client = &service.client;
    let half = "x".repeat(usize::try_from(ALL / 2).unwrap());
    client.put(format!("{}/raw/f", workspace("u", "a")), &half).ok();
    client.put(format!("{}/raw/f", workspace("u", "b")), &half[..half.len() / 2]).ok();
    let told = client.get("/v1/users/u").ok();
    let used = told["data"]["used"]["bytes"].as_u64().unwrap();
    assert!((ALL / 4 * 3..ALL).contains(&used), "{told}");
    assert_eq!(told["data"]["limits"], json!({ "bytes": ALL, "files": 60 }));
    let before = Snapshot::of(&service.root);
    for reply in [
        client.put(format!("{}/raw/f?parents=true", workspace("u", "c")), &half),
        client.put(format!("{}/edit?path=new/f", workspace("u", "a")), &half),
        client.post_json(format!("{}/copy", workspace("u", "a")), &json!({ "from": "f", "to": "g" })),
        client.post_json(format!("{}/snapshots", workspace("u", "a")), &json!({})),
        client.try_upload(&skills("u", "a"), "overlay", &skill_zip("s", &[("f", &half)])),
    ] {
        let answer = reply.refused(507, "quota");
        assert_eq!(
            (&answer["limit"], &answer["limit_bytes"]),
            (&json!("limits.disk.user_bytes"), &json!(ALL))
        );
        let [used, needed] = ["used_bytes", "needed_bytes"].map(|field| answer[field].as_u64().unwrap());
        assert!(used + needed > ALL, "{answer}");
        assert!(answer["data"].as_str().unwrap().contains("the user `u`"), "{answer}");
        before.unchanged(&service.root, &answer.to_string());
    }
    // Another user has room, and so has this one after a removal, in whichever tree.
    client.put(format!("{}/raw/f", workspace("v", "a")), &half).ok();
    client.delete(format!("{}/file?path=f", workspace("u", "a"))).ok();
    client.upload(&skills("u", "a"), "overlay", &skill_zip("s", &[("f", &half)]));
    // Agents, of which a token may name any, are no way around the bound on names.
    let made = (0..60)
        .filter(|number| {
            client.put(format!("{}/raw/f", workspace("u", &format!("n{number}"))), "").status == 201
        })
        .count();
    assert!((5..30).contains(&made), "{made}");
    let refused = client.put(format!("{}/raw/f", workspace("u", "last")), "").refused(507, "quota");
    assert_eq!(refused["limit"], "limits.disk.user_files");
    // With nothing left of the user, nothing counts.
    client.delete("/v1/users/u").ok();
    client.put(format!("{}/raw/f", workspace("u", "a")), &half).ok();
}

#[test]
fn runs_of_one_user_in_many_trees_are_ended_when_they_fill_more_than_the_user_may_have() {
    for tier in ["namespaces", "landlock"] {
        let service = Service::configured(&format!(
            "durability = \"relaxed\"\n[isolation]\nmaximum = \"{tier}\"\n[limits.disk]\nuser_bytes = {}\n",
            8 * MIB
        ));
        if !landlocked(&service.client) {
            return;
        }
        let client = &service.client;
        let line = "for i in $(seq 1000); do head -c 1000000 /dev/zero > f$i; sleep 0.02; done; echo all";
        let results: Vec<Value> = std::thread::scope(|scope| {
            let run = |number: usize| {
                let tree = workspace("u", &format!("agent{number}"));
                client.post_json(format!("{tree}/exec"), &json!({ "shell": line })).ok()["data"].clone()
            };
            let running: Vec<_> = (0..3).map(|number| scope.spawn(move || run(number))).collect();
            running.into_iter().map(|run| run.join().unwrap()).collect()
        });
        for result in &results {
            assert_eq!(result["limit"], "disk", "{tier}: {result}");
        }
        let used = client.get("/v1/users/u").ok()["data"]["used"]["bytes"].as_u64().unwrap();
        assert!(used < 200 * MIB, "{tier}: {used}");
        client.put(format!("{}/raw/f", workspace("u", "x")), "x").refused(507, "quota");
    }
}

/// Half a gigabyte takes longer than this to pack on any machine; the tree is free afterwards.
#[test]
fn a_request_that_takes_longer_than_it_may_is_refused_and_holds_nothing() {
    let service = Service::configured("[limits.work]\nlong_ms = 50\n");
    let (client, tree) = (&service.client, skill("u", "a", "s"));
    // On a slow machine even this may take longer.
    let written = |text: &str| (0..20).any(|_| client.put(format!("{tree}/raw/f"), text).status / 100 == 2);
    assert!(written("x"));
    let line = "for i in $(seq 15); do truncate -s 32M sparse$i; done; ls | grep -c sparse";
    let ran = client.post_json(format!("{tree}/exec"), &json!({ "shell": line })).ok();
    assert_eq!(ran["data"]["stdout"], "15\n", "{ran}");
    let refusal = client.get(format!("{tree}/download")).refused(413, "too_large");
    assert!(refusal["data"].as_str().unwrap().contains("`limits.work.long_ms`"), "{refusal}");
    assert!(written("y"));
}
