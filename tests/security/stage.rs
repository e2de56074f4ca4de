//! [`Stage`]: one running service at one tier, as root or not, with a victim whose things attackers are after.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind};
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};

use rustix::process::Signal;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::client::pace::slowness;
use crate::client::{Client, encoded};
use crate::expectation::Tier;
use crate::host;
use crate::scene::{AGENT, SKILL, VICTIM, skill_of, workspace_of};
use crate::zip::skill_zip;

/// Bounds small enough that reaching them does no harm.
const LIMITS: &str = "
[limits.files]
tree_entries = 50000
[limits.disk]
bytes = 67108864
files = 1000
in_flight_bytes = 33554432
[limits.work]
bodies_bytes_per_user = 33554432
[limits.runs]
output_bytes = 65536
memory_bytes = 536870912
run_memory_bytes = 536870912
processes = 64
cpu_seconds = CPU_SECONDS
file_bytes = 33554432
open_files = 256
[limits.ports]
connections = 96
[audit]
account_bytes = 8388608
";
/// The data directory of the container image.
const IMAGE_ROOT: &str = "/webIde/product";
/// The user that has a token.
const TOKEN_USER: &str = "asking_for_a_neighbours_things_with_ones_own_token";

/// A service under attack.
pub(crate) struct Stage {
    pub(crate) client: Client,
    pub(crate) tier: Tier,
    /// Whether the service is root, so that each user has a user id of its own.
    pub(crate) is_root: bool,
    /// Whether each attack is preceded by commands in the same place, so that it is made by a resident: in namespaces that
    /// were ready from the command before.
    pub(crate) is_warm: bool,
    /// Whether commands reach the egress proxy.
    pub(crate) has_proxy: bool,
    /// The data directory as the service knows it; a guess where a running service gives no hint.
    pub(crate) root: PathBuf,
    /// The limits, as the service states them.
    limits: Value,
    /// The beginning of the names and contents that attackers are after; random, and told to no attacker.
    pub(crate) canary: String,
    /// The machine of the service, when this suite started it.
    pub(crate) host: Option<Host>,
}

/// The parts of the host that can be looked at from outside.
pub(crate) struct Host {
    /// The data directory.
    pub(crate) root: PathBuf,
    /// A directory beside it that every user may write, with a file `secret` that every user may write.
    pub(crate) outside: PathBuf,
    /// The user id of the service.
    pub(crate) uid: u32,
    child: Child,
    _stdout: BufReader<ChildStdout>,
    dir: TempDir,
}

impl Stage {
    /// All stages there are: a running service when `FILESECBOX_URL` names one, else one for each tier that this host
    /// grants, as root where the suite is root, and without root.
    pub(crate) fn all() -> Vec<Self> {
        if let Ok(url) = std::env::var("FILESECBOX_URL") {
            return vec![Self::running(&url)];
        }
        let mut stages = Vec::new();
        for is_root in [true, false] {
            if is_root && !rustix::process::geteuid().is_root() {
                host::granted("root", false);
                continue;
            }
            let is_other = !is_root && rustix::process::geteuid().is_root();
            if is_other && !host::granted("setpriv", Path::new("/usr/bin/setpriv").exists()) {
                continue;
            }
            // The proxy, where there is one, makes the network that a command sees larger.
            let native = Self::start(is_root, "[commands]\nnetwork = \"proxy\"\n");
            let native = native.ok().filter(|stage| stage.tier == Tier::Namespaces);
            let native = match native.map_or_else(|| Self::start(is_root, ""), Ok) {
                Ok(stage) => stage,
                Err(log) if host::may_lack("landlock") => {
                    eprintln!("SKIPPED: no service starts here: {log}");
                    continue;
                }
                Err(log) => panic!("the service does not start: {log}"),
            };
            if is_root && native.tier == Tier::Namespaces {
                let config = if native.has_proxy { "[commands]\nnetwork = \"proxy\"\n" } else { "" };
                let warm =
                    Self::start(is_root, config).unwrap_or_else(|log| panic!("not a second time: {log}"));
                stages.push(Self { is_warm: true, ..warm });
            }
            let granted = native.tier;
            host::granted("landlock", granted >= Tier::Landlock);
            host::granted("namespaces", granted >= Tier::Namespaces);
            stages.push(native);
            for tier in Tier::ALL.into_iter().filter(|tier| *tier < granted) {
                let limit = format!("[isolation]\nminimum = \"process\"\nmaximum = \"{tier}\"\n");
                match Self::start(is_root, &limit) {
                    Ok(stage) if stage.tier == tier => stages.push(stage),
                    // Stronger than asked for is no hole, but leaves nothing to attack at this tier.
                    Ok(stage) => {
                        eprintln!("SKIPPED: asked for `{tier}`, the service runs at `{}`", stage.tier)
                    }
                    Err(log) => panic!("no service at tier `{tier}`: {log}"),
                }
            }
        }
        stages
    }

