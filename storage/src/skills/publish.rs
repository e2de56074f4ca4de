//! Publishing whole skills: uploads, and the removal of what was uploaded.

use std::cell::Cell;
use std::ffi::OsStr;
use std::io::Write;
use std::sync::Arc;

use policy::{AgentId, Scope, SkillId, TreeId, UserId};

use crate::core::lock::TreeWrite;
use crate::core::store::Store;
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::layers::destination::Destination;
use crate::layers::journal::Transaction;
use crate::layers::stack::Layers;
use crate::layers::trash::{Leftovers, Trash};
use crate::layers::whiteouts::OPAQUE;
use crate::layout;
use crate::skills::base::{NO_BASE, Promotion};
use crate::skills::provenance::Provenance;
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
}

/// A publication that is done.
pub struct Publication {
    /// Every skill, in the order asked for.
    pub skills: Vec<Published>,
    /// The replaced trees that are not kept.
    pub leftovers: Leftovers,
}

/// The state that a publication replaces.
#[derive(Default)]
pub(crate) struct Over<'a> {
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

/// The tree that one step of a publication changes, and so the lock it takes.
enum Change {
    Baseline(SkillId),
    Overlay(TreeId),
    /// The record of what an overlay began with; its directory stays as it is.
    Base(TreeId),
}

impl Store {
    /// Publishes skills: all of them, or nothing.
    ///
    /// `fill` writes one skill into an empty directory and tells what it wrote when it knows it; else the directory is
    /// read again. That `user` published it is written down with it. When `fill` fails, nothing has changed. A baseline
    /// skill takes the place of the former version, which is kept. An overlay skill replaces the user's former one and
    /// hides everything of the baseline skill of that name.
    ///
    /// # Errors
    /// The error of `fill`; [`Error::Quota`] for an overlay that is larger than it may be; [`Error::Full`],
    /// [`Error::NoSpace`], [`Error::Io`].
    pub fn publish(
        &self,
        scope: Scope,
        user: &UserId,
        agent: &AgentId,
        skills: &[SkillId],
        fill: &mut dyn FnMut(&SkillId, &Dir) -> Result<Option<Contents>>,
    ) -> Result<Publication> {
        self.publish_over(&Over::default(), scope, user, agent, skills, fill)
    }

