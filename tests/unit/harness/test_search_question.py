"""What a search is asked: every mistake at once and before any load, and the loads that follow from the objectives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.run.promises import Asked, read_promises
from plimsoll.harness.series.search.question import Question, Texts, enough, read
from plimsoll.slo.statistics.confidence import n_needed, sample
from plimsoll.slo.statistics.share import share_test
from tests.command import invoke

URL = {"url": "http://127.0.0.1:9"}


def asked(*slo: str, scenario: str | None = None, **texts: object) -> Question:
    return read(scenario, URL, Asked(slo=slo), Texts(**texts))  # type: ignore[arg-type]


def complaints(*slo: str, scenario: str | None = None, **texts: object) -> str:
    with pytest.raises(HarnessFault) as caught:
        asked(*slo, scenario=scenario, **texts)
    assert caught.value.code == 2
    return "\n".join(caught.value.errors)


def test_every_mistake_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = complaints(
        "p99(zz) <= 3ms",
        over="users",
        probe="soon",
        longest="8y",
        cooldown="-1s",
        budget="0s",
        resolution="much",
        gpus=0,
    )
    for part in (
        "zz",
        "--over users",
        "--probe",
        "--longest 8y",
        "--cooldown",
        "--budget 0s",
        "--resolution much",
        "--gpus 0",
    ):
        assert part in said
    assert list(tmp_path.iterdir()) == []


def test_a_search_without_an_objective_is_refused_with_the_way_out() -> None:
    assert "--slo 'p99(ttft) <= 200ms'" in complaints()
    assert "ratio(good) >= 99%" in complaints("ttft <= 200ms")


def test_loads_that_contradict_each_other_are_refused() -> None:
    assert "lowest 50" in complaints("p50(ttft) <= 1s", start=20.0, lowest=50.0, highest=100.0)
    assert "whole number" in complaints("p50(ttft) <= 1s", over="concurrency", start=2.5)


@pytest.mark.parametrize("slo", ["p99.9(ttft) <= 1s", "p99(ttft) <= 1s", "p90(latency) <= 1s", "ratio(good) >= 97%"])
def test_a_search_takes_a_run_to_need_what_plan_and_the_verdict_say(slo: str) -> None:
    promises = asked(slo).promises
    limit = promises.objectives[0].allowed
    assert limit is not None
    least = enough(promises)
    assert least == max(10, sample(limit).least) == max(10, n_needed(0, 0, limit) or 0)
    assert share_test(np.zeros(least, bool), limit).outcome == "PASS"
    assert share_test(np.zeros(least - 1, bool), limit).outcome == "INCONCLUSIVE"


@pytest.mark.parametrize("flag", ["start", "highest"])
def test_one_mistaken_load_is_one_mistake(flag: str) -> None:
    said = complaints("p99(ttft) <= 1s", **{flag: 0.5})
    assert said.startswith(f"--{flag} 0.5: the longest probe that seeks, 80s, brings too few requests")
    assert len(said.splitlines()) == 1


def test_a_lowest_rate_at_which_no_probe_can_show_anything_is_refused() -> None:
    """299 requests, none of them bad, are the fewest that show a 99th percentile at 95 %."""
    said = complaints("p99(ttft) <= 1s", lowest=1.0, start=2.0, probe="10s", longest="10x")
    assert "--lowest 1:" in said
    assert "--start 2:" in said
    assert "299" in said
    assert asked("p99(ttft) <= 1s", lowest=6.0, probe="10s", longest="10x").settings.lowest == 6.0


def test_without_loads_the_search_begins_where_the_shortest_probe_decides() -> None:
    settings = asked("p99(ttft) <= 1s").settings
    assert 299 / 20 < settings.start < 2 * 299 / 20
    assert settings.lowest == pytest.approx(299 / 80, rel=0.1)


def test_the_strictest_share_says_how_many_requests_are_enough() -> None:
    def needed(*slo: str, confidence: str | None = None) -> int:
        return enough(read_promises(Asked(slo=slo, confidence=confidence))[0])

    assert needed("p99(ttft) <= 1s", "p50(ttft) <= 1s") == 299
    assert needed("p99(ttft) <= 1s", confidence="0.99") == 459
    assert needed("ratio(good) >= 99.9%", "ttft <= 1s") == 2995
    assert needed("mean(ttft) <= 1s") == 10


def test_the_kind_of_the_scenario_says_what_is_searched_and_another_kind_is_refused(tmp_path: Path) -> None:
    def kind(text: str) -> str:
        path = tmp_path / "s.yaml"
        path.write_text(text)
        return str(path)

    own = asked("p50(ttft) <= 1s", scenario=kind("kind: server\nparams: {rate: 7}")).settings
    assert (own.variable, own.start) == ("rate", 7.0)
    closed = asked("p50(ttft) <= 1s", scenario=kind("kind: concurrency\nparams: {concurrency: 4}")).settings
    assert (closed.variable, closed.start, closed.lowest) == ("concurrency", 4.0, 1.0)
    single = kind("kind: single_stream")
    assert "--over rate" in complaints("p50(ttft) <= 1s", scenario=single)
    assert asked("p50(ttft) <= 1s", scenario=single, over="rate").settings.variable == "rate"


def test_every_probe_is_of_the_scenario_as_it_was_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "ed.yaml"
    file.write_text("kind: server\ntimeout: 5s\n")
    question = asked("p90(ttft) <= 1s", scenario=str(file))
    file.write_text("kind: server\ntimeout: 7s\n")
    assert question.prepared(30, 1, 1, tmp_path / "run").job.scenario.timeout_ns == 5_000_000_000


def test_a_scenario_that_would_end_the_longest_probe_early_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("kind: server\nstop: {max_duration: 60s}")
    said = complaints("p50(ttft) <= 1s", scenario=str(path))
    assert "max_duration" in said
    assert "--longest" in said


def test_kind_says_by_what_is_searched_in_the_words_of_run() -> None:
    assert asked("p50(ttft) <= 1s", kind="concurrency").settings.variable == "concurrency"
    assert asked("p50(ttft) <= 1s", kind="server", over="rate").settings.variable == "rate"
    assert "--kind server: that is --over rate, and --over concurrency is given" in complaints(
        "p50(ttft) <= 1s", kind="server", over="concurrency"
    )
    assert "--kind replay: a search sends at a rate (server)" in complaints("p50(ttft) <= 1s", kind="replay")


def test_a_duration_for_the_longest_probe_is_a_multiple_of_the_shortest() -> None:
    assert asked("p50(ttft) <= 1s", probe="20s", longest="1m").settings.longest == 3.0
    assert "--longest 5s: give 1 to 10000 times --probe (20s)" in complaints("p50(ttft) <= 1s", longest="5s")


@pytest.mark.parametrize("longest", ["nanx", "infx", "1e300x", "0x", "-2x", "99999h"])
def test_a_longest_probe_that_is_no_number_of_times_is_a_complaint_and_no_traceback(longest: str) -> None:
    assert f"--longest {longest}" in complaints("p50(ttft) <= 1s", longest=longest)


@pytest.mark.parametrize("resolution", ["nan", "inf%", "0", "-2%", "101%"])
def test_a_resolution_that_is_no_share_is_a_complaint(resolution: str) -> None:
    assert f"--resolution {resolution}" in complaints("p50(ttft) <= 1s", resolution=resolution)


def test_loads_that_are_none_are_told_by_their_own_flag_whatever_else_is_wrong() -> None:
    said = complaints("p99(zz) <= 3ms", over="users", start=float("nan"), lowest=-3.0, highest=1e30, resolution="0%")
    for part in ("zz", "--over users", "--start nan", "--lowest -3", "--highest 1e+30", "--resolution 0%"):
        assert part in said
    assert "--start 1e+30: give a rate above 0" in complaints("p50(ttft) <= 1s", start=1e30)
    assert "--start 100: lies above --highest 50" in complaints("p50(ttft) <= 1s", start=100.0, highest=50.0)


def test_objectives_of_the_scenario_are_searched_for_where_no_flag_names_any(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("kind: server\nobjectives: [p50(ttft) <= 300ms]")
    found = read(str(path), URL, Asked(), Texts())
    assert found.promises.texts == ["p50(ttft) <= 300ms"]
    assert found.name == "s"


def test_budget_gpus_and_workers_may_change_between_two_attempts_and_nothing_else() -> None:
    base = asked("p50(ttft) <= 1s").identity
    more = read(None, {**URL, "workers": 2}, Asked(slo=["p50(ttft) <= 1s"]), Texts(budget="1h", gpus=8))
    assert more.identity == base
    assert asked("p50(ttft) <= 1s", cooldown="9s").identity != base
    assert asked("p50(ttft) <= 2s").identity != base
    assert read(None, {**URL, "output_tokens": 9}, Asked(slo=["p50(ttft) <= 1s"]), Texts()).identity != base


@pytest.mark.parametrize(
    ("flag", "meant"),
    [
        ("--rate", "--start"),
        ("--concurrency", "--over concurrency"),
        ("--duration=9s", "--probe"),
        ("--queries", "--probe"),
        ("--trace", "plimsoll run"),
        ("--mode", "plimsoll run"),
    ],
)
def test_a_flag_of_run_that_a_search_sets_itself_is_refused_with_the_one_that_is_meant(flag: str, meant: str) -> None:
    done = invoke("search", flag, "8")
    said = " ".join(done.output.replace("│", " ").split())
    assert done.exit_code == 2
    assert f"No such option: {flag.partition('=')[0]}." in said
    assert meant in said
