"""Reaching for files that belong to the host or to other users. Each function is told a path: for the control one in
its own tree, for the attack one outside."""

import ctypes
import mmap
import os
import shutil
import subprocess

from attack import attempt, got, libc, main, steal


def read_in_every_way(path):
    """Reads a file by calls and by programs of the list."""
    steal(path)
    descriptor = attempt(os.open, path, os.O_RDONLY)
    if descriptor is not None:
        got(attempt(os.pread, descriptor, 200, 0))
        mapped = attempt(mmap.mmap, descriptor, 0, mmap.MAP_PRIVATE, mmap.PROT_READ)
        got(mapped and mapped[:200])
    for command in (["cat", path], ["grep", "-r", "", path], ["cp", path, "stolen"], ["bash", "-c", f"echo $(<{path})"],
                    ["awk", "{print}", path], ["sed", "", path], ["curl", "-s", f"file://{path}"]):
        output = attempt(lambda c: subprocess.run(c, capture_output=True, timeout=10).stdout, command)
        if output and output.strip():
            got(output)
    steal("stolen")
    if attempt(shutil.copyfile, path, "copied"):
        steal("copied")


def reading_a_host_file_by_its_path(evil, path):
    read_in_every_way(path)


def reading_a_host_file_through_a_symlink(evil, path):
    attempt(os.symlink, path, "link")
    attempt(os.symlink, os.path.dirname(path) or ".", "directory")
    steal("link")
    steal("directory/" + os.path.basename(path))


def reading_a_host_file_through_a_hard_link(evil, path):
    for flags in (0, 0x400):  # AT_SYMLINK_FOLLOW
        name = f"hard{flags}"
        libc.linkat(-100, path.encode(), -100, name.encode(), flags)
        steal(name)


def reading_a_host_file_through_links_of_proc(evil, path):
    here = os.getcwd()
    absolute = os.path.abspath(path)
    climb = "/.." * here.count("/")
    for start in ("/proc/self/root", "/proc/thread-self/root", "/proc/1/root", f"/proc/{os.getppid()}/root",
                  f"/proc/self/cwd{climb}", f"/proc/self/task/{os.getpid()}/root", "/dev/fd/../root"):
        steal(start + absolute)
    # The control has no other way to a link of its own process that every tier allows.
    descriptor = attempt(os.open, path, os.O_RDONLY)
    if descriptor is not None:
        steal(f"/proc/self/fd/{descriptor}") or got(os.read(descriptor, 100))


def reading_a_host_file_by_climbing(evil, path):
    absolute = os.path.abspath(path)
    relative = os.path.relpath(absolute)
    steal(relative)
    steal("./x/../" + relative) if os.path.isdir("x") else attempt(os.mkdir, "x")
    steal("x/../" + relative)
    home = os.getcwd()
    for _ in range(40):
        if attempt(os.chdir, "..") is None and os.getcwd() == "/":
            break
    steal("." + absolute)
    os.chdir(home)
    root = attempt(os.open, "/", os.O_PATH)
    if root is not None:
        descriptor = attempt(lambda: os.open(absolute[1:], os.O_RDONLY, dir_fd=root))
        if descriptor is not None:
            got(os.read(descriptor, 100))


def reading_password_hashes(evil, *paths):
    for path in paths:
        read_in_every_way(path)


def listing_directories_of_the_host(evil, path, name):
    """`name` is what the directory `path` holds."""
    for directory in (path, path + "/.", "/proc/self/root" + os.path.abspath(path)):
        names = attempt(os.listdir, directory)
        if names and name in names:
            got(names)
    for command in (["ls", "-a", path], ["find", path], ["bash", "-c", f"echo {path}/*"]):
        output = subprocess.run(command, capture_output=True, text=True, timeout=10).stdout
        if name in output:
            got(output)


