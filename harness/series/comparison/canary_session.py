"""``plimsoll canary``: one run whose queries are dealt to base and canary by lot, looked at while it goes on.

The watcher reads the segments that the workers have written, and takes a look as soon as every query that it is about
has its row, or has had its time-out. The sealed rows then decide once more, by the same looks: what stands on disk and
what ended the run can't differ. Here is what runs, ends early and says so; ``plimsoll.slo.comparison.canary`` decides.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import OF_OUTCOME, ExitCode
from plimsoll.harness.generator.segments import read_segment, segment_files
from plimsoll.harness.host.manifest import package_version
from plimsoll.harness.process.writing import result
from plimsoll.harness.protocols._discovery import protocols
from plimsoll.harness.run.happenings import unrunnable
from plimsoll.harness.run.job import hold, prepare
from plimsoll.harness.run.judged import write_report
from plimsoll.harness.run.mixture import FOLDER
from plimsoll.harness.run.promises import Asked, Promises
from plimsoll.harness.run.rundir import RunDirectory
from plimsoll.harness.run.watcher import Beginning, Watcher
from plimsoll.harness.secrecy.secrets import public_output
from plimsoll.harness.series.comparison.arms import in_one_run
from plimsoll.harness.series.ledger import Session
from plimsoll.harness.series.one_run import carry_through
from plimsoll.harness.series.publish import publish, tell
from plimsoll.reports.documents import canary as documents
from plimsoll.reports.report import Report
from plimsoll.reports.wording import units
from plimsoll.scenarios.plan.blocks import Survey
from plimsoll.scenarios.spec import Document
from plimsoll.slo.comparison.canary import LOOKS, Canary, Look, Question, Step, follow, stands
from plimsoll.slo.comparison.quantity import Quantity, QuantityError, parse_all
from plimsoll.slo.metrics.indicator import catalogue
from plimsoll.slo.objectives.goodput import goodput
from plimsoll.slo.objectives.objective_verdict import judge_objective
from plimsoll.slo.objectives.selector import Condition, selected
from plimsoll.slo.objectives.sentence import named
from plimsoll.slo.records import records as rec
from plimsoll.slo.records.records import Records
from plimsoll.slo.statistics import share
from plimsoll.slo.statistics.distribution import exact
from plimsoll.slo.validity.bracket import lower_end

FILE = "canary.json"
BASE, CANARY = "base", "canary"
_ENDS = {"PROMOTE": ExitCode.PASS, "ABORT": ExitCode.FAIL, "INTERRUPTED": ExitCode.INTERRUPTED}
_EXIT: Mapping[str, ExitCode] = {**OF_OUTCOME, **_ENDS}
#: How long after its end a row may take to be in a segment.
_WRITTEN_NS = 2_000_000_000
#: So much of the end of what a command said is kept, in characters.
_TAIL = 2_000
#: Of a percentile and of a share, where nobody says another tolerance.
_TOLERANCE, _POINTS = 0.1, 0.01
#: What is compared where nobody says it: of answers that come whole, or that stream.
_USUAL = (("p50(latency)", "p99(latency) 25%", "ratio(error)"), ("p50(ttft)", "p99(ttft) 25%", "ratio(error)"))


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was asked for. ``load``: what goes over the scenario; ``commands`` by outcome."""

    scenario: str
    url: str | None
    canary: str | None
    rate: float | None
    load: Mapping[str, Any]
    steps: str
    step_ns: int
    metrics: Sequence[str]
    asked: Asked
    commands: Mapping[str, str]


