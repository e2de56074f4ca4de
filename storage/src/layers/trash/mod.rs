//! [`TrashCan`]: what was thrown away, until it is removed.
//!
//! An entry that a change removes or replaces is renamed to `trash/{bin}/{item}`, in one step, and removed from there
//! when no lock is held any more. A *bin* is a directory that the service made, with the tree that its items were in as
//! an attribute; so a thing of a user is never an entry of `trash` itself. Nothing in a bin is ever opened but to be
//! counted and removed: until it has gone it counts for its tree.
//!
//! A removal that fails, or that is larger than a request should wait for, is left to the *janitor*, a thread that tries
//! again, less and less often. A directory that something goes on filling is told ([`TrashCan::tell`]), so that the runs
//! that can reach it are ended.

mod janitor;

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use policy::{AgentId, SkillId, TreeId, UserId};
use serde::{Deserialize, Serialize};

use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::layers::names::Names;
use crate::layers::projects::Projects;
use policy::WorkspaceId;

/// The attribute of a bin that says which tree its items were in.
const OWNER: &str = "user.filesecbox.owner";
/// Entries that the request which throws them away removes itself; the janitor removes the rest.
const AT_ONCE: u64 = 100_000;
/// Bins that are kept for what is thrown away next.
const KEPT_MAX: usize = 1024;
/// Bins that a start looks at. A service makes one for each tree at most.
const FORMER_MAX: usize = 1_000_000;

/// Told whose files were removed, whose number is in doubt from then on.
pub(crate) type Doubt = Arc<dyn Fn(&TreeId) + Send + Sync>;

/// The function that is called with the sandbox of trash which cannot be removed because it is being filled.
pub(crate) type Tell = Arc<dyn Fn(&WorkspaceId) + Send + Sync>;

/// The trash of one store. Cloning gives another handle.
#[derive(Clone)]
pub(crate) struct TrashCan {
    shared: Arc<Shared>,
}

struct Shared {
    dir: Dir,
    names: Arc<Names>,
    doubt: Doubt,
    projects: Projects,
    table: Mutex<Table>,
    /// Told when there is more for the janitor, or the store closes.
    changed: Condvar,
    failures: AtomicU64,
}

#[derive(Default)]
struct Table {
    bins: HashMap<Option<TreeId>, Vec<Bin>>,
    count: usize,
    /// The trash that the janitor is to remove, and when.
    waiting: BTreeMap<(Instant, u64), Item>,
    last: u64,
    tell: Option<Tell>,
    janitor: Option<JoinHandle<()>>,
    is_closed: bool,
}

struct Bin {
    name: OsString,
    items: usize,
    /// Whether a former service made it: nothing is added to it, and it is removed whole.
    is_former: bool,
}

/// Something to be removed.
struct Item {
    owner: Option<TreeId>,
    bin: OsString,
    /// Its name in the bin; `None` for all of a former service's bin.
    name: Option<OsString>,
    /// How often removing it has failed.
    failures: u32,
    /// Entries of it that were removed in vain, as far as that can be said.
    removed: u64,
    /// The project of a whole tree, whose limits the kernel keeps; they go with the last of it.
    project: Option<u32>,
}

/// Something that was thrown away. It is removed when this is dropped: after the locks are released.
#[must_use]
pub(crate) struct Trash {
    can: TrashCan,
    item: Option<Item>,
}

/// The attribute [`OWNER`] as it lies on the disk.
#[derive(Serialize, Deserialize)]
struct Owner {
    user: UserId,
    agent: AgentId,
    skill: Option<SkillId>,
}

impl TrashCan {
    /// The trash in `dir`. What a former service left there is removed by the janitor, and counts until then.
    ///
    /// # Errors
    /// [`Error::TooManyEntries`], [`Error::Io`].
    pub(crate) fn open(dir: Dir, names: Arc<Names>, doubt: Doubt, projects: Projects) -> Result<Self> {
        let former = dir.entries_at_most(FORMER_MAX)?;
        let shared = Shared {
            dir,
            names,
            doubt,
            projects,
            table: Mutex::default(),
            changed: Condvar::new(),
            failures: AtomicU64::new(0),
        };
        let can = Self { shared: Arc::new(shared) };
        for entry in former {
            // An entry that is no directory, or has no owner, counts for no user.
            let bin = can.shared.dir.open_dir_entry(&entry.name);
            let owner = bin.and_then(|bin| bin.attribute(OWNER)).ok().flatten();
            let owner = owner.as_deref().and_then(parse_owner);
            can.shared.table.lock().add(owner.clone(), entry.name.clone(), true);
            can.wait_for(Item { owner, bin: entry.name, name: None, failures: 0, removed: 0, project: None });
        }
        Ok(can)
    }

