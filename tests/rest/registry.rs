//! The registry: it has exactly what is published, after every kind of change and after damage to its file.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Client, Entry, Service, Settings, digest, encoded, run_program, zip};

/// Longest wait for rows that are owed.
const PATIENCE: Duration = Duration::from_secs(60);

fn ask(client: &Client, query: &str) -> Value {
    client.get(format!("/v1/registry{query}")).ok()
}

/// All rows, of which none is owed.
fn rows(client: &Client) -> Vec<Value> {
    let answer = ask(client, "");
    assert_eq!(answer["complete"], true, "{answer}");
    answer["data"].as_array().unwrap().clone()
}

fn rebuilt(client: &Client) -> Vec<Value> {
    let answer = client.post("/v1/registry/rebuild", "").ok();
    let rows = rows(client);
    assert_eq!(answer["rows"], rows.len());
    rows
}

/// Agent, skill and user of each row.
fn shelves(rows: &[Value]) -> Vec<[&str; 3]> {
    rows.iter()
        .map(|row| ["agent_id", "skill_id", "user_id"].map(|column| row[column].as_str().unwrap_or("")))
        .collect()
}

fn skills(user: &str, agent: &str) -> String {
    format!("/v1/skills/{}/{}", encoded(user), encoded(agent))
}

/// A skill that calls itself `name`.
fn described(skill: &str, name: &str) -> Vec<u8> {
    let header = format!("---\nname: {name}\ndescription: what {name} does\n---\n");
    let entry = |file: &str, text: &str| Entry::file(&format!("{skill}/{file}"), text);
    zip(&[entry("SKILL.md", &header), entry("f", name)])
}

/// Two agents, three users, both scopes.
fn fill(client: &Client) {
    client.upload(&skills("管理员", "a"), "baseline", &described("数据统计", "counting"));
    client.upload(&skills("m", "b"), "baseline", &described("s", "two"));
    client.upload(&skills("甲", "a"), "overlay", &described("数据统计", "mine"));
    client.upload(&skills("u", "a"), "overlay", &described("own", "own"));
    client.upload(&skills("u", "b"), "overlay", &described("s", "other"));
}

#[test]
fn every_change_of_what_is_published_is_in_the_registry_when_it_is_answered() {
    let service = Service::start();
    let client = &service.client;
    assert_eq!(rows(client), Vec::<Value>::new());
    let uploaded = client.upload(&skills("u", "a"), "baseline", &described("s", "first"));
    let first = uploaded["result"]["skills"][0]["version"].clone();
    let [row] = <[Value; 1]>::try_from(rows(client)).unwrap();
    let bytes = uploaded["result"]["skills"][0]["bytes"].clone();
    for (column, expected) in [
        ("agent_id", json!("a")),
        ("skill_id", json!("s")),
        ("user_id", Value::Null),
        ("version", first.clone()),
        ("size", bytes),
        ("name", json!("first")),
        ("description", json!("what first does")),
        ("uploaded_by", json!("anonymous")),
    ] {
        assert_eq!(row[column], expected, "{column}: {row}");
    }
    assert!(row["digest"].as_str().unwrap().starts_with(first.as_str().unwrap()), "{row}");
    let version = |user: &str| {
        let of_user = rows(client).into_iter().find(|row| row["user_id"].as_str().unwrap_or("") == user);
        of_user.map(|row| (row["version"].clone(), row["uploaded_by"].as_str().unwrap().to_owned()))
    };
    // The same content again is no other publication.
    client.upload(&skills("v", "a"), "baseline", &described("s", "first"));
    assert_eq!(rows(client), std::slice::from_ref(&row));
    client.upload(&skills("v", "a"), "baseline", &described("s", "second"));
    let [second] = <[Value; 1]>::try_from(rows(client)).unwrap();
    assert_eq!((&second["uploaded_by"], &second["id"]), (&json!("anonymous"), &row["id"]));
    let skill = format!("{}/s", skills("w", "a"));
    client.post(format!("{skill}/rollback?version={}", first.as_str().unwrap()), "").ok();
    assert_eq!(version(""), Some((first.clone(), "anonymous".to_owned())));
    // An edit is no publication; promoting it is one.
    client.write(&skill, "f", "edited");
    assert_eq!(version("w"), None);
    client.post(format!("{skill}/promote"), "").ok();
    assert_eq!(version("").unwrap().1, "anonymous");
    client.upload(&skills("w", "a"), "overlay", &described("s", "mine"));
    client.write(&skill, "SKILL.md", "# something else");
    assert_eq!(version("w").unwrap().1, "anonymous");
    assert_eq!(rows(client)[1]["name"], "mine");
    client.post(format!("{skill}/promote?force=true"), "").ok();
    assert_eq!(version("w"), None, "a promoted skill is the user's own no longer");
    assert_eq!(rows(client)[0]["name"], "something else");
    for (method, target) in [("POST", format!("{skill}/reset")), ("DELETE", skill.clone())] {
        client.upload(&skills("w", "a"), "overlay", &described("s", "again"));
        assert!(version("w").is_some());
        client.request(method, target).body("").send().ok();
        assert_eq!(version("w"), None, "{method}");
    }
    client.delete(format!("{skill}?scope=baseline")).ok();
    assert_eq!(rows(client), Vec::<Value>::new());
}

