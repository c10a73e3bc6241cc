"""Every text protocol of the HTTP family through whole runs: the command line, real sockets, and a server that logs
what it wrote when.

Against the bundled server where it has the route, else against a fake of the vendor's wire (``tests/fakes``). Each run
is a few requests long: an answer that is whole, one that fails in the middle and one whose connection breaks. About 20
seconds in all.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.transport.client import Target
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.slo.records import tables
from plimsoll.slo.records.records import Records, Status, TokensFrom
from plimsoll.slo.validity.accounts import contradictions
from tests.e2e.in_process import asked
from tests.e2e.plimsoll import Server, plimsoll_here, server
from tests.fakes import anthropic, bentoml, llamacpp, ollama, plain_http, ray_serve, tfserving, tgi, torchserve
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
    done = plimsoll_here(
        "run", "--url", url, "--protocol", protocol, "--kind", "single_stream", "--queries", str(queries), *flags,
        "--timeout", "5s", "--out", "r", *given, cwd=folder, env=env,
    )  # fmt: skip
    assert (folder / "r" / "report.json").is_file(), done.stderr
    records = tables.load(folder / "r")
    assert contradictions(records) == []
    table = pq.read_table(folder / "r" / "requests.parquet", columns=["request_id", "error", "server_timing"])
    columns = table.to_pydict()
    t0 = json.loads((folder / "r" / "manifest.json").read_text())["t0_monotonic_ns"]
    return Result(records, columns["request_id"], columns["error"], columns["server_timing"], t0)


def ask(url: str, protocol: str, n: int, timeout_ms: int = 5_000, n_tokens: int = 5, **options: Any) -> list[Exchange]:
    """``n`` requests in this process, one after the other, settled: for what a whole run would only repeat."""
    model = "scripted"  # as the bundled server has it; the fakes take any
    headers = (("authorization", "Bearer sk-any-key"),)
    target = Target(url, protocol, model, headers, options, timeout_ns=timeout_ms * MS)
    return asyncio.run(asked(target, *[Payload(prompt="hello", max_output_tokens=n_tokens)] * n, name=protocol))


MODEL = ("--model", "m")
TEXT = ("--output-tokens", "5")


def between(arrived: np.ndarray[Any, Any], written: np.ndarray[Any, Any]) -> None:
    """Each piece arrived after it was written and before the next one was."""
    assert (arrived >= written - EARLY_NS).all()
    # A host that stalls for longer than the gap puts two pieces into one read, and they have its one time.
    merged = arrived[:-1] == arrived[1:]
    assert ((arrived[:-1] < written[1:]) | merged).all()
    assert np.mean(merged) <= 0.5


def check_stamps(result: Result, row: int, entry: Entry) -> None:
    """Each piece arrived after the fake wrote it, before it wrote the next one, and the first is the first token."""
    arrived, written = result.arrivals(row), np.array(entry.sent_ns)
    assert len(arrived) == len(written)
    between(arrived, written)
    assert int(result.records["first_token_ns"][row]) + result.t0 == arrived[0]


# -- streams of the vendors' own ---------------------------------------------------------------------------------

LLAMA_STAGES = "prefill;dur=20.000, decode;dur=20.000"
OLLAMA_STAGES = 'load;dur=1500.000;desc="cold model", prefill;dur=20.000, decode;dur=20.000'
Serve = Callable[..., AbstractContextManager[Fake]]
#: protocol: fake, options, prompt tokens, output tokens and stages that a whole answer reports
STREAMS: dict[str, tuple[Serve, dict[str, Any], int, int, str | None]] = {
    "anthropic-messages": (anthropic.serve, {}, 13, 5, None),
    "tgi-generate": (tgi.serve, {}, 6, 6, None),
    "llamacpp-completion": (llamacpp.serve, {"extra_body": {"return_progress": True}}, 8, 5, LLAMA_STAGES),
    "ollama-generate": (ollama.serve, {}, 11, 5, OLLAMA_STAGES),
    "ollama-chat": (ollama.serve, {}, 11, 5, OLLAMA_STAGES),
}


@pytest.mark.parametrize("protocol", ["anthropic-messages", "llamacpp-completion"])
def test_a_run_measures_a_vendors_stream_and_its_failures_keep_what_came(protocol: str, tmp_path: Path) -> None:
    """3 requests, one after the other, 5 pieces 4 ms apart."""
    serve, options, n_in, n_out, stages = STREAMS[protocol]
    with serve(plays=PLAYS, load_ms=1500.0) as fake:
        env = {"FAKE_KEY": "sk-not-for-the-report"}
        result = run(tmp_path, fake.url, protocol, 3, *MODEL, *TEXT, "--api-key-env", "FAKE_KEY", env=env, **options)
    assert result.statuses() == [Status.OK, Status.REFUSED if "anthropic" in protocol else Status.HTTP, Status.PROTOCOL]
    for row, request_id in enumerate(result.ids):
        check_stamps(result, row, fake.by_id()[request_id])
    assert result.records["n_chunks"].tolist() == [5, 3, 3]
    assert (result.records["n_in"][0], result.records["n_out"][0]) == (n_in, n_out)
    assert result.records["tokens_from"][0] == TokensFrom.USAGE
    assert result.timings[0] == stages
    assert ("Overloaded" if "anthropic" in protocol else "it broke") in (result.errors[1] or "")
    assert "sk-not-for-the-report" not in "".join(map(str, result.errors))


@pytest.mark.parametrize("protocol", STREAMS)
def test_every_vendors_stream_is_stamped_piece_by_piece_and_counted(protocol: str) -> None:
    """The same 3 requests without a run around them: whole, failed, cut."""
    serve, options, n_in, n_out, stages = STREAMS[protocol]
    with serve(plays=PLAYS, load_ms=1500.0) as fake:
        answers = ask(fake.url, protocol, 3, **options)
    apart = []
    for x, entry in zip(answers, fake.log, strict=True):
        written, came = np.array(entry.sent_ns), np.array(x.chunk_ns)
        assert (came >= written - EARLY_NS).all()
        # A host that stalls for longer than the gap puts two pieces into one read, and they have its one time.
        merged = came[:-1] == came[1:]
        assert ((came[:-1] < written[1:]) | merged).all()
        apart += (~merged).tolist()
        assert x.first_token_ns == x.chunk_ns[0]
    assert np.mean(apart) > 0.5
    whole, failed, cut = answers
    overloaded = "anthropic" in protocol
    assert [whole.status, failed.status, cut.status] == [
        Status.OK, Status.REFUSED if overloaded else Status.HTTP, Status.PROTOCOL,
    ]  # fmt: skip
    assert [x.n_chunks for x in answers] == [5, 3, 3]
    assert (whole.n_in, whole.n_out, whole.tokens_from) == (n_in, n_out, TokensFrom.USAGE)
    assert whole.server_timing == stages
    assert ("Overloaded" if overloaded else "it broke") in (failed.error or "")


@pytest.mark.parametrize("protocol", STREAMS)
def test_a_stall_times_out_and_no_server_is_no_connection(protocol: str) -> None:
    """2 requests: the second piece never comes; nobody listens."""
    serve, options, *_ = STREAMS[protocol]
    with serve(ttft_ms=5.0, itl_ms=60_000.0) as fake:
        (stalled,) = ask(fake.url, protocol, 1, timeout_ms=200, **options)
    assert (stalled.status, stalled.n_chunks) == (Status.TIMEOUT, 1)
    assert "timeout" in (stalled.error or "")
    assert stalled.first_token_ns == stalled.chunk_ns[0] >= fake.log[0].sent_ns[0] - EARLY_NS
    (nobody,) = ask(fake.url, protocol, 1, **options)
    assert (nobody.status, nobody.n_chunks) == (Status.CONNECT, 0)


def test_thinking_comes_before_the_answer() -> None:
    """1 request to each of two vendors."""
    cases: Sequence[tuple[str, Serve, dict[str, Any]]] = (
        ("anthropic-messages", anthropic.serve, {"thinking_budget": 1024}),
        ("ollama-chat", ollama.serve, {"think": True}),
    )
    for protocol, serve, options in cases:
        with serve(reasoning=2, tokens=3) as fake:
            (x,) = ask(fake.url, protocol, 1, **options)
        assert (x.status, x.n_chunks, x.n_out) == (Status.OK, 5, 5)
        assert x.first_token_ns == x.chunk_ns[0]
        assert x.first_answer_ns == x.chunk_ns[2]


def test_the_stages_and_counts_of_an_answer_in_one_piece_come_from_its_headers() -> None:
    """1 request to TGI's /generate."""
    with tgi.serve() as fake:
        (x,) = ask(fake.url, "tgi-generate", 1, stream=False)
    assert (x.status, x.n_in, x.n_out, x.n_chunks) == (Status.OK, 6, 5, 0)
    assert x.server_timing == "validation;dur=1.000, queue;dur=9.000, inference;dur=20.000"


