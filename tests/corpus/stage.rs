//! [`Stage`]: a running service at one tier, as root or not, with the profile `developer`.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;

use crate::client::Client;
use crate::host;
use crate::plan::Plan;
use crate::repository::{self, Repository};

/// What an operator sets for the skills of this corpus, as `docs/SKILLS.md` advises.
const CONFIG: &str = include_str!("service.toml");
/// The admin's token of the services that this suite starts.
const TOKEN: &str = "token-of-the-corpus";
/// How long a stopping service is waited for before it is killed. Only one that hangs ever reaches it.
const PATIENCE: Duration = Duration::from_secs(30);

/// A tier that skills are to work at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    Landlock,
    Namespaces,
}

impl Tier {
    /// The name, as the service writes it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Landlock => "landlock",
            Self::Namespaces => "namespaces",
        }
    }

    fn named(name: &str) -> Option<Self> {
        [Self::Landlock, Self::Namespaces].into_iter().find(|tier| tier.name() == name)
    }
}

/// A service that skills are played on.
pub(crate) struct Stage {
    /// The tier, and who the service is.
    pub(crate) name: String,
    pub(crate) tier: Tier,
    /// Whether the service is root, so that each user has a user id of its own.
    is_root: bool,
    pub(crate) client: Client,
    /// Programs, and modules of Python, that its commands do not find.
    pub(crate) lacks: BTreeSet<String>,
    /// Whether this suite started it.
    pub(crate) is_own: bool,
    _host: Option<Host>,
}

/// The process of a service that this suite started.
struct Host {
    child: Child,
    _stdout: BufReader<ChildStdout>,
    _dir: TempDir,
}

impl Stage {
    /// The running service that `FILESECBOX_CORPUS_AT` names, or services of this suite's own: at each tier, as root where
    /// the suite is root, and without root.
    pub(crate) fn all(repository: Option<&Repository>, plans: &[Arc<Plan>]) -> Vec<Self> {
        if let Ok(url) = std::env::var("FILESECBOX_CORPUS_AT") {
            return vec![Self::running(&url, plans)];
        }
        let mut stages = Vec::new();
        for is_root in [true, false] {
            let suite_is_root = rustix::process::geteuid().is_root();
            if is_root && !host::granted("root", suite_is_root) {
                continue;
            }
            let has_setpriv = Path::new("/usr/bin/setpriv").exists();
            if !is_root && suite_is_root && !host::granted("setpriv", has_setpriv) {
                continue;
            }
            for tier in [Tier::Namespaces, Tier::Landlock] {
                match Self::start(tier, is_root, repository, plans) {
                    Ok(stage) => stages.push(stage),
                    Err(log) => {
                        host::granted(tier.name(), false);
                        eprintln!("SKIPPED: no service at tier `{}`: {log}", tier.name());
                    }
                }
            }
        }
        stages
    }
    /// The service that listens at `http://ADDRESS:PORT`.
    fn running(url: &str, plans: &[Arc<Plan>]) -> Self {
        let address = url.trim_start_matches("http://").trim_end_matches('/');
        let address = address.parse().unwrap_or_else(|error| {
            panic!("`FILESECBOX_CORPUS_AT` is no http://ADDRESS:PORT: {url}: {error}")
        });
        let client =
            Client { address, root: "/no/such/root".into(), token: std::env::var("FILESECBOX_TOKEN").ok() };
        Self::of(client, plans, None)
    }

    fn start(
        tier: Tier,
        is_root: bool,
        repository: Option<&Repository>,
        plans: &[Arc<Plan>],
    ) -> Result<Self, String> {
        let dir = tempfile::tempdir().unwrap();
        let uid = match (is_root, rustix::process::geteuid().as_raw()) {
            // Far from any real account; nothing else runs with it.
            (false, 0) => 1_900_000_000 + std::process::id() % 1_000_000,
            (_, own) => own,
        };
        let (program, config) = (dir.path().join("filesecbox"), dir.path().join("config.toml"));
        host::copy_program(Path::new(env!("CARGO_BIN_EXE_filesecbox")), &program);
        let ports = repository.map_or(443, |repository| repository.port);
        let text = CONFIG.replace("TIER", tier.name()).replace("PORT", &ports.to_string());
        fs::write(&config, text.replace("ADDRESS", repository::ADDRESS)).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        chown(dir.path(), Some(uid), Some(uid)).unwrap();
        let (root, log) = (dir.path().join("data"), dir.path().join("log"));
        let mut command = host::as_uid(uid, &program);
        command.args(["serve", "--listen", "127.0.0.1:0", "--durability", "relaxed", "--root"]).arg(&root);
        command.arg("--config").arg(&config).env("FILESECBOX_TOKEN", TOKEN).env("FILESECBOX_LOG", "warn");
        command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(fs::File::create(&log).unwrap());
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let Some(address) = line.trim_end().strip_prefix("filesecbox listening on http://") else {
            let _ = child.wait();
            return Err(fs::read_to_string(&log).unwrap());
        };
        let client = Client {
            address: address.parse().unwrap(),
            root: root.to_str().unwrap().to_owned(),
            token: Some(TOKEN.to_owned()),
        };
        let stage = Self::of(client, plans, Some(Host { child, _stdout: stdout, _dir: dir }));
        if stage.tier != tier {
            return Err(format!("the host grants `{}`", stage.tier.name()));
        }
        Ok(stage)
    }

    /// Asks a service for its tier, and its commands for the programs of all plans.
    fn of(client: Client, plans: &[Arc<Plan>], host: Option<Host>) -> Self {
        let info = client.get("/v1/info").ok();
        let enforcement = &info["data"]["host"]["enforcement"];
        let tier = enforcement["tier"].as_str().unwrap_or_default();
        let tier = Tier::named(tier).unwrap_or_else(|| panic!("skills are not to work at tier `{tier}`"));
        let is_root = enforcement["identity"]["state"] == "enforced";
        let name = format!("{}_{}", tier.name(), if is_root { "root" } else { "no_root" });
        let lacks = lacking(&client, plans);
        Self { name, tier, is_root, client, lacks, is_own: host.is_some(), _host: host }
    }
}

/// The programs and modules of all plans that commands do not find.
fn lacking(client: &Client, plans: &[Arc<Plan>]) -> BTreeSet<String> {
    let programs: BTreeSet<&str> = plans.iter().flat_map(|plan| &plan.programs).map(String::as_str).collect();
    let modules: BTreeSet<&str> = plans.iter().flat_map(|plan| &plan.modules).map(String::as_str).collect();
    let line = "for program in $PROGRAMS; do command -v $program >/dev/null || echo $program; done
                python3 - <<'END'
import importlib.util, os
for module in os.environ['MODULES'].split():
    if importlib.util.find_spec(module) is None: print(module)
END";
    let words = |set: BTreeSet<&str>| set.into_iter().collect::<Vec<_>>().join(" ");
    let run = json!({"shell": line, "env": {"PROGRAMS": words(programs), "MODULES": words(modules)}});
    let answer = client.post_json("/v1/sandbox/corpus/needs/exec", &run).ok();
    let result = &answer["data"];
    assert_eq!(result["exit_code"], 0, "{result}");
    result["stdout"].as_str().unwrap().split_whitespace().map(str::to_owned).collect()
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
