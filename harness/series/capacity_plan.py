"""One capacity plan: from what the folder of a search, of a sweep or of one run shows about one replica, a target rate
and a price to the document. It sends nothing and judges nothing again.

Only what passed in full counts, and of it the lower end. Where nothing did, that is an answer too, with its reason.
Exit codes: 0 sized; 3 no capacity was validated; 2 usage. Nothing that queueing theory says changes either.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from plimsoll.documents import files
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.host.manifest import package_version
from plimsoll.harness.process.writing import Output
from plimsoll.harness.series.ledger import read_document
from plimsoll.harness.series.publish import publish, tell
from plimsoll.reports.documents.capacity import (
    FORMATS,
    AgainstPart,
    CapacityPart,
    CapacityReport,
    CostPart,
    LittlePart,
    LoadPart,
    QueuePart,
    RowPart,
    SafePart,
    SizedPart,
)
from plimsoll.reports.documents.search import ProbePart, SearchReport
from plimsoll.reports.models.sweep_parts import CLEARLY, SeriesPart, SweepPoint, SweepReport
from plimsoll.slo.objectives.goodput import throughput
from plimsoll.slo.records import tables
from plimsoll.slo.records.records import Records, Status
from plimsoll.slo.search.sizing import (
    Capacity,
    Little,
    Load,
    Overlay,
    Queue,
    Row,
    Sized,
    Yield,
    around,
    costs,
    little,
    load,
    overlay,
    size,
)

#: More than any fleet carries or costs; far beyond it sums overflow.
_MOST = 1e12
_MOST_GROWTH = 1_000
#: Settings of a sweep that are a load, and so have a capacity.
_LOADS = ("rate", "concurrency")
AGAIN = "Make it again"
_JUDGED = ("PASS", "FAIL", "INCONCLUSIVE")


@dataclass(frozen=True, slots=True)
class Asked:
    """The question, checked.

    ``headroom``, ``one_down``: shares as text, so that 0.7 is 7/10. ``price``: of a replica an hour.
    """

    target_per_s: float
    headroom: str
    one_down: str
    growth: float = 0.0
    price: float | None = None
    currency: str = "USD"
    gpus: int | None = None
    servers: int = 1
    series: str | None = None

    @property
    def peak_per_s(self) -> float:
        """The target with what it is expected to grow by."""
        return float(Fraction(str(self.target_per_s)) * (1 + Fraction(str(self.growth))))  # 1.1 times 1000 is 1100


def share(flag: str, text: str, errors: list[str]) -> str:
    """``70%`` or ``0.7`` as "7/10"; what is wrong with it goes to ``errors``."""
    try:
        value = Fraction(text.strip().removesuffix("%").strip()) / (100 if text.strip().endswith("%") else 1)
        if 0 < value <= 1:
            return str(value)
    except (ValueError, ZeroDivisionError):
        value = Fraction(0)
    errors.append(f"{flag} {text}: write a share above 0 and at most 1, such as 70% or 0.7")
    return "1"


def growth(text: str, errors: list[str]) -> float:
    """``30%`` or ``0.3`` as 0.3."""
    try:
        value = float(Fraction(text.strip().removesuffix("%").strip())) / (100 if text.strip().endswith("%") else 1)
        if 0 <= value <= _MOST_GROWTH:
            return value
    except (ValueError, ZeroDivisionError, OverflowError):
        value = 0.0
    errors.append(f"--growth {text}: write by how much the target grows, such as 30%, at most {_MOST_GROWTH}")
    return 0.0


def check(asked: Asked, errors: Sequence[str]) -> None:
    """Raises HarnessFault with ``errors`` and everything that is wrong with the numbers."""
    said = list(errors)
    if not 0 < asked.target_per_s <= _MOST:
        said.append(
            f"--target-rate {asked.target_per_s:g}: give the requests per second to carry, above 0 and at most "
            f"{_MOST:g}"
        )
    if asked.price is not None and not 0 <= asked.price <= _MOST:
        said.append(f"--price {asked.price:g}: give what one replica costs an hour, from 0 to {_MOST:g}")
    if asked.gpus is not None and asked.gpus < 1:
        said.append(f"--gpus {asked.gpus}: give how many one replica has, or leave it out")
    if not 1 <= asked.servers <= 10_000:
        said.append(f"--servers {asked.servers}: give how many requests one replica serves at a time, 1 to 10000")
    if said:
        raise HarnessFault(said)


def plan(folder: Path, asked: Asked, outputs: Sequence[Output], command: str, *, as_json: bool) -> int:
    """Read, reckon, publish. Returns the exit code; raises HarnessFault for a folder that is no evidence."""
    evidence = gather(folder, asked.series)
    report = document(folder, asked, evidence, see(evidence), command)
    for law in report.laws:
        if law.wrong:
            tell(
                f"warning: LITTLE'S LAW IS VIOLATED in {law.run}, {law.view} times: {law.wrong}. Do not trust this log"
            )
    remedy, own = "make room and ask again: nothing is sent for it", {folder / "capacity.html": "html"}
    return publish(report, FORMATS, FORMATS.terminal, outputs, own, remedy, as_json=as_json)


def document(folder: Path, asked: Asked, evidence: Evidence, seen: Seen, command: str) -> CapacityReport:
    """Everything that a renderer may show."""
    laid = overlay(seen.loads, asked.servers)
    found = evidence.capacity
    report = CapacityReport(
        outcome="NONE",
        exit_code=int(ExitCode.INCONCLUSIVE),
        reasons=list(evidence.reasons),
        folder=str(folder),
        kind=evidence.kind,
        name=evidence.name,
        objectives=list(evidence.objectives),
        confidence=evidence.confidence,
        target_per_s=asked.peak_per_s,
        growth=asked.growth,
        headroom=float(Fraction(asked.headroom)),
        one_down=float(Fraction(asked.one_down)),
        price_per_hour=asked.price,
        currency=asked.currency,
        laws=[
            LittlePart(run=run, view=law.view, mean=law.mean, product=law.product, bound=law.bound, wrong=law.wrong)
            for run, law in seen.laws
        ],
        loads=_loads(seen, laid),
        queues=[]
        if laid is None
        else [
            QueuePart(**asdict(queue), limit_per_s=queue.limit_per_s, curve=list(curve))
            for queue, curve in zip(laid.queues, laid.curves, strict=True)
        ],
        warnings=[*evidence.notes, *seen.missing, *_unlike(evidence)],
        plimsoll=package_version(),
        command=command,
        started_at=evidence.started_at,
    )
    return report if found is None else report.model_copy(update=_sized(asked, evidence, found, seen))


def _sized(asked: Asked, evidence: Evidence, found: Capacity, seen: Seen) -> dict[str, object]:
    """What is known only where there is a capacity."""
    peak, rules = asked.peak_per_s, (asked.headroom, asked.one_down)
    low = _fleet(asked, found.low)
    gpus = asked.gpus or evidence.gpus
    safe = float(Fraction(asked.headroom) * Fraction(str(found.low)))
    top = evidence.saturation_per_s
    if top is not None and top < found.low:
        top = None  # another run of the same load answered more: no saturation was seen
    return {
        "outcome": "SIZED",
        "exit_code": int(ExitCode.PASS),
        "capacity": CapacityPart(**asdict(found)),
        "safe": SafePart(
            per_s=safe,
            saturation_per_s=top,
            slo_of_saturation=None if top is None else found.low / top,
            of_saturation=None if top is None else safe / top,
            per_gpu_per_s=None if gpus is None else safe / gpus,
        ),
        "sized": low,
        "sized_high": None if found.high is None else _fleet(asked, found.high),
        "rows": [RowPart(**_priced(asked, row)) for row in around(peak, found.low, *rules)],
        "costs": []
        if asked.price is None
        else [CostPart(**asdict(one)) for one in costs(asked.price, peak, found, seen.brings, *rules)],
        "gpus": gpus,
        "gpus_in_all": None if gpus is None else gpus * low.replicas,
        "price_per_gpu_hour": None if gpus is None or asked.price is None else asked.price / gpus,
    }


def _fleet(asked: Asked, rate: float) -> SizedPart:
    sized = size(asked.peak_per_s, rate, asked.headroom, asked.one_down)
    return SizedPart(capacity_per_s=rate, binding=sized.binding, **_priced(asked, sized))


def _priced(asked: Asked, fleet: Sized | Row) -> dict[str, Any]:
    """The figures of so many replicas, and what they cost."""
    per_hour = None if asked.price is None else asked.price * fleet.replicas
    return {**asdict(fleet), "one_down": _finite(fleet.one_down), "per_hour": per_hour}


def _unlike(evidence: Evidence) -> list[str]:
    """What a plan from measurements of one replica takes for granted."""
    if evidence.capacity is None:
        return []
    said = ["replicas are taken to be alike and the load to be split evenly: measure the fleet behind its router, too"]
    if evidence.capacity.high is None and evidence.kind != "run":
        said.append("no load was shown to fail, so the capacity may be higher, and the fleet too big")
    return said


def _loads(seen: Seen, laid: Overlay | None) -> list[LoadPart]:
    ordered = laid.loads if laid is not None else sorted(seen.loads, key=lambda one: (one.rate_per_s, one.run))
    served = {run: law.mean for run, law in seen.laws if law.view == "service" and not law.wrong}
    return [
        LoadPart(
            run=one.run,
            rate_per_s=one.rate_per_s,
            n=one.n,
            failed=one.failed,
            stable=one.stable,
            pin=laid is not None and one is laid.pin,
            p50_ns=_finite(one.p50_ns),
            p99_ns=_finite(one.p99_ns),
            in_flight=served.get(one.run),
            against=[] if laid is None or not one.usable else [_against(one, queue) for queue in laid.queues],
        )
        for one in ordered
    ]


def _against(one: Load, queue: Queue) -> AgainstPart:
    ratios: list[float | None] = []
    for q, value in ((0.5, one.p50_ns), (0.99, one.p99_ns)):
        predicted = queue.quantile_ns(one.rate_per_s, q)
        ratios.append(value / predicted if predicted and math.isfinite(value) else None)
    return AgainstPart(model=queue.model, utilisation=queue.utilisation(one.rate_per_s), p50=ratios[0], p99=ratios[1])


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


@dataclass(frozen=True, slots=True)
class Run:
    """One run behind the capacity. ``offered_per_s``: None for a closed loop, which offers no rate."""

    path: Path
    name: str
    offered_per_s: float | None
    outcome: str
    stable: bool = True
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Evidence:
    """``capacity``: None with ``reasons`` where nothing was shown to hold. ``kind``: search, sweep or run.

    ``confidence``: of each verdict it rests on; ``saturation_per_s``: the most that was answered while the endpoint did
    not keep up; ``at``: the run whose answers say what a request brings; ``notes``: what to be wary of.
    """

    kind: Literal["search", "sweep", "run"]
    name: str
    objectives: tuple[str, ...]
    capacity: Capacity | None
    reasons: tuple[str, ...] = ()
    confidence: float | None = None
    saturation_per_s: float | None = None
    gpus: int | None = None
    runs: tuple[Run, ...] = ()
    at: Run | None = None
    good_fraction: float | None = None
    notes: tuple[str, ...] = ()
    started_at: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the records of the runs say."""

    loads: tuple[Load, ...] = ()
    laws: tuple[tuple[str, Little], ...] = ()
    brings: Yield = field(default_factory=Yield)
    missing: tuple[str, ...] = ()


