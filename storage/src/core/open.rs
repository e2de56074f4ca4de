//! Opening a store: holding it alone, making what is missing, mending what a crash left.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use policy::{RelPath, TreeId};
use rustix::fs::FlockOperation;

use crate::core::accounts::Accounts;
use crate::core::agents::AGENT_POLICIES_MAX;
use crate::core::allowances::Allowances;
use crate::core::devboxes::DEVBOXES_MAX;
use crate::core::flights::Flights;
use crate::core::keyed_texts::KeyedTexts;
use crate::core::listings::Listings;
use crate::core::lock::Locks;
use crate::core::mount_points::Points;
use crate::core::occupants::Occupants;
use crate::core::options::Options;
use crate::core::revocations::REVOCATIONS_MAX;
use crate::core::runners::RUNNER_LISTS_MAX;
use crate::core::shares::SHARES_MAX;
use crate::core::short_ways;
use crate::core::snapshot_locks::SnapshotLocks;
use crate::core::store::{Inner, Settle, Store, Unpacked};
use crate::core::uptime::Uptime;
use crate::core::uses::Uses;
use crate::core::views::{self, Views};
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::layers::journal::{self, Steps};
use crate::layers::names::Names;
use crate::layers::projects::Projects;
use crate::layers::record::{self, Records};
use crate::layers::stage::Stage;
use crate::layers::trash::{Closing, TrashCan};
use crate::layers::view::workplace;
use crate::layout;
use crate::stat::Use;
use crate::version;

/// How often and how long a start waits for a former service to let go of the store.
const LOCK_TRIES: usize = 20;
const LOCK_WAIT: Duration = Duration::from_millis(50);

/// The leftovers of a crash that opening a store mended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Committed changes that a crash had interrupted and that are done now.
    pub finished: usize,
    /// Unfinished changes that were swept.
    pub swept: usize,
    /// Files that looked like unfinished changes and were not carried out, because nothing proves that the service
    /// wrote it.
    pub refused: usize,
}

/// Records of patches that a crash interrupted, and their steps.
pub(crate) type Patches = Vec<(OsString, Steps)>;

impl Store {
    /// Opens the store below `path`, makes what is missing and mends what a crash left, but for the patches that it
    /// returns: those are changes of trees, which the floor of files makes. No request uses the store before.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub(crate) fn open_core(
        path: &Path,
        options: Options,
        settle: Settle,
    ) -> Result<(Self, Recovery, Patches)> {
        make_root(path)?;
        let root = Arc::new(Dir::own_root(path)?);
        let root_path =
            std::path::absolute(path).map_err(|error| Error::from_io("open", path.display(), error))?;
        let own = root.ensure_path(&RelPath::parse(layout::OWN)?)?;
        for file in layout::FILES {
            own.open_up_file(OsStr::new(file))?;
        }
        let lock = hold_alone(&own)?;
        let is_former = check_format(&own)?;
        make_directories(&root)?;
        let open = |directory: &str| root.open_dir(&RelPath::parse(directory)?);
        let all_of_user = Use { bytes: options.disk.user_bytes, files: options.disk.user_files };
        let (names, accounts) = (Arc::new(Names::new()?), Arc::new(Accounts::new(all_of_user)));
        let doubted = Arc::clone(&accounts);
        let doubt = Arc::new(move |id: &TreeId| doubted.doubt(id));
        let (projects, kernel_quotas) =
            Projects::open(options.projects.clone(), open(layout::STAGE)?, Arc::clone(&names));
        let trash = TrashCan::open(open(layout::TRASH)?, Arc::clone(&names), doubt, projects.clone())?;
        let closing = Closing(trash.clone());
        let key: record::Key = secret(&own, layout::RECORD_KEY)?;
        let records = Records::new(open(layout::JOURNAL)?, open(layout::REFUSED)?, key, options.durability);
        let kept = |place: &str, what, keys_max| keyed_texts(&root, &key, place, what, keys_max, &options);
        let policies = kept(layout::POLICIES, "the policy of an agent", AGENT_POLICIES_MAX)?;
        let runners = kept(layout::RUNNERS, "the list of a user's runners", RUNNER_LISTS_MAX)?;
        let devboxes = kept(layout::DEVBOXES, "a devbox", DEVBOXES_MAX)?;
        let shares = kept(layout::SHARES, "a share link", SHARES_MAX)?;
        let revocations = kept(layout::REVOCATIONS, "a revocation of tokens", REVOCATIONS_MAX)?;
        let stage = Stage::new(open(layout::STAGE)?, names, trash, records, projects, options.durability);
        let views = open(layout::VIEWS)?;
        let uppers = workplace::wait_for_former(&views)?;
        let mut recovery = Recovery::default();
        if is_former {
            recovery.refused += journal::keep_former(&stage)?;
        }
        let recovered = journal::recover(&root, &stage)?;
        recovery.finished += recovered.finished;
        recovery.swept += recovered.swept;
        recovery.refused += recovered.refused;
        recovery.swept += sweep_views(&views)?;
        short_ways::sweep(&open(layout::SHORT_WAYS)?)?;
        recovery.swept += sweep_work(&open(layout::WORK)?, &stage)?;
        if is_former {
            write_format(&own)?;
        }
        check_markers(&stage)?;
        let separate_owners = options.separate_owners && can_give_away(&stage)?;
        let options = Options { separate_owners, ..options };
        let salt = secret(&own, layout::SALT)?;
        let uptime = Uptime::resume(&root.open_dir(&RelPath::parse(layout::SANDBOXES)?)?)?;
        let (points, copies) = (Points::default(), Arc::default());
        let holding = views::probe(&root, &stage, options.live.clone(), options.separate_owners);
        let inner = Arc::new_cyclic(|inner: &Weak<Inner>| {
            let views = |(options, holding)| Views::new(options, holding, Weak::<Inner>::clone(inner));
            let live = holding.map(views);
            Inner {
                live,
                kernel_quotas,
                root,
                root_path,
                stage,
                locks: Locks::new(),
                options,
                accounts,
                allowances: Allowances::default(),
                policies,
                runners,
                devboxes,
                shares,
                revocations,
                packages: Mutex::default(),
                unpacked: Unpacked::default(),
                flights: Flights::default(),
                salt,
                occupants: Occupants::default(),
                uptime,
                uses: Uses::default(),
                in_hand: SnapshotLocks::default(),
                points,
                listings: Listings::default(),
                copies,
                settle,
                _trash: closing,
                _lock: lock,
            }
        });
        let store = Self { inner };
        store.mend_overlays(&uppers);
        store.tidy_users()?;
        Ok((store, recovery, recovered.patches))
    }
}

