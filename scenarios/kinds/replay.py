"""Replay: requests come when they came. An open loop whose due times are a recording, faster or slower if asked.

``trace`` is a file (see ``scenarios/samples/traces.py`` for the formats) or a run directory, whose incident it repeats:
the same queries with the same samples at the same times. The window is cut by the recording's own time, then its first
request is put at 0 and every gap divided by ``speed``. ``load`` and ``spread`` say how many requests there are and when
(``scenarios/samples/reshaping.py``), before the window is cut. With ``sessions: turns`` only a session's first turn
comes at its own time: each later one waits for the answer before it, and then as long as its user did. With source
``trace`` of the same file request i has the lengths and shared prefixes of row i; with any other source only the times
are the recording's. The recording's length is the run's: the minima of ``stop`` don't stretch it, ``max_queries`` cuts
it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from operator import not_
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, Field, model_validator

from plimsoll.scenarios.kinds.sessions import MOST, Affinity
from plimsoll.scenarios.loops import open_plan, sessions_plan
from plimsoll.scenarios.plan.blocks import Blocks
from plimsoll.scenarios.plan.plan import BLOCK, IntArray, Plan, Stop
from plimsoll.scenarios.plan.sampling import choose, chosen, require_samples
from plimsoll.scenarios.plugins import OF_SESSIONS, Kind, Warmup
from plimsoll.scenarios.samples.census import census, cut
from plimsoll.scenarios.samples.conversations import conversations, history_of
from plimsoll.scenarios.samples.payload import PayloadSource
from plimsoll.scenarios.samples.recording import TIMEOUT, Recording, scratch
from plimsoll.scenarios.samples.reshaping import FOREVER, SHARED_TOKENS, Placed, Shape, clock, placed
from plimsoll.scenarios.samples.traces import Columns, FormatName, Unit, read
from plimsoll.scenarios.sources.trace import Prompts
from plimsoll.scenarios.text.fields import STRICT, Duration, FileName, format_duration

#: Fewer bytes than a request takes in any format: for an estimate without reading.
_BYTES_PER_REQUEST = 20


class Window(BaseModel):
    """A part of the recording, by its own time from its first request: start <= t < end."""

    model_config = STRICT
    start_ns: Duration = Field(default=0, alias="start")
    end_ns: Duration | None = Field(default=None, alias="end", description="null: to the end.")

    @model_validator(mode="after")
    def _ordered(self) -> Window:
        if self.end_ns is not None and self.end_ns <= self.start_ns:
            raise ValueError(
                f"end {format_duration(self.end_ns)} is not after start. Give a later end, or leave it out"
            )
        return self


class ReplayParams(BaseModel):
    """Which recording, which part of it, and how fast."""

    model_config = STRICT
    trace: FileName | None = Field(default=None, description="A trace file, or a run directory. Always needed.")
    format: FormatName = Field(default="auto", description="auto, or a format of recordings.")
    columns: Columns = Field(default_factory=Columns, description="Names of the columns, of formats jsonl and csv.")
    time_unit: Unit = Field(
        default="s", description="Unit of a time that is a number, of jsonl and csv: s, ms, us, ns."
    )
    speed: float = Field(default=1.0, gt=0, le=1_000_000, allow_inf_nan=False, description="2: twice as fast.")
    window: Window = Field(default_factory=Window, description="{start: 10m, end: 20m} of the recording.")
    prehistory: Duration = Field(default=0, description="What came so long before its first request is its warm-up.")
    spread: bool = Field(
        default=False, description="Put the requests of one tick of a coarse clock at random times until the next."
    )
    load: float = Field(
        default=1.0,
        gt=0,
        le=1000,
        allow_inf_nan=False,
        description="3: thrice as much traffic; 0.5: half the sessions.",
    )
    share_depth: int = Field(
        default=SHARED_TOKENS,
        ge=0,
        description="Tokens that copies of a prompt share with it; as the source's.",
    )
    sessions: Literal["times", "turns"] | None = Field(
        default=None,
        exclude_if=not_,
        description="turns: later turns wait for the answer before and the recorded think time; times: as they came; "
        "null: turns where only first ones have times.",
    )
    part: str | None = Field(
        default=None, exclude_if=not_, description="Of a run of several classes: this one, at its times in the run."
    )
    turns: Literal["data"] | None = Field(
        default=None, exclude_if=not_, description="Of a run of sessions that had them from data: samples are turns."
    )
    history: Literal["live", "recorded", "none"] | None = Field(
        default=None,
        exclude_if=not_,
        description="Of turns. null: recorded where a length contains the turns before it, else live, as of sessions.",
    )
    affinity: Affinity | None = Field(default=None, exclude_if=not_, description="Of turns; as of sessions.")
    on_failure: Literal["end", "continue"] | None = Field(
        default=None, exclude_if=not_, description="Of turns; as of sessions. null: end."
    )
    barge_in: Literal["recorded"] | None = Field(
        default=None, exclude_if=not_, description="Of turns: recorded ones speak over the answer before; null: none."
    )

    @model_validator(mode="after")
    def _has_prehistory(self) -> ReplayParams:
        if self.prehistory > self.window.start_ns:
            raise ValueError(
                f"prehistory {format_duration(self.prehistory)} is longer than what comes before the window, which "
                f"starts at {format_duration(self.window.start_ns)}. Shorten it, or begin the window later"
            )
        return self


#: A year. Due times hold some 292.
_LONGEST_NS = 365 * 86_400 * 10**9


def _blocks(params: ReplayParams, stop: Stop, n_samples: int, seed: int) -> Iterator[Plan]:
    require_samples(n_samples)
    replayed = _replayed(params, seed)
    payloads = _payloads(replayed, n_samples, seed)
    n, first_ns, last_ns = replayed.extent
    n = n if stop.max_queries is None else min(n, stop.max_queries)
    stop = replace(stop, min_queries=min(stop.min_queries, n), min_duration_ns=0)
    lasts_ns = (last_ns - first_ns) / params.speed
    if lasts_ns > _LONGEST_NS:
        raise ValueError(
            f"params.speed: at {params.speed:g} the recording lasts {lasts_ns / _LONGEST_NS:,.3g} years. Give a larger "
            "one, or a window of less than a year"
        )
    if replayed.turns:
        plan, some = _chained(replayed, params.window.start_ns, params.speed, params.barge_in is not None)
        plan = replace(plan.select(np.arange(n), None), payload_ix=payloads(some, n), seed=seed)
        yield replace(plan, stop=replace(stop, min_queries=min(stop.min_queries, int((plan.after < 0).sum()))))
        return
    made = 0
    for some in replayed.queries(params.window.start_ns, replayed.end_ns):
        piece = _plan(some, made, n, payloads, stop, seed)
        yield replace(piece, due_ns=_due(piece.due_ns, first_ns, params.speed), check=False)
        made += piece.n_queries
        if made >= n:
            return


def _due(at_ns: IntArray, first_ns: int, speed: float) -> IntArray:
    return np.rint((at_ns - first_ns) / speed).astype(np.int64)


def _plan(some: _Queries, made: int, most: int, payloads: _Payloads, stop: Stop, seed: int) -> Plan:
    """The first queries of these, due by the recording's own time; ``made`` of at most ``most`` were before them."""
    bounds = some.bounds[: most - made + 1]
    begins, m = bounds[:-1], int(bounds[-1])
    return Plan(
        due_ns=some.at_ns[: len(begins)],
        query_id=np.arange(made, made + len(begins)),
        offsets=bounds,
        sample_ix=np.arange(m) - np.repeat(begins, np.diff(bounds)),
        payload_ix=payloads(some, m),
        after=np.full(len(begins), -1),
        stop=stop,
        seed=seed,
        open_loop=True,
        check=False,
    )


