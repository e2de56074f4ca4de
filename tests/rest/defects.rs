//! The defects of the service before this one, one test each, named after the entry in the list of its defects.
//!
//! The first entry (it did not compile) needs no test.

use std::fs;
use std::io::Read;

use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{
    Entry, Service, Snapshot, children_of, encoded, is_root, landlocked, memory_peak_bytes, skill, skill_zip,
    skills, workspace, zip,
};

/// A service whose agent `a` has the baseline skill `s` with `files`.
fn with_baseline(files: &[(&str, &str)]) -> Service {
    let service = Service::start();
    service.client.upload(&skills("anybody", "a"), "baseline", &skill_zip("s", files));
    service
}

/// The output of a bash script, and its exit code.
fn bash(service: &Service, tree: &str, script: &str) -> (String, i64) {
    let run = service.client.execute(tree, "bash", &["-c", script]);
    (run["result"]["output"].as_str().unwrap().to_owned(), run["result"]["exit_code"].as_i64().unwrap())
}

#[test]
fn d02_the_sandbox_routes_answer_without_a_login() {
    let service = Service::start();
    let tree = workspace("u", "a");
    service.client.write(&tree, "f.txt", "text");
    assert_eq!(service.client.files(&tree), ["f.txt"]);
    assert_eq!(service.client.text(&tree, "f.txt"), "text");
    assert_eq!(service.client.execute(&tree, "cat", &["f.txt"])["data"], "Exit Code: 0\nOutput:\ntext");
}

#[test]
fn d03_files_lists_the_merged_view() {
    let service = with_baseline(&[("a", "a"), ("b", "base")]);
    let mine = skill("u", "a", "s");
    service.client.write(&mine, "b", "mine");
    service.client.write(&mine, "c", "new");
    assert_eq!(service.client.files(&mine), ["SKILL.md", "a", "b", "c"]);
    assert_eq!(service.client.text(&mine, "a"), "a");
    assert_eq!(service.client.text(&mine, "b"), "mine");
}

#[test]
fn d04_an_edit_of_a_nested_baseline_file_is_copied_up() {
    let service = with_baseline(&[("deep/er/f.txt", "1\n2\n")]);
    let (mine, theirs) = (skill("u", "a", "s"), skill("v", "a", "s"));
    let stored = service.root.join("skill/baseline/a/s/deep/er/f.txt");
    let before = fs::read(&stored).unwrap();
    service.client.put(format!("{mine}/edit?path=deep/er/f.txt&start=2&end=2"), "two").ok();
    assert_eq!(service.client.text(&mine, "deep/er/f.txt"), "1\ntwo\n");
    assert_eq!(fs::read(&stored).unwrap(), before);
    assert_eq!(fs::read(service.root.join("skill/overlay/u/a/s/deep/er/f.txt")).unwrap(), b"1\ntwo\n");
    assert_eq!(service.client.text(&theirs, "deep/er/f.txt"), "1\n2\n");
}

#[test]
fn d05_a_command_changes_the_users_view_and_never_the_baseline() {
    let service = with_baseline(&[("f", "base\n"), ("gone", "x")]);
    let (mine, theirs) = (skill("u", "a", "s"), skill("v", "a", "s"));
    let baseline = Snapshot::of(&service.root.join("skill/baseline"));
    let (output, code) =
        bash(&service, &mine, "echo new > made; echo mine >> f; rm gone; mkdir d; echo x > d/e");
    assert_eq!(code, 0, "{output}");
    baseline.unchanged(&service.root.join("skill/baseline"), "a command");
    assert_eq!(service.client.files(&mine), ["SKILL.md", "d/e", "f", "made"]);
    assert_eq!(service.client.text(&mine, "f"), "base\nmine\n");
    assert_eq!(service.client.files(&theirs), ["SKILL.md", "f", "gone"]);
    assert_eq!(bash(&service, &theirs, "cat f; ls").0, "base\nSKILL.md\nf\ngone\n");
}

#[test]
fn d06_a_deletion_hides_the_baseline_file() {
    let service = with_baseline(&[("d/f", "x"), ("g", "y")]);
    let (mine, theirs) = (skill("u", "a", "s"), skill("v", "a", "s"));
    service.client.delete(format!("{mine}/file?path=g")).ok();
    service.client.delete(format!("{mine}/file?path=d&recursive=true")).ok();
    service.client.get(format!("{mine}/content?path=g")).refused(404, "not_found");
    assert_eq!(service.client.files(&mine), ["SKILL.md"]);
    assert_eq!(bash(&service, &mine, "ls").0, "SKILL.md\n");
    assert_eq!(service.client.files(&theirs), ["SKILL.md", "d/f", "g"]);
}

