//! What comes of archives as people have them, and what the answer of an upload tells.

use std::io::Write;

use serde_json::{Value, json};

use crate::support::{Entry, Reply, Service, skill, skills, zip};

fn head(name: &str) -> String {
    format!("---\nname: {name}\ndescription: about {name}\n---\n")
}

/// A tar of files, in a folder each.
fn tar(files: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_mode(if path.ends_with(".sh") { 0o755 } else { 0o644 });
        header.set_size(text.len() as u64);
        builder.append_data(&mut header, path, text.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Uploads one part of a form with the given `Content-Disposition` after the name.
fn as_part(service: &Service, target: &str, disposition: &[u8], archive: &[u8]) -> Reply {
    let body = [
        b"--B\r\nContent-Disposition: form-data; name=\"file\"; ".as_slice(),
        disposition,
        b"\r\n\r\n",
        archive,
        b"\r\n--B--\r\n",
    ];
    let request = service.client.request("POST", target);
    request.header("content-type", "multipart/form-data; boundary=B").body(body.concat()).send()
}

fn ids(answer: &Value) -> Vec<&str> {
    answer["result"]["skills"].as_array().unwrap().iter().map(|s| s["skill_id"].as_str().unwrap()).collect()
}

#[test]
fn a_repository_becomes_its_skills_and_the_answer_tells_everything() {
    let service = Service::start();
    let archive = zip(&[
        Entry::file("repo-main/README.md", "# Repository\n"),
        Entry::file("repo-main/package.json", "{}"),
        Entry::link("repo-main/CLAUDE.md", "/etc/passwd"),
        Entry::file("repo-main/.claude-plugin/plugin.json", "{\"name\": \"office\"}"),
        Entry::file("repo-main/skills/pdf/SKILL.md", head("pdf")),
        Entry::link("repo-main/skills/pdf/AGENTS.md", "SKILL.md"),
        Entry::file(
            "repo-main/.claude/skills/docx/skill.md",
            "---\nname: word\ndescription: d\nversion: 1\nallowed-tools:\n  - Read\n---\n",
        ),
        Entry::file("repo-main/node_modules/x/SKILL.md", head("x")),
    ]);
    let target = skills("u", "a");
    let answer = service.client.upload(&target, "overlay", &archive);
    let version = |index: usize| answer["result"]["skills"][index]["version"].clone();
    assert_eq!(
        answer["result"],
        json!({
            "scope": "overlay",
            "dry_run": false,
            "skills": [
                {
                    "skill_id": "docx", "name": "word", "description": "d",
                    "path": "repo-main/.claude/skills/docx", "plugin": "office", "version": version(0),
                    "files": 1, "bytes": 69, "replaced": false, "unchanged": false,
                    "warnings": [
                        "`name` is not the name of the skill's directory",
                        "the front matter has fields that the specification does not know: `version`; put them under \
                         `metadata`",
                        "`allowed-tools` is a list: write one text with spaces between the tools",
                    ],
                },
                {
                    "skill_id": "pdf", "name": "pdf", "description": "about pdf",
                    "path": "repo-main/skills/pdf", "plugin": "office", "version": version(1),
                    "files": 2, "bytes": 2 * head("pdf").len(), "replaced": false, "unchanged": false,
                    "warnings": [],
                },
            ],
            "charset": ["utf-8"],
            "skipped": [
                {"path": "repo-main/.claude-plugin", "reason": "hidden"},
                {"path": "repo-main/CLAUDE.md", "reason": "link"},
                {"path": "repo-main/README.md", "reason": "beside_skills"},
                {"path": "repo-main/node_modules", "reason": "dependencies"},
                {"path": "repo-main/package.json", "reason": "beside_skills"},
            ],
            "skipped_total": 5,
            "doubtful": [{
                "skill_id": "docx",
                "path": "repo-main/.claude/skills/docx",
                "doubt": "it is `docx` by its folder; by its front matter it would be `word`",
            }],
            "doubtful_total": 1,
            "warnings": [],
        })
    );
    assert_eq!(service.client.text(&skill("u", "a", "pdf"), "AGENTS.md"), head("pdf"));
}

#[test]
fn a_dry_run_answers_as_the_upload_and_publishes_nothing() {
    let service = Service::start();
    let target = skills("u", "a");
    let list = || service.client.get(format!("{target}/list")).ok()["data"].clone();
    let archive = zip(&[Entry::file("one/SKILL.md", head("one")), Entry::file("two/SKILL.md", head("two"))]);
    for scope in ["overlay", "baseline"] {
        let before = list();
        let dry = service.client.post(format!("{target}/upload?scope={scope}&dry_run=true"), &archive).ok();
        let place = if scope == "overlay" { "overlay/u/a" } else { "baseline/a" };
        assert_eq!(
            dry["data"],
            format!(
                "Dry run, nothing was uploaded: skill 'one' to '{place}/one', skill 'two' to '{place}/two'"
            )
        );
        assert_eq!(list(), before);
        let mut done = service.client.upload(&target, scope, &archive);
        assert_eq!((&done["result"]["dry_run"], &dry["result"]["dry_run"]), (&json!(false), &json!(true)));
        done["result"]["dry_run"] = json!(true);
        for skill in done["result"]["skills"].as_array_mut().unwrap() {
            // What is not published has no number.
            assert_eq!(skill.as_object_mut().unwrap().remove("number").is_some(), scope == "baseline");
        }
        assert_eq!(dry["result"], done["result"]);
    }
    let again = service.client.post(format!("{target}/upload?dry_run=true"), &archive).ok();
    assert_eq!(again["result"]["skills"][0]["replaced"], true);
    // What would be refused is refused.
    let damaged = zip(&[Entry::file("a/SKILL.md", head("a")), Entry::link("a/x", "../../secret")]);
    service.client.post(format!("{target}/upload?dry_run=true"), &damaged).refused(422, "bad_archive");
    let cut = &archive[..archive.len() - 30];
    service.client.post(format!("{target}/upload?dry_run=true"), cut).refused(422, "bad_archive");
    service.client.post(format!("{target}/upload?dry_run=maybe"), &archive).refused(400, "invalid");
    assert!(
        !service
            .root
            .join(".filesecbox/stage")
            .read_dir()
            .unwrap()
            .any(|entry| { entry.unwrap().path().is_dir() })
    );
}

#[test]
fn a_valid_name_comes_before_the_files_and_file_names_are_read_in_every_encoding() {
    let service = Service::start();
    let target = format!("{}/upload", skills("u", "a"));
    let named = zip(&[Entry::file("SKILL.md", head("my-skill")), Entry::file("run.py", "")]);
    let answer = as_part(&service, &target, b"filename=\"My Skill (1).zip\"", &named).ok();
    assert_eq!(ids(&answer), ["my-skill"]);
    let unnamed = zip(&[Entry::file("SKILL.md", "# Title\n")]);
    for disposition in [
        "filename=\"数据.zip\"",
        "filename=\"=?UTF-8?B?5pWw5o2uLnppcA==?=\"",
        "filename=\"__.zip\"; filename*=UTF-8''%E6%95%B0%E6%8D%AE.zip",
        "filename=\"数据 (2).tar.gz\"",
    ] {
        let answer = as_part(&service, &target, disposition.as_bytes(), &unnamed).ok();
        assert_eq!(ids(&answer), ["数据"], "{disposition}");
    }
    as_part(&service, &target, b"filename=\"\"", &unnamed).refused(422, "bad_archive");
}

#[test]
fn nothing_of_a_users_is_replaced_by_what_is_no_skill() {
    let service = Service::start();
    let target = skills("u", "a");
    let mine = zip(&[Entry::file("mine/SKILL.md", head("mine")), Entry::file("META-INF/SKILL.md", "x")]);
    assert_eq!(ids(&service.client.upload(&target, "overlay", &mine)), ["mine"]);
    for beside in [
        Entry::file("mine/", "").directory(),
        Entry::file("node_modules/mine/SKILL.md", "x"),
        Entry::link("mine", "other"),
    ] {
        let archive = zip(&[Entry::file("other/SKILL.md", head("other")), beside]);
        assert_eq!(ids(&service.client.upload(&target, "overlay", &archive)), ["other"]);
        assert_eq!(service.client.text(&skill("u", "a", "mine"), "SKILL.md"), head("mine"));
    }
}

#[test]
fn what_was_uploaded_or_downloaded_under_another_name_is_replaced_by_going_up_again() {
    let service = Service::start();
    let target = skills("u", "a");
    // Breaks the rules for names, so that the folder names it as long as nothing else does.
    let first = zip(&[Entry::file("My Data/SKILL.md", "---\nname: Data Stats\ndescription: d\n---\n")]);
    assert_eq!(ids(&service.client.upload(&target, "overlay", &first)), ["My Data"]);
    service.client.write(&skill("u", "a", "My Data"), "SKILL.md", &head("data-stats"));
    let down = service.client.get(format!("{}/download", skill("u", "a", "My Data"))).bytes(200).to_vec();
    let answer = service.client.upload(&target, "overlay", &down);
    assert_eq!((ids(&answer), &answer["result"]["skills"][0]["replaced"]), (vec!["My Data"], &json!(true)));
    // Another user, who has no such skill, gets it by its name.
    assert_eq!(ids(&service.client.upload(&skills("v", "a"), "overlay", &down)), ["data-stats"]);
}

#[test]
fn a_link_in_a_skill_comes_down_as_the_file_that_it_means() {
    let service = Service::start();
    let target = skills("u", "a");
    service.client.upload(&target, "overlay", &zip(&[Entry::file("s/SKILL.md", head("s"))]));
    let mine = skill("u", "a", "s");
    let script = "ln -s SKILL.md AGENTS.md; ln -s loop loop; ln -s gone dangling; \
                  python3 -c 'import os; os.symlink(chr(47) + \"etc/passwd\", \"out\")'";
    let ran = service.client.post_json(format!("{mine}/exec"), &json!({ "shell": script })).ok();
    assert_eq!(ran["data"]["exit_code"], 0, "{ran}");
    let down = service.client.get(format!("{mine}/download")).bytes(200).to_vec();
    service.client.upload(&skills("v", "a"), "overlay", &down);
    let theirs = skill("v", "a", "s");
    assert_eq!(service.client.files(&theirs), ["AGENTS.md", "SKILL.md"]);
    assert_eq!(service.client.text(&theirs, "AGENTS.md"), head("s"));
}

#[test]
fn tars_of_every_compression_are_taken_in_and_bombs_are_not() {
    let service = Service::configured(
        "[limits.archive]\ntotal_bytes = 4000000\nfile_bytes = 3000000\nratio_from_bytes = 1000000\n",
    );
    let target = skills("u", "a");
    let plain =
        tar(&[("repo-1.0/s/SKILL.md", &head("s")), ("repo-1.0/s/run.sh", "#!/bin/sh\n"), ("repo-1.0/x", "")]);
    for (bytes, content_type) in [
        (plain.clone(), "application/x-tar"),
        (gzip(&plain), "application/gzip"),
        (zstd::encode_all(plain.as_slice(), 19).unwrap(), "application/zstd"),
    ] {
        let request = service.client.request("POST", format!("{target}/upload"));
        let answer = request.header("content-type", content_type).body(&bytes).send().ok();
        assert_eq!(ids(&answer), ["s"], "{content_type}");
        assert_eq!(answer["result"]["skills"][0]["files"], 2);
    }
    let zeros = "\0".repeat(2_900_000);
    let bomb = tar(&[("s/SKILL.md", ""), ("s/a", &zeros)]);
    for bytes in [gzip(&bomb), zstd::encode_all(bomb.as_slice(), 3).unwrap()] {
        let refused = service.client.post(format!("{target}/upload"), bytes).refused(422, "bad_archive");
        assert!(refused["data"].as_str().unwrap().contains("200 times"), "{refused}");
    }
    let large = tar(&[("s/SKILL.md", ""), ("s/a", &zeros), ("s/b", &zeros)]);
    let refused = service.client.post(format!("{target}/upload"), &large).refused(422, "bad_archive");
    assert!(refused["data"].as_str().unwrap().contains("4000000 bytes together"), "{refused}");
}

#[test]
fn the_catalogue_points_to_the_file_that_describes_a_skill_as_it_is_spelled() {
    let service = Service::start();
    let target = skills("u", "a");
    service.client.upload(&target, "overlay", &zip(&[Entry::file("small/skill.md", head("small"))]));
    let unmarked = zip(&[Entry::file("old/README.md", "# Old\n"), Entry::file("bare/run.py", "")]);
    let answer = service.client.upload(&target, "overlay", &unmarked);
    assert_eq!(
        answer["result"]["warnings"],
        json!(["the archive has no `SKILL.md`: each directory of its root became a skill by its name"])
    );
    assert_eq!(answer["result"]["skills"][0]["warnings"], json!(["the skill has no SKILL.md"]));
    let catalog = service.client.get(format!("{target}/catalog?format=markdown")).ok();
    let catalog = catalog["data"].as_str().unwrap();
    for location in [
        "`/workspace/skills/bare`",
        "`/workspace/skills/old/README.md`",
        "`/workspace/skills/small/skill.md`",
    ] {
        assert!(catalog.contains(location), "{catalog}");
    }
}
