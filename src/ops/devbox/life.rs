//! The life of a devbox: creating, pausing, stopping, resuming and deleting it.
//!
//! Each change is a task of its own: a caller who leaves must not leave another state on the disk than in force.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use policy::environment::Configured;
use storage::WorkspaceId;

use super::name::DevboxName;
use super::table::{Change, Devbox, Devboxes, Kept, Phase, Turn, missing};
use crate::ops::Service;
use crate::ops::admission::{Job, Weight};
use crate::ops::error::{Error, Result};
use crate::ops::sandboxes::Removal;

/// How long requests and runs in a devbox may take to leave it.
const LEAVING: Duration = Duration::from_secs(10);
/// How often it is looked whether they have left.
const LOOK: Duration = Duration::from_millis(5);
/// Longest name of an image, in characters.
const IMAGE_CHARACTERS_MAX: usize = 512;
/// Most variables of one devbox.
const VARIABLES_MAX: usize = 1024;

/// What a creator says about a devbox.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The name of an image, which is told again and means nothing here.
    pub image: Option<String>,
    /// Variables of all its commands.
    pub env: BTreeMap<String, String>,
}

impl Wanted {
    fn check(&self) -> Result<()> {
        if self.image.as_ref().is_some_and(|image| image.chars().count() > IMAGE_CHARACTERS_MAX) {
            let message = format!("`image` has more than {IMAGE_CHARACTERS_MAX} characters: shorten it");
            return Err(Error::Invalid(message));
        }
        if self.env.len() > VARIABLES_MAX {
            let message = format!("`env` has more than {VARIABLES_MAX} variables: write them to a file");
            return Err(Error::Invalid(message));
        }
        // Else every command of it would be refused.
        let refused = Configured::new(self.env.clone().into_iter().collect()).err();
        refused.map_or(Ok(()), |refused| {
            let message = format!("the environment variable `{}` {}", refused.name, refused.problem);
            Err(Error::Invalid(message))
        })
    }
}

impl Service {
    /// The devboxes.
    ///
    /// # Errors
    /// [`Error::Unsupported`]: the service has none.
    pub fn devboxes(&self) -> Result<&Arc<Devboxes>> {
        let off = || Error::Unsupported("there are no devboxes here: set `devbox.enabled = true`".to_owned());
        self.devboxes.as_ref().ok_or_else(off)
    }

    /// Creates a devbox, which then runs. One that is there stays as it is.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::Full`]; those of writing it down.
    pub async fn create_devbox(self: &Arc<Self>, name: DevboxName, wanted: Wanted) -> Result<Devbox> {
        wanted.check()?;
        let (service, devboxes) = (Arc::clone(self), Arc::clone(self.devboxes()?));
        let changing = self.runs.spawn(async move { service.create(&devboxes, &name, wanted).await });
        changing.await.map_err(|_| Error::Panicked)?
    }

    async fn create(&self, devboxes: &Arc<Devboxes>, name: &DevboxName, wanted: Wanted) -> Result<Devbox> {
        let turn = devboxes.turn(name).await;
        if turn.kept().is_none() {
            turn.check_room()?;
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let created_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
            let Wanted { image, env } = wanted;
            let kept = Kept { phase: Phase::Running, created_ms, image, env };
            self.keep_devbox(devboxes, name, Some(&kept)).await?;
            turn.put(Some(kept), None);
        }
        devboxes.get(name)
    }

    /// Brings a devbox to a phase. For another one than [`Phase::Running`] its requests and runs are ended, and waited for.
    ///
    /// # Errors
    /// [`Error::NoDevbox`]; [`Error::Busy`] when they do not end in time; those of writing it down.
    pub async fn bring_devbox(self: &Arc<Self>, name: DevboxName, phase: Phase) -> Result<Devbox> {
        let (service, devboxes) = (Arc::clone(self), Arc::clone(self.devboxes()?));
        let changing = self.runs.spawn(async move { service.bring(&devboxes, &name, phase).await });
        changing.await.map_err(|_| Error::Panicked)?
    }

    async fn bring(&self, devboxes: &Arc<Devboxes>, name: &DevboxName, phase: Phase) -> Result<Devbox> {
        let turn = devboxes.turn(name).await;
        let kept = Kept { phase, ..turn.kept().ok_or_else(|| missing(name))? };
        self.keep_devbox(devboxes, name, Some(&kept)).await?;
        if phase != Phase::Running {
            let leaving = Change::Leaving(phase);
            turn.put(Some(kept.clone()), Some(leaving));
            turn.turn_out(leaving);
            // One that is not left in time goes on leaving: no request enters it, and the caller asks again.
            self.empty_devbox(devboxes, &turn, name).await?;
        }
        turn.put(Some(kept), None);
        devboxes.get(name)
    }

    /// Removes a devbox with its workspace, its home and its snapshots.
    ///
    /// # Errors
    /// [`Error::NoDevbox`]; [`Error::Unsupported`] while another backend has the workspace; [`Error::Busy`] when its requests and
    /// runs do not end in time; as [`Service::remove_sandbox`].
    pub async fn delete_devbox(self: &Arc<Self>, name: DevboxName) -> Result<()> {
        let (service, devboxes) = (Arc::clone(self), Arc::clone(self.devboxes()?));
        let changing = self.runs.spawn(async move { service.delete(&devboxes, &name).await });
        changing.await.map_err(|_| Error::Panicked)?
    }

    async fn delete(&self, devboxes: &Arc<Devboxes>, name: &DevboxName) -> Result<()> {
        let turn = devboxes.turn(name).await;
        let kept = turn.kept().ok_or_else(|| missing(name))?;
        let id = WorkspaceId::of(&devboxes.workspace(name));
        if let Some(backend) = self.backends.get(&id) {
            let message =
                format!("`{}`, where the files of this devbox are, removes no workspace", backend.name());
            return Err(Error::Unsupported(message));
        }
        turn.turn_out(Change::Deleting(SystemTime::now()));
        let removed = async {
            self.empty_devbox(devboxes, &turn, name).await?;
            // The workspace first: a devbox whose removal was cut is there, and can be removed again.
            self.remove_sandbox(id, Removal { force: true, snapshots: true }).await?;
            self.keep_devbox(devboxes, name, None).await
        };
        let removed = removed.await;
        turn.put(removed.is_err().then_some(kept), None);
        removed
    }

    /// Ends the runs in the workspace of a devbox, and waits until they and the requests in it have left.
    ///
    /// # Errors
    /// [`Error::Busy`] after [`LEAVING`].
    async fn empty_devbox(&self, devboxes: &Devboxes, turn: &Turn, name: &DevboxName) -> Result<()> {
        let id = WorkspaceId::of(&devboxes.workspace(name));
        let until = Instant::now() + LEAVING;
        loop {
            // Again and again: a command that waited for a permit may begin meanwhile.
            self.under_way.stop(&id);
            if turn.inside() == 0 && self.under_way.count(&id) == (0, 0) {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(Error::Busy {
                    what: "commands of the devbox have not ended yet",
                    retry_after_seconds: 1,
                });
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Writes down what is known of a devbox, or forgets it.
    async fn keep_devbox(&self, devboxes: &Devboxes, name: &DevboxName, kept: Option<&Kept>) -> Result<()> {
        let text = kept.map(serde_json::to_string).transpose().map_err(|_| Error::Panicked)?;
        let (store, key) = (self.store.clone(), devboxes.key(name));
        let user = devboxes.workspace(name).user().clone();
        let job = Job::about(Some(&user), Weight::Light).going_on();
        self.work(job, move || Ok(store.keep_devbox(&key, text.as_deref())?)).await
    }
}