    /// The same, over what `over` says.
    ///
    /// # Errors
    /// As [`Store::publish`]; [`Error::Conflict`] when another publication came between. Then nothing has changed.
    pub(crate) fn publish_over(
        &self,
        over: &Over<'_>,
        scope: Scope,
        user: &UserId,
        agent: &AgentId,
        skills: &[SkillId],
        fill: &mut dyn FnMut(&SkillId, &Dir) -> Result<Option<Contents>>,
    ) -> Result<Publication> {
        self.admit_space()?;
        let mut transaction = Transaction::begin_publication(&self.inner.stage)?;
        let mut published = Vec::new();
        let mut changes = Vec::new();
        for skill in skills {
            let item = transaction.next_name();
            let dir = transaction.dir().create_dir(&item, 0o755)?;
            if scope == Scope::Overlay {
                self.inner.stage.projects().begin(&dir, None);
            }
            let contents = match fill(skill, &dir)? {
                Some(contents) => contents,
                None => version::contents(&dir)?,
            };
            let provenance = Provenance::now(user, &contents);
            let version = contents.version;
            let (replaced, unchanged);
            match scope {
                Scope::Baseline => {
                    version::set_label(&dir, &version)?;
                    provenance.mark(&dir)?;
                    let current = self.baseline_version(agent, skill)?;
                    (replaced, unchanged) = (current.is_some(), current.as_ref() == Some(&version));
                    if unchanged {
                        transaction.dir().remove_tree(&item)?;
                    } else {
                        let to = Destination::Baseline { agent: agent.clone(), skill: skill.clone() };
                        transaction.place(to)?;
                        changes.push(Change::Baseline(skill.clone()));
                    }
                }
                Scope::Overlay => {
                    dir.set_attribute(OPAQUE, b"y")?;
                    replaced = self.overlay_has(user, agent, skill)?;
                    unchanged = false;
                    let tree = TreeId::Skill(user.clone(), agent.clone(), skill.clone());
                    let mut counter = self.counter();
                    counter.tree(&dir)?;
                    self.admit_whole(&tree, counter.end().taken)?;
                    transaction.place(Destination::overlay(&tree)?)?;
                    changes.push(Change::Overlay(tree.clone()));
                    let mut base = transaction.dir().create_file(&transaction.next_name(), 0o600)?;
                    let line = provenance.describing(dir, skill)?.line();
                    base.write_all(format!("{}\n{line}", self.base_text(agent, skill)?).as_bytes())
                        .map_err(|error| Error::from_io("write", "base", error))?;
                    transaction.place(Destination::base(&tree)?)?;
                    changes.push(Change::Base(tree));
                }
            }
            published.push(Published { skill: skill.clone(), version, replaced, unchanged });
        }
        let mut leftovers = Leftovers::default();
        if changes.is_empty() {
            return Ok(Publication { skills: published, leftovers });
        }
        self.admit_space()?;
        let committed = transaction.commit(&self.inner.root)?;
        let mut seats = Vec::new();
        let mut promoter = None;
        for (index, change) in changes.iter().enumerate() {
            let applied = match change {
                Change::Baseline(skill) => {
                    let apply = || committed.apply(&self.inner.root, index);
                    // The job can be interrupted while it waits for the readers of the first skill. Once that is in its
                    // place, the others follow.
                    let checked = || {
                        self.check_current(over.expected, agent, skill)?;
                        interrupt::commit()
                    };
                    match &over.promoting {
                        Some(promoting) => {
                            let held = self.inner.locks.write_baseline_and(agent, skill, promoting.id);
                            held.and_then(|(alone, tree)| {
                                checked()?;
                                let version = published.first().map(|published| &published.version);
                                let applied = self.promoting(promoting, version, agent, skill, apply);
                                promoter = Some((TreeWrite::after(alone, tree), promoting.id));
                                applied
                            })
                        }
                        None => self.inner.locks.write_baseline(agent, skill).and_then(|_alone| {
                            let applied = checked().and_then(|()| apply());
                            self.tell_views(agent, skill);
                            applied
                        }),
                    }
                }
                Change::Overlay(tree) => {
                    let _alone = self.inner.locks.write(tree);
                    let applied = committed.apply(&self.inner.root, index);
                    if applied.is_ok() {
                        self.inner.accounts.forget(tree);
                    }
                    // Also after a failure: the replacement may have been done before it.
                    seats.extend(self.detach_view(tree));
                    applied
                }
                // No view is detached for it: one that was made meanwhile is of the new directory, which would be
                // mounted a second time.
                Change::Base(tree) => {
                    let _alone = self.inner.locks.write(tree);
                    committed.apply(&self.inner.root, index)
                }
            };
            if let Err(error) = applied {
                if index == 0 {
                    // Nothing is placed yet: forget it, so that the next start does not place it late.
                    drop(committed.finish());
                }
                return Err(error);
            }
        }
        if let Some((alone, id)) = promoter {
            // Its changes belong to all users now. A step that fails is settled later: the changes are published.
            if let Err(error) = self.close_unless_used(id) {
                let (user, tree) = (id.user(), id.sandbox_path());
                tracing::warn!(
                    %error, %user, tree,
                    "failed to drop a promoted overlay: the next change settles it"
                );
            }
            drop(alone);
        }
        for trash in committed.finish().into_iter().map(Arc::new) {
            // A former version that is still mounted stays until it is not.
            seats.iter().for_each(|seat| seat.keep(Arc::clone(&trash)));
            for change in &changes {
                if let Change::Baseline(skill) = change {
                    self.keep_for_views(agent, skill, &trash);
                }
            }
            leftovers.trash.push(trash);
        }
        for change in &changes {
            if let Change::Baseline(skill) = change {
                leftovers.trash.extend(self.collect_versions_or_warn(agent, skill));
            }
        }
        Ok(Publication { skills: published, leftovers })
    }

