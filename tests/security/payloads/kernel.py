"""Asking the kernel for what no command needs. Most attacks are lists of calls that must be refused; any other answer
of the kernel, even that an argument is wrong, means that it looked. Calls that could hurt the machine are made in a
form that only a privileged caller would be told is wrong."""

import ctypes
import errno
import mmap
import os
import re
import resource
import signal
import socket
import sys
import time

from attack import X86, attempt, call, got, libc, main, reaches, steal, struct

AT_FDCWD = -100
NEW_NAMESPACES = {
    "cgroup": 0x02000000, "ipc": 0x08000000, "net": 0x40000000, "mount": 0x00020000, "pid": 0x20000000,
    "user": 0x10000000, "uts": 0x04000000, "time": 0x00000080,
}


def buffer(*words, size=256):
    """Memory that begins with 32-bit words."""
    return ctypes.create_string_buffer(struct.pack(f"{len(words)}I", *words), size)


def now():
    """The time as it is, so that setting it changes nothing."""
    seconds = time.time()
    return ctypes.create_string_buffer(struct.pack("qq", int(seconds), int(seconds % 1 * 1e9)))


# Attack: the calls of it.
CALLS = {
    "mounting_a_file_system": lambda: [
        ("mount", b"none", b".", b"tmpfs", 0, None), ("mount", b".", b".", None, 0x1000, None),
        ("mount", b"proc", b".", b"proc", 0, None), ("umount2", b"/", 2), ("umount2", b"/proc", 2)],
    "mounting_with_the_new_calls": lambda: [
        ("fsopen", b"tmpfs", 0), ("fsopen", b"overlay", 0), ("open_tree", AT_FDCWD, b".", 1),
        ("open_tree", AT_FDCWD, b"/", 0x8001), ("move_mount", AT_FDCWD, b".", AT_FDCWD, b".", 0),
        ("mount_setattr", AT_FDCWD, b".", 0, buffer(0, 0, 2, 0), 32)],
    "listing_mounts": lambda: [
        ("listmount", buffer(24, 0, 0xFFFFFFFF, 0xFFFFFFFF), buffer(), 8, 0),
        ("statmount", buffer(24, 0, 1, 0, 1, 0), buffer(), 256, 0)],
    "changing_the_root_directory": lambda: [("chroot", b"."), ("chroot", b"/"), ("pivot_root", b".", b".")],
    "unsharing_namespaces": lambda: [("unshare", flag) for flag in NEW_NAMESPACES.values()],
    "joining_namespaces": lambda: [
        ("setns", call("pidfd_open", os.getpid(), 0)[0], flag) for flag in NEW_NAMESPACES.values()],
    "making_keys_in_the_kernel": lambda: [
        ("add_key", b"user", b"left", b"x", 1, -3), ("request_key", b"user", b"left", None, -3),
        ("keyctl", 0, -3, 1), ("keyctl", 1, None), ("keyctl", 11, -3, buffer(), 64)],
    "making_an_io_ring": lambda: [("io_uring_setup", 8, buffer(size=120))],
    "loading_a_bpf_program_or_map": lambda: [
        ("bpf", 0, buffer(2, 4, 4, 1, size=128), 72),  # BPF_MAP_CREATE, an array
        ("bpf", 5, buffer(1, 0, size=128), 128)],
    "handling_page_faults_in_user_space": lambda: [("userfaultfd", 1), ("userfaultfd", 0)],
    "counting_events_of_the_machine": lambda: [
        ("perf_event_open", buffer(1, 128, 0, 0, size=128), 0, -1, -1, 0),
        ("perf_event_open", buffer(1, 128, 0, 0, size=128), -1, 0, -1, 0)],
    "watching_files_with_fanotify": lambda: [("fanotify_init", 0, 0), ("fanotify_init", 0x200, 0)],
    "changing_the_personality": lambda: [
        ("personality", 0x0400000), ("personality", 0x0040000), ("personality", 0x8), ("personality", 0xFFFFFFFF)],
    "making_secret_memory": lambda: [("memfd_secret", 0)],
    "asking_for_quotas_of_the_file_system": lambda: [
        ("quotactl", 0x80000700, b"/dev/vda", os.getuid(), buffer()), ("quotactl", 0x80000100, None, 0, None),
        ("quotactl_fd", attempt(os.open, ".", os.O_RDONLY) or 0, 0x80000700, os.getuid(), buffer())],
    "adding_swap": lambda: [("swapon", b"own", 0), ("swapoff", b"own")],
    "loading_a_kernel_module": lambda: [
        ("init_module", b"no module", 9, b""), ("finit_module", attempt(os.open, "own", os.O_RDONLY) or 0, b"", 0),
        ("delete_module", b"no_such_module", 0x800)],
    "loading_another_kernel": lambda: [("kexec_load", 0, 0, None, 0xFFFF), ("kexec_file_load", -1, -1, 0, None, 0xFFFF)],
    # With numbers that no restart has.
    "restarting_the_machine": lambda: [("reboot", 1, 2, 3, None)],
    "accounting_for_processes": lambda: [("acct", b"no/such/file")],
    "setting_the_clock": lambda: [
        ("clock_settime", 0, now()), ("settimeofday", now(), None), ("clock_adjtime", 0, buffer(0x8000, size=208))],
    "setting_the_name_of_the_machine": lambda: [
        ("sethostname", socket.gethostname().encode(), len(socket.gethostname())), ("setdomainname", b"", 0)],
    "reading_the_kernels_log": lambda: [("syslog", 3, buffer(), 200), ("syslog", 10, None, 0)],
    "hanging_up_the_terminal": lambda: [("vhangup",)],
    "reaching_for_ports_and_descriptor_tables": lambda: [
        ("iopl", 3), ("ioperm", 0x80, 1, 1), ("modify_ldt", 1, buffer(0, 0, 0, 0), 16)],
    "leaving_system_v_objects": lambda: [
        ("shmget", 0x51ec, 4096, 0o1666), ("semget", 0x51ec, 1, 0o1666), ("msgget", 0x51ec, 0o1666)],
    "leaving_a_posix_message_queue": lambda: [("mq_open", b"left", os.O_CREAT | os.O_RDWR, 0o666, None)],
}


