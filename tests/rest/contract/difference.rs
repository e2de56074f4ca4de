//! A difference is a patch: applied to the application's version, it gives what the user sees.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::support::{Service, encoded, skill, skill_zip, skills};

const SKILL: &str = "报表";
const NAMES: [&str; 7] = ["a", "b", "数据", "表 格.md", "run.sh", "\"q\"", "deep/er"];

/// A sequence that follows from a seed, so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }

    /// A path of one to three names.
    fn path(&mut self) -> String {
        let names: Vec<&str> = (0..=self.below(3)).map(|_| NAMES[self.below(NAMES.len())]).collect();
        names.join("/")
    }

    fn text(&mut self) -> String {
        match self.below(5) {
            0 => String::new(),
            1 => format!("第{}行\nno end", self.below(100)),
            _ => (0..self.below(40))
                .fold(String::new(), |all, line| format!("{all}{line} {}\n", self.below(4))),
        }
    }
}

/// Files with their text and whether they can be executed.
type Files = BTreeMap<String, (Vec<u8>, bool)>;

fn seen(service: &Service, tree: &str) -> Files {
    let paths = service.client.files(tree);
    let file = |path: String| {
        let reply = service.client.get(format!("{tree}/raw/{}", encoded(&path)));
        let mode = u32::from_str_radix(reply.header("x-mode").unwrap(), 8).unwrap();
        (path, (reply.bytes(200).to_vec(), mode & 0o100 != 0))
    };
    paths.into_iter().map(file).collect()
}

fn on_disk(root: &Path, prefix: &str, into: &mut Files) {
    use std::os::unix::fs::PermissionsExt;
    for entry in std::fs::read_dir(root).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{prefix}{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            on_disk(&entry.path(), &format!("{path}/"), into);
        } else {
            let mode = entry.metadata().unwrap().permissions().mode();
            into.insert(path, (std::fs::read(entry.path()).unwrap(), mode & 0o100 != 0));
        }
    }
}

fn write_out(files: &Files, root: &Path) {
    use std::os::unix::fs::PermissionsExt;
    for (path, (bytes, is_executable)) in files {
        let at = root.join(path);
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        std::fs::write(&at, bytes).unwrap();
        let mode = if *is_executable { 0o755 } else { 0o644 };
        std::fs::set_permissions(&at, PermissionsExt::from_mode(mode)).unwrap();
    }
}

/// The text that `program` makes of `before` with a patch.
fn applied(program: &[&str], before: &Files, patch: &str) -> Files {
    let (tree, file) = (tempfile::tempdir().unwrap(), tempfile::NamedTempFile::new().unwrap());
    write_out(before, tree.path());
    std::fs::write(file.path(), patch).unwrap();
    let done = Command::new(program[0])
        .args(&program[1..])
        .arg(file.path())
        .current_dir(tree.path())
        // A repository around it would be taken for the tree.
        .env("GIT_CEILING_DIRECTORIES", tree.path().parent().unwrap())
        .output()
        .unwrap();
    assert!(done.status.success(), "{program:?}: {}\n{patch}", String::from_utf8_lossy(&done.stderr));
    let mut after = Files::new();
    on_disk(tree.path(), "", &mut after);
    after
}

/// Random changes of a skill by its user, as requests make them. Refused ones are as good.
fn change(service: &Service, tree: &str, random: &mut Random) {
    let paths = service.client.files(tree);
    let existing = paths[random.below(paths.len())].clone();
    let directory = existing.split_once('/').map_or(existing.clone(), |(first, _)| first.to_owned());
    let client = &service.client;
    match random.below(9) {
        0..3 => {
            let mode = if random.below(3) == 0 { "0755" } else { "0644" };
            let target = format!("{tree}/raw/{}?parents=true&mode={mode}", encoded(random.path()));
            drop(client.put(target, random.text()));
        }
        3 | 4 => drop(client.put(format!("{tree}/raw/{}", encoded(&existing)), random.text())),
        5 => drop(client.delete(format!("{tree}/file?path={}", encoded(&existing)))),
        6 => drop(client.delete(format!("{tree}/file?path={}&recursive=true", encoded(&directory)))),
        7 => {
            let body = json!({ "from": directory, "to": random.path() });
            drop(client.post_json(format!("{tree}/move"), &body));
        }
        _ => {
            drop(client.delete(format!("{tree}/file?path={}&recursive=true", encoded(&directory))));
            drop(client.put(format!("{tree}/raw/{}/new?parents=true", encoded(&directory)), random.text()));
        }
    }
}

