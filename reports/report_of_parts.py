"""The report of a run whose rows stay with those who sent it: what ``plimsoll.slo.parts`` can tell, as an ordinary
report.

The timeline has no percentiles; charts and sections that need rows are left out. Bring the rows together, and the run
has them.
"""

from collections.abc import Mapping
from typing import Any

from plimsoll.reports.parts.charts import Charts, timeline_of_parts
from plimsoll.reports.parts.judgement import counts_part, throughput_part, validity_part, verdict_part, warnings_part
from plimsoll.reports.parts.measures import of_parts
from plimsoll.reports.parts.provenance import attempts_part, run_part
from plimsoll.reports.report import Report
from plimsoll.reports.sections.failures import failures_of_parts
from plimsoll.slo.judge import Judged
from plimsoll.slo.parts.judge_parts import JudgedParts
from plimsoll.slo.promises import Promises
from plimsoll.slo.validity.generator import GeneratorFacts


def build(
    manifest: Mapping[str, Any],
    scenario: Mapping[str, Any],
    found: JudgedParts,
    facts: GeneratorFacts,
    promises: Promises,
    kept: str,
) -> Report:
    """As ``plimsoll.reports.report.build``. ``kept``: one sentence on where the rows are."""
    judged = Judged(
        promises, promises.objectives, facts, found.validity, found.verdict, found.goodput, found.throughput,
        found.counts, cancelled=None, budgets=(), steadiness=None, accuracy=None, anatomy=None, speech=None, peers={},
    )  # fmt: skip
    metrics, histograms, distributions = of_parts(found.rows, frozenset(one.indicator for one in promises.objectives))
    options = (scenario.get("target") or {}).get("options") or {}
    return Report(
        run=run_part(manifest, scenario, facts.open_loop).model_copy(update={"kept": kept}),
        validity=validity_part(judged, manifest),
        verdict=verdict_part(judged),
        metrics=metrics,
        charts=Charts(distributions=distributions, timeline=timeline_of_parts(found.rows)),
        histograms=histograms,
        failures=failures_of_parts(found.rows),
        throughput=throughput_part(judged),
        counts=counts_part(judged.counts),
        attempts=attempts_part(manifest, found.verdict.outcome, found.verdict.reasons),
        warnings=[*manifest.get("foreseen", ()), *promises.notes, *warnings_part(judged, metrics, [], options)],
        confidence=found.verdict.confidence,
    )
