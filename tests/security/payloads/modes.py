"""Changing modes, times and owners, which Landlock does not mediate. Each function is told paths: for the control one of
its own, for the attack those of the service and of its users."""

import ctypes
import os
import struct
import threading
import time

from attack import X86, attempt, call, got, libc, main

TIMES = ctypes.create_string_buffer(struct.pack("qqqq", 86400, 5, 86400, 7))


def raw(old, new, *arguments):
    """Makes a system call by its number on x86_64 and elsewhere; tells whether it succeeded."""
    number = old if X86 else new
    return number is not None and libc.syscall(ctypes.c_long(number), *arguments) == 0


def place(path):
    return attempt(os.open, path, os.O_PATH) or -1


def linked(path, name="link"):
    if os.path.lexists(name):
        os.unlink(name)
    attempt(os.symlink, os.path.abspath(path), name)
    return name.encode()


def every_way(path, mode):
    """Each call, and each way to name what it is about."""
    name, me, us = path.encode(), os.getuid(), os.getgid()
    above, below = place(os.path.dirname(os.path.abspath(path))), os.path.basename(path).encode()
    fd = place(path)
    empty = 0x1000
    return {
        "chmod": lambda: raw(90, None, name, mode),
        "fchmodat": lambda: raw(268, 53, -100, name, mode),
        "fchmodat beneath": lambda: raw(268, 53, above, below, mode),
        "fchmodat2": lambda: raw(452, 452, -100, name, mode, 0x100),
        "fchmodat2 of a place": lambda: raw(452, 452, fd, b"", mode, empty),
        "fchmod of a place": lambda: raw(91, 52, fd, mode),
        "a name in /proc": lambda: raw(268, 53, -100, b"/proc/self/fd/%d" % fd, mode),
        "a thread's name in /proc": lambda: raw(268, 53, -100, b"/proc/thread-self/fd/%d" % fd, mode),
        "a task's name in /proc": lambda: raw(268, 53, -100, b"/proc/self/task/%d/fd/%d" % (os.getpid(), fd), mode),
        "a name in /dev": lambda: raw(268, 53, -100, b"/dev/fd/%d" % fd, mode),
        "the root in /proc": lambda: raw(268, 53, -100, b"/proc/self/root" + os.path.abspath(path).encode(), mode),
        "a link": lambda: raw(268, 53, -100, linked(path), mode),
        "a link above": lambda: raw(268, 53, -100, linked(os.path.dirname(path) or ".", "up") + b"/" + below, mode),
        "utimensat": lambda: raw(280, 88, -100, name, TIMES, 0),
        "utimensat of a place": lambda: raw(280, 88, fd, b"", TIMES, empty),
        "utimensat of a descriptor": lambda: raw(280, 88, fd, None, TIMES, 0),
        "utimensat without times": lambda: raw(280, 88, -100, name, None, 0),
        "futimesat": lambda: raw(261, None, -100, name, TIMES),
        "utimes": lambda: raw(235, None, name, TIMES),
        "utime": lambda: raw(132, None, name, TIMES),
        "chown": lambda: raw(92, None, name, me, us),
        "lchown": lambda: raw(94, None, name, me, us),
        "fchownat": lambda: raw(260, 54, -100, name, me, us, 0x100),
        "fchownat of a place": lambda: raw(260, 54, fd, b"", me, us, empty),
        "fchown": lambda: raw(93, 55, fd, me, us),
    }


def changing_attributes_of_a_neighbours_files(evil, *paths):
    for path in paths:
        for way, act in every_way(path, 0o600).items():
            # To its owner, `chown` to what a file is already changes nothing but its times.
            if act():
                got(f"{way}: {path}")


def closing_the_services_directories_to_everyone(evil, *paths):
    for path in paths:
        if not evil:
            os.mkdir(path)
        for way, act in every_way(path, 0).items():
            if act():
                got(f"{way}: {path}")
        if not evil:
            os.chmod(path, 0o700)


def changing_a_path_while_it_is_judged(evil, outside):
    """The same memory names, in turn, a file of its own and one outside; so does a name in the tree."""
    with open("mine", "w"):
        pass
    os.makedirs("turning", exist_ok=True)
    name = os.path.basename(outside)
    with open("turning/" + name, "w"):
        pass
    mine, other = b"mine", outside.encode()
    buffer = ctypes.create_string_buffer(mine, 4096)
    done = threading.Event()

    def flip():
        while not done.is_set():
            ctypes.memmove(buffer, other, len(other) + 1)
            ctypes.memmove(buffer, mine, len(mine) + 1)

    def turn():
        while not done.is_set():
            attempt(os.rename, "turning", "turned")
            attempt(os.symlink, os.path.dirname(outside) or ".", "turning")
            attempt(os.unlink, "turning")
            attempt(os.rename, "turned", "turning")

    threads = [threading.Thread(target=flip), threading.Thread(target=turn)]
    for thread in threads:
        thread.start()
    # Three threads, and a run may take two seconds of processor time with the start of Python.
    # Where others have the processor, half a second may be over before this thread has had its turn.
    until, begun = time.monotonic() + 0.5, time.process_time()
    made = 0
    while time.monotonic() < until or not made and time.process_time() < begun + 1:
        made += raw(268, 53, -100, buffer, 0o600)
        made += raw(268, 53, -100, b"turning/" + name.encode(), 0o600)
    done.set()
    for thread in threads:
        thread.join()
    assert made, "nothing was changed, not even one's own"
    # Whether anything outside was changed, the host knows.
    if not evil:
        got("one's own")


if __name__ == "__main__":
    main(globals())
