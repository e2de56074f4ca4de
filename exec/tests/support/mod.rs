//! A sandbox for one test: a tree, a scratch directory, a neighbour, and a launcher.
#![allow(dead_code, unreachable_pub)] // each test binary uses its part

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use exec::{
    Attachment, ExecResult, Isolation, Launcher, LauncherConfig, NetworkOwner, Role, RunSpec, Tier, Whitelist,
};
use nix::unistd::{Gid, Uid, chown};
use policy::command::{CommandPolicy, Profile};
use policy::{AgentId, UserId, View};

/// Tells whether `feature` is here. Without it the test is skipped loudly, or fails when `FILESECBOX_REQUIRE`
/// (names separated by commas) lists it.
pub fn has(feature: &str, here: bool) -> bool {
    let required = std::env::var("FILESECBOX_REQUIRE").unwrap_or_default();
    assert!(
        here || !required.split(',').any(|name| name.trim() == feature),
        "`{feature}` is required by FILESECBOX_REQUIRE and absent"
    );
    if !here {
        eprintln!("SKIPPED: `{feature}` is not available here");
    }
    here
}

pub fn is_root() -> bool {
    Uid::effective().is_root()
}

/// The modes of the directory above a tree with which its commands can be tested: open to all, and closed to commands with a uid of
/// their own, which need a capability to get there that container engines give to no container unless asked.
pub fn modes_above() -> Vec<u32> {
    let holds = rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(rustix::thread::CapabilitySet::DAC_READ_SEARCH));
    match !is_root() || has("dac-read-search", holds) {
        true => vec![0o755, 0o700],
        false => vec![0o755],
    }
}

/// Uids of test sandboxes: far from any real account, one for each sandbox of this process.
fn next_uid() -> u32 {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    1_900_000_000 + std::process::id() % 100_000 * 1_000 + NEXT.fetch_add(1, Ordering::Relaxed)
}

pub struct Sandbox {
    pub launcher: Arc<Launcher>,
    pub root: tempfile::TempDir,
    /// The tree as the host has it; `view.tree` is what a run calls it.
    pub tree: PathBuf,
    pub view: View,
    pub attachments: Vec<Attachment>,
}

/// The strongest tier that sandboxes of this process use; see [`repeat_at_tier`].
fn maximum() -> Tier {
    match std::env::var("FILESECBOX_TEST_TIER").as_deref() {
        Ok("landlock") => Tier::Landlock,
        Ok("namespaces") | Err(_) => Tier::Namespaces,
        Ok(other) => panic!("FILESECBOX_TEST_TIER: `{other}`"),
    }
}

pub fn config(profile: Profile) -> LauncherConfig {
    let policy = CommandPolicy::new(profile, &[]).unwrap();
    LauncherConfig {
        program: env!("CARGO_BIN_EXE_exec-test-launcher").into(),
        arguments: Vec::new(),
        isolation: Isolation { maximum: maximum(), ..Isolation::default() },
        code_in_trees: profile != Profile::Strict,
        ..LauncherConfig::new(Whitelist::from(&policy))
    }
}

/// A program in Python that makes as many `busy` children as that expression says, does `what` with the list `children`, and ends them.
pub fn with_busy_children(busy: impl std::fmt::Display, what: &str) -> String {
    format!(
        "import os, signal, sys, time
children = []
for _ in range({busy}):
    child = os.fork()
    if child == 0:
        while True: pass
    children.append(child)
{what}
for child in children: os.kill(child, signal.SIGKILL)"
    )
}

/// A time that is enough on a real processor, as it is enough here: as many times as long as `FILESECBOX_TEST_SLOWNESS` says, a whole
/// number. An emulated processor has 10 or more.
pub fn paced(time: Duration) -> Duration {
    let slowness = std::env::var("FILESECBOX_TEST_SLOWNESS").unwrap_or_default();
    time * slowness.parse().unwrap_or(1)
}

impl Sandbox {
    /// A sandbox as the service makes them on this host: with an own uid where it can.
    pub fn new() -> Option<Self> {
        Self::with(config(Profile::Default), is_root())
    }

    /// A sandbox that runs with the uid of the test.
    pub fn with_own_uid_of_service() -> Option<Self> {
        Self::with(config(Profile::Default), false)
    }

    pub fn with(config: LauncherConfig, own_uid: bool) -> Option<Self> {
        let launcher = match Launcher::start(config) {
            Ok(launcher) => launcher,
            Err(error @ exec::Error::Unsupported { .. }) => {
                eprintln!("{error}");
                has("landlock", false);
                return None;
            }
            Err(error) => panic!("{error:?}"),
        };
        let root = tempfile::tempdir().unwrap();
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let owner = own_uid.then(next_uid);
        let (tree, scratch) = (root.path().join("tree"), root.path().join("scratch"));
        let mounts = launcher.mounts();
        let view = View {
            tree: if mounts { "/workspace".into() } else { tree.clone() },
            scratch: if mounts { exec::HOME.into() } else { scratch.clone() },
            skills: Vec::new(),
            sandbox_path: "/workspace".to_owned(),
            aliases: Vec::new(),
            owner,
        };
        for (path, mode) in [(&tree, 0o700), (&scratch, 0o700), (&root.path().join("outside"), 0o777)] {
            fs::create_dir(path).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            own(path, owner);
        }
        fs::write(root.path().join("outside/secret"), "outside-secret").unwrap();
        own(&root.path().join("outside/secret"), owner);
        let attachments = match mounts {
            false => Vec::new(),
            true => vec![attach("/workspace", &tree, Role::Tree), attach(exec::HOME, &scratch, Role::Home)],
        };
        Some(Self { launcher, root, tree, view, attachments })
    }

