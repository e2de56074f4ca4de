"""What a call can fail with.

Every failure is a :class:`FileSecBoxError`; those for which Python has a built-in exception are that one, too, so that
``except FileNotFoundError`` works as it does for local files. The codes are those of ``docs/API.md``.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any

__all__ = [
    "AlreadyExists",
    "AmbiguousResult",
    "Busy",
    "CallTimeout",
    "CommandFailed",
    "CommandNotAllowed",
    "Conflict",
    "Denied",
    "EditMismatch",
    "FileSecBoxError",
    "Invalid",
    "IsADirectory",
    "NotADirectory",
    "NotEmpty",
    "NotFound",
    "OutputLost",
    "PathEscape",
    "Quota",
    "SessionEnded",
    "Stale",
    "TooLarge",
    "Unauthenticated",
    "Unavailable",
]


class FileSecBoxError(Exception):
    """A call that failed.

    ``code`` is the service's word for it, or one of this package's own (``unreachable``, ``ambiguous``, ``command_failed``);
    ``status`` the HTTP status, 0 where there was no answer; ``request_id`` what the service's log has it under; ``details``
    everything else that stood in the answer.
    """

    code: str = "error"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        status: int = 0,
        request_id: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code if code is not None else type(self).code
        self.status = status
        self.request_id = request_id
        self.details: Mapping[str, Any] = dict(details or {})

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]"

    def __reduce__(self) -> tuple[Any, ...]:
        # Built-in bases would be made anew from other arguments.
        return (_again, (type(self), self.__dict__.copy()))


def _again(kind: type[FileSecBoxError], state: dict[str, Any]) -> FileSecBoxError:
    error = kind(state["message"])
    error.__dict__.update(state)
    return error


class NotFound(FileSecBoxError, FileNotFoundError):
    """There is no such thing, or the caller may not know of it."""

    code = "not_found"


class IsADirectory(FileSecBoxError, IsADirectoryError):
    """A file was needed, and a directory is there."""

    code = "is_directory"


class NotADirectory(FileSecBoxError, NotADirectoryError):
    """A directory was needed, and something else is there."""

    code = "not_a_directory"


class AlreadyExists(FileSecBoxError, FileExistsError):
    """The path is taken."""

    code = "already_exists"


class NotEmpty(FileSecBoxError, OSError):
    """A directory with entries was to be removed, or replaced. ``errno`` is ``ENOTEMPTY``."""

    code = "not_empty"

    def __init__(self, message: str, **more: Any) -> None:
        super().__init__(message, **more)
        self.errno = errno.ENOTEMPTY


class Denied(FileSecBoxError, PermissionError):
    """The token's role may not do this, or a command closed the entry by its permission bits."""

    code = "denied"


class PathEscape(FileSecBoxError, PermissionError):
    """A path leads out of its tree."""

    code = "path_escape"


class CommandNotAllowed(FileSecBoxError, PermissionError):
    """The program is none that callers may start; ``allowed`` are those that are."""

    code = "command_not_allowed"

    @property
    def allowed(self) -> list[str]:
        """The programs that callers may start."""
        return list(self.details.get("allowed") or [])


class Unauthenticated(FileSecBoxError, PermissionError):
    """There was no token, or one that is not valid."""

    code = "unauthenticated"


class Stale(FileSecBoxError):
    """The condition of the call does not hold: nothing was changed. ``current_etag`` is the tag that the file has now."""

    code = "stale"

    @property
    def current_etag(self) -> str | None:
        """The tag that the file has now; ``None`` when nothing is there."""
        tag = self.details.get("current_etag")
        return tag if isinstance(tag, str) else None


class AmbiguousResult(FileSecBoxError):
    """The answer of a conditional change was lost, and its repetition found another state: it was made, or another caller changed the file."""

    code = "ambiguous"


class EditMismatch(FileSecBoxError, ValueError):
    """The text to replace is not there as often as expected: nothing was changed."""

    code = "edit_mismatch"

    @property
    def found(self) -> int | None:
        """How often the text was found."""
        return _number(self.details.get("found"))

    @property
    def expected(self) -> int | None:
        """How often it was to be found."""
        return _number(self.details.get("expected"))

    @property
    def nearest_line(self) -> int | None:
        """The line that is most like the text, from 1."""
        return _number(self.details.get("nearest_line"))


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


