//! Publishing whole skills: they are built in the stage, and take their places in one transaction.

mod draft;
mod presence;

use std::cell::Cell;
use std::sync::Arc;

use policy::{AgentId, Scope, SkillId, TreeId, UserId};

use self::draft::{Change, Draft};
pub use self::presence::Presence;
use crate::core::bases::{NO_BASE, Promotion};
use crate::core::lock::TreeWrite;
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::layers::journal::{Committed, Transaction};
use crate::layers::trash::{Leftovers, Trash};
use crate::layers::view::ViewLease;
use crate::skills::Skills;
use crate::skills::version_note::VersionNote;
use crate::version::{self, Contents, Version};

/// A skill that was published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// Which skill.
    pub skill: SkillId,
    /// The name of the content.
    pub version: Version,
    /// Whether the layer had the skill before.
    pub replaced: bool,
    /// Whether the layer had the very same content, so that nothing was done.
    pub unchanged: bool,
    /// The number of the publication, for a skill of all users; `None` for a user's own, and for one that was only rehearsed.
    pub number: Option<u64>,
}

/// How something is published, and what is written down with it.
#[derive(Clone, Copy, Debug)]
pub struct PublishOptions<'a> {
    /// Who publishes.
    pub by: &'a str,
    /// What the publisher says of it; kept for skills of all users.
    pub note: &'a VersionNote,
    /// Whether a skill of all users is kept beside the current version instead of taking its place.
    pub is_staged: bool,
    /// What the layer must have of the skill, looked at under the lock under which the skill takes its place: of two callers who
    /// make a skill, one is refused. Other than [`Presence::Any`] is for publications of one skill.
    pub presence: Presence,
}

/// A publication that is done.
pub struct Publication {
    /// Every skill, in the order asked for.
    pub skills: Vec<Published>,
    /// The replaced trees that are not kept.
    pub leftovers: Leftovers,
}

/// The state that a publication replaces.
pub(crate) struct Over<'a> {
    /// How it is published.
    pub(crate) options: &'a PublishOptions<'a>,
    /// The version that must be current, `Some(None)` for none; without it, any may be.
    pub(crate) expected: Option<&'a Option<Version>>,
    /// The user whose overlay is published.
    pub(crate) promoting: Option<Promoting<'a>>,
}

/// An overlay that becomes the application's version.
pub(crate) struct Promoting<'a> {
    pub(crate) id: &'a TreeId,
    /// The version that it was merged with, once it was.
    pub(crate) merged_with: &'a Cell<Option<Version>>,
}

/// What the steps of a publication leave to be done after the last one.
#[derive(Default)]
struct Applied<'a> {
    /// The views of overlays that were replaced.
    detached: Vec<ViewLease>,
    /// The overlay that was promoted, held.
    promoter: Option<(TreeWrite, &'a TreeId)>,
    /// Skills whose very content another publication had placed meanwhile.
    unchanged: Vec<SkillId>,
}

impl Skills {
    /// Publishes skills: all of them, or nothing.
    ///
    /// `fill` writes one skill into an empty directory and tells what it wrote when it knows it; else the directory is
    /// read again. What `options` say is written down with it. When `fill` fails, nothing has changed. A baseline
    /// skill takes the place of the former version, which is kept; a staged one is kept beside it. An overlay skill replaces
    /// the user's former one and hides everything of the baseline skill of that name.
    ///
    /// # Errors
    /// The error of `fill`; [`Error::AlreadyExists`] and [`Error::NotFound`] as [`PublishOptions::presence`] says;
    /// [`Error::Quota`] for an overlay that is larger than it may be; [`Error::Full`], [`Error::NoSpace`], [`Error::Io`].
    pub fn publish_with(
        &self,
        options: &PublishOptions<'_>,
        scope: Scope,
        user: &UserId,
        agent: &AgentId,
        skills: &[SkillId],
        fill: &mut dyn FnMut(&SkillId, &Dir) -> Result<Option<Contents>>,
    ) -> Result<Publication> {
        let over = Over { options, expected: None, promoting: None };
        self.publish_over(&over, scope, user, agent, skills, fill)
    }

