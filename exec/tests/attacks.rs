//! Acts that a command must not be able to do, each test named after the attack.
//!
//! Every script also does something that must work, so that a run that never started proves nothing. The last test
//! repeats all of them without root, where the service and its runs share one uid.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::print_stderr)]

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use exec::{ExecResult, Layer, Network, Tier};
use policy::command::Profile;
use rustix::thread::CapabilitySet;
use support::{Sandbox, config, has, is_root, own, process_tier};

macro_rules! sandbox {
    () => {
        match Sandbox::new() {
            Some(sandbox) => sandbox,
            None => return,
        }
    };
}

/// Runs a shell script after which the shell must still be alive.
async fn attempt(sandbox: &Sandbox, script: &str) -> ExecResult {
    let result = sandbox.bash(&format!("{script}\necho alive")).await;
    assert!(result.stdout.ends_with("alive\n"), "{script}: {result:?}");
    result
}

/// Asserts that no output of `script` has `loot`.
async fn refused(sandbox: &Sandbox, script: &str, loot: &str) {
    let result = attempt(sandbox, script).await;
    assert!(!result.output.contains(loot), "{script}: {}", result.output);
}

/// Tells whether this process has a capability in force.
fn holds(capability: CapabilitySet) -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(capability))
}

const SECRET: &str = "outside-secret";

#[tokio::test]
async fn reading_a_file_outside_by_any_name() {
    let sandbox = sandbox!();
    let secret = sandbox.outside().join("secret").display().to_string();
    for script in [
        format!("cat {secret}"),
        format!("ln -s {secret} link; cat link"),
        format!("ln {secret} hard; cat hard"),
        format!("cat /proc/self/root{secret}"),
        "cat ../outside/secret; cd ../outside && cat secret".to_owned(),
        format!("cp {secret} stolen; cat stolen"),
        format!("mv {secret} stolen; cat stolen"),
        format!("python3 -c 'print(open(\"{secret}\").read())'"),
        format!("grep -r . {}", sandbox.outside().display()),
        format!("source {secret}; bash {secret}; curl -s file://{secret}"),
    ] {
        refused(&sandbox, &script, SECRET).await;
        assert_eq!(std::fs::read_to_string(&secret).unwrap(), SECRET, "{script}");
    }
}

#[tokio::test]
async fn reading_the_hosts_secrets() {
    let sandbox = sandbox!();
    for path in ["/etc/shadow", "/etc/gshadow", "/root/.bashrc", "/proc/kcore", "/proc/1/environ", "/dev/mem"]
    {
        let result = attempt(&sandbox, &format!("cat {path} | wc -c")).await;
        assert!(result.stdout.starts_with("0\n"), "{path}: {}", result.stdout);
    }
    // In namespaces these are the run's own, and have nothing of the host.
    let (places, loot) = if sandbox.launcher.mounts() {
        ("/home /root /tmp /var", "exec")
    } else {
        ("/ /home /root /tmp /var /proc", "lib")
    };
    refused(&sandbox, &format!("ls {places}"), loot).await;
}

#[tokio::test]
async fn writing_outside() {
    let sandbox = sandbox!();
    let outside = sandbox.outside().display().to_string();
    for script in [
        format!("echo x > {outside}/new"),
        format!("echo x >> {outside}/secret; : > {outside}/secret; truncate -s 0 {outside}/secret"),
        format!("echo x > a; mv a {outside}/a; cp a {outside}/b; ln a {outside}/c; ln -s a {outside}/d"),
        format!("rm -f {outside}/secret; mkdir {outside}/dir; rmdir {outside}"),
        "echo x > /tmp/exec-attack; echo x > /dev/shm/exec-attack; echo x > /var/tmp/exec-attack".to_owned(),
    ] {
        attempt(&sandbox, &script).await;
        let names: Vec<_> =
            std::fs::read_dir(sandbox.outside()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["secret"], "{script}");
        assert_eq!(std::fs::read_to_string(sandbox.outside().join("secret")).unwrap(), SECRET, "{script}");
    }
    for place in ["/tmp", "/dev/shm", "/var/tmp"] {
        assert!(!Path::new(place).join("exec-attack").exists(), "{place}");
    }
}