#[test]
fn d07_ids_that_are_no_names_are_refused_and_touch_nothing() {
    let service = with_baseline(&[("f", "x")]);
    service.client.write(&workspace("u", "a"), "f", "x");
    let before = Snapshot::of(&service.root);
    for id in [
        "..",
        ".",
        "%2e%2e",
        "%2E",
        "..%2fx",
        "a%2Fb",
        "%2F",
        "a%00",
        "a%5Cb",
        "a\\b",
        "%20",
        ".hidden",
        "%E2%80%AE",
    ] {
        for target in [
            format!("/v1/skills/{id}/a/s/edit?path=f"),
            format!("/v1/skills/u/{id}/s/edit?path=f"),
            format!("/v1/skills/u/a/{id}/edit?path=f"),
            format!("/v1/sandbox/{id}/a/edit?path=f"),
            format!("/v1/sandbox/u/{id}/edit?path=f"),
        ] {
            service.client.put(target, "evil").refused(400, "invalid");
        }
        service
            .client
            .try_upload(&format!("/v1/skills/{id}/a"), "overlay", &skill_zip("s", &[]))
            .refused(400, "invalid");
        service
            .client
            .try_upload(&format!("/v1/skills/u/{id}"), "baseline", &skill_zip("s", &[]))
            .refused(400, "invalid");
    }
    // An empty one as well.
    for target in ["/v1/skills//a/s/edit?path=f", "/v1/sandbox/u//edit?path=f"] {
        service.client.put(target, "evil").refused(400, "invalid");
    }
    before.unchanged(&service.root, "ids that are no names");
}

#[test]
fn d08_a_link_that_leaves_the_tree_is_not_followed() {
    let service = with_baseline(&[("f", "x")]);
    let client = &service.client;
    let outside = service.outside().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret.txt"), "secret").unwrap();
    let far = outside.to_str().unwrap();
    for tree in [workspace("u", "a"), skill("u", "a", "s")] {
        client.write(&tree, "sub/in.txt", "inside");
        // From a file, because the scan of arguments would refuse the paths.
        let script = format!(
            "import os\nos.symlink('{far}', 'out')\nos.symlink('{far}/secret.txt', 'file')\n\
             os.symlink('../' * 20 + '{far}'[1:], 'up')\nos.symlink('sub', 'in')\n"
        );
        client.write(&tree, "links.py", &script);
        let run = client.execute(&tree, "python3", &["links.py"]);
        assert_eq!(run["result"]["exit_code"], 0, "{run}");
        for path in ["out/secret.txt", "file", "up/secret.txt"] {
            let path = encoded(path);
            for target in [format!("content?path={path}"), format!("stat?path={path}"), format!("raw/{path}")]
            {
                client.get(format!("{tree}/{target}")).refused(403, "path_escape");
            }
            client.put(format!("{tree}/edit?path={path}"), "evil").refused(403, "path_escape");
            client.put(format!("{tree}/raw/{path}?parents=true"), "evil").refused(403, "path_escape");
        }
        client.get(format!("{tree}/dir?path=out")).refused(403, "path_escape");
        client.get(format!("{tree}/files?path=up")).refused(403, "path_escape");
        client.delete(format!("{tree}/file?path=out/secret.txt")).refused(403, "path_escape");
        let into = json!({"from": "links.py", "to": "out/moved"});
        client.post_json(format!("{tree}/move"), &into).refused(403, "path_escape");
        client.post_json(format!("{tree}/mkdir"), &json!({"path": "out/made"})).refused(403, "path_escape");
        // The control: a link that stays inside is a way like any other.
        assert_eq!(client.text(&tree, "in/in.txt"), "inside");
        // And the link itself can be removed, which leaves what it names.
        client.delete(format!("{tree}/file?path=out&recursive=true")).ok();
    }
    assert_eq!(fs::read(outside.join("secret.txt")).unwrap(), b"secret");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
}

#[test]
fn d09_two_dots_within_a_name_are_two_dots() {
    let service = with_baseline(&[("a..b.txt", "fine")]);
    let tree = skill("u", "a", "s");
    assert_eq!(service.client.text(&tree, "a..b.txt"), "fine");
    service.client.write(&tree, "..x", "dots");
    assert_eq!(service.client.execute(&tree, "cat", &["a..b.txt", "..x"])["result"]["stdout"], "finedots");
    service.client.get(format!("{tree}/content?path=../s/a..b.txt")).refused(403, "path_escape");
}

