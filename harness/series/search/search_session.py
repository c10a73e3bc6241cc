"""One search: make the probes that ``plimsoll.slo.search.search`` asks for, one after the other, until it has its
answer or the time is up, and publish that. Nothing is decided here.

``search.json`` is whole after every probe; resuming replays the decisions from what is there. A search that was given a
highest load and was not stopped below it is FOUND; without a highest load it is OPEN, which is no success.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from plimsoll.documents import files
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.host.manifest import package_version
from plimsoll.harness.process.writing import no_room
from plimsoll.harness.run import bundled
from plimsoll.harness.run.attempts import put_aside
from plimsoll.harness.run.bundled import Bundled
from plimsoll.harness.run.coordinator import Job, aim
from plimsoll.harness.run.job import Prepared, default_out
from plimsoll.harness.run.promises import Asked
from plimsoll.harness.series.ledger import Ledger, Session, read_document
from plimsoll.harness.series.one_run import ALONE, Made, Staff, make, reach
from plimsoll.harness.series.publish import publish, tell
from plimsoll.harness.series.search import probe
from plimsoll.harness.series.search.question import Question, Short, Texts, left_no_room, needed_ns, read, too_short
from plimsoll.reports.documents import search as text
from plimsoll.reports.documents.search import (
    FORMATS,
    AnswerPart,
    MlperfPart,
    ProbePart,
    RangePart,
    SearchOutcome,
    SearchReport,
)
from plimsoll.reports.report import Report
from plimsoll.reports.wording import units
from plimsoll.slo.records.records import Records, Status
from plimsoll.slo.search.probe import Answer, Next
from plimsoll.slo.search.search import decide

EXIT_CODES = MappingProxyType(
    {
        "FOUND": ExitCode.PASS,
        "NONE": ExitCode.FAIL,
        "OPEN": ExitCode.INCONCLUSIVE,
        "INCONCLUSIVE": ExitCode.INCONCLUSIVE,
        "INVALID": ExitCode.INVALID,
        "UNREACHABLE": ExitCode.UNREACHABLE,
        "INTERRUPTED": ExitCode.INTERRUPTED,
    }
)
#: How ``plimsoll.slo.search.search`` says that time ran out, without knowing for what.
_RAN_OUT = "time ran out"
FILE = "search.json"
#: What to do where it can't be written.
REMEDY = "Make room, or name a folder that you may write; --resume then goes on"
#: What says nothing of the endpoint is tried again, with all that followed from it: the reason may be gone.
_SAYS_NOTHING = ("UNREACHABLE", "INVALID")
#: An endpoint that accepts no connection after a probe is asked once more after so long, at least.
_AGAIN_NS = 1_000_000_000
_GIVEN_UP = (Status.TIMEOUT, Status.UNFINISHED, Status.CANCELLED)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a search stands. ``interrupted``: it is not over; ``out_of_time``: the budget ended it; ``why_short``: for
    what there was no time ("": there was, or the search is not over)."""

    answer: Answer
    interrupted: bool = False
    out_of_time: bool = False
    why_short: str = ""


def document(
    question: Question, probes: Sequence[ProbePart], ended: Ended, out: Path, spent_ns: int, started_at: str
) -> SearchReport:
    """The whole search as it is written down."""
    answer, settings = ended.answer, question.settings
    outcome, reasons = _outcome(question, ended)
    found = RangePart(
        best=answer.best, interval=(answer.low if answer.best is not None else None, _finite(answer.high))
    )
    return SearchReport(
        name=question.name,
        variable=settings.variable,
        outcome=outcome,
        reasons=reasons,
        **{"rate_per_s" if settings.variable == "rate" else "concurrency": found},  # type: ignore[arg-type]
        confidence=1 - settings.alpha,
        interval_confidence=answer.confidence,
        objectives=[*question.promises.texts, *(f"slo({slo.name})" for slo in question.promises.slos)],
        answer=None if ended.interrupted else _worth(question, probes, answer, out),
        probes=list(probes),
        exit_code=int(EXIT_CODES[outcome]),
        out_of_time=ended.out_of_time,
        hurried=answer.hurried,
        question=dict(question.identity),
        spent_ns=spent_ns,
        budget_ns=question.budget_ns,
        started_at=started_at,
        plimsoll=package_version(),
        command=shlex.join(question.job.command),
    )


