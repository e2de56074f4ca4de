"""What every payload stands on: it is told on standard input whether to attack, makes system calls by number, and says
`GOT` for each thing that it obtains."""

import ctypes
import errno
import json
import os
import platform
import struct
import sys

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long

X86 = platform.machine() == "x86_64"

# How many times as long everything takes here as on a real processor; `main` is told.
slowness = 1

# Numbers of system calls: on x86_64, and where the generic table is used (aarch64 and younger architectures).
# From 424 on they are the same everywhere.
NUMBERS = {
    "acct": (163, 89), "add_key": (248, 217), "bpf": (321, 280), "chroot": (161, 51), "clock_adjtime": (305, 266),
    "clock_settime": (227, 112), "clone": (56, 220), "clone3": (435, 435), "delete_module": (176, 106),
    "execveat": (322, 281), "fanotify_init": (300, 262), "finit_module": (313, 273), "fsmount": (432, 432),
    "fsopen": (430, 430), "getpid": (39, 172), "init_module": (175, 105), "inotify_init1": (294, 26),
    "io_uring_setup": (425, 425), "ioctl": (16, 29), "ioperm": (173, None), "iopl": (172, None),
    "ioprio_set": (251, 30), "kcmp": (312, 272), "kexec_file_load": (320, 294), "kexec_load": (246, 104),
    "keyctl": (250, 219), "listmount": (458, 458), "memfd_create": (319, 279), "memfd_secret": (447, 447),
    "migrate_pages": (256, 238), "mknodat": (259, 33), "modify_ldt": (154, None), "mount": (165, 40),
    "mount_setattr": (442, 442), "move_mount": (429, 429), "move_pages": (279, 239), "mq_open": (240, 180),
    "msgget": (68, 186), "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "open_tree": (428, 428),
    "openat": (257, 56), "perf_event_open": (298, 241), "personality": (135, 92), "pidfd_getfd": (438, 438),
    "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424), "pivot_root": (155, 41), "prctl": (157, 167),
    "prlimit64": (302, 261), "process_madvise": (440, 440), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "ptrace": (101, 117), "quotactl": (179, 60), "quotactl_fd": (443, 443),
    "read": (0, 63), "reboot": (169, 142), "renameat2": (316, 276), "request_key": (249, 218),
    "rt_sigqueueinfo": (129, 138), "sched_setaffinity": (203, 122), "semget": (64, 190), "setdomainname": (171, 162),
    "sethostname": (170, 161), "setns": (308, 268), "setpriority": (141, 140), "settimeofday": (164, 170),
    "setxattr": (188, 5), "shmget": (29, 194), "statmount": (457, 457), "swapoff": (168, 225), "swapon": (167, 224),
    "syslog": (103, 116), "umount2": (166, 39), "unshare": (272, 97), "userfaultfd": (323, 282), "vhangup": (153, 58),
}

# How the kernel says that it will not; anything else means that the call was looked at or carried out.
REFUSED = {errno.EPERM, errno.ENOSYS, errno.EACCES, errno.EOPNOTSUPP, errno.EAFNOSUPPORT}


def got(what):
    """Says what was obtained."""
    print("GOT", what, flush=True)


def call(name, *args):
    """Makes a system call by name. Returns its result and the error number, 0 without one."""
    number = NUMBERS[name][0 if X86 else 1]
    if number is None:
        return -1, errno.ENOSYS
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *(a if isinstance(a, (bytes, ctypes.Array)) or a is None
                                                   else ctypes.c_long(a) if isinstance(a, int) else a for a in args))
    return result, ctypes.get_errno() if result < 0 else 0


def reaches(name, *args, refused=()):
    """Makes a call that the kernel should refuse; says so when it did not."""
    result, error = call(name, *args)
    if result >= 0 or error not in REFUSED | set(refused):
        got(f"{name}: {result} {errno.errorcode.get(error, '')}")
    return result


def attempt(act, *args):
    """Calls `act` and returns what it returns, or None when the system refuses."""
    try:
        return act(*args)
    except (OSError, ValueError):
        return None


def slurp(path):
    """The first bytes of a file as text."""
    with open(path, "rb") as file:
        return file.read(4096).decode(errors="replace")


def steal(path):
    """Says what is in a file, when it can be read."""
    text = attempt(slurp, path)
    if text:
        got(f"{path}: {text.strip()}")
    return text


def paced(seconds):
    """A time that is enough on a real processor, as it is enough here."""
    return seconds * slowness


def main(functions):
    """Runs the function that the first argument names: `name(evil, *args)`."""
    global slowness
    told = json.load(sys.stdin)
    slowness = told["slowness"]
    print("begin", flush=True)
    functions[sys.argv[1]](told["evil"], *told["args"])
    sys.stderr.flush()
    print("end", flush=True)
