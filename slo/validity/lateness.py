"""How late the generator was, and how late it may be where lateness can't be bracketed.

Late is ready - due, of the first sample of each query, and what the client then held the request back for without
opening a connection or waiting for a free one. In an open loop it makes a bracket of every time
(``slo/validity/bracket.py``) and no run INVALID; limits relative to the tightest objective are for closed loops, for a
single query, and for comparisons.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from plimsoll.slo.metrics.indicator import catalogue
from plimsoll.slo.objectives.objective import Objective, show
from plimsoll.slo.records.columns import blocks
from plimsoll.slo.records.queries import deadlines
from plimsoll.slo.records.records import PACE_CAPTURE, BoolArray, FloatArray, IntArray, Records
from plimsoll.slo.statistics.distribution import BLOCK, ascending, nearest, quantile
from plimsoll.slo.statistics.order import Folded, ranked
from plimsoll.slo.validity.generator import Check

LAG_FLOOR_NS = 1_000_000
LAG_MAX_FLOOR_NS = 50_000_000
UNTOUCHED_FLOOR_NS = 5_000_000
#: With fewer values the p99 is the maximum, and is judged as one.
P99_NEEDS = 100
RATE_TOLERANCE = 0.01
#: Rows whose order is found at once.
_MANY = 1 << 22


@dataclass(frozen=True, slots=True)
class Lag:
    """Nearest-rank percentiles of a lateness in ns; None when nothing was measured."""

    p50: int | None
    p99: int | None
    max: int | None


def scheduled(rows: Records) -> Records:
    """The rows whose due times the plan alone decided: all, but for turns of sessions that followed an answer."""
    turn = None if rows.labels is None else rows.labels.columns.get("turn")
    return rows if turn is None else rows.select(turn <= 1)


def first_of_each_query(taken: Records) -> Records:
    """The sample of each query that was taken up first.

    A query is issued when its first sample is: the others wait for it, and in an offline run for a turn on the wire.
    That is the scenario's doing and part of their latency, not the generator's lateness.
    """
    query, ready = taken["query_id"], taken["ready_ns"]
    if len(query) and bool((np.diff(query) >= 0).all()):  # of a run that was sealed: a query's samples are together
        starts = firsts(query)
        if len(starts) == len(query):
            return taken
        least = np.repeat(np.minimum.reduceat(ready, starts), np.diff(starts, append=len(query)))
        least = np.flatnonzero(ready == least)
        return taken.select(least[firsts(query[least])])
    order = np.lexsort((ready, query))
    query = query[order]
    return taken.select(np.sort(order[np.append(True, np.diff(query) != 0)[: len(order)]]))


def firsts(query_id: IntArray) -> IntArray:
    """int64[queries]: the first row of each query, the queries in order of their ids."""
    risen = np.diff(query_id)
    if not len(risen) or int(risen.min()) >= 0:
        return np.append(0, np.flatnonzero(risen) + 1)[: len(query_id)]
    order = np.argsort(query_id, kind="stable")
    return np.asarray(order[firsts(query_id[order])])


def own(records: Records, pooled: bool) -> IntArray:
    """int64[n]: by how much each request left late through the generator alone, 0 for what was never taken up.

    Its query's lateness, and sent - ready without what is the endpoint's or the scenario's: the set-up of a connection,
    and (in a run whose pool was ever full: ``pooled``) the wait until one was free, which ends as another request of
    that worker does.
    """
    ready, sent = records["ready_ns"], records["sent_ns"]
    if not pooled and not records.columns["sample_ix"].any():
        return _own(ready, sent, records["due_ns"], records["connect_ns"])
    late = np.where(ready != -1, ready - records["due_ns"], 0)
    if bool((records["sample_ix"] > 0).any()):
        key = records["query_id"] - records["phase"] * (int(records["query_id"].max(initial=0)) + 1)
        order = None if bool((np.diff(key) >= 0).all()) else np.argsort(key, kind="stable")
        starts = firsts(key if order is None else key[order])
        lasted = np.where(ready != -1, late, np.iinfo(np.int64).max)
        first = np.minimum.reduceat(lasted if order is None else lasted[order], starts)
        whole = np.repeat(first, np.diff(starts, append=len(key)))
        if order is not None:
            whole[order] = whole.copy()
        late = np.where(ready != -1, whole, 0)
    held = np.where((sent != -1) & (ready != -1), sent - ready - np.maximum(records["connect_ns"], 0), 0)
    if pooled:
        held = np.minimum(held, _since_one_was_free(records))
    return np.asarray(np.maximum(late, 0) + np.maximum(held, 0))


def _own(ready: IntArray, sent: IntArray, due: IntArray, connect: IntArray) -> IntArray:
    """``own`` of queries of one sample that never waited for a connection, a part at a time."""
    found = np.empty(len(ready), np.int64)
    for first in range(0, len(found), BLOCK):
        part = slice(first, first + BLOCK)
        up, left = ready[part], sent[part]
        late = np.maximum(up - due[part], 0) + np.maximum(left - up - np.maximum(connect[part], 0), 0) * (left != -1)
        np.multiply(late, up != -1, out=found[part])
    return found


def _since_one_was_free(records: Records) -> IntArray:
    """int64[n]: from the last end of another request of the worker between ready and sent, to sent; else very long."""
    ready, sent, done = (records[name] for name in ("ready_ns", "sent_ns", "done_ns"))
    since = np.full(len(records), np.iinfo(np.int64).max)
    for mine in by_worker(records).values():
        rows, ended = mine[sent[mine] != -1], done[mine]
        over = ascending(ended[ended != -1])
        place = np.searchsorted(over, sent[rows], side="right") - 1
        last = np.where(place >= 0, over[np.maximum(place, 0)] if len(over) else -1, -1)
        freed = last > ready[rows]
        since[rows[freed]] = (sent[rows] - last)[freed]
    return since


def by_worker(records: Records) -> dict[int, IntArray]:
    """The rows of each worker, ascending."""
    worker = records.columns["worker"]
    found: dict[int, list[IntArray]] = {}
    for first in range(0, len(worker), _MANY):
        order = np.argsort(worker[first : first + _MANY], kind="stable") + first  # of 16 bits: two passes
        for rows in np.split(order, np.flatnonzero(np.diff(worker[order])) + 1):
            found.setdefault(int(worker[rows[0]]), []).append(rows)
    return {one: np.concatenate(parts) for one, parts in found.items()}


def summary(values: IntArray) -> Lag:
    if len(values) == 0:
        return Lag(None, None, None)
    ranks = [*nearest(len(values), ("0.5", "0.99")), len(values) - 1]
    return Lag(*(int(value) for value in ranked(values.astype(np.float64))[np.array(ranks)]))


def tightest(objectives: Sequence[Objective]) -> Objective | None:
    """The smallest threshold among objectives that lateness adds to: times counted from due."""
    known, own = catalogue(), ("lag", "generator_lag")
    times = [o for o in objectives if o.unit == "ns" and o.of is None and o.indicator not in own]
    return min((o for o in times if "due_ns" in known[o.indicator].needs), key=lambda o: o.threshold, default=None)


class LagLimits(NamedTuple):
    """How late the generator may be, in ns: limit and floor of the p99 and of the maximum; ``source`` in words."""

    p99_ns: float
    p99_floor_ns: int
    max_ns: float
    max_floor_ns: int
    source: str


def lag_limits(rows: Records, objectives: Sequence[Objective]) -> LagLimits:
    """Largest allowed p99 and maximum of the generator's lag in ns, the maximum's floor, and their source in words.

    With latency objectives: 1 % and 10 % of the tightest. Without: 1 % and 10 % of the median latency, the maximum then
    never below 50 ms, since one hiccup of the host says little about an endpoint nobody promised anything for. Neither
    is below 1 ms, which is as good as a timer in a busy process gets; with objectives that lateness adds nothing to
    (tpot, ratio(error)), the p99 is not below 5 ms. A promise on missed frames is one of latency: its threshold is the
    frame deadline.
    """
    tight = tightest(objectives)
    if tight is not None:
        scale, floor, source = tight.threshold, LAG_FLOOR_NS, f"of {tight}"
    else:
        took = (rows["done_ns"] - rows["due_ns"])[rows.ok]
        scale = quantile(ranked(took.astype(np.float64)), "0.5") if len(took) else 0.0
        floor, source = LAG_MAX_FLOOR_NS, "of the median latency"
    frame = int(deadlines(rows).max(initial=0)) if any(o.indicator == "frame_missed" for o in objectives) else 0
    if frame > 0 and (tight is None or frame < tight.threshold):
        p99, most = (max(LAG_FLOOR_NS, share * frame) for share in (0.01, 0.1))
        return LagLimits(p99, LAG_FLOOR_NS, most, LAG_FLOOR_NS, "of the frame deadline")
    lowest = UNTOUCHED_FLOOR_NS if objectives and tight is None else LAG_FLOOR_NS
    return LagLimits(max(lowest, 0.01 * scale), lowest, max(floor, 0.1 * scale), floor, source)


def lateness(lag: IntArray, limits: LagLimits, objectives: Sequence[Objective]) -> list[Check]:
    """The generator's own lag: its p99, its maximum, and how often it alone was more than an objective allows."""
    if len(lag) == 0:
        return []
    seen = summary(lag)
    assert seen.p99 is not None
    assert seen.max is not None
    # Of few requests the p99 is the maximum, which one hiccup makes; that most of them are late is none.
    word, late_ns = ("p99", seen.p99) if len(lag) >= P99_NEEDS else ("p50", seen.p50 or 0)
    late, most, lowest = (show(value, "ns") for value in (late_ns, seen.max, limits.max_floor_ns))
    fix = "Lower the rate, add workers, or free the host"
    limit, floor = show(limits.p99_ns, "ns"), show(limits.p99_floor_ns, "ns")
    detail = f"generator lag {word} {late}, limit {limit} (1 % {limits.source}, at least {floor})"
    checks = [Check("lag p99", late_ns <= limits.p99_ns, detail, fix)]
    detail = f"generator lag max {most}, limit {show(limits.max_ns, 'ns')} (10 % {limits.source}, at least {lowest})"
    checks.append(Check("lag max", seen.max <= limits.max_ns, detail, fix))
    tight = tightest(objectives)
    if tight is not None:
        beyond = int(np.count_nonzero(lag > tight.threshold))
        detail = f"generator lag above the whole of {tight}: {beyond} of {len(lag)} requests, limit 0.1 %"
        checks.append(Check("lag below objective", beyond <= 0.001 * len(lag), detail, fix))
    return checks