def _outcome(question: Question, ended: Ended) -> tuple[SearchOutcome, list[str]]:
    answer = ended.answer
    if ended.interrupted:
        return "INTERRUPTED", [text for text in answer.reasons if not text.startswith(_RAN_OUT)]
    reasons = list(answer.reasons)
    if ended.why_short:
        reasons = [ended.why_short, *(text for text in reasons if not text.startswith(_RAN_OUT))]
    highest = question.settings.highest
    if answer.outcome == "OPEN" and highest is not None and answer.best == highest:
        return "FOUND", reasons
    return answer.outcome, reasons


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _worth(question: Question, probes: Sequence[ProbePart], answer: Answer, out: Path) -> AnswerPart | None:
    """What the run at the answer measured; None without an answer, or where its report is gone."""
    if answer.best is None:
        return None
    at_best = [part for part in probes if part.load == answer.best and part.outcome == "PASS"]
    confirming = [part for part in probes if part.number == answer.confirmed_by]
    chosen = (confirming or at_best)[-1:]
    report = _report(out, chosen[0]) if chosen else None
    if report is None:
        return None
    seen, gpus = report.throughput, question.gpus
    per_gpu = seen.goodput_per_s / gpus if gpus and seen.goodput_per_s is not None else None
    return AnswerPart(
        run=chosen[0].run,
        confirmed=bool(confirming),
        requests_per_s=seen.requests_per_s,
        goodput_per_s=seen.goodput_per_s,
        good_fraction=seen.good_fraction,
        output_tokens_per_s=seen.output_tokens_per_s,
        gpus=gpus,
        goodput_per_s_per_gpu=per_gpu,
        best_rate_per_gpu=answer.best / gpus if gpus and question.settings.variable == "rate" else None,
        mlperf_server=_mlperf(question, report, answer.best),
    )


def _report(out: Path, part: ProbePart) -> Report | None:
    try:
        return Report.model_validate_json(files.read_bytes(out / part.run / "report.json"))
    except (OSError, ValueError):  # somebody tidied up: the answer stands without it
        return None


def _mlperf(question: Question, report: Report, best: float) -> MlperfPart | None:
    """LoadGen's own answer, where the search was asked in MLPerf's terms: its limits, or its arrivals."""
    part = report.mlperf
    params: dict[str, Any] = question.job.scenario.params.model_dump()
    asked = (
        any(one.name.startswith("mlperf") for one in question.promises.presets) or params.get("arrival") == "loadgen"
    )
    if part is None or not asked or question.settings.variable != "rate":
        return None
    return MlperfPart(
        valid=part.valid,
        target_per_s=best,
        completed_per_s=part.rates.get("completed_samples"),
        tokens_per_s=part.rates.get("completed_tokens"),
        # A run that LoadGen calls valid may still be too short for the benchmark's name.
        reasons=[*part.invalid_reasons, *_too_short_for_the_name(report)],
    )


def _too_short_for_the_name(report: Report) -> list[str]:
    return [text.replace("give --duration", "give --probe") for text in report.warnings if text.startswith("preset ")]


class Stopped(HarnessFault):
    """Our side's fault, once something was measured; ``report`` is what there is."""

    def __init__(self, fault: HarnessFault, report: SearchReport) -> None:
        super().__init__(fault.errors, fault.code)
        self.report = report


@dataclass(slots=True)
class Log:
    """What is known so far, and where it is written.

    ``began_ns`` of this attempt, ``before_ns`` of all earlier ones.
    """

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
        return document(self.question, self.probes, ended, self.out, self.spent_ns, self.started_at)

    def so_far(self) -> Ended:
        """A search that is not over."""
        found = self.next(out_of_time=True)
        assert isinstance(found, Answer)
        return Ended(found, interrupted=True)


def search_and_say(scenario: str | None, flags: Mapping[str, Any], asked: Asked, texts: Texts, session: Session) -> int:
    """Check everything, search, publish. Returns the exit code; raises HarnessFault with every error."""
    outputs, errors = session.outputs(FORMATS, "a search")
    if session.resume and session.out is None:
        errors.append("--resume: of which search? Give its --out")
    question = None
    try:
        question = read(scenario, flags, asked, texts)
    except HarnessFault as fault:
        errors += fault.errors
    if errors or question is None:
        raise HarnessFault(errors)
    out, stop = session.out or default_out(f"search-{question.name}"), None
    try:
        report = search(question, out, resume=session.resume, staff=session.staff)
    except Stopped as early:
        report, stop = early.report, early
    remedy = "make room; the same command with --resume writes it"
    own = {out / "search.html": "html"}
    return publish(
        report, FORMATS, lambda it, _: FORMATS.terminal(it), outputs, own, remedy, as_json=session.as_json, fault=stop
    )


