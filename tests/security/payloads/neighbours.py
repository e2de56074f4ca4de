"""What two runs can do to each other over the network that they live in. Where a tier allows no sockets at all, or none but
those of the proxy, controls use a pair of sockets that are connected to each other."""

import base64
import errno
import json
import os
import select
import socket
import time
import urllib.parse

from attack import attempt, got, main, paced

TCP_FASTOPEN, TCP_FASTOPEN_CONNECT, MSG_FASTOPEN = 23, 30, 0x20000000
PROXY = ("127.0.0.1", 3128)
PATIENCE = 35


def pair():
    """Proves that sockets as such work here."""
    first, second = socket.socketpair()
    first.send(b"x")
    got(second.recv(1))


def has_sockets():
    return attempt(socket.socket) is not None


def tell(name, text):
    """Leaves a file for the caller, whole or not at all."""
    with open(name + ".new", "w") as file:
        file.write(text)
    os.rename(name + ".new", name)


def until_enough():
    """Waits until the caller says so."""
    end = time.monotonic() + paced(PATIENCE)
    while time.monotonic() < end and not os.path.exists("enough"):
        time.sleep(0.02)


def carrying_a_secret_over_the_loopback_address(evil, *args):
    """Hears (`hear`), or sends a secret to what another run has opened (`send`, and the ports)."""
    send(json.loads(args[1])) if args[0] == "send" else hear(evil)


def hear(evil):
    ends, ports = [], {}
    for family in (socket.AF_INET, socket.AF_INET6):
        end = attempt(socket.socket, family, socket.SOCK_STREAM)
        if end is not None:
            # No address is asked for, so that no rule on ports is asked either.
            attempt(end.setsockopt, socket.IPPROTO_TCP, TCP_FASTOPEN, 16)
            if attempt(lambda: end.listen(16) or True):
                ends.append(end)
                ports[f"tcp{family:d}"] = end.getsockname()[1]
        end = attempt(socket.socket, family, socket.SOCK_DGRAM)
        if end is not None and attempt(lambda: end.bind(("", 0)) or True):
            ends.append(end)
            ports[f"udp{family:d}"] = end.getsockname()[1]
    if not evil and not ends:
        pair()
    tell("ports", json.dumps(ports))
    end = time.monotonic() + paced(PATIENCE)
    while ends and time.monotonic() < end and not os.path.exists("enough"):
        for ready in select.select(ends, [], [], 0.02)[0]:
            if ready.type == socket.SOCK_STREAM and ready.getsockname() and attempt(ready.getpeername) is None:
                other = ready.accept()[0]
                got(f"a connection from {other.getpeername()}")
                ends.append(other)
            else:
                data = attempt(ready.recv, 100)
                if data:
                    got(data)
                else:
                    ends.remove(ready)
    until_enough()


def send(ports):
    secret = b"the secret of another user"
    for name, port in ports.items():
        family = int(name[3:])
        address = ("127.0.0.1" if family == socket.AF_INET else "::1", port)
        for way in ("connect", "fastopen", "fastopen_connect", "sendmsg") if name[:3] == "tcp" else ("send",):
            end = attempt(socket.socket, family, socket.SOCK_STREAM if name[:3] == "tcp" else socket.SOCK_DGRAM)
            if end is None:
                continue
            end.settimeout(1)
            if way == "fastopen":
                attempt(end.sendto, secret, MSG_FASTOPEN, address)
            elif way == "sendmsg":
                attempt(end.sendmsg, [secret], [], MSG_FASTOPEN, address)
            elif way == "send":
                attempt(end.sendto, secret, address)
            else:
                if way == "fastopen_connect":
                    attempt(end.setsockopt, socket.IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 1)
                if attempt(lambda: end.connect(address) or True):
                    attempt(end.send, secret)
            attempt(end.shutdown, socket.SHUT_WR)


