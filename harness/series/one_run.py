"""One run, alone or as one of several: send the load with live progress, judge it, publish the reports, choose the exit
code.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rich.console import Console

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.generator.segments import segment_files
from plimsoll.harness.live.place import Place
from plimsoll.harness.process import interrupts
from plimsoll.harness.protocols._discovery import protocols
from plimsoll.harness.run import ahead
from plimsoll.harness.run.attempts import (
    as_noted,
    attempt_folder,
    could_not_begin,
    keep_attempt,
    last_is_back,
    made_before,
    spoiled,
)
from plimsoll.harness.run.coordinator import Coordinator, Job, Outcome
from plimsoll.harness.run.host_check import HostCheck, check_disk, check_host, extent_of
from plimsoll.harness.run.job import Prepared
from plimsoll.harness.run.judged import conclude, exiting, judge, publish, write_report
from plimsoll.harness.run.mixture import FOLDER, fault_of
from plimsoll.harness.run.progress import LiveDisplay, Progress
from plimsoll.harness.run.promises import FILE as PROMISES
from plimsoll.harness.run.promises import Promises, keep, kept
from plimsoll.harness.run.readiness import preflight
from plimsoll.harness.run.rundir import BEGUN, RunDirectory, Sealed, open_sealed
from plimsoll.harness.run.watcher import Watcher
from plimsoll.harness.sealing.workforce import Workforce
from plimsoll.harness.series.publish import tell
from plimsoll.reports.report import Report
from plimsoll.slo.metrics.plugin import PluginError
from plimsoll.slo.records.labels import AGENT, REGION

if TYPE_CHECKING:
    from plimsoll.harness.live.live_view import LiveView


class LivePage:
    """The one page, at one address, of all runs of a session. ``place``: None for no page.

    A free port is chosen by the first run and kept for the others.
    """

    def __init__(self, place: Place | None) -> None:
        self._place = place
        self._view: LiveView | None = None

    def begin(self, prepared: Prepared) -> tuple[Watcher, ...]:
        """The watchers of one run. Without ``end`` the page goes on until its verdict was shown."""
        if self._place is None:
            return ()
        from plimsoll.harness.live.live_view import watcher  # loads a server

        self._view = watcher(self._place, prepared)
        return (self._view,)

    def end(self) -> None:
        """The page of the run that was begun is over, and its address is kept for the next one's.

        A run without one is none.
        """
        view, self._view = self._view, None
        if view is None or self._place is None:
            return
        view.stop()
        if view.url:
            self._place = replace(self._place, port=urlsplit(view.url).port or self._place.port)


def watch_own(prepared: Prepared) -> tuple[Watcher, ...]:
    """Who watches memory and processor time of a server that we start ourselves: nobody has to ask for it."""
    if prepared.job.bundled is None and prepared.job.serving is None:
        return ()
    from plimsoll.harness.scraping.scraping import Asking, watch

    return watch(Asking(), prepared)


@dataclass(frozen=True, slots=True)
class Staff:
    """Who sends the runs of a session, and who looks on.

    ``gather`` makes the workforce of a run (None: processes of this host), ``scrape`` who asks the server how it is.
    """

    gather: Callable[[], Workforce] | None = None
    watchers: Sequence[Watcher] = ()
    page: LivePage = field(default_factory=lambda: LivePage(None))
    scrape: Callable[[Prepared], tuple[Watcher, ...]] = watch_own

    def send(self, prepared: Prepared, label: str = "", watchers: Sequence[Watcher] = ()) -> Outcome:
        """Carry one run out: see ``carry_out``. The live page goes on until ``page.end``."""
        onlookers = (*self.watchers, *watchers, *self.page.begin(prepared), *self.scrape(prepared))
        return carry_out(prepared, label, onlookers, None if self.gather is None else self.gather())


#: Processes of this host, and nobody looks on.
ALONE = Staff()


@dataclass(frozen=True, slots=True)
class Made:
    """One of several runs, its report written.

    ``prepared``: None where an earlier session made it and was stopped before it noted that.
    """

    sealed: Sealed
    report: Report
    prepared: Prepared | None


def make(
    out: Path,
    run: str,
    prepare: Callable[[], Prepared],
    label: str,
    staff: Staff,
    watchers: Sequence[Watcher] = (),
    promises: Promises | None = None,
) -> Made | None:
    """The run that is to lie in the folder ``run`` of ``out``; None: the user stopped it.

    What lies there whole is taken, judged by ``promises`` (None: those it was made with); anything less is put aside.
    Raises HarnessFault for what went wrong before the first query, and for records that are elsewhere because that
    folder's disk is full.
    """
    if (sealed := made_before(out, run)) is not None:
        report = judge(sealed, promises or kept(sealed))
        write_report(report, sealed.directory)
        return Made(sealed, report, None)
    prepared = prepare()
    try:
        done, report = carry_through(prepared, f"{label}: ", staff, watchers)
        if done.interrupted:
            return None
        write_report(report, done.sealed.directory)
        if done.sealed.directory != prepared.job.directory or not done.sealed.whole:
            raise HarnessFault(
                f"{label}: its records are not in {out / run}, where those of the others are. Make room there: "
                "--resume makes it again"
            )
        return Made(done.sealed, report, prepared)
    except HarnessFault as fault:
        if fault.code == ExitCode.INTERRUPTED:
            return None
        raise
    finally:
        staff.page.end()


def reach(job: Job) -> None:
    """One connection to an endpoint that is not ours to start. Raises HarnessFault (exit 5) if there is none."""
    faults = {}
    for name, one in (job.classes or {"": job}).items():
        if one.bundled is None and protocols()[one.target.protocol].needs_url:
            try:
                interrupts.run(preflight(one.target))
            except HarnessFault as fault:
                faults[name] = fault
    if faults:
        raise fault_of(faults)


def run_job(prepared: Prepared, *, as_json: bool, quiet: bool = False, staff: Staff = ALONE) -> int:
    """Run, judge, publish. Returns the exit code.

    Raises HarnessFault for what went wrong before the first query.
    """
    outcome, result = carry_through(prepared, staff=staff)
    directory = outcome.sealed.directory
    if outcome.interrupted:
        result = exiting(result, ExitCode.INTERRUPTED)
    code = result.exit_code or ExitCode.USAGE  # a pass of which a file is missing
    kept = outcome.sealed.directory if outcome.sealed.whole else None
    with _records_are_safe(directory):
        written = publish(
            result, kept, prepared.outputs, as_json=as_json, quiet=quiet, unwritten=code, sealed=outcome.sealed
        )
    if outcome.interrupted and kept is not None:
        said = f"interrupted: what was measured is in {kept.path}; `plimsoll report {kept.path}` shows it again"
        tell(said)
    elif kept is not None and (as_json or not written):
        tell(f"run directory: {kept.path}")
    return int(code if not written else result.exit_code or 0)


def carry_through(
    prepared: Prepared, label: str = "", staff: Staff = ALONE, watchers: Sequence[Watcher] = ()
) -> tuple[Outcome, Report]:
    """Carry out and judge, and again while the machine spoils it and the scenario's ``retries`` allow it: the last
    attempt.

    Earlier ones lie in its folder ``attempts``, complete. Where a later one can't begin, the last that came to anything
    is the run again. Raises HarnessFault as ``carry_out`` does, of the first attempt.
    """
    directory, retries = prepared.job.directory, prepared.job.scenario.retries
    earlier: list[Report] = []
    while True:
        again = f"attempt {len(earlier) + 1} of {1 + retries}: " if earlier else ""
        noted = {"attempts": as_noted(earlier)} if earlier else {}
        run_id = secrets.token_hex(5) if earlier else prepared.job.run_id
        job = replace(prepared.job, foreseen={**prepared.job.foreseen, **noted}, run_id=run_id)
        attempt = replace(prepared, job=job)
        try:
            if earlier:
                _say_again(earlier[-1], directory, len(earlier), retries)
                staff.page.end()
            outcome = staff.send(attempt, f"{label}{again}", watchers)
        except (HarnessFault, KeyboardInterrupt) as fault:
            if not earlier:
                raise
            return _put_back(earlier, directory, retries, fault)
        except BaseException:
            if earlier:
                last_is_back(directory, len(earlier))
                write_report(earlier[-1], directory)
            raise
        with _records_are_safe(outcome.sealed.directory):
            result = conclude(outcome.sealed, prepared.promises)
        moved = (
            outcome.sealed.directory != directory or not outcome.sealed.whole
        )  # its disk is full: there is no room for another attempt
        if len(earlier) == retries or outcome.interrupted or moved or not spoiled(result):
            return outcome, result
        if not _set_apart(directory, len(earlier) + 1, retries):
            return outcome, result
        earlier.append(result)


@contextlib.contextmanager
def _records_are_safe(directory: RunDirectory) -> Iterator[None]:
    """Ctrl-C while a sealed run is judged or its report written costs the report alone, and so does a metric of an
    outside package that fails.

    Raises HarnessFault, which says so.
    """
    try:
        yield
    except PluginError as error:
        safe = f"the records are whole in {directory.path}: then `plimsoll report {directory.path}` judges them"
        raise HarnessFault(f"{error}; {safe}") from None
    except KeyboardInterrupt:
        raise HarnessFault(
            f"interrupted while the report was made. The records are whole in {directory.path}: `plimsoll report "
            f"{directory.path}` makes it",
            ExitCode.INTERRUPTED,
        ) from None


def _set_apart(directory: RunDirectory, number: int, retries: int) -> bool:
    """Keep a spoiled attempt as a whole run directory.

    False, and a warning, where its disk has no room for another one.
    """
    try:
        keep_attempt(directory, number)
    except OSError as error:
        said = f"attempt {number} of {1 + retries} is not repeated: {directory.path} has no room ({error.strerror})"
        tell(f"warning: {said}")
        return False
    return True


def _say_again(spoilt: Report, directory: RunDirectory, number: int, retries: int) -> None:
    """Write the report of the attempt that was set apart beside its records, and say that the load is sent again."""
    kept, why = attempt_folder(directory, number), next(iter(spoilt.verdict.reasons), "no reason given")
    write_report(spoilt.model_copy(update={"run": spoilt.run.model_copy(update={"directory": str(kept.path)})}), kept)
    said = f"attempt {number} of {1 + retries}: INVALID by the generator alone ({why}); it is kept in {kept.path}."
    tell(f"{said} Sending the same schedule again")


def _put_back(
    earlier: Sequence[Report], directory: RunDirectory, retries: int, fault: HarnessFault | KeyboardInterrupt
) -> tuple[Outcome, Report]:
    """The next attempt could not begin, so the one before it is the run again: say so, and why."""
    number = len(earlier)
    last_is_back(directory, number)
    said = (
        f"attempt {number + 1} of {1 + retries} could not begin ({could_not_begin(fault)}). "
        f"Attempt {number}, which was INVALID, is the run again, in {directory.path}"
    )
    tell(said)
    stopped = isinstance(fault, KeyboardInterrupt) or fault.code == ExitCode.INTERRUPTED
    return Outcome(open_sealed(directory.path), interrupted=stopped), earlier[-1]


def carry_out(
    prepared: Prepared, label: str = "", watchers: Sequence[Watcher] = (), workforce: Workforce | None = None
) -> Outcome:
    """Send the load and seal the run directory, with progress on stderr. Judges and prints no result.

    ``label`` stands before the scenario's name in the progress display; ``watchers`` look on besides it; ``workforce``
    sends (None: processes of this host). Raises HarnessFault for what went wrong before the first query.
    """
    scenario = prepared.job.scenario
    console = Console(stderr=True)
    display = LiveDisplay(console, f"{label}{scenario.name} ({scenario.kind})")
    notice = partial(_notice, console)
    _keep(prepared.promises, prepared.job.directory, notice)
    try:
        if workforce is None and (alone := _alone(prepared)):
            raise HarnessFault(alone)
        if scenario.mix and workforce is not None:
            raise HarnessFault(
                f"{scenario.name}: an agent sends shards of one plan, and a mix has a plan for each of its "
                f"{len(scenario.mix)} classes. Leave --locust-master out, and give its classes more workers"
            )
        for part in prepared.job.classes.values():
            part.directory.segments.mkdir(parents=True, exist_ok=True)
        parts = {name: _checked(one, notice, workforce) for name, one in prepared.job.classes.items()}
        job = replace(prepared.job, classes=parts) if parts else _checked(prepared.job, notice, workforce)
        outcome = interrupts.run(Coordinator(job, notice, (Progress(display), *watchers), workforce).run())
    except BaseException:
        jobs = (*prepared.job.classes.values(), prepared.job)
        for job in jobs:
            _tidy(job.directory)
        if any(segment_files(job.directory.segments) for job in jobs):  # a defect of ours, after t0
            folder = prepared.job.directory.path
            notice(f"what was measured is in {folder}: `plimsoll report {folder}` seals it and makes its report")
        raise
    finally:
        display.close()
    for note in outcome.sealed.notes:
        notice(f"warning: {note}")
    if outcome.sealed.directory != prepared.job.directory:
        _keep(prepared.promises, outcome.sealed.directory, notice)
    return outcome


def _alone(prepared: Prepared) -> list[str]:
    """What is promised of agents, where there are none."""
    own = prepared.job.scenario.told_apart_by()
    limits = (*prepared.promises.objectives, *(limit for slo in prepared.promises.slos for limit in slo.limits))
    return [
        f"{one}: one host sends this run, and no row has the label {label}. Add --locust-master, or leave it out"
        for one in limits
        for label in one.labels
        if label in (AGENT, REGION) and label not in own
    ]


def _checked(job: Job, notice: Callable[[str], None], workforce: Workforce | None) -> Job:
    """The job with what this host can hold of it. Raises HarnessFault for what can't work."""
    scenario = job.scenario
    plan = extent_of(scenario)  # once: a pass over all queries
    if said := check_disk(job, plan=plan):
        notice(said)
    # What this host can hold says nothing of the hosts of a fleet.
    checked = check_host(job, plan=plan) if workforce is None else HostCheck((), {})
    told = [*scenario.notes(), *checked.warnings]
    for text in told:
        notice(f"warning: {text}")
    manifest = checked.manifest if not told else {**checked.manifest, "foreseen": told}
    job = replace(job, foreseen={**job.foreseen, **manifest})
    if checked.workers in (None, scenario.workers):
        return job
    notice(
        f"{checked.workers} workers, because the calibration of this machine asks for them (--workers says otherwise)"
    )
    chosen = {"workers": checked.workers}
    return replace(job, scenario=scenario.model_copy(update=chosen), public={**job.public, **chosen})


