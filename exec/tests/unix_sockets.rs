//! UNIX sockets of runs: what they serve, and that they reach nothing but the runs of the same user and agent.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::print_stderr)]

mod support;

use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::time::{Duration, Instant};

use exec::{ExecResult, LauncherConfig, Network, NetworkOwner, RunSpec, Tier};
use policy::command::Profile;
use policy::{AgentId, UserId};
use support::{Sandbox, config, has, is_root};

fn sandbox() -> Option<Sandbox> {
    let config = LauncherConfig { proxy_port: Some(3128), ..config(Profile::Default) };
    let sandbox = Sandbox::with(config, is_root())?;
    has("namespaces", sandbox.launcher.tier() == Tier::Namespaces).then_some(sandbox)
}

fn owner(user: &str) -> Option<NetworkOwner> {
    Some(NetworkOwner { user: UserId::parse(user).unwrap(), agent: AgentId::parse("a").unwrap() })
}

fn spec(sandbox: &Sandbox, user: &str, script: &str) -> RunSpec {
    RunSpec { network_of: owner(user), ..sandbox.spec("python3", &["-c", script]) }
}

async fn python(sandbox: &Sandbox, user: &str, script: &str) -> ExecResult {
    sandbox.launcher.run(spec(sandbox, user, script)).await.unwrap()
}

