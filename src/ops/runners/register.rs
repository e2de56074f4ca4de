//! A machine registers, and its connection ends.

use std::sync::Arc;
use std::time::SystemTime;

use policy::UserId;
use sandbox::wire::{Feature, Register, Registered};
use sandbox::{Link, RemoteSandbox, Sandbox};
use tokio_util::sync::CancellationToken;

use super::{Connected, PER_USER_MAX, Registration, Unregistered};
use crate::ops::Service;
use crate::ops::error::Error;

/// The longest name of a machine, in bytes.
const NAME_BYTES: usize = 64;
/// The name of a machine that tells none.
const UNNAMED: &str = "default";

/// The features of a runner that this service has as well.
fn agreed(features: &[Feature]) -> Vec<Feature> {
    let has = |feature| features.contains(&feature);
    let mut agreed = Vec::new();
    if has(Feature::Exact) {
        agreed.push(Feature::Exact);
        let further = [Feature::Live, Feature::Transfers, Feature::Swap];
        agreed.extend(further.into_iter().filter(|feature| has(*feature)));
    }
    agreed
}

impl Service {
    /// Takes a machine of `user` that registers with the token called `token`, if it needs one. One of the same name gives way to it, with all
    /// requests that wait there.
    ///
    /// # Errors
    /// [`Unregistered`].
    pub async fn register_runner(
        self: &Arc<Self>,
        user: &UserId,
        register: &Register,
        token: Option<&str>,
    ) -> Result<Registration, Unregistered> {
        let name = match register.name.as_str() {
            "" => UNNAMED,
            name => name,
        };
        if name.len() > NAME_BYTES || !name.chars().all(|one| one.is_alphanumeric() || "-_.".contains(one)) {
            let message = format!("`name` has at most {NAME_BYTES} bytes of letters, digits and `-_.`");
            return Err(Unregistered::Invalid(message));
        }
        let features = agreed(&register.features);
        let transfers = Some(Arc::clone(&self.runners.transfers));
        let (link, outgoing) = Link::with_transfers(user.clone(), register, &features, transfers)
            .map_err(Unregistered::Invalid)?;
        let isolation = register.isolation.chars().filter(|one| !one.is_control()).take(NAME_BYTES).collect();
        let cut = CancellationToken::new();
        let runners = &self.runners;
        let changing = Arc::clone(&runners.users.lock().entry(user.clone()).or_default().changing);
        let _changing = changing.lock().await;
        let before = runners.kept(user);
        if before.refused.iter().any(|refused| Some(refused.as_str()) == token) {
            return Err(Unregistered::Revoked);
        }
        let mut kept = before.clone();
        kept.names.insert(name.to_owned(), token.map(str::to_owned));
        if kept.names.len() > PER_USER_MAX {
            return Err(Unregistered::Full);
        }
        if !kept.names.contains_key(&kept.active) {
            name.clone_into(&mut kept.active);
        }
        if kept != before {
            self.keep_runners(user, &kept).await.map_err(|error| match error {
                Error::Storage(storage::Error::TooManyEntries(_)) => Unregistered::Full,
                error => {
                    tracing::warn!(%user, %error, "a runner could not register: the list of the user's runners was not written");
                    Unregistered::Failed
                }
            })?;
        }
        let is_active = kept.active == name;
        let machine = {
            let mut users = runners.users.lock();
            let of = users.entry(user.clone()).or_default();
            Arc::clone(of.machines.entry(name.to_owned()).or_default())
        };
        machine.connected(Arc::clone(&link));
        let sandbox: Arc<dyn Sandbox> = Arc::new(RemoteSandbox::of(machine, Arc::clone(&link)));
        let (sandbox, sync) = if self.syncing.is_on() {
            let (sandbox, state) = self.begin_sync(user, sandbox);
            (sandbox, Some(state))
        } else {
            (sandbox, None)
        };
        let former = {
            let mut users = runners.users.lock();
            let of = users.entry(user.clone()).or_default();
            of.kept = kept;
            let connected = Connected {
                link: Arc::clone(&link),
                sandbox: Arc::clone(&sandbox),
                since: SystemTime::now(),
                isolation,
                cut: cut.clone(),
                sync,
            };
            of.connected.insert(name.to_owned(), connected)
        };
        if let Some(former) = former {
            former.link.end();
            former.cut.cancel();
        }
        if is_active {
            self.backends.lend(user.clone(), sandbox);
        }
        let answer = Registered::new(features);
        Ok(Registration { link, outgoing, cut, answer, user: user.clone(), name: name.to_owned() })
    }

    /// Notes that the connection of a machine has ended. One that took its place by now stays.
    pub fn runner_left(&self, registration: &Registration) {
        registration.link.end();
        let mut users = self.runners.users.lock();
        let Some(of) = users.get_mut(&registration.user) else { return };
        if of
            .connected
            .get(&registration.name)
            .is_some_and(|there| Arc::ptr_eq(&there.link, &registration.link))
        {
            of.connected.remove(&registration.name);
        }
    }
}
