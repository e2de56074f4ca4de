//! *Glob* and *Grep* answer the same by programs and by files, and as a plain walk over the host says.

use std::path::Path;
use std::sync::Arc;

use agent::tools::Search;
use agent::tools::glob::Pattern;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sandbox::{NoneOptions, NoneSandbox, Root};
use serde_json::json;

use crate::support::Bench;
use crate::tapped::Tapped;

/// A sandbox over a fresh directory of the host; commands are the host's own.
pub(crate) async fn host() -> (tempfile::TempDir, Bench) {
    let directory = tempfile::tempdir().unwrap();
    // A workspace below a hidden directory is a workspace like any other.
    let root = directory.path().join(".x/ws");
    std::fs::create_dir_all(&root).unwrap();
    let none = NoneSandbox::open(NoneOptions::new(Root::Shared(root))).unwrap();
    let bench = Bench::over(Arc::new(none)).await;
    (directory, bench)
}

fn name() -> impl Strategy<Value = String> {
    let names = [
        "a",
        "b",
        "ab",
        "test",
        "a.go",
        "b.go",
        "x_test.go",
        "读我.md",
        "a b.txt",
        ".hidden",
        ".env",
        "node_modules",
        "it's",
        "-n",
        "[a]",
        "a*",
        "$(x)",
        "{a,b}",
        "q?",
    ];
    proptest::sample::select(names.to_vec()).prop_map(str::to_owned)
}

fn tree() -> impl Strategy<Value = Vec<(String, String)>> {
    let path = proptest::collection::vec(name(), 1..4).prop_map(|names| names.join("/"));
    let lines = [
        "TODO one",
        "func main() {",
        "todo 二",
        "FIXME\\d",
        "",
        "x: y - z",
        "中文 TODO",
        "\tint a;",
        "aB-1:2",
    ];
    let text = proptest::collection::vec(proptest::sample::select(lines.to_vec()), 0..6)
        .prop_map(|lines| lines.join("\n"));
    proptest::collection::vec((path, text), 0..25)
}

fn pattern() -> impl Strategy<Value = String> {
    let parts = [
        "**",
        "*",
        "*.go",
        "a*",
        "test",
        "*_test.go",
        "{a,b}",
        "{*.go,*.md}",
        ".*",
        "?",
        "[ab]*",
        "*.txt",
        "读*",
        ".hidden",
        "node_modules",
        "it's",
        "-n",
        "\\[a\\]",
        "a\\*",
        "$(x)",
        "[!a]*",
    ];
    proptest::collection::vec(proptest::sample::select(parts.to_vec()), 1..5)
        .prop_map(|parts| parts.join("/"))
}

fn regex() -> impl Strategy<Value = (String, bool)> {
    let all = [
        "TODO",
        "TODO|FIXME",
        "^func \\w+",
        "\\d",
        "(?i)todo",
        "中文",
        "^$",
        "a.*;$",
        "x: y - z",
        "[A-Z]{4}",
        "\\bint\\b",
        "o",
        "FIXME\\\\d",
        "二|-1",
        "\\w+ (one|二)",
        ".*y - z$",
    ];
    (proptest::sample::select(all.to_vec()).prop_map(str::to_owned), any::<bool>())
}

/// Writes what can be written: a name may be taken by a directory, or the reverse.
fn plant(root: &Path, tree: &[(String, String)]) {
    for (path, text) in tree {
        let path = root.join(path);
        if std::fs::create_dir_all(path.parent().unwrap()).is_ok() && !path.is_dir() {
            let _ = std::fs::write(path, text);
        }
    }
}

/// All files below, by the host's own walk.
fn files(root: &Path, prefix: &str, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(root).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{prefix}{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            files(&entry.path(), &format!("{path}/"), found);
        } else {
            found.push(path);
        }
    }
    found.sort_unstable();
}

