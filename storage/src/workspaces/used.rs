//! When a sandbox was used last.
//!
//! The record is an attribute of the directory that the service has for the sandbox. It is written at most once in a
//! *grain* of time and so may be older than the last use by that much, which the sweep adds when it judges. A sandbox
//! without a record gets one with the time at which it is first looked at.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::Workspaces;
use crate::core::uses::Noted;
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::layout;
use policy::WorkspaceId;

/// The attribute: uptime and time of day, both in milliseconds, with a space between.
const USED: &str = "user.filesecbox.used";
/// Longest time that a record may be behind.
const GRAIN_MAX: Duration = Duration::from_secs(600);
/// Which part of the time after which sandboxes are removed it may be behind.
const GRAINS: u32 = 8;
/// Sandboxes of which it is known in memory that their record is recent. Beyond it all are forgotten, and looked up.
const NOTED_MAX: usize = 8192;

/// The content of a record.
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

impl Workspaces {
    /// Keeps the time by which sandboxes grow idle, for the next start.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn keep_uptime(&self) -> Result<()> {
        let sandboxes = self.store.root().open_dir(&policy::RelPath::parse(layout::SANDBOXES)?)?;
        self.store.uptime().keep(&sandboxes)
    }

    /// Tells whether the use of a sandbox need not be noted, because it was a moment ago.
    #[must_use]
    pub fn is_noted(&self, id: &WorkspaceId) -> bool {
        self.noted(id).is_some()
    }

    fn noted(&self, id: &WorkspaceId) -> Option<Noted> {
        let now = self.store.uptime().now_ms();
        let noted = self.store.uses().noted.lock().get(id).copied();
        noted.filter(|noted| now.saturating_sub(noted.uptime_ms) < self.grain_ms())
    }

    /// Notes that a sandbox is used, when there is anything of it, and brings back what was set aside of it. Tells
    /// whether anything was. The caller holds none of its trees.
    ///
    /// A note that cannot be written does not stop the use.
    ///
    /// # Errors
    /// As [`Workspaces::bring_back`]: using the sandbox now would put another in the place of what is aside.
    pub fn note_use(&self, id: &WorkspaceId) -> Result<bool> {
        if self.is_noted(id) {
            return Ok(false);
        }
        let is_back = self.bring_back(id)?;
        self.note(id);
        Ok(is_back)
    }

    /// Notes that a sandbox is used of which there is something. The caller holds none of its trees.
    pub(crate) fn note_use_of_there(&self, id: &WorkspaceId) {
        if !self.noted(id).is_some_and(|noted| noted.is_there) {
            self.note(id);
        }
    }

    fn note(&self, id: &WorkspaceId) {
        let noted = {
            // Not while a sweep removes the sandbox because it was not used.
            let _held = self.store.locks().read(&id.workspace());
            match self.is_there(id) {
                Ok(true) => self.record_use(id).map(|uptime_ms| Noted { uptime_ms, is_there: true }),
                // A request that makes something there notes the use again.
                Ok(false) => Ok(Noted { uptime_ms: self.store.uptime().now_ms(), is_there: false }),
                Err(error) => Err(error),
            }
        };
        match noted {
            Ok(noted) => {
                let mut all = self.store.uses().noted.lock();
                if all.len() >= NOTED_MAX {
                    all.clear();
                }
                all.insert(id.clone(), noted);
            }
            Err(error) => {
                tracing::warn!(
                    %error, user = %id.user, agent = %id.agent,
                    "failed to note the use of a workspace: its last use stays as recorded before"
                );
            }
        }
    }

    /// Writes that a sandbox is used now. The caller holds its workspace. Returns the uptime.
    pub(super) fn record_use(&self, id: &WorkspaceId) -> Result<u64> {
        let uptime_ms = self.store.uptime().now_ms();
        let today = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let dir = self.store.root().ensure_path(&layout::sandbox(&id.user, &id.agent)?)?;
        dir.set_attribute(USED, format!("{uptime_ms} {}", today.as_millis()).as_bytes())?;
        Ok(uptime_ms)
    }

    /// The record of a sandbox; `None` without one.
    pub(super) fn used(&self, id: &WorkspaceId) -> Result<Option<Used>> {
        let dir = match self.store.root().open_dir(&layout::sandbox(&id.user, &id.agent)?) {
            Err(Error::NotFound(_)) => return Ok(None),
            dir => dir?,
        };
        Ok(dir.attribute(USED)?.as_deref().and_then(Used::parse))
    }

    /// Tells whether a sandbox has been idle for long enough to go. One without a record gets it, and stays.
    pub(super) fn is_idle(&self, id: &WorkspaceId) -> Result<bool> {
        self.is_idle_beyond(id, Duration::ZERO)
    }

    /// Tells whether a sandbox that was set aside has been there for long enough to go.
    pub(super) fn is_expired(&self, id: &WorkspaceId) -> Result<bool> {
        self.is_idle_beyond(id, self.store.options().keep)
    }

    fn is_idle_beyond(&self, id: &WorkspaceId, further: Duration) -> Result<bool> {
        let Some(allowed) = self.store.options().idle else { return Ok(false) };
        let Some(used) = self.used(id)? else {
            self.record_use(id)?;
            return Ok(false);
        };
        let idle_ms = self.store.uptime().now_ms().saturating_sub(used.uptime_ms);
        let allowed_ms = milliseconds(allowed).saturating_add(milliseconds(further));
        Ok(idle_ms >= allowed_ms.saturating_add(self.grain_ms()))
    }

    /// Tells whether a sandbox has a workspace or a home.
    pub(super) fn is_there(&self, id: &WorkspaceId) -> Result<bool> {
        for place in layout::of_sandbox(&id.user, &id.agent)? {
            if directory(self.store.root(), &place)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// How far a record may be behind.
    fn grain_ms(&self) -> u64 {
        let grain = self.store.options().idle.map_or(GRAIN_MAX, |idle| (idle / GRAINS).min(GRAIN_MAX));
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
