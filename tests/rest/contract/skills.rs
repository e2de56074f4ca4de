//! Routes about whole skills: upload, list, remove, reset, download.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Entry, Service, encoded, have, skill, skill_zip, skills, zip};

fn multipart(parts: &[(&str, &str, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, file_name, bytes) in parts {
        let head = format!(
            "--XX\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{file_name}\"\r\n\
             Content-Type: application/zip\r\n\r\n"
        );
        body.extend(head.as_bytes());
        body.extend(*bytes);
        body.extend(b"\r\n");
    }
    body.extend(b"--XX--\r\n");
    body
}

fn ids(list: &Value) -> Vec<&str> {
    list["data"].as_array().unwrap().iter().map(|skill| skill["skill_id"].as_str().unwrap()).collect()
}

#[test]
fn an_upload_answers_the_founding_sentence_and_the_facts_beside_it() {
    let service = Service::start();
    let archive = skill_zip("报表", &[("脚本/运行.py", "print('好')\n")]);
    let answer = service.client.upload(&skills("张三", "代理"), "overlay", &archive);
    assert_eq!(answer["data"], "Upload successful: skill '报表' to 'overlay/张三/代理/报表'");
    let result = &answer["result"];
    assert_eq!(result["scope"], "overlay");
    assert_eq!(result["skipped_total"], 0);
    let [uploaded] = result["skills"].as_array().unwrap().as_slice() else { panic!("{answer}") };
    assert_eq!(uploaded["skill_id"], "报表");
    assert_eq!(uploaded["files"], 2);
    assert_eq!(uploaded["replaced"], false);
    assert!(uploaded["bytes"].as_u64().unwrap() > 0, "{answer}");
    assert!(!uploaded["version"].as_str().unwrap().is_empty(), "{answer}");

    let again = service.client.upload(&skills("张三", "代理"), "OVERLAY", &archive);
    assert_eq!(again["result"]["skills"][0]["replaced"], true);
}

#[test]
fn several_skills_are_named_in_one_sentence_separated_by_commas() {
    let service = Service::start();
    let both = zip(&[Entry::file("b/SKILL.md", "# B\n"), Entry::file("a/SKILL.md", "# A\n")]);
    let answer = service.client.upload(&skills("u", "x"), "baseline", &both);
    assert_eq!(answer["data"], "Upload successful: skill 'a' to 'baseline/x/a', skill 'b' to 'baseline/x/b'");
}

#[test]
fn a_form_brings_one_archive_or_several_and_all_or_none_are_taken() {
    let service = Service::start();
    let (one, two) = (skill_zip("one", &[]), skill_zip("two", &[]));
    let target = format!("{}/upload", skills("u", "x"));
    let send = |body: Vec<u8>| {
        let request = service.client.request("POST", &target);
        request.header("content-type", "multipart/form-data; boundary=XX").body(body).send()
    };
    let answer = send(multipart(&[("file", "一.zip", &one), ("file", "two.zip", &two)])).ok();
    assert_eq!(
        answer["data"],
        "Upload successful: skill 'one' to 'overlay/u/x/one', skill 'two' to 'overlay/u/x/two'"
    );
    send(multipart(&[("file", "three.zip", &skill_zip("three", &[])), ("file", "x.zip", b"no archive")]))
        .refused(422, "bad_archive");
    send(multipart(&[("file", "1.zip", &one), ("file", "2.zip", &one)])).refused(400, "invalid");
    send(multipart(&[("files", "1.zip", &one)])).refused(400, "invalid");
    send(multipart(&[])).refused(400, "invalid");
    let list = service.client.get(format!("{}/list", skills("u", "x"))).ok();
    assert_eq!(ids(&list), ["one", "two"]);
}

#[test]
fn a_form_as_curl_sends_it_is_taken() {
    if !have("curl") {
        return;
    }
    let service = Service::start();
    let path = service.outside().join("技能.zip");
    // Files at the root of an archive are a skill named after the archive.
    std::fs::write(&path, zip(&[Entry::file("SKILL.md", "# 标题\n"), Entry::file("a.txt", "a")])).unwrap();
    let url = format!("http://{}{}/upload?scope=overlay", service.client.address, skills("u", "x"));
    let output = Command::new("curl")
        .args(["-sS", "-F"])
        .arg(format!("file=@{}", path.display()))
        .arg(&url)
        .output()
        .unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["data"], "Upload successful: skill '技能' to 'overlay/u/x/技能'", "{answer}");
}

