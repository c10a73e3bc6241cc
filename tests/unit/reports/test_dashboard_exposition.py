"""What Prometheus scrapes from a live run, read back by its own strict parser."""

from __future__ import annotations

from typing import Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from plimsoll.reports.documents.live import LiveReport, RunPart
from plimsoll.reports.formats.openmetrics import live as render
from tests.unit.reports import made_live


def families(report: LiveReport) -> dict[str, Any]:
    return {family.name: family for family in text_string_to_metric_families(render(report).decode())}  # type: ignore[no-untyped-call]


def test_it_parses_and_every_sample_names_the_run() -> None:
    found = families(made_live.look())
    assert render(made_live.look()).endswith(b"# EOF\n")
    for family in found.values():
        assert family.documentation
        for sample in family.samples:
            assert (sample.labels["run_id"], sample.labels["scenario"]) == ("abc123", "chat <b>")


def test_counters_and_gauges_have_their_values() -> None:
    found = families(made_live.look())
    values = {s.name: s.value for f in found.values() for s in f.samples if set(s.labels) == {"run_id", "scenario"}}
    assert values["plimsoll_live_sent_total"] == 1000
    assert values["plimsoll_live_done_total"] == 990
    assert values["plimsoll_live_failed_total"] == 2
    assert values["plimsoll_live_in_flight"] == 10
    assert values["plimsoll_live_planned_per_second"] == 100
    (burn,) = found["plimsoll_live_budget_burn_rate"].samples
    assert (burn.labels["objective"], round(burn.value, 3)) == ("p99(latency) <= 50ms", 3.03)


def test_buckets_are_cumulative_and_exact_at_their_edges() -> None:
    family = families(made_live.look())["plimsoll_live_latency_seconds"]
    assert (family.type, family.unit) == ("histogram", "seconds")
    buckets = [(float(s.labels["le"]), s.value) for s in family.samples if s.name.endswith("_bucket")]
    at = dict(buckets)
    # Bin 512 begins at 2 ** 16 ns and 776 at 2 ** 24.25 ns, which are edges of buckets: nothing of a bin lies below its
    # own.
    assert at[6.5536e-05] == 0
    assert at[float(f"{2**16.25 * 1e-9:.6g}")] == 5
    assert at[float(f"{2**24.25 * 1e-9:.6g}")] == 5
    assert at[float(f"{2**24.5 * 1e-9:.6g}")] == 988
    assert at[float("inf")] == 990
    assert [v for _, v in buckets] == sorted(v for _, v in buckets)
    total = next(s.value for s in family.samples if s.name.endswith("_count"))
    whole = next(s.value for s in family.samples if s.name.endswith("_sum"))
    assert total == 990
    middles = [5 * 2**16.0156, 980 * 2**24.2656, 3 * 2**24.4844, 2 * 2**28.1406]
    assert abs(whole - sum(middles) * 1e-9) < 0.01 * whole


def test_a_run_that_has_not_begun_is_scraped_too() -> None:
    found = families(LiveReport(run=RunPart(scenario="x")))
    assert "plimsoll_live_planned_per_second" not in found
    states = {s.labels["plimsoll_live_stage"]: s.value for s in found["plimsoll_live_stage"].samples}
    assert states == {"preparing": 1, "warm-up": 0, "running": 0, "draining": 0, "over": 0}


def test_names_are_not_those_of_a_finished_run() -> None:
    assert all(name.startswith("plimsoll_live_") for name in families(made_live.look()))
