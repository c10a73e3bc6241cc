"""Token streams whose events differ in one string only, which is what nearly every server sends: read without decoding
each event.

The first events are decoded; one that carries output and nothing else becomes a template: the bytes before and after the
string. An event that equals the template but for another plain, non-empty string means the same, so it is not decoded;
every other event goes through ``tokens.scan``. Whatever does not fit (an error, a broken event, another framing) is not
guessed at: ``read`` gives None, and the reference path (``sse.decode`` and ``tokens.scan``) does it all. The two must
agree; a property test holds them to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from harness.wire import sse, tokens

Fold = Callable[[bytes, bytes, bytes], tuple[bytes, bytes] | None]

#: Events that are looked at for a template, and templates tried in one stream (reasoning first, then the answer).
_LOOK = 4
_TEMPLATES = 2
#: With more events than this unlike any template, folding saves nothing.
_UNLIKE = 0.5
_SLOTS = (("delta", "content"), ("delta", "reasoning_content"), ("delta", "reasoning"), (None, "text"))
_PLACEHOLDER = "plimsoll"


@dataclass(frozen=True, slots=True)
class Template:
    """An event's payload around its string, and what it carries: 1 reasoning, 2 answer."""

    before: bytes
    after: bytes
    kind: int


def load_fold() -> Fold | None:
    """The compiled search, or None where the extension is not there."""
    try:
        from harness._engine import fold
    except ImportError:
        return None
    return fold


def read(
    body: bytes | bytearray, mark_ns: Sequence[int], mark_end: Sequence[int], fold: Fold
) -> tuple[sse.Decoded, tokens.TokenScan] | None:
    """What ``sse.decode`` and ``tokens.scan`` would say (the payloads left out), or None: ask them."""
    size = mark_end[-1] if len(mark_end) else 0
    data = bytes(body) if size == len(body) else bytes(body[:size])
    if len(data) > sse.MAX_EVENT:
        return None  # the limit on one event is the reference's to apply
    found = _kinds(data, fold)
    if found is None:
        return None
    ends, kinds = found
    starts = np.concatenate(([0], ends[:-1])) + len(b"data: ")
    unlike = np.flatnonzero(kinds == 0)
    if len(unlike) > _UNLIKE * len(kinds):
        return None
    rest = tokens.scan([data[starts[i] : ends[i] - 2] for i in unlike.tolist()])
    if rest.fault is not None or rest.bad is not None:
        return None
    if rest.done and (rest.n_events + 1 != len(unlike) or unlike[-1] != len(kinds) - 1):
        return None  # something follows the end marker
    output = kinds != 0
    output[unlike[rest.output]] = True
    answers = np.flatnonzero(kinds == 2)
    first = int(answers[0]) if len(answers) else -1
    if rest.first_answer >= 0:
        other = int(unlike[rest.first_answer])
        first = other if first < 0 else min(first, other)
    scan = tokens.TokenScan(
        np.flatnonzero(output).tolist(), first, rest.n_in, rest.n_out, rest.finished, rest.done, None, None,
        len(kinds) - rest.done,
    )  # fmt: skip
    return sse.Decoded([], sse.arrival_times(ends, mark_ns, mark_end)), scan


def _kinds(data: bytes, fold: Fold) -> tuple[sse.IntArray, npt.NDArray[np.uint8]] | None:
    """(where each event ends, 0 or the kind of the template that it is like), or None."""
    head = data[: data.find(b"\n\n", 16_384) if len(data) > 16_384 else len(data)]
    candidates = [event.removeprefix(b"data: ") for event in head.split(b"\n\n", _LOOK)[:_LOOK]]
    ends: sse.IntArray | None = None
    kinds = np.empty(0, dtype=np.uint8)
    for _ in range(_TEMPLATES):
        template = next(filter(None, map(find_template, candidates)), None)
        if template is None:
            break
        folded = fold(data, template.before, template.after)
        if folded is None:
            return None
        if ends is None:
            ends = np.frombuffer(folded[0], dtype=np.int64)
            kinds = np.zeros(len(ends), dtype=np.uint8)
        kinds[(kinds == 0) & (np.frombuffer(folded[1], dtype=np.uint8) != 0)] = template.kind
        left = np.flatnonzero(kinds == 0)
        if len(left) <= _LOOK:
            break
        middle = left[len(left) // 2 :][:_LOOK].tolist()
        candidates = [data[(int(ends[i - 1]) if i else 0) + 6 : int(ends[i]) - 2] for i in middle]
    return None if ends is None or len(ends) == 0 else (ends, kinds)


def find_template(payload: bytes) -> Template | None:
    """The template that an event's payload makes, if it carries one plain string of output and nothing else."""
    try:
        event = orjson.loads(payload)
    except orjson.JSONDecodeError:
        return None
    if type(event) is not dict or "error" in event or event.get("object") == "error" or event.get("usage"):
        return None
    choices = event.get("choices")
    if type(choices) is not list or len(choices) != 1 or type(choices[0]) is not dict:
        return None
    kind = tokens.carries(choices[0])
    if not kind or choices[0].get("finish_reason"):
        return None
    for inside, key in _SLOTS:
        holder = choices[0] if inside is None else choices[0].get(inside)
        value = holder.get(key) if type(holder) is dict else None
        if type(value) is str and value:
            return _prove(payload, event, holder, key, value, kind)
    return None


def _prove(payload: bytes, event: Any, holder: Any, key: str, value: str, kind: int) -> Template | None:
    """Find the string's place in the bytes: another string put there must change that value and nothing else."""
    literal = orjson.dumps(value)
    at = payload.find(literal) if b"\\" not in literal else -1
    while at >= 0:
        before, after = payload[:at], payload[at + len(literal) :]
        try:
            changed = orjson.loads(b'%b"%b"%b' % (before, _PLACEHOLDER.encode(), after))
        except orjson.JSONDecodeError:
            return None
        holder[key] = _PLACEHOLDER
        same = changed == event
        holder[key] = value
        if same:
            return Template(before, after, kind)
        at = payload.find(literal, at + 1)
    return None
