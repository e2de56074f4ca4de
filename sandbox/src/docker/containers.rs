//! [`Containers`]: one container for each user of an agent, there when it is needed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bollard::Docker;
use bollard::errors::Error as Engine;
use bollard::models::{ContainerCreateBody, HostConfig};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, CreateImageOptionsBuilder, KillContainerOptions,
    RemoveContainerOptionsBuilder, StopContainerOptionsBuilder, UploadToContainerOptionsBuilder,
};
use futures_util::{StreamExt, TryStreamExt};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::sync::{OwnedRwLockReadGuard, RwLock};

use super::{DockerOptions, directories, failed};
use crate::{AgentId, Error, ErrorKind, Result, SandboxPath, UserId};

/// The first process of a container: it waits, and collects the orphans of others.
const FIRST: &str = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done";
/// The home of everything in a container.
const HOME: &str = "/home/sandbox";
/// Seconds that a container has to stop by itself.
const STOP_SECONDS: i32 = 5;

/// The owner of a container.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Owner {
    pub(super) user: UserId,
    pub(super) agent: AgentId,
}

/// All containers.
#[derive(Debug)]
pub(super) struct Containers {
    pub(super) docker: Docker,
    pub(super) options: DockerOptions,
    owners: Mutex<Option<HashMap<Owner, Arc<State>>>>,
}

/// The known state of a container.
#[derive(Debug)]
struct State {
    name: String,
    /// Whether it runs. Calls hold it for reading; starting, stopping and exporting hold it for writing.
    running: Arc<RwLock<bool>>,
    used: Mutex<Instant>,
    is_exporting: AtomicBool,
}

/// A running container that stays while this is held.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) name: String,
    state: Arc<State>,
    _running: OwnedRwLockReadGuard<bool>,
}

impl Drop for Held {
    fn drop(&mut self) {
        *self.state.used.lock() = Instant::now();
    }
}

impl Containers {
    pub(super) fn new(docker: Docker, options: DockerOptions) -> Self {
        Self { docker, options, owners: Mutex::new(Some(HashMap::new())) }
    }

    fn state(&self, operation: &'static str, owner: &Owner) -> Result<Arc<State>> {
        let mut owners = self.owners.lock();
        let closed = || Error::new(ErrorKind::Disconnected, operation, "the sandbox is closed");
        let owners = owners.as_mut().ok_or_else(closed)?;
        let state = owners.entry(owner.clone()).or_insert_with(|| {
            // Names of containers have few characters, ids many, but no NUL.
            let digest = Sha256::digest(format!("{}\0{}", owner.user.as_str(), owner.agent.as_str()));
            let mut digest = hex::encode(digest);
            digest.truncate(32);
            Arc::new(State {
                name: format!("{}-{digest}", self.options.prefix),
                running: Arc::new(RwLock::new(false)),
                used: Mutex::new(Instant::now()),
                is_exporting: AtomicBool::new(false),
            })
        });
        Ok(state.clone())
    }

    /// The running container of `user`, made or started if need be.
    pub(super) async fn hold(&self, operation: &'static str, owner: &Owner) -> Result<Held> {
        let state = self.state(operation, owner)?;
        let held = async {
            loop {
                let running = state.running.clone().read_owned().await;
                if *running {
                    return Ok(Held { name: state.name.clone(), state: state.clone(), _running: running });
                }
                drop(running);
                let mut running = state.running.write().await;
                if !*running {
                    self.start(operation, owner, &state.name).await?;
                    *running = true;
                }
            }
        };
        let busy = |_| {
            Error::new(ErrorKind::Busy, operation, "the container is being made or exported: try again later")
        };
        tokio::time::timeout(self.options.wait, held).await.map_err(busy)?
    }

    /// Forgets that the container runs: another program stopped it.
    pub(super) async fn lost(&self, operation: &'static str, owner: &Owner) -> Result<()> {
        let state = self.state(operation, owner)?;
        *state.running.write().await = false;
        Ok(())
    }

    async fn start(&self, operation: &'static str, owner: &Owner, name: &str) -> Result<()> {
        let is_missing = match self.docker.start_container(name, None).await {
            Ok(()) => return Ok(()),
            Err(Engine::DockerResponseServerError { status_code, .. }) => status_code == 404,
            Err(error) => return Err(failed(operation)(error)),
        };
        if is_missing {
            self.create(operation, owner, name).await?;
        }
        self.docker.start_container(name, None).await.map_err(failed(operation))
    }

