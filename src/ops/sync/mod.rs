//! Synchronising skills and agents to machines that users lend: when one registers, it gets what the service would show.
//!
//! * [`source`]: what is to be there, from directories of the host and from the user's skills.
//! * [`digests`]: what is in those files.
//! * [`manifest`]: what an earlier synchronisation has left on the machine, so that only that is changed or removed.
//! * [`look`]: what is on the machine. [`carry`](mod@carry): one synchronisation: only what changed, and nothing that the user made.
//! * [`synced`]: the machine's backend, whose commands wait for the first synchronisation of a connection.

mod carry;
mod digests;
mod look;
mod manifest;
mod source;
mod synced;

use std::sync::Arc;
use std::time::Duration;

use policy::UserId;
use sandbox::Sandbox;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::Service;
use super::said::bounded;
use crate::config::RunnersConfig;
pub use carry::Synced as Counts;
use carry::carry;
use digests::Digests;
use source::collect;
pub(super) use synced::SyncedSandbox;

/// Users whose skills are looked through at once.
const AT_ONCE: usize = 4;
/// How long one may take.
const LONGEST: Duration = Duration::from_secs(600);

/// How machines are synchronised.
pub struct Syncing {
    config: RunnersConfig,
    places: Semaphore,
    digests: Digests,
}

/// How far the synchronisation of a connection is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It is under way, or waits for its turn.
    Running,
    /// It is over.
    Done(Counts),
    /// It was given up, for this reason: what was not brought over by then is missing.
    Failed(String),
}

impl Syncing {
    /// Synchronises as `config` says.
    #[must_use]
    pub fn new(config: RunnersConfig) -> Self {
        Self { config, places: Semaphore::new(AT_ONCE), digests: Digests::default() }
    }

    /// Whether there is anything to synchronise.
    #[must_use]
    pub fn is_on(&self) -> bool {
        let RunnersConfig { global_skills, global_agents, skills_of, .. } = &self.config;
        !global_skills.is_empty() || !global_agents.is_empty() || !skills_of.is_empty()
    }
}

impl Service {
    /// Begins to synchronise the machine behind `machine`, a connection of `user`. Gives what stands for the machine from now on,
    /// and how far it is. It ends with the connection, and with the service.
    pub(super) fn begin_sync(
        self: &Arc<Self>,
        user: &UserId,
        machine: Arc<dyn Sandbox>,
    ) -> (Arc<dyn Sandbox>, watch::Receiver<State>) {
        let (tell, state) = watch::channel(State::Running);
        let config = &self.syncing.config;
        let directories = [config.skills_directory.clone(), config.agents_directory.clone()];
        let stands = SyncedSandbox::new(Arc::clone(&machine), state.clone(), directories);
        let (service, user) = (Arc::clone(self), user.clone());
        self.runs.spawn(async move {
            let sync = timeout(LONGEST, service.sync(&user, &*machine));
            let ended = tokio::select! {
                biased;
                () = service.stop.cancelled() => State::Failed("the service stops".to_owned()),
                ended = sync => match ended {
                    Ok(Ok(counts)) => State::Done(counts),
                    Ok(Err(problem)) => State::Failed(problem),
                    Err(_) => State::Failed(format!("it took more than {} s", LONGEST.as_secs())),
                },
            };
            match &ended {
                State::Failed(problem) => {
                    tracing::warn!(%user, %problem, "a machine was not synchronised: the next registration tries again");
                }
                State::Done(counts) => tracing::info!(%user, ?counts, "a machine is synchronised"),
                State::Running => {}
            }
            tell.send_replace(ended);
        });
        (Arc::new(stands), state)
    }

    async fn sync(&self, user: &UserId, machine: &dyn Sandbox) -> Result<Counts, String> {
        let Syncing { config, places, digests } = &self.syncing;
        let (collected, digests) = {
            // For the service's own work: a machine that does not answer keeps no place from others.
            let _place = places.acquire().await;
            let collected = collect(self, config, user).await.map_err(|error| bounded(&error.to_string()))?;
            let digests = digests.of(self, user, &collected.files).await;
            (collected, digests)
        };
        carry(self, config, (user, machine), &collected, &digests).await
    }
}