def kernel_calls(name):
    """The function of an attack that is a list of calls; the control makes a harmless one in the same way."""
    def function(evil):
        for number, *args in CALLS[name]() if evil else [("getpid",)]:
            reaches(number, *args)
    return function


def making_a_process_in_new_namespaces(evil):
    """clone(2) with each flag, and with clone3(2), whose flags a filter cannot see."""
    if not evil:
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        got(os.waitpid(pid, 0))
        return
    for name, flag in NEW_NAMESPACES.items():
        if name == "time":
            continue
        result, error = call("clone", flag | signal.SIGCHLD, 0, 0, 0, 0)
        if result == 0:
            os._exit(0)
        if result > 0:
            got(f"clone {name}")
    arguments = ctypes.create_string_buffer(struct.pack("8Q", 0x10000000, 0, 0, 0, signal.SIGCHLD, 0, 0, 0), 88)
    result, error = call("clone3", arguments, 64)
    if result == 0:
        os._exit(0)
    if result > 0 or error != errno.ENOSYS:
        got(f"clone3 {error}")


def opening_a_file_by_its_handle(evil, path):
    """A handle needs no permission on the way to the file."""
    handle = ctypes.create_string_buffer(struct.pack("I", 128), 256)
    mount = ctypes.c_int()
    result, _ = call("name_to_handle_at", AT_FDCWD, path.encode(), handle, ctypes.byref(mount), 0)
    if not evil:
        steal(path)
        return
    here = os.open(".", os.O_RDONLY)
    if result < 0:
        # The inode of the root of most file systems, as a handle of type 1.
        handle = ctypes.create_string_buffer(struct.pack("IiII", 8, 1, 2, 0), 256)
    descriptor, error = call("open_by_handle_at", here, handle, os.O_RDONLY)
    if descriptor >= 0:
        got(os.listdir(descriptor) if os.path.isdir(f"/proc/self/fd/{descriptor}") else os.read(descriptor, 100))
    elif error not in (errno.EPERM, errno.ENOSYS):
        got(errno.errorcode[error])


