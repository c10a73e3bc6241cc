"""Starts one command and answers for everything that it starts: a process of its own, so that it outlives even a kill -9 of ours.

``python -m plimsoll.harness.series.coldstart.warden LOG GRACE_S STOP COMMAND`` runs COMMAND by the shell in a session of its own, its output in
LOG, and stops it when a line or the end of file comes on stdin: first STOP, a command ("" for none), then SIGTERM to the whole
group, SIGKILL after GRACE_S. It is a sub-reaper: what the command leaves behind becomes its child and is stopped too, whatever session that
is in. Should the warden itself be killed, the kernel kills the command. It says on stdout, a JSON object a line, when the
command was spawned, when it ended and what was needed to stop it. It knows of no endpoint and measures no answer.
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
from pathlib import Path

from plimsoll.harness.process import writing

#: Between two looks at children and stdin.
_LOOK_S = 0.02
_LEFT_S = 0.2
#: How long what was sent SIGKILL may take to be gone: a process in uninterruptible sleep may never go.
_KILLED_S = 10.0
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


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
        child = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            # One thread, so there is nothing that the fork could leave half done.
            preexec_fn=lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0),
        )
    _say(spawned_ns=spawned_ns, pid=child.pid)
    left, ended = True, False
    while left and not asked and not select.select([0], [], [], _LEFT_S if ended else _LOOK_S)[0]:
        code = _reap(child.pid)
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
            subprocess.run(["/bin/sh", "-c", stop], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, timeout=float(grace), check=False)  # fmt: skip
    forced = _end(child.pid, float(grace))
    _say(stopped=True, forced=forced, took_ns=time.monotonic_ns() - began_ns, left=len(_children()))
    child.returncode = 0  # reaped here, not by subprocess
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