    async fn create(&self, operation: &'static str, owner: &Owner, name: &str) -> Result<()> {
        let options = &self.options;
        // A container that was exported goes on from its image; any other begins with the common image.
        let image = match self.docker.inspect_image(&exported(name)).await {
            Ok(_) => exported(name),
            Err(_) => options.image.clone(),
        };
        let workspace = SandboxPath::workspace().to_string();
        let labels = [
            ("filesecbox.sandbox", options.prefix.as_str()),
            ("filesecbox.user", owner.user.as_str()),
            ("filesecbox.agent", owner.agent.as_str()),
        ];
        let host = HostConfig {
            binds: options.volume.then(|| vec![format!("{name}:{workspace}")]),
            memory: Some(options.memory_bytes),
            memory_swap: Some(options.memory_bytes),
            pids_limit: Some(options.processes),
            network_mode: Some(options.network.clone()),
            cap_drop: Some(vec!["ALL".to_owned()]),
            security_opt: Some(vec!["no-new-privileges".to_owned()]),
            ..Default::default()
        };
        let body = ContainerCreateBody {
            image: Some(image),
            entrypoint: Some(["/bin/sh", "-c", FIRST].map(str::to_owned).to_vec()),
            cmd: Some(Vec::new()),
            working_dir: Some(workspace), // made by the engine
            user: Some(format!("{uid}:{uid}", uid = options.uid)),
            env: Some(vec![format!("HOME={HOME}")]),
            labels: Some(labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into()),
            host_config: Some(host),
            ..Default::default()
        };
        let named = CreateContainerOptionsBuilder::default().name(name).build();
        match self.docker.create_container(Some(named), body).await {
            // By another process with the same prefix, meanwhile.
            Err(Engine::DockerResponseServerError { status_code: 409, .. }) => return Ok(()),
            Err(error) => return Err(failed(operation)(error)),
            Ok(_) => {}
        }
        // A directory that the engine makes belongs to root. Before the container starts, so that nothing in it is in
        // the way.
        let directories = directories::archive(&[SandboxPath::workspace().as_str(), HOME], options.uid);
        let place = UploadToContainerOptionsBuilder::default().path("/").build();
        let given =
            self.docker.upload_to_container(name, Some(place), bollard::body_full(directories.into())).await;
        if given.is_err() {
            // Or the next call would start a container in which nothing can be written.
            let options = RemoveContainerOptionsBuilder::default().force(true).build();
            let _gone = self.docker.remove_container(name, Some(options)).await;
        }
        given.map_err(failed(operation))
    }

    /// Ends all that runs in a container at once, and so the container; the next call starts it again.
    pub(super) async fn break_off(&self, operation: &'static str, owner: &Owner) -> Result<()> {
        let state = self.state(operation, owner)?;
        let killed = self.docker.kill_container(&state.name, None::<KillContainerOptions>).await;
        // Calls that are under way hold it for reading, and end now.
        tokio::spawn(async move { *state.running.write().await = false });
        match killed {
            Ok(()) | Err(Engine::DockerResponseServerError { status_code: 404 | 409, .. }) => Ok(()),
            Err(error) => Err(failed(operation)(error)),
        }
    }

    async fn stop(&self, operation: &'static str, name: &str) -> Result<()> {
        let options = StopContainerOptionsBuilder::default().t(STOP_SECONDS).build();
        match self.docker.stop_container(name, Some(options)).await {
            Ok(()) | Err(Engine::DockerResponseServerError { status_code: 304 | 404, .. }) => Ok(()),
            Err(error) => Err(failed(operation)(error)),
        }
    }

