//! [`Views`]: which live views there are, and which go.
//!
//! A view is *active* while a seat in it is taken, else *idle*. It goes when it is idle and
//!
//! * room is needed and no other was unused for longer, or
//! * the baseline has another version than it was made with, or
//! * its upper directory was replaced (*detached*: it is no longer the door of its tree).
//!
//! A *promoted* view, whose user published what is in it while a run was there, is settled when it is idle, which takes
//! the tree's lock: until then it stays the door for reads, and nobody takes a seat in it.
//!
//! Going takes milliseconds and happens elsewhere ([`super::closer`]). Until it is over the tree has no door:
//! whoever wants to change it waits.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use policy::{AgentId, SkillId, TreeId};

use super::closer::{Closer, Closing, Task};
use super::view::{Seat, View};
use super::{Guests, Holding, LiveOptions};
use crate::error::{Error, Result};
use crate::store;
use crate::trash::Trash;

/// How long a change waits for a view to go.
const GOING_WAIT: Duration = Duration::from_secs(30);
/// Trees whose overlays are known to have no stale whiteouts. Beyond it they are forgotten, and looked through again.
const WITHOUT_STALE_MAX: usize = 4096;
/// Trees that wait to be tidied. Beyond it they stay as they are, which costs an empty directory each.
const UNTIDY_MAX: usize = 1024;

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

/// What [`Views`] and all seats share.
pub(super) struct Table {
    state: Mutex<State>,
    /// Told whenever a view has gone.
    gone: Condvar,
    /// Where views go; `None` when the store closes.
    queue: Mutex<Option<SyncSender<Task>>>,
    pub(super) guests: Option<Arc<dyn Guests>>,
}

#[derive(Default)]
struct State {
    entries: HashMap<u64, Entry>,
    doors: HashMap<TreeId, Door>,
    /// The views that have no entry any more and have not gone yet.
    going: HashSet<u64>,
    /// Trees whose views have gone, the last one under this number, and whose overlays may be there only for them.
    untidy: HashMap<TreeId, u64>,
    /// The number of the view made last; they are counted from 1.
    last: u64,
    clock: u64,
}

struct Entry {
    view: Arc<View>,
    seats: usize,
    /// When a seat was last given back, in seats.
    used: u64,
    /// Whether the baseline has another version by now.
    is_older: bool,
    /// Whether its upper directory is no longer where the tree's is.
    is_detached: bool,
    /// Whether what is in it was published while a run was there.
    is_promoted: bool,
    /// What must not be removed while it is mounted.
    kept: Vec<Arc<Trash>>,
}

/// The way to change what lies in an overlay; without one it is changed directly.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Door {
    Live(u64),
    Going(u64),
}