/// Asserts that an attempt got nothing: refused before it ran, or by the kernel while it did.
#[track_caller]
fn gets_nothing(service: &Service, tree: &str, command: &str, args: &[&str], treasure: &str) {
    let reply = service.client.try_execute(tree, command, args);
    if reply.status == 200 {
        let run = reply.ok();
        let seen = run["result"]["output"].as_str().unwrap();
        assert!(!seen.contains(treasure), "{command} {args:?}: {seen}");
    } else {
        let code = reply.json()["code"].as_str().unwrap().to_owned();
        assert!(matches!(code.as_str(), "path_escape" | "command_not_allowed"), "{command} {args:?}: {code}");
        reply.refused(403, &code);
    }
}

#[test]
fn d10_what_an_allowed_program_starts_is_confined_as_well() {
    let service = with_baseline(&[("f", "x")]);
    if !landlocked(&service.client) {
        return;
    }
    let client = &service.client;
    // A file that every user of the machine may read, next to the data directory, and another user's file.
    let secret = service.outside().join("secret.txt");
    fs::write(&secret, "TREASURE\n").unwrap();
    client.write(&workspace("victim", "a"), "theirs.txt", "TREASURE\n");
    let theirs = service.root.join("sandbox/victim/a/theirs.txt");
    for tree in [workspace("u", "a"), skill("u", "a", "s")] {
        client.write(&tree, "in.txt", "found\n");
        client.write(&tree, "evil.pl", "#!/usr/bin/perl\nprint \"TREASURE\\n\";\n");
        for place in [secret.to_str().unwrap(), theirs.to_str().unwrap()] {
            // Spelled so that no scan can know it.
            let hidden = format!("p=$(printf %s '{}' | tr _ /)", place.replace('/', "_"));
            let python =
                format!("print(open(chr(47).join({:?}.split('|'))).read())", place.replace('/', "|"));
            let attempts: &[(&str, Vec<String>)] = &[
                ("cat", vec![place.into()]),
                ("bash", vec!["-c".into(), format!("cat {place}")]),
                ("bash", vec!["-c".into(), format!("{hidden}; cat \"$p\"")]),
                (
                    "bash",
                    vec!["-c".into(), format!("{hidden}; while read -r l; do echo \"$l\"; done < \"$p\"")],
                ),
                ("sh", vec!["-c".into(), format!("{hidden}; exec cat \"$p\"")]),
                ("python3", vec!["-c".into(), python.clone()]),
                (
                    "python3",
                    vec!["-c".into(), format!("import subprocess as s;s.run(['python3','-c',{python:?}])")],
                ),
                ("find", vec![".".into(), "-exec".into(), "cat".into(), place.into(), ";".into()]),
                ("bash", vec!["-c".into(), format!("{hidden}; find . -exec cat \"$p\" \\;")]),
                ("bash", vec!["-c".into(), format!("{hidden}; echo \"$p\" | xargs cat")]),
                ("sed", vec![format!("1e cat {place}"), "in.txt".into()]),
                ("bash", vec!["-c".into(), format!("{hidden}; sed \"1e cat $p\" in.txt")]),
                ("awk", vec![format!("BEGIN{{while((getline l < \"{place}\")>0) print l}}")]),
                (
                    "bash",
                    vec![
                        "-c".into(),
                        format!("{hidden}; awk -v p=\"$p\" 'BEGIN{{while((getline l < p)>0) print l}}'"),
                    ],
                ),
                ("bash", vec!["-c".into(), format!("{hidden}; ln -s \"$p\" l; cat l")]),
                ("bash", vec!["-c".into(), format!("{hidden}; cp \"$p\" copy; cat copy")]),
                ("curl", vec![format!("file://{place}")]),
                ("bash", vec!["-c".into(), format!("{hidden}; curl -s \"file://$p\"")]),
            ];
            for (command, args) in attempts {
                let args: Vec<&str> = args.iter().map(String::as_str).collect();
                gets_nothing(&service, &tree, command, &args, "TREASURE");
            }
        }
        // Programs outside the lists, also by way of an allowed one, and those of the tree itself.
        for script in ["perl -e 'print 1'", "nc -h", "mount", "ssh -V", "chmod +x evil.pl; ./evil.pl"] {
            let (output, code) = bash(&service, &tree, script);
            assert!(code != 0 && !output.contains("TREASURE"), "{script}: {code} {output}");
        }
        // The control: the same ways to a file of the tree.
        for (command, args) in [
            ("bash", vec!["-c", "p=$(printf %s in.txt); cat \"$p\""]),
            ("python3", vec!["-c", "print(open('in.txt').read(), end='')"]),
            ("find", vec!["in.txt", "-exec", "cat", "in.txt", ";"]),
            ("bash", vec!["-c", "echo in.txt | xargs cat"]),
            ("sed", vec!["-n", "1e cat in.txt", "in.txt"]),
        ] {
            let run = client.execute(&tree, command, &args);
            assert_eq!(run["result"]["stdout"], "found\n", "{command} {args:?}: {run}");
        }
    }
    assert_eq!(fs::read_to_string(&secret).unwrap(), "TREASURE\n");
}

