//! Other programs as judges: bash for patterns, sed for lines, grep for regular expressions.

use std::cell::Cell;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use agent::tools::edit::{Action, edit_lines};
use agent::tools::glob::{Pattern, glob_to_find_args};
use agent::tools::grep::re2_to_ere;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use regex::Regex;

fn runner(cases: u32) -> TestRunner {
    TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() })
}

fn one_of(all: &'static [&'static str]) -> impl Strategy<Value = String> {
    proptest::sample::select(all).prop_map(str::to_owned)
}

fn run(program: &str, arguments: &[&str], directory: &Path, input: &str) -> Vec<u8> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory).env("LC_ALL", "C.UTF-8");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap().stdout
}

fn paths(output: &[u8]) -> Vec<String> {
    let text = std::str::from_utf8(output).unwrap();
    let mut paths: Vec<String> = text
        .split('\0')
        .filter(|path| !path.is_empty())
        .map(|path| path.trim_start_matches("./").to_owned())
        .collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}

/// A fixed tree, since patterns are what varies.
fn tree() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for path in [
        "a",
        "b.go",
        "ab.go",
        "x_test.go",
        ".env",
        "读我.md",
        "sub/a",
        "sub/b.go",
        "sub/.hid",
        "sub/test/a.go",
        "sub/test/deep/b.go",
        "test/a.go",
        "test/test/a",
        ".git/a.go",
        "sub/.git/b.go",
        "文/b.go",
        "文/说明.md",
    ] {
        let path = directory.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "x").unwrap();
    }
    directory
}

/// The files that bash means by a pattern.
const EXPAND: &str = "shopt -s globstar nullglob; for path in PATTERN; do [ -f \"$path\" ] && printf '%s\\0' \"$path\"; done; true";

#[test]
fn a_pattern_means_the_files_that_bash_means_and_find_lists_all_of_them() {
    let directory = tree();
    let all = paths(&run("find", &[".", "-type", "f", "-print0"], directory.path(), ""));
    let part = one_of(&[
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
        "读*",
        ".git",
        "sub",
        "[!a]*",
        "*[.]go",
        "文",
        "{sub,test}",
    ]);
    let pattern = proptest::collection::vec(part, 1..5).prop_map(|parts| parts.join("/"));
    let matched = Cell::new(0);
    let result = runner(300).run(&pattern, |pattern| {
        let read = Pattern::new(&pattern).unwrap();
        let found: Vec<String> = all.iter().filter(|path| read.matches(path)).cloned().collect();
        let expected =
            paths(&run("bash", &["-c", &EXPAND.replace("PATTERN", &pattern)], directory.path(), ""));
        prop_assert_eq!(&found, &expected, "{}", pattern);
        matched.set(matched.get() + found.len());
        // The arguments in their written form, through a shell; they stand for the first of a pattern's alternatives.
        if !pattern.contains('{') {
            let (base, args) = glob_to_find_args(&pattern);
            let script = format!("find './{base}' {args} -type f -print0 2>/dev/null");
            let listed = paths(&run("sh", &["-c", &script], directory.path(), ""));
            for path in &found {
                prop_assert!(listed.contains(path), "{} with `{}` lacks {}", pattern, args, path);
            }
        }
        Ok(())
    });
    result.unwrap();
    println!("bash and the pattern agreed on {} files", matched.get());
    assert!(matched.get() > 60);
}

#[test]
fn lines_are_changed_as_sed_changes_them() {
    let directory = tempfile::tempdir().unwrap();
    let line = || one_of(&["one", "", "两 二", "  indented", "x\ty"]);
    let strategy = (
        proptest::collection::vec(line(), 1..8),
        1..9_usize,
        1..4_usize,
        one_of(&["NEW", "新 行", "a\nb"]),
        0..4_u8,
    );
    let result = runner(150).run(&strategy, |(lines, first, count, new, kind)| {
        let text = format!("{}\n", lines.join("\n"));
        let last = first + count - 1;
        let continued = new.replace('\n', "\\\n");
        let (action, script) = match kind {
            0 => (Action::Delete(count), format!("{first},{last}d")),
            1 => (Action::Replace(count), format!("{first},{last}c\\\n{continued}")),
            2 => (Action::InsertBefore, format!("{first}i\\\n{continued}")),
            _ => (Action::InsertAfter, format!("{first}a\\\n{continued}")),
        };
        let last = if kind < 2 { last } else { first };
        match edit_lines(&text, first, &action, &new) {
            Ok((changed, _)) => {
                let expected = run("sed", &["-e", &script], directory.path(), &text);
                prop_assert_eq!(changed.as_bytes(), &expected, "{:?} at {}", action, first);
            }
            Err(reason) => {
                prop_assert!(last > lines.len() && reason.contains("exceeds total lines"), "{}", reason)
            }
        }
        Ok(())
    });
    result.unwrap();
}

#[test]
fn a_translated_expression_means_to_grep_what_it_means_here() {
    let directory = tempfile::tempdir().unwrap();
    let lines = [
        "",
        "abc",
        "a1 b2",
        "TODO: x_9",
        "(a)",
        "a\tb",
        "9999",
        "__",
        "a.b",
        "{2}",
        "foo|bar",
        "-x",
        "\\d",
        "  ",
    ];
    let text = lines.join("\n") + "\n";
    let part = one_of(&[
        "\\d",
        "\\w",
        "\\s",
        "\\D",
        "\\W",
        "\\S",
        "a",
        "b",
        ".",
        "[0-9a]",
        "[^a]",
        "(?:a|b)",
        "(?P<x>\\d)",
        "(\\w)",
        "[\\d_]",
        "\\.",
        "\\(",
        "\\t",
        "\\{",
    ]);
    let repeated = (part, one_of(&["", "", "*", "+", "?", "{2}", "{1,3}"]))
        .prop_map(|(part, times)| format!("{part}{times}"));
    let anchored = (one_of(&["", "^"]), proptest::collection::vec(repeated, 1..5), one_of(&["", "$"]));
    let pattern = anchored.prop_map(|(begin, parts, end)| format!("{begin}{}{end}", parts.concat()));
    let matched = Cell::new(0);
    let result = runner(200).run(&pattern, |pattern| {
        // Two groups may have got one name.
        let Ok(regex) = Regex::new(&pattern) else { return Ok(()) };
        let expected: String =
            lines.iter().filter(|line| regex.is_match(line)).map(|line| format!("{line}\n")).collect();
        let ere = re2_to_ere(&pattern);
        let found = run("grep", &["-E", "-e", &ere], directory.path(), &text);
        prop_assert_eq!(String::from_utf8(found).unwrap(), expected.clone(), "{} as {}", pattern, ere);
        matched.set(matched.get() + expected.lines().count());
        Ok(())
    });
    result.unwrap();
    println!("grep agreed on {} lines", matched.get());
    assert!(matched.get() > 60);
}
