"""JSON values to messages: every mistake at once; paths into messages; templates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from google.protobuf import json_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.protocols._grpc.descriptors import shipped
from plimsoll.harness.protocols._grpc.grpc_template import MessagePath, MessageTemplate
from plimsoll.harness.protocols._grpc.protobuf_json import ANY, checked, encode, outline_problems, read, to_json
from plimsoll.harness.wire import pointer
from plimsoll.scenarios.samples.payload import Payload

KSERVE, GOOGLE = shipped("kserve"), shipped("google_speech_v1")
INFER = KSERVE.message("inference.ModelInferRequest")
HEARD = GOOGLE.message("google.cloud.speech.v1.StreamingRecognizeResponse")
CONFIG = GOOGLE.message("google.cloud.speech.v1.StreamingRecognizeRequest")


def errors(value: Any, kind: Any = INFER) -> list[str]:
    return checked(kind, value, "m")[1]


def test_a_good_value_becomes_bytes_that_protobufs_own_parser_makes_too() -> None:
    value = {
        "modelName": "m",
        "inputs": [
            {"name": "t", "shape": [1, "2"], "contents": {"bytes_contents": ["aGk="], "fp32_contents": ["NaN", 1]}}
        ],
        "parameters": {"b": {"int64_param": "5"}, "a": {"bool_param": True}},
        "raw_input_contents": ["_-8"],
        "outputs": None,
    }
    data, found = checked(INFER, value, "m")
    assert found == []
    assert INFER.FromString(data) == json_format.ParseDict(value, INFER()) or "nan" in str(INFER.FromString(data))
    assert checked(INFER, value, "m")[0] == data


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"model_nam": 1}, "m.model_nam: inference.ModelInferRequest has no such field. Did you mean model_name?"),
        ({"id": 5}, "m.id: 5 is not a string"),
        ({"inputs": {}}, "m.inputs: {} is not a list of inference.ModelInferRequest.InferInputTensor"),
        ({"inputs": [5]}, "m.inputs[0]: 5 is not an object"),
        ({"inputs": [{"shape": ["x"]}]}, "m.inputs[0].shape[0]: 'x' is not a whole number"),
        ({"inputs": [{"shape": [1.5]}]}, "m.inputs[0].shape[0]: 1.5 is not a whole number"),
        ({"inputs": [{"shape": [True]}]}, "m.inputs[0].shape[0]: True is not a whole number"),
        ({"inputs": [{"shape": [2**63]}]}, "is outside -9223372036854775808 to 9223372036854775807 (int64)"),
        ({"inputs": [{"shape": [None]}]}, "m.inputs[0].shape[0]: null is no int64"),
        ({"inputs": [{"contents": {"uint_contents": [-1]}}]}, "-1 is outside 0 to 4294967295 (uint32)"),
        ({"inputs": [{"contents": {"fp32_contents": [1e39]}}]}, "1e+39 is too large for a float"),
        ({"inputs": [{"contents": {"fp32_contents": ["x"]}}]}, "'x' is not a number"),
        ({"inputs": [{"contents": {"bool_contents": [1]}}]}, "1 is neither true nor false"),
        ({"raw_input_contents": ["***"]}, "'***' is not base64. Write the bytes with the filter b64"),
        ({"raw_input_contents": [7]}, "7 is not a string. Write it as base64"),
        ({"parameters": []}, "m.parameters: [] is not an object of names and values"),
        ({"parameters": {"a": None}}, "m.parameters['a']: null is no inference.InferParameter"),
        ({"parameters": {"a": {"bool_param": True, "int64_param": 1}}}, "bool_param is given too"),
        ({"id": "a", "modelName": "b", "model_name": "c"}, "modelName is given too"),
        ([], "m: [] is not an object of inference.ModelInferRequest's fields"),
    ],
)
def test_a_mistake_is_told_with_its_place(value: Any, said: str) -> None:
    (found,) = errors(value)
    assert said in found


def test_all_mistakes_are_told_at_once_up_to_twenty() -> None:
    assert len(errors({"id": 5, "inputs": [{"name": 1, "shap": 2}], "model_name": False})) == 4
    assert len(errors({"inputs": [{"shape": ["x"] * 50}]})) == 20


def test_enums_and_well_known_types_are_checked_too() -> None:
    wrong = {
        "streaming_config": {
            "config": {"encoding": "LINEAR"},
            "voice_activity_timeout": {"speech_end_timeout": "5 seconds"},
        }
    }
    first, second = errors(wrong, CONFIG)
    assert "'LINEAR' is no google.cloud.speech.v1.RecognitionConfig.AudioEncoding. Did you mean LINEAR16?" in first
    assert "'5 seconds' is no google.protobuf.Duration" in second
    right = {
        "streaming_config": {
            "config": {"encoding": "LINEAR16"},
            "voice_activity_timeout": {"speech_end_timeout": "1.5s"},
        }
    }
    assert errors(right, CONFIG) == []
    assert errors({"streaming_config": {"config": {"encoding": 1}}}, CONFIG) == []


def test_what_only_protobuf_sees_is_told_as_well() -> None:
    """proto2's required fields: protobuf refuses to write a message without them."""
    value = {"options": {"uninterpretedOption": [{"name": [{"namePart": "x"}]}]}}
    assert any("missing" in text and text.startswith("m: ") for text in errors(value, FileDescriptorProto))


