"""Which calls are made again, and when."""

from __future__ import annotations

import random
from dataclasses import dataclass

from .errors import Busy, FileSecBoxError, Unavailable

#: Statuses after which a repeatable call is made again: the answer of something between, or a service that stops.
_LOST = frozenset({500, 502, 504})


@dataclass(frozen=True)
class Retries:
    """How often a call is made, and for how long.

    ``attempts`` in all, at least 1; the pauses double from ``first_seconds`` and are random below that, unless the service says how
    long to wait; with all of them a call takes no longer than ``max_seconds`` before its last attempt.
    """

    attempts: int = 3
    first_seconds: float = 0.2
    max_seconds: float = 60.0

    def pause(self, attempt: int, passed: float, error: FileSecBoxError) -> float | None:
        """Seconds until the next attempt after the one with this number (from 1); ``None`` when there is none."""
        if attempt >= self.attempts:
            return None
        told = error.retry_after if isinstance(error, Busy | Unavailable) else None
        pause = told if told is not None else random.uniform(0, self.first_seconds * 2 ** (attempt - 1))
        return pause if passed + pause <= self.max_seconds else None


def may_repeat(error: FileSecBoxError, repeatable: bool, was_sent: bool) -> bool:
    """Whether a call that failed so may be made again. ``was_sent``: the service may have got it."""
    if error.status == 0:
        return repeatable or not was_sent
    # The service refused it and did nothing.
    if isinstance(error, Busy) or (
        error.status == 503 and isinstance(error, Unavailable) and error.retry_after is not None
    ):
        return True
    return repeatable and error.status in _LOST
