//! UNIX sockets of runs that see the host's directories: what they serve in the run's own ones, and that they reach nothing
//! else.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::print_stderr)]

mod support;

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use exec::{ExecResult, Isolation, LauncherConfig, Network, Tier};
use policy::command::Profile;
use support::{Sandbox, config, has, is_root, own};

/// Sandboxes whose runs have the uid of the test, and where it is root also with one of their own.
fn sandboxes() -> impl Iterator<Item = Sandbox> {
    let own_uids = if is_root() { vec![false, true] } else { vec![false] };
    own_uids.into_iter().filter_map(|own_uid| {
        let isolation = Isolation { maximum: Tier::Landlock, ..Isolation::default() };
        let config = LauncherConfig { isolation, proxy_port: Some(3128), ..config(Profile::Default) };
        let sandbox = Sandbox::with(config, own_uid)?;
        has("seccomp-notifications", sandbox.launcher.offers_proxy()).then_some(sandbox)
    })
}

async fn python(sandbox: &Sandbox, network: Network, script: &str) -> ExecResult {
    let mut spec = sandbox.spec("python3", &["-c", script]);
    spec.network = network;
    sandbox.launcher.run(spec).await.unwrap()
}

/// A script that begins with `say`, which tells how an attempt ended, and `left`, which connects until nothing listens: when the
/// service of another test starts its launcher, that process has a copy of all descriptors until its program begins.
fn attempts(script: &str) -> String {
    format!(
        "import errno, os, socket, time\n\
         def say(name, act):\n\
        \x20   try: print(name, act() or 'done')\n\
        \x20   except OSError as error: print(name, errno.errorcode.get(error.errno, error))\n\
         new = lambda: socket.socket(socket.AF_UNIX)\n\
         def bind(at): new().bind(at)\n\
         def connect(at): new().connect(at)\n\
         def left(at):\n\
        \x20   while True: connect(at); time.sleep(0.01)\n{script}"
    )
}