#[tokio::test]
async fn executing_a_program_off_the_list_in_every_way() {
    let sandbox = sandbox!();
    if !has("perl", Path::new("/usr/bin/perl").exists()) {
        return;
    }
    // Printed by perl only: the text is put together there.
    let code = "print \"per\",\"l-ran\\n\"";
    sandbox.file("code.pl", code);
    sandbox.file("run.sh", "#!/usr/bin/perl\nprint \"per\",\"l-ran\\n\"");
    for script in [
        "perl code.pl",
        "/usr/bin/perl code.pl",
        "exec -a cat /usr/bin/perl code.pl & wait",
        "env perl code.pl",
        "xargs perl < /dev/null; echo code.pl | xargs perl",
        "find code.pl -exec perl {} ';'",
        "awk 'BEGIN { system(\"perl code.pl\") }'",
        "echo x | sed 's/x/perl code.pl/e'",
        "python3 -c 'import os; os.execv(\"/usr/bin/perl\", [\"perl\", \"code.pl\"])'",
        "python3 -c 'import subprocess; subprocess.run([\"perl\", \"code.pl\"])'",
        "/proc/self/root/usr/bin/perl code.pl",
        "cp /usr/bin/perl ./mine; ./mine code.pl",
        "ln /usr/bin/perl ./hard; ./hard code.pl; ln -s /usr/bin/perl ./soft; ./soft code.pl",
        "./run.sh; python3 -c 'import os; os.execv(\"run.sh\", [\"run.sh\"])'",
        "for l in /lib*/ld-linux*.so.* /lib/*/ld-linux*.so.*; do $l /usr/bin/perl code.pl; done",
    ] {
        refused(&sandbox, script, "perl-ran").await;
    }
}

#[tokio::test]
async fn executing_an_uploaded_copy_of_an_allowed_program() {
    // The control: elsewhere than in this profile, code may run from the tree.
    let open = sandbox!();
    open.file("mine", std::fs::read("/bin/sh").unwrap());
    assert_eq!(open.bash("./mine -c 'echo ran'").await.stdout, "ran\n");
    let Some(sandbox) = Sandbox::with(config(Profile::Strict), is_root()) else { return };
    sandbox.file("mine", std::fs::read("/bin/sh").unwrap());
    refused(
        &sandbox,
        "./mine -c 'echo co''py-ran'; bash -c 'exec ./mine -c \"echo co\"\"py-ran\"'",
        "copy-ran",
    )
    .await;
}

const MEMFD: &str = r#"
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
data = open('mine', 'rb').read()
for flags in (0, 1, 2, 0x10, 8):
    fd = libc.memfd_create(b'x', flags)
    print(flags, fd >= 0)
    if fd < 0: continue
    os.write(fd, data)
    if os.fork() == 0:
        try: os.execve(fd, ['mine', '-c', 'echo mem""fd-ran'], {})
        except OSError: os._exit(0)
    os.wait()
"#;

#[tokio::test]
async fn mapping_code_from_the_tree_where_that_is_closed() {
    let closed = exec::LauncherConfig { code_in_trees: false, ..config(Profile::Strict) };
    for (config, expected) in [(config(Profile::Default), "mapped\n"), (closed, "refused\n")] {
        let Some(sandbox) = Sandbox::with(config, is_root()) else { return };
        if !sandbox.launcher.mounts() {
            return; // only a mount can be closed
        }
        sandbox.file("lib.so", vec![0; 4096]);
        let script = "import mmap, os\nf = os.open('lib.so', os.O_RDONLY)\n\
                      try: mmap.mmap(f, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC); print('mapped')\n\
                      except PermissionError: print('refused')";
        assert_eq!(sandbox.python(script).await.stdout, expected);
        // Nor from a file in memory, which lies in no directory.
        let script = "import os\ntry: os.memfd_create('x', 8); print('mapped')\nexcept PermissionError: print('refused')";
        assert_eq!(sandbox.python(script).await.stdout, expected);
    }
}