    /// Applies the publication of what the tree `promoting` holds, and notes what the tree became: by that note the overlay is
    /// settled, now or when the last command has left it. The caller holds baseline and tree alone.
    fn promoting(
        &self,
        promoting: &Promoting<'_>,
        version: Option<&Version>,
        agent: &AgentId,
        skill: &SkillId,
        apply: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let Some(promoted) = version.cloned() else { return apply() };
        let id = promoting.id;
        let over = promoting.merged_with.take();
        // The runs in the view now see the version that is mounted there.
        let mounted = match self.seat(id) {
            Some(seat) => seat.lower().map(version::of).transpose()?,
            None => over.clone(),
        };
        let word =
            |version: &Option<Version>| version.clone().map_or_else(|| NO_BASE.to_owned(), String::from);
        let (from, to) = (word(&over), promoted.as_str().to_owned());
        self.record_promotion(id, &Promotion { promoted, over, mounted })?;
        let is_mounted = self.views().is_some_and(|views| views.settle_later(id));
        let applied = apply();
        if applied.is_err() {
            self.forget_promotion(id)?;
            return applied;
        }
        tracing::debug!(is_mounted, "a skill was promoted by its user");
        self.note_promotion(id, &from, &to);
        self.tell_views(agent, skill);
        Ok(())
    }

    /// Refuses to take the place of another version than the one that is expected. The caller holds the skill.
    fn check_current(&self, over: Option<&Option<Version>>, agent: &AgentId, skill: &SkillId) -> Result<()> {
        match over {
            Some(expected) if self.baseline_version(agent, skill)? != *expected => Err(Error::Conflict(
                format!("`{skill}` was published by another caller meanwhile: look at that version first"),
            )),
            _ => Ok(()),
        }
    }

    /// Collects former versions after a change that is done: a failure here is no failure of the change.
    fn collect_versions_or_warn(&self, agent: &AgentId, skill: &SkillId) -> Vec<Arc<Trash>> {
        let collected = self.collect_versions(agent, skill).unwrap_or_else(|error| {
            tracing::warn!(
                %error, %agent, %skill,
                "failed to remove former versions: they stay until the next publication"
            );
            Vec::new()
        });
        collected.into_iter().map(Arc::new).collect()
    }

