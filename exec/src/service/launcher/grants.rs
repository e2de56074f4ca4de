//! The confinement that this host grants to runs: the tier, and why it is not more.

use std::sync::Arc;

use super::Launcher;
use crate::error::Error;
use crate::tier::Tier;
use crate::walls::landlock::Walls;
use crate::wire::{Hello, Namespaces};

impl Launcher {
    /// The tier this host grants.
    #[must_use]
    pub fn tier(&self) -> Tier {
        if self.shortfall().is_some() {
            return Tier::Process;
        }
        let granted = if self.namespaces.is_ok() { Tier::Namespaces } else { Tier::Landlock };
        granted.min(self.config.isolation.maximum)
    }

    /// Tells whether runs live in namespaces of their own, so that what they see must be attached to them.
    #[must_use]
    pub fn mounts(&self) -> bool {
        self.namespaces.is_ok()
    }

    /// Why runs live in no namespaces of their own; `None` when they do.
    #[must_use]
    pub fn without_namespaces(&self) -> Option<&str> {
        self.namespaces.as_ref().err().map(String::as_str)
    }

    /// Why the host does not grant tier `landlock`; `None` when it does.
    pub(crate) fn shortfall(&self) -> Option<String> {
        if let Some(reason) = self.distrusted() {
            return Some(reason.to_owned());
        }
        self.landlock.clone().err().or_else(|| self.hello().filter.err())
    }

    /// Checks that the host grants `floor`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when it grants less.
    pub(crate) fn require(&self, floor: Tier) -> Result<(), Error> {
        let granted = self.tier();
        if granted >= floor {
            return Ok(());
        }
        let capped = || "the configuration's `isolation.maximum` says so".to_owned();
        let reason = self.shortfall().or_else(|| self.namespaces.clone().err()).unwrap_or_else(capped);
        Err(Error::Unsupported { wanted: floor, granted, reason })
    }

    /// Why the walls count as absent although the kernel has them.
    pub(crate) fn distrusted(&self) -> Option<&str> {
        self.distrust.get().map(String::as_str)
    }

    /// Counts the walls as absent from now on, for the first reason given.
    pub(crate) fn distrust(&self, reason: String) {
        let _ = self.distrust.set(reason);
    }

    /// Why the supervisor of a run may be unable to see what a call of it is about.
    pub(crate) fn unreadable(&self) -> Option<&str> {
        self.unreadable.get().map(String::as_str)
    }

    /// Notes that it is, for the first reason given.
    pub(crate) fn cannot_read(&self, reason: String) {
        let _ = self.unreadable.set(reason);
    }

    /// Why the service may be unable to make the connections of a run to the proxy.
    pub(crate) fn unconnectable(&self) -> Option<&str> {
        self.unconnectable.get().map(String::as_str)
    }

    /// Notes that it is, for the first reason given.
    pub(crate) fn cannot_connect(&self, reason: String) {
        let _ = self.unconnectable.set(reason);
    }

    /// The greeting of the present launcher: its abilities.
    pub(crate) fn hello(&self) -> Hello {
        self.process().hello.clone()
    }

    /// Tells whether some system calls of runs that share the uid of the service are answered by the service.
    pub(crate) fn supervises(&self) -> bool {
        let hello = self.hello();
        hello.filter.is_ok() && hello.supervision.is_ok()
    }

    /// Why the service does not name and connect the sockets of runs; `None` when it does, because these see the directories and
    /// the network of the host.
    pub(crate) fn unconnected(&self) -> Option<String> {
        if self.mounts() {
            return Some("the launcher makes no networks".to_owned());
        }
        let hello = self.hello();
        self.landlock.clone().err().or(hello.filter.err()).or(hello.supervision.err())
    }

    /// Tells whether the processes of each run are counted apart although runs share the uid of the service.
    pub(crate) fn counts_apart(&self) -> bool {
        self.offers().is_some_and(|offers| offers.counted_apart.is_ok()) && self.service.uid != 0
    }

    /// The features of the namespaces of runs; `None` where they have none.
    pub(crate) fn offers(&self) -> Option<Namespaces> {
        self.hello().namespaces.and_then(Result::ok)
    }

    /// The walls of runs; `None` where the kernel has no Landlock.
    pub(crate) fn walls(&self) -> Option<Arc<Walls>> {
        self.process().walls.clone()
    }
}
