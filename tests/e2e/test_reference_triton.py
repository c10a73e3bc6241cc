"""Official clients prove the Open Inference Protocol of the server: tritonclient over HTTP and over gRPC, in an
environment of their own.

Each script drives one running server with all kinds of models and says what it saw; the claims are held against that
here.
"""

from __future__ import annotations

import gzip
import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_reference_server import Server, running

ROOT = Path(__file__).parent.parent.parent
PYTHON = ROOT / ".venv-peers" / "bin" / "python"
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not PYTHON.exists(), reason="needs .venv-peers: make .venv-peers/.installed"),
]
MODELS = ("scripted", "llm", "dlrm")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    models = [part for name in MODELS for part in ("--model", name)]
    with running(*models, "--grpc-port", "0", "--ttft", "5ms", "--itl", "2ms", "--threads", "1") as started:
        yield started


@pytest.fixture(scope="module")
def peers(server: Server) -> dict[str, Any]:
    """What both scripts say, run side by side. Bound: 60 s."""
    addresses = {"http": f"127.0.0.1:{server.port}", "grpc": server.ready["grpc"]}
    with ThreadPoolExecutor(len(addresses)) as pool:
        return dict(zip(addresses, pool.map(told, addresses, addresses.values()), strict=True))


def told(name: str, address: str) -> Any:
    script = ROOT / "tests" / "peers" / f"triton_{name}.py"
    done = subprocess.run([PYTHON, script, address], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def http(peers: dict[str, Any]) -> Any:
    return peers["http"]


@pytest.fixture
def grpc(peers: dict[str, Any]) -> Any:
    return peers["grpc"]


def test_both_clients_find_the_server_its_models_and_their_tensors(http: dict[str, Any], grpc: dict[str, Any]) -> None:
    for seen in (http, grpc["questions"]):
        assert [seen[name] for name in ("live", "ready", "model_ready")] == [True] * 3
        assert seen["server"]["name"] == "plimsoll-reference"
        assert {"binary_tensor_data", "statistics"} <= set(seen["server"]["extensions"])
        (tensor,) = seen["model"]["inputs"]
        assert (tensor["name"], [int(size) for size in tensor["shape"]]) == ("any", [-1])
    assert {model["name"] for model in http["index"]} == set(MODELS)
    assert {model["name"] for model in grpc["questions"]["index"]["models"]} == set(MODELS)
    assert http["config"]["model_transaction_policy"]["decoupled"] is grpc["questions"]["decoupled"] is True


def test_every_datatype_survives_json_and_bytes_in_all_mixtures(http: dict[str, Any]) -> None:
    assert len(http["echoes"]) == 12 * 4 + 1  # this client has no FP16 in JSON
    assert all(http["echoes"].values()), http["echoes"]
    assert http["all outputs are binary by default"] == [True, True]
    assert (http["gzip"], http["deflate"]) == (True, True)


def test_every_datatype_survives_grpc(grpc: dict[str, Any]) -> None:
    assert len(grpc["unary"]["echoes"]) == 13
    assert all(grpc["unary"]["echoes"].values()), grpc["unary"]["echoes"]


def test_asynchronous_calls_are_answered_side_by_side(http: dict[str, Any], grpc: dict[str, Any]) -> None:
    assert http["async"] == grpc["unary"]["async"] == [True] * 4


def test_errors_are_the_clients_own_exceptions_with_the_right_status(
    http: dict[str, Any], grpc: dict[str, Any]
) -> None:
    unary = grpc["unary"]
    assert (http["unknown model"]["status"], unary["unknown model"]["status"]) == ("404", "StatusCode.NOT_FOUND")
    assert http["unknown model"]["message"] == unary["unknown model"]["message"]
    assert (http["unknown output"]["status"], unary["unknown output"]["status"]) == (
        "400",
        "StatusCode.INVALID_ARGUMENT",
    )
    assert http["wrong size"] == {"status": "400", "message": "tensor 'x': has 12 bytes, FP32 of shape [1, 4] takes 16"}
    assert unary["shed"]["status"] == "StatusCode.UNAVAILABLE"
    for seen, status in ((http, "400"), (grpc, "StatusCode.INVALID_ARGUMENT")):
        wrong = seen["clicks"]["wrong datatype"]
        assert wrong == {"status": status, "message": "dense: has datatype INT64, the model takes FP32"}


def test_the_timeout_parameter_and_the_clients_own_deadline_end_a_request(
    http: dict[str, Any], grpc: dict[str, Any]
) -> None:
    assert http["too late"]["status"] == "504"
    for which in ("server's deadline", "client's deadline"):
        assert grpc["unary"][which]["status"] == "StatusCode.DEADLINE_EXCEEDED"


@pytest.mark.parametrize("model", ["stream", "llm"])
def test_a_decoupled_stream_carries_each_requests_pieces_and_an_empty_final(grpc: dict[str, Any], model: str) -> None:
    seen = grpc[model]
    assert seen["texts"]["a"] == seen["texts"]["b"] != ""
    assert min(seen["n_pieces"].values()) > 1
    assert {final["finish_reason"] for final in seen["finals"].values()} == {"length"}
    assert all(final["server_timing"].startswith("queue;dur=") for final in seen["finals"].values())
    (error,) = seen["errors"]  # of the third request; the other two went on
    assert error.startswith("model 'none' does not exist")


def test_one_stream_of_the_asyncio_client_multiplexes_twenty_requests(grpc: dict[str, Any]) -> None:
    assert grpc["many"] == [" the line is painted"] * 20


def test_a_client_that_leaves_ends_its_answer(server: Server, grpc: dict[str, Any]) -> None:
    assert (grpc["left"], grpc["unary"]["cancelled"]) == (True, "StatusCode.CANCELLED")
    row = server.truth("left")
    assert row["outcome"] == "cancelled"
    assert 1 <= len(row["tokens"]) < 5000
    metrics = server.call("/metrics")[1].decode()
    assert 'reference_running{model="scripted"} 0.0' in metrics


def test_a_batched_model_gives_both_clients_the_same_numbers(http: dict[str, Any], grpc: dict[str, Any]) -> None:
    ours, theirs = http["clicks"]["probability"], grpc["clicks"]["probability"]
    assert len(ours) == 3
    assert ours == pytest.approx(theirs, rel=1e-5)
    assert all(0 < p < 1 for p in ours)


def test_statistics_say_where_the_time_went(http: dict[str, Any], grpc: dict[str, Any]) -> None:
    for seen in (http, grpc):
        clicks = seen["clicks"]["statistics"]
        assert int(clicks["inference_count"]) >= 3 * int(clicks["execution_count"]) > 0
        parts = {name: int(part.get("ns", 0)) for name, part in clicks["inference_stats"].items()}
        assert parts["compute_infer"] > 0
        stages = parts["queue"] + parts["compute_input"] + parts["compute_infer"] + parts["compute_output"]
        assert 0 < stages <= parts["success"]
        echoes = seen["statistics"]
        success = echoes["inference_stats"]["success"]
        assert int(success["count"]) >= 13
        assert int(echoes["inference_stats"]["compute_infer"]["ns"]) >= int(success["count"]) * 5_000_000
        assert int(echoes["inference_stats"]["fail"]["count"]) >= 2
        assert int(echoes["last_inference"]) > 1_600_000_000_000


def test_generated_text_comes_whole_or_as_events_that_end_with_the_anatomy(server: Server) -> None:
    body = {"text_input": "hi", "max_tokens": 3, "id": "7"}
    response, raw = server.call("/v2/models/scripted/generate", body)
    assert (response.status, response.headers["server-timing"][:6]) == (200, "queue;")
    frame = {"id": "7", "model_name": "scripted", "model_version": "1"}
    assert json.loads(raw) == frame | {"text_output": " the line is"}
    response, raw = server.call("/v2/models/scripted/generate_stream", body, x_request_id="gen-1")
    assert response.headers["content-type"] == "text/event-stream"
    *pieces, last = [json.loads(block[6:]) for block in raw.split(b"\n\n")[:-1]]
    assert pieces == [frame | {"text_output": text} for text in (" the", " line", " is")]
    assert (last["text_output"], last["finish_reason"]) == ("", "length")
    assert "decode;dur=4.000" in last["server_timing"]
    row = server.truth("gen-1")
    assert (row["outcome"], len(row["tokens"])) == ("ok", 3)
    *_, failed = server.call("/v2/models/scripted/generate_stream", {**body, "plimsoll": {"error_at": 1}})
    assert json.loads(failed.split(b"\n\n")[-2][6:]) == {"error": "the script fails the answer here"}
    for bad in ({}, {"text_input": 5}, {"text_input": "\ud800"}, {"text_input": "x", "max_tokens": 0}):
        response, raw = server.call("/v2/models/scripted/generate_stream", bad)
        assert (response.status, list(json.loads(raw))) == (400, ["error"])


def test_what_is_compressed_is_bounded_by_what_comes_out(server: Server) -> None:
    bomb = gzip.compress(bytes(64 << 20))
    assert len(bomb) < 100_000
    response, raw = server.call("/v2/models/scripted/infer", bomb, content_encoding="gzip")
    assert (response.status, "larger than the limit" in json.loads(raw)["error"]) == (413, True)


def test_binary_bodies_that_do_not_add_up_are_a_400_that_names_the_tensor(server: Server) -> None:
    tensor = {"name": "t", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}}
    head = json.dumps({"inputs": [tensor]}).encode()
    for length, tail, said in (
        (len(head), b"\0" * 7, "'t': announces 8 bytes, but only 7"),
        (len(head), b"\0" * 9, "1 bytes after the last tensor"),
        (len(head) + 99, b"", "Inference-Header-Content-Length"),
        (3, b"", "not JSON"),
    ):
        response, raw = server.call(
            "/v2/models/scripted/infer", head + tail, inference_header_content_length=str(length)
        )
        assert response.status == 400
        assert said in json.loads(raw)["error"]