/// Makes the root directory, the one thing that lies beneath no `Dir`.
#[expect(clippy::disallowed_methods, reason = "the root is named by the operator and lies beneath no `Dir`")]
fn make_root(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).map_err(|error| Error::from_io("mkdir", path.display(), error))
}

/// Makes every directory that is missing, and closes to commands what is the service's alone.
fn make_directories(root: &Dir) -> Result<()> {
    for directory in layout::DIRECTORIES {
        let dir = root.ensure_path(&RelPath::parse(directory)?)?;
        if layout::SERVICE_ONLY.contains(&directory) {
            dir.set_mode(0o700)?;
        }
    }
    Ok(())
}

/// The texts of one kind in the directory `place`, at most `keys_max`. Each kind has a key of its own, so that no record of
/// one kind is one of another under any name.
fn keyed_texts(
    root: &Dir,
    key: &record::Key,
    place: &str,
    what: &'static str,
    keys_max: usize,
    options: &Options,
) -> Result<KeyedTexts> {
    let open = |directory: &str| root.open_dir(&RelPath::parse(directory)?);
    let own = *blake3::keyed_hash(key, place.as_bytes()).as_bytes();
    let records = Records::new(open(place)?, open(layout::REFUSED)?, own, options.durability);
    Ok(KeyedTexts::new(records, what, keys_max))
}

/// Removes what a former service left of its live views; how many.
fn sweep_views(views: &Dir) -> Result<usize> {
    let mut swept = 0;
    for entry in views.entries()? {
        let unmounted = workplace::unmount_left_over(views, &entry.name);
        match unmounted.and_then(|()| views.remove_tree(&entry.name)) {
            Ok(()) => swept += 1,
            Err(error) => tracing::warn!(%error, "a view's directory stays until the next start"),
        }
    }
    Ok(swept)
}

/// Throws away what a former service left of the trees of its runs; how many.
fn sweep_work(work: &Dir, stage: &Stage) -> Result<usize> {
    let mut swept = 0;
    for entry in work.entries()? {
        // The former layout had views here, and what is mounted must not be emptied.
        let unmounted = workplace::unmount_left_over(work, &entry.name);
        match unmounted.and_then(|()| stage.discard(work, &entry.name, None)) {
            Ok(trash) => {
                trash.later();
                swept += 1;
            }
            Err(error) => tracing::warn!(%error, "a run's files stay until the next start"),
        }
    }
    Ok(swept)
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
            if text == layout::FORMAT || text == layout::FORMER_FORMAT {
                return Ok(text == layout::FORMER_FORMAT);
            }
            let (text, own) = (text.trim(), layout::FORMAT.trim());
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
    file.write_all(layout::FORMAT.as_bytes()).map_err(|error| Error::from_io("write", "format", error))?;
    file.sync_all().map_err(|error| Error::from_io("fsync", "format", error))?;
    own.rename(draft, own, OsStr::new("format"))
}

/// Reads 32 bytes of the service's own from the file `name`, or draws them.
fn secret(own: &Dir, name: &str) -> Result<[u8; 32]> {
    let (name, mut secret) = (OsStr::new(name), [0; 32]);
    match own.open_file_entry(name) {
        Ok((mut file, stat)) => {
            let is_own = stat.owner == rustix::process::geteuid().as_raw();
            if (layout::is_a_sandboxs(stat.owner) && !is_own) || stat.links != 1 {
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
    Ok(probe.set_owner(layout::OWNER_FIRST).is_ok())
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
