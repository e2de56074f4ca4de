//! A skill as an audience has it: what is published of it, and a user's own state.

use policy::{RelPath, SkillId};
use storage::{KeptVersion, SkillVersions, Status, Store, Version, VersionDescription, VersionState};

use super::{Audience, ShownSkill, ShownVersion, missing};
use crate::ops::error::{Error, Result};
use crate::ops::versions::seen_versions;

/// A skill with its versions, as an audience has it.
pub(in crate::ops) fn shown(store: &Store, audience: &Audience, skill: &SkillId) -> Result<ShownSkill> {
    let (skills, agent) = (store.skills(), &audience.agent);
    let published = skills.versions(agent, skill).map_err(Error::from);
    let published = published.and_then(|all| seen_versions(all, skill, audience.with_staged));
    let published = match published {
        Err(Error::Storage(storage::Error::NotFound(_))) => None,
        published => Some(published?),
    };
    let Some(tree) = audience.tree(skill) else {
        let published = published.filter(|published| published.current().is_some());
        let published = published.ok_or_else(|| missing(skill.as_str()))?;
        return together(store, audience, skill, Some(published), None);
    };
    store.files(tree.clone()).stat(&RelPath::root())?;
    let status = skills.status(&tree)?;
    let own = match status.status {
        Status::Unchanged => None,
        Status::Modified | Status::LocalOnly | Status::OutOfSync => {
            let (version, said) = skills.seen(&tree)?;
            let changed_ns = status.overlay_modified_ns.unwrap_or_default();
            Some((version, said, i64::try_from(changed_ns.div_euclid(1000)).unwrap_or_default()))
        }
    };
    together(store, audience, skill, published, own)
}

/// Puts together what is published of a skill, and a user's own state of it.
fn together(
    store: &Store,
    audience: &Audience,
    skill: &SkillId,
    published: Option<SkillVersions>,
    own: Option<(Version, VersionDescription, i64)>,
) -> Result<ShownSkill> {
    let SkillVersions { versions: kept, log } =
        published.unwrap_or(SkillVersions { versions: Vec::new(), log: Vec::new() });
    // Each publication has a later time than the one before, also where the clock went back.
    let mut last_us = i64::MIN;
    let firsts: Vec<(u64, i64, &Version)> = log
        .iter()
        .map(|publication| {
            last_us = last_us.saturating_add(1).max(publication.at_ms.saturating_mul(1000));
            (publication.number, last_us, &publication.version)
        })
        .collect();
    let title = kept.iter().find_map(|kept| kept.title.clone());
    let names: Vec<Version> = kept.iter().map(|kept| kept.version.clone()).collect();
    let described = store.skills().describe_versions(&audience.agent, skill, &names)?;
    let is_overlaid = own.is_some();
    let one = |(kept, said): (KeptVersion, Option<VersionDescription>)| {
        let (number, at_us, _) = *firsts.iter().find(|(.., version)| **version == kept.version)?;
        let is_current = kept.state == VersionState::Current && !is_overlaid;
        Some(ShownVersion { version: kept.version, number, at_us, is_own: false, is_current, said: said? })
    };
    let mut versions: Vec<ShownVersion> = kept.into_iter().zip(described).filter_map(one).collect();
    versions.sort_unstable_by_key(|shown| std::cmp::Reverse(shown.number));
    let last_number = log.last().map_or(0, |last| last.number);
    let created_ms = log.first().map(|first| first.at_ms);
    let updated_ms = log.last().map(|last| last.at_ms);
    let own_ms = own.as_ref().map(|(.., at_us)| at_us.div_euclid(1000));
    if let Some((version, said, changed_us)) = own {
        // Its own time, which no other version has: what the application publishes later does not move it.
        let is_taken = |at_us: &i64| firsts.iter().any(|(_, taken, _)| taken == at_us);
        let at_us = (changed_us..).find(|at_us| !is_taken(at_us)).unwrap_or(changed_us);
        let (number, is_own, is_current) = (last_number + 1, true, true);
        versions.insert(0, ShownVersion { version, number, at_us, is_own, is_current, said });
    }
    if versions.is_empty() {
        return Err(missing(skill.as_str()));
    }
    Ok(ShownSkill {
        id: audience.id_of(skill),
        skill: skill.clone(),
        is_own: audience.user.is_none() || is_overlaid,
        title,
        created_ms: created_ms.or(own_ms).unwrap_or_default(),
        updated_ms: own_ms.or(updated_ms).unwrap_or_default(),
        versions,
    })
}
