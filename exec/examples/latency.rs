//! Measures what isolation costs: bare processes and runs at each tier the host grants, taking turns in one loop.
//!
//! `cargo run --release -p exec --example latency -- <launcher binary> [rounds]`; prints medians in microseconds and
//! their ratio to a bare process.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use exec::{Attachment, Ground, Isolation, Launcher, LauncherConfig, Role, RunSpec, Tier, Whitelist};
use policy::View;
use policy::command::{CommandPolicy, Profile};

/// The uid of runs where the example runs as root.
const OWNER: u32 = 1_800_000_000;

fn main() {
    // As the service does, before any thread is started.
    println!("{:?}", Ground::enter());
    let mut arguments = std::env::args().skip(1);
    let program: PathBuf = arguments.next().unwrap().into();
    let rounds: usize = arguments.next().map_or(400, |text| text.parse().unwrap());
    tokio::runtime::Runtime::new().unwrap().block_on(async move {
        tokio::spawn(async move { measure(&program, rounds).await }).await.unwrap();
    });
}

/// A launcher of one tier with a tree of its own.
struct Variant {
    launcher: Arc<Launcher>,
    root: tempfile::TempDir,
    view: View,
    attachments: Vec<Attachment>,
}

impl Variant {
    fn new(program: &Path, maximum: Tier) -> Self {
        let policy = CommandPolicy::new(Profile::Default, &["true".to_owned()]).unwrap();
        let launcher = Launcher::start(LauncherConfig {
            isolation: Isolation { maximum, ..Isolation::default() },
            program: program.to_owned(),
            arguments: Vec::new(),
            ..LauncherConfig::new(Whitelist::from(&policy))
        })
        .unwrap();
        let root = tempfile::tempdir().unwrap();
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let owner = nix::unistd::Uid::effective().is_root().then_some(OWNER);
        let (tree, scratch) = (root.path().join("tree"), root.path().join("scratch"));
        let mut view = View {
            tree: tree.clone(),
            scratch: scratch.clone(),
            sandbox_path: "/workspace".to_owned(),
            aliases: Vec::new(),
            owner,
        };
        make(&tree, owner);
        make(&scratch, owner);
        let mut attachments = Vec::new();
        if launcher.mounts() {
            (view.tree, view.scratch) = ("/workspace".into(), exec::mounts::HOME.into());
            attachments.push(attachment("/workspace", &tree, Role::Tree));
            attachments.push(attachment(exec::mounts::HOME, &scratch, Role::Home));
        }
        Self { launcher, root, view, attachments }
    }

    fn spec(&self, program: &str, arguments: &[&str]) -> RunSpec {
        let mut spec = RunSpec::new(self.view.clone(), program);
        spec.arguments = arguments.iter().map(|text| (*text).to_owned()).collect();
        spec.attachments.clone_from(&self.attachments);
        spec.environment = vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())];
        spec
    }

    async fn run(&self, program: &str, arguments: &[&str]) -> Duration {
        let began = Instant::now();
        let result = self.launcher.run(self.spec(program, arguments)).await.unwrap();
        let took = began.elapsed();
        assert_eq!(result.exit_code, 0, "{}", result.stderr);
        took
    }

    /// The first run in a fresh tree, for which a ruleset must be built.
    async fn run_fresh(&self, round: usize) -> Duration {
        let tree = self.root.path().join(format!("tree-{round}"));
        make(&tree, self.view.owner);
        let mut spec = self.spec("true", &[]);
        match spec.attachments.first_mut() {
            Some(first) => *first = attachment("/workspace", &tree, Role::Tree),
            None => spec.view.tree = tree,
        }
        let began = Instant::now();
        assert_eq!(self.launcher.run(spec).await.unwrap().exit_code, 0);
        began.elapsed()
    }

    async fn throughput(&self, clients: usize, each: usize) -> f64 {
        let began = Instant::now();
        let crew: Vec<_> = (0..clients)
            .map(|_| {
                let (launcher, spec) = (Arc::clone(&self.launcher), self.spec("echo", &["hi"]));
                tokio::spawn(async move {
                    for _ in 0..each {
                        launcher.run(spec.clone()).await.unwrap();
                    }
                })
            })
            .collect();
        for client in crew {
            client.await.unwrap();
        }
        (clients * each) as f64 / began.elapsed().as_secs_f64()
    }
}

