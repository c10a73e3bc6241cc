"""Starts somebody's server by their command, says when, and stops it with everything that it started. It knows of no
endpoint.

``Served`` is the near side; the warden, a process of its own (``python -m plimsoll.harness.series.coldstart.warden LOG
GRACE_S STOP COMMAND``), runs COMMAND by the shell in a session of its own and outlives even a kill -9 of ours. When a
line or the end of file comes on stdin it stops COMMAND, by STOP ("" for none), then SIGTERM to the whole group, SIGKILL
after GRACE_S, and as a sub-reaper all that it left behind; it says on stdout, a JSON object a line, when the command
was spawned, when it ended and what was needed to stop it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
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
#: Between two looks at children and stdin.
_LOOK_S = 0.02
_LEFT_S = 0.2
#: How long what was sent SIGKILL may take to be gone: a process in uninterruptible sleep may never go.
_KILLED_S = 10.0
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


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
        """Raises HarnessFault (exit 5) with the end of its log when the command ended and nothing that could serve is
        left.

        One that ended well and left something running, or has a command that stops it elsewhere, went into the
        background.
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


def main(arguments: list[str]) -> int:
    """Run one command to its end, or until it is to be stopped."""
    log, grace, stop, command = arguments
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    asked: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):  # handlers, for what is ignored would be ignored by the command too
        signal.signal(number, lambda *_: asked.append(1))
    with writing.log(Path(log)) as output:
        spawned_ns = time.monotonic_ns()
        command_process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            # One thread, so there is nothing that the fork could leave half done.
            preexec_fn=lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0),
        )
    _say(spawned_ns=spawned_ns, pid=command_process.pid)
    left, ended = True, False
    while left and not asked and not select.select([0], [], [], _LEFT_S if ended else _LOOK_S)[0]:
        code = _reap(command_process.pid)
        ended = ended or code is not None
        left = not ended or bool(_children())  # looking for children costs milliseconds: not while it runs
        if code is not None:
            _say(exited=code, at_ns=time.monotonic_ns(), left=left)
        elif not left:
            _say(left=False)
    if not left:
        _wait(asked)
    began_ns = time.monotonic_ns()
    if stop:
        with contextlib.suppress(subprocess.TimeoutExpired), writing.log(Path(log)) as output:
            subprocess.run(
                ["/bin/sh", "-c", stop],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=float(grace),
                check=False,
            )
    forced = _end(command_process.pid, float(grace))
    _say(stopped=True, forced=forced, took_ns=time.monotonic_ns() - began_ns, left=len(_children()))
    command_process.returncode = 0  # reaped here, not by subprocess
    return 0


def _wait(asked: list[int]) -> None:
    """Until we are told to stop: nothing that we know of runs, but the command may have asked somebody else to."""
    while not asked and not select.select([0], [], [], _LEFT_S)[0]:
        pass


def _end(group: int, grace_s: float) -> bool:
    """Stop the group and every child of ours, also those that become ours as others end. True if SIGKILL was needed."""
    if _gone(group, signal.SIGTERM, grace_s):
        return False
    until = time.monotonic() + _KILLED_S
    while time.monotonic() < until and not _gone(group, signal.SIGKILL, 5 * _LOOK_S):
        pass
    return True


def _gone(group: int, number: signal.Signals, within_s: float) -> bool:
    """Signal each of them once: many servers take a second SIGTERM for impatience. True when none is left in time."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
    told: set[int] = set()
    until = time.monotonic() + within_s
    while True:
        _reap(group)
        left = _children()
        if not left:
            return True
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if pid not in told and os.getpgid(pid) != group:
                    os.kill(pid, number)
            told.add(pid)
        if time.monotonic() >= until:
            return False
        time.sleep(2 * _LOOK_S)


def _reap(leader: int) -> int | None:
    """Take the exit codes of the dead; that of ``leader`` (minus the signal, if one killed it) or None."""
    code = None
    with contextlib.suppress(ChildProcessError):
        while (dead := os.waitpid(-1, os.WNOHANG))[0]:
            if dead[0] == leader:
                code = os.waitstatus_to_exitcode(dead[1])
    return code


def _children() -> list[int]:
    """Processes whose parent we are."""
    found, us = [], os.getpid()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            if int(stat.read_text().rsplit(")", 1)[1].split()[1]) == us:
                found.append(int(stat.parent.name))
    return found


def _say(**facts: object) -> None:
    with contextlib.suppress(OSError):  # who started us is gone: stop what there is all the same
        sys.stdout.write(json.dumps(facts) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
