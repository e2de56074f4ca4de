//! Taking in skill archives.

use std::collections::HashMap;

use policy::{AgentId, ArchiveLimits, Scope, SkillId, UserId};
use storage::archive::{self, Charset, Compression, NameEncoding, Options, Plan, PlannedSkill, Skipped};
use storage::{Leftovers, Presence, PublishOptions, Published, Shelf, Spool, Store};

use super::Service;
use super::admission::{Job, Weight};
use super::error::{Error, Result};
use super::versions::Publisher;

/// An archive that was received whole.
pub struct Archive {
    /// The spool it was received in.
    pub spool: Spool,
    /// The name it was sent under.
    pub file_name: Option<String>,
}

/// How archives are taken in.
#[derive(Clone, Debug)]
pub struct Intake {
    /// Whose skills they become.
    pub scope: Scope,
    /// How unmarked names in them are read.
    pub charset: Charset,
    /// Who publishes them, and how.
    pub publisher: Publisher,
    /// Whether everything is done but publish, so that the outcome tells what would be published.
    pub is_rehearsal: bool,
    /// Which skills are taken.
    pub taking: Taking,
}

/// Which skills are taken in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taking {
    /// All of them.
    All,
    /// The only one, which its layer may not have yet.
    New,
    /// The only one, which is this skill.
    VersionOf(SkillId),
}

impl Taking {
    /// What the layer must still have of the skill when it takes its place: others publish meanwhile.
    fn presence(&self) -> Presence {
        match self {
            Self::All => Presence::Any,
            Self::New => Presence::Absent,
            Self::VersionOf(_) => Presence::Present,
        }
    }
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
    /// What is wrong with an archive as a whole, one sentence each.
    pub warnings: Vec<String>,
}

/// One skill of an upload.
#[derive(Debug)]
pub struct UploadedSkill {
    /// What it became, or would become.
    pub published: Published,
    /// What was found in the archive.
    pub planned: PlannedSkill,
}

/// The archives of one upload, planned.
struct Planned {
    plans: Vec<(Spool, Plan)>,
    /// Of each skill: its archive, and its number there.
    sources: HashMap<SkillId, (usize, usize)>,
}

impl Service {
    /// Publishes every skill of every archive, or none.
    ///
    /// # Errors
    /// [`storage::Error::Archive`] when an archive is refused; [`Error::Invalid`] when two archives hold one skill, for archives
    /// that have others than are to be taken, and for a skill with warnings where the publisher takes none;
    /// [`storage::Error::AlreadyExists`] for a new one that its layer has.
    pub async fn upload(
        &self,
        intake: Intake,
        user: UserId,
        agent: AgentId,
        archives: Vec<Archive>,
    ) -> Result<Uploaded> {
        let store = self.store.clone();
        let limits = self.archive_limits.clone();
        let job = Job::of(&user, Weight::Long);
        let uploaded = self.publishing(job, move |shelves| {
            let planned = Planned::read(&store, &limits, &intake, &user, &agent, archives)?;
            let Intake { scope, publisher, is_rehearsal, taking, .. } = intake;
            planned.check(&store, &taking, scope, &user, &agent)?;
            if publisher.is_strict {
                planned.check_warnings()?;
            }
            let options = PublishOptions { presence: taking.presence(), ..publisher.options() };
            let mut ids: Vec<SkillId> = planned.sources.keys().cloned().collect();
            ids.sort_unstable();
            let mut flight = store.flight(&user);
            // Unpacked files are in no tree before all of them are.
            let unpacked = planned.plans.iter().flat_map(|(_, plan)| &plan.skills);
            flight.take(unpacked.fold(0_u64, |sum, skill| sum.saturating_add(skill.bytes)))?;
            let mut fill = |id: &SkillId, into: &storage::Dir| {
                let (file, skill) =
                    planned.source(id).ok_or_else(|| storage::Error::NotFound(id.to_string()))?;
                let predecessor = match scope {
                    Scope::Baseline => store.skills().predecessor(&agent, id)?,
                    Scope::Overlay => None,
                };
                archive::extract(file, skill, into, predecessor.as_ref()).map(Some)
            };
            let (published, leftovers) = if is_rehearsal {
                let published = store.skills().rehearse(&options, scope, &user, &agent, &ids, &mut fill)?;
                (published, Leftovers::default())
            } else {
                let owner = (scope == Scope::Overlay).then(|| user.clone());
                shelves.extend(ids.iter().map(|skill| Shelf {
                    agent: agent.clone(),
                    skill: skill.clone(),
                    user: owner.clone(),
                }));
                let publication =
                    store.skills().publish_with(&options, scope, &user, &agent, &ids, &mut fill)?;
                (publication.skills, publication.leftovers)
            };
            Ok((planned.outcome(published), leftovers))
        });
        uploaded.await
    }

