"""``judge(records, facts, promises)``: everything that a run decides and that its records tell, as one frozen value.

The verdict on the generator and on every objective, goodput, error budgets, warm-up and drift, and what else ``Judged``
names. The same arguments give the same value: no clock, host or file is read. Reports lay it out and decide nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from plimsoll.slo.metrics.anatomy import Anatomy, anatomy
from plimsoll.slo.metrics.sessions import Sessions, sessions
from plimsoll.slo.metrics.speech import without_sounds
from plimsoll.slo.objectives.budget import Budgeted, budgeted, run_span_ns
from plimsoll.slo.objectives.goodput import Goodput, Throughput, goodput, throughput
from plimsoll.slo.objectives.ledger import PERIOD_NS, Ledger, ledger_of
from plimsoll.slo.objectives.objective import Objective
from plimsoll.slo.objectives.quantified import singles
from plimsoll.slo.objectives.selector import selected
from plimsoll.slo.peers.figures import Figures
from plimsoll.slo.peers.figures import measure as in_other_words
from plimsoll.slo.promises import Promises
from plimsoll.slo.records.cancelled import Cancelled, cancelled
from plimsoll.slo.records.records import Records
from plimsoll.slo.records.tables import Merged
from plimsoll.slo.statistics.share import Course
from plimsoll.slo.validity.generator import GeneratorFacts
from plimsoll.slo.validity.mixed import assess_run
from plimsoll.slo.validity.validity import Validity
from plimsoll.slo.verdict import on_server, overload, recovery
from plimsoll.slo.verdict.accuracy import Accuracy, Scores, accuracy, split
from plimsoll.slo.verdict.counts import Counts, Speech, count, speech
from plimsoll.slo.verdict.hops import Budget, spent_of
from plimsoll.slo.verdict.steadiness import Steadiness, steadiness
from plimsoll.slo.verdict.verdict import Verdict, WholePromise, course_of, of_part
from plimsoll.slo.verdict.verdict import judge as judge_objectives

if TYPE_CHECKING:
    from plimsoll.slo.server.served import Served
    from plimsoll.slo.server.server_side import ServerSide


@dataclass(frozen=True, slots=True)
class Judged:
    """A run, judged; None: it has no such thing. ``objectives``: those on times and success, not those on answers."""

    promises: Promises
    objectives: tuple[Objective, ...]
    facts: GeneratorFacts
    validity: Validity
    verdict: Verdict
    goodput: Goodput
    throughput: Throughput
    counts: Counts
    cancelled: Cancelled | None
    budgets: tuple[Budgeted, ...]
    steadiness: Steadiness | None
    accuracy: Accuracy | None
    anatomy: Anatomy | None
    speech: Speech | None
    peers: Mapping[str, Figures]
    sessions: Sessions | None = None
    hops: Budget | None = None
    server: ServerSide | None = None


def judge(
    records: Records,
    facts: GeneratorFacts,
    promises: Promises | None = None,
    scores: Scores | None = None,
    merged: Merged | None = None,
    classes: Mapping[str, GeneratorFacts] = MappingProxyType({}),
    served: Served | None = None,
    moments: Mapping[str, int] = MappingProxyType({}),
) -> Judged:
    """Judge the records of a run. ``scores``: its answers against references, of a run that kept them; ``merged``: its
    merged chunks, counted before chunk times were dropped; ``classes``: of a mix, the facts of each class; ``served``:
    what the server said of itself; ``moments``: when events began and phases ended, in ns from t0, by their names.
    """
    promises = Promises() if promises is None else promises
    side = None
    if served is not None:
        from plimsoll.slo.server.server_side import server_side  # what reads series, which hardly any run has

        side = server_side(served, records)
    objectives, compared = split(promises.objectives, scores)
    objectives, observed = on_server.split(objectives, side)
    objectives, spells = recovery.split(objectives, moments)
    objectives, beside = overload.split(objectives)
    slos, confidence = promises.slos, promises.confidence
    wholes: list[WholePromise] = [*slos, *compared, *observed, *spells, *beside]
    limits = [*objectives, *(limit for one in wholes for limit in one.limits)]
    promised = bool(wholes) or any(one.scope == "run" for one in objectives)
    validity = assess_run(records, facts, classes, limits, judged=promised, merged=merged)
    along = course_of(records, validity)
    good, span = goodput(records, objectives), run_span_ns(records)
    return Judged(
        promises=promises,
        objectives=objectives,
        facts=facts,
        validity=validity,
        verdict=judge_objectives(records, objectives, validity, confidence, wholes, good, along),
        goodput=good,
        throughput=throughput(records),
        counts=count(records),
        cancelled=cancelled(records),
        # One ledger at a time: that of fifty million gaps is most of a gigabyte.
        budgets=tuple(
            budgeted(ledger, span, confidence=confidence)
            for ledger in _ledgers(records, objectives, promises, along, validity)
        ),
        # A ramp or a spike is meant to drift.
        steadiness=steadiness(records, constant_load=not (facts.open_loop and facts.process is None)),
        accuracy=accuracy(scores, confidence),
        anatomy=anatomy(records),
        speech=speech(records, confidence),
        peers=in_other_words(without_sounds(records), objectives),
        sessions=sessions(records, facts.unreached),
        hops=spent_of(records, promises.hops),
        server=side,
    )


def _ledgers(
    records: Records, objectives: tuple[Objective, ...], promises: Promises, along: Course, validity: Validity
) -> Iterator[Ledger]:
    limits = [one for one in objectives if one.scope == "request"]
    for one in (single for given in objectives if not given.worst for single in singles(given, records)):
        if one.scope == "run":
            period, rows, path = one.period_ns or PERIOD_NS, selected(records, one.where), along
            if one.where:
                path = of_part(rows, records, objectives, validity)[0]
            ledger = ledger_of(one, rows, period, limits, None if one.where else promises.production_per_s, path)
            if ledger is not None:
                yield ledger
    for slo in promises.slos:
        yield slo.ledger(records, along)
