//! [`Metadata`]: the name and description of a skill, read from any text that its author wrote.
//!
//! Of 29 818 published skills 57 % keep the specification; the others have broken YAML, no front matter, other
//! encodings or other names. Reading never fails: what breaks a rule becomes a warning.
//!
//! * The *name* is the front matter's, else the first `#` heading of SKILL.md, else of README.md, else the name of
//!   the directory.
//! * The *description* is the front matter's, else the first paragraph of either file, else a fixed sentence.
//! * A line of the body is never taken for a field.
//!
//! # References
//! * The Agent Skills specification (agentskills.io), "SKILL.md format".

mod body;
mod finding;
mod header;
mod rules;
mod strict;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsStr;

use encoding_rs::{Encoding, GB18030, UTF_8};
use serde::Serialize;

pub use finding::{Class, Finding, Target};
use finding::{ENCODING, Findings, NO_FRONT_MATTER, NO_SKILL_MD, README_ENCODING, Rule};
use header::Header;
pub use rules::is_name;

/// Bytes of a SKILL.md or README.md that are looked at; what follows is not needed to know the skill.
pub const HEADER_BYTES_MAX: usize = 64 * 1024;

/// The description of a skill that has none.
pub const NO_DESCRIPTION: &str = "No description available.";

/// Longest name given out, in characters.
const NAME_CHARS_MAX: usize = 256;
/// Longest text of any other field given out, in characters: the longest real description has 2 783.
const TEXT_CHARS_MAX: usize = 4096;
/// Most entries of `metadata` given out.
const METADATA_ENTRIES_MAX: usize = 64;

/// The description that a skill gives of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Metadata {
    /// Display name: one line, 1 to 256 characters.
    pub name: String,
    /// Its purpose and when to use it: 1 to 4 096 characters, perhaps several lines.
    pub description: String,
    /// Its licence, as the front matter has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub license: Option<String>,
    /// Its requirements, as the front matter has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compatibility: Option<String>,
    /// The tools it wants to use, as the front matter has them: separated by spaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_tools: Option<String>,
    /// Further properties from the front matter's `metadata`, at most 64.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// The breaches of the specification, one sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The files of a skill that describe it, out of the names in its root.
#[derive(Debug, PartialEq, Eq)]
pub struct Markers<'names, Name: ?Sized> {
    /// `SKILL.md`, else `skill.md`, else another spelling of it.
    pub skill_md: Option<&'names Name>,
    /// `README.md`, likewise.
    pub readme: Option<&'names Name>,
}

/// Chooses the files to describe a skill by. Names are those directly in the skill, in any order.
pub fn marker<'names, Name: AsRef<OsStr> + ?Sized>(
    names: impl Iterator<Item = &'names Name>,
) -> Markers<'names, Name> {
    let mut markers = Markers { skill_md: None, readme: None };
    for name in names {
        choose(&mut markers.skill_md, name, ["SKILL.md", "skill.md"]);
        choose(&mut markers.readme, name, ["README.md", "readme.md"]);
    }
    markers
}

/// Keeps of two spellings the preferred one, and of two others the first in the order of bytes.
fn choose<'names, Name: AsRef<OsStr> + ?Sized>(
    chosen: &mut Option<&'names Name>,
    name: &'names Name,
    [first, second]: [&str; 2],
) {
    let rank = |name: &Name| match name.as_ref() {
        name if name == first => 0,
        name if name == second => 1,
        _ => 2,
    };
    let is_spelling = name.as_ref().eq_ignore_ascii_case(first);
    let is_better = chosen.is_none_or(|old| (rank(name), name.as_ref()) < (rank(old), old.as_ref()));
    if is_spelling && is_better {
        *chosen = Some(name);
    }
}

/// Reads the metadata of the skill in the directory `directory_name`.
///
/// Each file is given from its beginning, at most [`HEADER_BYTES_MAX`] bytes of it count, in UTF-8, UTF-16 with a
/// byte order mark, or GB18030.
#[must_use]
pub fn parse(skill_md: Option<&[u8]>, readme: Option<&[u8]>, directory_name: &str) -> Metadata {
    let mut findings = Findings::default();
    let metadata = read(skill_md, readme, directory_name, &mut findings);
    Metadata { warnings: findings.warnings(), ..metadata }
}

/// Everything about a skill's description that some [`Target`] does not take as it is, in the order in which it was found.
///
/// The file is given as to [`parse`].
#[must_use]
pub fn lint(skill_md: Option<&[u8]>, directory_name: &str) -> Vec<Finding> {
    let mut findings = Findings::default();
    let _ = read(skill_md, None, directory_name, &mut findings);
    let text = skill_md.map(|bytes| decode(bytes, &ENCODING, "SKILL.md", &mut Findings::default()));
    let text = text.unwrap_or_default();
    let (_, body) = header::split(&text);
    findings.located(text.strip_suffix(body).unwrap_or_default())
}