#[test]
fn who_called_is_written_down_whichever_user_the_request_names() {
    let token = |name: &str, role: &str| {
        format!("[[tokens]]\nsha256 = \"{}\"\n{role}\nname = \"{name}\"\n", digest(name))
    };
    let config = [
        token("ops", "role = \"admin\""),
        token("keeper", "role = \"manager\"\nagent = \"a\""),
        token("ide", "role = \"engine\""),
        token("laptop", "role = \"user\"\nuser = \"alice\""),
    ];
    let service = Service::configured(&config.concat());
    let of = |name: &str| service.client.with_token(name);
    let ops = of("ops");
    let by = |skill: &str, user: Option<&str>| {
        let rows = rows(&ops);
        let row = rows.iter().find(|row| row["skill_id"] == skill && row["user_id"].as_str() == user);
        row.map(|row| row["uploaded_by"].as_str().unwrap().to_owned())
    };
    for (caller, subject) in [("ide", "ide"), ("laptop", "alice"), ("ops", "ops")] {
        of(caller).upload(&skills("alice", "a"), "overlay", &described("s", caller));
        assert_eq!(by("s", Some("alice")).as_deref(), Some(subject), "{caller}");
    }
    let signed = of("ide").post_json("/v1/tokens", &json!({ "user": "bob" })).ok();
    let bob = service.client.with_token(signed["data"].as_str().unwrap());
    bob.upload(&skills("bob", "a"), "overlay", &described("s", "bob's"));
    assert_eq!(by("s", Some("bob")).as_deref(), Some("bob"));
    // A manager asks among the skills of a user, whose doing it is not.
    let first = of("keeper").upload(&skills("alice", "a"), "baseline", &described("t", "one"));
    assert_eq!(by("t", None).as_deref(), Some("keeper"));
    ops.upload(&skills("alice", "a"), "baseline", &described("t", "two"));
    assert_eq!(by("t", None).as_deref(), Some("ops"));
    let version = first["result"]["skills"][0]["version"].as_str().unwrap();
    of("keeper").post(format!("{}/t/rollback?version={version}", skills("bob", "a")), "").ok();
    assert_eq!(by("t", None).as_deref(), Some("keeper"));
    ops.post(format!("{}/s/promote", skills("bob", "a")), "").ok();
    assert_eq!(by("s", None).as_deref(), Some("ops"));
    // Nothing that is only tried is anyone's, and another's row is none of a user's to change.
    let before = rows(&ops);
    let tried = format!("{}/upload?scope=overlay&dry_run=true", skills("alice", "a"));
    of("laptop").post(tried, described("s", "tried")).ok();
    of("laptop").try_upload(&skills("bob", "a"), "overlay", &described("s", "x")).refused(404, "not_found");
    assert_eq!(rows(&ops), before);
    let dry: Vec<Value> =
        audited(&service.root).into_iter().filter(|record| record["dry_run"] == true).collect();
    assert_eq!(dry.len(), 1, "{dry:?}");
    assert_eq!((&dry[0]["token"], &dry[0]["outcome"]), (&json!("laptop"), &json!("ok")));
}

#[test]
fn a_dry_run_that_is_refused_is_on_record_as_one_too() {
    let service = Service::start();
    let upload = format!("{}/upload?dry_run=true", skills("u", "a"));
    service.client.post(&upload, b"no archive").refused(422, "bad_archive");
    service.client.post(upload.replace("true", "false"), b"no archive").refused(422, "bad_archive");
    let records = audited(&service.root);
    let told: Vec<bool> = records
        .iter()
        .filter(|record| record["outcome"] == "bad_archive")
        .map(|record| record["dry_run"] == true)
        .collect();
    assert_eq!(told, [true, false], "{records:#?}");
}

