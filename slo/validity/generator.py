"""What the generator says of itself, and one promise of it, kept or not. Values only: nothing is judged here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

#: Whose doing a broken promise is: this host's and its workers', the endpoint's, or the user's (who stopped the run, or
#: planned it so).
Cause = Literal["generator", "endpoint", "user"]
#: What a fact may be, in words.
_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", NoneType: "null"}
#: Above any share that was measured; false for what is no number too.
_LARGEST = 1e18


@dataclass(frozen=True, slots=True)
class GeneratorFacts:
    """What the generator knows about itself that the records don't.

    ``planned`` samples and ``planned_queries`` (0 in a closed loop, which has no list to work off); ``process``: the
    intended arrival process, such as ``poisson`` or ``constant``; ``elapsed_ns``: t0 to the last issue (of a single
    query, to its last completion); ``loop_stall_count``: stalls of the event loop longer than 10 ms;
    ``gc_pause_count``: runs of the garbage collector; of both ``max_ns`` and ``total_ns`` are the worst worker's, over
    ``watched_ns`` (t0 to its last completion); ``worker_cpu``: share of one core that each worker used;
    ``core_wanted``: share of the time that the thread that sends ran or waited for a core; ``engine_cpu``: share of one
    core used by its native engine's thread, empty without one; ``worker_rss_kb``: the most memory each held;
    ``no_endpoint``: a protocol without network, which measures Plimsoll itself; ``pool_waits``: requests that waited
    for one of ``max_connections`` connections, and ``stream_waits`` those of them that waited for a place under the
    server's limit of concurrent streams instead; ``clock_steps``: jumps of the wall clock, which kernel receive stamps
    are on and are mapped around; ``stamps_refused``: those of ``kernel_reads + user_reads`` reads whose kernel stamp
    could not be mapped, so that a userland one was taken; ``disk_faults``: rows that could not be read back;
    ``disk_notes``: rows that had to be written elsewhere, none of them lost; ``retried``: requests sent a second time,
    because a kept-alive connection turned out to have been closed before they came, or the call was refused unread
    (warm-up included; the rows' ``attempts`` says which); ``frame_interval_ns`` and ``frame_deadline_ns``: from one
    query's due time to the next, and the time each one has (0: the scenario gave none); ``agents``: hosts that sent,
    where the load was distributed over several (0: it was not); ``clock_error_ns``: how far the worst known of their
    clocks may have been off when t0 was announced; ``aligned``: the arrivals are what was asked for only if those
    clocks agree (a constant rate; not Poisson arrivals, which are dealt by lot, nor a closed loop); ``plan_samples``:
    samples of an open loop's plan as its file has them (0: unknown), and ``plan_faults``: what in the run directory is
    not as it was planned and sealed; both are found again whenever a run directory is opened; ``sent`` and
    ``recorded``: requests, warm-up included, by the workers' own counts (-1: nobody counted); ``lost``: sent, and
    without a row of any kind; ``account_faults``: what in the rows that came is not as the workers said; ``slots``: of
    each worker, where a number of requests are kept in flight; ``cut_off``: who was killed before it sealed the run,
    when, and which rows that cost (None: nobody was); ``unreached``: turns of sessions that were never due, as the
    session had ended before; ``planned_tokens``: of the prompts that the endpoint counted as ``told_tokens``, by the
    plan (0: it counted none, or the plan had no lengths); ``event_faults``: events that failed, were late or not begun.
    """

    open_loop: bool
    planned: int
    planned_queries: int = 0
    process: str | None = None
    min_queries: int = 0
    min_duration_ns: int = 0
    elapsed_ns: int = 0
    loop_stall_p99_ns: int = 0
    loop_stall_max_ns: int = 0
    loop_stall_total_ns: int = 0
    loop_stall_count: int = 0
    gc_pause_max_ns: int = 0
    gc_pause_total_ns: int = 0
    gc_pause_count: int = 0
    watched_ns: int = 0
    worker_cpu: tuple[float, ...] = ()
    core_wanted: tuple[float, ...] = ()
    engine_cpu: tuple[float, ...] = ()
    worker_rss_kb: tuple[int, ...] = ()
    no_endpoint: bool = False
    pool_waits: int = 0
    pool_wait_p99_ns: int = 0
    stream_waits: int = 0
    aborted: str | None = None
    worker_faults: tuple[str, ...] = ()
    interrupted: bool = False
    cut_off: str | None = None
    max_duration_hit: bool = False
    clock_steps: int = 0
    stamps_refused: int = 0
    kernel_reads: int = 0
    user_reads: int = 0
    disk_faults: tuple[str, ...] = ()
    disk_notes: tuple[str, ...] = ()
    retried: int = 0
    n_workers: int = 1
    frame_interval_ns: int = 0
    frame_deadline_ns: int = 0
    agents: int = 0
    clock_error_ns: int = 0
    aligned: bool = True
    plan_samples: int = 0
    plan_faults: tuple[str, ...] = ()
    sent: int = -1
    recorded: int = -1
    lost: int = 0
    account_faults: tuple[str, ...] = ()
    slots: tuple[int, ...] = ()
    unreached: int = 0
    planned_tokens: int = 0
    told_tokens: int = 0
    event_faults: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """A JSON object; ``from_json`` gives the same facts back."""
        tokens = () if self.planned_tokens else ("planned_tokens", "told_tokens")  # nobody counted, or had a plan
        absent = (*tokens, *(() if self.event_faults else ("event_faults",)))
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items() if k not in absent}

    @staticmethod
    def from_json(document: object) -> GeneratorFacts:
        """Facts from ``to_json``'s object. Unknown keys are ignored, so that a file may hold more.

        Raises ValueError for a fact that is missing or of another type than its field.
        """
        if not isinstance(document, Mapping):
            raise ValueError("facts is no mapping")
        types = get_type_hints(GeneratorFacts)
        given: dict[str, Any] = {}
        for field in fields(GeneratorFacts):
            if field.name in document:
                given[field.name] = _typed(field.name, document[field.name], types[field.name])
            elif field.default is MISSING:
                raise ValueError(f"facts.{field.name} is missing")
        return GeneratorFacts(**given)


def _typed(name: str, value: object, wanted: Any) -> object:
    """A JSON value as a field of this type holds it. Raises ValueError."""
    if get_origin(wanted) is tuple and isinstance(value, list):
        each = get_args(wanted)[0]
        return tuple(_typed(f"{name}[{i}]", one, each) for i, one in enumerate(value))
    kinds = get_args(wanted) if get_origin(wanted) is UnionType else (wanted,)
    if not any(_is(value, kind) for kind in kinds):
        words = " or ".join(_WORDS.get(kind, "a list") for kind in kinds)
        raise ValueError(f"facts.{name} is {json.dumps(value)[:60]}, not {words}")
    return value


def _is(value: object, kind: type) -> bool:
    """A true or false is no number, and a number must fit the columns that it is compared with."""
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    if kind is int:
        return isinstance(value, int) and abs(value) < 1 << 63
    if kind is float:
        return isinstance(value, int | float) and abs(value) < _LARGEST
    return kind in _WORDS and isinstance(value, kind)


@dataclass(frozen=True, slots=True)
class Check:
    """One promise of the generator: whether it was kept, what was seen and is allowed, what to do if not, who then
    caused it, and what a broken one means beyond what was seen.
    """

    name: str
    ok: bool
    seen: str
    fix: str = ""
    cause: Cause = "generator"
    meaning: str = ""

    @property
    def detail(self) -> str:
        """What was seen, with what it means where the promise is broken."""
        return f"{self.seen}: {self.meaning}" if self.meaning else self.seen

    @property
    def reason(self) -> str:
        """The detail with the next step."""
        return f"{self.detail}. {self.fix}" if self.fix else self.detail


# -- why a run is INVALID, by cause and remedy ------------------------------------------------------------------------

# Checks that follow from another, or have the same cause, become one text: the cause, what was seen, and what to do. A
# check that is broken alone says its own.


@dataclass(frozen=True, slots=True)
class _Cause:
    """``of``: checks that it breaks, the one whose remedy is its own first; ``then``: those that follow where one of
    them is broken.

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
