//! [`Calls`]: the requests that are under way.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::{AbortHandle, AbortRegistration};
use parking_lot::Mutex;
use sandbox::ErrorKind;
use sandbox::wire::CALLS_MAX;
use sandbox::wire::response::Failed;

/// Bytes of requests that are under way, at most: input of commands and contents of files that wait to be written.
const BYTES_MAX: usize = 64 << 20;

/// The requests of one connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Calls(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    bytes: usize,
    calls: HashMap<u64, AbortHandle>,
    ids: HashMap<String, u64>,
}

/// The place of one request, free once this is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    calls: Calls,
    number: u64,
    id: Option<String>,
    bytes: usize,
}

impl Calls {
    /// A place for a request of `bytes`.
    ///
    /// # Errors
    /// The refusal, when too much is under way.
    pub(super) fn enter(&self, id: Option<&str>, bytes: usize) -> Result<(Slot, AbortRegistration), Failed> {
        let mut table = self.0.lock();
        if table.calls.len() >= CALLS_MAX {
            let message = format!("{CALLS_MAX} requests are under way: wait for answers");
            return Err(Failed::new(ErrorKind::Busy, message));
        }
        if table.bytes + bytes > BYTES_MAX {
            let message =
                format!("the requests under way have more than {BYTES_MAX} bytes: wait for answers");
            return Err(Failed::new(ErrorKind::Busy, message));
        }
        if id.is_some_and(|id| table.ids.contains_key(id)) {
            return Err(Failed::new(ErrorKind::Invalid, "a request with this id is under way: use another"));
        }
        let (abort, registration) = AbortHandle::new_pair();
        let number = table.next;
        table.next += 1;
        table.bytes += bytes;
        table.calls.insert(number, abort);
        if let Some(id) = id {
            table.ids.insert(id.to_owned(), number);
        }
        drop(table);
        Ok((Slot { calls: self.clone(), number, id: id.map(str::to_owned), bytes }, registration))
    }

    /// Gives up the request `id`, if it is under way.
    pub(super) fn cancel(&self, id: &str) {
        let table = self.0.lock();
        if let Some(abort) = table.ids.get(id).and_then(|number| table.calls.get(number)) {
            abort.abort();
        }
    }

    /// How many are under way.
    pub(super) fn count(&self) -> usize {
        self.0.lock().calls.len()
    }

    pub(super) fn cancel_all(&self) {
        self.0.lock().calls.values().for_each(AbortHandle::abort);
    }
}

impl Slot {
    /// The id of the request, which its answer has as well.
    pub(super) fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut table = self.calls.0.lock();
        table.calls.remove(&self.number);
        table.bytes -= self.bytes;
        if let Some(id) = &self.id {
            table.ids.remove(id);
        }
    }
}
