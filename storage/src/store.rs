//! [`Store`]: one root directory and everything in it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use policy::{AgentId, DiskLimits, FileLimits, RelPath, SkillId, SnapshotLimits, TreeId, UserId};
use rustix::fs::FlockOperation;

use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::journal;
use crate::live::{self, LiveOptions, Views};
use crate::lock::Locks;
use crate::place;
use crate::plain::Plain;
use crate::sandbox::{Occupants, Uptime, Uses};
use crate::snapshot::InHand;
use crate::stage::{Durability, Stage, Trash};
use crate::tree::Tree;
use crate::union::Union;
use crate::usage::{Accounts, Flights};
use crate::version;

/// How often and how long a start waits for a former service to let go of the store.
const LOCK_TRIES: usize = 20;
const LOCK_WAIT: Duration = Duration::from_millis(50);

/// How a store behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// When a change counts as done.
    pub durability: Durability,
    /// Whether workspaces belong to a user id each. Without the privilege to give files away, they do not.
    pub separate_owners: bool,
    /// Former versions of a baseline skill that are kept although no overlay began with them.
    pub keep_versions: usize,
    /// Bounds on file operations.
    pub files: FileLimits,
    /// Bounds on what lies on the disk.
    pub disk: DiskLimits,
    /// Bounds on snapshots of workspaces.
    pub snapshots: SnapshotLimits,
    /// For how long nobody uses a sandbox before it may be swept; `None` for ever.
    pub idle: Option<Duration>,
    /// For how long more a sandbox is kept aside that has gone for that; zero removes it at once.
    pub keep: Duration,
    /// Whether and how commands get live views of skills, where the host lets the service mount.
    pub live: Option<LiveOptions>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            durability: Durability::Strict,
            separate_owners: false,
            keep_versions: 3,
            files: FileLimits::default(),
            disk: DiskLimits::default(),
            snapshots: SnapshotLimits::default(),
            idle: None,
            keep: Duration::ZERO,
            live: None,
        }
    }
}

/// One root directory and everything in it. Cloning gives another handle of the same store.
#[derive(Clone)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    /// Dropped first: what it closes lies in what follows. Without live views, the reason.
    pub(crate) live: Result<Views, String>,
    pub(crate) root: Arc<Dir>,
    pub(crate) root_path: PathBuf,
    pub(crate) stage: Stage,
    pub(crate) locks: Locks,
    pub(crate) options: Options,
    /// What is known of what trees take.
    pub(crate) accounts: Accounts,
    /// What is on its way for whom.
    pub(crate) flights: Flights,
    /// Who is in which sandbox.
    pub(crate) occupants: Occupants,
    /// By which sandboxes grow idle.
    pub(crate) uptime: Uptime,
    /// Which sandboxes were used a moment ago.
    pub(crate) uses: Uses,
    /// Sandboxes whose snapshots somebody works on.
    pub(crate) in_hand: InHand,
    /// What workspaces hold for runs.
    pub(crate) points: crate::run::Points,
    /// Which temporary directories runs have.
    pub(crate) temporaries: Arc<crate::run::Slots>,
    /// Locked as long as this store is open.
    salt: place::Salt,
    _lock: File,
}

/// What opening a store found to mend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Committed changes that a crash had interrupted and that are done now.
    pub finished: usize,
    /// Unfinished changes that were swept.
    pub swept: usize,
}

