"""Has requests name what is there, half of the time: names that are made up are hardly ever those of a file."""

import zlib

import schemathesis

USERS = ["alice", "张三"]
PATHS = ["notes.txt", "scripts/count.py", "docs/数据.md", "docs", "link", "gbk.txt", "bytes.bin", "SKILL.md", "none"]
RUNS = ["run-1", "run-2", "build-7"]
COMMANDS = ["ls", "cat", "echo", "python3", "bash"]
PATTERNS = ["*.py", "**/*.md", "数据*", "a|b", "\\w+"]
KNOWN = {
    "u": USERS,
    "a": ["demo"],
    "s": ["count", "数据统计", "none"],
    "path": PATHS,
    "dir": PATHS,
    "from": PATHS,
    "to": PATHS + ["new.txt"],
    "exec_id": RUNS,
    "command": COMMANDS,
    "pattern": PATTERNS,
}


def known(names):
    """Replaces values, chosen by what was made up, so that a seed makes the same requests again."""
    if not isinstance(names, dict):
        return names
    for name, values in KNOWN.items():
        if isinstance(names.get(name), str):
            number = zlib.crc32(repr(sorted(names.items(), key=str)).encode(errors="replace"))
            # A tree that is made up has nothing in it.
            if name in ("u", "a", "s") or number % 2:
                names[name] = values[(number // 2) % len(values)]
    return names


@schemathesis.hook
def map_path_parameters(context, path_parameters):
    return known(path_parameters)


@schemathesis.hook
def map_query(context, query):
    return known(query)


@schemathesis.hook
def map_body(context, body):
    return known(body)
