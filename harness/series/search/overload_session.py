"""``plimsoll overload``: the line, searched for or told, and one run over it: a phase for each step, and then less.

The search is ``plimsoll search``, in the folder ``line``; the run an ordinary one, in ``run``. Here is what they are
asked; ``plimsoll.slo.verdict.overload`` judges.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.run.attempts import made_before
from plimsoll.harness.run.job import Prepared, default_out, find_scenario, hold, prepare, promised
from plimsoll.harness.run.promises import Asked, of_scenario, read_promises
from plimsoll.harness.series.ledger import Session, read_document
from plimsoll.harness.series.one_run import run_job
from plimsoll.harness.series.publish import tell
from plimsoll.harness.series.search import search_session
from plimsoll.harness.series.search.question import MOST_LOAD, Question, Texts, lasting, read
from plimsoll.reports.documents.search import SearchReport
from plimsoll.scenarios.flags import loads_of, unmoved
from plimsoll.scenarios.scenario import MIX, Scenario
from plimsoll.scenarios.spec import Document, ScenarioError
from plimsoll.scenarios.text.fields import format_duration
from plimsoll.slo.metrics.indicator import catalogue
from plimsoll.slo.objectives.objective import BESIDE, SPELLS, Objective
from plimsoll.slo.objectives.selector import PHASE

#: Promised where nobody says it: of the best step's goodput, and of the requests of a load within the line.
RETAINED, GOOD = "80%", "90%"
#: An objective on every step over the line.
_SHORT = re.compile(rf"\s*({'|'.join(BESIDE)})\s*([<>=].*)")
_MOST = 20


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was asked for. ``line`` per second, or of the search in ``found``; ``load``: what goes over the scenario."""

    scenario: str
    line: float | None
    found: Path | None
    steps: str
    step: str
    after: str
    load: Mapping[str, Any]
    asked: Asked


@dataclass(frozen=True, slots=True)
class Experiment:
    """What can be sent once the line is known. ``times`` the line by step; objectives: ``limits`` say when a request is
    good, ``line`` hold at the line, ``own`` are of the run.
    """

    wanted: Wanted
    document: Document
    base: Scenario
    times: Mapping[str, float]
    step_ns: int
    after_ns: int
    limits: Sequence[str]
    line: Sequence[str]
    own: Sequence[str]

    def _promising(self, texts: Sequence[str]) -> Asked:
        slo = (*self.limits, *texts)
        return replace(self.wanted.asked, slo=slo, goodput=None, preset=(), limits_alone=True)

    def _bare(self) -> Document:
        """The scenario without what is of its own load."""
        found = hold(self.document)
        assert found is not None
        for part in (found, *(found.get(MIX) or {}).values()):
            for key in ("objectives", "phases", "stop"):
                part.pop(key, None)
        return found

    def question(self) -> Question:
        """The search for the line. Raises HarnessFault."""
        return read(self._bare(), self.wanted.load, self._promising(self.line), Texts("rate"))

    def prepared(self, line: float, out: Path, formats: Sequence[str]) -> Prepared:
        """The run. Raises HarnessFault."""
        found, loads = self._bare(), loads_of(self.base, "rate")
        shares = {name: load / sum(loads.values()) for name, load in loads.items()}
        for part, share in [(found[MIX][name], one) for name, one in shares.items()] or [(found, 1.0)]:
            rates = [{"rate": line * share * one, "for": f"{self.step_ns}ns"} for one in self.times.values()]
            steps = [*rates, {"rate": rates[0]["rate"]}]
            part["params"] = {**(part.get("params") or {}), "rate": {"steps": steps}}
        at = [place * self.step_ns for place in range(len(self.times) + 1)]
        parts = zip(self.times, itertools.pairwise(at), strict=True)
        found["phases"] = {name: {"from": f"{begin}ns", "to": f"{end}ns"} for name, (begin, end) in parts}
        found["phases"]["after"] = {"from": f"{at[-1]}ns"}
        found["stop"] = {"min_queries": 1, "min_duration": f"{at[-1] + self.after_ns}ns"}
        return prepare(found, self.wanted.load, self._promising(self.own), formats, out)


def overload(wanted: Wanted, session: Session) -> int:
    """Find the line, go over it, judge, publish. Returns the exit code.

    Raises HarnessFault with every error of what was asked, before anything is sent.
    """
    errors, out = list(session.errors), session.out or default_out("overload")
    line, asked, question = _line(wanted, errors), _asked(wanted, errors), None
    if not session.resume and any((out / name).exists() for name in ("line", "run")):
        errors.append(f"--out: {out} holds another overload. Add --resume to go on with it, or name a new folder")
    try:
        if asked is not None:
            question = asked.question() if line is None else None
            with tempfile.TemporaryDirectory() as scratch:  # every error before the search, whatever the line is
                asked.prepared(line or 1.0, Path(scratch) / "run", session.formats)
    except HarnessFault as fault:
        errors += fault.errors
    if errors or asked is None:
        raise HarnessFault(list(dict.fromkeys(errors)))
    if session.resume and made_before(out, "run") is not None:
        raise HarnessFault(f"--resume: {out / 'run'} is whole. `plimsoll report {out / 'run'}` shows it")
    line = line if question is None else _searched(question, out / "line", session)
    assert line is not None
    tell(f"the line is {line:g}/s: now {wanted.steps} times that, {wanted.step} each, and back")
    return run_job(asked.prepared(line, out / "run", session.formats), as_json=session.as_json, staff=session.staff)


