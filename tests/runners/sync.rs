//! What a machine gets when it registers: skills and agents of the service, and nothing that its user made is touched.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Client, Entry, Service, zip};

const PATIENCE: Duration = Duration::from_secs(60);
const SKILLS: &str = "/v1/skills/alice/demo";

/// A service with skills and agents for machines, and a machine that is lent to it.
struct Fixture {
    service: Service,
    global: tempfile::TempDir,
    machine: tempfile::TempDir,
    runner: Option<Child>,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if let Some(runner) = &mut self.runner {
            let _gone = runner.kill();
            let _reaped = runner.wait();
        }
    }
}

fn put(path: PathBuf, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

impl Fixture {
    fn new() -> Self {
        Self::with("")
    }

    /// With further settings of `[runners]`.
    fn with(settings: &str) -> Self {
        let global = tempfile::tempdir().unwrap();
        let at = |path: &str| global.path().join(path);
        put(at("skills/pdf/SKILL.md"), "---\nname: pdf\n---\nglobal\n");
        put(at("skills/pdf/scripts/run.sh"), "echo global\n");
        fs::set_permissions(at("skills/pdf/scripts/run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        put(at("skills/shared/SKILL.md"), "---\nname: shared\n---\nglobal\n");
        put(at("skills/no-skill/readme.txt"), "no skill");
        put(at("agents/审稿.md"), "---\nname: 审稿\n---\nreviews\n");
        put(at("agents/notes.txt"), "no agent");
        symlink("/etc/passwd", at("skills/pdf/passwd")).unwrap();
        let config = format!(
            "[runners]\nglobal_skills = [\"{0}/skills\"]\nglobal_agents = [\"{0}/agents\"]\nskills_of = [\"demo\"]\n{settings}",
            global.path().display()
        );
        let service = Service::configured(&config);
        upload(
            &service.client,
            &[
                ("shared/SKILL.md", "---\nname: shared\n---\nof demo\n"),
                ("写作/SKILL.md", "first\n"),
                ("写作/a/b.txt", "one\n"),
                ("写作/a/c.txt", "gone\n"),
            ],
        );
        Self { service, global, machine: tempfile::tempdir().unwrap(), runner: None }
    }

    /// The machine registers, and what became of its synchronisation.
    fn register(&mut self) -> Value {
        self.begin();
        self.synced()
    }

    fn begin(&mut self) {
        self.leave();
        let program = Path::new(env!("CARGO_BIN_EXE_filesecbox")).with_file_name("filesecbox-runner");
        assert!(program.exists(), "build the runner first: cargo build --package runner");
        let server = format!("ws://{}/ws/alice", self.service.client.address);
        let child = Command::new(program)
            .args(["--server", &server, "--isolation", "none", "--reconnect-seconds", "1", "--workspace"])
            .arg(self.machine.path())
            .env("FILESECBOX_LOG", "error")
            .env("FILESECBOX_RUNNER_TOKEN", "any")
            .stdin(Stdio::null())
            .spawn();
        self.runner = Some(child.unwrap());
    }

    fn machine_of(&self) -> Value {
        self.service.client.get("/v1/runners/alice").ok()["data"][0].clone()
    }

    fn synced(&self) -> Value {
        let begun = Instant::now();
        loop {
            let sync = self.machine_of()["sync"].clone();
            if sync["state"] == "done" || sync["state"] == "failed" {
                return sync;
            }
            assert!(begun.elapsed() < PATIENCE, "{sync}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn leave(&mut self) {
        if let Some(mut runner) = self.runner.take() {
            runner.kill().unwrap();
            runner.wait().unwrap();
            let begun = Instant::now();
            while self.machine_of()["connected"] == true {
                assert!(begun.elapsed() < PATIENCE);
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.machine.path().join(path)
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Every file below the machine's workspace.
    fn files(&self) -> Vec<String> {
        let top = self.machine.path();
        let mut files: Vec<String> = walkdir::WalkDir::new(top)
            .into_iter()
            .map(|entry| entry.unwrap())
            .filter(|entry| !entry.file_type().is_dir())
            .map(|entry| entry.path().strip_prefix(top).unwrap().to_str().unwrap().to_owned())
            .collect();
        files.sort();
        files
    }
}

fn upload(client: &Client, files: &[(&str, &str)]) {
    let entries: Vec<Entry> = files.iter().map(|(path, text)| Entry::file(path, text)).collect();
    client.upload(SKILLS, "baseline", &zip(&entries));
}

/// The numbers of a synchronisation that is over.
fn counts(sync: &Value) -> [u64; 4] {
    assert_eq!(sync["state"], "done", "{sync}");
    ["files", "written", "removed", "kept"].map(|name| sync[name].as_u64().unwrap())
}

#[test]
fn a_machine_gets_the_skills_and_agents_of_the_service_as_its_user_sees_them() {
    let mut fixture = Fixture::new();
    let client = fixture.service.client.clone();
    client.put(format!("{SKILLS}/写作/raw/a/b.txt"), "of alice\n").ok();
    fixture.begin();
    let begun = Instant::now();
    while fixture.machine_of()["connected"] != true {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(5));
    }
    // A command waits until what it may need is there.
    let script = json!({ "shell": "skills/pdf/scripts/run.sh; cat skills/写作/a/b.txt agents/审稿.md" });
    let ran = client.post_json("/v1/sandbox/alice/demo/exec", &script).ok();
    assert_eq!(ran["data"]["stdout"], "global\nof alice\n---\nname: 审稿\n---\nreviews\n", "{ran}");
    assert_eq!(counts(&fixture.synced()), [7, 7, 0, 0]);
    assert!(
        fixture.text("skills/shared/SKILL.md").ends_with("of demo\n"),
        "the user's comes before the global one"
    );
    let expected = [
        ".filesecbox-sync.json",
        "agents/审稿.md",
        "skills/pdf/SKILL.md",
        "skills/pdf/scripts/run.sh",
        "skills/shared/SKILL.md",
        "skills/写作/SKILL.md",
        "skills/写作/a/b.txt",
        "skills/写作/a/c.txt",
    ];
    assert_eq!(fixture.files(), expected);
    let mode = |path: &str| fs::metadata(fixture.at(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("skills/pdf/scripts/run.sh"), mode("skills/pdf/SKILL.md")), (0o755, 0o644));
}

#[test]
fn the_directories_on_the_machine_are_named_by_settings() {
    let mut fixture = Fixture::with("skills_directory = \".skills\"\nagents_directory = \".agents\"\n");
    assert_eq!(counts(&fixture.register()), [7, 7, 0, 0]);
    let files = fixture.files();
    assert!(files.contains(&".skills/pdf/scripts/run.sh".to_owned()), "{files:?}");
    assert!(files.contains(&".agents/审稿.md".to_owned()), "{files:?}");
    assert!(
        !files.iter().any(|file| file.starts_with("skills/") || file.starts_with("agents/")),
        "{files:?}"
    );
}

#[test]
fn the_next_registration_brings_what_changed_and_takes_what_is_gone() {
    let mut fixture = Fixture::new();
    assert_eq!(counts(&fixture.register()), [7, 7, 0, 0]);
    let before = fs::metadata(fixture.at(".filesecbox-sync.json")).unwrap().modified().unwrap();
    assert_eq!(counts(&fixture.register()), [7, 0, 0, 0]);
    let after = fs::metadata(fixture.at(".filesecbox-sync.json")).unwrap().modified().unwrap();
    assert_eq!(before, after, "nothing is written when nothing has changed");
    // Of the same length, and of a time that says nothing.
    upload(&fixture.service.client, &[("写作/SKILL.md", "first\n"), ("写作/a/b.txt", "two\n")]);
    fs::remove_dir_all(fixture.global.path().join("skills/pdf")).unwrap();
    fs::remove_file(fixture.at("skills/shared/SKILL.md")).unwrap();
    let sync = fixture.register();
    assert_eq!(counts(&sync), [4, 2, 3, 0], "{sync}");
    assert_eq!(fixture.text("skills/写作/a/b.txt"), "two\n");
    assert!(fixture.text("skills/shared/SKILL.md").ends_with("of demo\n"), "what was deleted comes back");
    assert!(!fixture.at("skills/pdf").exists() && !fixture.at("skills/写作/a/c.txt").exists());
}

#[test]
fn nothing_that_the_user_made_or_changed_is_touched() {
    let mut fixture = Fixture::new();
    put(fixture.at("skills/mine/SKILL.md"), "mine\n");
    put(fixture.at("skills/shared/notes.txt"), "a skill of the user's, of the same name\n");
    put(fixture.at("agents/审稿.md"), "the user's\n");
    let sync = fixture.register();
    assert_eq!(counts(&sync), [5, 5, 0, 2], "{sync}");
    assert_eq!(fixture.text("agents/审稿.md"), "the user's\n");
    assert!(!fixture.at("skills/shared/SKILL.md").exists());
    // Changed in place, to the same length; and beside what was brought.
    put(fixture.at("skills/写作/a/b.txt"), "ONE\n");
    put(fixture.at("skills/写作/a/c.txt"), "Gone\n");
    put(fixture.at("skills/pdf/mine.txt"), "mine\n");
    upload(&fixture.service.client, &[("写作/SKILL.md", "second\n"), ("写作/a/b.txt", "two\n")]);
    fs::remove_dir_all(fixture.global.path().join("skills/pdf")).unwrap();
    let sync = fixture.register();
    assert_eq!(counts(&sync), [1, 1, 2, 4], "{sync}");
    assert_eq!(fixture.text("skills/写作/SKILL.md"), "second\n");
    assert_eq!(
        (fixture.text("skills/写作/a/b.txt"), fixture.text("skills/写作/a/c.txt")),
        ("ONE\n".into(), "Gone\n".into())
    );
    assert_eq!(fixture.text("skills/pdf/mine.txt"), "mine\n");
    assert_eq!(fixture.text("skills/mine/SKILL.md"), "mine\n");
}

#[test]
fn a_manifest_or_a_link_that_lies_leads_to_no_other_file() {
    let mut fixture = Fixture::new();
    let outside = tempfile::tempdir().unwrap();
    put(outside.path().join("SKILL.md"), "outside\n");
    put(fixture.at("precious.txt"), "precious\n");
    put(fixture.at("skills/mine.txt"), "mine\n");
    symlink(outside.path(), fixture.at("skills/写作")).unwrap();
    let digest = |text: &str| blake3::hash(text.as_bytes()).to_hex().to_string();
    let left = |text: &str| json!({ "digest": digest(text), "bytes": text.len(), "executable": false });
    let manifest = json!({ "version": 1, "files": {
        "precious.txt": left("precious\n"),
        "skills/../precious.txt": left("precious\n"),
        "../precious.txt": left("precious\n"),
        "/etc/passwd": left("precious\n"),
        "skills": left(""),
        "skills/mine.txt": left("other\n"),
        "skills/写作/SKILL.md": left("outside\n"),
    }});
    put(fixture.at(".filesecbox-sync.json"), &manifest.to_string());
    let sync = fixture.register();
    assert_eq!(sync["state"], "done", "{sync}");
    assert_eq!(fixture.text("precious.txt"), "precious\n");
    assert_eq!(fixture.text("skills/mine.txt"), "mine\n");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(outside.path().join("SKILL.md")).unwrap(), "outside\n");
    assert!(fixture.text("skills/pdf/SKILL.md").ends_with("global\n"), "the rest is brought");
    // One that is none at all: everything there is the user's.
    put(fixture.at(".filesecbox-sync.json"), "{\"version\":1,\"files\":[");
    assert_eq!(fixture.register()["state"], "done");
    assert!(fixture.text("skills/pdf/SKILL.md").ends_with("global\n"));
}

#[test]
fn a_synchronisation_that_is_cut_goes_on_with_the_next_registration() {
    let mut fixture = Fixture::new();
    for number in 0..300 {
        put(fixture.global.path().join(format!("skills/many/d{}/f{number}", number % 7)), "first\n");
    }
    put(fixture.global.path().join("skills/many/SKILL.md"), "many\n");
    for cut in 0..8_u64 {
        fixture.begin();
        // Each version changes all files; cuts come at times that have no pattern.
        std::thread::sleep(Duration::from_millis(20 + cut * 7919 % 120));
        fixture.leave();
        for number in 0..300 {
            let text = format!("version {cut} of {number}\n");
            put(fixture.global.path().join(format!("skills/many/d{}/f{number}", number % 7)), &text);
        }
    }
    let sync = fixture.register();
    let [files, _, removed, kept] = counts(&sync);
    assert_eq!((files, removed, kept), (308, 0, 0), "{sync}");
    for number in 0..300 {
        assert_eq!(
            fixture.text(&format!("skills/many/d{}/f{number}", number % 7)),
            format!("version 7 of {number}\n")
        );
    }
}

#[test]
fn a_service_without_skills_for_machines_leaves_them_alone() {
    let mut fixture = Fixture::new();
    fixture.service = Service::start();
    upload(&fixture.service.client, &[("写作/SKILL.md", "first\n")]);
    fixture.begin();
    let begun = Instant::now();
    while fixture.machine_of()["connected"] != true {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(fixture.machine_of()["sync"], Value::Null);
    assert_eq!(fixture.files(), Vec::<String>::new());
}
