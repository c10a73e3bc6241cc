"""One capacity plan: from what a folder shows, a target rate and a price to the document, and where it goes.

Sends nothing. Exit codes: 0 sized; 3 no capacity was validated; 2 usage. Nothing that queueing theory says changes
either.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.host.manifest import package_version
from plimsoll.harness.series.capacity.evidence import Evidence, Seen, gather, see
from plimsoll.harness.series.publish import Output, publish, tell
from plimsoll.reports.documents.capacity import FORMATS, render_terminal
from plimsoll.reports.models.capacity_parts import (
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
from plimsoll.slo.search.overlay import Load, Overlay, Queue, overlay
from plimsoll.slo.search.sizing import Capacity, Row, Sized, around, costs, size

#: More than any fleet carries or costs; far beyond it sums overflow.
_MOST = 1e12
_MOST_GROWTH = 1_000


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
    return publish(report, FORMATS, render_terminal, outputs, own, remedy, as_json=as_json)


def document(folder: Path, asked: Asked, evidence: Evidence, seen: Seen, command: str) -> CapacityReport:
    """Everything that a renderer may show."""
    laid = overlay(seen.loads, asked.servers)
    found = evidence.capacity
    report = CapacityReport(
        outcome="NONE",
        exit_code=int(ExitCode.INCONCLUSIVE),
        reasons=list(evidence.reasons),
        folder=str(folder),
        kind=evidence.kind,  # type: ignore[arg-type]
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
