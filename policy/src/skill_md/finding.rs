//! [`Finding`]: one fault of a SKILL.md, and the programs that do not take it as it is.

use serde::Serialize;

/// How much a fault matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Something that was meant is not there: it was read in another way, or not at all.
    Broken,
    /// It works here, and another program refuses it, hides it or reads it otherwise.
    Portability,
    /// A rule of the specification is broken that few programs check.
    Style,
}

/// A program, or a rule book, that takes skills.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// The specification of agentskills.io, with its reference validator (PyPI `skills-ref` 0.1.1).
    #[serde(rename = "agentskills")]
    AgentSkills,
    /// Anthropic's API for skills, by its documentation (2026-08).
    Anthropic,
    /// The installer `npx skills add` (npm `skills` 1.7.4).
    NpxSkills,
    /// Claude Code, by its documentation (2026-08). It takes every field for optional.
    ClaudeCode,
}

impl Target {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::AgentSkills, Self::Anthropic, Self::NpxSkills, Self::ClaudeCode];
}

/// One fault of a SKILL.md.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// A name for programs, in `snake_case`, which stays.
    pub code: &'static str,
    /// How much it matters.
    pub class: Class,
    /// The field of the front matter that it is about.
    pub field: Option<&'static str>,
    /// The line of the file that it is about, from 1, where that is known.
    pub line: Option<usize>,
    /// A sentence for people.
    pub text: String,
    /// The programs that do not take the file as it is, for this.
    pub targets: &'static [Target],
    /// Whether it is against the specification, so that [`Metadata::warnings`](super::Metadata::warnings) has it.
    #[serde(skip)]
    pub is_warning: bool,
}

/// What all findings of one kind have in common.
pub(super) struct Rule {
    code: &'static str,
    class: Class,
    field: Option<&'static str>,
    targets: &'static [Target],
    is_warning: bool,
}

/// A rule of the specification.
const fn rule(
    code: &'static str,
    class: Class,
    field: Option<&'static str>,
    targets: &'static [Target],
) -> Rule {
    Rule { code, class, field, targets, is_warning: true }
}

/// A rule of other programs only.
const fn theirs(code: &'static str, field: &'static str, targets: &'static [Target]) -> Rule {
    Rule { code, class: Portability, field: Some(field), targets, is_warning: false }
}

use Class::{Broken, Portability, Style};
use Target::{AgentSkills, Anthropic, ClaudeCode, NpxSkills};

const STRICT: &[Target] = &[AgentSkills];
const BOTH: &[Target] = &[AgentSkills, Anthropic];
const THREE: &[Target] = &[AgentSkills, Anthropic, NpxSkills];

pub(super) const NO_SKILL_MD: Rule = rule("no_skill_md", Broken, None, &Target::ALL);
pub(super) const ENCODING: Rule = rule("encoding", Broken, None, &Target::ALL);
pub(super) const README_ENCODING: Rule = rule("readme_encoding", Style, None, &[]);
pub(super) const NO_FRONT_MATTER: Rule = rule("no_front_matter", Broken, None, THREE);
pub(super) const NO_LINES: Rule = rule("front_matter_not_marked", Broken, None, THREE);
pub(super) const UNREAD: Rule = rule("front_matter_unread", Broken, None, &Target::ALL);
pub(super) const BYTE_ORDER_MARK: Rule = rule("byte_order_mark", Portability, None, STRICT);
pub(super) const TEXT_BEFORE: Rule = rule("text_before_front_matter", Portability, None, THREE);
pub(super) const ENDS_WITH_DOTS: Rule = rule("front_matter_ends_with_dots", Portability, None, THREE);
pub(super) const SPACES_AFTER: Rule =
    Rule { is_warning: false, ..rule("spaces_after_dashes", Portability, None, &[NpxSkills]) };
