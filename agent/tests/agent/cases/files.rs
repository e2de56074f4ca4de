//! Areas `read.*`, `cd.*`, `shell.*`, `shell_escape.*`, `truncate` and `format_size`.

use agent::tools::read::numbered;
use agent::tools::shell::{exports, parse_environment, shell_escape, shell_quote};
use agent::tools::{format_size, truncate};
use serde_json::{Value, json};

use super::{Case, fits, run, same};
use crate::support::Bench;

#[tokio::test]
async fn every_recorded_reading_and_spelling_is_as_expected() {
    let count = run(include_str!("../../cases/files.jsonl"), &[], check).await;
    assert_eq!(count, 68);
}

async fn check(case: Case) -> Result<(), String> {
    let text = case.input.as_str().unwrap_or_default();
    match case.area.as_str() {
        "read.lines" => {
            let lines = numbered(
                case.text("content"),
                case.number("max_lines") as usize,
                case.number("offset") as usize,
            );
            fits(&lines, &case.expected)
        }
        "shell_escape" => fits(&shell_escape(text), &case.expected),
        "shell_escape.quoted" => fits(&shell_quote(text), &case.expected),
        "shell.export" => same(json!(exports(text)), case.expected),
        "shell.envfile" => same(json!(parse_environment(text)), case.expected),
        "truncate" => fits(&truncate(case.text("text"), case.number("max") as usize), &case.expected),
        "format_size" => fits(&format_size(case.input.as_u64().unwrap()), &case.expected),
        "cd" => cd(&case).await,
        "cd.context" | "cd.tree" => look(&case).await,
        other => Err(format!("no test for area {other}")),
    }
}

async fn tree(case: &Case) -> Bench {
    let bench = Bench::memory().await;
    bench.make("R").await;
    let names = |key: &str| case.input.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    for name in names("dirs") {
        bench.make(&format!("R/{}", name.as_str().unwrap())).await;
    }
    for name in names("files") {
        bench.put(&format!("R/{}", name.as_str().unwrap()), "x").await;
    }
    bench
}

/// `R` of the row is the workspace: what is outside of it is outside of the workspace.
async fn cd(case: &Case) -> Result<(), String> {
    let bench = tree(case).await;
    let absolute = |path: &str| bench.path(path).to_string();
    let root = sandbox::SandboxPath::parse(&absolute("R")).unwrap();
    let session = agent::tools::Session::new(bench.session.user().clone(), root.clone());
    if !case.text("current").is_empty() {
        assert!(session.enter(bench.path(case.text("current"))));
    }
    let path = match case.text("path") {
        "outside-of-R" => "../elsewhere".to_owned(),
        path if path.starts_with("R/") => absolute(path),
        path => path.to_owned(),
    };
    let context = agent::tools::Context::new(&*bench.sandbox, &session);
    let before = session.directory();
    let output = bench.toolbox.call(&context, "Cd", &json!({ "path": path }).to_string()).await;
    let Some(expected) = case.expected.as_str() else {
        same(session.directory(), before)?;
        let words = match case.expected["error"].as_str().unwrap() {
            "missing" => "no such directory",
            "outside" => "outside the workspace",
            "path required" => "path is required",
            other => other,
        };
        return fits(&output.text, &json!({ "contains": words })).and(same(output.is_error, true));
    };
    same(session.directory(), bench.path(expected))?;
    fits(&output.text, &json!({ "contains": format!("Changed directory to {}", absolute(expected)) }))
}

async fn look(case: &Case) -> Result<(), String> {
    let bench = tree(case).await;
    let output = bench.call("Cd", &json!({ "path": "R" })).await.text;
    match case.expected.as_str() {
        Some("") => same(output.lines().count(), 1),
        _ => fits(&output, &case.expected),
    }
}
