"""Every text protocol of the HTTP family through whole runs: the command line, real sockets, and a server that logs what it wrote when.

Against the bundled server where it has the route, else against a fake of the vendor's wire (``tests/fakes``). Each run is a few
requests long: an answer that is whole, one that fails in the middle and one whose connection breaks. About 20 seconds in all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from slo import contradictions, tables
from slo.records import Records, Status, TokensFrom
from tests.e2e.plimsoll import plimsoll, server
from tests.fakes import anthropic, llamacpp, ollama, plain_http, tfserving, tgi, torchserve
from tests.fakes.stage import Entry, Fake

pytestmark = pytest.mark.e2e

MS = 1_000_000
#: A whole answer, one that fails before its fourth piece, one whose connection breaks there.
PLAYS: tuple[dict[str, Any], ...] = ({}, {"error_at": 3}, {"cut_at": 3})
#: A kernel's stamp may be so much earlier than the sender's own clock reading.
EARLY_NS = 100_000


@dataclass(frozen=True)
class Result:
    """What a run directory says. ``errors``, ``ids`` and ``timings`` have an item for each request."""

    records: Records
    ids: list[str]
    errors: list[str | None]
    timings: list[str | None]
    t0: int

    def arrivals(self, row: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Absolute, ns."""
        records = self.records
        return records.chunk_ns[records.chunk_offsets[row] : records.chunk_offsets[row + 1]] + self.t0

    def statuses(self) -> list[Status]:
        return [Status(int(status)) for status in self.records["status"]]


def run(
    folder: Path, url: str, protocol: str, queries: int, *flags: str, env: dict[str, str] | None = None, **options: Any
) -> Result:
    """One request after the other, in the order of the plays."""
    given = [word for name, value in options.items() for word in ("--option", f"{name}={json.dumps(value)}")]
    done = plimsoll(
        "run", "--url", url, "--protocol", protocol, "--kind", "single_stream", "--queries", str(queries), *flags,
        "--timeout", "5s", "--out", "r", *given, cwd=folder, env=env,
    )  # fmt: skip
    assert (folder / "r" / "report.json").is_file(), done.stderr
    records = tables.load(folder / "r")
    assert contradictions.find(records) == []
    table = pq.read_table(folder / "r" / "requests.parquet", columns=["request_id", "error", "server_timing"])
    columns = table.to_pydict()
    t0 = json.loads((folder / "r" / "manifest.json").read_text())["t0_monotonic_ns"]
    return Result(records, columns["request_id"], columns["error"], columns["server_timing"], t0)


MODEL = ("--model", "m")
TEXT = ("--output-tokens", "5")


def check_stamps(result: Result, row: int, entry: Entry) -> None:
    """Each piece arrived after the fake wrote it, before it wrote the next one, and the first is the first token."""
    arrived, written = result.arrivals(row), np.array(entry.sent_ns)
    assert len(arrived) == len(written)
    assert (arrived >= written - EARLY_NS).all()
    assert (arrived[:-1] < written[1:]).all()
    assert int(result.records["first_token_ns"][row]) + result.t0 == arrived[0]


# -- streams of the vendors' own ---------------------------------------------------------------------------------

Serve = Callable[..., AbstractContextManager[Fake]]
STREAMS: dict[str, tuple[Serve, dict[str, Any], int, int]] = {
    # protocol: fake, options, prompt tokens and output tokens that a whole answer reports
    "anthropic-messages": (anthropic.serve, {}, 13, 5),
    "tgi-generate": (tgi.serve, {}, 6, 6),
    "llamacpp-completion": (llamacpp.serve, {"extra_body": {"return_progress": True}}, 8, 5),
    "ollama-generate": (ollama.serve, {}, 11, 5),
    "ollama-chat": (ollama.serve, {}, 11, 5),
}


@pytest.mark.parametrize("protocol", STREAMS)
def test_a_vendors_stream_is_measured_and_its_failures_keep_what_came(protocol: str, tmp_path: Path) -> None:
    """3 requests, one after the other, 5 pieces 4 ms apart."""
    serve, options, n_in, n_out = STREAMS[protocol]
    with serve(plays=PLAYS) as fake:
        env = {"FAKE_KEY": "sk-not-for-the-report"}
        result = run(tmp_path, fake.url, protocol, 3, *MODEL, *TEXT, "--api-key-env", "FAKE_KEY", env=env, **options)
    assert result.statuses() == [Status.OK, Status.REFUSED if "anthropic" in protocol else Status.HTTP, Status.PROTOCOL]
    for row, request_id in enumerate(result.ids):
        check_stamps(result, row, fake.by_id()[request_id])
    assert result.records["n_chunks"].tolist() == [5, 3, 3]
    assert (result.records["n_in"][0], result.records["n_out"][0]) == (n_in, n_out)
    assert result.records["tokens_from"][0] == TokensFrom.USAGE
    assert ("Overloaded" if "anthropic" in protocol else "it broke") in (result.errors[1] or "")
    assert "sk-not-for-the-report" not in "".join(map(str, result.errors))


