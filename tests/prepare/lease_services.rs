//! Services that share a store of leases: one prepares at a time, whatever their clocks say, and without the store none does.

use std::path::PathBuf;
use std::sync::mpsc;
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

/// Fifty requests for one workspace at two services: the one that wins does not end before all others have been answered.
fn fifty_at_two_services(url: &str) {
    let config = format!("[prepare]\nlease_url = \"{url}\"\n");
    let services = [Service::configured(&config), Service::configured(&config)];
    let tree = workspace("u", "a");
    for round in 0..3 {
        let script = format!("while [ ! -e go{round} ]; do sleep 0.05; done; echo {round} >> runs");
        let body = json!({ "entrypoint": script, "timeout_seconds": 600 });
        let (answers, answered) = mpsc::channel();
        thread::scope(|scope| {
            for number in 0..50 {
                let (service, answers, body, tree) = (&services[number % 2], answers.clone(), &body, &tree);
                scope.spawn(move || {
                    let reply = service.client.post_json(format!("{tree}/prepare"), body);
                    answers.send((number % 2, reply)).unwrap();
                });
            }
            for _ in 0..49 {
                let (_, reply) = answered.recv().unwrap();
                assert_eq!(reply.refused(429, "busy")["initialising"], true);
            }
            // Wherever the winner is.
            for service in &services {
                service.client.write(&tree, &format!("go{round}"), "");
            }
            let (winner, reply) = answered.recv().unwrap();
            reply.ok();
            let ran = services[winner].client.text(&tree, "runs");
            assert_eq!(ran.lines().filter(|line| **line == round.to_string()).count(), 1, "{ran}");
        });
    }
    let runs = services.iter().map(|service| {
        let files = service.client.files(&tree);
        if files.iter().any(|file| file == "runs") {
            service.client.text(&tree, "runs").lines().count()
        } else {
            0
        }
    });
    assert_eq!(runs.sum::<usize>(), 3, "each script ran once, at one of them");
}

#[test]
fn of_fifty_requests_at_two_services_one_wins_each_time() {
    let dir = tempfile::tempdir().unwrap();
    if let Some(_redis) = redis(dir.path()) {
        while !dir.path().join("real").exists() {
            thread::sleep(Duration::from_millis(5));
        }
        fifty_at_two_services(&format!("redis+unix://{}", dir.path().join("real").to_str().unwrap()));
    }
    if let Some(server) = PostgresServer::start() {
        fifty_at_two_services(&PostgresServer::url(server.socket_dir()));
    }
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
