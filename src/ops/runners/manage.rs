//! Choosing, cutting and revoking machines, and writing down what is known of them.

use std::sync::Arc;

use policy::UserId;

use super::Kept;
use crate::ops::Service;
use crate::ops::admission::{Job, Weight};
use crate::ops::error::{Error, Result};

/// Tokens of one user that are refused: the oldest counts no longer when there are more.
const REFUSED_MAX: usize = 64;

impl Service {
    /// Has the machine `name` answer for the workspaces of `user`.
    ///
    /// # Errors
    /// [`Error::NoRunner`]; those of writing it down.
    pub async fn choose_runner(self: &Arc<Self>, user: &UserId, name: &str) -> Result<()> {
        // A task of its own: a caller who leaves must not leave another list on the disk than in force.
        let (service, user, name) = (Arc::clone(self), user.clone(), name.to_owned());
        let changing = self.runs.spawn(async move { service.choose(&user, &name).await });
        changing.await.map_err(|_| Error::Panicked)?
    }

    async fn choose(&self, user: &UserId, name: &str) -> Result<()> {
        let runners = &self.runners;
        let changing = runners.changing(user).ok_or_else(|| Error::NoRunner(name.to_owned()))?;
        let _changing = changing.lock().await;
        let mut kept = runners.kept(user);
        if !kept.names.contains_key(name) {
            return Err(Error::NoRunner(name.to_owned()));
        }
        if kept.active == name {
            return Ok(());
        }
        name.clone_into(&mut kept.active);
        self.keep_runners(user, &kept).await?;
        let sandbox = runners.put(user, kept);
        self.backends.lend(user.clone(), sandbox);
        Ok(())
    }

    /// Ends the connection of a machine, which may come back.
    ///
    /// # Errors
    /// [`Error::NoRunner`].
    pub fn cut_runner(&self, user: &UserId, name: &str) -> Result<()> {
        let users = self.runners.users.lock();
        let of = users.get(user).filter(|of| of.kept.names.contains_key(name));
        let of = of.ok_or_else(|| Error::NoRunner(name.to_owned()))?;
        if let Some(there) = of.connected.get(name) {
            there.link.end();
            there.cut.cancel();
        }
        Ok(())
    }

    /// Forgets a machine and ends its connection; no machine of the user registers with its token any more. When it was the last,
    /// the user's workspaces are this service's own again.
    ///
    /// # Errors
    /// [`Error::NoRunner`]; those of writing it down.
    pub async fn revoke_runner(self: &Arc<Self>, user: &UserId, name: &str) -> Result<()> {
        // As when one is chosen.
        let (service, user, name) = (Arc::clone(self), user.clone(), name.to_owned());
        let changing = self.runs.spawn(async move { service.revoke(&user, &name).await });
        changing.await.map_err(|_| Error::Panicked)?
    }

    async fn revoke(&self, user: &UserId, name: &str) -> Result<()> {
        let runners = &self.runners;
        let changing = runners.changing(user).ok_or_else(|| Error::NoRunner(name.to_owned()))?;
        let _changing = changing.lock().await;
        let mut kept = runners.kept(user);
        let Some(token) = kept.names.remove(name) else { return Err(Error::NoRunner(name.to_owned())) };
        kept.refused.retain(|refused| Some(refused) != token.as_ref());
        kept.refused.extend(token);
        let surplus = kept.refused.len().saturating_sub(REFUSED_MAX);
        kept.refused.drain(..surplus);
        if kept.active == name {
            kept.active = kept.names.keys().next().cloned().unwrap_or_default();
        }
        self.keep_runners(user, &kept).await?;
        let is_last = kept.names.is_empty();
        let (machine, revoked) = {
            let mut users = runners.users.lock();
            let of = users.get_mut(user);
            of.map(|of| (of.machines.remove(name), of.connected.remove(name))).unwrap_or_default()
        };
        if let Some(machine) = machine {
            machine.revoked();
        }
        if let Some(there) = revoked {
            there.link.end();
            there.cut.cancel();
        }
        let sandbox = runners.put(user, kept);
        if is_last {
            self.backends.take_back(user);
        } else {
            self.backends.lend(user.clone(), sandbox);
        }
        Ok(())
    }

    /// Writes down what is known of a user's machines.
    pub(super) async fn keep_runners(&self, user: &UserId, kept: &Kept) -> Result<()> {
        let text = serde_json::to_string(kept).map_err(|_| Error::Panicked)?;
        let (store, user) = (self.store.clone(), user.clone());
        let job = Job::about(Some(&user), Weight::Light).going_on();
        self.work(job, move || Ok(store.keep_runner_list(&user, Some(&text))?)).await
    }
}
