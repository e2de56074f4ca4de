//! When a sandbox was used last.
//!
//! The record is an attribute of the directory that the service has for the sandbox. It is written at most once in a
//! *grain* of time and so may be older than the last use by that much, which whoever judges by it adds. A sandbox
//! without a record gets one with the time at which it is first looked at.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use super::SandboxId;
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::place;
use crate::store::Store;

/// The attribute: uptime and time of day, both in milliseconds, with a space between.
const USED: &str = "user.filesecbox.used";
/// Longest time that a record may be behind.
const GRAIN_MAX: Duration = Duration::from_secs(600);
/// Which part of the time after which sandboxes are removed it may be behind.
const GRAINS: u32 = 8;
/// Sandboxes of which it is known in memory that their record is recent. Beyond it all are forgotten, and looked up.
const NOTED_MAX: usize = 8192;

/// Which sandboxes have a recent record, by uptime in milliseconds.
#[derive(Default)]
pub(crate) struct Uses {
    noted: Mutex<HashMap<SandboxId, Noted>>,
}

#[derive(Clone, Copy)]
struct Noted {
    uptime_ms: u64,
    /// Whether there was anything of it to have a record.
    is_there: bool,
}

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Used {
    pub(super) uptime_ms: u64,
    /// By the clock of the host: for people.
    pub(super) unix_ms: u64,
}

impl Used {
    fn parse(text: &[u8]) -> Option<Self> {
        let (uptime, unix) = std::str::from_utf8(text).ok()?.split_once(' ')?;
        Some(Self { uptime_ms: uptime.parse().ok()?, unix_ms: unix.parse().ok()? })
    }
}

impl Uses {
    /// Has the next use of a sandbox noted, whenever the last one was.
    pub(crate) fn forget(&self, id: &SandboxId) {
        self.noted.lock().remove(id);
    }
}

impl Store {
    /// Tells whether the use of a sandbox need not be noted, because it was a moment ago.
    #[must_use]
    pub fn is_noted(&self, id: &SandboxId) -> bool {
        self.noted(id).is_some()
    }

    fn noted(&self, id: &SandboxId) -> Option<Noted> {
        let now = self.inner.uptime.now_ms();
        let noted = self.inner.uses.noted.lock().get(id).copied();
        noted.filter(|noted| now.saturating_sub(noted.uptime_ms) < self.grain_ms())
    }

    /// Notes that a sandbox is used, when there is anything of it, and brings back what was set aside of it. Tells
    /// whether anything was. The caller holds none of its trees.
    ///
    /// A note that cannot be written costs nobody the use.
    ///
    /// # Errors
    /// As [`Store::bring_back`]: using the sandbox now would put another in the place of what is aside.
    pub fn note_use(&self, id: &SandboxId) -> Result<bool> {
        if self.is_noted(id) {
            return Ok(false);
        }
        let is_back = self.bring_back(id)?;
        self.note(id);
        Ok(is_back)
    }

    /// Notes that a sandbox is used of which there is something. The caller holds none of its trees.
    pub(crate) fn note_use_of_there(&self, id: &SandboxId) {
        if !self.noted(id).is_some_and(|noted| noted.is_there) {
            self.note(id);
        }
    }

    fn note(&self, id: &SandboxId) {
        let noted = {
            // Not while somebody takes it away because it was not used.
            let _held = self.inner.locks.read(&id.workspace());
            match self.is_there(id) {
                Ok(true) => self.record_use(id).map(|uptime_ms| Noted { uptime_ms, is_there: true }),
                // Whoever makes something there has it noted again.
                Ok(false) => Ok(Noted { uptime_ms: self.inner.uptime.now_ms(), is_there: false }),
                Err(error) => Err(error),
            }
        };
        match noted {
            Ok(noted) => {
                let mut all = self.inner.uses.noted.lock();
                if all.len() >= NOTED_MAX {
                    all.clear();
                }
                all.insert(id.clone(), noted);
            }
            Err(error) => tracing::warn!(%error, "the use of a sandbox could not be noted"),
        }
    }

    /// Writes that a sandbox is used now. The caller holds its workspace. Returns the uptime.
    pub(super) fn record_use(&self, id: &SandboxId) -> Result<u64> {
        let uptime_ms = self.inner.uptime.now_ms();
        let today = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let dir = self.inner.root.ensure_path(&place::sandbox(&id.user, &id.agent)?)?;
        dir.set_attribute(USED, format!("{uptime_ms} {}", today.as_millis()).as_bytes())?;
        Ok(uptime_ms)
    }

    /// What the record of a sandbox says; `None` without one.
    pub(super) fn used(&self, id: &SandboxId) -> Result<Option<Used>> {
        let dir = match self.inner.root.open_dir(&place::sandbox(&id.user, &id.agent)?) {
            Err(Error::NotFound(_)) => return Ok(None),
            dir => dir?,
        };
        Ok(dir.attribute(USED)?.as_deref().and_then(Used::parse))
    }

    /// Tells whether a sandbox has been idle for long enough to go. One without a record gets it, and stays.
    pub(super) fn is_idle(&self, id: &SandboxId) -> Result<bool> {
        self.is_idle_beyond(id, Duration::ZERO)
    }

    /// Tells whether a sandbox that was set aside has been there for long enough to go.
    pub(super) fn is_expired(&self, id: &SandboxId) -> Result<bool> {
        self.is_idle_beyond(id, self.inner.options.keep)
    }

    fn is_idle_beyond(&self, id: &SandboxId, further: Duration) -> Result<bool> {
        let Some(allowed) = self.inner.options.idle else { return Ok(false) };
        let Some(used) = self.used(id)? else {
            self.record_use(id)?;
            return Ok(false);
        };
        let idle_ms = self.inner.uptime.now_ms().saturating_sub(used.uptime_ms);
        let allowed_ms = milliseconds(allowed).saturating_add(milliseconds(further));
        Ok(idle_ms >= allowed_ms.saturating_add(self.grain_ms()))
    }

    /// Tells whether a sandbox has a workspace or a home.
    pub(super) fn is_there(&self, id: &SandboxId) -> Result<bool> {
        for place in place::of_sandbox(&id.user, &id.agent)? {
            if directory(&self.inner.root, &place)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// How far a record may be behind.
    fn grain_ms(&self) -> u64 {
        let grain = self.inner.options.idle.map_or(GRAIN_MAX, |idle| (idle / GRAINS).min(GRAIN_MAX));
        milliseconds(grain)
    }
}

pub(super) fn directory(root: &Dir, place: &policy::RelPath) -> Result<Option<Dir>> {
    match root.open_dir(place) {
        Ok(dir) => Ok(Some(dir)),
        Err(Error::NotFound(_)) => Ok(None),
        Err(other) => Err(other),
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
