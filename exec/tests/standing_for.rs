//! What runs that see the host's directories find for parts of them: lists of their own processes in `/proc`, files of their
//! own in `/dev/shm`, and their user's name; and that they reach nothing else by these ways.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::print_stderr)]

mod support;

use std::fs;
use std::os::unix::fs::MetadataExt;

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

/// Runs a script that has `say`, which tells how an attempt ended.
async fn python(sandbox: &Sandbox, script: &str) -> ExecResult {
    let script = format!(
        "import errno, os\n\
         def say(name, act):\n\
        \x20   try: print(name, act() or 'done')\n\
        \x20   except OSError as error: print(name, errno.errorcode.get(error.errno, error))\n{script}"
    );
    let mut spec = sandbox.spec("python3", &["-c", &script]);
    spec.network = Network::Proxy;
    sandbox.launcher.run(spec).await.unwrap()
}

fn said(result: &ExecResult) -> (&str, &str) {
    (result.stdout.as_str(), result.stderr.as_str())
}

#[tokio::test]
async fn a_process_lists_the_open_files_and_the_threads_of_its_own_run() {
    for sandbox in sandboxes() {
        let script = r"
import subprocess, threading
own = os.open('.', os.O_RDONLY)
def listed(at, **more): return set(os.listdir(os.open(at, os.O_DIRECTORY, **more)))
for at in '/proc/self/fd', '/proc/thread-self/fd/', f'/proc/{os.getpid()}/fd', '/dev/fd', b'/proc//self/fdinfo':
    assert {'0', '1', '2', str(own)} <= listed(at), at
assert os.readlink(f'/proc/self/fd/{own}') == os.getcwd()
gate = threading.Event(); thread = threading.Thread(target=gate.wait); thread.start()
assert listed('/proc/self/task') == {str(os.getpid()), str(thread.native_id)}
gate.set(); thread.join()
child = subprocess.Popen(['cat'], stdin=subprocess.PIPE)
assert len(listed(f'/proc/{child.pid}/fd')) >= 3
# As browsers do: a place first, and the list below it.
place = os.open('/proc/', os.O_RDONLY | os.O_DIRECTORY)
assert str(own) in listed('self/fd/', dir_fd=place)
# Two, and one for each thread: the kernel may not have ended the one that Python has.
print(os.listdir(place), os.stat('self/task', dir_fd=place).st_nlink in (3, 4))
child.stdin.close(); child.wait()
say('ended', lambda: listed(f'/proc/{child.pid}/fd'))
assert str(own) in os.listdir('/proc/self/fd')
";
        let expected = "['self'] True\nended ENOENT\n";
        assert_eq!(said(&python(&sandbox, script).await), (expected, ""));
    }
}

#[tokio::test]
async fn a_process_reads_of_its_own_run_how_it_is() {
    for sandbox in sandboxes() {
        let script = r"
import ctypes, subprocess, threading
libc = ctypes.CDLL(None, use_errno=True)
def open_so(at, flags):
    fd = libc.open(at.encode(), flags)
    if fd < 0: raise OSError(ctypes.get_errno(), at)
    return fd
def read(at):
    text = os.read(open_so(at, 0), 9999).decode()
    with open(at) as file: assert file.readline() and not os.get_inheritable(file.fileno())
    return text
assert f'Pid:\t{os.getpid()}\n' in read('/proc/self/status')
assert read(f'/proc/{os.getpid()}/stat').startswith(f'{os.getpid()} (python3')
def other():
    # Of the process, also to a thread that is not its first.
    assert read('/proc/self/stat').startswith(f'{os.getpid()} ('); print('thread')
thread = threading.Thread(target=other); thread.start(); thread.join()
print(read('/proc/self/cmdline').split('\0')[0], os.path.basename(read('/proc/self/maps').split()[5])[:6])
child = subprocess.Popen(['cat'], stdin=subprocess.PIPE)
print(read(f'/proc/{child.pid}/comm').strip())
child.stdin.close(); child.wait()
for at in '/proc/self/environ', '/proc/self/mountinfo', '/proc/self/mem', '/proc/1/status', '/proc/PARENT/stat', '/proc/PARENT/cmdline':
    say(at, lambda: read(at.replace('PARENT', str(os.getppid()))))
say('writing', lambda: open_so('/proc/self/comm', os.O_WRONLY))
";
        let expected = "thread\npython3 python\ncat\n/proc/self/environ EACCES\n/proc/self/mountinfo EACCES\n\
                        /proc/self/mem EACCES\n/proc/1/status EACCES\n/proc/PARENT/stat EACCES\n\
                        /proc/PARENT/cmdline EACCES\nwriting EACCES\n";
        let result = python(&sandbox, script).await;
        assert_eq!(said(&result), (expected, ""));
    }
}

