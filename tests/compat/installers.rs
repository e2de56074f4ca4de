//! Installers of skills, unmodified, by share links: `npx skills` and Claude Code's plugin marketplaces.
//!
//! `FILESECBOX_INSTALLERS` names a directory where npm has installed `skills`, `@anthropic-ai/claude-code`, the `node` that the
//! former needs, and the packages of `npm.rs` (`.ci/run` does). Without it, the tests are left out; `FILESECBOX_REQUIRE=installers` turns that into a failure.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::between::{Between, Fate};
use crate::doors::TOKENS;
use crate::support::{Client, Entry, Service, granted, skill, skills, zip};

const ON: &str = "[shares]\nenabled = true\n";

/// A person who installs: a home, and a project in it.
pub(crate) struct Person {
    bin: PathBuf,
    home: tempfile::TempDir,
}

impl Person {
    pub(crate) fn new() -> Option<Self> {
        let place = std::env::var("FILESECBOX_INSTALLERS").unwrap_or_default();
        if !granted("installers", !place.is_empty()) {
            return None;
        }
        let bin = Path::new(&place).join("node_modules/.bin");
        assert!(
            bin.join("skills").exists() && bin.join("claude").exists(),
            "FILESECBOX_INSTALLERS lacks a package"
        );
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(home.path().join("project/.git")).unwrap();
        Some(Self { bin, home })
    }

    fn project(&self, path: &str) -> PathBuf {
        self.home.path().join("project").join(path)
    }

    fn text(&self, path: &str) -> String {
        std::fs::read_to_string(self.project(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Runs an installer in the project. Returns whether it succeeded, and what it said.
    fn run(&self, arguments: &[&str], variables: &[(&str, &str)]) -> (bool, String) {
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", self.bin.display());
        let output = Command::new(self.bin.join(arguments[0]))
            .args(&arguments[1..])
            .current_dir(self.project(""))
            .env_clear()
            .env("PATH", path)
            .env("HOME", self.home.path())
            // No word to their makers.
            .envs([("DISABLE_TELEMETRY", "1"), ("DO_NOT_TRACK", "1"), ("CI", "1")])
            .envs([("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")])
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        (output.status.success(), said.into_owned())
    }

    pub(crate) fn must(&self, arguments: &[&str], variables: &[(&str, &str)]) -> String {
        let (succeeded, said) = self.run(arguments, variables);
        assert!(succeeded, "{arguments:?}: {said}");
        said
    }
}

fn publish(admin: &Client, name: &str, text: &str) {
    let header = format!("---\nname: {name}\ndescription: about {name}\n---\n");
    let archive = zip(&[
        Entry::file(&format!("{name}/SKILL.md"), header),
        Entry::file(&format!("{name}/scripts/run.sh"), text).mode(0o100_755),
    ]);
    admin.upload(&skills("x", "demo"), "baseline", &archive);
}

/// A service with two skills, and a link to them that begins with its address, without the last `/`.
fn shared() -> (Service, String, String) {
    let service = Service::configured(&format!("{ON}{}", TOKENS.concat()));
    let admin = service.client.with_token("admin");
    for name in ["pdf", "数据统计"] {
        publish(&admin, name, "one");
    }
    let made = admin.post_json("/v1/shares/alice/demo", &json!({ "view": "baseline" }));
    assert_eq!(made.status, 201);
    let text = |name: &str| made.json()[name].as_str().unwrap().to_owned();
    let link = format!("http://{}{}", service.client.address, text("data").trim_end_matches('/'));
    (service, link, text("id"))
}

fn alias(client: &Client, link: &str) -> String {
    let path = link.split_once("/s/").unwrap().1;
    let index: Value = serde_json::from_slice(client.get(format!("/s/{path}/")).bytes(200)).unwrap();
    index["skills"][1]["name"].as_str().unwrap().to_owned()
}

#[test]
fn npx_skills_installs_updates_and_finds_by_a_link_until_it_is_revoked() {
    let Some(person) = Person::new() else { return };
    let (service, link, id) = shared();
    let admin = service.client.with_token("admin");
    person.must(&["skills", "add", &link, "-a", "claude-code", "-s", "*", "-y", "--copy"], &[]);
    assert_eq!(person.text(".claude/skills/pdf/scripts/run.sh"), "one");
    let chinese = alias(&service.client, &link);
    assert!(person.text(&format!(".claude/skills/{chinese}/SKILL.md")).contains("name: 数据统计"));
    // What is committed: the link, and no other secret; it opens nothing else.
    let locked: Value = serde_json::from_str(&person.text("skills-lock.json")).unwrap();
    assert_eq!(locked["skills"]["pdf"]["sourceUrl"], link);
    let secret = link.rsplit_once('/').unwrap().1;
    let holder = service.client.with_token(secret);
    holder.get(format!("{}/download", skill("alice", "demo", "pdf"))).refused(401, "unauthenticated");
    holder.get("/v1/shares/alice/demo").refused(401, "unauthenticated");

    let found = person.must(&["skills", "find", "about pdf"], &[("SKILLS_API_URL", &link)]);
    assert!(found.contains(&format!("{link}@pdf")), "{found}");

    publish(&admin, "pdf", "two");
    person.must(&["skills", "add", &link, "-a", "claude-code", "-s", "pdf", "-y", "--copy"], &[]);
    assert_eq!(person.text(".claude/skills/pdf/scripts/run.sh"), "two");

    admin.delete(format!("/v1/shares/alice/demo/{id}")).ok();
    publish(&admin, "pdf", "three");
    let (succeeded, said) =
        person.run(&["skills", "add", &link, "-a", "claude-code", "-s", "pdf", "-y", "--copy"], &[]);
    assert!(!succeeded || !said.contains("Installation complete"), "{said}");
    assert_eq!(person.text(".claude/skills/pdf/scripts/run.sh"), "two");
}

#[test]
fn npx_skills_refuses_an_archive_that_is_not_the_one_of_the_index() {
    let Some(person) = Person::new() else { return };
    let (service, link, _) = shared();
    let between = Between::start(service.client.address, |_, _| Fate::Tampered);
    let through = link.replace(&service.client.address.to_string(), &between.address.to_string());
    let (succeeded, said) =
        person.run(&["skills", "add", &through, "-a", "claude-code", "-s", "*", "-y", "--copy"], &[]);
    assert!(!person.project(".claude/skills/pdf/SKILL.md").exists(), "{succeeded} {said}");
    // The same way without the tampering installs: the link straight to the service.
    person.must(&["skills", "add", &link, "-a", "claude-code", "-s", "*", "-y", "--copy"], &[]);
}

#[test]
fn a_plugin_is_installed_from_a_link_and_updated_with_a_new_version() {
    let Some(person) = Person::new() else { return };
    let (service, link, _) = shared();
    let market = format!("{link}/marketplace.json");
    person.must(&["claude", "plugin", "marketplace", "add", &market], &[]);
    person.must(&["claude", "plugin", "install", "pdf@demo"], &[]);
    let script =
        |version: &str| format!("../.claude/plugins/cache/demo/pdf/{version}/skills/pdf/scripts/run.sh");
    assert_eq!(person.text(&script("1.0.1")), "one");
    let chinese = alias(&service.client, &link);
    person.must(&["claude", "plugin", "install", &format!("{chinese}@demo")], &[]);
    publish(&service.client.with_token("admin"), "pdf", "two");
    person.must(&["claude", "plugin", "marketplace", "update", "demo"], &[]);
    person.must(&["claude", "plugin", "update", "pdf@demo"], &[]);
    assert_eq!(person.text(&script("1.0.2")), "two");
}
