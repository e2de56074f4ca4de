//! Share links: what is read by one without a token, and what ends it.

use std::io::{Cursor, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::{Client, Entry, Reply, Service, Settings, digest, random_bytes, skill, skills, zip};

const ON: &str = "[shares]\nenabled = true\n";
const INDEX: &str = ".well-known/agent-skills/index.json";

fn closed(further: &str) -> String {
    let of = |name: &str, role: &str| {
        format!("[[tokens]]\nsha256 = \"{}\"\n{role}\nname = \"{name}\"\n", digest(name))
    };
    [
        format!("{ON}{further}"),
        of("admin", "role = \"admin\""),
        of("manager", "role = \"manager\"\nagent = \"demo\""),
        of("alice", "role = \"user\"\nuser = \"alice\""),
    ]
    .concat()
}

/// Makes a link of alice's with the agent `demo`. Returns it and its id.
fn share(client: &Client, body: &Value) -> (String, String) {
    let reply = client.post_json("/v1/shares/alice/demo", body);
    assert_eq!(reply.status, 201, "{}", String::from_utf8_lossy(&reply.body));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&reply.json()["data"]), text(&reply.json()["id"]))
}

fn index(client: &Client, link: &str) -> Value {
    let reply = client.get(format!("{link}{INDEX}"));
    assert_eq!(reply.header("cache-control"), Some("no-cache"));
    serde_json::from_slice(reply.bytes(200)).unwrap()
}

fn names(index: &Value) -> Vec<&str> {
    index["skills"].as_array().unwrap().iter().map(|skill| skill["name"].as_str().unwrap()).collect()
}

/// The archive that an entry of the index names, and its files.
fn archive(client: &Client, link: &str, entry: &Value) -> Vec<(String, String)> {
    let url = entry["url"].as_str().unwrap();
    let reply = client.get(format!("{link}.well-known/agent-skills/{url}"));
    let bytes = reply.bytes(200);
    assert_eq!(entry["digest"], format!("sha256:{}", hex::encode(Sha256::digest(bytes))));
    assert_eq!(reply.header("cache-control"), Some("private, max-age=31536000, immutable"));
    assert_eq!(reply.header("content-type"), Some("application/zip"));
    unpacked(bytes)
}

fn unpacked(bytes: &[u8]) -> Vec<(String, String)> {
    let mut archive = ::zip::ZipArchive::new(Cursor::new(bytes)).unwrap();
    let files = (0..archive.len()).map(|at| {
        let mut file = archive.by_index(at).unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        (file.name().unwrap().into_owned(), text)
    });
    files.collect()
}

fn gone(client: &Client, target: &str) {
    let reply = client.get(target);
    assert_eq!((reply.status, &reply.json()["code"]), (404, &json!("not_found")), "{target}");
}

fn header(name: &str) -> String {
    format!("---\nname: {name}\ndescription: about {name}\n---\n")
}

fn archive_of(name: &str, text: &str) -> Vec<u8> {
    zip(&[Entry::file(&format!("{name}/SKILL.md"), header(name)), Entry::file(&format!("{name}/f"), text)])
}

fn publish(service: &Service, names: &[&str]) {
    let admin = service.client.with_token("admin");
    for name in names {
        admin.upload(&skills("x", "demo"), "baseline", &archive_of(name, "1"));
    }
}