#[tokio::test]
async fn executing_a_memory_file() {
    let sandbox = sandbox!();
    sandbox.file("mine", std::fs::read("/bin/sh").unwrap());
    let result = sandbox.python(MEMFD).await;
    assert!(!result.output.contains("memfd-ran"), "{}", result.output);
    assert!(result.stdout.starts_with("0 False\n1 False\n2 False\n16 False\n8 "), "{}", result.output);
}

#[tokio::test]
async fn a_refused_program_is_told_by_name() {
    let sandbox = sandbox!();
    if !has("perl", Path::new("/usr/bin/perl").exists()) {
        return;
    }
    for script in [
        "perl -v",
        "find . -maxdepth 0 -exec perl {} ';'; exit 1",
        "python3 -c 'import subprocess; subprocess.run([\"perl\"])'",
    ] {
        let result = sandbox.bash(script).await;
        let hint = result.hint.unwrap_or_default();
        assert!(
            hint.contains("`perl` may not run here") && hint.contains("python3"),
            "{script}: {}",
            result.stderr
        );
    }
    sandbox.file("run.sh", "echo hi");
    let hint = sandbox.bash("chmod -x run.sh; ./run.sh").await.hint.unwrap_or_default();
    assert!(hint.contains("bash ./run.sh"), "{hint}");
}

/// Python that makes calls by number and prints how each ended.
fn calls(lines: &[(&str, &str)]) -> String {
    let mut script = String::from(
        "import ctypes, errno, os\nlibc = ctypes.CDLL(None, use_errno=True)\n\
         def call(name, *args):\n    ctypes.set_errno(0)\n    r = libc.syscall(*args)\n\
         \x20   print(name, 'ok' if r >= 0 else errno.errorcode[ctypes.get_errno()])\n",
    );
    for (name, arguments) in lines {
        script += &format!("call('{name}', {arguments})\n");
    }
    script
}

async fn answers(sandbox: &Sandbox, lines: &[(&str, &str, &str)]) {
    let script = calls(&lines.iter().map(|(name, arguments, _)| (*name, *arguments)).collect::<Vec<_>>());
    let result = sandbox.python(&script).await;
    let expected: String = lines.iter().map(|(name, _, answer)| format!("{name} {answer}\n")).collect();
    assert_eq!(result.stdout, expected, "{}", result.stderr);
}

