//! [`Table`]: which live views there are, how many leases each has, and which go.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use policy::{AgentId, SkillId, TreeId};

use crate::error::{Error, Result};
use crate::layers::trash::Trash;
use crate::layers::view::{Departure, Guests, Leases, View, ViewLease};

/// How long a change waits for a view to go.
const GOING_WAIT: Duration = Duration::from_secs(30);
/// Trees that wait to be tidied. Beyond it they stay as they are, which costs an empty directory each.
const UNTIDY_MAX: usize = 1024;

/// The store, which tidies overlays when their views have gone.
pub(crate) trait Tidy: Send + Sync {
    /// Removes what was there only for the view of `id`, unless the tree is in use. Tells whether it did.
    fn tidy(self: Arc<Self>, id: &TreeId) -> bool;
}

/// The state that [`Views`](super::Views) and all leases share.
pub(super) struct Table {
    pub(super) state: Mutex<State>,
    /// Told whenever a view has gone.
    pub(super) gone: Condvar,
    /// Where views go; `None` when the store closes.
    pub(super) queue: Mutex<Option<SyncSender<Task>>>,
    pub(super) guests: Option<Arc<dyn Guests>>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) entries: HashMap<u64, Entry>,
    pub(super) doors: HashMap<TreeId, Door>,
    /// The views that have no entry any more and have not gone yet.
    pub(super) going: HashSet<u64>,
    /// Trees whose views have gone, the last one under this number, and whose overlays may be there only for them.
    pub(super) untidy: HashMap<TreeId, u64>,
    /// The number of the view made last; they are counted from 1.
    pub(super) last: u64,
    pub(super) clock: u64,
}

pub(super) struct Entry {
    pub(super) view: Arc<View>,
    pub(super) seats: usize,
    /// When a seat was last given back, in seats.
    pub(super) used: u64,
    /// Whether the baseline has another version by now.
    pub(super) is_older: bool,
    /// Whether its upper directory is no longer where the tree's is.
    pub(super) is_detached: bool,
    /// Whether what is in it was published while a run was there.
    pub(super) is_promoted: bool,
    /// The directories that must not be removed while they are mounted.
    pub(super) kept: Vec<Arc<Trash>>,
}

/// The way to change what lies in an overlay; without one it is changed directly.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Door {
    Live(u64),
    Going(u64),
}

pub(super) fn is_of(id: &TreeId, agent: &AgentId, skill: &SkillId) -> bool {
    matches!(id, TreeId::Skill(_, of_agent, of_skill) if of_agent == agent && of_skill == skill)
}

impl Table {
    pub(super) fn sit(self: &Arc<Self>, id: &TreeId, admit: impl Fn(&Entry) -> bool) -> Option<ViewLease> {
        let mut state = self.state.lock();
        let number = state.live(id)?;
        let entry = state.entries.get_mut(&number).filter(|entry| admit(entry))?;
        entry.seats += 1;
        Some(ViewLease::new(Arc::clone(&entry.view), Arc::<Self>::clone(self), number))
    }

    /// Takes out the idle views that `admit` admits.
    pub(super) fn retire_idle(&self, admit: impl Fn(&Entry) -> bool) -> Vec<Closing> {
        let mut state = self.state.lock();
        let idle = state.entries.iter().filter(|(_, entry)| entry.seats == 0 && admit(entry));
        let idle: Vec<u64> = idle.map(|(number, _)| *number).collect();
        idle.into_iter().filter_map(|number| state.retire(number)).collect()
    }

    /// Has the thread that closes views look for trees that are to be tidied. One that has much to do looks anyway.
    pub(super) fn wake_closer(&self) {
        if let Some(queue) = self.queue.lock().as_ref() {
            drop(queue.try_send(Task::Tidy));
        }
    }