async fn measure(program: &Path, rounds: usize) {
    let mut variants = vec![Variant::new(program, Tier::Landlock), Variant::new(program, Tier::Namespaces)];
    // Where the host grants no more, the second would only repeat the first.
    variants.dedup_by_key(|variant| variant.launcher.tier());
    let commands = [("true", &[][..]), ("echo", &["hi"][..]), ("python3", &["-I", "-S", "-c", "1"][..])];
    for (program, arguments) in commands {
        let mut bare = Vec::new();
        let mut isolated = vec![Vec::new(); variants.len()];
        for _ in 0..rounds {
            bare.push(run_bare(program, arguments));
            for (variant, times) in variants.iter().zip(&mut isolated) {
                times.push(variant.run(program, arguments).await);
            }
        }
        let bare = median(&mut bare);
        print!("{program:8} bare {:5}", bare.as_micros());
        tell(&variants, &mut isolated, Some(bare));
    }
    let mut fresh = vec![Vec::new(); variants.len()];
    for round in 0..rounds {
        for (variant, times) in variants.iter().zip(&mut fresh) {
            times.push(variant.run_fresh(round).await);
        }
    }
    print!("true, first run in a tree");
    tell(&variants, &mut fresh, None);
    for variant in &variants {
        println!(
            "echo, 8 clients, {}: {:.0}/s",
            variant.launcher.tier(),
            variant.throughput(8, rounds / 4).await
        );
    }
    volume(&variants).await;
    for variant in &variants {
        let status = fs::read_to_string(format!("/proc/{}/status", variant.launcher.pid())).unwrap();
        let memory = status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or_default();
        println!("launcher, {}: {memory}", variant.launcher.tier());
    }
}

/// Large output, whole on both sides.
async fn volume(variants: &[Variant]) {
    let arguments = ["-c", "head -c 50000000 /dev/zero"];
    let mut bare = Vec::new();
    let mut isolated = vec![Vec::new(); variants.len()];
    for _ in 0..20 {
        bare.push(run_bare("bash", &arguments));
        for (variant, times) in variants.iter().zip(&mut isolated) {
            times.push(variant.run("bash", &arguments).await);
        }
    }
    let rate = |times: &mut Vec<Duration>| 50.0 / median(times).as_secs_f64();
    print!("50 MB of output: bare {:.0} MB/s", rate(&mut bare));
    for (variant, times) in variants.iter().zip(&mut isolated) {
        print!(", {} {:.0} MB/s", variant.launcher.tier(), rate(times));
    }
    println!();
}

fn run_bare(program: &str, arguments: &[&str]) -> Duration {
    let began = Instant::now();
    let mut command = Command::new(program);
    command.args(arguments).env_clear().env("PATH", "/usr/bin:/bin").stdin(Stdio::null());
    assert!(command.output().unwrap().status.success());
    began.elapsed()
}

fn tell(variants: &[Variant], times: &mut [Vec<Duration>], bare: Option<Duration>) {
    for (variant, times) in variants.iter().zip(times) {
        let time = median(times);
        print!("  {} {:5}", variant.launcher.tier(), time.as_micros());
        if let Some(bare) = bare {
            print!(" ({:.2})", time.as_secs_f64() / bare.as_secs_f64());
        }
    }
    println!();
}

/// Makes a directory of a run's owner.
fn make(path: &Path, owner: Option<u32>) {
    fs::create_dir(path).unwrap();
    let (user, group) = (owner.map(nix::unistd::Uid::from_raw), owner.map(nix::unistd::Gid::from_raw));
    nix::unistd::chown(path, user, group).unwrap();
}

fn attachment(at: &str, path: &Path, role: Role) -> Attachment {
    let directory = Arc::new(fs::File::open(path).unwrap().into());
    Attachment { at: at.to_owned(), directory, role, generation: 0 }
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}
