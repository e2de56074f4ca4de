//! *Agent skills discovery* 0.2.0: an index, and a ZIP for each skill of it (<https://schemas.agentskills.io/discovery/0.2.0/schema.json>).

use serde_json::{Value, json};
use storage::ArtifactForm;

use super::by_link::{ByLink, missing};
use crate::http::answer::Answer;
use crate::ops::shares::artifact::Digests;
use crate::ops::shares::catalog::SharedSkill;

const SCHEMA: &str = "https://schemas.agentskills.io/discovery/0.2.0/schema.json";
/// Digits of the digest of an archive in its name.
const NAME_DIGITS: usize = 16;
const EXTENSION: &str = ".zip";
/// Results of a search.
const FOUND_MAX: usize = 50;

/// The skills of a link. What cannot be installed stands under `x-skipped`.
pub(super) async fn index(link: &ByLink) -> Answer {
    let catalog = link.app.service.shared(link.share.clone()).await?;
    let mut skipped = catalog.skipped;
    let mut skills: Vec<Value> = Vec::with_capacity(catalog.skills.len());
    for skill in catalog.skills {
        match link.app.service.shared_digests(&link.share, &skill, &ArtifactForm::Flat).await {
            Ok(Ok(digests)) => skills.push(listed(&skill, &digests)),
            Ok(Err(why)) => skipped.push((skill.skill, why)),
            // Changed or removed since a moment ago.
            Err(crate::ops::Error::Storage(storage::Error::NotFound(_))) => {
                skipped.push((skill.skill, "it has just changed: ask again"));
            }
            Err(error) => return Err(error.into()),
        }
    }
    let skipped: Vec<Value> =
        skipped.into_iter().map(|(skill, why)| json!({ "skill_id": skill, "why": why })).collect();
    link.current(&json!({ "$schema": SCHEMA, "skills": skills, "x-skipped": skipped }))
}

fn listed(skill: &SharedSkill, digests: &Digests) -> Value {
    json!({
        "name": skill.alias,
        "type": "archive",
        "description": skill.description,
        "url": format!("{}-{}{EXTENSION}", skill.alias, name_digits(digests)),
        "digest": format!("sha256:{}", hex::encode(digests.sha256)),
    })
}

/// A skill as a ZIP with `SKILL.md` at its top: by the name that the index has, or as it is now by its name alone.
pub(super) async fn archive(link: &ByLink, file: &str) -> Answer {
    let stem = file.strip_suffix(EXTENSION).ok_or_else(missing)?;
    let service = &link.app.service;
    let by_digest = stem.rsplit_once('-').filter(|(_, digits)| digits.len() == NAME_DIGITS);
    let (found, wanted) = match service.shared_as(link.share.clone(), stem.to_owned()).await? {
        None => {
            let (alias, digits) = by_digest.ok_or_else(missing)?;
            (service.shared_as(link.share.clone(), alias.to_owned()).await?, Some(digits))
        }
        found => (found, None),
    };
    let skill = found.ok_or_else(missing)?;
    let is_wanted = |digests: &Digests| wanted.is_none_or(|wanted| name_digits(digests) == wanted);
    // An archive that is known to be another one by now is not packed in vain.
    let known = service.known_digests(&link.share, &skill, &ArtifactForm::Flat);
    if known.is_some_and(|known| !known.is_ok_and(|known| is_wanted(&known))) {
        return Err(missing());
    }
    let packed = service.pack_shared(&link.share, &skill, &ArtifactForm::Flat).await?;
    let packed = packed.map_err(|_| missing())?;
    if !is_wanted(&packed.1) {
        return Err(missing());
    }
    link.archive(packed, "application/zip", file, wanted.is_some())
}

fn name_digits(digests: &Digests) -> String {
    let mut digits = hex::encode(digests.sha256);
    digits.truncate(NAME_DIGITS);
    digits
}

/// The skills of a link whose name or description has the text `wanted`, as `npx skills find` asks for them.
pub(super) async fn search(link: &ByLink, wanted: &str) -> Answer {
    let catalog = link.app.service.shared(link.share.clone()).await?;
    let has = |text: &str| text.to_lowercase().contains(wanted);
    let is_found =
        |skill: &&SharedSkill| has(&skill.alias) || has(skill.skill.as_str()) || has(&skill.description);
    let found = catalog.skills.iter().filter(is_found).take(FOUND_MAX);
    let found: Vec<Value> = found
        .map(|skill| {
            json!({ "name": skill.alias, "id": format!("{}/{}", link.base, skill.alias), "source": link.base, "installs": 0 })
        })
        .collect();
    link.current(&json!({ "skills": found }))
}
