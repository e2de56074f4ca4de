//! The programs of the host as the launcher knows them, and looking at them again when one seems to have been replaced.
//!
//! Walls are built around files, so a program that the host replaces is refused. That shows when a run fails: only then the
//! programs are looked up anew, and the walls of later runs are built around what is there now.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::service::launcher::Launcher;
use crate::walls::programs::Programs;

/// How often the programs are looked up at most: a run may fail as often as its user likes.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The programs, as they were last looked up.
#[derive(Debug)]
pub(super) struct Known {
    /// And when they were looked up again.
    programs: Mutex<(Arc<Programs>, Option<Instant>)>,
    /// How often other programs were found.
    generation: AtomicU64,
}

impl Known {
    pub(super) fn new(programs: Programs) -> Self {
        Self { programs: Mutex::new((Arc::new(programs), None)), generation: AtomicU64::new(1) }
    }
}

impl Launcher {
    /// The programs of this host that may run, as they were last looked up.
    #[must_use]
    pub fn programs(&self) -> Arc<Programs> {
        Arc::clone(&self.known.programs.lock().unwrap_or_else(PoisonError::into_inner).0)
    }

    /// Which walls runs get at the moment: another number when their programs are others.
    pub(crate) fn walls_generation(&self) -> u64 {
        self.known.generation.load(Ordering::Relaxed)
    }

    /// As [`Launcher::programs_are_others`], off the runtime.
    pub(crate) async fn looks_again(self: &Arc<Self>, before: &Arc<Programs>) -> bool {
        let (launcher, before) = (Arc::clone(self), Arc::clone(before));
        tokio::task::spawn_blocking(move || launcher.programs_are_others(&before)).await.unwrap_or(false)
    }

    /// Looks the programs up again, if that was not done a moment ago; tells whether they are others than `before`. Takes
    /// some milliseconds.
    pub(crate) fn programs_are_others(&self, before: &Arc<Programs>) -> bool {
        let mut known = self.known.programs.lock().unwrap_or_else(PoisonError::into_inner);
        let (programs, looked) = &mut *known;
        if Arc::ptr_eq(programs, before) && looked.is_none_or(|looked| looked.elapsed() >= LOOK_EVERY) {
            *looked = Some(Instant::now());
            let found = Programs::resolve(&self.config.whitelist, &self.config.search_path);
            if found != **programs {
                tracing::info!("programs of this host were replaced or installed: commands get the new ones");
                *programs = Arc::new(found);
                self.process().build_walls(&self.config, programs);
                self.known.generation.fetch_add(1, Ordering::Relaxed);
            }
        }
        !Arc::ptr_eq(programs, before)
    }
}