    /// The stage on a service that was started outside this suite, at `http://ADDRESS:PORT`.
    fn running(url: &str) -> Self {
        let address = url.trim_start_matches("http://").trim_end_matches('/');
        let address = std::net::ToSocketAddrs::to_socket_addrs(address)
            .ok()
            .and_then(|mut found| found.next())
            .unwrap_or_else(|| panic!("`FILESECBOX_URL` is no http://ADDRESS:PORT: {url}"));
        let token = std::env::var("FILESECBOX_TOKEN").ok();
        // No failure tells a host path that cannot exist.
        let client = Client { address, root: "/no/such/root".into(), token };
        let mut stage = Self::unknown(client, IMAGE_ROOT.into(), canary(), None);
        stage.look();
        stage.furnish();
        stage.ask_for_root();
        eprintln!("SKIPPED: what needs a look at the host, because `FILESECBOX_URL` names a running service");
        stage
    }

    /// A stage of which nothing has been asked yet.
    fn unknown(client: Client, root: PathBuf, canary: String, host: Option<Host>) -> Self {
        let tier = Tier::Process;
        Self {
            client,
            tier,
            is_root: false,
            is_warm: false,
            has_proxy: false,
            root,
            limits: Value::Null,
            canary,
            host,
        }
    }

    /// How many runs were a resident's.
    pub(crate) fn resident_runs(&self) -> u64 {
        let text = String::from_utf8(self.client.get("/metrics").bytes(200).to_vec()).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("filesecbox_resident_runs_total "));
        line.and_then(|number| number.parse().ok()).unwrap_or_default()
    }

    /// Learns from a command where the data directory lies, where commands can tell.
    fn ask_for_root(&mut self) {
        let line = serde_json::json!({ "shell": "echo $WORKSPACE" });
        let answer = self.client.post_json(format!("{}/exec", workspace_of(VICTIM)), &line).ok();
        let place = answer["data"]["stdout"].as_str().unwrap_or_default().trim_end();
        if let Some(root) = place.strip_suffix(&format!("/sandbox/{VICTIM}/{AGENT}")) {
            self.root = root.into();
        }
    }

    /// A file that every user may read but for the walls: outside all trees, or a neighbour's where this suite cannot
    /// make one.
    pub(crate) fn secret(&self) -> PathBuf {
        let neighbours = self.root.join(format!("sandbox/{VICTIM}/{AGENT}/secret"));
        self.host.as_ref().map_or(neighbours, Host::secret)
    }

    /// Starts a service; `config` goes before the limits.
    fn start(is_root: bool, config: &str) -> Result<Self, String> {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let uid = match (is_root, rustix::process::geteuid().as_raw()) {
            // Far from any real account; nothing else runs with it.
            (false, 0) => 1_800_000_000 + std::process::id() % 1_000_000,
            (_, own) => own,
        };
        let base = dir.path().join("service");
        for path in [&base, &dir.path().join("outside")] {
            fs::create_dir(path).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
            chown(path, Some(uid), Some(uid)).unwrap();
        }
        let program = base.join("filesecbox");
        host::copy_program(Path::new(env!("CARGO_BIN_EXE_filesecbox")), &program);
        let root = base.join("data");
        let canary = canary();
        // One user has a token of its own: the one that the attack with tokens runs as.
        let digest = hex::encode(Sha256::digest(user_token(&canary)));
        let token = format!("[[tokens]]\nsha256 = \"{digest}\"\nrole = \"user\"\nuser = \"{TOKEN_USER}\"\n");
        fs::write(base.join("config.toml"), format!("{config}{}{token}", limits())).unwrap();
        let (child, stdout, address) = spawn(uid, dir.path(), &canary)?;
        let client = Client {
            address,
            root: root.to_str().unwrap().to_owned(),
            token: Some(format!("{canary}-token")),
        };
        let outside = dir.path().join("outside");
        let host = Host { root, outside, uid, child, _stdout: stdout, dir };
        let mut stage = Self::unknown(client, host.root.clone(), canary, Some(host));
        stage.look();
        assert_eq!(stage.is_root, is_root, "whether commands get a user id of their own");
        stage.furnish();
        Ok(stage)
    }

    /// Starts the service again, which has ended. It must come back as it was.
    pub(crate) fn start_again(&mut self) {
        let tier = self.tier;
        let Some(host) = &mut self.host else { return };
        let started = spawn(host.uid, host.dir.path(), &self.canary);
        let (child, stdout, address) = started.unwrap_or_else(|log| panic!("it does not start again: {log}"));
        (host.child, host._stdout, self.client.address) = (child, stdout, address);
        self.look();
        assert_eq!(self.tier, tier, "the service comes back with other walls");
    }

    /// Asks the service what confines its commands.
    fn look(&mut self) {
        let info = self.client.get("/v1/info").ok();
        let enforcement = &info["data"]["host"]["enforcement"];
        let tier = enforcement["tier"].as_str().unwrap_or_default();
        self.tier = Tier::named(tier).unwrap_or_else(|| panic!("no tier is named `{tier}`"));
        self.is_root = enforcement["identity"]["state"] == "enforced";
        self.has_proxy = info["data"]["network"] == "proxy";
        self.limits = info["data"]["limits"].clone();
    }

    /// Makes what attackers are after: a file outside, a baseline, and a victim with a workspace, an overlay and a home.
    fn furnish(&self) {
        let canary = &self.canary;
        if let Some(host) = &self.host {
            host.reset_outside(canary);
        }
        let archive = skill_zip(SKILL, &[("data.txt", "baseline\n"), ("scripts/tool.py", "print('tool')\n")]);
        self.client.upload(&format!("/v1/skills/{VICTIM}/{AGENT}"), "baseline", &archive);
        let foreign = skill_zip("foreign", &[("secret", &format!("{canary}-foreign-agent\n"))]);
        self.client.upload(&format!("/v1/skills/{VICTIM}/other-agent"), "baseline", &foreign);
        let workspace = workspace_of(VICTIM);
        self.client.put(format!("{workspace}/raw/secret"), format!("{canary}-workspace\n")).ok();
        self.client.put(format!("{}/raw/secret", skill_of(VICTIM)), format!("{canary}-overlay\n")).ok();
        let home = format!("echo {canary}-home > \"$HOME/secret\"");
        let ran =
            self.client.post_json(format!("{workspace}/exec"), &serde_json::json!({ "shell": home })).ok();
        assert_eq!(ran["data"]["exit_code"], 0, "{ran}");
    }

    /// A limit of runs, by its name in the configuration.
    pub(crate) fn limit(&self, name: &str) -> u64 {
        self.limits["runs"][name].as_u64().unwrap_or_else(|| panic!("the service states no limit `{name}`"))
    }

    /// A limit of what a tree takes on the disk, by its name in the configuration; `None` when there is none.
    pub(crate) fn disk_limit(&self, name: &str) -> Option<u64> {
        self.limits["disk"][name].as_u64()
    }

    /// The user of an attack on this stage.
    pub(crate) fn user_named(&self, attack: &str) -> String {
        let port = self.client.address.port();
        if attack == TOKEN_USER { attack.to_owned() } else { format!("{attack}-{port}") }
    }

    /// A token that is good for one user only.
    pub(crate) fn user_token(&self, user: &str) -> Option<String> {
        (self.host.is_some() && user == TOKEN_USER).then(|| user_token(&self.canary))
    }

    /// The state that must be the same after everything: the baseline as another user sees it, and all of the victim's.
    pub(crate) fn belongings(&self) -> Vec<(String, String)> {
        let read = |tree: String| -> Vec<(String, String)> {
            let files = self.client.files(&tree);
            files.iter().map(|path| (format!("{tree}: {path}"), self.client.text(&tree, path))).collect()
        };
        let bystander = format!("/v1/skills/{}/{AGENT}/{SKILL}", encoded("bystander"));
        let mut all = [bystander, skill_of(VICTIM), workspace_of(VICTIM)].map(read).concat();
        if let Some(host) = &self.host {
            for path in [
                format!("skill/baseline/{AGENT}/{SKILL}"),
                "skill/baseline/other-agent/foreign".to_owned(),
                format!("skill/overlay/{VICTIM}/{AGENT}/{SKILL}"),
            ] {
                for (name, facts) in host::inventory(&host.root.join(&path)) {
                    all.push((format!("{path}/{name}"), facts));
                }
            }
        }
        all
    }
}