class Watch(Watcher):
    """Looks on, and ends the run once it is decided."""

    def __init__(self, question: Question, directory: RunDirectory, timeout_ns: int) -> None:
        self._question, self._timeout_ns = question, timeout_ns
        self.found, self.cut_ns = Canary(question, _late), 0
        self._folders = [directory.path / FOLDER / name / "segments" for name in (BASE, CANARY)]
        self._full = question.compared != question.steps
        self._plan: Survey | None = None

    def begin(self, beginning: Beginning) -> None:
        self._plan, self._t0_ns = beginning.plan, beginning.t0_ns
        self.found, self.cut_ns = Canary(self._question, _late), 0
        self._read: set[Path] = set()
        self._rows: list[list[Records]] = [[], []]

    def enough(self) -> str | None:
        if self._plan is None:
            return None
        while (cut_ns := self.found.cut_ns) is not None and self._whole(cut_ns):
            self.cut_ns = cut_ns
            self.found.take(*(rec.concat(rows) if rows else rec.empty() for rows in self._rows))
            self._rows = [[_due_from(one, self.found.begin_ns) for one in rows] for rows in self._rows]
        outcome = self.found.outcome
        goes_on = outcome is None or (outcome == "PROMOTE" and self._full)
        return None if goes_on else f"the canary's outcome is {outcome}"

    def _whole(self, cut_ns: int) -> bool:
        """Every query of the next look has its row, or has had its time."""
        now_ns = time.monotonic_ns() - self._t0_ns
        if now_ns < cut_ns or self._plan is None:
            return False
        for folder, rows in zip(self._folders, self._rows, strict=True):
            for path in sorted({one for one in segment_files(folder) if one.suffix == ".seg"} - self._read):
                self._read.add(path)
                with contextlib.suppress(OSError, ValueError):  # the sealed rows have the last word
                    rows.append(_due_from(read_segment(path), self.found.begin_ns))
        begun, planned = self._plan.timeline.until([self.found.begin_ns, cut_ns])
        there = sum(_queries(one, cut_ns) for one in self._rows)
        return bool(there >= planned - begun or now_ns > cut_ns + self._timeout_ns + _WRITTEN_NS)


def _due_from(rows: Records, begin_ns: int) -> Records:
    return rows.select(np.flatnonzero(rows.in_measure & (rows["due_ns"] >= begin_ns)))


def _queries(parts: Sequence[Records], cut_ns: int) -> int:
    ids = [part["query_id"][part["due_ns"] < cut_ns] for part in parts]
    return len(np.unique(np.concatenate(ids))) if ids else 0


def canary(wanted: Wanted, session: Session) -> int:
    """Run, decide, publish, run the command of the outcome. Returns the exit code.

    Raises HarnessFault with every error of what was asked, before anything is sent.
    """
    outputs, errors = session.outputs(documents.FORMATS, "a canary")
    steps = _steps(wanted.steps, wanted.step_ns, errors)
    asked = _quantities(wanted.metrics, errors)
    errors += [f"--{name.lower()}: {text}" for name, one in wanted.commands.items() for text in unrunnable(one)]
    found = _scenario(wanted, steps, errors)
    if found is None or not steps:
        raise HarnessFault(errors)
    prepared = prepare(found, wanted.load, wanted.asked, [], session.out, found=errors)
    target, promises = prepared.job.classes[BASE].target, prepared.promises
    quantities = asked or parse_all(_USUAL[protocols()[target.protocol].streams(target.options)])
    told = [_POINTS if one.scale == "difference" else _TOLERANCE for one in quantities]
    tolerances = [
        usual if one.tolerance is None else one.tolerance for one, usual in zip(quantities, told, strict=True)
    ]
    limits = tuple(one for one in promises.objectives if one.scope == "request")
    question = Question(quantities, tuple(tolerances), steps, 1 - exact(promises.confidence), limits)
    watch = Watch(question, prepared.job.directory, prepared.job.scenario.mix[BASE].timeout_ns)
    outcome, report = carry_through(prepared, staff=session.staff, watchers=(watch,))
    directory, rows = outcome.sealed.directory, outcome.sealed.told_apart
    write_report(report, directory)
    arms = [selected(rows, (Condition("arm", "=", (name,)),)) for name in (BASE, CANARY)]
    until_ns = watch.cut_ns if outcome.enough else steps[-1].end_ns
    pooled = [outcome.sealed.classes[name].pool_waits > 0 for name in (BASE, CANARY)]
    late = partial(_late, pooled=pooled)
    decided = watch.found if outcome.interrupted else follow(question, arms[0], arms[1], until_ns, late)
    word, reasons = _decided(decided, arms[1], report, promises, outcome.interrupted)
    if word in ("PROMOTE", "ABORT") and late(decided, arms[0], arms[1]):
        said_late = "the generator was late, and with that taken off it would not be so"
        word, reasons = "INVALID", [*reasons, f"{said_late}. Lower the rate, add workers, or free the host"]
    said = documents.CanaryReport(
        name=prepared.job.scenario.name,
        outcome=word,
        reasons=reasons,
        confidence=float(1 - question.alpha),
        steps=documents.steps_of(decided),
        needs=documents.needs_of(decided) if word == "INCONCLUSIVE" else None,
        run=str(directory.path),
        exit_code=int(_EXIT[word]),
        plimsoll=package_version(),
    )
    remedy = "Make room, or name a folder that you may write"
    if command := wanted.commands.get(word):
        result(directory.path / FILE, partial(documents.FORMATS["json"], said), remedy)
        done = _ran(command, said)
        code = said.exit_code or (int(ExitCode.USAGE) if done.exit else 0)
        said = said.model_copy(update={"command": done, "exit_code": code})
    own = {directory.path / FILE: "json", directory.path / "canary.html": "html"}
    return publish(said, documents.FORMATS, documents.FORMATS.terminal, outputs, own, remedy, as_json=session.as_json)


