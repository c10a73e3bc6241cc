"""Exit codes: a public interface. CI must be able to tell "slow" from "broken"."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What the process tells its caller."""

    PASS = 0  # every objective holds, or none was given and the run is valid
    FAIL = 1  # an objective failed
    USAGE = 2  # bad flags, file or configuration; no load was sent
    INCONCLUSIVE = 3  # too little data to say
    INVALID = 4  # the generator broke its promise; the numbers mean nothing
    UNREACHABLE = 5  # the endpoint could not be reached before the run
    INTERRUPTED = 130  # stopped by the user; what was measured is on disk


OF_OUTCOME = {
    "PASS": ExitCode.PASS,
    "FAIL": ExitCode.FAIL,
    "INCONCLUSIVE": ExitCode.INCONCLUSIVE,
    "INVALID": ExitCode.INVALID,
}