def search(question: Question, out: Path, *, resume: bool, staff: Staff = ALONE) -> SearchReport:
    """Search, and write ``search.json`` into ``out``.

    Raises HarnessFault before the first request; afterwards only for what is our side's, and then ``Stopped``.
    """
    before = begin(out, question, resume)
    began = datetime.now(UTC).isoformat(timespec="seconds")
    log = Log(question, out, list(before.probes), before.spent_ns, time.monotonic_ns(), before.started_at or began)
    report: SearchReport | None = None
    try:
        if isinstance(found := log.next(), Answer):  # it was over before: nothing is sent
            report = log.report(Ended(found))
        elif not log.probes and (errors := too_short(question)):
            raise HarnessFault(errors)
        else:
            report = log.report(_with_endpoint(log, staff))
        save(out, report)
    except (HarnessFault, OSError) as error:
        fault = no_room(error, out, REMEDY) if isinstance(error, OSError) else error
        if not log.probes:
            raise fault from None
        if isinstance(found := log.next(), Answer):  # only the last note of it is missing
            raise Stopped(fault, report or log.report(Ended(found))) from None
        cut = log.report(log.so_far())
        raise Stopped(fault, cut.model_copy(update={"exit_code": int(fault.code)})) from None
    return report


def _with_endpoint(log: Log, staff: Staff) -> Ended:
    try:
        with standing(log.question.job, log.out / "server.log", tell) as aim:
            save(log.out, log.report(log.so_far()))
            return _probes(log, aim, staff)
    except KeyboardInterrupt:  # between two probes; in one the coordinator takes it
        return log.so_far()


def _probes(log: Log, aim: Aim, staff: Staff) -> Ended:
    rested, short = True, list[Short]()
    while isinstance(wanted := log.next(fits=partial(_fits, log, short)), Next):
        if not rested:
            time.sleep(log.question.cooldown_ns / 1e9)
        rested = False
        part = _one(log, wanted, aim, staff)
        if part is None:
            return log.so_far()
        log.probes.append(part)
        so_far = log.report(log.so_far())
        save(log.out, so_far)
        tell(text.line_of(part, so_far))
    return _ended(log, wanted, short)


def _ended(log: Log, answer: Answer, short: Sequence[Short]) -> Ended:
    """How it ended; where a budget that was ``short`` of time is why, it is said now too, on stderr."""
    unfinished = isinstance(log.next(), Next)  # the search would go on if there were time
    if not short or not (unfinished or answer.hurried):
        return Ended(answer, out_of_time=unfinished)
    why = left_no_room(log.question, short[0], log.probes, answer)
    tell(why)
    return Ended(answer, out_of_time=unfinished, why_short=why)


def _fits(log: Log, short: list[Short], wanted: Next) -> bool:
    """Whether a probe and the fresh runs after it end within the budget; ``short`` gets those that do not."""
    most = log.question.budget_ns
    spent_ns = (
        log.spent_ns if log.probes else 0
    )  # the first was held against the whole budget before the endpoint was asked
    total_ns = spent_ns + needed_ns(log.question, log.probes, wanted)
    if most is None or total_ns <= most:
        return True
    short.append(Short(wanted, total_ns))
    return False


def _one(log: Log, wanted: Next, aim: Aim, staff: Staff) -> ProbePart | None:
    """One probe, or None if the user stopped it. Raises HarnessFault for what is our side's."""
    question, run = log.question, probe.folder_of(wanted)
    length_ns, began_ns = question.length_ns(wanted.length), time.monotonic_ns()
    promises = question.promises
    watcher = probe.Hopeless(promises.objectives, promises.confidence, probe.among(promises))

    def prepare() -> Prepared:
        return aim(question.prepared(wanted.load, wanted.length, wanted.seed, log.out / run))

    try:
        label = f"[{wanted.number}] {_load(question, wanted.load)}"
        made = make(log.out, run, prepare, label, staff, (watcher,), promises)
    except HarnessFault as raised:
        if raised.code != ExitCode.UNREACHABLE:
            raise
        return probe.unreachable(wanted, length_ns, run, raised.errors, time.monotonic_ns() - began_ns)
    return None if made is None else _judged(question, made, wanted, run, began_ns)


