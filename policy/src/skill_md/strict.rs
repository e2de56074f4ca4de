//! What strict readers refuse, the public validator `skills-ref` among them, and we read all the same.
//!
//! # References
//! * `skills-ref` 0.1.1, `validator.py` and `parser.py`; it reads heads with `strictyaml`.

use serde_yaml_ng::{Mapping, Value};

use super::finding::{
    BYTE_ORDER_MARK, COMPATIBILITY_SHAPE, DESCRIPTION_SHAPE, ENDS_WITH_DOTS, Findings, LICENSE_SHAPE,
    METADATA_NESTED, METADATA_SHAPE, NAME_SHAPE, SIGNS, SPACES_AFTER, TEXT_BEFORE, TOOLS_LIST, TOOLS_SHAPE,
    UNKNOWN_FIELDS,
};
use super::header::Header;

/// The fields of the specification.
const FIELDS: [&str; 6] = ["name", "description", "license", "compatibility", "metadata", "allowed-tools"];
/// Unknown fields that a warning names.
const NAMED_MAX: usize = 8;
/// Characters of a field's name in a warning.
const NAME_CHARS_MAX: usize = 64;

/// Adds a finding for each thing in the head that a strict reader refuses.
///
/// `text` is the whole file, decoded; `has_mark` tells whether a byte order mark stood before it.
pub(super) fn check(text: &str, has_mark: bool, header: Header<'_>, yaml: &Mapping, findings: &mut Findings) {
    let Header::FrontMatter(head) = header else { return };
    if has_mark || !text.starts_with("---") {
        let rule = if text.starts_with("---") { &BYTE_ORDER_MARK } else { &TEXT_BEFORE };
        findings.add(rule, "SKILL.md does not begin with `---`: remove what is before it");
    }
    let rest = text.split_once(head).map_or("", |(_, rest)| rest);
    if rest.trim_start().starts_with("...") {
        findings.add(&ENDS_WITH_DOTS, "the front matter does not end with `---`");
    }
    if text.trim_start().lines().next() != Some("---") {
        findings.add_at(&SPACES_AFTER, Some(1), "spaces follow the first `---`");
    }
    unknown(yaml, findings);
    shapes(yaml, findings);
    // A head that is no YAML has its warning.
    if !yaml.is_empty() && head_has_signs(head) {
        findings.add(
            &SIGNS,
            "the front matter has lists or fields in brackets, anchors, aliases or tags: write one item a line, and \
             quote texts that begin with `[`, `{`, `&`, `*` or `!`",
        );
    }
}

fn unknown(yaml: &Mapping, findings: &mut Findings) {
    let unknown = || yaml.keys().filter(|key| key.as_str().is_none_or(|key| !FIELDS.contains(&key)));
    let count = unknown().count();
    if count == 0 {
        return;
    }
    let named: Vec<String> = unknown()
        .take(NAMED_MAX)
        .map(|key| match key.as_str() {
            Some(name) => format!("`{}`", shown(name)),
            None => "one that is no text".to_owned(),
        })
        .collect();
    let more = if count > NAMED_MAX { format!(" and {} more", count - NAMED_MAX) } else { String::new() };
    let text = format!(
        "the front matter has fields that the specification does not know: {}{more}; put them under `metadata`",
        named.join(", ")
    );
    findings.add(&UNKNOWN_FIELDS, text);
}

/// The types that the specification wants.
fn shapes(yaml: &Mapping, findings: &mut Findings) {
    let is_structure = |value: &Value| matches!(value, Value::Sequence(_) | Value::Mapping(_));
    match yaml.get("allowed-tools") {
        Some(Value::Sequence(_)) => findings
            .add(&TOOLS_LIST, "`allowed-tools` is a list: write one text with spaces between the tools"),
        Some(Value::Mapping(_)) => findings.add(&TOOLS_SHAPE, "`allowed-tools` is no text"),
        _ => {}
    }
    for (rule, key) in [
        (&NAME_SHAPE, "name"),
        (&DESCRIPTION_SHAPE, "description"),
        (&LICENSE_SHAPE, "license"),
        (&COMPATIBILITY_SHAPE, "compatibility"),
    ] {
        if yaml.get(key).is_some_and(is_structure) {
            findings.add(rule, format!("`{key}` is no text"));
        }
    }
    match yaml.get("metadata") {
        Some(Value::Mapping(metadata)) if metadata.values().any(is_structure) => {
            findings.add(&METADATA_NESTED, "`metadata` is nested: its values must be texts");
        }
        Some(Value::Mapping(_)) | None => {}
        Some(_) => findings.add(&METADATA_SHAPE, "`metadata` has no fields"),
    }
}

/// Tells whether a value in `head` begins with a sign that gives it a structure or another type.
fn head_has_signs(head: &str) -> bool {
    // Lines deeper than this belong to a text over several lines.
    let mut block: Option<usize> = None;
    for line in head.lines() {
        let content = line.trim_start_matches(' ');
        let indent = line.len() - content.len();
        if content.trim().is_empty() || block.is_some_and(|outer| indent > outer) {
            continue;
        }
        block = None;
        let (value, is_item) = value_of(content);
        let Some(value) = value else { continue };
        if value.starts_with(['[', '{', '&', '*', '!']) {
            return true;
        }
        if value.starts_with(['|', '>']) || !(value.is_empty() || is_item) {
            block = Some(indent);
        }
    }
    false
}

/// The value that a line gives, of a key or of an item; none for a line that goes on.
fn value_of(line: &str) -> (Option<&str>, bool) {
    let mut content = line;
    let mut is_item = false;
    while let Some(rest) = content.strip_prefix("- ") {
        (content, is_item) = (rest.trim_start(), true);
    }
    if content.starts_with('#') {
        return (None, false);
    }
    let value =
        content.split_once(": ").map(|(_, value)| value).or_else(|| content.strip_suffix(':').map(|_| ""));
    match value {
        Some(value) => (Some(value.trim()), is_item),
        None if is_item => (Some(content), true),
        None => (None, false),
    }
}

/// A bounded form of a name for a warning.
fn shown(name: &str) -> String {
    name.chars().filter(|character| !character.is_control()).take(NAME_CHARS_MAX).collect()
}
