"""Start and stop the bundled reference server as a separate process: it shares a wire contract with us, never code."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.process import child, writing

#: Importing torch on a busy two-core machine takes tens of seconds at worst.
READY_S = 180.0
STOP_S = 10.0


@dataclass(frozen=True, slots=True)
class Bundled:
    """A running reference server and what it said when it was ready."""

    process: asyncio.subprocess.Process
    url: str
    models: tuple[str, ...]
    facts: dict[str, Any]


def default_model() -> str:
    """``llm`` (a real transformer) where torch is installed, else ``scripted``."""
    return "llm" if importlib.util.find_spec("torch") is not None else "scripted"


async def start(arguments: Sequence[str], log: Path) -> Bundled:
    """Start ``python -m plimsoll.reference_server`` on a free port; its stderr goes to ``log``.

    Raises HarnessFault if it does not become ready.
    """
    with writing.log(log) as stderr:
        process = await child.begin(
            # However we end, it does not outlive us.
            child.command("plimsoll.reference_server", "--http-port", "0", "--until-stdin-closes", *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
        )
    stdout = process.stdout
    if stdout is None:
        raise RuntimeError("the bundled server was started without a pipe")
    try:
        line = await asyncio.wait_for(stdout.readline(), READY_S)
        facts = json.loads(line)
    except (TimeoutError, ValueError):
        await stop(process)
        tail = writing.tail(log)
        raise HarnessFault(
            f"the bundled server did not start ({tail or 'it said nothing'}); its log is {log}"
        ) from None
    except asyncio.CancelledError:
        await stop(process)
        raise
    return Bundled(process, str(facts["url"]), tuple(facts["models"]), facts)


async def stop(process: asyncio.subprocess.Process) -> None:
    """SIGTERM, wait, and SIGKILL if it doesn't go."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        await asyncio.wait_for(process.wait(), STOP_S)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
