"""Processes that want to outlive their run. Each prints `partial`, leaves a process behind that writes to `beat` many
times a second, and then either hangs until the deadline or ends."""

import os
import signal
import subprocess
import sys
import threading
import time

from attack import attempt, got, libc, main, paced


def beat():
    """Shows life for as long as there is any."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXCPU):
        signal.signal(number, signal.SIG_IGN)
    while True:
        with open("beat", "a") as file:
            file.write(".")
        time.sleep(0.02)


def begin(evil):
    """Says that the attack began; the control ends here, after it has shown that a beat can be written."""
    print("partial", flush=True)
    if not evil:
        with open("beat", "a") as file:
            file.write(".")
        got("a beat")
    return evil


def hang():
    time.sleep(paced(60))


def forked(act):
    pid = os.fork()
    if pid == 0:
        try:
            act()
        finally:
            os._exit(0)
    return pid


def twice():
    """Forks and ends, so that the beating process is an orphan."""
    forked(beat)
    os._exit(0)


def hanging_past_the_deadline(evil):
    if begin(evil):
        beat()


def leaving_the_session_past_the_deadline(evil):
    if begin(evil):
        forked(lambda: (os.setsid(), beat()))
        hang()


def forking_twice_past_the_deadline(evil):
    if begin(evil):
        forked(lambda: (attempt(os.setsid), forked(lambda: (attempt(os.setsid), twice()))))
        hang()


def waiting_in_a_shell_past_the_deadline(evil):
    if begin(evil):
        line = "while :; do echo . >> beat; python3 -c 'import time; time.sleep(0.01)'; done & wait"
        subprocess.run(["sh", "-c", line])


def leaving_the_group_past_the_deadline(evil):
    if begin(evil):
        forked(lambda: (attempt(os.setpgid, 0, 0), beat()))
        attempt(os.setpgid, 0, 0)
        hang()


def using_nohup_past_the_deadline(evil):
    if begin(evil):
        with open("beating.py", "w") as file:
            file.write("import processes\nprocesses.beat()\n")
        for words in (["nohup", "setsid", "python3"], ["nohup", "python3"], ["python3"]):
            attempt(lambda: subprocess.Popen([*words, "beating.py", sys.argv[2]], start_new_session=True))
        hang()


def holding_the_pipes_past_the_deadline(evil):
    """The beating process keeps standard output open, and so does one that is stopped."""
    if begin(evil):
        forked(beat)
        stopped = forked(hang)
        os.kill(stopped, signal.SIGSTOP)
        hang()


def forking_without_end_past_the_deadline(evil):
    """A chain of processes, each of which makes the next one and ends: there is always one being born."""
    def chain():
        while True:
            pid = attempt(os.fork)
            if pid is None:
                time.sleep(0.001)
            elif pid:
                os._exit(0)
            with open("beat", "a") as file:
                file.write(".")
    if begin(evil):
        for _ in range(3):
            forked(lambda: (attempt(os.setsid), chain()))
        hang()


def leaving_a_daemon_after_a_normal_end(evil):
    if begin(evil):
        forked(lambda: (attempt(os.setsid), twice()))
        forked(beat)
        time.sleep(0.1)


def holding_the_pipes_after_a_normal_end(evil):
    if begin(evil):
        forked(lambda: time.sleep(paced(60)))
        forked(beat)
        time.sleep(0.1)


if __name__ == "__main__":
    main(globals())
