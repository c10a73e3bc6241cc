"""What is kept of an answer: the text or the tensor of every response that a server may give, and nothing of
reasoning.
"""

from __future__ import annotations

import json
from array import array
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.generator import outputs
from plimsoll.harness.generator.outputs import OutputLog, answers_of, gather, read_answer, scores_of
from plimsoll.harness.run.rundir import RunDirectory
from plimsoll.harness.wire import pointer
from plimsoll.scenarios.scenario import parse
from plimsoll.slo.records.records import Status

JSON, SSE, NDJSON = b"application/json", b"text/event-stream", b"application/x-ndjson"


ONE = parse({"kind": "offline", "mode": "accuracy", "source": {"kind": "tensors", "count": 1}}, "f").build(1)


def over(body: bytes, media: bytes = JSON, query_id: int = 0) -> Exchange:
    exchange = Exchange(query_id, 0, 0, 0, None)
    exchange.status, exchange.code, exchange.phase = int(Status.OK), 200, 0
    exchange.headers = [(b"content-type", media)]
    exchange.body = bytearray(body)
    exchange.mark_ns, exchange.mark_end = array("q", [1]), array("q", [len(body)])
    return exchange


def events(*values: Any) -> bytes:
    return b"".join(b"data: %s\n\n" % json.dumps(value).encode() for value in values) + b"data: [DONE]\n\n"


def chunk(**delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta}]}


TEXTS = {
    "a chat stream": (events(chunk(role="assistant"), chunk(content="Par"), chunk(content="is"), {"choices": []}), SSE),
    "reasoning is no answer": (events(chunk(reasoning_content="well"), chunk(content="Paris")), SSE),
    "a completions stream": (events({"choices": [{"text": "Par"}]}, {"choices": [{"text": "is"}]}), SSE),
    "a chat answer in one piece": (json.dumps({"choices": [{"message": {"content": "Paris"}}]}).encode(), JSON),
    "a completion in one piece": (json.dumps({"choices": [{"text": "Paris"}]}).encode(), JSON),
    "a transcription": (b'{"text": "Paris"}', JSON),
    "plain text": (b"Paris", b"text/plain"),
    "lines of JSON": (b'{"response": "Par"}\n{"response": "is"}\n', NDJSON),
    "a stream without its header": (events(chunk(content="Paris")), b""),
    "a BYTES tensor": (
        json.dumps({"outputs": [{"name": "t", "datatype": "BYTES", "shape": [1], "data": ["Paris"]}]}).encode(),
        JSON,
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_text_of_an_answer_is_found(name: str) -> None:
    answer = read_answer(over(*TEXTS[name]))
    assert answer is not None
    assert answer.text == "Paris"


def test_an_answer_may_be_empty() -> None:
    for body, media in ((events(chunk(role="assistant")), SSE), (b'{"choices": [{"message": {"content": ""}}]}', JSON)):
        answer = read_answer(over(body, media))
        assert answer is not None
        assert answer.text == ""


def test_the_path_of_the_protocol_says_where_the_text_is() -> None:
    answer = read_answer(over(b'{"a": {"b": "Paris"}, "text": "no"}'), (pointer.parse_selector("a.b"),))
    assert answer is not None
    assert answer.text == "Paris"


def test_a_tensor_keeps_its_numbers_its_type_and_its_shape() -> None:
    body = {
        "outputs": [
            {"name": "other", "datatype": "INT64", "shape": [1], "data": [9]},
            {"name": "logits", "datatype": "FP32", "shape": [2, 2], "data": [[0.5, 1], [2, 3]]},
        ]
    }
    answer = read_answer(over(json.dumps(body).encode()), tensor="logits")
    assert answer is not None
    assert answer.numbers is not None
    assert (answer.numbers.tolist(), answer.numbers.dtype.str, answer.shape) == ([0.5, 1, 2, 3], "<f4", (2, 2))
    first = read_answer(over(json.dumps(body).encode()))
    assert first is not None
    assert first.numbers is not None
    assert first.numbers.tolist() == [9]


def binary(*tensors: tuple[str, str, list[int], bytes]) -> Exchange:
    """Tensors as bytes behind the JSON, but for the first."""
    head: list[dict[str, Any]] = [{"name": "told", "datatype": "INT64", "shape": [1], "data": [9]}]
    for name, datatype, shape, raw in tensors:
        size = {"binary_data_size": len(raw)}
        head.append({"name": name, "datatype": datatype, "shape": shape, "parameters": size})
    text = json.dumps({"outputs": head}).encode()
    exchange = over(text + b"".join(raw for *_, raw in tensors), b"application/octet-stream")
    exchange.headers.append((b"inference-header-content-length", b"%d" % len(text)))
    return exchange


def test_a_tensor_in_bytes_behind_the_json_is_read_as_one_in_it() -> None:
    words = b"\x05\0\0\0Paris\x02\0\0\0no"
    logits = np.array([0.5, 1, 2, 3], "<f4").tobytes()
    given = binary(("word", "BYTES", [2], words), ("logits", "FP32", [2, 2], logits), ("half", "BF16", [1], b"ab"))
    kept = {name: read_answer(given, tensor=name) for name in ("told", "word", "logits", "half", "none")}
    assert (kept["half"], kept["none"]) == (None, None)
    assert kept["word"] is not None
    assert kept["word"].text == "Paris"
    assert kept["logits"] is not None
    assert kept["logits"].numbers is not None
    assert (kept["logits"].numbers.tolist(), kept["logits"].shape) == ([0.5, 1, 2, 3], (2, 2))
    first = read_answer(given)
    assert first is not None
    assert first.numbers is not None
    assert first.numbers.tolist() == [9]


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'{"outputs": []}', b'{"outputs": [{"name": "x", "datatype": "FP32"}]}', b"[1]"]
)
def test_a_response_without_an_answer_has_none(body: bytes) -> None:
    answer = read_answer(over(body))
    assert answer is None or answer.text == ""


