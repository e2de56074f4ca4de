//! Finding the strongest confinement that holds here: launcher, data directory and probe, in that order.
//!
//! The confinement that a host seems to grant is tried out before the first request. When namespaces turn out not to
//! hold, or not to work, the service starts without them, where the configured floor allows that, and says why for ever
//! after.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::Duration;

use exec::{HostNamespaces, HostReport, Isolation, Launcher, LauncherConfig, OwnerMaps, Tier, Whitelist};
use policy::CommandPolicy;
use policy::command::Profile;
use storage::live::{Guests, LiveOptions, OwnerSwap};
use storage::{Project, ProjectQuotas, Recovery, Store, Use};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::{Config, Durability, Reach};
use crate::serve_error::ServeError;
use egress::{Account, Egress};

/// How long the proxy leaves a listener alone that it cannot wait for.
const LISTENER_PAUSE: Duration = Duration::from_secs(1);
/// How often idle network namespaces are looked for.
const NETWORK_ROUND: Duration = Duration::from_secs(30);

/// A data directory and a launcher whose walls were tried out.
pub struct Confined {
    /// Starts commands.
    pub launcher: Arc<Launcher>,
    /// Which commands may run.
    pub commands: CommandPolicy,
    /// The bytes on disk.
    pub store: Store,
    /// The leftovers of a crash that opening the data directory mended.
    pub recovery: Recovery,
    /// The findings about the walls.
    pub host: HostReport,
}

/// Starts commands and opens the data directory, as strongly confined as `config` allows and the host grants, but no
/// weaker than `floor`.
///
/// To be called before any thread is started: see [`HostNamespaces::enter`].
///
/// # Errors
/// [`ServeError::Commands`], [`ServeError::Exec`], [`ServeError::Store`].
pub fn start(config: &Config, floor: Tier) -> Result<Confined, ServeError> {
    let (launcher, commands) = start_launcher(config, floor, None)?;
    raise_open_files();
    let (store, recovery) = open_store(config, &launcher)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (launcher, host) = prove(config, floor, launcher, &store, &runtime)?;
    Ok(Confined { launcher, commands, store, recovery, host })
}

/// Tries the walls of `launcher`, or of another without namespaces when those do not hold.
fn prove(
    config: &Config,
    floor: Tier,
    launcher: Arc<Launcher>,
    store: &Store,
    runtime: &Runtime,
) -> Result<(Arc<Launcher>, HostReport), ServeError> {
    let probe = |launcher: &Arc<Launcher>| {
        runtime.block_on(launcher.probe(&store.probe_directory(), store.probe_owner()))
    };
    let reason = match probe(&launcher) {
        Ok(host) if host.is_sound() || !launcher.mounts() => return Ok((launcher, host)),
        Err(error) if !launcher.mounts() || floor == Tier::Namespaces => return Err(error.into()),
        Ok(host) => {
            let failed = host.canaries.iter().find(|canary| !canary.outcome.is_enforced());
            failed.map_or_else(String::new, |canary| {
                format!("the attempt to {} went wrong: {}", canary.attempt, canary.outcome)
            })
        }
        Err(error) => {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
            format!("{error}{}", cause.unwrap_or_default())
        }
    };
    tracing::warn!(%reason, "namespaces do not work on this host: commands run without them");
    drop(launcher);
    let (launcher, _) = start_launcher(config, floor, Some(reason))?;
    let host = probe(&launcher)?;
    Ok((launcher, host))
}

