"""gRPC messages and values: every datatype both ways, wrong ones refused by name, statuses that a client's retry
policy knows. Messages of a stream leave in order, one at a time and stamped; a client that reads nothing costs a
bounded amount of memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Coroutine
from typing import Any, cast

import grpc
import numpy as np
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.reference_server.dialects.kserve_grpc import CONTENTS, parse_request, response
from plimsoll.reference_server.protos import inference_pb2 as pb
from plimsoll.reference_server.protos.generate import stale
from plimsoll.reference_server.seams.truth import TruthRow
from plimsoll.reference_server.service.service import Account, Service
from plimsoll.reference_server.transports.grpc_calls import (
    Call,
    Context,
    Outbox,
    TokenSink,
    read,
    status_code,
    status_message,
    trailing_metadata,
)
from plimsoll.reference_server.values.errors import RequestError, StreamCut, StreamFailure
from plimsoll.reference_server.values.tensors import NUMPY, Tensor, objects, to_bytes

VALUES: dict[str, Any] = {
    "BOOL": np.array([True, False]),
    "FP16": np.array([1.5, -65504], np.float16),
    "FP32": np.array([1.5, np.inf], np.float32),
    "FP64": np.array([1e308, np.nan]),
    "BYTES": objects([b"\xff\0", b""]),
    **{
        name: np.array([np.iinfo(NUMPY[name]).min, np.iinfo(NUMPY[name]).max], NUMPY[name])
        for name in NUMPY
        if "INT" in name
    },
}


def request(datatype: str = "INT8", shape: tuple[int, ...] = (2,), **contents: Any) -> pb.ModelInferRequest:
    message = pb.ModelInferRequest(model_name="m", id="7")
    message.inputs.add(name="a", datatype=datatype, shape=shape, contents=pb.InferTensorContents(**contents))
    return message


def test_the_generated_modules_are_what_the_proto_files_say() -> None:
    assert stale() == []


@pytest.mark.parametrize("datatype", sorted(NUMPY))
def test_every_datatype_goes_and_comes_raw(datatype: str) -> None:
    sent = Tensor("a", datatype, VALUES[datatype])
    message = pb.ModelInferRequest(model_name="m", raw_input_contents=[to_bytes(sent)])
    message.inputs.add(name="a", datatype=datatype, shape=[2])
    asked = parse_request(message)
    reply = response(asked, asked.tensors, typed=False)
    assert list(reply.raw_output_contents) == [to_bytes(sent)]
    assert (reply.outputs[0].name, reply.outputs[0].datatype, list(reply.outputs[0].shape)) == ("a", datatype, [2])


@pytest.mark.parametrize("datatype", sorted(CONTENTS))
def test_every_datatype_but_fp16_goes_and_comes_typed(datatype: str) -> None:
    elements = VALUES[datatype].tolist()
    asked = parse_request(request(datatype, **{CONTENTS[datatype]: elements}))
    assert to_bytes(asked.tensors[0]) == to_bytes(Tensor("a", datatype, VALUES[datatype]))
    reply = response(asked, asked.tensors, typed=True)
    assert not reply.raw_output_contents
    assert str(list(getattr(reply.outputs[0].contents, CONTENTS[datatype]))) == str(elements)


def test_a_reply_with_fp16_is_raw_altogether() -> None:
    outputs = [Tensor(name, name, VALUES[name]) for name in ("FP16", "INT8")]
    reply = response(parse_request(request(int_contents=[1, 2])), outputs, typed=True)
    assert len(reply.raw_output_contents) == 2
    assert not any(output.HasField("contents") for output in reply.outputs)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (request(int_contents=[1]), "'a': has 1 elements, the shape \\[2\\] asks for 2"),
        (request(int_contents=[1, 128]), "'a': holds an element that is no INT8"),
        (request("UINT16", uint_contents=[1, 65536]), "'a': holds an element that is no UINT16"),
        (request(int64_contents=[1, 2]), "'a': INT8 belongs in contents.int_contents, not int64_contents"),
        (request("FP16", fp32_contents=[1, 2]), "'a': FP16 has no typed contents. Send it in raw_input_contents"),
        (request("BF16"), "'a': datatype 'BF16' is unknown"),
        (request(shape=(-1,)), "'a': the shape must hold"),
        (request(shape=(0, 2**31 - 1, 2**31 - 1, 2**31 - 1)), "'a': has an impossible shape"),
        (pb.ModelInferRequest(raw_input_contents=[b""]), "has 1 entries for 0 inputs"),
        (
            pb.ModelInferRequest(
                raw_input_contents=[b"\0"],
                inputs=[{"name": "a", "datatype": "INT8", "shape": [1], "contents": {"int_contents": [1]}}],
            ),
            "'a': has typed contents beside raw_input_contents",
        ),
        (
            pb.ModelInferRequest(raw_input_contents=[b"\0"], inputs=[{"name": "a", "datatype": "INT16", "shape": [1]}]),
            "'a': has 1 bytes, INT16 of shape \\[1\\] takes 2",
        ),
        (pb.ModelInferRequest(parameters={"x": pb.InferParameter()}), "parameters.x: holds no value"),
        (
            pb.ModelInferRequest(parameters={"plimsoll": pb.InferParameter(string_param="{")}),
            "parameters.plimsoll: must be a JSON object",
        ),
        (
            pb.ModelInferRequest(parameters={"plimsoll": pb.InferParameter(string_param='{"nap": 1}')}),
            "plimsoll.nap: unknown",
        ),
        (
            pb.ModelInferRequest(parameters={"timeout": pb.InferParameter(string_param="5")}),
            "parameters.timeout: must be an integer",
        ),
        (
            pb.ModelInferRequest(outputs=[{"name": "a", "parameters": {"classification": {"int64_param": 3}}}]),
            "output 'a': classification",
        ),
    ],
)
def test_a_bad_message_is_a_400_that_names_the_tensor_or_the_parameter(
    message: pb.ModelInferRequest, said: str
) -> None:
    with pytest.raises(RequestError, match=said) as caught:
        parse_request(message)
    assert caught.value.status == 400


@given(st.binary(max_size=200))
def test_bytes_that_are_no_request_raise_only_the_documented_error(data: bytes) -> None:
    with contextlib.suppress(RequestError):
        parse_request(read(pb.ModelInferRequest, data))


SHAPES = st.lists(st.integers(-2, 3) | st.integers(-(2**63), 2**63 - 1), max_size=4)


@given(
    st.sampled_from([*NUMPY, "BF16", ""]),
    SHAPES,
    st.lists(st.integers(-(2**31), 2**31 - 1), max_size=4),
    st.lists(st.binary(max_size=9), max_size=3),
)
def test_a_well_formed_message_that_makes_no_sense_raises_only_the_documented_error(
    datatype: str, shape: list[int], elements: list[int], raw: list[bytes]
) -> None:
    message = pb.ModelInferRequest(raw_input_contents=raw)
    message.inputs.add(name="a", datatype=datatype, shape=shape)
    if elements:
        message.inputs[0].contents.int_contents.extend(elements)
    with contextlib.suppress(RequestError):
        (tensor,) = parse_request(message).tensors
        assert list(tensor.data.shape) == shape
        assert tensor.data.dtype == NUMPY[datatype]


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, grpc.StatusCode.INVALID_ARGUMENT),
        (404, grpc.StatusCode.NOT_FOUND),
        (413, grpc.StatusCode.RESOURCE_EXHAUSTED),
        (418, grpc.StatusCode.FAILED_PRECONDITION),
        (429, grpc.StatusCode.RESOURCE_EXHAUSTED),
        (500, grpc.StatusCode.INTERNAL),
        (501, grpc.StatusCode.UNIMPLEMENTED),
        (503, grpc.StatusCode.UNAVAILABLE),
        (504, grpc.StatusCode.DEADLINE_EXCEEDED),
        (599, grpc.StatusCode.UNKNOWN),
    ],
)
def test_refusals_have_the_status_of_their_kind(status: int, code: grpc.StatusCode) -> None:
    assert status_code(status) is code


def test_a_shed_request_says_when_to_come_back_as_googles_error_model_does() -> None:
    error = RequestError(503, "the queue is full" * 20, retry_after_s=300)
    metadata = dict(trailing_metadata(error))
    assert metadata["retry-after"] == "300"
    # google.rpc.Status has the shape of this message: an integer, a string, and a list of Any.
    details = metadata["grpc-status-details-bin"]
    assert isinstance(details, bytes)
    assert details.startswith(b"\x08\x0e\x12" + bytes([340 & 127 | 128, 340 >> 7]) + error.message.encode() + b"\x1a")
    packed = details[details.index(b"\x1a", 300) :]
    assert packed[1] == len(packed) - 2
    detail = AnyMessage.FromString(packed[2:])
    assert detail.type_url == "type.googleapis.com/google.rpc.RetryInfo"
    assert detail.value[:2] == bytes([10, len(detail.value) - 2])
    assert Duration.FromString(detail.value[2:]).seconds == 300
    assert trailing_metadata(RequestError(400, "no")) == ()


def test_a_message_that_quotes_half_a_character_can_be_sent() -> None:
    assert status_message(RequestError(400, "plimsoll.\ud800: unknown")).encode() == b"plimsoll.?: unknown"


def test_a_long_message_is_cut_short_because_metadata_has_little_room() -> None:
    assert len(status_message(RequestError(400, "x" * 100_000))) < 1100


# -- the outbox -----------------------------------------------------------------------------------------------------


class FakeContext:
    """A client that reads when it is let."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.reads = asyncio.Event()
        self.reads.set()
        self.n_under_way = 0
        self.is_gone = False

    async def write(self, data: bytes) -> None:
        self.n_under_way += 1
        assert self.n_under_way == 1
        await self.reads.wait()
        if self.is_gone:
            raise grpc.aio.InternalError("execute_batch")
        self.written.append(data)
        self.n_under_way -= 1


