"""Exit codes: a public interface. CI must be able to tell "slow" from "broken"."""

from __future__ import annotations

import re
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


def exit_map(text: str) -> dict[int, int]:
    """``3=0,4=1``, ``argo`` (both 1: nothing is promoted without evidence) or ``argo:3=0``: code -> code to leave with.

    Only where no verdict was reached another code may be chosen; a FAIL stays one. Raises ValueError.
    """
    argo = re.match("argo(:|$)", text)
    found: dict[int, int] = {}
    pairs = text[argo.end() :] if argo else text
    for pair in pairs.split(",") if pairs or not argo else ():
        said = re.fullmatch(r"\s*([34])=([0-9]{1,3})\s*", pair)
        if said is None or int(said[2]) > 255 or int(said[1]) in found:
            raise ValueError(
                "it names 3 (INCONCLUSIVE) and 4 (INVALID), each once and with a code from 0 to 255: 3=0,4=1, or argo "
                "for 3=1,4=1, or argo:3=0"
            )
        found[int(said[1])] = int(said[2])
    return {3: 1, 4: 1, **found} if argo else found
