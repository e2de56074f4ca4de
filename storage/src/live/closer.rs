//! [`Closer`]: a thread that closes views.
//!
//! Unmounting synchronises the upper directory's file system, which takes milliseconds that no request should wait.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use super::table::Table;
use super::view::View;
use crate::store::{self, Store};
use crate::trash::Trash;

/// Views that wait to be closed before whoever lets another go waits too.
const QUEUE: usize = 64;
/// How soon a tree that was in use is tried again.
const UNTIDY_WAIT: Duration = Duration::from_millis(20);

/// A view that nobody is in any more.
pub(super) struct Closing {
    pub(super) view: View,
    pub(super) kept: Vec<Arc<Trash>>,
    pub(super) number: u64,
}

/// What the thread is asked to do.
pub(super) enum Task {
    Close(Closing),
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

/// The thread, which ends when its queue does.
pub(super) struct Closer {
    thread: JoinHandle<()>,
}

impl Closer {
    /// Starts the thread; `None` when there can be no more threads, and views are closed where they are let go.
    pub(super) fn start(table: Arc<Table>, store: Weak<store::Inner>) -> Option<(Self, SyncSender<Task>)> {
        let (sender, queue) = sync_channel(QUEUE);
        let run = move || close_all(&table, &queue, &store);
        match std::thread::Builder::new().name("views".to_owned()).spawn(run) {
            Ok(thread) => Some((Self { thread }, sender)),
            Err(error) => {
                tracing::warn!(%error, "views are closed by the requests that let them go");
                None
            }
        }
    }

    /// Waits for the end of the thread, once its queue has no senders.
    pub(super) fn join(self) {
        // The thread itself may be the last to let go of the store.
        if self.thread.thread().id() != std::thread::current().id() {
            drop(self.thread.join());
        }
    }
}

fn close_all(table: &Table, queue: &Receiver<Task>, store: &Weak<store::Inner>) {
    let mut untidy = Vec::new();
    loop {
        let next = match untidy.is_empty() {
            true => queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => queue.recv_timeout(UNTIDY_WAIT),
        };
        match next {
            Ok(Task::Close(closing)) => closing.finish(table),
            Ok(Task::Tidy) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if let Some(inner) = store.upgrade() {
            let store = Store { inner };
            untidy = table.untidy();
            // Never waiting for a lock: whoever has it may be waiting for a view that is behind in the queue.
            for (id, number) in untidy.extract_if(.., |(id, _)| store.tidy_overlay(id)) {
                table.is_tidy(&id, number);
            }
        }
    }
}