def made() -> tuple[FakeContext, Outbox, Call]:
    context = FakeContext()
    return context, Outbox(cast(Context, context)), Call(Account(cast(Service, None), TruthRow("r", "m", 0)))


def run(case: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(case, 10))


def test_messages_leave_in_order_and_token_events_are_stamped() -> None:
    async def case() -> None:
        context, outbox, call = made()
        writer = asyncio.create_task(outbox.run())
        outbox.put(b"a", call, 5)
        outbox.put(b"b")
        outbox.put(b"c", call, 7)
        await outbox.sent()
        writer.cancel()
        assert context.written == [b"a", b"b", b"c"]
        row = call.row
        assert row.due_ns.tolist() == [5, 7]
        (first, second), (first_after, second_after) = row.before_ns, row.after_ns
        assert 0 <= row.first_write_ns <= first <= first_after <= second <= second_after

    run(case())


def test_what_a_client_does_not_read_is_bounded() -> None:
    async def case() -> None:
        context, outbox, call = made()
        context.reads.clear()
        writer = asyncio.create_task(outbox.run())
        for _ in range(5):
            outbox.put(bytes(1 << 20), call)
        with pytest.raises(StreamCut, match="reads too slowly"):
            outbox.put(b"", call)
        writer.cancel()

    run(case())


