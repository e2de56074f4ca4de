"""What a shell that keeps its state is told, and what comes of a command in it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from .models import RunResult

#: Errors come in order with the output; where the ends of commands are told stays open whatever a command does with its output; and an
#: interrupt ends the command, not the shell.
BEGIN = "exec 2>&1 9>&1; trap : INT\n"


@dataclass(frozen=True, kw_only=True)
class ShellResult:
    """What a command wrote, and how it ended.

    ``exit_code`` is missing when the shell ended with the command: then ``ended`` says how, if that is known. ``is_late`` when the
    deadline ended it; ``is_new`` when the shell before this command had ended without a word.
    """

    output: str
    exit_code: int | None = None
    is_late: bool = False
    is_new: bool = False
    ended: RunResult | None = None


def line(command: str, mark: str) -> str:
    """The line that has the shell run a command, whose input is empty, and then tell the mark and the exit code."""
    return f"eval {shlex.quote(command)} </dev/null 9>&-; printf '{mark}%d\\n' \"$?\" >&9\n"
