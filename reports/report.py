"""Report: all that a renderer may show, as one frozen value with a versioned schema.

``report.json`` is this value and nothing else, so whatever a page or a table shows can be scripted on. Keys
are a public contract: a removed or renamed key needs a new schema name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from pydantic import BaseModel, Field

from plimsoll.reports.mlperf.part import Mlperf, mlperf_part
from plimsoll.reports.parts.chart_parts import Charts
from plimsoll.reports.parts.parts import Counts, Metric, Run, Text, Throughput, Validity, Verdict
from plimsoll.reports.sections.accuracy import Accuracy, accuracy_part
from plimsoll.reports.sections.anatomy import Anatomy, anatomy_part
from plimsoll.reports.sections.attempts import Attempt, attempts_part
from plimsoll.reports.sections.budgets import BudgetPart, budgets
from plimsoll.reports.sections.cancellation import Cancellation, cancellation_part, said
from plimsoll.reports.sections.failures import Failures, failures_part
from plimsoll.reports.sections.heatmap import heatmap
from plimsoll.reports.sections.judgement import counts_part, throughput_part, validity_part, verdict_part, warnings_part
from plimsoll.reports.sections.measures import HEARD, LIVE, Measures, measures
from plimsoll.reports.sections.own_error import generator_error_part
from plimsoll.reports.sections.peers import Peer, peers
from plimsoll.reports.sections.prompt_length import by_prompt
from plimsoll.reports.sections.provenance import run_part
from plimsoll.reports.sections.slowest import Slowest, slowest_part
from plimsoll.reports.sections.speech import Speech, speech_part
from plimsoll.reports.sections.steadiness import SteadinessPart, steadiness
from plimsoll.reports.sections.timeline import timeline
from plimsoll.slo.metrics.speech import without_sounds
from plimsoll.slo.objectives.budgets.accounting import PERIOD_NS, ledger_of
from plimsoll.slo.objectives.goodput import goodput, throughput
from plimsoll.slo.objectives.objective import Objective
from plimsoll.slo.objectives.openslo import Slo
from plimsoll.slo.records.records import Records
from plimsoll.slo.statistics.confidence import Probability
from plimsoll.slo.statistics.share import Course
from plimsoll.slo.validity.validity import GeneratorFacts, assess
from plimsoll.slo.validity.validity import Validity as Health
from plimsoll.slo.verdict.accuracy import Scores, split
from plimsoll.slo.verdict.verdict import course_of, judge

SCHEMA: Final = "plimsoll.report/1"

#: Printed in every report, because the same data has other percentiles under other definitions.
PERCENTILE_DEFINITION = (
    "nearest rank: the p-th percentile of n values is the ceil(p*n)-th smallest; "
    "failed, timed-out, unfinished and unsent requests count as infinitely slow"
)


class Report(BaseModel, frozen=True, extra="forbid"):
    """One run, judged. Times are integer nanoseconds; an infinite number is null (see ``failed`` beside
    it).
    """

    schema_: Literal["plimsoll.report/1"] = Field(default=SCHEMA, alias="schema")
    run: Run = Run()
    validity: Validity = Validity()
    verdict: Verdict = Verdict()
    exit_code: int | None = Field(
        default=None,
        description="of the command that judged: 0 pass, 1 fail, 3 inconclusive, 4 invalid, 130 interrupted; `report` gives gate's",
    )
    metrics: dict[str, Metric] = Field(default_factory=dict)
    throughput: Throughput = Throughput()
    counts: Counts = Counts()
    warnings: list[Text] = Field(default_factory=list)
    attempts: list[Attempt] = Field(
        default_factory=list,
        description="every attempt, this one last, where the machine spoiled earlier ones; empty: it was made once",
    )
    confidence: float = 0.95
    percentile_definition: str = PERCENTILE_DEFINITION
    charts: Charts = Charts()
    histograms: dict[str, str] = Field(
        default_factory=dict, description="HdrHistogram V2 compressed, base64, finite values only, by metric"
    )
    budgets: list[BudgetPart] = Field(
        default_factory=list, description="the error budget of every objective on a share, and its alerts"
    )
    steadiness: SteadinessPart | None = Field(default=None, description="warm-up and drift; null: too few requests")
    peers: dict[str, Peer] = Field(
        default_factory=dict, description="what other tools would have printed, by their names"
    )
    failures: Failures = Failures()
    slowest: Slowest = Slowest()
    anatomy: Anatomy | None = Field(default=None, description="where the time went, by stage; null: no server said")
    accuracy: Accuracy | None = Field(default=None, description="answers against references; null: none were compared")
    cancellation: Cancellation | None = Field(
        default=None, description="requests dropped on purpose; null: the scenario drops none"
    )
    speech: Speech | None = Field(default=None, description="words, playback and audio; null: no audio went either way")
    mlperf: Mlperf | None = Field(default=None, description="the run in MLPerf LoadGen's terms; null: another kind")

    def document(self) -> dict[str, Any]:
        """The report as plain dicts and lists with the public key names."""
        return self.model_dump(mode="json", by_alias=True)


def json_schema() -> dict[str, Any]:
    """JSON schema of ``report.json``."""
    schema = Report.model_json_schema(by_alias=True, mode="serialization")
    schema["$id"] = SCHEMA
    return schema


def build(
    manifest: Mapping[str, Any],
    scenario: Mapping[str, Any],
    records: Records,
    facts: GeneratorFacts,
    objectives: Sequence[Objective],
    confidence: Probability = "0.95",
    slos: Sequence[Slo] = (),
    production_per_s: float | None = None,
    notes: Sequence[str] = (),
    accuracy: Scores | None = None,
) -> Report:
    """Judge ``records`` and gather all that a renderer may show.

    ``manifest`` and ``scenario`` are the documents of the run directory (see
    ``plimsoll.reports.sections.provenance.run_part`` for the keys that are read); ``objectives`` hold both scopes;
    ``confidence`` is of each bound alone, strictly between 0 and 1 (else ValueError). ``slos`` are those of OpenSLO
    documents; ``production_per_s``: requests per second in production, for budgets by events; ``notes``: warnings of the promises;
    ``accuracy``: the scores of an accuracy run. The same arguments give the same report: no clock, host or file is read.
    """
    objectives, compared = split(objectives, accuracy)
    seen = _health(records, facts, objectives, slos, bool(compared))
    judged = judge(records, objectives, seen, confidence, [*slos, *compared])
    good = goodput(records, objectives)
    measured = measures(records, frozenset(objective.indicator for objective in objectives))
    # A ramp or a spike is meant to drift.
    steady = steadiness(records, constant_load=not (facts.open_loop and facts.process is None))
    dropped = cancellation_part(records)
    own = [*manifest.get("foreseen", ()), *notes, *said(dropped, records)]
    return Report(
        run=run_part(manifest, scenario, facts.open_loop),
        validity=validity_part(seen, facts, judged, generator_error_part(manifest, seen, facts)),
        verdict=verdict_part(judged, good, {str(slo.promise): slo.title for slo in slos if slo.title != slo.name}),
        metrics=dict(measured.metrics),
        throughput=throughput_part(throughput(records), good),
        counts=counts_part(records),
        attempts=attempts_part(manifest, judged.outcome, judged.reasons),
        warnings=[*own, *warnings_part(records, seen, measured.metrics, steady, _options(scenario))],
        confidence=judged.confidence,
        charts=_charts(records, measured),
        histograms=dict(measured.histograms),
        budgets=_budgets(records, objectives, slos, production_per_s, course_of(records, seen)),
        steadiness=steady,
        peers=peers(without_sounds(records), objectives),
        accuracy=accuracy_part(accuracy, confidence),
        cancellation=dropped,
        speech=speech_part(records, seen.live_audio, manifest, scenario, confidence),
        mlperf=mlperf_part(records, facts, manifest, scenario, objectives, seen),
        **_requests(records, manifest, scenario),
    )


def _health(
    records: Records, facts: GeneratorFacts, objectives: Sequence[Objective], slos: Sequence[Slo], compared: bool
) -> Health:
    """The generator's part of the run, under everything that is promised."""
    judged = compared or bool(slos) or any(one.scope == "run" for one in objectives)
    return assess(records, facts, [*objectives, *(limit for slo in slos for limit in slo.limits)], judged=judged)


