//! Packages in a bucket: fetched when they are missing and only then, and what a failing store comes to.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::bucket_server::{BucketServer, Fault, KEY_ID, Of, SECRET};
use crate::fixture::version;
use crate::support::{Client, Entry, Service, Settings, random_bytes, run_program, workspace, zip};

const SKILL: &str = "---\nname: writer\ndescription: writes\n---\n";
const CACHED: &str = ".filesecbox/archives";

/// A package of about so many bytes that cannot be compressed.
fn archive(seed: u64, bytes: usize) -> Vec<u8> {
    zip(&[Entry::file("SKILL.md", SKILL), Entry::file("data", random_bytes(seed, bytes))])
}

fn hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

fn put(client: &Client, version: &str, bytes: &[u8]) -> Value {
    client.put(format!("/v1/packages/{version}"), bytes).ok()
}

fn round(versions: &[&str]) -> Value {
    let skills: Vec<Value> =
        versions.iter().map(|version| json!({ "skill_id": "writer", "version_id": version })).collect();
    json!({ "skills": skills })
}

fn prepare(client: &Client, user: &str, versions: &[&str]) -> Value {
    client.post_json(format!("{}/prepare", workspace(user, "a")), &round(versions)).ok()["data"].clone()
}

fn names(directory: impl Into<PathBuf>) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directory.into()) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn reads(seen: &[String]) -> Vec<String> {
    seen.iter().filter(|line| line.starts_with("GET") && line.contains(".pkg")).cloned().collect()
}