#[test]
fn a_link_reads_what_it_shows_and_nothing_else() {
    let service = Service::configured(&closed(""));
    publish(&service, &["pdf", "数据统计", "secret"]);
    let (stranger, admin) = (&service.client, service.client.with_token("admin"));
    let (all, _) = share(&service.client.with_token("manager"), &json!({ "view": "baseline" }));
    let alice = service.client.with_token("alice");
    let (some, _) = share(&alice, &json!({ "skills": ["pdf", "数据统计", "gone"] }));

    let listed = index(stranger, &all);
    assert_eq!(names(&listed)[..2], ["pdf", "secret"]);
    let alias = names(&listed)[2].to_owned();
    assert!(alias.starts_with("skill-") && alias.len() == 14, "{alias}");
    let files = |name: &str, text: &str| {
        vec![("SKILL.md".to_owned(), header(name)), ("f".to_owned(), text.to_owned())]
    };
    assert_eq!(archive(stranger, &all, &listed["skills"][0]), files("pdf", "1"));
    assert_eq!(archive(stranger, &all, &listed["skills"][2]), files("数据统计", "1"));
    assert_eq!(names(&index(stranger, &some)), ["pdf", &alias]);
    for hidden in [
        "secret.zip",
        &format!("{}x", INDEX),
        "secret/SKILL.md",
        "npm/@demo%2fsecret",
        "../all",
        "pdf-0000000000000000.zip",
    ] {
        gone(stranger, &format!("{some}{hidden}"));
    }
    // Nothing can be changed, and no other route is nearer.
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        stranger.request(method, format!("{some}pdf.zip")).send().refused(405, "method_not_allowed");
    }
    stranger.get(format!("{}/download", skill("alice", "demo", "pdf"))).refused(401, "unauthenticated");

    // What alice changes is shown by her link at once, and by no other; the archive that was is not to be had as another.
    let before = index(stranger, &some)["skills"][0].clone();
    alice.write(&skill("alice", "demo", "pdf"), "f", "hers");
    let after = index(stranger, &some)["skills"][0].clone();
    assert_ne!(before["digest"], after["digest"]);
    assert_eq!(archive(stranger, &some, &after), files("pdf", "hers"));
    gone(stranger, &format!("{some}{}", before["url"].as_str().unwrap()));
    assert_eq!(archive(stranger, &all, &listed["skills"][0]), files("pdf", "1"));
    assert_eq!(unpacked(stranger.get(format!("{some}pdf.zip")).bytes(200)), files("pdf", "hers"));
    // What is only staged is not shown.
    let staged = archive_of("pdf", "staged");
    let target = format!("{}/upload?scope=baseline&current=false", skills("x", "demo"));
    admin.request("POST", target).header("content-type", "application/zip").body(staged).send().ok();
    assert_eq!(index(stranger, &all), listed);
    // And what she removes is not, either.
    alice.delete(skill("alice", "demo", "pdf")).ok();
    assert_eq!(names(&index(stranger, &some)), [&alias]);
}

/// The digest of an archive is known at the second request, so that all is asked for twice.
#[test]
fn what_an_agent_has_for_all_users_is_read_without_a_link_where_the_configuration_says_so() {
    let service = Service::configured(&closed("public_agents = [\"demo\", \"应用\"]\n"));
    let client = &service.client;
    publish(&service, &["pdf", "数据统计"]);
    let admin = client.with_token("admin");
    let slugged = "---\nname: 图表\ndescription: Draws.\nmetadata:\n  slug: charts\n---\n";
    admin.upload(&skills("x", "demo"), "baseline", &zip(&[Entry::file("图表/SKILL.md", slugged)]));
    admin.upload(&skills("x", "secret"), "baseline", &archive_of("hidden", "1"));
    admin.upload(&skills("alice", "demo"), "overlay", &archive_of("own", "1"));
    for _ in 0..2 {
        let index = index(client, "/catalog/demo/");
        assert_eq!(names(&index)[..2], ["charts", "pdf"]);
        assert!(names(&index)[2].starts_with("skill-") && names(&index).len() == 3, "{index}");
        for entry in index["skills"].as_array().unwrap() {
            assert!(archive(client, "/catalog/demo/", entry).iter().any(|(name, _)| name == "SKILL.md"));
        }
    }
    let found = client.get("/catalog/demo/api/search?q=draws").json();
    let source = format!("http://{}/catalog/demo", client.address);
    assert_eq!(
        found["skills"],
        json!([{ "name": "charts", "id": format!("{source}/charts"), "source": source, "installs": 0 }])
    );
    let market = client.get("/catalog/demo/marketplace.json").json();
    assert_eq!(market["plugins"].as_array().unwrap().len(), 3);
    assert_eq!(index(client, "/catalog/%E5%BA%94%E7%94%A8/")["skills"], json!([]));
    for target in [
        "/catalog/secret/",
        "/catalog/..%2Fdemo/",
        "/catalog/demo/own.zip",
        "/catalog/demo/hidden.zip",
        "/catalog/demo/x/y",
    ] {
        gone(client, target);
    }
    for method in ["PUT", "POST", "DELETE"] {
        assert_eq!(client.request(method, "/catalog/demo/pdf.zip").send().status, 405, "{method}");
    }
    // Who needs no token writes no records of changes: anybody could fill the log.
    let log = service.root.join(".filesecbox/audit/0000000000000001.jsonl");
    let records = std::fs::read_to_string(log).unwrap();
    assert!(records.contains("/upload") && !records.contains("/catalog/"), "{records}");
    // It is in no list, and nobody revokes it.
    assert_eq!(admin.get("/v1/shares/public/demo").json()["data"], json!([]));
    gone(&Service::configured(&closed("")).client, "/catalog/demo/");
}

