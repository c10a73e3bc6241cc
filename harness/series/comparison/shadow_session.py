"""``plimsoll shadow``: one run whose queries go to two endpoints at the same due instant; and ``plimsoll replay
--reference``: one run against the answers of another.

The shadow is a class of its own, which the verdict leaves out (``copied``). What its answers and times show beside the
primary's stands in ``drift.json``. Here is what runs and says so; ``plimsoll.slo.comparison.drift`` decides.
"""

from __future__ import annotations

import contextlib
import shutil
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import OF_OUTCOME, ExitCode
from plimsoll.harness.generator.outputs import FILE as ANSWERS
from plimsoll.harness.generator.outputs import Kept, answers_of
from plimsoll.harness.host.manifest import package_version
from plimsoll.harness.run.coordinator import Outcome
from plimsoll.harness.run.job import Prepared, find_scenario, hold, prepare
from plimsoll.harness.run.judged import write_report
from plimsoll.harness.run.mixture import FOLDER, IDS
from plimsoll.harness.run.promises import Asked, Promises
from plimsoll.harness.run.rundir import open_sealed
from plimsoll.harness.series.comparison.arms import in_one_run
from plimsoll.harness.series.ledger import Session
from plimsoll.harness.series.one_run import Staff, carry_through
from plimsoll.harness.series.publish import publish
from plimsoll.reports.documents import drift as documents
from plimsoll.reports.report import Report
from plimsoll.reports.sections.failures import failures_part
from plimsoll.scenarios.plugins import kinds
from plimsoll.scenarios.samples.payload import payload_digest
from plimsoll.scenarios.spec import Scenario, ScenarioError
from plimsoll.slo.comparison.drift import Comparator, Drift, comparator, drift, later, portion
from plimsoll.slo.objectives.selector import Condition, selected
from plimsoll.slo.records.records import Records
from plimsoll.slo.statistics.distribution import exact
from plimsoll.slo.validity.validity import assess
from plimsoll.slo.verdict.accuracy import Answer

FILE, PAGE = "drift.json", "drift.html"
PRIMARY, SHADOW = "primary", "shadow"
#: Queries that differ are shown up to this many.
_EXAMPLES = 5
#: From good to bad: the run is what its worst part is.
_WORSE = ("PASS", "INCONCLUSIVE", "FAIL", "INVALID")

Pair = tuple[tuple[int, int], Answer | None, Answer | None]


def question(compare: str, differs: str, errors: list[str]) -> tuple[Comparator, Fraction]:
    """What ``--compare`` and ``--differs`` mean; what is wrong with them goes to ``errors``."""
    how, limit = Comparator("exact", lambda one, other: None), Fraction(1, 100)
    try:
        how = comparator(compare)
    except ValueError as error:
        errors.append(f"--compare: {error}")
    try:
        limit = portion(differs)
        if not 0 < limit < 1:
            errors.append(f"--differs: {differs} is not between 0% and 100%: no number of answers shows either")
    except ValueError as error:
        errors.append(f"--differs: {error}")
    return how, limit


def shadow(
    scenario: str, rate: float | None, urls: tuple[str | None, str | None], load: Mapping[str, Any], slo: Asked,
    how: tuple[str, str], session: Session,
) -> int:  # fmt: skip
    """Run, compare, publish. Returns the exit code.

    ``urls``: of primary and shadow; ``load``: what goes over the scenario; ``how``: ``--compare`` and ``--differs``.
    Raises HarnessFault with every error of what was asked, before anything is sent.
    """
    outputs, errors = session.outputs(documents.FORMATS, "a shadow")
    asked, shares = question(*how, errors), {PRIMARY: "100%", SHADOW: "copy"}
    try:
        found = hold(scenario)
    except HarnessFault as fault:
        raise HarnessFault([*errors, *fault.errors]) from None
    assert found is not None  # it has a name
    if not in_one_run(found, SHADOW, dict(zip(shares, urls, strict=True)), shares, errors):
        raise HarnessFault(errors)
    found["answers"], params = True, {} if rate is None else {"rate": rate}
    found["params"] = {**(found.get("params") or {}), **params}
    with contextlib.suppress(ScenarioError):  # ``prepare`` tells all of it
        errors += unfit(find_scenario(found, load))
    prepared = prepare(found, load, slo, [], session.out, found=errors)
    outcome, report = carry_through(prepared, staff=session.staff)
    directory = outcome.sealed.directory
    write_report(report, directory)
    first, second = _paired(outcome.sealed.records)
    folders = (directory.path / FOLDER / name for name in (PRIMARY, SHADOW))
    kept = [{one.key: one.answer for one in answers_of(folder) or ()} for folder in folders]
    keys = zip(first["query_id"].tolist(), first["sample_ix"].tolist(), strict=True)
    pairs = [(key, kept[0].get(key), kept[1].get(key)) for key in keys]
    times = [later(name, first, second, prepared.promises.confidence) for name in ("latency", "ttft")]
    broken, warnings = _of_shadow(outcome)
    told = {"later": [documents.later_part(one) for one in times if one.n], "warnings": warnings}
    said = _said("shadow", asked, pairs, outcome, report, prepared.promises, broken, **told)
    return _published(said, session, outputs, directory.path)


