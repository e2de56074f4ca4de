"""Reaching for other processes: the service, its launcher, and others of the machine. Told process numbers;
for the control, none: it then takes itself or a child of its own."""

import ctypes
import errno
import os
import resource
import signal
import struct
import sys
import time

from attack import attempt, call, got, libc, main, reaches, slurp, steal, struct

GONE = {errno.ESRCH}


def everyone(*pids):
    """The processes told, the parent, those that /proc lists and those with low numbers, without the own ones."""
    listed = [int(name) for name in attempt(os.listdir, "/proc") or [] if name.isdigit()]
    own = {os.getpid()}
    return [pid for pid in dict.fromkeys([*map(int, pids), os.getppid(), *listed, *range(1, 300)]) if pid not in own]


def child():
    """A child of the control."""
    pid = os.fork()
    if pid == 0:
        time.sleep(20)
        os._exit(0)
    return pid


def reading_environments_of_processes(evil, canary_name, *pids):
    os.environ[canary_name] = "set"
    if not evil:
        got([name for name in os.environ if name == canary_name])
        return
    for pid in everyone(*pids):
        text = attempt(slurp, f"/proc/{pid}/environ")
        if text and ("FILESECBOX" in text or "canary" in text):
            got(f"{pid}: {text}")


def reading_command_lines_of_processes(evil, word, *pids):
    if not evil:
        got(sys.argv)
        return
    for pid in everyone(*pids):
        for name in ("cmdline", "status", "comm", "maps"):
            for read in slurp, plainly:
                text = attempt(read, f"/proc/{pid}/{name}")
                if text and word in text:
                    got(f"{pid} {name}: {text}")


def plainly(path):
    """Reads as programs in C do, without any flag: Python asks for close-on-exec."""
    fd = libc.open(path.encode(), 0)
    if fd < 0:
        raise OSError(ctypes.get_errno(), path)
    with os.fdopen(fd) as file:
        return file.read()


def listing_open_files_and_threads_of_processes(evil, *pids):
    if not evil:
        got(os.listdir(os.open("/proc/self/fd", os.O_DIRECTORY)))
        return
    # By every way to begin: the root, a list of one's own, and what stands for `/proc` to who asks for it as a place.
    begins = [attempt(os.open, "/", os.O_PATH), attempt(os.open, "/proc", os.O_DIRECTORY), attempt(os.open, "/proc", os.O_PATH)]
    own = os.open("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY)
    for pid in everyone(*pids)[:80]:
        for name in ("fd", "task"):
            ways = [(None, f"/proc/{pid}/{name}"), (None, f"/proc/self/fd/../../{pid}/{name}"), (own, f"../../{pid}/{name}")]
            ways += [(begin, path) for begin in begins if begin for path in (f"{pid}/{name}", f"proc/{pid}/{name}")]
            for begin, path in ways:
                for flags in (os.O_DIRECTORY, os.O_DIRECTORY | os.O_NONBLOCK):
                    fd = attempt(lambda: os.open(path, flags, dir_fd=begin))
                    if fd is not None:
                        listed = attempt(os.listdir, fd)
                        if listed:
                            got(f"{pid} {path}: {listed}")
                        os.close(fd)


def reading_memory_of_processes(evil, *pids):
    if not evil:
        own = ctypes.create_string_buffer(b"own memory")
        got(ctypes.string_at(own))
        return
    for pid in pids:
        for name in ("mem", "maps", "smaps", "pagemap", "auxv", "syscall", "stack"):
            if attempt(lambda: os.close(os.open(f"/proc/{pid}/{name}", os.O_RDONLY)) or True):
                got(f"/proc/{pid}/{name}")
        if attempt(lambda: os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR)) or True):
            got(f"/proc/{pid}/mem for writing")


def copying_memory_of_processes(evil, *pids):
    buffer = ctypes.create_string_buffer(64)
    here = (ctypes.c_ulong * 2)(ctypes.addressof(buffer), 64)
    if not evil:
        got(ctypes.string_at(ctypes.addressof(buffer), 4))
    for pid in map(int, pids):
        for name in ("process_vm_readv", "process_vm_writev"):
            reaches(name, pid, here, 1, here, 1, 0, refused=GONE)


def tracing_a_process(evil, *pids):
    if not evil:
        got(call("getpid"))
    for pid in map(int, pids):
        for request in (16, 0x4206):  # PTRACE_ATTACH, PTRACE_SEIZE
            reaches("ptrace", request, pid, 0, 0, refused=GONE)
    if evil:
        own = child()
        reaches("ptrace", 0x4206, own, 0, 0)
        os.kill(own, signal.SIGKILL)


def taking_descriptors_of_a_process(evil, *pids):
    if not evil:
        got(os.dup(1))
    for pid in map(int, pids):
        descriptor, _ = call("pidfd_open", pid, 0)
        for wanted in range(0, 16):
            if descriptor >= 0:
                reaches("pidfd_getfd", descriptor, wanted, 0)
    if evil:
        descriptor, _ = call("pidfd_open", os.getpid(), 0)
        reaches("pidfd_getfd", descriptor, 1, 0)


