//! Services that share a store of leases: one prepares at a time, whatever their clocks say, and without the store none does.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::leases::redis;
use crate::postgres_server::PostgresServer;
use crate::support::{Service, Settings, granted, run_program, workspace};

#[test]
fn services_that_share_a_postgresql_share_the_lease_and_without_it_nothing_is_done() {
    let Some(mut server) = PostgresServer::start() else { return };
    let url = PostgresServer::url(server.socket_dir());
    let config = format!("[prepare]\nlease_url = \"{url}\"\n");
    // One that logs everything there is, here and by what is used.
    let env = vec![("FILESECBOX_LOG".to_owned(), "trace".to_owned())];
    let one = Service::with(Settings { config: Some(config.clone()), env, ..Settings::default() });
    let other = Service::configured(&config);
    let tree = workspace("u", "a");
    let prepare = format!("{tree}/prepare");
    let slow = json!({ "entrypoint": "sleep 2; touch ran" }).to_string();
    let mut events = one.client.stream("POST", &prepare, "application/x-ndjson", &slow);
    assert_eq!(events.next().unwrap()["event"], "step");
    let body = json!({ "entrypoint": "touch ran" });
    let refused = other.client.post_json(&prepare, &body).refused(429, "busy");
    assert_eq!(refused["initialising"], true);
    assert_eq!(events.last().unwrap()["event"], "prepared");
    other.client.post_json(&prepare, &body).ok();
    assert_eq!(other.client.files(&tree), ["ran"]);
    server.stop();
    let body = json!({ "entrypoint": "touch without" });
    let refused = one.client.post_json(&prepare, &body).refused(429, "busy");
    assert_eq!(refused["initialising"], true);
    assert!(!refused.to_string().contains("s3cret") && !one.log().contains("s3cret"));
    assert_eq!(one.client.files(&tree), ["ran"]);
    // Back, with all that it knew.
    server.restart();
    one.client.post_json(&prepare, &body).ok();
}

#[test]
fn services_that_share_a_redis_share_the_lease_and_without_it_nothing_is_done() {
    let dir = tempfile::tempdir().unwrap();
    let Some(redis) = redis(dir.path()) else { return };
    let socket = dir.path().join("real");
    while !socket.exists() {
        thread::sleep(Duration::from_millis(5));
    }
    let config = format!("[prepare]\nlease_url = \"redis+unix://{}\"\n", socket.to_str().unwrap());
    let (one, other) = (Service::configured(&config), Service::configured(&config));
    let tree = workspace("u", "a");
    let slow = json!({ "entrypoint": "sleep 2; touch ran" }).to_string();
    let mut events = one.client.stream("POST", &format!("{tree}/prepare"), "application/x-ndjson", &slow);
    assert_eq!(events.next().unwrap()["event"], "step");
    let body = json!({ "entrypoint": "touch ran" });
    let refused = other.client.post_json(format!("{tree}/prepare"), &body).refused(429, "busy");
    assert_eq!(refused["initialising"], true);
    assert_eq!(events.last().unwrap()["event"], "prepared");
    other.client.post_json(format!("{tree}/prepare"), &body).ok();
    assert_eq!(other.client.files(&tree), ["ran"]);
    drop(redis);
    let body = json!({ "entrypoint": "touch without" });
    let refused = one.client.post_json(format!("{tree}/prepare"), &body).refused(429, "busy");
    assert_eq!(refused["initialising"], true);
    assert_eq!(one.client.files(&tree), ["ran"]);
}

/// The library that gives a program another clock, where Debian's `libfaketime` is installed.
fn faketime() -> Option<PathBuf> {
    let machines = std::fs::read_dir("/usr/lib").ok()?.flatten();
    machines.map(|machine| machine.path().join("faketime/libfaketime.so.1")).find(|path| path.exists())
}

