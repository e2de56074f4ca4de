//! [`Store`]: one root directory and everything in it.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use policy::{AgentId, RelPath, SkillId, TreeId, UserId, WorkspaceId};

use crate::core::accounts::Accounts;
use crate::core::allowances::Allowances;
use crate::core::copies::Copies;
use crate::core::flights::Flights;
use crate::core::keyed_texts::KeyedTexts;
use crate::core::listings::Listings;
use crate::core::lock::Locks;
use crate::core::mount_points::Points;
use crate::core::occupants::Occupants;
use crate::core::options::Options;
use crate::core::snapshot_locks::SnapshotLocks;
use crate::core::uptime::Uptime;
use crate::core::uses::Uses;
use crate::core::views::Views;
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::layers::durability::Durability;
use crate::layers::plain::Plain;
use crate::layers::stage::{Draft, Stage};
use crate::layers::trash::Closing;
use crate::layers::tree::Tree;
use crate::layers::union::Union;
use crate::layout;
use crate::stat::{Kind, Owner, Stat, Use};
use crate::version::Version;

/// Entries of the service's own directory, of which it makes some twenty.
const OWN_ENTRIES_MAX: usize = 1000;

/// What a store knows of the files of packages that are kept unpacked.
#[derive(Default)]
pub(crate) struct Unpacked {
    /// The room that they take, once it was measured. Held while the files of one are being kept.
    pub(crate) room: Mutex<Option<Use>>,
    /// Packages that were deployed from their archives.
    pub(crate) deployed: Mutex<HashSet<String>>,
}

/// One root directory and everything in it. Cloning gives another handle of the same store.
#[derive(Clone)]
pub struct Store {
    pub(super) inner: Arc<Inner>,
}

/// Lets an overlay lie over the version that it became when its user published it, if it did. The floor of skills, which
/// compares versions, hands it in.
pub(crate) type Settle = fn(&Store, &TreeId) -> Result<()>;

pub(super) struct Inner {
    /// Dropped first: what it closes lies in what follows. Without live views, the reason.
    pub(super) live: Result<Views, String>,
    /// Whether the kernel keeps the limits of trees, or why not.
    pub(super) kernel_quotas: Result<(), String>,
    pub(super) root: Arc<Dir>,
    pub(super) root_path: PathBuf,
    pub(super) stage: Stage,
    pub(super) locks: Locks,
    pub(super) options: Options,
    /// The known use of trees.
    pub(super) accounts: Arc<Accounts>,
    /// What the trees of single agents may take.
    pub(super) allowances: Allowances,
    /// What was set for single agents.
    pub(super) policies: KeyedTexts,
    /// The machines that users lend.
    pub(super) runners: KeyedTexts,
    /// The devboxes.
    pub(super) devboxes: KeyedTexts,
    /// Links by which installers read skills.
    pub(super) shares: KeyedTexts,
    /// The signed tokens that count no more.
    pub(super) revocations: KeyedTexts,
    /// Held while a package is put: what gives way to it is decided and done as one.
    pub(super) packages: Mutex<()>,
    /// What is known of the unpacked files of packages.
    pub(super) unpacked: Unpacked,
    /// The bytes of each user in flight.
    pub(super) flights: Flights,
    /// Who is in which sandbox.
    pub(super) occupants: Occupants,
    /// By which sandboxes grow idle.
    pub(super) uptime: Uptime,
    /// Which sandboxes were used a moment ago.
    pub(super) uses: Uses,
    /// Sandboxes whose snapshots a request works on.
    pub(super) in_hand: SnapshotLocks,
    /// The mount points that workspaces hold for runs.
    pub(super) points: Points,
    /// The skills of users, as far as they are known.
    pub(super) listings: Listings,
    /// The copies of skills that runs share where nothing can be mounted.
    pub(super) copies: Arc<Copies>,
    pub(super) settle: Settle,
    /// Locked as long as this store is open.
    pub(super) salt: layout::Salt,
    pub(super) _trash: Closing,
    pub(super) _lock: File,
}

impl Store {
    /// The host path of the root, absolute.
    #[must_use]
    pub fn root_path(&self) -> &Path {
        &self.inner.root_path
    }

    /// A directory of the service beside what is stored, made when it is missing. No command enters it.
    ///
    /// # Errors
    /// [`Error::Path`] for a name that is none; [`Error::NoSpace`], [`Error::Io`].
    pub fn service_directory(&self, name: &str) -> Result<Dir> {
        let dir = self.inner.root.ensure_path(&RelPath::parse(layout::OWN)?.join(name)?)?;
        dir.set_mode(0o700)?;
        Ok(dir)
    }