def test_thinking_comes_before_the_answer(tmp_path: Path) -> None:
    """2 requests to each of two vendors."""
    cases: Sequence[tuple[str, Serve, dict[str, Any]]] = (
        ("anthropic-messages", anthropic.serve, {"thinking_budget": 1024}),
        ("ollama-chat", ollama.serve, {"think": True}),
    )
    for number, (protocol, serve, options) in enumerate(cases):
        folder = tmp_path / str(number)
        folder.mkdir()
        with serve(reasoning=2, tokens=3) as fake:
            result = run(
                folder, fake.url, protocol, 2, *MODEL, *TEXT, env={"PLIMSOLL_API_KEY": "sk-any-key"}, **options
            )
        assert result.statuses() == [Status.OK, Status.OK]
        for row in range(2):
            arrived = result.arrivals(row)
            assert len(arrived) == 5
            assert int(result.records["first_answer_ns"][row]) + result.t0 == arrived[2]


def test_what_a_server_says_of_its_stages_reaches_the_anatomy(tmp_path: Path) -> None:
    """2 requests each; the stages are those of the fakes' scripts."""
    cases: Sequence[tuple[str, Serve, dict[str, Any], str]] = (
        ("ollama-generate", ollama.serve, {}, "load;dur=1500.000;desc=\"cold model\", prefill;dur=20.000, decode;dur=20.000"),
        ("llamacpp-completion", llamacpp.serve, {}, "prefill;dur=20.000, decode;dur=20.000"),
        ("tgi-generate", tgi.serve, {"stream": False}, "validation;dur=1.000, queue;dur=9.000, inference;dur=20.000"),
    )  # fmt: skip
    for number, (protocol, serve, options, stages) in enumerate(cases):
        folder = tmp_path / str(number)
        folder.mkdir()
        with serve(load_ms=1500.0) as fake:
            result = run(folder, fake.url, protocol, 2, *MODEL, *TEXT, **options)
        assert result.statuses() == [Status.OK, Status.OK]
        assert result.timings == [stages, stages]


# -- the bundled server's routes -----------------------------------------------------------------------------------

BUNDLED = ("--model", "scripted", "--ttft", "20ms", "--itl", "5ms")


@pytest.mark.parametrize("protocol", ["openai-responses", "ollama-generate", "ollama-chat", "triton-generate"])
def test_the_bundled_servers_streams_are_measured_against_its_own_log(protocol: str, tmp_path: Path) -> None:
    """3 requests whole, 2 that fail and 2 that break, 6 tokens 5 ms apart."""
    results = {}
    with server(*BUNDLED) as target:
        for name, script in (("whole", {}), ("error", {"error_at": 3}), ("cut", {"cut_at": 3})):
            folder = tmp_path / name
            folder.mkdir()
            extra: dict[str, Any] = {"extra_body": {"plimsoll": script}} if script else {}
            n = 2 if script else 3
            flags = ("--model", "scripted", "--output-tokens", "6")
            results[name] = run(folder, target.url, protocol, n, *flags, **extra)
        truth = target.truth()
    whole = results["whole"]
    assert whole.statuses() == [Status.OK] * 3
    counted = TokensFrom.CHUNKS if protocol == "triton-generate" else TokensFrom.USAGE
    assert whole.records["n_out"].tolist() == [6] * 3
    assert whole.records["tokens_from"].tolist() == [counted] * 3
    for row, request_id in enumerate(whole.ids):
        written = np.array(truth[request_id]["tokens"])[:, 0]
        arrived = whole.arrivals(row)
        assert len(arrived) == 6
        assert (arrived >= written - EARLY_NS).all()
        assert (arrived[:-1] < written[1:]).all()
    assert results["error"].statuses() == [Status.HTTP] * 2
    assert results["cut"].statuses() == [Status.PROTOCOL] * 2
    for name in ("error", "cut"):
        assert results[name].records["n_chunks"].tolist() == [3, 3]