/// Reads the metadata without its warnings, for which `findings` are added.
fn read(
    skill_md: Option<&[u8]>,
    readme: Option<&[u8]>,
    directory_name: &str,
    findings: &mut Findings,
) -> Metadata {
    let has_mark = skill_md.is_some_and(|bytes| bytes.starts_with(b"\xEF\xBB\xBF"));
    let skill_md = skill_md.map(|bytes| decode(bytes, &ENCODING, "SKILL.md", findings));
    let readme = readme.map(|bytes| decode(bytes, &README_ENCODING, "README.md", findings));

    let skill_text = skill_md.as_deref().unwrap_or_default();
    let (header, skill_body) = header::split(skill_text);
    let (fields, yaml) = header.fields(findings);
    if skill_md.is_none() {
        findings.add(&NO_SKILL_MD, "the skill has no SKILL.md");
    } else if matches!(header, Header::None) {
        findings.add(&NO_FRONT_MATTER, "SKILL.md has no front matter");
    } else {
        rules::check(&fields, directory_name, findings);
        strict::check(skill_text, has_mark, header, &yaml, findings);
        rules::check_theirs(&fields, &yaml, findings);
    }

    // A README may open with front matter of its own, which is for the site that shows it.
    let (_, readme_body) = header::split(readme.as_deref().unwrap_or_default());
    let bodies = [skill_body, readme_body];
    let headings = bodies.iter().filter_map(|body| body::heading(body));
    let names = fields.name.into_iter().chain(headings).chain([directory_name.to_owned()]);
    let paragraphs = bodies.iter().filter_map(|body| body::paragraph(body));
    let descriptions = fields.description.into_iter().chain(paragraphs).chain([NO_DESCRIPTION.to_owned()]);
    let bounded = |text: Option<String>| text.map(|text| bound(&text, TEXT_CHARS_MAX));
    Metadata {
        name: first(names, |name| bound(&one_line(name), NAME_CHARS_MAX)),
        description: first(descriptions, |text| bound(text, TEXT_CHARS_MAX)),
        license: bounded(fields.license),
        compatibility: bounded(fields.compatibility),
        allowed_tools: bounded(fields.allowed_tools),
        metadata: fields
            .metadata
            .into_iter()
            .take(METADATA_ENTRIES_MAX)
            .map(|(key, value)| (bound(&key, NAME_CHARS_MAX), bound(&value, TEXT_CHARS_MAX)))
            .collect(),
        warnings: Vec::new(),
    }
}

/// The `name` that the front matter of a SKILL.md declares, if it does.
#[must_use]
pub fn declared_name(skill_md: &[u8]) -> Option<String> {
    let mut findings = Findings::default();
    let text = decode(skill_md, &ENCODING, "SKILL.md", &mut findings);
    header::split(&text).0.fields(&mut findings).0.name.map(|name| one_line(&name))
}

/// Makes text of a file's beginning.
fn decode<'bytes>(bytes: &'bytes [u8], rule: &Rule, file: &str, findings: &mut Findings) -> Cow<'bytes, str> {
    let head = bytes.get(..HEADER_BYTES_MAX).unwrap_or(bytes);
    let encoding = match Encoding::for_bom(head) {
        Some((encoding, _)) => encoding,
        None if is_utf_8(head) => UTF_8,
        None => GB18030,
    };
    if encoding != UTF_8 {
        findings.add(rule, format!("{file} is not UTF-8: it was read as {}", encoding.name()));
    }
    encoding.decode_with_bom_removal(head).0
}

/// Tells whether `head` is UTF-8, perhaps cut within its last character.
fn is_utf_8(head: &[u8]) -> bool {
    match std::str::from_utf8(head) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none() && head.len() >= HEADER_BYTES_MAX,
    }
}

/// The first text of which `clean` leaves something.
fn first(texts: impl Iterator<Item = String>, clean: impl Fn(&str) -> String) -> String {
    texts.map(|text| clean(&text)).find(|text| !text.is_empty()).unwrap_or_default()
}

/// Joins lines and removes control characters.
fn one_line(text: &str) -> String {
    text.split(|character: char| character.is_whitespace() || character.is_control())
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// The first `chars` characters, without control characters other than line ends and tabs.
fn bound(text: &str, chars: usize) -> String {
    let kept = |character: &char| !character.is_control() || matches!(character, '\n' | '\t');
    let kept: String = text.trim().chars().filter(kept).take(chars).collect();
    kept.trim().to_owned()
}
