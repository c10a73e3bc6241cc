"""What an accuracy run keeps of each answer: its text or its tensor, taken from the response that is already there.

A worker writes one line for each answer beside its segments (``OutputLog``). After the run ``gather`` makes
``outputs.parquet`` of them, with a row for each planned sample and what was expected of it, and LoadGen's
``mlperf_log_accuracy.json``. Nothing is compared here.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Any, Literal, NamedTuple

import numpy as np
import orjson

from plimsoll.documents import files
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.process.writing import log, whole
from plimsoll.harness.protocols._kserve import MAX_DIMENSIONS
from plimsoll.harness.secrecy.redaction import redact
from plimsoll.harness.transport import outcome
from plimsoll.harness.transport.held import memory
from plimsoll.harness.wire import framing, pointer
from plimsoll.harness.wire.framing import Stream
from plimsoll.harness.wire.pointer import Selector
from plimsoll.scenarios.plan.plan import Plan
from plimsoll.scenarios.samples.reference import Expected
from plimsoll.slo.records.records import Records
from plimsoll.slo.verdict.accuracy import Answer, Scores, score

FILE = "outputs.parquet"
MLPERF_FILE = "mlperf_log_accuracy.json"
_KEYS = ("query_id", "sample_ix")
#: Bytes of all answers that a run keeps, as they lie in the workers' files, where there is memory for it; else a share
#: of that: whoever gathers them holds all of them, three times over.
MOST_KEPT, SHARE_KEPT = 1 << 30, 8
#: V2 datatypes with numbers, as numpy has them.
DATATYPES = {
    "BOOL": "?", "UINT8": "<u1", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8", "INT8": "<i1", "INT16": "<i2",
    "INT32": "<i4", "INT64": "<i8", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8",
}  # fmt: skip
_USUAL = tuple(
    pointer.parse_selector(text)
    for text in (
        *("choices[0].delta.content", "choices[0].message.content", "choices[0].text"),
        *("text", "generated_text", "response"),
    )
)


class OutputLog:
    """The answers of one worker, a line each, on disk before the next one is settled."""

    def __init__(self, folder: Path, worker: int, options: Mapping[str, Any], answers: Sequence[str] = ()) -> None:
        """``answers``: where the protocol has the text, if its options do not say."""
        self._file = log(folder / f"outputs-w{worker:03d}.jsonl")
        self._paths = paths_of(options.get("text_path") or answers)
        self._framing = str(options.get("framing", ""))
        self._byte_order: Literal["big", "little"] = "little" if options.get("byte_order") == "little" else "big"
        self._tensor = next(iter(options.get("outputs") or ()), None)
        self._answer: Callable[[Exchange], Answer | None] | None = None
        self._most = self._left = min(MOST_KEPT, memory() // SHARE_KEPT)
        self.faults: list[str] = []

    def share(self, workers: int) -> None:
        """One of so many workers: before the first answer."""
        self._left = self._most // workers

    def after(
        self, settle: Callable[[Exchange], None], answer: Callable[[Exchange], Answer | None] | None = None
    ) -> Callable[[Exchange], None]:
        """``settle``, and then keep what it found to be an answer. Warm-up answers are not kept.

        ``answer`` reads it where the client knows better than ``read_answer`` does (messages that are no text).
        """
        self._answer = answer

        def settle_and_keep(exchange: Exchange) -> None:
            settle(exchange)
            if exchange.status == outcome.OK and exchange.phase == 0:
                self._keep(exchange)

        return settle_and_keep

    def close(self) -> None:
        self._file.close()

    def _keep(self, exchange: Exchange) -> None:
        entry: dict[str, Any] = {"query_id": exchange.query_id, "sample_ix": exchange.sample_ix}
        try:
            if self._answer is not None:
                answer = self._answer(exchange)
            else:
                answer = read_answer(exchange, self._paths, self._tensor, self._framing, self._byte_order)
        except (ValueError, TypeError, OverflowError, RecursionError):
            return  # no answer could be read out of it: it counts as none
        if answer is None:
            return
        if answer.numbers is None:
            entry["text"] = answer.text and redact(answer.text)
        else:
            entry |= {
                "data": base64.b64encode(answer.numbers.tobytes()).decode(),
                "datatype": answer.numbers.dtype.str,
                "shape": list(answer.shape),
            }
        line = orjson.dumps(entry) + b"\n"
        self._left -= len(line)
        if self._left < 0:
            self._fault(
                f"the answers of this run are larger than {self._most >> 20} MiB together: the rest of them count as "
                "missing. Ask for shorter ones, or for fewer"
            )
            return
        try:
            self._file.write(line)
        except OSError as error:
            self._fault(f"answers could not be written ({error.strerror}): they count as missing")

    def _fault(self, text: str) -> None:
        if not self.faults:
            self.faults.append(text)


def paths_of(given: Any) -> tuple[Selector, ...]:
    """Where the text of an answer is, as options or a protocol name it."""
    texts = [given] if isinstance(given, str) else given or ()
    return tuple(pointer.parse_selector(text) for text in texts)


def read_answer(
    exchange: Exchange,
    paths: tuple[Selector, ...] = (),
    tensor: str | None = None,
    framed: str = "",
    byte_order: Literal["big", "little"] = "big",
) -> Answer | None:
    """The answer in a response that succeeded; None: it holds none.

    ``paths`` say where the text is; without them it is looked for where OpenAI's API, the Open Inference Protocol and
    plain generate endpoints have it. Reasoning is no answer. ``tensor`` is the output to take; else the first.
    ``framed``: how a stream is framed, if that is known better than its media type says.
    """
    if exchange.session is not None and exchange.session.heard is not None:
        return Answer(exchange.session.heard)
    length = outcome.header(exchange, b"inference-header-content-length")
    if length is not None and not paths:
        return _tensor_of(_unpacked(bytes(exchange.body), int(length)), tensor)
    stream = _stream(exchange, framed, byte_order)
    if stream is None:
        return _whole(bytes(exchange.body), paths, tensor)
    names = stream.names or [b""] * len(stream.payloads)
    events = [(_decoded(payload), name) for payload, name in zip(stream.payloads, names, strict=True)]
    parts = [_text_of(event, paths or _USUAL, name) for event, name in events if event is not None]
    return Answer("".join(part for part in parts if part)) if parts else None  # an answer may be empty


def _stream(exchange: Exchange, framed: str, byte_order: Literal["big", "little"]) -> Stream | None:
    """A stream's events; None for an answer in one piece, and for text as it is."""
    media = outcome.media_type(exchange)
    head = bytes(exchange.body[:6])
    if framed not in ("sse", "ndjson", "length-prefixed"):
        framed = ""
        if media == "text/event-stream" or (
            media != "application/json" and head.startswith((b"data:", b"event:", b"id:"))
        ):
            framed = "sse"
        elif "ndjson" in media or "jsonl" in media:
            framed = "ndjson"
    if not framed:
        return None
    return framing.take_apart(exchange.body, exchange.mark_ns, exchange.mark_end, framed, byte_order)