#[tokio::test]
async fn a_stream_works_in_the_tree_and_the_home_by_every_way_to_write_its_path() {
    for sandbox in sandboxes() {
        let script = r"
import fcntl, select
tree = os.getcwd()
os.mkdir('deep'); os.symlink('deep', 'link')
for at in ('s', './t', tree + '/u', 'deep/v', 'link/w', os.environ['HOME'] + '/x', b'bytes'):
    server, client = new(), new()
    server.bind(at); server.listen()
    assert server.getsockname() == at or not os.path.isabs(at), server.getsockname()
    # Programs look at it, as asyncio does, and hand it to others.
    assert os.stat(server.getsockname()).st_ino == os.stat(at).st_ino, server.getsockname()
    client.connect(at); end, _ = server.accept()
    client.sendall(b'word'); print(end.recv(9).decode(), end=' ')
    os.unlink(at)
    # Nothing but the two ends keeps a connection.
    client.close(); assert end.recv(1) == b''
    server.close()
server = new(); server.setblocking(False); os.set_inheritable(server.fileno(), True)
server.bind('flags'); server.listen(); server.listen(5)
print(fcntl.fcntl(server, fcntl.F_GETFD), bool(fcntl.fcntl(server, fcntl.F_GETFL) & os.O_NONBLOCK))
server.close()
say('nobody', lambda: left('flags')); say('taken', lambda: bind(tree + '/flags')); say('absent', lambda: connect('absent'))
say('slashes', lambda: (bind('/tmp//twice'), connect('/tmp//twice')));
held = os.open('deep', os.O_RDONLY); bind(f'/proc/self/fd/{held}/held'); say('held', lambda: connect('deep/held'))
say('unbound', lambda: new().listen()); say('file', lambda: connect('link'))
";
        for network in [Network::None, Network::Proxy] {
            let result = python(&sandbox, network, &attempts(script)).await;
            let expected = "word word word word word word word 0 True\n\
                            nobody ECONNREFUSED\ntaken EADDRINUSE\nabsent ENOENT\nslashes ECONNREFUSED\nheld ECONNREFUSED\nunbound EACCES\nfile ECONNREFUSED\n";
            assert_eq!((result.stdout.as_str(), result.stderr.as_str()), (expected, ""));
            for entry in ["deep", "link", "flags"] {
                let path = sandbox.tree.join(entry);
                let kind = fs::symlink_metadata(&path).unwrap().file_type();
                assert_eq!(kind.is_socket(), entry == "flags");
                if kind.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn a_program_binds_many_sockets_before_it_listens_at_the_first() {
    for sandbox in sandboxes() {
        let script = r"
import socket
new = lambda: socket.socket(socket.AF_UNIX)
servers = [new() for _ in range(60)]
for number, server in enumerate(servers): server.bind(f's{number}')
for _ in range(2):
    for server in servers: server.listen()
for number, server in enumerate(servers):
    client = new(); client.connect(f's{number}'); client.sendall(b'word')
    assert server.accept()[0].recv(9) == b'word', number
print('all')
";
        let result = python(&sandbox, Network::None, script).await;
        assert_eq!((result.stdout.as_str(), result.stderr.as_str()), ("all\n", ""));
    }
}

#[tokio::test]
async fn servers_of_the_standard_library_have_their_clients() {
    for sandbox in sandboxes() {
        let script = r"
import asyncio, multiprocessing.connection as c, os, socketserver, threading, tempfile
async def both():
    async def echo(r, w): w.write(await r.read(4)); w.close()
    server = await asyncio.start_unix_server(echo, 'a')
    r, w = await asyncio.open_unix_connection('a')
    w.write(b'echo'); print((await r.read()).decode())
    server.close()
asyncio.run(both())
with c.Listener(family='AF_UNIX') as listener:
    threading.Thread(target=lambda: c.Client(listener.address).send('sent')).start()
    print(listener.accept().recv())
import multiprocessing as m
with m.Manager() as manager:
    shared = manager.dict(); shared['a'] = 1; print(dict(shared))
# What programs keep in /tmp and /var/tmp is in the run's own directory, and what they leave there does not stop the next.
import socket, time
def bind(server, path):
    # A launcher that another test starts at this moment likely has a copy of the socket before until it executes its program.
    for _ in range(50):
        try: return server.bind(path)
        except OSError as error:
            if error.errno != 98: raise
            time.sleep(0.02)
for directory in ['/tmp', '/tmp', '/var/tmp']:
    server, client = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    path = directory + '/OSL_PIPE_of_the_run'
    bind(server, path); server.listen(); client.connect(path)
    client.send(b'x'); print(server.accept()[0].recv(9).decode(), os.path.exists(os.environ['TMPDIR'] + '/OSL_PIPE_of_the_run'))
    server.close()
";
        let result = python(&sandbox, Network::None, script).await;
        let expected = "echo\nsent\n{'a': 1}\n".to_owned() + &"x True\n".repeat(3);
        assert_eq!((result.stdout.as_str(), result.stderr.as_str()), (expected.as_str(), ""));
        assert!(
            !fs::exists("/tmp/OSL_PIPE_of_the_run").unwrap()
                && !fs::exists("/var/tmp/OSL_PIPE_of_the_run").unwrap()
        );
    }
}

#[tokio::test]
async fn a_client_waits_for_room_and_holds_up_nothing_else() {
    for sandbox in sandboxes() {
        let script = r"
import os, socket, threading, time
new = lambda: socket.socket(socket.AF_UNIX)
server = new(); server.bind('s'); server.listen(0)
clients = [new() for _ in range(9)]
threads = [threading.Thread(target=client.connect, args=('s',)) for client in clients]
for thread in threads: thread.start()
time.sleep(0.3)
print('waits', any(thread.is_alive() for thread in threads))
hasty = new(); hasty.setblocking(False); print('hasty', hasty.connect_ex('s') == 11)
os.chmod('s', 0o700); print('other calls', os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)[1])
ends = [server.accept()[0] for _ in clients]
for thread in threads: thread.join()
for client in clients: client.sendall(b'y')
print(sum(end.recv(1) == b'y' for end in ends))
";
        let result = python(&sandbox, Network::None, script).await;
        let expected = "waits True\nhasty True\nother calls 0\n9\n";
        assert_eq!((result.stdout.as_str(), result.stderr.as_str()), (expected, ""));
    }
}

#[tokio::test]
async fn the_next_run_reaches_a_server_of_the_same_directories() {
    for sandbox in sandboxes() {
        let server = "import os, socket\n\
            s = socket.socket(socket.AF_UNIX); s.bind('s'); s.listen()\n\
            open('ready', 'w').close()\n\
            end = s.accept()[0]; print(end.recv(9).decode()); end.send(b'back')";
        let (launcher, spec) = (sandbox.launcher.clone(), sandbox.spec("python3", &["-c", server]));
        let server = tokio::spawn(async move { launcher.run(spec).await.unwrap() });
        let begun = Instant::now();
        while !fs::exists(sandbox.tree.join("ready")).unwrap() {
            assert!(begun.elapsed() < Duration::from_secs(20) && !server.is_finished(), "{:?}", server.await);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let client = "import socket\ns = socket.socket(socket.AF_UNIX); s.connect('s'); s.send(b'there'); print(s.recv(9).decode())";
        let client = python(&sandbox, Network::Proxy, client).await;
        assert_eq!(client.stdout, "back\n", "{client:?}");
        assert_eq!(server.await.unwrap().stdout, "there\n");
    }
}

#[tokio::test]
async fn nothing_outside_the_own_directories_is_named_or_reached() {
    for sandbox in sandboxes() {
        // Everybody may write to both, so that only the walls keep a run from it.
        let outside = sandbox.outside();
        fs::set_permissions(&outside, fs::Permissions::from_mode(0o777)).unwrap();
        let path = outside.join("listener");
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        own(&path, sandbox.view.owner);
        symlink(&path, sandbox.tree.join("to-listener")).unwrap();
        symlink(&outside, sandbox.tree.join("to-outside")).unwrap();
        symlink("/tmp", sandbox.tree.join("to-tmp")).unwrap();
        let (at, directory) = (path.display(), outside.display());
        let script = format!(
            r"
fd = os.open('.', os.O_RDONLY)
for at in ('{at}', 'to-listener', 'to-outside/listener', '../outside/listener', '/proc/self/cwd/to-listener', f'/proc/self/fd/{{fd}}/to-listener',
           '{directory}/./listener', '/proc/1/root{at}'):
    say('connect', lambda: connect(at))
for at in ('{directory}/new', 'to-outside/new', '../outside/new', '/proc/self/cwd/../outside/new', '../new', '/new', '/dev/shm/new',
           '/tmp/../../../../../../../..{directory}/new', 'to-tmp/new'):
    say('bind', lambda: bind(at))
# The caller has none of these descriptors, and the service has some of them.
os.close(fd)
for number in range(3, 200):
    for act in (bind, connect):
        try: act(f'/proc/self/fd/{{number}}/x')
        except OSError as error: assert error.errno in (errno.ENOENT, errno.EACCES, errno.EBADF), (number, error)
        else: print('through', number)
say('abstract', lambda: bind('\0name')); say('unnamed', lambda: bind('')); say('to abstract', lambda: connect('\0name'))
for kind in (socket.SOCK_DGRAM, socket.SOCK_SEQPACKET, socket.SOCK_RAW):
    say('kind', lambda: socket.socket(socket.AF_UNIX, kind))
import fcntl
one, other = socket.socketpair()
say('interfaces', lambda: fcntl.ioctl(one, 0x8912, bytes(16)))
say('not a socket', lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, os.open('.', os.O_RDONLY)).connect('s'))
"
        );
        for network in [Network::None, Network::Proxy] {
            let result = python(&sandbox, network, &attempts(&script)).await;
            let lines: Vec<&str> = result.stdout.lines().collect();
            assert_eq!(lines.len(), 8 + 9 + 3 + 3 + 2, "{result:?}");
            assert!(lines.iter().all(|line| !line.ends_with("done")), "{lines:#?}");
            assert!(listener.accept().is_err(), "{lines:#?}");
        }
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 2);
        for place in ["/tmp/new", "/dev/shm/new", "/new"] {
            assert!(!fs::exists(place).unwrap(), "{place}");
        }
    }
}

#[tokio::test]
async fn a_temporary_directory_of_the_callers_choice_tells_nothing_of_what_is_there() {
    for sandbox in sandboxes() {
        let outside = sandbox.outside();
        let script = attempts(
            "for at in ('/tmp/secret', '/tmp/absent'): say('bind', lambda: bind(at)); say('connect', lambda: connect(at))",
        );
        let mut spec = sandbox.spec("python3", &["-c", &script]);
        spec.environment.retain(|(name, _)| name != "TMPDIR");
        spec.environment.push(("TMPDIR".to_owned(), outside.display().to_string()));
        let result = sandbox.launcher.run(spec).await.unwrap();
        let told: Vec<&str> = result.stdout.lines().filter(|line| line.starts_with("bind")).collect();
        assert_eq!(told, ["bind EACCES"; 2], "{result:?}");
        assert!(!result.stdout.contains("done"), "{result:?}");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    }
}

#[tokio::test]
async fn a_path_that_changes_while_it_is_judged_leads_nowhere_else() {
    for sandbox in sandboxes() {
        let outside = sandbox.outside();
        let path = outside.join("listener");
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        for open in [&outside, &path] {
            fs::set_permissions(open, fs::Permissions::from_mode(0o777)).unwrap();
        }
        let script = format!(
            r"
import os, socket, threading
outside = '{}'
os.mkdir('real'); os.symlink(outside, 'other')
server = socket.socket(socket.AF_UNIX); server.bind('real/listener'); server.listen(4096)
os.rename('real', 'a'); os.symlink('a', 'way')
enough = threading.Event()
def swap():
    n = 0
    while not enough.is_set():
        os.symlink('other' if n % 2 else 'a', f'n{{n}}'); os.rename(f'n{{n}}', 'way'); n += 1
threading.Thread(target=swap).start()
made = refused = 0
while not (made and refused and made + refused > 1000):
    s = socket.socket(socket.AF_UNIX); s.setblocking(False)
    for act in (lambda: s.connect('way/listener'), lambda: socket.socket(socket.AF_UNIX).bind(f'way/new{{made}}')):
        try: act(); made += 1
        except OSError: refused += 1
enough.set()
print('both')
",
            outside.display()
        );
        let result = python(&sandbox, Network::None, &script).await;
        assert_eq!((result.stdout.as_str(), result.stderr.as_str()), ("both\n", ""), "{result:?}");
        assert!(listener.accept().is_err());
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 2);
    }
}

#[test]
fn all_of_this_holds_without_root() {
    support::repeat_without_root("the_next_run_reaches_a_server_of_the_same_directories");
}