#[test]
fn d11_a_path_inside_an_argument_is_seen() {
    let service = with_baseline(&[("f", "x")]);
    let tree = workspace("u", "a");
    service.client.write(&tree, "in.txt", "root:found\n");
    for (command, args) in [
        ("grep", &["--file=/etc/passwd", "in.txt"][..]),
        ("grep", &["-f/etc/passwd", "in.txt"]),
        ("grep", &["-f", "/etc/passwd", "in.txt"]),
        ("curl", &["--data", "@/etc/passwd", "http://127.0.0.1:9/"]),
        ("curl", &["-F", "x=@/etc/passwd", "http://127.0.0.1:9/"]),
        ("curl", &["file:///etc/passwd"]),
        ("python3", &["/etc/passwd"]),
        ("ls", &["../../.."]),
        ("cat", &["in.txt", "/etc/passwd"]),
        ("cp", &["--target-directory=/tmp", "in.txt"]),
        ("bash", &["-c", "cat < /etc/passwd"]),
        ("bash", &["-c", "echo x > /tmp/x"]),
        ("bash", &["-c", "cat \"/etc/passwd\""]),
        ("find", &["/etc", "-name", "passwd"]),
    ] {
        let refused = service.client.try_execute(&tree, command, args).refused(403, "path_escape");
        assert!(refused["argument"].is_string() && refused["position"].is_u64(), "{refused}");
    }
    // What only looks like a path is none.
    for (command, args, expected) in [
        ("grep", &["^root:", "in.txt"][..], "root:found\n"),
        ("awk", &["/root/ {print $1}", "in.txt"], "root:found\n"),
        ("sed", &["s/root/toor/", "in.txt"], "toor:found\n"),
        ("echo", &["/etc/passwd"], "/etc/passwd\n"),
        ("bash", &["-c", "cat in.txt 2>/dev/null"], "root:found\n"),
        ("grep", &["-f", "/workspace/in.txt", "in.txt"], "root:found\n"),
    ] {
        let run = service.client.execute(&tree, command, args);
        assert_eq!(run["result"]["stdout"], expected, "{command} {args:?}");
    }
}

#[test]
fn d12_output_larger_than_a_pipe_does_not_stop_the_run() {
    let service = Service::start();
    let run = service.client.execute(
        &workspace("u", "a"),
        "bash",
        &["-c", "head -c 1000000 /dev/zero | tr '\\0' x"],
    );
    assert_eq!((&run["result"]["exit_code"], &run["result"]["timed_out"]), (&json!(0), &json!(false)));
    assert_eq!(run["result"]["stdout"].as_str().unwrap().len(), 1_000_000);
}

#[test]
fn d13_the_deadline_ends_grandchildren_too() {
    let service = Service::start();
    let tree = workspace("u", "a");
    let script = "sleep 1000 & (setsid sleep 1000 &) ; echo begun; wait";
    let begin = Instant::now();
    let run = service
        .client
        .post_json(format!("{tree}/execute?command=sh&timeout_ms=700"), &json!(["-c", script]))
        .ok();
    assert_eq!((&run["result"]["timed_out"], &run["result"]["stdout"]), (&json!(true), &json!("begun\n")));
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    assert_no_command_left(&service);
    // After a normal end as well.
    assert_eq!(bash(&service, &tree, "sleep 1000 >/dev/null 2>&1 & echo done").0, "done\n");
    assert_no_command_left(&service);
}