fn start_launcher(
    config: &Config,
    floor: Tier,
    without_namespaces: Option<String>,
) -> Result<(Arc<Launcher>, CommandPolicy), ServeError> {
    let commands = CommandPolicy::new(config.commands.profile, &config.commands.extra)?
        .with_arguments_bytes(config.limits.runs.arguments_bytes)
        .with_scan(config.commands.scan);
    let mut launcher = LauncherConfig::new(Whitelist::from(&commands));
    launcher.isolation = Isolation { minimum: floor, ..config.isolation };
    launcher.without_namespaces = without_namespaces;
    let may_use_namespaces = config.isolation.maximum == Tier::Namespaces;
    if may_use_namespaces
        && launcher.without_namespaces.is_none()
        && let HostNamespaces::Host(reason) = HostNamespaces::enter()
    {
        launcher.without_namespaces = Some(reason);
    }
    launcher.code_in_trees = config.commands.profile != Profile::Strict;
    launcher.proxy_port = Some(egress::PORT).filter(|_| config.commands.network != Reach::None);
    launcher.host_network = config.commands.network == Reach::Host;
    launcher.networks = config.limits.networks.clone();
    launcher.read_only.clone_from(&config.commands.read_only);
    if !config.commands.search_path.is_empty() {
        launcher.search_path.clone_from(&config.commands.search_path);
    }
    Ok((Launcher::start(launcher)?, commands))
}

/// Opens the data directory, with live views where `launcher` can attach them.
fn open_store(config: &Config, launcher: &Arc<Launcher>) -> Result<(Store, Recovery), ServeError> {
    let separate_owners = rustix::process::geteuid().is_root();
    let swap = || Arc::new(Swap(OwnerMaps::new(launcher))) as Arc<dyn OwnerSwap>;
    let live = launcher.mounts().then(|| LiveOptions {
        swap: separate_owners.then(swap),
        guests: Some(Arc::new(Clones(Arc::downgrade(launcher)))),
        views_max: config.limits.views,
        ..LiveOptions::default()
    });
    let options = storage::Options {
        durability: match config.durability {
            Durability::Strict => storage::Durability::Strict,
            Durability::Relaxed => storage::Durability::Relaxed,
        },
        separate_owners,
        keep_versions: config.keep_versions,
        files: config.limits.files.clone(),
        disk: config.limits.disk.clone(),
        snapshots: config.limits.snapshots.clone(),
        unpacked_bytes: config.prepare.unpacked_bytes,
        idle: config.workspaces.idle(),
        keep: config.workspaces.keep(),
        live,
        projects: Some(Arc::new(Projects)),
    };
    Store::open(&config.root, options)
        .map_err(|source| ServeError::Store { path: config.root.display().to_string(), source })
}

/// Hands what `exec` can do to mounts to `storage`, which knows what to mount.
#[derive(Debug)]
struct Swap(OwnerMaps);

impl OwnerSwap for Swap {
    fn swapped(&self, directory: BorrowedFd<'_>, owner: u32) -> std::io::Result<OwnedFd> {
        self.0.swapped(directory, owner)
    }
}

/// Hands the kernel's calls on projects, which `exec` makes, to `storage`, which knows what is to be of which.
#[derive(Debug)]
struct Projects;

impl ProjectQuotas for Projects {
    fn project_of(&self, file: BorrowedFd<'_>) -> std::io::Result<Project> {
        let exec::projects::Project { id, is_inherited } = exec::projects::project_of(file)?;
        Ok(Project { id, is_inherited })
    }

    fn set_project(&self, file: BorrowedFd<'_>, project: Project) -> std::io::Result<()> {
        let Project { id, is_inherited } = project;
        exec::projects::set_project(file, exec::projects::Project { id, is_inherited })
    }

    fn taken(&self, file: BorrowedFd<'_>, id: u32) -> std::io::Result<Use> {
        let exec::projects::Allotment { bytes, files, .. } = exec::projects::allotment(file, id)?;
        Ok(Use { bytes, files })
    }

    fn allot(&self, file: BorrowedFd<'_>, id: u32, limits: Use) -> std::io::Result<()> {
        exec::projects::allot(file, id, limits.bytes, limits.files)
    }
}

/// Tells `exec`, which keeps clones of views for runs to come, that one goes.
#[derive(Debug)]
struct Clones(Weak<Launcher>);

impl Guests for Clones {
    fn let_go(&self, generation: u64) {
        if let Some(launcher) = self.0.upgrade() {
            launcher.let_go(generation);
        }
    }
}

/// Lets the service open as many files as it may: each connection, file under way and live view takes some.
///
/// The launcher was started before and keeps the ordinary limit for commands.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(
            %error,
            "failed to raise the limit on open files: the service goes on with the present one"
        );
    }
}