#[test]
fn services_whose_clocks_differ_by_hours_share_leases_as_if_they_did_not() {
    let library = faketime();
    if !granted("faketime", library.is_some()) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (redis, postgres) = (redis(dir.path()), PostgresServer::start());
    let mut urls = Vec::new();
    urls.extend(redis.iter().map(|_| format!("redis+unix://{}", dir.path().join("real").to_str().unwrap())));
    urls.extend(postgres.iter().map(|server| PostgresServer::url(server.socket_dir())));
    let prepare = format!("{}/prepare", workspace("u", "a"));
    for url in urls {
        let service = |offset: &str| {
            let env = [("LD_PRELOAD", library.as_ref().unwrap().to_str().unwrap()), ("FAKETIME", offset)];
            let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
            let config = Some(format!("[prepare]\nlease_url = \"{url}\"\n"));
            Service::with(Settings { config, env, ..Settings::default() })
        };
        let services = ["-3h", "+0", "+3h"].map(|offset| (offset, service(offset)));
        for (offset, service) in &services {
            let mapped = std::fs::read_to_string(format!("/proc/{}/maps", service.pid())).unwrap();
            assert!(mapped.contains("libfaketime"), "{offset}: its clock is the host's");
        }
        for (offset, holder) in &services {
            let slow = json!({ "entrypoint": format!("sleep 1; touch of{offset}") }).to_string();
            let mut events = holder.client.stream("POST", &prepare, "application/x-ndjson", &slow);
            assert_eq!(events.next().unwrap()["event"], "step");
            for (other, asking) in services.iter().filter(|(other, _)| other != offset) {
                let refused = asking.client.post_json(&prepare, &json!({ "entrypoint": "touch early" }));
                let refused = refused.refused(429, "busy");
                assert_eq!(refused["initialising"], true, "{other} while {offset} holds it");
            }
            assert_eq!(events.last().unwrap()["event"], "prepared", "{offset}");
            assert_eq!(holder.client.files(&workspace("u", "a")), [format!("of{offset}")]);
        }
    }
}

/// Leases within a process end by a clock that cannot be set.
#[test]
fn a_clock_that_jumps_by_hours_ends_no_lease_within_a_process_and_keeps_none() {
    let library = faketime();
    if !granted("faketime", library.is_some()) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let clock = dir.path().join("clock");
    std::fs::write(&clock, "+0").unwrap();
    let env = [
        ("LD_PRELOAD", library.as_ref().unwrap().to_str().unwrap()),
        ("FAKETIME_TIMESTAMP_FILE", clock.to_str().unwrap()),
        ("FAKETIME_NO_CACHE", "1"),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
    ];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let service = Service::with(Settings { env, ..Settings::default() });
    let tree = workspace("u", "a");
    let prepare = format!("{tree}/prepare");
    let begun = std::time::SystemTime::now();
    for (number, offset) in ["+3h", "-3h", "+0"].into_iter().enumerate() {
        let script = format!("touch begun{number}; while [ ! -e go{number} ]; do sleep 0.05; done");
        let slow = json!({ "entrypoint": script, "timeout_seconds": 600 }).to_string();
        let events = service.client.stream("POST", &prepare, "application/x-ndjson", &slow);
        while service.client.get(format!("{tree}/stat?path=begun{number}")).status != 200 {
            thread::sleep(Duration::from_millis(10));
        }
        std::fs::write(&clock, offset).unwrap();
        let refused = service.client.post_json(&prepare, &json!({ "entrypoint": "touch early" }));
        assert_eq!(refused.refused(429, "busy")["initialising"], true, "{offset}");
        service.client.write(&tree, &format!("go{number}"), "");
        let last = events.last().unwrap();
        assert_eq!(
            (&last["event"], &last["result"]["steps"][1]["outcome"]),
            (&json!("prepared"), &json!("done")),
            "{offset}"
        );
        // The one that was just given back is had again at once.
        service.client.post_json(&prepare, &json!({ "entrypoint": format!("touch after{number}") })).ok();
    }
    assert!(begun.elapsed().unwrap() < Duration::from_secs(150), "no lease has ended by itself");
}

#[test]
fn an_address_of_no_known_store_is_refused_before_anything_starts_and_never_told() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("filesecbox.toml");
    for (url, advice) in [
        ("mysql://u:s3cret@host/d", "postgres://USER@HOST:5432/DATABASE"),
        ("redis://:s3cret@host:port", "redis://:PASSWORD@HOST:6379/0"),
        ("postgres://u:s3cret@host/d?sslmode=prefer", "?sslmode=require"),
    ] {
        std::fs::write(&file, format!("[prepare]\nlease_url = \"{url}\"\n")).unwrap();
        let told = run_program(&["check-config", "--config", file.to_str().unwrap()], &[]);
        let error = String::from_utf8_lossy(&told.stderr);
        assert!(!told.status.success() && error.contains("prepare.lease_url"), "{error}");
        assert!(error.contains(advice) && !error.contains("s3cret"), "{error}");
    }
}