def gather(folder: Path, series: str | None) -> Evidence:
    """Read a folder. Raises HarnessFault when it is none of the three, is damaged, or its series is not named."""
    if (folder / "search.json").is_file():
        return _of_search(folder, read_document(folder / "search.json", SearchReport, AGAIN))
    if (folder / "sweep.json").is_file():
        return _of_sweep(folder, read_document(folder / "sweep.json", SweepReport, AGAIN), series)
    if (folder / "report.json").is_file():
        return _of_run(folder)
    raise HarnessFault(
        f"{folder}: neither a search (search.json), a sweep (sweep.json) nor a run (report.json). Give the --out of "
        "one of them"
    )


def _of_search(folder: Path, found: SearchReport) -> Evidence:
    runs = tuple(_probe_run(folder, probe, found.variable == "rate") for probe in found.probes)
    passed = [probe for probe in found.probes if probe.outcome == "PASS"]
    low, high = found.found.interval
    low = found.found.best if low is None else low
    notes = []
    at_load = low
    if found.variable == "concurrency":
        at_load = _carries_most([(probe.load, probe.requests_per_s) for probe in passed], low)
        capacity = _of_concurrency(passed, found.probes, at_load)
        notes += [_CLOSED, *_fewer(at_load, low)]
    else:
        capacity = None if low is None or found.found.best is None else Capacity(low, found.found.best, high)
    answer = found.answer
    if capacity is not None and found.outcome != "FOUND":
        notes.append(": ".join([f"the search ended {found.outcome}", *filter(None, ["; ".join(found.reasons)])]))
    if capacity is not None and (answer is None or not answer.confirmed or at_load != low):
        notes.append(_PICKED)
    name, good = (answer.run, answer.good_fraction) if answer is not None else (None, None)
    if at_load != low:
        name, good = next((probe.run, probe.good_fraction) for probe in passed if probe.load == at_load)
    at = next((run for run in runs if run.name == name), None)
    return Evidence(
        kind="search",
        name=found.name,
        started_at=found.started_at,
        objectives=tuple(found.objectives),
        capacity=capacity,
        reasons=(f"the search ended {found.outcome}", *found.reasons) if capacity is None else (),
        confidence=found.confidence,
        saturation_per_s=_saturation([(probe.unstable, probe.requests_per_s) for probe in found.probes]),
        gpus=answer.gpus if answer is not None else None,
        runs=runs,
        at=at,
        good_fraction=good,
        notes=tuple(notes),
    )