@dataclass(frozen=True, slots=True)
class _Queries:
    """Consecutive queries: when, where their samples begin and the last ends, the recording's row that each sample is,
    which copy of it, and the sample of its source that a run of ours sent.
    """

    at_ns: IntArray
    bounds: IntArray
    row: IntArray
    copy: IntArray
    sent: IntArray | None


_Payloads = Callable[[_Queries, int], IntArray]


@dataclass(frozen=True, slots=True)
class _Replayed:
    """A recording in the shape in which it is replayed. ``extent``: queries of the window, its first and last time;
    ``turns``: later turns of sessions wait for the ones before.
    """

    recording: Recording
    shape: Shape
    end_ns: int
    extent: tuple[int, int, int]
    turns: bool = False

    def queries(self, begin_ns: int, end_ns: int) -> Iterator[_Queries]:
        """Those from then to before then, by the recording's own time."""
        return _queries(self.recording, self.shape, begin_ns, end_ns)


def _queries(recording: Recording, shape: Shape, begin_ns: int, end_ns: int) -> Iterator[_Queries]:
    if not shape.plain:
        for part in placed(recording, shape, begin_ns, end_ns):
            yield _Queries(part.at_ns, np.arange(len(part.row) + 1), part.row, part.copy, None)
        return
    begin, end = (recording.before(each_ns) for each_ns in (begin_ns, end_ns))
    for row, rows, begins in recording.queries(begin, end, BLOCK):
        n, bounds = len(rows), np.append(begins, len(rows))
        yield _Queries(rows.at_ns[begins], bounds, np.arange(row, row + n), np.zeros(n, np.int64), rows.payload_ix)