    /// Stops the containers that no call has used for long.
    pub(super) async fn stop_idle(&self) {
        let all: Vec<(Owner, Arc<State>)> = {
            let owners = self.owners.lock();
            owners.iter().flatten().map(|(owner, state)| (owner.clone(), state.clone())).collect()
        };
        for (owner, state) in all {
            // A container that a call holds is not idle.
            let Ok(mut running) = state.running.clone().try_write_owned() else { continue };
            if state.used.lock().elapsed() < self.options.idle {
                continue;
            }
            if *running && self.stop("close_for_user", &state.name).await.is_err() {
                continue; // next time
            }
            *running = false;
            let mut owners = self.owners.lock();
            // At most two references, this one and the map's: no call waits for this container.
            if Arc::strong_count(&state) <= 2
                && let Some(owners) = owners.as_mut()
            {
                owners.remove(&owner);
            }
        }
    }

    pub(super) async fn close_for_user(&self, owner: &Owner) -> Result<()> {
        let state = self.state("close_for_user", owner)?;
        let mut running = state.running.write().await;
        if *running {
            self.stop("close_for_user", &state.name).await?;
        }
        *running = false;
        Ok(())
    }

    pub(super) async fn remove(&self, owner: &Owner) -> Result<()> {
        const OPERATION: &str = "remove_user";
        let state = self.state(OPERATION, owner)?;
        let mut running = state.running.write().await;
        *running = false;
        let options = RemoveContainerOptionsBuilder::default().force(true).build();
        gone(self.docker.remove_container(&state.name, Some(options)).await).map_err(failed(OPERATION))?;
        let options = None::<bollard::query_parameters::RemoveVolumeOptions>;
        gone(self.docker.remove_volume(&state.name, options).await).map_err(failed(OPERATION))?;
        let removed = self
            .docker
            .remove_image(&exported(&state.name), None::<bollard::query_parameters::RemoveImageOptions>, None)
            .await;
        gone(removed.map(drop)).map_err(failed(OPERATION))
    }

    pub(super) async fn close(&self) -> Result<()> {
        let owners = self.owners.lock().take();
        let mut first_failure = Ok(());
        for state in owners.into_iter().flatten().map(|(_, state)| state) {
            // Calls that are under way end with their container.
            first_failure = first_failure.and(self.stop("close", &state.name).await);
        }
        first_failure
    }

    pub(super) fn is_exporting(&self, owner: &Owner) -> bool {
        let owners = self.owners.lock();
        let state = owners.as_ref().and_then(|owners| owners.get(owner));
        state.is_some_and(|state| state.is_exporting.load(Ordering::Acquire))
    }

    /// Makes an image of the container's files, and a new container of that image.
    pub(super) async fn export_and_import(&self, owner: &Owner) -> Result<()> {
        const OPERATION: &str = "export_and_import";
        drop(self.hold(OPERATION, owner).await?);
        let state = self.state(OPERATION, owner)?;
        let _exporting = Exporting::begin(&state);
        let mut running = state.running.write().await;
        // So that no file changes while it is read.
        self.stop(OPERATION, &state.name).await?;
        *running = false;
        let files = self.docker.export_container(&state.name).map_err(std::io::Error::other);
        let (repository, tag) = (state.name.as_str(), "exported");
        let options = CreateImageOptionsBuilder::default().from_src("-").repo(repository).tag(tag).build();
        let body = bollard::body_try_stream(files);
        let mut progress = std::pin::pin!(self.docker.create_image(Some(options), Some(body), None));
        while let Some(step) = progress.next().await {
            step.map_err(failed(OPERATION))?;
        }
        // Only now the old container may go: until here it has the only copy.
        let options = RemoveContainerOptionsBuilder::default().force(true).build();
        self.docker.remove_container(&state.name, Some(options)).await.map_err(failed(OPERATION))?;
        self.start(OPERATION, owner, &state.name).await?;
        *running = true;
        Ok(())
    }
}

fn exported(name: &str) -> String {
    format!("{name}:exported")
}

/// A missing thing counts as removed.
fn gone(removed: Result<(), Engine>) -> Result<(), Engine> {
    match removed {
        Err(Engine::DockerResponseServerError { status_code: 404, .. }) => Ok(()),
        removed => removed,
    }
}

struct Exporting(Arc<State>);

impl Exporting {
    fn begin(state: &Arc<State>) -> Self {
        state.is_exporting.store(true, Ordering::Release);
        Self(state.clone())
    }
}

impl Drop for Exporting {
    fn drop(&mut self) {
        self.0.is_exporting.store(false, Ordering::Release);
    }
}
