//! Areas `glob.*` and `grep.*`.

use agent::tools::glob::{Pattern, glob_to_find_args};
use agent::tools::grep::re2_to_ere;
use agent::tools::{Search, braces};
use serde_json::{Value, json};

use super::{Case, fails, fits, run, same};
use crate::support::Bench;

#[tokio::test]
async fn every_recorded_search_is_answered_as_expected() {
    let count = run(include_str!("../../cases/search.jsonl"), &[], check).await;
    assert_eq!(count, 101);
}

async fn check(case: Case) -> Result<(), String> {
    let text = case.input.as_str().unwrap_or_default();
    match case.area.as_str() {
        "glob.find_args" => {
            let (base, args) = glob_to_find_args(case.text("pattern"));
            same(json!({ "search_base": base, "args": args }), case.expected)
        }
        "glob.match" => {
            same(Value::Bool(Pattern::new(case.text("pattern"))?.matches(case.text("path"))), case.expected)
        }
        "glob.tool" => glob(&case).await,
        "grep.re2_to_ere" => same(Value::String(re2_to_ere(text)), case.expected),
        "grep.brace" => same(json!(braces::expand(text)?), case.expected),
        "grep.tool" => grep(&case).await,
        "grep.output_parse" => context(&case).await,
        other => Err(format!("no test for area {other}")),
    }
}

async fn bench(case: &Case) -> Bench {
    let mut bench = Bench::memory().await;
    bench.search = Search::Files;
    match case.input.get("tree") {
        Some(Value::Array(paths)) => {
            for path in paths {
                bench.put(path.as_str().unwrap(), "x\n").await;
            }
        }
        Some(Value::Object(files)) => {
            for (path, contents) in files {
                let contents = match contents.as_str() {
                    Some(text) => text.to_owned(),
                    None => {
                        let line = contents.get("repeat_line").and_then(Value::as_str).unwrap();
                        format!("{line}\n")
                            .repeat(contents.get("times").and_then(Value::as_u64).unwrap() as usize)
                    }
                };
                bench.put(path, contents).await;
            }
        }
        _ => {}
    }
    bench
}

async fn call(bench: &Bench, tool: &str, case: &Case, arguments: Value) -> Result<String, String> {
    let output = match case.input.get("raw_arguments").and_then(Value::as_str) {
        Some(raw) => bench.call_raw(tool, raw).await,
        None => bench.call(tool, &arguments).await,
    };
    if output.is_error { Err(output.text) } else { Ok(output.text) }
}

async fn glob(case: &Case) -> Result<(), String> {
    let arguments = json!({ "pattern": case.text("pattern"), "path": case.text("path") });
    let found = call(&bench(case).await, "Glob", case, arguments).await;
    if case.expected.get("error_contains").is_some() {
        return fails(found, &case.expected);
    }
    let found = found?;
    if let Some(message) = case.expected.get("message_contains") {
        fits(&found, &json!({ "contains": message }))?;
    }
    let files: Vec<&str> = found.lines().skip(1).collect();
    same(json!(files), case.expected.get("files").cloned().unwrap_or_default())
}

async fn grep(case: &Case) -> Result<(), String> {
    let arguments = case.input.get("args").cloned().unwrap_or_default();
    let found = call(&bench(case).await, "Grep", case, arguments).await;
    if case.expected.get("error_contains").is_some() {
        return fails(found, &case.expected);
    }
    let found = found?;
    let lines = |mark: &[char]| -> Vec<u64> {
        found.lines().filter_map(|line| line.split_once(mark)?.0.parse().ok()).collect()
    };
    if let Some(max) = case.expected.get("max_matches").and_then(Value::as_u64) {
        same(lines(&[':']).len() as u64, max)?;
    }
    if let Some(numbers) = case.expected.get("line_numbers") {
        same(&json!(lines(&[':', '-'])), numbers)?;
        same(json!(lines(&[':'])), json!([case.expected.get("match_line")]))?;
    }
    fits(&found, &case.expected)
}

/// The row is output of grep(1) that was taken apart; here the same file is searched for the same line.
async fn context(case: &Case) -> Result<(), String> {
    let bench = Bench::memory().await;
    let lines = case.input.get("lines").and_then(Value::as_array).unwrap();
    let texts: Vec<&str> =
        lines.iter().filter_map(|line| line.as_str()?.splitn(3, ['-', ':']).nth(2)).collect();
    bench.put("main.go", format!("{}{}\n", "\n".repeat(7), texts.join("\n"))).await;
    let found = bench.call("Grep", &json!({ "pattern": "^func main", "context_lines": 2 })).await.text;
    let count = |mark: char| {
        found
            .lines()
            .filter(|line| line.split_once(mark).is_some_and(|(number, _)| number.parse::<u64>().is_ok()))
            .count()
    };
    same(json!({ "context": count('-'), "matches": count(':') }), case.expected.clone())
}