@settings(max_examples=300)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5) | st.just("AAAA"),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "model_name",
                        "inputs",
                        "shape",
                        "contents",
                        "parameters",
                        "fp32_contents",
                        "x",
                        "raw_input_contents",
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_any_value_is_either_encoded_or_refused_with_a_reason(value: Any) -> None:
    data, found = checked(INFER, value, "m")
    assert all(text.startswith("m") for text in found)
    if not found:
        assert read(INFER, data) is not None
        assert encode(INFER, value) == data


def test_an_outline_is_checked_where_it_is_known() -> None:
    value = {
        "model_name": ANY,
        "inputs": [{"name": ANY, "shape": [ANY, "x"], "contents": ANY}],
        "parameters": {"a": ANY},
        "y": ANY,
    }
    found = outline_problems(INFER, value, "m")
    assert [text.partition(":")[0] for text in found] == ["m.inputs[0].shape[1]", "m.y"]
    timeout = {"streaming_config": {"voice_activity_timeout": {"speech_end_timeout": ANY}}}
    assert outline_problems(CONFIG, timeout, "m") == []


def test_bytes_that_are_no_message_read_as_none() -> None:
    assert read(INFER, b"\xff\xff") is None
    assert read(INFER, memoryview(b"\x0a\x01m")).model_name == "m"


# -- paths
# --------------------------------------------------------------------------------------------------------------


def heard() -> Any:
    message: Any = HEARD()
    message.results.add().alternatives.add(transcript="hi", confidence=0.5)
    message.speech_event_time.seconds = 2
    return message


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("results[0].alternatives[0].transcript", "hi"),
        ("results[-1].alternatives.0.transcript", "hi"),
        ("$.results[0].isFinal", False),
        ("results[1].alternatives[0].transcript", pointer.MISSING),
        ("error.message", pointer.MISSING),
        ("speech_event_time", "2s"),
        ("total_billed_time", pointer.MISSING),
        ("speech_event_type", 0),
    ],
)
def test_a_path_leads_to_its_value(path: str, value: Any) -> None:
    assert MessagePath(HEARD, path).find(heard()) == value