def _planned(params: ReplayParams, replayed: _Replayed) -> Iterator[_Queries]:
    """Those of the window, in the plan's order."""
    begin_ns = params.window.start_ns
    if replayed.turns:
        return iter([_chained(replayed, begin_ns, params.speed, params.barge_in is not None)[1]])
    return replayed.queries(begin_ns, replayed.end_ns)


@lru_cache(maxsize=1)
def _chained(replayed: _Replayed, begin_ns: int, speed: float, barges: bool) -> tuple[Plan, _Queries]:
    """Each turn of the window behind the one before it, and the same queries in that order."""
    if replayed.extent[0] > MOST:
        raise ValueError(f"params.sessions: more than {MOST:,} turns, and such a plan is held whole. Give a window")
    found = [*replayed.queries(begin_ns, replayed.end_ns)]
    if any(len(some.row) != len(some.at_ns) for some in found):
        raise ValueError("params.sessions: queries of several samples are no turns. Leave it out")
    row, copy, at_ns = (np.concatenate([getattr(some, name) for some in found]) for name in ("row", "copy", "at_ns"))
    sent = None if found[0].sent is None else np.concatenate([_sent(some) for some in found])
    recording = replayed.recording
    session = _column(recording, "session", row)
    whose = np.where(session < 0, recording.n_sessions + row, session) * replayed.shape.copies + copy
    order = np.argsort(whose, kind="stable")  # they come in order of time
    begins = np.flatnonzero(np.append(True, np.diff(whose[order]) != 0))
    row, copy, at_ns = row[order], copy[order], at_ns[order]
    gap = np.append(0, np.diff(at_ns))
    think, took = _column(recording, "think_ns", row), np.append(-1, _column(recording, "latency_ns", row)[:-1])
    waits = np.where(think >= 0, think, np.maximum(gap - np.maximum(took, 0), 0))
    over = {"barge_in": _column(recording, "barge_in_ns", row)} if barges and recording.knows("barge_in_ns") else {}
    for after in over.values():
        after[begins], waits = -1, np.where(after >= 0, 0, waits)
    waits[begins] = 0
    first, place = _due(at_ns[begins], replayed.extent[1], speed), np.arange(len(row))
    turns, waits = np.diff(np.append(begins, len(row))), np.rint(waits / speed).astype(np.int64)
    made = sessions_plan(first, turns, place, waits, Stop(1, 0), 0, over)
    at = made.payload_ix
    sent = None if sent is None else sent[order][at]
    return made, _Queries(at_ns[at], np.arange(len(at) + 1), row[at], copy[at], sent)


def _column(recording: Recording, name: str, row: IntArray) -> IntArray:
    base = int(row.min())
    return recording.column(name, base, int(row.max()) + 1)[row - base]


def recording_of(params: ReplayParams) -> Recording:
    """What is to be replayed. Raises ``ScenarioError``, and ValueError where none is named."""
    if params.trace is None:
        raise ValueError("params.trace is not given. Name the file or run directory to replay (--trace)")
    return read(Path(params.trace), "params.trace", params.format, params.columns, params.time_unit, params.part)