    /// Throws away the entry `name` of `from`, which was in the tree `owner`.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NoSpace`], [`Error::Io`].
    pub(crate) fn throw(&self, from: &Dir, name: &OsStr, owner: Option<&TreeId>) -> Result<Trash> {
        let bin = self.bin_of(owner)?;
        let item = self.shared.names.fresh();
        let moved = || {
            let into = self.shared.dir.open_dir_entry(&bin)?;
            match from.rename(name, &into, &item) {
                // A directory that its owner may not write to cannot change its parent (rename(2), EACCES).
                Err(Error::Closed(_)) => {
                    drop(from.open_closed_dir(name)?);
                    from.rename(name, &into, &item)
                }
                renamed => renamed,
            }
        };
        if let Err(error) = moved() {
            self.shared.table.lock().leave(owner, &bin);
            return Err(error);
        }
        let project = self.project_of(from, &bin, &item);
        let item = Item { owner: owner.cloned(), bin, name: Some(item), failures: 0, removed: 0, project };
        Ok(Trash { can: self.clone(), item: Some(item) })
    }

    /// The directories whose contents count for the tree `id`.
    pub(crate) fn of(&self, id: &TreeId) -> Vec<Dir> {
        let names: Vec<OsString> = {
            let table = self.shared.table.lock();
            let Some(bins) = table.bins.get(&Some(id.clone())) else { return Vec::new() };
            bins.iter().filter(|bin| bin.items > 0).map(|bin| bin.name.clone()).collect()
        };
        // A bin that has gone meanwhile counts no more.
        names.iter().filter_map(|name| self.shared.dir.open_dir_entry(name).ok()).collect()
    }

    /// The trees of a user of which something was thrown away and is not removed yet.
    pub(crate) fn owners(&self, user: &UserId) -> Vec<TreeId> {
        let table = self.shared.table.lock();
        let filled = table.bins.iter().filter(|(_, bins)| bins.iter().any(|bin| bin.items > 0));
        filled.filter_map(|(owner, _)| owner.clone().filter(|owner| owner.user() == user)).collect()
    }

    /// Calls `tell` from now on with the sandbox of trash that cannot be removed because a run goes on filling it.
    pub(crate) fn tell(&self, tell: Tell) {
        self.shared.table.lock().tell = Some(tell);
    }

    /// How many things wait for another attempt, and how many attempts have failed.
    pub(crate) fn figures(&self) -> (usize, u64) {
        (self.shared.table.lock().waiting.len(), self.shared.failures.load(Ordering::Relaxed))
    }

    /// Ends the janitor. What is left stays for the next start.
    pub(crate) fn close(&self) {
        let janitor = {
            let mut table = self.shared.table.lock();
            table.is_closed = true;
            table.janitor.take()
        };
        self.shared.changed.notify_all();
        // The janitor itself may be the last to let go of the store.
        if let Some(janitor) = janitor
            && janitor.thread().id() != std::thread::current().id()
        {
            drop(janitor.join());
        }
    }

    /// A bin for what was in the tree `owner`, with one item more.
    fn bin_of(&self, owner: Option<&TreeId>) -> Result<OsString> {
        if let Some(name) = self.shared.table.lock().enter(owner) {
            return Ok(name);
        }
        let name = self.shared.names.fresh();
        let bin = self.shared.dir.create_dir(&name, 0o700)?;
        if let Some(owner) = owner {
            bin.set_attribute(OWNER, &owner_text(owner)?)?;
        }
        let gone = {
            let mut table = self.shared.table.lock();
            table.add(owner.cloned(), name.clone(), false);
            table.evict()
        };
        for empty in gone {
            if let Err(error) = self.shared.dir.remove_dir(&empty) {
                tracing::debug!(%error, "an empty bin stays until the next start");
            }
        }
        Ok(name)
    }

    /// Removes at most `most` entries of `item`, and leaves the rest to the janitor.
    fn remove(&self, mut item: Item, most: u64) {
        match self.attempt(&item, most) {
            Ok(true) => {
                self.shared.table.lock().leave(item.owner.as_ref(), &item.bin);
                if let Some(owner) = &item.owner {
                    (self.shared.doubt)(owner);
                }
                if let Some(project) = item.project {
                    self.shared.projects.end(project);
                }
                return;
            }
            Ok(false) => item.removed = item.removed.saturating_add(most),
            Err(error) => {
                self.shared.failures.fetch_add(1, Ordering::Relaxed);
                if item.failures == 0 {
                    tracing::warn!(%error, "something that was thrown away cannot be removed yet: trying again");
                }
                item.failures = item.failures.saturating_add(1);
                let is_filled = matches!(error, Error::NotEmpty(_) | Error::Conflict(_));
                if is_filled && item.is_to_be_told() {
                    self.tell_of(&item);
                }
            }
        }
        if item.was_refilled() {
            item.removed = 0;
            self.tell_of(&item);
        }
        self.wait_for(item);
    }