#[tokio::test]
#[cfg(target_arch = "x86_64")]
async fn calling_the_kernels_riskier_interfaces() {
    let sandbox = sandbox!();
    // Pretended where the group is what gets killed; in namespaces it is real, and refused to a session's leader.
    let leaving = if sandbox.launcher.mounts() { "EPERM" } else { "ok" };
    answers(
        &sandbox,
        &[
            ("getpid", "39", "ok"),
            ("unshare(user)", "272, 0x10000000", "EPERM"),
            ("clone(user)", "56, 0x10000011, 0, 0, 0, 0", "EPERM"),
            ("clone3", "435, 0, 0", "ENOSYS"),
            ("mount", "165, b'none', b'.', b'tmpfs', 0, 0", "EPERM"),
            ("fsopen", "430, b'tmpfs', 0", "EPERM"),
            ("open_tree", "428, -100, b'.', 1", "EPERM"),
            ("setns", "308, 0, 0", "EPERM"),
            ("chroot", "161, b'.'", "EPERM"),
            ("ptrace(traceme)", "101, 0, 0, 0, 0", "EPERM"),
            ("process_vm_readv", "310, 1, 0, 0, 0, 0, 0", "EPERM"),
            ("bpf", "321, 0, 0, 0", "EPERM"),
            ("perf_event_open", "298, 0, 0, -1, -1, 0", "EPERM"),
            ("userfaultfd", "323, 0", "EPERM"),
            ("keyctl", "250, 0, -3, 0, 0, 0", "EPERM"),
            ("io_uring_setup", "425, 1, 0", "ENOSYS"),
            ("openat2", "437, -100, b'a', 0, 0", "ENOSYS"),
            ("open_by_handle_at", "304, -100, 0, 0", "EPERM"),
            ("personality", "135, 0x0040000", "EPERM"),
            ("mknod(whiteout)", "133, b'w', 0o020000, 0", "EPERM"),
            ("mknodat(fifo)", "259, -100, b'f', 0o010600, 0", "EPERM"),
            ("shmget", "29, 0, 4096, 0o1600", "EPERM"),
            ("mq_open", "240, b'q', 0o102, 0o600, 0", "EPERM"),
            ("reboot", "169, 0, 0, 0, 0", "EPERM"),
            ("the call of tomorrow", "600", "ENOSYS"),
            ("x32 getpid", "0x40000000 + 39", "ENOSYS"),
            ("ioctl(TIOCSTI)", "16, 0, 0x5412, b'x'", "EPERM"),
            ("ioctl(FS_IOC_SETFLAGS)", "16, 0, 0x40086602, b'x'", "EPERM"),
            ("ioctl(FS_IOC32_SETFLAGS)", "16, 0, 0x40046602, b'x'", "EPERM"),
            ("ioctl(FS_IOC_FSSETXATTR)", "16, 0, 0x401C5820, b'x'", "EPERM"),
            ("setsid", "112", leaving),
            ("setpgid", "109, 0, 0", leaving),
        ],
    )
    .await;
}

#[tokio::test]
async fn forging_a_layers_marker_or_a_set_id_file() {
    let sandbox = sandbox!();
    let script = r"import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
open('a', 'w').close()
print(libc.renameat2(-100, b'a', -100, b'b', 4), ctypes.get_errno(), os.path.exists('a'))
for mode in (0o4755, 0o2755):
    try: os.chmod('a', mode); print('set')
    except PermissionError: print('refused')
os.chmod('a', 0o1755)
print(oct(os.stat('a').st_mode & 0o7777))
os.umask(0)
for mode in (0o4755, 0o2755):
    for name, flags in (('c', os.O_CREAT), ('.', os.O_TMPFILE)):
        try: os.open(name, flags | os.O_WRONLY, mode); print('made')
        except PermissionError: print('refused')
os.close(os.open('c', os.O_CREAT | os.O_WRONLY, 0o755))
# Without a flag that creates, the mode means nothing.
os.close(os.open('c', os.O_WRONLY, 0o4755))
print(oct(os.stat('c').st_mode & 0o7777))";
    let result = sandbox.python(script).await;
    let expected = "-1 1 True\nrefused\nrefused\n0o1755\nrefused\nrefused\nrefused\nrefused\n0o755\n";
    assert_eq!(result.stdout, expected, "{}", result.stderr);
}

#[tokio::test]
async fn marking_a_directory_as_opaque() {
    let sandbox = sandbox!();
    let script = r"import os
for call in (lambda: os.setxattr('.', 'user.overlay.opaque', b'y'), lambda: os.removexattr('.', 'user.x')):
    try: call(); print('done')
    except OSError as e: print(e.errno)
print(os.listxattr('.'))";
    let result = sandbox.python(script).await;
    // 95: `EOPNOTSUPP`, which programs that copy attributes pass over.
    assert_eq!(result.stdout, "95\n95\n[]\n", "{}", result.stderr);
    let copied = sandbox.bash("echo x > a && cp -a a b && tar -cf t.tar a && tar -xf t.tar && cat b").await;
    assert_eq!((copied.stdout.as_str(), copied.stderr.as_str()), ("x\n", ""));
}

