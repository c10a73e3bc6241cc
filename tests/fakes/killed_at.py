"""``python -m tests.fakes.killed_at EVENT ... -- WORDS``: the command line, killed by SIGKILL at the first of these
instants.

``rename:NAME:K``: before the K-th time that a file gets that name; ``remove:NAME``: before a file or folder of that
name (``*``: any segment) is removed; ``after:S``: S seconds after t0 was written down, and ``all-after:S`` with every
process below it at once, as a container dies; ``write:NAME``: in the middle of writing NAME, half of it on disk. The
product knows nothing of this.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _below(pid: int) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            above = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        found += [int(folder.name), *_below(int(folder.name))] if above == pid else []
    return found


def _die_with_all(keep: str) -> None:
    """Not the server: its log is what the records are held against."""
    for pid in _below(os.getpid()):
        if keep not in Path(f"/proc/{pid}/cmdline").read_text():
            os.kill(pid, signal.SIGKILL)
    _die()


def _plant(events: list[list[str]]) -> None:
    seen: dict[str, int] = {}
    rename, replace, unlink, rmdir = os.rename, os.replace, os.unlink, os.rmdir

    def renamed(call: Any) -> Any:
        def patched(source: Any, target: Any, **more: Any) -> None:
            name = Path(target).name
            seen[name] = seen.get(name, 0) + 1
            for kind, *rest in events:
                if kind == "rename" and rest[0] == name and seen[name] == int(rest[1]):
                    _die()
                if kind == "write" and rest[0] == name and seen[name] == int(rest[1]):
                    os.truncate(source, Path(source).stat().st_size // 2)
                    _die()
            call(source, target, **more)
            if name == "begun.json" and seen[name] == 2:
                for kind, *rest in events:
                    if kind in ("after", "all-after"):
                        die = _die if kind == "after" else lambda: _die_with_all("reference_server")
                        threading.Thread(
                            target=lambda s=float(rest[0]), d=die: (time.sleep(s), d()), daemon=True
                        ).start()

        return patched

    def removed(call: Any) -> Any:
        def patched(path: Any, *more: Any, **named: Any) -> None:
            name = Path(path).name
            for kind, *rest in events:
                if kind == "remove" and (rest[0] == name or (rest[0] == "*" and name.endswith(".seg"))):
                    _die()
            call(path, *more, **named)

        return patched

    os.rename, os.replace = renamed(rename), renamed(replace)
    os.unlink, os.rmdir = removed(unlink), removed(rmdir)


if __name__ == "__main__":
    at = sys.argv.index("--")
    _plant([word.split(":") for word in sys.argv[1:at]])
    sys.argv[1:] = sys.argv[at + 1 :]
    from plimsoll.harness.verbs.cli import main

    main()
