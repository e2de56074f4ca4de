//! The ids of the skills that a user sees, without a look at any of them.

use std::time::{SystemTime, UNIX_EPOCH};

use policy::{AgentId, RelPath, SkillId, UserId};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use crate::core::listings::Marks;
use crate::dir::Dir;
use crate::error::Result;
use crate::layers::stack::Layers;
use crate::layout;
use crate::skills::Skills;
use crate::stat::{Kind, Stat};

const RESOLVE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::CACHED);
const LOOK: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl Skills {
    /// The ids of the skills that `user` sees of `agent`, sorted. Reads two directories, and no skill.
    ///
    /// # Errors
    /// [`Error::TooManyEntries`](crate::Error::TooManyEntries), [`Error::Io`](crate::Error::Io).
    pub fn ids(&self, user: &UserId, agent: &AgentId) -> Result<Vec<SkillId>> {
        let (overlay, baseline) = (layout::overlay(user, agent)?, layout::baseline(agent)?);
        let layers = Layers::open(self.store.root(), &overlay, &baseline)?;
        // Before they are read: what is made meanwhile is another state than the one that is noted.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let stat = |dir: &Option<Dir>| dir.as_ref().map(Dir::stat).transpose();
        let marks = Marks::new(stat(&layers.upper)?.as_ref(), stat(&layers.lower)?.as_ref());
        let children = layers.children()?;
        let directories = children.iter().filter(|child| child.kind == Kind::Directory);
        let ids: Vec<SkillId> =
            directories.filter_map(|child| SkillId::parse(child.name.to_str()?).ok()).collect();
        let now_ns = i128::try_from(now.as_nanos()).unwrap_or_default();
        self.store.listings().note((user, agent), marks, now_ns, &ids);
        Ok(ids)
    }

    /// As [`Skills::ids`], if that takes no waiting and the directories are as they were when they were read last.
    #[must_use]
    pub fn known_ids(&self, user: &UserId, agent: &AgentId) -> Option<Vec<SkillId>> {
        let overlays = self.look_now(&layout::overlay(user, agent).ok()?)?;
        let baselines = self.look_now(&layout::baseline(agent).ok()?)?;
        let marks = Marks::new(overlays.as_ref(), baselines.as_ref());
        Some(self.store.listings().known(user, agent, marks)?.to_vec())
    }

    /// Looks at a directory that the kernel has in memory; `Some(None)` where there is none.
    fn look_now(&self, path: &RelPath) -> Option<Option<Stat>> {
        match openat2(self.store.root().as_ref(), path.as_str(), LOOK, Mode::empty(), RESOLVE) {
            Ok(fd) => rustix::fs::fstat(fd).ok().map(|stat| Some(stat.into())),
            Err(Errno::NOENT) => Some(None),
            Err(_) => None,
        }
    }
}