@given(st.binary(max_size=300), st.sampled_from([JSON, SSE, NDJSON, b""]))
def test_no_bytes_of_a_server_stop_the_run(tmp_path_factory: pytest.TempPathFactory, body: bytes, media: bytes) -> None:
    log = OutputLog(tmp_path_factory.mktemp("segments"), 0, {})
    log.after(lambda exchange: None)(over(body, media))
    log.close()


@pytest.mark.parametrize("shape", [[0, 1 << 63], [0, 1e30], [3], [-1], [0, -1], ["0"], 0, None, [[0]]])
def test_a_shape_that_is_not_that_of_its_data_is_no_answer_and_stops_no_run(shape: Any, tmp_path: Path) -> None:
    """[0, 2^63] holds as many elements as []: gathering it ended the coordinator."""
    segments = tmp_path / "segments"
    segments.mkdir()
    log = OutputLog(segments, 0, {"outputs": ["y"]})
    body = {"outputs": [{"name": "y", "datatype": "FP64", "shape": shape, "data": []}]}
    log.after(lambda exchange: None)(over(json.dumps(body).encode()))
    log.close()
    gather(segments, ONE, "run", None, True)(tmp_path)
    (row,) = pq.read_table(tmp_path / outputs.FILE).to_pylist()
    assert (row["text"], row["data"], row["shape"]) == (None, None, None)


@pytest.mark.parametrize(
    "entry",
    [
        *({}, {"query_id": 0}, {"query_id": [], "sample_ix": 0}, {"query_id": 0, "sample_ix": 0, "text": 5}),
        {"query_id": 0, "sample_ix": 0, "data": "not base64!"},
        {"query_id": 0, "sample_ix": 0, "data": 7},
        {"query_id": 0, "sample_ix": 0, "data": "", "datatype": [], "shape": []},
        {"query_id": 0, "sample_ix": 0, "data": "", "datatype": "<f8", "shape": [1 << 63]},
        {"query_id": 0, "sample_ix": 0, "data": "", "datatype": "<f8", "shape": ["x"]},
    ],
    ids=str,
)
def test_a_line_that_no_worker_wrote_is_left_out(entry: dict[str, Any], tmp_path: Path) -> None:
    """An agent hands these files in."""
    (tmp_path / "outputs-w000.jsonl").write_text(json.dumps(entry) + "\n[]\n7\n")
    gather(tmp_path, ONE, "run", None, True)(tmp_path)
    (row,) = pq.read_table(tmp_path / outputs.FILE).to_pylist()
    assert (row["text"], row["data"]) == (None, None)


def test_answers_are_kept_up_to_a_number_of_bytes_of_the_whole_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "MOST_KEPT", 20_000)
    log = OutputLog(tmp_path, 0, {})
    log.share(2)
    keep = log.after(lambda exchange: None)
    for query in range(30):
        keep(over(json.dumps({"text": "a" * 950}).encode(), query_id=query))
    log.close()
    (path,) = tmp_path.iterdir()
    assert 9_000 < path.stat().st_size <= 10_000
    (fault,) = log.faults
    assert "answers of this run are larger than" in fault


def accuracy_run(folder: Path, kept: list[str | None], expected: list[Any] | None) -> RunDirectory:
    """A run directory whose queries were answered so (None: failed)."""
    source = {"kind": "synthetic_text", "count": len(kept)}
    plan = parse({"kind": "server", "mode": "accuracy", "source": source}, "f").build(len(kept))
    segments = folder / "segments"
    segments.mkdir(parents=True)
    log = OutputLog(segments, 0, {})
    settle = log.after(lambda exchange: None)
    for query, text in enumerate(kept):
        exchange = over(json.dumps({"text": text or "x"}).encode(), query_id=query)
        exchange.status = int(Status.OK if text is not None else Status.HTTP)
        settle(exchange)
    warm = over(b'{"text": "warm"}', query_id=0)
    warm.phase = 1
    settle(warm)
    log.close()
    with (segments / "outputs-w001.jsonl").open("wb") as file:
        file.write(b'{"query_id": 0, "sam')  # a worker died in the middle of a line
    gather(segments, plan, "run", expected, True)(folder)
    return RunDirectory(folder)


