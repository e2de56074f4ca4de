"""Making things that the service trips over when it reads the tree: links out of it, pipes, sockets, leases; and
changing them while it looks."""

import fcntl
import os
import signal
import socket
import sys
import time

from attack import attempt, main


def make_links(evil, *targets):
    """Links `link0`, `link1`, … and hard links `hard0`, … to the targets."""
    for number, target in enumerate(targets):
        if attempt(lambda: os.symlink(target, f"link{number}") or True):
            print(f"link{number} made")
        if attempt(lambda: os.link(target, f"hard{number}") or True):
            print(f"hard{number} made")


def make_pipe(evil):
    for name, act in (("pipe", lambda: os.mkfifo("pipe")), ("socket", lambda: socket.socket(socket.AF_UNIX).bind("socket"))):
        if attempt(lambda: act() or True):
            print(name, "made")


def hold_lease(evil, name):
    """Holds a write lease, which makes every process that opens the file wait, until told to stop."""
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    descriptor = os.open(name, os.O_CREAT | os.O_RDWR)
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    until_enough()


def until_enough():
    open("ready", "w").close()
    end = time.monotonic() + 12
    while time.monotonic() < end and not os.path.exists("enough"):
        time.sleep(0.01)


def until_told():
    """Yields at least a thousand times, and until it is told to stop."""
    open("ready", "w").close()
    end = time.monotonic() + 12
    count = 0
    while count < 1000 or time.monotonic() < end:
        yield
        count += 1
        if count >= 1000:
            time.sleep(0.0003)  # processor time is limited
            if count % 64 == 0 and os.path.exists("enough"):
                break
    print(f"{count} swaps")


def swap_file_and_link(evil, target):
    """`swapped` is a file of one's own and a link to the target in turns."""
    for _ in until_told():
        with open("own-file", "w") as file:
            file.write("own")
        os.replace("own-file", "swapped")
        os.symlink(target, "own-link")
        os.replace("own-link", "swapped")


def swap_directory_and_link(evil, target):
    """`swapped` is a directory of one's own and a link to the target in turns; both have a file `secret`."""
    os.makedirs("real", exist_ok=True)
    with open("real/secret", "w") as file:
        file.write("own")
    os.symlink(target, "away")
    attempt(os.symlink, "real", "swapped")
    os.makedirs("parked", exist_ok=True)
    attempt(os.unlink, "swapped")
    for _ in until_told():
        attempt(os.rename, "real", "swapped")
        attempt(os.rename, "swapped", "real")
        attempt(os.rename, "away", "swapped")
        attempt(os.rename, "swapped", "away")


if __name__ == "__main__":
    main(globals())
