//! [`Catalog`]: the skills that a link shows, and their names for installers.
//!
//! Installers take names of `a-z`, `0-9` and `-` alone, so that a skill with another one is shown under an alias: the `slug` of its own
//! metadata, or digits of its id.

use std::collections::HashSet;
use std::sync::Arc;

use policy::SkillId;
use storage::{Store, Version};

use super::{Share, SharedView};
use crate::ops::Service;
use crate::ops::admission::{Job, Weight};
use crate::ops::error::{Error, Result};
use crate::ops::shown::{self, Audience};

/// Skills in one catalog.
const SKILLS_MAX: usize = 512;
/// Longest description, in characters (agent skills discovery 0.2.0).
const DESCRIPTION_CHARS_MAX: usize = 1024;
/// Longest name, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// The skills that a link shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalog {
    /// Sorted by their names for installers.
    pub skills: Vec<SharedSkill>,
    /// Those that cannot be shown, and why.
    pub skipped: Vec<(SkillId, &'static str)>,
}

/// A skill that a link shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedSkill {
    /// Its name for installers.
    pub alias: String,
    /// Its name here.
    pub skill: SkillId,
    /// What it says of itself, without what is too long for installers; never empty.
    pub description: String,
    /// Its version.
    pub version: Version,
    /// The number of that version; for a user's own state, the next one.
    pub number: u64,
    /// Whether it is the user's own state, and not a published version.
    pub is_own: bool,
}

impl SharedSkill {
    /// The version as npm has it. A user's own state changes without a number of its own, so that its content is part of it.
    #[must_use]
    pub fn package_version(&self) -> String {
        let digits = self.version.as_str().get(..8).unwrap_or_default();
        match self.is_own {
            true => format!("1.0.{}-v{digits}", self.number),
            false => format!("1.0.{}", self.number),
        }
    }
}

impl Share {
    pub(super) fn audience(&self) -> Audience {
        let user = (self.view == SharedView::User).then(|| self.user.clone());
        Audience { agent: self.agent.clone(), user, with_staged: false }
    }

    fn shows(&self, skill: &SkillId) -> bool {
        self.skills.as_ref().is_none_or(|skills| skills.contains(skill))
    }
}

impl Service {
    /// The skills that a link shows.
    ///
    /// # Errors
    /// As [`Service::shown_skills`].
    pub async fn shared(&self, share: Arc<Share>) -> Result<Catalog> {
        let (store, job) = (self.store.clone(), Job::of(&share.account()?, Weight::Scan));
        self.work(job, move || catalog(&store, &share, |_| true)).await
    }

    /// The skill that a link shows under the name `alias`.
    ///
    /// # Errors
    /// As [`Service::shown_skills`].
    pub async fn shared_as(&self, share: Arc<Share>, alias: String) -> Result<Option<SharedSkill>> {
        let (store, job) = (self.store.clone(), Job::of(&share.account()?, Weight::Scan));
        let found = self.work(job, move || catalog(&store, &share, |name| name == alias));
        Ok(found.await?.skills.pop())
    }
}

/// The skills of a link whose names are `wanted`.
fn catalog(store: &Store, share: &Share, wanted: impl Fn(&str) -> bool) -> Result<Catalog> {
    let audience = share.audience();
    let mut ids = shown::ids(store, &audience)?;
    ids.retain(|skill| share.shows(skill));
    let mut catalog = Catalog::default();
    let slug = |skill: &SkillId| slug(store, &audience, skill);
    for (at, (alias, skill)) in aliases(&audience, ids, slug)?.into_iter().enumerate() {
        match alias {
            _ if at >= SKILLS_MAX => catalog.skipped.push((skill, "a link shows no more than 512 skills")),
            None => catalog.skipped.push((skill, "another skill has the name under which it would be shown")),
            Some(alias) if wanted(&alias) => catalog.skills.extend(shared(store, &audience, alias, skill)?),
            Some(_) => {}
        }
    }
    catalog.skills.sort_by(|a, b| a.alias.cmp(&b.alias));
    Ok(catalog)
}

/// A skill as it is now; `None` when it was removed meanwhile, or never more than staged.
fn shared(store: &Store, audience: &Audience, alias: String, skill: SkillId) -> Result<Option<SharedSkill>> {
    let found = match shown::shown(store, audience, &skill) {
        Err(Error::Storage(storage::Error::NotFound(_))) => return Ok(None),
        found => found?,
    };
    let Some(current) = found.current() else { return Ok(None) };
    let said: String = current.said.description.chars().take(DESCRIPTION_CHARS_MAX).collect();
    let description = if said.trim().is_empty() { current.said.name.clone() } else { said };
    let (version, number, is_own) = (current.version.clone(), current.number, current.is_own);
    Ok(Some(SharedSkill { alias, skill, description, version, number, is_own }))
}

