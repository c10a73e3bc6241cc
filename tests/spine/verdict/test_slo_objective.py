"""The grammar: what is understood, what is refused, and that refusals say what to write instead."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from plimsoll.slo.objectives.objective import (
    LEAST_SHARE,
    Objective,
    ObjectiveError,
    check,
    from_goodput,
    load_file,
    parse,
    parse_all,
    show,
)


@pytest.mark.parametrize(
    ("text", "canonical", "threshold", "unit"),
    [
        ("p99(ttft) <= 200ms", "p99(ttft) <= 200ms", 2e8, "ns"),
        ("  p99.90 ( ttft )<200.50ms ", "p99.9(ttft) < 200.5ms", 2.005e8, "ns"),
        ("mean(latency) <= 1.5s", "mean(latency) <= 1.5s", 1.5e9, "ns"),
        ("max(e2e) <= 2m", "max(e2e) <= 2m", 1.2e11, "ns"),
        ("p50(itl) <= 900µs", "p50(itl) <= 900us", 9e5, "ns"),
        ("p50(itl) <= 900μs", "p50(itl) <= 900us", 9e5, "ns"),
        ("min(lag) <= 30ns", "min(lag) <= 30ns", 30.0, "ns"),
        ("ratio(good) >= 99.5%", "ratio(good) >= 99.5%", 0.995, "ratio"),
        ("ratio(error) <= 0.1%", "ratio(error) <= 0.1%", 0.001, "ratio"),
        ("rate(good) >= 40/s", "rate(good) >= 40/s", 40.0, "per_s"),
        ("rate(output_tokens) > 1000/s", "rate(output_tokens) > 1000/s", 1000.0, "per_s"),
        ("p5(output_rate) >= 20/s", "p5(output_rate) >= 20/s", 20.0, "per_s"),
        ("max(error) <= 0", "max(error) <= 0", 0.0, "1"),
        ("ttft <= 200ms", "ttft <= 200ms", 2e8, "ns"),
        ("output_tokens >= 10", "output_tokens >= 10", 10.0, "1"),
    ],
)
def test_what_is_understood(text: str, canonical: str, threshold: float, unit: str) -> None:
    found = parse(text)
    assert (str(found), found.threshold, found.unit) == (canonical, threshold, unit)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("lost <= 0", "max(error) <= 0"),
        (" lost{phase=during,class=chat}≤0", "max(error{class=chat,phase=during}) <= 0"),
        ("each phase: lost <= 0", "each phase: max(error) <= 0"),
    ],
)
def test_nothing_lost_is_no_failed_request(text: str, same: str) -> None:
    assert parse(text) == parse(same)
    assert str(parse(text)) == same


def test_percentiles_and_thresholds_are_exact() -> None:
    assert parse("p99.9(ttft) <= 1ms").quantile == Fraction(999, 1000)
    assert parse("ratio(good) >= 99.5%").exact_threshold == Fraction(995, 1000)
    assert 1 - parse("ratio(good) >= 99.9%").exact_threshold == Fraction(1, 1000)


def test_scope_is_told_by_the_statistic() -> None:
    assert parse("ttft <= 200ms").scope == "request"
    assert parse("p99(ttft) <= 200ms").scope == "run"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not an objective. Write it like p99(ttft) <= 200ms"),
        ("p99(ttft)", "not an objective"),
        ("p99(ttft) <=", "not an objective"),
        ("p99(ttft) <= -5ms", "not an objective"),
        ("p99(ttft) == 5ms", "operator == is none of <=, <, >=, >"),
        ("p99(ttft) <= 200", "a bare number does not fit; write one of ns, us, ms, s, m, like 200ms"),
        ("p99(ttft) <= 2%", "unit % does not fit"),
        ("p99(ttft) <= 2KB", "unit KB does not fit"),
        ("ratio(good) >= 0.995", "a bare number does not fit; write one of %"),
        ("rate(good) >= 40", "write one of /s, like 40/s"),
        ("max(error) <= 1ms", "has no unit; write 1"),
        ("p100(ttft) <= 1s", "for the largest value write max(...)"),
        ("p0(ttft) <= 1s", "for the smallest value write min(...)"),
        ("p9.9.9(ttft) <= 1s", "percentile p9.9.9 is not a number"),
        ("median(ttft) <= 1s", "statistic median is not known; choose p99"),
        ("p99(tftt) <= 1s", "indicator tftt is not known; did you mean ttft"),
        ("p99(xyzzy) <= 1s", "indicator xyzzy is not known; choose one of attempts_per_request, audio_frame_lag"),
        ("max(server.kv_usag) <= 95%", "did you mean server.kv_usage"),
        ("max(server.kv_usag) <= 95%", "All of them: server.queue, server.running, "),
        ("max(gpu.zzzzzz) <= 95%", "choose one of gpu.utilisation, "),
        ("ratio(ttft) <= 1%", "ratio is of good or error"),
        ("rate(ttft) >= 1/s", "rate is of good, ok, output_tokens"),
        ("good >= 99%", "good takes ratio or rate"),
        ("p99(good) >= 99%", "good takes ratio or rate"),
        ("p99(ttft) >= 200ms", "lower is better, so >= promises nothing; write p99(ttft) <= 200ms"),
        ("ratio(good) <= 99%", "write ratio(good) >= 99%"),
        ("ratio(error) > 1%", "write ratio(error) <= 1%"),
        ("rate(good) <= 40/s", "write rate(good) >= 40/s"),
        ("output_tokens <= 5", "write output_tokens >= 5"),
        ("p99(output_rate) >= 20/s", "write p1(output_rate) >= 20/s"),
        ("ratio(good) >= 100%", "write one between"),
        ("ratio(error) <= 0%", "or max(error) <= 0 for no error at all"),
        ("p99(ttft) <= 0ms", "a time of 0"),
    ],
)
def test_what_is_refused_and_what_to_write_instead(text: str, says: str) -> None:
    with pytest.raises(ObjectiveError) as caught:
        parse(text)
    assert says in str(caught.value)
    assert repr(text.strip()) in str(caught.value) or not text


def test_all_errors_come_at_once() -> None:
    found, errors = parse_all(["p99(ttft) <= 1", "p99(latency) <= 1s", "x(y) <= 1"])
    assert [str(o) for o in found] == ["p99(latency) <= 1s"]
    assert len(errors) == 2


def test_limits_on_requests_that_nothing_counts_are_a_configuration_error() -> None:
    _, errors = parse_all(["ttft <= 200ms", "p99(latency) <= 1s"])
    assert len(errors) == 1
    assert "Add ratio(good) >= 99%" in errors[0]
    assert parse_all(["ttft <= 200ms", "rate(good) >= 1/s"])[1] == []
    assert check([]) == []


def test_a_file_of_objectives(tmp_path: Path) -> None:
    path = tmp_path / "slo.yaml"
    path.write_text("objectives:\n  - p99(ttft) <= 200ms\n  - ratio(error) <= 0.1%\n")
    assert [str(o) for o in load_file(path)] == ["p99(ttft) <= 200ms", "ratio(error) <= 0.1%"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (
            "objectives: [p99(ttft) <= 1, 7]\nextra: 1\n",
            ["key 'extra'", "objectives[0]:", "objectives[1]: 7 is not a text"],
        ),
        ("- p99(ttft) <= 1s\n", ["no list under the key objectives"]),
        ("objectives: []\n", ["is empty"]),
        ("objectives: [ttft <= 1s]\n", ["Add ratio(good)"]),
        ("objectives: [\n", ["not YAML"]),
    ],
)
def test_a_bad_file_is_refused_with_every_place(tmp_path: Path, content: str, says: list[str]) -> None:
    path = tmp_path / "slo.yaml"
    path.write_text(content)
    with pytest.raises(ObjectiveError) as caught:
        load_file(path)
    assert len(caught.value.errors) == len(says)
    for line, part in zip(caught.value.errors, says, strict=True):
        assert line.startswith(f"{path}:")
        assert part in line


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("objectives: [a]\nobjectives: [b]\n", ":2: key objectives is given twice"),
        ("objectives: [2022-99-99]\n", "objectives[0]: '2022-99-99': not an objective"),
        ("objectives: [" + "9" * 6000 + "]\n", ":1: '9999"),
        ("objectives: [!!bool x]\n", ":1: 'x' can't be read as bool"),
        ("objectives: [!!timestamp x]\n", ":1: 'x' can't be read as timestamp"),
        ("objectives: " + "[" * 5000 + "]" * 5000, "nested too deep"),
        ("objectives: [a]\n---\nobjectives: [b]\n", "no list under the key objectives"),
    ],
)
def test_what_yaml_would_drop_or_choke_on_is_refused(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "slo.yaml"
    path.write_text(content)
    with pytest.raises(ObjectiveError) as caught:
        load_file(path)
    assert says in caught.value.errors[0]
    assert all(len(line) < 400 for line in caught.value.errors)


@pytest.mark.parametrize(
    "text",
    [
        "p99.99999999999(ttft) <= 1s",
        "p0.00000000001(output_rate) >= 1/s",
        "ratio(error) <= 0.00000000001%",
        "ratio(good) >= 99.99999999999%",
    ],
)
def test_a_share_that_no_run_is_long_enough_for_is_refused(text: str) -> None:
    with pytest.raises(ObjectiveError, match=r"any run can show|a finite run can show"):
        parse(text)
    assert parse("p99.9999999(ttft) <= 1s").quantile == 1 - LEAST_SHARE


def test_aliases_that_multiply_are_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "slo.yaml"
    levels = [
        f"{name}: &{name} [{', '.join([f'*{below}'] * 9)}]" for below, name in zip("abcdefgh", "bcdefghi", strict=True)
    ]
    path.write_text("\n".join(["a: &a [x, x]", *levels, "objectives: [*i]"]))
    with pytest.raises(ObjectiveError, match="aliases"):
        load_file(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ObjectiveError, match=r"can't be read .*Give an existing file"):
        load_file(tmp_path / "none.yaml")


def test_vllm_goodput_arguments_are_milliseconds_on_requests() -> None:
    found = from_goodput("ttft:200 tpot:50.5 e2el:3000")
    assert [str(o) for o in found] == ["ttft <= 200ms", "tpot <= 50.5ms", "e2e <= 3000ms"]


@pytest.mark.parametrize("text", ["", "ttft=200", "itl:5", "ttft:fast"])
def test_bad_goodput_arguments_are_refused(text: str) -> None:
    with pytest.raises(ObjectiveError, match="ttft:200"):
        from_goodput(text)


@pytest.mark.parametrize(
    ("objective", "kept", "broken"),
    [("ttft <= 2ns", 2, 3), ("ttft < 2ns", 1, 2), ("output_tokens >= 2", 2, 1), ("output_tokens > 2", 3, 2)],
)
def test_operators_are_strict_where_they_say_so(objective: str, kept: float, broken: float) -> None:
    found: Objective = parse(objective)
    assert found.met_by(kept)
    assert not found.met_by(broken)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (2.5e6, "ns", "2.5 ms"), (1.5e9, "ns", "1.5 s"), (999.0, "ns", "999 ns"), (2e3, "ns", "2 us"),
        (float("inf"), "ns", "infinite"), (float("nan"), "ns", "no value"), (0.995, "ratio", "99.5 %"),
        (40.0, "per_s", "40/s"), (3.0, "1", "3"),
    ],
)  # fmt: skip
def test_values_are_shown_for_people(value: float, unit: str, text: str) -> None:
    assert show(value, unit) == text
