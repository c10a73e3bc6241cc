"""Ray Serve by the generic template: whole answers, streamed lines, an error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll.slo.records.records import Status
from tests.interop.driven import SERVERS, answered, becomes, binary, free_ports, good, metric, run, running

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[int]]:
    port, shown = free_ports(2)
    command = [binary("ray"), str(SERVERS / "ray_words.py"), str(port), str(shown)]
    quiet = {"RAY_USAGE_STATS_ENABLED": "0"}
    with running(command, f"http://127.0.0.1:{port}/-/healthz", tmp_path_factory.mktemp("ray"), quiet):
        yield [port, shown]


@pytest.fixture
def url(ports: list[int]) -> str:
    return f"http://127.0.0.1:{ports[0]}"


def scenario(**options: Any) -> dict[str, Any]:
    source = {"kind": "synthetic_text", "count": 4, "prompt_tokens": 16, "output_tokens": 8}
    options["body"] = '{"prompt": {{ prompt | tojson }}}'
    return {"source": source, "target": {"protocol": "http", "options": options}}


def test_whole_and_streamed_answers(url: str, tmp_path: Path) -> None:
    good(run(tmp_path, f"{url}/whole", scenario()))
    lines = scenario(framing="ndjson", text_path="text", done_path="done", output_tokens_path="tokens")
    found = good(run(tmp_path, f"{url}/lines", lines))
    assert set(found.records["n_out"]) == {8}
    assert set(found.records["n_chunks"]) == {8}


def test_an_error_keeps_its_message(url: str, tmp_path: Path) -> None:
    found = run(tmp_path, f"{url}/fail", scenario())
    assert found.statuses == {Status.HTTP}
    assert "no such words" in str(found.errors[0])


def test_its_counters_come_to_ours_once_it_has_told_them(ports: list[int], url: str, tmp_path: Path) -> None:
    """It counts in its replicas and tells twice a second here: at a run's end some may not be told yet."""
    page = f"http://127.0.0.1:{ports[1]}/metrics"
    before = metric(page, "ray_serve_deployment_request_counter_total")
    load = {"kind": "concurrency", "params": {"concurrency": 8}, "stop": {"min_queries": 100, "min_duration": "4s"}}
    found = answered(run(tmp_path, f"{url}/lines", scenario(framing="ndjson") | load, "--server-metrics", page))
    becomes(lambda: metric(page, "ray_serve_deployment_request_counter_total"), before + len(found.records))
    side = found.report["server"]
    (book,) = side["books"]
    assert len(found.records) / 2 < book["theirs"] <= book["ours"] == len(found.records)
    assert 1 <= side["names"]["server.running"]["max"] <= 8
    assert side["names"]["server.e2e"]["mean"] > 16e6  # nine pieces, 2 ms apart