impl Store {
    /// Opens the store below `path`, makes what is missing and mends what a crash left.
    ///
    /// # Errors
    /// [`Error::Conflict`] when another process has the store open; [`Error::Unsupported`] when the file system
    /// keeps no user attributes or no whiteouts, or when the layout is of another version; [`Error::Io`].
    pub fn open(path: &Path, options: Options) -> Result<(Self, Recovery)> {
        make_root(path)?;
        let root = Arc::new(Dir::ambient_open(path)?);
        let root_path =
            std::path::absolute(path).map_err(|error| Error::from_io("open", path.display(), error))?;
        let own = root.ensure_path(&RelPath::parse(place::OWN)?)?;
        let lock = hold_alone(&own)?;
        check_format(&own)?;
        for directory in place::DIRECTORIES {
            let dir = root.ensure_path(&RelPath::parse(directory)?)?;
            if place::SERVICE_ONLY.contains(&directory) {
                dir.set_mode(0o700)?;
            }
        }
        let stage = Stage::new(root.open_dir(&RelPath::parse(place::STAGE)?)?, options.durability)?;
        let work = root.open_dir(&RelPath::parse(place::WORK)?)?;
        let uppers = live::workplace::wait_for_former(&work)?;
        let (finished, mut swept) = journal::recover(&root, &stage)?;
        for entry in work.entries()? {
            let unmounted = live::workplace::unmount_left_over(&work, &entry.name);
            match unmounted.and_then(|()| work.remove_tree(&entry.name)) {
                Ok(()) => swept += 1,
                Err(error) => tracing::warn!(%error, "a run's files stay until the next start"),
            }
        }
        check_markers(&stage)?;
        let separate_owners = options.separate_owners && can_give_away(&stage)?;
        let options = Options { separate_owners, ..options };
        let salt = salt(&own)?;
        let uptime = Uptime::resume(&root.open_dir(&RelPath::parse(place::SANDBOXES)?)?)?;
        let (points, temporaries) = (crate::run::Points::default(), Arc::default());
        let holding = live::probe(&root, &stage, &options);
        let inner = Arc::new_cyclic(|store| {
            let views = |(options, holding)| Views::new(options, holding, store.clone());
            let live = holding.map(views);
            Inner {
                live,
                root,
                root_path,
                stage,
                locks: Locks::new(),
                options,
                accounts: Accounts::new(),
                flights: Flights::default(),
                salt,
                occupants: Occupants::default(),
                uptime,
                uses: Uses::default(),
                in_hand: InHand::default(),
                points,
                temporaries,
                _lock: lock,
            }
        });
        let store = Self { inner };
        store.mend_overlays(&uppers);
        store.tidy_users()?;
        let (made, unreadable) = store.redo_patches()?;
        Ok((store, Recovery { finished: finished + made, swept: swept + unreadable }))
    }

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
        let own = self.inner.root.open_dir(&RelPath::parse(place::OWN)?)?;
        let dir = own.ensure_path(&RelPath::parse(name)?)?;
        dir.set_mode(0o700)?;
        Ok(dir)
    }

    /// A directory of the store in which a probe may make things of its own; swept at start.
    #[must_use]
    pub fn probe_directory(&self) -> PathBuf {
        self.inner.root_path.join(place::WORK)
    }

    /// A user id as sandboxes have it, for a probe; `None` where they have none of their own. Another at each call.
    #[must_use]
    pub fn probe_owner(&self) -> Option<u32> {
        let separate = self.inner.options.separate_owners;
        separate.then(|| place::passing_owner(&self.inner.stage.fresh_name()))
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
        self.inner.options.separate_owners.then(|| place::owner(&self.inner.salt, id.user(), id.agent()))
    }

    /// The tree `id` as it is to be read. The caller holds it as it is.
    ///
    /// A workspace that nobody has written to is not there. A skill in which a command runs over a former baseline
    /// is what that command sees.
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
    /// A workspace that nobody has written to is not there, and is not made either.
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
            root: Arc::clone(&self.inner.root),
            baseline: place::baseline(agent)?,
            overlay: place::overlay(user, agent)?,
            skill: skill.clone(),
            seat: None,
            before_first_write: Box::new(move || match &base {
                Some(base) => store.record_base_text(&id, base),
                None => store.record_base(&id),
            }),
        })
    }

    /// The workspace `id`.
    pub(crate) fn plain(&self, id: &TreeId, make: bool) -> Result<Plain> {
        let path = place::workspace(id.user(), id.agent())?;
        let owner = self.owner(id);
        let dir = match self.inner.root.open_dir(&path) {
            Err(Error::NotFound(_)) if make => self.inner.stage.ensure_path(&self.inner.root, &path)?,
            opened => opened?,
        };
        if let Some(owner) = owner
            && make
            && dir.stat()?.owner != owner
        {
            // Just made, or the service died before it gave it away. Nobody else looks in, whatever else fails.
            dir.set_mode(0o700)?;
            dir.set_owner(owner)?;
        }
        Ok(Plain { stage: self.inner.stage.clone(), dir, owner })
    }

    /// An empty workspace aside, for a first change that may yet be refused; see [`Store::place_draft`].
    pub(crate) fn draft(&self, id: &TreeId) -> Result<(Plain, Trash)> {
        let trash = self.inner.stage.trash();
        let dir = self.inner.stage.dir().create_dir(&trash.name, 0o755)?;
        let owner = self.owner(id);
        if let Some(owner) = owner {
            dir.set_mode(0o700)?;
            dir.set_owner(owner)?;
        }
        Ok((Plain { stage: self.inner.stage.clone(), dir, owner }, trash))
    }

    /// Makes a draft the workspace `id`. Returns the directory to sync.
    ///
    /// # Errors
    /// [`Error::Conflict`] when a command has made the workspace meanwhile.
    pub(crate) fn place_draft(&self, id: &TreeId, draft: &Trash) -> Result<Dir> {
        let path = place::workspace(id.user(), id.agent())?;
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

/// Makes the root directory, the one thing that lies beneath no `Dir`.
#[expect(clippy::disallowed_methods, reason = "the root is named by the operator and lies beneath no `Dir`")]
fn make_root(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).map_err(|error| Error::from_io("mkdir", path.display(), error))
}

