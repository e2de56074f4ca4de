//! [`Scene`]: one attacker on one stage, with a workspace of its own.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{Client, encoded};
use crate::stage::{Host, Stage};

/// The agent that attackers and their victim use.
pub(crate) const AGENT: &str = "demo";
/// The user whose things the others are after.
pub(crate) const VICTIM: &str = "victim";
/// A skill of the baseline that the victim has changed.
pub(crate) const SKILL: &str = "shared";

/// Commands before an attack on a warm stage: two runs may have a temporary directory each, and the second in one stays.
const WARMING: usize = 4;

/// An attacker on a stage. Each attack has a user of its own, so that attacks do not meet.
pub(crate) struct Scene<'a> {
    pub(crate) stage: &'a Stage,
    /// The attack's name.
    pub(crate) name: &'static str,
    /// The user who makes it.
    pub(crate) user: String,
}

/// How a run ended, as the caller sees it.
#[derive(Debug)]
pub(crate) struct Ran {
    /// The result of the run.
    pub(crate) result: Value,
    /// From request to answer.
    pub(crate) took: Duration,
}

impl Ran {
    pub(crate) fn stdout(&self) -> &str {
        self.result["stdout"].as_str().unwrap_or_default()
    }

    pub(crate) fn timed_out(&self) -> bool {
        self.result["timed_out"] == true
    }
}

impl<'a> Scene<'a> {
    /// The attacker of an attack: a user who is named after it, and after the stage, because equal names get equal
    /// user ids on all services of a machine.
    pub(crate) fn new(stage: &'a Stage, name: &'static str) -> Self {
        Self { stage, name, user: stage.user_named(name) }
    }

    /// Another user, in whose trees the control leaves what it makes.
    pub(crate) fn control(&self) -> Self {
        Self { stage: self.stage, name: self.name, user: format!("control_of_{}", self.user) }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.stage.client
    }

    /// The host, where this suite can look at it.
    pub(crate) fn host(&self) -> Option<&Host> {
        self.stage.host.as_ref()
    }

    /// The routes of the attacker's workspace.
    pub(crate) fn workspace(&self) -> String {
        workspace_of(&self.user)
    }

    /// The routes of the attacker's view of the shared skill.
    pub(crate) fn skill(&self) -> String {
        skill_of(&self.user)
    }

    /// Writes a file of the attacker's workspace.
    pub(crate) fn write(&self, path: &str, bytes: impl AsRef<[u8]>) {
        self.put(&self.workspace(), path, bytes);
    }

    /// Writes a file of a tree, executable, with the directories above it.
    pub(crate) fn put(&self, tree: &str, path: &str, bytes: impl AsRef<[u8]>) {
        self.client().put(format!("{tree}/raw/{path}?parents=true&mode=0755"), bytes).ok();
    }

    /// Runs what `request` describes in a tree; it must be accepted.
    pub(crate) fn exec(&self, tree: &str, request: &Value) -> Ran {
        if self.stage.is_warm {
            self.warm(tree, request);
        }
        let begun = Instant::now();
        let answer = self.client().post_json(format!("{tree}/exec"), request).ok();
        Ran { result: answer["data"].clone(), took: begun.elapsed() }
    }

    /// Runs harmless commands where `request` is to run, until one of the next is a resident's. Their results do not
    /// matter: a user who has used up something is refused here as well as there.
    fn warm(&self, tree: &str, request: &Value) {
        let mut harmless = json!({ "command": "echo" });
        for name in ["network", "skills"] {
            if let Some(value) = request.get(name) {
                harmless[name] = value.clone();
            }
        }
        for _ in 0..WARMING {
            self.client().post_json(format!("{tree}/exec"), &harmless);
        }
    }

    /// Tells whether something that this attack makes may lie at `path` on the host: in its own trees, those included that
    /// it had before the service was killed, or in the stage and the trash on the way there and back.
    pub(crate) fn may_have(&self, host: &Host, path: &Path) -> bool {
        let in_tree = ["sandbox", "skill/overlay"].iter().any(|trees| {
            let user =
                path.strip_prefix(host.root.join(trees)).ok().and_then(|path| path.iter().next()?.to_str());
            user.is_some_and(|user| user.starts_with(self.name))
        });
        in_tree
            || ["stage", "trash"].iter().any(|way| path.starts_with(host.root.join(".filesecbox").join(way)))
    }

    /// Runs a script of the shell in a tree: as a file, because the words of a line are scanned for paths.
    pub(crate) fn script(&self, tree: &str, text: &str) -> Ran {
        self.put(tree, "script.sh", text);
        self.exec(tree, &json!({ "command": "bash", "args": ["script.sh"] }))
    }

    /// The prefix with which the names and contents that this attack is after begin.
    pub(crate) fn canary(&self) -> &str {
        &self.stage.canary
    }

    /// Says when a text holds a canary.
    pub(crate) fn loot_in(&self, text: &str) -> Option<String> {
        let begin = text.find(self.canary())?;
        Some(text[begin..].chars().take(60).collect())
    }
}

/// The routes of a user's workspace.
pub(crate) fn workspace_of(user: &str) -> String {
    format!("/v1/sandbox/{}/{AGENT}", encoded(user))
}

/// The routes of a user's view of the shared skill.
pub(crate) fn skill_of(user: &str) -> String {
    format!("/v1/skills/{}/{AGENT}/{SKILL}", encoded(user))
}