#[tokio::test]
async fn watching_the_names_in_a_directory_of_others() {
    let sandbox = sandbox!();
    let script = "import ctypes\nlibc = ctypes.CDLL(None)\n\
                  print('made', libc.inotify_init(), libc.inotify_init1(0), 'end')";
    // In namespaces there are no directories of others.
    let expected = if sandbox.launcher.mounts() { "made 3 4 end\n" } else { "made -1 -1 end\n" };
    assert_eq!(sandbox.python(script).await.stdout, expected);
    let result = sandbox.bash("echo li''ne > log; timeout 0.5 tail -f log").await;
    assert!(result.stdout.contains("line"), "{result:?}");
}

#[tokio::test]
async fn opening_sockets_without_network() {
    let sandbox = sandbox!();
    let script = r"import socket
socket.socketpair()
for family in (1, 2, 10, 16, 17, 40):
    for kind in (1, 2, 3):
        try: socket.socket(family, kind); print('open', family, kind)
        except OSError as e: assert e.errno == 97, e
print('done')";
    // In a network of its own a run may talk to itself.
    let own = "open 1 1\nopen 1 2\nopen 2 1\nopen 2 2\nopen 10 1\nopen 10 2\n";
    // Elsewhere it may do so over streams, which the service connects.
    let expected = if sandbox.launcher.mounts() { own } else { "open 1 1\nopen 2 1\nopen 10 1\n" };
    assert_eq!(sandbox.python(script).await.stdout, format!("{expected}done\n"));
}

#[tokio::test]
async fn opening_more_than_tcp_and_udp_with_network() {
    let sandbox = sandbox!();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = format!(
        r"import socket
socket.create_connection(('localhost', {port}))
for family, kind, protocol in ((1, 1, 0), (16, 2, 0), (17, 3, 0), (40, 1, 0), (2, 3, 1), (2, 1, 262), (10, 5, 132)):
    try: socket.socket(family, kind, protocol); print('open', family, kind)
    except OSError as e: assert e.errno == 97, e
print('done')"
    );
    let mut spec = sandbox.spec("python3", &["-c", &script]);
    spec.network = Network::Host;
    let result = sandbox.launcher.run(spec).await.unwrap();
    assert_eq!(result.stdout, "done\n", "{}", result.stderr);
    assert!(matches!(result.enforcement.network, Layer::Unavailable { .. }));
}

#[tokio::test]
async fn signalling_reading_or_slowing_the_service() {
    let sandbox = sandbox!();
    if !has("landlock-signals", sandbox.bash("true").await.enforcement.signals.is_enforced()) {
        return;
    }
    let (service, launcher) = (std::process::id(), sandbox.launcher.pid());
    let script = format!(
        r"import os, resource
def attempt(name, act):
    try: act(); print('DONE', name)
    except (PermissionError, ProcessLookupError, FileNotFoundError): pass
for pid in ({service}, {launcher}):
    attempt('signal', lambda: os.kill(pid, 0))
    attempt('group', lambda: os.killpg(pid, 0))
    for name in ('environ', 'mem', 'maps', 'cmdline', 'fd', 'status'):
        attempt(name, lambda: os.listdir(f'/proc/{{pid}}/{{name}}') if name == 'fd' else open(f'/proc/{{pid}}/{{name}}').read(1))
    attempt('limit', lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (8, 8)))
    attempt('nice', lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))
    attempt('nice user', lambda: os.setpriority(os.PRIO_USER, 0, 19))
    attempt('affinity', lambda: os.sched_setaffinity(pid, [0]))
attempt('everyone', lambda: os.kill(-1, 0) if False else None)
print('alive')"
    );
    let result = sandbox.python(&script).await;
    assert_eq!(result.stdout, "DONE everyone\nalive\n", "{}", result.stderr);
}

