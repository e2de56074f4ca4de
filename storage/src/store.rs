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
use crate::record::{self, Records};
use crate::sandbox::{Occupants, SandboxId, Uptime, Uses};
use crate::snapshot::InHand;
use crate::stage::{Draft, Durability, Names, Stage};
use crate::stat::Kind;
use crate::trash::{Closing, TrashCan};
use crate::tree::Tree;
use crate::union::Union;
use crate::usage::{Accounts, Flights};
use crate::version;

/// How often and how long a start waits for a former service to let go of the store.
const LOCK_TRIES: usize = 20;
const LOCK_WAIT: Duration = Duration::from_millis(50);

/// Entries of the service's own directory, of which it makes some twenty.
const OWN_ENTRIES_MAX: usize = 1000;

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
    pub(crate) accounts: Arc<Accounts>,
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
    _trash: Closing,
    _lock: File,
}

/// What opening a store found to mend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Committed changes that a crash had interrupted and that are done now.
    pub finished: usize,
    /// Unfinished changes that were swept.
    pub swept: usize,
    /// What looked like an unfinished change and was not carried out, because nothing proves that the service wrote it.
    pub refused: usize,
}

impl Store {
    /// Opens the store below `path`, makes what is missing and mends what a crash left.
    ///
    /// # Errors
    /// [`Error::Conflict`] when another process has the store open; [`Error::Unsupported`] when the file system
    /// keeps no user attributes or no whiteouts, or when the layout is of another version; [`Error::Io`].
    pub fn open(path: &Path, options: Options) -> Result<(Self, Recovery)> {
        make_root(path)?;
        let root = Arc::new(Dir::own_root(path)?);
        let root_path =
            std::path::absolute(path).map_err(|error| Error::from_io("open", path.display(), error))?;
        let own = root.ensure_path(&RelPath::parse(place::OWN)?)?;
        for file in place::FILES {
            own.open_up_file(OsStr::new(file))?;
        }
        let lock = hold_alone(&own)?;
        let is_former = check_format(&own)?;
        for directory in place::DIRECTORIES {
            let dir = root.ensure_path(&RelPath::parse(directory)?)?;
            if place::SERVICE_ONLY.contains(&directory) {
                dir.set_mode(0o700)?;
            }
        }
        let open = |directory: &str| root.open_dir(&RelPath::parse(directory)?);
        let (names, accounts) = (Arc::new(Names::new()?), Arc::new(Accounts::new()));
        let trash = TrashCan::open(open(place::TRASH)?, Arc::clone(&names), Arc::clone(&accounts))?;
        let closing = Closing(trash.clone());
        let key: record::Key = secret(&own, place::RECORD_KEY)?;
        let records = Records::new(open(place::JOURNAL)?, open(place::REFUSED)?, key, options.durability);
        let stage = Stage::new(open(place::STAGE)?, names, trash, records, options.durability);
        let views = open(place::VIEWS)?;
        let uppers = live::workplace::wait_for_former(&views)?;
        let mut recovery = Recovery::default();
        if is_former {
            recovery.refused += journal::keep_former(&stage)?;
        }
        let recovered = journal::recover(&root, &stage)?;
        recovery.finished += recovered.finished;
        recovery.swept += recovered.swept;
        recovery.refused += recovered.refused;
        for entry in views.entries()? {
            let unmounted = live::workplace::unmount_left_over(&views, &entry.name);
            match unmounted.and_then(|()| views.remove_tree(&entry.name)) {
                Ok(()) => recovery.swept += 1,
                Err(error) => tracing::warn!(%error, "a view's directory stays until the next start"),
            }
        }
        let work = open(place::WORK)?;
        for entry in work.entries()? {
            // The former layout had views here, and what is mounted must not be emptied.
            let unmounted = live::workplace::unmount_left_over(&work, &entry.name);
            match unmounted.and_then(|()| stage.discard(&work, &entry.name, None)) {
                Ok(trash) => {
                    trash.later();
                    recovery.swept += 1;
                }
                Err(error) => tracing::warn!(%error, "a run's files stay until the next start"),
            }
        }
        if is_former {
            write_format(&own)?;
        }
        check_markers(&stage)?;
        let separate_owners = options.separate_owners && can_give_away(&stage)?;
        let options = Options { separate_owners, ..options };
        let salt = secret(&own, place::SALT)?;
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
                accounts,
                flights: Flights::default(),
                salt,
                occupants: Occupants::default(),
                uptime,
                uses: Uses::default(),
                in_hand: InHand::default(),
                points,
                temporaries,
                _trash: closing,
                _lock: lock,
            }
        });
        let store = Self { inner };
        store.mend_overlays(&uppers);
        store.tidy_users()?;
        recovery.finished += store.redo_patches(recovered.patches)?;
        Ok((store, recovery))
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
        let dir = self.inner.root.ensure_path(&RelPath::parse(place::OWN)?.join(name)?)?;
        dir.set_mode(0o700)?;
        Ok(dir)
    }

    /// Tells whether the service can work on its data: there is room, its directories open, and a file can be made,
    /// written and removed. What keeps it out of its own directories is undone first.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::NoSpace`], [`Error::Io`].
    pub fn check_usable(&self) -> Result<()> {
        self.admit_space()?;
        for directory in place::DIRECTORIES {
            drop(self.inner.root.open_dir(&RelPath::parse(directory)?)?);
        }
        // Those of the audit log and the registry, which are reached in other ways, too.
        let own = self.inner.root.open_dir(&RelPath::parse(place::OWN)?)?;
        for entry in
            own.entries_at_most(OWN_ENTRIES_MAX)?.iter().filter(|entry| entry.kind == Kind::Directory)
        {
            drop(own.open_closed_dir(&entry.name)?);
        }
        let stage = self.inner.root.open_dir(&RelPath::parse(place::STAGE)?)?;
        let draft = self.inner.stage.draft();
        let mut file = stage.create_file(&draft.name, 0o600)?;
        file.write_all(b"ready").map_err(|error| Error::from_io("write", "probe", error))
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

    /// How many things that were thrown away wait to be removed, and how many attempts to remove them have failed.
    #[must_use]
    pub fn trash_figures(&self) -> (usize, u64) {
        self.inner.stage.trash().figures()
    }

    /// Calls `tell` with the sandbox of whatever was thrown away and cannot be removed because something goes on filling
    /// it: a run that still has a descriptor of it.
    pub fn when_trash_is_filled(&self, tell: impl Fn(&SandboxId) + Send + Sync + 'static) {
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
            id: id.clone(),
            root: Arc::clone(&self.inner.root),
            baseline: place::baseline(agent)?,
            overlay: place::overlay(user, agent)?,
            skill: skill.clone(),
            entries_max: self.inner.options.files.tree_entries,
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
        Ok(Plain { stage: self.inner.stage.clone(), id: id.clone(), dir, owner })
    }

    /// An empty workspace aside, for a first change that may yet be refused; see [`Store::place_draft`].
    pub(crate) fn draft(&self, id: &TreeId) -> Result<(Plain, Draft)> {
        let draft = self.inner.stage.draft();
        let dir = self.inner.stage.dir().create_dir(&draft.name, 0o755)?;
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

/// Tells whether the layout is the one before this, which is to be made this one.
fn check_format(own: &Dir) -> Result<bool> {
    match own.open_file_entry(OsStr::new("format")) {
        Ok((file, _)) => {
            let mut text = String::new();
            file.take(64)
                .read_to_string(&mut text)
                .map_err(|error| Error::from_io("read", "format", error))?;
            if text == place::FORMAT || text == place::FORMER_FORMAT {
                return Ok(text == place::FORMER_FORMAT);
            }
            let (text, own) = (text.trim(), place::FORMAT.trim());
            Err(Error::Unsupported(format!(
                "the data directory has layout {text}; this service writes layout {own}"
            )))
        }
        Err(Error::NotFound(_)) => write_format(own).map(|()| false),
        Err(other) => Err(other),
    }
}

fn write_format(own: &Dir) -> Result<()> {
    // Never there without its text: a crash at the first start must not look like another layout.
    let draft = OsStr::new("format.draft");
    own.remove_tree(draft)?;
    let mut file = own.create_file(draft, 0o600)?;
    file.write_all(place::FORMAT.as_bytes()).map_err(|error| Error::from_io("write", "format", error))?;
    file.sync_all().map_err(|error| Error::from_io("fsync", "format", error))?;
    own.rename(draft, own, OsStr::new("format"))
}

/// Reads 32 bytes of the service's own from the file `name`, or draws them.
fn secret(own: &Dir, name: &str) -> Result<[u8; 32]> {
    let (name, mut secret) = (OsStr::new(name), [0; 32]);
    match own.open_file_entry(name) {
        Ok((mut file, stat)) => {
            let is_own = stat.owner == rustix::process::geteuid().as_raw();
            if (place::is_a_sandboxs(stat.owner) && !is_own) || stat.links != 1 {
                let name = name.to_string_lossy();
                return Err(Error::Unsupported(format!(
                    "`.filesecbox/{name}` is not the service's own: remove it and start again"
                )));
            }
            file.read_exact(&mut secret)
                .map_err(|error| Error::from_io("read", name.to_string_lossy(), error))?;
            Ok(secret)
        }
        Err(Error::NotFound(_)) => {
            getrandom::fill(&mut secret).map_err(|error| {
                Error::from_io("getrandom", name.to_string_lossy(), std::io::Error::other(error))
            })?;
            // Under another name until it is whole: half of it would be another one after a crash.
            let mut draft = name.to_owned();
            draft.push(".draft");
            own.remove_tree(&draft)?;
            let mut file = own.create_file(&draft, 0o600)?;
            file.write_all(&secret)
                .and_then(|()| file.sync_all())
                .map_err(|error| Error::from_io("write", name.to_string_lossy(), error))?;
            own.rename(&draft, own, name)?;
            own.sync()?;
            Ok(secret)
        }
        Err(other) => Err(other),
    }
}

/// Tries to give a directory away: a container may be root without the privilege, or know few user ids.
fn can_give_away(stage: &Stage) -> Result<bool> {
    let draft = stage.draft();
    let probe = stage.dir().create_dir(&draft.name, 0o700)?;
    Ok(probe.set_owner(place::OWNER_FIRST).is_ok())
}

/// Makes each marker once, so that a file system that cannot hold them is refused at start.
fn check_markers(stage: &Stage) -> Result<()> {
    let draft = stage.draft();
    let probe = stage.dir().create_dir(&draft.name, 0o700)?;
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
