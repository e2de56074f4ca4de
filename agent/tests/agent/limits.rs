//! Limits: every cut is told, and every tree or file that is too large.

use agent::Place;
use agent::tools::{ARGUMENT_BYTES_MAX, Search, Toolbox};
use sandbox::MemSandbox;
use serde_json::{Value, json};

use crate::support::{Bench, user};

#[tokio::test]
async fn paths_beyond_two_hundred_are_counted_and_not_shown() {
    let mut bench = Bench::memory().await;
    bench.search = Search::Files;
    for number in 0..201 {
        bench.put(&format!("{number:03}.txt"), "x").await;
    }
    let text = bench.call("Glob", &json!({ "pattern": "*.txt" })).await.text;
    assert!(text.starts_with("Found 201 matching file(s):\n000.txt\n"), "{text}");
    assert!(text.ends_with("\n199.txt\n(Results truncated. Showing first 200 matches.)"), "{text}");
    bench.sandbox.remove(bench.session.user(), &bench.path("000.txt")).await.unwrap();
    let text = bench.call("Glob", &json!({ "pattern": "*.txt" })).await.text;
    assert!(text.ends_with("\n200.txt"), "{text}");
}

#[tokio::test]
async fn arguments_and_files_that_are_too_large_are_refused_by_name() {
    let bench = Bench::memory().await;
    bench.put("large.txt", vec![b'x'; (10 << 20) + 1]).await;
    for (tool, arguments, words) in [
        ("Read", json!({ "path": "large.txt" }), "larger than 10.0 MB: use Grep"),
        (
            "Edit",
            json!({ "path": "large.txt", "mode": "replace", "old_string": "x", "new_string": "y" }),
            "larger than 10.0 MB",
        ),
        ("Grep", json!({ "pattern": "x".repeat(5000) }), "the pattern has 5000 bytes"),
        ("Grep", json!({ "pattern": "(((a{100}){100}){100})" }), "invalid regex"),
        ("Glob", json!({ "pattern": "x".repeat(2000) }), "the pattern has 2000 bytes"),
        ("Read", json!({ "path": "x".repeat(300) }), "a path segment has 300 bytes"),
        (
            "Edit",
            json!({ "path": "f", "mode": "create", "content": "x".repeat(ARGUMENT_BYTES_MAX) }),
            "the arguments have",
        ),
    ] {
        let output = bench.call(tool, &arguments).await;
        assert!(output.is_error && output.text.contains(words), "{tool}: {}", output.text);
    }
    let text = bench.call("Grep", &json!({ "pattern": "x" })).await.text;
    assert_eq!(text, "No matches found.\n(1 file(s) over 1 MB were not searched.)");
}

#[tokio::test]
async fn a_replacement_cannot_grow_without_end() {
    let bench = Bench::memory().await;
    bench.put("a.txt", "a".repeat(1 << 20)).await;
    for is_regex in [false, true] {
        let arguments = json!({ "path": "a.txt", "mode": "replace", "old_string": "a", "new_string": "b".repeat(1000), "replace_all": true, "regex": is_regex });
        let output = bench.call("Edit", &arguments).await;
        assert!(output.is_error && output.text.contains("larger than 32 MB"), "{}", output.text);
    }
    assert_eq!(bench.get("a.txt").await.len(), 1 << 20);
}

#[tokio::test]
async fn skills_that_all_share_come_after_the_users_own() {
    let bench = Bench::memory().await;
    let place = shared(&[("both", "shared"), ("only", "shared only")]).await;
    bench.put("skills/both/SKILL.md", "own").await;
    let toolbox = Toolbox::standard().with(agent::tools::skill::Skill::with_shared([place]));
    let context = agent::tools::Context::new(&*bench.sandbox, &bench.session);
    let load = async |name: &str| {
        let text = toolbox.call(&context, "Skill", &json!({ "name": name }).to_string()).await.text;
        text.lines().last().unwrap_or_default().to_owned()
    };
    assert_eq!((load("both").await, load("only").await), ("own".to_owned(), "shared only".to_owned()));
    let names: Vec<Value> =
        toolbox.schemas().as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect();
    assert_eq!(json!(names), json!(["Shell", "Read", "Edit", "Glob", "Grep", "Cd", "Skill"]));
}

#[tokio::test]
async fn each_place_that_skill_names_is_one_from_which_the_rest_is_read() {
    let lines: String = (1..=700).map(|number| format!("line {number}\n")).collect();
    let bench = Bench::memory().await;
    let place = shared(&[("global", &lines), ("taken", &lines)]).await;
    bench.put("skills/own/SKILL.md", lines.as_str()).await;
    // A file of the user's where the shared skill lies in its own sandbox.
    bench.put("skills/taken/notes.md", "the user's own").await;
    let toolbox = Toolbox::standard().with(agent::tools::skill::Skill::with_shared([place]));
    let context = agent::tools::Context::new(&*bench.sandbox, &bench.session);
    let call =
        async |tool: &str, arguments: Value| toolbox.call(&context, tool, &arguments.to_string()).await;
    // The user's own skill: *Read* reads what *Skill* names.
    let own = call("Skill", json!({ "name": "own" })).await.text;
    let named = own.split_once("use Read with path ").unwrap().1.split(' ').next().unwrap();
    let read = call("Read", json!({ "path": named, "offset": 301 })).await;
    assert!(!read.is_error && read.text.starts_with("301\tline 301\n"), "{}", read.text);
    // A shared one: no path of another sandbox is named, and *Skill* itself goes on.
    for name in ["global", "taken"] {
        let mut seen = String::new();
        let mut offset = 1;
        loop {
            let arguments = json!({ "name": name, "offset": offset });
            let told = call("Skill", arguments).await;
            assert!(!told.is_error && !told.text.contains("/workspace"), "{}", told.text);
            let body = told.text.split_once("\n\n").unwrap().1;
            let Some((body, hint)) = body.split_once("\n... [truncated") else {
                seen.push_str(body);
                break;
            };
            seen.push_str(body);
            offset = hint.split_once("offset ").unwrap().1.split(' ').next().unwrap().parse().unwrap();
        }
        assert_eq!(seen, lines, "{name}");
        let listed = call("Skill", json!({ "name": name, "action": "list_files" })).await.text;
        assert!(listed.contains("SKILL.md") && !listed.contains("/workspace"), "{listed}");
    }
    let beyond = call("Skill", json!({ "name": "global", "offset": 702 })).await;
    assert!(beyond.is_error && beyond.text.contains("701 lines"), "{}", beyond.text);
}

/// A place of another sandbox with these skills, each with the text of its `SKILL.md`.
async fn shared(skills: &[(&str, &str)]) -> Place {
    let (sandbox, owner) = (std::sync::Arc::new(MemSandbox::new()), user("server"));
    for (name, text) in skills {
        let path = sandbox::SandboxPath::parse(&format!("/workspace/skills/{name}/SKILL.md")).unwrap();
        sandbox::Sandbox::mkdir_all(&*sandbox, &owner, &path.parent().unwrap(), 0o755).await.unwrap();
        let bytes = bytes::Bytes::from((*text).to_owned());
        sandbox::SandboxExt::write(&*sandbox, &owner, &path, bytes).await.unwrap();
    }
    Place::in_workspace(sandbox, owner, "skills").await.unwrap()
}
