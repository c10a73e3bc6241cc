"""Conversations: a payload source by turns. Each payload of several user messages becomes as many turns.

A row whose messages begin with all those of the row before it is the same conversation, told again with one turn more
(a cumulative log): it replaces that row, so that no turn is counted twice. What is no chat is a conversation of one
turn. ``data["turns"]`` of a payload may hold a mapping for each turn with ``max_output_tokens`` and ``think_ns``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from plimsoll.scenarios.plan.plan import IntArray
from plimsoll.scenarios.samples.payload import Payload, PayloadSource, Said, require_index
from plimsoll.scenarios.samples.prefixes import Chain

Messages = tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Conversations:
    """A payload a turn; conversation c has those from ``starts[c]`` to before ``starts[c + 1]``. ``think_ns``: of each
    turn the recorded time since the answer before it (0 unknown); ``cumulative``: rows that only repeated another.
    """

    payloads: Sequence[Payload]
    starts: IntArray
    think_ns: IntArray
    cumulative: int = 0
    labels: Said = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.payloads)

    @property
    def count(self) -> int:
        return len(self.starts) - 1

    def payload(self, index: int) -> Payload:
        require_index(index, len(self.payloads))
        return self.payloads[index]

    @property
    def carries(self) -> frozenset[str]:
        """As of the source that turns were picked from."""
        return getattr(self._source, "carries", frozenset())

    @property
    def shares(self) -> bool:
        """Likewise, of whole prompts: what begins alike is told by ``chain``."""
        return bool(getattr(self._source, "shares", False) and getattr(self._source, "whole", False))

    whole = shares

    def chain(self, index: int) -> Chain:
        """The parts of that turn's prompt."""
        assert isinstance(self.payloads, Picked)  # else nothing is shared
        found: Chain = getattr(self._source, "chain")(int(self.payloads.order[index]))  # noqa: B009
        return found

    @property
    def _source(self) -> PayloadSource | None:
        return self.payloads.source if isinstance(self.payloads, Picked) else None


@dataclass(frozen=True, slots=True)
class Picked(Sequence[Payload]):
    """Some payloads of a source in an order of their own, made when they are asked for."""

    source: PayloadSource
    order: IntArray

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, index: Any) -> Any:
        return self.source.payload(int(self.order[index]))


@runtime_checkable
class Recorded(Protocol):
    """A source that knows whose turns its samples are."""

    def turns(self, history: str) -> Conversations: ...


def history_of(cumulative: bool, wanted: str | None) -> str:
    """What a recorded turn repeats: what its own length contains, or else live answers. Raises ValueError."""
    if cumulative and wanted == "live":
        raise ValueError(
            "params.history: live, and what was recorded of a turn contains the turns before it: they would be sent "
            "twice. Give history: recorded, or columns: {cumulative: false}"
        )
    if not cumulative and wanted == "recorded":
        raise ValueError(
            "params.history: recorded, and the recording has a turn's own part only. Give history: live, or none"
        )
    return wanted or ("recorded" if cumulative else "live")


def conversations(source: PayloadSource, recorded: bool, live: bool = False) -> Conversations:
    """This source by turns: each with what was said before it (``recorded``), or with its own messages alone."""
    if isinstance(source, Recorded):
        return source.turns("recorded" if recorded else "live" if live else "none")
    said: Said = getattr(source, "labels", {})
    rows = [source.payload(ix) for ix in range(len(source))]
    kept = [
        at for at, (one, after) in enumerate(zip(rows, [*rows[1:], None], strict=True)) if not _continued(one, after)
    ]
    made = [_turns(rows[at], recorded) for at in kept]
    lengths = [len(turns) for turns in made]
    return Conversations(
        tuple(payload for turns in made for payload, _ in turns),
        np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))),
        np.array([think for turns in made for _, think in turns], np.int64),
        len(rows) - len(kept),
        {
            key: [values[at] for at, n in zip(kept, lengths, strict=True) for _ in range(n)]
            for key, values in said.items()
        },
    )


def _continued(one: Payload, after: Payload | None) -> bool:
    """The next row says all of this one again, and an answer and a question more."""
    if one.messages is None or after is None or after.messages is None:
        return False
    n = len(one.messages)
    return len(after.messages) > n and after.messages[:n] == one.messages and after.messages[n]["role"] == "assistant"


def _turns(one: Payload, recorded: bool) -> list[tuple[Payload, int]]:
    if one.messages is None:
        return [(one, 0)]
    ends = [at + 1 for at, message in enumerate(one.messages) if _asks(one.messages, at)]
    told: Sequence[Mapping[str, Any]] = one.data.get("turns", ())
    lead = next((at for at, message in enumerate(one.messages) if message["role"] not in _LEAD), 0)
    found, begin = [], 0
    for number, end in enumerate(ends):
        own = one.messages[begin:end]
        while own and own[0]["role"] == "assistant":
            own = own[1:]
        messages = one.messages[:end] if recorded or not number else one.messages[:lead] + own
        say = told[number] if number < len(told) else {}
        limit = int(say.get("max_output_tokens", one.max_output_tokens))
        n_in = one.n_in if len(ends) == 1 else int(say.get("n_in", -1))
        turn = replace(one, messages=messages, data={}, n_in=n_in, max_output_tokens=limit)
        found.append((turn, int(say.get("think_ns", 0))))
        begin = end
    return found or [(one, 0)]


_LEAD = ("system", "developer")


def _asks(messages: Messages, at: int) -> bool:
    """An answer comes after this message: it is the last, or the last before one."""
    if messages[at]["role"] in ("assistant", *_LEAD):
        return False
    return at + 1 == len(messages) or messages[at + 1]["role"] == "assistant"
