//! Plays a [`Plan`] on a [`Stage`]: uploads the skill as people pack it, runs its commands, reads what came out.

use serde_json::{Value, json};

use crate::client::encoded;
use crate::plan::{Place, Plan, Step};
use crate::reader;
use crate::repository::Repository;
use crate::stage::Stage;

const AGENT: &str = "corpus";
/// The deadline of a command, as long as there is one: how fast this machine is says nothing of a skill. Less than the client waits.
const TIMEOUT_MS: u64 = 300_000;
const BOUNDARY: &str = "----corpus-boundary-7f3a";

/// What became of a skill on a stage.
pub(crate) enum Outcome {
    /// It ran to its end, and all that it made was read.
    Whole,
    /// A command was refused, as the plan says, for this reason.
    Refused(String),
    /// It was not played; what is lacking.
    Skipped(String),
}

/// A user with one skill and a workspace.
struct Player<'a> {
    stage: &'a Stage,
    plan: &'a Plan,
    user: String,
    repository: Option<&'a Repository>,
}

/// Plays a plan.
///
/// # Panics
/// When anything is not as the plan says.
pub(crate) fn play(stage: &Stage, plan: &Plan, repository: Option<&Repository>) -> Outcome {
    let lacks: Vec<&str> = plan
        .programs
        .iter()
        .chain(&plan.modules)
        .filter(|name| stage.lacks.contains(*name))
        .map(String::as_str)
        .collect();
    if !lacks.is_empty() {
        return Outcome::Skipped(format!("commands do not find {}", lacks.join(", ")));
    }
    let ends_early = plan.refusal(stage.tier).is_some();
    if plan.repository && !ends_early && (repository.is_none() || !stage.is_own) {
        return Outcome::Skipped("the repository of the corpus is not within its reach".to_owned());
    }
    let user = format!("{}-{}", plan.name, std::process::id());
    let player = Player { stage, plan, user, repository };
    let outcome = player.play();
    stage.client.delete(format!("/v1/users/{}", encoded(&player.user))).ok();
    outcome
}

impl Player<'_> {
    fn play(&self) -> Outcome {
        self.upload();
        for given in &self.plan.given {
            let tree = self.tree(Place::Workspace);
            let text = self.repository.map_or_else(|| given.text.clone(), |served| served.fill(&given.text));
            self.stage.client.write(&tree, &given.path, &text);
        }
        let refusal = self.plan.refusal(self.stage.tier);
        for step in &self.plan.step {
            if let (Some(refusal), Some(_)) = (refusal, &step.landlock) {
                self.refused(step);
                return Outcome::Refused(refusal.because.clone());
            }
            self.ran(step);
        }
        for made in &self.plan.made {
            let target = made.path.split('/').map(encoded).collect::<Vec<_>>().join("/");
            let answer = self.stage.client.get(format!("{}/raw/{target}", self.tree(made.place)));
            reader::read(made, answer.bytes(200));
        }
        Outcome::Whole
    }

    /// The routes of a tree.
    fn tree(&self, place: Place) -> String {
        let (user, skill) = (encoded(&self.user), encoded(&self.plan.name));
        match place {
            Place::Skill => format!("/v1/skills/{user}/{AGENT}/{skill}"),
            Place::Workspace => format!("/v1/sandbox/{user}/{AGENT}"),
        }
    }

    /// Uploads the skill as a browser does, and expects that it alone comes out, without a fault.
    fn upload(&self) {
        let Plan { name, packed, .. } = self.plan;
        let mut body = format!(
            "--{BOUNDARY}\r\ncontent-disposition: form-data; name=\"file\"; filename=\"{}\"\r\n\
             content-type: application/octet-stream\r\n\r\n",
            packed.file_name(name)
        )
        .into_bytes();
        body.extend(packed.pack(name, &self.plan.directory()));
        body.extend(format!("\r\n--{BOUNDARY}--\r\n").into_bytes());
        let target = format!("/v1/skills/{}/{AGENT}/upload", encoded(&self.user));
        let kind = format!("multipart/form-data; boundary={BOUNDARY}");
        let answer =
            self.stage.client.request("POST", target).header("content-type", kind).body(body).send().ok();
        let skills = answer["result"]["skills"].as_array().unwrap();
        let found: Vec<(&Value, &Value, &Value)> =
            skills.iter().map(|skill| (&skill["skill_id"], &skill["name"], &skill["warnings"])).collect();
        let (id, none) = (json!(name), json!([]));
        assert_eq!(found, [(&id, &id, &none)], "{answer}");
    }

    /// Runs a command; its result.
    fn run(&self, step: &Step) -> Value {
        let mut request = json!({"timeout_ms": TIMEOUT_MS, "stdin": step.stdin});
        match (&step.line, step.command.split_first()) {
            (Some(line), None) => {
                let line = self.repository.map_or_else(|| line.clone(), |served| served.fill(line));
                request["shell"] = json!(line);
            }
            (None, Some((program, arguments))) => {
                request["command"] = json!(program);
                request["args"] = json!(arguments);
            }
            _ => panic!("a step has either a line or a command: {step:?}"),
        }
        match step.place {
            Place::Workspace => request["skills"] = json!([self.plan.name]),
            Place::Skill if step.workspace => request["workspace"] = json!(true),
            Place::Skill => {}
        }
        let answer = self.stage.client.post_json(format!("{}/exec", self.tree(step.place)), &request).ok();
        answer["data"].clone()
    }

    /// Runs a command that must do what the plan says.
    fn ran(&self, step: &Step) {
        let result = self.run(step);
        assert_eq!(result["exit_code"], 0, "{}: {}", told(step), shown(&result));
        said(step, &step.says, &result);
    }

    /// Runs a command that must be refused as the plan says.
    fn refused(&self, step: &Step) {
        let Some(refusal) = &step.landlock else { return };
        let result = self.run(step);
        assert_ne!(result["exit_code"], 0, "{}: it works here: {}", told(step), shown(&result));
        said(step, &refusal.says, &result);
        let advises = match (&refusal.hint, result["hint"].as_str()) {
            (Some(words), Some(hint)) => hint.contains(words),
            (None, None) => true,
            _ => false,
        };
        assert!(advises, "{}: another hint: {}", told(step), shown(&result));
    }
}

fn said(step: &Step, words: &[String], result: &Value) {
    let output = result["output"].as_str().unwrap();
    for word in words {
        assert!(output.contains(word), "{}: no `{word}`: {}", told(step), shown(result));
    }
}

/// The command of a step, for messages.
fn told(step: &Step) -> String {
    step.line.clone().unwrap_or_else(|| step.command.join(" "))
}

/// The parts of a result that tell why it is as it is.
fn shown(result: &Value) -> String {
    let output = result["output"].as_str().unwrap_or_default();
    let tail: String = output.chars().rev().take(3000).collect::<Vec<_>>().into_iter().rev().collect();
    format!(
        "exit {}, signal {}, limit {}, timed out {}, hint {}, left out {}\n{tail}",
        result["exit_code"],
        result["signal"],
        result["limit"],
        result["timed_out"],
        result["hint"],
        result["absorbed"]
    )
}