def making_device_nodes(evil):
    """Memory, a disk, and the marker of overlays; the control makes an ordinary file with the same call."""
    if not evil:
        call("mknodat", AT_FDCWD, b"plain", 0o100644, 0)
        attempt(lambda: os.close(os.open("plain", os.O_CREAT | os.O_WRONLY)))
        got(os.stat("plain").st_mode)
        return
    for name, kind, major, minor in (("mem", 0o020666, 1, 1), ("disk", 0o060666, 254, 0), ("disk2", 0o060666, 8, 0),
                                     ("whiteout", 0o020666, 0, 0), ("null", 0o020666, 1, 3)):
        result, _ = call("mknodat", AT_FDCWD, name.encode(), kind, os.makedev(major, minor))
        if result == 0:
            got(name)


def opening_devices_of_the_machine(evil, *own):
    for path in own or ("/dev/mem", "/dev/kmem", "/dev/port", "/dev/kmsg", "/proc/kmsg", "/proc/kcore", "/dev/vda",
                        "/dev/vda1", "/dev/sda", "/dev/nvme0n1", "/dev/loop0", "/dev/loop-control", "/dev/kvm", "/dev/fuse",
                        "/dev/net/tun", "/dev/vsock", "/dev/userfaultfd", "/dev/vhost-net", "/dev/mapper/control",
                        "/dev/hpet", "/dev/input/event0", "/dev/console", "/dev/tty0", "/dev/uinput", "/dev/rtc0",
                        "/dev/cpu/0/msr", "/dev/snapshot", "/dev/watchdog"):
        for flags in (os.O_RDONLY | os.O_NONBLOCK, os.O_WRONLY | os.O_NONBLOCK):
            if attempt(lambda: os.close(os.open(path, flags)) or True):
                got(path)


def writing_kernel_settings(evil, *own):
    """Opens for writing, and writes nothing."""
    for path in own or ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sys/kernel/modprobe",
                        "/proc/sys/vm/drop_caches", "/proc/sys/vm/overcommit_memory", "/proc/sys/fs/file-max",
                        "/proc/sys/net/ipv4/ip_forward", "/proc/sys/kernel/sysrq", "/proc/sysrq-trigger",
                        "/proc/irq/default_smp_affinity", "/proc/bus/pci/devices", "/proc/acpi/wakeup",
                        "/proc/sys/fs/binfmt_misc/register", "/proc/self/oom_score_adj", "/proc/1/oom_score_adj",
                        "/proc/self/uid_map", "/proc/self/attr/current", "/proc/mtrr", "/proc/timer_list"):
        # Containers cover some of these with /dev/null, which every user may write to.
        if attempt(lambda: os.stat(path).st_rdev == os.makedev(1, 3)):
            continue
        if attempt(lambda: os.close(os.open(path, os.O_WRONLY)) or True):
            # One's own score may go up, never down.
            if path == "/proc/self/oom_score_adj":
                lowered = attempt(lambda: open(path, "w").write("-500"))
                if not lowered:
                    continue
            got(path)


