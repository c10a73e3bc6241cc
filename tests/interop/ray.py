"""Ray Serve by the generic template: whole answers, streamed lines, an error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll.slo.records.records import Status
from tests.interop.driven import SERVERS, binary, free_ports, good, run, running

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    (port,) = free_ports(1)
    command = [binary("ray"), str(SERVERS / "ray_words.py"), str(port)]
    quiet = {"RAY_USAGE_STATS_ENABLED": "0"}
    with running(command, f"http://127.0.0.1:{port}/-/healthz", tmp_path_factory.mktemp("ray"), quiet):
        yield f"http://127.0.0.1:{port}"


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