# -- the bundled server's routes -----------------------------------------------------------------------------------

BUNDLED = ("--model", "scripted", "--ttft", "20ms", "--itl", "10ms")
CHAT = (
    '{"model": "scripted", "stream": true, "max_tokens": 6, '
    '"messages": [{"role": "user", "content": {{ prompt | tojson }}}]}'
)


@pytest.fixture(scope="module")
def bundled() -> Iterator[Server]:
    with server(*BUNDLED) as running:
        yield running


STREAMED = ("openai-responses", "ollama-generate", "ollama-chat", "triton-generate")


def check_against_truth(arrived: Sequence[int], tokens: Sequence[Sequence[int]]) -> None:
    """6 tokens, each stamped after the server wrote it and before it wrote the next one."""
    assert len(arrived) == 6
    between(np.array(arrived), np.array(tokens)[:, 0])


def test_a_run_against_the_bundled_server_agrees_with_its_log(bundled: Server, tmp_path: Path) -> None:
    """3 requests, 6 tokens 10 ms apart."""
    result = run(tmp_path, bundled.url, "openai-responses", 3, "--model", "scripted", "--output-tokens", "6")
    truth = bundled.truth()
    assert result.statuses() == [Status.OK] * 3
    assert result.records["n_out"].tolist() == [6] * 3
    assert result.records["tokens_from"].tolist() == [TokensFrom.USAGE] * 3
    for row, request_id in enumerate(result.ids):
        check_against_truth(result.arrivals(row).tolist(), truth[request_id]["tokens"])
    assert all("decode;dur=" in (timing or "") for timing in result.timings)


