//! Areas `edit.*`, `file_replace` and `file_create`.

use agent::tools::edit::{Parameters, Replacement, apply, fuzzy_match, hint, reindent, replace};
use serde_json::{Map, Value, json};

use super::{Case, fails, fits, run, same};
use crate::support::Bench;

#[tokio::test]
async fn every_recorded_edit_is_made_as_expected() {
    let count = run(include_str!("../../cases/edit.jsonl"), &[], check).await;
    assert_eq!(count, 129);
}

async fn check(case: Case) -> Result<(), String> {
    match case.area.as_str() {
        "edit.line" => line(&case),
        "edit.replace" | "file_replace" => replacement(&case),
        "edit.validate" => {
            let parameters: Parameters = serde_json::from_value(case.input.clone()).unwrap();
            match case.expected.as_str() {
                Some(_) => parameters.change().map(drop),
                None => fails(parameters.change(), &case.expected),
            }
        }
        "edit.compat" => compat(&case),
        "file_replace.fuzzy" => {
            let found = fuzzy_match(case.text("content"), case.text("old_string"));
            same(found, case.expected.get("matched").and_then(Value::as_str))
        }
        "file_replace.indent" => {
            let lines =
                |key: &str| -> Vec<String> { serde_json::from_value(case.input[key].clone()).unwrap() };
            let (old, actual) = (lines("old_lines"), lines("actual_lines"));
            let (old, actual): (Vec<&str>, Vec<&str>) =
                (old.iter().map(String::as_str).collect(), actual.iter().map(String::as_str).collect());
            fits(&reindent(&old, &actual, case.text("new"), usize::MAX).unwrap(), &case.expected)
        }
        "file_replace.hint" => fits(&hint(case.text("content"), case.text("search")), &case.expected),
        "file_create" => create(&case).await,
        other => Err(format!("no test for area {other}")),
    }
}

fn line(case: &Case) -> Result<(), String> {
    let mut sent: Map<String, Value> = case.input.as_object().unwrap().clone();
    let content = sent.remove("content").unwrap();
    sent.insert("content".into(), sent.get("text").cloned().unwrap_or_default());
    sent.remove("text");
    sent.insert("mode".into(), "line".into());
    let parameters: Parameters = serde_json::from_value(sent.into()).unwrap();
    let done = parameters.change().and_then(|change| apply(content.as_str().unwrap(), &change));
    match case.expected.as_str() {
        Some(expected) => same(done?.0.as_str(), expected),
        None => fails(done, &case.expected),
    }
}

fn replacement(case: &Case) -> Result<(), String> {
    let number = |key: &str| usize::try_from(case.number(key)).ok().filter(|number| *number > 0);
    let done = replace(
        case.text("content"),
        &Replacement {
            old: case.text("old_string").into(),
            new: case.text("new_string").into(),
            is_regex: case.flag("regex"),
            all: case.flag("replace_all"),
            first_line: number("start_line"),
            last_line: number("end_line"),
        },
    );
    if case.expected.get("error_contains").is_some() {
        return fails(done, &case.expected);
    }
    let (content, summary) = done?;
    let expected = |key: &str| case.expected.get(key).cloned();
    if let Some(whole) = expected("content") {
        fits(&content, &whole)?;
    }
    if let Some(prefix) = expected("content_prefix") {
        same(content.starts_with(prefix.as_str().unwrap()), true)?;
    }
    if case.expected.get("blank_lines_empty").is_some() {
        same(content.lines().any(|line| line.trim().is_empty() && !line.is_empty()), false)?;
        same(content.lines().any(str::is_empty), true)?;
    }
    fits(&content, &json!({ "contains": expected("content_contains") }))?;
    fits(
        &summary,
        &json!({
            "contains": expected("summary_contains"),
            "contains_any": expected("summary_contains_any"),
            "not_contains": expected("summary_not_contains"),
        }),
    )
}

fn compat(case: &Case) -> Result<(), String> {
    let parameters: Parameters = serde_json::from_value(case.input.clone()).unwrap();
    let today = parameters.modernised();
    let expected: Parameters = serde_json::from_value(case.expected.clone()).unwrap();
    same(
        (today.mode.as_str(), today.regex, &today.action),
        (expected.mode.as_str(), expected.regex, &expected.action),
    )?;
    today.change().map(drop)
}

async fn create(case: &Case) -> Result<(), String> {
    let bench = Bench::memory().await;
    let path = case.text("path");
    if case.flag("exists") {
        bench.put(path, "old").await;
    }
    let mut sent = case.input.clone();
    sent.as_object_mut().unwrap().remove("exists");
    sent["mode"] = "create".into();
    let output = bench.call("Edit", &sent).await;
    match case.expected.get("file").and_then(Value::as_str) {
        Some(contents) if !output.is_error => same(bench.get(path).await, contents.as_bytes().to_vec()),
        Some(_) => Err(output.text),
        None => {
            same(bench.get(path).await, b"old".to_vec())?;
            fails(if output.is_error { Err(output.text) } else { Ok(()) }, &case.expected)
        }
    }
}