#[tokio::test]
async fn killing_everyone_reaches_only_the_run_itself() {
    let sandbox = sandbox!();
    if !has("landlock-signals", sandbox.bash("true").await.enforcement.landlock_abi >= 6) {
        return;
    }
    let launcher = sandbox.launcher.clone();
    let neighbour = sandbox.spec("bash", &["-c", "sleep 1; echo survived"]);
    let neighbour = tokio::spawn(async move { launcher.run(neighbour).await.unwrap() });
    tokio::time::sleep(Duration::from_millis(200)).await;
    let result = sandbox.bash("sleep 100 & kill -KILL -1; echo alive").await;
    assert!(result.stdout.contains("alive") || result.signal.is_some(), "{result:?}");
    assert_eq!(neighbour.await.unwrap().stdout, "survived\n");
}

#[tokio::test]
async fn keeping_capabilities_or_groups() {
    let sandbox = sandbox!();
    let script = "import ctypes, os
libc = ctypes.CDLL(None)
head = (ctypes.c_uint * 2)(0x20080522, 0); data = (ctypes.c_uint * 6)()
libc.capget(head, data)
print(list(data), libc.prctl(39, 0, 0, 0, 0), os.getgroups() in ([], [os.getgid()]), os.getresuid() == (os.getuid(),) * 3)
print(os.getuid())";
    let result = sandbox.python(script).await;
    let uid = sandbox.view.owner.unwrap_or_else(|| nix::unistd::getuid().as_raw());
    assert_eq!(result.stdout, format!("[0, 0, 0, 0, 0, 0] 1 True True\n{uid}\n"), "{}", result.stderr);
}

