"""BurstGPT: CSV with spaces in the names of its columns. A row with 0 response tokens is a request that failed, and
stays one. Its second release has sessions and how long each answer took.
"""

from typing import Any

import numpy as np

from plimsoll.scenarios.samples.csv_blocks import Take
from plimsoll.scenarios.samples.recording import FAILED, OK
from plimsoll.scenarios.samples.rows import S, read_csv
from plimsoll.scenarios.samples.traces import Format

_TAKES = {
    "Timestamp": Take("at_ns", "time", S, needed=True),
    "Request tokens": Take("n_in", "count", needed=True),
    "Response tokens": Take("n_out", "count", needed=True),
    "Session ID": Take("session", "key"),
    "Elapsed time": Take("latency_ns", "span", S, blank=True),
    "Model": Take("label:model", "text"),
    "Log Type": Take("label:log", "text"),
}
_LEAVES = ("Total tokens",)


def _failed(columns: dict[str, Any]) -> None:
    columns["status"] = np.where(columns["n_out"] == 0, FAILED, OK)


FORMAT = Format(
    name="burstgpt",
    summary="BurstGPT: CSV of ChatGPT and GPT-4 in a university",
    unit="s",
    sign="a first line with Timestamp, Request tokens, Response tokens",
    detect=lambda head: {"Timestamp", "Request tokens", "Response tokens"} <= {*head.columns},
    read=lambda reading, made: read_csv(reading, made, _TAKES, _LEAVES, _failed),
    takes=(*_TAKES,),
    leaves=_LEAVES,
    columns=("session", "turn", "think_ns", "latency_ns", "status"),
    labels=("model", "log"),
)