def seen(lag: IntArray) -> str:
    """The p99 and the maximum of a lateness, for people."""
    found = summary(lag)
    return f"generator lag p99 {show(found.p99 or 0, 'ns')}, max {show(found.max or 0, 'ns')}"


def span(taken: Records, limits: LagLimits, paced: bool, over_ns: int | None = None) -> Check:
    """The issue span is the planned one, give or take 1 %, or the lateness that is allowed anyway in a tiny run.

    ``paced``: every query has a due time of its own; then one late request at either end is no other rate, and the
    slope of issue times over due times may be within 1 % of 1 instead: it weighs all requests, and a load that falls
    behind changes it. ``over_ns``: as ``at_once`` takes it.
    """
    if len(taken) < 2:
        return Check("rate", True, "too few requests for a rate")
    due, ready = taken["due_ns"], taken["ready_ns"]
    planned, actual = int(np.ptp(due)), int(np.ptp(ready))
    allowed = max(RATE_TOLERANCE * planned, limits.max_ns)
    first = at_once(due, over_ns)
    rates = f"issued at {rate_per_s(ready, first):.4g}/s, planned {rate_per_s(due, first):.4g}/s"
    detail = f"{rates}, limit 1 % or {show(allowed, 'ns')} over the run"
    kept = abs(actual - planned) <= allowed
    if paced and planned:
        off = slope(due, ready) - 1
        kept = kept or abs(off) <= RATE_TOLERANCE
        detail = f"{detail}; over all requests {off:+.2%}, limit 1 %"
    return Check("rate", kept, detail, "Lower the rate or add workers")