#[tokio::test]
async fn a_closed_directory_above_the_tree_needs_one_capability_and_opens_nothing_else() {
    // Container engines give it to no container unless asked.
    if !has("root", is_root()) || !has("dac-read-search", holds(CapabilitySet::DAC_READ_SEARCH)) {
        return;
    }
    let sandbox = sandbox!();
    if sandbox.launcher.mounts() {
        return; // nothing stands above a tree that is mounted
    }
    std::fs::set_permissions(sandbox.root.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let file = sandbox.file("data", "inside\n").display().to_string();
    let result = sandbox.bash(&format!("cat {file}; python3 -c 'print(open(\"{file}\").read())'")).await;
    assert_eq!(result.stdout, "inside\ninside\n\n", "{}", result.stderr);
    assert!(result.enforcement.notes.iter().any(|note| note.contains("CAP_DAC_READ_SEARCH")));
    let secret = sandbox.outside().join("secret").display().to_string();
    refused(&sandbox, &format!("cat {secret}"), SECRET).await;
    for path in ["/etc/shadow", "/proc/1/environ"] {
        let result = attempt(&sandbox, &format!("cat {path} | wc -c")).await;
        assert!(result.stdout.starts_with("0\n"), "{path}: {}", result.stdout);
    }
}

#[tokio::test]
async fn a_fork_bomb_is_bounded_and_gone_afterwards() {
    let sandbox = sandbox!();
    let script = "import os, time
n = 0
while True:
    try:
        if os.fork() == 0: time.sleep(10101); os._exit(0)
        n += 1
    except BlockingIOError: break
print(n)";
    let mut spec = sandbox.spec("python3", &["-c", script]);
    spec.limits.processes = 40;
    let result = sandbox.launcher.run(spec).await.unwrap();
    let count: u64 = result.stdout.trim().parse().unwrap_or_else(|_| panic!("{result:?}"));
    // Without an own uid the room of processes that ended since they were counted is added.
    assert!(if sandbox.view.owner.is_some() { count < 40 } else { count < 400 }, "{count}");
    support::assert_gone("10101").await;
}

#[tokio::test]
async fn memory_file_size_and_open_files_are_limited() {
    let sandbox = sandbox!();
    let mut spec =
        sandbox.spec("python3", &["-c", "try: x = bytearray(1 << 30)\nexcept MemoryError: print('refused')"]);
    spec.limits.memory_bytes = 512 << 20;
    assert_eq!(sandbox.launcher.run(spec).await.unwrap().stdout, "refused\n");
    let mut spec = sandbox.spec("bash", &["-c", "head -c 2000000 /dev/zero > big; stat -c %s big"]);
    spec.limits.file_bytes = 1_000_000;
    assert_eq!(sandbox.launcher.run(spec).await.unwrap().stdout, "1000000\n");
    let open = "import os\nn = 3\ntry:\n    while True: os.dup(0); n += 1\nexcept OSError: print(n)";
    let mut spec = sandbox.spec("python3", &["-c", open]);
    spec.limits.open_files = 64;
    assert_eq!(sandbox.launcher.run(spec).await.unwrap().stdout, "64\n");
}

#[tokio::test]
async fn processor_time_is_limited() {
    let sandbox = sandbox!();
    let mut spec = sandbox.spec("python3", &["-c", "while True: pass"]);
    spec.limits.cpu_seconds = 1;
    let result = sandbox.launcher.run(spec).await.unwrap();
    assert_eq!((result.signal.as_deref(), result.timed_out), (Some("SIGXCPU"), false));
}

#[tokio::test]
async fn inheriting_anything_but_the_standard_streams() {
    let sandbox = sandbox!();
    // Read through the links because the directory itself is out of reach at tier `landlock`.
    let script = "import os
print([fd for fd in range(256) if os.path.lexists(f'/proc/self/fd/{fd}')])";
    assert_eq!(sandbox.python(script).await.stdout, "[0, 1, 2]\n");
}

/// Its name is its own: which others the kernel shows depends on the process that asks and on its place.
const KEYRING: &str = "keyring_of_a_container";

/// Runs as the only test of its process, in a session keyring as containers give one: see the test below.
#[tokio::test]
#[ignore = "needs a session keyring of its own"]
async fn looking_into_an_inherited_keyring() {
    let own = std::fs::read_to_string("/proc/keys").unwrap();
    // Containers cover this file; a run's own /proc shows it again.
    assert!(own.is_empty() || own.contains(KEYRING), "the control: {own}");
    let sandbox = sandbox!();
    let result = attempt(&sandbox, "cat /proc/keys").await;
    assert!(!result.stdout.contains(KEYRING), "{}", result.stdout);
}

#[test]
fn looking_into_the_keyring_of_a_container() {
    let script = "import ctypes, os, sys
joined = ctypes.CDLL(None).syscall(int(sys.argv[1]), 1, sys.argv[2].encode())
if joined < 0: sys.exit(77)
os.execv(sys.argv[3], sys.argv[3:])";
    let me = std::env::current_exe().unwrap();
    let output = std::process::Command::new("python3")
        .args(["-c", script, &libc::SYS_keyctl.to_string(), KEYRING])
        .arg(me)
        .args(["--ignored", "--exact", "looking_into_an_inherited_keyring"])
        .output()
        .unwrap();
    // Containers often forbid `keyctl`, to us as to the service, and hide /proc/keys instead.
    if !has("keyrings", output.status.code() != Some(77)) {
        return;
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[tokio::test]
async fn the_strict_profile_has_no_helpers_and_the_open_one_has_the_systems_programs() {
    let Some(strict) = Sandbox::with(config(Profile::Strict), is_root()) else { return };
    assert_eq!(strict.bash("echo x | head -n 1").await.exit_code, 126);
    let Some(open) = Sandbox::with(config(Profile::Open), is_root()) else { return };
    assert_eq!(open.bash("uname -s; echo x | head -n 1").await.stdout, "Linux\nx\n");
    assert_eq!(
        strict
            .bash("printf '#!/bin/sh\\necho ran' > s; python3 -c 'import os; os.chmod(\"s\", 0o755)'; ./s")
            .await
            .exit_code,
        126
    );
}

#[tokio::test]
async fn a_script_of_the_tree_runs_when_its_interpreter_is_on_the_list_and_only_then() {
    let sandbox = sandbox!();
    for (name, first_line, ran) in [
        ("a.sh", "#!/bin/sh", true),
        ("a.py", "#!/usr/bin/env python3", true),
        ("a", "#!/usr/bin/python3 -I", true),
    ] {
        let text = if first_line.contains("python") { "print('ran')" } else { "echo ran" };
        sandbox.file(name, format!("{first_line}\n{text}\n"));
        let result = sandbox.bash(&format!("chmod +x {name} && ./{name}")).await;
        assert_eq!(result.stdout == "ran\n", ran, "{name}: {}", result.stderr);
    }
    if !has("perl", Path::new("/usr/bin/perl").exists()) {
        return;
    }
    sandbox.file("a.pl", "#!/usr/bin/perl\nprint 'ran'\n");
    let result = sandbox.bash("chmod +x a.pl && ./a.pl").await;
    let hint = result.hint.unwrap_or_default();
    assert!(!result.stdout.contains("ran") && hint.contains("`perl` may not run here"), "{hint}");
    // Nor by a copy of the interpreter: it cannot be read.
    let result = sandbox.bash("cp /usr/bin/perl ./p && ./p -e 'print 1'").await;
    assert_ne!(result.exit_code, 0, "{}", result.stdout);
}

#[tokio::test]
async fn the_probe_finds_sound_walls_and_leaves_nothing_behind() {
    let sandbox = sandbox!();
    let place = sandbox.root.path();
    let before = std::fs::read_dir(place).unwrap().count();
    let report = sandbox.launcher.probe(place, sandbox.view.owner).await.unwrap();
    assert!(report.is_sound() && report.canaries.len() >= 4, "{report:?}");
    assert_eq!(report.enforcement.tier, sandbox.launcher.tier());
    assert!(report.enforcement.tier >= Tier::Landlock);
    assert_eq!(std::fs::read_dir(place).unwrap().count(), before);
}

/// In a container the service is among the first processes, and so is a command in its own namespace.
#[test]
fn the_probe_is_not_misled_by_a_service_whose_number_its_own_processes_have() {
    let me = std::env::current_exe().unwrap();
    // Only root is asked for a process namespace without more; what the probe meets is the same for all.
    if !has("root", is_root()) {
        return;
    }
    let is_here = |output: &std::io::Result<std::process::Output>| {
        output.as_ref().is_ok_and(|output| !output.stdout.is_empty())
    };
    for number in 2..12 {
        // As many processes as it takes for the next one to have that number.
        let script =
            "while [ $(sh -c 'echo $$') -lt $(($2 - 2)) ]; do :; done; \"$0\" --exact \"$1\"; exit $?";
        let mut command = std::process::Command::new("unshare");
        command.args(["--pid", "--fork", "--mount-proc", "sh", "-c", script]).arg(&me);
        command.arg("the_probe_finds_sound_walls_and_leaves_nothing_behind").arg(number.to_string());
        let output = command.output();
        if !has("namespaces", is_here(&output)) {
            return;
        }
        let output = output.unwrap();
        assert!(output.status.success(), "{number}: {}", String::from_utf8_lossy(&output.stdout));
    }
}

#[tokio::test]
async fn tier_process_by_name_never_weakens_a_host_that_has_more() {
    let Some(sandbox) =
        Sandbox::with(exec::LauncherConfig { isolation: process_tier(), ..config(Profile::Default) }, false)
    else {
        return;
    };
    own(&sandbox.tree, None);
    let result = sandbox.bash("echo hi").await;
    assert_eq!((result.stdout.as_str(), result.enforcement.tier), ("hi\n", sandbox.launcher.tier()));
    assert!(result.enforcement.tier >= Tier::Landlock);
}

#[test]
fn all_of_this_holds_at_tier_landlock() {
    support::repeat_at_landlock("writing_outside");
}

#[test]
fn all_of_this_holds_without_root() {
    support::repeat_without_root("writing_outside");
}
