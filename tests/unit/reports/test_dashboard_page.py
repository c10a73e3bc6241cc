"""The live page: what it says and draws at each stage, from a look alone. What Prometheus scrapes from a live run,
read back by its own strict parser.
"""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from plimsoll.reports.documents.live import LiveReport, RunPart, VerdictPart, middle, percentiles
from plimsoll.reports.formats.html_ import live_look as look
from plimsoll.reports.formats.html_ import live_page as page
from plimsoll.reports.formats.openmetrics import live as render
from tests.unit.reports import made_live


def text(html: str) -> str:
    """What a reader sees, without tags and drawings."""
    bare = re.sub(r"<[^>]+>", " ", re.sub(r"(?s)<(script|svg)\b.*?</\1>", " ", html))
    return unescape(re.sub(r"\s+", " ", bare))


def test_the_page_needs_nothing_from_elsewhere() -> None:
    html = page(made_live.look()).decode()
    assert re.findall(r'(?:src|href)="([^"]+)"', html) == ["data:,", "state.json", "metrics"]
    assert "http://www.w3.org/2000/svg" in html
    assert not re.search(r"url\(|@import|https://", html)


def test_what_the_user_named_is_escaped() -> None:
    html = page(made_live.look()).decode()
    assert "chat <b>" not in html
    assert "chat &lt;b&gt;" in html


def test_a_run_that_goes_on_says_how_far_it_is_and_draws_every_strip() -> None:
    html = look(made_live.look())
    said = text(html)
    assert "10 s in, 50 s left." in said
    assert "16%" in said
    for title in ("Requests per second", "Requests in flight", "Errors so far", "Latency", "Burn rate of p99(latency)"):
        assert title in said, title
    assert "99.5" in said
    assert "100/s planned" in said
    assert "of 6,000 planned" in said
    paths = re.findall(r'<path d="(M[^"]+)" class="s s-sent line"', html)
    assert [path.count("L") for path in paths] == [9, 9]  # ten points, drawn wide and narrow


def test_a_budget_is_said_to_be_a_lower_bound() -> None:
    said = text(look(made_live.look()))
    assert "at least 3.03 times the share that is allowed" in said
    assert "At least 30 of 990 are bad (3.03 %); 1 % may be. Of the whole run's budget at least 50 % is used." in said
    assert "Judged at the end only, because live figures can't tell: max(latency) <= 1s" in said


def test_precision_is_on_the_page() -> None:
    assert "bins that are 2.2 % wide and are at most 1.1 % off" in text(look(made_live.look()))


def test_a_failed_percentile_is_a_cross_and_no_gap() -> None:
    html = look(made_live.look())
    assert html.count("s-error cross") >= 2
    lost = made_live.look().metrics["latency"].model_copy(update={"p99": None})
    assert "∞" in text(look(made_live.look(metrics={"latency": lost})))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"stage": "warm-up", "elapsed_ns": -3_000_000_000}, "Warm-up: the measured run begins in 3 s."),
        ({"stage": "draining"}, "Everything is sent; answers in flight are waited for."),
        ({"stage": "over"}, "The run is over after 10.0 s. It is being judged"),
        ({"left_ns": None, "fraction": None}, "10 s in."),
        ({"left_ns": 3_599_000_000_000}, "10 s in, 59 min 59 s left."),
        ({"left_ns": 36_000_000_000_000}, "10 s in, 10 h 00 min left."),
    ],
)
def test_each_stage_has_its_sentence(changes: dict[str, object], words: str) -> None:
    assert words in text(look(made_live.look(**changes)))


def test_before_the_first_second_there_is_a_word_in_place_of_charts() -> None:
    html = look(LiveReport(run=RunPart(scenario="x")))
    assert "nothing has been sent yet" in text(html)
    assert "Charts begin when the first second is over." in text(html)
    assert "<svg" not in html


def test_the_verdict_comes_with_its_reasons_and_the_report() -> None:
    verdict = VerdictPart(outcome="FAIL", reasons=["p99(latency) was 80 ms"], report="/runs/x/report.html")
    html = look(made_live.look(stage="over", verdict=verdict))
    said = text(html)
    assert 'data-final="yes"' in html
    assert "FAIL" in said
    assert "P99(latency) was 80 ms." in said or "p99(latency) was 80 ms." in said
    assert "/runs/x/report.html" in said
    assert "Sent per second" not in said  # nothing is sent any more


def test_read_outs_hold_what_is_drawn() -> None:
    found = re.findall(r'(?s)<script type="application/json">(.*?)</script>', look(made_live.look()))
    first = json.loads(found[0])
    assert [line["label"] for line in first["series"]] == ["errors", "planned", "sent", "completed"]
    assert first["head"][0] == "0 to 1 s"


def test_a_warm_up_is_said_to_be_among_what_was_sent() -> None:
    intervals = made_live.look().intervals
    assert intervals is not None
    warmed = intervals.model_copy(update={"start_ns": -2_000_000_000})
    assert "of 6,000 planned, and the warm-up" in text(look(made_live.look(intervals=warmed)))
    assert "and the warm-up" not in text(look(made_live.look()))


def test_a_closed_loop_has_no_planned_line() -> None:
    intervals = made_live.look().intervals
    assert intervals is not None
    closed = intervals.model_copy(update={"planned_per_s": None})
    html = look(made_live.look(planned=None, planned_per_s=None, planned_so_far=None, intervals=closed))
    assert '"label": "planned"' not in html
    assert "a closed loop" in text(html)


def test_percentiles_are_nearest_rank_with_failures_last() -> None:
    bins = {10: 50, 20: 40, 30: 9}
    assert percentiles(bins) == (round(middle(10)), round(middle(20)), round(middle(30)))
    assert percentiles(bins, 1) == (round(middle(10)), round(middle(20)), round(middle(30)))
    assert percentiles(bins, 2)[2] is None
    assert percentiles({}, 0) == (None, None, None)


def test_the_document_leaves_the_bins_out_and_names_its_schema() -> None:
    found = json.loads(made_live.look().model_dump_json(by_alias=True))
    assert found["schema"] == "plimsoll.live/1"
    assert "spreads" not in found
    assert LiveReport.model_validate(found) == made_live.look(spreads={})


# -- what Prometheus scrapes ----------------------------------------------------------------------------------------


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
