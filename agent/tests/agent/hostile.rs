//! Arguments are data: nothing of them is run, and nothing outside the workspace is read or written.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use agent::tools::Search;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sandbox::{DirEntry, FileKind, MemSandbox, Sandbox, SandboxExt, SandboxPath, UserId};
use serde_json::{Value, json};

use crate::agreement::host;
use crate::tapped::Tapped;

/// Texts that mean something to a shell, to find(1), to grep(1) or to a path.
const POISON: [&str; 30] = [
    "'; touch PWNED; '",
    "\"; touch PWNED; \"",
    "$(touch PWNED)",
    "`touch PWNED`",
    "x\ntouch PWNED\n",
    "-exec touch PWNED ;",
    "-delete",
    "-fprint PWNED",
    "--include=*",
    "-f/etc/passwd",
    "-e",
    "--",
    ") -o -delete -o (",
    "-newerXY",
    "{}",
    "{a,b}{c,d}",
    "../../SECRET",
    "/etc/passwd",
    "..",
    "~/SECRET",
    "*/../../SECRET",
    "link/SECRET",
    "\\",
    "[",
    "(",
    "*",
    "\u{1b}[2J",
    "\0",
    "%s%n",
    "| tee PWNED",
];

fn calls(text: &str, other: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("Glob", json!({ "pattern": text })),
        ("Glob", json!({ "pattern": format!("**/{text}"), "path": other })),
        ("Glob", json!({ "pattern": "**", "path": text })),
        ("Grep", json!({ "pattern": text })),
        ("Grep", json!({ "pattern": "CANARY", "path": text, "include": other })),
        ("Grep", json!({ "pattern": "CANARY", "include": text })),
        ("Read", json!({ "path": text })),
        ("Cd", json!({ "path": text })),
        ("Skill", json!({ "name": text })),
        ("Skill", json!({ "name": "good", "file": text })),
        ("Skill", json!({ "name": "good", "action": text })),
        ("Edit", json!({ "path": text, "mode": "replace", "old_string": "CANARY", "new_string": "gone" })),
        ("Edit", json!({ "path": "edited.txt", "mode": "replace", "old_string": text, "new_string": other })),
        (
            "Edit",
            json!({ "path": "edited.txt", "mode": "replace", "old_string": text, "new_string": other, "regex": true, "replace_all": true }),
        ),
    ]
}

#[test]
fn no_argument_is_ever_run_and_none_leads_outside() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut runner = TestRunner::new(Config { cases: 60, failure_persistence: None, ..Config::default() });
    let part = || proptest::sample::select(POISON.to_vec());
    let text = || proptest::collection::vec(part(), 1..3).prop_map(|parts| parts.concat());
    let calls_made = std::cell::Cell::new(0_usize);
    let result = runner.run(&(text(), text()), |(text, other)| {
        runtime.block_on(async {
            let (directory, mut bench) = host().await;
            let outside = directory.path();
            for path in ["SECRET", ".x/SECRET"] {
                std::fs::write(outside.join(path), "CANARY-OUTSIDE").unwrap();
            }
            // A link out of the workspace, to what is still in the temporary directory.
            std::os::unix::fs::symlink(outside.join(".x"), outside.join(".x/ws/link")).unwrap();
            bench.put("inside.txt", "CANARY-INSIDE\n").await;
            bench.put("skills/good/SKILL.md", "CANARY-SKILL\n").await;
            for search in [Search::Programs, Search::Files] {
                bench.search = search;
                for (tool, arguments) in calls(&text, &other) {
                    bench.put("edited.txt", "text\n").await;
                    let output = bench.call(tool, &arguments).await;
                    calls_made.set(calls_made.get() + 1);
                    prop_assert!(
                        !output.text.contains("CANARY-OUTSIDE"),
                        "{} {}: {}",
                        tool,
                        arguments,
                        output.text
                    );
                    prop_assert!(!output.text.contains("root:x:"), "{} {}: {}", tool, arguments, output.text);
                    bench.session.enter(bench.session.workspace().clone());
                }
            }
            let mut names: Vec<String> = Vec::new();
            for directory in [outside.to_owned(), outside.join(".x")] {
                names.extend(
                    std::fs::read_dir(directory)
                        .unwrap()
                        .map(|entry| entry.unwrap().file_name().into_string().unwrap()),
                );
            }
            names.sort_unstable();
            prop_assert_eq!(names, vec![".x", "SECRET", "SECRET", "ws"]);
            let mut inside: Vec<String> = std::fs::read_dir(outside.join(".x/ws"))
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            inside.sort_unstable();
            prop_assert_eq!(inside, vec!["edited.txt", "inside.txt", "link", "skills"]);
            let secret = std::fs::read_to_string(outside.join("SECRET")).unwrap();
            prop_assert_eq!(secret, "CANARY-OUTSIDE");
            Ok(())
        })
    });
    result.unwrap();
    println!("{} hostile calls", calls_made.get());
}

