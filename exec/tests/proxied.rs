//! Runs that see the host's directories and may reach the egress proxy: the service connects them to it, and to nothing
//! else.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::print_stdout
)]

mod support;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use exec::{ExecResult, Isolation, LauncherConfig, Network, NetworkOwner, ProxyConnection, Tier};
use policy::command::Profile;
use policy::{AgentId, UserId};
use support::{Sandbox, config, has, is_root};

/// The port at which the runs look for the proxy. Nothing listens there.
const PORT: u16 = 3128;

/// Sandboxes whose runs have the uid of the test, and where it is root also with one of their own.
fn sandboxes() -> impl Iterator<Item = Sandbox> {
    let own_uids = if is_root() { vec![false, true] } else { vec![false] };
    own_uids.into_iter().filter_map(|own_uid| {
        let isolation = Isolation { maximum: Tier::Landlock, ..Isolation::default() };
        let config = LauncherConfig { isolation, proxy_port: Some(PORT), ..config(Profile::Default) };
        let sandbox = Sandbox::with(config, own_uid)?;
        has("seccomp-notifications", sandbox.launcher.offers_proxy()).then_some(sandbox)
    })
}

fn owner() -> NetworkOwner {
    NetworkOwner { user: UserId::parse("u").unwrap(), agent: AgentId::parse("a").unwrap() }
}

/// Has the proxy greet each connection, and say in capitals what comes first.
fn serve(sandbox: &Sandbox) {
    let mut connections = sandbox.launcher.proxy_connections();
    tokio::spawn(async move {
        while let Some(ProxyConnection { owner: of, mut stream }) = connections.recv().await {
            assert_eq!(of, owner());
            std::thread::spawn(move || {
                let _ = stream.write_all(b"hello ");
                let mut said = [0; 64];
                let length = stream.read(&mut said).unwrap_or(0);
                let _ = stream.write_all(said[..length].to_ascii_uppercase().as_slice());
            });
        }
    });
}

async fn python(sandbox: &Sandbox, network: Network, script: &str) -> ExecResult {
    let mut spec = sandbox.spec("python3", &["-c", script]);
    (spec.network, spec.network_of) = (network, Some(owner()));
    spec.timeout = Duration::from_secs(60);
    sandbox.launcher.run(spec).await.unwrap()
}

#[tokio::test]
async fn a_socket_is_connected_to_the_proxy_as_programs_do_it() {
    for sandbox in sandboxes() {
        serve(&sandbox);
        let script = format!(
            r#"
import asyncio, fcntl, os, select, socket, subprocess, sys
P = ('127.0.0.1', {PORT})
def talk(s):
    s.sendall(b'me'); text = b''
    while len(text) < 8: text += s.recv(8 - len(text))
    return text.decode()
s = socket.create_connection(P)
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1); s.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
print('blocking', talk(s), s.getpeername()[0][:4], fcntl.fcntl(s, fcntl.F_GETFD))
s = socket.socket(); s.setblocking(False)
error = s.connect_ex(P); select.select([], [s], [], 9)
print('not blocking', error, s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), bool(fcntl.fcntl(s, fcntl.F_GETFL) & os.O_NONBLOCK))
s.setblocking(True); print(talk(s))
s = socket.socket(); os.set_inheritable(s.fileno(), True); s.connect(P)
print('for a child', fcntl.fcntl(s, fcntl.F_GETFD), end=' ', flush=True)
subprocess.run([sys.executable, '-c', 'import socket, sys; s = socket.socket(fileno=%d); s.sendall(b"me"); print(s.recv(99))' % s.fileno()], close_fds=False)
async def later():
    reader, writer = await asyncio.open_connection(*P)
    writer.write(b'me'); print('asyncio', (await reader.readexactly(8)).decode())
asyncio.run(later())
print('many', sum(talk(socket.create_connection(P)) == 'hello ME' for _ in range(150)))
"#
        );
        let result = python(&sandbox, Network::Proxy, &script).await;
        let expected = "blocking hello ME 127. 1\nnot blocking 0 0 True\nhello ME\n\
                        for a child 0 b'hello '\nasyncio hello ME\nmany 150\n";
        let lines = |text: &str| text.replace("b'hello ME'", "b'hello '");
        assert_eq!((lines(&result.stdout).as_str(), result.stderr.as_str()), (expected, ""));
        assert!(result.enforcement.network.is_enforced(), "{:?}", result.enforcement.network);
    }
}

