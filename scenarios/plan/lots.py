"""Arms: the queries of one schedule dealt by lot, so that several targets are asked in one run, in the same second.

Each query draws a number from the seed, and with it falls to an arm; a session goes whole. An arm's plan is the part of
the schedule that fell to it, its queries counted from 0. Shares may change at times of the run: who has a number below
5 % has one below 25 % too, so a growing arm keeps the draws that it had. Targets are no concern of this file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field

from plimsoll.scenarios.plan.plan import Plan, first_of_session
from plimsoll.scenarios.plan.seeds import child, mixed
from plimsoll.scenarios.text.fields import STRICT, Duration, format_duration, parse_duration


class LotStep(BaseModel):
    """The draws of one arm: those from ``low`` to below ``high``, of the queries due ``from`` this time on."""

    model_config = STRICT
    from_ns: Duration = Field(alias="from")
    low: float = Field(ge=0, le=1)
    high: float = Field(ge=0, le=1)


class Dealer:
    """Deals the pieces of one plan, in order: ``keep`` leaves of each what falls to the arm."""

    def __init__(self, steps: tuple[LotStep, ...], seed: int) -> None:
        self._from = np.array([step.from_ns for step in steps])
        self._low, self._high = (np.array([getattr(step, end) for step in steps]) for end in ("low", "high"))
        self._key, self._next = child(seed, "arms"), 0

    def keep(self, pieces: Iterator[Plan]) -> Iterator[Plan]:
        for piece in pieces:
            rows = np.flatnonzero(self._mine(piece))
            found = piece.select(rows, piece.max_in_flight)
            number = np.arange(self._next, self._next + len(rows))
            waits = found.after >= 0
            after = np.full(len(rows), -1)
            after[waits] = number[np.searchsorted(found.query_id, found.after[waits])]
            self._next += len(rows)
            yield replace(found, query_id=number, after=after, check=False)

    def _mine(self, piece: Plan) -> npt.NDArray[np.bool_]:
        first = first_of_session(piece)
        draw = mixed(self._key, piece.query_id[first]) / 2.0**64
        step = np.maximum(np.searchsorted(self._from, piece.due_ns[first], side="right") - 1, 0)
        return (draw >= self._low[step]) & (draw < self._high[step])


def steps_of(shares: Mapping[str, Any]) -> tuple[dict[str, list[dict[str, Any]]], list[tuple[str, str]]]:
    """``lot`` of each arm, by what each says of its share: ``20%``, or from which time on which, ``{0s: 5%, 60s:
    25%}``. And what is wrong, with the arm.
    """
    read: dict[str, dict[int, float]] = {}
    wrong: list[tuple[str, str]] = []
    for name, share in shares.items():
        try:
            at = share if isinstance(share, Mapping) else {"0s": share}
            read[name] = {parse_duration(time): _part(part) for time, part in at.items()}
            if 0 not in read[name]:
                raise ValueError("does not say the share from 0s on")
        except ValueError as error:
            wrong.append((name, f"{error}. Write a share such as 20%, or {{0s: 5%, 60s: 25%}}"))
    times = sorted({time for one in read.values() for time in one})
    lots: dict[str, list[dict[str, Any]]] = {name: [] for name in read}
    for time in times if not wrong else ():
        low = 0.0
        # The last arm first: what a canary draws stays its own as it grows.
        for name in reversed(list(read)):
            high = low + read[name][max(at for at in read[name] if at <= time)]
            lots[name].append({"from": format_duration(time), "low": low, "high": min(high, 1.0)})
            low = high
        if abs(low - 1) > 1e-9:
            wrong.append(
                (next(iter(read)), f"with the others makes {100 * low:g} % from {format_duration(time)} on, not 100 %")
            )
    return lots, wrong


def _part(text: Any) -> float:
    if isinstance(text, str) and text.endswith("%"):
        try:
            part = float(text[:-1]) / 100
        except ValueError:
            part = -1.0
        if 0 <= part <= 1:
            return part
    raise ValueError(f"{text!r:.40} is no share")