def _replayed(params: ReplayParams, seed: int) -> _Replayed:
    recording, window = recording_of(params), params.window
    if not recording.timed:
        raise ValueError(
            "params.trace: its requests don't say when they came, so it can't be replayed. Make it the source (kind "
            "trace) of a kind with arrivals of its own: kind sessions with turns: data and think: recorded, or server"
        )
    shape = Shape(params.load, params.spread, params.share_depth, seed)
    if recording.grouped and not shape.plain:
        raise ValueError(
            "params.load and params.spread: a run directory holds samples of one source and times to the nanosecond. "
            "Leave them out, or make a trace of it first: plimsoll import RUN --out trace.jsonl"
        )
    if recording.worded and params.load > 1:
        raise ValueError("params.load: copies of requests with words of their own would be repeats. Leave it out")
    if params.spread:
        shape = replace(shape, tick_ns=clock(recording).grain_ns)
    end_ns = recording.last_ns + 1 + _LONGEST_NS if window.end_ns is None else window.end_ns
    extent = _extent(recording, shape, window.start_ns, end_ns)
    if not extent[0]:
        raise ValueError(
            f"params.window holds no request: the recording lasts {recording.last_ns / 1e9:.6g} s. Give a part with "
            "some"
        )
    if params.part is not None:  # all classes begin together
        extent = extent[0], window.start_ns, extent[2]
    return _Replayed(recording, shape, end_ns, extent, _turns(params, recording))


def _turns(params: ReplayParams, recording: Recording) -> bool:
    """Whether later turns wait for the ones before. Raises ValueError for what contradicts it."""
    turns = recording.waits if params.sessions is None else params.sessions == "turns"
    given = ["history"] * (params.history is not None and params.turns is None)
    given += [name for name in ("affinity", "on_failure", "barge_in") if getattr(params, name) is not None]
    if not turns and given:
        raise ValueError(f"params.{given[0]} is of turns that wait for answers. Add sessions: turns, or leave it out")
    if not turns and recording.waits:
        raise ValueError(
            "params.sessions: times, and only first turns have times in this recording. Give turns (--sessions turns)"
        )
    if turns and not recording.n_sessions:
        raise ValueError(
            "params.sessions: turns, and the recording knows of no sessions. Leave it out, or name their column "
            "(--column session=NAME)"
        )
    if turns and not recording.grouped:
        history_of(recording.cumulative, params.history)
    return turns


def _labels(params: ReplayParams) -> tuple[str, ...]:
    if params.trace is None or params.sessions == "times":
        return ()
    waits = params.sessions == "turns" or recording_of(params).waits
    return (*OF_SESSIONS, *(["barge_in"] if params.barge_in else [])) if waits else ()


def _sourced(params: ReplayParams, source: PayloadSource) -> PayloadSource:
    """Prompts of one session grow where its turns wait for each other, and a recording says that they did."""
    if params.turns == "data":
        return conversations(source, params.history == "recorded", params.history == "live")
    return replace(source, by_session=True) if isinstance(source, Prompts) and _labels(params) else source


def _settled(params: ReplayParams, source: Callable[[], PayloadSource]) -> ReplayParams:
    """What sessions do where nobody said it."""
    if not _labels(params):
        return params
    found = recording_of(params)
    history = (params.history or "none") if found.grouped else history_of(found.cumulative, params.history)
    return params.model_copy(update={"history": history, "on_failure": params.on_failure or "end"})


@lru_cache(maxsize=1)  # whoever asks for a plan's first piece gets it without another pass
def _extent(recording: Recording, shape: Shape, begin_ns: int, end_ns: int) -> tuple[int, int, int]:
    """The queries of this part, its first time and its last."""
    if shape.plain and not recording.grouped:
        begin, end = (recording.before(each_ns) for each_ns in (begin_ns, end_ns))
        times = [int(recording.times(row, row + 1)[0]) for row in (begin, end - 1) if begin < end]
        return end - begin, *(times or (0, 0))
    n = first_ns = last_ns = 0
    for some in _queries(recording, shape, begin_ns, end_ns):
        n, first_ns, last_ns = n + len(some.at_ns), first_ns if n else int(some.at_ns[0]), int(some.at_ns[-1])
    return n, first_ns, last_ns


def _payloads(replayed: _Replayed, n_samples: int, seed: int) -> _Payloads:
    """The samples of the first so many of some queries' rows: what a run sent, copy by copy and row by row of the same
    file, else at random.
    """
    recording, copies = replayed.recording, replayed.shape.copies
    if recording.grouped:
        most = recording.n_payloads
        if most > n_samples > 1:  # of one sample: somebody asks for times alone
            raise ValueError(
                f"the run that is replayed used {most} samples and the source has {n_samples}. Give it the source of "
                "that run"
            )
        return lambda some, n: _sent(some)[:n] % n_samples
    rows = len(recording)
    if n_samples == rows * copies:
        return lambda some, n: some.copy[:n] * rows + some.row[:n]
    take, taken = chosen("random", seed, n_samples), 0

    def drawn(some: _Queries, n: int) -> IntArray:
        nonlocal taken
        while replayed.shape.plain and taken < some.row[0]:  # what comes before the window is drawn too
            taken += len(take(min(BLOCK, int(some.row[0]) - taken)))
        taken += n
        return take(n)

    return drawn