/// Everything that still descends from the service must be its launcher.
fn assert_no_command_left(service: &Service) {
    let commands = || {
        let names = children_of(service.pid()).into_iter().filter_map(|process| {
            let line = fs::read(format!("/proc/{process}/cmdline")).ok()?;
            let name = String::from_utf8_lossy(&line).replace('\0', " ");
            // An exited process that its parent has not waited for yet has no command line.
            (name.contains("sleep") || name.contains("sh -c")).then_some(name)
        });
        names.collect::<Vec<_>>()
    };
    let begin = Instant::now();
    // Killed is killed; the kernel may take a moment to clear up on a busy machine.
    while !commands().is_empty() && begin.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(commands(), Vec::<String>::new());
}

#[test]
fn d14_output_is_bounded_and_what_is_missing_is_counted() {
    let service = Service::start();
    let run = service.client.execute(
        &workspace("u", "a"),
        "bash",
        &["-c", "echo first; head -c 50000000 /dev/zero | tr '\\0' x; echo; echo last"],
    );
    let result = &run["result"];
    assert_eq!((&result["truncated"], &result["stdout_bytes"]), (&json!(true), &json!(50_000_012)));
    let stdout = result["stdout"].as_str().unwrap();
    assert!(
        stdout.len() < 1_100_000 && stdout.starts_with("first\n") && stdout.ends_with("last\n"),
        "{}",
        stdout.len()
    );
    assert!(result["dropped_bytes"].as_u64().unwrap() >= 48_900_000, "{}", result["dropped_bytes"]);
    assert!(memory_peak_bytes(service.pid()) < 100 * 1024 * 1024);
}

#[test]
fn d15_streams_are_separate_and_any_bytes_are_taken() {
    let service = Service::start();
    let run = service.client.execute(
        &workspace("u", "a"),
        "bash",
        &["-c", "printf '好\\377\\n'; printf 'err\\n' >&2"],
    );
    assert_eq!(
        (&run["result"]["stdout"], &run["result"]["stderr"]),
        (&json!("好\u{fffd}\n"), &json!("err\n"))
    );
}

#[test]
fn d16_parallel_changes_and_runs_of_one_skill_lose_nothing() {
    let service = with_baseline(&[("f", "0\n")]);
    let tree = skill("u", "a", "s");
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let (service, tree) = (&service, &tree);
            scope.spawn(move || {
                for round in 0..5 {
                    service
                        .client
                        .put(format!("{tree}/edit?path=f&start=1&end=0"), format!("{writer}.{round}"))
                        .ok();
                    service.client.write(tree, &format!("w{writer}-{round}"), "x");
                    let run =
                        service.client.execute(tree, "bash", &["-c", &format!("echo x > c{writer}-{round}")]);
                    assert_eq!(run["result"]["exit_code"], 0, "{run}");
                }
            });
        }
    });
    assert_eq!(service.client.text(&tree, "f").lines().count(), 21);
    // SKILL.md and f, and 20 of each kind.
    assert_eq!(service.client.files(&tree).len(), 42);
    let busy = Service::configured("[limits.runs]\nruns_per_user = 1\nqueue_ms = 50\n");
    let tree = workspace("u", "a");
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            let args = json!(["-c", "echo begun > begun; while [ ! -e stop ]; do sleep 0.05; done"]);
            busy.client.post_json(format!("{tree}/execute?command=bash"), &args).ok()
        });
        while busy.client.get(format!("{tree}/stat?path=begun")).status != 200 {
            std::thread::sleep(Duration::from_millis(5));
        }
        let reply = busy.client.try_execute(&tree, "ls", &[]);
        let refused = reply.refused(429, "busy");
        assert_eq!(reply.header("retry-after"), Some(refused["retry_after_seconds"].to_string().as_str()));
        busy.client.write(&tree, "stop", "");
        let run = first.join().unwrap();
        assert_eq!(run["result"]["exit_code"], 0, "{run}");
    });
    busy.client.execute(&tree, "ls", &[]);
}

/// Uploads what must be refused and checks that nothing changed.
#[track_caller]
fn refused_upload(service: &Service, archive: &[u8], what: &str) -> Value {
    let mut last = Value::Null;
    for scope in ["overlay", "baseline"] {
        let before = Snapshot::of(&service.root);
        last = service.client.try_upload(&skills("u", "a"), scope, archive).refused(422, "bad_archive");
        before.unchanged(&service.root, what);
    }
    last
}

