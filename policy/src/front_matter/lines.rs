//! The fields of a head, whichever way they were meant: from YAML in any case of letters, and line by line where the head is
//! no YAML.
//!
//! The rules, the same for every reader of heads:
//!
//! * a key counts in any case of letters; where it is there in several, the one in small letters, else the first, counts;
//! * in YAML a scalar of any type is a text;
//! * by line, the first line of a key counts, with the indented lines after it joined by spaces; quotes and emphasis around
//!   key and value are no part of them, and the colon may be full-width.

use std::collections::BTreeMap;

use serde_yaml_ng::{Mapping, Value};

/// Longest key of a field, in characters; what is longer before a colon is prose.
const KEY_CHARS_MAX: usize = 32;

/// The value of `key`, spelled in any case.
#[must_use]
pub fn property<'yaml>(mapping: &'yaml Mapping, key: &str) -> Option<&'yaml Value> {
    mapping.get(key).or_else(|| {
        let is_key = |other: &Value| other.as_str().is_some_and(|other| other.eq_ignore_ascii_case(key));
        mapping.iter().find(|(other, _)| is_key(other)).map(|(_, value)| value)
    })
}

/// A scalar as text: `name: 2024` names a skill too.
#[must_use]
pub fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.trim().to_owned()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Tagged(tagged) => scalar(&tagged.value),
        Value::Null | Value::Sequence(_) | Value::Mapping(_) => None,
    }
}

/// Reads each field that begins a line, with the indented lines that continue it; the first of a key counts.
#[must_use]
pub fn by_line(text: &str) -> BTreeMap<String, String> {
    let mut fields: BTreeMap<String, String> = BTreeMap::new();
    let mut current: Option<String> = None;
    for line in text.lines() {
        if let Some((key, value)) = field(line) {
            let is_new = !fields.contains_key(&key);
            if is_new {
                fields.insert(key.clone(), value);
            }
            current = is_new.then_some(key);
        } else if let Some(value) = current.as_ref().and_then(|key| fields.get_mut(key)) {
            if line.starts_with([' ', '\t']) && !line.trim().is_empty() {
                let space = if value.is_empty() { "" } else { " " };
                value.push_str(space);
                value.push_str(line.trim());
            } else if !line.trim().is_empty() {
                current = None;
            }
        }
    }
    fields
}

/// Reads `key: value` at the beginning of a line; key in lower case, without emphasis; value without quotes.
///
/// The colon may be the full-width one that Chinese keyboards give.
#[must_use]
pub fn field(line: &str) -> Option<(String, String)> {
    if line.starts_with(|character: char| character.is_whitespace()) {
        return None;
    }
    let (key, value) = line.split_once([':', '：'])?;
    let key = key.trim_matches(|character: char| {
        matches!(character, '*' | '_' | '"' | '\'' | '`') || character.is_whitespace()
    });
    let is_key = |character: char| character.is_alphanumeric() || matches!(character, '-' | '_');
    if key.is_empty() || key.chars().count() > KEY_CHARS_MAX || !key.chars().all(is_key) {
        return None;
    }
    let value = value.trim().trim_start_matches("**").trim();
    // `description: >-` and the like announce lines to come.
    let value = match value {
        "|" | ">" | "|-" | ">-" | "|+" | ">+" => "",
        value => unquoted(value),
    };
    Some((key.to_lowercase(), value.to_owned()))
}

/// The text inside a pair of quotes, straight or curved.
fn unquoted(value: &str) -> &str {
    for (open, close) in [('"', '"'), ('\'', '\''), ('“', '”'), ('‘', '’')] {
        let inner = value.strip_prefix(open).and_then(|value| value.strip_suffix(close));
        if let Some(inner) = inner {
            return inner.trim();
        }
    }
    value
}
