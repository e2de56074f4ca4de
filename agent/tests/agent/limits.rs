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
    let shared = MemSandbox::new();
    let owner = user("server");
    let place =
        Place::in_workspace(std::sync::Arc::new(shared.clone()), owner.clone(), "skills").await.unwrap();
    for (name, text) in [("both", "shared"), ("only", "shared only")] {
        let path = sandbox::SandboxPath::parse(&format!("/workspace/skills/{name}/SKILL.md")).unwrap();
        sandbox::Sandbox::mkdir_all(&shared, &owner, &path.parent().unwrap(), 0o755).await.unwrap();
        sandbox::SandboxExt::write(&shared, &owner, &path, text.into()).await.unwrap();
    }
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
