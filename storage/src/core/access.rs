//! Which way a tree is read and changed at the moment, and making its view.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use policy::{AgentId, RelPath, SkillId, TreeId, UserId};

use crate::core::store::{Inner, Store};
use crate::core::views::{Tidy, Views};
use crate::error::{Error, Result};
use crate::layers::live::Live;
use crate::layers::names::TEMPORARY_PREFIX;
use crate::layers::plain::Plain;
use crate::layers::stack::{Found, Layers};
use crate::layers::trash::Trash;
use crate::layers::tree::Tree;
use crate::layers::view::workplace::Workplace;
use crate::layers::view::{Making, View, ViewLease};
use crate::layers::whiteouts::is_opaque;
use crate::layout;

/// Entries of an upper directory that are looked at for temporary names of a former service. A command may put any
/// number there.
const LEFT_OVER_MAX: usize = 100_000;

impl Tidy for Inner {
    fn tidy(self: Arc<Self>, id: &TreeId) -> bool {
        Store { inner: self }.tidy_overlay(id)
    }
}

impl Store {
    /// Tells whether commands get live views, or in words why not.
    ///
    /// # Errors
    /// The reason, without paths of the host.
    pub fn live(&self) -> Result<(), &str> {
        self.inner.live.as_ref().map(drop).map_err(String::as_str)
    }

    /// Closes every live view that no command is in, and waits for that.
    ///
    /// An orderly stop does so; else the next start tidies.
    ///
    /// # Errors
    /// [`Error::Conflict`] when it takes too long; [`Error::Io`].
    pub fn close_views(&self) -> Result<()> {
        let Some(views) = self.views() else { return Ok(()) };
        drop(self.inner.points.clear());
        let ids = views.retire_idle()?;
        for id in ids {
            let _alone = self.inner.locks.write(&id);
            self.tidy_held(&id)?;
        }
        Ok(())
    }

    /// Tells whether a publication waits until a skill is read no longer. A request that is about to read it for long
    /// waits first, or the publication might never have its turn.
    #[must_use]
    pub fn awaits_publication(&self, id: &TreeId) -> bool {
        self.inner.locks.awaits_publication(id)
    }

    pub(crate) fn views(&self) -> Option<&Views> {
        self.inner.live.as_ref().ok()
    }

    /// A seat in the view of `id`, if it has one.
    pub(crate) fn seat(&self, id: &TreeId) -> Option<ViewLease> {
        self.views()?.sit(id)
    }

    /// The skill `id` as it is to be changed. The caller holds the tree alone.
    ///
    /// Without a view, an overlay that the first change makes begins with `base`, else with the current baseline.
    ///
    /// # Errors
    /// [`Error::Conflict`] when a view takes too long to go.
    pub(crate) fn changing(
        &self,
        user: &UserId,
        agent: &AgentId,
        skill: &SkillId,
        base: Option<String>,
    ) -> Result<Box<dyn Tree>> {
        let mut union = self.union(user, agent, skill, base)?;
        let Some(views) = self.views() else { return Ok(Box::new(union)) };
        let id = TreeId::Skill(user.clone(), agent.clone(), skill.clone());
        let Some(seat) = views.sit(&id) else {
            self.settle_held(&id)?;
            return Ok(Box::new(union));
        };
        let mounted = Plain {
            stage: self.inner.stage.clone(),
            id: id.clone(),
            dir: seat.root()?,
            owner: self.owner(&id),
        };
        // The layers that the mount merges, even when the baseline is another by now.
        union.seat = Some(seat);
        Ok(Box::new(Live::new(mounted, union)))
    }

    /// Takes a seat in the view of `id`, which is made when there is none.
    ///
    /// A run that begins while another is in a view with an older version of the baseline joins it.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the user has no such skill; [`Error::Unsupported`] without live views;
    /// [`Error::NoSpace`]; [`Error::Io`] when the kernel refuses to mount.
    pub(crate) fn enter(&self, id: &TreeId) -> Result<ViewLease> {
        let views = self.inner.live.as_ref().map_err(|reason| Error::Unsupported(reason.clone()))?;
        if let Some(seat) = views.sit(id) {
            return Ok(seat);
        }
        let _alone = self.inner.locks.write(id);
        if let Some(seat) = views.sit(id) {
            return Ok(seat);
        }
        self.settle_held(id)?;
        match self.mount(views, id) {
            Ok(view) => Ok(views.insert(view)),
            Err(error) => {
                self.tidy_held(id)?;
                Err(error)
            }
        }
    }

