"""Arms and bake-off files: every mistake at once, no secret in the clear, the same load for everybody."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.options import problems
from plimsoll.harness.protocols.http import HttpOptions
from plimsoll.harness.run.job import find_scenario
from plimsoll.harness.series.comparison import bakeoff_file as bakeoff
from plimsoll.harness.series.comparison.arms import Arm, read_arms
from plimsoll.harness.series.comparison.bakeoff_file import STARTER, Bakeoff, parse
from plimsoll.scenarios.text.document import read_document
from plimsoll.scenarios.text.fields import format_duration

TWO: dict[str, Any] = {"arms": [{"name": "a", "url": "http://a:1"}, {"name": "b", "url": "http://b:1"}]}


def faults(**changed: Any) -> list[str]:
    with pytest.raises(HarnessFault) as caught:
        parse(TWO | changed, "b.yaml")
    return caught.value.errors


# -- arms on the command line --------------------------------------------------------------------------------


def test_an_arm_is_a_url_and_settings() -> None:
    [arm], errors = read_arms(["new=http://h:1/v1,model=m,api_key_env=KEY,option.stream=false,header.X-A=b"])
    assert errors == []
    assert (arm.name, arm.url, arm.model) == ("new", "http://h:1/v1", "m")
    assert arm.flags()["options"] == {"stream": False}
    assert arm.flags()["headers"] == {"X-A": "b"}
    assert arm.flags()["api_key_env"] == "KEY"


def test_a_bundled_arm_says_how_its_server_is_started() -> None:
    [arm], errors = read_arms(["a=bundled,model=scripted,ttft=60ms,fault=stall=at:5s,for:2s,max_batch=4"])
    assert errors == []
    assert arm.flags()["url"] is None
    assert arm.server.arguments() == ("--ttft", "60ms", "--fault", "stall=at:5s,for:2s", "--max-batch", "4")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("http://h:1", "no endpoint"),
        ("a=", "no endpoint"),
        ("a=h:1", "is not a URL"),
        ("a=http://u:pass-word@h:1", "user or password"),
        ("a=http://h:1,rate=5", "unknown key"),
        ("a=http://h:1,ttft=5ms", "of the bundled server"),
        ("a=bundled,max_batch=x", "not a whole number"),
        ("a b=bundled", "a b"),
        ("a=http://h:1,name=b", "name stands before"),
        ("a=http://h:1,foo.bar=1", "only option.NAME and header.NAME"),
        ("a=http://h:1,header.Authorization=Bearer abcdef-secret", "would put a secret into every report"),
    ],
)
def test_a_mistyped_arm_is_one_clear_error_that_repeats_no_secret(text: str, said: str) -> None:
    _, errors = read_arms([text])
    assert len(errors) == 1
    assert said in errors[0]
    assert "abcdef-secret" not in errors[0]
    assert "pass-word" not in errors[0]


def test_every_arm_is_looked_at_and_names_must_differ() -> None:
    _, errors = read_arms(["a=http://h:1", "a=http://h:2", "b=nope", "c=http://h:1,zz=1"])
    assert len(errors) == 3


# -- the file ------------------------------------------------------------------------------------------------


def test_the_starter_file_is_a_bakeoff_and_its_scenario_takes_its_load(tmp_path: Path) -> None:
    made = parse(read_document(STARTER, "starter"), "starter", tmp_path)
    assert [arm.name for arm in made.arms] == ["ours", "theirs"]
    contest = made.contest()
    assert [level.label for level in contest.levels] == ["rate-2", "rate-5", "rate-10"]
    scenario = find_scenario(contest.scenario, {**contest.flags, **contest.levels[0].flags})  # type: ignore[typeddict-item]
    assert (scenario.kind, format_duration(scenario.stop.min_duration_ns)) == ("server", "1m")


def test_loads_go_from_low_to_high_whatever_the_order_in_the_file() -> None:
    made = parse(TWO | {"sweep": {"concurrencies": [8, 1, 4]}}, "b.yaml")
    assert [level.flags["concurrency"] for level in made.contest().levels] == [1, 4, 8]


def test_without_a_sweep_there_is_one_load_the_scenarios_own() -> None:
    assert [level.label for level in parse(TWO, "b.yaml").contest().levels] == [""]


def test_limits_on_requests_may_stand_alone() -> None:
    assert parse(TWO | {"objectives": ["ttft <= 500ms"]}, "b.yaml").contest().asked.limits_alone


def test_what_a_name_may_be_is_said_in_words() -> None:
    _, said = read_arms(["x y=http://a:1"])
    assert said == ["--arm x y:name: is 'x y'. Use letters, digits, ., _ and -, and begin with a letter or a digit."]
    [said_of_options] = problems(HttpOptions, {"path": "v1"})
    assert said_of_options == "target.options.path: is 'v1'. A route begins with /. Write it like /v1/name"


def test_every_mistake_of_a_file_is_told_at_once() -> None:
    said = "\n".join(
        faults(
            repeats=0, sweep={"rates": [1, "x"]}, objectives=["p99(nope) <= 3ms"], metrics=["p99(zz)"],
            load={"url": "x"},
            tolerance=1.5, rounds=3, cooldown="long",
        )
    )  # fmt: skip
    for part in (
        "repeats",
        "sweep.rates[1]",
        "nope",
        "p99(zz)",
        "load: unknown: url",
        "tolerance",
        "rounds: unknown key",
        "cooldown",
    ):
        assert part in said


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"arms": [{"name": "a", "url": "http://a:1"}]}, "arms"),
        ({"arms": [*TWO["arms"], {"name": "a", "url": "http://c:1"}]}, "two arms are named 'a'"),
        ({"arms": [TWO["arms"][0] | {"price_per_hour": 2.0}, TWO["arms"][1]]}, "price_per_hour is missing for b"),
        ({"arms": [TWO["arms"][0] | {"price_per_hour": -2.0}, TWO["arms"][1]]}, "price_per_hour"),
        ({"arms": [TWO["arms"][0] | {"concurrency": 3}, TWO["arms"][1]]}, "concurrency: unknown key"),
        ({"arms": [TWO["arms"][0] | {"headers": {"Authorization": "Bearer x"}}, TWO["arms"][1]]}, "secret"),
        ({"sweep": {"rates": [1], "concurrencies": [1]}}, "either rates or concurrencies"),
        ({"sweep": {}}, "either rates or concurrencies"),
        ({"sweep": {"rates": [1, 1.0]}}, "given twice"),
        ({"sweep": {"rates": [0]}}, "above 0"),
    ],
)
def test_what_would_make_an_unfair_or_empty_bakeoff_is_refused(changed: dict[str, Any], said: str) -> None:
    assert said in "\n".join(faults(**changed))


def test_a_file_that_is_missing_or_no_yaml_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(HarnessFault, match="cannot be read"):
        bakeoff.load(tmp_path / "none.yaml")
    (tmp_path / "b.yaml").write_text("arms: [")
    with pytest.raises(HarnessFault, match="not YAML"):
        bakeoff.load(tmp_path / "b.yaml")


def test_the_documented_keys_are_those_of_the_file_and_of_an_arm() -> None:
    text = (Path(__file__).parents[3] / "docs/guide/compare.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*) \|$", text, re.MULTILINE)
    assert [key for key, _, _ in rows] == [field.alias or name for name, field in Bakeoff.model_fields.items()]
    [arms] = [meaning for key, _, meaning in rows if key == "arms"]
    assert set(re.findall(r"`(\w+)`", arms)) - {"bundled"} == set(Arm.model_fields)


def test_one_endpoint_is_no_bake_off() -> None:
    assert faults(arms=TWO["arms"][:1]) == [
        "b.yaml:arms: one endpoint has nobody to be ranked against. Give two or more."
    ]


def test_the_example_in_the_documentation_is_what_init_writes() -> None:
    example = Path(__file__).parents[3] / "docs" / "examples" / "bakeoff.yaml"
    assert example.read_text(encoding="utf-8") == STARTER
