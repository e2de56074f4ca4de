//! Starting, serving and stopping.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use policy::environment::Configured;
use storage::{Recovery, Store};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::access::{Access, key_file, now};
use crate::audit::{self, Audit, Syncs};
use crate::config::{AuditDurability, Config, ConfigError, CredentialSources, Durability, WhenFull};
use crate::confine::{self, Confined};
use crate::http::{self, App, AppParts};
use crate::local::LocalSandbox;
use crate::log_lines;
use crate::mcp::Mcp;
use crate::metrics::Metrics;
use crate::ops::Service;
use crate::ops::agents::{AgentTable, Common};
use crate::ops::backends::Backends;
use crate::ops::devbox::table::Devboxes;
use crate::ops::preparations::Preparations;
use crate::ops::revocations;
use crate::ops::runners::Runners;
use crate::ops::service::Parts;
use crate::ops::shares::Shares;
use crate::registry::RegistrySync;
pub use crate::serve_error::ServeError;
use crate::telemetry::{self, Spans};
use egress::Egress;

/// How long answers may take to leave after the last run has ended.
const FAREWELL: Duration = Duration::from_secs(5);
/// How often memory that holds nothing goes back to the kernel.
const RETURN: Duration = Duration::from_secs(10);
/// After how many turns of its tasks a thread of the runtime looks at what has come over the network. The runtime's own 61 are many
/// where each takes a part of a large body: at a quarter of a millisecond, a small request would not be seen for 15.
const EVENT_INTERVAL: u32 = 4;

/// Serves until SIGTERM or SIGINT, then stops in order.
///
/// `sources` are where tokens and keys come from.
///
/// # Errors
/// Every [`ServeError`].
pub fn serve(config: Config, sources: CredentialSources) -> Result<(), ServeError> {
    serve_with(config, sources, |mcp| mcp)
}

/// As [`serve`], with the MCP server that `extend` makes of the service's own, where it is switched on.
///
/// # Errors
/// As [`serve`].
pub fn serve_with(
    config: Config,
    sources: CredentialSources,
    extend: impl FnOnce(Mcp) -> Mcp,
) -> Result<(), ServeError> {
    config.check_values()?;
    config.check_open(!sources.tokens()?.is_empty())?;
    // Before the first thread and the launcher are made, which take it over.
    exec::take_short_slices();
    let service = start(&config)?;
    let access = open_access(&config, sources, service.store()).map(Arc::new);
    let served = access.and_then(|access| {
        exec::return_large_allocations();
        log_lines::write_together()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .event_interval(EVENT_INTERVAL)
            .enable_all()
            .build()?;
        let mcp =
            config.mcp.enabled.then(|| open_mcp(&config, &service)).transpose()?.map(extend).map(Arc::new);
        let app = App::from(AppParts {
            mcp,
            compat: config.compat.enabled.then_some(config.compat.skill_rules),
            shares: config.shares.enabled.then(|| config.shares.public_url.clone().into()),
            service: Arc::clone(&service),
            access,
            is_guarded: config.allow_anonymous,
            allowed_origins: config.access.allowed_origins.clone().into(),
            logs_requests: config.log.requests,
            connections: config.limits.connections.clone(),
            token_seconds_max: config.access.token_seconds_max,
        });
        runtime.spawn(return_free_memory());
        // Dropping the runtime waits for the work that has begun, uploads included, so that the registry ends with
        // everything.
        runtime.block_on(listen(&config, app))
    });
    close(&service);
    log_lines::stop_waiting();
    served
}

