//! [`Closer`]: a thread that closes views.
//!
//! Unmounting synchronises the upper directory's file system with strict durability, which takes milliseconds that no
//! request should wait, and more where programs write much. Views that wait to be closed are closed side by side: they share
//! one commit of the file system.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

use super::table::{Closing, Table, Task, Tidy};

/// Views that wait to be closed before a request that lets another go waits too.
const QUEUE: usize = 64;
/// Views closed side by side at most.
const AT_ONCE: usize = 16;
/// How soon a tree that was in use is tried again.
const UNTIDY_WAIT: Duration = Duration::from_millis(20);

/// The thread, which ends when its queue does.
pub(super) struct Closer {
    thread: JoinHandle<()>,
}

impl Closer {
    /// Starts the thread; `None` when there can be no more threads, and views are closed where they are let go.
    pub(super) fn start(table: Arc<Table>, store: Weak<dyn Tidy>) -> Option<(Self, SyncSender<Task>)> {
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

fn close_all(table: &Table, queue: &Receiver<Task>, store: &Weak<dyn Tidy>) {
    let mut untidy = Vec::new();
    loop {
        let next = match untidy.is_empty() {
            true => queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => queue.recv_timeout(UNTIDY_WAIT),
        };
        match next {
            Ok(Task::Close(closing)) => close_together(table, closing, queue),
            Ok(Task::Tidy) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if let Some(store) = store.upgrade() {
            untidy = table.untidy();
            // Never waiting for a lock: its holder may be waiting for a view that is behind in the queue.
            for (id, number) in untidy.extract_if(.., |(id, _)| Arc::clone(&store).tidy(id)) {
                table.is_tidy(&id, number);
            }
        }
    }
}

/// Closes `first` and those that wait behind it.
fn close_together(table: &Table, first: Box<Closing>, queue: &Receiver<Task>) {
    let waiting = queue.try_iter().take(AT_ONCE - 1).filter_map(|task| match task {
        Task::Close(closing) => Some(closing),
        // Trees are looked for after every task.
        Task::Tidy => None,
    });
    let together: Vec<_> = std::iter::once(first).chain(waiting).collect();
    let helpers = together.len() - 1;
    let left = Mutex::new(together.into_iter());
    let next = || left.lock().next();
    let close = || {
        while let Some(closing) = next() {
            closing.finish(table);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..helpers {
            let helper = std::thread::Builder::new().name("views".to_owned());
            // Without a further thread this one closes them.
            drop(helper.spawn_scoped(scope, close));
        }
        close();
    });
}