def writing_to_sysfs(evil, *own):
    for path in own or ("/sys/kernel/mm/ksm/run", "/sys/power/state", "/sys/fs/cgroup/cgroup.procs",
                        "/sys/fs/cgroup/cgroup.subtree_control", "/sys/kernel/uevent_helper", "/sys/module/kernel/parameters",
                        "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/devices/system/cpu/cpu1/online",
                        "/sys/kernel/profiling", "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                        "/sys/fs/cgroup/release_agent", "/sys/kernel/debug", "/sys/kernel/tracing/trace_on"):
        if attempt(lambda: os.close(os.open(path, os.O_WRONLY)) or True):
            got(path)
    if evil and attempt(os.mkdir, "/sys/fs/cgroup/made-by-an-attack"):
        got("a cgroup")


def watching_names_with_inotify(evil, path):
    """Landlock does not mediate watches: a process that may have one sees the names that come and go."""
    if not evil:
        got(os.listdir("."))
        return
    watcher, _ = call("inotify_init1", 0)
    if watcher >= 0 and libc.inotify_add_watch(watcher, path.encode(), 0x3FF) >= 0:
        got(path)


def reading_secrets_of_the_kernel(evil, *own):
    """Addresses and memory of the kernel, keys, the log; a table of zeros is none, whatever the names in it (`pcie@10000000`)."""
    for path in own or ("/proc/kallsyms", "/proc/iomem", "/proc/modules", "/proc/keys", "/proc/slabinfo",
                        "/proc/kpagecount", "/proc/kpageflags", "/proc/vmallocinfo", "/proc/timer_list",
                        "/proc/sched_debug", "/proc/1/stack", "/sys/kernel/notes", "/sys/kernel/debug/x",
                        "/sys/class/dmi/id/product_uuid", "/sys/firmware/efi/efivars", "/sys/module/kernel/sections/.text"):
        text = attempt(lambda: open(path, "rb").read(4000))
        if not text:
            continue
        is_table = path in ("/proc/kallsyms", "/proc/iomem", "/proc/modules")
        if own or not is_table or any(int(word, 16) for word in re.findall(rb"(?m)(?:^ *|-|\b0x)([0-9a-f]{8,16})\b", text)):
            got(f"{path}: {text[:100]}")


def learning_about_the_machine(evil, *own):
    """What runs on it, what is mounted, who is connected: no secret, and none of a command's business."""
    for path in own or ("/proc/modules", "/proc/cmdline", "/proc/config.gz", "/proc/swaps", "/proc/partitions",
                        "/proc/diskstats", "/proc/interrupts", "/proc/key-users", "/proc/locks", "/proc/mdstat",
                        "/sys/class/net/eth0/address", "/sys/block"):
        text = attempt(lambda: open(path, "rb").read(200)) or attempt(os.listdir, path)
        if text:
            got(f"{path}: {text[:60]}")


def finding_where_trees_lie_on_the_host(evil, root):
    """The data directory in files that tell of mounts; the control finds its own tree by its working directory."""
    if not evil:
        got(os.getcwd())
        return
    for path in ("/proc/self/mountinfo", "/proc/self/mounts", "/proc/mounts", "/proc/self/maps", "/proc/1/mountinfo",
                 "/proc/self/environ", "/proc/self/cgroup", "/proc/self/mountstats"):
        text = attempt(lambda: open(path, "rb").read().decode(errors="replace"))
        if text and root in text:
            got(f"{path}: {text[text.index(root) - 60:][:200]}")
    for link in ("cwd", "root", "fd/0", "fd/1", "exe"):
        target = attempt(os.readlink, f"/proc/self/{link}")
        if target and root in target:
            got(f"{link}: {target}")
    if root in os.getcwd() or any(root in value for value in os.environ.values()):
        got("the working directory or the environment")


def calling_through_the_x32_numbers(evil):
    if not evil:
        got(call("getpid"))
        return
    if X86:
        libc.syscall.restype = ctypes.c_long
        ctypes.set_errno(0)
        result = libc.syscall(ctypes.c_long(0x40000000 + 39))
        if result >= 0:
            got(result)


def calling_through_the_32_bit_gate(evil):
    """getpid by `int 0x80`, whose numbers are another architecture's; in a child, which may die of it."""
    if not X86 or not evil:
        got(call("getpid")) if not evil else None
        return
    pid = os.fork()
    if pid == 0:
        memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        memory.write(bytes.fromhex("b814000000cd80c3"))  # mov eax, 20; int 0x80; ret
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        result = ctypes.CFUNCTYPE(ctypes.c_int)(address)()
        os._exit(7 if result == os.getpid() else 0)
    _, status = os.waitpid(pid, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 7:
        got("a call of another architecture")


def typing_into_the_terminal(evil):
    """TIOCSTI and its relatives, on everything that may be a terminal."""
    if not evil:
        got(call("getpid"))
        return
    descriptors = [0, 1, 2, attempt(os.open, "/dev/tty", os.O_RDWR), attempt(os.open, "/dev/ptmx", os.O_RDWR)]
    for descriptor in filter(lambda d: d is not None, descriptors):
        for command in (0x5412, 0x541C, 0x5423):
            reaches("ioctl", descriptor, command, b"x")
        # The kernel looks at the lower half only.
        reaches("ioctl", descriptor, 0x5412 | 1 << 32, b"x")


def setting_id_bits(evil):
    """A set-id file would give its owner's rights to every user who runs it."""
    open("file", "w").close()
    acts = [lambda: os.chmod("file", 0o4755), lambda: os.chmod("file", 0o2755),
            lambda: os.close(os.open("made4", os.O_CREAT | os.O_WRONLY, 0o4755)),
            lambda: os.close(os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o4755)),
            lambda: os.mkdir("d", 0o755) or os.chmod("d", 0o2755)]
    if not evil:
        os.chmod("file", 0o755)
        got(oct(os.stat("file").st_mode))
        return
    for act in acts:
        attempt(act)
    call("mknodat", AT_FDCWD, b"made-node", 0o104755, 0)
    for name in ("file", "made4", "made-node", "d"):
        if os.path.exists(name) and os.stat(name).st_mode & 0o6000:
            got(f"{name} {oct(os.stat(name).st_mode)}")


def regaining_identity_or_capabilities(evil):
    if not evil:
        got(os.getresuid())
        return
    for act in (lambda: os.setuid(0), lambda: os.setresuid(0, 0, 0), lambda: os.setgid(0), lambda: os.setgroups([0]),
                lambda: os.setreuid(os.getuid(), 0), lambda: os.seteuid(0)):
        if attempt(lambda: act() or True):
            got(os.getresuid())
    header = buffer(0x20080522, 0)
    libc.capset(header, buffer(0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF))
    data = (ctypes.c_uint * 6)()
    libc.capget(buffer(0x20080522, 0), data)
    # CAP_DAC_READ_SEARCH (2) may be kept to reach the own tree; walls above it decide then.
    if data[0] & ~4 or data[3]:
        got(f"capabilities {list(data)}")
    if libc.prctl(39, 0, 0, 0, 0) != 1:  # PR_GET_NO_NEW_PRIVS
        got("new privileges are possible")


def raising_limits(evil):
    """Hard limits go down, never up."""
    if not evil:
        resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))
        got(resource.getrlimit(resource.RLIMIT_NOFILE))
        return
    for name in ("AS", "NPROC", "FSIZE", "NOFILE", "CPU", "CORE", "MEMLOCK", "MSGQUEUE"):
        kind = getattr(resource, f"RLIMIT_{name}")
        _, hard = resource.getrlimit(kind)
        if attempt(lambda: resource.setrlimit(kind, (hard + 1, hard + 1)) or True):
            got(f"{name} {hard}")
        if hard in (-1, resource.RLIM_INFINITY):
            got(f"{name} without a bound")