    fn mount(&self, views: &Views, id: &TreeId) -> Result<View> {
        let TreeId::Skill(user, agent, skill) = id else {
            return Err(Error::NotFound(id.sandbox_path()));
        };
        let name = OsStr::new(skill.as_str());
        let (overlay, baseline) = (layout::overlay(user, agent)?, layout::baseline(agent)?);
        let found = Layers::open(&self.inner.root, &overlay, &baseline)?.lookup(name)?;
        let Some(Found::Directory(Layers { upper, lower }, stat, _)) = found else {
            return Err(Error::NotFound(skill.to_string()));
        };
        let is_opaque = upper.as_ref().map(is_opaque).transpose()?.unwrap_or(false);
        if upper.is_none() {
            self.record_base(id)?;
            let above = self.inner.stage.ensure_path(&self.inner.root, &overlay)?;
            let made = above.create_dir(name, stat.mode)?;
            self.inner.stage.projects().begin(&made, None);
            if self.is_strict() {
                above.sync()?;
            }
        } else if let Some(upper) = &upper {
            self.mark_overlay(id, upper);
        }
        let upper = overlay.join(skill.as_str())?;
        // No whiteout hides less than before as long as the same directory lies below.
        let below = match &lower {
            Some(lower) => Some(lower.stat()?),
            None => self.inner.root.open_dir(&baseline).and_then(|baseline| baseline.stat()).ok(),
        };
        let below = below.map(|stat| (stat.inode, stat.changed_ns)).unwrap_or_default();
        let whiteouts_among = match views.is_without_stale_whiteouts(id, below) {
            true => 0,
            false => self.inner.options.files.tree_entries,
        };
        let lower = lower.map(|dir| Ok::<_, Error>((baseline.join(skill.as_str())?, dir))).transpose()?;
        let swap = views.options.swap.as_deref();
        let view = View::new(Making {
            id: id.clone(),
            root: &self.inner.root,
            workplace: Workplace::new(&self.inner.root, self.inner.stage.fresh_name(), &upper)?,
            upper,
            lower,
            is_opaque,
            whiteouts_among,
            owner: self.owner(id).and_then(|owner| Some((swap?, owner))),
            holding: views.holding,
            durability: self.inner.options.durability,
            projects: self.inner.stage.projects(),
        })?;
        if !view.has_shadow {
            views.note_no_stale_whiteouts(id, below);
        }
        Ok(view)
    }

    /// Takes the view of `id` out of its door if its upper directory was replaced. The runs in it stay, and so does the
    /// replaced directory, kept with the lease. The caller holds the tree alone, since before the replacement.
    pub(crate) fn detach_view(&self, id: &TreeId) -> Option<ViewLease> {
        let views = self.views()?;
        let TreeId::Skill(user, agent, skill) = id else { return None };
        let overlays = layout::overlay(user, agent).and_then(|place| self.inner.root.open_dir(&place));
        let upper = overlays.and_then(|dir| dir.stat_entry(OsStr::new(skill.as_str()))).ok().flatten();
        views.detach(id, upper.map(|stat| stat.inode))
    }

    /// Lets what was an overlay be removed: now, or when the view of it has gone. The caller holds the tree alone.
    pub(crate) fn discard_mounted(&self, id: &TreeId, trash: Option<Trash>) -> Option<Arc<Trash>> {
        let trash = trash.map(Arc::new);
        self.inner.accounts.forget(id);
        self.inner.copies.forget(id);
        if let (Some(seat), Some(trash)) = (self.detach_view(id), &trash) {
            seat.keep(Arc::clone(trash));
        }
        trash
    }

    /// Tells the views of a skill that its baseline may be another version now. The caller holds the baseline alone.
    pub(crate) fn tell_views(&self, agent: &AgentId, skill: &SkillId) {
        let Some(views) = self.views() else { return };
        // A baseline that cannot be looked at is none of the mounted versions: every view goes as soon as it can.
        let current = self.baseline_dir(agent, skill).ok().flatten();
        let inode = current.and_then(|dir| dir.stat().ok()).map(|stat| stat.inode);
        views.baseline_is(agent, skill, inode);
    }

    /// Lets a former baseline of a skill that is being removed stay until no view has it any more.
    pub(crate) fn keep_for_views(&self, agent: &AgentId, skill: &SkillId, trash: &Arc<Trash>) {
        if let Some(views) = self.views() {
            views.keep_lower(agent, skill, trash);
        }
    }

    /// Waits until `id` has no view, closing one that is to be settled. The caller holds the tree alone and has found
    /// that no run can take a seat.
    fn settle_held(&self, id: &TreeId) -> Result<()> {
        let Some(views) = self.views() else { return Ok(()) };
        if !views.is_live(id) {
            return views.wait_until_gone(id);
        }
        self.close_unless_used(id).map(drop)
    }

    /// Closes the view of `id` unless a command, or a file on its way, is in it, which it tells. What its user published is
    /// settled then. The caller holds the tree alone and no seat in it.
    ///
    /// # Errors
    /// [`Error::Conflict`] when a view that is going already takes too long; [`Error::Io`].
    pub(crate) fn close_unless_used(&self, id: &TreeId) -> Result<bool> {
        if let Some(views) = self.views()
            && views.close_idle(id)?
        {
            return Ok(true);
        }
        self.settle_published(id)?;
        Ok(false)
    }

