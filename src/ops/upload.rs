//! Taking in skill archives.

use std::collections::HashMap;

use policy::{AgentId, Scope, SkillId, UserId};
use storage::archive::{self, Charset, NameEncoding, Options, Plan, Skipped};
use storage::{Published, Shelf, Spool};

use super::Service;
use super::admission::{Job, Weight};
use super::error::{Error, Result};

/// An archive that was received whole.
pub struct Archive {
    /// The spool it was received in.
    pub spool: Spool,
    /// The name it was sent under, without directories.
    pub file_name: Option<String>,
}

/// The outcome of an upload.
#[derive(Debug)]
pub struct Uploaded {
    /// The skills, sorted by id.
    pub skills: Vec<UploadedSkill>,
    /// How unmarked names of each archive were read.
    pub charsets: Vec<NameEncoding>,
    /// The first paths that were left out.
    pub skipped: Vec<Skipped>,
    /// How many paths were left out.
    pub skipped_total: usize,
}

/// One skill of an upload.
#[derive(Debug)]
pub struct UploadedSkill {
    /// The published skills.
    pub published: Published,
    /// Files in it.
    pub files: usize,
    /// Bytes in them.
    pub bytes: u64,
}

impl Service {
    /// Publishes every skill of every archive, or none.
    ///
    /// # Errors
    /// [`storage::Error::Archive`] when an archive is refused; [`Error::Invalid`] when two archives hold one skill.
    pub async fn upload(
        &self,
        scope: Scope,
        user: UserId,
        agent: AgentId,
        charset: Charset,
        archives: Vec<Archive>,
    ) -> Result<Uploaded> {
        let store = self.store.clone();
        let limits = self.archive_limits.clone();
        let job = Job::of(&user, Weight::Long);
        let uploaded = self.publishing(job, move |shelves| {
            let mut plans: Vec<(Spool, Plan)> = Vec::new();
            let mut sources: HashMap<SkillId, (usize, usize)> = HashMap::new();
            for Archive { spool, file_name } in archives {
                let fallback_name = file_name.as_deref().map(stem);
                let options = Options { limits: limits.clone(), charset, fallback_name };
                let plan = archive::plan(spool.file(), &options)?;
                for (index, skill) in plan.skills.iter().enumerate() {
                    if sources.insert(skill.id.clone(), (plans.len(), index)).is_some() {
                        let message = format!("skill `{}` is in two archives: send it once", skill.id);
                        return Err(Error::Invalid(message));
                    }
                }
                plans.push((spool, plan));
            }
            let mut ids: Vec<SkillId> = sources.keys().cloned().collect();
            ids.sort_unstable();
            let owner = (scope == Scope::Overlay).then(|| user.clone());
            let shelf =
                |skill: &SkillId| Shelf { agent: agent.clone(), skill: skill.clone(), user: owner.clone() };
            shelves.extend(ids.iter().map(shelf));
            let mut counts = HashMap::new();
            // Unpacked files are in no tree before all of them are.
            let mut flight = store.flight(&user);
            let unpacked = plans.iter().flat_map(|(_, plan)| &plan.skills);
            flight.take(unpacked.fold(0_u64, |sum, skill| sum.saturating_add(skill.bytes)))?;
            let publication = store.publish(scope, &user, &agent, &ids, &mut |id, into| {
                let source = sources.get(id).and_then(|(plan, skill)| {
                    let (spool, plan) = plans.get(*plan)?;
                    Some((spool.file(), plan.skills.get(*skill)?))
                });
                let Some((file, skill)) = source else {
                    return Err(storage::Error::NotFound(id.to_string()));
                };
                let extracted = archive::extract(file, skill, into)?;
                counts.insert(id.clone(), (extracted.files, extracted.bytes));
                Ok(Some(extracted))
            })?;
            let skills = publication.skills.into_iter().map(|published| {
                let (files, bytes) = counts.get(&published.skill).copied().unwrap_or_default();
                UploadedSkill { published, files, bytes }
            });
            let skills = skills.collect();
            let plans = plans.into_iter().map(|(_, plan)| plan);
            let (mut charsets, mut skipped, mut skipped_total) = (Vec::new(), Vec::new(), 0);
            for plan in plans {
                charsets.push(plan.charset);
                skipped.extend(plan.skipped);
                skipped_total += plan.skipped_total;
            }
            Ok((Uploaded { skills, charsets, skipped, skipped_total }, publication.leftovers))
        });
        uploaded.await
    }
}

/// A file's name without directories and without its last ending.
fn stem(name: &str) -> String {
    let name = name.rsplit(['/', '\\']).next().unwrap_or(name);
    match name.rsplit_once('.') {
        Some((stem, _)) if !stem.is_empty() => stem.to_owned(),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stem_of_an_upload_names_the_skill() {
        for (name, expected) in
            [("demo.zip", "demo"), ("C:\\up\\数据.zip", "数据"), ("a/b.tar.zip", "b.tar"), (".zip", ".zip")]
        {
            assert_eq!(stem(name), expected);
        }
    }
}
