"""Payload: what one sample asks for, before any protocol has encoded it, and what a source of them is.

A source makes payloads; a client encodes them to wire bytes, ahead of time. Nothing here touches a network.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

#: Payloads that a digest looks at: the first, the last and others evenly between.
SAMPLED = 64


@dataclass(frozen=True, slots=True)
class Payload:
    """One sample.

    ``prompt`` or ``messages`` (OpenAI role/content dicts) for text; ``data`` for everything else (tensors,
    template variables), as the source's documentation says. ``n_in`` is the prompt length in tokens as the
    source counts it (-1 unknown), ``max_output_tokens`` the requested output length (-1: leave it to the
    server). ``media_ns`` is the playing time of audio (-1: none). ``reference``: the answer that an accuracy run
    expects (a text, a number, a list of numbers; None: unknown), ``id``: what a file of references calls the sample.
    ``fields``: what a request's body has beside that, for protocols that carry it.
    """

    prompt: str | None = None
    messages: tuple[dict[str, Any], ...] | None = None
    data: dict[str, Any] = field(default_factory=dict)
    n_in: int = -1
    max_output_tokens: int = -1
    media_ns: int = -1
    reference: Any = None
    id: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)


#: What a data set says of each sample under a key: a text, a number, or nothing.
Said = Mapping[str, Sequence[str | float | None]]


class PayloadSource(Protocol):
    """A finite, seeded library of samples, indexable in any order. One that was made with the keys of labels has
    ``labels``, a ``Said`` of those keys; one that knows how long its prompts are has ``lengths(payload_ix)``; one whose
    payloads not every protocol can carry has ``carries``: ``messages``, and the names of ``Payload.fields``.
    """

    def __len__(self) -> int: ...

    def payload(self, index: int) -> Payload:
        """The sample at ``index`` (0 <= index < len). The same index always gives the same payload."""
        ...


def require_index(index: int, n: int) -> None:
    """Raise IndexError unless a source of ``n`` samples has this one."""
    if not 0 <= index < n:
        raise IndexError(f"there is no sample {index} among {n}")


def payload_digest(source: PayloadSource) -> str:
    """SHA-256 in hex over how many payloads there are and the content of up to ``SAMPLED`` of them."""
    digest = hashlib.sha256(b"plimsoll.payloads/1")
    n = len(source)
    add_part(digest, str(n).encode())
    for index in sorted({round(place * (n - 1) / max(SAMPLED - 1, 1)) for place in range(SAMPLED)} if n else ()):
        payload = source.payload(index)
        fields = {name: getattr(payload, name) for name in type(payload).__dataclass_fields__}
        for part in _flat(fields):
            add_part(digest, part)
    return digest.hexdigest()


def _flat(value: Any) -> Iterator[bytes]:
    """A nested value as byte strings: equal values give equal ones on any machine."""
    if isinstance(value, Mapping):
        yield f"mapping {len(value)}".encode()
        for key in sorted(value, key=str):
            yield str(key).encode()
            yield from _flat(value[key])
    elif isinstance(value, bytes | bytearray | memoryview):
        yield bytes(value)
    elif isinstance(value, np.ndarray):
        yield f"array {value.dtype.str} {value.shape}".encode()
        yield np.ascontiguousarray(value).tobytes()
    elif isinstance(value, Sequence) and not isinstance(value, str):
        yield f"list {len(value)}".encode()
        for item in value:
            yield from _flat(item)
    elif hasattr(type(value), "__dataclass_fields__"):
        yield from _flat({name: getattr(value, name) for name in type(value).__dataclass_fields__})
    else:
        yield f"{type(value).__name__} {value!r}".encode()


def add_part(digest: Any, part: bytes) -> None:
    """Length first, so that no two different lists of parts spell the same stream."""
    digest.update(len(part).to_bytes(8, "little"))
    digest.update(part)
