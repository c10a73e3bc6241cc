"""What a test holds: ``Plimsoll`` sends load, and ``Run`` is the result that a test asserts on.

The same code as the command line's measures and judges. A verdict becomes pytest's own outcome, with the objectives as
its message and no traceback.
"""

from __future__ import annotations

import asyncio
import fcntl
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.process.writing import log
from plimsoll.harness.run.job import prepare
from plimsoll.harness.run.judged import judge, write_report
from plimsoll.harness.run.promises import Asked, again
from plimsoll.harness.run.rundir import Sealed
from plimsoll.harness.run.salvage import open_run
from plimsoll.harness.series.one_run import carry_through
from plimsoll.reports.documents.words import lines
from plimsoll.reports.report import Report
from plimsoll.scenarios.flags import Flags
from plimsoll.scenarios.text.document import ScenarioError
from plimsoll.slo.metrics.plugin import PluginError
from plimsoll.slo.records.records import Records


@dataclass(slots=True)
class Run:
    """One sealed run. Nothing is judged until it is asked for."""

    sealed: Sealed
    _skip_inconclusive: bool
    _record: Callable[[str], None]

    @property
    def directory(self) -> Path:
        """The run directory, for `plimsoll report`."""
        return self.sealed.directory.path

    @property
    def records(self) -> Records:
        """Every request."""
        return self.sealed.told_apart

    def report(
        self,
        *slo: str | Path,
        goodput: str | None = None,
        preset: str | Sequence[str] = (),
        confidence: str | float | None = None,
        production_rate: float | None = None,
    ) -> Report:
        """The report against these objectives (expressions, files, presets), or against those that the run was made
        with.

        Fails the test for objectives that can't be read, every mistake at once.
        """
        presets = [preset] if isinstance(preset, str) else list(preset)
        sure = None if confidence is None else str(confidence)
        asked = Asked([str(one) for one in slo], goodput, presets, sure, production_rate)
        with _as_failure():
            promises, errors = again(asked, self.sealed)
            if errors:
                raise HarnessFault(errors)
            result = judge(self.sealed, promises)
        write_report(result, self.sealed.directory)
        return result

    def assert_slo(
        self,
        *slo: str | Path,
        goodput: str | None = None,
        preset: str | Sequence[str] = (),
        confidence: str | float | None = None,
    ) -> Report:
        """Fail the test unless every objective is shown to hold; give the report.

        INCONCLUSIVE fails too (no data is not a pass), or skips with ``plimsoll_inconclusive = skip``. INVALID fails,
        whatever the numbers say. Without a single objective the test fails: it would assert nothing.
        """
        result = self.report(*slo, goodput=goodput, preset=preset, confidence=confidence)
        text = "\n".join(lines(result))
        self._record(f"{text}\n{self.directory / 'report.html'}")
        if not result.verdict.objectives:
            pytest.fail("no objective to assert: give assert_slo one, or put some into the scenario", pytrace=False)
        outcome = result.verdict.outcome
        if outcome == "INCONCLUSIVE" and self._skip_inconclusive:
            pytest.skip(text)
        if outcome != "PASS":
            pytest.fail(text, pytrace=False)
        return result


@dataclass(slots=True)
class Plimsoll:
    """The fixture. ``flags`` are defaults of every run: what the marker and the options say."""

    flags: dict[str, Any]
    folder: Path
    lock: Path
    skip_inconclusive: bool
    record: Callable[[str], None]
    _runs: int = field(default=0, init=False)

    def run(
        self,
        scenario: str | Path | None = None,
        *,
        slo: str | Path | Sequence[str | Path] = (),
        out: str | Path | None = None,
        **flags: Any,
    ) -> Run:
        """Send the load of a scenario (a file, a ready-made one's name, or None with flags) and seal it.

        ``flags`` are those of `plimsoll run` with underscores: ``url``, ``rate``, ``duration``, ``output_tokens``,
        ``headers`` (a mapping), ``options`` (a mapping) and so on. One run at a time, also under xdist: load tests
        beside each other measure each other. Fails the test with every mistake in the input, or when the endpoint can't
        be reached.
        """
        self._runs += 1
        folder = Path(out) if out is not None else self.folder / f"run-{self._runs}"
        objectives = [slo] if isinstance(slo, str | Path) else list(slo)
        asked = Asked([str(one) for one in objectives])
        _outside_a_loop()
        name = None if scenario is None else str(scenario)
        given: Any = {**self.flags, **flags}
        with _as_failure(), _alone(self.lock):
            _all_known(given)
            prepared = prepare(name, given, asked, (), folder, command=["pytest"])
            outcome, _ = carry_through(prepared)
        if outcome.interrupted:
            raise KeyboardInterrupt
        return Run(outcome.sealed, self.skip_inconclusive, self.record)

    def open(self, run_directory: str | Path) -> Run:
        """A run that was made before."""
        with _as_failure():
            return Run(open_run(Path(run_directory)), self.skip_inconclusive, self.record)


@contextmanager
def _as_failure() -> Iterator[None]:
    """What the user got wrong fails the test with every message, and no traceback through us."""
    try:
        yield
    except (HarnessFault, ScenarioError, PluginError) as fault:
        # Not pytest.fail, which would show the fault once more as the failure's context.
        raise pytest.fail.Exception("\n".join(fault.errors), pytrace=False) from None


def _all_known(flags: Mapping[str, Any]) -> None:
    """A misspelt flag must not run another test than the one that was meant."""
    known = [*Flags.__annotations__]
    errors = []
    for name in flags:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"Did you mean {near[0]}? " if near else ""
            errors.append(f"{name}: no flag of `plimsoll run`. {hint}Known: {', '.join(known)}")
    if errors:
        raise HarnessFault(errors)


def _outside_a_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    pytest.fail("plimsoll.run needs a plain test function: this one runs inside an event loop", pytrace=False)


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """One load test at a time for each project on this machine, whatever process it is in."""
    name = sha256(str(root).encode()).hexdigest()[:16]
    with log(Path(tempfile.gettempdir()) / f"plimsoll-{name}.lock") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