def test_every_planned_sample_has_a_row_and_a_failed_one_an_empty_one(tmp_path: Path) -> None:
    directory = accuracy_run(tmp_path / "r", ["yes", None, "no"], ["yes", "yes", "yes"])
    rows = pq.read_table(directory.file(outputs.FILE)).to_pylist()
    assert [row["text"] for row in rows] == ["yes", None, "no"]
    assert [row["request_id"] for row in rows] == ["run-0-0", "run-1-0", "run-2-0"]
    assert sorted(row["payload_ix"] for row in rows) == [0, 1, 2]
    scores = scores_of(directory.path)
    assert scores is not None
    assert scores.right["exact_match"].tolist() == [True, False, False]
    assert scores.answered.tolist() == [True, False, True]


def test_what_was_expected_goes_with_its_sample_whatever_the_order(tmp_path: Path) -> None:
    directory = accuracy_run(tmp_path / "r", ["a"] * 5, [f"e{i}" for i in range(5)])
    rows = pq.read_table(directory.file(outputs.FILE)).to_pylist()
    assert [row["expected"] for row in rows] == [f'"e{row["payload_ix"]}"' for row in rows]


def test_loadgens_accuracy_log_has_the_bytes_of_each_answer(tmp_path: Path) -> None:
    directory = accuracy_run(tmp_path / "r", ["yes", None, "né"], None)
    entries = json.loads(directory.file(outputs.MLPERF_FILE).read_text())
    assert [bytes.fromhex(entry["data"]).decode() for entry in entries] == ["yes", "né"]
    assert {*entries[0]} == {"seq_id", "qsl_idx", "data"}
    rows = pq.read_table(directory.file(outputs.FILE)).to_pylist()
    assert [entry["qsl_idx"] for entry in entries] == [rows[0]["payload_ix"], rows[2]["payload_ix"]]


def test_a_run_without_references_or_outputs_has_no_scores(tmp_path: Path) -> None:
    assert scores_of(accuracy_run(tmp_path / "r", ["yes"], None).path) is None
    assert scores_of(tmp_path) is None


def test_damaged_outputs_are_told(tmp_path: Path) -> None:
    (tmp_path / outputs.FILE).write_bytes(b"nonsense")
    with pytest.raises(HarnessFault, match=r"outputs\.parquet: damaged"):
        scores_of(tmp_path)


def test_a_closed_loop_keeps_the_answers_of_every_lap(tmp_path: Path) -> None:
    segments = tmp_path / "segments"
    segments.mkdir()
    plan = parse({"kind": "concurrency", "source": {"kind": "synthetic_text", "count": 3}}, "f").build(3)
    n = plan.n_queries
    log = OutputLog(segments, 0, {})
    for query_id in (0, n + 1, 2 * n):
        log.after(lambda exchange: None)(over(json.dumps({"text": f"said {query_id}"}).encode(), query_id=query_id))
    log.close()
    gather(segments, plan, "run", None, False)(tmp_path)
    kept = answers_of(tmp_path)
    assert kept is not None
    assert [(one.key, one.answer and one.answer.text) for one in kept] == [
        ((query_id, 0), f"said {query_id}") for query_id in (0, n + 1, 2 * n)
    ]
    assert [one.sample for one in kept] == [int(plan.payload_ix[row]) for row in (0, 1, 0)]
    assert answers_of(segments) is None, "no file, no answers"
    assert scores_of(tmp_path) is None, "answers without references have no score"


def test_tensors_survive_the_file(tmp_path: Path) -> None:
    segments = tmp_path / "segments"
    segments.mkdir()
    log = OutputLog(segments, 0, {"outputs": ["y"]})
    body = {"outputs": [{"name": "y", "datatype": "FP64", "shape": [1, 3], "data": [0.0, 2.0, 1.0]}]}
    log.after(lambda exchange: None)(over(json.dumps(body).encode()))
    log.close()
    plan = parse({"kind": "offline", "mode": "accuracy", "source": {"kind": "tensors", "count": 1}}, "f").build(1)
    gather(segments, plan, "run", [1], True)(tmp_path)
    scores = scores_of(tmp_path)
    assert scores is not None
    assert scores.observed("top1") == 1
    (entry,) = json.loads((tmp_path / outputs.MLPERF_FILE).read_text())
    assert np.frombuffer(bytes.fromhex(entry["data"]), "<f8").tolist() == [0, 2, 1]