    /// Publishes the only skill of an archive, as `taking` says.
    ///
    /// # Errors
    /// As [`Service::upload`].
    pub(super) async fn take_one(
        &self,
        publisher: Publisher,
        scope: Scope,
        user: UserId,
        agent: AgentId,
        archive: Archive,
        taking: Taking,
    ) -> Result<UploadedSkill> {
        let intake = Intake { scope, charset: Charset::Auto, publisher, is_rehearsal: false, taking };
        let uploaded = self.upload(intake, user, agent, vec![archive]).await?;
        let skill = uploaded.skills.into_iter().next();
        skill.ok_or_else(|| Error::Invalid("the upload has no skill".to_owned()))
    }
}

impl Planned {
    fn read(
        store: &Store,
        limits: &ArchiveLimits,
        intake: &Intake,
        user: &UserId,
        agent: &AgentId,
        archives: Vec<Archive>,
    ) -> Result<Self> {
        let mut planned = Self { plans: Vec::new(), sources: HashMap::new() };
        for Archive { spool, file_name } in archives {
            let spool = match Compression::of(spool.file())? {
                None => spool,
                Some(compression) => {
                    let mut plain = store.spool(user)?;
                    compression.unpack(spool.file(), limits, |bytes| plain.write(bytes))?;
                    plain
                }
            };
            let options = Options { limits: limits.clone(), charset: intake.charset, file_name };
            let mut is_known =
                |id: &SkillId, name: &str| store.skills().declares(intake.scope, user, agent, id, name);
            let plan = archive::plan_beside(spool.file(), &options, &mut is_known)?;
            for (index, skill) in plan.skills.iter().enumerate() {
                if planned.sources.insert(skill.id.clone(), (planned.plans.len(), index)).is_some() {
                    let message = format!("skill `{}` is in two archives: send it once", skill.id);
                    return Err(Error::Invalid(message));
                }
            }
            planned.plans.push((spool, plan));
        }
        Ok(planned)
    }

    /// Refuses what is not to be taken in, before it is unpacked.
    fn check(
        &self,
        store: &Store,
        taking: &Taking,
        scope: Scope,
        user: &UserId,
        agent: &AgentId,
    ) -> Result<()> {
        if *taking == Taking::All {
            return Ok(());
        }
        let mut ids = self.sources.keys();
        let (Some(id), None) = (ids.next(), ids.next()) else {
            let message = format!("the upload has {} skills: send one", self.sources.len());
            return Err(Error::Invalid(message));
        };
        match taking {
            Taking::All => Ok(()),
            Taking::VersionOf(wanted) if wanted == id => Ok(()),
            Taking::VersionOf(wanted) => Err(Error::Invalid(format!(
                "the upload is the skill `{id}`, and no version of `{wanted}`: a skill keeps its name"
            ))),
            Taking::New if store.skills().has(scope, user, agent, id)? => {
                Err(storage::Error::AlreadyExists(id.to_string()).into())
            }
            Taking::New => Ok(()),
        }
    }

    /// Refuses skills with warnings.
    fn check_warnings(&self) -> Result<()> {
        let skills = self.plans.iter().flat_map(|(_, plan)| &plan.skills);
        let warned = skills.filter_map(|skill| Some((&skill.id, skill.metadata.warnings.first()?)));
        match warned.min_by_key(|(id, _)| *id) {
            Some((id, warning)) => Err(Error::Invalid(format!("skill `{id}`: {warning}"))),
            None => Ok(()),
        }
    }

    fn source(&self, id: &SkillId) -> Option<(&std::fs::File, &PlannedSkill)> {
        let (archive, skill) = self.sources.get(id)?;
        let (spool, plan) = self.plans.get(*archive)?;
        Some((spool.file(), plan.skills.get(*skill)?))
    }

    fn outcome(mut self, published: Vec<Published>) -> Uploaded {
        let mut uploaded = Uploaded {
            skills: Vec::with_capacity(published.len()),
            charsets: Vec::new(),
            skipped: Vec::new(),
            skipped_total: 0,
            warnings: Vec::new(),
        };
        let mut found: HashMap<SkillId, PlannedSkill> = HashMap::new();
        for (_, plan) in &mut self.plans {
            found.extend(plan.skills.drain(..).map(|skill| (skill.id.clone(), skill)));
            uploaded.charsets.push(plan.charset);
            uploaded.skipped.append(&mut plan.skipped);
            uploaded.skipped_total += plan.skipped_total;
            uploaded.warnings.append(&mut plan.warnings);
        }
        uploaded.skills.extend(published.into_iter().filter_map(|published| {
            let planned = found.remove(&published.skill)?;
            Some(UploadedSkill { published, planned })
        }));
        uploaded
    }
}
