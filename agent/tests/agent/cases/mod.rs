//! Rows of values, recorded where these tools were first built: each is run, and what differs on purpose is listed.

mod catalogue;
mod edit;
mod files;
mod offload;
mod search;

use std::future::Future;

use serde_json::Value;

/// One row.
#[derive(Clone, Debug, serde::Deserialize)]
pub(super) struct Case {
    pub(super) area: String,
    pub(super) input: Value,
    pub(super) expected: Value,
}

/// A row that is answered otherwise on purpose.
pub(super) struct Difference {
    pub(super) area: &'static str,
    /// A part of the input, as JSON.
    pub(super) input: &'static str,
    pub(super) reason: &'static str,
}

impl Case {
    pub(super) fn text(&self, key: &str) -> &str {
        self.input.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn number(&self, key: &str) -> i64 {
        self.input.get(key).and_then(Value::as_i64).unwrap_or_default()
    }

    pub(super) fn flag(&self, key: &str) -> bool {
        self.input.get(key).and_then(Value::as_bool).unwrap_or_default()
    }
}

/// Runs every row of a file by `run`, which gives what is wrong; fails with all that are wrong, and with listed
/// differences that are none.
pub(super) async fn run<F: Future<Output = Result<(), String>>>(
    rows: &str,
    differences: &[Difference],
    run: impl Fn(Case) -> F,
) -> usize {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for line in rows.lines() {
        let case: Case = serde_json::from_str(line).unwrap();
        let input = case.input.to_string();
        let listed = differences.iter().find(|other| other.area == case.area && input.contains(other.input));
        count += 1;
        match (run(case.clone()).await, listed) {
            (Ok(()), None) => {}
            (Err(_), Some(difference)) => println!("differs: {} {input}: {}", case.area, difference.reason),
            (Ok(()), Some(_)) => {
                wrong.push(format!("{} {input}: is listed as different, and is not", case.area))
            }
            (Err(reason), None) => wrong.push(format!("{} {input}: {reason}", case.area)),
        }
    }
    assert!(wrong.is_empty(), "{} of {count} rows:\n{}", wrong.len(), wrong.join("\n"));
    println!("{count} rows, {} of them differ on purpose", differences.len());
    count
}

pub(super) fn same<T: PartialEq + std::fmt::Debug>(found: T, expected: T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{found:?}, expected {expected:?}")) }
}

/// Compares a text with `{contains, contains_any, not_contains}`, or with a text.
pub(super) fn fits(text: &str, expected: &Value) -> Result<(), String> {
    if let Some(expected) = expected.as_str() {
        return same(text, expected);
    }
    let words = |key: &str| -> Vec<String> {
        match expected.get(key) {
            Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            Some(Value::String(one)) => vec![one.clone()],
            _ => Vec::new(),
        }
    };
    for word in words("contains") {
        if !text.contains(&word) {
            return Err(format!("`{word}` is missing in {text:?}"));
        }
    }
    for word in words("not_contains") {
        if text.contains(&word) {
            return Err(format!("`{word}` is in {text:?}"));
        }
    }
    let any = words("contains_any");
    if !any.is_empty() && !any.iter().any(|word| text.contains(word)) {
        return Err(format!("none of {any:?} is in {text:?}"));
    }
    Ok(())
}

/// Compares a failure with `{error_contains}`.
pub(super) fn fails(found: Result<impl std::fmt::Debug, String>, expected: &Value) -> Result<(), String> {
    let word = expected.get("error_contains").and_then(Value::as_str).unwrap_or_default();
    match found {
        Ok(found) => Err(format!("{found:?}, expected an error with `{word}`")),
        Err(reason) if reason.contains(word) => Ok(()),
        Err(reason) => Err(format!("`{reason}` is without `{word}`")),
    }
}