#[tokio::test]
async fn nothing_but_the_proxy_is_reached() {
    let outside = TcpListener::bind("127.0.0.1:0").unwrap();
    outside.set_nonblocking(true).unwrap();
    let port = outside.local_addr().unwrap().port();
    for sandbox in sandboxes() {
        serve(&sandbox);
        let script = format!(
            r#"
import ctypes, errno, os, socket, struct
def say(name, act):
    try: print(name, act() or 'done')
    except OSError as error: print(name, errno.errorcode[error.errno])
new = lambda: socket.socket()
for place in [('127.0.0.1', {port}), ('127.0.0.2', {PORT}), ('0.0.0.0', {PORT}), ('192.0.2.1', {PORT}), ('169.254.169.254', 80)]:
    say(place[0], lambda: new().connect(place))
say("the proxy's", lambda: new().bind(('127.0.0.1', {PORT})))
say('low', lambda: new().bind(('127.0.0.1', 80)))
for family, kind in [(socket.AF_INET, socket.SOCK_DGRAM), (socket.AF_INET6, socket.SOCK_DGRAM), (socket.AF_UNIX, socket.SOCK_DGRAM), (16, socket.SOCK_RAW)]:
    say(f'socket {{int(family)}} {{int(kind)}}', lambda: socket.socket(family, kind))
say('first packet', lambda: new().sendto(b'x', 0x20000000, ('127.0.0.1', {port})))
libc = ctypes.CDLL(None, use_errno=True)
def connect(number, address, length):
    if libc.connect(number, address, length): raise OSError(ctypes.get_errno(), '')
good = struct.pack('=HHI8x', 2, socket.htons({PORT}), struct.unpack('=I', b'\x7f\0\0\1')[0])
keep = new()
say('short', lambda: connect(keep.fileno(), good, 15))
say('negative', lambda: connect(keep.fileno(), good, -1))
say('long', lambda: connect(keep.fileno(), good + b'x' * 50, 66))
say('unspecified', lambda: connect(keep.fileno(), struct.pack('=H14x', 0), 16))
say('nowhere', lambda: connect(keep.fileno(), ctypes.c_void_p(8), 16))
say('no descriptor', lambda: connect(999, good, 16))
say('none', lambda: connect(-1, good, 16))
"#
        );
        let result = python(&sandbox, Network::Proxy, &script).await;
        let expected = "127.0.0.1 ECONNREFUSED\n127.0.0.2 ECONNREFUSED\n0.0.0.0 ECONNREFUSED\n\
                        192.0.2.1 ENETUNREACH\n169.254.169.254 ENETUNREACH\nthe proxy's EADDRINUSE\nlow EACCES\n\
                        socket 2 2 EAFNOSUPPORT\nsocket 10 2 EAFNOSUPPORT\nsocket 1 2 EAFNOSUPPORT\n\
                        socket 16 3 EAFNOSUPPORT\nfirst packet ENOTSUP\nshort EINVAL\nnegative EINVAL\nlong done\n\
                        unspecified EAFNOSUPPORT\nnowhere EFAULT\nno descriptor EBADF\nnone EBADF\n";
        assert_eq!((result.stdout.as_str(), result.stderr.as_str()), (expected, ""));
        assert!(outside.accept().is_err(), "a run has reached a listener of the host");
        // With network `none` not even the proxy is reached.
        let script = format!("import socket; socket.create_connection(('127.0.0.1', {PORT}))");
        let none = python(&sandbox, Network::None, &script).await;
        assert!(none.stderr.contains("Connection refused"), "{none:?}");
    }
}

#[tokio::test]
async fn a_run_whose_proxy_is_not_served_or_busy_is_refused_at_once() {
    for sandbox in sandboxes() {
        let script = format!(
            "import socket, time\nbegan = time.monotonic()\ns = socket.socket()\n\
             print(s.connect_ex(('127.0.0.1', {PORT})) in (13, 111), time.monotonic() - began < 5)"
        );
        let result = python(&sandbox, Network::Proxy, &script).await;
        assert_eq!((result.stdout.as_str(), result.stderr.as_str()), ("True True\n", ""));
        // A holder of the other end that takes nothing.
        let _connections = sandbox.launcher.proxy_connections();
        let script = format!(
            "import socket\nends = [socket.socket() for _ in range(300)]\n\
             print([end.connect_ex(('127.0.0.1', {PORT})) for end in ends].count(111))"
        );
        let result = python(&sandbox, Network::Proxy, &script).await;
        assert_eq!((result.stdout.as_str(), result.stderr.as_str()), ("44\n", ""), "of 256 that wait");
    }
}

#[test]
fn all_of_this_holds_without_root() {
    for test in ["a_socket_is_connected_to_the_proxy_as_programs_do_it", "nothing_but_the_proxy_is_reached"] {
        support::repeat_without_root(test);
    }
}
