"""A server in a sandbox that is against its caller and the service: it keeps what it gets, and answers with what speaks for
an origin."""

import os
import socket
import sys
import threading
import time

# What speaks for the whole origin, to a proxy in front, or to other pages.
EVIL = (b"Set-Cookie: evil=1; Path=/\r\nSet-Cookie2: evil=1\r\nClear-Site-Data: \"*\"\r\nService-Worker-Allowed: /\r\n"
        b"Strict-Transport-Security: max-age=999\r\nAccess-Control-Allow-Origin: http://evil.example\r\n"
        b"Access-Control-Allow-Credentials: true\r\nWWW-Authenticate: Basic realm=\"the service\"\r\n"
        b"Proxy-Authenticate: Basic\r\nAlt-Svc: h3=\":1\"\r\nX-Accel-Redirect: /etc/passwd\r\nX-Sendfile: /etc/passwd\r\n"
        b"Refresh: 0; url=http://evil.example\r\nReport-To: {}\r\nNEL: {}\r\nReporting-Endpoints: a=\"http://evil.example\"\r\n"
        b"Public-Key-Pins: x\r\nContent-Security-Policy: sandbox allow-same-origin allow-scripts\r\n"
        b"Content-Security-Policy-Report-Only: report-uri http://evil.example\r\nX-Content-Type-Options: none\r\n"
        b"Referrer-Policy: unsafe-url\r\nX-Request-Id: forged\r\nCache-Control: public, s-maxage=999\r\n")
lock = threading.Lock()


def keep(data):
    with lock, open("seen", "ab") as file:
        file.write(b"BEGIN" + data + b"END\n")


def serve(end):
    data = b""
    end.settimeout(3)
    try:
        while b"\r\n\r\n" not in data:
            piece = end.recv(65536)
            if not piece:
                break
            data += piece
        end.settimeout(0.2)
        while piece := end.recv(65536):
            data += piece
    except OSError:
        pass
    keep(data)
    end.settimeout(30)
    path = (data.split(b" ") + [b"", b""])[1].decode("latin-1")
    try:
        answer(end, path)
    except OSError:
        pass
    end.close()


def answer(end, path):
    if path.startswith("/hold"):
        time.sleep(30)
    elif path.startswith("/endless"):
        end.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            end.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")
    elif path.startswith("/head"):
        end.sendall(b"HTTP/1.1 200 OK\r\n")
        while True:
            end.sendall(b"X-More: " + b"x" * 60000 + b"\r\n")
    elif path.startswith("/to/"):
        end.sendall(b"HTTP/1.1 307 Moved\r\nContent-Length: 0\r\nLocation: " + bytes.fromhex(path[4:]) + b"\r\n\r\n")
    elif path.startswith("/status/"):
        status = path[8:11].encode()
        body = b"" if status in (b"101", b"304") else b"<script>evil</script>"
        end.sendall(b"HTTP/1.1 " + status + b" Evil\r\nContent-Type: text/html\r\nUpgrade: websocket\r\nConnection: upgrade\r\n"
                    + EVIL + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
    elif path.startswith("/two"):
        # A second answer, which no request asked for.
        end.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nown"
                    b"HTTP/1.1 200 OK\r\nSet-Cookie: evil=1\r\nContent-Length: 4\r\n\r\nevil")
    else:
        end.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 10\r\n\r\nthe server")


server = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=512)
open("listens", "w").close()
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
