//! The rules for fields: those of the specification, each a warning when broken, and those of other programs.

use serde_yaml_ng::{Mapping, Value};

use super::finding::{
    COMPATIBILITY_LENGTH, DESCRIPTION_LENGTH, DESCRIPTION_MARKUP, DESCRIPTION_MISSING, DESCRIPTION_TYPE,
    Findings, INTERNAL, NAME_CHARACTERS, NAME_DIRECTORY, NAME_HYPHENS, NAME_LENGTH, NAME_MARKUP,
    NAME_MISSING, NAME_NOT_ASCII, NAME_RESERVED, NAME_TYPE,
};
use super::header::Fields;

/// Longest `name`, in characters.
const NAME_CHARS_MAX: usize = 64;
/// Longest `description`, in characters.
const DESCRIPTION_CHARS_MAX: usize = 1024;
/// Longest `compatibility`, in characters.
const COMPATIBILITY_CHARS_MAX: usize = 500;
/// Words that Anthropic's API refuses in a name (its documentation, "Agent Skills", "Field requirements").
const RESERVED: [&str; 2] = ["anthropic", "claude"];

/// Adds a finding for each rule of the specification that `fields` break.
///
/// The specification wants `a-z`, `0-9` and `-` in a name; its reference validator takes letters of any script,
/// and so do we.
pub(super) fn check(fields: &Fields, directory_name: &str, findings: &mut Findings) {
    match fields.name.as_deref() {
        None => findings.add(&NAME_MISSING, "the front matter has no `name`"),
        Some(name) => check_name(name, directory_name, findings),
    }
    let too_long = |text: &str, most: usize| text.chars().count() > most;
    match fields.description.as_deref() {
        None => findings.add(&DESCRIPTION_MISSING, "the front matter has no `description`"),
        Some(text) if too_long(text, DESCRIPTION_CHARS_MAX) => {
            let text = format!("`description` has more than {DESCRIPTION_CHARS_MAX} characters");
            findings.add(&DESCRIPTION_LENGTH, text);
        }
        Some(_) => {}
    }
    if fields.compatibility.as_deref().is_some_and(|text| too_long(text, COMPATIBILITY_CHARS_MAX)) {
        let text = format!("`compatibility` has more than {COMPATIBILITY_CHARS_MAX} characters");
        findings.add(&COMPATIBILITY_LENGTH, text);
    }
}

/// Tells whether `name` keeps the rules for a skill's name: 1 to 64 letters of any script, none of them large, digits and
/// single hyphens between them.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let mut findings = Findings::default();
    check_name(name, name, &mut findings);
    !name.is_empty() && findings.is_empty()
}

fn check_name(name: &str, directory_name: &str, findings: &mut Findings) {
    if name.chars().count() > NAME_CHARS_MAX {
        findings.add(&NAME_LENGTH, format!("`name` has more than {NAME_CHARS_MAX} characters"));
    }
    let is_allowed =
        |character: char| character == '-' || (character.is_alphanumeric() && !character.is_uppercase());
    if !name.chars().all(is_allowed) {
        findings.add(&NAME_CHARACTERS, "`name` has characters other than small letters, digits and `-`");
    }
    if name.starts_with('-') || name.ends_with('-') || name.contains("--") {
        findings.add(&NAME_HYPHENS, "`name` begins or ends with `-` or has two in a row");
    }
    if name != directory_name {
        findings.add(&NAME_DIRECTORY, "`name` is not the name of the skill's directory");
    }
}

/// Adds a finding for each rule that is not the specification's: `yaml` is the front matter, where that is YAML.
pub(super) fn check_theirs(fields: &Fields, yaml: &Mapping, findings: &mut Findings) {
    let name = fields.name.as_deref().unwrap_or_default();
    if !name.is_ascii() {
        findings.add(&NAME_NOT_ASCII, "`name` has letters other than `a` to `z`");
    }
    if let Some(word) = RESERVED.iter().find(|word| name.contains(*word)) {
        findings.add(&NAME_RESERVED, format!("`name` has the word `{word}`"));
    }
    let description = fields.description.as_deref().unwrap_or_default();
    for (rule, field, text) in
        [(&NAME_MARKUP, "name", name), (&DESCRIPTION_MARKUP, "description", description)]
    {
        if has_markup(text) {
            findings.add(rule, format!("`{field}` has an XML tag"));
        }
    }
    for (rule, field) in [(&NAME_TYPE, "name"), (&DESCRIPTION_TYPE, "description")] {
        match yaml.get(field) {
            Some(Value::Number(_) | Value::Bool(_)) => {
                findings.add(rule, format!("`{field}` is a number or a truth value in YAML: quote it"));
            }
            None if !yaml.is_empty() && crate::front_matter::property(yaml, field).is_some() => {
                findings.add(rule, format!("`{field}` is not in small letters"));
            }
            _ => {}
        }
    }
    if yaml.get("metadata").and_then(|metadata| metadata.get("internal")) == Some(&Value::Bool(true)) {
        findings.add(&INTERNAL, "`metadata.internal` hides the skill from installers");
    }
}

/// Tells whether a `<` stands before a letter or `/`, with a `>` somewhere behind it.
fn has_markup(text: &str) -> bool {
    let opens = |rest: &str| rest.starts_with(|first: char| first == '/' || first.is_ascii_alphabetic());
    let Some(last) = text.rfind('>') else { return false };
    text.match_indices('<').any(|(at, _)| at < last && text.get(at + 1..).is_some_and(opens))
}
