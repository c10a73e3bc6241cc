"""SageMaker's data capture: an object a request with what went in and out, and a time of whole seconds. Lengths in
tokens are those that the answer's usage tells; bodies are measured, and stay behind.
"""

import base64
import binascii
import json
from contextlib import suppress
from typing import Any

from plimsoll.scenarios.samples.rows import Row, S, count_of, keep, time_of
from plimsoll.scenarios.samples.traces import Format


def _row(entry: dict[str, Any]) -> Row:
    capture, about = entry.get("captureData"), entry.get("eventMetadata")
    if not isinstance(capture, dict) or not isinstance(about, dict):
        raise ValueError("captureData or eventMetadata is not an object. Give events that are whole.")
    given, got = (_body(capture.get(key)) for key in ("endpointInput", "endpointOutput"))
    row: Row = {"at_ns": time_of(about, "inferenceTime", S)}
    if given is not None:
        row["bytes_in"] = len(given)
    if got is not None:
        row["bytes_out"] = len(got)
        with suppress(ValueError, RecursionError):
            answer = json.loads(got)
            usage = answer.get("usage") if isinstance(answer, dict) else None
            if isinstance(usage, dict):
                for to, names in _USAGE.items():
                    name = next((name for name in names if usage.get(name) is not None), None)
                    row |= {} if name is None else {to: count_of(usage, name)}
    return row


_USAGE = {"n_in": ("prompt_tokens", "input_tokens"), "n_out": ("completion_tokens", "output_tokens")}


def _body(part: Any) -> bytes | None:
    """What was captured of one direction."""
    if not isinstance(part, dict) or not isinstance(part.get("data"), str):
        return None
    if part.get("encoding") == "BASE64":
        try:
            return base64.b64decode(part["data"], validate=True)
        except binascii.Error as error:
            raise ValueError(f"data is not base64 ({error}). Give events that are whole.") from None
    return str(part["data"]).encode("utf-8", "surrogatepass")


FORMAT = Format(
    name="sagemaker",
    summary="SageMaker's data capture: JSON Lines",
    unit="UTC, whole seconds",
    sign="captureData and eventMetadata",
    detect=lambda head: {"captureData", "eventMetadata"} <= head.entry.keys(),
    read=lambda reading, made: keep(reading, reading.lines(_row), made),
    takes=("eventMetadata.inferenceTime", "sizes of data", "usage in the answer"),
    leaves=("what data says", "eventId", "eventVersion"),
    columns=("bytes_in", "bytes_out"),
)
