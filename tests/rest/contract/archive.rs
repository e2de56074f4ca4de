//! Directories in and out as archives, read and written by other programs.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::support::{Service, Snapshot, skill, skill_zip, skills, workspace};

/// What a program makes of `input`.
fn piped(program: &str, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    let mut stdin = child.stdin.take().unwrap();
    let output = std::thread::scope(|threads| {
        threads.spawn(move || stdin.write_all(input).unwrap());
        child.wait_with_output().unwrap()
    });
    assert!(output.status.success(), "{program} {arguments:?}");
    output.stdout
}

/// A tar of the files, made by tar(1).
fn tar_of(files: &[(&str, &str)], arguments: &[&str]) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let at = dir.path().to_str().unwrap();
    piped("tar", &[&["-C", at][..], arguments, &["-cf", "-", "."][..]].concat(), b"")
}

const DEEP: &str = "d/\u{6570}\u{636e}/a name that is longer than the hundred bytes which the header of a tar has for it, so that it needs another.txt";

#[test]
fn a_directory_comes_back_from_its_archive_in_every_format() {
    let service = Service::start();
    let client = &service.client;
    client.upload(
        &skills("u", "a"),
        "baseline",
        &skill_zip("s", &[("src/run.sh", "baseline\n"), ("src/gone", "x")]),
    );
    for tree in [workspace("u", "a"), skill("u", "a", "s")] {
        let write = |path: &str, text: &str| {
            client.put(format!("{tree}/raw/{}?parents=true", crate::support::encoded(path)), text).ok();
        };
        write("src/run.sh", "#!/bin/sh\n");
        write(&format!("src/{DEEP}"), "\u{4e2d}\u{6587}\n");
        client.put(format!("{tree}/raw/src/tool?mode=0755"), "x").ok();
        client.post_json(format!("{tree}/mkdir"), &serde_json::json!({ "path": "src/empty" })).ok();
        client.delete(format!("{tree}/file?path=src/gone"));
        for format in ["zip", "tar", "tar.gz"] {
            let reply = client.get(format!("{tree}/archive?path=src&format={format}"));
            assert_eq!(reply.status, 200, "{}", reply.json());
            let expected = format!("attachment; filename=\"src.{format}\"; filename*=UTF-8''src.{format}");
            assert_eq!(reply.header("content-disposition"), Some(expected.as_str()));
            let archive = reply.bytes(200).to_vec();
            if format != "zip" {
                let z = if format == "tar.gz" { "-tzvf" } else { "-tvf" };
                let listed = String::from_utf8(piped("tar", &[z, "-"], &archive)).unwrap();
                assert!(listed.contains("-rwxr-xr-x") && listed.contains("empty/"), "{listed}");
                assert_eq!(listed.lines().count(), 6, "{listed}");
            }
            let back = format!("back-{format}");
            let put = client.put(format!("{tree}/archive?path={back}"), &archive);
            assert_eq!(put.status, 201, "{}", put.json());
            let told = put.json();
            assert_eq!(
                (&told["path"], &told["files"], &told["bytes"]),
                (&back.clone().into(), &3.into(), &18.into())
            );
            for (path, text) in [("run.sh", "#!/bin/sh\n"), (DEEP, "\u{4e2d}\u{6587}\n"), ("tool", "x")] {
                let path = crate::support::encoded(format!("{back}/{path}"));
                assert_eq!(client.get(format!("{tree}/raw/{path}")).bytes(200), text.as_bytes());
            }
            let tool = client.get(format!("{tree}/stat?path={back}/tool")).ok();
            assert_eq!(tool["data"]["mode"], "0755");
            let empty = client.get(format!("{tree}/stat?path={back}/empty")).ok();
            assert_eq!(empty["data"]["kind"], "directory");
            // What is there is not replaced, and not merged with.
            client.put(format!("{tree}/archive?path={back}"), &archive).refused(409, "already_exists");
        }
        // Commands own what came.
        if crate::support::landlocked(client) {
            let line = "echo more >> back-tar/run.sh && rm back-tar/tool && cat back-tar/run.sh";
            let ran = client.post_json(format!("{tree}/exec"), &serde_json::json!({ "shell": line })).ok();
            assert_eq!(ran["data"]["stdout"], "#!/bin/sh\nmore\n", "{ran}");
        }
    }
}

#[test]
fn an_archive_of_another_program_becomes_a_directory_or_nothing() {
    let service = Service::start();
    let client = &service.client;
    let tree = workspace("u", "a");
    // The first thing in a workspace.
    let files = [("a.txt", "one"), ("d/b.txt", "two")];
    let put = client.put(format!("{tree}/archive?path=new/project/&parents=true"), tar_of(&files, &["-z"]));
    assert_eq!(put.status, 201, "{}", put.json());
    assert_eq!(client.files(&tree), ["new/project/a.txt", "new/project/d/b.txt"]);

    let before = Snapshot::of(&service.root);
    let tar = tar_of(&files, &[]);
    let climbing = tar_of(&files, &["--transform", "s,^\\./a.txt,../a.txt,", "-P"]);
    for (target, body, status, code) in [
        ("archive?path=missing/project", &tar, 404, "not_found"),
        ("archive?path=new/project", &tar, 409, "already_exists"),
        ("archive?path=new/project/a.txt", &tar, 409, "already_exists"),
        ("archive?path=new/project/a.txt/x", &tar, 409, "not_a_directory"),
        ("archive?path=../x", &tar, 403, "path_escape"),
        ("archive?path=.", &tar, 400, "invalid"),
        ("archive", &tar, 400, "invalid"),
        ("archive?path=x&format=tar", &tar, 400, "invalid"),
        ("archive?path=x", &climbing, 422, "bad_archive"),
        ("archive?path=x", &tar[..1300].to_vec(), 422, "bad_archive"),
        ("archive?path=x", &b"no archive".to_vec(), 422, "bad_archive"),
        ("archive?path=x", &Vec::new(), 422, "bad_archive"),
    ] {
        client.put(format!("{tree}/{target}"), body).refused(status, code);
        before.unchanged(&service.root, target);
    }
    client.get(format!("{tree}/archive?path=none")).refused(404, "not_found");
    client.get(format!("{tree}/archive?path=new/project/a.txt")).refused(409, "not_a_directory");
    client.get(format!("{tree}/archive?format=rar")).refused(400, "invalid");
}

#[test]
fn a_workspace_that_was_never_written_to_is_an_empty_archive() {
    let service = Service::start();
    for (format, expected) in [("tar", ""), ("tar.gz", "")] {
        let reply = service.client.get(format!("{}/archive?format={format}", workspace("u", "a")));
        let flag = if format == "tar" { "-tf" } else { "-tzf" };
        assert_eq!(piped("tar", &[flag, "-"], reply.bytes(200)), expected.as_bytes());
    }
    assert!(!service.root.join("sandbox/u").exists());
}

#[test]
fn an_archive_that_would_exceed_the_quota_leaves_nothing() {
    let service = Service::configured("[limits.disk]\nbytes = 1048576\n");
    let tree = workspace("u", "a");
    service.client.write(&tree, "f", "x");
    let before = Snapshot::of(&service.root);
    let large = "x".repeat(2 << 20);
    let reply = service.client.put(format!("{tree}/archive?path=d"), tar_of(&[("large", &large)], &["-z"]));
    reply.refused(507, "quota");
    before.unchanged(&service.root, "a refused archive");
}
