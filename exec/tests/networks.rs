//! Network namespaces of runs: which runs share one, what is in it, and what happens when there can be none.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::print_stderr)]

mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use exec::{ExecResult, LauncherConfig, Layer, Network, NetworkOwner, RunSpec, Tier};
use policy::command::Profile;
use policy::{AgentId, NetworkLimits, UserId};
use support::{Sandbox, config, has, is_root};

const PORT: u16 = 3128;

/// A sandbox whose runs have networks of their own, and a proxy in them; `None` on hosts that do not grant it.
fn sandbox() -> Option<Sandbox> {
    with_limits(NetworkLimits::default())
}

fn with_limits(networks: NetworkLimits) -> Option<Sandbox> {
    let config = LauncherConfig { proxy_port: Some(PORT), networks, ..config(Profile::Default) };
    let sandbox = Sandbox::with(config, is_root())?;
    has("namespaces", sandbox.launcher.tier() == Tier::Namespaces).then_some(sandbox)
}

fn owner(user: &str, agent: &str) -> Option<NetworkOwner> {
    Some(NetworkOwner { user: UserId::parse(user).unwrap(), agent: AgentId::parse(agent).unwrap() })
}

async fn python(sandbox: &Sandbox, of: Option<NetworkOwner>, network: Network, script: &str) -> ExecResult {
    let spec = RunSpec { network_of: of, network, ..sandbox.spec("python3", &["-c", script]) };
    sandbox.launcher.run(spec).await.unwrap()
}

/// The number of the network namespace of a run.
async fn network(sandbox: &Sandbox, of: Option<NetworkOwner>, network: Network) -> String {
    let result = python(sandbox, of, network, "import os; print(os.readlink('/proc/self/ns/net'))").await;
    assert!(result.stdout.starts_with("net:["), "{result:?}");
    result.stdout
}

#[tokio::test]
async fn runs_of_one_user_and_agent_and_mode_share_a_network_and_no_others_do() {
    let Some(sandbox) = sandbox() else { return };
    if !fs::exists("/proc/self/ns/net").unwrap() || sandbox.bash("test -e /proc/self").await.exit_code != 0 {
        eprintln!("SKIPPED: runs have no /proc here");
        return;
    }
    let own = network(&sandbox, owner("u", "a"), Network::Proxy).await;
    for _ in 0..4 {
        // The last of them are residents'.
        assert_eq!(network(&sandbox, owner("u", "a"), Network::Proxy).await, own);
    }
    let host = fs::read_link("/proc/self/ns/net").unwrap().display().to_string() + "\n";
    let mut seen = vec![own, host.clone()];
    for (of, mode) in [
        (owner("u", "b"), Network::Proxy),
        (owner("v", "a"), Network::Proxy),
        (owner("u", "a"), Network::None),
        (None, Network::None),
    ] {
        let other = network(&sandbox, of.clone(), mode).await;
        assert!(!seen.contains(&other), "{of:?} {mode:?}");
        seen.push(other);
    }
    assert_eq!(network(&sandbox, owner("u", "a"), Network::Host).await, host);
}

/// Serves on all of its addresses, and says when it does.
const SERVER: &str = r"import os, socket
ends = [socket.create_server(('', 8000)), socket.create_server(('::1', 8001), family=socket.AF_INET6)]
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind(('127.0.0.1', 8002))
open('ready', 'w').close()
for end in ends:
    other = end.accept()[0]
    other.sendall(b'hello over tcp')
    other.close()
datagrams.sendto(b'hello over udp', datagrams.recvfrom(9)[1])";

const CLIENT: &str = r"import socket
for host, port in (('127.0.0.1', 8000), ('::1', 8001)):
    try: print(socket.create_connection((host, port), 5).recv(99))
    except OSError as e: print(type(e).__name__)
end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
end.settimeout(5)
end.connect(('127.0.0.1', 8002))
try: end.send(b'x'); print(end.recv(99))
except OSError as e: print(type(e).__name__)";