def _requests(records: Records, manifest: Mapping[str, Any], scenario: Mapping[str, Any]) -> dict[str, Any]:
    """The parts that name single requests."""
    run_id = str(manifest.get("run_id", ""))
    return {
        "failures": failures_part(records, run_id),
        "slowest": slowest_part(records, run_id, _ids_sent(scenario)),
        "anatomy": anatomy_part(records),
    }


def _budgets(
    records: Records,
    objectives: Sequence[Objective],
    slos: Sequence[Slo],
    production_per_s: float | None,
    along: Course,
) -> list[BudgetPart]:
    """One budget at a time: the ledger of fifty million gaps is most of a gigabyte."""
    limits = [objective for objective in objectives if objective.scope == "request"]
    found: list[BudgetPart] = []
    for objective in objectives:
        ledger = None
        if objective.scope == "run":
            period = objective.period_ns or PERIOD_NS
            ledger = ledger_of(objective, records, period, limits, production_per_s, along)
        if ledger is not None:
            found += budgets(records, [ledger])
    for slo in slos:
        found += budgets(records, [slo.ledger(records, along)])
    return found


def _charts(records: Records, measured: Measures) -> Charts:
    """The data of every chart; the maps are of what is waited for: speech, else the first token, else the whole answer."""
    drawn = timeline(without_sounds(records), measured.banded)
    name = next((name for name in (*LIVE, *HEARD, "ttft") if name in measured.banded), "latency")
    charts = Charts(curves=dict(measured.curves), distributions=dict(measured.distributions), timeline=drawn)
    if drawn is None or name not in measured.banded:
        return charts
    values, row, unit = measured.banded[name]
    return charts.model_copy(
        update={
            "heatmap": heatmap(name, values, records["due_ns"][row], unit, drawn),
            "by_prompt": by_prompt(name, values, row, unit, records),
        }
    )


def _ids_sent(scenario: Mapping[str, Any]) -> bool:
    """Whether the target was sent an ``x-request-id``."""
    return bool(_options(scenario).get("request_id", True))


def _options(scenario: Mapping[str, Any]) -> Mapping[str, Any]:
    """The target's options, as far as the scenario gives them."""
    return (scenario.get("target") or {}).get("options") or {}
