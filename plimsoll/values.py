"""``dataclass`` as the standard library has it, for frozen values with slots, in a fifth of its time.

The library compiles six functions for each class, and a command loads two hundred classes, of which it makes a few: a
fifth of the CPU of ``plimsoll gate`` went there. Here all share those functions but ``__init__``, which is compiled
when the first instance is made. Type checkers are told that it is the library's own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import MISSING as MISSING
from dataclasses import FrozenInstanceError
from dataclasses import asdict as asdict
from dataclasses import field as field
from dataclasses import fields as fields
from dataclasses import replace as replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, *, frozen: bool = False, slots: bool = False, eq: bool = True) -> Any:
        """The class with the methods of a dataclass. One that is not frozen with slots is the library's."""
        if cls is None:
            return lambda it: dataclass(it, frozen=frozen, slots=slots, eq=eq)
        if not (frozen and slots and eq):
            return dataclasses.dataclass(frozen=frozen, slots=slots, eq=eq)(cls)
        made = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(cls)
        for name, method in {**_SHARED, **_of(made)}.items():
            if not callable(vars(made).get(name)):  # a method of the class's own stays
                setattr(made, name, method)
        return made


def _of(cls: type) -> dict[str, Callable[..., Any]]:
    """What differs from class to class."""
    compared = _getter([one.name for one in fields(cls) if one.compare])
    shown = [one.name for one in fields(cls) if one.repr]

    def init(self: Any, *given: Any, **named: Any) -> None:
        cls.__init__ = compiled = _init(cls)  # type: ignore[misc]
        compiled(self, *given, **named)

    def equal(self: Any, other: object) -> bool:
        return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

    def digest(self: Any) -> int:
        return hash(compared(self))

    def text(self: Any) -> str:
        return f"{self.__class__.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    return {"__init__": init, "__eq__": equal, "__hash__": digest, "__repr__": text}


def _getter(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


def _init(cls: type) -> Callable[..., None]:
    """``__init__`` of a class: its fields in their order, those of ``kw_only`` by name alone."""
    known: dict[str, Any] = {"_set": object.__setattr__, "_absent": MISSING}
    given: dict[bool, list[str]] = {False: [], True: []}
    body = []
    for one in fields(cls):
        name, factory = one.name, one.default_factory is not MISSING
        optional = factory or one.default is not MISSING
        known |= {f"_default_{name}": one.default, f"_make_{name}": one.default_factory}
        if one.init:
            given[bool(one.kw_only)].append(f"{name}=_default_{name}" if optional else name)
            value = f"_make_{name}() if {name} is _absent else {name}" if factory else name
        else:
            value = f"_make_{name}()" if factory else f"_default_{name}"
        if one.init or optional:
            body.append(f"_set(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ["self", *given[False], *(["*", *given[True]] if given[True] else [])]
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(body or ["pass"]), known)
    made: Callable[..., None] = known["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _set(self: object, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delete(self: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, one.name) for one in fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for one, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)


_SHARED: dict[str, Callable[..., Any]] = {
    "__setattr__": _set,
    "__delattr__": _delete,
    "__getstate__": _state,
    "__setstate__": _restore,
}