#[tokio::test]
async fn lists_open_nothing_of_other_processes_and_nothing_beneath_them() {
    for sandbox in sandboxes() {
        let other = std::process::id();
        let script = format!(
            r"
say('/proc', lambda: os.listdir('/proc'))
for at in '/proc/1/fd', '/proc/{other}/fd', '/proc/{other}/task', '/proc/self/ns', '/proc/self/fd/../../{other}/fd':
    say(at.replace('{other}', 'N'), lambda: os.listdir(os.open(at, os.O_DIRECTORY)))
fd = os.open('/proc/self/fd', os.O_RDONLY | os.O_DIRECTORY)
for at in '../environ', '../maps', '../../{other}/environ', '../../{other}/status':
    say(at.replace('{other}', 'N'), lambda: os.open(at, os.O_RDONLY, dir_fd=fd))
say('listing', lambda: os.open('../../{other}/fd', os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd))
place = os.open('/proc/', os.O_RDONLY | os.O_DIRECTORY)
say('below', lambda: os.open('{other}/fd', os.O_RDONLY | os.O_DIRECTORY, dir_fd=place))
say('directory', lambda: os.open('/etc/ssl/private', os.O_RDONLY | os.O_DIRECTORY))
"
        );
        let refused = |what: &str| format!("{what} EACCES\n");
        let expected = [
            "/proc",
            "/proc/1/fd",
            "/proc/N/fd",
            "/proc/N/task",
            "/proc/self/ns",
            "/proc/self/fd/../../N/fd",
            "../environ",
            "../maps",
            "../../N/environ",
            "../../N/status",
            "listing",
        ]
        .map(refused)
        .concat()
            + "below ENOENT\n";
        let result = python(&sandbox, &script).await;
        let (stdout, stderr) = said(&result);
        assert_eq!((&stdout[..expected.len().min(stdout.len())], stderr), (expected.as_str(), ""));
        assert!(stdout.ends_with("directory EACCES\n") || stdout.ends_with("directory ENOENT\n"), "{stdout}");
    }
}

