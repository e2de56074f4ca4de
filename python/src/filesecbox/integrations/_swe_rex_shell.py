"""`Shell`: a session of SWE-ReX, a `bash` in a terminal that is typed into, and `Terminal`, what it writes."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import uuid
from collections.abc import Sequence

from swerex.exceptions import CommandTimeoutError, NoExitCodeError, NonZeroExitCodeError, SwerexException
from swerex.runtime.abstract import BashAction, BashInterruptAction, BashObservation

from .._async import _io
from .._async.process import AsyncProcess
from .._kept import Kept
from ..errors import FileSecBoxError
from ..models import RunResult

#: Characters of a command's output in a session that are kept, and those in which its end is looked for.
_OUTPUT_CHARACTERS, _WINDOW_CHARACTERS = 4 * 1024 * 1024, 64 * 1024
#: How long the shell may take for what it does at once, in seconds.
_SETTLE_SECONDS = 30.0


class Ended(Exception):
    """A shell is no more."""


class Shell:
    """A `bash` in a terminal that is typed into.

    Its prompt says of which command it is the end, and the exit code. So an end that nothing waited for, as after a timeout, is not
    taken for that of a later command.
    """

    def __init__(self) -> None:
        self.in_use = asyncio.Lock()
        self._word = uuid.uuid4().hex
        self._count = 0
        self._process: AsyncProcess | None = None
        self._terminal: Terminal | None = None

    async def begin(self, process: AsyncProcess, sources: Sequence[str], timeout: float) -> str:
        self._process = process
        self._terminal = Terminal(process)
        try:
            # Below tier `namespaces` commands cannot be made the terminal's foreground; there all are in one group with the shell.
            await self._send(f"stty -echo 2> /dev/null || set +m; {self._next()}")
            await self._until_prompt(_SETTLE_SECONDS)
            if not sources:
                return ""
            # These often set the prompt.
            await self._send(" ; ".join([*(f"source {path}" for path in sources), self._next()]))
            return self._plain((await self._until_prompt(timeout))[1])
        except TimeoutError as error:
            raise CommandTimeoutError(f"the shell was not ready after {timeout} s") from error
        except Ended as ended:
            raise SwerexException(f"the shell ended at once{ended}") from ended

    async def run(self, action: BashAction) -> BashObservation:
        # As a terminal takes no line of any length, and no control characters as they are.
        encoded = base64.encodebytes(action.command.encode()).decode()
        await self._send(f"{self._next()}; eval \"$(base64 -d <<'END'\n{encoded}END\n)\"")
        found, output = await self._expect(action)
        code = int(found[1]) if found.re.pattern == self._prompt else None
        if action.check == "raise" and code != 0:
            told = f"of the command {action.command!r}. Its output was {output!r}"
            told = f"{action.error_msg}: {told}" if action.error_msg else told
            if code is None:
                raise NoExitCodeError(f"there is no exit code {told}")
            raise NonZeroExitCodeError(f"{code} is the exit code {told}")
        code = None if action.check == "ignore" else code
        return BashObservation(output=output, exit_code=code, expect_string=found.re.pattern)

    async def type(self, action: BashAction) -> BashObservation:
        """Types a line into a program that waits for one."""
        await self._send(action.command)
        found, output = await self._expect(action)
        if action.is_interactive_quit:
            await self._settle()
        else:
            # A program that edits lines shows what was typed.
            output = output.lstrip().removeprefix(action.command).strip()
        return BashObservation(output=output, exit_code=0, expect_string=found.re.pattern)

    async def interrupt(self, action: BashInterruptAction) -> BashObservation:
        """Interrupts what runs, and kills it when that does not end it."""
        for _ in range(action.n_retry):
            await self._send("\x03", end="")
            with contextlib.suppress(TimeoutError):
                found, output = await self._heard.expect([*action.expect, self._prompt], action.timeout)
                if found.re.pattern == self._prompt:
                    output += await self._settle()
                return BashObservation(output=self._plain(output).strip(), exit_code=0, expect_string=found.re.pattern)
        try:
            await self._send("\x1a", end="")
            found, output = await self._until_prompt(_SETTLE_SECONDS)
            # It may have ended by the interrupt meanwhile.
            await self._send("kill -9 %% 2> /dev/null")
            told = await self._settle()
            if self._plain(told).strip():
                # That the shell tells of its end comes with the next command, as in the framework's own sessions.
                self._heard.put_back(told)
        except TimeoutError as error:
            raise CommandTimeoutError("what runs in the session can be neither interrupted nor stopped") from error
        return BashObservation(output=self._plain(output).strip(), exit_code=0, expect_string=found.re.pattern)

    async def end(self) -> None:
        if self._terminal is not None:
            self._terminal.close()
        if self._process is not None:
            await _io.finish(self._process.kill)

    @property
    def _heard(self) -> Terminal:
        if self._terminal is None:
            raise Ended
        return self._terminal

    @property
    def _prompt(self) -> str:
        return rf"<{self._word}\.{self._count}:(\d+)>"

    def _next(self) -> str:
        """A line that gives the shell the next prompt, whatever sets another one, and has it show nothing that is typed."""
        self._count += 1
        prompt = f"<{self._word}.{self._count}:%d>"
        return f"unset PROMPT_COMMAND; PROMPT_COMMAND=\"printf -v PS1 '{prompt}' \\$?; PS2= PS0=; stty -echo\""

    def _plain(self, text: str) -> str:
        """Without prompts and control sequences, and with plain line ends."""
        text = re.sub(rf"<{self._word}\.\d+:\d+>", "", text)
        return re.sub(r"\x1B[@-_][0-?]*[ -/]*[@-~]", "", text).replace("\r\n", "\n")

    async def _expect(self, action: BashAction) -> tuple[re.Match[str], str]:
        """Waits for one of what the action expects, or the prompt. A caller that is cancelled interrupts what runs."""
        try:
            found, output = await self._heard.expect([*action.expect, self._prompt], action.timeout)
            return found, self._plain(output)
        except TimeoutError as error:
            message = f"timeout after {action.timeout} seconds while running command {action.command!r}"
            raise CommandTimeoutError(message) from error
        except asyncio.CancelledError:
            await _io.finish(lambda: self._send("\x03", end=""))
            raise

    async def _until_prompt(self, timeout: float) -> tuple[re.Match[str], str]:
        return await self._heard.expect([self._prompt], timeout)

    async def _settle(self) -> str:
        """Waits until everything that was typed is done; gives what has been written meanwhile."""
        await self._send(self._next())
        try:
            return (await self._until_prompt(_SETTLE_SECONDS))[1]
        except TimeoutError as error:
            raise CommandTimeoutError("the shell of the session does not answer") from error

    async def _send(self, text: str, *, end: str = "\n") -> None:
        if self._process is None:
            raise Ended
        try:
            await self._process.send(text + end)
        except FileSecBoxError as error:
            if error.code in ("conflict", "not_found"):
                raise Ended from error
            raise SwerexException(str(error)) from error


class Terminal:
    """What a run writes, and who waits for something in it."""

    def __init__(self, process: AsyncProcess) -> None:
        self._kept = Kept(_OUTPUT_CHARACTERS)
        #: The end of what came, in which something is looked for.
        self._text = ""
        self._wanted: list[re.Pattern[str]] = []
        self._found: asyncio.Future[tuple[re.Match[str], str]] | None = None
        self._end: Ended | None = None
        self._task = asyncio.create_task(self._follow(process))

    def close(self) -> None:
        self._task.cancel()

    async def expect(self, patterns: Sequence[str], timeout: float | None) -> tuple[re.Match[str], str]:
        """Waits for what comes first of some regular expressions; gives it with what came before."""
        self._wanted = [re.compile(pattern, re.DOTALL) for pattern in patterns]
        self._found = asyncio.get_running_loop().create_future()
        try:
            self._look()
            if self._end is not None and not self._found.done():
                raise self._end
            return await asyncio.wait_for(self._found, timeout)
        finally:
            self._wanted, self._found = [], None

    def put_back(self, text: str) -> None:
        """Has a text come before everything that is not looked at yet."""
        self._text = text + self._text

    async def _follow(self, process: AsyncProcess) -> None:
        end = ""
        try:
            async for event in process.events():
                self._text += event.text
                self._look()
                if event.event == "exit" and event.result is not None:
                    end = f" with {RunResult.of(event.result).shell_code}"
        except FileSecBoxError as error:
            end = f": {error}"
        self._end = Ended(end)
        if self._found is not None and not self._found.done():
            self._found.set_exception(self._end)

    def _look(self) -> None:
        if self._found is not None and not self._found.done():
            matches = [match for each in self._wanted if (match := each.search(self._text))]
            if matches:
                first = min(matches, key=lambda match: match.start())
                self._kept.add(self._text[: first.start()])
                self._found.set_result((first, self._kept.text()))
                self._kept, self._text = Kept(_OUTPUT_CHARACTERS), self._text[first.end() :]
        surplus = max(0, len(self._text) - _WINDOW_CHARACTERS)
        self._kept.add(self._text[:surplus])
        self._text = self._text[surplus:]
