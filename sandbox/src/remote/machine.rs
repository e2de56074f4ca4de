//! [`Machine`]: a lent machine across its connections.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::link::{Link, disconnected};
use crate::Result;

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
