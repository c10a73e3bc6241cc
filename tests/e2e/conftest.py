"""Real time on a shared host: an end-to-end test that fails is run once more, and the summary names it.

A host that stops for tens of milliseconds can spoil any test of real processes; a defect fails both times. Unit and
property tests run in virtual time and get no second try.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

HERE = Path(__file__).parent
AGAIN = "run twice"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    if HERE not in item.path.parents:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    if any(report.failed for report in reports):
        item._initrequest()  # type: ignore[attr-defined]
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        reports[-1].user_properties.append(
            (AGAIN, item.nodeid)
        )  # which reaches the summary from a process of its own too
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


class _Summary:
    """Remembers which tests were run twice, wherever they ran."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.names += [str(name) for key, name in report.user_properties if key == AGAIN]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for name in dict.fromkeys(self.names):
            terminalreporter.write_line(f"run twice (the first try failed): {name}")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Summary())
