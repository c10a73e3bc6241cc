"""The gRPC front-end as a process: reflection, health, statuses, truth, faults, drain, and speech in both directions.

The client is generic: it learns every message from the server itself, by reflection, and knows none of the server's
code.
"""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from tests.e2e.test_reference_server import Server, running

pytestmark = pytest.mark.e2e
INFERENCE, SPEECH, HEALTH = "inference.GRPCInferenceService", "plimsoll.speech.v1.Speech", "grpc.health.v1.Health"


class Client:
    """Calls methods by name, with messages made from what reflection says."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(address)
        self.mirror = ProtoReflectionDescriptorDatabase(self.channel)
        self.pool = DescriptorPool(self.mirror)

    def message(self, kind: str, /, **fields: Any) -> Any:
        return GetMessageClass(self.pool.FindMessageTypeByName(kind))(**fields)

    def method(self, service: str, name: str) -> Any:
        found = self.pool.FindServiceByName(service).methods_by_name[name]
        kind = f"{'stream' if found.client_streaming else 'unary'}_{'stream' if found.server_streaming else 'unary'}"
        return getattr(self.channel, kind)(
            f"/{service}/{name}",
            request_serializer=lambda message: message if isinstance(message, bytes) else message.SerializeToString(),
            response_deserializer=GetMessageClass(found.output_type).FromString,
        )

    def infer(self, **more: Any) -> Any:
        tensor = {"name": "a", "datatype": "FP32", "shape": [2], "contents": {"fp32_contents": [1.5, -2]}}
        return self.message("inference.ModelInferRequest", **{"model_name": "scripted", "inputs": [tensor], **more})

    def text(self, name: str, max_tokens: int, **script: Any) -> Any:
        tensor = {"name": "text", "datatype": "BYTES", "shape": [1], "contents": {"bytes_contents": [b"hi"]}}
        parameters = {
            "max_tokens": {"int64_param": max_tokens},
            "triton_enable_empty_final_response": {"bool_param": True},
            **({"plimsoll": {"string_param": json.dumps(script)}} if script else {}),
        }
        return self.infer(id=name, inputs=[tensor], parameters=parameters)

    def stream(self, *requests: Any, **options: Any) -> Any:
        return self.method(INFERENCE, "ModelStreamInfer")(iter(requests), **options)


@contextmanager
def served(*arguments: str) -> Iterator[tuple[Server, Client]]:
    with running("--grpc-port", "0", *arguments) as server:
        client = Client(server.ready["grpc"])
        with client.channel:
            yield server, client


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[Server, Client]]:
    with served("--ttft", "30ms", "--itl", "5ms") as started:
        yield started


@pytest.fixture
def server(both: tuple[Server, Client]) -> Server:
    return both[0]


@pytest.fixture
def client(both: tuple[Server, Client]) -> Client:
    return both[1]


def refused(call: Any) -> grpc.RpcError:
    """The error of a stream that is read to its end, or of a call that is made."""
    with pytest.raises(grpc.RpcError) as caught:
        _ = list(call) if hasattr(call, "__iter__") else call()
    return caught.value


def test_a_generic_client_learns_services_and_messages_by_reflection(client: Client) -> None:
    assert {INFERENCE, SPEECH, HEALTH} <= set(client.mirror.get_services())
    described = client.method(INFERENCE, "ModelMetadata")(
        client.message("inference.ModelMetadataRequest", name="scripted")
    )
    assert (described.name, described.inputs[0].datatype) == ("scripted", "FP32")
    # The newer name of the same service, which today's tools try first: list_services, field 7.
    v1 = client.channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
    assert INFERENCE.encode() in next(iter(v1(iter([b"\x3a\x00"]))))


def test_a_reply_mirrors_typed_tensors_and_carries_its_anatomy_twice(client: Client) -> None:
    reply, call = client.method(INFERENCE, "ModelInfer").with_call(client.infer(id="7"))
    assert (reply.id, list(reply.outputs[0].contents.fp32_contents)) == ("7", [1.5, -2])
    timing = dict(call.trailing_metadata())["server-timing"]
    assert timing == reply.parameters["server_timing"].string_param
    assert timing.startswith("queue;dur=0.000, prefill;dur=30.000")


def test_truth_stamps_each_message_of_a_stream_before_it_can_have_arrived(server: Server, client: Client) -> None:
    stream = client.stream(client.text("a", 6), client.text("b", 3), metadata=(("x-request-id", "g-1"),))
    arrived: dict[str, list[int]] = {"a": [], "b": []}
    finals = {}
    for response in stream:
        reply = response.infer_response
        if reply.parameters["triton_final_response"].bool_param:
            finals[reply.id] = reply.parameters["finish_reason"].string_param
        else:
            arrived[reply.id].append(time.monotonic_ns())
    assert finals == {"a": "length", "b": "length"}
    for name, row in (("a", server.truth("g-1")), ("b", server.truth("g-1%2Fb"))):
        assert (row["status"], row["outcome"], row["model"]) == (200, "ok", "scripted")
        assert len(row["tokens"]) == len(row["due_ns"]) == len(arrived[name])
        assert row["due_ns"][0] == row["received_ns"] + 30_000_000
        assert row["received_ns"] <= row["first_write_ns"] <= row["tokens"][0][0]
        for due, (before, after), came in zip(row["due_ns"], row["tokens"], arrived[name], strict=True):
            assert due <= before <= after
            assert before <= came


@pytest.mark.parametrize(
    ("request_", "code", "said"),
    [
        (b"\xff\xff", grpc.StatusCode.INVALID_ARGUMENT, "the bytes are no inference.ModelInferRequest"),
        ({"model_name": "none"}, grpc.StatusCode.NOT_FOUND, "model 'none' does not exist"),
        ({"model_version": "2"}, grpc.StatusCode.NOT_FOUND, "has no version '2'"),
        ({"inputs": [{"name": "a", "datatype": "FP16", "shape": [1]}]}, grpc.StatusCode.INVALID_ARGUMENT, "'a': FP16"),
        ({"raw_input_contents": [bytes(5 << 20)]}, grpc.StatusCode.RESOURCE_EXHAUSTED, "larger than max"),
        ({"parameters": {"timeout": {"int64_param": 2000}}}, grpc.StatusCode.DEADLINE_EXCEEDED, "before the deadline"),
    ],
)
def test_a_refusal_has_its_status_and_says_why(client: Client, request_: Any, code: grpc.StatusCode, said: str) -> None:
    message = request_ if isinstance(request_, bytes) else client.infer(**request_)
    error = refused(lambda: client.method(INFERENCE, "ModelInfer")(message))
    assert error.code() is code
    assert said in error.details()


def test_bytes_that_are_no_message_are_the_clients_mistake_in_reflection_too(client: Client) -> None:
    mirror = client.channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
    assert refused(mirror(iter([b"\xff\xff"]), timeout=10)).code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("stream", [False, True])
def test_half_a_character_in_a_script_is_refused_at_once(client: Client, stream: bool) -> None:
    asked = client.infer(parameters={"plimsoll": {"string_param": '{"\\ud800": 1}'}})
    if stream:
        (answer,) = client.stream(asked, timeout=10)
        assert "unknown" in answer.error_message
        return
    error = refused(lambda: client.method(INFERENCE, "ModelInfer")(asked, timeout=10))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_refusal_within_a_stream_says_when_to_come_back(client: Client) -> None:
    (answer,) = client.stream(client.text("a", 2, status=503), timeout=10)
    said = answer.infer_response.parameters
    assert (said["status"].string_param, said["retry-after"].int64_param) == ("UNAVAILABLE", 1)


def test_calls_that_are_opened_and_dropped_leave_nothing_behind(server: Server, client: Client) -> None:
    """Some used to end in a traceback on stderr, which ``running`` holds to be empty: 15 of 10,000 when it was
    measured.
    """
    opened = client.method(INFERENCE, "ModelStreamInfer")
    asked = client.infer(parameters={"plimsoll": {"string_param": '{"ttft_ms": 0}'}}).SerializeToString()
    for _ in range(30):
        calls = [opened(iter([asked])) for _ in range(100)]
        for call in calls:
            call.cancel()
    watch = client.channel.unary_stream(f"/{HEALTH}/Watch")
    for call in [watch(b"") for _ in range(300)]:
        call.cancel()
    assert next(client.stream(client.infer(), timeout=10)).error_message == ""
    for _ in range(200):
        if b'reference_running{model="scripted"} 0.0' in server.call("/metrics")[1]:
            break
        time.sleep(0.02)
    else:
        raise AssertionError("requests of clients that are gone are still in flight")


def test_what_is_not_served_is_unimplemented(client: Client) -> None:
    for name in ("RepositoryModelLoad", "TraceSetting"):
        assert refused(lambda n=name: client.channel.unary_unary(f"/{INFERENCE}/{n}")(b"")).code() is (
            grpc.StatusCode.UNIMPLEMENTED
        )


def test_a_scripted_error_is_in_band_and_a_cut_ends_the_stream(server: Server, client: Client) -> None:
    failing = list(client.stream(client.text("a", 9, error_at=2), client.text("b", 4)))
    errors = [response for response in failing if response.error_message]
    assert [(e.infer_response.id, e.error_message) for e in errors] == [("a", "the script fails the answer here")]
    assert sum(response.infer_response.id == "b" for response in failing) == 5  # four tokens and the end
    assert refused(client.stream(client.text("c", 9, cut_at=2))).code() is grpc.StatusCode.UNAVAILABLE
    assert server.truth("a")["outcome"] == "error"
    assert server.truth("c")["outcome"] == "cut"


def test_a_cut_in_the_middle_of_a_write_ends_the_stream_too(client: Client) -> None:
    for i in range(30):
        stream = client.stream(client.text(f"torn-{i}", 9, ttft_ms=0, itl_ms=0, cut_at=1), timeout=10)
        assert refused(stream).code() is grpc.StatusCode.UNAVAILABLE


def test_a_client_that_reads_nothing_is_cut_off_and_costs_no_more_memory(server: Server, client: Client) -> None:
    big = {"name": "a", "datatype": "UINT8", "shape": [3 << 20]}
    requests = [client.infer(id=f"big-{i}", inputs=[big], raw_input_contents=[bytes(3 << 20)]) for i in range(4)]
    stream = client.stream(*requests)
    outcomes: set[str] = set()
    for _ in range(1000):
        outcomes = {json.loads(server.call(f"/truth/big-{i}")[1]).get("outcome") for i in range(4)}
        if "cut" in outcomes:
            break
        time.sleep(0.01)
    assert "cut" in outcomes
    error = refused(stream)  # it reads on, and is told
    assert (error.code(), error.details()) == (grpc.StatusCode.UNAVAILABLE, "the client reads too slowly")
    assert server.call("/health")[0].status == 200


def test_a_cancelled_call_gives_its_slot_to_the_next(both: tuple[Server, Client]) -> None:
    with served("--fault", "slots=1", "--queue-limit", "0", "--ttft", "10ms", "--itl", "10ms") as (server, client):
        stream = client.stream(client.text("first", 10_000))
        next(stream)
        error = refused(lambda: client.method(INFERENCE, "ModelInfer")(client.infer()))
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        metadata = dict(error.trailing_metadata())
        assert int(metadata["retry-after"]) >= 1
        assert b"google.rpc.RetryInfo" in metadata["grpc-status-details-bin"]
        stream.cancel()
        assert server.truth("first")["outcome"] == "cancelled"
        assert client.method(INFERENCE, "ModelInfer")(client.infer(id="next")).id == "next"


@contextmanager
def starting(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server that listens and may not be ready yet, and the address of its gRPC."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "plimsoll.reference_server",
        "--http-port",
        "0",
        "--grpc-port",
        str(port),
        *arguments,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            for _ in range(2000):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.01)
            yield process, f"127.0.0.1:{port}"
        finally:
            process.kill()


def test_health_follows_the_servers_life_and_a_drain_waits_for_answers_not_for_idle_streams() -> None:
    slow = ("--grace", "10s", "--fault", "slow_start=weights:1s", "--ttft", "10ms", "--itl", "10ms")
    asked = health_pb2.HealthCheckRequest(service=INFERENCE).SerializeToString()
    kinds = health_pb2.HealthCheckResponse
    with starting(*slow) as (process, address), grpc.insecure_channel(address) as channel:
        watch = channel.unary_stream(f"/{HEALTH}/Watch", response_deserializer=kinds.FromString)(asked, timeout=30)
        states = (state.status for state in watch)
        assert next(states) == kinds.NOT_SERVING
        error = refused(lambda: channel.unary_unary(f"/{INFERENCE}/ModelInfer")(b"", timeout=10))
        assert (error.code(), "starting" in error.details()) == (grpc.StatusCode.UNAVAILABLE, True)
        ready = channel.unary_unary(f"/{INFERENCE}/ServerReady")
        assert ready(b"", timeout=10) == b""  # ready is false
        assert next(states) == kinds.SERVING
        assert ready(b"", timeout=10) == b"\x08\x01"
        check = channel.unary_unary(f"/{HEALTH}/Check")
        assert refused(lambda: check(b"\x0a\x01x", timeout=10)).code() is grpc.StatusCode.NOT_FOUND

        client = Client(address)
        hold = threading.Event()
        requests = waits(client.text("done", 1), hold)
        idle = client.method(INFERENCE, "ModelStreamInfer")(requests, timeout=20)
        assert [next(idle).infer_response.id for _ in range(2)] == ["done", "done"]
        busy = client.stream(client.text("busy", 50), timeout=20)
        next(busy)
        stopped_ns = time.monotonic_ns()
        process.send_signal(signal.SIGTERM)
        assert list(states) == [kinds.NOT_SERVING]
        assert list(idle) == []
        hold.set()
        assert len(list(busy)) == 50  # 49 tokens and the end
        client.channel.close()
        _, errors = process.communicate(timeout=15)
        assert (process.returncode, errors) == (0, "")
        assert time.monotonic_ns() - stopped_ns < 8_000_000_000  # nothing waited for the whole grace


def waits(request: Any, hold: threading.Event) -> Iterator[Any]:
    """A client with one request that keeps its stream open."""
    yield request
    hold.wait(20)


def test_a_taken_port_is_named_with_its_flag() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "plimsoll.reference_server", "--http-port", "0", "--grpc-port", str(port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    expected = f"can't listen on 127.0.0.1:{port}: Address already in use. Choose another --grpc-port"
    assert done.stderr == f"error: {expected}\n"


TEXT = "the line is painted on her hull"


def test_what_is_synthesised_is_recognised_with_interim_results_and_a_final() -> None:
    with served("--model", "recogniser", "--model", "synthesiser") as (server, client):
        speak = client.method(SPEECH, "Synthesise")
        said = list(speak(client.message("plimsoll.speech.v1.SynthesiseRequest", text=TEXT, sample_rate_hertz=16000)))
        audio = b"".join(piece.audio for piece in said)
        assert said[-1].server_timing
        assert not said[-1].audio
        assert len(audio) == round(said[-1].audio_s * 16000) * 2
        request = "plimsoll.speech.v1.RecogniseRequest"

        def stream(**config: Any) -> list[Any]:
            frames = [client.message(request, audio=audio[at : at + 3200]) for at in range(0, len(audio), 3200)]
            first = client.message(request, config={"sample_rate_hertz": 16000, **config})
            return list(client.method(SPEECH, "Recognise")(iter([first, *frames]), metadata=(("x-request-id", "s-1"),)))

        heard = stream(interim_results=True, voice_activity_events=True)
        assert [response.event for response in heard if response.event] == [1, 2]
        results = [response.result for response in heard if response.result.transcript]
        assert [result.transcript for result in results if result.is_final] == [TEXT]
        assert all(TEXT.startswith(result.transcript) for result in results)
        assert [word.text for word in results[-1].words] == TEXT.split()
        assert "inference;dur=" in heard[-1].server_timing
        assert len(server.truth("s-1")["tokens"]) == len(heard) - 1
        assert [response.result.is_final for response in stream() if response.result.transcript] == [True]
        metrics = server.call("/metrics")[1].decode()
        assert 'reference_requests_total{model="recogniser",outcome="ok",status="200"} 2.0' in metrics
        bad = {
            "streaming_request: the first message": client.message(request, audio=b"xx"),
            "sample_rate_hertz: say": client.message(request, config={}),
            "encoding: 9 is unknown": client.message(request, config={"sample_rate_hertz": 8000, "encoding": 9}),
            "'llm' does not exist": client.message(request, config={"sample_rate_hertz": 8000, "model": "llm"}),
        }
        for what, first in bad.items():
            error = refused(client.method(SPEECH, "Recognise")(iter([first])))
            assert what in error.details()
            assert error.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND)