@pytest.mark.parametrize("protocol", ["openai-responses", "ollama-generate", "triton-generate"])
def test_an_answer_in_one_piece_has_no_chunks(protocol: str, tmp_path: Path) -> None:
    """2 requests."""
    with server(*BUNDLED) as target:
        result = run(tmp_path, target.url, protocol, 2, "--model", "scripted", "--output-tokens", "3", stream=False)
    assert result.statuses() == [Status.OK, Status.OK]
    assert result.records["n_chunks"].tolist() == [0, 0]
    assert result.records["n_out"].tolist() == ([-1, -1] if protocol == "triton-generate" else [3, 3])


# -- servers that compute tensors, or that have no protocol --------------------------------------------------------


def test_torchserve_streams_chunks_and_tells_an_overload_from_a_failed_handler(tmp_path: Path) -> None:
    """4 requests: whole, cut, overloaded, failed."""
    plays: tuple[dict[str, Any], ...] = ({}, {"cut_at": 3}, {"status": 503}, {"error_at": 0})
    with torchserve.serve(plays=plays) as fake:
        result = run(tmp_path, fake.url, "torchserve", 4, "--model", "words_stream", *TEXT, stream=True)
    assert result.statuses() == [Status.OK, Status.PROTOCOL, Status.REFUSED, Status.HTTP]
    for row in (0, 1):
        check_stamps(result, row, fake.log[row])
    assert "no worker to serve" in (result.errors[2] or "")
    assert "Prediction failed" in (result.errors[3] or "")
    assert fake.log[0].path == "/predictions/words_stream"
    assert isinstance(fake.log[0].body, bytes)


def test_tfserving_reads_nan_and_keeps_an_error(tmp_path: Path) -> None:
    """3 requests: two tensors by rows, with NaN in the answer; the last one fails."""
    (tmp_path / "s.yaml").write_text(
        "kind: single_stream\n"
        "source: {kind: tensors, inputs: [{name: a, shape: [2, 3]}, {name: b, datatype: INT32, shape: [2, 1]}]}\n"
    )
    with tfserving.serve(plays=({}, {}, {"status": 500}), ttft_ms=2.0) as fake:
        done = plimsoll(
            "run", "s.yaml", "--url", fake.url, "--protocol", "tfserving", "--model", "m", "--queries", "3", "--out",
            "r", cwd=tmp_path,
        )  # fmt: skip
    assert (tmp_path / "r" / "report.json").is_file(), done.stderr
    records = tables.load(tmp_path / "r")
    assert records["status"].tolist() == [Status.OK, Status.OK, Status.HTTP]
    assert records.errors == ('HTTP 500: {"error": "it broke"}',)
    rows = fake.log[0].body["instances"]
    assert [sorted(row) for row in rows] == [["a", "b"], ["a", "b"]]
    assert len(rows[0]["a"]) == 3


PLAIN: dict[str, dict[str, Any]] = {
    "lines": {"framing": "lines"},
    "chunks": {"framing": "chunks"},
    "sse": {"framing": "sse"},
    "typed": {
        "framing": "sse",
        "text_path": "delta.text if type == delta",
        "prompt_tokens_path": "usage.in",
        "output_tokens_path": "usage.out if @event == end",
        "finish_path": "reason",
    },
    "prefixed": {"framing": "length-prefixed", "text_path": "token"},
}


@pytest.mark.parametrize("framing", PLAIN)
def test_a_server_without_a_protocol_is_described_by_options_alone(framing: str, tmp_path: Path) -> None:
    """3 requests: whole, cut, and shed as Ray Serve and BentoML do when they are full."""
    with plain_http.serve(plays=({}, {"cut_at": 3}, {"status": 503})) as fake:
        options = {"body": '{"prompt": {{ prompt | tojson }}}', **PLAIN[framing]}
        result = run(tmp_path, f"{fake.url}/{framing}", "http", 3, **options)
    assert result.statuses() == [Status.OK, Status.PROTOCOL, Status.REFUSED]
    for row in (0, 1):
        check_stamps(result, row, fake.log[row])
    assert "backpressure" in (result.errors[2] or "")
    assert result.records["n_chunks"].tolist() == [5, 3, 0]
    if framing == "typed":
        assert (result.records["n_in"][0], result.records["n_out"][0]) == (3, 5)


def test_a_form_arrives_as_a_server_reads_it(tmp_path: Path) -> None:
    """1 request."""
    (tmp_path / "a.txt").write_text("attached")
    with plain_http.serve() as fake:
        options = {"form": {"q": "{{ prompt }}"}, "form_files": {"file": "a.txt"}}
        result = run(tmp_path, f"{fake.url}/form", "http", 1, **options)
    assert result.statuses() == [Status.OK]
    assert fake.log[0].body["file"] == ["a.txt", "text/plain", "attached"]
    assert fake.log[0].body["q"][2]
