"""The verdict on the generator of a run in parts: each part judges its own, and what only the whole shows is asked for.

A run is valid when every part kept every promise, and so did the whole: as many queries as were wanted, all planned
ones sent, clocks that agree. Parts of a Poisson process that is dealt by lot are Poisson, so each part's arrivals are
judged by themselves, and the one that is farthest off is shown. Lateness and rates are of all rows, exactly.
"""

import json
import math

import numpy as np

from plimsoll.slo.parts.asked import Asked
from plimsoll.slo.parts.evidence import Rows
from plimsoll.slo.parts.wire import Digest, Question
from plimsoll.slo.records.tables import Merged
from plimsoll.slo.statistics.distribution import nearest
from plimsoll.slo.validity import strain
from plimsoll.slo.validity.generator import Check, GeneratorFacts, reasons
from plimsoll.slo.validity.lateness import Arrivals, Lag
from plimsoll.slo.validity.validity import BLOCKS, MIN_ARRIVALS, Backlog, Validity, kept_up, of_facts, planned, queue

#: So many parts that broke a promise are told in full.
_TOLD = 3


def health(run: Rows, facts: GeneratorFacts, promised: bool) -> Validity:
    """Judge the generator of all parts; ``promised``: something is, of the run as a whole."""
    told = run.ask(Question("health", run.of, text="judged" if promised else ""))
    counts = {name: told.whole(f"+{name}") for name in ("rows", "sent", "queries", "stamps", "kernel")}
    left, behind = _flying(run, told, facts)
    wanted = planned(counts["rows"], facts)
    mine = of_facts(counts["queries"], counts["rows"], counts["sent"], facts)
    checks = [*mine, *_of_parts(told, {check.name for check in mine if not check.ok})]
    steady = kept_up(behind)
    share = counts["kernel"] / counts["stamps"] if counts["stamps"] else 0.0
    shapes = [Arrivals(*json.loads(text)) for text in told.named("+arrivals/")]
    warnings = told.named("+warning/")
    return Validity(
        outcome="VALID" if all(check.ok for check in checks) else "INVALID",
        reasons=reasons(checks),
        warnings=(*([] if steady.ok else [steady.reason]), *warnings),
        checks=(*checks, steady),
        planned=wanted,
        sent=counts["sent"],
        unsent=wanted - counts["sent"],
        offered_per_s=left[0],
        achieved_per_s=left[1],
        lag_ns=_lag(run, "lag/sent"),
        generator_lag_ns=_lag(run, "lag/ready"),
        stamp="none" if not counts["stamps"] else "kernel" if share == 1 else "mixed" if share else "user",
        kernel_share=share,
        arrivals=max(shapes, key=lambda one: abs(one.moved), default=None),
        backlog=behind,
        unstable=None if steady.ok else steady.reason,
        merged_chunks=Merged(told.whole("+chunks"), told.whole("+merged"), told.whole(">uncertainty") or None),
        paced=strain.paced(facts),
        pooled=bool(told.whole("+pooled")),
    )


def _of_parts(told: Digest, known: set[str]) -> list[Check]:
    """Each promise of the parts once: kept by all of them, or by whom not."""
    broken: dict[str, list[Check]] = {}
    for text, times in told.named("+broken/").items():
        one = Check(*json.loads(text))
        broken.setdefault(one.name, []).extend([one] * times)
    kept = told.named("+kept/")
    found = []
    for name in dict.fromkeys([*kept, *broken]):
        if name in known:  # what is said of the whole is not said again of a part
            continue
        those = broken.get(name, [])
        if not those:
            found.append(Check(name, True, f"kept by each of {kept[name]} parts"))
            continue
        seen = "; ".join(dict.fromkeys(one.seen for one in those[:_TOLD]))
        of = len(those) + kept.get(name, 0)
        first = those[0]
        found.append(Check(name, False, f"{len(those)} of {of} parts: {seen}", first.fix, first.cause, first.meaning))
    return found


def _lag(run: Rows, name: str) -> Lag:
    _, ordered = run.order(run.of._replace(name=name))
    if not len(ordered):
        return Lag(None, None, None)
    ranks = np.array([*nearest(len(ordered), ("0.5", "0.99")), len(ordered) - 1])
    return Lag(*(int(value) for value in ordered[ranks]))


def _flying(run: Rows, told: Digest, facts: GeneratorFacts) -> tuple[tuple[float, float], Backlog | None]:
    """((rate offered, rate achieved), whether the endpoint kept up)."""
    if "<due_ns" not in told.arrays:
        return (0.0, 0.0), None
    until = int(told[">issued_ns"][0]) if ">issued_ns" in told.arrays else int(told[">due_ns"][0])
    first = int(told["<issued_ns"][0]) if "<issued_ns" in told.arrays else int(told["<due_ns"][0])
    since = first + (until - first) // 3
    at = np.linspace(since, until, BLOCKS + 1)
    over = int(told["<over"][0]) if "<over" in told.arrays and not facts.open_loop else -1
    firsts = [int(told[name][0]) if name in told.arrays else 0 for name in ("<due_first", "<sent_first")]
    heard = run.ask(Question("flying", run.of, {"at": at, "first": np.array(firsts), "over": np.array([over])}))
    rates = []
    for name, begun in zip(("due", "sent"), heard["+begun"].tolist(), strict=True):
        ends = [told[f"{side}{name}_ns"][0] for side in "<>" if f"<{name}_ns" in told.arrays]
        span = int(ends[1] - ends[0]) if ends else 0
        rates.append(max(0, told.whole(f"+{name}_n") - max(begun)) * 1e9 / span if span else 0.0)
    kept = facts.open_loop and facts.process and told.whole("+sent") >= MIN_ARRIVALS
    return (rates[0], rates[1]), _backlog(run, heard, (since, until)) if kept else None


def _backlog(run: Rows, heard: Digest, window: tuple[int, int]) -> Backlog | None:
    since, until = window
    middle = (since + until) // 2
    halves = [run.order(run.of._replace(name=f"took/{a}/{b}"))[1] for a, b in ((since, middle), (middle, until))]
    early, late = halves
    arrived = heard["+due"]
    medians = (_median(early), _median(late))
    return queue(window, arrived, arrived - heard["+over"], medians, lambda: _slower(late, early))


def _median(ordered: Asked) -> float:
    n = len(ordered)
    if not n:
        return math.nan
    low, high = ordered[np.array([(n - 1) // 2, n // 2])].tolist()
    return float((low + high) / 2)


def _slower(first: Asked, second: Asked) -> float:
    """Mann-Whitney's U in standard errors (``plimsoll.slo.statistics.distribution.u_errors``), values of one bucket
    taken as equal.
    """
    n, m = len(first), len(second)
    if not n or not m:
        return 0.0
    before = np.append(0, np.cumsum(second.counts))
    below, upto = (before[np.searchsorted(second.cells, first.cells, side)] for side in ("left", "right"))
    return float(((below + upto) * first.counts).sum() / 2 - n * m / 2) / math.sqrt(n * m * (n + m + 1) / 12)