#[test]
fn names_of_an_archive_are_read_in_the_charset_asked_for() {
    let service = Service::start();
    // 数据/说明.txt in GBK.
    let gbk = zip(&[
        Entry::unmarked(b"\xca\xfd\xbe\xdd/SKILL.md", "# x\n"),
        Entry::unmarked(b"\xca\xfd\xbe\xdd/\xcb\xb5\xc3\xf7.txt", "text"),
    ]);
    for (user, charset) in [("auto", "auto"), ("gbk", "gbk"), ("upper", "GBK")] {
        let target = format!("{}/upload?charset={charset}", skills(user, "x"));
        let answer = service.client.request("POST", target).body(&gbk).send().ok();
        assert_eq!(answer["result"]["skills"][0]["skill_id"], "数据");
        assert_eq!(service.client.files(&skill(user, "x", "数据")), ["SKILL.md", "说明.txt"]);
    }
    let target = |charset: &str| format!("{}/upload?charset={charset}", skills("no", "x"));
    service.client.request("POST", target("utf-8")).body(&gbk).send().refused(422, "bad_archive");
    service.client.request("POST", target("latin1")).body(&gbk).send().refused(400, "invalid");
}

#[test]
fn the_list_is_merged_and_an_overlay_skill_stands_in_the_baselines_place() {
    let service = Service::start();
    let base = skills("anybody", "x");
    for id in ["a", "b", "c"] {
        service.client.upload(&base, "baseline", &skill_zip(id, &[]));
    }
    let mine = skills("u", "x");
    let replaced = zip(&[Entry::file("b/SKILL.md", "---\nname: mine\ndescription: my own\n---\n")]);
    service.client.upload(&mine, "overlay", &replaced);
    service.client.upload(&mine, "overlay", &skill_zip("own", &[]));

    let list = service.client.get(format!("{mine}/list")).ok();
    assert_eq!(ids(&list), ["a", "b", "c", "own"]);
    assert_eq!(list["data"][0]["layer"], "baseline");
    assert_eq!(list["data"][0]["status"], "UNCHANGED");
    assert_eq!(list["data"][1]["name"], "mine");
    assert_eq!(list["data"][1]["description"], "my own");
    assert_eq!(list["data"][1]["layer"], "overlay");
    assert_eq!(list["data"][1]["status"], "MODIFIED");
    assert_eq!(list["data"][3]["status"], "LOCAL_ONLY");
    for skill in list["data"].as_array().unwrap() {
        assert!(skill["updated_at"].as_str().unwrap().ends_with('Z'), "{skill}");
        assert!(skill.get("version").is_some(), "{skill}");
    }
    let others = service.client.get(format!("{}/list", skills("v", "x"))).ok();
    assert_eq!(ids(&others), ["a", "b", "c"]);
    assert_eq!(others["data"][1]["name"], "b");
    // An agent without any skill: an empty list, not a failure.
    assert_eq!(service.client.get(format!("{}/list", skills("u", "空"))).ok()["data"], json!([]));
}

#[test]
fn an_uploaded_overlay_skill_hides_everything_of_the_baseline() {
    let service = Service::start();
    service.client.upload(
        &skills("u", "x"),
        "baseline",
        &skill_zip("s", &[("old.txt", "old"), ("d/e", "e")]),
    );
    service.client.upload(&skills("u", "x"), "overlay", &skill_zip("s", &[("new.txt", "new")]));
    assert_eq!(service.client.files(&skill("u", "x", "s")), ["SKILL.md", "new.txt"]);
    service.client.get(format!("{}/content?path=old.txt", skill("u", "x", "s"))).refused(404, "not_found");
    assert_eq!(service.client.files(&skill("v", "x", "s")), ["SKILL.md", "d/e", "old.txt"]);
}

