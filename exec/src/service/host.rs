//! The confinement that this host grants, found out by doing.
//!
//! A probe runs a command through the same path as every later run and looks at what happened: something in it must work,
//! so that a sandbox which starts nothing does not look perfectly safe, and attempts in it must fail.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use policy::attachment::{HOME, Role};
use policy::{AgentId, RunLimits, UserId, View};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::network_owner::NetworkOwner;
use crate::service::canaries::{Cage, Canary, attempts, control, outcomes, script_of};
use crate::service::enforcement::Circumstances;
use crate::service::launcher::Launcher;
use crate::service::mounts::Attachment;
use crate::service::networks::RunNetwork;
use crate::service::run::result::ExecResult;
use crate::service::run::spec::RunSpec;
use crate::supervisor::ProxyConnection;
use crate::tier::{Enforcement, Network};
use crate::walls::landlock::open_path;
use crate::wire::Reach;

/// The deadline of a command of the probe.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The confinement that this host grants to runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostReport {
    /// The layers of an ordinary run without network.
    pub enforcement: Enforcement,
    /// The attempts and their outcomes.
    pub canaries: Vec<Canary>,
    /// Programs on the whitelist that this host lacks.
    pub missing_programs: Vec<String>,
}

impl HostReport {
    /// Tells whether everything that was tried went as it must.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.canaries.iter().all(|canary| canary.outcome.is_enforced())
    }
}

impl Launcher {
    /// Finds out what this host grants, using a directory of its own inside `directory`, which it removes again.
    ///
    /// With `owner` the canaries run with that uid, as later runs will; without, with the service's own. When one
    /// gets through walls that should have held, this launcher grants tier `process` at most from then on.
    ///
    /// # Errors
    /// * [`Error::Resource`]: the directory could not be made.
    /// * [`Error::Unsupported`]: a canary got through and the configured floor is above `process`.
    /// * Any other error of [`Launcher::run`]: the command that must work did not run.
    pub async fn probe(self: &Arc<Self>, directory: &Path, owner: Option<u32>) -> Result<HostReport, Error> {
        let cage = Cage::build(directory, owner).map_err(Error::resource("mkdir"))?;
        let canaries = self.canaries(&cage).await?;
        if self.landlock.is_ok() {
            if self.judges_modes(&cage) {
                let inside = self.try_out(&cage, "chmod 640 inside && echo ok").await?;
                if inside.stdout != "ok\n" {
                    self.cannot_read(format!("an attempt inside the tree said `{}`", inside.stderr.trim()));
                }
            }
            if let Some(canary) = canaries.iter().find(|canary| !canary.outcome.is_enforced()) {
                self.distrust(format!("the attempt to {} went wrong: {}", canary.attempt, canary.outcome));
            }
        }
        self.probe_proxy(&cage).await?;
        self.require(self.config.isolation.minimum)?;
        Ok(HostReport {
            enforcement: self.usual(owner),
            canaries,
            missing_programs: self.programs().missing().into_iter().map(str::to_owned).collect(),
        })
    }

    /// Connects a command to the egress proxy, where the service makes the connections of commands: it must be able to
    /// look into processes of the command's uid. Without bash, which can connect by itself, the first command shows it.
    async fn probe_proxy(self: &Arc<Self>, cage: &Cage) -> Result<(), Error> {
        let Some(port) = self.config.proxy_port else { return Ok(()) };
        if self.mounts() || self.without_proxy().is_some() || self.programs().file("bash").is_err() {
            return Ok(());
        }
        let mut connections = self.proxy_connections();
        let mut spec = self.spec(cage, &format!("exec 3<>/dev/tcp/127.0.0.1/{port} && cat <&3"))?;
        spec.program = "bash".to_owned();
        spec.network = Network::Proxy;
        let owner = (UserId::parse("probe"), AgentId::parse("probe"));
        let (Ok(user), Ok(agent)) = owner else { return Ok(()) };
        spec.network_of = Some(NetworkOwner { user, agent });
        let greet = async {
            if let Some(ProxyConnection { mut stream, .. }) = connections.recv().await {
                // A few bytes, for which every buffer has room.
                let _ = stream.write_all(b"ok");
            }
            std::future::pending().await
        };
        let result = tokio::select! {
            result = self.run(spec) => result?,
            () = greet => return Ok(()),
        };
        if result.stdout != "ok" {
            let said = result.stderr.trim();
            self.cannot_connect(format!("an attempt to connect a command to the proxy said `{said}`"));
        }
        Ok(())
    }

