"""Taking more than one's share. Amounts are bounded so that they do no harm where nothing stops them."""

import os
import signal
import sys
import threading
import time

from attack import attempt, call, got, main, paced


def forking_until_refused(evil, most):
    """More processes than configured."""
    children = []
    for _ in range(int(most)):
        pid = attempt(os.fork)
        if pid == 0:
            time.sleep(paced(20))
            os._exit(0)
        if pid is None:
            break
        children.append(pid)
    if not evil or len(children) >= int(most):
        got(f"{len(children)} processes")
    for pid in children:
        os.kill(pid, signal.SIGKILL)


def starting_threads_until_refused(evil, most):
    # The least that glibc takes on aarch64.
    threading.stack_size(131072)
    enough = threading.Event()
    count = 0
    try:
        for _ in range(int(most)):
            threading.Thread(target=enough.wait, args=(20,), daemon=True).start()
            count += 1
    except RuntimeError:
        pass
    if not evil or count >= int(most):
        got(f"{count} threads")
    enough.set()


def keep(make, count):
    """Makes `count` of something, one after the other, and goes on trying until it is told to stop. Says when it has as many as it may."""
    made, is_lit = 0, False
    for number in range(1, int(count) + 1):
        is_made = attempt(make) is not None
        made += is_made
        if not is_lit and (not is_made or number == int(count)):
            is_lit = True
            with open("lit", "w"):
                pass
    print(f"{made} made", flush=True)
    until = time.monotonic() + paced(40)
    while time.monotonic() < until and not os.path.exists("enough"):
        attempt(make)
        time.sleep(0.001)
    return made


def keeping_others_from_forking_with_processes(evil, count):
    def child():
        pid = os.fork()
        if pid == 0:
            os.close(writer)
            # Each of them tries, too; what it makes waits until the first process ends.
            for _ in range(50):
                if attempt(os.fork) == 0:
                    break
            os.read(reader, 1)
            os._exit(0)
        return pid

    reader, writer = os.pipe()
    made = keep(child, count) if evil else sum(attempt(os.fork) != 0 or os._exit(0) for _ in range(int(count)))
    if not evil:
        got(f"{made} processes")


def keeping_others_from_forking_with_threads(evil, count):
    # The least that glibc takes on aarch64.
    threading.stack_size(131072)
    enough = threading.Event()

    def thread():
        try:
            made = threading.Thread(target=enough.wait, args=(45,), daemon=True)
            made.start()
            return made
        except RuntimeError:
            raise OSError("no more threads")

    if evil:
        keep(thread, count)
    else:
        got(f"{sum(attempt(thread) is not None for _ in range(int(count)))} threads")
    enough.set()


def taking_memory_in_one_process(evil, size):
    """`size` in bytes, all of it touched."""
    try:
        taken = bytearray(int(size))
        taken[::4096] = b"x" * len(taken[::4096])
        got(f"{len(taken)} bytes")
    except MemoryError:
        pass


def taking_memory_in_many_processes(evil, count, size):
    """Says how much all of them together have had for a second."""
    reader, writer = os.pipe()
    children = []
    for _ in range(int(count)):
        pid = attempt(os.fork)
        if pid == 0:
            try:
                taken = bytearray(int(size))
                for start in range(0, len(taken), 4096):
                    taken[start] = 1
                os.write(writer, b"x")
                time.sleep(paced(20))
            finally:
                os._exit(0)
        if pid:
            children.append(pid)
    os.close(writer)
    end = time.monotonic() + paced(8)
    os.set_blocking(reader, False)
    ready = b""
    while time.monotonic() < end and len(ready) < len(children):
        ready += attempt(os.read, reader, 100) or b""
        if any(attempt(os.waitpid, pid, os.WNOHANG) not in (None, (0, 0)) for pid in children):
            break
        time.sleep(0.01)
    # Where memory is sampled, a run may have too much for a moment, and dies for it.
    time.sleep(1)
    if len(ready) == int(count) and not any(attempt(os.waitpid, pid, os.WNOHANG) not in (None, (0, 0)) for pid in children):
        got(f"{int(count) * int(size)} bytes in {count} processes")
    for pid in children:
        attempt(os.kill, pid, signal.SIGKILL)


def writing_one_large_file(evil, size):
    """`size` in bytes; sparse, so that the disk is not harmed."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    descriptor = os.open("large", os.O_CREAT | os.O_WRONLY)
    if attempt(os.pwrite, descriptor, b"x", int(size) - 1):
        got(os.fstat(descriptor).st_size)
    os.unlink("large")


def filling_the_disk_with_many_files(evil, count, size):
    """`count` files of `size` bytes, written for real."""
    piece = b"x" * int(size)
    os.makedirs("fill", exist_ok=True)
    written = 0
    for number in range(int(count)):
        def one():
            with open(f"fill/{number}", "wb") as file:
                file.write(piece)
            return True
        if not attempt(one):
            break
        written += len(piece)
        # Slowly, so that there is time to look.
        time.sleep(0.02)
    if written == int(count) * int(size):
        got(f"{written} bytes")


def making_files_without_number(evil, count):
    os.makedirs("many", exist_ok=True)
    made = 0
    for number in range(int(count)):
        if attempt(lambda: open(f"many/{number}", "w").close() or True) is None:
            break
        made += 1
        # Slowly, so that there is time to look, and with less of the processor than is allowed.
        if made % 20 == 0:
            time.sleep(0.02)
    if made == int(count):
        got(f"{made} files")


def opening_files_without_number(evil, most):
    count = 0
    while count < int(most) and attempt(os.dup, 0) is not None:
        count += 1
    if not evil or count >= int(most):
        got(f"{count} descriptors")


def using_the_processor_without_end(evil, seconds):
    """Processor time of this process; the kernel ends it at the limit."""
    if not evil:
        got(time.process_time())
        return
    while time.process_time() < float(seconds):
        sum(range(100000))
    got("more processor time than configured")


def writing_output_without_end(evil, size):
    if not evil:
        got("output")
        return
    piece = b"x" * (1 << 20)
    for _ in range(int(size) >> 20):
        os.write(1, piece)
        os.write(2, piece[:1000])
    print()


def locking_files_that_the_api_uses(evil, *names):
    """Holds every kind of lock until told to stop."""
    import fcntl
    held = []
    for name in names:
        for act in (lambda d: fcntl.flock(d, fcntl.LOCK_EX), lambda d: fcntl.lockf(d, fcntl.LOCK_EX)):
            descriptor = os.open(name, os.O_RDWR | os.O_CREAT, 0o666)
            act(descriptor)
            held.append(descriptor)
    got(f"{len(held)} locks") if not evil else open("locked", "w").close()
    end = time.monotonic() + paced(10)
    while evil and time.monotonic() < end and not os.path.exists("enough"):
        time.sleep(0.01)


if __name__ == "__main__":
    main(globals())