    /// As [`Skills::publish_with`], by the user whose skills they are, or among whose they were asked for.
    ///
    /// # Errors
    /// As [`Skills::publish_with`].
    pub fn publish(
        &self,
        scope: Scope,
        user: &UserId,
        agent: &AgentId,
        skills: &[SkillId],
        fill: &mut dyn FnMut(&SkillId, &Dir) -> Result<Option<Contents>>,
    ) -> Result<Publication> {
        let note = VersionNote::default();
        let options =
            PublishOptions { by: user.as_str(), note: &note, is_staged: false, presence: Presence::Any };
        self.publish_with(&options, scope, user, agent, skills, fill)
    }

    /// Does everything that [`Skills::publish_with`] does before the first skill takes its place, and drops it: tells what
    /// would be published.
    ///
    /// # Errors
    /// As [`Skills::publish_with`].
    pub fn rehearse(
        &self,
        options: &PublishOptions<'_>,
        scope: Scope,
        user: &UserId,
        agent: &AgentId,
        skills: &[SkillId],
        fill: &mut dyn FnMut(&SkillId, &Dir) -> Result<Option<Contents>>,
    ) -> Result<Vec<Published>> {
        Ok(self.draft_skills(options, scope, user, agent, skills, fill)?.published)
    }

    /// Builds skills in the stage, where they are dropped with the draft.
    fn draft_skills<'a>(
        &'a self,
        options: &'a PublishOptions<'a>,
        scope: Scope,
        user: &'a UserId,
        agent: &'a AgentId,
        skills: &[SkillId],
        fill: &mut dyn FnMut(&SkillId, &Dir) -> Result<Option<Contents>>,
    ) -> Result<Draft<'a>> {
        self.store.admit_space()?;
        let transaction = Transaction::begin_publication(self.store.stage())?;
        let (published, changes, admitted) = (Vec::new(), Vec::new(), Vec::new());
        let mut draft =
            Draft { store: &self.store, options, user, agent, transaction, published, changes, admitted };
        for skill in skills {
            draft.build(scope, skill, fill)?;
        }
        Ok(draft)
    }

    /// As [`Skills::publish`], over what `over` says.
    ///
    /// # Errors
    /// As [`Skills::publish`]; [`Error::Conflict`] when another publication came between. Then nothing has changed.
    pub(crate) fn publish_over(
        &self,
        over: &Over<'_>,
        scope: Scope,
        user: &UserId,
        agent: &AgentId,
        skills: &[SkillId],
        fill: &mut dyn FnMut(&SkillId, &Dir) -> Result<Option<Contents>>,
    ) -> Result<Publication> {
        let Draft { transaction, mut published, changes, admitted, .. } =
            self.draft_skills(over.options, scope, user, agent, skills, fill)?;
        if changes.is_empty() {
            if scope == Scope::Baseline {
                self.number(agent, &mut published);
            }
            return Ok(Publication { skills: published, leftovers: Leftovers::default() });
        }
        self.store.admit_space()?;
        let committed = transaction.commit(self.store.root())?;
        let mut applied = Applied::default();
        for (index, change) in changes.iter().enumerate() {
            if let Err(error) = self.apply(over, agent, change, &committed, index, &mut applied) {
                if index == 0 {
                    // Nothing is placed yet: forget it, so that the next start does not place it late.
                    drop(committed.finish());
                }
                return Err(error);
            }
        }
        drop(admitted);
        let Applied { detached, promoter, unchanged } = applied;
        for one in published.iter_mut().filter(|one| unchanged.contains(&one.skill)) {
            (one.replaced, one.unchanged) = (true, true);
        }
        if let Some((alone, id)) = promoter {
            // Its changes belong to all users now. A step that fails is settled later: the changes are published.
            if let Err(error) = self.store.close_unless_used(id) {
                let (user, tree) = (id.user(), id.sandbox_path());
                tracing::warn!(
                    %error, %user, tree,
                    "failed to drop a promoted overlay: the next change settles it"
                );
            }
            drop(alone);
        }
        if scope == Scope::Baseline {
            self.number(agent, &mut published);
        }
        let leftovers = self.left_over(agent, &changes, committed.finish(), &detached);
        Ok(Publication { skills: published, leftovers })
    }

    /// Puts one tree of a publication in its place, under its locks.
    fn apply<'a>(
        &'a self,
        over: &Over<'a>,
        agent: &AgentId,
        change: &Change,
        committed: &Committed,
        index: usize,
        applied: &mut Applied<'a>,
    ) -> Result<()> {
        let apply = || committed.apply(self.store.root(), index);
        match change {
            Change::Baseline(skill, version) => {
                // The job can be interrupted while it waits for the readers of the first skill. Once that is in its
                // place, the others follow.
                let checked = || {
                    let current = self.check_current(over, agent, skill)?;
                    interrupt::commit().map(|()| current)
                };
                let Some(promoting) = &over.promoting else {
                    let _alone = self.store.locks().write_baseline(agent, skill)?;
                    let current = checked()?;
                    // A caller who sent it twice waited here for the first: one publication, one number.
                    if self.has_published(agent, skill, current.as_ref(), version, false)? {
                        applied.unchanged.push(skill.clone());
                        return Ok(());
                    }
                    let placed = apply();
                    self.store.tell_views(agent, skill);
                    self.log_or_warn(agent, skill);
                    return placed;
                };
                let (alone, tree) = self.store.locks().write_baseline_and(agent, skill, promoting.id)?;
                checked()?;
                let promoted = self.promoting(promoting, version, agent, skill, apply);
                self.log_or_warn(agent, skill);
                applied.promoter = Some((TreeWrite::after(alone, tree), promoting.id));
                promoted
            }
            Change::Staged(skill, version) => {
                let _alone = self.store.locks().write_baseline(agent, skill)?;
                let current = self.check_current(over, agent, skill)?;
                interrupt::commit()?;
                if self.has_published(agent, skill, current.as_ref(), version, true)? {
                    applied.unchanged.push(skill.clone());
                    return Ok(());
                }
                let placed = apply();
                self.log_or_warn(agent, skill);
                placed
            }
            Change::Overlay(tree) => {
                let _alone = self.store.locks().write(tree);
                self.check_seen(over.options.presence, tree)?;
                let placed = apply();
                if placed.is_ok() {
                    self.store.accounts().forget(tree);
                }
                // Also after a failure: the replacement may have been done before it.
                applied.detached.extend(self.store.detach_view(tree));
                placed
            }
            // No view is detached for it: one that was made meanwhile is of the new directory, which would be
            // mounted a second time.
            Change::Base(tree) => {
                let _alone = self.store.locks().write(tree);
                apply()
            }
        }
    }

    /// What is to be removed after a publication: the trees that it replaced and versions that are too many. A tree that is
    /// still mounted stays until it is not.
    fn left_over(
        &self,
        agent: &AgentId,
        changes: &[Change],
        replaced: Vec<Trash>,
        detached: &[ViewLease],
    ) -> Leftovers {
        let mut leftovers = Leftovers::default();
        let baselines = || {
            changes.iter().filter_map(|change| match change {
                Change::Baseline(skill, _) | Change::Staged(skill, _) => Some(skill),
                Change::Overlay(_) | Change::Base(_) => None,
            })
        };
        for trash in replaced.into_iter().map(Arc::new) {
            detached.iter().for_each(|lease| lease.keep(Arc::clone(&trash)));
            baselines().for_each(|skill| self.store.keep_for_views(agent, skill, &trash));
            leftovers.trash.push(trash);
        }
        for skill in baselines() {
            leftovers.trash.extend(self.collect_versions_or_warn(agent, skill));
        }
        leftovers
    }

    /// Gives what was published its number. A failure here is no failure of the publication: the log tells the number later.
    fn number(&self, agent: &AgentId, published: &mut [Published]) {
        for one in published {
            match self.versions(agent, &one.skill) {
                Ok(versions) => {
                    let kept = versions.versions.into_iter().find(|kept| kept.version == one.version);
                    one.number = kept.map(|kept| kept.number);
                }
                Err(error) => tracing::debug!(%error, %agent, skill = %one.skill, "no number is told"),
            }
        }
    }

    /// Writes down what was published, under its number. A failure is no failure of the publication, which its attributes
    /// tell: the next change of the skill writes it. The caller holds the skill alone.
    fn log_or_warn(&self, agent: &AgentId, skill: &SkillId) {
        let logged = self.there(agent, skill).and_then(|there| self.complete_log(agent, skill, &there));
        if let Err(error) = logged {
            tracing::warn!(
                %error, %agent, %skill,
                "failed to write down a publication: the next change of the skill writes it"
            );
        }
    }

    /// Applies the publication of what the tree `promoting` holds, and notes what the tree became: by that note the overlay is
    /// settled, now or when the last command has left it. The caller holds baseline and tree alone.
    fn promoting(
        &self,
        promoting: &Promoting<'_>,
        promoted: &Version,
        agent: &AgentId,
        skill: &SkillId,
        apply: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let promoted = promoted.clone();
        let id = promoting.id;
        let over = promoting.merged_with.take();
        // The runs in the view now see the version that is mounted there.
        let mounted = match self.store.seat(id) {
            Some(seat) => seat.lower().map(version::of).transpose()?,
            None => over.clone(),
        };
        let word =
            |version: &Option<Version>| version.clone().map_or_else(|| NO_BASE.to_owned(), String::from);
        let (from, to) = (word(&over), promoted.as_str().to_owned());
        self.store.record_promotion(id, &Promotion { promoted, over, mounted })?;
        let is_mounted = self.store.views().is_some_and(|views| views.settle_later(id));
        let applied = apply();
        if applied.is_err() {
            self.store.forget_promotion(id)?;
            return applied;
        }
        tracing::debug!(is_mounted, "a skill was promoted by its user");
        self.store.occupancy().note_promotion(id, &from, &to);
        self.store.tell_views(agent, skill);
        Ok(())
    }

    /// Refuses to take the place of another version than the one that is expected, and returns the current one. The caller holds
    /// the skill.
    fn check_current(&self, over: &Over<'_>, agent: &AgentId, skill: &SkillId) -> Result<Option<Version>> {
        let current = self.store.baseline_version(agent, skill)?;
        over.options.presence.check(skill, current.is_some())?;
        match over.expected {
            Some(expected) if current != *expected => Err(Error::Conflict(format!(
                "`{skill}` was published by another caller meanwhile: look at that version first"
            ))),
            _ => Ok(current),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::io::Write;

    use super::*;
    use crate::core::options::Options;
    use crate::core::store::Store;
    use crate::dir::trace;
    use crate::layers::durability::Durability;

    /// The renames and synchronisations when the skill `s` is published, for all and for one user.
    fn order(durability: Durability) -> [Vec<String>; 2] {
        let temp = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(temp.path(), Options { durability, ..Options::default() }).unwrap();
        let (user, agent) = (UserId::parse("u").unwrap(), AgentId::parse("a").unwrap());
        let fill = &mut |_: &SkillId, dir: &Dir| {
            dir.create_file(OsStr::new("f"), 0o644)?.write_all(b"1").unwrap();
            Ok(None)
        };
        [Scope::Baseline, Scope::Overlay].map(|scope| {
            drop(trace::taken());
            let publication =
                store.skills().publish(scope, &user, &agent, &[SkillId::parse("s").unwrap()], fill).unwrap();
            let done = trace::taken();
            drop(publication);
            // Files that come out of the stage have another name each time: the record, and the log at the end.
            let is_file = |step: &str| step.strip_prefix("rename ").is_some_and(|name| name.len() > 1);
            done.into_iter().map(|step| if is_file(&step) { "file".to_owned() } else { step }).collect()
        })
    }

    #[test]
    fn what_is_published_is_on_the_disk_before_it_takes_its_place_unless_nobody_needs_it() {
        for durability in [Durability::Strict, Durability::Relaxed] {
            let [of_all, of_user] = order(durability);
            assert_eq!(of_all, ["syncfs", "file", "rename s", "file"], "{durability:?}");
            assert_eq!(of_user, ["syncfs", "file", "rename s", "rename u"], "{durability:?}");
        }
        assert_eq!(order(Durability::Never)[0], ["file", "rename s", "file"]);
    }

    #[test]
    fn a_publication_that_waited_too_long_for_a_reader_is_refused_whole_and_stays_refused() {
        let temp = tempfile::tempdir().unwrap();
        let (user, agent) = (UserId::parse("u").unwrap(), AgentId::parse("a").unwrap());
        let skills = ["s", "t"].map(|skill| SkillId::parse(skill).unwrap());
        let fill = &mut |_: &SkillId, dir: &Dir| {
            dir.create_file(OsStr::new("f"), 0o644)?.write_all(b"1").unwrap();
            Ok(None)
        };
        {
            let (store, _) = Store::open(temp.path(), Options::default()).unwrap();
            let tree = TreeId::Skill(user.clone(), agent.clone(), skills[0].clone());
            let reading = store.locks().read(&tree);
            let job = interrupt::Interrupt::after(std::time::Duration::ZERO);
            let refused = std::thread::scope(|scope| {
                let publish =
                    || job.enter(|| store.skills().publish(Scope::Baseline, &user, &agent, &skills, fill));
                scope.spawn(publish).join().unwrap()
            });
            assert!(matches!(refused, Err(Error::TooLong { .. })), "{:?}", refused.map(|_| ()));
            drop(reading);
        }
        // Nor does a start place it late.
        let (store, _) = Store::open(temp.path(), Options::default()).unwrap();
        for skill in &skills {
            assert!(store.baseline_version(&agent, skill).unwrap().is_none(), "{skill}");
        }
        assert!(store.skills().publish(Scope::Baseline, &user, &agent, &skills, fill).is_ok());
    }

    /// Publishes `s` and then `t`, with `meanwhile` done between: when `s` has been built and does not have its place yet.
    fn publish_around(
        store: &Store,
        presence: Presence,
        scope: Scope,
        meanwhile: impl Fn(&Store),
    ) -> Result<Vec<Published>> {
        let (user, agent) = (UserId::parse("u").unwrap(), AgentId::parse("a").unwrap());
        let skills = ["s", "t"].map(|skill| SkillId::parse(skill).unwrap());
        let fill = &mut |skill: &SkillId, dir: &Dir| {
            dir.create_file(OsStr::new("f"), 0o644)?.write_all(b"1").unwrap();
            if skill.as_str() == "t" {
                meanwhile(store);
            }
            Ok(None)
        };
        let options = PublishOptions { by: "u", note: &VersionNote::default(), is_staged: false, presence };
        let published = store.skills().publish_with(&options, scope, &user, &agent, &skills, fill)?;
        Ok(published.skills)
    }

    fn publish_s(store: &Store, scope: Scope, text: &str) {
        let (user, agent) = (UserId::parse("u").unwrap(), AgentId::parse("a").unwrap());
        let fill = &mut |_: &SkillId, dir: &Dir| {
            dir.create_file(OsStr::new("f"), 0o644)?.write_all(text.as_bytes()).unwrap();
            Ok(None)
        };
        drop(store.skills().publish(scope, &user, &agent, &[SkillId::parse("s").unwrap()], fill).unwrap());
    }

    #[test]
    fn what_a_layer_must_have_is_looked_at_when_the_skill_takes_its_place() {
        let (user, agent) = (UserId::parse("u").unwrap(), AgentId::parse("a").unwrap());
        let s = SkillId::parse("s").unwrap();
        for scope in [Scope::Baseline, Scope::Overlay] {
            let temp = tempfile::tempdir().unwrap();
            let (store, _) = Store::open(temp.path(), Options::default()).unwrap();
            let made = |store: &Store| publish_s(store, scope, "2");
            let refused = publish_around(&store, Presence::Absent, scope, made);
            assert!(matches!(refused, Err(Error::AlreadyExists(_))), "{scope:?} {refused:?}");
            let removed = |store: &Store| match scope {
                Scope::Baseline => store.skills().remove_baseline(&agent, &s).unwrap(),
                Scope::Overlay => {
                    let tree = TreeId::Skill(user.clone(), agent.clone(), s.clone());
                    store.skills().remove_for_user(&tree).unwrap();
                }
            };
            let refused = publish_around(&store, Presence::Present, scope, removed);
            assert!(matches!(refused, Err(Error::NotFound(_))), "{scope:?} {refused:?}");
            assert!(!store.skills().has(scope, &user, &agent, &s).unwrap(), "{scope:?}");
        }
    }

    #[test]
    fn what_another_caller_published_meanwhile_is_not_published_again() {
        let temp = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(temp.path(), Options::default()).unwrap();
        let published = publish_around(&store, Presence::Any, Scope::Baseline, |store| {
            publish_s(store, Scope::Baseline, "1");
        });
        let told: Vec<_> = published.unwrap().iter().map(|one| (one.unchanged, one.number)).collect();
        assert_eq!(told, [(true, Some(1)), (false, Some(1))]);
        let (agent, s) = (AgentId::parse("a").unwrap(), SkillId::parse("s").unwrap());
        assert_eq!(store.skills().versions(&agent, &s).unwrap().log.len(), 1);
    }
}
