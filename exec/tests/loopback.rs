//! TCP of runs that share the network of the host: servers and clients of one user and agent find each other, and nothing
//! else.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::print_stderr)]

mod support;

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::time::{Duration, Instant};

use exec::{ExecResult, Isolation, LauncherConfig, Network, NetworkOwner, RunSpec, Tier};
use policy::command::Profile;
use policy::{AgentId, UserId};
use support::{Sandbox, config, has, is_root};
use tokio::task::JoinHandle;

const PROXY_PORT: u16 = 3128;

/// Sandboxes whose runs have the uid of the test, and where it is root also with one of their own.
fn sandboxes() -> impl Iterator<Item = Sandbox> {
    let own_uids = if is_root() { vec![false, true] } else { vec![false] };
    own_uids.into_iter().filter_map(|own_uid| {
        let isolation = Isolation { maximum: Tier::Landlock, ..Isolation::default() };
        let config = LauncherConfig { isolation, proxy_port: Some(PROXY_PORT), ..config(Profile::Default) };
        let sandbox = Sandbox::with(config, own_uid)?;
        has("seccomp-notifications", sandbox.launcher.offers_proxy()).then_some(sandbox)
    })
}

fn owner(user: &str, agent: &str) -> Option<NetworkOwner> {
    Some(NetworkOwner { user: UserId::parse(user).unwrap(), agent: AgentId::parse(agent).unwrap() })
}

fn spec(sandbox: &Sandbox, of: Option<NetworkOwner>, network: Network, script: &str) -> RunSpec {
    let timeout = Duration::from_secs(60);
    RunSpec { network_of: of, network, timeout, ..sandbox.spec("python3", &["-c", script]) }
}

async fn python(sandbox: &Sandbox, network: Network, script: &str) -> ExecResult {
    sandbox.launcher.run(spec(sandbox, owner("u", "a"), network, script)).await.unwrap()
}

/// Asserts what a script of a run with either network says.
async fn says(sandbox: &Sandbox, script: &str, expected: &str) {
    for network in [Network::None, Network::Proxy] {
        let result = python(sandbox, network, script).await;
        assert_eq!(
            (result.stdout.as_str(), result.stderr.as_str()),
            (expected, ""),
            "{network:?}: {result:?}"
        );
    }
}

/// A script that begins with `say`, which tells how an attempt ended, and `left`, which connects until nothing listens: when the
/// service of another test starts its launcher, that process has a copy of all descriptors until its program begins.
fn attempts(script: &str) -> String {
    format!(
        "import errno, os, socket, time\n\
         def say(name, act):\n\
        \x20   try: print(name, act() or 'done')\n\
        \x20   except OSError as error: print(name, errno.errorcode.get(error.errno, error))\n\
         v4, v6 = socket.AF_INET, socket.AF_INET6\n\
         new = lambda family=v4: socket.socket(family)\n\
         def bind(at, port=0, family=v4): s = new(family); s.bind((at, port)); return s\n\
         def serve(at, port=0, family=v4): s = bind(at, port, family); s.listen(); return s\n\
         def connect(at, port, family=v4): s = new(family); s.settimeout(10); s.connect((at, port)); return s\n\
         def left(at, port):\n\
        \x20   while True: connect(at, port).close(); time.sleep(0.01)\n{script}"
    )
}