@pytest.mark.parametrize("protocol", STREAMED)
def test_the_bundled_servers_streams_are_stamped_as_its_log_says(protocol: str, bundled: Server) -> None:
    """2 requests, 6 tokens 10 ms apart."""
    answers = ask(bundled.url, protocol, 2, n_tokens=6)
    truth = bundled.truth()
    counted = TokensFrom.CHUNKS if protocol == "triton-generate" else TokensFrom.USAGE
    for number, x in enumerate(answers):
        assert (x.status, x.n_out, x.tokens_from) == (Status.OK, 6, counted)
        check_against_truth(x.chunk_ns, truth[f"{protocol}-{number}"]["tokens"])
        assert "decode;dur=" in (x.server_timing or "")


@pytest.mark.parametrize(
    ("protocol", "options", "chunks"),
    [
        ("openai-completions", {}, 6),
        ("openai-embeddings", {}, 0),
        ("openai-chat", {"stream": False}, 0),
        ("http", {"path": "/v1/chat/completions", "framing": "sse", "text_path": "choices.0.delta.content",
            "body": CHAT}, 6),
        ("kserve-v2", {}, 0),
    ],
)  # fmt: skip
def test_the_bundled_server_answers_every_protocol_over_http(
    protocol: str, options: dict[str, Any], chunks: int, bundled: Server
) -> None:
    answers = ask(bundled.url, protocol, 3, n_tokens=6, **options)
    assert [(x.status, x.n_chunks) for x in answers] == [(Status.OK, chunks)] * 3