# -- did requests leave as planned -------------------------------------------------------------------------------------

# Did the requests leave as the plan said, and was the plan what it claims? Shapes of times, beside each other. A seeded
# plan may be an unlucky draw of its process; that is no fault of the generator. So the judgement of the generator
# compares the actual times with the planned times. The plan itself is held against its process apart from that, and so
# that no draw is unlucky enough: what fails has another law.

#: Below this many requests a shape is noise.
MIN_SAMPLES = 200
#: Mean number of requests per counting window of the index of dispersion.
PER_WINDOW = 10
#: Largest difference between actual and planned index of dispersion, relative to the planned one or to 1.
DISPERSION_TOLERANCE = 0.5
#: Largest difference between the actual and the planned correlation of counts of successive windows, and the windows it
#: needs.
DEPENDENCE_TOLERANCE = 0.3
DEPENDENCE_NEEDS = 100
#: A stall empties windows and fills the next one: this share of them, and at least two, is left out, of plan and actual
#: alike.
STALLED_SHARE = 0.01
#: A plan whose gaps would be an exponential draw less often than this is no Poisson plan. The fit estimates the mean,
#: so honest plans fall below far more rarely still.
P_CLAIM = 1e-6


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Index of dispersion of counts (variance over mean, in windows of 10 mean gaps): 1 for Poisson, 0 for constant.

    ``dispersion_planned`` of the due times, ``dispersion_ready`` of the moments the generator took requests up,
    ``dispersion_sent`` of the moments they left. ``ks_p``: Kolmogorov-Smirnov p-value of the sent gaps against the
    exponential distribution of their mean, None for other processes; conservative, since the mean is estimated.
    ``moved``: by how much the dispersion of what left is off the planned one, and ``leaned``: the correlation of the
    counts of successive windows, both without the windows of stalls; None: too few. ``kept``: both small.
    """

    dispersion_planned: float
    dispersion_ready: float
    dispersion_sent: float
    ks_p: float | None
    moved: float
    leaned: float | None
    kept: bool


def rate_per_s(times_ns: IntArray, at_once: int = 1) -> float:
    """(n - at_once) / (last - first), per second; 0 for fewer than two moments.

    ``at_once``: so many began together (see ``at_once``), in no time. Counted, they would make two queries of eight
    samples twice as fast as they came.
    """
    span = int(np.ptp(times_ns)) if len(times_ns) else 0
    return max(0, len(times_ns) - at_once) * 1e9 / span if span else 0.0


def at_once(due_ns: IntArray, over_ns: int | None = None) -> int:
    """How many began the load together: those due at its first moment, and where requests wait for answers all that
    were due before any answer made room for them (``over_ns``: the first end of a request from t0 on, of the warm-up
    too).
    """
    if not len(due_ns):
        return 1
    tied = int(np.count_nonzero(due_ns == due_ns.min()))
    return tied if over_ns is None else max(tied, int(np.count_nonzero(due_ns < over_ns)))


def slope(due_ns: IntArray, left_ns: IntArray) -> float:
    """Least squares of the times left over the times due: 1 for the planned rate, more for a load that falls behind."""
    x = due_ns - due_ns.mean()
    spread = float(np.square(x).sum())
    return float((x * (left_ns - left_ns.mean())).sum()) / spread if spread else 1.0


def counts(times_ns: IntArray, start_ns: int, window_ns: float, windows: int) -> IntArray:
    """int64[windows]: the moments in each window from ``start_ns`` on."""
    found = np.zeros(windows + 1, np.int64)
    for first in range(0, len(times_ns), BLOCK):
        place = ((times_ns[first : first + BLOCK] - start_ns) / window_ns).astype(np.int64)
        place[(place < 0) | (place > windows)] = windows
        found += np.bincount(place, minlength=windows + 1)
    return found[:windows]


def dispersion(times_ns: IntArray, window_ns: float) -> float:
    """Variance over mean of the counts in whole windows from the first moment on; NaN for fewer than two windows."""
    windows = int(np.ptp(times_ns) // window_ns) if len(times_ns) and window_ns > 0 else 0
    if windows < 2:
        return math.nan
    seen = counts(times_ns, int(times_ns.min()), window_ns, windows)
    return float(seen.var() / seen.mean())


def exponential_fit(gaps_ns: npt.NDArray[np.float64], grain_ns: float = 0.0) -> float:
    """Kolmogorov-Smirnov p-value of gaps against the exponential distribution with their mean.

    ``grain_ns``: times are whole multiples of this, which moves the distribution by up to so much of the mean.
    """
    from plimsoll.slo.statistics.special import kolmogorov

    n = len(gaps_ns)
    mean = float(gaps_ns.mean()) if n else 0.0
    if mean <= 0.0:
        return 0.0
    # Buckets must be narrow against the distance, which is of the order of 1 / sqrt(n).
    ordered = ranked(gaps_ns, min(max(math.ceil(math.log2(n) / 2), 10), 15))
    ranks = _farthest(ordered, mean) if isinstance(ordered, Folded) else np.arange(n)
    fitted = -np.expm1(-ordered[ranks] / mean)
    distance = float(max(((ranks + 1) / n - fitted).max(), (fitted - ranks / n).max()))
    return float(kolmogorov(math.sqrt(n) * max(0.0, distance - grain_ns / mean)))


def _farthest(ordered: Folded, mean: float) -> IntArray:
    """The ranks of all values that may be the farthest one from the exponential distribution with this mean."""
    n, counts = len(ordered), ordered.counts
    fitted = -np.expm1(-np.append(ordered.lows, np.inf) / mean)
    last = np.cumsum(counts)
    ends, begins = last / n, (last - counts) / n
    # In a bucket the values are at least so far, and at most so far.
    least = max((ends - fitted[1:]).max(), (fitted[:-1] - begins).max()) - 1e-9
    some = np.flatnonzero((ends - fitted[:-1] >= least) | (fitted[1:] - begins >= least))
    return np.concatenate([np.arange(last[i] - counts[i], last[i]) for i in some.tolist()])


def claimed(due_ns: IntArray, process: str | None) -> str | None:
    """Why the planned times (of each query, ascending) are not of the process that they claim; None: they may be, or
    are too few.

    Poisson: exponential gaps, of whole ns. Constant: equal ones. Others claim nothing that can be tested without their
    settings.
    """
    gaps = np.diff(due_ns).astype(np.float64)
    if len(gaps) < MIN_SAMPLES:
        return None
    if process == "poisson" and (p := exponential_fit(gaps, 2.0)) < P_CLAIM:
        spread = float(gaps.std() / gaps.mean()) if gaps.mean() else math.nan
        return f"{len(gaps)} gaps, exponential with p = {p:.1g}, their spread over their mean {spread:.2f}"
    if process == "constant" and (off := float(np.abs(gaps - gaps.mean()).max())) > 2.0 + 0.01 * gaps.mean():
        return f"one of {len(gaps)} gaps is {off / 1e6:.3g} ms off their mean"
    return None


def compare(
    due_ns: IntArray, ready_ns: IntArray, sent_ns: IntArray, process: str | None, left_ns: IntArray | None = None
) -> Arrivals | None:
    """The three shapes; None when all requests are due at once, or so few that there are not two windows.

    Judged is ``left_ns``, of each due time when the generator let go of it: ``ready_ns``, unless it held requests back
    after that.
    """
    span = int(np.ptp(due_ns))
    window = PER_WINDOW * span / max(len(due_ns) - 1, 1)
    planned, ready, sent = (dispersion(times, window) for times in (due_ns, ready_ns, sent_ns))
    if math.isnan(planned):
        return None
    ks_p = None
    if process == "poisson" and len(sent_ns) >= MIN_SAMPLES:
        ks_p = exponential_fit(np.diff(ascending(sent_ns)).astype(np.float64))
    moved, leaned = _apart(due_ns, ready_ns if left_ns is None else left_ns, window)
    # A ready dispersion of NaN means that everything left at once: certainly not as planned.
    kept = not math.isnan(ready) and abs(moved) <= DISPERSION_TOLERANCE * max(1.0, planned)
    return Arrivals(planned, ready, sent, ks_p, moved, leaned, kept and abs(leaned or 0.0) <= DEPENDENCE_TOLERANCE)


def _apart(due_ns: IntArray, left_ns: IntArray, window_ns: float) -> tuple[float, float | None]:
    """(difference of dispersion, that of the correlation of successive counts): what left less what was planned."""
    windows = int(np.ptp(due_ns) // window_ns)
    start = int(due_ns.min())
    planned, left = (counts(times, start, window_ns, windows) for times in (due_ns, left_ns))
    most = max(2, int(STALLED_SHARE * windows))
    kept = np.ones(windows, np.bool_)
    if windows > most:
        kept[np.argsort(np.abs(left - planned), kind="stable")[windows - most :]] = False
    mean = float(planned.mean())
    both = [float(np.square(seen[kept] - mean).mean() / mean) for seen in (left, planned)]
    if windows < DEPENDENCE_NEEDS:
        return both[0] - both[1], None
    pairs = kept[1:] & kept[:-1]
    leans = []
    for seen in (left, planned):
        off = seen - mean
        scale = max(float(np.square(off[kept]).mean()), mean)
        leans.append(float((off[1:] * off[:-1])[pairs].mean()) / scale)
    return both[0] - both[1], leans[0] - leans[1]


# -- paced audio -------------------------------------------------------------------------------------------------------

# Did the generator play its audio on time, and did the endpoint take it? Sessions of paced audio, judged one by one.
# Pure. Every frame has a due time on its session's absolute schedule, and ``frame_lag_ns`` is how much later it was
# handed over. Late audio makes an endpoint look slow, never fast, so late sessions stay in every number and are
# counted; beyond a share of them the run proves nothing, whatever it says. What was handed over in time and not taken
# is the endpoint's part, or the network's: ``unsent_bytes``, the most that the peer had not taken when a frame was due.
# It is reported and makes no run invalid.

#: A session is late when the p99 of its frames is more than half a frame late, or one of them more than two.
P99_FRAMES, MAX_FRAMES = 0.5, 2.0
#: The largest share of late sessions in a valid run.
LATE_SHARE = 0.01
#: With more audio than this waiting to be taken the endpoint holds its sender up.
HELD_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class LiveAudio:
    """``sessions`` of paced audio; ``late`` of them were sent late audio, ``held`` were held up by the endpoint.

    ``frame_lag_ns``: over all ``frames``. ``frame_ns``: the most common frame. ``unsent_bytes`` and ``unsent_ns`` (the
    same as playing time): the most of any session, None where nobody looked.
    """

    sessions: int
    frames: int
    late: int
    held: int
    frame_ns: int
    frame_lag_ns: Lag
    unsent_bytes: int | None
    unsent_ns: int | None

    @property
    def late_share(self) -> float:
        return self.late / self.sessions if self.sessions else 0.0


def late_sessions(records: Records) -> BoolArray:
    """bool[n]: paced sessions whose audio was sent late."""
    lags, offsets = records.ragged("frame_lag_ns")
    frames = np.diff(offsets)
    judged = _paced(records, frames)
    frame = _frame_ns(records, frames)
    late = np.zeros(len(records), np.bool_)
    if not judged.any():
        return late
    for first, last in blocks(offsets):
        # Within each session ascending, so that its p99 and its maximum have known places.
        part = lags[offsets[first] : offsets[last]]
        ordered = part[np.lexsort((part, np.repeat(np.arange(last - first), frames[first:last])))]
        rows = np.flatnonzero(judged[first:last]) + first
        p99 = ordered[offsets[rows] - offsets[first] - (-99 * frames[rows] // 100) - 1]
        most = ordered[offsets[rows + 1] - offsets[first] - 1]
        late[rows] = (p99 > P99_FRAMES * frame[rows]) | (most > MAX_FRAMES * frame[rows])
    return late


def live_audio(records: Records) -> LiveAudio | None:
    """The measured sessions that were sent paced audio, failed ones included; None without any."""
    if records.session is None:
        return None
    rows = records.measured()
    lags, offsets = rows.ragged("frame_lag_ns")
    frames = np.diff(offsets)
    judged = _paced(rows, frames)
    if not judged.any():
        return None
    unsent = rows["unsent_bytes"][judged]
    waiting = _waiting_ns(rows, frames)[judged]
    known = unsent >= 0
    sizes, count = np.unique(rows["frame_ns"][judged], return_counts=True)
    return LiveAudio(
        sessions=int(np.count_nonzero(judged)),
        frames=int(frames[judged].sum()),
        late=int(np.count_nonzero(late_sessions(rows))),
        held=int(np.count_nonzero(waiting[known] > HELD_NS)),
        frame_ns=int(sizes[np.argmax(count)]),
        frame_lag_ns=summary(lags[np.repeat(judged, frames)]),
        unsent_bytes=int(unsent.max()) if known.any() else None,
        unsent_ns=round(float(waiting[known].max())) if known.any() else None,
    )


def audio_checks(found: LiveAudio | None) -> list[Check]:
    """The generator's promise: its audio was there when it was due, in nearly all sessions. None: it sent no audio."""
    if found is None:
        return []
    detail = (
        f"late audio in {found.late} of {found.sessions} sessions, limit {LATE_SHARE:.0%} (late: p99 of the frame lag "
        f"above half a frame of {show(found.frame_ns, 'ns')}, or one frame above two); of all frames p99 "
        f"{_shown(found.frame_lag_ns.p99)}, max {_shown(found.frame_lag_ns.max)}"
    )
    fix = "Run fewer sessions at once, take longer frames, add workers, or free the host"
    return [Check("live audio", found.late_share <= LATE_SHARE, detail, fix)]


