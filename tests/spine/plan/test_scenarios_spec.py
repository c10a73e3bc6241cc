"""Scenario files: every problem at once, each with its place and the next step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plimsoll.scenarios import spec
from plimsoll.scenarios.plugins import sources
from plimsoll.scenarios.text.document import read_document
from plimsoll.scenarios.text.fields import format_duration, parse_duration

S = 1_000_000_000


def errors_of(mapping: Any) -> list[str]:
    with pytest.raises(spec.ScenarioError) as caught:
        spec.parse(mapping, "f.yaml")
    return caught.value.errors


def one_error(**changes: Any) -> str:
    errors = errors_of({"kind": "server", **changes})
    assert len(errors) == 1, errors
    return errors[0]


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("500us", 500_000),
        ("500µs", 500_000),
        ("200ms", 200_000_000),
        ("30s", 30 * S),
        (" 2 m ", 120 * S),
        ("1h", 3600 * S),
        ("1.5s", 1_500_000_000),
        ("30", 30 * S),  # a bare number of seconds, on the command line too
        (".5ms", 500_000),
        (3, 3 * S),
        (0.1, 100_000_000),
        (1e-6, 1000),
        (0, 0),
    ],
)
def test_durations_are_exact_nanoseconds(text: str | float, ns: int) -> None:
    assert parse_duration(text) == ns


@pytest.mark.parametrize(
    "text", ["", "s", "-1s", "1:30", "1h30m", "1d", "inf", float("nan"), float("inf"), -1, True, None, [], "9000h"]
)
def test_other_durations_are_refused_with_an_example(text: Any) -> None:
    with pytest.raises(ValueError, match=r"Write (for example|a number|a shorter)"):
        parse_duration(text)


def test_durations_are_written_in_the_largest_exact_unit() -> None:
    assert [format_duration(n) for n in (0, 1, 90 * S, 60 * S, 1_500_000_000)] == ["0s", "1ns", "90s", "1m", "1500ms"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"kind": "replay", "params": {"trace": "t.csv", "speed": 0, "prehistory": "1s"}, "warmup": "3s"},
            "f.yaml:params.speed: is 0. Give a value above 0.",
        ),
        ({"kind": "servr", "cancel": {"share": 0.1, "after": "1s"}}, "f.yaml:kind: scenario kind 'servr' is not known"),
    ],
)
def test_a_broken_part_is_told_where_another_one_asks_it(given: dict[str, Any], told: str) -> None:
    assert [error[: len(told)] for error in errors_of(given)] == [told]


@pytest.mark.parametrize(
    ("affinity", "told"),
    [
        (
            {"hdr": "x"},
            [
                "f.yaml:params.affinity.header: is missing. Add it.",
                "f.yaml:params.affinity.hdr: unknown key. Did you mean header? Known keys here: header.",
            ],
        ),
        (
            "cooky",
            [
                "f.yaml:params.affinity: is 'cooky'. Did you mean cookie? Allowed: cookie, token-echo, url-hash.",
            ],
        ),
    ],
)
def test_affinity_is_corrected_in_the_words_of_a_file(affinity: Any, told: list[str]) -> None:
    assert errors_of({"kind": "sessions", "params": {"affinity": affinity}}) == told


def test_all_problems_are_reported_at_once() -> None:
    errors = errors_of(
        {
            "kind": "server",
            "params": {"rte": 4, "arrival": "poison"},
            "seed": -1,
            "tiemout": "3s",
            "target": {"url": "localhost", "tls_verify": "yes"},
            "source": {"kind": "synthetic_txt"},
            "stop": {"min_queries": 3.5, "max_duration": "soon"},
            "warmup": -1,
            "objectives": "p99",
        }
    )
    assert errors == [
        "f.yaml:params.arrival: is 'poison'. Did you mean poisson? Allowed: poisson, constant, gamma, loadgen.",
        "f.yaml:params.rte: unknown key. Did you mean rate? Known keys here: arrival, order, rate.",
        "f.yaml:target.url: 'localhost' is not a URL. Write scheme, host and port: http://127.0.0.1:8000.",
        "f.yaml:target.tls_verify: is 'yes', not true or false. Write one of these two words.",
        "f.yaml:source.kind: payload source 'synthetic_txt' is not known. Did you mean synthetic_text? "
        f"Known: {', '.join(sources())}.",
        "f.yaml:seed: is -1. Give a value at least 0.",
        "f.yaml:stop.min_queries: is 3.5, not a whole number. Write for example 4.",
        "f.yaml:stop.max_duration: 'soon' is not a duration. Write a number and a unit: 500us, 200ms, 30s, 2m or 1h.",
        "f.yaml:warmup: -1 is not a duration. Write a number of seconds from 0 up, or for example 30s.",
        "f.yaml:objectives: is 'p99', not a list. Write [a, b] or lines that start with a dash.",
        "f.yaml:tiemout: unknown key. Did you mean timeout? Known keys here: answers, budget, cancel, client, "
        "connect_timeout, copied, degraded, description, drain, events, impair, keep, kind, labels, lot, mix, mode, "
        "name, objectives, params, phases, reference, retries, seed, source, stop, target, timeout, warmup, workers.",
    ]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"kind": "sever"}, "f.yaml:kind: scenario kind 'sever' is not known. Did you mean server?"),
        ({"kind": None}, "kind: is missing. Give one of concurrency"),
        ({"kind": True}, "scenario kind True is not known"),
        ({"params": {"rate": 0}}, "params.rate: is 0. Give a value at least 1e-06"),
        ({"params": {"rate": "4"}}, "params.rate: is '4', not a number"),
        ({"params": {"rate": True}}, "params.rate: is true, not a number"),
        ({"params": {"rate": float("nan")}}, "params.rate: is nan"),
        ({"params": {"rate": {"ramp": {"from": 1, "to": 0, "over": "1s"}}}}, "params.rate.ramp.to: is 0"),
        ({"params": {"rate": {"steps": []}}}, "params.rate.steps: is empty"),
        ({"params": {"rate": {"steps": [{"rate": 1}, {"rate": 2}]}}}, "steps[0] does not say for how long"),
        ({"params": {"rate": {"steps": [{"rate": 1, "for": "1s"}, {"rate": 0}]}}}, "the last step holds"),
        (
            {"params": {"arrival": {"process": "poisson", "burstiness": 2}}},
            "params.arrival.burstiness: does not go with",
        ),
        ({"params": {"arrival": {"process": "gamma", "burstiness": 0}}}, "params.arrival.burstiness: is 0"),
        (
            {"params": {"arrival": "loadgen", "rate": {"ramp": {"from": 1, "to": 2, "over": 1}}}},
            "loadgen arrivals know only one constant rate",
        ),
        ({"kind": "single_stream", "workers": 2}, "workers: 2 workers cannot share 1 slot of kind single_stream"),
        ({"stop": {"min_queries": 10, "max_queries": 5}}, "max_queries 5 is below min_queries 10"),
        ({"stop": {"max_duration": "1s"}}, "max_duration 1s is not above min_duration 10s"),
        (
            {"params": {"rate": 1e6}, "stop": {"min_duration": "1h"}},
            "about 3,600,000,001 samples, more than 2,000,000,000",
        ),
        ({"target": {"headers": {"authorization": "Bearer x"}}}, "would put a secret into every report"),
        ({"target": {"headers": {"a b": "c"}}}, "is not a valid HTTP header"),
        ({"target": {"url": "http://me:pw@host"}}, "holds a user or password"),
        ({"target": {"api_key_env": "A", "api_key_file": "b"}}, "both given"),
        ({"name": "a/b"}, "name: is 'a/b'"),
        ({"source": "text"}, "source: does not say its kind"),
        ({"source": {"kind": "jsonl"}}, "source.path: is missing. Add it"),
        ({"source": {"kind": "synthetic_text", "prompt_tokens": {"mean": 3}}}, "does not say its distribution"),
        (
            {
                "source": {
                    "kind": "synthetic_text",
                    "prompt_tokens": {"dist": "normal", "mean": 9, "stdev": 1, "max": 5},
                }
            },
            "mean 9.0 is not between min 1 and max 5",
        ),
        ({"source": {"kind": "tensors", "inputs": [{"name": "x", "shape": [-1]}]}}, "source.inputs[0]: shape [-1]"),
        (
            {"source": {"kind": "tensors", "inputs": [{"name": "x", "shape": [1], "datatype": "UINT8", "max": 300}]}},
            "does not fit UINT8",
        ),
    ],
)
def test_each_mistake_gets_one_message_with_a_next_step(changes: dict[str, Any], says: str) -> None:
    error = one_error(**changes)
    assert says in error
    assert error.endswith(".")


def test_something_else_than_a_mapping_is_refused() -> None:
    assert errors_of([1]) == ["f.yaml: not a mapping. Give key: value pairs, starting with name and kind."]


def test_empty_sections_mean_defaults() -> None:
    scenario = spec.parse({"kind": "server", "params": None, "target": None, "stop": None})
    assert scenario == spec.parse({"kind": "server"})
    assert (scenario.stop.min_queries, scenario.stop.min_duration_ns) == (100, 10 * S)
    assert scenario.drain_ns == scenario.timeout_ns == 60 * S


def test_drain_follows_the_timeout_unless_given() -> None:
    scenario = spec.parse({"kind": "server", "timeout": "7s", "drain": "2s"})
    assert scenario.drain_ns == 2 * S
    assert spec.with_flags(spec.parse({"kind": "server"}), timeout="7s").drain_ns == 7 * S


def test_a_scenario_is_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        spec.parse({"kind": "server"}).seed = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("kind: server\n\tfoo: 1\n", "f.yaml:2:1: not YAML: a tab where YAML wants spaces. Indent with spaces"),
        (
            "kind: [server\n",
            "f.yaml:2:1: not YAML: a comma is missing, or a bracket is opened and never closed with ']'",
        ),
        ("kind: server\nkind: offline\n", "f.yaml:2: key kind is given twice"),
        ("a: {b: 1, b: 2}\n", "f.yaml:1: key b is given twice"),
        ("", "the file is empty"),
        ("- a\n", "the file is not a mapping"),
        ("1: x\n", "f.yaml:1: key 1 is not a text"),
        ("a: [{true: x}]\n", "f.yaml:1: key true is not a text"),
        ("a: \x01\n", "not YAML"),
    ],
)
def test_broken_yaml_is_reported_with_its_place(text: str, says: str) -> None:
    with pytest.raises(spec.ScenarioError) as caught:
        read_document(text, "f.yaml")
    assert says in caught.value.errors[0]


def test_yaml_surprises_stay_what_they_look_like() -> None:
    text = "a: on\nb: no\nc: 010\nd: 1:30\ne: 1e3\nf: 0x10\ng: 2026-01-01\nh: 1_000\n"
    text += "i: true\nj: ~\nk: -.inf\nl: 0o10\nm: -5\n"
    assert read_document(text, "t") == {
        "a": "on", "b": "no", "c": "010", "d": "1:30", "e": 1000.0, "f": 16, "g": "2026-01-01", "h": "1_000",
        "i": True, "j": None, "k": float("-inf"), "l": 8, "m": -5,
    }  # fmt: skip


def test_anchors_and_merges_still_work() -> None:
    text = "base: &b {x: 1, y: 2}\nuse: {<<: *b, x: 3}\n"
    assert read_document(text, "t")["use"] == {"x": 3, "y": 2}


def test_files_are_looked_for_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text('{"prompt": "hi"}\n')
    file = tmp_path / "mine.yaml"
    file.write_text("kind: server\nsource: {kind: jsonl, path: data.jsonl}\ntarget: {headers_file: h}\n")
    scenario = spec.load(file)
    assert scenario.name == "mine"
    assert scenario.target.headers_file == str(tmp_path / "h")
    assert len(scenario.source_object()) == 1
    assert spec.parse(scenario.to_mapping(), "run/scenario.yaml") == scenario


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("dmo", "Did you mean demo? Known: chat-and-batch, demo"),
        ("no/such.yaml", "there is no such file"),
        ("/", "is a folder"),
    ],
)
def test_a_scenario_that_is_not_there_says_what_is(name: str, says: str) -> None:
    with pytest.raises(spec.ScenarioError, match=says.replace("?", r"\?")):
        spec.load(name)


def test_a_file_that_is_not_text_is_reported(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(spec.ScenarioError, match="UTF-8"):
        spec.load(tmp_path / "x.yaml")
