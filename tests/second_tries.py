"""A pytest plug-in: a test of real time that fails is run once more, and no second try is hidden.

A host that stops for tens of milliseconds can spoil any test of real processes; a defect fails both times. The second
try waits until a bare timer is on time again, half a minute at most. Tests that pass at their second try are printed
last with what failed at the first, and counted over all stages of one ``make`` (the file ``PLIMSOLL_SECOND_TRIES``
holds their names); the third one fails the run. Tests in virtual time get no second try.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

REAL_TIME = ("tests/e2e/", "tests/real/")
AGAIN, WHY = "second try", "first try"
MOST = 2
#: A host is quiet when a timer that sleeps for a millisecond at a time is never later than this, for this long.
#: Seconds.
LATE_S, QUIET_S, WAIT_S = 0.003, 0.5, 30.0


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    if not item.nodeid.startswith(REAL_TIME):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    if failed := [report for report in reports if report.failed]:
        _wait_for_a_quiet_host()
        item._initrequest()  # type: ignore[attr-defined]
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        if not any(report.failed for report in reports):
            # Properties of the report reach the summary from a process of its own too.
            reports[-1].user_properties += [(AGAIN, item.nodeid), *((WHY, one.longreprtext) for one in failed)]
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _wait_for_a_quiet_host() -> None:
    now = begun = quiet_since = time.monotonic()
    while now - quiet_since < QUIET_S and now - begun < WAIT_S:
        time.sleep(0.001)
        before, now = now, time.monotonic()
        if now - before > 0.001 + LATE_S:
            quiet_since = now


class _SecondTries:
    """The names of the tests that passed at their second try, wherever they ran and in whichever stage; stages may
    overlap.
    """

    def __init__(self) -> None:
        self._kept = Path(os.environ["PLIMSOLL_SECOND_TRIES"]) if "PLIMSOLL_SECOND_TRIES" in os.environ else None
        self.names: list[str] = []
        self.reasons: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.names += [str(name) for key, name in report.user_properties if key == AGAIN]
        self.reasons += [str(text) for key, text in report.user_properties if key == WHY]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._kept:
            self._kept.parent.mkdir(parents=True, exist_ok=True)
            with self._kept.open("a+") as kept:
                kept.write("".join(f"{name}\n" for name in self.names))
                kept.seek(0)
                self.names = kept.read().splitlines()
        if len(self.names) > MOST and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for text in self.reasons:
            terminalreporter.section("failed at its first try")
            terminalreporter.write_line(text)
        for name in self.names:
            terminalreporter.write_line(f"passed at its second try: {name}")
        if len(self.names) > MOST:
            terminalreporter.write_line(
                f"{len(self.names)} tests needed a second try, more than {MOST}: failed", red=True
            )


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_SecondTries())