def audio_warnings(found: LiveAudio | None) -> list[str]:
    """What a reader should know of audio that came late here, or was not taken there."""
    said: list[str] = []
    if found is None:
        return said
    if 0 < found.late_share <= LATE_SHARE:
        said.append(
            f"{found.late} of {found.sessions} sessions were sent audio late by this host (within the limit of "
            f"{LATE_SHARE:.0%}). They are in every number, and can only make the endpoint look slower"
        )
    if found.held:
        assert found.unsent_ns is not None
        said.append(
            f"{found.held} of {found.sessions} sessions were held up: at worst {show(found.unsent_ns, 'ns')} of audio "
            "had been sent in time and was not taken. That is back-pressure of the endpoint or the network, it is in "
            "their latency, and it is not this host's"
        )
    return said


def _paced(records: Records, frames: IntArray) -> BoolArray:
    return np.asarray((records["pace"] >= PACE_CAPTURE) & (frames > 0) & (records["frame_ns"] > 0))


def _frame_ns(records: Records, frames: IntArray) -> FloatArray:
    """The time between two due frames: a frame's playing time, or less where audio went out faster than it plays."""
    span = records["input_end_ns"] - records["media_start_ns"]
    known = (records["input_end_ns"] != -1) & (records["media_start_ns"] != -1) & (span > 0)
    faster = np.where(known & (records["pace"] > PACE_CAPTURE + 1), span / np.maximum(frames, 1), np.inf)
    return np.minimum(records["frame_ns"].astype(np.float64), faster)


def _waiting_ns(records: Records, frames: IntArray) -> FloatArray:
    """Unsent bytes as playing time, by the bytes that all of the session's audio took."""
    played = frames * records["frame_ns"].astype(np.float64)
    return np.maximum(records["unsent_bytes"], 0) / np.maximum(records["bytes_out"], 1) * played


def _shown(value: int | None) -> str:
    return "none" if value is None else show(value, "ns")