    /// Makes a directory of links, one for each name and the program of the host that it stands for; its path. What was
    /// in the directory before is removed, and nothing of it is read.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Io`].
    pub fn name_programs<'a>(&self, programs: impl Iterator<Item = (&'a str, &'a Path)>) -> Result<PathBuf> {
        let dir = self.inner.root.open_dir(&RelPath::parse(layout::ALIASES)?)?;
        dir.set_mode(0o755)?;
        for entry in dir.entries()? {
            dir.remove_tree(&entry.name)?;
        }
        for (name, file) in programs {
            dir.create_symlink(file.as_os_str(), OsStr::new(name))?;
        }
        Ok(self.inner.root_path.join(layout::ALIASES))
    }

    /// Tells whether the service can work on its data: there is room, its directories open, and a file can be made,
    /// written and removed. What keeps it out of its own directories is undone first.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::NoSpace`], [`Error::Io`].
    pub fn check_usable(&self) -> Result<()> {
        self.admit_space()?;
        for directory in layout::DIRECTORIES {
            drop(self.inner.root.open_dir(&RelPath::parse(directory)?)?);
        }
        // The directories of the audit log and the registry, which are reached in other ways, too.
        let own = self.inner.root.open_dir(&RelPath::parse(layout::OWN)?)?;
        for entry in
            own.entries_at_most(OWN_ENTRIES_MAX)?.iter().filter(|entry| entry.kind == Kind::Directory)
        {
            drop(own.open_closed_dir(&entry.name)?);
        }
        let stage = self.inner.root.open_dir(&RelPath::parse(layout::STAGE)?)?;
        let draft = self.inner.stage.draft();
        let mut file = stage.create_file(&draft.name, 0o600)?;
        file.write_all(b"ready").map_err(|error| Error::from_io("write", "probe", error))
    }

    /// A directory of the store in which a probe may make things of its own; swept at start.
    #[must_use]
    pub fn probe_directory(&self) -> PathBuf {
        self.inner.root_path.join(layout::WORK)
    }

    /// A user id as sandboxes have it, for a probe; `None` where they have none of their own. Another at each call.
    #[must_use]
    pub fn probe_owner(&self) -> Option<u32> {
        let separate = self.inner.options.separate_owners;
        separate.then(|| layout::passing_owner(&self.inner.stage.fresh_name()))
    }

    /// How many things that were thrown away wait to be removed, and how many attempts to remove them have failed.
    #[must_use]
    pub fn trash_figures(&self) -> (usize, u64) {
        self.inner.stage.trash().figures()
    }

    /// Calls `tell` with the sandbox of trash that cannot be removed because a run, which still has a descriptor of it,
    /// goes on filling it.
    pub fn when_trash_is_filled(&self, tell: impl Fn(&WorkspaceId) + Send + Sync + 'static) {
        self.inner.stage.trash().tell(Arc::new(tell));
    }

    /// How many skills are mounted for commands.
    #[must_use]
    pub fn live_views(&self) -> usize {
        self.inner.live.as_ref().map_or(0, Views::count)
    }

    /// How the store behaves.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.inner.options
    }

    /// Tells whether changes wait for the disk.
    pub(crate) fn is_strict(&self) -> bool {
        self.inner.options.durability == Durability::Strict
    }

    /// The user id that owns a tree's files, if trees have owners here.
    pub(crate) fn owner(&self, id: &TreeId) -> Option<u32> {
        self.inner.options.separate_owners.then(|| layout::owner(&self.inner.salt, id.user(), id.agent()))
    }

    /// Who owns an entry of the tree `id`, as commands see it.
    ///
    /// A skill is stored as the service's own; commands see it through a mount, or in a copy, where it is theirs.
    #[must_use]
    pub fn owner_seen(&self, id: &TreeId, stat: &Stat) -> Owner {
        let service = rustix::process::geteuid().as_raw();
        let (sandbox, superuser) = match (self.owner(id), id) {
            (Some(owner), TreeId::Workspace(..)) => (Some(owner), 0),
            // The service and the owner change places there.
            (Some(owner), TreeId::Skill(..)) => (Some(service), owner),
            (None, _) => (Some(service).filter(|service| *service != 0), 0),
        };
        match stat.owner {
            owner if sandbox == Some(owner) => Owner::Sandbox,
            owner if owner == superuser => Owner::Root,
            _ => Owner::Nobody,
        }
    }

    /// The tree `id` as it is to be read. The caller holds it as it is.
    ///
    /// A workspace that was never written to is not there. A skill in which a command runs over a former baseline is
    /// what that command sees.
    pub(crate) fn tree(&self, id: &TreeId) -> Result<Box<dyn Tree>> {
        match id {
            TreeId::Skill(user, agent, skill) => {
                let mut union = self.union(user, agent, skill, None)?;
                union.seat = self.views().and_then(|views| views.sit_in_older(id));
                Ok(Box::new(union))
            }
            TreeId::Workspace(..) => Ok(Box::new(self.plain(id, false)?)),
        }
    }

    /// The tree `id` as it is to be changed. The caller holds it alone.
    ///
    /// A workspace that was never written to is not there, and is not made either.
    pub(crate) fn tree_alone(&self, id: &TreeId) -> Result<Box<dyn Tree>> {
        match id {
            TreeId::Skill(user, agent, skill) => self.changing(user, agent, skill, None),
            TreeId::Workspace(..) => {
                drop(self.plain(id, false)?);
                Ok(Box::new(self.plain(id, true)?))
            }
        }
    }

    /// A merged view. An overlay that its first write makes begins with `base`, else with the current baseline.
    pub(crate) fn union(
        &self,
        user: &UserId,
        agent: &AgentId,
        skill: &SkillId,
        base: Option<String>,
    ) -> Result<Union> {
        let store = self.clone();
        let id = TreeId::Skill(user.clone(), agent.clone(), skill.clone());
        Ok(Union {
            stage: self.inner.stage.clone(),
            id: id.clone(),
            root: Arc::clone(&self.inner.root),
            baseline: layout::baseline(agent)?,
            overlay: layout::overlay(user, agent)?,
            skill: skill.clone(),
            entries_max: self.inner.options.files.tree_entries,
            seat: None,
            before_first_write: Box::new(move || match &base {
                Some(base) => store.record_base_text(&id, base),
                None => store.record_base(&id),
            }),
        })
    }

    /// A published version of the skill `id`, to be read. The caller holds the tree as it is.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the version is not there; [`Error::Io`].
    pub(crate) fn version_tree(&self, id: &TreeId, version: &Version) -> Result<Box<dyn Tree>> {
        Ok(Box::new(self.version_union(id, version)?))
    }

    /// The same as its layers, of which there is one.
    pub(crate) fn version_union(&self, id: &TreeId, version: &Version) -> Result<Union> {
        let TreeId::Skill(user, agent, skill) = id else { return Err(Error::NotFound(id.sandbox_path())) };
        let mut union = self.union(user, agent, skill, None)?;
        union.overlay = layout::nothing()?;
        union.before_first_write = Box::new(|| Err(Error::Escape("a published version".to_owned())));
        if self.baseline_version(agent, skill)?.as_ref() != Some(version) {
            union.baseline = layout::versions(agent, skill)?;
            let gone = |_| Error::NotFound(format!("{skill} {version}"));
            union.skill = SkillId::parse(version.as_str()).map_err(gone)?;
        }
        Ok(union)
    }

    /// The workspace `id`.
    pub(crate) fn plain(&self, id: &TreeId, make: bool) -> Result<Plain> {
        let path = layout::workspace(id.user(), id.agent())?;
        let owner = self.owner(id);
        let dir = match self.inner.root.open_dir(&path) {
            Err(Error::NotFound(_)) if make => self.inner.stage.ensure_path(&self.inner.root, &path)?,
            opened => opened?,
        };
        if let Some(owner) = owner
            && make
            && dir.stat()?.owner != owner
        {
            // Just made, or the service died before it gave it away. No other process may look in, even when the next
            // step fails.
            dir.set_mode(0o700)?;
            dir.set_owner(owner)?;
        }
        Ok(Plain { stage: self.inner.stage.clone(), id: id.clone(), dir, owner })
    }

    /// An empty workspace aside, for a first change that may yet be refused; see [`Store::place_draft`].
    pub(crate) fn draft(&self, id: &TreeId) -> Result<(Plain, Draft)> {
        let draft = self.inner.stage.draft();
        let dir = self.inner.stage.dir().create_dir(&draft.name, 0o755)?;
        self.begin_workspace(id, &dir)?;
        let owner = self.owner(id);
        if let Some(owner) = owner {
            dir.set_mode(0o700)?;
            dir.set_owner(owner)?;
        }
        Ok((Plain { stage: self.inner.stage.clone(), id: id.clone(), dir, owner }, draft))
    }

    /// Makes a draft the workspace `id`. Returns the directory to sync.
    ///
    /// # Errors
    /// [`Error::Conflict`] when a command has made the workspace meanwhile.
    pub(crate) fn place_draft(&self, id: &TreeId, draft: &Draft) -> Result<Dir> {
        let path = layout::workspace(id.user(), id.agent())?;
        let user = path.parent().unwrap_or_else(RelPath::root);
        let above = self.inner.stage.ensure_path(&self.inner.root, &user)?;
        match self.inner.stage.dir().rename_new(&draft.name, &above, OsStr::new(id.agent().as_str())) {
            Err(Error::AlreadyExists(_)) => {
                Err(Error::Conflict("a command has begun in the workspace meanwhile: try again".to_owned()))
            }
            placed => placed.map(|()| above),
        }
    }
}