def _judged(question: Question, made: Made, wanted: Next, run: str, began_ns: int) -> ProbePart:
    """What a probe says. Where it ended just now, the endpoint is asked whether it is still there."""
    fault = None if made.prepared is None else still_there(made.prepared)
    if made.prepared is not None and fault is not None:  # it may only be busy with what was given up
        time.sleep(max(question.cooldown_ns, _AGAIN_NS) / 1e9)
        fault = still_there(made.prepared)
    took_ns = time.monotonic_ns() - began_ns
    part = probe.judged(made, question.promises, wanted, question.length_ns(wanted.length), run, took_ns)
    if fault is not None:  # it is gone: that it failed at this load would be a guess
        reasons = [
            "it answered before this probe and accepts no connection after it",
            *(text.replace(" Nothing was sent.", "") for text in fault.errors),
        ]
        part = part.model_copy(update={"outcome": "UNREACHABLE", "reasons": reasons})
    return part.model_copy(update={"rest": rest(made.sealed.records)})


def _load(question: Question, load: float) -> str:
    return f"{load:g}/s" if question.settings.variable == "rate" else f"{load:g} in flight"


def rest(records: Records) -> str:
    """How the endpoint was left: nothing more is known of it when the cool-down begins."""
    given_up = int(np.isin(records["status"], [int(one) for one in _GIVEN_UP]).sum())
    if not given_up:
        return "all answers came back"
    return f"{units.many(given_up, 'request')} given up: the endpoint may still have been busy with them"


@dataclass(frozen=True, slots=True)
class Before:
    """What earlier attempts left: their probes in order, the time they took, and when the first began ("": now)."""

    probes: tuple[ProbePart, ...] = ()
    spent_ns: int = 0
    started_at: str = ""


def begin(out: Path, question: Question, resume: bool) -> Before:
    """What to go on from. Raises HarnessFault if the folder holds anything else; a finished probe is never taken
    unasked.
    """
    ledger = Ledger(out, FILE, "search", REMEDY)
    found = ledger.before(resume, lambda: read_document(ledger.path, SearchReport, "Search into a new folder"))
    if found is None:
        return Before()
    if strange := next((part.run for part in found.probes if part.run != probe.folder_of(part)), None):
        raise HarnessFault(f"{ledger.path}: damaged ({strange!r} is no folder of a probe). Search into a new folder")
    made = f"{len(found.probes)} probes. Add --resume to go on"
    ledger.go_on(resume, made, found.question, question.identity)
    kept = list(found.probes)
    end = _limit(kept) if found.outcome == "INVALID" else len(kept)
    while len(kept) > end or (kept and kept[-1].outcome in _SAYS_NOTHING):
        put_aside(out, kept.pop().run)
    return Before(tuple(kept), found.spent_ns, found.started_at)


def _limit(probes: Sequence[ProbePart]) -> int:
    """Where the generator met its limit: the first probe of those at a load whose last one was INVALID."""
    last = {part.load: part.outcome for part in probes}
    found = (place for place, part in enumerate(probes) if part.outcome == last[part.load] == "INVALID")
    return next(found, len(probes))


def save(out: Path, report: SearchReport) -> None:
    """Write ``search.json``. Raises HarnessFault if it can't be written."""
    Ledger(out, FILE, "search", REMEDY).save(report.document())


Aim = Callable[[Prepared], Prepared]


@contextmanager
def standing(job: Job, log: Path, notice: Callable[[str], None]) -> Iterator[Aim]:
    """Gives what aims a run at the endpoint. Raises HarnessFault where there is none, or the server does not start.

    Each run has an event loop of its own, and a server's process belongs to the loop that started it: so it gets one
    that lives as long as it does.
    """
    if job.bundled is None:
        reach(job)
        yield lambda prepared: prepared
        return
    notice("starting the bundled reference server, once for all probes ...")
    log.parent.mkdir(parents=True, exist_ok=True)
    with asyncio.Runner() as runner:
        server = runner.run(bundled.start(job.bundled, log))
        try:
            yield lambda prepared: _aimed(prepared, server)
        finally:
            runner.run(bundled.stop(server.process))
            with contextlib.suppress(OSError):
                if not log.stat().st_size:
                    log.unlink()


def still_there(prepared: Prepared) -> HarnessFault | None:
    """Whether the endpoint still accepts a connection; else why not."""
    try:
        reach(prepared.job)
    except HarnessFault as fault:
        return fault
    return None


def _aimed(prepared: Prepared, server: Bundled) -> Prepared:
    """The run sent to the server that is there, instead of one of its own."""
    return replace(prepared, job=_sent_to(prepared.job, server))


def _sent_to(job: Job, server: Bundled) -> Job:
    target = job.target if job.bundled is None else aim(job.target, server, job.bundled[1])
    classes = {name: _sent_to(one, server) for name, one in job.classes.items()}
    return replace(job, bundled=None, target=target, classes=classes, serving=server.process.pid)