#[test]
fn d17_a_bad_archive_leaves_the_old_skill_and_readers_never_see_half_of_one() {
    let service = with_baseline(&[("f", "old")]);
    let mine = skill("u", "a", "s");
    service.client.upload(&skills("u", "a"), "overlay", &skill_zip("s", &[("f", "mine")]));
    let good = skill_zip("s", &[("f", "new text to break"), ("g", "x")]);
    refused_upload(&service, b"no archive at all", "text");
    refused_upload(&service, b"", "nothing");
    refused_upload(&service, &good[..good.len() / 2], "the first half of an archive");
    let mut broken = good.clone();
    let at = good.windows(8).position(|window| window == b"new text").unwrap();
    broken[at] ^= 1;
    refused_upload(&service, &broken, "a wrong checksum");
    assert_eq!(service.client.text(&mine, "f"), "mine");

    // While it is replaced, the skill is always one of its states, whole.
    let service = with_baseline(&[]);
    let state = |mark: &str| {
        let files: Vec<(String, String)> = (0..30).map(|n| (format!("f{n}"), mark.to_owned())).collect();
        let files: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        skill_zip("s", &files)
    };
    let states = [state("A"), state("B")];
    let tree = skill("reader", "a", "s");
    service.client.upload(&skills("u", "a"), "baseline", &states[0]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers = [0, 29].map(|file| {
            let (service, tree, stop) = (&service, &tree, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!(service.client.files(tree).len(), 31);
                    assert!(matches!(service.client.text(tree, &format!("f{file}")).as_str(), "A" | "B"));
                }
            })
        });
        for round in 0..10 {
            service.client.upload(&skills("u", "a"), "baseline", &states[(round + 1) % 2]);
        }
        stop.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().unwrap();
        }
    });
}

#[test]
fn d18_an_entry_that_climbs_out_deletes_nothing() {
    let service = with_baseline(&[("f", "x")]);
    service.client.write(&skill("u", "a", "s"), "mine", "x");
    let good = || Entry::file("t/SKILL.md", "# t\n");
    for name in
        ["../x", "../../x/SKILL.md", "t/../../x", "t/..", "/etc/x", "t\\..\\..\\x", "C:\\x\\y", "..\\x"]
    {
        refused_upload(&service, &zip(&[good(), Entry::file(name, "evil")]), name);
    }
}

#[test]
fn d19_an_entry_named_dot_deletes_nothing() {
    let service = with_baseline(&[("f", "x")]);
    let before = service.client.files(&skill("u", "a", "s"));
    for archive in [
        zip(&[Entry::file("./x", "evil"), Entry::file("./SKILL.md", "# t\n")]),
        zip(&[Entry::file(".", "evil"), Entry::file("t/SKILL.md", "# t\n")]),
        zip(&[Entry::file("./", ""), Entry::file("t/SKILL.md", "# t\n")]),
    ] {
        // Other tools write a leading `./`: whether it is read over or refused, nothing else goes.
        let reply = service.client.try_upload(&skills("u", "a"), "baseline", &archive);
        assert!(matches!(reply.status, 200 | 422), "{}", String::from_utf8_lossy(&reply.body));
        assert_eq!(service.client.files(&skill("u", "a", "s")), before);
    }
}

#[test]
fn d20_a_gbk_archive_leaves_only_proper_names() {
    let service = Service::start();
    // 一/说明.txt in GBK; the first name is also valid UTF-8, of another letter.
    let archive = zip(&[
        Entry::unmarked(b"\xd2\xbb/SKILL.md", "# x\n"),
        Entry::unmarked(b"\xd2\xbb/\xcb\xb5\xc3\xf7.txt", "text"),
    ]);
    let answer = service.client.upload(&skills("u", "a"), "overlay", &archive);
    assert_eq!(answer["data"], "Upload successful: skill '一' to 'overlay/u/a/一'");
    assert_eq!(service.client.files(&skill("u", "a", "一")), ["SKILL.md", "说明.txt"]);
    let stored: Vec<_> = fs::read_dir(service.root.join("skill/overlay/u/a"))
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(stored, ["一"]);
}