def _sent(some: _Queries) -> IntArray:
    assert some.sent is not None  # a run has them
    return some.sent


def _warmup(params: ReplayParams, warmup: Warmup) -> Plan | Blocks:
    """What came before the window, as it came; else samples at random, evenly, at the mean rate of the part that is
    replayed.
    """
    if params.prehistory:
        return Blocks(partial(_prehistory, params, warmup))
    n, first_ns, last_ns = _replayed(params, warmup.root).extent
    lasts_ns = max(1, round((last_ns - first_ns) / params.speed))
    n = max(1, min(n, round(n * warmup.duration_ns / lasts_ns)))
    due = np.arange(n) * warmup.duration_ns // n - warmup.duration_ns
    return open_plan(due, choose("random", warmup.seed, n, warmup.n_samples), Stop(n, 0), warmup.seed)


def _prehistory(params: ReplayParams, warmup: Warmup) -> Iterator[Plan]:
    replayed = _replayed(params, warmup.root)
    payloads, made = _payloads(replayed, warmup.n_samples, warmup.root), 0
    first_ns, stop = replayed.extent[1], Stop(1, 0)
    for some in replayed.queries(first_ns - params.prehistory, params.window.start_ns):
        piece = _plan(some, made, FOREVER, payloads, stop, warmup.seed)
        yield replace(piece, due_ns=np.minimum(_due(piece.due_ns, first_ns, params.speed), -1), check=False)
        made += piece.n_queries
    if not made:
        yield open_plan(np.empty(0, np.int64), np.empty(0, np.int64), stop, warmup.seed)


def parts(params: ReplayParams, seed: int) -> tuple[Shape, Iterator[Placed]]:
    """The shape that the recording is given, and its requests as they are replayed, at their due times."""
    replayed = _replayed(params, seed)
    first_ns = replayed.extent[1]
    some = (
        Placed(each.row, each.copy, np.repeat(_due(each.at_ns, first_ns, params.speed), np.diff(each.bounds)))
        for each in replayed.queries(params.window.start_ns, replayed.end_ns)
    )
    return replayed.shape, some


def _originals(params: ReplayParams, stop: Stop, seed: int) -> Iterator[Mapping[str, IntArray]] | None:
    replayed = _replayed(params, seed)
    return _each_original(params, stop, replayed) if replayed.recording.knows("latency_ns") else None


def _each_original(params: ReplayParams, stop: Stop, replayed: _Replayed) -> Iterator[Mapping[str, IntArray]]:
    recording, made = replayed.recording, 0
    most = replayed.extent[0] if stop.max_queries is None else stop.max_queries
    for some in _planned(params, replayed):
        bounds = some.bounds[: most - made + 1]
        row, sizes = some.row[: bounds[-1]], np.diff(bounds)
        if not len(row):
            return
        base, end = int(row.min()), int(row.max()) + 1
        found = {name: recording.column(name, base, end)[row - base] for name in ("latency_ns", "ttft_ns", "status")}
        query = np.repeat(np.arange(made, made + len(sizes)), sizes)
        place = np.arange(len(row)) - np.repeat(bounds[:-1], sizes)
        yield {"query_id": query, "sample_ix": place, "at_ns": recording.times(base, end)[row - base], **found}
        made += len(sizes)


def _gave_up(params: ReplayParams, seed: int) -> Callable[[IntArray], IntArray]:
    delays = _given_up(params, seed)
    return lambda query_ids: delays[query_ids]


@lru_cache(maxsize=1)
def _given_up(params: ReplayParams, seed: int) -> IntArray:
    """int64[n]: after how many ns each query was given up or timed out, -1 if not; in a file where they are many."""
    replayed = _replayed(params, seed)
    recording = replayed.recording
    found, made = scratch(replayed.extent[0]), 0
    for some in _planned(params, replayed):
        row = some.row[some.bounds[:-1]]
        delays, took, ended = (_column(recording, name, row) for name in ("gave_up_ns", "latency_ns", "status"))
        late = (delays < 0) & (ended == TIMEOUT) & (not recording.grouped)  # a run of ours has its own timeout
        found[made : made + len(row)] = np.where(late, took, delays)
        made += len(row)
    if not (recording.knows("gave_up_ns") or (found >= 0).any()):
        raise ValueError("cancel: recorded, and the recording knows of no request that was given up. Leave cancel out")
    return found