    fn overlay_has(&self, user: &UserId, agent: &AgentId, skill: &SkillId) -> Result<bool> {
        if self.is_only_mounted(&TreeId::Skill(user.clone(), agent.clone(), skill.clone()))? {
            return Ok(false);
        }
        match self.inner.root.open_dir(&layout::overlay(user, agent)?) {
            Ok(dir) => {
                Ok(dir.stat_entry(OsStr::new(skill.as_str()))?.is_some_and(|stat| !stat.is_whiteout()))
            }
            Err(Error::NotFound(_)) => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// Removes the application's version of a skill. Overlays that began with it keep it as their base.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the baseline has no such skill.
    pub fn remove_baseline(&self, agent: &AgentId, skill: &SkillId) -> Result<()> {
        let name = OsStr::new(skill.as_str());
        let trash = {
            let _alone = self.inner.locks.write_baseline(agent, skill)?;
            let Some(version) = self.baseline_version(agent, skill)? else {
                return Err(Error::NotFound(skill.to_string()));
            };
            let baseline = self.inner.root.open_dir(&layout::baseline(agent)?)?;
            let versions =
                self.inner.stage.ensure_path(&self.inner.root, &layout::versions(agent, skill)?)?;
            let trash = match baseline.rename_new(name, &versions, OsStr::new(version.as_str())) {
                // The same content is kept already.
                Err(Error::AlreadyExists(_)) => Some(self.inner.stage.discard(&baseline, name, None)?),
                moved => moved.map(|()| None)?,
            };
            self.tell_views(agent, skill);
            let trash = trash.map(Arc::new);
            if let Some(trash) = &trash {
                self.keep_for_views(agent, skill, trash);
            }
            if self.is_strict() {
                versions.sync()?;
                baseline.sync()?;
            }
            trash
        };
        drop(trash);
        drop(self.collect_versions_or_warn(agent, skill));
        Ok(())
    }

    /// Removes a skill for one user: the user's own goes, one of the baseline is hidden. Others see no change.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the user has no such skill.
    pub fn remove_for_user(&self, id: &TreeId) -> Result<()> {
        let TreeId::Skill(user, agent, skill) = id else {
            return Err(Error::NotFound(id.sandbox_path()));
        };
        let name = OsStr::new(skill.as_str());
        let place = layout::overlay(user, agent)?;
        let trash = {
            let _alone = self.inner.locks.write(id);
            let layers = Layers::open(&self.inner.root, &place, &layout::baseline(agent)?)?;
            if layers.lookup(name)?.is_none() {
                return Err(Error::NotFound(skill.to_string()));
            }
            let in_lower = layers.lower_stat(name)?.is_some();
            let upper = self.inner.stage.ensure_path(&self.inner.root, &place)?;
            let trash = crate::layers::union::hide(&self.inner.stage, id, &upper, name, in_lower)?;
            let trash = self.discard_mounted(id, trash);
            // After the deed: had the service died between, an overlay would stand on a base it did not begin with.
            if in_lower {
                self.record_base(id)?;
            } else {
                self.forget_base(id)?;
            }
            if self.is_strict() {
                upper.sync()?;
            }
            trash
        };
        drop(trash);
        Ok(())
    }

    /// Lets what was an overlay be removed: now, or when the view of it has gone. The caller holds the tree alone.
    fn discard_mounted(&self, id: &TreeId, trash: Option<Trash>) -> Option<Arc<Trash>> {
        let trash = trash.map(Arc::new);
        self.inner.accounts.forget(id);
        if let (Some(seat), Some(trash)) = (self.detach_view(id), &trash) {
            seat.keep(Arc::clone(trash));
        }
        trash
    }

    /// Drops a user's changes of a skill, deletions included: the baseline shows again. Tells whether there were
    /// any.
    ///
    /// # Errors
    /// [`Error::NotFound`] when neither layer has anything of the skill.
    pub fn reset(&self, id: &TreeId) -> Result<bool> {
        let trash = {
            let _alone = self.inner.locks.write(id);
            self.reset_held(id)?
        };
        Ok(trash.is_some())
    }

    /// As [`Store::reset`]; what is to be removed afterwards, if anything. The caller holds the tree alone.
    pub(crate) fn reset_held(&self, id: &TreeId) -> Result<Option<Arc<Trash>>> {
        let TreeId::Skill(user, agent, skill) = id else {
            return Err(Error::NotFound(id.sandbox_path()));
        };
        let name = OsStr::new(skill.as_str());
        if self.is_only_mounted(id)? {
            return Ok(None);
        }
        let upper = match self.inner.root.open_dir(&layout::overlay(user, agent)?) {
            Ok(upper) if upper.stat_entry(name)?.is_some() => upper,
            Ok(_) | Err(Error::NotFound(_)) => {
                return match self.baseline_dir(agent, skill)? {
                    Some(_) => Ok(None),
                    None => Err(Error::NotFound(skill.to_string())),
                };
            }
            Err(other) => return Err(other),
        };
        let trash = self.inner.stage.discard(&upper, name, Some(id))?;
        let trash = self.discard_mounted(id, Some(trash));
        self.forget_base(id)?;
        if self.is_strict() {
            upper.sync()?;
        }
        Ok(trash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::store::Options;
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
                store.publish(scope, &user, &agent, &[SkillId::parse("s").unwrap()], fill).unwrap();
            let done = trace::taken();
            drop(publication);
            // The record has the name of what is staged, another each time.
            let is_record = |step: &str| step.strip_prefix("rename ").is_some_and(|name| name.len() > 1);
            done.into_iter().map(|step| if is_record(&step) { "record".to_owned() } else { step }).collect()
        })
    }

    #[test]
    fn what_is_published_is_on_the_disk_before_it_takes_its_place_unless_nobody_needs_it() {
        for durability in [Durability::Strict, Durability::Relaxed] {
            let [of_all, of_user] = order(durability);
            assert_eq!(of_all, ["syncfs", "record", "rename s"], "{durability:?}");
            assert_eq!(of_user, ["syncfs", "record", "rename s", "rename u"], "{durability:?}");
        }
        assert_eq!(order(Durability::Never)[0], ["record", "rename s"]);
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
            let reading = store.inner.locks.read(&tree);
            let job = interrupt::Interrupt::after(std::time::Duration::ZERO);
            let refused = std::thread::scope(|scope| {
                let publish = || job.enter(|| store.publish(Scope::Baseline, &user, &agent, &skills, fill));
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
        assert!(store.publish(Scope::Baseline, &user, &agent, &skills, fill).is_ok());
    }
}
