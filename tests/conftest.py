"""Fixtures and profiles shared by every test.

Hypothesis profiles by the environment variable HYPOTHESIS_PROFILE: ``brief``, ``fast`` (default), ``ci``, ``thorough``.
"""

from __future__ import annotations

import difflib
import os
import signal
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Helpers assert too: a failure on a machine that nobody can look at must say what it saw.
pytest.register_assert_rewrite("tests.bench", "tests.e2e", "tests.fuzz", "tests.property", "tests.unit")

from plimsoll.harness.secrecy.redaction import KNOWN  # noqa: E402

GOLDEN = Path(__file__).parent / "golden"

_quiet = [HealthCheck.too_slow]
settings.register_profile("brief", max_examples=25, deadline=None, suppress_health_check=_quiet, derandomize=True)
settings.register_profile("fast", max_examples=40, deadline=None, suppress_health_check=_quiet)
settings.register_profile("ci", max_examples=100, deadline=None, suppress_health_check=_quiet, derandomize=True)
settings.register_profile("thorough", max_examples=2000, deadline=None, suppress_health_check=_quiet)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


# A shell without job control starts what runs behind it with SIGINT ignored, and every process that a test interrupts
# would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

#: No test may depend on whether, and how, the machine it runs on was calibrated.
os.environ["PLIMSOLL_CALIBRATION"] = str(Path(__file__).parent / "no-calibration.json")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.import_plugin("tests.second_tries")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files and print the difference")


@pytest.fixture(autouse=True)
def _no_secrets() -> Iterator[None]:
    """What one test learns to be secret must not be masked in another's texts."""
    before = {name: deepcopy(getattr(KNOWN, name)) for name in KNOWN.__slots__}
    yield
    for name, value in before.items():
        setattr(KNOWN, name, value)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, bytes], None]:
    """``golden(name, data)``: data must equal tests/golden/<name>; ``--update-golden`` rewrites it instead."""

    def check(name: str, data: bytes) -> None:
        path = GOLDEN / name
        old = path.read_bytes() if path.exists() else b""
        if old == data:
            return
        diff = "\n".join(
            difflib.unified_diff(
                old.decode(errors="replace").splitlines(),
                data.decode(errors="replace").splitlines(),
                f"golden/{name}",
                "now",
                lineterm="",
                n=2,
            )
        )
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            print(diff[:10_000])
            return
        pytest.fail(f"golden/{name} differs (make golden rewrites it after you have read this):\n{diff[:6000]}")

    return check