def test_a_map_is_entered_by_key() -> None:
    kind = KSERVE.message("inference.ModelInferResponse")
    path, message = MessagePath(kind, 'parameters["x"].string_param'), kind()
    assert path.find(message) is pointer.MISSING
    assert "x" not in message.parameters  # type: ignore[attr-defined]
    message.parameters["x"].string_param = "v"  # type: ignore[attr-defined]
    assert path.find(message) == "v"
    message.parameters["x"].bool_param = True  # type: ignore[attr-defined]
    assert path.find(message) is pointer.MISSING


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("results[0].alternative[0].transcript", "has no field 'alternative'. Did you mean alternatives?"),
        ("results.alternatives", "results is a list. Write results[0].alternatives"),
        ("error.code.x", "nothing is inside 'code'. Shorten the path"),
        ("", "the path is empty"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused(path: str, said: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        MessagePath(HEARD, path)
    assert said in str(caught.value)


def test_to_json_keeps_the_protos_names_and_never_raises() -> None:
    assert to_json(heard()) == {
        "results": [{"alternatives": [{"transcript": "hi", "confidence": 0.5}]}],
        "speech_event_time": "2s",
    }
    answer = shipped("torchserve").message("org.pytorch.serve.grpc.inference.RpcStatus")()
    answer.details.add(type_url="type.googleapis.com/no.Such", value=b"\xff")  # type: ignore[attr-defined]
    assert "no.Such" in to_json(answer)


# -- templates
# ----------------------------------------------------------------------------------------------------------

SAMPLE = Payload(
    prompt='say "hi"\n', max_output_tokens=8, data={"x": [1, 2.5], "a": np.arange(2, dtype="<i2"), "b": b"\xff"}
)


@pytest.mark.parametrize(
    ("given_", "value"),
    [
        ({"a": "{{ prompt }}", "n": "{{ max_output_tokens }}"}, {"a": 'say "hi"\n', "n": 8}),
        ({"a": "<{{ model }}>", "n": "{{ data.x }}"}, {"a": "<m>", "n": [1, 2.5]}),
        ([{"a": "{{ data.a | b64 }}"}, {"b": "{{ data.b | b64 }}"}], [{"a": "AAABAA=="}, {"b": "/w=="}]),
        ({"fixed": 5, "deep": [{"x": None, "y": True}]}, {"fixed": 5, "deep": [{"x": None, "y": True}]}),
        ('{"a": {{ prompt | tojson }}}', {"a": 'say "hi"\n'}),
        ("a: {{ prompt | tojson }}\nb: [1, 2]", {"a": 'say "hi"\n', "b": [1, 2]}),
        ("{% if max_output_tokens > 5 %}{}{% else %}[]{% endif %}", {}),
        ("a: 1", {"a": 1}),
        ({"a": "{{ prompt | upper }}"}, {"a": 'SAY "HI"\n'}),
        ({"a": "{{ prompt | length }}{{ model }}"}, {"a": "9m"}),
    ],
)
def test_a_template_renders_to_values(given_: Any, value: Any) -> None:
    assert MessageTemplate(given_).render(SAMPLE, "m") == value


def test_an_outline_keeps_what_is_fixed() -> None:
    unknown = object()
    template = MessageTemplate({"a": "{{ prompt }}", "b": [1, "{% x %}" if False else "z"]})
    assert template.outline(unknown) == {"a": unknown, "b": [1, "z"]}
    assert MessageTemplate("{{ prompt }}").outline(unknown) is unknown
    assert MessageTemplate('{"a": 1}').outline(unknown) == {"a": 1}


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ({"a": "{{ x", "b": ["{% nope %}"]}, "a: line 1"),
        ({"a": "{{ x", "b": ["{% nope %}"]}, "b[0]: line 1"),
        ("{{ x", "line 1"),
        ("nothing: [", "neither JSON"),
        ("just text", "neither JSON"),
    ],
)
def test_a_template_that_does_not_compile_is_refused_with_its_place(given_: Any, said: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        MessageTemplate(given_)
    assert said in str(caught.value)


def test_what_a_sample_lacks_is_a_mistake_with_its_place() -> None:
    with pytest.raises(HarnessFault, match=r"target.options.message.a\[0\]: the template can't be rendered"):
        MessageTemplate({"a": ["{{ index }}"]}).render(Payload(), "m")
    with pytest.raises(HarnessFault, match=r"target.options.message: it renders to text that is neither JSON"):
        MessageTemplate("{{ prompt }}").render(Payload(prompt="x"), "m")
