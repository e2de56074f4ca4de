"""Reaching for the copies of skills in which commands of others run, and keeping hold of a copy of one's own."""

import os
import signal
import socket
import time

from attack import attempt, got, main, paced, steal


def reaching_the_kept_copy_of_another(evil, *directories):
    """Each is a copy that no run is in; for the control, the own tree."""
    for directory in directories:
        places = [directory]
        if evil:
            name = os.path.basename(directory)
            places += ["../" + name, "x/../../" + name, "/proc/self/cwd/../" + name, os.environ["HOME"] + "/../" + name]
        for place in places:
            names = attempt(os.listdir, place)
            if names:
                got(names)
            opened = attempt(os.open, place, os.O_RDONLY | os.O_DIRECTORY)
            if opened is not None:
                got("opened " + place)
            secret = os.path.join(place, "secret")
            steal(secret)
            for number, act in enumerate((
                lambda: os.close(os.open(secret, os.O_WRONLY | os.O_APPEND)),
                lambda: os.truncate(secret, 1),
                lambda: os.link(secret, "linked"),
                lambda: os.rename(secret, "taken"),
                lambda: os.mkdir(os.path.join(place, "made")),
                lambda: os.symlink("/", os.path.join(place, "link")),
                lambda: os.chmod(place, 0o777),
                lambda: os.rename(place, "moved") if evil else os.stat(place),
            )):
                try:
                    act()
                    got(f"way {number} in {place}")
                except OSError:
                    pass


def hold(evil):
    """Takes an open file from another run, and a connection to a process that the other left. Each time that it is told, it
    writes to the file and has the process write, until it is told to stop. The name of the told file is `write-1`,
    `write-2`, …, the answer `wrote-1`, `wrote-2`, …"""
    home = os.environ["HOME"]
    end = socket.socket(socket.AF_UNIX)
    attempt(os.unlink, home + "/s")
    end.bind(home + "/s")
    end.listen()
    open("ready", "w").close()
    other = end.accept()[0]
    _, (held, descriptor), _, _ = socket.recv_fds(other, 9, 2)
    left = socket.socket(fileno=descriptor)
    left.settimeout(paced(30))
    open("taken", "w").close()
    number, until = 1, time.monotonic() + paced(120)
    while not os.path.exists("enough") and time.monotonic() < until:
        if not os.path.exists(f"write-{number}"):
            time.sleep(0.005)
            continue
        acts = (lambda: forge(held, number), lambda: forge_at(home + "/linked", number))
        ways = [act for act in acts if attempt(act)]
        # Its end is closed when the process is gone; else it answers when it has written.
        if attempt(left.send, b"x"):
            attempt(left.recv, 1)
        with open("telling", "w") as out:
            out.write(str(len(ways)))
        os.rename("telling", f"wrote-{number}")
        number += 1


def forge(descriptor, number):
    """Writes another text of the same length each time, and puts the times back."""
    was = os.fstat(descriptor)
    os.pwrite(descriptor, b"forged %d\n" % number, 0)
    os.utime(descriptor, ns=(was.st_atime_ns, was.st_mtime_ns))
    return True


def forge_at(path, number):
    descriptor = os.open(path, os.O_RDWR)
    forge(descriptor, number)
    os.close(descriptor)
    return True


def give(evil):
    """Gives the open `data.txt` to another run, gives it a second name, and leaves a process that writes to it when it is
    told."""
    home = os.environ["HOME"]
    held = os.open("data.txt", os.O_RDWR)
    attempt(os.link, "data.txt", home + "/linked")
    own, others = socket.socketpair()
    end = socket.socket(socket.AF_UNIX)
    end.connect(home + "/s")
    socket.send_fds(end, [b"x"], [held, others.fileno()])
    others.close()
    if os.fork() == 0:
        attempt(os.setsid)
        attempt(os.setpgid, 0, 0)
        if os.fork() != 0:
            os._exit(0)
        for descriptor in (0, 1, 2):
            os.close(descriptor)
        # Its own run, which does not wait for it, has ended by then.
        while own.recv(1):
            attempt(forge, held, 0)
            own.send(b"x")
        os._exit(0)


def plant(evil, outside):
    """Makes what a later reader may trip over, and stays until it gets a signal."""
    with open("own", "w") as out:
        out.write("own text\n")
    secret = os.path.join(outside, "secret")
    attempt(os.symlink, secret, "link")
    attempt(os.symlink, outside, "directory")
    attempt(os.symlink, "/proc/self/environ", "environment")
    attempt(os.link, secret, "hard")
    attempt(os.mkfifo, "pipe")
    attempt(os.mknod, "device", 0o20666, os.makedev(1, 5))
    signal.sigwait({signal.SIGUSR1})


if __name__ == "__main__":
    # Before `main` says anything: the signal is waited for, and ends no process.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    main(globals())