def _decoded(payload: bytes) -> Any:
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError:
        return None


def _text_of(value: Any, paths: tuple[Selector, ...], name: bytes = b"") -> str | None:
    for path in paths:
        found = pointer.select(value, path, name)
        if isinstance(found, str) and found:
            return found
        if isinstance(found, int | float) and not isinstance(found, bool):
            return str(found)
    return None


def _whole(body: bytes, paths: tuple[Selector, ...], tensor: str | None) -> Answer | None:
    value = _decoded(body)
    if isinstance(value, dict) and isinstance(value.get("outputs"), list) and not paths:
        return _tensor_of(value["outputs"], tensor)
    if isinstance(value, dict) and isinstance(value.get("data"), list) and not paths:
        embedding = pointer.find(value, pointer.parse("data[0].embedding"))
        if isinstance(embedding, list):
            numbers = np.asarray(embedding, dtype="<f4")
            return Answer(numbers=numbers.ravel(), shape=numbers.shape)
    lists = [found for path in paths if isinstance(found := pointer.select(value, path), list) and found]
    if lists:
        numbers = np.asarray(lists[0], dtype="<f8")
        return Answer(numbers=numbers.ravel(), shape=numbers.shape)
    text = _text_of(value, paths or _USUAL)
    if text is None and not paths and not isinstance(value, dict | list):
        text = body.decode("utf-8", "replace")
    if text is None and isinstance(value, dict) and value.get("choices"):
        text = ""  # an answer without a word
    return None if text is None else Answer(text)


