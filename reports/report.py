"""Report: all that a renderer may show, as one frozen value with a versioned schema.

``report.json`` is this value and nothing else, so whatever a page or a table shows can be scripted on. Keys
are a public contract: a removed or renamed key needs a new schema name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from pydantic import BaseModel, Field

from reports.judgement import counts_part, throughput_part, validity_part, verdict_part, warnings_part
from reports.measures import measures
from reports.own_error import generator_error_part
from reports.parts import Charts, Counts, Metric, Run, Text, Throughput, Validity, Verdict
from reports.provenance import run_part
from reports.timeline import timeline
from slo.goodput import goodput, throughput
from slo.objective import Objective
from slo.records import Records
from slo.validity import GeneratorFacts, assess
from slo.verdict import judge

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
    metrics: dict[str, Metric] = Field(default_factory=dict)
    throughput: Throughput = Throughput()
    counts: Counts = Counts()
    warnings: list[Text] = Field(default_factory=list)
    confidence: float = 0.95
    percentile_definition: str = PERCENTILE_DEFINITION
    charts: Charts = Charts()
    histograms: dict[str, str] = Field(
        default_factory=dict, description="HdrHistogram V2 compressed, base64, finite values only, by metric"
    )

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
    confidence: float = 0.95,
) -> Report:
    """Judge ``records`` and gather all that a renderer may show.

    ``manifest`` and ``scenario`` are the documents of the run directory (see
    ``reports.provenance.run_part`` for the keys that are read); ``objectives`` hold both scopes;
    ``confidence`` is of each bound alone, strictly between 0 and 1 (else ValueError). The same arguments
    give the same report: no clock, host or file is read.
    """
    seen = assess(records, facts, objectives)
    judged = judge(records, objectives, seen, confidence)
    good = goodput(records, objectives)
    measured = measures(records, frozenset(objective.indicator for objective in objectives))
    metrics = dict(measured.metrics)
    return Report(
        run=run_part(manifest, scenario, facts.open_loop),
        validity=validity_part(seen, facts, judged).model_copy(
            update={"generator_error": generator_error_part(manifest, seen, facts)}
        ),
        verdict=verdict_part(judged, good),
        metrics=metrics,
        throughput=throughput_part(throughput(records), good),
        counts=counts_part(records),
        warnings=[*manifest.get("foreseen", ()), *warnings_part(records, seen, metrics)],
        confidence=judged.confidence,
        charts=Charts(
            curves=dict(measured.curves),
            distributions=dict(measured.distributions),
            timeline=timeline(records, measured.banded),
        ),
        histograms=dict(measured.histograms),
    )