def test_the_bundled_servers_failures_keep_what_came_and_whole_answers_have_no_chunks(bundled: Server) -> None:
    """3 requests to each of four routes: one fails, one breaks, one comes in one piece."""
    for protocol in STREAMED:
        (error,) = ask(bundled.url, protocol, 1, extra_body={"plimsoll": {"error_at": 3}})
        assert (error.status, error.n_chunks) == (Status.HTTP, 3), protocol
        assert error.error
        (cut,) = ask(bundled.url, protocol, 1, extra_body={"plimsoll": {"cut_at": 3}})
        assert (cut.status, cut.n_chunks) == (Status.PROTOCOL, 3), protocol
        (whole,) = ask(bundled.url, protocol, 1, stream=False)
        counted = -1 if protocol == "triton-generate" else 5
        assert (whole.status, whole.n_chunks, whole.n_out) == (Status.OK, 0, counted), protocol


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
        done = plimsoll_here(
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


PLAYS_OF_PLAIN: tuple[dict[str, Any], ...] = ({}, {"cut_at": 3}, {"status": 503})
BODY = '{"prompt": {{ prompt | tojson }}}'


def test_a_server_without_a_protocol_is_described_by_options_alone(tmp_path: Path) -> None:
    """3 requests: whole, cut, and shed as Ray Serve and BentoML do when they are full."""
    with plain_http.serve(plays=PLAYS_OF_PLAIN) as fake:
        result = run(tmp_path, f"{fake.url}/typed", "http", 3, body=BODY, **PLAIN["typed"])
    assert result.statuses() == [Status.OK, Status.PROTOCOL, Status.REFUSED]
    for row in (0, 1):
        check_stamps(result, row, fake.log[row])
    assert "backpressure" in (result.errors[2] or "")
    assert result.records["n_chunks"].tolist() == [5, 3, 0]
    assert (result.records["n_in"][0], result.records["n_out"][0]) == (3, 5)


@pytest.mark.parametrize("framing", PLAIN)
def test_every_framing_gives_a_chunk_for_each_piece(framing: str) -> None:
    """4 requests: whole, cut, shed, and failed in the middle where the framing can say so."""
    plays = (*PLAYS_OF_PLAIN, {"error_at": 3})
    with plain_http.serve(plays=plays) as fake:
        whole, cut, shed, failed = ask(f"{fake.url}/{framing}", "http", 4, body=BODY, **PLAIN[framing])
    assert [whole.status, cut.status, shed.status] == [Status.OK, Status.PROTOCOL, Status.REFUSED]
    assert [whole.n_chunks, cut.n_chunks, shed.n_chunks] == [5, 3, 0]
    for exchange, entry in zip((whole, cut), fake.log, strict=False):
        assert all(got >= sent - EARLY_NS for got, sent in zip(exchange.chunk_ns, entry.sent_ns, strict=True))
    if framing not in ("lines", "chunks"):
        assert (failed.status, failed.n_chunks) == (Status.HTTP, 3)
        assert "it broke" in (failed.error or "")


def test_a_form_arrives_as_a_server_reads_it(tmp_path: Path) -> None:
    """1 request."""
    (tmp_path / "a.txt").write_text("attached")
    with plain_http.serve() as fake:
        options: dict[str, Any] = {"form": {"q": "{{ prompt }}"}, "form_files": {"file": str(tmp_path / "a.txt")}}
        (x,) = ask(f"{fake.url}/form", "http", 1, **options)
    assert x.status == Status.OK
    assert fake.log[0].body == {"file": ["a.txt", "text/plain", "attached"], "q": [None, None, "hello"]}


#: The recipes of docs/reference/protocols.md, as they stand there but for the address.
RECIPES: dict[str, tuple[Serve, str, str]] = {
    "Ray Serve": (
        ray_serve.serve,
        "http://127.0.0.1:8000/",
        """
kind: single_stream
target:
  url: http://127.0.0.1:8000/
  protocol: http
  model: llama
  options:
    headers: {serve_multiplexed_model_id: llama}
    body: '{"prompt": {{ prompt | tojson }}, "max_tokens": {{ max_output_tokens }}}'
    framing: chunks
source: {kind: synthetic_text, prompt_tokens: 16, output_tokens: 5}
""",
    ),
    "BentoML": (
        bentoml.serve,
        "http://127.0.0.1:3000/generate",
        """
kind: single_stream
target:
  url: http://127.0.0.1:3000/generate
  protocol: http
  options:
    body: '{"prompt": {{ prompt | tojson }}, "max_tokens": {{ max_output_tokens }}}'
    framing: ndjson
    text_path: text
    output_tokens_path: n_tokens
    finish_path: finish_reason
source: {kind: synthetic_text, prompt_tokens: 16, output_tokens: 5}
""",
    ),
}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_of_the_documentation_runs_as_it_stands(name: str, tmp_path: Path) -> None:
    """4 requests: whole, cut, shed, failed in the middle."""
    serve, address, recipe = RECIPES[name]
    (tmp_path / "recipe.yaml").write_text(recipe)
    with serve(plays=(*PLAYS_OF_PLAIN, {"error_at": 3})) as fake:
        url = address.replace(address.split("/")[2], fake.url.split("/")[2])
        done = plimsoll_here("run", "recipe.yaml", "--url", url, "--queries", "4", "--out", "r", cwd=tmp_path)
    assert (tmp_path / "r" / "report.json").is_file(), done.stderr
    records = tables.load(tmp_path / "r")
    failed = Status.HTTP if name == "BentoML" else Status.PROTOCOL
    assert records["status"].tolist() == [Status.OK, Status.PROTOCOL, Status.REFUSED, failed]
    assert records["n_chunks"].tolist() == [5, 3, 0, 3]
    assert records["tokens_from"][0] == (TokensFrom.USAGE if name == "BentoML" else TokensFrom.CHUNKS)
    if name == "Ray Serve":
        assert fake.log[0].headers["serve_multiplexed_model_id"] == "llama"