def _searched(question: Question, out: Path, session: Session) -> float:
    """The highest rate that holds. Raises HarnessFault where the search claims none."""
    found = search_session.search(question, out, resume=session.resume, staff=session.staff)
    if found.outcome != "FOUND" or found.rate_per_s is None or found.rate_per_s.best is None:
        told = "; ".join([f"the search for the line ended {found.outcome}", *found.reasons])
        raise HarnessFault(f"{told}. Go on with --resume, or tell the line with --line", ExitCode(found.exit_code))
    return found.rate_per_s.best


def _line(wanted: Wanted, errors: list[str]) -> float | None:
    """The line that is given; None: it is to be searched for."""
    if wanted.line is not None:
        if wanted.found is not None:
            errors.append("--from: --line says where the line is. Leave one of them out")
        if not 0 < wanted.line <= MOST_LOAD["rate"]:
            errors.append(f"--line {wanted.line:g}: give a rate above 0 and at most {MOST_LOAD['rate']:,}")
        return wanted.line
    if wanted.found is None:
        return None
    try:
        held = read_document(wanted.found / search_session.FILE, SearchReport, "Give the folder of a search")
        if held.rate_per_s is not None and held.rate_per_s.best is not None:
            return held.rate_per_s.best
        errors.append(f"--from: {wanted.found} found no rate ({held.outcome}). Give the line with --line")
    except HarnessFault as fault:
        errors += [f"--from: {text}" for text in fault.errors]
    return 1.0


def _times(text: str, errors: list[str]) -> dict[str, float]:
    with contextlib.suppress(ValueError):
        times = [float(one) for one in text.split(",")]
        if times == sorted(set(times)) and 0 < times[0] <= 1 < times[-1] < math.inf and len(times) <= _MOST:
            return {f"x{one:g}": one for one in times}
    rises = f"does not rise from at most 1 to above 1, in at most {_MOST} steps"
    errors.append(f"--steps: {text} {rises}. Write multiples of the line, like 0.5,1,1.5,2,3")
    return {"x0.5": 0.5, "x2": 2.0}


def _asked(wanted: Wanted, errors: list[str]) -> Experiment | None:
    """The scenario as it is, and what is promised: by flags, else by the scenario."""
    times, step_ns = _times(wanted.steps, errors), lasting("--step-time", wanted.step, errors) or 1
    after_ns = lasting("--after", wanted.after, errors) or 2
    try:
        document = hold(wanted.scenario)
        base = find_scenario(document, wanted.load)
    except (HarnessFault, ScenarioError) as fault:
        errors += fault.errors
        return None
    assert document is not None  # it has a name
    if base.kind != "server" and not base.mix:
        errors.append(f"{base.name}: kind {base.kind} sends at no rate. Give a scenario of kind server, or a mix")
        return None
    errors += unmoved(base, "--line", "rate", "")
    short = [found for text in wanted.asked.slo if (found := _SHORT.fullmatch(text))]
    slo = [text for text in wanted.asked.slo if not _SHORT.fullmatch(text)]
    asked = replace(wanted.asked, slo=slo, limits_alone=True)
    promises, problems = read_promises(asked) if asked.any_objective else of_scenario(base.name, promised(base), asked)
    errors += problems
    if promises.slos:
        errors.append(
            "--slo: an OpenSLO document is about a whole run, and this one is meant to break it. Give objectives"
        )
    texts = _promised(promises.objectives, {one[1]: one[2] for one in short}, times, after_ns)
    if not texts[0] and not problems:
        errors.append("no objective says when a request is good. Give one with --slo 'ttft <= 500ms'")
    return Experiment(wanted, document, base, times, step_ns, after_ns, *texts)


def _promised(
    given: Sequence[Objective], short: Mapping[str, str], times: Mapping[str, float], after_ns: int
) -> tuple[list[str], list[str], list[str]]:
    """The limits, what holds at the line and what of the run: as given, and the usual where none says it."""
    own = [one for one in given if _of_run(one)]
    line = [one for one in given if one.scope == "run" and one not in own]
    limits = [str(one) for one in given if one.scope == "request"] or [
        str(replace(one, statistic=None, quantile=None, each=None, period=""))
        for one in line
        if one.quantile and catalogue()[one.indicator].scope == "request"
    ]
    good = next((one.threshold_text for one in line if one.statistic == "ratio" and one.indicator == "good"), GOOD)
    first, *_, last = times
    texts = [f"ratio(good{{phase={first}}}) >= {good}"]
    for name, rest in {"retained": f">= {RETAINED}", **short}.items():
        texts += [f"{name}(good{{phase={step}}}) {rest}" for step, of_line in times.items() if of_line > 1]
    if not any(one.statistic == "recovered" for one in own):
        texts.append(f"recovered(ratio(good) >= {good}) <= {format_duration(after_ns // 2)} after {last}")
    texts += [f"{one} after {last}" if one.statistic == "recovered" and not one.after else str(one) for one in own]
    return limits, [*map(str, line)] or [f"ratio(good) >= {good}"], texts


def _of_run(one: Objective) -> bool:
    """It is about this run, and nothing that could hold at a rate."""
    words = {part.label for part in (one.of or one).where}
    return one.statistic in (*SPELLS, *BESIDE) or PHASE in one.labels or "refused" in words