    fn usual(&self, owner: Option<u32>) -> Enforcement {
        let bounds = self.bounds(None);
        self.enforcement(Circumstances {
            own_uid: owner.is_some_and(|uid| uid != self.service.uid),
            reach: Reach::Open,
            network: Network::None,
            run_network: &RunNetwork::Shared,
            bounds: &bounds,
        })
    }

    fn signals_are_stopped(&self, owner: Option<u32>) -> bool {
        self.usual(owner).signals.is_enforced()
    }

    /// Tells whether the supervisor judges changes of modes of the commands in `cage`.
    fn judges_modes(&self, cage: &Cage) -> bool {
        cage.owner.is_none() && self.supervises() && !self.mounts()
    }

    /// Does in one command what must work, and then what the walls must stop here; nothing of that where there are none.
    async fn canaries(self: &Arc<Self>, cage: &Cage) -> Result<Vec<Canary>, Error> {
        let mut all = vec![control()];
        if self.landlock.is_ok() {
            // Without an own uid, older kernels do not stop this signal; the layer `signals` says so, and it is no hole.
            let service = self.signals_are_stopped(cage.owner).then_some(self.service.pid);
            all.extend(attempts(self.mounts(), self.config.code_in_trees, self.judges_modes(cage), service));
        }
        let result = self.try_out(cage, &script_of(&all)).await?;
        let ended = format!("exit code {}: {}", result.exit_code, result.stderr.trim());
        Ok(outcomes(&all, &result.stdout, &ended))
    }

    async fn try_out(self: &Arc<Self>, cage: &Cage, script: &str) -> Result<ExecResult, Error> {
        self.run(self.spec(cage, script)?).await
    }

    /// A run of `script` in the tree of `cage`, which is told the directory outside as `$1`.
    fn spec(&self, cage: &Cage, script: &str) -> Result<RunSpec, Error> {
        let mounted = self.mounts();
        let view = View {
            tree: if mounted { policy::tree::WORKSPACE.into() } else { cage.tree.clone() },
            scratch: if mounted { HOME.into() } else { cage.scratch.clone() },
            skills: Vec::new(),
            sandbox_path: policy::tree::WORKSPACE.to_owned(),
            aliases: Vec::new(),
            owner: cage.owner,
        };
        let mut spec = RunSpec::new(view, "sh");
        spec.recurs = false;
        if mounted {
            let attach = |at: &str, path: &Path, role| {
                let directory = open_path(path).map_err(Error::resource("open"))?;
                Ok(Attachment {
                    at: at.to_owned(),
                    directory: Arc::new(directory),
                    role,
                    generation: 0,
                    points: 0,
                })
            };
            spec.attachments = vec![
                attach(policy::tree::WORKSPACE, &cage.tree, Role::Tree)?,
                attach(HOME, &cage.scratch, Role::Home)?,
            ];
        }
        // The place may have any name, which is never part of the script.
        let outside = cage.outside.to_string_lossy().into_owned();
        spec.arguments = vec!["-c".to_owned(), script.to_owned(), "sh".to_owned(), outside];
        spec.environment = vec![("PATH".to_owned(), self.path_variable())];
        spec.timeout = TIMEOUT;
        spec.limits = RunLimits { output_bytes: 4096, ..RunLimits::default() };
        Ok(spec)
    }

    fn path_variable(&self) -> String {
        let path: Vec<String> =
            self.programs().search_path().iter().map(|path| path.display().to_string()).collect();
        path.join(":")
    }
}