#[tokio::test]
async fn a_server_of_one_run_is_reached_by_the_next_of_its_user_and_agent_and_by_no_other() {
    let Some(sandbox) = sandbox() else { return };
    let spec = RunSpec {
        network_of: owner("u", "a"),
        network: Network::None,
        ..sandbox.spec("python3", &["-c", SERVER])
    };
    let launcher = sandbox.launcher.clone();
    let server = tokio::spawn(async move { launcher.run(spec).await.unwrap() });
    while !fs::exists(sandbox.tree.join("ready")).unwrap() {
        assert!(!server.is_finished(), "{:?}", server.await);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let refused = "ConnectionRefusedError\n".repeat(3);
    for (other, network) in [
        (owner("u", "b"), Network::None),
        (owner("v", "a"), Network::None),
        (owner("u", "a"), Network::Proxy),
    ] {
        assert_eq!(python(&sandbox, other, network, CLIENT).await.stdout, refused);
    }
    let reached = python(&sandbox, owner("u", "a"), Network::None, CLIENT).await;
    assert_eq!(reached.stdout, "b'hello over tcp'\nb'hello over tcp'\nb'hello over udp'\n");
    assert!(reached.enforcement.network.is_enforced());
    assert_eq!(server.await.unwrap().exit_code, 0);
}

#[tokio::test]
async fn the_proxy_listens_for_runs_that_may_use_it_and_hears_whose_they_are() {
    let Some(sandbox) = sandbox() else { return };
    let mut listeners = sandbox.launcher.listeners();
    let accepting = tokio::spawn(async move {
        let listening = listeners.recv().await.unwrap();
        let (owner, mut gone) = (listening.owner.clone(), listening.gone.clone());
        let listener = TcpListener::from(listening.listener.try_clone().unwrap());
        let accepted = tokio::task::spawn_blocking(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"who are you").unwrap();
            let mut said = String::new();
            stream.read_to_string(&mut said).unwrap();
            said
        });
        let said = accepted.await.unwrap();
        drop(listening);
        // Without a run the namespace may go, and the holder of the listener is told.
        (owner, said, tokio::time::timeout(Duration::from_secs(20), gone.changed()).await.unwrap().is_err())
    });
    let script = format!(
        "import socket\ns = socket.create_connection(('127.0.0.1', {PORT}), 9)\nprint(s.recv(99)); s.sendall(b'me')"
    );
    let result = python(&sandbox, owner("u", "a"), Network::Proxy, &script).await;
    assert_eq!((result.stdout.as_str(), result.stderr.as_str()), ("b'who are you'\n", ""));
    let result = python(&sandbox, owner("u", "a"), Network::None, &script).await;
    assert!(result.stderr.contains("ConnectionRefusedError"), "{result:?}");
    assert_eq!(sandbox.launcher.network_count(), 2);
    drop(sandbox);
    let (of, said, is_gone) = accepting.await.unwrap();
    assert_eq!((Some(of), said.as_str(), is_gone), (owner("u", "a"), "me", true));
}