/// Takes the lock of the whole store: two services on one store would not see each other's locks.
fn hold_alone(own: &Dir) -> Result<File> {
    let name = OsStr::new("lock");
    let file = match own.create_file(name, 0o600) {
        Err(Error::AlreadyExists(_)) => own.open_file_entry(name)?.0,
        made => made?,
    };
    for _ in 0..LOCK_TRIES {
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return Ok(file);
        }
        // A service that was just killed, or a process that it was just starting, lets go in a moment.
        std::thread::sleep(LOCK_WAIT);
    }
    let message = "another filesecbox uses this data directory: stop it, or choose another";
    Err(Error::Conflict(message.to_owned()))
}

fn check_format(own: &Dir) -> Result<()> {
    let (name, draft) = (OsStr::new("format"), OsStr::new("format.draft"));
    match own.open_file_entry(name) {
        Ok((file, _)) => {
            let mut text = String::new();
            file.take(64)
                .read_to_string(&mut text)
                .map_err(|error| Error::from_io("read", "format", error))?;
            if text == place::FORMAT {
                return Ok(());
            }
            let text = text.trim();
            Err(Error::Unsupported(format!(
                "the data directory has layout {text}; this service writes layout 1"
            )))
        }
        Err(Error::NotFound(_)) => {
            // Never there without its text: a crash at the first start must not look like another layout.
            own.remove_tree(draft)?;
            let mut file = own.create_file(draft, 0o600)?;
            file.write_all(place::FORMAT.as_bytes())
                .map_err(|error| Error::from_io("write", "format", error))?;
            file.sync_all().map_err(|error| Error::from_io("fsync", "format", error))?;
            own.rename(draft, own, name)
        }
        Err(other) => Err(other),
    }
}

/// Reads what keeps the user ids of this store apart from those of others, or draws it.
fn salt(own: &Dir) -> Result<place::Salt> {
    let name = OsStr::new("salt");
    match own.open_file_entry(name) {
        Ok((mut file, _)) => {
            let mut salt = place::Salt::default();
            file.read_exact(&mut salt).map_err(|error| Error::from_io("read", "salt", error))?;
            Ok(salt)
        }
        Err(Error::NotFound(_)) => {
            let mut salt = place::Salt::default();
            getrandom::fill(&mut salt)
                .map_err(|error| Error::from_io("getrandom", "salt", std::io::Error::other(error)))?;
            // Under another name until it is whole: half a salt would be another one after a crash.
            let draft = OsStr::new("salt.draft");
            own.remove_tree(draft)?;
            let mut file = own.create_file(draft, 0o600)?;
            file.write_all(&salt)
                .and_then(|()| file.sync_all())
                .map_err(|error| Error::from_io("write", "salt", error))?;
            own.rename(draft, own, name)?;
            own.sync()?;
            Ok(salt)
        }
        Err(other) => Err(other),
    }
}

/// Tries to give a directory away: a container may be root without the privilege, or know few user ids.
fn can_give_away(stage: &Stage) -> Result<bool> {
    let trash = stage.trash();
    let probe = stage.dir().create_dir(&trash.name, 0o700)?;
    Ok(probe.set_owner(place::OWNER_FIRST).is_ok())
}

/// Makes each marker once, so that a file system that cannot hold them is refused at start.
fn check_markers(stage: &Stage) -> Result<()> {
    let trash = stage.trash();
    let probe = stage.dir().create_dir(&trash.name, 0o700)?;
    let refused = |what: &str, error: Error| {
        tracing::debug!(%error, "probe failed");
        Error::Unsupported(format!(
            "the file system of the data directory keeps no {what}: use ext4, xfs or btrfs, as a volume and not \
             the root file system of a container"
        ))
    };
    probe.set_attribute("user.filesecbox.probe", b"y").map_err(|error| refused("user attributes", error))?;
    probe.create_whiteout(OsStr::new("w")).map_err(|error| refused("whiteouts", error))?;
    let exchanged = probe.create_dir(OsStr::new("a"), 0o700).and_then(|_| {
        probe.create_dir(OsStr::new("b"), 0o700)?;
        probe.exchange(OsStr::new("a"), &probe, OsStr::new("b"))
    });
    exchanged.map_err(|error| refused("exchange of directories", error))?;
    version::digest(&probe).map(drop)
}
