//! Patches and searches against other tools' opinions: what `git diff` and `diff -u` write is made, and what `rg` finds is
//! found. A program that is not installed skips its test loudly; `FILESECBOX_REQUIRE` may name `git`, `diff` or `rg`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::fixture::random::Random;
use crate::fixture::{Fixture, Node, Tree, skip};
use policy::{RelPath, Scope};
use storage::Files;
use storage::patch::{PatchOptions, parse};
use storage::search::{GlobQuery, GrepQuery, Kinds, Patience, Patterns};

const NAMES: [&str; 7] =
    ["a.txt", "src/b.py", "src/deep/c.py", "文档/说明.md", "with space.txt", "q\"uote.md", "d.md"];
const WORDS: [&str; 8] = ["alpha", "beta", "数据", "分析", "import x", "}", "", "    pass"];

/// Texts by path; modes are those of a fresh file.
type Texts = BTreeMap<&'static str, String>;

fn lines(random: &mut Random) -> String {
    let end = if random.chance(20) { "\r\n" } else { "\n" };
    let mut text: String = (0..random.below(30)).map(|_| format!("{}{end}", random.pick(&WORDS))).collect();
    if random.chance(20) {
        text.push_str("no end");
    }
    text
}

/// The text with some lines changed, taken away or put in, and sometimes another end.
fn changed(random: &mut Random, text: &str) -> String {
    let mut new = String::new();
    for line in text.split_inclusive('\n') {
        match random.below(10) {
            0 => {}
            1 => new.push_str(&format!("{}\n", random.pick(&WORDS))),
            2 => new.push_str(&format!("{}\n{line}", random.pick(&WORDS))),
            _ => new.push_str(line),
        }
    }
    match random.below(12) {
        0 => new.trim_end_matches('\n').to_owned(),
        1 if !new.ends_with('\n') => new + "\n",
        _ => new,
    }
}

fn tree_of(texts: &Texts) -> Tree {
    let files: Vec<(&str, &str)> = texts.iter().map(|(at, text)| (*at, text.as_str())).collect();
    Tree::of(&files)
}

fn write(dir: &Path, texts: &Texts) {
    for (at, text) in texts {
        fs::create_dir_all(dir.join(at).parent().unwrap()).unwrap();
        fs::write(dir.join(at), text).unwrap();
    }
}

/// What a program prints in `dir`; `None`, loudly, when it is not installed.
fn output(program: &str, args: &[&str], dir: &Path) -> Option<String> {
    let mut command = Command::new(program);
    command.args(args).current_dir(dir).stdin(Stdio::null());
    // No user's settings, and no repository above this directory.
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1").env("LC_ALL", "C.UTF-8");
    match command.output() {
        Ok(output) => Some(String::from_utf8(output.stdout).unwrap()),
        Err(_) => {
            skip(program, "it is not installed");
            None
        }
    }
}

fn apply(files: &Files, patch: &str) -> storage::Result<()> {
    let options = PatchOptions { limit: 1 << 20, ..PatchOptions::default() };
    files.patch(&parse(patch, &RelPath::parse)?, &options).map(drop)
}

/// The files of a tree with their texts; directories that a patch emptied stay, as git knows none.
fn texts_of(files: &Files) -> BTreeMap<String, String> {
    let text = |node| match node {
        Node::File { bytes, .. } => Some(String::from_utf8(bytes).unwrap()),
        _ => None,
    };
    let nodes = Tree::through(files).unwrap_or_default().nodes.into_iter();
    nodes.filter_map(|(at, node)| Some((at, text(node)?))).collect()
}

/// Random texts, and what became of them.
fn before_and_after(random: &mut Random) -> (Texts, Texts) {
    let mut before = Texts::new();
    for name in NAMES {
        if random.chance(70) {
            before.insert(name, lines(random));
        }
    }
    let mut after = Texts::new();
    for (at, text) in &before {
        match random.below(10) {
            0 => {}
            1 => drop(after.insert("src/moved.txt", text.clone())),
            _ => drop(after.insert(at, changed(random, text))),
        }
    }
    if random.chance(40) {
        after.insert("new/file.txt", lines(random));
    }
    (before, after)
}

#[test]
fn what_git_and_diff_write_is_made_as_they_mean_it() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let (before, after) = before_and_after(&mut random);
        let temp = tempfile::tempdir().unwrap();
        let git = temp.path().join("git");
        fs::create_dir(&git).unwrap();
        write(&git, &before);
        let Some(_) = output("git", &["init", "--quiet"], &git) else { return };
        output("git", &["add", "--all"], &git);
        let old = output("git", &["write-tree"], &git).unwrap();
        for at in before.keys() {
            fs::remove_file(git.join(at)).unwrap();
        }
        write(&git, &after);
        output("git", &["add", "--all"], &git);
        let quoting = if random.chance(50) { "core.quotePath=true" } else { "core.quotePath=false" };
        // Without context, a patch does not tell which line ends the lines around its own have.
        let has_cr = before.values().any(|text| text.contains('\r'));
        let context = format!("--unified={}", random.below(4).max(usize::from(has_cr)));
        let args = [
            "-c",
            quoting,
            "-c",
            "core.autocrlf=false",
            "diff",
            "--cached",
            "--find-renames",
            &context,
            old.trim(),
        ];
        let by_git = output("git", &args, &git).unwrap();
        check(seed, "git", &by_git, &before, &after);

        // `diff` quotes other names in its own way, and takes an empty file for none.
        let is_plain = |at: &&str| at.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'/' | b'.'));
        let plain = |texts: &Texts| -> Texts {
            let plain = texts.iter().filter(|(at, text)| is_plain(at) && !text.is_empty());
            plain.map(|(at, text)| (*at, text.clone())).collect()
        };
        let (before, after) = (plain(&before), plain(&after));
        for (dir, texts) in [("old", &before), ("new", &after)] {
            fs::create_dir(temp.path().join(dir)).unwrap();
            write(&temp.path().join(dir), texts);
        }
        let Some(by_diff) = output("diff", &["-ruN", "old", "new"], temp.path()) else { return };
        check(seed, "diff", &renamed(&by_diff, &before, &after), &before, &after);
    }
}