def _late(found: Canary, base: Records, canary: Records, pooled: Sequence[bool] = (False, False)) -> bool:
    """Whether the look that decided says something else where the generator's lateness is taken off the arm that it
    made look worse: each arm has a generator of its own. ``pooled``: requests waited for a connection of few.
    """
    if found.outcome not in ("PROMOTE", "ABORT"):
        return False
    arms, place = [base, canary], int(found.outcome == "ABORT")
    if (low := lower_end(arms[place], pooled[place])) is None:
        return False
    arms[place] = low.chunks
    return not stands(found, *arms)


def _decided(
    found: Canary, canary_rows: Records, report: Report, promises: Promises, interrupted: bool
) -> tuple[documents.Decided, list[str]]:
    """The outcome and why, lateness aside. A run that the generator spoilt otherwise promotes nothing."""
    broken = [check for check in report.validity.checks if not check.ok and check.name != "lag"]
    if found.outcome == "ABORT":
        return "ABORT", [_why(found.last[-1], found.question, "worse")]
    if interrupted:
        return "INTERRUPTED", ["stopped by the user before it was decided"]
    if others := [check.detail for check in broken if check.cause != "endpoint"]:
        return "INVALID", others
    lost = {
        check.detail.partition(":")[0].removeprefix("class "): check.detail
        for check in broken
        if check.name == "steady"
    }
    if CANARY in lost and BASE in lost:
        return "INVALID", ["neither arm kept up: what was compared are two queues that grow. Lower the rate"]
    if CANARY in lost:
        return "ABORT", [f"the canary did not keep up, and the base did: {lost[CANARY]}"]
    if found.outcome != "PROMOTE":
        return "INCONCLUSIVE", [_why(found.last[-1], found.question, "open") if found.last else "no look was taken"]
    whole = [step for step in found.question.steps if step.share == 1]
    rows = canary_rows.select(np.flatnonzero(canary_rows["due_ns"] >= whole[0].begin_ns)) if whole else None
    if rows is not None and (failed := _failed(rows, promises)):
        return "ABORT", failed
    return "PROMOTE", [_why(found.last[-1], found.question, "fine")]


def _failed(rows: Records, promises: Promises) -> list[str]:
    """The objectives that the canary breaks where it has all the load."""
    good, along = goodput(rows, promises.objectives), share.course(rows)
    run = [one for one in promises.objectives if one.scope == "run" and one.of_all and not one.of_server]
    judged = [judge_objective(one, rows, good, promises.confidence, along) for one in run]
    return [f"with all of the load {named(one)}" for one in judged if one.outcome == "FAIL"]


