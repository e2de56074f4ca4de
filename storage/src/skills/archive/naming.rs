//! The ids of the skills in an archive.
//!
//! 1. A skill that is there already by the folder's (or the file's) name and declares the same `name` is that skill:
//!    uploading it again, or what was downloaded, replaces it.
//! 2. A skill is named by its folder, when that name keeps the rules of the specification and is not one that a code host
//!    gives the folder around a whole repository (`pdf-tools-main`, `pdf-tools-1.2.0`).
//! 3. Else by the `name` in its front matter, when that keeps the rules.
//! 4. Else by its folder, when the name can be an id; a skill in the archive's root by the name of the uploaded file,
//!    without its ending and a browser's ` (1)`. Else by any `name` that can be an id.
//! 5. Of several skills that would get one id, copies that are the same to the byte are one skill.
//! 6. Those that differ are named by the other of folder and front matter, where these differ; then by the name of the
//!    plugin before their own: `git-review`, `docs-review`.
//! 7. Otherwise the archive is refused, and both folders are named: no skill is lost silently.

use std::collections::BTreeMap;

use policy::{SkillId, skill_md};

use crate::error::{ArchiveError, Result, excerpt};

/// Endings of archives, the longer ones first.
const ENDINGS: [&str; 9] =
    [".tar.gz", ".tar.zst", ".tar.zstd", ".tgz", ".tzst", ".tar", ".zip", ".skill", ".plugin"];

/// Ends of the names that code hosts give the folder around a repository, besides commits and versions.
const BRANCHES: [&str; 6] = ["main", "master", "develop", "dev", "trunk", "head"];

/// A skill that is to be named.
#[derive(Clone, Debug)]
pub(super) struct Named {
    /// Its folder's path in the archive; empty for the root.
    pub(super) path: String,
    /// Its id, so far.
    pub(super) id: SkillId,
    /// The id it would have by the other of folder and front matter, where these differ.
    other: Option<SkillId>,
    /// The plugin it belongs to.
    pub(super) plugin: Option<String>,
    /// What a person should know about the choice.
    pub(super) doubt: Option<String>,
}

impl Named {
    /// Names one skill by itself: rules 1 to 4. `is_known` tells whether a skill is there that declares a name.
    ///
    /// # Errors
    /// [`ArchiveError`]: `SkillName`, `Nameless`; and what `is_known` answers.
    pub(super) fn alone(
        path: &str,
        declared: Option<&str>,
        file_name: Option<&str>,
        plugin: Option<&str>,
        is_known: &mut dyn FnMut(&SkillId, &str) -> Result<bool>,
    ) -> Result<Self> {
        let as_id = |name: &str| SkillId::parse(name).ok();
        let valid = declared.filter(|name| skill_md::is_name(name)).and_then(as_id);
        let of_file = file_name.map(stem).and_then(|stem| as_id(&stem));
        let folder = folder(path);
        let of_folder = match folder {
            None => None,
            Some(folder) => match (SkillId::parse(folder), declared.and_then(as_id)) {
                (Ok(id), _) => Some(id),
                (Err(_), Some(_)) => None,
                (Err(source), None) => {
                    return Err(ArchiveError::SkillName { name: excerpt(path.as_bytes()), source }.into());
                }
            },
        };
        let there = if folder.is_some() { &of_folder } else { &of_file };
        let is_again = match (there, &valid) {
            (Some(there), Some(name)) if there != name => is_known(there, name.as_str())?,
            _ => false,
        };
        let is_plain = folder.is_some_and(|folder| {
            skill_md::is_name(folder) && (path.contains('/') || !is_of_code_host(folder))
        });
        let first = if is_again || is_plain { there.clone() } else { valid.clone() };
        let id =
            first.or_else(|| of_folder.clone()).or_else(|| if folder.is_none() { of_file } else { None });
        let id = id.or_else(|| declared.and_then(as_id)).ok_or(ArchiveError::Nameless)?;
        let other = [&of_folder, &valid].into_iter().flatten().find(|other| **other != id).cloned();
        let doubt = other.as_ref().filter(|_| folder.is_some() && valid.is_some()).map(|other| {
            let (chosen, passed_over) = if Some(&id) == of_folder.as_ref() {
                ("its folder", "its front matter")
            } else {
                ("its front matter", "its folder")
            };
            format!("it is `{id}` by {chosen}; by {passed_over} it would be `{other}`")
        });
        Ok(Self { path: path.to_owned(), id, other, plugin: plugin.map(str::to_owned), doubt })
    }
}