#[test]
fn a_plugin_is_a_package_whose_digest_is_told_and_whose_version_follows_the_content() {
    let service = Service::configured(&closed(""));
    publish(&service, &["pdf"]);
    let (stranger, alice) = (&service.client, service.client.with_token("alice"));
    let (link, _) = share(&alice, &json!({}));
    let version = || {
        let market: Value =
            serde_json::from_slice(stranger.get(format!("{link}marketplace.json")).bytes(200)).unwrap();
        let [plugin] = market["plugins"].as_array().unwrap().as_slice() else { panic!("{market}") };
        assert_eq!((&market["name"], &plugin["name"]), (&json!("demo"), &json!("pdf")));
        let base = format!("http://{}{link}npm", stranger.address);
        assert_eq!(plugin["source"]["registry"], base);
        assert_eq!(plugin["source"]["package"], "@demo/pdf");
        let version = plugin["version"].as_str().unwrap().to_owned();
        let package = stranger.get(format!("{link}npm/@demo%2fpdf"));
        let package: Value = serde_json::from_slice(package.bytes(200)).unwrap();
        assert_eq!(package["dist-tags"]["latest"], version);
        let dist = &package["versions"][&version]["dist"];
        let tarball = dist["tarball"].as_str().unwrap().strip_prefix(&format!("http://{}", stranger.address));
        let bytes = stranger.get(tarball.unwrap()).bytes(200).to_vec();
        let integrity =
            base64::Engine::encode(&base64::engine::general_purpose::STANDARD, sha2::Sha512::digest(&bytes));
        assert_eq!(dist["integrity"], format!("sha512-{integrity}"));
        version
    };
    assert_eq!(version(), "1.0.1");
    alice.write(&skill("alice", "demo", "pdf"), "f", "hers");
    let own = version();
    assert!(own.starts_with("1.0.2-v"), "{own}");
    alice.write(&skill("alice", "demo", "pdf"), "f", "hers again");
    assert_ne!(version(), own);
    gone(stranger, &format!("{link}npm/-/pdf/pdf-{own}.tgz"));
}