def held_against(
    load: Callable[..., Prepared], reference: Path, how: tuple[str, str], formats: Sequence[str], errors: list[str],
    as_json: bool, staff: Staff,
) -> int:  # fmt: skip
    """Send a load, hold its answers against those of the run directory ``reference``, publish. Returns the exit code.

    ``how``: as ``--compare`` and ``--differs`` say. Raises HarnessFault with every error, before anything is sent.
    """
    session = Session(None, formats, False, as_json, staff, errors)
    outputs, errors = session.outputs(documents.FORMATS, "a comparison of answers")
    asked, theirs = question(*how, errors), defaultdict[int, list[Answer]](list)
    known = _answers_of(reference, errors)
    prepared = load(found=errors)
    try:
        _check_alike(prepared, reference)
    except HarnessFault:
        shutil.rmtree(prepared.job.directory.path, ignore_errors=True)  # it holds nothing yet
        raise
    for one in known:
        if one.answer is not None:
            theirs[one.sample].append(one.answer)
    outcome, report = carry_through(prepared, staff=session.staff)
    directory, rows = outcome.sealed.directory, outcome.sealed.records.measured()
    write_report(report, directory)
    kept = {one.key: one for one in answers_of(directory.path) or ()}
    used: dict[int, int] = defaultdict(int)
    pairs: list[Pair] = []
    rows = rows.select(np.argsort(rows["due_ns"], kind="stable"))
    for key in zip(rows["query_id"].tolist(), rows["sample_ix"].tolist(), strict=True):
        mine = kept.get(key)
        sample = -1 if mine is None else mine.sample
        answers = theirs.get(sample, [])
        expected = answers[used[sample] % len(answers)] if answers else None
        pairs.append((key, expected, None if mine is None else mine.answer))
        used[sample] += 1
    said = _said("reference", asked, pairs, outcome, report, prepared.promises, reference=str(reference))
    return _published(said, session, outputs, directory.path)


def _answers_of(path: Path, errors: list[str]) -> list[Kept]:
    """The answers of that run directory; why there are none goes to ``errors``."""
    if not path.is_dir():
        errors.append(f"--reference: there is no {path}. Give the directory of a run with --keep-answers")
        return []
    kept = answers_of(path)
    if kept is None:
        inside = [one for one in sorted((path / FOLDER).glob("*")) if (one / ANSWERS).is_file()]
        remedy = f"Give one class of it, such as {inside[0]}" if inside else "Make it with --keep-answers"
        errors.append(f"--reference: {path} kept no answers. {remedy}")
    return kept or []


def _check_alike(prepared: Prepared, path: Path) -> None:
    """Answers to the same samples can be compared. Raises HarnessFault where they are to others."""
    job, sealed = prepared.job, open_sealed(path)
    there, prompts = sealed.scenario, sealed.manifest.get("payloads_sha256")
    if job.classes:
        raise HarnessFault(f"--reference: {job.scenario.name} is a mix of {', '.join(job.classes)}. Name one: --class")
    if wrong := [name for name in ("source", "seed") if there.get(name) != job.public.get(name)]:
        raise HarnessFault(
            f"--reference: {path} has another {' and '.join(wrong)} than this run, so it answers other prompts. "
            "Replay that run, or one of the same source and seed"
        )
    if prompts not in (None, payload_digest(job.scenario.source_object())):
        raise HarnessFault(
            f"--reference: {path} answers other prompts: the files of its source have changed since. Bring them back, "
            "or make that run again"
        )