/// Starts a server in the background, and waits until it has written its port and its address to the file `ready`.
async fn serve(
    sandbox: &Sandbox,
    of: Option<NetworkOwner>,
    network: Network,
) -> (JoinHandle<ExecResult>, u16, Ipv4Addr) {
    let script = "import os, socket\n\
        s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()\n\
        open('half', 'w').write('%s %s' % s.getsockname()); os.rename('half', 'ready')\n\
        while True: s.accept()[0].send(b'served')";
    let _ = std::fs::remove_file(sandbox.tree.join("ready"));
    let (launcher, spec) = (sandbox.launcher.clone(), spec(sandbox, of, network, script));
    let server = tokio::spawn(async move { launcher.run(spec).await.unwrap() });
    let begun = Instant::now();
    loop {
        if let Ok(ready) = std::fs::read_to_string(sandbox.tree.join("ready")) {
            let (address, port) = ready.split_once(' ').unwrap();
            return (server, port.parse().unwrap(), address.parse().unwrap());
        }
        assert!(begun.elapsed() < Duration::from_secs(20) && !server.is_finished(), "{:?}", server.await);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_server_and_its_client_in_one_run_find_each_other_by_every_name_of_the_machine() {
    for sandbox in sandboxes() {
        let script = attempts(
            r"
for at, family in (('127.0.0.1', v4), ('0.0.0.0', v4), ('', v4), ('localhost', v4), ('::1', v6), ('::', v6), ('::ffff:127.0.0.1', v6)):
    server = serve(at, 0, family)
    port = server.getsockname()[1]
    assert server.getsockname()[0].removeprefix('::ffff:').startswith('127.'), server.getsockname()
    for to, by in (('127.0.0.1', v4), ('0.0.0.0', v4), ('localhost', v4), ('::1', v6), ('::', v6), ('::ffff:127.0.0.1', v6), (server.getsockname()[0], family)):
        client = connect(to, port, by); end, peer = server.accept()
        assert (peer[0], client.family, end.family) == (server.getsockname()[0], by, family) or by != family, (peer, client, end)
        client.sendall(b'there'); end.sendall(b'back')
        assert (end.recv(9), client.recv(9)) == (b'there', b'back')
        client.close(); assert end.recv(1) == b''
    server.close()
    say(at, lambda: left('127.0.0.1', port))
unbound = new(); unbound.listen(); connect('127.0.0.1', unbound.getsockname()[1]); print('unbound', unbound.accept()[0].send(b'x'))
",
        );
        let refused: String = ["127.0.0.1", "0.0.0.0", "", "localhost", "::1", "::", "::ffff:127.0.0.1"]
            .map(|at| format!("{at} ECONNREFUSED\n"))
            .concat();
        says(&sandbox, &script, &(refused + "unbound 1\n")).await;
    }
}

#[tokio::test]
async fn servers_as_people_start_them_have_their_clients() {
    for sandbox in sandboxes() {
        sandbox.file("page", "the page");
        let script = r"
import asyncio, subprocess, sys, time, urllib.request
import http.server, threading, socketserver, xmlrpc.server, xmlrpc.client, multiprocessing.connection as c
server = subprocess.Popen([sys.executable, '-m', 'http.server', '8000'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
until = time.time() + 20
while True:
    try: print(urllib.request.urlopen('http://localhost:8000/page').read().decode()); break
    except OSError as error:
        assert time.time() < until, error
        time.sleep(0.05)
print(subprocess.run(['curl', '-sS', '--noproxy', '*', 'http://127.0.0.1:8000/page'], capture_output=True, text=True).stdout)
server.kill(); server.wait()
# The same port at once again, although its connections are not over.
with http.server.ThreadingHTTPServer(('', 8000), http.server.SimpleHTTPRequestHandler) as again: print(again.server_address[1])
async def both():
    async def echo(r, w): w.write(await r.read(4)); w.close()
    # Two sockets at one port: of `::1` and of `127.0.0.1`, or of all addresses.
    for host in ('localhost', None):
        async with await asyncio.start_server(echo, host, 8001):
            r, w = await asyncio.open_connection('localhost', 8001)
            w.write(b'echo'); print((await r.read()).decode())
            results = await asyncio.gather(*(asyncio.open_connection('127.0.0.1', 8001) for _ in range(20)))
            print(len(results)); [w.close() for _, w in results]
asyncio.run(both())
rpc = xmlrpc.server.SimpleXMLRPCServer(('localhost', 0), logRequests=False); rpc.register_function(pow)
threading.Thread(target=rpc.handle_request).start()
print(xmlrpc.client.ServerProxy('http://localhost:%d' % rpc.server_address[1]).pow(2, 5)); rpc.server_close()
with c.Listener(('localhost', 0)) as listener:
    threading.Thread(target=lambda: c.Client(listener.address).send('sent')).start(); print(listener.accept().recv())
";
        let expected = "the page\nthe page\n8000\necho\n20\necho\n20\n32\nsent\n";
        let curl = std::process::Command::new("curl").arg("--version").output().is_ok();
        if !has("curl", curl) {
            continue;
        }
        for network in [Network::None, Network::Proxy] {
            let result = python(&sandbox, network, script).await;
            assert_eq!((result.stdout.as_str(), result.stderr.as_str()), (expected, ""), "{network:?}");
        }
    }
}

#[tokio::test]
async fn a_server_of_node_has_its_clients() {
    for sandbox in sandboxes() {
        let script = r"
const http = require('http'), net = require('net');
const server = http.createServer((request, response) => response.end('node'));
server.listen(0, () => http.get({ port: server.address().port, host: 'localhost' }, response => {
    response.on('data', data => console.log(data.toString()));
    response.on('end', () => {
        const port = server.address().port;
        // As in `left`.
        const again = () => net.connect(port, '127.0.0.1', function () { this.destroy(); setTimeout(again, 10); })
            .on('error', error => console.log(error.code));
        server.close(again);
    });
}));
";
        if !has("node", sandbox.launcher.programs().file("node").is_ok()) {
            continue;
        }
        let result = sandbox.run("node", &["-e", script]).await;
        assert_eq!(
            (result.stdout.as_str(), result.stderr.as_str()),
            ("node\nECONNREFUSED\n", ""),
            "{result:?}"
        );
    }
}

#[tokio::test]
async fn the_next_run_of_a_user_and_agent_reaches_a_server_and_that_of_another_does_not() {
    for sandbox in sandboxes() {
        let (server, port, address) = serve(&sandbox, owner("u", "a"), Network::Proxy).await;
        let own =
            format!("import socket\nprint(socket.create_connection(('localhost', {port})).recv(9).decode())");
        let client = python(&sandbox, Network::Proxy, &own).await;
        assert_eq!(client.stdout, "served\n", "{client:?}");
        let script = attempts(&format!(
            "for at, family in (('127.0.0.1', v4), ('0.0.0.0', v4), ('localhost', v4), ('{address}', v4), ('::1', v6), ('::', v6), \
             ('::ffff:127.0.0.1', v6), ('::ffff:{address}', v6), ('::{address}', v6), ('64:ff9b::{address}', v6)):\n\
             \x20   say(at, lambda: connect(at, {port}, family))\n\
             say('bind', lambda: bind('{address}', {port})); say('bind', lambda: bind('::ffff:{address}', 0, v6))\n"
        ));
        for (of, network) in [
            (owner("v", "a"), Network::Proxy),
            (owner("u", "b"), Network::Proxy),
            (owner("u", "a"), Network::None),
            (None, Network::None),
        ] {
            let run = spec(&sandbox, of.clone(), network, &script);
            let result = sandbox.launcher.run(run).await.unwrap();
            let lines: Vec<&str> = result.stdout.lines().collect();
            assert_eq!(lines.len(), 12, "{result:?}");
            for line in lines {
                let is_refused =
                    ["ECONNREFUSED", "ENETUNREACH", "EADDRNOTAVAIL"].iter().any(|end| line.ends_with(end));
                assert!(is_refused, "{of:?} {network:?}: {line}");
            }
        }
        server.abort();
    }
}

#[tokio::test]
async fn nothing_of_the_host_is_reached_or_taken() {
    for sandbox in sandboxes() {
        // On all addresses, so that this machine answers at the addresses of runs as well.
        let all = TcpListener::bind("0.0.0.0:0").unwrap();
        let one = TcpListener::bind("127.0.0.1:0").unwrap();
        let six = TcpListener::bind("[::]:0").ok();
        let listeners: Vec<&TcpListener> = [&all, &one].into_iter().chain(six.as_ref()).collect();
        let ports: Vec<u16> =
            listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
        for listener in &listeners {
            listener.set_nonblocking(true).unwrap();
        }
        let script = attempts(&format!(
            r"
own = serve('127.0.0.1').getsockname()[0]
for port in {ports:?}:
    for at, family in (('127.0.0.1', v4), ('0.0.0.0', v4), ('localhost', v4), (own, v4), ('127.0.0.2', v4), ('::1', v6), ('::', v6),
                       ('::ffff:127.0.0.1', v6), ('::ffff:' + own, v6), ('10.0.0.1', v4), ('2001:db8::1', v6)):
        say('connect', lambda: connect(at, port, family))
        s = new(family); s.setblocking(False); say('hasty', lambda: s.connect((at, port)))
    # On all addresses the host listens here already.
    if port != {one}: say('bind', lambda: bind('127.0.0.1', port)); say('bind', lambda: bind('0.0.0.0', port))
for at, family in (('10.0.0.1', v4), ('127.0.0.2', v4), ('255.255.255.255', v4), ('2001:db8::1', v6), ('fe80::1', v6)):
    say('bind', lambda: bind(at, 8000, family))
say('low', lambda: bind('127.0.0.1', 80)); say('low', lambda: bind('::', 1023, v6))
for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET, socket.SOCK_RDM):
    say('kind', lambda: socket.socket(v4, kind)); say('kind', lambda: socket.socket(v6, kind))
for protocol in (132, 262, 17, 255): say('protocol', lambda: socket.socket(v4, socket.SOCK_STREAM, protocol))
",
            one = ports[1],
        ));
        for network in [Network::None, Network::Proxy] {
            let result = python(&sandbox, network, &script).await;
            let lines: Vec<&str> = result.stdout.lines().collect();
            assert_eq!(
                lines.len(),
                listeners.len() * 22 + (listeners.len() - 1) * 2 + 5 + 2 + 8 + 4,
                "{result:?}"
            );
            assert!(lines.iter().all(|line| !line.ends_with("done") && !line.ends_with('>')), "{lines:#?}");
            for listener in &listeners {
                assert!(listener.accept().is_err(), "{lines:#?}");
            }
        }
    }
}

#[tokio::test]
async fn a_socket_that_the_service_made_leads_nowhere_else() {
    for sandbox in sandboxes() {
        let host = TcpListener::bind("0.0.0.0:0").unwrap();
        host.set_nonblocking(true).unwrap();
        let port = host.local_addr().unwrap().port();
        let script = attempts(&format!(
            r"
import struct, ctypes
libc = ctypes.CDLL(None, use_errno=True)
def raw(call, *arguments):
    if getattr(libc, call)(*arguments) < 0: raise OSError(ctypes.get_errno(), call)
host = struct.pack('=HH4s8x', 2, socket.htons({port}), socket.inet_aton('127.0.0.1'))
server = serve('127.0.0.1', 8000); client = connect('127.0.0.1', 8000); end = server.accept()[0]
bound = bind('127.0.0.1', 8001)
for name, one in (('server', server), ('client', client), ('end', end), ('bound', bound), ('new', new())):
    fd = one.fileno()
    say(name + ' unspecified', lambda: raw('connect', fd, struct.pack('=H14x', 0), 16))
    if name not in ('client', 'end'): say(name + ' sendto', lambda: one.sendto(b'x', socket.MSG_NOSIGNAL, ('127.0.0.1', {port})))
    say(name + ' fastopen', lambda: one.sendto(b'x', 0x20000000, ('127.0.0.1', {port})))
    say(name + ' fastopen', lambda: one.sendmsg([b'x'], [], 0x20000000, ('127.0.0.1', {port})))
    for level, option, value in ((1, 25, b'lo'), (1, 62, struct.pack('i', 1)), (0, 19, 1), (6, 19, 1), (1, 36, 7), (0, 4, bytes([131, 7, 4, 127, 0, 0, 1, 0])),
                                 (0, 35, socket.inet_aton('224.0.0.9') + bytes(4)), (0, 42, bytes(136)), (41, 20, bytes(20)), (41, 42, bytes(136))):
        say(f'{{name}} {{level}} {{option}}', lambda: one.setsockopt(level, option, value))
say('again', lambda: server.bind(('127.0.0.1', 8002))); say('again', lambda: bound.bind(('127.0.0.1', 8002)))
say('again', lambda: client.bind(('127.0.0.1', 8002))); say('again', lambda: client.connect(('127.0.0.1', 8000)))
say('again', lambda: client.listen()); say('again', lambda: server.connect(('127.0.0.1', 8000)))
say('family', lambda: raw('bind', new(v6).fileno(), host, 16)); say('family', lambda: raw('bind', new(socket.AF_UNIX).fileno(), host, 16))
say('short', lambda: raw('bind', new().fileno(), host, 7)); say('none', lambda: raw('bind', new().fileno(), None, 16))
say('no socket', lambda: raw('bind', os.open('.', os.O_RDONLY), host, 16)); say('closed', lambda: raw('listen', 999, 1))
# A server that stops to listen never begins again.
server.shutdown(socket.SHUT_RDWR); server.listen()
say('shut', lambda: connect('127.0.0.1', 8000))
"
        ));
        for network in [Network::None, Network::Proxy] {
            let result = python(&sandbox, network, &script).await;
            let lines: Vec<&str> = result.stdout.lines().collect();
            assert_eq!((lines.len(), result.stderr.as_str()), (5 * 13 + 3 + 6 + 6 + 1, ""), "{result:?}");
            assert!(lines.iter().all(|line| !line.ends_with("done")), "{lines:#?}");
            assert!(host.accept().is_err(), "{lines:#?}");
        }
    }
}

#[tokio::test]
async fn a_client_waits_for_room_and_holds_up_nothing_else() {
    for sandbox in sandboxes() {
        let script = r"
import errno, os, socket, threading, time
server = socket.socket(); server.bind(('127.0.0.1', 8000)); server.listen(0)
clients = [socket.socket() for _ in range(5)]
# What a client sends tells the kernel again that the connection is made, where it had no room for it.
def speak(client): client.connect(('127.0.0.1', 8000)); client.sendall(b'y')
threads = [threading.Thread(target=speak, args=(client,)) for client in clients]
for thread in threads: thread.start()
time.sleep(0.3)
print('waits', any(thread.is_alive() for thread in threads))
begun = time.time()
os.chmod('.', 0o700); print('other calls', os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)[1], time.time() - begun < 1)
hasty = socket.socket(); hasty.setblocking(False); begun = time.time()
print('hasty', errno.errorcode[hasty.connect_ex(('127.0.0.1', 8000))], time.time() - begun < 5)
ends = [server.accept()[0] for _ in clients]
for thread in threads: thread.join()
print(sum(end.recv(1) == b'y' for end in ends))
";
        let result = python(&sandbox, Network::None, script).await;
        let expected = "waits True\nother calls 0 True\nhasty ETIMEDOUT True\n5\n";
        assert_eq!((result.stdout.as_str(), result.stderr.as_str()), (expected, ""));
    }
}

#[tokio::test]
async fn a_run_has_many_sockets_and_not_without_end() {
    for sandbox in sandboxes() {
        let script = r"
import errno, socket, time
# All of them bound before the first one listens.
servers = [socket.socket() for _ in range(64)]
for server in servers: server.bind(('127.0.0.1', 0)); server.setblocking(False)
for server in servers: server.listen()
for server in servers:
    client = socket.create_connection(server.getsockname()); client.send(b'x'); assert server.accept()[0].recv(1) == b'x'
print(len({server.getsockname()[1] for server in servers}))
# Sockets that are bound and closed again take nothing from those that come later.
for _ in range(200):
    probe = socket.socket(); probe.bind(('', 0)); port = probe.getsockname()[1]; probe.close()
    server = socket.socket(); server.bind(('', port)); server.listen(); server.close()
print('found free ports')
held = []
try:
    while len(held) < 1000: s = socket.socket(); held.append(s); s.listen()
except OSError as error: print(errno.errorcode[error.errno], 100 < len(held) < 256)
for s in held: s.close()
s = socket.socket(); s.listen(); print('room again')
begun = time.time()
for _ in range(100): s.close(); s = socket.socket(); s.bind(('', 8000)); s.listen(); c = socket.create_connection(('localhost', 8000)); c.close()
print(0 < time.time() - begun < 30)
";
        says(&sandbox, script, "64\nfound free ports\nENOBUFS True\nroom again\nTrue\n").await;
    }
}

#[tokio::test]
async fn ports_are_found_with_their_runs_and_reached_from_outside() {
    for sandbox in sandboxes() {
        let (of, launcher) = (owner("u", "a").unwrap(), &sandbox.launcher);
        assert!(launcher.require_ports().is_ok());
        assert!(launcher.listening(&of).unwrap().is_empty());
        let (server, port, _) = serve(&sandbox, Some(of.clone()), Network::None).await;
        let listed = launcher.listening(&of).unwrap();
        let facts: Vec<_> =
            listed.iter().map(|one| (one.port, one.protocol, one.address, one.network)).collect();
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        assert_eq!(facts, [(port, exec::Protocol::Tcp, here, Network::None)]);
        let holder = listed[0].holder.as_ref().unwrap();
        assert_eq!(holder.program, "python3");
        let exec::RunNumber::ProcessGroup(group) = holder.run else { panic!("{holder:?}") };
        let about = std::fs::read_to_string(format!("/proc/{group}/cmdline")).unwrap();
        assert!(about.contains("s.accept()"), "{about}");
        let mut said = String::new();
        let mut stream = launcher.connect(&of, port).await.unwrap().into_std().unwrap();
        stream.set_nonblocking(false).unwrap();
        stream.read_to_string(&mut said).unwrap();
        assert_eq!(said, "served");
        // The host's, on all addresses and on one, and those of others.
        let hosts =
            [TcpListener::bind("0.0.0.0:0").unwrap(), TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).unwrap()];
        for host in hosts.iter().map(|host| host.local_addr().unwrap().port()).chain([PROXY_PORT]) {
            let refused = launcher.connect(&of, host).await.unwrap_err();
            assert!(matches!(refused, exec::Error::NothingListens { .. }), "{host}: {refused:?}");
        }
        for other in [owner("u", "b").unwrap(), owner("v", "a").unwrap()] {
            assert!(launcher.listening(&other).unwrap().is_empty());
            let refused = launcher.connect(&other, port).await.unwrap_err();
            assert!(matches!(refused, exec::Error::NothingListens { .. }), "{refused:?}");
        }
        server.abort();
        let begun = Instant::now();
        while !launcher.listening(&of).unwrap().is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(10), "the port outlives its run");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(launcher.connect(&of, port).await.is_err());
    }
}

#[test]
fn all_of_this_holds_without_root() {
    support::repeat_without_root(
        "the_next_run_of_a_user_and_agent_reaches_a_server_and_that_of_another_does_not",
    );
}