_CLOSED = (
    "the capacity is the rate that a closed loop came to: its clients wait for answers. The same rate with arrivals "
    "of their own pace queues more; search the rate for a fleet that has open traffic"
)

_PICKED = (
    "no fresh run confirmed the lower end: it rests on a run that was picked for passing, and is rather too high "
    "than too low. Let the search end (--resume), without --no-confirm, before you buy by it"
)

_NO_FRESH_RUN = (
    "a sweep's line is the last of several loads that passed, and no fresh run confirmed it: `plimsoll search` with "
    "--start there does"
)


def _probe_run(folder: Path, probe: ProbePart, by_rate: bool) -> Run:
    offered = probe.load if by_rate else None
    return Run(folder / probe.run, probe.run, offered, probe.outcome, not probe.unstable, probe.cut)


def _carries_most(passed: Sequence[tuple[float, float | None]], low: float | None) -> float | None:
    """The concurrency that a replica is worth the most at: the highest that holds, unless one below it was clearly
    answered faster.
    """
    rates: dict[float, float] = {}
    for at, rate in passed:
        if low is not None and at <= low and rate:
            rates[at] = min(rate, rates.get(at, rate))
    best = max(rates, key=rates.__getitem__, default=low)
    return best if low in rates and best is not None and rates[best] > CLEARLY * rates[low] else low


