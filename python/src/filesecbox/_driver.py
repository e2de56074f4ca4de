"""Runs inside the sandbox: an interpreter that reads one JSON object a line and runs the code in it. Never imported here."""

from __future__ import annotations

import ast
import json
import os
import signal
import sys
import traceback

#: Characters of a value, of a message and of a traceback that are told.
_CHARACTERS_MAX = 200_000


def _serve() -> None:
    # The code that is run finds the end of its input, not the next piece of code.
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    names = {"__name__": "__main__", "__builtins__": __builtins__}
    for line in requests:
        request = json.loads(line)
        answer = json.dumps(_run(request["code"], request.get("timeout"), names))
        for stream, told in ((sys.stderr, ""), (sys.stdout, answer)):
            stream.flush()
            stream.write(f"\x1e{request['id']}{told}\n")
            stream.flush()


def _run(code: str, timeout: float | None, names: dict) -> dict:
    def late(*_: object) -> None:
        raise TimeoutError(f"the code ran longer than {timeout} s")

    try:
        signal.signal(signal.SIGALRM, late)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, timeout or 0)
        try:
            module = ast.parse(code, "<cell>")
            last = module.body.pop() if module.body and isinstance(module.body[-1], ast.Expr) else None
            exec(compile(module, "<cell>", "exec"), names)
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names) if last is not None else None
            return {"value": None if value is None else repr(value)[:_CHARACTERS_MAX]}
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except SystemExit:
        raise
    except BaseException as error:
        # As interactive interpreters do: what is too long to be told can be asked for.
        sys.last_value = error
        # Without the frames of this file.
        trace = "".join(traceback.format_exception(type(error), error, _of_code(error.__traceback__)))
        told = {"type": type(error).__name__, "message": str(error), "traceback": trace}
        return {"error": {name: text[:_CHARACTERS_MAX] for name, text in told.items()}}


def _of_code(trace: object) -> object:
    while trace is not None and trace.tb_frame.f_code.co_filename == "<string>":
        trace = trace.tb_next
    return trace


_serve()
