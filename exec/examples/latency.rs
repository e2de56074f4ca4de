//! Measures what isolation costs: runs through the launcher against bare processes, alternating in one loop.
//!
//! `cargo run --release -p exec --example latency -- <launcher binary> [rounds]`; prints medians in microseconds.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use exec::{Attachment, Ground, Isolation, Launcher, LauncherConfig, Role, RunSpec, Tier, Whitelist};
use policy::View;
use policy::command::{CommandPolicy, Profile};

fn main() {
    // As the service does, before any thread is started.
    println!("{:?}", Ground::enter());
    let mut arguments = std::env::args().skip(1);
    let launcher = arguments.next().unwrap();
    let rounds: usize = arguments.next().map_or(400, |text| text.parse().unwrap());
    tokio::runtime::Runtime::new().unwrap().block_on(async move {
        let worker = tokio::spawn(measure(launcher, rounds));
        worker.await.unwrap();
    });
}

async fn measure(launcher: String, rounds: usize) {
    let policy = CommandPolicy::new(Profile::Default, &["true".to_owned()]).unwrap();
    // `TIER=landlock` measures the weaker tier on a host that grants more.
    let is_weaker = std::env::var("TIER").is_ok_and(|tier| tier == "landlock");
    let maximum = if is_weaker { Tier::Landlock } else { Tier::Namespaces };
    let config = LauncherConfig {
        isolation: Isolation { maximum, ..Isolation::default() },
        program: launcher.into(),
        arguments: Vec::new(),
        ..LauncherConfig::new(Whitelist::from(&policy))
    };
    let launcher = Launcher::start(config).unwrap();
    let root = tempfile::tempdir().unwrap();
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let is_root = nix::unistd::Uid::effective().is_root();
    let owner = is_root.then_some(1_800_000_000);
    let (tree, scratch) = (root.path().join("tree"), root.path().join("scratch"));
    let mounts = launcher.mounts();
    let view = View {
        tree: if mounts { "/workspace".into() } else { tree.clone() },
        scratch: if mounts { exec::mounts::HOME.into() } else { scratch.clone() },
        sandbox_path: "/workspace".to_owned(),
        aliases: Vec::new(),
        owner,
    };
    for path in [&tree, &scratch] {
        fs::create_dir(path).unwrap();
        let id = owner.map(nix::unistd::Uid::from_raw);
        nix::unistd::chown(path, id, owner.map(nix::unistd::Gid::from_raw)).unwrap();
    }
    let attach = |at: &str, path: &Path, role| Attachment {
        at: at.to_owned(),
        directory: Arc::new(fs::File::open(path).unwrap().into()),
        role,
        generation: 0,
    };
    let attachments = match mounts {
        false => Vec::new(),
        true => {
            vec![attach("/workspace", &tree, Role::Tree), attach(exec::mounts::HOME, &scratch, Role::Home)]
        }
    };
    println!("tier {}", launcher.tier());
    let spec = |program: &str, arguments: &[&str]| {
        let mut spec = RunSpec::new(view.clone(), program);
        spec.arguments = arguments.iter().map(|text| (*text).to_owned()).collect();
        spec.attachments.clone_from(&attachments);
        spec.environment = vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())];
        spec
    };
    for (program, arguments) in [("true", &[][..]), ("echo", &["hi"]), ("python3", &["-I", "-S", "-c", "1"])]
    {
        let (mut bare, mut isolated) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let began = Instant::now();
            let output = Command::new(program)
                .args(arguments)
                .env_clear()
                .env("PATH", "/usr/bin:/bin")
                .stdin(Stdio::null())
                .output()
                .unwrap();
            bare.push(began.elapsed());
            assert!(output.status.success());
            let began = Instant::now();
            let result = launcher.run(spec(program, arguments)).await.unwrap();
            isolated.push(began.elapsed());
            assert_eq!(result.exit_code, 0, "{}", result.stderr);
        }
        let (bare, isolated) = (median(&mut bare), median(&mut isolated));
        let ratio = isolated.as_secs_f64() / bare.as_secs_f64();
        println!(
            "{program:8} bare {:5} isolated {:5} ratio {ratio:.2}",
            bare.as_micros(),
            isolated.as_micros()
        );
    }
    fresh(&launcher, root.path(), spec("true", &[]), rounds).await;
    throughput(&launcher, spec("echo", &["hi"]), rounds).await;
    volume(&launcher, spec("bash", &["-c", "head -c 50000000 /dev/zero"])).await;
}

/// The first run in each of many trees, for which a ruleset must be built.
async fn fresh(launcher: &Arc<Launcher>, root: &Path, mut spec: RunSpec, rounds: usize) {
    let mut times = Vec::new();
    for round in 0..rounds {
        let tree = root.join(format!("tree-{round}"));
        fs::create_dir(&tree).unwrap();
        let id = spec.view.owner;
        nix::unistd::chown(&tree, id.map(nix::unistd::Uid::from_raw), id.map(nix::unistd::Gid::from_raw))
            .unwrap();
        match spec.attachments.first_mut() {
            Some(attachment) => attachment.directory = Arc::new(fs::File::open(&tree).unwrap().into()),
            None => spec.view.tree = tree,
        }
        let began = Instant::now();
        assert_eq!(launcher.run(spec.clone()).await.unwrap().exit_code, 0);
        times.push(began.elapsed());
    }
    println!("true, first run in a tree: {}", median(&mut times).as_micros());
    let status = fs::read_to_string(format!("/proc/{}/status", launcher.pid())).unwrap();
    let memory = status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or_default();
    println!("launcher: {memory}");
}

async fn throughput(launcher: &Arc<Launcher>, spec: RunSpec, rounds: usize) {
    let began = Instant::now();
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let (launcher, spec) = (Arc::clone(launcher), spec.clone());
            tokio::spawn(async move {
                for _ in 0..rounds / 4 {
                    launcher.run(spec.clone()).await.unwrap();
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    println!("echo, 8 clients: {:.0}/s", (rounds / 4 * 8) as f64 / began.elapsed().as_secs_f64());
}

async fn volume(launcher: &Arc<Launcher>, spec: RunSpec) {
    let mut times = Vec::new();
    let mut bare = Vec::new();
    for _ in 0..20 {
        let began = Instant::now();
        let result = launcher.run(spec.clone()).await.unwrap();
        times.push(began.elapsed());
        assert_eq!(result.stdout_bytes, 50_000_000);
        let began = Instant::now();
        let output = Command::new("bash").args(&spec.arguments).output().unwrap();
        bare.push(began.elapsed());
        assert_eq!(output.stdout.len(), 50_000_000);
    }
    let rate = |times: &mut Vec<Duration>| 50.0 / median(times).as_secs_f64();
    println!("50 MB of output: isolated {:.0} MB/s, bare {:.0} MB/s", rate(&mut times), rate(&mut bare));
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}
