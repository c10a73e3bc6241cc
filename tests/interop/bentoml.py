"""BentoML by the generic template: whole answers, streamed text, an error."""

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
    command = [binary("bentoml", "bentoml"), "serve", "bento_words:Words", "--host", "127.0.0.1", "--port", str(port)]
    home = {"BENTOML_HOME": str(tmp_path_factory.mktemp("bentoml")), "BENTOML_DO_NOT_TRACK": "true"}
    with running(command, f"http://127.0.0.1:{port}/readyz", SERVERS, home):
        yield f"http://127.0.0.1:{port}"


def scenario(body: str = '{"prompt": {{ prompt | tojson }}}', **options: Any) -> dict[str, Any]:
    source = {"kind": "synthetic_text", "count": 4, "prompt_tokens": 16, "output_tokens": 8}
    return {"source": source, "target": {"protocol": "http", "options": {"body": body, **options}}}


def test_whole_and_streamed_answers(url: str, tmp_path: Path) -> None:
    good(run(tmp_path, f"{url}/whole", scenario()))
    found = good(run(tmp_path, f"{url}/stream", scenario(framing="chunks")))
    assert (found.records["n_chunks"] >= 1).all()  # words that follow at once may share a chunk
    assert (found.records["bytes_in"] > 0).all()


def test_an_error_keeps_its_message(url: str, tmp_path: Path) -> None:
    found = run(tmp_path, f"{url}/whole", scenario('{"prompt": ""}'))
    assert found.statuses == {Status.HTTP}
    assert "no prompt" in str(found.errors[0])
