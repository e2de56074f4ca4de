//! The fields at the head of a SKILL.md: YAML front matter, or lines that were meant as such.

use std::collections::BTreeMap;

use policy::front_matter;
use serde_yaml_ng::{Mapping, Value};

/// Lines without front matter that are looked at for fields.
const LOOSE_LINES_MAX: usize = 12;
/// Longest key of a field, in characters; what is longer before a colon is prose.
const KEY_CHARS_MAX: usize = 32;

/// The text before the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Header<'text> {
    /// The text between two lines `---`.
    FrontMatter(&'text str),
    /// Fields without such lines, or without the second.
    Loose(&'text str),
    /// No header.
    None,
}

/// The fields of the specification, each as it was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields {
    pub(super) name: Option<String>,
    pub(super) description: Option<String>,
    pub(super) license: Option<String>,
    pub(super) compatibility: Option<String>,
    pub(super) allowed_tools: Option<String>,
    pub(super) metadata: BTreeMap<String, String>,
}

/// Divides a file into its header and its body.
pub(super) fn split(text: &str) -> (Header<'_>, &str) {
    let text = text.trim_start();
    let Some(rest) = front_matter::opened(text) else {
        return match loose_bytes(text) {
            0 => (Header::None, text),
            bytes => divided(text, bytes, Header::Loose),
        };
    };
    match front_matter::split(text) {
        Some((head, body)) => (Header::FrontMatter(head), body),
        // Never closed: only lines that are fields can belong to it.
        None => divided(rest, loose_bytes(rest), Header::Loose),
    }
}

fn divided<'text>(
    text: &'text str,
    bytes: usize,
    header: impl FnOnce(&'text str) -> Header<'text>,
) -> (Header<'text>, &'text str) {
    text.split_at_checked(bytes).map_or((Header::None, text), |(head, body)| (header(head), body))
}

/// The length of the unbroken run of fields that `text` begins with, which must hold a name or a description.
fn loose_bytes(text: &str) -> usize {
    let mut bytes = 0;
    let mut names_the_skill = false;
    for line in text.split_inclusive('\n').take(LOOSE_LINES_MAX) {
        let is_continuation = bytes > 0 && line.starts_with([' ', '\t']) && !line.trim().is_empty();
        match field(line) {
            Some((key, _)) => names_the_skill |= matches!(key.as_str(), "name" | "description"),
            None if is_continuation => {}
            None => break,
        }
        bytes += line.len();
    }
    if names_the_skill { bytes } else { 0 }
}

impl Header<'_> {
    /// The fields, from YAML where it is YAML, for the rest line by line.
    pub(super) fn fields(self, warnings: &mut Vec<String>) -> Fields {
        let (text, yaml) = match self {
            Self::None => return Fields::default(),
            Self::Loose(text) => {
                warnings.push("the fields of SKILL.md are not between two lines `---`".to_owned());
                (text, Mapping::new())
            }
            Self::FrontMatter(text) => match front_matter::fields(text) {
                Ok(yaml) => (text, yaml),
                Err(unread) => {
                    warnings.push(format!("the front matter of SKILL.md {unread}"));
                    (text, Mapping::new())
                }
            },
        };
        let lines = by_line(text);
        let take = |key: &str| {
            let value = property(&yaml, key).and_then(scalar).filter(|text| !text.trim().is_empty());
            value.or_else(|| lines.get(key).cloned()).filter(|text| !text.is_empty())
        };
        let tools = || match property(&yaml, "allowed-tools")? {
            Value::Sequence(tools) => Some(tools.iter().filter_map(scalar).collect::<Vec<_>>().join(" ")),
            _ => None,
        };
        let metadata = match property(&yaml, "metadata") {
            Some(Value::Mapping(mapping)) => {
                mapping.iter().filter_map(|(key, value)| Some((scalar(key)?, scalar(value)?))).collect()
            }
            _ => BTreeMap::new(),
        };
        Fields {
            name: take("name"),
            description: take("description"),
            license: take("license"),
            compatibility: take("compatibility"),
            allowed_tools: tools().or_else(|| take("allowed-tools")),
            metadata,
        }
    }
}

/// The value of `key`, spelled in any case.
fn property<'yaml>(mapping: &'yaml Mapping, key: &str) -> Option<&'yaml Value> {
    mapping.get(key).or_else(|| {
        let is_key = |other: &Value| other.as_str().is_some_and(|other| other.eq_ignore_ascii_case(key));
        mapping.iter().find(|(other, _)| is_key(other)).map(|(_, value)| value)
    })
}

/// A scalar as text: `name: 2024` names a skill too.
fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.trim().to_owned()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Tagged(tagged) => scalar(&tagged.value),
        Value::Null | Value::Sequence(_) | Value::Mapping(_) => None,
    }
}

/// Reads each field that begins a line, with the indented lines that continue it; the first of a key counts.
fn by_line(text: &str) -> BTreeMap<String, String> {
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
fn field(line: &str) -> Option<(String, String)> {
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