    /// Sends views to where they are closed, waiting when many are.
    pub(super) fn close(&self, closings: Vec<Closing>) {
        for closing in closings {
            let queue = self.queue.lock().clone();
            let refused = match queue {
                Some(queue) => queue.send(Task::Close(Box::new(closing))).err().map(|refused| refused.0),
                None => Some(Task::Close(Box::new(closing))),
            };
            if let Some(Task::Close(closing)) = refused {
                closing.finish(self);
            }
        }
    }

    /// Sends a view to where it is closed, unless it would have to wait there: then it is closed when what this returns
    /// is dropped.
    fn try_close(self: Arc<Self>, closing: Closing) -> Option<Departure> {
        let task = Task::Close(Box::new(closing));
        let refused = match self.queue.lock().as_ref() {
            Some(queue) => match queue.try_send(task) {
                Ok(()) => None,
                Err(TrySendError::Full(task) | TrySendError::Disconnected(task)) => Some(task),
            },
            None => Some(task),
        };
        let Some(Task::Close(closing)) = refused else { return None };
        Some(Box::new(Late { closing: Some(*closing), table: self }))
    }

    pub(super) fn wait_while(&self, mut waits: impl FnMut(&State) -> bool) -> Result<()> {
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

impl Leases for Table {
    fn take(&self, number: u64) {
        if let Some(entry) = self.state.lock().entries.get_mut(&number) {
            entry.seats += 1;
        }
    }

    fn leave(self: Arc<Self>, number: u64) -> Option<Departure> {
        let closing = {
            let mut state = self.state.lock();
            state.clock += 1;
            let clock = state.clock;
            let entry = state.entries.get_mut(&number)?;
            entry.seats -= 1;
            entry.used = clock;
            if entry.awaits_settling() {
                let id = entry.view.id.clone();
                state.untidy.insert(id, number);
                drop(state);
                self.wake_closer();
                return None;
            }
            let goes = entry.seats == 0 && (entry.is_older || entry.is_detached);
            if goes { state.retire(number) } else { None }
        };
        self.try_close(closing?)
    }

    fn keep(&self, number: u64, trash: Arc<Trash>) {
        if let Some(entry) = self.state.lock().entries.get_mut(&number) {
            entry.kept.push(trash);
        }
    }
}

impl Entry {
    /// Tells whether a view has no lease and is to be settled.
    pub(super) fn awaits_settling(&self) -> bool {
        self.is_promoted && !self.is_detached && self.seats == 0
    }
}

impl State {
    pub(super) fn live(&self, id: &TreeId) -> Option<u64> {
        match self.doors.get(id) {
            Some(Door::Live(number)) => Some(*number),
            Some(Door::Going(_)) | None => None,
        }
    }

    pub(super) fn least_recently_used(&self) -> Option<u64> {
        let idle = self.entries.iter().filter(|(_, entry)| entry.seats == 0 && !entry.awaits_settling());
        idle.min_by_key(|(_, entry)| entry.used).map(|(number, _)| *number)
    }

    /// Takes an idle view out. Its tree has no door until it has gone.
    pub(super) fn retire(&mut self, number: u64) -> Option<Closing> {
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

/// A view without leases.
pub(super) struct Closing {
    pub(super) view: View,
    pub(super) kept: Vec<Arc<Trash>>,
    pub(super) number: u64,
}

/// A [`Closing`] for which there was no room where views are closed. It is closed when this is dropped.
struct Late {
    closing: Option<Closing>,
    table: Arc<Table>,
}

impl Drop for Late {
    fn drop(&mut self) {
        self.table.close(self.closing.take().into_iter().collect());
    }
}

/// A task of the thread.
pub(super) enum Task {
    Close(Box<Closing>),
    /// To look for trees that are to be tidied, as it does after every task.
    Tidy,
}

impl Closing {
    /// Unmounts the view and removes what was kept for it.
    pub(super) fn finish(self, table: &Table) {
        let Self { view, kept, number } = self;
        let id = view.id.clone();
        if let Some(guests) = &table.guests {
            guests.let_go(number);
        }
        drop(view);
        drop(kept);
        table.has_gone(&id, number);
    }
}
