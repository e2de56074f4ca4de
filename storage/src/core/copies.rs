//! [`Copies`]: the copies of skills in which commands run where nothing can be mounted.
//!
//! A skill has one copy, which all runs that see it at the time share, as they would share its live view. It stays for the
//! next run, which then copies only what has changed since. Copies that no run is in are bounded
//! ([`idle_copies`](crate::core::idle_copies)), and go when the disk becomes full.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};
use policy::TreeId;

use crate::core::idle_copies::{Idle, Taken, beyond_bounds};
use crate::core::lock::{ATTEMPT, Generation, in_time};
use crate::dir::Dir;
use crate::error::Result;
use crate::layers::stage::Stage;
use crate::layers::trash::Trash;
use crate::stat::{Kind, Stat, Use};

/// The values that tell whether an entry was touched. No command can set the change time back.
#[derive(Clone, Debug)]
pub(crate) struct Fingerprint {
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    /// Bytes on the disk; they tell nothing, because the kernel allocates when it likes.
    pub(crate) allocated: u64,
    /// Whether a file has further names. The change time tells when it gets or loses one.
    pub(crate) is_linked: bool,
    /// Inode, size, modification and change time of a file or link; nothing of a directory, whose entries tell.
    content: Option<(u64, u64, i128, i128)>,
}

impl PartialEq for Fingerprint {
    fn eq(&self, other: &Self) -> bool {
        (self.kind, self.mode, self.content) == (other.kind, other.mode, other.content)
    }
}

impl From<&Stat> for Fingerprint {
    fn from(stat: &Stat) -> Self {
        let content = match stat.kind {
            Kind::Directory => None,
            _ => Some((stat.inode, stat.size, stat.modified_ns, stat.changed_ns)),
        };
        let is_linked = stat.kind == Kind::File && stat.links > 1;
        Self { kind: stat.kind, mode: stat.mode, allocated: stat.allocated, is_linked, content }
    }
}

impl Fingerprint {
    /// The size of a file or link, in bytes; `None` of anything else.
    pub(crate) fn size(&self) -> Option<u64> {
        match self.kind {
            Kind::File | Kind::Symlink => self.content.map(|(_, size, ..)| size),
            Kind::Directory | Kind::Other => None,
        }
    }
}

/// The entries of a tree by path.
pub(crate) type Entries = BTreeMap<OsString, Fingerprint>;

/// A name in `work/`, whose content is thrown away when this is dropped. Until it is removed it counts for its tree.
pub(crate) struct WorkTrash {
    pub(crate) stage: Stage,
    pub(crate) id: TreeId,
    pub(crate) work: Dir,
    /// Until it is thrown away.
    pub(crate) name: Option<OsString>,
}

impl WorkTrash {
    /// Moves it to the trash, so that its name is free; it is removed when the trash is dropped.
    fn throw_away(&mut self) -> Option<Trash> {
        let name = self.name.take()?;
        match self.stage.discard(&self.work, &name, Some(&self.id)) {
            Ok(trash) => Some(trash),
            Err(error) => {
                tracing::warn!(
                    %error, run = ?name,
                    "failed to remove the copy of a run: it stays until the next start"
                );
                None
            }
        }
    }
}

impl Drop for WorkTrash {
    fn drop(&mut self) {
        drop(self.throw_away());
    }
}

/// A tree as it was copied for runs, or as far as it was copied. Dropping it removes it.
pub(crate) struct Copy {
    pub(crate) dir: Dir,
    /// The entries of the copy when it was as the tree is.
    pub(crate) before: Entries,
    /// The entries that were copied, as they are in the tree.
    pub(crate) sources: Entries,
    /// The baseline that was copied: what an overlay that a run makes begins with. Of a workspace, nothing.
    pub(crate) base: String,
    /// The generation of the tree that the copy is of; `None` when nothing is certain, or something is still to be copied.
    pub(crate) generation: Option<Generation>,
    // Last: a directory that is open is not gone when it is removed.
    pub(crate) trash: WorkTrash,
}