/// Makes a patch in a skill over a baseline, and in one that only the overlay has.
fn check(seed: u64, tool: &str, patch: &str, before: &Texts, after: &Texts) {
    if patch.is_empty() {
        return;
    }
    let fixture = Fixture::new();
    fixture.baseline("s", &tree_of(before));
    fixture.publish(Scope::Overlay, "own", "s", &tree_of(before));
    for files in [fixture.skill("u", "s"), fixture.skill("own", "s")] {
        apply(&files, patch).unwrap_or_else(|error| panic!("seed {seed}: {tool}: {error}\n{patch}"));
        let expected: BTreeMap<String, String> =
            after.iter().map(|(at, text)| ((*at).to_owned(), text.clone())).collect();
        assert_eq!(texts_of(&files), expected, "seed {seed}: {tool}\n{patch}");
    }
    fixture.assert_swept();
}

/// A patch of `diff -ruN old new` with names as `git` gives them: without those directories, and `/dev/null`.
fn renamed(patch: &str, before: &Texts, after: &Texts) -> String {
    let mut new = String::new();
    for line in patch.split_inclusive('\n').filter(|line| !line.starts_with("diff -ruN")) {
        let side = |prefix: &str, dir: &str, texts: &Texts| {
            let name = line.strip_prefix(prefix)?.split('\t').next()?.strip_prefix(dir)?;
            let name = if texts.contains_key(name) { name } else { "/dev/null" };
            Some(format!("{prefix}{name}\n"))
        };
        let named = side("--- ", "old/", before).or_else(|| side("+++ ", "new/", after));
        new.push_str(&named.unwrap_or_else(|| line.to_owned()));
    }
    new
}

fn patience() -> Patience {
    Patience { deadline: Instant::now() + Duration::from_secs(60), abandoned: Arc::default() }
}

#[test]
fn lines_are_those_that_rg_finds() {
    let fixture = Fixture::new();
    let mut random = Random::new(5);
    let mut texts = BTreeMap::new();
    for number in 0..300 {
        let extension = random.pick(&["py", "md", "txt"]);
        texts.insert(format!("目录{}/文件-{number}.{extension}", number % 7), lines(&mut random));
    }
    let files: Vec<(&str, &str)> = texts.iter().map(|(at, text)| (at.as_str(), text.as_str())).collect();
    fixture.baseline("s", &Tree::of(&files));
    let tree = fixture.skill("u", "s");
    let root = fixture.baseline_path().join("s");
    for (expression, options) in [
        ("alpha|数据", &[][..]),
        ("^$", &[]),
        ("^\\s+pass$", &[]),
        ("分.", &[]),
        ("IMPORT \\w", &["--ignore-case"]),
        ("}", &["--fixed-strings"]),
        ("[^a-z]{3}", &[]),
        ("end$", &[]),
    ] {
        let mut args =
            vec!["--no-config", "--no-ignore", "--line-number", "--no-heading", "--crlf", "--sort=path"];
        args.extend_from_slice(options);
        args.extend_from_slice(&["--regexp", expression, "."]);
        let Some(by_rg) = output("rg", &args, &root) else { return };
        let query = GrepQuery {
            expression: expression.to_owned(),
            literal: options.contains(&"--fixed-strings"),
            ignore_case: options.contains(&"--ignore-case"),
            path: RelPath::root(),
            include: Patterns::new::<&str>(&[]).unwrap(),
            exclude: Patterns::new::<&str>(&[]).unwrap(),
            hidden: false,
            context: 0,
            limit: 100_000,
            after: None,
        };
        let found = tree.grep(&query, &patience()).unwrap();
        let mut ours: Vec<String> = found
            .matches
            .iter()
            .map(|found| format!("./{}:{}:{}", found.path, found.line, found.text))
            .collect();
        let mut theirs: Vec<&str> = by_rg.lines().map(|line| line.trim_end_matches('\r')).collect();
        assert!(!theirs.is_empty(), "{expression}");
        ours.sort();
        theirs.sort_unstable();
        assert_eq!(ours, theirs, "{expression}");
    }
    for pattern in ["*.py", "文件-1?.*", "目录[0-3]/*", "**/*2.{md,txt}", "/目录6/文件-*", "目录[!0-3]/**"]
    {
        let args = ["--no-config", "--no-ignore", "--files", "--glob", pattern];
        let Some(by_rg) = output("rg", &args, &root) else { return };
        let query = GlobQuery {
            kinds: Kinds::File,
            include: Patterns::new(&[pattern]).unwrap(),
            exclude: Patterns::new::<&str>(&[]).unwrap(),
            path: RelPath::root(),
            hidden: false,
            after: None,
            limit: 100_000,
            look: false,
        };
        let found = tree.glob(&query, &patience()).unwrap();
        let ours: Vec<&str> = found.entries.iter().map(|entry| entry.path.as_str()).collect();
        let mut theirs: Vec<&str> = by_rg.lines().collect();
        assert!(!theirs.is_empty(), "{pattern}");
        theirs.sort_unstable();
        assert_eq!(ours, theirs, "{pattern}");
    }
}