#[test]
fn a_skill_is_removed_for_one_user_or_for_all_and_reset_brings_the_baseline_back() {
    let service = Service::start();
    let client = &service.client;
    client.upload(&skills("u", "x"), "baseline", &skill_zip("s", &[("f.txt", "base")]));
    let (mine, theirs) = (skill("u", "x", "s"), skill("v", "x", "s"));
    client.write(&mine, "f.txt", "mine");

    assert_eq!(client.delete(mine.clone()).ok()["data"], "Skill 's' removed from 'overlay'");
    assert_eq!(client.get(format!("{}/list", skills("u", "x"))).ok()["data"], json!([]));
    client.get(format!("{mine}/files")).refused(404, "not_found");
    client.delete(mine.clone()).refused(404, "not_found");
    assert_eq!(client.text(&theirs, "f.txt"), "base");

    let reset = client.post(format!("{mine}/reset"), "").ok();
    assert_eq!(reset["changed"], true);
    assert_eq!(client.text(&mine, "f.txt"), "base");
    assert_eq!(client.post(format!("{mine}/reset"), "").ok()["changed"], false);
    client.post(format!("{}/reset", skill("u", "x", "none")), "").refused(404, "not_found");

    client.delete(format!("{mine}?scope=baseline")).ok();
    client.get(format!("{theirs}/files")).refused(404, "not_found");
    client.delete(format!("{mine}?scope=baseline")).refused(404, "not_found");
    client.delete(format!("{mine}?scope=public")).refused(400, "invalid");
}

#[test]
fn a_download_is_the_merged_view_and_other_tools_can_unpack_it() {
    let service = Service::start();
    let client = &service.client;
    let archive = zip(&[
        Entry::file("数据 分析/SKILL.md", "# 标题\n"),
        Entry::file("数据 分析/脚本/跑.sh", "#!/bin/sh\necho 基\n").mode(0o755),
        Entry::file("数据 分析/gone.txt", "x"),
    ]);
    client.upload(&skills("u", "x"), "baseline", &archive);
    let mine = skill("u", "x", "数据 分析");
    client.write(&mine, "脚本/新.txt", "我的\n");
    client.delete(format!("{mine}/file?path=gone.txt")).ok();

    let reply = client.get(format!("{mine}/download"));
    let bytes = reply.bytes(200).to_vec();
    assert_eq!(reply.header("content-type"), Some("application/zip"));
    assert_eq!(reply.header("content-length"), Some(bytes.len().to_string().as_str()));
    let name = encoded("数据 分析.zip");
    assert_eq!(
        reply.header("content-disposition"),
        Some(format!("attachment; filename=\"__ __.zip\"; filename*=UTF-8''{name}").as_str())
    );
    let path = service.outside().join("down.zip");
    std::fs::write(&path, &bytes).unwrap();
    let expected = ["数据 分析/SKILL.md", "数据 分析/脚本/新.txt", "数据 分析/脚本/跑.sh"];
    if have("python3") {
        let script = "import sys,zipfile\nz=zipfile.ZipFile(sys.argv[1])\nassert z.testzip() is None\n\
                      print('\\n'.join(sorted(n for n in z.namelist() if not n.endswith('/'))))";
        let output = Command::new("python3").args(["-X", "utf8", "-c", script]).arg(&path).output().unwrap();
        let names = String::from_utf8(output.stdout).unwrap();
        assert_eq!(
            names.lines().collect::<Vec<_>>(),
            expected,
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    if have("unzip") {
        let into = service.outside().join("unpacked");
        let output = Command::new("unzip")
            .env("LC_ALL", "C.UTF-8")
            .arg("-q")
            .arg(&path)
            .arg("-d")
            .arg(&into)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        for name in expected {
            assert!(into.join(name).is_file(), "{name}");
        }
        use std::os::unix::fs::PermissionsExt;
        let mode = into.join(expected[2]).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
    }
    // What comes down goes up again.
    client.upload(&skills("v", "y"), "overlay", &bytes);
    assert_eq!(client.text(&skill("v", "y", "数据 分析"), "脚本/新.txt"), "我的\n");
    client.get(format!("{}/download", skill("u", "x", "none"))).refused(404, "not_found");
}