def changing_a_host_file(evil, path):
    for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND, os.O_WRONLY | os.O_TRUNC):
        descriptor = attempt(os.open, path, flags)
        if descriptor is not None:
            os.write(descriptor, b"changed")
            got("opened for writing")
    if attempt(lambda: os.truncate(path, 3) or True):
        got("truncated")
    attempt(shutil.copyfile, "attack.py", path)
    subprocess.run(["bash", "-c", f"echo changed >> {path}; cp attack.py {path}; sed -i s/./x/ {path}"],
                   capture_output=True, timeout=10)


def making_files_on_the_host(evil, directory):
    target = os.path.join(directory, "made")
    acts = (
        lambda: os.close(os.open(target + "-file", os.O_CREAT | os.O_WRONLY, 0o666)),
        lambda: os.mkdir(target + "-directory"),
        lambda: os.symlink("x", target + "-link"),
        lambda: os.link("attack.py", target + "-hard"),
        lambda: os.mkfifo(target + "-pipe"),
        lambda: shutil.copyfile("attack.py", target + "-copy"),
    )
    for number, act in enumerate(acts):
        try:
            act()
            got(f"way {number}")
        except OSError:
            pass


def removing_and_renaming_host_files(evil, directory):
    secret = os.path.join(directory, "secret")
    with open("mine", "w") as file:
        file.write("mine")
    for number, act in enumerate((
        lambda: os.rename(secret, "taken"),
        lambda: os.replace("mine", secret),
        lambda: os.rename(secret, secret + "-renamed"),
        lambda: os.unlink(secret),
        lambda: os.rename(directory, directory + "-renamed"),
        lambda: os.rmdir(directory),
    )):
        try:
            act()
            got(f"way {number}")
        except OSError:
            pass


def changing_mode_and_times_of_a_host_file(evil, path):
    for number, act in enumerate((
        lambda: os.chmod(path, 0o640),
        lambda: os.utime(path, (1, 1)),
        lambda: os.chown(path, os.getuid(), os.getgid()),
    )):
        try:
            act()
            if number != 2 or not evil:
                got(f"way {number}")
        except OSError:
            pass


def looking_at_a_host_file(evil, path):
    facts = attempt(os.stat, path)
    if facts:
        got(f"{facts.st_size} bytes of {facts.st_uid}")


def reading_files_of_the_store(evil, *paths):
    for path in paths:
        steal(path)
        names = attempt(os.listdir, path)
        if names:
            got(names)


reading_a_neighbours_workspace = reading_files_of_the_store
reading_a_neighbours_overlay = reading_files_of_the_store
reading_a_neighbours_home = reading_files_of_the_store
reading_skills_of_another_agent = reading_files_of_the_store


def writing_to_neighbours_and_the_baseline(evil, *directories):
    for directory in directories:
        making_files_on_the_host(evil, directory)
        target = os.path.join(directory, "data.txt")
        for path in (target, os.path.join(directory, "secret")):
            descriptor = attempt(os.open, path, os.O_WRONLY | os.O_APPEND)
            if descriptor is not None:
                os.write(descriptor, b"changed")
                got(path)


def finding_a_neighbour_beside_the_own_tree(evil, *names):
    """Knows no path of the host, but where its own tree is."""
    places = {os.path.realpath("."), os.environ.get("WORKSPACE", "."), os.environ.get("HOME", "."),
              os.environ.get("TMPDIR", ".")}
    for place in places:
        while place not in ("/", ""):
            for name in names:
                for tail in (f"/{name}/demo/secret", f"/{name}/demo/shared/secret", f"/{name}", f"/{name}/secret"):
                    if os.path.abspath(place + tail).startswith(os.path.realpath(".")) == evil:
                        continue
                    steal(place + tail)
                    names_there = attempt(os.listdir, place + tail)
                    if names_there:
                        got(names_there)
            place = os.path.dirname(place)


def leaving_files_in_shared_directories(evil, name, *directories):
    """The control looks whether a file can be made in its own tree."""
    for directory in directories:
        path = os.path.join(directory, name)
        try:
            with open(path, "w") as file:
                file.write("left")
            if not evil:
                got(path)
        except OSError:
            pass


if __name__ == "__main__":
    main(globals())