    pub fn outside(&self) -> PathBuf {
        self.root.path().join("outside")
    }

    /// Puts a file into the tree; its path as a run calls it.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.tree.join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        own(&path, self.view.owner);
        self.view.tree.join(name)
    }

    pub fn spec(&self, program: &str, arguments: &[&str]) -> RunSpec {
        let mut spec = RunSpec::new(self.view.clone(), program);
        spec.attachments.clone_from(&self.attachments);
        spec.arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        spec.environment = [
            ("PATH", "/usr/local/bin:/usr/bin:/bin".to_owned()),
            ("HOME", self.view.scratch.display().to_string()),
            ("TMPDIR", self.view.scratch.display().to_string()),
            (MARK, std::process::id().to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec();
        spec.timeout = paced(Duration::from_secs(30));
        spec.network_of = Some(NetworkOwner {
            user: UserId::parse("user").unwrap(),
            agent: AgentId::parse("agent").unwrap(),
        });
        spec
    }

    pub async fn run(&self, program: &str, arguments: &[&str]) -> ExecResult {
        self.launcher.run(self.spec(program, arguments)).await.unwrap()
    }

    pub async fn bash(&self, script: &str) -> ExecResult {
        self.run("bash", &["-c", script]).await
    }

    pub async fn python(&self, script: &str) -> ExecResult {
        self.run("python3", &["-c", script]).await
    }
}

pub fn attach(at: &str, directory: &Path, role: Role) -> Attachment {
    let directory = Arc::new(fs::File::open(directory).unwrap().into());
    Attachment { at: at.to_owned(), directory, role, generation: 0, points: 0 }
}

pub fn own(path: &Path, owner: Option<u32>) {
    if let Some(uid) = owner {
        chown(path, Some(Uid::from_raw(uid)), Some(Gid::from_raw(uid))).unwrap();
    }
}

/// A floor of `process`, by name.
pub fn process_tier() -> Isolation {
    Isolation { minimum: Tier::Process, ..Isolation::default() }
}

/// Waits until no process has `marker` in its command line; panics after five seconds.
pub async fn assert_gone(marker: &str) {
    for _ in 0..500 {
        if survivors(marker).is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("still alive: {:?}", survivors(marker));
}

/// Waits until a process has `marker` in its command line.
pub async fn wait_for(marker: &str) {
    for _ in 0..500 {
        if !survivors(marker).is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("`{marker}` never started");
}

/// The variable by which the processes of this test's runs are told from those of other tests at the same time.
const MARK: &str = "FILESECBOX_TEST_PROCESS";

fn survivors(marker: &str) -> Vec<String> {
    let own = format!("{MARK}={}\0", std::process::id());
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    processes
        .filter(|entry| entry.file_name() != std::process::id().to_string().as_str())
        .filter(|entry| {
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            environment.windows(own.len()).any(|window| window == own.as_bytes())
        })
        .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(marker))
        .collect()
}

/// Runs all tests of this binary again at tier `landlock`, and looks for `witness` among those that passed.
pub fn repeat_at_landlock(witness: &str) {
    if maximum() < Tier::Namespaces {
        return;
    }
    let me = std::env::current_exe().unwrap();
    let output = std::process::Command::new(me).env("FILESECBOX_TEST_TIER", "landlock").output().unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(text.contains(&format!("test {witness} ... ok")), "{text}");
}

/// Runs all tests of this binary again as an ordinary user, and looks for `witness` among those that passed.
pub fn repeat_without_root(witness: &str) {
    if !is_root() {
        return;
    }
    let me = std::env::current_exe().unwrap();
    // Where files may be executed, as they may where this process has its own; `/tmp` may be mounted `noexec`.
    let temporary = tempfile::tempdir().unwrap();
    fs::set_permissions(temporary.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let as_nobody = |arguments: &[&str]| {
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(&me).args(arguments);
        let required = std::env::var("FILESECBOX_REQUIRE").unwrap_or_default();
        let still: Vec<&str> = required.split(',').filter(|name| name.trim() != "root").collect();
        command.env("FILESECBOX_REQUIRE", still.join(","));
        command.env("TMPDIR", temporary.path()).current_dir("/").output()
    };
    if !has("setpriv", as_nobody(&["--list"]).is_ok_and(|output| output.status.success())) {
        return;
    }
    let output = as_nobody(&[]).unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(text.contains(&format!("test {witness} ... ok")), "{text}");
}
