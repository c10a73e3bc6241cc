"""What the server said of itself beside what we measured: its names over the run, what it does not expose, its
restarts, and whether its books agree with ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from plimsoll.slo.records.records import BoolArray, Phase, Records, TokensFrom
from plimsoll.slo.server.batch_sizes import BatchSizes, batch_sizes
from plimsoll.slo.server.canonical import Engine, Reading, engines
from plimsoll.slo.server.courses import Course, Restart, courses
from plimsoll.slo.server.served import Served

#: What of ours a counter of the server's should be.
_BOOKS = {
    "server.requests": "requests",
    "server.prompt_tokens": "prompt tokens",
    "server.generated_tokens": "generated tokens",
}


@dataclass(frozen=True, slots=True)
class Book:
    """One count as the server has it and as we do, warm-up included; None: nobody knows. Not ``alike``: the two count
    different things, and ``why`` says which.
    """

    what: str
    theirs: float | None
    ours: int | None
    why: str = ""
    alike: bool = True

    @property
    def difference(self) -> float | None:
        return None if self.theirs is None or self.ours is None or not self.alike else self.theirs - self.ours


@dataclass(frozen=True, slots=True)
class FirstToken:
    """The mean time to the first token by the server, and by us from sending; what is between is the network, and what
    stands before the engine.
    """

    theirs_ns: float
    ours_ns: float


_LATEST = np.iinfo(np.int64).max
#: What counts joules.
_ENERGY = ("gpu.energy", "host.energy")


@dataclass(frozen=True, slots=True)
class Energy:
    """Joules from t0 to the last answer by these names, idle ones included, and what was answered with them.
    ``tokens``: None where not every answer says how many.
    """

    names: tuple[str, ...]
    joules: float
    requests: int
    tokens: int | None


@dataclass(frozen=True, slots=True)
class ServerSide:
    """``courses`` from t0 to the last answer. ``absent``: what is not exposed, and what would expose it ("": nothing is
    known to). ``idle``: by name, before the first request: of a gauge its last value, of a counter its rate.
    """

    served: Served
    courses: Mapping[str, Course]
    absent: Mapping[str, str]
    restarts: tuple[Restart, ...]
    books: tuple[Book, ...]
    first_token: FirstToken | None = None
    energy: Energy | None = None
    idle: Mapping[str, float] = field(default_factory=dict)
    batches: tuple[BatchSizes, ...] = ()


def server_side(served: Served, records: Records) -> ServerSide:
    """What the server said, beside the rows of the run."""
    found, restarts = courses(served)
    found = {name: one for name, one in found.items() if one.kind != "gauge" or one.known.any()}
    last_ns = int(max(records["done_ns"].max(initial=0), records["due_ns"].max(initial=0)))
    speaking = {name for course in found.values() for name in course.engine.split(", ")}
    absent = {
        reading.name: _absent(engine, reading)
        for engine in reversed(tuple(engines().values()))
        if engine.name in speaking
        for reading in engine.readings
        if reading.name not in found
    }
    books = tuple(_book(name, what, found, records) for name, what in _BOOKS.items() if name in found)
    during = {name: one.during(0, last_ns, _patience_ns(one, served)) for name, one in found.items()}
    first = _first_token(found.get("server.ttft"), records)
    idle = {name: value for name, one in found.items() if (value := _idle(one, records)) is not None}
    energy, batches = energy_of(during, records, last_ns), batch_sizes(served, restarts, last_ns)
    return ServerSide(served, during, absent, restarts, books, first, energy, idle, batches)


def _idle(course: Course, records: Records) -> float | None:
    """Before anything was sent; None where nobody asked then, and of means, which are of requests."""
    sent = records["sent_ns"]
    before = (course.end_ns <= sent[sent != -1].min(initial=_LATEST)) & course.known
    if course.kind == "mean" or not before.any():
        return None
    values, seconds = course.values[before], float(course.seconds[before].sum())
    if course.kind == "gauge":
        return float(values[-1])
    return float(values.sum()) / seconds if seconds > 0 else None


def energy_of(during: Mapping[str, Course], records: Records, last_ns: int) -> Energy | None:
    """None where nothing counts joules, or where some of the run's are unknown. Of a window that began before t0, or
    ends after the last answer, its share of the time counts.
    """
    counted = [during[name] for name in _ENERGY if name in during]
    if not counted or any(one.unknown.any() for one in counted):
        return None
    joules = 0.0
    for one in counted:
        inside = np.clip(one.end_ns, 0, last_ns) - np.clip(one.since_ns, 0, last_ns)
        joules += float((one.values * inside / np.maximum(one.end_ns - one.since_ns, 1)).sum())
    rows = records.measured()
    n_out = rows["n_out"][rows.ok]
    tokens = int(n_out.sum()) if len(n_out) and (n_out >= 0).all() else None
    return Energy(tuple(one.name for one in counted), joules, len(n_out), tokens)


def _patience_ns(course: Course, served: Served) -> int:
    """How long before the end a last sample still tells of it: of a gauge some periods, of a counter not at all."""
    if course.kind == "counter":
        return 0
    return int(2.5 * max(served.sources[name].origin.slowed_ns for name in course.sources))


def _first_token(course: Course | None, records: Records) -> FirstToken | None:
    """None where either says nothing, or where somebody may have been counted whom the other did not.

    Of a request of several attempts the one that was answered counts, which has a row of its own, but in the warm-up.
    """
    sent, first, phase = records["sent_ns"], records["first_token_ns"], records["phase"]
    several = (phase != Phase.ATTEMPT) & (records.label("tries") > 1)
    there = records.ok & (sent != -1) & (first != -1) & ~several
    if course is None or not there.any() or course.unknown[1:].any() or (several & (phase == Phase.WARMUP)).any():
        return None
    if int(course.weights[course.known].sum()) != int(there.sum()):
        return None
    return FirstToken(course.average, float((first - sent)[there].mean()))


def _absent(engine: Engine, reading: Reading) -> str:
    if not engine.places:
        return f"no source; {engine.title} would need {reading.flag}" if reading.flag else "no source"
    return f"not exposed by {engine.title}" + (f" (start it with {reading.flag})" if reading.flag else "")


def _book(name: str, what: str, found: Mapping[str, Course], records: Records) -> Book:
    course = found[name]
    first_ns = int(records["sent_ns"][records["sent_ns"] != -1].min(initial=0))
    begun = len(course.begin_ns) > 1 and course.begin_ns[0] < first_ns
    grown = course.values[1:]
    asked_ns = int(course.end_ns.max(initial=0))
    why = (
        "it was first asked after the first request"
        if not begun
        else "it restarted"
        if np.isnan(grown).any()
        else f"it was last asked at {asked_ns / 1e9:.2f} s, before the last answer"
        if asked_ns < records["done_ns"].max(initial=0)
        else ""
    )
    theirs = None if why else float(grown.sum())
    ours = _ours(what, records)
    why = why or ("" if ours is not None else "not every answer says how many")
    shared = bool(_later_turns(records).any())
    if what == "requests" and theirs is not None:
        sent = _requests(records, records["sent_ns"] != -1)  # some engines count what was dropped before its answer
        succeeded = int((records.ok & (records["phase"] != Phase.ATTEMPT)).sum())  # some count nothing else
        names = (
            ("connections of sessions", "turns of sessions") if shared else (what, f"{what}, dropped ones among them")
        )
        named = zip((*names, "successful requests"), (ours, sent, succeeded), strict=True)
        what, ours = next((one for one in named if one[1] == theirs), (what, ours))
    if what == "prompt tokens" and theirs is not None and ours is not None and theirs < ours:
        cached = found["server.cached_tokens"].values[1:].sum() if "server.cached_tokens" in found else 0.0
        if theirs + cached == ours:  # llama.cpp counts those apart
            return Book("prompt tokens, without those in its cache", theirs, ours - int(cached))
    apart = None not in (theirs, ours) and theirs != ours
    if apart and (shared or (records.session is not None and what != "requests")):
        return Book(what, theirs, ours, _OF_CALLS, alike=False)
    if apart and (n := _unanswered(records)):
        why = f"{n} of ours had no whole answer: the two may count those differently"
    return Book(what, theirs, ours, why)


_OF_CALLS = "not comparable, because servers count turns on one connection, and tokens of speech, in their own ways"


def _later_turns(records: Records) -> BoolArray:
    """bool[n]: it was answered on a connection that an earlier turn had opened."""
    return np.asarray(records.ok & (records["sent_ns"] != -1) & (records["headers_ns"] == -1))


def _unanswered(records: Records) -> int:
    """Attempts that were sent and came to no good end: given up, cancelled, lost to a hedge, refused, broken off."""
    single = (records["phase"] == Phase.ATTEMPT) | (records.label("tries") < 2)
    return int((single & ~records.ok & (records["sent_ns"] != -1)).sum())


def _ours(what: str, records: Records) -> int | None:
    """What the server should have counted, attempts and warm-up included; None: not every answer says so."""
    if what == "requests":
        return _requests(records, records["headers_ns"] != -1)
    attempt = records["phase"] == Phase.ATTEMPT
    column, source = ("n_in", "n_in_from") if what == "prompt tokens" else ("n_out", "tokens_from")
    counts = np.where(records[source] == TokensFrom.PLAN, -1, records[column])[~attempt]  # what nobody counted
    return None if (counts[records.ok[~attempt]] < 0).any() else int(counts[counts > 0].sum())


def _requests(records: Records, came: BoolArray) -> int:
    """What was sent, attempts and warm-up included, and ``came``; of several attempts of the warm-up all did."""
    attempt, tries = records["phase"] == Phase.ATTEMPT, records.label("tries")
    return int(np.where(tries > 1, tries, came)[~attempt].sum()) - int((attempt & ~came).sum())


def summary(course: Course) -> dict[str, float | None]:
    """The figures of a course: of a gauge and a mean ``mean``, ``min``, ``max``; of a counter ``total``, ``per_s``, and
    ``max``, the greatest rate of a window that is not much shorter than others, in whose time one tick is a great rate.
    """
    known = course.known
    values = course.values[known]
    if not len(values):
        return {}
    if course.kind == "counter":
        spans = course.seconds[known]
        seconds, total, wide = float(spans.sum()), float(values.sum()), spans >= max(np.median(spans) / 2, 1e-9)
        most = float((values[wide] / spans[wide]).max()) if wide.any() else None
        return {"total": total, "per_s": total / seconds if seconds > 0 else None, "max": most}
    return {"mean": course.average, "min": float(values.min()), "max": float(values.max())}