#[tokio::test]
async fn named_semaphores_and_shared_memory_are_the_runs_own() {
    for sandbox in sandboxes() {
        let script = r"
import multiprocessing, multiprocessing.shared_memory as shm
with multiprocessing.Pool(2) as pool: print(pool.map(abs, [-1, -2, 3]))
queue = multiprocessing.get_context('spawn').Queue(); queue.put('word'); print(queue.get())
one = shm.SharedMemory(create=True, size=8); one.buf[0] = 42
other = shm.SharedMemory(one.name); print(other.buf[0], oct(os.fstat(one._fd).st_mode), os.path.exists(os.environ['TMPDIR'] + '/shm-' + one.name))
say('twice', lambda: shm.SharedMemory(one.name, create=True, size=8))
other.close(); one.close(); one.unlink()
say('gone', lambda: shm.SharedMemory(one.name))
";
        let expected = "[1, 2, 3]\nword\n42 0o100600 True\ntwice EEXIST\ngone ENOENT\n";
        assert_eq!(said(&python(&sandbox, script).await), (expected, ""));
        let left = fs::read_dir(sandbox.root.path().join("scratch"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        assert_eq!(left.collect::<Vec<_>>(), Vec::<std::ffi::OsString>::new());
    }
}

#[tokio::test]
async fn what_stands_for_dev_shm_opens_nothing_of_the_host() {
    let name = format!("exec-test-{}", std::process::id());
    let planted = format!("/dev/shm/{name}");
    for sandbox in sandboxes() {
        fs::write(&planted, "host").unwrap();
        own(planted.as_ref(), sandbox.view.owner);
        let outside = sandbox.outside();
        let script = format!(
            r"
import socket
both = os.O_RDWR | os.O_NOFOLLOW
tmp = os.environ['TMPDIR']
say('host', lambda: os.open('{planted}', both))
say('removing', lambda: os.unlink('{planted}'))
say('linking', lambda: os.link('{planted}', '/dev/shm/mine'))
say('linking out', lambda: (os.close(os.open('/dev/shm/a', both | os.O_CREAT)), os.link('/dev/shm/a', '{outside}/a')))
os.symlink('{outside}/secret', tmp + '/shm-link')
say('link', lambda: os.open('/dev/shm/link', both))
socket.socket(socket.AF_UNIX).bind(tmp + '/shm-socket')
say('socket', lambda: os.open('/dev/shm/socket', both))
os.mkdir(tmp + '/shm-directory')
say('directory', lambda: os.open('/dev/shm/directory', both))
say('below', lambda: os.open('/dev/shm/../{name}', both))
fd = os.open('/dev/shm/set', both | os.O_CREAT, 0o777)
print(oct(os.fstat(fd).st_mode & 0o7111))
say('set-id', lambda: os.open('/dev/shm/set-id', both | os.O_CREAT, 0o4700))
",
            outside = outside.display()
        );
        let result = python(&sandbox, &script).await;
        // The kernel judges a call with one path elsewhere. It has no file `a`, and does not link across file systems.
        let expected = "host ENOENT\nremoving ENOENT\nlinking ENOENT\nlinking out ENOENT\nlink ELOOP\nsocket ENXIO\n\
                        directory EISDIR\nbelow ENOENT\n0o0\nset-id EPERM\n";
        assert_eq!(said(&result), (expected, ""));
        assert_eq!(fs::read_to_string(&planted).unwrap(), "host");
        assert!(!outside.join("a").exists());
        fs::remove_file(&planted).unwrap();
    }
}

#[tokio::test]
async fn a_directory_for_temporary_files_that_is_not_the_runs_own_stands_for_nothing() {
    for sandbox in sandboxes() {
        let outside = sandbox.outside();
        fs::write(outside.join("shm-secret"), "host").unwrap();
        own(&outside.join("shm-secret"), sandbox.view.owner);
        let script = "say('there', lambda: os.open('/dev/shm/secret', os.O_RDWR | os.O_NOFOLLOW))\n\
                      say('new', lambda: os.open('/dev/shm/new', os.O_RDWR | os.O_NOFOLLOW | os.O_CREAT))";
        let script = format!(
            "import errno, os\ndef say(name, act):\n\x20   try: print(name, act())\n\x20   except OSError as error: print(name, errno.errorcode[error.errno])\n{script}"
        );
        let mut spec = sandbox.spec("python3", &["-c", &script]);
        spec.network = Network::Proxy;
        for (name, value) in &mut spec.environment {
            if name == "TMPDIR" {
                *value = outside.display().to_string();
            }
        }
        let result = sandbox.launcher.run(spec).await.unwrap();
        let stdout = result.stdout.replace("ENOENT", "EACCES");
        assert_eq!((stdout.as_str(), result.stderr.as_str()), ("there EACCES\nnew EACCES\n", ""));
        assert!(!outside.join("shm-new").exists());
    }
}

#[tokio::test]
async fn a_run_has_a_user_with_a_name_and_a_home() {
    for sandbox in sandboxes() {
        let script = r"
import pwd, grp
user = pwd.getpwuid(os.getuid())
print(user.pw_name, user.pw_dir, user.pw_shell)
print(pwd.getpwnam(user.pw_name).pw_uid == os.getuid(), pwd.getpwuid(0).pw_name, grp.getgrgid(0).gr_name)
for name in 12345678, 1999999998:
    try: print(pwd.getpwuid(name))
    except KeyError: print('none')
print(*{pwd.getpwuid(os.getuid()).pw_name for _ in range(300)})
";
        let result = python(&sandbox, script).await;
        let (name, home, shell) = match sandbox.view.owner {
            Some(_) => {
                ("sandbox".to_owned(), sandbox.view.scratch.display().to_string(), "/bin/bash".to_owned())
            }
            // The test's own user, as the host has it.
            None => {
                let uid = fs::metadata("/proc/self").unwrap().uid().to_string();
                let users = fs::read_to_string("/etc/passwd").unwrap();
                let line = users.lines().find(|line| line.split(':').nth(2) == Some(&uid));
                let own = format!("sandbox:x:{uid}:{uid}::{}:/bin/bash", sandbox.view.scratch.display());
                let fields: Vec<&str> = line.unwrap_or(&own).split(':').collect();
                (fields[0].to_owned(), fields[5].to_owned(), fields[6].to_owned())
            }
        };
        let expected = format!("{name} {home} {shell}\nTrue root root\nnone\nnone\n{name}\n");
        assert_eq!(said(&result), (expected.as_str(), ""));
    }
}
