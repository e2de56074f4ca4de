//! The fields at the head of a SKILL.md: YAML front matter, or lines that were meant as such.

use std::collections::BTreeMap;

use serde_yaml_ng::{Mapping, Value};

use super::finding::{Findings, NO_LINES, UNREAD};
use crate::front_matter::{self, Unread, by_line, field, property, scalar};

/// Lines without front matter that are looked at for fields.
const LOOSE_LINES_MAX: usize = 12;
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
    /// The fields, from YAML where it is YAML, for the rest line by line; and the YAML.
    pub(super) fn fields(self, findings: &mut Findings) -> (Fields, Mapping) {
        let (text, yaml) = match self {
            Self::None => return (Fields::default(), Mapping::new()),
            Self::Loose(text) => {
                findings.add(&NO_LINES, "the fields of SKILL.md are not between two lines `---`");
                (text, Mapping::new())
            }
            Self::FrontMatter(text) => match front_matter::fields(text) {
                Ok(yaml) => (text, yaml),
                Err(unread) => {
                    let line = if let Unread::NotYaml { line } = unread { line } else { None };
                    findings.add_at(&UNREAD, line, format!("the front matter of SKILL.md {unread}"));
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
        let fields = Fields {
            name: take("name"),
            description: take("description"),
            license: take("license"),
            compatibility: take("compatibility"),
            allowed_tools: tools().or_else(|| take("allowed-tools")),
            metadata,
        };
        (fields, yaml)
    }
}