/// Serves the proxy in each network namespace of a user and agent, and to commands without one, and lets idle namespaces
/// go, until `stop`.
pub async fn serve_egress(egress: Arc<Egress>, launcher: Arc<Launcher>, stop: CancellationToken) {
    let mut listeners = launcher.listeners();
    let mut connections = launcher.proxy_connections();
    let mut round = tokio::time::interval(NETWORK_ROUND);
    round.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let launcher = Arc::downgrade(&launcher);
    let serving = TaskTracker::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            listening = listeners.recv() => match listening {
                Some(listening) => {
                    let (egress, stop) = (Arc::clone(&egress), stop.child_token());
                    serving.spawn(serve_network(egress, listening, stop));
                }
                None => break,
            },
            Some(connection) = connections.recv() => {
                let (egress, stop) = (Arc::clone(&egress), stop.child_token());
                serving.spawn(serve_connection(egress, connection, stop));
            }
            _ = round.tick() => match launcher.upgrade() {
                Some(launcher) => launcher.let_idle_networks_go(),
                None => break,
            },
        }
    }
    serving.close();
    serving.wait().await;
}

/// Serves the proxy on one connection of a command without a network namespace.
async fn serve_connection(egress: Arc<Egress>, connection: exec::ProxyConnection, stop: CancellationToken) {
    let exec::ProxyConnection { owner, stream } = connection;
    let (user, agent) = (owner.user.as_str().to_owned(), owner.agent.as_str().to_owned());
    let account = Account { user: owner.user, agent: owner.agent };
    if let Err(error) = egress.serve_connection(stream, account, stop).await {
        tracing::warn!(%error, user, agent, "failed to serve a connection to the egress proxy: it is closed");
    }
}

/// Serves the proxy in one network namespace until that is gone or `stop`.
async fn serve_network(egress: Arc<Egress>, listening: exec::Listening, stop: CancellationToken) {
    let exec::Listening { owner, listener, mut gone } = listening;
    let account = Account { user: owner.user, agent: owner.agent };
    loop {
        let serving = async {
            let served = match listener.try_clone() {
                Ok(socket) => egress.serve(socket.into(), Some(account.clone()), stop.clone()).await,
                Err(error) => Err(error),
            };
            if let Err(error) = served {
                let (user, agent) = (account.user.as_str(), account.agent.as_str());
                tracing::error!(
                    %error, user, agent,
                    "failed to serve the egress proxy: commands of this user and agent cannot reach it until the next try"
                );
                tokio::time::sleep(LISTENER_PAUSE).await;
            }
        };
        let mut serving = std::pin::pin!(serving);
        tokio::select! {
            () = &mut serving => {}
            _ = gone.changed() => {
                stop.cancel();
                serving.await;
            }
        }
        if stop.is_cancelled() {
            return;
        }
    }
}

/// The directories in which commands find programs, separated by `:`: one with names that the host lacks or has for a shim,
/// and those of the host.
///
/// # Errors
/// Those of [`Store::name_programs`].
pub fn search_path(launcher: &Launcher, store: &Store) -> storage::Result<String> {
    let programs = launcher.programs();
    let aliases = match launcher.mounts() {
        true => std::path::PathBuf::from(exec::ALIASES),
        false => store.name_programs(programs.aliases())?,
    };
    let directories = [&aliases].into_iter().chain(programs.search_path());
    Ok(directories.map(|path| path.to_string_lossy()).collect::<Vec<_>>().join(":"))
}

/// The network of commands, when they are not to have the best there is.
///
/// # Errors
/// [`ServeError::NoProxy`] when the configuration demands the proxy and there is no network to put it into.
pub fn network(config: &Config, launcher: &Launcher) -> Result<exec::Network, ServeError> {
    use exec::Network;
    match config.commands.network {
        Reach::Proxy if !launcher.offers_proxy() => {
            Err(ServeError::NoProxy { reason: launcher.without_proxy().unwrap_or_default() })
        }
        Reach::Auto | Reach::Proxy if launcher.offers_proxy() => Ok(Network::Proxy),
        Reach::Auto | Reach::Proxy | Reach::None => Ok(Network::None),
        Reach::Host => Ok(Network::Host),
    }
}
