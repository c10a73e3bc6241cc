"""The pytest plugin: a ``plimsoll`` fixture and marker, so that a load test is a test like any other.

It loads nothing of the harness until a test asks for it.
"""

from plimsoll.harness.pytest_plugin.hooks import (
    plimsoll,
    pytest_addoption,
    pytest_configure,
    pytest_runtest_makereport,
    pytest_terminal_summary,
)

__all__ = ["plimsoll", "pytest_addoption", "pytest_configure", "pytest_runtest_makereport", "pytest_terminal_summary"]
