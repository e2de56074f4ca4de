//! [`Machine`]: a lent machine across its connections. [`Lent`]: one of them, and what is asked for again on the next.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::answer::Answer;
use super::link::{Call, Link, disconnected};
use crate::wire::request::Cancel;
use crate::wire::response::{Outcome, Written};
use crate::wire::{Request, Response};
use crate::{Error, ErrorKind, Result};

/// How long a runner that was lost may take to come back until a change is told to be doubtful.
const RETURN: Duration = Duration::from_secs(10);
/// How often something is asked for again.
pub(super) const RETURNS: usize = 5;

/// A machine that a user lends, of which each connection is a [`Link`]. Commands in which a caller takes part go on from one to the next.
#[derive(Debug)]
pub struct Machine(watch::Sender<Standing>);

#[derive(Clone, Debug)]
enum Standing {
    Away,
    Connected(Arc<Link>),
    Revoked,
}

impl Default for Machine {
    fn default() -> Self {
        Self(watch::Sender::new(Standing::Away))
    }
}

impl Machine {
    /// Notes that the machine has connected anew.
    pub fn connected(&self, link: Arc<Link>) {
        self.0.send_replace(Standing::Connected(link));
    }

    /// Notes that the machine is not wanted any more: what waits for it ends.
    pub fn revoked(&self) {
        self.0.send_replace(Standing::Revoked);
    }

    /// Waits for the connection that follows `former`, of the same process.
    ///
    /// # Errors
    /// [`Disconnected`](crate::ErrorKind::Disconnected): there was none in time, it is another process, or the machine was revoked.
    pub(super) async fn after(&self, former: &Arc<Link>, patience: Duration) -> Result<Arc<Link>> {
        let mut standing = self.0.subscribe();
        let came = async {
            let came = standing.wait_for(|standing| match standing {
                Standing::Away => false,
                Standing::Connected(link) => !Arc::ptr_eq(link, former) && !link.has_ended(),
                Standing::Revoked => true,
            });
            came.await.ok().map(|standing| standing.clone())
        };
        match tokio::time::timeout(patience, came).await {
            Ok(Some(Standing::Connected(link))) if link.is_live() && link.is_same_process(former) => Ok(link),
            _ => Err(disconnected("exec")),
        }
    }
}

/// A connection of a machine.
#[derive(Clone, Debug)]
pub(super) struct Lent {
    pub(super) machine: Arc<Machine>,
    pub(super) link: Arc<Link>,
}

impl Deref for Lent {
    type Target = Link;

    fn deref(&self) -> &Link {
        &self.link
    }
}

impl Lent {
    /// Asks for what changes nothing. When the connection is lost meanwhile and the runner comes back soon, it is asked again. Gives the
    /// connection that answered.
    ///
    /// # Errors
    /// As for [`Link::call`].
    pub(super) async fn look(&self, call: Call<'_>) -> Result<(Self, Answer)> {
        let mut lent = self.clone();
        for _ in 0..RETURNS {
            match lent.link.call(call).await {
                Err(lost) if lost.kind() == ErrorKind::Disconnected => lent = lent.again(lost).await?,
                answered => return answered.map(|answer| (lent, answer)),
            }
        }
        lent.link.call(call).await.map(|answer| (lent, answer))
    }

    /// The connection that follows this one, which was lost.
    ///
    /// # Errors
    /// `lost`, where there is none soon.
    pub(super) async fn again(&self, lost: Error) -> Result<Self> {
        if !self.link.is_live() {
            return Err(lost);
        }
        let Ok(link) = self.machine.after(&self.link, RETURN).await else { return Err(lost) };
        Ok(Self { machine: Arc::clone(&self.machine), link })
    }

    /// Asks for a change, and waits for its answer. When the connection is lost meanwhile and the runner comes back soon, it is asked how
    /// the change went; what never came there is asked for again.
    ///
    /// # Errors
    /// As for [`Link::call`].
    pub(super) async fn change(&self, call: Call<'_>) -> Result<Answer> {
        let mut link = Arc::clone(&self.link);
        for _ in 0..RETURNS {
            let id = link.name();
            let lost = match link.call_as(&id, call).await {
                Err(error) if error.kind() == ErrorKind::Disconnected && link.is_live() => error,
                answered => return answered,
            };
            let next = Self { machine: Arc::clone(&self.machine), link: Arc::clone(&link) };
            let Ok(next) = next.again(lost).await else { return Err(disconnected(call.operation)) };
            let request = Request::Outcome(Cancel { request: id });
            let asked = Call { request: &request, patience: RETURN, output_bytes_max: 0, ..call };
            // Asked again, too, when that connection is lost as well.
            let (next, answer) = next.look(asked).await?;
            match answer.response {
                Response::Outcome(Outcome { is_known: true, error, version }) => {
                    let done = match version {
                        Some(version) => Response::Written(Written { version: Some(version) }),
                        None => Response::Ok,
                    };
                    let response = error.map_or(done, Response::Error);
                    return Ok(Answer { response, ..Answer::new(0) });
                }
                Response::Outcome(Outcome { is_known: false, .. }) if call.request.is_repeatable() => {
                    link = next.link;
                }
                _ => return Err(disconnected(call.operation)),
            }
        }
        Err(disconnected(call.operation))
    }
}
