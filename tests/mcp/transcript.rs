//! The conversation that every backend of the tools plays, over MCP: the same texts, each call from a directory of its own.

use serde_json::{Value, json};

use crate::client::{Era, Post, service, text};
use crate::support::landlocked;

const STEPS: &str = include_str!("../../agent/tests/transcript/steps.jsonl");
const WORKSPACE: &str = "/workspace";

#[test]
fn the_tools_answer_as_everywhere_else() {
    let service = service();
    let client = &service.client;
    let has_commands = landlocked(client);
    let (mut directory, mut compared) = (WORKSPACE.to_owned(), 0);
    for line in STEPS.lines() {
        let step: Value = serde_json::from_str(&line.replace("$WORKSPACE", WORKSPACE)).unwrap();
        if let Some(path) = step["put"].as_str() {
            let times = usize::try_from(step["times"].as_u64().unwrap_or(1)).unwrap();
            let content = step["content"].as_str().unwrap_or_default().repeat(times);
            let segments: Vec<String> = path.split('/').map(crate::support::encoded).collect();
            // Skills are trees of their own.
            let (tree, path) = match segments.split_first().filter(|(first, _)| *first == "skills") {
                Some((_, [skill, path @ ..])) => (format!("/v1/skills/alice/demo/{skill}"), path.join("/")),
                _ => ("/v1/sandbox/alice/demo".to_owned(), segments.join("/")),
            };
            client.put(format!("{tree}/raw/{path}?parents=true"), content).ok();
        }
        let Some(tool) = step["tool"].as_str() else { continue };
        let (is_error, mut expected) = (step["is_error"] == true, step["text"].as_str().unwrap().to_owned());
        if tool == "Cd" {
            if let Some(changed) = expected.strip_prefix("Changed directory to ") {
                directory = changed.lines().next().unwrap().to_owned();
            }
            continue;
        }
        // A search of the whole workspace leaves out the skills, which are trees of their own here.
        if matches!(tool, "Glob" | "Grep") && expected.contains("skills/") {
            continue;
        }
        // What is no object cannot be sent as arguments.
        let arguments = match &step["arguments"] {
            Value::String(raw) => serde_json::from_str(raw).unwrap_or_default(),
            Value::Null => json!({}),
            arguments => arguments.clone(),
        };
        if !arguments.is_object() || (tool == "Shell" && !has_commands) {
            continue;
        }
        let mut sent = arguments.clone();
        if !matches!(tool, "Skill") {
            sent["directory"] = directory.as_str().into();
        }
        let answer = Post::call(client, Era::Modern, tool, sent).send().last();
        if !["Read", "Glob", "Grep", "Edit", "Shell", "Skill"].contains(&tool) {
            assert_eq!(answer["error"]["code"], -32602, "{line}");
            continue;
        }
        if arguments["command"] == "echo \"$GREETING\"" {
            expected = "Command executed successfully (no output)".to_owned();
        }
        let here = "use the tool Cd to change the current directory.";
        expected = expected.replace(here, "send `directory` to begin in another directory.");
        let result = &answer["result"];
        assert_eq!((text(result), result["isError"] == true), (expected.as_str(), is_error), "{line}");
        compared += 1;
    }
    assert!(compared >= if has_commands { 100 } else { 80 }, "{compared}");
}
