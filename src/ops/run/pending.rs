//! [`Pending`]: the changes that a run made aside, until a caller decides about them.

use storage::PreparedRun;

use crate::ops::admission::permits::Permit;

/// Undecided changes. Dropping them discards them.
pub(crate) struct Pending {
    pub(super) prepared: PreparedRun,
    /// Bounds how many there are.
    pub(super) permit: Permit,
}

/// The state of the changes of a run with `commit: ask`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Not decided yet.
    Open,
    /// They are being taken in.
    Underway,
    /// They were taken in.
    Committed,
    /// They are gone.
    Discarded,
}

/// The decision about a run, and what it is about.
pub(super) struct Verdict {
    pub(super) decision: Decision,
    pub(super) pending: Option<Pending>,
}

impl Pending {
    pub(super) fn new(prepared: PreparedRun, permit: Permit) -> Self {
        Self { prepared, permit }
    }
}
