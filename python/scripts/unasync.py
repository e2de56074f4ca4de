"""Makes `src/filesecbox/_sync` of `src/filesecbox/_async`: the same files, without waiting.

    python scripts/unasync.py            writes them
    python scripts/unasync.py --check    exits with 1 when one of them is another one than it would write

`_io.py`, in which the two differ, is written by hand on both sides.
"""

import re
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "filesecbox"
BY_HAND = {"__init__.py", "_io.py"}
WORDS = {
    "AsyncClient": "Client",
    "AsyncIterator": "Iterator",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "aclose": "close",
    "aread": "read",
    "aiter_raw": "iter_raw",
    "aiter_lines": "iter_lines",
    "asynccontextmanager": "contextmanager",
}


def without_waiting(text: str) -> str:
    text = re.sub(r"\basync (def|with|for)\b", r"\1", text)
    text = re.sub(r"\bawait ", "", text)
    words = "|".join(WORDS)
    text = re.sub(rf"\b({words})\b", lambda found: WORDS[found[0]], text)
    return re.sub(r"\bAsync(?=[A-Z])", "", text)


def main() -> int:
    is_stale = False
    for source in sorted((PACKAGE / "_async").glob("*.py")):
        if source.name in BY_HAND:
            continue
        head = f"# Made by scripts/unasync.py of _async/{source.name}: change that.\n"
        wanted = head + without_waiting(source.read_text(encoding="utf-8"))
        target = PACKAGE / "_sync" / source.name
        if not target.exists() or target.read_text(encoding="utf-8") != wanted:
            is_stale = True
            print(f"{target} {'is stale' if '--check' in sys.argv else 'is written'}")
            if "--check" not in sys.argv:
                target.write_text(wanted, encoding="utf-8")
    return 1 if is_stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
