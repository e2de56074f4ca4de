//! The confinement that this host grants, found out by doing.
//!
//! A probe runs a command through the same path as every later run and looks at what happened: something in it must work,
//! so that a sandbox which starts nothing does not look perfectly safe, and attempts in it must fail.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::unistd::{Gid, Uid, chown};
use policy::attachment::{HOME, Role};
use policy::{AgentId, RunLimits, UserId, View};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::network_owner::NetworkOwner;
use crate::service::enforcement::Circumstances;
use crate::service::launcher::Launcher;
use crate::service::mounts::Attachment;
use crate::service::networks::RunNetwork;
use crate::service::run::result::ExecResult;
use crate::service::run::spec::RunSpec;
use crate::supervisor::ProxyConnection;
use crate::tier::{Enforcement, Layer, Network};
use crate::walls::landlock::open_path;
use crate::wire::Reach;

/// The deadline of a command of the probe.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The text that a canary would read where the walls have a hole.
const SECRET: &str = "canary-outside-the-tree";

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

/// One attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Canary {
    /// The attempt, in words.
    pub attempt: String,
    /// Enforced: the attempt ended as it must. Otherwise how it ended, or why it was not made.
    pub outcome: Layer,
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
        let canaries = self.canaries(&cage, &self.attempts(&cage)).await?;
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

    /// What the walls must stop here; nothing where there are none.
    fn attempts(&self, cage: &Cage) -> Vec<Attempt> {
        if self.landlock.is_err() {
            return Vec::new();
        }
        // What a shell does by itself, it does: each further program would take a millisecond of the start.
        let mut attempts = vec![
            Attempt {
                words: "read a file outside the tree",
                script: "read -r text < \"$1/secret\"; echo \"$text\"".to_owned(),
            },
            Attempt {
                words: "write a file outside the tree",
                script: format!("echo x > \"$1/new\" && echo {SECRET}"),
            },
        ];
        let (words, program) = match (self.config.code_in_trees, self.mounts()) {
            (false, _) => ("execute a program from the tree", "./copy".to_owned()),
            (true, true) => {
                ("execute a program from shared memory", "cp copy /dev/shm && /dev/shm/copy".to_owned())
            }
            (true, false) => ("execute a program outside the tree", "\"$1/copy\"".to_owned()),
        };
        attempts.push(Attempt { words, script: format!("{program} -c 'echo {SECRET}'") });
        if self.mounts() {
            let script = format!("test -e \"$1/secret\" && echo {SECRET}");
            attempts.push(Attempt { words: "see a file of the host", script });
            let script = format!(
                "for p in /proc/[0-9]*; do test -r $p/status && read -r key name < $p/status && case $name in *filesecbox*) echo {SECRET};; esac; done"
            );
            attempts.push(Attempt { words: "see a process of the host", script });
        }
        if self.judges_modes(cage) {
            let script = format!("chmod 600 \"$1/secret\" && echo {SECRET}");
            attempts.push(Attempt { words: "change the mode of a file outside the tree", script });
        }
        // Without an own uid, older kernels do not stop this signal; the layer `signals` says so, and it is no hole.
        if self.signals_are_stopped(cage.owner) {
            let service = self.service.pid;
            let signal = format!("kill -0 {service} && echo {SECRET}");
            // In a namespace of its own the number may be one of the attempt's own processes, as in a container, where
            // numbers are small.
            let script = match self.mounts() {
                true => format!("test -e /proc/{service} || {{ {signal}; }}"),
                false => signal,
            };
            attempts.push(Attempt { words: "signal the service", script });
        }
        attempts
    }

    /// Does in one command what must work, and then makes all of `attempts`, none of which may print the secret. The
    /// command says where each begins and ends.
    async fn canaries(self: &Arc<Self>, cage: &Cage, attempts: &[Attempt]) -> Result<Vec<Canary>, Error> {
        let begin = |number: usize| format!("begin {number}\n");
        let end = |number: usize| format!("end {number}\n");
        let control = Attempt {
            words: "read and write inside the tree",
            script: "cat inside && echo ok > made && read -r made < made && echo $made".to_owned(),
        };
        let all = || std::iter::once(&control).chain(attempts).enumerate();
        let script = all().map(|(number, attempt)| {
            let (begin, end) = (begin(number), end(number));
            format!("echo {begin}( {} )\necho {end}", attempt.script)
        });
        let result = self.try_out(cage, &script.collect::<String>()).await?;
        let said = |number: usize| {
            let (_, from) = result.stdout.split_once(&begin(number))?;
            from.split_once(&end(number)).map(|(said, _)| said)
        };
        let ended = || format!("exit code {}: {}", result.exit_code, result.stderr.trim());
        let outcome = |number: usize| match said(number) {
            Some("inside\nok\n") if number == 0 => Layer::Enforced,
            _ if number == 0 => Layer::unavailable(ended()),
            Some(said) if said.contains(SECRET) => Layer::unavailable("it succeeded, and must not"),
            Some(_) => Layer::Enforced,
            None => Layer::unavailable(format!("it was not made; {}", ended())),
        };
        let canary = |(number, attempt): (usize, &Attempt)| Canary {
            attempt: attempt.words.to_owned(),
            outcome: outcome(number),
        };
        Ok(all().map(canary).collect())
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

/// What a canary does.
struct Attempt {
    /// In words.
    words: &'static str,
    /// As a shell takes it, with the directory outside the tree as `$1`: it prints [`SECRET`] where it succeeds.
    script: String,
}

/// A tree with a neighbour that must stay out of reach; removed when dropped.
struct Cage {
    root: PathBuf,
    tree: PathBuf,
    scratch: PathBuf,
    outside: PathBuf,
    owner: Option<u32>,
}

impl Cage {
    fn build(directory: &Path, owner: Option<u32>) -> io::Result<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let root = directory.join(format!("probe-{}-{now}", std::process::id()));
        fs::create_dir(&root)?;
        let part = |name| root.join(name);
        let cage =
            Self { tree: part("tree"), scratch: part("scratch"), outside: part("outside"), root, owner };
        for path in [&cage.tree, &cage.scratch, &cage.outside] {
            fs::create_dir(path)?;
        }
        fs::write(cage.outside.join("secret"), SECRET)?;
        fs::write(cage.tree.join("inside"), "inside\n")?;
        for directory in [&cage.tree, &cage.outside] {
            fs::copy("/bin/sh", directory.join("copy"))?;
        }
        if let Some(uid) = owner {
            // The neighbour too: only Landlock stands between, not the owner of its files.
            for path in [&cage.tree, &cage.scratch, &cage.outside] {
                chown(path, Some(Uid::from_raw(uid)), Some(Gid::from_raw(uid)))?;
            }
        }
        Ok(cage)
    }
}

impl Drop for Cage {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.root) {
            tracing::warn!(
                path = %self.root.display(), %error,
                "failed to remove the directory of a probe: it stays"
            );
        }
    }
}