def holding_every_port(evil, what, *_):
    """Connects to the proxy until nothing more can be had (`hold`), or as one connection that needs a port (`ask`)."""
    if what == "ask":
        for _ in range(3):
            if asks():
                got("an answer of the proxy")
                return
        return
    children = []
    for _ in range(60):
        child = attempt(os.fork)
        if child == 0:
            os._exit(hold())
        if child is not None:
            children.append(child)
    held = 0
    for child in children:
        held += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if child else 0
    if not evil:
        pair() if not held else got(f"{held} connections")


def hold():
    """Takes as many ports as a process may have sockets, and waits with them. The code tells whether it had some.

    No more than its share of all ports: the kernel looks ever longer for the last ones."""
    ends, reserve = [], os.dup(0)
    # Where each connection has to wait for its turn, no process gets to its share.
    end_of_taking = time.monotonic() + paced(PATIENCE) / 2
    while len(ends) < 250 and time.monotonic() < end_of_taking and not os.path.exists("enough"):
        end = attempt(socket.socket)
        if end is None:
            break
        # A connection that is not accepted yet has a port, too.
        end.setblocking(False)
        if end.connect_ex(PROXY) not in (0, errno.EINPROGRESS):
            break
        ends.append(end)
    os.close(reserve)
    open(f"held-{os.getpid()}-{len(ends)}", "w").close()
    until_enough()
    return min(len(ends), 1)


def asks():
    """Whether the proxy answers at all."""
    end = attempt(socket.socket)
    if end is None:
        return False
    end.settimeout(2)
    with end:
        if not attempt(lambda: end.connect(PROXY) or True):
            return False
        attempt(end.sendall, b"CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n")
        return b" 407 " in (attempt(end.recv, 100) or b"")


def seeing_the_sockets_of_others(evil, *args):
    """Reads the kernel's tables of sockets (`look`), or has some sockets for a while (`have`)."""
    ends = []
    if args[0] == "have" or not evil:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            end = attempt(socket.socket, socket.AF_INET, kind)
            if end is not None and attempt(lambda: end.bind(("127.0.0.1", 0)) or True):
                attempt(end.listen) if kind == socket.SOCK_STREAM else None
                ends.append(end)
        end = attempt(socket.socket)
        if end is not None and attempt(lambda: end.connect(PROXY) or True):
            ends.append(end)
    if args[0] == "have":
        tell("ports", "{}")
        until_enough()
        return
    tables = 0
    for table in ("tcp", "tcp6", "udp", "udp6", "udplite", "raw", "raw6", "icmp", "unix", "packet"):
        for place in (f"/proc/net/{table}", f"/proc/self/net/{table}", f"/proc/thread-self/net/{table}"):
            lines = attempt(lambda: open(place).read().splitlines()[1:])
            tables += lines is not None
            # The proxy's listener is there for this run.
            lines = [line for line in lines or [] if " 0100007F:0C38 00000000:0000 0A " not in line]
            if lines:
                got(f"{place}: {lines[0][:60]}")
    if not evil and not tables:
        pair()


def reaching_the_proxy_without_a_network(evil, *_):
    """Connects to where the proxy listens for runs that may use it."""
    if not evil and not has_sockets():
        pair()
    if asks():
        got("an answer of the proxy")


def using_the_token_of_another_run(evil, *args):
    """Uses the token that a run of another user has told (`use`), or tells its own (`tell`)."""
    if args[0] == "tell":
        tell("ports", os.environ["HTTP_PROXY"])
        until_enough()
        return
    token = urllib.parse.urlsplit(args[1] if evil else os.environ["HTTP_PROXY"]).username
    basic = base64.b64encode(f"{token}:run".encode()).decode()
    with socket.create_connection(PROXY, 5) as end:
        end.settimeout(5)
        end.sendall(f"CONNECT 127.0.0.1:1 HTTP/1.1\r\nProxy-Authorization: Basic {basic}\r\n\r\n".encode())
        answer = attempt(end.recv, 100) or b""
    if b" 407 " not in answer:
        got(answer[:40])


if __name__ == "__main__":
    main(globals())
