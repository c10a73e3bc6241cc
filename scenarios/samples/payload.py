"""Payload: what one sample asks for, before any protocol has encoded it, and what a source of them is.

A source makes payloads; a client encodes them to wire bytes, ahead of time. Nothing here touches a network.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


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
