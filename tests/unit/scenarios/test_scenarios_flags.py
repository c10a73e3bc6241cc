"""Flags over a scenario file."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.scenarios import spec

S = 1_000_000_000
BASE = spec.parse(
    {
        "name": "base",
        "kind": "server",
        "params": {"rate": 4, "order": "permutation"},
        "stop": {"min_queries": 50, "min_duration": "20s", "max_duration": "60s", "max_queries": 500},
        "target": {"headers": {"x-a": "1"}, "options": {"path": "/x"}},
        "objectives": ["p99(ttft) <= 1s"],
    }
)


def stop_of(base: spec.Scenario | None = None, **flags: Any) -> tuple[int, int, int | None, int | None]:
    stop = spec.with_flags(base, **flags).stop
    return stop.min_queries, stop.min_duration_ns, stop.max_queries, stop.max_duration_ns


def errors_of(base: spec.Scenario | None = None, **flags: Any) -> list[str]:
    with pytest.raises(spec.ScenarioError) as caught:
        spec.with_flags(base, **flags)
    return caught.value.errors


def test_no_flags_change_nothing() -> None:
    assert spec.with_flags(BASE) == BASE
    assert spec.with_flags(BASE, rate=None, duration=None, objectives=None) == BASE


def test_without_a_file_the_defaults_are_loadgens() -> None:
    scenario = spec.with_flags()
    assert (scenario.kind, scenario.name) == ("server", "openai-chat server")
    assert stop_of() == (100, 10 * S, None, None)
    assert spec.with_flags(concurrency=3).kind == "concurrency"


def test_a_load_without_a_file_is_called_by_what_it_is() -> None:
    assert spec.with_flags(rate=10, protocol="kserve-v2").name == "kserve-v2 at 10 per s"
    assert spec.with_flags(rate=0.5).name == "openai-chat at 0.5 per s"
    assert spec.with_flags(concurrency=3).name == "openai-chat 3 in flight"
    assert spec.with_flags(kind="single_stream").name == "openai-chat single_stream"
    assert spec.with_flags(rate=10, name="mine").name == "mine"


def test_what_a_name_may_be_is_said_in_words() -> None:
    [said] = errors_of(rate=10, name="a/b")
    assert said.endswith("is 'a/b'. Use letters, digits, spaces, ., _ and -, and begin with a letter or a digit.")


def test_a_description_of_another_load_is_not_kept() -> None:
    base = BASE.model_copy(update={"description": "4 requests/s of chat"})
    assert spec.with_flags(base, url="http://a:1", objectives=["p99(ttft) <= 1s"]).description == base.description
    assert spec.with_flags(base, rate=base.to_mapping()["params"]["rate"]).description == base.description
    changed = spec.with_flags(base, rate=10, duration="5s")
    assert changed.description == f"{BASE.name} with --rate 10 --duration 5s"
    assert spec.with_flags(BASE, rate=10).description == BASE.description


def test_duration_alone_is_a_minimum_duration() -> None:
    assert stop_of(duration="5s") == (1, 5 * S, None, None)
    assert stop_of(kind="single_stream", duration=5) == (1, 5 * S, None, None)


def test_queries_alone_are_exact() -> None:
    assert stop_of(queries=7) == (7, 0, None, None)
    assert spec.with_flags(queries=7).build(3).n_queries == 7
    assert stop_of(kind="concurrency", queries=7) == (7, 0, 7, None)
    assert spec.with_flags(kind="offline", queries=7).build(3).n_samples == 7


def test_duration_and_queries_together_are_both_minima() -> None:
    assert stop_of(kind="concurrency", duration="5s", queries=7) == (7, 5 * S, None, None)


def test_the_files_cap_on_time_stays_unless_it_contradicts() -> None:
    assert stop_of(BASE, duration="30s") == (1, 30 * S, None, 60 * S)
    (said,) = errors_of(BASE, duration="90s")
    assert said.startswith("base:stop: max_duration 1m is not above min_duration 90s")
    assert "not above" in errors_of(BASE, duration="60s")[0]  # an open loop ends after min_duration by construction
    assert stop_of(BASE, duration="90s", max_duration="2m")[3] == 120 * S


def test_flags_override_and_headers_add() -> None:
    scenario = spec.with_flags(
        BASE,
        url="http://h:1",
        model="m",
        headers={"x-b": "2"},
        options={"stream": False},
        rate=9,
        objectives=["p50(ttft) <= 2s"],
        warmup="3s",
        timeout=5,
        prompt_tokens=10,
        output_tokens=11,
        seed=0,
    )
    assert scenario.target.headers == {"x-a": "1", "x-b": "2"}
    assert scenario.target.options == {"path": "/x", "stream": False}
    assert scenario.params.model_dump() == {"rate": 9.0, "arrival": "poisson", "order": "permutation"}
    assert scenario.objectives == ("p50(ttft) <= 2s",)
    assert (scenario.warmup_ns, scenario.timeout_ns, scenario.seed) == (3 * S, 5 * S, 0)
    payload = scenario.source_object().payload(0)
    assert (payload.n_in, payload.max_output_tokens) == (10, 11)


def test_another_kind_starts_from_its_own_params() -> None:
    scenario = spec.with_flags(BASE, kind="concurrency", concurrency=3)
    assert scenario.params.model_dump() == {"concurrency": 3, "order": "random"}
    assert spec.with_flags(BASE, kind="server").params == BASE.params


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (
            {"kind": "concurrency", "rate": 3},
            "--rate: kind concurrency has no rate. Add --kind server or sessions, or use --concurrency.",
        ),
        (
            {"kind": "single_stream", "rate": 3},
            "--rate: kind single_stream has no rate. Add --kind server or sessions, or leave it out.",
        ),
        (
            {"concurrency": 4},
            "--concurrency: kind server has no concurrency. Add --kind concurrency or sessions, or use --arrival,",
        ),
        ({"rate": -1}, "--rate: is -1. Give a value at least 1e-06."),
        ({"queries": 0}, "--queries: is 0. Give a value at least 1."),
        ({"duration": "soon", "max_duration": "1h"}, "--duration: 'soon' is not a duration. "),
        ({"kind": "sever"}, "--kind: scenario kind 'sever' is not known. Did you mean server? "),
        ({"url": "x"}, "--url: 'x' is not a URL. "),
        ({"url": "me:letmein@h/v1?key=letmein"}, "--url: 'h/v1' is not a URL. "),
        ({"url": "http://me:letmein@h/v 1?key=letmein"}, "--url: 'h/v 1' is not a URL. "),
        ({"workers": 0}, "--workers: is 0. "),
        ({"objectives": [""]}, "base:objectives[0]: is empty. "),
    ],
)
def test_a_bad_flag_is_named(flags: dict[str, Any], says: str) -> None:
    errors = errors_of(BASE, **flags)
    assert len(errors) == 1
    assert errors[0].startswith(says)


def test_all_bad_flags_are_reported_at_once() -> None:
    errors = errors_of(kind="concurrency", rate=1, workers=0, timeout="x")
    assert [error.split(":")[0] for error in errors] == ["--rate", "--timeout", "--workers"]


def test_a_source_without_lengths_refuses_the_length_flags() -> None:
    base = spec.parse({"kind": "server", "source": {"kind": "tensors"}})
    assert errors_of(base, prompt_tokens=5) == [
        "--prompt-tokens: source tensors has no prompt_tokens. Leave it out, or use synthetic_text."
    ]


def test_flags_do_not_touch_the_base() -> None:
    before = BASE.to_mapping()
    spec.with_flags(BASE, headers={"x-c": "3"}, rate=100, kind="server")
    assert BASE.to_mapping() == before


def test_options_inside_options_are_merged_with_the_files() -> None:
    base = spec.with_flags(None, protocol="vosk", options={"audio": {"frame": "40ms", "pace": "burst"}, "words": True})
    over = spec.with_flags(base, options={"audio": {"frame": "20ms"}})
    assert over.target.options == {"audio": {"frame": "20ms", "pace": "burst"}, "words": True}
