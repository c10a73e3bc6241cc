"""Report: all that a renderer may show, as one frozen value with a versioned schema.

``report.json`` is this value and nothing else, so whatever a page or a table shows can be scripted on. Keys are a
public contract: a removed or renamed key needs a new schema name.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Final, Literal

from pydantic import BaseModel, Field

from plimsoll.reports.blocks.section import JudgedRun, sections
from plimsoll.reports.parts.charts import Charts, by_prompt, heatmap, timeline
from plimsoll.reports.parts.judgement import (
    Cancellation,
    cancellation_notes,
    cancellation_part,
    counts_part,
    throughput_part,
    validity_part,
    verdict_part,
    warnings_part,
)
from plimsoll.reports.parts.measures import HEARD, LIVE, Measures, measures
from plimsoll.reports.parts.parts import Counts, Metric, Run, Text, Throughput, Validity, Verdict
from plimsoll.reports.parts.provenance import Attempt, attempts_part, run_part
from plimsoll.reports.parts.window import Window
from plimsoll.reports.sections.accuracy import Accuracy
from plimsoll.reports.sections.agents import Agents
from plimsoll.reports.sections.anatomy import Anatomy
from plimsoll.reports.sections.budgets import BudgetPart
from plimsoll.reports.sections.by import Group, labels_of, untold
from plimsoll.reports.sections.client import ClientPart
from plimsoll.reports.sections.events import EventPart, PhasePart, phases_part
from plimsoll.reports.sections.failures import Failures
from plimsoll.reports.sections.hops import Hops
from plimsoll.reports.sections.loadgen import Mlperf
from plimsoll.reports.sections.overload import OverloadPart
from plimsoll.reports.sections.peers import Peer
from plimsoll.reports.sections.prefix_cache import PrefixCache
from plimsoll.reports.sections.recorded import Recorded
from plimsoll.reports.sections.server import ServerPart, server_warnings
from plimsoll.reports.sections.sessions import Sessions
from plimsoll.reports.sections.slowest import Slowest
from plimsoll.reports.sections.speech import Speech
from plimsoll.reports.sections.steadiness import SteadinessPart
from plimsoll.slo.judge import Judged
from plimsoll.slo.metrics.plugin import PluginError
from plimsoll.slo.metrics.speech import without_sounds
from plimsoll.slo.records.records import IntArray, Records

SCHEMA: Final = "plimsoll.report/1"

#: Printed in every report, because the same data has other percentiles under other definitions.
PERCENTILE_DEFINITION = (
    "nearest rank: the p-th percentile of n values is the ceil(p*n)-th smallest; "
    "failed, timed-out, unfinished and unsent requests count as infinitely slow"
)


class Report(BaseModel, frozen=True, extra="forbid"):
    """One run, judged. Times are integer nanoseconds; an infinite number is null (see ``failed`` beside it)."""

    schema_: Literal["plimsoll.report/1"] = Field(default=SCHEMA, alias="schema")
    run: Run = Run()
    validity: Validity = Validity()
    verdict: Verdict = Verdict()
    exit_code: int | None = Field(
        default=None,
        description="of the command that judged: 0 pass, 1 fail, 3 inconclusive, 4 invalid, 130 interrupted; "
        "`report` gives gate's",
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
    agents: Agents | None = Field(default=None, description="who sent the run; absent: one host did")
    by: dict[str, dict[str, Group]] | None = Field(
        default=None, description="the rows of each value of a label, by label and value; absent: none was told apart"
    )
    recorded: Recorded | None = Field(
        default=None, description="latencies of a replay beside those that were recorded; absent: nobody recorded any"
    )
    sessions: Sessions | None = Field(default=None, description="sessions and their turns; absent: there were none")
    hops: Hops | None = Field(
        default=None, description="what each hop of the scenario's budget took; absent: it has no budget"
    )
    client: ClientPart | None = Field(
        default=None, description="requests and the attempts made of them; absent: no habits, and nobody told to wait"
    )
    server: ServerPart | None = Field(default=None, description="what the server said of itself; absent: nobody asked")
    prefix_cache: PrefixCache | None = Field(
        default=None, description="prompt tokens that a cache had, and could have had; absent: nobody said"
    )
    events: list[EventPart] | None = Field(default=None, description="what happened during it; absent: nothing was to")
    phases: list[PhasePart] | None = Field(default=None, description="its parts in order; absent: it was not divided")
    overload: OverloadPart | None = Field(
        default=None, description="goodput by phase; absent: nobody asked what it retained"
    )
    sections: dict[str, Any] = Field(
        default_factory=dict,
        description="what sections of outside packages say, by their names; absent: there are none",
    )

    @cached_property
    def window(self) -> Window | None:
        """What a page judges parts of the run by, which is no part of its value; None where it was not built here."""
        return None

    def document(self) -> dict[str, Any]:
        """The report as plain dicts and lists with the public key names."""
        optional = (
            "agents", "by", "client", "events", "hops", "overload", "phases", "prefix_cache", "recorded", "server",
            "sessions", "sections",
        )  # fmt: skip
        absent: dict[str, Any] = {name: True for name in optional if not getattr(self, name)}
        if self.charts.timeline is not None and self.charts.timeline.good_per_s is None:
            absent["charts"] = {"timeline": {"good_per_s"}}
        if not self.run.kept:
            absent["run"] = {"kept"}
        return self.model_dump(mode="json", by_alias=True, exclude=absent)


def json_schema() -> dict[str, Any]:
    """JSON schema of ``report.json``."""
    schema = Report.model_json_schema(by_alias=True, mode="serialization")
    schema["$id"] = SCHEMA
    return schema


def build(
    manifest: Mapping[str, Any],
    scenario: Mapping[str, Any],
    records: Records,
    judged: Judged,
    originals: Mapping[str, IntArray] | None = None,
    by: Sequence[str] = (),
) -> Report:
    """All that a renderer may show of ``records`` and what was judged of them, ``by`` these labels too.

    ``manifest`` and ``scenario`` are the documents of the run directory; ``plimsoll.reports.parts.provenance`` says
    which keys are read; ``originals``: see ``JudgedRun``. The same arguments give the same report: no clock, host or
    file is read.
    """
    run, verdict = JudgedRun(records, judged, manifest, scenario, originals, by), judged.verdict
    measured = measures(records, frozenset(objective.indicator for objective in judged.objectives))
    made, broken = _parts(run)
    others = {name: made.pop(name) for name, section in sections().items() if section.model is not None}
    steady = [] if made["steadiness"] is None else made["steadiness"].notes
    notes = [
        *manifest.get("foreseen", ()),
        *measured.notes,
        *broken,
        *judged.promises.notes,
        *cancellation_notes(judged.cancelled, scenario.get("cancel") == "recorded"),
        *(made["agents"].notes if made["agents"] is not None else ()),
        *server_warnings(made["server"]),
        *untold(records, by),
    ]
    report = Report(
        run=run_part(manifest, scenario, judged.facts.open_loop),
        validity=validity_part(judged, manifest),
        verdict=verdict_part(judged),
        metrics=dict(measured.metrics),
        throughput=throughput_part(judged),
        counts=counts_part(judged.counts),
        attempts=attempts_part(manifest, verdict.outcome, verdict.reasons),
        warnings=[*notes, *warnings_part(judged, measured.metrics, steady, run.options)],
        confidence=verdict.confidence,
        charts=_charts(records, measured, judged),
        histograms=dict(measured.histograms),
        cancellation=cancellation_part(judged.cancelled),
        phases=phases_part(run),
        sections={name: part for name, part in others.items() if part is not None},
        **made,
    )
    if report.charts.timeline is not None:
        names = [*measured.banded, "latency"]
        by_label = partial(labels_of, records, by)
        report.__dict__["window"] = Window(records, judged, report.charts.timeline, names, by_label)
    return report


def _parts(run: JudgedRun) -> tuple[dict[str, Any], list[str]]:
    """What every section holds, and which of an outside package failed: it holds nothing."""
    made: dict[str, Any] = {}
    notes: list[str] = []
    for name, section in sections().items():
        try:
            made[name] = section.part(run)
        except PluginError as error:
            made[name] = None
            notes.append(str(error))
    return made, notes


def _charts(records: Records, measured: Measures, judged: Judged) -> Charts:
    """The data of every chart; maps are of what is waited for: speech, else the first token, else the answer."""
    good = judged.goodput.good if judged.goodput.attainment else None
    drawn = timeline(without_sounds(records), measured.banded, good)
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
