"""This module reads token streams whose events differ in one string only without decoding each event.

The first events are decoded; one that carries output and nothing else becomes a template. An event that equals it but
for another plain, non-empty string is not decoded; every other one goes through ``tokens.scan``. Whatever does not fit
is not guessed at: ``read`` gives None, and ``sse.decode`` with ``tokens.scan`` does it all. A property test holds the
two to each other.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from plimsoll.harness.wire import sse, tokens

Fold = Callable[[bytes, object, object, bytes, bytes], tuple[bytes, bytes, bytes] | None]

#: Events that are looked at for a template.
_LOOK = 4
#: With a larger share of events unlike the template, folding saves nothing.
_UNLIKE = 0.5
_SLOTS = (("delta", "content"), ("delta", "reasoning_content"), ("delta", "reasoning"), (None, "text"))
_PLACEHOLDER = "plimsoll"


@dataclass(frozen=True, slots=True)
class Template:
    """An event's payload around its string, and what it carries: 1 reasoning, 2 answer."""

    before: bytes
    after: bytes
    kind: int


@dataclass(frozen=True, slots=True)
class Folded:
    """A whole stream: when each event with output arrived, and the first with answer (-1: none); what ``scan`` would
    say, but that its ``output`` has the right length only.
    """

    chunk_ns: array[int]
    first_answer_ns: int
    scan: tokens.TokenScan


@cache
def load_fold() -> Fold | None:
    """The compiled search, or None where the extension is not there. Asked for each stream, looked for once."""
    try:
        from plimsoll.harness.generator._engine import fold
    except ImportError:
        return None
    return fold


def read(body: bytes | bytearray, mark_ns: array[int], mark_end: array[int], fold: Fold) -> Folded | None:
    """What ``sse.decode`` and ``tokens.scan`` would say, or None: ask them."""
    size = mark_end[-1] if len(mark_end) else 0
    if not size or size > sse.MAX_EVENT:
        return None  # the limit on one event is the reference's to apply
    data = bytes(body) if size == len(body) else bytes(body[:size])
    head = data[: data.find(b"\n\n", 16_384) if size > 16_384 else size]
    candidates = [event.removeprefix(b"data: ") for event in head.split(b"\n\n", _LOOK)[:_LOOK]]
    template = next(filter(None, map(find_template, candidates)), None)
    if template is None:
        return None
    found = fold(data, mark_ns, mark_end, template.before, template.after)
    if found is None:
        return None
    times, like, unlike = (array("q", part) for part in found)
    others = [(unlike[i], data[unlike[i + 1] : unlike[i + 2]]) for i in range(0, len(unlike), 3)]
    second = None
    if len(others) > _LOOK:
        # Reasoning comes first and the answer after it, or the other way round: each has a template.
        second = next(filter(None, (find_template(payload) for _, payload in others[len(others) // 2 :][:_LOOK])), None)
    if len(others) > _UNLIKE * len(times) and second is None:
        return None
    if second is not None:
        return _read_two(data, mark_ns, mark_end, template, second, fold)
    rest = tokens.scan([payload for _, payload in others])
    if not _usable(rest, [index for index, _ in others], len(times)):
        return None
    if rest.output:
        kinds = np.full(len(times), template.kind, dtype=np.uint8)
        kinds[[index for index, _ in others]] = 0
        return _merge(times, kinds, [index for index, _ in others], rest)
    answer = like[0] if template.kind == 2 and len(like) else -1
    return Folded(like, answer, _scan(rest, len(like), len(times)))


def _read_two(
    data: bytes, mark_ns: array[int], mark_end: array[int], first: Template, second: Template, fold: Fold
) -> Folded | None:
    """A stream of two kinds of events, each with its template."""
    kinds = np.empty(0, dtype=np.uint8)
    times = array("q")
    for template in (first, second):
        found = fold(data, mark_ns, mark_end, template.before, template.after)
        if found is None:
            return None
        times = array("q", found[0])
        unlike = np.frombuffer(found[2], dtype=np.int64)[0::3]
        if not len(kinds):
            kinds = np.zeros(len(times), dtype=np.uint8)
        mine = kinds == 0
        mine[unlike] = False
        kinds[mine] = template.kind
        spans = np.frombuffer(found[2], dtype=np.int64).reshape(-1, 3)
    rest_at = np.flatnonzero(kinds == 0).tolist()
    if len(rest_at) > _UNLIKE * len(kinds):
        return None
    where = {int(index): (int(begin), int(end)) for index, begin, end in spans}
    rest = tokens.scan([data[slice(*where[index])] for index in rest_at])
    if not _usable(rest, rest_at, len(kinds)):
        return None
    return _merge(times, kinds, rest_at, rest)


def _usable(rest: tokens.TokenScan, rest_at: list[int], n_events: int) -> bool:
    """Nothing in the other events says that the stream has to be read one by one."""
    if rest.fault is not None or rest.bad is not None:
        return False
    # Something after the end marker would not have been read.
    return not rest.done or (rest.n_events + 1 == len(rest_at) and rest_at[-1] == n_events - 1)


def _merge(times: array[int], kinds: npt.NDArray[np.uint8], rest_at: list[int], rest: tokens.TokenScan) -> Folded:
    """Like and other events in the order in which they came."""
    output = kinds != 0
    output[[rest_at[i] for i in rest.output]] = True
    answers = np.flatnonzero(kinds == 2)
    firsts = [int(answers[0])] if len(answers) else []
    firsts += [rest_at[rest.first_answer]] if rest.first_answer >= 0 else []
    chunk_ns = array("q", np.frombuffer(times, dtype=np.int64)[output].tobytes())
    return Folded(chunk_ns, times[min(firsts)] if firsts else -1, _scan(rest, len(chunk_ns), len(kinds)))


def _scan(rest: tokens.TokenScan, n_output: int, n_events: int) -> tokens.TokenScan:
    return replace(rest, output=range(n_output), n_events=n_events - rest.done)


def find_template(payload: bytes) -> Template | None:
    """The template that an event's payload makes, if it carries one plain string of output and nothing else."""
    try:
        event = orjson.loads(payload)
    except orjson.JSONDecodeError:
        return None
    if type(event) is not dict or "error" in event or event.get("object") == "error":
        return None
    if event.get("usage") or event.get("server_timing"):
        return None
    choices = event.get("choices")
    if type(choices) is not list or len(choices) != 1 or type(choices[0]) is not dict:
        return None
    kind = tokens.carries(choices[0])
    if not kind or choices[0].get("finish_reason") or choices[0].get("index"):
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