def _unpacked(body: bytes, at: int) -> list[Any]:
    """The outputs of a response of the Open Inference Protocol whose tensors are bytes behind ``at`` bytes of JSON."""
    outputs = (_decoded(body[:at]) or {}).get("outputs") or []
    for one in outputs:
        size, datatype = one.get("parameters", {}).get("binary_data_size"), one["datatype"]
        if size is None:
            continue
        raw, at = body[at : at + size], at + size
        if datatype == "BYTES":  # each element behind its length
            one["data"] = [raw[4 : 4 + int.from_bytes(raw[:4], "little")].decode("utf-8", "replace")] if raw else []
        elif datatype in DATATYPES:
            one["data"] = np.frombuffer(raw, DATATYPES[datatype])
    return list(outputs)


def _tensor_of(outputs: list[Any], name: str | None) -> Answer | None:
    named = [one for one in outputs if isinstance(one, dict) and (name is None or one.get("name") == name)]
    if not named or "data" not in named[0]:
        return None
    datatype, data = named[0].get("datatype"), named[0]["data"]
    if datatype == "BYTES":
        flat = np.asarray(data, dtype=object).ravel()
        return Answer(str(flat[0])) if len(flat) else None
    if datatype not in DATATYPES:
        return None
    numbers = np.asarray(data, dtype=DATATYPES[datatype]).ravel()
    shape = named[0].get("shape", [len(numbers)])
    return (
        Answer(numbers=numbers, shape=tuple(shape)) if _is_shape(shape) and math.prod(shape) == len(numbers) else None
    )


def _is_shape(value: Any) -> bool:
    """A list of sizes, none too large for the file."""
    sizes = isinstance(value, list) and len(value) <= MAX_DIMENSIONS
    return sizes and all(type(size) is int and 0 <= size < 1 << 63 for size in value)


def gather(
    segments: Path, plan: Plan, run_id: str, expected: Sequence[Expected] | None, mlperf: bool, first: int = 0
) -> Callable[[Path], None]:
    """Read the run's outputs: a row for each planned sample, empty where no answer came. Raises OSError.

    What is returned writes them into a folder, and raises OSError. ``mlperf``: LoadGen's accuracy log too;
    ``first``: what ids of queries begin at on the wire. Lines that a worker did not finish are left out.
    """
    import pyarrow as pa

    found = dict(_lines(segments))
    sizes = np.diff(plan.offsets)
    query, place, payload = np.repeat(plan.query_id, sizes).tolist(), plan.sample_ix.tolist(), plan.payload_ix.tolist()
    if plan.cyclic:  # its list begins again and again: a row for each answer
        n = len(sizes)
        keys = [(q, at) for q, at in sorted(found) if q >= 0 and 0 <= at < sizes[q % n]]
        query, place = [q for q, _ in keys], [at for _, at in keys]
        payload = [int(plan.payload_ix[plan.offsets[q % n] + at]) for q, at in keys]
    kept = [found.get(key, {}) for key in zip(query, place, strict=True)]
    data = [base64.b64decode(one["data"]) if "data" in one else None for one in kept]
    table = pa.table(
        {
            "query_id": pa.array(query, pa.int64()),
            "sample_ix": pa.array(place, pa.int64()),
            "payload_ix": pa.array(payload, pa.int64()),
            "request_id": pa.array(
                [f"{run_id}-{first + q}-{s}" for q, s in zip(query, place, strict=True)], pa.string()
            ),
            "text": pa.array([one.get("text") for one in kept], pa.string()),
            "data": pa.array(data, pa.binary()),
            "datatype": pa.array([one.get("datatype") for one in kept], pa.string()),
            "shape": pa.array([one.get("shape") for one in kept], pa.list_(pa.int64())),
            "expected": pa.array([json.dumps(expected[i]) if expected else None for i in payload], pa.string()),
        }
    )
    return partial(_write, table, mlperf)