/// The control: the sandbox of these tests does run commands, so that what was not run could have been.
#[tokio::test]
async fn the_same_texts_are_run_by_shell_alone() {
    let (directory, bench) = host().await;
    let output = bench.call("Shell", &json!({ "command": "true '$(touch A)'; touch PWNED" })).await;
    assert!(!output.is_error, "{}", output.text);
    let workspace = directory.path().join(".x/ws");
    assert!(workspace.join("PWNED").exists() && !workspace.join("A").exists());
}

#[tokio::test]
async fn created_files_stay_inside_and_modes_and_line_ends_survive_edits() {
    let (directory, bench) = host().await;
    for path in ["../out.txt", "/tmp/out.txt", "a/../../out.txt", "a\0b", "", ".", "x/"] {
        let output = bench.call("Edit", &json!({ "path": path, "mode": "create", "content": "x" })).await;
        assert!(output.is_error || path == "x/", "{path}: {}", output.text);
    }
    assert!(!directory.path().join(".x/out.txt").exists());
    bench.put("run.sh", "#!/bin/sh\r\necho 你好\r\n").await;
    let file = directory.path().join(".x/ws/run.sh");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o750)).unwrap();
    let output = bench.call("Edit", &json!({ "path": "run.sh", "mode": "replace", "old_string": "echo 你好\n", "new_string": "echo 再见\nexit 3\n" })).await;
    assert_eq!(output.text, "Replaced 1 occurrence in run.sh");
    assert_eq!(bench.get("run.sh").await, "#!/bin/sh\r\necho 再见\r\nexit 3\r\n".as_bytes());
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o750);
}

#[tokio::test]
async fn a_file_of_megabytes_is_edited_whole() {
    let (_directory, bench) = host().await;
    let text = "一行文字 with some more\n".repeat(100_000);
    bench.put("large.txt", text.clone()).await;
    let arguments = json!({ "path": "large.txt", "mode": "line", "action": "replace", "line_number": 50_000, "content": "新" });
    let output = bench.call("Edit", &arguments).await;
    assert!(!output.is_error, "{}", output.text);
    let edited = String::from_utf8(bench.get("large.txt").await).unwrap();
    assert_eq!(edited.len(), text.len() - "一行文字 with some more".len() + "新".len());
    assert_eq!(edited.lines().nth(49_999), Some("新"));
}

#[tokio::test]
async fn edits_of_one_file_at_the_same_time_are_all_made() {
    let (_directory, bench) = host().await;
    bench.put("count.txt", (0..20).map(|number| format!("<{number}>\n")).collect::<String>()).await;
    let edits = (0..20).map(|number| {
        let bench = &bench;
        async move {
            let arguments = json!({ "path": "count.txt", "mode": "replace", "old_string": format!("<{number}>"), "new_string": format!("[{number}]") });
            bench.call("Edit", &arguments).await
        }
    });
    for output in futures_util::future::join_all(edits).await {
        assert!(!output.is_error, "{}", output.text);
    }
    let expected: String = (0..20).map(|number| format!("[{number}]\n")).collect();
    assert_eq!(bench.get("count.txt").await, expected.as_bytes());
}

#[tokio::test]
async fn no_name_that_a_backend_lists_leads_out_of_the_directory_that_is_walked() {
    let inner = Arc::new(MemSandbox::new());
    let alice = UserId::parse("alice").unwrap();
    let path = |text: &str| SandboxPath::workspace().join(text).unwrap();
    inner.mkdir_all(&alice, &path("kept"), 0o755).await.unwrap();
    for file in ["secret", "kept/数据.txt"] {
        inner.write(&alice, &path(file), "text".into()).await.unwrap();
    }
    let tapped = Tapped::new(inner);
    let names = ["..", ".", "", "../secret", "a/../../secret", "/workspace", "a\0b"];
    tapped.plant(names.into_iter().flat_map(|name| {
        [FileKind::Directory, FileKind::File].map(|kind| DirEntry { name: name.to_owned(), kind, size: 4 })
    }));
    let (found, more) = tapped.walk(&alice, &path("kept"), 1000).await.unwrap();
    let found: Vec<String> = found.into_iter().map(|(path, _)| path).collect();
    assert_eq!((found, more), (vec!["数据.txt".to_owned()], false));
    assert_eq!(tapped.calls("read_dir"), 1);
    // Those that are left out are looked at like others.
    assert!(tapped.walk(&alice, &path("kept"), 14).await.unwrap().1);
}