/// The name for installers that a skill gives itself; `None` when it was removed meanwhile, too.
fn slug(store: &Store, audience: &Audience, skill: &SkillId) -> Result<Option<String>> {
    match shown::shown(store, audience, skill) {
        Err(Error::Storage(storage::Error::NotFound(_))) => Ok(None),
        shown => Ok(shown?.current().and_then(|current| current.said.slug.clone())),
    }
}

/// The names for installers: a skill's own where they take it; else its slug, if no other skill has that name; else digits of the id
/// under which it is shown. A skill that has the name of its own goes before one that would be called so.
fn aliases(
    audience: &Audience,
    ids: Vec<SkillId>,
    slug: impl Fn(&SkillId) -> Result<Option<String>>,
) -> Result<Vec<(Option<String>, SkillId)>> {
    let (fitting, others): (Vec<SkillId>, Vec<SkillId>) =
        ids.into_iter().partition(|skill| is_name(skill.as_str()));
    let mut taken: HashSet<String> = fitting.iter().map(ToString::to_string).collect();
    let mut named: Vec<(Option<String>, SkillId)> =
        fitting.into_iter().map(|skill| (Some(skill.to_string()), skill)).collect();
    for (at, skill) in others.into_iter().enumerate() {
        // What is beyond the bound is not shown, and not read.
        let own = if at < SKILLS_MAX { slug(&skill)? } else { None };
        let own = own.filter(|slug| is_name(slug) && !taken.contains(slug));
        let digits = || format!("skill-{}", audience.id_of(&skill).get(..8).unwrap_or_default());
        let alias = own.unwrap_or_else(digits);
        named.push((taken.insert(alias.clone()).then_some(alias), skill));
    }
    Ok(named)
}

/// Tells whether installers take a name.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let is_fitting = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=NAME_BYTES_MAX).contains(&text.len())
        && text.bytes().all(is_fitting)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use policy::AgentId;

    use super::*;

    #[test]
    fn a_skill_with_a_name_that_installers_do_not_take_has_an_alias_that_takes_no_other_skills_name() {
        let audience = Audience { agent: AgentId::parse("a").unwrap(), user: None, with_staged: false };
        let ids = |names: &[&str]| names.iter().map(|name| SkillId::parse(name).unwrap()).collect::<Vec<_>>();
        let aliases = |names: &[&str]| aliases(&audience, ids(names), |_| Ok(None)).unwrap();
        let named = aliases(&["数据统计", "pdf", "Upper"]);
        let names: Vec<String> = named.iter().map(|(alias, _)| alias.clone().unwrap()).collect();
        assert_eq!(names[0], "pdf");
        assert!(names.iter().all(|name| is_name(name)), "{names:?}");
        assert!(names[1].starts_with("skill-") && names[1] != names[2], "{names:?}");
        // One that takes the alias of another by its own name.
        let taken = aliases(&["数据统计", names[1].as_str()]);
        assert_eq!(taken[0].0.as_deref(), Some(names[1].as_str()));
        assert_eq!(taken[1], (None, SkillId::parse("数据统计").unwrap()));
    }

    #[test]
    fn a_slug_is_the_alias_when_it_is_a_name_that_no_other_skill_has() {
        let audience = Audience { agent: AgentId::parse("a").unwrap(), user: None, with_staged: false };
        let ids = ["一", "二", "三", "四", "pdf"].map(|name| SkillId::parse(name).unwrap()).to_vec();
        let slug = |skill: &SkillId| {
            let slug = match skill.as_str() {
                "一" | "二" => "one",
                "三" => "pdf",
                "四" => "No Name",
                _ => return Ok(None),
            };
            Ok(Some(slug.to_owned()))
        };
        let named = aliases(&audience, ids, slug).unwrap();
        let alias = |name: &str| {
            let found = named.iter().find(|(_, skill)| skill.as_str() == name);
            found.and_then(|(alias, _)| alias.clone()).unwrap()
        };
        assert_eq!((alias("pdf"), alias("一")), ("pdf".to_owned(), "one".to_owned()));
        for other in ["二", "三", "四"] {
            assert!(alias(other).starts_with("skill-"), "{named:?}");
        }
    }
}