/// Starts the launcher, opens the data directory and makes a service of both, which [`tend`] looks after.
///
/// To be called before any thread is started: see [`exec::HostNamespaces::enter`]. The program must become the launcher when
/// its first argument is [`exec::SUBCOMMAND`].
///
/// # Errors
/// Every [`ServeError`] but [`ServeError::Listen`].
pub fn start(config: &Config) -> Result<Arc<Service>, ServeError> {
    config.check_values()?;
    let environment = Configured::new(config.commands.environment.clone().into_iter().collect())?;
    let egress = Egress::new(config.egress()?);
    let Confined { launcher, commands, store, recovery, host } =
        confine::start(config, config.isolation.minimum)?;
    let network = confine::network(config, &launcher)?;
    let search_path =
        confine::search_path(&launcher, &store).map_err(|source| store_error(config, source))?;
    if recovery != Recovery::default() {
        let Recovery { finished, swept, refused } = recovery;
        tracing::info!(
            finished,
            swept,
            refused,
            "recovered from a crash: unfinished changes were finished, swept or refused"
        );
    }
    tracing::info!(
        tier = %host.enforcement.tier, landlock_abi = host.enforcement.landlock_abi,
        "the launcher confines commands at this tier"
    );
    match store.kernel_keeps_quotas() {
        Ok(()) => tracing::info!("the kernel keeps the quotas of trees"),
        Err(reason) => tracing::info!(reason, "the service alone keeps the quotas of trees"),
    }
    let metrics = Arc::new(Metrics::new());
    let audit = Arc::new(open_audit(config, &store, &metrics)?);
    let spans = open_spans(config, &metrics)?;
    let registry = RegistrySync::start(store.clone(), recovery != Recovery::default());
    let registry = Arc::new(registry.map_err(|source| store_error(config, source))?);
    let agents = AgentTable::open(
        Common {
            profile: config.commands.profile,
            extra: config.commands.extra.clone(),
            scan: config.commands.scan,
            arguments_bytes: config.limits.runs.arguments_bytes,
            network,
        },
        config.agents.clone(),
        &store,
        &egress,
    );
    let agents = agents.map_err(|source| store_error(config, source))?;
    let backends = Backends::new(&config.limits.runs);
    let runners = Arc::new(Runners::open(&store, &backends).map_err(|source| store_error(config, source))?);
    let devboxes = config.devbox.enabled.then(|| open_devboxes(config, &store)).transpose()?;
    let shares =
        Shares::open(&store, &config.shares.public_agents).map_err(|source| store_error(config, source))?;
    let own = Box::new(|service, agent| Arc::new(LocalSandbox::of_request(service, agent)) as _);
    let preparations = Preparations::new(config.prepare.clone(), own)?;
    let parts = Parts {
        backends,
        runners,
        devboxes,
        shares,
        store,
        launcher,
        host,
        commands,
        agents,
        environment,
        search_path,
        network,
        egress,
        registry,
        preparations,
        audit,
        metrics,
        spans,
    };
    Ok(Arc::new(Service::new(config, parts)?))
}

/// Looks after a service until it stops: the proxy of its commands, and [`Service::tend`].
pub fn tend(service: &Arc<Service>) {
    let (egress, launcher) = (Arc::clone(service.egress()), Arc::clone(service.launcher()));
    tokio::spawn(confine::serve_egress(egress, launcher, service.until_stopped()));
    service.tend();
}

/// Gives free memory back from time to time, for ever.
async fn return_free_memory() {
    loop {
        tokio::time::sleep(RETURN).await;
        let _returned = tokio::task::spawn_blocking(exec::return_free_memory).await;
    }
}

/// Closes live views and flushes the audit log after the last request.
async fn lay_down(service: &Service) {
    let store = service.store().clone();
    // The next start tidies views that are still in use.
    let closed = tokio::task::spawn_blocking(move || {
        if let Err(error) = store.workspaces().keep_uptime() {
            tracing::warn!(
                %error,
                "failed to keep the uptime: idle workspaces will look younger than they are"
            );
        }
        store.close_views()
    });
    if let Ok(Err(error)) = closed.await {
        tracing::warn!(%error, "failed to close a live view: the next start removes it");
    }
    service.audit().stop().await;
}

/// Stops a service that is used as a library: runs may end within `grace`. Afterwards the runtime is to be dropped, and
/// then [`close`] to be called.
pub async fn stop(service: &Service, grace: Duration) {
    service.drain(grace).await;
    service.drop_runs();
    lay_down(service).await;
}

/// Closes what has a thread of its own, when no runtime has any more work for it. It blocks.
pub fn close(service: &Service) {
    service.registry().close();
    if let Some(spans) = service.spans() {
        spans.close();
    }
}

fn store_error(config: &Config, source: storage::Error) -> ServeError {
    ServeError::Store { path: config.root.display().to_string(), source }
}

/// The MCP server of `service`, which is made whether or not it is switched on.
///
/// # Errors
/// [`ServeError::Config`].
pub fn open_mcp(config: &Config, service: &Arc<Service>) -> Result<Mcp, ServeError> {
    let own =
        Box::new(|service, agent| Arc::new(LocalSandbox::of_request(service, agent).with_skills()) as _);
    Ok(Mcp::new(Arc::clone(service), &config.mcp, config.limits.connections.connections, own)?)
}

/// Reads the devboxes that the service has kept.
fn open_devboxes(config: &Config, store: &Store) -> Result<Devboxes, ServeError> {
    let (agent, work_directory) = (config.devbox.agent()?, config.devbox.work_directory.clone());
    Devboxes::open(store, agent, work_directory).map_err(|source| store_error(config, source))
}

