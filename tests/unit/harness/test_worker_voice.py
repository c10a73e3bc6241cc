"""A worker whose coordinator is gone goes on to keep what it measured; that nobody hears it is no reason to die."""

from __future__ import annotations

import json
import subprocess
import sys

SCRIPT = """
import sys
from plimsoll.harness.generator.worker import Voice
say = Voice()
say({"type": "first"})
sys.stdin.readline()
for _ in range(3):
    say({"type": "status", "text": "x" * 100_000})
print("kept", file=sys.stderr)
"""


def test_a_voice_that_nobody_hears_any_more_is_silent() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == '{"type": "first"}\n'
    process.stdout.close()
    process.stdin.write("go\n")
    process.stdin.close()
    assert process.stderr.read() == "kept\n"
    assert process.wait(10) == 0
    process.stderr.close()


def test_folders_with_rows_are_told_as_they_are_whatever_is_secret() -> None:
    script = """
from plimsoll.harness.secrecy.redaction import learn
from plimsoll.harness.generator.worker import Voice
learn(["plimsoll"])
Voice()({"type": "done", "folders": ["/tmp/plimsoll-spill-1"], "faults": ["no plimsoll here"]})
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert json.loads(said) == {"type": "done", "folders": ["/tmp/plimsoll-spill-1"], "faults": ["no [redacted] here"]}