class Invalid(FileSecBoxError, ValueError):
    """The request makes no sense as sent: ``invalid``, ``unencodable``, ``bad_archive``, ``not_text`` and their like."""

    code = "invalid"


class Conflict(FileSecBoxError):
    """Another change came between, or the thing is in no state for this."""

    code = "conflict"


class Busy(FileSecBoxError):
    """All places for something are taken. ``retry_after`` says in how many seconds it is worth trying again."""

    code = "busy"
    retry_after: float | None = None


class Unavailable(FileSecBoxError):
    """The service cannot be reached, is stopping, or is not ready."""

    code = "disconnected"
    retry_after: float | None = None


class CallTimeout(FileSecBoxError, TimeoutError):
    """No answer came in time; a change may have been made."""

    code = "timeout"


class Quota(FileSecBoxError, OSError):
    """A tree, or all that a user has, would take more than it may. ``errno`` is ``ENOSPC``."""

    code = "quota"

    def __init__(self, message: str, **more: Any) -> None:
        super().__init__(message, **more)
        self.errno = errno.ENOSPC


class TooLarge(FileSecBoxError, OSError):
    """More bytes or entries than a limit allows. ``errno`` is ``EFBIG``."""

    code = "too_large"

    def __init__(self, message: str, **more: Any) -> None:
        super().__init__(message, **more)
        self.errno = errno.EFBIG


class OutputLost(FileSecBoxError):
    """Output of a run has given way before it was read; ``first_seq`` is the number of the oldest event that is there."""

    code = "gone"

    @property
    def first_seq(self) -> int | None:
        """The number of the oldest event that is there."""
        return _number(self.details.get("first_seq"))


class CommandFailed(FileSecBoxError):
    """A command that was to succeed did not; ``result`` says how it ended."""

    code = "command_failed"

    def __init__(self, message: str, *, result: Any = None, **more: Any) -> None:
        super().__init__(message, **more)
        self.result = result


class SessionEnded(FileSecBoxError):
    """The interpreter of a session has ended: ``result`` says how, and ``stdout`` and ``stderr`` are what the code had written."""

    code = "session_ended"

    def __init__(self, message: str, *, result: Any = None, stdout: str = "", stderr: str = "", **more: Any) -> None:
        super().__init__(message, **more)
        self.result = result
        self.stdout = stdout
        self.stderr = stderr


_KINDS: tuple[type[FileSecBoxError], ...] = (
    NotFound,
    IsADirectory,
    NotADirectory,
    AlreadyExists,
    NotEmpty,
    Denied,
    PathEscape,
    CommandNotAllowed,
    Unauthenticated,
    Stale,
    EditMismatch,
    Invalid,
    Conflict,
    Busy,
    Unavailable,
    CallTimeout,
    Quota,
    TooLarge,
    OutputLost,
)
_BY_CODE = {kind.code: kind for kind in _KINDS} | dict.fromkeys(
    ("unencodable", "bad_archive", "not_text", "range_not_satisfiable", "unsupported_media"), Invalid
)


def of_answer(status: int, body: object, retry_after: str | None, request_id: str | None) -> FileSecBoxError:
    """The failure that an answer tells of. ``body`` is the decoded JSON, or anything else that came."""
    fields: dict[str, Any] = dict(body) if isinstance(body, dict) else {}
    sentence = fields.pop("data", None)
    code = fields.pop("code", None)
    fields.pop("status", None)
    told = fields.pop("request_id", None)
    message = sentence if isinstance(sentence, str) else f"the service answered {status} without a word of why"
    if not isinstance(code, str):
        # No answer of the service itself: a proxy's, perhaps.
        code = {401: "unauthenticated", 403: "denied", 404: "not_found", 429: "busy", 503: "disconnected"}.get(
            status, "error"
        )
    error = _BY_CODE.get(code, FileSecBoxError)(
        message,
        code=code,
        status=status,
        request_id=told if isinstance(told, str) else request_id,
        details=fields,
    )
    if isinstance(error, Busy | Unavailable):
        error.retry_after = seconds(retry_after)
    return error


def seconds(retry_after: str | None) -> float | None:
    """The number of seconds in a ``Retry-After``; ``None`` for a date, or nonsense."""
    try:
        value = float(retry_after or "")
    except ValueError:
        return None
    return value if 0 <= value < 86_400 else None