    /// The project of the whole tree that was thrown away from the directory `from`; `None` for a part of one.
    fn project_of(&self, from: &Dir, bin: &OsStr, item: &OsStr) -> Option<u32> {
        let projects = &self.shared.projects;
        if !projects.keep() || projects.of(from).ok()?.is_some() {
            return None;
        }
        let item = self.shared.dir.open_dir_entry(bin).and_then(|bin| bin.open_dir_entry(item)).ok()?;
        projects.of(&item).ok().flatten()
    }

    fn attempt(&self, item: &Item, most: u64) -> Result<bool> {
        let Some(name) = &item.name else { return self.shared.dir.remove_some(&item.bin, most) };
        match self.shared.dir.open_dir_entry(&item.bin) {
            Err(Error::NotFound(_)) => Ok(true),
            bin => bin?.remove_some(name, most),
        }
    }

    fn tell_of(&self, item: &Item) {
        let Some(owner) = &item.owner else { return };
        let sandbox = WorkspaceId::of(owner);
        tracing::warn!(
            user = %sandbox.user, agent = %sandbox.agent,
            "a command goes on filling what was removed: ending the runs of its sandbox"
        );
        let tell = self.shared.table.lock().tell.clone();
        if let Some(tell) = tell {
            tell(&sandbox);
        }
    }
}

impl Table {
    /// Counts another item in the bin of `owner`, if it has one that this service made.
    fn enter(&mut self, owner: Option<&TreeId>) -> Option<OsString> {
        let bins = self.bins.get_mut(&owner.cloned())?;
        let bin = bins.iter_mut().find(|bin| !bin.is_former)?;
        bin.items += 1;
        Some(bin.name.clone())
    }

    /// Adds a bin with one item.
    fn add(&mut self, owner: Option<TreeId>, name: OsString, is_former: bool) {
        self.count += 1;
        self.bins.entry(owner).or_default().push(Bin { name, items: 1, is_former });
    }

    /// Counts an item less in a bin. One of a former service has gone as a whole.
    fn leave(&mut self, owner: Option<&TreeId>, name: &OsStr) {
        let owner = owner.cloned();
        let Some(bins) = self.bins.get_mut(&owner) else { return };
        let Some(at) = bins.iter().position(|bin| bin.name == name) else { return };
        if let Some(bin) = bins.get_mut(at) {
            bin.items = bin.items.saturating_sub(1);
            if bin.is_former {
                bins.swap_remove(at);
                self.count -= 1;
            }
        }
        if bins.is_empty() {
            self.bins.remove(&owner);
        }
    }

    /// Takes out empty bins when there are too many.
    fn evict(&mut self) -> Vec<OsString> {
        let mut gone = Vec::new();
        if self.count <= KEPT_MAX {
            return gone;
        }
        self.bins.retain(|_, bins| {
            bins.retain(|bin| {
                if bin.items == 0 {
                    gone.push(bin.name.clone());
                }
                bin.items > 0
            });
            !bins.is_empty()
        });
        self.count -= gone.len();
        gone
    }
}

impl Trash {
    /// Leaves the removal to the janitor.
    pub(crate) fn later(mut self) {
        if let Some(item) = self.item.take() {
            self.can.wait_for(item);
        }
    }
}

impl Drop for Trash {
    fn drop(&mut self) {
        if let Some(item) = self.item.take() {
            self.can.remove(item, AT_ONCE);
        }
    }
}

/// The entries that a change replaced. They are removed when this is dropped: drop it where no request waits.
#[must_use]
#[derive(Default)]
pub struct Leftovers {
    pub(crate) trash: Vec<Arc<Trash>>,
}

/// Closes the trash when it is dropped.
pub(crate) struct Closing(pub(crate) TrashCan);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

fn owner_text(owner: &TreeId) -> Result<Vec<u8>> {
    let skill = match owner {
        TreeId::Skill(_, _, skill) => Some(skill.clone()),
        TreeId::Workspace(..) => None,
    };
    let owner = Owner { user: owner.user().clone(), agent: owner.agent().clone(), skill };
    serde_json::to_vec(&owner).map_err(|error| Error::from_io("owner", "trash", std::io::Error::other(error)))
}

fn parse_owner(text: &[u8]) -> Option<TreeId> {
    let Owner { user, agent, skill } = serde_json::from_slice(text).ok()?;
    Some(match skill {
        Some(skill) => TreeId::Skill(user, agent, skill),
        None => TreeId::Workspace(user, agent),
    })
}
