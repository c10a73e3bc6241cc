"""The pytest plugin: a ``plimsoll`` fixture and marker, so that a load test is a test like any other.

It loads nothing of the harness until a test asks for it. Results travel in each test's ``user_properties``, so that
they reach the terminal and the JUnit file from xdist's workers too.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from plimsoll.harness.pytest_plugin.fixture import Plimsoll

#: Name of the user property that holds one judged run, as text.
PROPERTY = "plimsoll"

_MARKER = (
    "plimsoll(url=None, **flags): a load test; the keywords are defaults of every run in it (flags of `plimsoll run`, "
    "with underscores)"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--plimsoll-url``, ``--plimsoll-out`` and the ini option ``plimsoll_inconclusive``."""
    group = parser.getgroup("plimsoll", "load tests")
    group.addoption("--plimsoll-url", metavar="URL", help="endpoint of every load test that names none")
    group.addoption("--plimsoll-out", metavar="DIR", help="keep the run directories here (default: pytest's own tmp)")
    parser.addini("plimsoll_url", "endpoint of every load test that names none", default="")
    parser.addini(
        "plimsoll_inconclusive", "what an INCONCLUSIVE verdict makes of a test: fail (default) or skip", default="fail"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Announce the marker; refuse a setting that means nothing."""
    config.addinivalue_line("markers", _MARKER)
    if config.getini("plimsoll_inconclusive") not in ("fail", "skip"):
        raise pytest.UsageError("plimsoll_inconclusive: write fail or skip")


@pytest.fixture
def plimsoll(request: pytest.FixtureRequest, tmp_path: Path) -> Plimsoll:
    """Send load and judge it: ``plimsoll.run("chat.yaml", url=...).assert_slo("slo.yaml")``."""
    from plimsoll.harness.pytest_plugin.fixture import Plimsoll

    flags: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers("plimsoll"))):  # the test's own comes last and wins
        if marker.args:
            pytest.fail(f"@pytest.mark.plimsoll{marker.args}: takes keywords only, like url=...", pytrace=False)
        flags |= marker.kwargs
    url = request.config.getoption("--plimsoll-url") or request.config.getini("plimsoll_url")
    if url and flags.get("url") is None:
        flags["url"] = url
    kept = request.config.getoption("--plimsoll-out")
    folder = Path(kept) / _safe(request.node.nodeid) if kept else tmp_path
    return Plimsoll(
        flags=flags,
        folder=folder,
        lock=request.config.rootpath,
        skip_inconclusive=request.config.getini("plimsoll_inconclusive") == "skip",
        record=lambda text: request.node.user_properties.append((PROPERTY, text)),
    )


def _safe(node_id: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in node_id)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The judged runs stand in the report of the test, where a failure shows them."""
    report = yield
    if report.when == "call":
        for name, text in item.user_properties:
            if name == PROPERTY:
                report.sections.append(("plimsoll", str(text)))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Every judged run with its objectives, whether its test passed or not."""
    reports = [
        report
        for outcome in ("passed", "failed", "skipped")
        for report in terminalreporter.getreports(outcome)
        if getattr(report, "when", "") == "call" and any(name == PROPERTY for name, _ in report.user_properties)
    ]
    if not reports:
        return
    terminalreporter.section("service-level objectives")
    for report in sorted(reports, key=lambda one: one.nodeid):
        for name, text in report.user_properties:
            if name == PROPERTY:
                terminalreporter.write_line(f"{report.nodeid}")
                for line in str(text).splitlines():
                    terminalreporter.write_line(f"  {line}", **_colour(line))


def _colour(line: str) -> dict[str, bool]:
    word = line.split(" ", 1)[0]
    return {
        "PASS": {"green": True},
        "FAIL": {"red": True},
        "INVALID": {"red": True},
        "INCONCLUSIVE": {"yellow": True},
    }.get(word, {})