def _write(table: Any, mlperf: bool, directory: Path) -> None:
    import pyarrow.parquet as pq

    whole(directory / FILE, partial(pq.write_table, table, compression="zstd"))
    if mlperf:
        payload, texts, data = (table[name].to_pylist() for name in ("payload_ix", "text", "data"))
        raw = [text.encode() if text is not None else piece for text, piece in zip(texts, data, strict=True)]
        _write_mlperf(directory / MLPERF_FILE, payload, raw)


def leave(to: Path, folder: Path, kept: Records, first: int = 0) -> None:
    """Write the answers of these rows, whose ids begin at ``first``, to a file of their own. Raises OSError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    some = {*zip((kept["query_id"] - first).tolist(), kept["sample_ix"].tolist(), strict=True)}
    table = pq.read_table(folder / FILE)
    stays = pa.array([key in some for key in zip(*(table[name].to_pylist() for name in _KEYS), strict=True)])
    whole(to, partial(pq.write_table, table.filter(stays), compression="zstd"), sync=True)


def _lines(segments: Path) -> Iterator[tuple[tuple[int, int], dict[str, Any]]]:
    for path in sorted(segments.glob("outputs-w*.jsonl")):
        for line in files.read_bytes(path).splitlines():
            entry = _decoded(line)
            if isinstance(entry, dict) and _is_entry(entry):
                yield (entry["query_id"], entry["sample_ix"]), entry


def _is_entry(entry: dict[str, Any]) -> bool:
    """As ``OutputLog`` writes them; an agent may hand in anything."""
    if any(type(entry.get(name)) is not int for name in ("query_id", "sample_ix")):
        return False
    if "data" not in entry:
        return isinstance(entry.get("text"), str | NoneType) and entry.keys() <= {"query_id", "sample_ix", "text"}
    try:
        base64.b64decode(entry["data"], validate=True)
    except (TypeError, ValueError):
        return False
    return "text" not in entry and isinstance(entry.get("datatype"), str) and _is_shape(entry.get("shape"))


def _write_mlperf(path: Path, payload: Sequence[int], raw: Sequence[bytes | None]) -> None:
    """An array of what was answered, its bytes in hexadecimal: UTF-8 of a text, a tensor's memory."""
    entries = [
        json.dumps({"seq_id": i, "qsl_idx": qsl, "data": data.hex().upper()})
        for i, (qsl, data) in enumerate(zip(payload, raw, strict=True))
        if data is not None
    ]
    whole(path, ("[\n" + ",\n".join(entries) + "\n]\n").encode())


def scores_of(folder: Path) -> Scores | None:
    """The scores of a run directory ``folder``; None: it kept no answers, or knows no references.

    Raises HarnessFault for a file that can't be read.
    """
    kept = answers_of(folder)
    if kept is None or any(one.expected is None for one in kept):
        return None
    keys = np.array([one.key for one in kept], np.int64).reshape(-1, len(_KEYS))
    return score([one.answer for one in kept], [one.expected for one in kept], keys)


class Kept(NamedTuple):
    """What a run directory has of one planned sample. ``key``: its query and its place there; ``sample``: its place in
    the source.
    """

    key: tuple[int, int]
    sample: int
    answer: Answer | None
    expected: Any


def answers_of(folder: Path) -> list[Kept] | None:
    """The answers of a run directory, in the plan's order; None: it kept none. Raises HarnessFault for a file that
    can't be read.
    """
    path = folder / FILE
    if not path.is_file():
        return None
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = [*_KEYS, "payload_ix", "text", "data", "datatype", "shape", "expected"]
    try:
        return [
            Kept(
                (row["query_id"], row["sample_ix"]), row["payload_ix"], _answer(row),
                None if row["expected"] is None else json.loads(row["expected"]),
            )
            for row in pq.read_table(path, columns=columns).to_pylist()
        ]  # fmt: skip
    except (OSError, ValueError, TypeError, KeyError, pa.ArrowException) as error:
        raise HarnessFault(f"{path}: damaged or from another version ({error}). Run again") from None


def _answer(row: dict[str, Any]) -> Answer | None:
    if row["data"] is not None:
        numbers = np.frombuffer(row["data"], dtype=row["datatype"])
        return Answer(numbers=numbers, shape=tuple(row["shape"] or ()))
    return None if row["text"] is None else Answer(row["text"])