/// Nothing of a package is here: neither kept, nor half received, nor deployed.
fn assert_nothing(root: &Path, why: &str) {
    assert_eq!(names(root.join(CACHED)), [""; 0], "{why}");
    let since = Instant::now();
    while !names(root.join(".filesecbox/stage")).is_empty() {
        assert!(
            since.elapsed() < Duration::from_secs(20),
            "{why}: {:?}",
            names(root.join(".filesecbox/stage"))
        );
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(names(root.join("sandbox/u/a/projects")), [""; 0], "{why}");
}

fn assert_discreet(service: &Service, answer: &str) {
    let log = service.log();
    for secret in [KEY_ID, SECRET, "Signature="] {
        assert!(!log.contains(secret) && !answer.contains(secret), "{log}{answer}");
    }
}

#[test]
fn a_package_that_one_service_got_another_one_fetches_when_it_is_missing_and_only_then() {
    let bucket = BucketServer::start();
    let (one, other) = (Service::configured(&bucket.config("")), Service::configured(&bucket.config("")));
    let (v1, bytes) = (version(1), archive(1, 100_000));
    let told = put(&one.client, &v1, &bytes);
    assert_eq!((told["created"].as_bool(), told["collected"].as_u64()), (Some(true), Some(0)));
    // The name tells an operator what it is.
    let digest = hex(&bytes);
    assert_eq!(names(bucket.objects(&v1)), [format!("{digest}.pkg")]);
    assert_eq!(std::fs::read(bucket.objects(&v1).join(format!("{digest}.pkg"))).unwrap(), bytes);
    bucket.seen();
    prepare(&one.client, "u", &[&v1]);
    assert_eq!(bucket.seen(), [""; 0], "it is here");
    prepare(&other.client, "u", &[&v1]);
    let seen = bucket.seen();
    assert_eq!((reads(&seen).len(), seen.len()), (1, 2), "one look and one read: {seen:?}");
    assert_eq!(other.client.text(&workspace("u", "a"), &format!("projects/{v1}/SKILL.md")), SKILL);
    for user in ["u", "v"] {
        prepare(&other.client, user, &[&v1]);
    }
    assert_eq!(other.client.get(format!("/v1/packages/{v1}")).bytes(200), bytes);
    assert_eq!(bucket.seen(), [""; 0], "it is here");
    // To be read without being deployed, and to be asked about.
    let third = Service::configured(&bucket.config(""));
    let head = third.client.request("HEAD", format!("/v1/packages/{v1}")).send();
    assert_eq!(head.header("content-length"), Some(bytes.len().to_string().as_str()));
    assert_eq!(reads(&bucket.seen()), [""; 0], "asking fetches nothing");
    assert_eq!(third.client.get(format!("/v1/packages/{v1}")).bytes(200), bytes);
    assert_eq!(reads(&bucket.seen()).len(), 1);
    third.client.get(format!("/v1/packages/{}", version(2))).refused(404, "not_found");
}

#[test]
fn a_version_with_the_bytes_of_another_is_kept_once_and_not_fetched_again() {
    use std::os::unix::fs::MetadataExt;
    let bucket = BucketServer::start();
    let (one, other) = (Service::configured(&bucket.config("")), Service::configured(&bucket.config("")));
    let (v1, v2, bytes) = (version(1), version(2), archive(1, 100_000));
    for version in [&v1, &v2] {
        put(&one.client, version, &bytes);
    }
    bucket.seen();
    prepare(&other.client, "u", &[&v1]);
    assert_eq!(reads(&bucket.seen()).len(), 1);
    prepare(&other.client, "u", &[&v1, &v2]);
    assert_eq!(reads(&bucket.seen()), [""; 0], "its bytes are here");
    for service in [&one, &other] {
        let file = |version: &str| service.root.join(CACHED).join(format!("{version}-{}", hex(&bytes)));
        let [first, second] = [&v1, &v2].map(|version| std::fs::metadata(file(version)).unwrap());
        assert_eq!((first.ino(), first.nlink()), (second.ino(), 2));
    }
    assert_eq!(other.client.get(format!("/v1/packages/{v2}")).bytes(200), bytes);
}

#[test]
fn of_many_rounds_at_once_one_fetches_and_several_versions_are_fetched_at_once() {
    let bucket = BucketServer::start();
    let one = Service::configured(&bucket.config(""));
    let versions: Vec<String> = (1..=4).map(version).collect();
    for (version, seed) in versions.iter().zip(1..) {
        put(&one.client, version, &archive(seed, 50_000));
    }
    let other = Service::configured(&bucket.config(""));
    bucket.seen();
    // Each body takes about 1.6 s.
    bucket.fail_all(Some((Of::Reads, Fault::Slow(Duration::from_millis(200)))));
    let since = Instant::now();
    let all: Vec<&str> = versions.iter().map(String::as_str).collect();
    thread::scope(|scope| {
        for user in ["u", "v", "w", "x", "y"] {
            let (client, all) = (&other.client, &all);
            scope.spawn(move || prepare(client, user, all));
        }
    });
    let took = since.elapsed();
    assert_eq!(reads(&bucket.seen()).len(), 4);
    assert!(took < Duration::from_millis(6400), "one after the other would take longer than {took:?}");
}

#[test]
fn a_store_that_fails_for_a_while_is_asked_again_and_a_cut_body_goes_on_where_it_was_cut() {
    let bucket = BucketServer::start();
    let one = Service::configured(&bucket.config(""));
    let (v1, bytes) = (version(1), archive(1, 400_000));
    put(&one.client, &v1, &bytes);
    for (faults, ranged) in [
        (
            vec![
                (Of::Any, Fault::Status(500)),
                (Of::Reads, Fault::Status(503)),
                (Of::Reads, Fault::Status(429)),
            ],
            false,
        ),
        (vec![(Of::Any, Fault::Close), (Of::Reads, Fault::Close)], false),
        (vec![(Of::Reads, Fault::Cut), (Of::Reads, Fault::Cut)], true),
        (vec![(Of::Reads, Fault::Stall(Duration::from_secs(60)))], true),
        (vec![(Of::Reads, Fault::Cut), (Of::Any, Fault::Status(500))], true),
        // Slow, but never silent for longer than it may be.
        (vec![(Of::Reads, Fault::Slow(Duration::from_millis(300)))], false),
    ] {
        let other = Service::configured(&bucket.config(""));
        bucket.seen();
        bucket.fail(&faults);
        prepare(&other.client, "u", &[&v1]);
        assert_eq!(other.client.get(format!("/v1/packages/{v1}")).bytes(200), bytes);
        let seen = bucket.seen();
        let rest = seen.iter().any(|line| line.contains(".pkg bytes=") && !line.contains("bytes=0-"));
        assert_eq!(rest, ranged, "{faults:?}: {seen:?}");
        assert_discreet(&other, "");
    }
}

#[test]
fn a_store_that_fails_leaves_nothing_half_made_says_so_and_the_next_try_succeeds() {
    let bucket = BucketServer::start();
    let one = Service::configured(&bucket.config(""));
    let (v1, bytes) = (version(1), archive(1, 200_000));
    put(&one.client, &v1, &bytes);
    let other = Service::configured(&bucket.config(""));
    let target = format!("{}/prepare", workspace("u", "a"));
    for (fault, told) in [
        ((Of::Any, Fault::Status(500)), "cannot be asked now"),
        ((Of::Any, Fault::Status(403)), "refuses this service"),
        ((Of::Any, Fault::Close), "cannot be asked now"),
        ((Of::Reads, Fault::Cut), "cannot be asked now"),
        ((Of::Reads, Fault::Stall(Duration::from_secs(60))), "cannot be asked now"),
        ((Of::Reads, Fault::Wrong), "another digest than their name says"),
    ] {
        bucket.fail_all(Some(fault));
        let refused = other.client.post_json(&target, &round(&[&v1])).refused(503, "disconnected");
        assert!(refused["data"].as_str().unwrap().contains(told), "{fault:?}: {refused}");
        assert_nothing(&other.root, &format!("{fault:?}"));
        let refused = other.client.get(format!("/v1/packages/{v1}")).refused(503, "disconnected");
        assert_discreet(&other, &refused.to_string());
        assert_nothing(&other.root, &format!("{fault:?}"));
    }
    bucket.fail_all(None);
    prepare(&other.client, "u", &[&v1]);
    assert_eq!(names(other.root.join("sandbox/u/a/projects")), [v1]);
}

#[test]
fn a_package_that_is_acknowledged_is_in_the_bucket_and_one_that_is_not_is_not_kept() {
    let bucket = BucketServer::start();
    let service = Service::configured(&bucket.config(""));
    // Of three parts.
    let (v1, bytes) = (version(1), archive(1, 20_000_000));
    let target = format!("/v1/packages/{v1}");
    for fault in [(Of::Any, Fault::Status(500)), (Of::Writes, Fault::Close), (Of::Writes, Fault::Status(503))]
    {
        bucket.fail_all(Some(fault));
        let refused = service.client.put(&target, &bytes).refused(503, "disconnected");
        assert_discreet(&service, &refused.to_string());
        assert_nothing(&service.root, &format!("{fault:?}"));
        bucket.fail_all(None);
        assert_eq!(names(bucket.objects(&v1)), [""; 0], "{fault:?}");
    }
    // Here and there it fails, and is made again.
    bucket.fail(&[
        (Of::Writes, Fault::Status(500)),
        (Of::Writes, Fault::Close),
        (Of::Any, Fault::Status(503)),
    ]);
    assert_eq!(put(&service.client, &v1, &bytes)["created"], true);
    assert_eq!(put(&service.client, &v1, &bytes)["created"], false);
    service.client.put(&target, archive(2, 10)).refused(409, "already_exists");
    let other = Service::configured(&bucket.config(""));
    other.client.put(&target, archive(2, 10)).refused(409, "already_exists");
    assert_eq!(put(&other.client, &v1, &bytes)["created"], false);
    assert_eq!(other.client.get(&target).bytes(200), bytes);
    assert_eq!(names(bucket.objects(&v1)).len(), 1);
    service.client.put(format!("/v1/packages/{}", version(2)), b"no archive").refused(422, "bad_archive");
    assert_eq!(names(bucket.objects(&version(2))), [""; 0]);
}

#[test]
fn of_two_packages_of_one_version_at_once_at_most_one_is_acknowledged() {
    let bucket = BucketServer::start();
    let services = [Service::configured(&bucket.config("")), Service::configured(&bucket.config(""))];
    for number in 1..=8 {
        let target = format!("/v1/packages/{}", version(number));
        let answers: Vec<u16> = thread::scope(|scope| {
            let puts = services.iter().zip([1, 2]).map(|(service, seed)| {
                let target = &target;
                scope.spawn(move || service.client.put(target, archive(seed, 50_000)).status)
            });
            let puts: Vec<_> = puts.collect();
            puts.into_iter().map(|put| put.join().unwrap()).collect()
        });
        let acknowledged = answers.iter().filter(|status| **status == 201).count();
        let kept = names(bucket.objects(&version(number)));
        assert!(answers.iter().all(|status| matches!(status, 201 | 409)), "{answers:?}");
        assert!(acknowledged <= 1 && kept.len() == acknowledged, "{answers:?}: {kept:?}");
    }
}

#[test]
fn a_damaged_copy_here_is_fetched_again_and_without_a_bucket_named() {
    let bucket = BucketServer::start();
    // From its archive alone.
    let no_files = "unpacked_bytes = 0";
    for (config, has_bucket) in [(bucket.config(no_files), true), (format!("[prepare]\n{no_files}\n"), false)]
    {
        let service = Service::configured(&config);
        let (v1, bytes) = (version(1), archive(1, 10_000));
        put(&service.client, &v1, &bytes);
        let kept = service.root.join(CACHED).join(format!("{v1}-{}", hex(&bytes)));
        let mut damaged = bytes.clone();
        let middle = damaged.len() / 2;
        damaged[middle] ^= 1;
        std::fs::write(&kept, &damaged).unwrap();
        if !has_bucket {
            let target = format!("{}/prepare", workspace("u", "a"));
            let refused = service.client.post_json(target, &round(&[&v1])).refused(422, "bad_archive");
            assert!(refused["data"].as_str().unwrap().contains("damaged"), "{refused}");
            assert_nothing(&service.root, "damaged");
            put(&service.client, &v1, &bytes);
        }
        prepare(&service.client, "u", &[&v1]);
        assert_eq!(std::fs::read(&kept).unwrap(), bytes);
    }
}

#[test]
fn versions_are_deployed_from_their_unpacked_files_also_when_their_archives_are_damaged() {
    let service = Service::configured("[prepare]\nunpacked_bytes = 67108864\n");
    let versions = [version(1), version(2)];
    for (version, seed) in versions.iter().zip([1, 2]) {
        let bytes = archive(seed, 10_000);
        put(&service.client, version, &bytes);
        std::fs::write(service.root.join(CACHED).join(format!("{version}-{}", hex(&bytes))), "damaged")
            .unwrap();
    }
    for user in ["u", "v"] {
        prepare(&service.client, user, &[&versions[0], &versions[1]]);
        let found = names(service.root.join(format!("sandbox/{user}/a/projects")));
        assert_eq!(found, versions);
    }
}

#[test]
fn what_gives_way_here_stays_in_the_bucket_and_comes_back() {
    let bucket = BucketServer::start();
    let (v1, v2) = (version(1), version(2));
    let (one, two) = (archive(1, 60_000), archive(2, 60_000));
    let service = Service::configured(&bucket.config("packages_bytes = 100000"));
    put(&service.client, &v1, &one);
    assert_eq!(put(&service.client, &v2, &two)["collected"], 1);
    assert_eq!(names(service.root.join(CACHED)), [format!("{v2}-{}", hex(&two))]);
    for (version, bytes) in [(&v1, &one), (&v2, &two)] {
        assert_eq!(service.client.get(format!("/v1/packages/{version}")).bytes(200), *bytes);
        assert_eq!(names(service.root.join(CACHED)).len(), 1);
    }
    // Both in one round, though there is no room for both.
    prepare(&service.client, "u", &[&v1, &v2]);
    assert_eq!(names(service.root.join("sandbox/u/a/projects")).len(), 2);
}

#[test]
fn a_service_that_is_killed_while_it_fetches_leaves_nothing_and_the_next_one_fetches() {
    let bucket = BucketServer::start();
    let (v1, bytes) = (version(1), archive(1, 300_000));
    put(&Service::configured(&bucket.config("")).client, &v1, &bytes);
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("data");
    let settings =
        || Settings { root: Some(root.clone()), config: Some(bucket.config("")), ..Settings::default() };
    let mut service = Service::with(settings());
    bucket.fail_all(Some((Of::Reads, Fault::Slow(Duration::from_millis(600)))));
    let sent = round(&[&v1]).to_string();
    let target = format!("{}/prepare", workspace("u", "a"));
    let mut events = service.client.stream("POST", &target, "application/x-ndjson", &sent);
    assert_eq!(events.next().unwrap()["event"], "step");
    bucket.seen();
    let since = Instant::now();
    while bucket.reads() == 0 {
        assert!(since.elapsed() < Duration::from_secs(30));
        thread::sleep(Duration::from_millis(10));
    }
    let pid = rustix::process::Pid::from_raw(i32::try_from(service.pid()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    service.wait();
    bucket.fail_all(None);
    let service = Service::with(settings());
    assert_nothing(&root, "killed");
    prepare(&service.client, "u", &[&v1]);
    assert_eq!(names(root.join("sandbox/u/a/projects")), [v1]);
}

#[test]
fn keys_that_are_wrong_or_open_to_all_are_refused_and_never_told() {
    let bucket = BucketServer::start();
    let service = Service::configured(&bucket.config_with("wrong", ""));
    let refused = service.client.put(format!("/v1/packages/{}", version(1)), archive(1, 10));
    let refused = refused.refused(503, "disconnected");
    assert!(refused["data"].as_str().unwrap().contains("refuses this service"), "{refused}");
    assert_discreet(&service, &refused.to_string());
    assert!(!service.log().contains("another-secret"));
    // Nor where everything is logged that there is, here and by what is used.
    let env = vec![("FILESECBOX_LOG".to_owned(), "trace".to_owned())];
    let settings = Settings { config: Some(bucket.config("")), env, ..Settings::default() };
    let service = Service::with(settings);
    bucket.fail(&[(Of::Any, Fault::Status(500)), (Of::Any, Fault::Status(403))]);
    let refused = service.client.put(format!("/v1/packages/{}", version(1)), archive(1, 10));
    assert_discreet(&service, &refused.refused(503, "disconnected").to_string());
    put(&service.client, &version(1), &archive(1, 10));
    assert!(service.log().contains("TRACE") || service.log().contains("DEBUG"), "{}", service.log());
    assert_discreet(&service, "");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("filesecbox.toml");
    let open = dir.path().join("open");
    std::fs::write(&open, SECRET).unwrap();
    let with = |text: String| {
        std::fs::write(&file, text).unwrap();
        let told = run_program(&["check-config", "--config", file.to_str().unwrap()], &[]);
        (told.status.success(), String::from_utf8(told.stderr).unwrap())
    };
    assert_eq!(with(bucket.config("")), (true, String::new()));
    let secret = "secret_access_key_file = \"";
    for (text, told) in [
        (bucket.config("").replace("s3://skills", "s4://skills"), "prepare.bucket.url"),
        (
            bucket.config("").replace("http://", &format!("http://{KEY_ID}:{SECRET}@")),
            "prepare.bucket.endpoint",
        ),
        (bucket.config("").replace("allow_http = true", ""), "allow_http"),
        (bucket.config("").replace("/secret\"", "/none\""), "/none"),
        (bucket.config("").replace(secret, &format!("{secret}{}\" #", open.display())), "chmod 600"),
    ] {
        let (is_good, error) = with(text);
        assert!(!is_good && error.contains(told), "{told}: {error}");
        assert!(!error.contains(SECRET) && !error.contains(KEY_ID), "{error}");
    }
}
