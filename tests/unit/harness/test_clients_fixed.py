"""TorchServe and TensorFlow Serving: what is sent, and what their answers say."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.protocols.tfserving import TfServingDialect
from plimsoll.harness.protocols.torchserve import TorchServeDialect
from plimsoll.harness.transport.client import Target
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.slo.records.records import Status, TokensFrom
from tests.finished import MS, finished

KEY = (("authorization", "Bearer sekret-value"),)


def torchserve(model: str = "m", **options: Any) -> TorchServeDialect:
    return TorchServeDialect(Target("http://h:1", "torchserve", model, KEY, options))


def tfserving(model: str = "m", **options: Any) -> TfServingDialect:
    return TfServingDialect(Target("http://h:1", "tfserving", model, KEY, options))


def tensor(name: str, shape: list[int], data: Any) -> dict[str, Any]:
    return {"name": name, "shape": shape, "datatype": "FP32", "data": data}


def settled(dialect: Any, body: bytes, code: int = 200, media: str = "application/json") -> Exchange:
    exchange = finished([body], code, media)
    dialect.settle(exchange)
    return exchange


# -- TorchServe ------------------------------------------------------------------------------------------------


def test_torchserve_takes_a_prompt_as_text_and_data_as_json() -> None:
    prompt = torchserve(model_version="1.0").encode(Payload(prompt='a "b"'))
    assert prompt.head.startswith(b"POST /predictions/m/1.0 HTTP/1.1\r\n")
    assert (prompt.body, b"content-type: text/plain" in prompt.head) == (b'a "b"', True)
    data = torchserve().encode(Payload(data={"a": [1]}))
    assert (data.body, b"content-type: application/json" in data.head) == (b'{"a":[1]}', True)
    with pytest.raises(HarnessFault, match="neither a prompt nor data"):
        torchserve().encode(Payload())
    with pytest.raises(HarnessFault, match=r"target\.model"):
        torchserve(model="")


def test_torchserve_takes_any_body_that_plain_http_takes() -> None:
    body = torchserve(body='{"data": {{ prompt | tojson }}}').encode(Payload(prompt="x"))
    assert (body.body, b"content-type: application/json" in body.head) == (b'{"data": "x"}', True)
    form = torchserve(form={"data": "{{ prompt }}"}).encode(Payload(prompt="x"))
    assert b'name="data"\r\n\r\nx\r\n' in form.body


def test_torchserve_503_is_a_refusal_or_a_failed_handler_and_its_body_is_kept() -> None:
    shed = settled(torchserve(), b'{"code":503,"type":"ServiceUnavailableException","message":"no worker"}', 503)
    assert shed.status == Status.REFUSED
    assert "no worker" in (shed.error or "")
    broke = settled(torchserve(), b'{"code":503,"type":"InternalServerException","message":"Prediction failed"}', 503)
    assert broke.status == Status.HTTP
    assert "Prediction failed" in (broke.error or "")


def test_torchserve_chunks_are_reads() -> None:
    x = finished([b"one ", b"two three ", b"four"], 200, "text/plain")
    torchserve(stream=True).settle(x)
    assert (x.status, list(x.chunk_ns), x.n_out) == (Status.OK, [MS, 2 * MS, 3 * MS], 3)
    assert x.tokens_from == TokensFrom.CHUNKS
    empty = finished([], 200, "text/plain")
    torchserve(stream=True).settle(empty)
    assert empty.status == Status.PROTOCOL


# -- TensorFlow Serving ----------------------------------------------------------------------------------------


def test_tfserving_takes_tensors_by_rows_or_by_columns() -> None:
    inputs = {"inputs": [tensor("a", [2, 2], [1, 2, 3, 4]), tensor("b", [2, 1], np.array([5.5, 6.5]))]}
    rows = tfserving(signature="s").encode(Payload(data=inputs))
    assert rows.head.startswith(b"POST /v1/models/m:predict HTTP/1.1\r\n")
    assert orjson.loads(rows.body) == {
        "signature_name": "s",
        "instances": [{"a": [1, 2], "b": [5.5]}, {"a": [3, 4], "b": [6.5]}],
    }
    columns = tfserving(layout="column", model_version=3).encode(Payload(data=inputs))
    assert columns.head.startswith(b"POST /v1/models/m/versions/3:predict ")
    assert orjson.loads(columns.body) == {"inputs": {"a": [[1, 2], [3, 4]], "b": [[5.5], [6.5]]}}


def test_tfserving_one_tensor_is_a_list_of_values_and_other_bodies_go_out_as_they_are() -> None:
    assert orjson.loads(tfserving().encode(Payload(data={"inputs": [tensor("a", [2, 1], [1, 2])]})).body) == {
        "instances": [[1], [2]]
    }
    assert orjson.loads(tfserving().encode(Payload(data={"instances": [1]})).body) == {"instances": [1]}
    classify = tfserving(call="classify").encode(Payload(data={"examples": [{"x": 1}]}))
    assert b":classify " in classify.head
    assert orjson.loads(classify.body) == {"examples": [{"x": 1}]}
    assert orjson.loads(tfserving().encode(Payload(prompt="x")).body) == {"instances": ["x"]}
    raw = tfserving().encode(Payload(data={"inputs": [tensor("a", [1], [b"\xff"])]}))
    assert orjson.loads(raw.body) == {"instances": [{"b64": "/w=="}]}


@pytest.mark.parametrize(
    ("data", "part"),
    [
        ({}, "no data"),
        ({"inputs": [tensor("a", [2], [1, 2]), tensor("b", [3], [1, 2, 3])]}, "layout: column"),
        ({"inputs": [tensor("a", [], [1])]}, "layout: column"),
        ({"inputs": [tensor("a", [3], [1])]}, "not the 3 of its shape"),
    ],
)
def test_tfserving_refuses_tensors_that_are_no_rows(data: dict[str, Any], part: str) -> None:
    with pytest.raises(HarnessFault, match=part):
        tfserving().encode(Payload(data=data))


def test_tfserving_reads_what_json_does_not_know() -> None:
    assert settled(tfserving(), b'{"predictions": [NaN, -Infinity, 1.0]}').status == Status.OK
    assert settled(tfserving(), b'{"predictions": [NaN, ').status == Status.PROTOCOL
    assert settled(tfserving(), b"NaN" + b"[" * 100_000).status == Status.PROTOCOL


def test_tfserving_an_error_or_nothing_under_200_is_a_failure() -> None:
    assert settled(tfserving(), b'{"error": "it broke"}').status == Status.HTTP
    assert settled(tfserving(), b'{"predictions": []}').status == Status.PROTOCOL
    assert settled(tfserving(), b'{"outputs": 0.0}').status == Status.OK
    assert settled(tfserving(call="regress"), b'{"predictions": [1]}').status == Status.PROTOCOL
    assert settled(tfserving(call="regress"), b'{"results": [1]}').status == Status.OK
    assert settled(tfserving(), b"[1]").status == Status.PROTOCOL
    assert "sekret" not in (settled(tfserving(), b'{"error": "sekret-value"}').error or "")


def test_tfserving_takes_a_version_by_label_and_needs_a_model() -> None:
    assert b"/v1/models/m/labels/a%2Fb:predict" in tfserving(version_label="a/b").encode(Payload(prompt="x")).head
    with pytest.raises(HarnessFault, match=r"target\.model"):
        tfserving(model="")
