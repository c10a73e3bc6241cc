"""No input, however damaged, is a traceback, an exit code outside the table, a second of processor time or 200 MB.

The number of inputs is ``PLIMSOLL_FUZZ_INPUTS`` (150; ``make fuzz`` and ``make test-all`` take 10,000). Each reader has
a process of its own, because peak memory is a process's, and because a library's crash must be a failure and not the
end of the tests.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.fuzz.__main__ import READERS, ROOT

INPUTS = int(os.environ.get("PLIMSOLL_FUZZ_INPUTS", "150"))


@pytest.mark.parametrize("reader", READERS)
def test_damaged_inputs_are_refused_or_read_within_bounds(reader: str) -> None:
    command = [sys.executable, "-m", "tests.fuzz", reader, "--inputs", str(INPUTS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-20_000:]
