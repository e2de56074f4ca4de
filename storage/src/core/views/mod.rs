//! [`Views`]: which live views there are, and which go.
//!
//! A view is *active* while a seat in it is taken, else *idle*. It goes when it is idle and
//!
//! * room is needed and no other was unused for longer, or
//! * the baseline has another version than it was made with, or
//! * its upper directory was replaced (*detached*: it is no longer the door of its tree).
//!
//! A *promoted* view, whose user published what is in it while a run was there, is settled when it is idle, which takes
//! the tree's lock: until then it stays the door for reads, and no run takes a seat in it.
//!
//! Going takes milliseconds and happens elsewhere ([`closer`]). Until it is over the tree has no door:
//! a request that wants to change it waits.

mod closer;
mod probe;
mod table;

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::{Condvar, Mutex};
use policy::{AgentId, SkillId, TreeId};

use self::closer::Closer;
pub(crate) use self::probe::probe;
pub(crate) use self::table::Tidy;
use self::table::{Door, Entry, Table, is_of};
use crate::error::Result;
use crate::layers::trash::Trash;
use crate::layers::view::{Holding, LiveOptions, View, ViewLease};

/// Trees whose overlays are known to have no stale whiteouts. Beyond it they are forgotten, and looked through again.
const WITHOUT_STALE_MAX: usize = 4096;
/// The live views of one store.
pub(crate) struct Views {
    table: Arc<Table>,
    closer: Option<Closer>,
    pub(super) options: LiveOptions,
    pub(super) holding: Holding,
    /// Trees whose overlays had no whiteouts that hide nothing when they were mounted last, over which directory: its inode
    /// number and change time.
    without_stale: Mutex<HashMap<TreeId, (u64, i128)>>,
}

impl Views {
    /// No views yet. `store` is what is tidied when one has gone.
    pub(crate) fn new(options: LiveOptions, holding: Holding, store: Weak<dyn Tidy>) -> Self {
        let (state, gone, queue) = (Mutex::default(), Condvar::new(), Mutex::new(None));
        let table = Arc::new(Table { state, gone, queue, guests: options.guests.clone() });
        let closer = Closer::start(Arc::clone(&table), store);
        let closer = closer.map(|(closer, queue)| {
            *table.queue.lock() = Some(queue);
            closer
        });
        Self { table, closer, options, holding, without_stale: Mutex::default() }
    }

    /// Tells whether the overlay of `id` is known to have no whiteouts that hide nothing over the directory `below`.
    pub(super) fn is_without_stale_whiteouts(&self, id: &TreeId, below: (u64, i128)) -> bool {
        self.without_stale.lock().get(id) == Some(&below)
    }

    /// Notes that the overlay of `id` has no whiteouts that hide nothing over the directory `below`. None come while that
    /// stays what lies below.
    pub(super) fn note_no_stale_whiteouts(&self, id: &TreeId, below: (u64, i128)) {
        let mut known = self.without_stale.lock();
        if known.len() >= WITHOUT_STALE_MAX {
            known.clear();
        }
        known.insert(id.clone(), below);
    }

    /// How many views there are, without those that are going.
    pub(crate) fn count(&self) -> usize {
        self.table.state.lock().entries.len()
    }

    /// Takes a seat in the view of `id`, if it has one.
    pub(crate) fn sit(&self, id: &TreeId) -> Option<ViewLease> {
        self.table.sit(id, |entry| !entry.awaits_settling())
    }

    /// Unmounts the view of `id` unless a lease of it is held, and waits until it has gone. Tells whether one is held.
    ///
    /// The caller holds the tree alone and no seat in it.
    ///
    /// # Errors
    /// [`Error::Conflict`](crate::Error::Conflict) when a view that is going already takes too long.
    pub(crate) fn close_idle(&self, id: &TreeId) -> Result<bool> {
        let closing = {
            let mut state = self.table.state.lock();
            match state.live(id).and_then(|number| Some((number, state.entries.get(&number)?.seats))) {
                Some((_, seats)) if seats > 0 => return Ok(true),
                Some((number, _)) => state.retire(number),
                None => None,
            }
        };
        // On this thread: the one that closes views may be the one that asks.
        if let Some(closing) = closing {
            closing.finish(&self.table);
        }
        self.wait_until_gone(id)?;
        Ok(false)
    }

    /// Tells whether `id` has a view without leases that is to be settled.
    pub(crate) fn is_awaiting(&self, id: &TreeId) -> bool {
        let state = self.table.state.lock();
        state.live(id).and_then(|number| state.entries.get(&number)).is_some_and(Entry::awaits_settling)
    }

    /// Tells whether `id` has a view that is not going.
    pub(crate) fn is_live(&self, id: &TreeId) -> bool {
        self.table.state.lock().live(id).is_some()
    }

    /// Has the view of `id` settled when its last run has left it. Tells whether there is one.
    ///
    /// The caller holds the tree alone.
    pub(crate) fn settle_later(&self, id: &TreeId) -> bool {
        let mut state = self.table.state.lock();
        let Some(number) = state.live(id) else { return false };
        let Some(entry) = state.entries.get_mut(&number) else { return false };
        entry.is_promoted = true;
        true
    }

    /// As [`Views::sit`], if the view has another version of the baseline than the one that is current.
    pub(crate) fn sit_in_older(&self, id: &TreeId) -> Option<ViewLease> {
        self.table.sit(id, |entry| entry.is_older)
    }