impl Views {
    /// No views yet. `store` is what is tidied when one has gone.
    pub(crate) fn new(options: LiveOptions, holding: Holding, store: std::sync::Weak<store::Inner>) -> Self {
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
    pub(crate) fn sit(&self, id: &TreeId) -> Option<Seat> {
        self.table.sit(id, |entry| !entry.awaits_settling())
    }

    /// Unmounts the view of `id` unless somebody is in it, and waits until it has gone. Tells whether somebody is.
    ///
    /// The caller holds the tree alone and no seat in it.
    ///
    /// # Errors
    /// [`Error::Conflict`] when a view that is going already takes too long.
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

    /// Tells whether `id` has a view that nobody is in and that is to be settled.
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
    pub(crate) fn sit_in_older(&self, id: &TreeId) -> Option<Seat> {
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
    /// [`Error::Conflict`] when it takes too long.
    pub(crate) fn wait_until_gone(&self, id: &TreeId) -> Result<()> {
        self.table.wait_while(|state| matches!(state.doors.get(id), Some(Door::Going(_))))
    }

    /// Makes `view` the door of its tree and takes a seat in it. The caller holds the tree alone, which has no view.
    pub(super) fn insert(&self, view: View) -> Seat {
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
        Seat::new(view, Arc::clone(&self.table), number)
    }

    /// Takes the view of `id` out of the door unless the directory with inode number `upper` is its upper directory:
    /// that was replaced. Whoever is in it stays.
    ///
    /// The caller holds the tree alone. What is replaced must be kept with the seat ([`Seat::keep`]).
    pub(crate) fn detach(&self, id: &TreeId, upper: Option<u64>) -> Option<Seat> {
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
    /// [`Error::Conflict`] when it takes too long.
    pub(super) fn retire_idle(&self) -> Result<Vec<TreeId>> {
        self.table.close(self.table.retire_idle());
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

fn is_of(id: &TreeId, agent: &AgentId, skill: &SkillId) -> bool {
    matches!(id, TreeId::Skill(_, of_agent, of_skill) if of_agent == agent && of_skill == skill)
}

impl Drop for Views {
    fn drop(&mut self) {
        // What still comes is closed on the spot.
        drop(self.table.queue.lock().take());
        let mut closings = self.table.retire_idle();
        // There is no store any more that could tidy after them.
        closings.iter_mut().for_each(|closing| closing.view.leave_workplace());
        self.table.close(closings);
        if let Some(closer) = self.closer.take() {
            closer.join();
        }
    }
}

impl Table {
    fn sit(self: &Arc<Self>, id: &TreeId, admit: impl Fn(&Entry) -> bool) -> Option<Seat> {
        let mut state = self.state.lock();
        let number = state.live(id)?;
        let entry = state.entries.get_mut(&number).filter(|entry| admit(entry))?;
        entry.seats += 1;
        Some(Seat::new(Arc::clone(&entry.view), Arc::clone(self), number))
    }

    fn retire_idle(&self) -> Vec<Closing> {
        let mut state = self.state.lock();
        let idle = state.entries.iter().filter(|(_, entry)| entry.seats == 0);
        let idle: Vec<u64> = idle.map(|(number, _)| *number).collect();
        idle.into_iter().filter_map(|number| state.retire(number)).collect()
    }

    /// Counts another seat in a view that has one.
    pub(super) fn take_seat(&self, number: u64) {
        if let Some(entry) = self.state.lock().entries.get_mut(&number) {
            entry.seats += 1;
        }
    }

    /// Takes a seat back.
    pub(super) fn leave(&self, number: u64) {
        let closing = {
            let mut state = self.state.lock();
            state.clock += 1;
            let clock = state.clock;
            let Some(entry) = state.entries.get_mut(&number) else { return };
            entry.seats -= 1;
            entry.used = clock;
            if entry.awaits_settling() {
                let id = entry.view.id.clone();
                state.untidy.insert(id, number);
                drop(state);
                return self.wake_closer();
            }
            let goes = entry.seats == 0 && (entry.is_older || entry.is_detached);
            if goes { state.retire(number) } else { None }
        };
        self.close(closing.into_iter().collect());
    }

    /// Has the thread that closes views look for trees that are to be tidied. One that has much to do looks anyway.
    fn wake_closer(&self) {
        if let Some(queue) = self.queue.lock().as_ref() {
            drop(queue.try_send(Task::Tidy));
        }
    }

    /// Lets `trash` stay until view `number` has gone.
    pub(super) fn keep(&self, number: u64, trash: Arc<Trash>) {
        if let Some(entry) = self.state.lock().entries.get_mut(&number) {
            entry.kept.push(trash);
        }
    }

    /// Sends views to where they are closed, waiting when many are.
    fn close(&self, closings: Vec<Closing>) {
        for closing in closings {
            let queue = self.queue.lock().clone();
            let refused = match queue {
                Some(queue) => queue.send(Task::Close(closing)).err().map(|refused| refused.0),
                None => Some(Task::Close(closing)),
            };
            if let Some(Task::Close(closing)) = refused {
                closing.finish(self);
            }
        }
    }

    fn wait_while(&self, mut waits: impl FnMut(&State) -> bool) -> Result<()> {
        let deadline = Instant::now() + GOING_WAIT;
        let mut state = self.state.lock();
        while waits(&state) {
            if self.gone.wait_until(&mut state, deadline).timed_out() {
                let message = "the view of a command that has ended is still being closed: try again";
                return Err(Error::Conflict(message.to_owned()));
            }
        }
        Ok(())
    }

    /// Notes that view `number` of `id` has gone.
    pub(super) fn has_gone(&self, id: &TreeId, number: u64) {
        let mut state = self.state.lock();
        state.going.remove(&number);
        if state.doors.get(id) == Some(&Door::Going(number)) {
            state.doors.remove(id);
        }
        if state.untidy.len() < UNTIDY_MAX {
            state.untidy.insert(id.clone(), number);
        }
        self.gone.notify_all();
    }

    /// The trees that are to be tidied, and which view of each has gone.
    pub(super) fn untidy(&self) -> Vec<(TreeId, u64)> {
        self.state.lock().untidy.iter().map(|(id, number)| (id.clone(), *number)).collect()
    }

    /// Notes that `id` was tidied after view `number` had gone.
    pub(super) fn is_tidy(&self, id: &TreeId, number: u64) {
        let mut state = self.state.lock();
        if state.untidy.get(id) == Some(&number) {
            state.untidy.remove(id);
        }
    }
}

impl Entry {
    /// Tells whether nobody is in a view that is to be settled.
    fn awaits_settling(&self) -> bool {
        self.is_promoted && !self.is_detached && self.seats == 0
    }
}

impl State {
    fn live(&self, id: &TreeId) -> Option<u64> {
        match self.doors.get(id) {
            Some(Door::Live(number)) => Some(*number),
            Some(Door::Going(_)) | None => None,
        }
    }

    fn least_recently_used(&self) -> Option<u64> {
        let idle = self.entries.iter().filter(|(_, entry)| entry.seats == 0 && !entry.awaits_settling());
        idle.min_by_key(|(_, entry)| entry.used).map(|(number, _)| *number)
    }

    /// Takes an idle view out. Its tree has no door until it has gone.
    fn retire(&mut self, number: u64) -> Option<Closing> {
        let Entry { view, kept, .. } = self.entries.remove(&number)?;
        if self.doors.get(&view.id) == Some(&Door::Live(number)) {
            self.doors.insert(view.id.clone(), Door::Going(number));
        }
        // Every seat lets go of the view before it is given back, so that this is the last of it.
        let view = Arc::into_inner(view)?;
        self.going.insert(number);
        Some(Closing { view, kept, number })
    }
}
