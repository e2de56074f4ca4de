"""Has requests name what is there, half of the time: names that are made up are hardly ever those of a file."""

import io
import re
import zipfile
import zlib

import schemathesis

USERS = ["alice", "张三"]
PATHS = ["notes.txt", "scripts/count.py", "docs/数据.md", "docs", "link", "gbk.txt", "bytes.bin", "SKILL.md", "none"]
RUNS = ["run-1", "run-2", "build-7"]
COMMANDS = ["ls", "cat", "echo", "python3", "bash"]
PATTERNS = ["*.py", "**/*.md", "数据*", "a|b", "\\w+"]
PATCHES = [
    "--- a/notes.txt\n+++ b/notes.txt\n@@ -1,2 +1,2 @@\n #!/usr/bin/env python3\n-print('one')\n+print('壹')\n",
    "--- a/notes.txt\n+++ b/notes.txt\n@@ -1,2 +1,2 @@\n #!/usr/bin/env python3\n-print('壹')\n+print('one')\n",
    "--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+new\n",
    "--- a/new.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-new\n",
]
EDITS = [
    [{"old_string": "one", "new_string": "two"}],
    [{"old_string": "two", "new_string": "one"}],
    [{"old_string": "# ", "new_string": "#  ", "expected_replacements": 2}],
]
KNOWN = {
    "u": USERS,
    "a": ["demo"],
    "s": ["count", "数据统计", "none"],
    "path": PATHS,
    "dir": PATHS,
    "from": PATHS,
    "to": PATHS + ["new.txt"],
    "exec_id": RUNS,
    "v": ["1", "2", "0123456789abcdef0123456789abcdef"],
    "name": ["session-1", "none"],
    "command": COMMANDS,
    "pattern": PATTERNS,
    "patch": PATCHES,
    "edits": EDITS,
}


# Why a request may be refused as one that makes no sense although the document allows it: what no schema can say, because it
# is about two parameters, about what is there, or about the text of a language.
UNSAYABLE = [
    "`user` out",  # of the registry: `user` with the scope `baseline`
    "goes with a whole text",  # `encoding` with lines
    "moved or copied into itself",  # `from` and `to`
    "none that this list gave out|is no cursor",  # a cursor that is made up
    "condition in the header or `etags`",
    "goes with `Accept",  # `after` without a stream
    "`skills` goes with a command in a workspace",  # one parameter of the routes of both trees
    "^`etags` has `(.|\\n)*`, which the patch has not",  # `etags` and the text of `patch`
    "needs a WebSocket",
    "^the pattern `.+` is refused",  # the syntax of regular expressions and of patterns for paths
    "^the script ",  # quotes of a shell that never end
    "^the environment variable",  # names that no caller may pass
    "^`ttl_seconds` is",  # more than the configuration allows
    "^`hosts`: ",  # the syntax of hosts
    "^there is no bootstrap step",  # those of the configuration
    "^the name `(.|\\n)*` of a file has more than",  # bytes, which are no characters
    "^the bytes have the digest",  # of the body
    "^`(title|message)` has more than",  # bytes, which are no characters
    "are for versions of the application",  # `title`, `message` and `current` with another `scope`
    "^`layer` and `version` go not together",
    "^a workspace has no layers and no versions",  # one parameter of the routes of both trees
    "^`to` goes with `from`",
    "^`network` is more than the service grants",  # more than the configuration allows
    "invalid type: floating point `[0-9.e+]+`, expected",  # 258.0, which JSON Schema takes for an integer
]


@schemathesis.check
def no_valid_request_is_refused(context, response, case):
    """What the document allows is never called wrong."""
    # The answer to `HEAD` has no sentence; `GET` of the same is asked, too.
    if response.status_code in (400, 415) and case.method.upper() != "HEAD":
        told = response.json()
        # Lines that a file or the text of a patch does not have.
        is_of_lines = "line" in told or "total_lines" in told
        # The devbox dialect has its sentence in another field.
        sentence = told["data"] or told["message"]
        if not is_of_lines and not any(re.search(reason, sentence) for reason in UNSAYABLE):
            raise AssertionError(f"the document allows it, and the service says: {sentence}")


# What these remove is not what all others are about.
SPARED = {
    "deleteDevbox": {"name": ["none"]},
    "pauseDevbox": {"name": ["none"]},
    "stopDevbox": {"name": ["none"]},
    "removeSkill": {"s": ["extra", "none"]},
    "removeVersion": {"s": ["extra", "none"]},
    "removeWorkspace": {"u": ["nobody"]},
    "removeWorkspacesOfUser": {"u": ["nobody"]},
    "setAgentPolicy": {"a": ["governed"]},
    "removeAgentPolicy": {"a": ["governed"]},
}


# Names that mean something else in these than elsewhere.
OTHERS = {"diffSkill": {"from": ["1", "2"], "to": ["1", "2"]}}


def known(context, names):
    """Replaces values, chosen by what was made up, so that a seed makes the same requests again."""
    if not isinstance(names, dict):
        return names
    operation = context.operation.definition.raw.get("operationId")
    own = SPARED.get(operation, {}) | OTHERS.get(operation, {})
    for name, values in (KNOWN | own).items():
        if isinstance(names.get(name), (str, list)):
            number = zlib.crc32(repr(sorted(names.items(), key=str)).encode(errors="replace"))
            # A tree that is made up has nothing in it.
            if name in ("u", "a", "s") or number % 2:
                value = values[(number // 2) % len(values)]
                # A command is a name in one place and a list in another.
                is_list = isinstance(names[name], list) and isinstance(value, str)
                names[name] = [value] if is_list else value
    return names


@schemathesis.hook
def map_path_parameters(context, path_parameters):
    return known(context, path_parameters)


@schemathesis.hook
def map_query(context, query):
    return known(context, query)


@schemathesis.hook
def map_body(context, body):
    if context.operation.definition.raw.get("operationId") == "uploadSkills":
        number = zlib.crc32(repr(body).encode(errors="replace"))
        if number % 2:
            return {"file": [archive(number)]} if isinstance(body, dict) else archive(number)
    return known(context, body)


def archive(number):
    """A skill, with another content each time."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        name = ["count", "数据统计", "extra"][number % 3]
        archive.writestr(f"{name}/SKILL.md", f"---\nname: {name}\ndescription: number {number}\n---\n")
        archive.writestr(f"{name}/notes.txt", "#!/usr/bin/env python3\nprint('one')\n")
    return packed.getvalue()