/// Starts a run that serves, and waits until it says so with the file `ready` in its tree.
async fn serving(sandbox: &Sandbox, user: &str, script: &str) -> tokio::task::JoinHandle<ExecResult> {
    let (launcher, spec) = (sandbox.launcher.clone(), spec(sandbox, user, script));
    let server = tokio::spawn(async move { launcher.run(spec).await.unwrap() });
    let begun = Instant::now();
    while !fs::exists(sandbox.tree.join("ready")).unwrap() {
        assert!(begun.elapsed() < Duration::from_secs(20) && !server.is_finished(), "{:?}", server.await);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server
}

/// One word through a socket of each kind at each place.
const EVERYWHERE: &str = r"import os, socket
kinds = {'stream': socket.SOCK_STREAM, 'datagram': socket.SOCK_DGRAM, 'packet': socket.SOCK_SEQPACKET}
for place in ('/workspace/', os.environ['HOME'] + '/', '/dev/shm/', '\0'):
    for name, kind in kinds.items():
        at = place + name
        server, client = socket.socket(socket.AF_UNIX, kind), socket.socket(socket.AF_UNIX, kind)
        server.bind(at)
        if kind != socket.SOCK_DGRAM: server.listen()
        client.connect(at)
        client.send(b'word')
        end = server if kind == socket.SOCK_DGRAM else server.accept()[0]
        print(end.recv(9).decode(), end='')
        if place != '\0': os.unlink(at)";

#[tokio::test]
async fn sockets_of_every_kind_work_in_the_tree_the_home_shared_memory_and_by_abstract_names() {
    let Some(sandbox) = sandbox() else { return };
    for _ in 0..3 {
        // The last of them is a resident's.
        let result = python(&sandbox, "u", EVERYWHERE).await;
        assert_eq!((result.stdout.as_str(), result.stderr.as_str()), ("word".repeat(12).as_str(), ""));
    }
}

#[tokio::test]
async fn multiprocessing_has_its_pools_and_managers() {
    let Some(sandbox) = sandbox() else { return };
    sandbox.file(
        "many.py",
        "import multiprocessing as m\n\
         def double(x): return 2 * x\n\
         if __name__ == '__main__':\n\
        \x20   for way in ('fork', 'forkserver', 'spawn'):\n\
        \x20       with m.get_context(way).Pool(2) as pool: print(pool.map(double, [1, 2, 3]))\n\
        \x20   with m.Manager() as manager:\n\
        \x20       shared = manager.dict(); shared['a'] = 1; print(dict(shared))\n",
    );
    let result = sandbox.run("python3", &["many.py"]).await;
    assert_eq!(result.stdout, "[2, 4, 6]\n".repeat(3) + "{'a': 1}\n", "{result:?}");
}

/// Serves at a path and at an abstract name, and passes an open file to the first that comes to the path.
const SERVER: &str = r"import array, os, socket
open('held', 'w').write('of the first run')
path, name = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
path.bind('s'); path.listen()
name.bind('\0name'); name.listen()
open('ready', 'w').close()
end = path.accept()[0]
socket.send_fds(end, [b'take'], [os.open('held', os.O_RDONLY)])
end.recv(9)";

const CLIENT: &str = r"import os, socket
end = socket.socket(socket.AF_UNIX)
end.connect('s')
word, files, _, _ = socket.recv_fds(end, 9, 1)
print(word.decode(), os.read(files[0], 99).decode())
end.send(b'done')";

const NAMED: &str = r"import socket
end = socket.socket(socket.AF_UNIX)
try: end.connect('\0name'); print('reached')
except OSError as e: print(type(e).__name__)";

#[tokio::test]
async fn a_socket_in_the_tree_is_reached_by_the_next_run_and_an_abstract_name_by_no_other_user() {
    let Some(sandbox) = sandbox() else { return };
    let server = serving(&sandbox, "u", SERVER).await;
    // Another user is in another network: there is no such name. The tree is the same here, so that nothing else differs.
    assert_eq!(python(&sandbox, "v", NAMED).await.stdout, "ConnectionRefusedError\n");
    let reached = python(&sandbox, "u", CLIENT).await;
    assert_eq!(reached.stdout, "take of the first run\n", "{reached:?}");
    assert_eq!(server.await.unwrap().exit_code, 0);
    // What is left is a name without a server.
    let left = python(&sandbox, "u", CLIENT).await;
    assert!(left.stderr.contains("ConnectionRefusedError"), "{left:?}");
}

#[tokio::test]
async fn no_socket_of_the_host_is_reached_by_path_or_name() {
    let Some(sandbox) = sandbox() else { return };
    let name = format!("exec-test-{}", std::process::id());
    let by_name = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let path = sandbox.outside().join("listener");
    let by_path = UnixDatagram::bind(&path).unwrap();
    for listener in [by_name.set_nonblocking(true), by_path.set_nonblocking(true)] {
        listener.unwrap();
    }
    let script = format!(
        "import os, socket\n\
         for kind, at in ((socket.SOCK_STREAM, '\\0{name}'), (socket.SOCK_DGRAM, {path:?}), \
         (socket.SOCK_DGRAM, '/proc/1/root' + {path:?}), (socket.SOCK_DGRAM, '/workspace/../..' + {path:?})):\n\
        \x20   end = socket.socket(socket.AF_UNIX, kind)\n\
        \x20   try: end.connect(at); end.send(b'x'); print('reached')\n\
        \x20   except OSError as e: print('not')"
    );
    for network in [Network::None, Network::Proxy] {
        let result = sandbox.launcher.run(RunSpec { network, ..spec(&sandbox, "u", &script) }).await.unwrap();
        assert_eq!(result.stdout, "not\n".repeat(4), "{result:?}");
    }
    assert!(by_name.accept().is_err() && by_path.recv(&mut [0; 8]).is_err());
}

/// Whether a UNIX socket can be made, and a pair of connected streams.
const MADE: &str = r"import socket
try: socket.socket(socket.AF_UNIX); print('made')
except OSError as e: print(e.errno)
one, other = socket.socketpair(); one.send(b'pair'); print(other.recv(9).decode())";

#[tokio::test]
async fn a_run_in_the_network_of_the_host_makes_pairs_only() {
    if let Some(sandbox) = sandbox() {
        let in_hosts = RunSpec { network: Network::Host, ..spec(&sandbox, "u", MADE) };
        // 97: `EAFNOSUPPORT`, from the filter.
        assert_eq!(sandbox.launcher.run(in_hosts).await.unwrap().stdout, "97\npair\n");
    }
    let isolation = exec::Isolation { maximum: Tier::Landlock, ..exec::Isolation::default() };
    let config = LauncherConfig { isolation, ..config(Profile::Default) };
    let Some(sandbox) = Sandbox::with(config, is_root()) else { return };
    let in_hosts = RunSpec { network: Network::Host, ..spec(&sandbox, "u", MADE) };
    assert_eq!(sandbox.launcher.run(in_hosts).await.unwrap().stdout, "97\npair\n");
}
