//! Runs that share the uid of the service and see the host's directories: what their supervisor does for them, and what
//! it refuses.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::print_stdout
)]

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use exec::{Isolation, LauncherConfig, Tier};
use policy::command::Profile;
use support::{Sandbox, config};

fn sandbox() -> Option<Sandbox> {
    let isolation = Isolation { maximum: Tier::Landlock, ..Isolation::default() };
    Sandbox::with(LauncherConfig { isolation, ..config(Profile::Default) }, false)
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

/// Every call that changes attributes, as functions of a path and a directory that holds it, for `python3`.
const WAYS: &str = r#"
import ctypes, os, struct, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
X86 = os.uname().machine == 'x86_64'
NUMBERS = dict(fchmodat2=(452, 452), utimensat=(280, 88), fchownat=(260, 54), fchmodat=(268, 53), fchmod=(91, 52),
               fchown=(93, 55))
OLD = dict(chmod=90, chown=92, lchown=94, utime=132, utimes=235, futimesat=261)
def call(name, *arguments):
    number = OLD[name] if name in OLD else NUMBERS[name][0 if X86 else 1]
    arguments = [ctypes.c_char_p(a) if isinstance(a, bytes) else ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    if libc.syscall(ctypes.c_long(number), *arguments) != 0: raise OSError(ctypes.get_errno(), name)
def at(path, flags=os.O_PATH): return os.open(path, flags)
TIMES = ctypes.create_string_buffer(struct.pack('qqqq', 86400, 5, 86400, 7))
PAIR = ctypes.create_string_buffer(struct.pack('qq', 86400, 86400))
def old(*call_): return [] if not X86 else [call_]
def modes(path, m):
    b, d, n = path.encode(), os.path.dirname(path) or '.', os.path.basename(path).encode()
    ways = [
        ('path', lambda: call('fchmodat', -100, b, m)),
        ('beneath a descriptor', lambda: call('fchmodat', at(d), n, m)),
        ('fchmodat2', lambda: call('fchmodat2', -100, b, m, 0)),
        ('fchmodat2 without links', lambda: call('fchmodat2', -100, b, m, 0x100)),
        ('an empty path', lambda: call('fchmodat2', at(path), b'', m, 0x1000)),
        ('the name of a descriptor', lambda: os.chmod('/proc/self/fd/%d' % at(path), m)),
        ('the name of the process', lambda: os.chmod('/proc/%d/fd/%d' % (os.getpid(), at(path)), m)),
        ('the other name of a descriptor', lambda: os.chmod('/dev/fd/%d' % at(path), m)),
        ('a link of /proc', lambda: os.chmod('/proc/self/root' + os.path.abspath(path), m)),
        ('the working directory of /proc', lambda: os.chmod('/proc/self/cwd/' + path, m)),
        ('a descriptor without reading', lambda: call('fchmod', at(path), m)),
        ('a thread', lambda: in_thread(lambda: os.chmod(path, m))),
        ('a symbolic link', lambda: (links(path), os.chmod('link', m))),
        ('a directory behind a link', lambda: (links(d, 'dirlink'), os.chmod('dirlink/' + os.path.basename(path), m))),
    ]
    if X86: ways.append(('chmod', lambda: call('chmod', b, m)))
    return ways
def links(path, name='link'):
    if os.path.lexists(name): os.unlink(name)
    os.symlink(os.path.abspath(path), name)
def in_thread(act):
    failed = []
    def run():
        try: act()
        except OSError as error: failed.append(error)
    thread = threading.Thread(target=run); thread.start(); thread.join()
    if failed: raise failed[0]
def times(path):
    b = path.encode()
    ways = [
        ('utimensat', lambda: call('utimensat', -100, b, TIMES, 0)),
        ('utimensat without links', lambda: call('utimensat', -100, b, TIMES, 0x100)),
        ('utimensat of a place', lambda: call('utimensat', at(path), b'', TIMES, 0x1000)),
        ('utimensat of a descriptor', lambda: call('utimensat', at(path), 0, TIMES, 0)),
        ('the present', lambda: call('utimensat', -100, b, 0, 0)),
    ]
    if X86: ways += [
        ('utime', lambda: call('utime', b, PAIR)),
        ('utimes', lambda: call('utimes', b, TIMES)),
        ('futimesat', lambda: call('futimesat', -100, b, TIMES)),
        ('futimesat of a descriptor', lambda: call('futimesat', at(path), 0, TIMES)),
    ]
    return ways
def owners(path):
    b, me, us = path.encode(), os.getuid(), os.getgid()
    ways = [
        ('fchownat', lambda: call('fchownat', -100, b, me, us, 0)),
        ('fchownat without links', lambda: call('fchownat', -100, b, me, us, 0x100)),
        ('fchownat of a place', lambda: call('fchownat', at(path), b'', me, us, 0x1000)),
        ('fchown', lambda: call('fchown', at(path), me, us)),
    ]
    if X86: ways += [('chown', lambda: call('chown', b, me, us)), ('lchown', lambda: call('lchown', b, me, us))]
    return ways
"#;

#[tokio::test]
async fn attributes_change_in_every_way_inside_and_in_none_outside() {
    let Some(sandbox) = sandbox() else { return };
    let outside = sandbox.outside().join("secret");
    let before = fs::metadata(&outside).unwrap();
    let directory = fs::metadata(sandbox.outside()).unwrap();
    let script = format!(
        r#"{WAYS}
os.mkdir('own'); open('own/file', 'w').close()
def left(path, way):
    # No run may change what a link of /proc leads to, not even inside.
    return '/proc' in way
for way, act in modes('own/file', 0o640):
    os.unlink('own/file'); open('own/file', 'w').close()
    try: act(); ok = os.stat('own/file').st_mode & 0o7777 == 0o640
    except OSError as error: ok = error
    if (ok is True) == left('own/file', way): print('INSIDE mode', way, ok)
for way, act in times('own/file'):
    os.unlink('own/file'); open('own/file', 'w').close()
    try: act(); ok = way == 'the present' or int(os.stat('own/file').st_mtime) == 86400
    except OSError as error: ok = error
    if ok is not True: print('INSIDE times', way, ok)
for way, act in owners('own/file'):
    try: act()
    except OSError as error: print('INSIDE owner', way, error)
for place in ('{outside}', os.path.relpath('{outside}'), '{directory}', '..', '{parent}'):
    for kind in (modes(place, 0), times(place), owners(place)):
        for way, act in kind:
            try: act(); print('OUTSIDE', place, way)
            except OSError as error: pass
print('end')
"#,
        outside = outside.display(),
        directory = sandbox.outside().display(),
        parent = sandbox.root.path().display(),
    );
    let result = sandbox.python(&script).await;
    assert_eq!((result.stdout.as_str(), result.stderr.as_str()), ("end\n", ""), "{result:?}");
    let after = fs::metadata(&outside).unwrap();
    assert_eq!((after.mode(), after.ctime_nsec()), (before.mode(), before.ctime_nsec()));
    let after = fs::metadata(sandbox.outside()).unwrap();
    assert_eq!((after.mode(), after.ctime_nsec()), (directory.mode(), directory.ctime_nsec()));
}

#[tokio::test]
async fn ordinary_programs_change_attributes_of_their_own_files() {
    let Some(sandbox) = sandbox() else { return };
    let result = sandbox
        .bash(
            "set -e; mkdir a; echo x > a/f; chmod 750 a/f; touch -d @86400 a/f; ln -s f a/l; touch -h -d @86400 a/l; \
             cp -a a b; stat -c '%a %Y' b/f; stat -c %Y b/l; chmod -R u=rwX,go= b; stat -c %a b b/f; \
             cd b; mv ../b ../c; chmod 600 f; stat -c %a ../c/f; chmod 640 ./../c/f; stat -c %a f; \
             touch $HOME/at_home; chmod 400 $HOME/at_home; stat -c %a $HOME/at_home; \
             exec 5<f; chmod 644 /proc/self/fd/5 /dev/fd/5; stat -c %a f; \
             chmod 700 ..; chmod 711 $HOME; stat -c %a .. $HOME; touch -d @7 ..; stat -c %Y ..; \
             chmod 4755 f || echo refused; chmod 600 nothing || echo none; \
             python3 -c 'import os, tempfile
f = tempfile.TemporaryFile(); os.fchmod(f.fileno(), 0o640); os.utime(f.fileno(), (5, 5))
s = os.fstat(f.fileno()); print(oct(s.st_mode & 0o777), int(s.st_mtime))'",
        )
        .await;
    let wanted = "750 86400\n86400\n700\n700\n600\n640\n400\n644\n700\n711\n7\nrefused\nnone\n0o640 5\n";
    assert_eq!(result.stdout, wanted, "{}", result.stderr);
    assert_eq!(result.exit_code, 0, "{}", result.stderr);
}

#[tokio::test]
async fn a_run_cannot_shut_the_service_out_of_its_own_directories() {
    let Some(sandbox) = sandbox() else { return };
    let before = (mode(&sandbox.tree), mode(&sandbox.root.path().join("scratch")));
    let result = sandbox
        .bash("for m in 0 077 300 600; do chmod $m . $HOME && echo shut; done; chmod 755 .; echo end")
        .await;
    assert_eq!(result.stdout, "end\n", "{}", result.stderr);
    assert_eq!((mode(&sandbox.tree), mode(&sandbox.root.path().join("scratch"))), (0o755, before.1));
}

#[tokio::test]
async fn a_path_that_changes_while_it_is_judged_leads_nowhere_outside() {
    let Some(sandbox) = sandbox() else { return };
    let outside = sandbox.outside().join("secret");
    let script = format!(
        r#"
import ctypes, os, threading, time
inside, outside = b'own/file', b'{outside}'
os.mkdir('own'); open('own/file', 'w').close(); os.mkdir('d'); open('d/secret', 'w').close()
buffer = ctypes.create_string_buffer(inside, 4096)
stop = False
def flip():
    while not stop:
        ctypes.memmove(buffer, outside, len(outside) + 1); ctypes.memmove(buffer, inside, len(inside) + 1)
def swap():
    while not stop:
        try: os.rename('d', 'e'); os.symlink('{directory}', 'd'); os.unlink('d'); os.rename('e', 'd')
        except OSError: pass
threads = [threading.Thread(target=f) for f in (flip, swap)]
for thread in threads: thread.start()
libc = ctypes.CDLL(None, use_errno=True)
made = 0
until = time.monotonic() + 2
while time.monotonic() < until:
    made += libc.chmod(buffer, 0o600) == 0
    made += libc.chmod(b'd/secret', 0o600) == 0
stop = True
for thread in threads: thread.join()
print(made > 0, oct(os.stat('own/file').st_mode & 0o777))
"#,
        outside = outside.display(),
        directory = sandbox.outside().display(),
    );
    fs::set_permissions(&outside, fs::Permissions::from_mode(0o644)).unwrap();
    let result = sandbox.python(&script).await;
    assert_eq!(result.stdout, "True 0o600\n", "{}", result.stderr);
    assert_eq!(mode(&outside), 0o644);
}

#[tokio::test]
async fn a_run_has_its_share_of_processes_whatever_others_have() {
    let Some(sandbox) = sandbox() else { return };
    // Far more than there is room for, by processes and by threads, and then as many as end.
    let script = r"
import os, threading, time
made = []
def refused(make):
    count = 0
    try:
        while count < 300: make(); count += 1
    except (OSError, RuntimeError): pass
    return count
def process():
    pid = os.fork()
    if pid == 0: time.sleep(60); os._exit(0)
    made.append(pid)
print(20 <= refused(process) < 64)
for pid in made: os.kill(pid, 9)
for pid in made: os.waitpid(pid, 0)
# A run that was found to have all of its share is not counted again for 10 ms.
time.sleep(0.1)
done = threading.Event()
print(20 <= refused(lambda: threading.Thread(target=done.wait).start()) < 64)
done.set()
while threading.active_count() > 1: time.sleep(0.01)
time.sleep(0.1)
for _ in range(200):
    if os.fork() == 0: os._exit(0)
    os.wait()
print('end')
";
    let mut spec = sandbox.spec("python3", &["-c", script]);
    spec.limits.processes = 32;
    let result = sandbox.launcher.run(spec).await.unwrap();
    assert_eq!(result.stdout, "True\nTrue\nend\n", "{}", result.stderr);
}

#[tokio::test]
async fn a_bomb_leaves_others_their_processes() {
    let Some(sandbox) = sandbox() else { return };
    let mut bomb = sandbox.spec("bash", &["-c", "b() { b | b & b | b & }; echo lit; b; sleep 60"]);
    bomb.limits.processes = 64;
    bomb.timeout = Duration::from_secs(20);
    let launcher = sandbox.launcher.clone();
    let burning = tokio::spawn(async move { launcher.run(bomb).await });
    let mut spec = sandbox.spec("bash", &["-c", "for i in 1 2 3 4 5 6 7 8; do /bin/echo $i | cat; done"]);
    spec.limits.processes = 8;
    spec.timeout = Duration::from_secs(60);
    for _ in 0..5 {
        let result = sandbox.launcher.run(spec.clone()).await.unwrap();
        assert_eq!(result.stdout, "1\n2\n3\n4\n5\n6\n7\n8\n", "{}", result.stderr);
    }
    assert!(!burning.is_finished(), "the bomb was still there");
    burning.abort();
}

#[tokio::test]
async fn no_fork_fails_for_the_end_of_a_child() {
    let Some(sandbox) = sandbox() else { return };
    // Its shell's handler does not ask for restarts. Others take the processor, so that the supervisor comes late.
    let busy = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    for _ in 0..4 {
        let busy = busy.clone();
        std::thread::spawn(move || while busy.load(std::sync::atomic::Ordering::Relaxed) {});
    }
    let script =
        "i=0; while [ $i -lt 100 ]; do x=$(/bin/true); y=$(echo a | /bin/cat); i=$((i+1)); done; echo $i $y";
    let mut spec = sandbox.spec("sh", &["-c", script]);
    spec.timeout = Duration::from_secs(120);
    let result = sandbox.launcher.run(spec).await.unwrap();
    busy.store(false, std::sync::atomic::Ordering::Relaxed);
    assert_eq!((result.stdout.as_str(), result.stderr.as_str()), ("100 a\n", ""));
    let script = "import signal, os, threading, time\nsignal.signal(signal.SIGCHLD, lambda *a: None)\n\
                  for _ in range(100):\n    if os.fork() == 0: os._exit(0)\n    os.wait()\n\
                  print(signal.getsignal(signal.SIGCHLD) is not None)";
    let result = sandbox.python(script).await;
    assert_eq!((result.stdout.as_str(), result.stderr.as_str()), ("True\n", ""));
}

#[test]
fn all_of_this_holds_without_root() {
    support::repeat_without_root("no_fork_fails_for_the_end_of_a_child");
    support::repeat_without_root("a_bomb_leaves_others_their_processes");
}