def _why(look: Look, question: Question, word: str) -> str:
    told = {"worse": "worse than tolerated", "open": "not decided", "fine": "no worse than tolerated"}[word]
    names = [str(one.quantity) for one in look.weighed if one.outcome == word]
    step = question.compared[look.step]
    at = f"look {look.look + 1} of {LOOKS}, {units.duration(look.cut_ns - step.begin_ns, 2)} into the step"
    verb = "are" if len(names) > 1 else "is"
    return f"{', '.join(names)} {verb} {told} with {step.share * 100:g} % of the queries ({at})"


def _ran(command: str, said: documents.CanaryReport) -> documents.CommandPart:
    """The user's command, by the shell; it knows the outcome and where the run is."""
    tell(f"{said.outcome}: running the command of this outcome ...")
    known = {**os.environ, "PLIMSOLL_OUTCOME": said.outcome, "PLIMSOLL_RUN": said.run}
    done = subprocess.run(
        ["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env=known, check=False,
    )  # fmt: skip
    output = public_output(done.stdout, _TAIL)
    if done.returncode:
        tell(f"error: --{said.outcome.lower()}: the command ended with exit code {done.returncode}: {output[-200:]}")
    return documents.CommandPart(exit=done.returncode, output=output)


def _steps(text: str, step_ns: int, errors: list[str]) -> tuple[Step, ...]:
    if not re.fullmatch(r"\s*\d+(\.\d+)?%(\s*,\s*\d+(\.\d+)?%)*\s*", text):
        errors.append(f"--steps: {text!r} is no list of shares. Write --steps 5%,25%,50%")
        return ()
    shares = [float(one.strip()[:-1]) / 100 for one in text.split(",")]
    if sorted(set(shares)) != shares or not 0 < shares[0] < 1 or shares[-1] > 1:
        errors.append(f"--steps: {text} does not rise from above 0% to below or at 100%. Write it like 5%,25%,50%")
    return tuple(Step(one, place * step_ns, (place + 1) * step_ns) for place, one in enumerate(shares))


def _scenario(wanted: Wanted, steps: Sequence[Step], errors: list[str]) -> Document | None:
    """The scenario with both arms, at the steps' shares, for as long as they take together."""
    try:
        found = hold(wanted.scenario)
    except HarnessFault as fault:
        errors += fault.errors
        return None
    assert found is not None  # it has a name
    shares: dict[str, dict[str, str]] = {CANARY: {}, BASE: {}}
    for step in steps:
        at = f"{step.begin_ns}ns"
        shares[CANARY][at], shares[BASE][at] = (f"{100 * part:.6f}%" for part in (step.share, 1 - step.share))
    if not in_one_run(found, CANARY, {BASE: wanted.url, CANARY: wanted.canary}, shares, errors):
        return None
    if steps and steps[-1].share == 1 and not (wanted.asked.slo or found.get("objectives")):
        errors.append("--steps: at 100% no base is beside it, so objectives judge it. Give --slo, or end before")
    found["stop"] = {"min_queries": 1, "min_duration": f"{len(steps) * wanted.step_ns}ns"}
    if wanted.rate is not None:
        found["params"] = {**(found.get("params") or {}), "rate": wanted.rate}
    return found


def _quantities(metrics: Sequence[str], errors: list[str]) -> tuple[Quantity, ...]:
    """What is compared; nothing where nobody says."""
    try:
        found = parse_all(metrics)
    except QuantityError as error:
        errors += error.errors
        return ()
    for one in found:
        single = one.statistic == "ratio" or (
            one.quantile is not None and catalogue()[one.indicator].scope == "request"
        )
        if not single or one.where or one.of_server:
            said = "a canary compares ratios, and percentiles of what each request has one of. Write p99(ttft)"
            errors.append(f"--metric {one}: {said}")
    return found