/// The records of the audit log.
fn audited(root: &Path) -> Vec<Value> {
    let files = std::fs::read_dir(root.join(".filesecbox/audit")).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|end| end == "jsonl"));
    let texts: Vec<String> = files.map(|path| std::fs::read_to_string(path).unwrap()).collect();
    texts.iter().flat_map(|text| text.lines()).map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_rebuild_gives_the_rows_that_were_there_and_so_does_a_start_after_anything() {
    let config = Settings { config: Some("keep_versions = 1".to_owned()), ..Settings::default() };
    let mut service = Service::with(config);
    fill(&service.client);
    let expected = rows(&service.client);
    assert_eq!(
        shelves(&expected),
        [["a", "own", "u"], ["a", "数据统计", ""], ["a", "数据统计", "甲"], ["b", "s", ""], ["b", "s", "u"]]
    );
    assert_eq!(rebuilt(&service.client), expected);
    let data = service.root.clone();
    let kept = tempfile::tempdir().unwrap();
    let root = kept.path().join("data");
    service.terminate();
    assert!(service.wait().success());
    std::fs::rename(&data, &root).unwrap();
    let registry = root.join(".filesecbox/registry");
    assert!(registry.join("settled").exists() && !registry.join("registry.db-wal").exists());
    for what in ["as it was", "without its file", "with a damaged file", "with nothing", "after a kill"] {
        match what {
            "without its file" => std::fs::remove_file(registry.join("registry.db")).unwrap(),
            "with a damaged file" => {
                std::fs::write(registry.join("registry.db"), "damaged ".repeat(10_000)).unwrap();
            }
            "with nothing" => std::fs::remove_dir_all(&registry).unwrap(),
            _ => {}
        }
        let mut service = Service::with(Settings { root: Some(root.clone()), ..Settings::default() });
        assert_eq!(rows(&service.client), expected, "{what}");
        if what == "with nothing" {
            let process = rustix::process::Pid::from_raw(i32::try_from(service.pid()).unwrap()).unwrap();
            rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
        } else {
            service.terminate();
        }
        service.wait();
        assert_eq!(registry.join("settled").exists(), what != "with nothing", "{what}");
    }
    let told = run_program(&["registry", "rebuild", "--root", root.to_str().unwrap()], &[]);
    assert_eq!(String::from_utf8_lossy(&told.stdout), "5 rows\n", "{told:?}");
    let service = Service::with(Settings { root: Some(root.clone()), ..Settings::default() });
    assert_eq!(rows(&service.client), expected);
    let told = run_program(&["registry", "rebuild", "--root", root.to_str().unwrap()], &[]);
    assert!(!told.status.success() && String::from_utf8_lossy(&told.stderr).contains("/v1/registry/rebuild"));
}

#[test]
fn a_registry_that_cannot_be_written_holds_no_upload_up_and_catches_up() {
    let service = Service::start();
    let client = &service.client;
    client.upload(&skills("u", "a"), "baseline", &described("before", "before"));
    let before = rows(client);
    let file = service.root.join(".filesecbox/registry/registry.db");
    let operator = rusqlite::Connection::open(&file).unwrap();
    operator.execute_batch("BEGIN IMMEDIATE").unwrap();
    let began = Instant::now();
    for number in 0..20 {
        client.upload(&skills("u", "a"), "overlay", &described(&format!("s{number}"), "late"));
    }
    assert!(
        began.elapsed() < Duration::from_secs(15),
        "uploads wait for the registry: {:?}",
        began.elapsed()
    );
    let answer = ask(client, "");
    assert_eq!((&answer["data"], &answer["complete"]), (&json!(before), &json!(false)));
    operator.execute_batch("COMMIT").unwrap();
    while ask(client, "")["complete"] != true {
        assert!(began.elapsed() < PATIENCE, "the rows never come");
        std::thread::sleep(Duration::from_millis(50));
    }
    let caught_up = rows(client);
    assert_eq!(caught_up.len(), 21);
    assert_eq!(rebuilt(client), caught_up);
    // Rows that another program writes into it are not believed.
    operator.execute_batch("UPDATE agent_skill_registry SET size = -1").unwrap();
    assert_eq!(rows(client), caught_up);
    client.upload(&skills("u", "a"), "baseline", &described("after", "after"));
    assert_eq!(rows(client).len(), 22);
}

