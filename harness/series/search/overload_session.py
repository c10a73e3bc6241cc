"""``plimsoll overload``: find the line, or be told it, and then one run over it and back: steps of so many times the
line, each a phase, and the first step's load again.

The search is ``plimsoll search``, in the folder ``line``; the run an ordinary one, in the folder ``run``, and whatever
reads runs reads it. Here is only what makes its scenario and what it promises; ``plimsoll.slo.verdict.overload``
judges.
"""

from __future__ import annotations

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
from plimsoll.harness.series.search.question import MOST_LOAD, Question, Texts, read
from plimsoll.reports.documents.search import SearchReport
from plimsoll.scenarios.flags import loads_of, unmoved
from plimsoll.scenarios.scenario import MIX, Scenario
from plimsoll.scenarios.spec import Document, ScenarioError
from plimsoll.scenarios.text.fields import format_duration
from plimsoll.slo.objectives import selector
from plimsoll.slo.objectives.objective import BESIDE, SPELLS, Objective

#: What is promised where nobody says it: of the best step's goodput, and of requests where the load is within the line.
RETAINED, GOOD = "80%", "90%"
#: The load goes back to the first step's when it has been above; what that part is called.
AFTER = "after"
_SHORT = re.compile(rf"\s*({'|'.join(BESIDE)})\s*(>=?.*)")
_MOST_STEPS = 20


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was asked for. ``load``: what goes over the scenario; ``line`` per second, or of the search in ``found``."""

    scenario: str
    line: float | None
    found: Path | None
    steps: str
    step_ns: int
    after_ns: int
    load: Mapping[str, Any]
    asked: Asked


@dataclass(frozen=True, slots=True)
class Ladder:
    """The steps as multiples of the line, and how long each and what comes after last."""

    times: tuple[float, ...]
    step_ns: int
    after_ns: int

    @property
    def names(self) -> list[str]:
        return [f"x{one:g}" for one in self.times]

    @property
    def length_ns(self) -> int:
        return len(self.times) * self.step_ns + self.after_ns

    def rate(self, line: float) -> dict[str, Any]:
        held = [{"rate": line * one, "for": f"{self.step_ns}ns"} for one in self.times]
        return {"steps": [*held, {"rate": line * self.times[0]}]}

    def phases(self) -> dict[str, Any]:
        at = [f"{place * self.step_ns}ns" for place in range(len(self.times) + 1)]
        ends = zip(self.names, at, at[1:], strict=False)
        return {name: {"from": begin, "to": end} for name, begin, end in ends} | {AFTER: {"from": at[-1]}}


@dataclass(frozen=True, slots=True)
class Promised:
    """Objectives. ``limits``: when a request is good; ``line``: what holds at the line; ``own``: of this run."""

    limits: tuple[str, ...]
    line: tuple[str, ...]
    own: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Experiment:
    """What can be sent once the line is known. ``base``: the scenario as it is, of ``document``."""

    wanted: Wanted
    document: Document
    base: Scenario
    ladder: Ladder
    promised: Promised

    def _bare(self) -> Document:
        """The scenario without objectives and phases: they are of its own load."""
        found = hold(self.document)
        assert found is not None
        for part in (found, *(found.get(MIX) or {}).values()):
            for key in ("objectives", "phases", "stop"):
                part.pop(key, None)
        return found

    def question(self) -> Question:
        """The search for the line. Raises HarnessFault."""
        slo = (*self.promised.limits, *self.promised.line)
        asked = replace(self.wanted.asked, slo=slo, goodput=None, preset=(), limits_alone=True)
        return read(self._bare(), self.wanted.load, asked, Texts("rate"))

    def prepared(self, line: float, out: Path, formats: Sequence[str]) -> Prepared:
        """The run. Raises HarnessFault."""
        found, length = self._bare(), format_duration(self.ladder.length_ns)
        loads = loads_of(self.base, "rate")
        for name, part in [("", found)] if not self.base.mix else found[MIX].items():
            if not name or name in loads:
                share = loads[name] / sum(loads.values()) if name else 1.0
                part["params"] = {**(part.get("params") or {}), "rate": self.ladder.rate(line * share)}
        found["phases"], found["stop"] = self.ladder.phases(), {"min_queries": 1, "min_duration": length}
        found["description"] = f"{self.wanted.steps} times {line:g}/s, and then {self.ladder.times[0]:g} times"
        slo = (*self.promised.limits, *self.promised.own)
        asked = replace(self.wanted.asked, slo=slo, goodput=None, preset=())
        return prepare(found, self.wanted.load, asked, formats, out)


def overload(wanted: Wanted, session: Session) -> int:
    """Find the line, go over it, judge, publish. Returns the exit code.

    Raises HarnessFault with every error of what was asked, before anything is sent.
    """
    errors, out = list(session.errors), session.out or default_out("overload")
    line, asked = _line(wanted, errors), _asked(wanted, errors)
    folders = [out / name for name in ("line", "run") if (out / name).exists()]
    if folders and not session.resume:
        errors.append(f"--out: {folders[0]} is there. Add --resume to go on with its search, or name a new folder")
    question = None
    try:
        if asked is not None:
            question = asked.question() if line is None else None
            with tempfile.TemporaryDirectory() as scratch:  # whatever the line is: every error before it is sought
                asked.prepared(line or 1.0, Path(scratch) / "run", session.formats)
    except HarnessFault as fault:
        errors += fault.errors
    if errors or asked is None:
        raise HarnessFault(list(dict.fromkeys(errors)))
    if session.resume and made_before(out, "run") is not None:
        raise HarnessFault(f"--resume: {out / 'run'} is whole. `plimsoll report {out / 'run'}` shows it")
    if question is not None:
        line = _searched(question, out / "line", session)
    assert line is not None
    each = format_duration(asked.ladder.step_ns)
    tell(f"the line: {line:g}/s. Now {wanted.steps} times that for {each} each, and {asked.ladder.times[0]:g} times")
    return run_job(asked.prepared(line, out / "run", session.formats), as_json=session.as_json, staff=session.staff)


def _searched(question: Question, out: Path, session: Session) -> float:
    """The highest rate that holds. Raises HarnessFault where the search claims none."""
    found = search_session.search(question, out, resume=session.resume, staff=session.staff)
    best = None if found.rate_per_s is None else found.rate_per_s.best
    if found.outcome != "FOUND" or best is None:
        why = "; ".join(found.reasons) or found.outcome
        go_on = "Go on with --resume, or give the line with --line"
        raise HarnessFault(f"the search for the line ended {found.outcome}: {why}. {go_on}", ExitCode(found.exit_code))
    return best


def _ladder(wanted: Wanted, errors: list[str]) -> Ladder:
    try:
        times = tuple(float(one) for one in wanted.steps.split(","))
    except ValueError:
        times = ()
    if not times or [*times] != sorted(set(times)) or not 0 < times[0] <= 1 < times[-1] or len(times) > _MOST_STEPS:
        errors.append(
            f"--steps: {wanted.steps} does not rise from at most 1 to above 1, in at most {_MOST_STEPS} steps. Write "
            "multiples of the line, like 0.5,1,1.5,2,3"
        )
        times = (0.5, 2.0)
    return Ladder(times, wanted.step_ns, wanted.after_ns)


def _line(wanted: Wanted, errors: list[str]) -> float | None:
    """The line that is given; None: it is to be searched for."""
    if wanted.line is not None or wanted.found is None:
        if wanted.found is not None:
            errors.append("--from: --line says where the line is. Leave one of them out")
        if wanted.line is not None and not 0 < wanted.line <= MOST_LOAD["rate"]:
            errors.append(f"--line {wanted.line:g}: give a rate above 0 and at most {MOST_LOAD['rate']:,}")
        return wanted.line
    try:
        held = read_document(wanted.found / search_session.FILE, SearchReport, "Give the folder of a search")
    except HarnessFault as fault:
        errors += [f"--from: {text}" for text in fault.errors]
        return 1.0
    best = None if held.rate_per_s is None else held.rate_per_s.best
    if best is None:
        errors.append(f"--from: {wanted.found} found no rate ({held.outcome}). Give the line with --line")
    return best or 1.0


def _asked(wanted: Wanted, errors: list[str]) -> Experiment | None:
    """The scenario as it is, and what is promised: by flags, else by the scenario."""
    ladder = _ladder(wanted, errors)
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
    asked, short = wanted.asked, [found for text in wanted.asked.slo if (found := _SHORT.fullmatch(text))]
    asked = replace(asked, slo=[text for text in asked.slo if not _SHORT.fullmatch(text)], limits_alone=True)
    promises, problems = read_promises(asked)
    if not asked.any_objective:
        promises, problems = of_scenario(base.name, promised(base), asked)
    errors += problems
    made = None if problems else _promised(promises.objectives, short, ladder, errors)
    return None if made is None else Experiment(wanted, document, base, ladder, made)


def _promised(
    given: Sequence[Objective], short: Sequence[re.Match[str]], ladder: Ladder, errors: list[str]
) -> Promised | None:
    """``short``: objectives as ``retained >= 80%``, which are about every step over the line."""
    first, last = ladder.names[0], ladder.names[-1]
    own = [one for one in given if _of_run(one)]
    line = [one for one in given if one.scope == "run" and one not in own]
    limits = [str(one) for one in given if one.scope == "request"]
    limits = limits or [text for one in line if (text := _limit(one))]
    if not limits:
        errors.append("no objective says when a request is good. Give one with --slo 'ttft <= 500ms'")
        return None
    good = next((one.threshold_text for one in line if one.indicator == "good" and one.of_all), GOOD)
    texts = [f"ratio(good{{phase={first}}}) >= {good}"]
    for name, rest in [found.groups() for found in short] or [("retained", f">= {RETAINED}")]:
        over = [step for step, times in zip(ladder.names, ladder.times, strict=True) if times > 1]
        texts += [f"{name}(good{{phase={step}}}) {rest}" for step in over]
    if not any(one.statistic == "recovered" for one in own):
        texts.append(f"recovered(ratio(good) >= {good}) <= {format_duration(ladder.after_ns // 2)} after {last}")
    texts += [f"{one} after {last}" if one.statistic == "recovered" and not one.after else str(one) for one in own]
    return Promised(tuple(limits), tuple(map(str, line)) or (f"ratio(good) >= {good}",), tuple(texts))


def _of_run(one: Objective) -> bool:
    """It is about this run, and nothing that could hold at a rate."""
    words = {part.label for part in (one.of or one).where}
    return one.statistic in (*SPELLS, *BESIDE) or selector.PHASE in one.labels or "refused" in words


def _limit(one: Objective) -> str:
    """A percentile's limit as one on each request; "" where it is none."""
    if one.quantile is None or one.of_server:
        return ""
    return str(replace(one, statistic=None, quantile=None, each=None, period=""))
