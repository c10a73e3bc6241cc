"""Typed reading of the query string of a handshake: whatever is wrong, the reply is a 400 that names the parameter. Knows no protocol."""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.reference_server.values.errors import RequestError


def invalid(name: str, message: str) -> RequestError:
    """The 400 for a parameter."""
    return RequestError(400, f"{name}: {message}", param=name, code="invalid_query_parameter")


class Query:
    """The parameters of one handshake, each read at most once; ``check`` refuses what nobody asked for."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values
        self._known: set[str] = set()

    def text(self, name: str, default: str = "") -> str:
        """A parameter as it stands."""
        self._known.add(name)
        return self._values.get(name, default)

    def choice(self, name: str, choices: tuple[str, ...], default: str | None = None) -> str:
        """One of a few words; required unless there is a default."""
        value = self.text(name) or default
        if value not in choices:
            given = f"{value[:80]!r} is not supported" if value else "must be given"
            raise invalid(name, f"{given}. Choose from {', '.join(choices)}")
        return value

    def integer(self, name: str, default: int | None, *, low: int, high: int) -> int:
        """An integer within bounds; required unless there is a default."""
        value = self.text(name)
        if not value and default is not None:
            return default
        if not (value.isascii() and value.isdecimal() and low <= int(value[:12]) <= high):
            raise invalid(name, f"must be {'' if value else 'given: '}an integer from {low} to {high}")
        return int(value)

    def flag(self, name: str) -> bool:
        """``true`` or ``false``, false by default."""
        return self.choice(name, ("true", "false"), "false") == "true"

    def accept(self, names: tuple[str, ...]) -> None:
        """Parameters that may have any value and change nothing."""
        self._known |= set(names)

    def refuse(self, names: tuple[str, ...]) -> None:
        """Parameters for what this server can't do; ``false`` asks for nothing and is let pass."""
        for name in names:
            if self.text(name, "false") != "false":
                raise invalid(name, "is not supported by this server. Leave it out")

    def check(self) -> None:
        """Refuse parameters that were not mentioned so far."""
        for name in self._values:
            if name not in self._known:
                raise invalid(name[:80], f"unknown. Known: {', '.join(sorted(self._known))}")