pub(super) const SIGNS: Rule = rule("front_matter_signs", Portability, None, STRICT);
pub(super) const UNKNOWN_FIELDS: Rule = rule("unknown_fields", Portability, None, STRICT);
pub(super) const NAME_MISSING: Rule = rule("name_missing", Broken, Some("name"), THREE);
pub(super) const NAME_LENGTH: Rule = rule("name_length", Style, Some("name"), BOTH);
pub(super) const NAME_CHARACTERS: Rule = rule("name_characters", Style, Some("name"), BOTH);
pub(super) const NAME_HYPHENS: Rule = rule("name_hyphens", Style, Some("name"), STRICT);
pub(super) const NAME_DIRECTORY: Rule = rule("name_directory", Style, Some("name"), STRICT);
pub(super) const NAME_NOT_ASCII: Rule = theirs("name_not_ascii", "name", &[Anthropic, ClaudeCode]);
pub(super) const NAME_RESERVED: Rule = theirs("name_reserved", "name", &[Anthropic]);
pub(super) const NAME_MARKUP: Rule = theirs("name_markup", "name", &[Anthropic]);
pub(super) const NAME_TYPE: Rule = theirs("name_not_text", "name", &[NpxSkills]);
pub(super) const NAME_SHAPE: Rule = rule("name_structure", Broken, Some("name"), THREE);
pub(super) const DESCRIPTION_MISSING: Rule = rule("description_missing", Broken, Some("description"), THREE);
pub(super) const DESCRIPTION_LENGTH: Rule = rule("description_length", Style, Some("description"), BOTH);
pub(super) const DESCRIPTION_MARKUP: Rule = theirs("description_markup", "description", &[Anthropic]);
pub(super) const DESCRIPTION_TYPE: Rule = theirs("description_not_text", "description", &[NpxSkills]);
pub(super) const DESCRIPTION_SHAPE: Rule = rule("description_structure", Broken, Some("description"), THREE);
pub(super) const LICENSE_SHAPE: Rule = rule("license_structure", Style, Some("license"), STRICT);
pub(super) const COMPATIBILITY_LENGTH: Rule =
    rule("compatibility_length", Style, Some("compatibility"), STRICT);
pub(super) const COMPATIBILITY_SHAPE: Rule =
    rule("compatibility_structure", Style, Some("compatibility"), STRICT);
pub(super) const TOOLS_LIST: Rule = rule("allowed_tools_list", Portability, Some("allowed-tools"), STRICT);
pub(super) const TOOLS_SHAPE: Rule =
    rule("allowed_tools_structure", Portability, Some("allowed-tools"), STRICT);
pub(super) const METADATA_NESTED: Rule = rule("metadata_nested", Portability, Some("metadata"), STRICT);
pub(super) const METADATA_SHAPE: Rule = rule("metadata_no_fields", Portability, Some("metadata"), STRICT);
pub(super) const INTERNAL: Rule = theirs("metadata_internal", "metadata", &[NpxSkills]);

/// What was found so far.
#[derive(Default)]
pub(super) struct Findings(Vec<Finding>);

impl Findings {
    pub(super) fn add(&mut self, rule: &Rule, text: impl Into<String>) {
        self.add_at(rule, None, text);
    }

    /// Adds what is about one line.
    pub(super) fn add_at(&mut self, rule: &Rule, line: Option<usize>, text: impl Into<String>) {
        let Rule { code, class, field, targets, is_warning } = *rule;
        self.0.push(Finding { code, class, field, line, text: text.into(), targets, is_warning });
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, with the lines of `text` that their fields are in.
    pub(super) fn located(mut self, text: &str) -> Vec<Finding> {
        for finding in &mut self.0 {
            let Some(field) = finding.field else { continue };
            let is_there = |line: &str| {
                line.split_once(':')
                    .is_some_and(|(key, _)| key.trim_matches(['"', '\'', ' ']).eq_ignore_ascii_case(field))
            };
            // A field begins its line; the head comes first.
            finding.line = finding.line.or_else(|| text.lines().position(is_there).map(|at| at + 1));
        }
        self.0
    }

    /// The sentences of those that are against the specification.
    pub(super) fn warnings(self) -> Vec<String> {
        self.0.into_iter().filter(|finding| finding.is_warning).map(|finding| finding.text).collect()
    }
}