/// Tells whether a folder's name ends as a code host's archives do: in a branch or a commit. A version has
/// dots, which no valid name has.
fn is_of_code_host(folder: &str) -> bool {
    let Some((_, end)) = folder.rsplit_once('-') else { return false };
    let is_commit = end.len() >= 7
        && end.bytes().all(|byte| byte.is_ascii_hexdigit())
        && end.bytes().any(|byte| byte.is_ascii_digit());
    BRANCHES.contains(&end) || is_commit
}

/// Keeps apart skills of different content that want one id: rules 6 and 7.
///
/// # Errors
/// [`ArchiveError::SameSkill`].
pub(super) fn settle(skills: &mut [Named]) -> Result<(), ArchiveError> {
    rename(skills, |skill, _| Some((skill.other.clone()?, "another of its names")));
    rename(skills, |skill, wanted| {
        let plugin = skill.plugin.as_deref()?;
        SkillId::parse(&format!("{plugin}-{wanted}")).ok().map(|id| (id, "its plugin and its name"))
    });
    let mut taken: BTreeMap<&SkillId, &str> = BTreeMap::new();
    for skill in skills.iter() {
        if let Some(first) = taken.insert(&skill.id, &skill.path) {
            let [first, second] = [first, skill.path.as_str()].map(|path| excerpt(path.as_bytes()));
            return Err(ArchiveError::SameSkill { id: skill.id.to_string(), first, second });
        }
    }
    Ok(())
}

/// Gives those that want one id another, where `other` has one.
fn rename(skills: &mut [Named], other: impl Fn(&Named, &SkillId) -> Option<(SkillId, &'static str)>) {
    let mut wanting: BTreeMap<SkillId, usize> = BTreeMap::new();
    for skill in skills.iter() {
        *wanting.entry(skill.id.clone()).or_default() += 1;
    }
    for skill in skills.iter_mut().filter(|skill| wanting.get(&skill.id).is_some_and(|count| *count > 1)) {
        if let Some((id, by)) = other(skill, &skill.id) {
            let wanted = std::mem::replace(&mut skill.id, id);
            let id = &skill.id;
            skill.doubt = Some(format!(
                "several skills of the archive would be `{wanted}`; by {by} this one is `{id}`"
            ));
        }
    }
}

/// The last name of a path; `None` for the root.
fn folder(path: &str) -> Option<&str> {
    path.rsplit('/').next().filter(|name| !name.is_empty())
}

/// A file's name without directories, the ending of an archive, and the ` (1)` of a browser that had it already.
pub(super) fn stem(name: &str) -> String {
    let name = name.rsplit(['/', '\\']).next().unwrap_or(name);
    let lower = name.to_ascii_lowercase();
    let ending = ENDINGS.iter().find(|ending| lower.ends_with(**ending) && lower.len() > ending.len());
    let stem = match (ending, name.rsplit_once('.')) {
        (Some(ending), _) => name.get(..name.len() - ending.len()).unwrap_or(name),
        (None, Some((stem, _))) if !stem.is_empty() => stem,
        (None, _) => name,
    };
    let counted = stem.strip_suffix(')').and_then(|rest| rest.rsplit_once(" ("));
    match counted {
        Some((rest, number))
            if !rest.is_empty() && !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            rest.to_owned()
        }
        _ => stem.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stem_of_an_upload_is_its_name_without_what_programs_add() {
        for (name, expected) in [
            ("demo.zip", "demo"),
            ("C:\\up\\数据.zip", "数据"),
            ("a/b.tar.zip", "b.tar"),
            (".zip", ".zip"),
            ("demo.TAR.GZ", "demo"),
            ("demo.tgz", "demo"),
            ("demo.tar.zst", "demo"),
            ("v1.2.zip", "v1.2"),
            ("demo (1).zip", "demo"),
            ("demo (copy).zip", "demo (copy)"),
            ("(1).zip", "(1)"),
            ("demo.skill", "demo"),
        ] {
            assert_eq!(stem(name), expected);
        }
    }
}
