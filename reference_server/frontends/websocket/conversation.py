"""The items of one Realtime conversation, in order; bounded, the oldest go first. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from plimsoll.reference_server.frontends.websocket.realtime_wire import Item
from plimsoll.reference_server.values.errors import RequestError

MAX_ITEMS = 1000
MAX_CHARACTERS = 1 << 20
"""Of all items together; the newest is kept whatever its length."""


@dataclass(slots=True)
class Conversed:
    """A conversation."""

    items: list[Item] = field(default_factory=list)

    def add(self, item: Item, after: str | None = None) -> str | None:
        """Put an item at the end, or after another ("root": first); returns the id of the one before it.

        Raises RequestError 400 for an id that is taken or unknown.
        """
        if any(known.item_id == item.item_id for known in self.items):
            raise _invalid("item.id", f"{item.item_id!r} is taken")
        at = len(self.items) if after is None else 0 if after == "root" else self._index(after, "previous_item_id") + 1
        self.items.insert(at, item)
        before = self.items[at - 1].item_id if at else None
        del self.items[: max(0, len(self.items) - MAX_ITEMS)]
        n_characters = sum(len(known.said) for known in self.items)
        while n_characters > MAX_CHARACTERS and len(self.items) > 1:
            n_characters -= len(self.items.pop(0).said)
        return before

    def get(self, item_id: str) -> Item:
        """The item. Raises RequestError 400."""
        return self.items[self._index(item_id, "item_id")]

    def delete(self, item_id: str) -> None:
        """Forget an item. Raises RequestError 400."""
        del self.items[self._index(item_id, "item_id")]

    def _index(self, item_id: str, param: str) -> int:
        for index, item in enumerate(self.items):
            if item.item_id == item_id:
                return index
        raise _invalid(param, f"there is no item {item_id!r}")


def _invalid(param: str, message: str) -> RequestError:
    return RequestError(400, f"{param}: {message}", param=param, code="invalid_item")
