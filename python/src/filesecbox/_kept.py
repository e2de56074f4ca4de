"""`Kept`: a text that comes in pieces and is kept up to a bound, its first and its last half."""

from __future__ import annotations

from collections import deque

#: Characters of a stream of output that a client keeps.
CHARACTERS_MAX = 16 * 1024 * 1024


class Kept:
    """Keeps at most ``limit`` characters; what is dropped in the middle is counted."""

    def __init__(self, limit: int = CHARACTERS_MAX) -> None:
        self._half = limit // 2
        self._first: list[str] = []
        self._room = self._half
        self._last: deque[str] = deque()
        self._held = 0
        self.dropped = 0

    def add(self, text: str) -> None:
        """Takes a piece."""
        if self._room and text:
            self._first.append(text[: self._room])
            text, self._room = text[self._room :], self._room - min(self._room, len(text))
        if text:
            self._last.append(text)
            self._held += len(text)
        while self._held > self._half:
            oldest = self._last.popleft()
            over = min(self._held - self._half, len(oldest))
            if over < len(oldest):
                self._last.appendleft(oldest[over:])
            self._held -= over
            self.dropped += over

    def text(self) -> str:
        """What was kept, with a line in the place of what was dropped."""
        between = f"\n[{self.dropped} characters were dropped]\n" if self.dropped else ""
        return "".join(self._first) + between + "".join(self._last)
