//! [`Slots`]: which temporary directories runs have.

use std::collections::{BTreeSet, HashMap};

use parking_lot::Mutex;
use policy::RelPath;

/// Which of the numbered directories are in use, by home. A home is here as long as it has a run.
#[derive(Default)]
pub(crate) struct Slots {
    pub(crate) taken: Mutex<HashMap<RelPath, BTreeSet<u32>>>,
}