#[test]
fn a_link_ends_when_it_is_revoked_and_with_its_time_its_user_and_its_token() {
    let service = Service::configured(&closed(""));
    publish(&service, &["pdf"]);
    let (stranger, admin) = (&service.client, service.client.with_token("admin"));
    let alice = service.client.with_token("alice");
    let count = || admin.get("/v1/shares/alice/demo").ok()["data"].as_array().unwrap().len();

    let (link, id) = share(&alice, &json!({ "note": "数据" }));
    let listed = alice.get("/v1/shares/alice/demo").ok()["data"].clone();
    assert_eq!(listed[0]["note"], "数据");
    assert!(!listed.to_string().contains(link.trim_matches('/').trim_start_matches("s/")), "{listed}");
    index(stranger, &link);
    alice.delete(format!("/v1/shares/alice/demo/{id}")).ok();
    gone(stranger, &format!("{link}{INDEX}"));
    alice.delete(format!("/v1/shares/alice/demo/{id}")).refused(404, "not_found");

    let (brief, _) = share(&alice, &json!({ "ttl_seconds": 1 }));
    let begun = Instant::now();
    while stranger.get(format!("{brief}{INDEX}")).status == 200 {
        assert!(begun.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(count(), 0);

    // With the signed token that made it, and with all of its user.
    let issue = || admin.post_json("/v1/tokens", &json!({ "user": "alice" })).ok();
    for all in [false, true] {
        let issued = issue();
        let signed = service.client.with_token(issued["data"].as_str().unwrap());
        let (made, _) = share(&signed, &json!({}));
        let (other, id) = share(&alice, &json!({}));
        index(stranger, &made);
        let target = match all {
            true => "/v1/tokens?user=alice".to_owned(),
            false => format!("/v1/tokens/{}", issued["id"].as_str().unwrap()),
        };
        admin.delete(target).ok();
        gone(stranger, &format!("{made}{INDEX}"));
        // One that a static token made has nothing to do with it.
        index(stranger, &other);
        alice.delete(format!("/v1/shares/alice/demo/{id}")).ok();
    }

    let (last, _) = share(&alice, &json!({}));
    admin.delete("/v1/users/alice").ok();
    gone(stranger, &format!("{last}{INDEX}"));
    assert_eq!(count(), 0);
}

#[test]
fn a_link_outlives_a_restart_and_neither_the_disk_nor_the_log_gives_it_away() {
    let dir = tempfile::tempdir().unwrap();
    let started = |config: &str| {
        Service::with(Settings {
            config: Some(config.to_owned()),
            root: Some(dir.path().join("data")),
            env: vec![("FILESECBOX_LOG".to_owned(), "info".to_owned())],
            ..Settings::default()
        })
    };
    let (config, off) = (closed(""), closed("").replace("enabled = true", "enabled = false"));
    let service = started(&config);
    publish(&service, &["pdf"]);
    let (link, id) = share(&service.client.with_token("alice"), &json!({}));
    let listed = index(&service.client, &link);
    let secret = link.trim_start_matches("/s/").trim_end_matches('/').to_owned();
    let log = service.log();
    assert!(log.contains(&format!("share:{id}")) && !log.contains(&secret), "{log}");
    drop(service);
    assert!(!holds(dir.path(), secret.as_bytes()), "the data directory has the link");
    // Switched off, there is nothing, and nothing is lost.
    let service = started(&off);
    gone(&service.client, &format!("{link}{INDEX}"));
    service.client.with_token("alice").get("/v1/shares/alice/demo").refused(404, "not_found");
    drop(service);
    let service = started(&config);
    assert_eq!(index(&service.client, &link), listed);
}

fn holds(at: &Path, bytes: &[u8]) -> bool {
    std::fs::read_dir(at).unwrap().flatten().any(|entry| {
        let kind = entry.file_type().unwrap();
        let name = entry.file_name();
        let in_name = name.as_encoded_bytes().windows(bytes.len()).any(|window| window == bytes);
        in_name
            || (kind.is_dir() && holds(&entry.path(), bytes))
            || (kind.is_file()
                && std::fs::read(entry.path()).unwrap().windows(bytes.len()).any(|window| window == bytes))
    })
}

#[test]
fn what_no_link_can_be_is_refused_and_there_are_so_many_of_a_user() {
    let service = Service::configured(&closed(""));
    let alice = service.client.with_token("alice");
    for wrong in [
        json!({ "skills": [] }),
        json!({ "skills": ["../x"] }),
        json!({ "skills": vec!["a"; 257] }),
        json!({ "ttl_seconds": 0 }),
        json!({ "note": "a\nb" }),
        json!({ "note": "x".repeat(257) }),
        json!({ "view": "all" }),
        json!({ "secret": "mine" }),
    ] {
        alice.post_json("/v1/shares/alice/demo", &wrong).refused(400, "invalid");
    }
    alice.post_json("/v1/shares/alice/demo", &json!({ "view": "baseline" })).refused(403, "denied");
    for number in 0..64 {
        // With whatever agent she names.
        let reply = alice.post_json(format!("/v1/shares/alice/agent-{}", number % 3), &json!({}));
        assert_eq!(reply.status, 201);
    }
    let refused = alice.post_json("/v1/shares/alice/demo", &json!({}));
    refused.refused(429, "busy");
    assert!(String::from_utf8_lossy(&refused.body).contains("revoke those that are not needed"));
    // Others have theirs.
    let other = service.client.with_token("admin").post_json("/v1/shares/bob/demo", &json!({}));
    assert_eq!(other.status, 201);
}

/// Strangers who read by a link of hers have a place of their own, which is not hers.
#[test]
fn strangers_who_take_a_links_archive_and_do_not_read_it_take_nothing_from_its_user() {
    let limits = "[limits.disk]\nin_flight_bytes = 20_000_000\n";
    let service = Service::configured(&closed("").replacen(ON, &format!("{ON}{limits}"), 1));
    publish(&service, &["pdf"]);
    let alice = service.client.with_token("alice");
    let tree = skill("alice", "demo", "pdf");
    alice.put(format!("{tree}/raw/big"), random_bytes(1, 8_000_000)).ok();
    let (link, _) = share(&alice, &json!({}));
    index(&service.client, &link);
    let take = || -> (TcpStream, Vec<u8>) {
        let mut stream = service.client.connect();
        stream
            .write_all(format!("GET {link}pdf.zip HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes())
            .unwrap();
        let mut head = vec![0; 12];
        stream.read_exact(&mut head).unwrap();
        (stream, head)
    };
    let answers: Vec<_> = (0..4).map(|_| take()).collect();
    let status = |status: &str| answers.iter().filter(|(_, head)| head.ends_with(status.as_bytes())).count();
    assert_eq!((status("200"), status("507")), (2, 2), "{answers:?}");
    let own: Reply = alice.get(format!("{tree}/download"));
    assert!(own.bytes(200).len() > 8_000_000);
    drop(answers);
}