#[test]
fn d21_bombs_links_and_scattered_files_are_refused() {
    let service = Service::configured(
        "[limits.archive]\nentries = 20\ntotal_bytes = 100000\nfile_bytes = 60000\ndepth = 4\n",
    );
    service.client.upload(&skills("u", "a"), "baseline", &skill_zip("s", &[("f", "x")]));
    let head = || Entry::file("t/SKILL.md", "# t\n");
    let text = "x".repeat(60_000);
    let entries = |count: usize| {
        (0..count).map(|n| Entry::file(&format!("t/f{n}"), "x")).chain([head()]).collect::<Vec<_>>()
    };
    refused_upload(&service, &zip(&entries(20)), "too many entries");
    refused_upload(&service, &zip(&[head(), Entry::file("t/a", format!("{text}x"))]), "a file too large");
    refused_upload(
        &service,
        &zip(&[head(), Entry::file("t/a", &text), Entry::file("t/b", &text)]),
        "too much in all",
    );
    refused_upload(&service, &zip(&[head(), Entry::file("t/1/2/3/4/5/6", "x")]), "too deep");
    refused_upload(&service, &zip(&[head(), Entry::link("t/l", "/etc/passwd")]), "a link out of the skill");
    refused_upload(&service, &zip(&[head(), Entry::link("t/l", "../../../x")]), "a link that climbs");
    refused_upload(&service, &zip(&[Entry::file("loose.txt", "x")]), "no skill in it");
    // The control, at the limits.
    service.client.upload(&skills("u", "a"), "overlay", &zip(&entries(18)));
}

#[test]
fn d22_an_inverted_range_duplicates_nothing() {
    let service = Service::start();
    let tree = workspace("u", "a");
    service.client.write(&tree, "f", "1\n2\n3\n");
    service.client.put(format!("{tree}/edit?path=f&start=3&end=1"), "NEW").refused(400, "invalid");
    assert_eq!(service.client.text(&tree, "f"), "1\n2\n3\n");
    service.client.put(format!("{tree}/edit?path=f&start=3&end=2"), "NEW").ok();
    assert_eq!(service.client.text(&tree, "f"), "1\n2\nNEW\n3\n");
}

#[test]
fn d23_an_edit_keeps_line_ends_and_can_delete() {
    let service = Service::start();
    let tree = workspace("u", "a");
    for (before, range, body, after) in [
        ("1\r\n2\r\n3", "start=2&end=2", "X", "1\r\nX\r\n3"),
        ("1\r\n2\r\n", "start=1&end=1", "", "2\r\n"),
        ("1\n2\n", "start=1&end=1", "a\n\n\n", "a\n\n\n2\n"),
        ("1\n2", "start=2&end=2", "X", "1\nX"),
    ] {
        service.client.write(&tree, "f", before);
        service.client.put(format!("{tree}/edit?path=f&{range}"), body).ok();
        assert_eq!(service.client.text(&tree, "f"), after);
    }
}

#[test]
fn d24_a_reader_never_sees_half_a_write() {
    let service = Service::start();
    let tree = workspace("u", "a");
    let texts = ["A".repeat(300_000), "B".repeat(200_000)];
    service.client.write(&tree, "f", &texts[0]);
    let stored = service.root.join("sandbox/u/a/f");
    let mut first = fs::File::open(&stored).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers = [0, 1].map(|_| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let seen = service.client.text(&tree, "f");
                    assert!(texts.contains(&seen), "{} bytes, some of each", seen.len());
                }
            })
        });
        for round in 1..20 {
            service.client.write(&tree, "f", &texts[round % 2]);
        }
        stop.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().unwrap();
        }
    });
    let mut kept = String::new();
    first.read_to_string(&mut kept).unwrap();
    assert!(kept == texts[0], "a process that had the file open goes on reading the old content");
    assert_eq!(first.metadata().unwrap().nlink(), 0, "a write takes the place of the file");
    let left: Vec<_> =
        fs::read_dir(service.root.join("sandbox/u/a")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["f"], "and leaves nothing beside it");
}

#[test]
fn d25_memory_does_not_grow_with_the_ids_ever_seen() {
    let service = Service::start();
    // One connection for many requests: this is about ids, not about connections.
    let count = if std::env::var_os("FILESECBOX_LARGE").is_some() { 100_000 } else { 20_000 };
    let ask = |from: usize, to: usize| {
        use std::io::Write;
        let mut stream = service.client.connect();
        let mut answer = [0; 4096];
        let address = service.client.address;
        for number in from..to {
            let request = format!("GET /v1/sandbox/user{number}/a/files HTTP/1.1\r\nhost: {address}\r\n\r\n");
            stream.write_all(request.as_bytes()).unwrap();
            let mut seen = Vec::new();
            while !seen.ends_with(b"\"data\":[]}") {
                let read = stream.read(&mut answer).unwrap();
                assert!(read > 0, "{}", String::from_utf8_lossy(&seen));
                seen.extend_from_slice(&answer[..read]);
            }
        }
    };
    ask(0, 500);
    let before = memory_peak_bytes(service.pid());
    ask(500, count);
    let after = memory_peak_bytes(service.pid());
    assert!(after < before + 4 * 1024 * 1024, "from {before} to {after} bytes");
}