def dumping_core(evil):
    """A process that crashes; the caller looks for what it left."""
    if not evil:
        got("alive")
        return
    attempt(resource.setrlimit, resource.RLIMIT_CORE, (1 << 20, 1 << 20))
    pid = os.fork()
    if pid == 0:
        os.kill(os.getpid(), signal.SIGSEGV)
    _, status = os.waitpid(pid, 0)
    if os.WCOREDUMP(status):
        got("a core was dumped")


def forging_a_whiteout_with_rename(evil):
    open("renamed", "w").close()
    result, _ = call("renameat2", AT_FDCWD, b"renamed", AT_FDCWD, b"renamed-to", 4 if evil else 0)
    if result == 0:
        got("renamed")


def setting_markers_as_attributes(evil):
    """The markers of overlays and the attributes by which the kernel or the service trust something."""
    if not evil:
        os.chmod(".", 0o755)
        got(os.listxattr("."))
        return
    os.makedirs("marked", exist_ok=True)
    for name in ("user.overlay.opaque", "user.overlay.redirect", "user.overlay.metacopy", "user.overlay.whiteout",
                 "user.overlay.origin", "trusted.overlay.opaque", "security.capability", "user.filesecbox.version",
                 "security.selinux", "system.posix_acl_access"):
        if attempt(lambda: os.setxattr("marked", name, b"y") or True):
            got(name)


for _name in CALLS:
    globals()[_name] = kernel_calls(_name)

if __name__ == "__main__":
    main(globals())
