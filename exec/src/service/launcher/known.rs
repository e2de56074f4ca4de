//! The programs of the host as the launcher knows them, the walls around them, and looking at them again when one seems to
//! have been replaced.
//!
//! Walls are built around files, so a program that the host replaces is refused. That shows when a run fails: only then the
//! programs are looked up anew, and the walls of later runs are built around what is there now.
//!
//! A run that may execute other programs than the configuration says ([`Allowed`]) gets walls of its own kind. The kinds used
//! last are kept; they are as many as operators have given agents, not as there are runs.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::service::launcher::Launcher;
use crate::walls::landlock::Walls;
use crate::walls::programs::{Allowed, Programs};

/// How often the programs are looked up at most: a run may fail as often as its user likes.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Kinds of walls kept besides the configuration's; each has some hundred file descriptors of the service.
const KINDS_MAX: usize = 16;

/// The programs, as they were last looked up.
#[derive(Debug)]
pub(super) struct Known {
    /// And when they were looked up again.
    programs: Mutex<(Arc<Programs>, Option<Instant>)>,
    /// The walls of each kind of run that may execute something else, the one used last at the end.
    kinds: Mutex<Vec<Kind>>,
    /// The number of the walls of ordinary runs.
    generation: AtomicU64,
    /// The last number that walls were given.
    numbers: AtomicU64,
}

/// One kind of walls.
#[derive(Debug)]
struct Kind {
    allowed: Arc<Allowed>,
    bounds: Arc<Bounds>,
    looked: Option<Instant>,
}

/// What one run may execute, and the walls that hold it to that.
#[derive(Debug)]
pub(crate) struct Bounds {
    /// The programs, as they were last looked up.
    pub(crate) programs: Arc<Programs>,
    /// The walls; `None` where the kernel has no Landlock.
    pub(crate) walls: Option<Arc<Walls>>,
    /// Another number for other walls.
    pub(crate) generation: u64,
    /// Whether code is run from what the run can write to.
    pub(crate) code_in_trees: bool,
    /// The socket of the launcher whose root the walls are of.
    through: Arc<OwnedFd>,
}

impl Known {
    pub(super) fn new(programs: Programs) -> Self {
        Self {
            programs: Mutex::new((Arc::new(programs), None)),
            kinds: Mutex::default(),
            generation: AtomicU64::new(1),
            numbers: AtomicU64::new(1),
        }
    }

    fn kinds(&self) -> MutexGuard<'_, Vec<Kind>> {
        // Nothing in the table is half-changed at a point that can panic.
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }
}

impl Launcher {
    /// The programs of this host that may run, as they were last looked up.
    #[must_use]
    pub fn programs(&self) -> Arc<Programs> {
        Arc::clone(&self.known.programs.lock().unwrap_or_else(PoisonError::into_inner).0)
    }

    /// The programs of this host that runs which may execute `allowed` find. Takes some milliseconds when no such run was
    /// made for long.
    #[must_use]
    pub fn programs_of(&self, allowed: &Arc<Allowed>) -> Arc<Programs> {
        Arc::clone(&self.bounds(Some(allowed)).programs)
    }

    /// What a run may execute, and its walls. Takes some milliseconds for a kind of walls that is not kept.
    pub(crate) fn bounds(&self, allowed: Option<&Arc<Allowed>>) -> Arc<Bounds> {
        let Some(allowed) = allowed else {
            return Arc::new(Bounds {
                programs: self.programs(),
                walls: self.walls(),
                generation: self.known.generation.load(Ordering::Relaxed),
                code_in_trees: self.config.code_in_trees,
                through: Arc::clone(&self.process().socket),
            });
        };
        let socket = Arc::clone(&self.process().socket);
        {
            let mut kinds = self.known.kinds();
            // Walls of a launcher that is gone are around a root that no run has any more.
            let is_it = |kind: &Kind| kind.allowed == *allowed && Arc::ptr_eq(&kind.bounds.through, &socket);
            if let Some(at) = kinds.iter().position(is_it) {
                let kind = kinds.remove(at);
                let bounds = Arc::clone(&kind.bounds);
                kinds.push(kind);
                return bounds;
            }
        }
        let programs = Programs::resolve(&allowed.whitelist, &self.config.search_path);
        self.keep_kind(allowed, Arc::new(programs), None)
    }