def walking_through_links_of_processes(evil, path, *pids):
    """`path` is a file outside, or for the control one of its own."""
    if not evil:
        steal(path)
        return
    for pid in everyone(*pids):
        for link in ("root", "cwd"):
            steal(f"/proc/{pid}/{link}{path}")
            if pid in map(int, pids) and attempt(os.listdir, f"/proc/{pid}/{link}/"):
                got(f"/proc/{pid}/{link}")
        for descriptor in range(0, 32):
            if pid in map(int, pids) and attempt(os.stat, f"/proc/{pid}/fd/{descriptor}"):
                got(f"/proc/{pid}/fd/{descriptor}")


def overwriting_the_services_program(evil, program, *pids):
    """The program as a path, and as the link of each process of it."""
    if evil:
        assert program.endswith("filesecbox")
    for path in [program, *(f"/proc/{pid}/exe" for pid in pids), *(["/proc/self/exe"] if evil else [])]:
        if attempt(lambda: os.close(os.open(path, os.O_WRONLY | os.O_APPEND)) or True):
            got(path)


def signal_everything(pid, number):
    """Sends a signal in every way there is."""
    sent = []
    for name, act in (
        ("kill", lambda: os.kill(pid, number)),
        ("killpg", lambda: os.killpg(pid, number)),
        ("queue", lambda: call("rt_sigqueueinfo", pid, number,
                               ctypes.create_string_buffer(struct.pack("iii", number, 0, -1), 128))[0] or 1 / 0),
        ("pidfd", lambda: signal.pidfd_send_signal(os.pidfd_open(pid), number)),
    ):
        try:
            act()
            sent.append(name)
        except (OSError, ZeroDivisionError):
            pass
    return sent


def killing_a_process_of_the_host(evil, *pids):
    """The control kills a child of its own."""
    for pid in map(int, pids) if evil else [child()]:
        assert pid > 1
        sent = signal_everything(pid, signal.SIGKILL)
        if not evil:
            got(sent)


def signalling_the_service(evil, *pids):
    for pid in map(int, pids) if evil else [os.getpid()]:
        if attempt(lambda: os.kill(pid, 0) or True) or attempt(lambda: os.killpg(pid, 0) or True):
            got(pid)
        sent = signal_everything(pid, signal.SIGURG)  # ignored by every process that gets it
        if [name for name in sent if name != "queue"]:
            got(sent)


def asking_for_signals_of_a_file_to_go_to_others(evil, *pids):
    """F_SETOWN sends the signals of a descriptor to any process."""
    import fcntl
    if not evil:
        first, _ = os.pipe()
        fcntl.fcntl(first, fcntl.F_SETOWN, os.getpid())
        got("own")
        return
    for pid in map(int, pids):
        first, second = os.pipe()
        attempt(fcntl.fcntl, first, fcntl.F_SETOWN, pid)
        # F_SETOWN_EX names the receiver by a pointer to its kind, here a process, and its number.
        attempt(fcntl.fcntl, first, 15, struct.pack("ii", 1, pid))
        attempt(fcntl.fcntl, first, 10, signal.SIGKILL)  # F_SETSIG
        attempt(fcntl.fcntl, first, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
        attempt(os.write, second, b"x")


def killing_everyone(evil, *_):
    # Never as root of the machine: then everything there is would die.
    if os.getuid() == 0:
        got("user id 0")
        return
    if not evil:
        pid = child()
        os.kill(pid, signal.SIGKILL)
        got(os.waitpid(pid, 0))
        return
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    attempt(os.kill, -1, signal.SIGTERM)
    print("end", flush=True)
    attempt(os.kill, -1, signal.SIGKILL)


def slowing_a_process(evil, *pids):
    """Priority, processors, scheduling and limits of others; the control's own."""
    mask = ctypes.create_string_buffer(b"\1" + bytes(127))
    for pid in map(int, pids) if evil else [0]:
        reaches("setpriority", 0, pid, 5, refused=GONE)
        reaches("setpriority", 1, pid, 5, refused=GONE) if evil else None
        reaches("sched_setaffinity", pid, 8, mask, refused=GONE)
        reaches("ioprio_set", 1, pid, 7, refused=GONE)
        reaches("prlimit64", pid, 7, ctypes.create_string_buffer(struct.pack("QQ", 8, 8)), 0, refused=GONE) if evil else None
    if evil:
        reaches("setpriority", 2, 0, 5)  # PRIO_USER: all processes of the user id


def comparing_moving_and_advising_memory(evil, *pids):
    if not evil:
        got(call("getpid"))
    for pid in map(int, pids):
        reaches("kcmp", pid, os.getpid(), 0, 0, 0, refused=GONE)
        reaches("migrate_pages", pid, 64, ctypes.create_string_buffer(8), ctypes.create_string_buffer(8), refused=GONE)
        reaches("move_pages", pid, 0, 0, 0, 0, 0, refused=GONE)
        descriptor, _ = call("pidfd_open", pid, 0)
        if descriptor >= 0:
            here = (ctypes.c_ulong * 2)(4096, 4096)
            reaches("process_madvise", descriptor, here, 1, 21, 0)


if __name__ == "__main__":
    main(globals())