    /// Has the floor of skills settle what the user of `id` published. The caller holds the tree alone, which has no view.
    fn settle_published(&self, id: &TreeId) -> Result<()> {
        (self.inner.settle)(self, id)
    }

    /// Removes the overlay of a skill that holds nothing, unless the tree is in use. Tells whether that is settled.
    pub(super) fn tidy_overlay(&self, id: &TreeId) -> bool {
        let Some(_alone) = self.inner.locks.try_write(id) else { return false };
        if let Err(error) = self.tidy_held(id) {
            tracing::warn!(%error, "failed to tidy an overlay after its view");
        }
        true
    }

    /// Removes the overlay of a skill that holds nothing. The caller holds the tree alone.
    ///
    /// A run needs an overlay to be mounted, and most leave nothing in it.
    fn tidy_held(&self, id: &TreeId) -> Result<()> {
        let TreeId::Skill(user, agent, skill) = id else { return Ok(()) };
        if self.views().is_some_and(|views| views.is_awaiting(id)) {
            self.close_unless_used(id)?;
        }
        if self.views().is_some_and(|views| views.has(id)) {
            return Ok(());
        }
        self.settle_published(id)?;
        if !self.is_bare(id)? {
            return Ok(());
        }
        let overlays = self.inner.root.open_dir(&layout::overlay(user, agent)?)?;
        let name = OsStr::new(skill.as_str());
        let projects = self.inner.stage.projects();
        let project = match projects.keep() {
            true => overlays.open_dir_entry(name).and_then(|upper| projects.of(&upper)).ok().flatten(),
            false => None,
        };
        match overlays.remove_dir(name) {
            Ok(()) => {
                if let Some(project) = project {
                    projects.end(project);
                }
                self.forget_base(id)
            }
            // Not empty any more.
            Err(Error::NotEmpty(_) | Error::NotFound(_)) => Ok(()),
            Err(other) => Err(other),
        }
    }

    /// Tells whether the overlay of a skill holds nothing of the user's: nothing is in it, it hides nothing, and what it
    /// lies over is or was a baseline.
    fn is_bare(&self, id: &TreeId) -> Result<bool> {
        let TreeId::Skill(user, agent, skill) = id else { return Ok(false) };
        let overlays = match self.inner.root.open_dir(&layout::overlay(user, agent)?) {
            Err(Error::NotFound(_)) => return Ok(false),
            overlays => overlays?,
        };
        let upper = match overlays.open_dir_entry(OsStr::new(skill.as_str())) {
            Err(Error::NotFound(_) | Error::NotADirectory(_) | Error::Escape(_)) => return Ok(false),
            upper => upper?,
        };
        if !upper.first_entries(1)?.is_empty() || is_opaque(&upper)? {
            return Ok(false);
        }
        match self.baseline_dir(agent, skill)? {
            // A directory with another mode is a change, too.
            Some(lower) => Ok(upper.stat()?.mode == lower.stat()?.mode),
            // Only for a baseline that was removed meanwhile: a skill that only the user has began without one.
            None => Ok(self.base_of(id)?.is_some()),
        }
    }

    /// Tells whether the overlay of a skill is there only for the sake of a view, so that the user sees the baseline.
    pub(crate) fn is_only_mounted(&self, id: &TreeId) -> Result<bool> {
        Ok(self.views().is_some_and(|views| views.has(id)) && self.is_bare(id)?)
    }

    /// Mends the overlays at `uppers`, which were mounted when a former service ended.
    pub(crate) fn mend_overlays(&self, uppers: &[RelPath]) {
        for upper in uppers {
            if let Err(error) = self.mend_overlay(upper) {
                tracing::warn!(%error, "an overlay stays as a former service left it");
            }
        }
    }

    fn mend_overlay(&self, upper: &RelPath) -> Result<()> {
        let segments: Vec<&str> = upper.segments().collect();
        let ["skill", "overlay", user, agent, skill] = segments.as_slice() else { return Ok(()) };
        let (Ok(user), Ok(agent), Ok(skill)) =
            (UserId::parse(user), AgentId::parse(agent), SkillId::parse(skill))
        else {
            return Ok(());
        };
        let id = TreeId::Skill(user, agent, skill);
        let dir = match self.inner.root.open_dir(upper) {
            Err(Error::NotFound(_) | Error::NotADirectory(_)) => return Ok(()),
            dir => dir?,
        };
        for entry in dir.first_entries(LEFT_OVER_MAX)? {
            if self.is_temporary_left_over(&entry.name) {
                dir.remove_tree(&entry.name)?;
            }
        }
        self.tidy_held(&id)
    }

    /// Tells whether `name` is one that a change through a view has for a moment; see [`Live`].
    fn is_temporary_left_over(&self, name: &OsStr) -> bool {
        let rest = name.to_str().and_then(|name| name.strip_prefix(TEMPORARY_PREFIX));
        rest.is_some_and(|rest| self.inner.stage.is_left_over(&OsString::from(rest)))
    }
}
