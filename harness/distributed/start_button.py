"""What Locust's start and stop stand for in plain ``locust -f``: the ordinary coordinator, as a clean subprocess of Locust's master.

The exit code is the verdict's. Locust itself is handed in; this file imports none of it, and sends nothing.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable
from typing import Any

import gevent
from gevent import subprocess
from gevent.event import Event
from gevent.fileobject import FileObject

from plimsoll.harness.distributed import launch
from plimsoll.harness.distributed.relay import Lines, Office
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.process import child

#: After Stop a coordinator waits 5 s for answers in flight, seals, and judges.
SEALED_S = 60.0
#: Locust's workers report every 3 s and its CSV files are written every second, but not at the end: else their last rows were missing.
CSV_S = 4.2
_log = logging.getLogger("plimsoll")


class StartButton:
    """A coordinator of its own for each start, and its exit code for Locust's.

    ``environment`` and ``runner`` are Locust's; ``agents()``: how many workers it has.
    """

    def __init__(self, environment: Any, runner: Any, office: Office, agents: Callable[[], int]) -> None:
        self._environment, self._runner, self._office, self._agents = environment, runner, office, agents
        self._given, self._host = dict(vars(environment.parsed_options)), environment.host  # before any form
        self._process: Any = None
        self._stopped = self._quitting = False
        self._ended = Event()
        environment.events.test_start.add_listener(self.start)
        environment.events.test_stop.add_listener(self.stop)
        environment.events.quitting.add_listener(self.quit)

    def start(self, **_: Any) -> None:
        """Locust's test_start."""
        if self._process is not None:
            _log.error(
                "the run before is not sealed yet: nothing was started. Press Start again when its verdict is there"
            )
            return
        (theirs, ours), (mine, yours) = os.pipe(), os.pipe()
        self._stopped = False
        self._ended.clear()
        try:
            options = launch.chosen(self._given, vars(self._environment.parsed_options))
            words = launch.command(options, self._host, self._agents(), (theirs, yours))
            command = child.command("plimsoll", *words)
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=(theirs, yours), start_new_session=True
            )
        except (HarnessFault, OSError) as error:
            _log.error("error: %s", error)
        for number in (theirs, yours):
            os.close(number)
        lines = Lines(FileObject(mine, "rb"), FileObject(ours, "wb"), self._of_coordinator)
        self._office.attach(lines, at="plimsoll", web=None)
        gevent.spawn(self._over, lines)

    def stop(self, **_: Any) -> None:
        """Locust's test_stop: as Ctrl-C for the coordinator. Not when Locust stops because its last worker is gone: that is a fault."""
        if self._process is not None and not self._stopped and (self._office.reachable or self._quitting):
            self._stopped = True
            self._process.send_signal(signal.SIGINT)

    def quit(self, **_: Any) -> None:
        """Locust's quitting: what was measured is sealed and judged first."""
        self._quitting = True
        if self._process is None:
            return
        self.stop()
        try:
            self._ended.wait(SEALED_S)
        except KeyboardInterrupt:
            self._process.send_signal(signal.SIGINT)
            self._ended.wait(SEALED_S)
        if self._process is not None:
            self._process.kill()

    def _of_coordinator(self, line: dict[str, Any] | None) -> None:
        if line is not None:
            self._office.told(line)

    def _over(self, lines: Lines) -> None:
        code = int(ExitCode.USAGE) if self._process is None else self._process.wait()
        self._office.attach(None)
        lines.close()
        self._process = None
        self._environment.process_exit_code = code if code >= 0 else 128 - code
        self._ended.set()
        level = logging.INFO if code == 0 else logging.WARNING
        _log.log(level, "the run ended with exit code %d", self._environment.process_exit_code)
        options = self._environment.parsed_options
        if self._quitting:
            return
        if options.headless:
            if options.csv_prefix:
                gevent.sleep(CSV_S)
            self._runner.quit()
            return
        self._runner.stop()
        if options.autostart and options.autoquit != -1:
            gevent.sleep(options.autoquit)
            self._runner.quit()
            self._environment.web_ui.stop()