impl Host {
    /// Kills the service at once.
    pub(crate) fn kill(&self) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), Signal::KILL).unwrap();
    }

    /// Ends the service in order.
    pub(crate) fn stop(&mut self) {
        let _ = rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), Signal::TERM);
        let begun = std::time::Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            if begun.elapsed().as_secs() > 30 {
                let _ = self.child.kill();
                let _ = self.child.wait();
                panic!("the service did not stop: {}", self.log());
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// Waits for the end of the service, and has its audit log verified. Whether it is whole, and what was told.
    pub(crate) fn verify_audit(&mut self) -> (bool, String) {
        self.child.wait().unwrap();
        let mut command = host::as_uid(self.uid, &self.program());
        let output = command.args(["audit", "verify", "--root"]).arg(&self.root).output().unwrap();
        let told = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        (output.status.success(), told.concat())
    }

    /// The process of the service.
    pub(crate) fn service(&self) -> u32 {
        self.child.id()
    }

    /// The processes of the service and of its launcher.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let mut all = vec![self.service()];
        all.extend(host::children_of(self.service()));
        all
    }

    /// Makes `outside` new: one file that holds a canary, owned by the service, open to all users.
    pub(crate) fn reset_outside(&self, canary: &str) {
        fs::set_permissions(&self.outside, fs::Permissions::from_mode(0o777)).unwrap();
        let secret = self.secret();
        fs::write(&secret, format!("{canary}-outside\n")).unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o666)).unwrap();
        chown(&secret, Some(self.uid), Some(self.uid)).unwrap();
    }

    /// The file outside.
    pub(crate) fn secret(&self) -> PathBuf {
        self.outside.join("secret")
    }

    /// A directory outside of one's own, open to all users, with a file `secret` and one whose name is a canary in it and
    /// nothing else, even after an attack that was cut off.
    pub(crate) fn own_outside(&self, name: &str, canary: &str) -> PathBuf {
        let directory = self.dir.path().join(name);
        match fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != ErrorKind::NotFound => panic!("{}: {error}", directory.display()),
            _ => fs::create_dir(&directory).unwrap(),
        }
        let secret = directory.join("secret");
        fs::write(&secret, format!("{canary}-outside\n")).unwrap();
        let named = directory.join(format!("{canary}-name"));
        fs::write(&named, "").unwrap();
        for (path, mode) in [(&directory, 0o777), (&secret, 0o666), (&named, 0o666)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            chown(path, Some(self.uid), Some(self.uid)).unwrap();
        }
        directory
    }

    /// Where a user's workspace lies.
    pub(crate) fn workspace(&self, user: &str) -> PathBuf {
        self.root.join("sandbox").join(user).join(AGENT)
    }

    /// The files of the audit log, oldest first.
    fn audit_files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.root.join(".filesecbox/audit")).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let mut files: Vec<_> =
            paths.filter(|path| path.extension().is_some_and(|end| end == "jsonl")).collect();
        files.sort();
        files
    }

    /// All records of the audit log.
    pub(crate) fn audit_records(&self) -> Vec<Value> {
        let texts = self.audit_files().into_iter().map(|file| fs::read_to_string(file).unwrap());
        let lines =
            |text: String| text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<_>>();
        texts.flat_map(lines).collect()
    }

    /// The log of the service.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// The copy of the program that runs as the service.
    pub(crate) fn program(&self) -> PathBuf {
        self.dir.path().join("service/filesecbox")
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Starts the program that lies in a stage's directory.
fn spawn(uid: u32, dir: &Path, canary: &str) -> Result<(Child, BufReader<ChildStdout>, SocketAddr), String> {
    let (base, log) = (dir.join("service"), dir.join("log"));
    let mut command = host::as_uid(uid, &base.join("filesecbox"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--durability", "relaxed", "--root"]);
    command.arg(base.join("data")).arg("--config").arg(base.join("config.toml"));
    command.env("FILESECBOX_TOKEN", format!("{canary}-token")).env("FILESECBOX_LOG", "warn");
    for name in ["KUBERNETES_SERVICE_HOST", "SERVICE_ACCOUNT", "SECRET_KEY", "AWS_SECRET_ACCESS_KEY"] {
        command.env(name, format!("{canary}-environment"));
    }
    let stderr = fs::File::options().append(true).create(true).open(&log).unwrap();
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
    let mut child = command.spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    let Some(address) = line.trim_end().strip_prefix("filesecbox listening on http://") else {
        let _ = child.wait();
        return Err(fs::read_to_string(&log).unwrap());
    };
    Ok((child, stdout, address.parse().unwrap()))
}

/// The bounds, with two seconds of processor time for a run, or what is as much on a slow processor.
fn limits() -> String {
    LIMITS.replace("CPU_SECONDS", &(2 * slowness()).to_string())
}

fn user_token(canary: &str) -> String {
    format!("token-of-one-user-{canary}")
}

fn canary() -> String {
    let nanoseconds = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
    format!("canary-{nanoseconds:x}")
}