def _keep(promises: Promises, directory: RunDirectory, notice: Callable[[str], None]) -> None:
    """Before the load: a run that fills the disk has its promises all the same."""
    try:
        keep(promises, directory)
    except OSError as error:
        notice(
            f"warning: the objectives could not be written to {directory.path} ({error.strerror}); give them to gate "
            "again"
        )


def _notice(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _tidy(directory: RunDirectory) -> None:
    """Nothing was measured: leave no empty run directory behind, but keep a log that says something. Rows that stay
    with agents need what lies here.
    """
    begun = ahead.read(directory.path)
    if begun is not None and begun.announced and begun.manifest.get("leave_rows"):
        return
    for log in (directory.worker_log, directory.server_log):
        if log.exists() and not log.stat().st_size:
            log.unlink()
    if not segment_files(directory.segments) and not directory.file("manifest.json").is_file():
        for name in (PROMISES, BEGUN, "plan.npz", "scenario.yaml", "originals.parquet", "server.samples"):
            directory.file(name).unlink(missing_ok=True)
    try:
        directory.segments.rmdir()
        if (directory.path / FOLDER).is_dir():
            (directory.path / FOLDER).rmdir()
        directory.path.rmdir()
    except OSError:
        return  # it holds a log: that is the user's to read, and the next run there takes its place
