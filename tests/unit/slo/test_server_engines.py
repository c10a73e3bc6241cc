"""Every engine's page, as its releases write it, means what it says: names, units and sums over series."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plimsoll.harness.scraping.sources import of_json
from plimsoll.harness.wire.exposition import labels_of, samples
from plimsoll.slo.server.canonical import NAMES, engines, meanings, name_of
from plimsoll.slo.server.courses import courses
from plimsoll.slo.server.served import Asked, Origin, Served, Track

PAGES = Path(__file__).parents[2] / "golden" / "server"
MS = 1e6
#: page -> what is read in it; of a counter and a mean, what grew while everything that was counted doubled.
MEANT: dict[str, dict[str, float]] = {
    "vllm-0.6": {
        "server.queue": 2, "server.running": 3, "server.kv_usage": 0.25, "server.preempted": 1,
        "server.prompt_tokens": 900, "server.generated_tokens": 400, "server.requests": 10,
        "server.queue_time": 10 * MS, "server.prefill_time": 100 * MS, "server.decode_time": 1000 * MS,
        "server.ttft": 200 * MS, "server.itl": 20 * MS, "server.e2e": 1500 * MS, "host.rss": 1e9,
    },
    "vllm-0.11": {
        "server.queue": 80, "server.running": 7, "server.kv_usage": 0.75, "server.preempted": 3,
        "server.prefix_hit": 0.25, "server.cached_tokens": 200, "server.prompt_tokens": 900,
        "server.generated_tokens": 400, "server.requests": 10, "server.queue_time": 10 * MS,
        "server.prefill_time": 100 * MS, "server.decode_time": 1000 * MS, "server.ttft": 200 * MS,
        "server.itl": 20 * MS, "server.e2e": 1500 * MS,
    },
    "vllm-0.32": {
        "server.queue": 0, "server.running": 0, "server.kv_usage": 0, "server.preempted": 0, "server.prefix_hit": 0,
        "server.cached_tokens": 0, "server.prompt_tokens": 578, "server.generated_tokens": 1600,
        "server.requests": 16, "server.failures": 665, "server.queue_time": 0.00032364299840992317e9 / 16,
        "server.prefill_time": 0.19350929899519542e9 / 16, "server.decode_time": 4.817678920997423e9 / 16,
        "server.ttft": 0.5650694370269775e9 / 16, "server.itl": 4.817678920997423e9 / 1584,
        "server.e2e": 5.367588520050049e9 / 16, "host.rss": 641085440, "host.cpu": 8.61,
    },
    "ray-2.60": {
        "server.queue": 20, "server.running": 7, "server.requests": 30, "server.failures": 1, "server.e2e": 20 * MS,
    },
    "ray-2.9": {
        "server.queue": 12, "server.running": 3, "server.requests": 30, "server.failures": 1, "server.e2e": 20 * MS,
    },
    "ray-vllm-2.60": {"server.queue": 11, "server.kv_usage": 0.5},
    "sglang-0.4": {
        "server.queue": 2, "server.prefix_hit": 0.25, "server.cached_tokens": 200, "server.prompt_tokens": 800,
        "server.requests": 10, "server.itl": 20 * MS,
    },
    "sglang-0.3": {
        "server.queue": 2, "server.running": 3, "server.kv_usage": 0.28, "server.prompt_tokens": 800,
        "server.generated_tokens": 400, "server.ttft": 200 * MS, "server.itl": 20 * MS, "server.e2e": 1500 * MS,
    },
    "sglang-0.5": {
        "server.queue": 2, "server.running": 3, "server.kv_usage": 0.28, "server.preempted": 3,
        "server.prefix_hit": 0.25, "server.cached_tokens": 200, "server.prompt_tokens": 800,
        "server.generated_tokens": 400, "server.requests": 10, "server.failures": 1, "server.queue_time": 10 * MS,
        "server.prefill_time": 100 * MS, "server.ttft": 200 * MS, "server.itl": 20 * MS, "server.e2e": 1500 * MS,
    },
    "tensorrt_llm-2026": {
        "server.queue": 2, "server.running": 3, "server.kv_usage": 0.25, "server.batch": 3, "gpu.memory": 7e10,
        "server.cached_tokens": 200, "server.prompt_tokens": 800, "server.generated_tokens": 400,
        "server.requests": 10, "server.failures": 1, "server.queue_time": 10 * MS, "server.prefill_time": 100 * MS,
        "server.decode_time": 1000 * MS, "server.ttft": 200 * MS, "server.itl": 20 * MS, "server.e2e": 1500 * MS,
    },
    "tensorrt_llm-iterations": {
        "server.queue": 2, "server.running": 3, "server.kv_usage": 0.25, "server.batch": 7, "gpu.memory": 7e10,
    },
    "tensorrt_llm-2025": {"server.requests": 10, "server.queue_time": 10 * MS},
    "tgi-3.3": {
        "server.queue": 2, "server.running": 3, "server.batch": 3, "server.prompt_tokens": 800,
        "server.generated_tokens": 400, "server.requests": 11, "server.failures": 1, "server.queue_time": 10 * MS,
        "server.itl": 20 * MS, "server.e2e": 1500 * MS,
    },
    "llamacpp-0.3.2": {
        "server.queue": 2, "server.running": 3, "server.kv_usage": 0.25, "server.batch": 3.5,
        "server.prompt_tokens": 800, "server.generated_tokens": 400, "server.itl": 20 * MS,
    },
    "llamacpp-0.3.36": {
        "server.queue": 2, "server.running": 3, "server.batch": 3.5, "server.cached_tokens": 200,
        "server.prompt_tokens": 800,
        "server.generated_tokens": 400, "server.itl": 20 * MS,
    },
    "llamacpp-slots": {"server.kv_usage": 0.5},
    "triton-2.73": {
        "server.queue": 5, "server.batch": 4, "server.requests": 10, "server.failures": 1,
        "server.queue_time": 10 * MS, "server.prefill_time": 100 * MS, "server.ttft": 200 * MS,
        "server.e2e": 1500 * MS, "gpu.utilisation": 0.5, "gpu.memory": 1e9, "gpu.power": 300.5, "gpu.energy": 5000,
    },
    "triton-statistics": {
        "server.batch": 4, "server.requests": 10, "server.failures": 1, "server.queue_time": 10 * MS,
        "server.prefill_time": 100 * MS, "server.e2e": 1500 * MS,
    },
    "torchserve-0.12": {
        "server.requests": 10, "server.queue_time": 10 * MS, "server.e2e": 1500 * MS, "gpu.utilisation": 0.5,
        "gpu.memory": 2.0**30,
    },
    "tf_serving-2.8": {
        "server.requests": 13, "server.failures": 3, "server.batch": 4, "server.queue_time": 10 * MS,
        "server.prefill_time": 100 * MS, "server.e2e": 1500 * MS,
    },
    "kserve-0.15": {"server.requests": 10, "server.prefill_time": 100 * MS, "host.cpu": 12.5},
    "mlserver-1.7": {"server.queue": 2, "server.requests": 10, "server.failures": 1, "server.e2e": 1500 * MS},
    "dcgm-4.5": {
        "gpu.utilisation": 0.5, "gpu.sm_active": 0.125, "gpu.memory": 2.0**30, "gpu.power": 300.5,
        "gpu.energy": 5000, "gpu.clock": 1.98e9, "gpu.throttle": 1,
    },
    "dcgm-3.3": {"gpu.utilisation": 0.4, "gpu.throttle": 1},
}  # fmt: skip


def _doubled(text: str) -> Served:
    """The page once, and again a second later with everything counted twice as often."""
    bare = re.sub("^#.*\n", "", text, flags=re.MULTILINE)
    values = of_json(json.loads(bare)) if bare[0] in "{[" else samples(text)
    counted = {
        family
        for found in meanings().values()
        for _, reading in found
        if reading.kind != "gauge"
        for family in (*reading.families, *reading.over)
    }
    tracks = [
        Track("a", family, labels_of(labels), name_of(family), np.array([0, 1]),
              np.array([value, value * (1 + (family in counted))], float))
        for (family, labels), value in values.items()
    ]  # fmt: skip
    ends = np.array([0, 1_000_000_000])
    asked = Asked(Origin("a", "http://a/metrics", 1, 1, 0), ends - 1000, ends, ends, np.ones(2))
    return Served({"a": asked}, tuple(tracks))


@pytest.mark.parametrize("page", sorted(path.stem for path in PAGES.glob("*.txt")))
def test_a_page_of_each_release_means_what_it_says(page: str) -> None:
    found, restarts = courses(_doubled((PAGES / f"{page}.txt").read_text()))
    assert {name: float(one.values[1]) for name, one in found.items()} == pytest.approx(MEANT[page])
    assert not restarts


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.txt")), ids=lambda path: path.stem)
def test_every_page_says_where_its_names_were_read(page: Path) -> None:
    assert page.read_text().startswith(("# Names", "# Fields", "# Second-hand: names"))


def test_of_no_iteration_nothing_is_said() -> None:
    """An idle TensorRT-LLM has an empty list, and so has one that somebody else asked a moment ago."""
    assert of_json([]) == {}
    assert of_json([{"iter": 3, "numActiveRequests": 0, "kvCacheStats": None}]) == {
        ("trtllm_iteration_iter", ""): 3.0,
        ("trtllm_iteration_numActiveRequests", ""): 0.0,
    }


def test_slots_that_were_never_used_are_empty_and_those_of_releases_that_tell_no_tokens_unknown() -> None:
    fresh, used = {"id": 0, "n_ctx": 512, "is_processing": False}, {"id": 1, "n_ctx": 512, "next_token": []}
    assert of_json([fresh])["llamacpp_slot_usage", '{slot="0"}'] == 0
    assert not [family for family, _ in of_json([fresh, used]) if family == "llamacpp_slot_usage"]


def test_every_page_is_told_of() -> None:
    assert {path.stem for path in PAGES.glob("*.txt")} == MEANT.keys()


@pytest.mark.parametrize("name", engines())
def test_an_engine_reads_known_names_once_and_has_as_many_divisors_as_families(name: str) -> None:
    readings: Any = engines()[name].readings
    assert len({one.name for one in readings}) == len(readings)
    for one in readings:
        assert one.name in NAMES
        assert not one.over or len(one.over) == len(one.families)
        assert one.kind != "mean" or one.over


def test_the_guide_tells_of_every_name_and_engine() -> None:
    page = (Path(__file__).parents[3] / "docs/guide/server-metrics.md").read_text()
    assert not [name for name in NAMES if f"`{name}`" not in page]
    told = [one.title for one in engines().values() if one.places]
    assert not [title for title in told if f"\n| {title} |" not in page]