impl Copy {
    /// Its entries, and the bytes in its files.
    pub(crate) fn content(&self) -> Use {
        let bytes = self.before.values().filter_map(Fingerprint::size).sum();
        Use { bytes, files: self.before.len() as u64 }
    }

    /// Forgets the entries `removed`, and all below them.
    pub(crate) fn forget_below(&mut self, removed: &BTreeSet<OsString>) {
        let is_removed =
            |path: &OsString| Path::new(path).ancestors().any(|above| removed.contains(above.as_os_str()));
        self.before.retain(|path, _| !is_removed(path));
        self.sources.retain(|path, _| !is_removed(path));
    }

    /// The room that it took on the disk when it was made.
    pub(crate) fn taken(&self) -> Use {
        let own = Use { bytes: 0, files: 1 };
        let entries = self.before.values();
        entries.fold(own, |sum, entry| sum.plus(Use { bytes: entry.allocated, files: 1 }))
    }
}

/// The copy of one skill. Its lock is held while it is made, brought up to date, or taken into the overlay.
#[derive(Default)]
pub(crate) struct SkillCopy {
    pub(crate) copy: Mutex<CopyState>,
}

impl SkillCopy {
    /// Holds the copy, when the job on this thread may wait for it.
    ///
    /// # Errors
    /// Those of [`crate::interrupt::check`], while other runs make, look at or take in the copy.
    pub(crate) fn hold(&self) -> Result<MutexGuard<'_, CopyState>> {
        in_time(|| self.copy.try_lock_for(ATTEMPT))
    }
}

/// What is known of the copy of a skill.
#[derive(Default)]
pub(crate) struct CopyState {
    /// Nothing before the first run, and after what made it unfit for a further one.
    pub(crate) made: Option<Copy>,
    /// Whether the copy is to be made anew when no run is in it.
    pub(crate) is_doubtful: bool,
    /// Whether a process that is in none of its runs may have files of it open, or further names for them.
    pub(crate) is_exposed: bool,
}

impl CopyState {
    /// What the copy takes; `None` when there is nothing that a next run could begin with.
    fn taken(&self) -> Option<Taken> {
        let copy = self.made.as_ref().filter(|_| !self.is_doubtful)?;
        Some(Taken { copies: 1, entries: copy.before.len() as u64, bytes: copy.taken().bytes })
    }
}

/// The copies of all skills.
#[derive(Default)]
pub(crate) struct Copies {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    places: HashMap<TreeId, Place>,
    clock: u64,
}

struct Place {
    copy: Arc<SkillCopy>,
    runs: usize,
    used: u64,
    /// What the copy took when the last run left it.
    taken: Taken,
}

/// A run's part in the copy of a skill. Dropping it may remove copies that no run is in.
pub(crate) struct CopyLease {
    copies: Arc<Copies>,
    id: TreeId,
    copy: Arc<SkillCopy>,
    /// Whether the run counts no more.
    has_left: AtomicBool,
}

impl Copies {
    /// Takes part in the copy of `id`, which may be yet to be made.
    pub(crate) fn enter(self: &Arc<Self>, id: &TreeId) -> CopyLease {
        let mut table = self.table.lock();
        table.clock += 1;
        let used = table.clock;
        let place = table.places.entry(id.clone()).or_insert_with(|| Place {
            copy: Arc::default(),
            runs: 0,
            used,
            taken: Taken::default(),
        });
        place.runs += 1;
        place.used = used;
        let copy = Arc::clone(&place.copy);
        CopyLease { copies: Arc::clone(self), id: id.clone(), copy, has_left: AtomicBool::new(false) }
    }

    /// How many runs are in the copy of `id`.
    pub(crate) fn runs(&self, id: &TreeId) -> usize {
        self.table.lock().places.get(id).map_or(0, |place| place.runs)
    }