#[test]
fn everybody_sees_the_rows_that_are_theirs_to_see_in_pages_that_make_up_the_list() {
    let mut config = String::new();
    for (token, role) in [
        ("admin", "role = \"admin\""),
        ("engine", "role = \"engine\""),
        ("manager", "role = \"manager\"\nagent = \"a\""),
        ("user", "role = \"user\"\nuser = \"u\""),
        ("bound", "role = \"user\"\nuser = \"u\"\nagent = \"b\""),
    ] {
        config.push_str(&format!("[[tokens]]\nsha256 = \"{}\"\n{role}\n", digest(token)));
    }
    let service = Service::configured(&config);
    fill(&service.client.with_token("admin"));
    let (own, of_all, of_other, of_b, own_b) =
        (["a", "own", "u"], ["a", "数据统计", ""], ["a", "数据统计", "甲"], ["b", "s", ""], ["b", "s", "u"]);
    let all: &[[&str; 3]] = &[own, of_all, of_other, of_b, own_b];
    for (token, query, expected) in [
        ("admin", "", all),
        ("engine", "", all),
        ("engine", "agent=b", &[of_b, own_b]),
        ("engine", "user=u", &[own, own_b]),
        ("engine", "skill=s", &[of_b, own_b]),
        ("engine", "scope=baseline", &[of_all, of_b]),
        ("engine", "scope=overlay", &[own, of_other, own_b]),
        ("engine", "scope=overlay&agent=a&user=u", &[own]),
        ("engine", "user=nobody", &[]),
        ("manager", "", &[own, of_all, of_other]),
        ("manager", "user=u", &[own]),
        ("user", "", &[own, own_b]),
        ("user", "agent=a", &[own, of_all]),
        ("user", "agent=b&scope=baseline", &[of_b]),
        ("user", "scope=overlay", &[own, own_b]),
        ("bound", "", &[of_b, own_b]),
        ("bound", "user=u", &[own_b]),
    ] {
        let client = service.client.with_token(token);
        let answer = ask(&client, &format!("?{query}"));
        let found = answer["data"].as_array().unwrap();
        assert_eq!(shelves(found), expected, "{token}: {query}");
        let (mut pages, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = ask(&client, &format!("?{query}&limit=2{cursor}"));
            pages.extend(page["data"].as_array().unwrap().clone());
            let Some(next) = page["next"].as_str() else { break };
            assert_eq!(page["data"].as_array().unwrap().len(), 2);
            cursor = format!("&cursor={next}");
        }
        assert_eq!(&pages, found, "{token}: {query}");
    }
    for (token, query) in
        [("manager", "agent=b"), ("user", "user=v"), ("bound", "agent=a"), ("bound", "agent=b&user=甲")]
    {
        let reply = service
            .client
            .with_token(token)
            .get(format!("/v1/registry?{}", query.replace('甲', "%E7%94%B2")));
        reply.refused(404, "not_found");
    }
    service.client.with_token("user").get("/v1/registry?scope=baseline").refused(400, "invalid");
}

#[test]
fn a_row_is_found_by_its_id_by_those_who_may_see_it() {
    let user = format!("[[tokens]]\nsha256 = \"{}\"\nrole = \"user\"\nuser = \"u\"\n", digest("user"));
    let admin = format!("[[tokens]]\nsha256 = \"{}\"\nrole = \"admin\"\n", digest("admin"));
    let service = Service::configured(&(user + &admin));
    let [admin, user] = ["admin", "user"].map(|token| service.client.with_token(token));
    fill(&admin);
    for row in rows(&admin) {
        let id = row["id"].as_str().unwrap();
        for query in [format!("?id={id}"), format!("?id=skill_{id}&limit=1")] {
            assert_eq!(ask(&admin, &query)["data"], json!([row]));
        }
        assert_eq!(ask(&admin, &format!("?id={id}&agent=none"))["data"], json!([]));
        let is_own = row["user_id"] == "u";
        assert_eq!(ask(&user, &format!("?id={id}"))["data"], if is_own { json!([row]) } else { json!([]) });
    }
    assert_eq!(ask(&admin, &format!("?id={}", "0".repeat(32)))["data"], json!([]));
    for wrong in ["", "x", "SKILL_1", &"A".repeat(32), &"0".repeat(33)] {
        admin.get(format!("/v1/registry?id={wrong}")).refused(400, "invalid");
    }
}