def _fewer(at: float | None, low: float | None) -> list[str]:
    """What a router must know where more at once is answered more slowly."""
    if at == low:
        return []
    return [
        f"more load gives less: {low:g} at a time hold, and {at:g} are answered faster. The capacity is that of "
        f"{at:g} at a time, so give no replica more"
    ]


def _of_concurrency(passed: Sequence[ProbePart], probes: Sequence[ProbePart], low: float | None) -> Capacity | None:
    """Rates that probes came to: at the concurrency that carries most, and at the first above it that does not hold."""
    held = [probe.requests_per_s for probe in passed if low is not None and probe.load == low and probe.requests_per_s]
    if not held or low is None:
        return None
    above = sorted(
        (one.load, one.requests_per_s)
        for one in probes
        if one.outcome == "FAIL" and one.load > low and one.requests_per_s
    )
    high = above[0][1] if above and above[0][1] > min(held) else None
    return Capacity(min(held), min(held), high)


def _saturation(points: Sequence[tuple[bool, float | None]]) -> float | None:
    return max((achieved for unstable, achieved in points if unstable and achieved), default=None)


def _of_sweep(folder: Path, found: SweepReport, wanted: str | None) -> Evidence:
    if found.x not in _LOADS:
        raise HarnessFault(
            f"{folder}: its curves are over {found.x}, which is no load. Sweep the rate (or the concurrency) to get a "
            "capacity"
        )
    one = _series(folder, found, wanted)
    line = one.line
    points = [point for point in one.points if point.outcome in _JUDGED]
    capacity, at, notes = None, None, []
    if line is not None and line.low is not None:
        most: float | None = line.low
        if found.x != "rate":
            most = _carries_most([(p.x, p.achieved_per_s) for p in points if p.outcome == "PASS"], line.low)
            notes = _fewer(most, line.low)
        at = next((point for point in points if point.x == most), None)
        first_bad = next((point for point in points if line.high is not None and point.x == line.high), None)
        if found.x == "rate":
            capacity = Capacity(line.low, line.low, line.high)
        elif at is not None and at.achieved_per_s:
            beyond = first_bad.achieved_per_s if first_bad is not None else None
            high = beyond if beyond is not None and beyond > at.achieved_per_s else None
            capacity = Capacity(at.achieved_per_s, at.achieved_per_s, high)
    reason = "no objective was given, so there is no line" if line is None else "no load was shown to hold"
    runs = tuple(run for point in one.points for run in _point_runs(folder, point, found.x == "rate"))
    if capacity is not None:
        notes = [*([_CLOSED] if found.x != "rate" else []), *notes, _NO_FRESH_RUN]
    if line is not None and line.undecided:
        notes.append(f"undecided between the ends: {', '.join(f'{x:g}' for x in line.undecided)}")
    return Evidence(
        kind="sweep",
        started_at=found.started_at,
        name=f"{found.name} {one.label}".strip(),
        objectives=tuple(found.objectives),
        capacity=capacity,
        reasons=(reason,) if capacity is None else (),
        saturation_per_s=_saturation([(point.unstable, point.achieved_per_s) for point in one.points]),
        runs=runs,
        at=next((run for run in runs if at is not None and run.name in at.runs), None),
        good_fraction=at.good_fraction if at is not None else None,
        notes=tuple(notes),
    )