#[test]
fn d26_mistakes_of_callers_have_their_own_status_and_tell_no_host_path() {
    let service = with_baseline(&[("f", "x")]);
    let client = &service.client;
    // The client checks of every failure that the data directory's path is not in it.
    let tree = skill("u", "a", "s");
    client.get(format!("{tree}/content?path=none")).refused(404, "not_found");
    client.get(format!("{}/files", skill("u", "a", "none"))).refused(404, "not_found");
    client.get(format!("{tree}/content")).refused(400, "invalid");
    client.put(format!("{tree}/edit?path=../x"), "x").refused(403, "path_escape");
    client.put(format!("{tree}/edit?path=/etc/x"), "x").refused(403, "path_escape");
    client.get(format!("{tree}/content?path=f/g")).refused(409, "not_a_directory");
    client.post(format!("{tree}/execute?command=ls"), "{").refused(400, "invalid");
    client.try_execute(&tree, "cat", &["/etc/passwd"]).refused(403, "path_escape");
    client.try_upload(&skills("u", "a"), "overlay", b"x").refused(422, "bad_archive");
    let relative = client.put(format!("{tree}/edit?path={}", "x".repeat(300)), "x").refused(400, "invalid");
    assert!(relative["data"].as_str().unwrap().contains("255"), "{relative}");
}

#[test]
fn d27_only_the_front_matter_names_a_skill() {
    let service = Service::start();
    let list = |files: &[Entry]| {
        service.client.upload(&skills("u", "a"), "overlay", &zip(files));
        let list = service.client.get(format!("{}/list", skills("u", "a"))).ok();
        service.client.delete(skill("u", "a", "dir")).ok();
        let entry = &list["data"][0];
        (entry["name"].as_str().unwrap().to_owned(), entry["description"].as_str().unwrap().to_owned())
    };
    let (name, description) = list(&[Entry::file(
        "dir/SKILL.md",
        "---\nname: 真名\ndescription: 真的\n---\n# 标题\nname: hijack\ndescription: hijacked\n",
    )]);
    assert_eq!((name.as_str(), description.as_str()), ("真名", "真的"));
    assert_eq!(list(&[Entry::file("dir/SKILL.md", "# 标题\n\nname: hijack\n")]).0, "标题");
    assert_eq!(list(&[Entry::file("dir/README.md", "text\n# 自述\n"), Entry::file("dir/x", "")]).0, "自述");
    assert_eq!(list(&[Entry::file("dir/SKILL.md", "text only\n")]).0, "dir");
}

#[test]
fn d28_an_unknown_scope_is_an_error() {
    let service = Service::start();
    let before = Snapshot::of(&service.root);
    for scope in ["public", "", "baseline%20", "over"] {
        let refused =
            service.client.try_upload(&skills("u", "a"), scope, &skill_zip("s", &[])).refused(400, "invalid");
        assert!(refused["data"].as_str().unwrap().contains("`overlay` or `baseline`"), "{refused}");
    }
    before.unchanged(&service.root, "unknown scopes");
}

#[test]
fn d29_a_baseline_upload_needs_a_role() {
    let user = "04f8996da763b7a969b1028ee3007569eaf3a635486ddab211d512c85b9df8fb"; // "user"
    let service =
        Service::configured(&format!("[[tokens]]\nsha256 = \"{user}\"\nrole = \"user\"\nuser = \"u\"\n"));
    let client = service.client.with_token("user");
    let before = Snapshot::of(&service.root);
    client.try_upload(&skills("u", "a"), "baseline", &skill_zip("s", &[])).refused(403, "denied");
    service
        .client
        .try_upload(&skills("u", "a"), "baseline", &skill_zip("s", &[]))
        .refused(401, "unauthenticated");
    client.delete(format!("{}?scope=baseline", skill("u", "a", "s"))).refused(403, "denied");
    before.unchanged(&service.root, "uploads without the role");
    client.upload(&skills("u", "a"), "overlay", &skill_zip("s", &[]));
}

#[test]
fn the_service_may_be_root_and_its_commands_are_not() {
    let service = with_baseline(&[("f", "x")]);
    if !is_root() || !landlocked(&service.client) {
        return;
    }
    let uids = ["u", "v"].map(|user| bash(&service, &workspace(user, "a"), "id -u").0);
    assert!(uids.iter().all(|uid| uid.trim() != "0"), "{uids:?}");
    assert_ne!(uids[0], uids[1], "every sandbox has its own");
}
