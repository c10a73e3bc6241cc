"""An agent that waits for runs: a Locust worker of its own for each stay with a master, and what the user is told about it.

Nothing here imports Locust, sends a query or measures. What does the work of a run is the site (``site.py``), a clean subprocess of the Locust
worker (``locust_.py``), which is a subprocess of this one: if any of the three dies, those below it end by themselves.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from plimsoll.harness.distributed.bridge import Address
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.process import child
from plimsoll.slo.records.foreign import one_line

#: Between two stays.
PAUSE_S = 1.0
#: After a run that had begun without us: it may go on for hours, and each stay costs it a refusal.
LATE_S = 10.0
#: The site stops its workers and keeps their rows; the Locust worker waits for it.
ENDED_S = 20.0
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Standby:
    """``arguments`` are the site's. ``once``: end after the first run."""

    def __init__(self, master: Address, arguments: Sequence[str], once: bool, notice: Callable[[str], None]) -> None:
        self._master, self._arguments, self._once, self._notice = master, list(arguments), once, notice
        self._waits = self._connected = False
        self._pause_s = PAUSE_S
        self._signal = "interrupted"

    def serve(self) -> int:
        """Stay with a master until there is a reason to go; returns the exit code.

        0: the run that was asked for is over; 2: refused; 4: it broke off here, or nothing was sent; 130: interrupted.
        """
        before = {number: signal.signal(number, self._interrupt) for number in _STOP_SIGNALS}
        try:
            while (code := self._stay()) is None:
                time.sleep(self._pause_s)
            return int(code)
        except KeyboardInterrupt:
            return int(ExitCode.INTERRUPTED)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _interrupt(self, number: int, frame: object) -> NoReturn:
        self._signal = signal.Signals(number).name
        raise KeyboardInterrupt

    def _stay(self) -> ExitCode | None:
        """One Locust worker, from its start to its end; None: wait for the next master or run."""
        command = child.command("plimsoll.harness.distributed.locust_", "agent", str(self._master), *self._arguments)
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, text=True
        )
        last: dict[str, Any] = {"event": "died"}
        self._connected = False
        self._pause_s = PAUSE_S
        try:
            for line in process.stdout or ():
                last = json.loads(line)
                self._say(last)
            code = process.wait()
        except KeyboardInterrupt:
            self._notice(f"{self._signal}: leaving ...")
            with contextlib.suppress(OSError):
                if process.stdin is not None:
                    process.stdin.write(json.dumps({"reason": f"it was told to leave ({self._signal})"}) + "\n")
            raise
        finally:
            _end(process)
        return self._after(last, code)

    def _say(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "connected":
            self._connected = True
            self._notice(f"connected to the master at {self._master}; waiting for a run ...")
            self._waits = False
        elif kind == "go":
            self._notice("the run begins")
        elif kind == "waiting" and not self._waits:
            self._waits = True
            self._notice(
                f"nobody answers at {self._master} yet: waiting. Is `plimsoll run ... --locust-master` (or locust --master) "
                "running there, and may this host reach its port?"
            )

    def _after(self, last: dict[str, Any], code: int) -> ExitCode | None:
        kind = last["event"]
        if kind == "refused":  # the site has said why
            if self._once or not last["late"]:
                return ExitCode.USAGE
            self._pause_s = LATE_S
        if kind == "ended":
            if last["code"] == ExitCode.USAGE and not last["greeted"]:  # it has said why
                return ExitCode.USAGE
            whole = last["code"] == 0 and last["whole"]
            if whole and not last["ran"]:
                self._notice("the run was called off before its first query: nothing was sent from here")
            else:
                self._notice("the run is over" if whole else f"the run broke off here (exit code {last['code']})")
            if self._once:
                return ExitCode.PASS if whole and last["ran"] else ExitCode.INVALID
        elif kind == "gone":
            over = self._once and (last["ran"] or self._connected)  # with --once: this master's run was the one
            if self._connected:
                next_ = "nothing more is waited for (--once)" if over else "waiting for the next one"
                self._notice(f"the master at {self._master} is gone ({one_line(last['reason'])}); {next_}")
            if over:
                return ExitCode.INVALID
        elif kind != "left":
            self._notice(
                f"error: the Locust worker ended with exit code {code}; what it said is above. Starting another"
            )
        return None


def _end(process: subprocess.Popen[str]) -> None:
    """Its stdin is its life line; whoever can't wait gets it killed, and then the site's ends."""
    with contextlib.suppress(OSError):
        if process.stdin is not None:
            process.stdin.close()
    try:
        process.wait(ENDED_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