def _series(folder: Path, found: SweepReport, wanted: str | None) -> SeriesPart:
    labels = [one.label for one in found.series]
    if wanted is None and len(labels) == 1:
        return found.series[0]
    for one in found.series:
        if one.label == wanted:
            return one
    what = "several series" if wanted is None else f"no series {wanted!r}"
    raise HarnessFault(f"{folder}: {what}. Say which: --series with one of {', '.join(map(repr, labels)) or 'none'}")


def _point_runs(folder: Path, point: SweepPoint, by_rate: bool) -> list[Run]:
    offered = point.x if by_rate else None
    return [Run(folder / name, name, offered, point.outcome, not point.unstable) for name in point.runs]


def _of_run(folder: Path) -> Evidence:
    """One run, no line: its rate is a lower bound if it passed."""
    try:
        report: dict[str, Any] = json.loads(files.read_bytes(folder / "report.json"))
        verdict, validity = report["verdict"], report["validity"]
        offered, achieved = validity["offered_per_s"], validity["achieved_per_s"]
        objectives = tuple(str(one["objective"]) for one in verdict["objectives"])
        done, good = report["throughput"]["requests_per_s"], report["throughput"]["good_fraction"]
        open_loop = bool(report["run"]["open_loop"])
        name = str(report["run"]["scenario"]["name"] or folder.name)
        outcome = str(verdict["outcome"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise HarnessFault(
            f"{folder}/report.json: damaged or of another version ({error}). `plimsoll report` it again"
        ) from None
    rate = min(rate for rate in (offered, achieved, done) if rate) if any((offered, achieved, done)) else 0.0
    run = Run(folder, folder.name, offered if open_loop and offered else None, outcome)
    holds = outcome == "PASS" and bool(objectives) and rate > 0
    why = "it has no objective, so nothing was shown to hold" if not objectives else f"its verdict is {outcome}"
    notes = [
        "one run, no line: its rate is a lower bound of the capacity, which may be far higher. `plimsoll search` "
        "finds it"
    ]
    return Evidence(
        kind="run",
        name=name,
        started_at=str(report["run"].get("started_at") or ""),
        objectives=objectives,
        capacity=Capacity(rate, rate, None) if holds else None,
        reasons=() if holds else (f"{folder}: {why}",),
        runs=(run,),
        at=run,
        good_fraction=good if objectives else None,
        notes=tuple(notes if run.offered_per_s else [*notes, _CLOSED]) if holds else (),
    )


def see(evidence: Evidence) -> Seen:
    """Read the records of every run that was not cut short. What can't be read is named, and costs only itself."""
    loads, laws, missing = [], [], []
    brings = Yield(evidence.good_fraction)
    for run in evidence.runs:
        if run.outcome not in _JUDGED:
            continue
        try:
            records = tables.load(run.path).without_chunks()
        except (OSError, ValueError) as error:
            missing.append(f"{run.name}: its records can't be read ({error})")
            continue
        if run == evidence.at:
            brings = _brings(records, evidence.good_fraction)
        if run.cut:
            continue
        laws += [(run.name, law) for law in little(records)]
        if run.offered_per_s is not None:
            loads.append(load(run.name, run.offered_per_s, records, run.stable))
    return Seen(tuple(loads), tuple(laws), brings, tuple(missing))


def _brings(records: Records, good: float | None) -> Yield:
    """Tokens per request that was sent: one that fails costs as much, and brings none."""
    rows = records.measured()
    sent = int((rows["status"] != Status.UNSENT).sum())
    if not sent:
        return Yield(good)
    rates = throughput(rows)
    out, given = rates.output_tokens, rates.input_tokens
    return Yield(good, out / sent if out else None, given / sent if given else None)
