"""The baseline file: small, versioned, made to be read in a review, and refused when it is not what it says."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.series.comparison import baseline
from plimsoll.harness.series.comparison.baseline import Baseline
from plimsoll.harness.series.comparison.replications import find, read, unlike
from plimsoll.slo.comparison.quantity import parse_all
from tests.unit.harness.sealed_runs import sealed_run

WANTED = parse_all(["p99(ttft)", "ratio(error)", "rate(output_tokens)"])


def saved(folder: Path, **flags: object) -> Path:
    for k in (1, 2):
        sealed_run(folder / f"main/{k}", 50 + k, failed=k - 1, seed=k, **flags)
    [side] = read(find([str(folder / "main")]), baseline.kept(), None)
    path = folder / "baseline.json"
    baseline.save(path, Baseline(side.arm, side.likenesses, side.limits, "2026-11-21T10:00:00+00:00"))
    return path


def test_what_is_read_back_compares_as_the_runs_themselves_would(tmp_path: Path) -> None:
    path = saved(tmp_path)
    [of_runs] = read(find([str(tmp_path / "main")]), baseline.kept(), None)
    [of_file] = read(find([str(path)]), WANTED, None)
    assert of_file.arm.name == "main"
    for quantity in WANTED:
        assert of_file.arm.values(quantity) == pytest.approx(of_runs.arm.values(quantity), rel=1e-8)
    assert math.inf in of_file.arm.values(WANTED[0])  # the run with a failure


def test_it_is_small_sorted_and_holds_no_record_and_no_profile(tmp_path: Path) -> None:
    path = saved(tmp_path)
    document = json.loads(path.read_text())
    assert path.stat().st_size < 10_000 * len(document["runs"])
    assert document["schema"] == "plimsoll.baseline/1"
    assert list(document) == [
        "schema", "name", "made_at", "plimsoll", "host", "target", "load_fingerprint", "load", "good_means", "runs",
    ]  # fmt: skip
    assert all(not isinstance(value, list) for run in document["runs"] for value in run["values"].values())
    assert saved(tmp_path / "again").read_text().count("\n") == path.read_text().count("\n")


def test_runs_of_another_load_are_refused_against_it(tmp_path: Path) -> None:
    path = saved(tmp_path)
    sealed_run(tmp_path / "new/1", output_tokens=99)
    with pytest.raises(HarnessFault, match=r"source\.output_tokens"):
        unlike(read(find([str(path), str(tmp_path / "new")]), WANTED, None), ())


def test_another_host_is_a_warning(tmp_path: Path) -> None:
    path = saved(tmp_path)
    sealed_run(tmp_path / "new/1", host={"cpu": "faster"})
    said = unlike(read(find([str(path), str(tmp_path / "new")]), WANTED, None), ())
    assert any(text.startswith("another host: cpu") for text in said)


def test_a_run_that_is_in_the_baseline_is_no_candidate(tmp_path: Path) -> None:
    path = saved(tmp_path)
    with pytest.raises(HarnessFault, match="Give each run once"):
        read(find([str(path), str(tmp_path / "main/1")]), WANTED, None)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema": "plimsoll.baseline/9"}, "is not plimsoll.baseline/1"),
        ({"runs": []}, "holds no run"),
        ({"load_fingerprint": "0"}, "was edited"),
        ({"load": {"kind": "server"}}, "was edited"),
        ({"runs": [{"run": "x"}]}, "damaged"),
        ({"host": None, "runs": 3}, "damaged"),
    ],
)
def test_a_file_that_is_not_what_it_says_is_one_clear_error(
    tmp_path: Path, change: dict[str, object], said: str
) -> None:
    path = saved(tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(HarnessFault, match=said):
        baseline.load(path)


def test_a_number_that_is_no_number_does_not_slip_in(tmp_path: Path) -> None:
    path = saved(tmp_path)
    document = json.loads(path.read_text())
    document["runs"][0]["values"]["p99(ttft)"] = float("nan")
    path.write_text(json.dumps(document))
    with pytest.raises(HarnessFault, match="damaged"):
        baseline.load(path)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("failed", -1, r"runs\[0\]\.failed: is -1"),
        ("invalid", "no list", r"runs\[0\]\.invalid"),
        ("invalid", [3], r"runs\[0\]\.invalid\[0\]"),
        ("unstable", 5, r"runs\[0\]\.unstable"),
        ("workers", [1], r"runs\[0\]\.workers"),
        ("values", {"p99(ttft)": -5}, "at least 0"),
        ("values", {"p99(ttft)": 10**400}, "finite"),
        ("values", {"p99(ttft)": True}, "not a number"),
        ("values", {"ratio(error)": 2}, "a share lies in"),
        ("values", {"ratio(error)": None}, "only times can be"),
        ("values", {"rate(ok)": None}, "only times can be"),
        ("values", {"p99(nothing)": 1}, "is not known here"),
        ("counts", {}, "counts of .* are missing"),
        ("more", 1, r"runs\[0\]\.more: unknown key"),
    ],
)
def test_a_value_that_no_run_could_have_is_refused_where_it_stands(
    tmp_path: Path, key: str, value: object, said: str
) -> None:
    path = saved(tmp_path)
    document = json.loads(path.read_text())
    document["runs"][0][key] = value
    path.write_text(json.dumps(document))
    with pytest.raises(HarnessFault, match=said) as caught:
        baseline.load(path)
    assert caught.value.errors[-1].endswith("make it again with --save-baseline")


def test_every_mistake_of_a_file_is_told_at_once(tmp_path: Path) -> None:
    path = saved(tmp_path)
    document = json.loads(path.read_text())
    del document["load_fingerprint"]
    document["runs"][1]["seed"] = "x"
    path.write_text(json.dumps(document))
    with pytest.raises(HarnessFault) as caught:
        baseline.load(path)
    assert [text.split(": ")[0] for text in caught.value.errors] == [
        f"{path}:load_fingerprint", f"{path}:runs[1].seed", str(path),
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["[" * 100_000, '{"schema": "plimsoll.baseline/1"', "[1]", ""])
def test_a_text_that_is_no_document_is_damaged(tmp_path: Path, text: str) -> None:
    (tmp_path / "b.json").write_text(text)
    with pytest.raises(HarnessFault, match="damaged"):
        baseline.load(tmp_path / "b.json")


def test_a_file_that_a_formatter_has_been_over_is_still_a_baseline(tmp_path: Path) -> None:
    path = saved(tmp_path)
    for separators in ((",", ":"), (", ", " : ")):
        path.write_text(json.dumps(json.loads(path.read_text()), separators=separators))
        assert baseline.is_baseline(path)
        assert baseline.load(path).arm.name == "main"
