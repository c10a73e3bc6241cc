"""What the user promised is read with every mistake at once, kept beside the records, and read back the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.run.promises import Asked, again, keep, kept, read_promises
from plimsoll.harness.run.rundir import RunDirectory, Sealed
from plimsoll.slo.objectives import openslo
from plimsoll.slo.records.records import empty
from plimsoll.slo.validity.generator import GeneratorFacts


def sealed(folder: Path, *objectives: str) -> Sealed:
    facts = GeneratorFacts(open_loop=True, planned=0)
    return Sealed(RunDirectory(folder), {}, {"objectives": list(objectives)}, empty(), facts)


def test_everything_that_can_be_promised_goes_into_the_run_directory_and_comes_back(tmp_path: Path) -> None:
    document = tmp_path / "slo.yaml"
    document.write_text(openslo.starter(), encoding="utf-8")
    (tmp_path / "list.yaml").write_text("objectives: ['p50(latency) <= 1s over 4w']", encoding="utf-8")
    asked = Asked(
        ["ratio(good) >= 99%", str(document), str(tmp_path / "list.yaml")],
        "ttft:200 tpot:50",
        ["mlperf/llama3.1-8b/server"],
        None,
        80.0,
    )
    made, errors = read_promises(asked)
    assert errors == []
    assert len(made.slos) == 3
    assert made.texts == [
        "ratio(good) >= 99%",
        "p50(latency) <= 1s over 4w",
        "p99(ttft) <= 2000ms",
        "p99(tpot) <= 100ms",
        "ttft <= 200ms",
        "tpot <= 50ms",
    ]
    assert made.confidence == "0.99"  # LoadGen's
    keep(made, RunDirectory(tmp_path))
    back = kept(sealed(tmp_path))
    assert back.to_json() == made.to_json()
    assert [slo.name for slo in back.slos] == [slo.name for slo in made.slos]


def test_every_mistake_of_every_flag_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("apiVersion: openslo/v1\nkind: SLO\nmetadata: {name: Bad_Name}\nspec: {}\n")
    asked = Asked(["p99(tftt) <= 1ms", str(tmp_path / "bad.yaml"), str(tmp_path / "none.yaml")], "x:1", ["mlperf/x"],
        "2", -1.0)  # fmt: skip
    _, errors = read_promises(asked)
    for flag in ("--slo 'p99(tftt)", "--goodput 'x:1'", "--preset ", "--confidence 2", "--production-rate -1.0"):
        assert any(error.startswith(flag) for error in errors), flag
    assert sum("bad.yaml" in error for error in errors) >= 3
    assert any("none.yaml" in error for error in errors)


def test_what_is_promised_twice_counts_once(tmp_path: Path) -> None:
    """Each objective more makes a FAIL harder to show, so a repeated one must not count."""
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(openslo.starter(), encoding="utf-8")
    asked = ["p99(ttft) <= 1s", str(tmp_path / "a.yaml"), "p99( ttft ) <= 1s", str(tmp_path / "b.yaml")]
    made, errors = read_promises(Asked(asked))
    assert (errors, made.texts, len(made.slos), len(made.documents)) == ([], ["p99(ttft) <= 1s"], 3, 1)


def test_two_slos_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(openslo.starter(), encoding="utf-8")
    (tmp_path / "b.yaml").write_text(openslo.starter().replace("value: 500", "value: 900"), encoding="utf-8")
    _, errors = read_promises(Asked([str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml")]))
    assert len(errors) == 3
    assert all("Rename one of them" in line and "b.yaml" in line for line in errors)


def test_a_preset_without_a_limit_is_refused_alone_for_it_would_judge_nothing() -> None:
    alone = Asked(preset=["mlperf/whisper/offline"])
    assert "nothing to judge" in read_promises(alone)[1][0]
    assert read_promises(Asked(["rate(ok) >= 1/s"], preset=["mlperf/whisper/offline"]))[1] == []


def test_an_explicit_confidence_outdoes_the_presets() -> None:
    assert read_promises(Asked(preset=["mlperf/resnet50/server"], confidence="0.9"))[0].confidence == "0.9"


@pytest.mark.parametrize("text", ["0.95", "0.5", "0.999"])
def test_a_confidence_is_a_number_from_a_half_to_below_one(text: str) -> None:
    assert read_promises(Asked(confidence=text))[1] == []


@pytest.mark.parametrize("text", ["1", "0.49", "95", "nan", "often", "95%"])
def test_any_other_confidence_is_refused(text: str) -> None:
    assert "--confidence" in read_promises(Asked(confidence=text))[1][0]


def test_limits_alone_are_refused_but_vllms_goodput_alone_only_reports() -> None:
    assert "nothing says how many must be" in read_promises(Asked(["ttft <= 1s"]))[1][0]
    made, errors = read_promises(Asked(goodput="ttft:200"))
    assert (errors, [one.scope for one in made.objectives]) == ([], ["request"])


def test_a_run_without_the_file_is_judged_by_its_scenario(tmp_path: Path) -> None:
    assert kept(sealed(tmp_path, "p50(latency) <= 1s")).texts == ["p50(latency) <= 1s"]


def test_flags_take_the_place_of_what_was_kept_but_confidence_alone_does_not(tmp_path: Path) -> None:
    keep(read_promises(Asked(["p50(latency) <= 1s"]))[0], RunDirectory(tmp_path))
    assert again(Asked(["p50(ttft) <= 1s"]), sealed(tmp_path))[0].texts == ["p50(ttft) <= 1s"]
    surer, _ = again(Asked(confidence="0.99", production_per_s=5.0), sealed(tmp_path))
    assert (surer.texts, surer.confidence, surer.production_per_s) == (["p50(latency) <= 1s"], "0.99", 5.0)


WHOLE = (
    '{"schema": "plimsoll.promises/1", "objectives": [], "openslo": [], "confidence": "0.95", "production_per_s": null, '  # noqa: E501
    '"presets": []}'
)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"schema": "plimsoll.promises/2"}',
        '{"schema": 3, "objectives": 1}',
        WHOLE.replace("0.95", "7"),
        WHOLE.replace("0.95", "often"),
        WHOLE.replace("null", "-1"),
        WHOLE.replace('"presets": []', '"presets": ["mlperf/none"]'),
    ],
)
def test_a_damaged_file_is_one_clear_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "promises.json").write_text(text)
    with pytest.raises(HarnessFault, match="Give the objectives with --slo") as caught:
        kept(sealed(tmp_path))
    assert "\n" not in caught.value.errors[0]
