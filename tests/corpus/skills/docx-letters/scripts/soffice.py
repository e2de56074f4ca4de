"""Starts soffice, also where UNIX sockets are refused.

soffice listens on such a socket for a second start of itself, and waits for ever when it cannot. Where a sandbox refuses the
socket, a small library stands in for it: one end of a pair of sockets that no program connects to.
"""
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

static char stands_in[65536];
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define IS_OURS(fd) ((fd) >= 0 && (fd) < 65536 && stands_in[fd])

int socket(int domain, int type, int protocol) {
  int fd = REAL(socket)(domain, type, protocol), pair[2];
  if (fd >= 0 || domain != AF_UNIX) return fd;
  if (socketpair(AF_UNIX, SOCK_STREAM | (type & SOCK_CLOEXEC), 0, pair) || pair[0] >= 65536) return -1;
  return stands_in[pair[0]] = 1, pair[0];
}
int bind(int fd, const struct sockaddr *name, socklen_t length) { return IS_OURS(fd) ? 0 : REAL(bind)(fd, name, length); }
int listen(int fd, int backlog) { return IS_OURS(fd) ? 0 : REAL(listen)(fd, backlog); }
int connect(int fd, const struct sockaddr *name, socklen_t length) {
  if (!IS_OURS(fd)) return REAL(connect)(fd, name, length);
  return errno = ECONNREFUSED, -1;
}
/* Waits until the listener is shut down. */
int accept(int fd, struct sockaddr *name, socklen_t *length) {
  char byte;
  if (!IS_OURS(fd)) return REAL(accept)(fd, name, length);
  recv(fd, &byte, 1, 0);
  return errno = ECONNABORTED, -1;
}
int close(int fd) {
  if (IS_OURS(fd)) stands_in[fd] = 0;
  return REAL(close)(fd);
}
"""


def command():
    """The program and its environment: with the library, and past the shell script around it, where sockets are refused."""
    try:
        socket.socket(socket.AF_UNIX).close()
        return "soffice", dict(os.environ)
    except OSError:
        library = pathlib.Path(tempfile.gettempdir(), "soffice-sockets.so")
        if not library.exists():
            made = library.with_suffix(f".{os.getpid()}")
            build = ["cc", "-shared", "-fPIC", "-o", made, "-x", "c", "-", "-ldl"]
            subprocess.run(build, input=SHIM, text=True, check=True)
            made.rename(library)
        starter = pathlib.Path(shutil.which("soffice")).resolve().with_name("oosplash")
        program = str(starter) if starter.exists() else "soffice"
        return program, os.environ | {"LD_PRELOAD": str(library)}


if __name__ == "__main__":
    # Where the user has no line in /etc/passwd, soffice keeps its settings here or nowhere.
    os.makedirs(os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config"), exist_ok=True)
    program, environment = command()
    run = subprocess.run([program, "--headless", *sys.argv[1:]], env=environment, timeout=75)
    sys.exit(run.returncode)