#[test]
fn searching_by_programs_and_by_files_is_the_same_on_random_trees() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut runner = TestRunner::new(Config { cases: 120, failure_persistence: None, ..Config::default() });
    let (matched, answered) = (std::cell::Cell::new(0_usize), std::cell::Cell::new(0_usize));
    let strategy = (tree(), proptest::collection::vec(pattern(), 6), proptest::collection::vec(regex(), 4));
    let result = runner.run(&strategy, |(tree, patterns, regexes)| {
        runtime.block_on(async {
            let (directory, mut bench) = host().await;
            let root = directory.path().join(".x/ws");
            plant(&root, &tree);
            let mut all = Vec::new();
            files(&root, "", &mut all);
            for pattern in &patterns {
                let arguments = json!({ "pattern": pattern });
                bench.search = Search::Programs;
                let by_programs = bench.call("Glob", &arguments).await;
                bench.search = Search::Files;
                let by_files = bench.call("Glob", &arguments).await;
                prop_assert_eq!(&by_programs, &by_files, "{}", pattern);
                let read = Pattern::new(pattern).unwrap();
                let expected: Vec<&str> = all.iter().map(String::as_str).filter(|path| read.matches(path)).collect();
                let found: Vec<&str> = by_files.text.lines().skip(1).collect();
                prop_assert_eq!(&found, &expected, "{}", pattern);
                matched.set(matched.get() + found.len());
                answered.set(answered.get() + 1);
            }
            for (regex, ignore_case) in &regexes {
                let arguments = json!({ "pattern": regex, "ignore_case": ignore_case, "context_lines": 1, "include": "*" });
                bench.search = Search::Programs;
                let by_programs = bench.call("Grep", &arguments).await;
                bench.search = Search::Files;
                let by_files = bench.call("Grep", &arguments).await;
                prop_assert_eq!(&by_programs, &by_files, "{}", regex);
                matched.set(matched.get() + by_files.text.matches("\n## ").count());
                answered.set(answered.get() + 1);
            }
            Ok(())
        })
    });
    result.unwrap();
    println!("{} answers agreed, with {} files in them", answered.get(), matched.get());
    assert!(matched.get() > 300, "the trees and patterns have little in common: {}", matched.get());
}

#[tokio::test]
async fn files_that_are_too_large_or_binary_are_told_alike() {
    let (_directory, mut bench) = host().await;
    bench.put("large.txt", "TODO\n".repeat(300_000)).await;
    bench.put("other.txt", "x".repeat((1 << 20) + 1)).await;
    bench.put("exact.txt", format!("TODO{}", "x".repeat((1 << 20) - 4))).await;
    bench.put("binary.dat", b"TODO\0").await;
    bench.put("latin.txt", b"TODO \xe9").await;
    bench.put("crlf.txt", "TODO\r\n").await;
    let mut answers = Vec::new();
    for search in [Search::Programs, Search::Files] {
        bench.search = search;
        answers.push(bench.call("Grep", &json!({ "pattern": "TODO$|TODOx" })).await.text);
    }
    assert_eq!(answers[0], answers[1]);
    assert!(
        answers[0].starts_with("Found 2 match(es):\n\n## crlf.txt\n1: TODO\n\n## exact.txt\n1: TODOxx"),
        "{}",
        answers[0]
    );
    assert!(answers[0].ends_with("(2 file(s) over 1 MB were not searched.)"), "{}", answers[0]);
}

/// The control: programs did find what was compared above.
#[tokio::test]
async fn programs_are_used_where_they_are_and_directories_are_not_read_then() {
    let (_directory, mut bench) = host().await;
    bench.put("src/中文.rs", "fn main() {}\n").await;
    let tapped = Tapped::new(bench.sandbox.clone());
    bench.sandbox = Arc::new(tapped.clone());
    let found = bench.call("Glob", &json!({ "pattern": "**/*.rs" })).await.text;
    assert_eq!(found, "Found 1 matching file(s):\nsrc/中文.rs");
    assert_eq!((tapped.calls("exec"), tapped.calls("read_dir")), (1, 0));
    let found = bench.call("Grep", &json!({ "pattern": "fn \\w+" })).await.text;
    assert_eq!(found, "Found 1 match(es):\n\n## src/中文.rs\n1: fn main() {}");
    assert_eq!((tapped.calls("exec"), tapped.calls("read_dir"), tapped.calls("read_file")), (3, 0, 1));
    let found = bench.call("Grep", &json!({ "pattern": "absent" })).await.text;
    assert_eq!(found, "No matches found.");
    assert_eq!(
        (tapped.calls("read_dir"), tapped.calls("read_file")),
        (0, 1),
        "no file that lacks the literal is read"
    );
}