    /// Tells whether `id` has a view with another version of the baseline than the one that is current.
    pub(crate) fn has_older(&self, id: &TreeId) -> bool {
        let state = self.table.state.lock();
        state.live(id).and_then(|number| state.entries.get(&number)).is_some_and(|entry| entry.is_older)
    }

    /// Tells whether `id` has a view, or had one that has not gone yet.
    pub(crate) fn has(&self, id: &TreeId) -> bool {
        self.table.state.lock().doors.contains_key(id)
    }

    /// Waits until `id` has no view that is going. The caller holds the tree alone and no seat in it.
    ///
    /// # Errors
    /// [`Error::Conflict`](crate::Error::Conflict) when it takes too long.
    pub(crate) fn wait_until_gone(&self, id: &TreeId) -> Result<()> {
        self.table.wait_while(|state| matches!(state.doors.get(id), Some(Door::Going(_))))
    }

    /// Makes `view` the door of its tree and takes a seat in it. The caller holds the tree alone, which has no view.
    pub(super) fn insert(&self, view: View) -> ViewLease {
        let mut closings = Vec::new();
        let (view, number) = {
            let mut state = self.table.state.lock();
            while state.entries.len() >= self.options.views_max.max(1)
                && let Some(number) = state.least_recently_used()
            {
                closings.extend(state.retire(number));
            }
            state.last += 1;
            let (number, view) = (state.last, Arc::new(view));
            state.doors.insert(view.id.clone(), Door::Live(number));
            let entry = Entry {
                view: Arc::clone(&view),
                seats: 1,
                used: state.clock,
                is_older: false,
                is_detached: false,
                is_promoted: false,
                kept: Vec::new(),
            };
            state.entries.insert(number, entry);
            (view, number)
        };
        self.table.close(closings);
        ViewLease::new(view, Arc::<Table>::clone(&self.table), number)
    }

    /// Takes the view of `id` out of the door unless the directory with inode number `upper` is its upper directory:
    /// that was replaced. The runs in it stay.
    ///
    /// The caller holds the tree alone. What is replaced must be kept with the seat ([`ViewLease::keep`]).
    pub(crate) fn detach(&self, id: &TreeId, upper: Option<u64>) -> Option<ViewLease> {
        let seat = self.table.sit(id, |entry| Some(entry.view.upper_inode) != upper)?;
        let mut state = self.table.state.lock();
        if let Some(Door::Live(number)) = state.doors.remove(id)
            && let Some(entry) = state.entries.get_mut(&number)
        {
            entry.is_detached = true;
        }
        Some(seat)
    }

    /// Lets every idle view go, and waits until all that are going have gone. Returns which trees are to be tidied.
    ///
    /// # Errors
    /// [`Error::Conflict`](crate::Error::Conflict) when it takes too long.
    pub(super) fn retire_idle(&self) -> Result<Vec<TreeId>> {
        // Those that are to be settled are closed by the thread that holds their trees: the thread that closes views may be about to,
        // and would wait for itself if they were in its queue.
        self.table.close(self.table.retire_idle(|entry| !entry.awaits_settling()));
        let going = self.table.state.lock().going.clone();
        self.table.wait_while(|state| !state.going.is_disjoint(&going))?;
        Ok(self.table.untidy().into_iter().map(|(id, _)| id).collect())
    }

    /// Tells every view of a skill which directory is its baseline by now, by inode number.
    ///
    /// The caller holds the baseline alone.
    pub(crate) fn baseline_is(&self, agent: &AgentId, skill: &SkillId, inode: Option<u64>) {
        let closings = {
            let mut state = self.table.state.lock();
            let mut idle = Vec::new();
            for (number, entry) in &mut state.entries {
                if is_of(&entry.view.id, agent, skill) {
                    entry.is_older = !entry.view.is_opaque && entry.view.lower_inode != inode;
                    if entry.is_older && entry.seats == 0 && !entry.is_promoted {
                        idle.push(*number);
                    }
                }
            }
            idle.into_iter().filter_map(|number| state.retire(number)).collect()
        };
        self.table.close(closings);
    }

    /// Lets `trash`, in which a former baseline of a skill may be, stay until the last view of it has gone.
    pub(crate) fn keep_lower(&self, agent: &AgentId, skill: &SkillId, trash: &Arc<Trash>) {
        let mut state = self.table.state.lock();
        for entry in state.entries.values_mut() {
            if entry.is_older && is_of(&entry.view.id, agent, skill) {
                entry.kept.push(Arc::clone(trash));
            }
        }
    }

    /// The inode numbers of all lower layers that views of a skill have.
    pub(crate) fn lower_inodes(&self, agent: &AgentId, skill: &SkillId) -> Vec<u64> {
        let state = self.table.state.lock();
        let entries = state.entries.values().filter(|entry| is_of(&entry.view.id, agent, skill));
        entries.filter_map(|entry| entry.view.lower_inode).collect()
    }
}

impl Drop for Views {
    fn drop(&mut self) {
        // Views that still come are closed on the spot.
        drop(self.table.queue.lock().take());
        let mut closings = self.table.retire_idle(|_| true);
        // There is no store any more that could tidy after them.
        closings.iter_mut().for_each(|closing| closing.view.leave_workplace());
        self.table.close(closings);
        if let Some(closer) = self.closer.take() {
            closer.join();
        }
    }
}
