"""Why a run is INVALID, by cause and remedy: a host that lost a core breaks five promises, and is one cause.

Checks that follow from another, or have the same cause, become one text: the cause, what was seen, and what to do. A check that is broken
alone says its own. Nothing is judged here: which check is broken is for others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plimsoll.slo.validity.generator import Check


@dataclass(frozen=True, slots=True)
class _Cause:
    """``of``: checks that it breaks, the one whose remedy is its own first; ``then``: those that follow where one of them is broken.

    ``text``: empty for what the first broken check saw; ``remedy``: empty for that of the first broken check.
    """

    text: str
    of: tuple[str, ...]
    then: tuple[str, ...] = ()
    remedy: str = ""


#: What a generator without its time breaks.
_LATE = (
    *("lag", "lag p99", "lag max", "lag below objective", "rate", "arrival process"),
    *("loop stalls", "idle slots", "generator CPU", "live audio"),
)
#: In this order: what ended a run explains what was not sent, and only then does lateness.
_CAUSES = (
    _Cause("", of=("finished",), then=("workers", "disk", "accounting", "all sent", "min_queries", "min_duration")),
    _Cause(
        "the run did not come to its own end",
        of=("workers", "disk", "not aborted", "within max_duration"),
        then=("accounting", "all sent", "min_queries", "min_duration"),
    ),
    _Cause(
        "what was sent is not what is recorded", of=("accounting",), then=("all sent", "min_queries", "min_duration")
    ),
    _Cause("a plug-in takes the generator's time", of=("gc pauses",), then=_LATE),
    _Cause(
        "this host did not give the generator the time that it takes",
        of=_LATE,
        then=("all sent",),
        remedy="Free the host, add workers (--workers) on cores of their own, or lower the rate",
    ),
    _Cause("too little was sent", of=("all sent", "min_queries", "min_duration")),
)


def reasons(checks: Sequence[Check]) -> tuple[str, ...]:
    """One text for each cause of the broken checks, in the order of the checks."""
    left = {check.name: check for check in checks if not check.ok}
    place = {name: at for at, name in enumerate(left)}
    found: list[tuple[int, str]] = []
    for cause in _CAUSES:
        causing = [name for name in cause.of if name in left]
        if not causing:
            continue
        remedy = left[causing[0]].fix
        group = [left.pop(name) for name in (*causing, *cause.then) if name in left]
        group.sort(key=lambda check: place[check.name])
        found.append((place[group[0].name], _text(cause, group, remedy)))
    found += [(place[check.name], check.reason) for check in left.values()]
    return tuple(text for _, text in sorted(found))


def _text(cause: _Cause, group: Sequence[Check], remedy: str) -> str:
    if len(group) == 1:
        return group[0].reason
    text = cause.text or group[0].detail
    seen = "; ".join(check.detail for check in (group if cause.text else group[1:]))
    return f"{text}: {seen}. {cause.remedy or remedy}"
