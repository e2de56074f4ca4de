//! The rules of the specification, each a warning when broken.

use super::header::Fields;

/// Longest `name`, in characters.
const NAME_CHARS_MAX: usize = 64;
/// Longest `description`, in characters.
const DESCRIPTION_CHARS_MAX: usize = 1024;
/// Longest `compatibility`, in characters.
const COMPATIBILITY_CHARS_MAX: usize = 500;

/// Adds a warning for each rule that `fields` break.
///
/// The specification wants `a-z`, `0-9` and `-` in a name; its reference validator takes letters of any script,
/// and so do we.
pub(super) fn check(fields: &Fields, directory_name: &str, warnings: &mut Vec<String>) {
    match fields.name.as_deref() {
        None => warnings.push("the front matter has no `name`".to_owned()),
        Some(name) => check_name(name, directory_name, warnings),
    }
    let too_long = |text: &str, most: usize| text.chars().count() > most;
    match fields.description.as_deref() {
        None => warnings.push("the front matter has no `description`".to_owned()),
        Some(text) if too_long(text, DESCRIPTION_CHARS_MAX) => {
            warnings.push(format!("`description` has more than {DESCRIPTION_CHARS_MAX} characters"));
        }
        Some(_) => {}
    }
    if fields.compatibility.as_deref().is_some_and(|text| too_long(text, COMPATIBILITY_CHARS_MAX)) {
        warnings.push(format!("`compatibility` has more than {COMPATIBILITY_CHARS_MAX} characters"));
    }
}

/// Tells whether `name` keeps the rules for a skill's name: 1 to 64 letters of any script, none of them large, digits and
/// single hyphens between them.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let mut warnings = Vec::new();
    check_name(name, name, &mut warnings);
    !name.is_empty() && warnings.is_empty()
}

fn check_name(name: &str, directory_name: &str, warnings: &mut Vec<String>) {
    if name.chars().count() > NAME_CHARS_MAX {
        warnings.push(format!("`name` has more than {NAME_CHARS_MAX} characters"));
    }
    let is_allowed =
        |character: char| character == '-' || (character.is_alphanumeric() && !character.is_uppercase());
    if !name.chars().all(is_allowed) {
        warnings.push("`name` has characters other than small letters, digits and `-`".to_owned());
    }
    if name.starts_with('-') || name.ends_with('-') || name.contains("--") {
        warnings.push("`name` begins or ends with `-` or has two in a row".to_owned());
    }
    if name != directory_name {
        warnings.push("`name` is not the name of the skill's directory".to_owned());
    }
}