    /// Removes the copy of `id` when no run is in it: what its user deleted is not to stay in it. Returns at once; the
    /// caller may hold the tree.
    pub(crate) fn forget(&self, id: &TreeId) {
        if let Some(gone) = self.table.lock().throw_away(id) {
            // To remove it takes time. Without a thread it is removed here: the closure is dropped.
            let _ = std::thread::Builder::new().name("copies".to_owned()).spawn(move || drop(gone));
        }
    }

    /// Removes all copies that no run is in, and waits for that. Tells whether there was one.
    pub(crate) fn forget_idle(&self) -> bool {
        let gone: Vec<Trash> = {
            let mut table = self.table.lock();
            let all: Vec<TreeId> = table.places.keys().cloned().collect();
            all.iter().filter_map(|id| table.throw_away(id)).collect()
        };
        !gone.is_empty()
    }
}

impl Table {
    /// Notes that a run has left the copy of `id`, of which `taken` is known, if anything.
    fn count_out(&mut self, id: &TreeId, taken: Option<Taken>) {
        let Some(place) = self.places.get_mut(id) else { return };
        place.runs = place.runs.saturating_sub(1);
        if let Some(taken) = taken {
            place.taken = taken;
        }
    }

    /// Takes out the copy of `id` when no run is in it. Its name is free before the table is: the next copy of the skill has
    /// the same.
    fn throw_away(&mut self, id: &TreeId) -> Option<Trash> {
        if self.places.get(id)?.runs > 0 {
            return None;
        }
        // Who holds the lock of a copy and waits for the table is a run that counts.
        let place = self.places.remove(id)?;
        let made = place.copy.copy.lock().made.take();
        made.and_then(|mut copy| copy.trash.throw_away())
    }

    /// Takes out what is beyond the bounds.
    fn beyond_bounds(&mut self) -> Vec<Trash> {
        let idle = self.places.iter().filter(|(_, place)| place.runs == 0);
        let idle = idle.map(|(id, place)| Idle { id: id.clone(), used: place.used, taken: place.taken });
        let beyond = beyond_bounds(idle.collect());
        beyond.iter().filter_map(|id| self.throw_away(id)).collect()
    }
}

impl CopyLease {
    /// The copy.
    pub(crate) fn copy(&self) -> &SkillCopy {
        &self.copy
    }

    /// Whether no other run is in it.
    pub(crate) fn is_alone(&self) -> bool {
        self.copies.runs(&self.id) <= 1
    }

    /// Says that the run has nothing more to do with the copy, whose `state` the caller holds: from now on another run may
    /// find it alone. The lease itself may be dropped when its caller has been answered. Once is enough.
    pub(crate) fn leave(&self, state: &CopyState) {
        if !self.has_left.swap(true, Ordering::Relaxed) {
            self.copies.table.lock().count_out(&self.id, state.taken());
        }
    }
}

impl Drop for CopyLease {
    fn drop(&mut self) {
        // Another run that works on the copy is in it, and tells when it leaves.
        let taken = self.copy.copy.try_lock().map(|state| state.taken());
        let gone = {
            let mut table = self.copies.table.lock();
            if !*self.has_left.get_mut() {
                table.count_out(&self.id, taken.flatten());
            }
            // Nothing is kept that a next run could not begin with.
            let is_this = |place: &Place| Arc::ptr_eq(&place.copy, &self.copy);
            let is_unfit = taken == Some(None) && table.places.get(&self.id).is_some_and(is_this);
            let unfit = if is_unfit { table.throw_away(&self.id) } else { None };
            unfit.map_or_else(|| table.beyond_bounds(), |trash| vec![trash])
        };
        // Not under the lock: to remove a copy takes time.
        drop(gone);
    }
}

/// The name of the copy of a skill in `work/`: the same for every run.
pub(crate) fn copy_name(id: &TreeId) -> OsString {
    let mut hasher = blake3::Hasher::new();
    // No id holds a NUL byte.
    for part in [id.user().as_str(), "\0", id.agent().as_str(), "\0", &id.sandbox_path()] {
        hasher.update(part.as_bytes());
    }
    OsString::from(format!("copy-{}", hasher.finalize().to_hex()))
}
