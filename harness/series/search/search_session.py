"""One search: make the probes that ``plimsoll.slo.search.search`` asks for, one after the other, until it has its answer or the time is up.

``search.json`` is whole after every probe, so a search that is killed loses the probe that was running and no other; resuming
replays the decisions from what is there. Between two probes the answers in flight have been waited for (the run's own drain), then
comes the cool-down. Nothing is decided here.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.live.series import Series
from plimsoll.harness.process.writing import no_room
from plimsoll.harness.run.job import Prepared
from plimsoll.harness.run.remains import made_before
from plimsoll.harness.run.rundir import Sealed
from plimsoll.harness.series.one_run import carry_out
from plimsoll.harness.series.search import answer as answers
from plimsoll.harness.series.search import budget, folder, probe
from plimsoll.harness.series.search.answer import Ended
from plimsoll.harness.series.search.budget import Short
from plimsoll.harness.series.search.hopeless import Hopeless
from plimsoll.harness.series.search.question import Question
from plimsoll.harness.series.search.series_endpoint import Aim, standing
from plimsoll.harness.series.search.series_endpoint import answers as still_there
from plimsoll.reports.search import search_text as text
from plimsoll.reports.search.search_parts import ProbePart, SearchReport
from plimsoll.reports.wording import units
from plimsoll.slo.records.records import Records, Status
from plimsoll.slo.search.probe import Answer, Next
from plimsoll.slo.search.search import decide

#: An endpoint that accepts no connection after a probe is asked once more after so long, at least.
_AGAIN_NS = 1_000_000_000
_GIVEN_UP = (Status.TIMEOUT, Status.UNFINISHED, Status.CANCELLED)


class Stopped(HarnessFault):
    """Our side's fault, once something was measured; ``report`` is what there is."""

    def __init__(self, fault: HarnessFault, report: SearchReport) -> None:
        super().__init__(fault.errors, fault.code)
        self.report = report


@dataclass(slots=True)
class Log:
    """What is known so far, and where it is written. ``began_ns`` of this attempt, ``before_ns`` of all earlier ones."""

    question: Question
    out: Path
    probes: list[ProbePart]
    before_ns: int
    began_ns: int
    started_at: str

    @property
    def spent_ns(self) -> int:
        """Time that counts towards the budget."""
        return self.before_ns + time.monotonic_ns() - self.began_ns

    def next(self, out_of_time: bool = False, fits: Callable[[Next], bool] = lambda _: True) -> Next | Answer:
        """What the search asks for now. Raises HarnessFault where the probes are not of this search."""
        try:
            return decide(self.question.settings, [probe.decided(part) for part in self.probes], out_of_time, fits)
        except ValueError as error:
            raise HarnessFault(f"--resume: {self.out}: {error}") from None

    def report(self, ended: Ended) -> SearchReport:
        """The document as it stands."""
        return answers.document(self.question, self.probes, ended, self.out, self.spent_ns, self.started_at)

    def so_far(self) -> Ended:
        """A search that is not over."""
        found = self.next(out_of_time=True)
        assert isinstance(found, Answer)
        return Ended(found, interrupted=True)


def search(question: Question, out: Path, *, resume: bool, live: Series | None = None) -> SearchReport:
    """Search, and write ``search.json`` into ``out``, with ``live``'s page beside each probe.

    Raises HarnessFault before the first request; afterwards only for what is our side's, and then ``Stopped``.
    """
    before = folder.begin(out, question, resume)
    began = datetime.now(UTC).isoformat(timespec="seconds")
    log = Log(question, out, list(before.probes), before.spent_ns, time.monotonic_ns(), before.started_at or began)
    report: SearchReport | None = None
    try:
        if isinstance(found := log.next(), Answer):  # it was over before: nothing is sent
            report = log.report(Ended(found))
        elif not log.probes and (errors := budget.too_short(question)):
            raise HarnessFault(errors)
        else:
            report = log.report(_with_endpoint(log, live or Series(None)))
        folder.save(out, report)
    except (HarnessFault, OSError) as error:
        fault = no_room(error, out, folder.REMEDY) if isinstance(error, OSError) else error
        if not log.probes:
            raise fault from None
        if isinstance(found := log.next(), Answer):  # only the last note of it is missing
            raise Stopped(fault, report or log.report(Ended(found))) from None
        cut = log.report(log.so_far())
        raise Stopped(fault, cut.model_copy(update={"exit_code": int(fault.code)})) from None
    return report


