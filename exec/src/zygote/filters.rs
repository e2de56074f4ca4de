//! [`Closing`]: the closing filters of runs, compiled once.

use crate::sys;
use crate::walls::seccomp::{self, SharedUid, Surroundings};
use crate::wire::{Request, Sockets};

/// The closing filter by the sockets that it allows.
struct Filters {
    refused: Vec<libc::sock_filter>,
    connected: Vec<libc::sock_filter>,
    own: Vec<libc::sock_filter>,
    host: Vec<libc::sock_filter>,
}

impl Filters {
    fn new(surroundings: Surroundings, shared: SharedUid, memory_files: bool) -> Self {
        let of = |sockets| seccomp::closing(sockets, surroundings, shared, memory_files);
        Self {
            refused: of(Sockets::Refused),
            connected: of(Sockets::Connected),
            own: of(Sockets::OwnNetwork),
            host: of(Sockets::HostNetwork),
        }
    }

    fn of(&self, sockets: Sockets) -> &[libc::sock_filter] {
        match sockets {
            Sockets::Refused => &self.refused,
            Sockets::Connected => &self.connected,
            Sockets::OwnNetwork => &self.own,
            Sockets::HostNetwork => &self.host,
        }
    }
}

/// The closing filters of runs that may make files in memory, and of those that may not.
struct Kinds {
    open: Filters,
    strict: Filters,
}

impl Kinds {
    fn new(surroundings: Surroundings, shared: SharedUid) -> Self {
        let of = |memory_files| Filters::new(surroundings, shared, memory_files);
        Self { open: of(true), strict: of(false) }
    }
}

/// The closing filters of all runs.
pub(super) struct Closing {
    /// Of runs that have a uid of their own, or see nothing of others.
    apart: Kinds,
    /// Of runs that share the uid of the service and see its files, and whether the service answers some of their calls.
    shared: Option<(Kinds, bool)>,
}

/// The closing filter of one run.
#[derive(Clone, Copy)]
pub(super) struct Filter<'a> {
    pub(super) program: &'a [libc::sock_filter],
    /// Whether the service answers some of the calls.
    pub(super) listens: bool,
}

impl Closing {
    pub(super) fn new(surroundings: Surroundings, supervises: bool) -> Self {
        let signals = sys::landlock_abi().unwrap_or(0) < seccomp::ABI_SIGNALS;
        let shared = if supervises { SharedUid::Supervised { signals } } else { SharedUid::Refused };
        let is_host = surroundings == Surroundings::Host;
        Self {
            apart: Kinds::new(surroundings, SharedUid::No),
            shared: is_host.then(|| (Kinds::new(surroundings, shared), supervises)),
        }
    }

    pub(super) fn of(&self, request: &Request) -> Filter<'_> {
        let (kinds, supervises) = match &self.shared {
            Some((kinds, supervises)) if request.identity.is_none() => (kinds, *supervises),
            _ => (&self.apart, false),
        };
        // The service makes the connections of these runs, with any uid.
        let listens = supervises || request.sockets.are_connected_by_service();
        let filters = if request.has_memory_files { &kinds.open } else { &kinds.strict };
        Filter { program: filters.of(request.sockets), listens }
    }
}
