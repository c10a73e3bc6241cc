"""Judging with the memory of a run held at none, for what can be promised only of a memory that is given.

A test that estimates how long a system remembers can't be monotone in single values: a run that wanders below its limit
must be undecided, the same run raised to white noise just below the limit must pass, and every step between them makes
a request slower (docs/evidence/statistics.md). All the rest of a verdict is monotone, and that is what these tests
hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

from plimsoll.slo.objectives.openslo import judging as evidence
from plimsoll.slo.records.records import FloatArray
from plimsoll.slo.statistics import share
from plimsoll.slo.statistics.memory import independent
from plimsoll.slo.statistics.order import Entries


@contextmanager
def memory_held() -> Iterator[None]:
    """Every series counts as independent while this lasts, and each value of a request too."""
    lay = share.lay

    def laid(entries: Entries, along: share.Course, worst: float | None = None) -> share.Series:
        found = lay(entries, along, worst)
        return replace(found, memory=independent(len(found.size)))

    def slices(score: FloatArray) -> object:
        return independent(len(score))

    with (
        mock.patch.object(share, "lay", laid),
        mock.patch.object(share, "crowded", return_value=1.0),
        mock.patch.object(evidence, "of_ranks", slices),
    ):
        yield