def _with_endpoint(log: Log, live: Series) -> Ended:
    try:
        with standing(log.question.job, log.out / "server.log", _say) as aim:
            folder.save(log.out, log.report(log.so_far()))
            return _probes(log, aim, live)
    except KeyboardInterrupt:  # between two probes; in one the coordinator takes it
        return log.so_far()


def _probes(log: Log, aim: Aim, live: Series) -> Ended:
    rested, short = True, list[Short]()
    while isinstance(wanted := log.next(fits=partial(_fits, log, short)), Next):
        if not rested:
            time.sleep(log.question.cooldown_ns / 1e9)
        rested = False
        part = _one(log, wanted, aim, live)
        if part is None:
            return log.so_far()
        log.probes.append(part)
        so_far = log.report(log.so_far())
        folder.save(log.out, so_far)
        _say(text.line(part, so_far))
    return _ended(log, wanted, short)


def _ended(log: Log, answer: Answer, short: Sequence[Short]) -> Ended:
    """How it ended; where a budget that was ``short`` of time is why, it is said now too, on stderr."""
    unfinished = isinstance(log.next(), Next)  # the search would go on if there were time
    if not short or not (unfinished or answer.hurried):
        return Ended(answer, out_of_time=unfinished)
    why = budget.left_no_room(log.question, short[0], log.probes, answer)
    _say(why)
    return Ended(answer, out_of_time=unfinished, why_short=why)


def _fits(log: Log, short: list[Short], wanted: Next) -> bool:
    """Whether a probe and the fresh runs after it end within the budget; ``short`` gets those that do not."""
    most = log.question.budget_ns
    spent_ns = (
        log.spent_ns if log.probes else 0
    )  # the first was held against the whole budget before the endpoint was asked
    total_ns = spent_ns + budget.needed_ns(log.question, log.probes, wanted)
    if most is None or total_ns <= most:
        return True
    short.append(Short(wanted, total_ns))
    return False


def _one(log: Log, wanted: Next, aim: Aim, live: Series) -> ProbePart | None:
    """One probe, or None if the user stopped it. Raises HarnessFault for what is our side's."""
    question, run = log.question, probe.folder_of(wanted)
    length_ns, began_ns = question.length_ns(wanted.length), time.monotonic_ns()
    if (sealed := made_before(log.out, run)) is not None:
        return _judged(question, sealed, wanted, run, None, began_ns)
    prepared = aim(question.prepared(wanted.load, wanted.length, wanted.seed, log.out / run))
    watcher = Hopeless(question.promises.objectives, question.promises.confidence, probe.among(question.promises))
    with live.watching(prepared) as onlookers:
        try:
            label = f"[{wanted.number}] {_load(question, wanted.load)}: "
            done = carry_out(prepared, label=label, watchers=(watcher, *onlookers))
        except HarnessFault as raised:
            if raised.code == ExitCode.INTERRUPTED:
                return None
            if raised.code != ExitCode.UNREACHABLE:
                raise
            return probe.unreachable(wanted, length_ns, run, raised.errors, time.monotonic_ns() - began_ns)
        return None if done.interrupted else _judged(question, done.sealed, wanted, run, prepared, began_ns)


def _judged(
    question: Question, sealed: Sealed, wanted: Next, run: str, prepared: Prepared | None, began_ns: int
) -> ProbePart:
    """What a probe says. ``prepared``: it ended just now, so the endpoint is asked whether it is still there."""
    fault = None if prepared is None else still_there(prepared)
    if prepared is not None and fault is not None:  # it may only be busy with what was given up
        time.sleep(max(question.cooldown_ns, _AGAIN_NS) / 1e9)
        fault = still_there(prepared)
    took_ns = time.monotonic_ns() - began_ns
    part = probe.judged(sealed, question.promises, wanted, question.length_ns(wanted.length), run, took_ns)
    if fault is not None:  # it is gone: that it failed at this load would be a guess
        reasons = [
            "it answered before this probe and accepts no connection after it",
            *(text.replace(" Nothing was sent.", "") for text in fault.errors),
        ]
        part = part.model_copy(update={"outcome": "UNREACHABLE", "reasons": reasons})
    return part.model_copy(update={"rest": rest(sealed.records)})


def _load(question: Question, load: float) -> str:
    return f"{load:g}/s" if question.settings.variable == "rate" else f"{load:g} in flight"


def rest(records: Records) -> str:
    """How the endpoint was left: nothing more is known of it when the cool-down begins."""
    given_up = int(np.isin(records["status"], [int(one) for one in _GIVEN_UP]).sum())
    if not given_up:
        return "all answers came back"
    return f"{units.many(given_up, 'request')} given up: the endpoint may still have been busy with them"


def _say(said: str) -> None:
    print(said, file=sys.stderr, flush=True)