/// Whether a file stands where the other side has a directory: only git removes before it makes.
fn has_swapped(before: &Files, after: &Files) -> bool {
    let is_above =
        |file: &String, others: &Files| others.keys().any(|path| path.starts_with(&format!("{file}/")));
    before.keys().any(|file| is_above(file, after)) || after.keys().any(|file| is_above(file, before))
}

#[test]
fn a_difference_applied_to_the_applications_version_gives_what_the_user_sees() {
    let service = Service::start();
    let client = &service.client;
    let mut compared = 0;
    for seed in 0..24 {
        let random = &mut Random(seed);
        let (alice, bob) = (skill(&format!("a{seed}"), "x", SKILL), skill(&format!("b{seed}"), "x", SKILL));
        let files: BTreeMap<String, String> = (0..8).map(|_| (random.path(), random.text())).collect();
        let taken: Vec<&String> = files.keys().collect();
        let fits = |path: &String| !taken.iter().any(|other| path.starts_with(&format!("{other}/")));
        let files: Vec<(&str, &str)> = files
            .iter()
            .filter(|(path, _)| fits(path))
            .map(|(path, text)| (path.as_str(), text.as_str()))
            .collect();
        client.upload(&skills("admin", "x"), "baseline", &skill_zip(SKILL, &files));
        let before = seen(&service, &bob);
        for _ in 0..8 {
            change(&service, &alice, random);
        }
        let after = seen(&service, &alice);
        let mut patch = String::new();
        for row in client.get(format!("{alice}/diff")).ok()["data"].as_array().unwrap() {
            match row["diff"].as_str() {
                Some(text) => patch.push_str(text),
                // A directory alone.
                None => assert_eq!(
                    (&row["omitted"], &row["after_bytes"]),
                    (&json!("not_text"), &json!(null)),
                    "{row}"
                ),
            }
        }
        if patch.is_empty() {
            assert_eq!(before, after, "{seed}");
            continue;
        }
        compared += 1;
        let git = ["git", "apply", "--whitespace=nowarn"];
        assert_eq!(applied(&git, &before, &patch), after, "{seed}: git\n{patch}");
        if has_swapped(&before, &after) {
            continue;
        }
        client.post_json(format!("{bob}/patch"), &json!({ "patch": patch })).ok();
        assert_eq!(seen(&service, &bob), after, "{seed}: the route\n{patch}");
    }
    assert!(compared > 12, "{compared} differences were compared");
}

#[test]
fn a_removed_directory_is_told_file_by_file_and_links_are_not_followed() {
    let service = Service::start();
    let client = &service.client;
    let (alice, tree) = (skill("alice", "x", SKILL), [("d/x", "1\n"), ("d/e/y", "2\n"), ("f", "3\n")]);
    client.upload(&skills("alice", "x"), "baseline", &skill_zip(SKILL, &tree));
    client.delete(format!("{alice}/file?path=d&recursive=true")).ok();
    client.delete(format!("{alice}/file?path=f")).ok();
    client.execute(&alice, "bash", &["-c", "ln -s SKILL.md f"]);
    let rows = client.get(format!("{alice}/diff")).ok()["data"].clone();
    let told: Vec<_> = rows.as_array().unwrap().iter().map(|row| (&row["path"], &row["diff"])).collect();
    let gone =
        |path: &str, text: &str| json!(format!("--- a/{path}\n+++ /dev/null\n@@ -1 +0,0 @@\n-{text}\n"));
    let expected = [
        (&json!("d/e/y"), &gone("d/e/y", "2")),
        (&json!("d/x"), &gone("d/x", "1")),
        // What the link leads to is no text of its own.
        (&json!("f"), &json!(null)),
    ];
    assert_eq!(told, expected);
    // A list names it once.
    let listed = client.get(format!("{}/list", skills("alice", "x"))).ok()["data"][0]["changes"].clone();
    assert_eq!(listed[0], json!({ "path": "d", "change": "deleted" }));
}
