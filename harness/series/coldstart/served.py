"""A server that is started by the user's command: the near side of ``plimsoll.harness.series.coldstart.warden``.

Says when it was spawned, whether it still runs, and stops it. Whether it answers is not known here.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.process import child, writing

#: Beyond the grace and what the warden needs to see that all are gone.
_SPARE_S = 20.0
_TAIL_LINES, _TAIL_CHARACTERS = 8, 1200


@dataclass(frozen=True, slots=True)
class Stopped:
    """How it ended: ``forced`` by SIGKILL; ``took_ns``; ``left`` processes that would not go even then."""

    forced: bool
    took_ns: int
    left: int = 0


class Served:
    """One running command. Raises HarnessFault if it can't even be started."""

    def __init__(self, command: str, stop_command: str, log: Path, grace_s: float) -> None:
        self._log = log
        self._grace_s = grace_s
        self._buffer = b""
        self._stop_command = stop_command
        self._facts: dict[str, Any] = {}
        try:
            with writing.log(log) as stderr:
                self._warden = subprocess.Popen(
                    child.command(
                        "plimsoll.harness.series.coldstart.warden", str(log), str(grace_s), stop_command, command
                    ),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    start_new_session=True,  # Ctrl-C is ours to handle
                )
        except OSError as error:
            raise HarnessFault(
                f"--start: no process could be started ({error.strerror}). Free some memory or processes"
            ) from None
        self._until("spawned_ns", _SPARE_S)
        if "spawned_ns" not in self._facts:
            self.stop()
            raise HarnessFault(
                f"--start: the process that watches over the command said nothing. Try again\n{self.tail()}"
            )
        self.spawned_ns = int(self._facts["spawned_ns"])

    def raise_if_ended(self) -> None:
        """Raises HarnessFault (exit 5) with the end of its log when the command ended and nothing that could serve is left.

        One that ended well and left something running, or has a command that stops it elsewhere, went into the background.
        """
        self._read(0.0)
        code = self._facts.get("exited")
        if code is None or (code == 0 and (self._facts.get("left") or self._stop_command)):
            return
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        hint = ". If it starts a server in the background, say how to stop that: --stop 'COMMAND'" if code == 0 else ""
        raise HarnessFault(
            f"--start: the command {how} before it was to be stopped{hint}\n{self.tail()}", ExitCode.UNREACHABLE
        )

    def tail(self) -> str:
        """The end of its log, and where that is."""
        with contextlib.suppress(OSError), self._log.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - 4 * _TAIL_CHARACTERS))  # it may be of gigabytes
            text = log.read(4 * _TAIL_CHARACTERS).decode("utf-8", "replace")
            lines = [line for line in text.splitlines() if line.strip()][-_TAIL_LINES:]
            if lines:
                return f"the end of its log ({self._log}):\n" + "\n".join(lines)[-_TAIL_CHARACTERS:]
        return f"it wrote nothing to {self._log}"

    def stop(self) -> Stopped:
        """Stop it and all that it started. May be called again."""
        began = time.monotonic_ns()
        if self._warden.stdin is not None and not self._warden.stdin.closed:
            with contextlib.suppress(OSError):
                self._warden.stdin.close()
            self._until("stopped", 2 * self._grace_s + _SPARE_S)
        try:
            self._warden.wait(2.0)
        except subprocess.TimeoutExpired:
            self._warden.kill()  # the kernel takes the command with it
            self._warden.wait()
        if self._warden.stdout is not None:
            self._warden.stdout.close()
        took = int(self._facts.get("took_ns", time.monotonic_ns() - began))
        return Stopped(bool(self._facts.get("forced", True)), took, int(self._facts.get("left", 0)))

    def _until(self, key: str, within_s: float) -> None:
        until = time.monotonic() + within_s
        while key not in self._facts and (rest := until - time.monotonic()) > 0:
            if not self._read(rest):
                return

    def _read(self, within_s: float) -> bool:
        """Take in what the warden said; False when it will say no more."""
        import select

        out = self._warden.stdout
        if out is None or out.closed:
            return False
        while select.select([out], [], [], within_s)[0]:
            data = os.read(out.fileno(), 65536)
            if not data:
                return False
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            for line in lines:
                self._facts.update(json.loads(line))
            if lines:
                return True
        return True
