"""One bake-off: make the runs of every endpoint at every load in turn, rank, price, chart, publish.

The ranking is made at one load, the highest at which no run is INVALID and every endpoint kept up: beyond it queues are
compared and not endpoints. Every load has a comparison of its own beside it. Exit codes: 0 ranked, 3 too few runs to
rank, 4 no load at which a ranking means anything, 5 an endpoint can't be reached, 130 interrupted.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.host.manifest import package_version
from plimsoll.harness.process import writing
from plimsoll.harness.process.outlet import say
from plimsoll.harness.process.writing import Output
from plimsoll.harness.run.job import default_out
from plimsoll.harness.series.comparison import interleave
from plimsoll.harness.series.comparison.bakeoff_file import Bakeoff
from plimsoll.harness.series.comparison.comparison_session import begun, pair
from plimsoll.harness.series.comparison.interleave import Interleaving
from plimsoll.harness.series.comparison.replications import of_interleaving, read, unlike
from plimsoll.harness.series.comparison.rounds import carry_out_all, check, public_command
from plimsoll.harness.series.ledger import Session
from plimsoll.harness.series.publish import as_written, show
from plimsoll.reports.documents.bakeoff import FORMATS
from plimsoll.reports.documents.comparison import FORMATS as OF_A_COMPARISON
from plimsoll.reports.models import comparison_parts as documents
from plimsoll.reports.models.comparison_parts import BakeoffReport, ComparisonReport, FrontPart, LevelPart, front_part
from plimsoll.slo.comparison.arms import Arm
from plimsoll.slo.comparison.compare import Comparison, compare
from plimsoll.slo.comparison.quantity import Quantity, every_usual, parse, parse_all
from plimsoll.slo.comparison.tiers import Cost, Per, Placed, Point, Ranking, cost, front, interactivity, rank
from plimsoll.slo.records.foreign import printable

#: What charts and costs are made of, whatever is ranked.
_CHARTED = ("p90(tpot)", "rate(output_tokens)", "rate(ok)", "rate(good)")
_PER: tuple[Per, ...] = ("output_tokens", "requests", "good_requests")


@dataclass(frozen=True, slots=True)
class AtLevel:
    """What one load says: the arms, the first against the others, the rankings, what a million costs."""

    label: str
    arms: tuple[Arm, ...]
    comparison: Comparison
    rankings: tuple[Ranking, ...]
    costs: tuple[Cost, ...]
    passed: tuple[int, ...]
    warnings: tuple[str, ...]
    started_at: str = ""

    @property
    def sound(self) -> bool:
        """No run is INVALID, and every endpoint kept up in every run."""
        return all(run.valid and run.unstable is None for arm in self.arms for run in arm.runs)


@dataclass(frozen=True, slots=True)
class Baked:
    """The whole bake-off. ``deciding``: index of the load that the ranking is made at, None when there is none."""

    bakeoff: Bakeoff
    levels: tuple[AtLevel, ...]
    deciding: int | None
    fronts: tuple[FrontPart, ...]

    @property
    def exit_code(self) -> int:
        """See the module."""
        if self.deciding is None:
            return int(ExitCode.INVALID)
        undecided = any(ranking.runs_needed for ranking in self.levels[self.deciding].rankings)
        return int(ExitCode.INCONCLUSIVE if undecided else ExitCode.PASS)


def judge(bakeoff: Bakeoff, out: Path, plan: Interleaving | None = None) -> Baked:
    """A bake-off whose runs are made (``plan`` says what became of each; None:

    ``out`` does), judged. Sends nothing. Raises HarnessFault.
    """
    plan = plan or interleave.read(out)
    _same_runs(bakeoff, out, plan)
    levels = tuple(_at_level(bakeoff, out, plan, level.label) for level in bakeoff.contest().levels)
    sound = [i for i, level in enumerate(levels) if level.sound]
    return Baked(bakeoff, levels, max(sound, default=None), _fronts(bakeoff, levels))


def _same_runs(bakeoff: Bakeoff, out: Path, plan: Interleaving) -> None:
    """Prices, metrics and limits may change after the runs, but not who ran at which loads. Raises HarnessFault."""
    there = {"arms": list(plan.names), "loads": [str(level["label"]) for level in plan.levels]}
    here = {"arms": [arm.name for arm in bakeoff.arms], "loads": [level.label for level in bakeoff.contest().levels]}
    said = [
        f"{out}: {what} {', '.join(there[what]) or 'none'} there, {', '.join(here[what]) or 'none'} in the file. "
        "Give the file that it was made by; only prices, metrics and tolerances may differ"
        for what in there
        if there[what] != here[what]
    ]
    if said:
        raise HarnessFault(said)


def _at_level(bakeoff: Bakeoff, out: Path, plan: Interleaving, label: str) -> AtLevel:
    sides = of_interleaving(out, label, plan)
    asked = parse_all(bakeoff.metrics) if bakeoff.metrics else None
    quantities = {str(q): q for q in (*every_usual(), *(asked or ()), *map(parse, _CHARTED))}
    found = read(sides, tuple(quantities.values()), None)
    warnings = unlike(found, ())
    arms = tuple(side.arm for side in found)
    confidence = str(bakeoff.confidence)
    # One test for the whole page: each pair of arms has one outcome by each quantity, in the differences and in the
    # tiers. Its intervals hold together over the quantities of a pair and over the pairs by a quantity, whichever are
    # more.
    family = len(arms) * (len(arms) - 1) // 2
    comparison = compare(arms[0], arms[1:], asked, bakeoff.tolerance, confidence, family=family)
    ranked_by = asked or _of(comparison)
    prices = {arm.name: arm.price_per_hour for arm in bakeoff.arms}
    costs = [
        priced
        for arm in arms
        for per in _PER
        if (price := prices[arm.name]) is not None and (priced := cost(arm, price, per, confidence)) is not None
    ]
    passed = tuple(
        sum(slot.outcome == "PASS" for slot in plan.slots if slot.arm == arm.name and slot.level == label)
        for arm in arms
    )
    rankings = tuple(
        rank(
            arms,
            quantity,
            confidence,
            comparison.tolerance,
            share_tolerance=comparison.share_tolerance,
            family=max(family, len(ranked_by)),
        )
        for quantity in ranked_by
    )
    return AtLevel(
        label, arms, comparison, rankings, tuple(costs), passed, (*comparison.warnings, *warnings), begun(found)
    )


def _of(comparison: Comparison) -> tuple[Quantity, ...]:
    found = {str(effect.quantity): effect.quantity for result in comparison.candidates for effect in result.effects}
    return tuple(found.values())


def _fronts(bakeoff: Bakeoff, levels: Sequence[AtLevel]) -> tuple[FrontPart, ...]:
    """Throughput against interactivity, and goodput against the rate, over every load and endpoint."""
    speed: list[Point] = []
    goodput: list[Placed] = []
    gpus = {arm.name: arm.gpus for arm in bakeoff.arms}
    per_gpu = all(gpus.values())
    for level, load in zip(levels, bakeoff.contest().levels, strict=True):
        here: list[Point] = []
        for arm in level.arms:
            if not all(run.valid for run in arm.runs):
                continue  # the generator was at fault: no figure of it counts, here as in the ranking
            name = f"{arm.name} {level.label}".strip()
            share = (gpus[arm.name] or 1) if per_gpu else 1
            tokens = arm.values(parse("rate(output_tokens)")) / share
            user = interactivity(arm.values(parse("p90(tpot)")))
            speed.append(Point(name, tuple(user.tolist()), tuple(tokens.tolist()), arm.name))
            rate = load.flags.get("rate", load.flags.get("concurrency"))
            if rate is not None:
                good = arm.values(parse("rate(good)"))
                here.append(Point(name, (float(rate),) * len(good), tuple(good.tolist()), arm.name))
        # More load is no merit: at each load its own arms are set against each other.
        goodput += front(here, confidence=str(bakeoff.confidence))
    each = " per accelerator" if per_gpu else ""
    made = []
    if any(np.isfinite(point.x).all() and np.isfinite(point.y).all() for point in speed):
        title = "Throughput against interactivity"
        x_name, y_name = "tokens/s of one user (1 / p90 of TPOT)", f"output tokens/s{each}"
        made.append(front_part(title, x_name, y_name, front(speed, confidence=str(bakeoff.confidence))))
    if goodput:
        swept = (
            "requests in flight" if bakeoff.sweep is not None and bakeoff.sweep.concurrencies else "offered requests/s"
        )
        made.append(front_part("Goodput against load", swept, "good requests/s", goodput))
    return tuple(made)


def say_plan(bakeoff: Bakeoff, as_json: bool) -> None:
    """What a bake-off would run, after checking everything that can be checked without sending. Raises HarnessFault."""
    plan = check(bakeoff.contest())
    levels = [str(level["label"]) for level in plan.levels if level["label"]]
    if as_json:
        runs = [
            {"number": s.number, "round": s.round, "level": s.level, "arm": s.arm, "seed": s.seed} for s in plan.slots
        ]
        say(
            json.dumps({"name": bakeoff.name, "arms": list(plan.names), "levels": levels, "runs": runs}, indent=1)
            + "\n"
        )
        return
    loads = f" at {len(levels)} loads ({', '.join(levels)})" if levels else ""
    say(
        f"{printable(bakeoff.name)}: {', '.join(plan.names)}{loads}, {plan.repeats} times: {len(plan.slots)} runs. "
        "Fine\n"
    )


def bake_off(bakeoff: Bakeoff, session: Session, *, again: bool) -> int:
    """Make the runs (not ``again``), judge, publish. Returns the exit code; raises HarnessFault."""
    outputs, errors = session.outputs(FORMATS, "a bake-off")
    if session.out is None and (session.resume or again):
        errors.append(f"{'--resume' if session.resume else '--again'}: of which bake-off? Give its --out")
    if session.resume and again:
        errors.append("--again judges runs that are made, --resume makes the rest. Give one of them")
    if errors:
        raise HarnessFault(errors)
    out, plan = session.out or default_out("bakeoff"), None
    if not again:
        ran = carry_out_all(bakeoff.contest(), out, resume=session.resume, staff=session.staff)
        if ran.fault is not None:
            raise ran.fault
        if ran.interrupted:
            return int(ExitCode.INTERRUPTED)
        plan = ran.plan
    return _publish(judge(bakeoff, out, plan), out, outputs, session.as_json)


def _publish(baked: Baked, out: Path, outputs: Sequence[Output], as_json: bool) -> int:
    command = shlex.join(public_command(baked.bakeoff.arms))
    reports = [_report(baked, level, command) for level in baked.levels]
    whole = _whole(baked, reports)
    remedy = "make room and judge again: --again"
    files: list[tuple[Path, bytes | Callable[[], bytes]]] = [
        (output.path, partial(output.render, whole)) for output in outputs
    ]
    if len(reports) > 1:
        for level, report in zip(baked.levels, reports, strict=True):
            own = pair(out, f"comparison-{level.label}")
            files += [(path, OF_A_COMPARISON[name](report)) for path, name in own.items()]
    files += [(out / f"bakeoff.{name}", FORMATS[name](whole)) for name in ("json", "html")]
    written = [writing.result(path, data, remedy) for path, data in files]
    whole = as_written(whole, written)
    if as_json:
        say(FORMATS["json"](whole).decode())
    else:
        show(lambda width: FORMATS.terminal(whole, width), outputs, out / "bakeoff.html" if written[-1] else None)
    return whole.exit_code


def _title(baked: Baked) -> str:
    if baked.deciding is None:
        return f"{baked.bakeoff.name}: no load at which a ranking means anything"
    label = baked.levels[baked.deciding].label
    return f"{baked.bakeoff.name}{f', ranked at {label}' if label else ''}"


def _report(baked: Baked, level: AtLevel, command: str) -> ComparisonReport:
    return documents.build(
        level.comparison,
        level.arms[0],
        level.arms[1:],
        title=f"{baked.bakeoff.name} {level.label}".strip(),
        rankings=level.rankings,
        costs=level.costs,
        currency=baked.bakeoff.currency,
        warnings=[text for text in level.warnings if text not in level.comparison.warnings],
        plimsoll=package_version(),
        command=command,
        started_at=level.started_at,
    )


def _whole(baked: Baked, reports: Sequence[ComparisonReport]) -> BakeoffReport:
    """The bake-off as renderers take it: the comparison at the deciding load (the first, where none decides), and every
    load.
    """
    deciding = baked.deciding if baked.deciding is not None else 0
    there = {name: getattr(reports[deciding], name) for name in ComparisonReport.model_fields if name != "schema_"}
    there |= {
        "title": _title(baked),
        "currency": baked.bakeoff.currency,
        "fronts": list(baked.fronts),
        "exit_code": baked.exit_code,
        "started_at": min(filter(None, (level.started_at for level in baked.levels)), default=""),
        "warnings": [*_without_place(baked), *reports[deciding].warnings],
    }
    levels = [
        LevelPart(
            level=level.label,
            sound=level.sound,
            passed={arm.name: count for arm, count in zip(level.arms, level.passed, strict=True)},
            rankings=report.rankings,
            comparison=report,
        )
        for level, report in zip(baked.levels, reports, strict=True)
    ]
    label = None if baked.deciding is None else baked.levels[baked.deciding].label
    return BakeoffReport(name=baked.bakeoff.name, deciding_level=label, levels=levels, **there)


def _without_place(baked: Baked) -> list[str]:
    """Why an arm has dashes at a load: each reason once."""
    said = {
        f"{f'{level.label}, ' if level.label else ''}{name}: {reason}"
        for level in baked.levels
        for ranking in level.rankings
        for name, reason in ranking.excluded
    }
    return sorted(said)
