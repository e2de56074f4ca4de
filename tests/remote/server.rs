//! The service in this process, its routes on a port, and callers of every role.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::middleware;
use filesecbox::access::signed::Keys;
use filesecbox::access::{Access, Credentials, Role, Token};
use filesecbox::http::{self, App, AppParts};
use filesecbox::ops::Service;
use filesecbox::{config, serve};
use sandbox::{AgentId, Sandbox, ServiceOptions, ServiceSandbox, UserId};
use storage::WorkspaceId;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::client::Client;
use crate::promised;

/// How long runs may take when all tests have ended.
const GRACE: Duration = Duration::from_secs(5);

pub(crate) struct Server {
    pub(crate) service: Arc<Service>,
    pub(crate) runtime: Runtime,
    /// The service's data directory.
    pub(crate) root: PathBuf,
    /// For an engine.
    pub(crate) client: Client,
    stopping: CancellationToken,
    dir: TempDir,
}

pub(crate) fn id(user: &str, agent: &str) -> WorkspaceId {
    WorkspaceId { user: UserId::parse(user).unwrap(), agent: AgentId::parse(agent).unwrap() }
}

impl Server {
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("data");
        let config = config::Config {
            root: root.clone(),
            durability: config::Durability::Relaxed,
            ..config::Config::default()
        };
        // No thread is there yet.
        let service = serve::start(&config).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let user = |name: &str| Role::User { user: UserId::parse(name).unwrap(), agent: None };
        let roles = [
            ("admin", Role::Admin),
            ("engine", Role::Engine),
            ("manager", Role::Manager(AgentId::parse("memory").unwrap())),
            ("alice", user("alice")),
            ("mallory", user("mallory")),
            ("monitor", Role::Monitor),
        ];
        let tokens = roles.map(|(name, role)| Token::from_text(name, role, name)).into();
        let app = App::from(AppParts {
            service: Arc::clone(&service),
            access: Arc::new(Access::new(Credentials { tokens, keys: Keys::default() })),
            is_guarded: false,
            allowed_origins: Arc::default(),
            logs_requests: false,
            connections: config.limits.connections.clone(),
            mcp: Some(Arc::new(serve::open_mcp(&config, &service).unwrap())),
            shares: None,
            compat: None,
            token_seconds_max: 60,
        });
        let stopping = CancellationToken::new();
        let address = runtime.block_on(async {
            serve::tend(&service);
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let router = http::router(app).layer(middleware::from_fn(promised::hold));
            let (metrics, stopping) = (Arc::clone(service.metrics()), stopping.clone());
            let limits = config.limits.connections.clone();
            tokio::spawn(async move {
                http::connection::listen::serve(listener, router, &limits, metrics, stopping).await;
            });
            address
        });
        // No failure may tell where anything is on the host: neither the service's files nor those of a backend.
        let told = dir.path().to_str().unwrap().to_owned();
        let client = Client { address, root: told, token: Some("engine".to_owned()) };
        Self { service, runtime, root, client, stopping, dir }
    }

    /// A directory beside the service's data, for a backend on the host.
    pub(crate) fn place(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Has `sandbox` answer for these users with `agent`.
    pub(crate) fn lend(&self, users: &[&str], agent: &str, sandbox: &Arc<dyn Sandbox>) {
        for user in users {
            self.service.backends().insert(id(user, agent), Arc::clone(sandbox)).unwrap();
        }
    }

    /// The routes as a backend themselves.
    pub(crate) fn connected(&self, agent: &str) -> ServiceSandbox {
        connected(&self.client.address.to_string(), agent)
    }

    pub(crate) fn stop(server: Arc<Self>) {
        let Ok(server) = Arc::try_unwrap(server) else { panic!("a test still uses the server") };
        let Self { service, runtime, stopping, .. } = server;
        stopping.cancel();
        runtime.block_on(serve::stop(&service, GRACE));
        drop(runtime);
        serve::close(&service);
    }
}

pub(crate) fn connected(address: &str, agent: &str) -> ServiceSandbox {
    let options = ServiceOptions {
        address: format!("http://{address}"),
        authorities: None,
        token: Some("engine".to_owned()),
        agent: AgentId::parse(agent).unwrap(),
        skills: false,
    };
    ServiceSandbox::new(options).unwrap()
}