def test_a_write_under_way_is_finished_before_the_call_is_ended() -> None:
    async def case() -> None:
        context, outbox, call = made()
        context.reads.clear()
        writer = asyncio.create_task(outbox.run())
        outbox.put(b"a", call)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        writer.cancel()
        settled = asyncio.create_task(outbox.settled())
        await asyncio.wait({settled, writer}, return_when=asyncio.FIRST_COMPLETED)
        assert not settled.done()
        context.reads.set()
        await settled
        assert context.written == [b"a"]

    run(case())


def test_a_client_that_is_gone_is_a_broken_connection_and_no_error_of_the_library() -> None:
    async def case() -> None:
        context, outbox, _ = made()
        context.is_gone = True
        outbox.put(b"a")
        with pytest.raises(ConnectionError):
            await outbox.run()

    run(case())


def test_a_write_that_fails_after_its_stream_was_cancelled_says_nothing_on_stderr() -> None:
    async def case() -> None:
        said: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, about: said.append(about))
        context, outbox, _ = made()
        context.reads.clear()
        writer = asyncio.create_task(outbox.run())
        outbox.put(b"a")
        while not context.n_under_way:
            await asyncio.sleep(0)
        writer.cancel()
        context.is_gone = True
        context.reads.set()
        await outbox.settled()
        del outbox, writer
        gc.collect()
        assert said == []

    run(case())


def test_a_sink_sends_text_only_and_ends_where_the_script_says() -> None:
    async def case() -> None:
        context, outbox, call = made()
        writer = asyncio.create_task(outbox.run())
        sink = TokenSink(outbox, call, str.encode, (4, -1))
        for text in ("a", "", "b", "c"):
            sink.token(text, 1, -1)
        with pytest.raises(StreamFailure):
            sink.token("d", 1, -1)
        with pytest.raises(StreamCut):
            TokenSink(outbox, call, str.encode, (-1, 0)).token("x", 1, -1)
        await outbox.sent()
        writer.cancel()
        assert context.written == [b"a", b"b", b"c"]
        assert len(call.row.due_ns) == 0

    run(case())