def unfit(scenario: Scenario) -> list[str]:
    """Why the queries of a load can't go to two endpoints at the same instant."""
    one, then = scenario.mix[PRIMARY], "a shadow gets each query when the primary does, and"
    closed = not one.open_loop or kinds()[one.kind].one_query
    elsewhere = one.client is not None and one.client.hedge is not None and one.client.hedge.to is not None
    waits = "session" in one.told_apart_by()
    wrong = {
        f"{then} with kind {one.kind} the answers decide when that is. Use kind server or replay": closed,
        f"{then} a turn of a session waits for the answer before it. Use queries that stand alone": waits,
        "mode accuracy compares with references. Leave it out": one.mode == "accuracy",
        "cancel takes answers away that a shadow compares. Leave it out": one.cancel is not None,
        f"keep {scenario.keep} drops answers that a shadow compares. Leave it out": scenario.keep != "all",
        "client.hedge.to would send the shadow's queries elsewhere. Leave it out": elsewhere,
    }
    return [f"{scenario.name}: {text}" for text, so in wrong.items() if so]


def _paired(records: Records) -> tuple[Records, Records]:
    """The measured rows of primary and shadow, row i of both the same query, in order of due time."""
    parts = [selected(records.measured(), (Condition("class", "=", (name,)),)) for name in (PRIMARY, SHADOW)]
    parts = [one.with_columns(query_id=one["query_id"] % IDS) for one in parts]
    width = int(records["sample_ix"].max(initial=0)) + 1
    first, second = (one["query_id"] * width + one["sample_ix"] for one in parts)
    _, *places = np.intersect1d(first, second, assume_unique=True, return_indices=True)
    order = np.argsort(parts[0]["due_ns"][places[0]], kind="stable")
    return parts[0].select(places[0][order]), parts[1].select(places[1][order])


def _of_shadow(outcome: Outcome) -> tuple[list[str], list[str]]:
    """What our generator did wrong to the shadow, which spoils the comparison; and what to know about its times and its
    failures.
    """
    sealed = outcome.sealed
    rows = selected(sealed.records, (Condition("class", "=", (SHADOW,)),))
    checks = [one for one in assess(rows, sealed.classes[SHADOW]).checks if not one.ok]
    spoilt = [one for one in checks if one.cause != "endpoint" and one.name != "lag"]
    told = [[f"of the shadow: {one.detail}" for one in some] for some in (spoilt, checks)]
    failed = failures_part(rows, "").kinds[:_EXAMPLES]
    return told[0], [*(f"of the shadow: {one.count} failed: {one.status} {one.text}" for one in failed), *told[1]]


def _said(
    kind: Literal["shadow", "reference"], asked: tuple[Comparator, Fraction], pairs: Sequence[Pair], outcome: Outcome,
    report: Report, promises: Promises, broken: Sequence[str] = (), **more: Any,
) -> documents.DriftReport:  # fmt: skip
    """What the answers show, and with the run's own verdict the outcome."""
    (how, limit), own = asked, report.verdict.outcome
    found = drift([(one, other) for _, one, other in pairs], how, limit, promises.confidence)
    told = documents.drift_part(found, how.text, float(limit), _examples(found, pairs))
    word: documents.Word = max(("INVALID" if broken else told.outcome, own), key=_WORSE.index)
    why = report.verdict.reasons if own != "PASS" else ["see report.html beside this one"]
    alone = "the primary alone" if kind == "shadow" else "the run itself"
    reasons = [documents.said(told), *(f"{alone}: {own}, {text}" for text in why)]
    if _WORSE.index(own) > _WORSE.index(told.outcome):
        reasons = [*reasons[1:], reasons[0]]
    if outcome.interrupted:
        word, broken = "INTERRUPTED", ["stopped by the user before the end"]
    return documents.DriftReport(
        name=str(outcome.sealed.scenario.get("name", "")), kind=kind, outcome=word, reasons=[*broken, *reasons],
        confidence=float(exact(promises.confidence)), primary=own, drift=told, run=str(outcome.sealed.directory.path),
        exit_code=int(OF_OUTCOME.get(word, ExitCode.INTERRUPTED)), plimsoll=package_version(), **more,
    )  # fmt: skip


def _examples(found: Drift, pairs: Sequence[Pair]) -> list[documents.ExamplePart]:
    return [
        documents.ExamplePart(
            query_id=key[0], sample_ix=key[1], reference=documents.shown(one), answer=documents.shown(other)
        )
        for key, one, other in (pairs[place] for place in found.places[:_EXAMPLES])
    ]


def _published(said: documents.DriftReport, session: Session, outputs: Sequence[Any], path: Path) -> int:
    own = {path / FILE: "json", path / PAGE: "html"}
    remedy = "Make room, or name a folder that you may write"
    return publish(said, documents.FORMATS, documents.FORMATS.terminal, outputs, own, remedy, as_json=session.as_json)