#[tokio::test]
async fn too_many_networks_at_once_are_refused_and_idle_ones_give_way() {
    let limits = NetworkLimits { held: 2, held_per_user: 2, ..NetworkLimits::default() };
    let Some(sandbox) = with_limits(limits) else { return };
    for number in 0..5 {
        let result = python(&sandbox, owner(&format!("u{number}"), "a"), Network::None, "print(1)").await;
        assert_eq!(result.stdout, "1\n");
    }
    assert_eq!(sandbox.launcher.network_count(), 2);
    let running: Vec<_> = ["first", "second"]
        .map(|user| {
            let script = format!("open('{user}', 'w').close(); import time; time.sleep(20)");
            let spec = RunSpec { network_of: owner(user, "a"), ..sandbox.spec("python3", &["-c", &script]) };
            let launcher = sandbox.launcher.clone();
            tokio::spawn(async move { launcher.run(spec).await.map(drop) })
        })
        .into();
    let begun = Instant::now();
    while !["first", "second"].iter().all(|user| fs::exists(sandbox.tree.join(user)).unwrap()) {
        assert!(begun.elapsed() < Duration::from_secs(20) && !running[0].is_finished());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let spec = RunSpec { network_of: owner("third", "a"), ..sandbox.spec("true", &[]) };
    let refused = sandbox.launcher.run(spec).await.unwrap_err();
    assert!(matches!(refused, exec::Error::Networks { most: 2, .. }), "{refused:?}");
    running.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_process_that_waits_for_the_next_command_keeps_nobody_from_a_network() {
    for held_per_user in [1, 2] {
        let limits = NetworkLimits { held: 2, held_per_user, ..NetworkLimits::default() };
        let Some(sandbox) = with_limits(limits) else { return };
        // Whose command is the same again and again has such a process, and it is in the network.
        for agent in ["a", "b", "c", "a"] {
            for _ in 0..4 {
                let result = python(&sandbox, owner("u", agent), Network::None, "print(1)").await;
                assert_eq!(result.stdout, "1\n", "{agent}");
            }
        }
        let result = python(&sandbox, owner("v", "a"), Network::None, "print(1)").await;
        assert_eq!(result.stdout, "1\n");
    }
}

#[tokio::test]
async fn a_launcher_without_the_process_that_makes_networks_is_replaced() {
    let Some(sandbox) = sandbox() else { return };
    let launcher = sandbox.launcher.pid();
    let children = fs::read_to_string(format!("/proc/{launcher}/task/{launcher}/children")).unwrap();
    // Before its first run a launcher has two: the one that watches memory, and this one.
    let children: Vec<i32> = children.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(children.len(), 2);
    let maker = rustix::process::Pid::from_raw(children[1]).unwrap();
    rustix::process::kill_process(maker, rustix::process::Signal::KILL).unwrap();
    let begun = Instant::now();
    while fs::exists(format!("/proc/{launcher}/ns")).unwrap_or(false)
        && !fs::read_to_string(format!("/proc/{launcher}/stat")).is_ok_and(|stat| stat.contains(") Z "))
    {
        assert!(begun.elapsed() < Duration::from_secs(20), "the launcher goes on without it");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // A process that it had made may have its socket for a moment longer, and takes no run.
    let result = loop {
        let network_of = owner("u", "a");
        let spec = RunSpec { network_of, network: Network::None, ..sandbox.spec("python3", &["-c", CLIENT]) };
        match sandbox.launcher.run(spec).await {
            Err(exec::Error::LauncherDied) if begun.elapsed() < Duration::from_secs(20) => {}
            ended => break ended.unwrap(),
        }
    };
    assert_eq!(result.stdout, "ConnectionRefusedError\n".repeat(3), "{result:?}");
    assert_ne!(sandbox.launcher.pid(), launcher);
}

/// A program that makes a user namespace in which only so many network namespaces are possible, and repeats one test
/// there.
const REPEATED: &str = "FILESECBOX_TEST_NETWORKS_MAX";

#[tokio::test]
async fn a_command_for_which_no_network_can_be_made_has_none_and_is_told() {
    if let Ok(most) = std::env::var(REPEATED) {
        return without_networks(most.parse().unwrap()).await;
    }
    for most in [1, 4] {
        let me = std::env::current_exe().unwrap();
        let line = format!("echo {most} > /proc/sys/user/max_net_namespaces && exec \"$0\" \"$@\"");
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &line]).arg(me);
        command.args(["--exact", "a_command_for_which_no_network_can_be_made_has_none_and_is_told"]);
        command.args(["--nocapture"]).env(REPEATED, most.to_string()).env_remove("TMPDIR");
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        if !has("userns", !text.contains("unshare failed") && !text.contains("NOT GRANTED")) {
            return;
        }
        assert!(output.status.success(), "{text}");
    }
}

/// Where there can be `most` network namespaces, of which the launcher has the first.
async fn without_networks(most: usize) {
    let config = LauncherConfig { proxy_port: Some(PORT), ..config(Profile::Default) };
    let sandbox = Sandbox::with(config, false).unwrap();
    if sandbox.launcher.tier() != Tier::Namespaces {
        eprintln!("NOT GRANTED: {:?}", sandbox.launcher.without_namespaces());
        return;
    }
    assert_eq!(sandbox.launcher.offers_proxy(), most > 1);
    let script = "import socket\ntry: socket.socket(); print('a socket')\nexcept OSError as e: print(e.errno)\n\
                  try: print(len(open('/proc/net/unix').readlines()))\nexcept OSError: print(1)";
    for number in 1..most + 2 {
        let of = owner(&format!("u{number}"), "a");
        let result = python(&sandbox, of, Network::None, script).await;
        let notes = result.enforcement.notes.join("\n");
        let is_told = notes.contains("no network namespace can be made");
        if number < most {
            assert!(result.stdout.starts_with("a socket\n") && !is_told, "{result:?}");
        } else {
            // 97: `EAFNOSUPPORT`, from the filter.
            assert_eq!((result.stdout.as_str(), is_told), ("97\n1\n", true), "{result:?}");
            assert!(result.enforcement.network.is_enforced());
        }
    }
    if most > 1 {
        let result = python(&sandbox, owner("proxied", "a"), Network::Proxy, script).await;
        assert_eq!(result.stdout, "97\n1\n");
        let Layer::Unavailable { reason } = &result.enforcement.network else { panic!("{result:?}") };
        assert!(reason.contains("no network namespace can be made"), "{reason}");
    }
}

/// A program that repeats one test without `CAP_NET_ADMIN`, as most privileged containers have it.
const UNPRIVILEGED: &str = "FILESECBOX_TEST_WITHOUT_NET_ADMIN";

/// Shows which user namespace owns its network by trying to switch the loopback interface off.
const SWITCH_OFF: &str = r"import fcntl, socket, struct
end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
flags = struct.unpack('16sh', fcntl.ioctl(end, 0x8913, struct.pack('16sh', b'lo', 0)))[1]
print('up' if flags & 1 else 'down')
try: fcntl.ioctl(end, 0x8914, struct.pack('16sh', b'lo', 0)); print('switched off')
except OSError as e: print(type(e).__name__)";

#[tokio::test]
async fn networks_are_made_without_the_capability_and_belong_to_no_run() {
    if std::env::var_os(UNPRIVILEGED).is_none() {
        let allowed =
            Command::new("unshare").args(["--user", "true"]).status().is_ok_and(|done| done.success());
        if !has("root", is_root()) || !has("userns", allowed) {
            return;
        }
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", "-net_admin", "--inh-caps", "-net_admin"]);
        command.arg(std::env::current_exe().unwrap());
        command.args(["--exact", "networks_are_made_without_the_capability_and_belong_to_no_run"]);
        let output = command.arg("--nocapture").env(UNPRIVILEGED, "1").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
        return;
    }
    // With a user id of their own, and as the service's.
    for own_uid in [true, false] {
        let config = LauncherConfig { proxy_port: Some(PORT), ..config(Profile::Default) };
        let Some(sandbox) = Sandbox::with(config, own_uid) else { return };
        if !has("namespaces", sandbox.launcher.tier() == Tier::Namespaces) {
            return;
        }
        assert_eq!(sandbox.launcher.without_proxy(), None);
        let result = python(&sandbox, owner("u", "a"), Network::None, SWITCH_OFF).await;
        assert_eq!(result.stdout, "up\nPermissionError\n", "{result:?}");
        let result = python(&sandbox, owner("u", "a"), Network::Proxy, CLIENT).await;
        assert_eq!(result.stdout, "ConnectionRefusedError\n".repeat(3), "{result:?}");
    }
}

#[tokio::test]
async fn a_run_keeps_no_other_user_from_the_host() {
    let Some(sandbox) = sandbox() else { return };
    // A port of the host is not one of a run's.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    assert!(TcpStream::connect(("127.0.0.1", port)).is_ok());
    let script = format!(
        "import socket\nserver = socket.create_server(('127.0.0.1', {port}))\n\
         print(socket.create_connection(('127.0.0.1', {port}), 5).getpeername()[1])"
    );
    assert_eq!(python(&sandbox, owner("u", "a"), Network::None, &script).await.stdout, format!("{port}\n"));
}

/// The service's connections to what a run serves, and what it lists.
#[tokio::test]
async fn the_service_lists_and_reaches_the_servers_of_one_user_and_agent_and_nothing_else() {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
    use tokio::io::AsyncReadExt;
    let Some(sandbox) = sandbox() else { return };
    // A server of the host is at no port of a user's.
    let of_host = TcpListener::bind("127.0.0.1:0").unwrap();
    let host_port = of_host.local_addr().unwrap().port();
    let spec = RunSpec {
        network_of: owner("u", "a"),
        network: Network::Proxy,
        ..sandbox.spec("python3", &["-c", SERVER])
    };
    let launcher = sandbox.launcher.clone();
    let server = tokio::spawn(async move { launcher.run(spec).await.unwrap() });
    while !fs::exists(sandbox.tree.join("ready")).unwrap() {
        assert!(!server.is_finished(), "{:?}", server.await);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (of, launcher) = (owner("u", "a").unwrap(), &sandbox.launcher);
    let listed = launcher.listening(&of).unwrap();
    let facts: Vec<_> =
        listed.iter().map(|socket| (socket.port, socket.protocol, socket.address, socket.network)).collect();
    let (all, v6) = (IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::LOCALHOST));
    assert_eq!(
        facts,
        [
            (8000, exec::Protocol::Tcp, all, Network::Proxy),
            (8001, exec::Protocol::Tcp, v6, Network::Proxy),
            (8002, exec::Protocol::Udp, IpAddr::V4(Ipv4Addr::LOCALHOST), Network::Proxy),
        ]
    );
    for socket in &listed {
        assert_eq!(socket.holder.as_ref().map(|holder| holder.program.as_str()), Some("python3"));
    }
    for other in [owner("u", "b").unwrap(), owner("v", "a").unwrap()] {
        assert!(launcher.listening(&other).unwrap().is_empty());
        let refused = launcher.connect(&other, 8000).await.unwrap_err();
        assert!(matches!(refused, exec::Error::NothingListens { port: 8000 }), "{refused:?}");
    }
    // The host's, the egress proxy's, and one of datagrams only.
    for port in [host_port, PORT, 8002] {
        let refused = launcher.connect(&of, port).await.unwrap_err();
        assert!(matches!(refused, exec::Error::NothingListens { .. }), "{port}: {refused:?}");
    }
    for port in [8000, 8001] {
        let mut said = String::new();
        launcher.connect(&of, port).await.unwrap().read_to_string(&mut said).await.unwrap();
        assert_eq!(said, "hello over tcp");
    }
    // The threads that were in the namespace are gone, and this process is where it was.
    assert!(TcpStream::connect(("127.0.0.1", host_port)).is_ok());
    server.abort();
}