def _notes(params: ReplayParams, seed: int) -> list[str]:
    """What of the load is not as it was recorded."""
    replayed = _replayed(params, seed)
    recording, window, found = replayed.recording, params.window, []
    if params.spread:
        found.append(
            f"replay: requests were put at random times within the {format_duration(replayed.shape.tick_ns)} of the "
            "recording's clock: nobody knows when in it they came"
        )
    if replayed.turns:
        found.append(_of_turns(recording))
    elif recording.n_sessions:
        found.append(
            f"replay: {_many(recording.n_sessions, 'recorded session', 'is sent by its own', 'are sent by their own')} "
            "times, whether or not an answer has come before"
        )
    if recording.knows("barge_in_ns") and params.barge_in is None:
        found.append(
            "replay: nobody speaks over an answer, as users did then: send it by turns, as what they were "
            "(--sessions turns; params.barge_in: recorded)"
        )
    if recording.n_sessions and (window.start_ns or window.end_ns is not None):
        begun, going = cut(recording, window.start_ns, replayed.end_ns)
        found.append(
            f"replay: the window cuts {_many(begun, 'recorded session')} that began before it, and {going:,} going on "
            "after it"
        )
    if recording.resent:
        found.append(
            f"replay: a proxy sent {_many(recording.resent, 'attempt')} more than there are lines, and nobody knows "
            "when: they are not sent. client: {retry: ...} sends such"
        )
    if params.load != 1:
        shape, part = replayed.shape, (window.start_ns, replayed.end_ns)
        before = census(recording, parts=placed(recording, Shape(), *part))
        after = census(recording, shape, placed(recording, shape, *part))
        pairs = ((name, before.dispersion[name], after.dispersion[name]) for name in before.dispersion)
        said = ", ".join(f"{b:.3g} before and {a:.3g} after at {n}" for n, b, a in pairs if None not in (a, b))
        found.append(f"replay: load {params.load:g} resamples whole sessions; dispersion {said or 'unknown'}")
        if before.hit_share is not None and after.hit_share is not None:
            found[-1] += f"; ideal prefix hits {before.hit_share:.2%} before and {after.hit_share:.2%} after"
    return found


def _many(n: int, noun: str, one: str = "", more: str = "") -> str:
    return f"{n:,} {noun}{'s' * (n != 1)} {one if n == 1 else more}".rstrip()


def _of_turns(recording: Recording) -> str:
    begin = _many(recording.n_sessions, "recorded session", "begins at its own time", "begin at their own times")
    said = f"replay: {begin}; a later turn waits for the answer before it and as long as its user did"
    if not (recording.waits or recording.knows("think_ns")):
        said += ", which nobody recorded: it waits from that answer's end as long as it came after that turn then"
    return said


def _lead(params: ReplayParams) -> int:
    return math.ceil(params.prehistory / params.speed)


def _size(params: ReplayParams, stop: Stop) -> int:
    path = Path(params.trace) if params.trace is not None else None
    file = path / "requests.parquet" if path is not None and path.is_dir() else path
    n = file.stat().st_size // _BYTES_PER_REQUEST if file is not None and file.is_file() else 0
    n = math.ceil(n * params.load)
    return n if stop.max_queries is None else min(n, stop.max_queries)


KIND = Kind(
    name="replay",
    summary="Open loop: due times from a trace file or a run directory, at any speed.",
    headline="the objectives, under load as it was",
    params=ReplayParams,
    open_loop=lambda params: True,
    blocks=_blocks,
    warmup=_warmup,
    slots=lambda params: None,
    size=_size,
    lead=_lead,
    notes=_notes,
    originals=_originals,
    gave_up=_gave_up,
    labels=_labels,
    sourced=_sourced,
    settled=_settled,
    sample_file='{"timestamp": 0, "input_length": 600, "output_length": 8, "hash_ids": [0, 1]}\n'
    '{"timestamp": 900, "input_length": 40, "output_length": 8, "hash_ids": [2]}\n'
    '{"timestamp": 2100, "input_length": 700, "output_length": 4, "hash_ids": [0, 3]}\n',
)