/// Opens the audit log below the data directory.
fn open_audit(config: &Config, store: &Store, metrics: &Arc<Metrics>) -> Result<Audit, ServeError> {
    if !config.audit.enabled {
        return Ok(Audit::disabled());
    }
    let settings = audit::Settings {
        syncs: match (config.audit.durability, config.durability) {
            (AuditDurability::Same, Durability::Strict) => Syncs::Changes,
            (AuditDurability::Strict, _) => Syncs::Everything,
            (AuditDurability::Relaxed, Durability::Strict) => Syncs::Soon,
            (AuditDurability::Same | AuditDurability::Relaxed, Durability::Relaxed) => Syncs::Nothing,
        },
        file_bytes: config.audit.file_bytes,
        total_bytes: config.audit.total_bytes,
        least_age: config.audit.least_age(),
        refuses: config.audit.when_full == WhenFull::Refuse,
        account_bytes: config.audit.account_bytes,
        queue: config.audit.queue,
    };
    let open = || {
        let (dir, keys) = (store.service_directory("audit")?, store.service_directory("keys")?);
        Audit::open(dir, &keys, settings, Arc::clone(metrics))
    };
    open().map_err(|source| store_error(config, source))
}

/// Starts what sends spans, where the configuration says where to.
fn open_spans(config: &Config, metrics: &Arc<Metrics>) -> Result<Option<Arc<Spans>>, ServeError> {
    let Some(url) = config.telemetry.traces_url()? else { return Ok(None) };
    let settings = telemetry::Settings {
        url,
        service_name: config.telemetry.service_name.clone(),
        sample_ratio: config.telemetry.sample_ratio,
        queue: config.telemetry.queue,
    };
    Ok(Some(Arc::new(Spans::start(settings, Arc::clone(metrics))?)))
}

/// Reads tokens and keys, of which the service makes one for itself when the configuration names no file.
fn open_access(config: &Config, sources: CredentialSources, store: &Store) -> Result<Access, ServeError> {
    if config.access.key_file.as_os_str().is_empty() {
        let keys = store.service_directory("keys").map_err(|source| store_error(config, source))?;
        key_file::make_unless_there(&keys).map_err(ConfigError::from)?;
    }
    let credentials = sources.read()?;
    let revocations = revocations::kept(store, now()).map_err(|source| store_error(config, source))?;
    Ok(Access::watching(credentials, sources.watched()).revoking(revocations))
}

/// Waits for the end of standard input where the service is to stop with it; else for ever.
async fn end_of_stdin(is_end: bool) {
    if !is_end {
        return std::future::pending().await;
    }
    let (sender, ended) = tokio::sync::oneshot::channel();
    // Reading cannot be given up, so a thread does it which the end of the program does not wait for.
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        let _ = sender.send(());
    });
    let _ = ended.await;
}

async fn listen(config: &Config, app: App) -> Result<(), ServeError> {
    let listen_error = |source| ServeError::Listen { address: config.listen, source };
    let listener = TcpListener::bind(config.listen).await.map_err(listen_error)?;
    let address = listener.local_addr().map_err(listen_error)?;
    let service = Arc::clone(&app.service);
    service.egress().protect(address);
    tend(&service);
    let stopping = CancellationToken::new();
    let mut reload = signal(SignalKind::hangup())?;
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);

    let mut stdout = io::stdout();
    writeln!(stdout, "filesecbox listening on http://{address}")?;
    stdout.flush()?;

    let (access, reloaded) = (Arc::clone(&app.access), Arc::clone(app.service.audit()));
    tokio::spawn(async move {
        while reload.recv().await.is_some() {
            access.look(true);
            reloaded.act("reload").await;
        }
    });
    let limits = app.connections.clone();
    let metrics = Arc::clone(service.metrics());
    let server =
        http::connection::listen::serve(listener, http::router(app), &limits, metrics, stopping.clone());
    let mut server = std::pin::pin!(server);
    tokio::select! {
        () = &mut server => return Ok(()),
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = end_of_stdin(config.stop_with_stdin) => {}
    }
    let grace = config.shutdown_ms;
    tracing::info!("stopping: no further runs, those under way may end within {grace} ms");
    // Reads are answered meanwhile, and who asks whether the service is ready is told that it stops.
    tokio::select! {
        () = &mut server => {}
        () = service.drain(Duration::from_millis(grace)) => {}
    }
    stopping.cancel();
    service.drop_runs();
    // Answers on their way may still leave; a client that does not read them does not hold us up.
    let served = tokio::time::timeout(FAREWELL, &mut server).await.is_ok();
    lay_down(&service).await;
    tracing::info!(all_answered = served, "the service stopped");
    Ok(())
}