    /// As [`Launcher::programs_are_others`], off the runtime.
    pub(crate) async fn looks_again(
        self: &Arc<Self>,
        allowed: Option<&Arc<Allowed>>,
        before: &Arc<Programs>,
    ) -> bool {
        let (launcher, before, allowed) = (Arc::clone(self), Arc::clone(before), allowed.map(Arc::clone));
        let look = move || launcher.programs_are_others(allowed.as_ref(), &before);
        tokio::task::spawn_blocking(look).await.unwrap_or(false)
    }

    /// Looks up again the programs of runs that may execute `allowed`, if that was not done a moment ago; tells whether they
    /// are others than `before`. Takes some milliseconds.
    pub(crate) fn programs_are_others(&self, allowed: Option<&Arc<Allowed>>, before: &Arc<Programs>) -> bool {
        match allowed {
            None => self.own_are_others(before),
            Some(allowed) => self.those_are_others(allowed, before),
        }
    }

    fn own_are_others(&self, before: &Arc<Programs>) -> bool {
        {
            let mut known = self.known.programs.lock().unwrap_or_else(PoisonError::into_inner);
            let (programs, looked) = &mut *known;
            if !Arc::ptr_eq(programs, before) || is_recent(*looked) {
                return !Arc::ptr_eq(programs, before);
            }
            *looked = Some(Instant::now());
        }
        // Without the lock: who starts another launcher holds that one, and asks for these programs.
        let found = Programs::resolve(&self.config.whitelist, &self.config.search_path);
        if found == **before {
            return false;
        }
        tracing::info!("programs of this host were replaced or installed: commands get the new ones");
        self.process().build_walls(&self.config, &found);
        self.known.programs.lock().unwrap_or_else(PoisonError::into_inner).0 = Arc::new(found);
        self.known.generation.store(self.known.number(), Ordering::Relaxed);
        true
    }

    fn those_are_others(&self, allowed: &Arc<Allowed>, before: &Arc<Programs>) -> bool {
        {
            let mut kinds = self.known.kinds();
            let Some(kind) = kinds.iter_mut().find(|kind| kind.allowed == *allowed) else { return false };
            if !Arc::ptr_eq(&kind.bounds.programs, before) || is_recent(kind.looked) {
                return !Arc::ptr_eq(&kind.bounds.programs, before);
            }
            kind.looked = Some(Instant::now());
        }
        let found = Programs::resolve(&allowed.whitelist, &self.config.search_path);
        if found == **before {
            return false;
        }
        tracing::info!(
            "programs of this host were replaced or installed: commands of some agents get the new ones"
        );
        drop(self.keep_kind(allowed, Arc::new(found), Some(Instant::now())));
        true
    }

    /// Builds walls around `programs` and keeps them, in the place of those of the same kind.
    fn keep_kind(
        &self,
        allowed: &Arc<Allowed>,
        programs: Arc<Programs>,
        looked: Option<Instant>,
    ) -> Arc<Bounds> {
        let (walls, through) = {
            let process = self.process();
            let walls = process.walls_around(&self.config, &programs, allowed.code_in_trees);
            (walls, Arc::clone(&process.socket))
        };
        let (generation, code_in_trees) = (self.known.number(), allowed.code_in_trees);
        let bounds = Arc::new(Bounds { programs, walls, generation, code_in_trees, through });
        let mut kinds = self.known.kinds();
        kinds.retain(|kind| kind.allowed != *allowed);
        if kinds.len() >= KINDS_MAX {
            kinds.remove(0);
        }
        kinds.push(Kind { allowed: Arc::clone(allowed), bounds: Arc::clone(&bounds), looked });
        bounds
    }
}

fn is_recent(looked: Option<Instant>) -> bool {
    looked.is_some_and(|looked| looked.elapsed() < LOOK_EVERY)
}
