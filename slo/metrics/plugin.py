"""Plug-ins of outside packages, announced by entry points: one that is broken is named, and is no bug of Plimsoll's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

#: Of what an exception says, so many characters are repeated.
_LONGEST = 300


class PluginError(Exception):
    """A plug-in is broken: its message says which one, of which package, what is wrong and what to do.

    The command line makes it one error and exit code 2.
    """

    def __init__(self, point: EntryPoint, what: str) -> None:
        of = f" (package {point.dist.name} {point.dist.version})" if point.dist is not None else ""
        super().__init__(
            f"plug-in {point.name} = {point.value} of group {point.group}{of}: {what}. Mend or uninstall the package"
        )
        self.errors = [str(self)]


def all_at_once(loads: Sequence[Callable[[], object]]) -> None:
    """Call each. Raises one PluginError with all that is wrong, if anything is."""
    errors: list[PluginError] = []
    for load in loads:
        try:
            load()
        except PluginError as error:
            errors.append(error)
    if errors:
        errors[0].errors = list(dict.fromkeys(text for error in errors for text in error.errors))
        raise errors[0]


def announced(group: str) -> list[EntryPoint]:
    """What outside packages announce in this group, sorted by name; not imported."""
    return sorted(every().select(group=group), key=lambda point: point.name)


def packages() -> dict[str, str]:
    """The outside packages that announce plug-ins, and their versions."""
    groups = sorted(group for group in every().groups if group.startswith("plimsoll."))
    found = (point.dist for group in groups for point in announced(group))
    return {of.name: of.version for of in found if of is not None}


@cache
def every() -> Any:  # EntryPoints; SelectableGroups before Python 3.12
    """Looking through all installed packages takes as long as importing two of our rooms: once is enough."""
    from importlib.metadata import entry_points

    return entry_points()


def loaded(point: EntryPoint) -> object:
    """What an entry point names. Raises PluginError, whatever goes wrong while its module is imported."""
    try:
        return point.load()
    except (Exception, SystemExit) as error:
        raise PluginError(point, f"can't be imported ({_said(error)})") from error


def guarded(
    point: EntryPoint,
    name: str,
    call: Callable[..., Any],
    check: Callable[..., str | None],
    allowed: tuple[type[Exception], ...] = (),
) -> Callable[..., Any]:
    """``call``, a function of a plug-in that is its ``name``, where whatever it raises is a PluginError.

    ``check``: what is wrong with what it returned, from that and its arguments; None: nothing. ``allowed``: what it may
    raise, such as a mistake of the user.
    """
    return partial(_called, point, name, call, check, allowed)


def misfit(one: object, kinds: Mapping[str, type | None]) -> str | None:
    """Which field of a plug-in's value is not of the kind it must be (None: a function); None: each is."""
    for name, kind in kinds.items():
        value = getattr(one, name)
        if not (callable(value) if kind is None else isinstance(value, kind)):
            wanted = "a function" if kind is None else f"a value of {kind.__name__}"
            return f"its {name} is {value!r:.60}; give it {wanted}"
    return None


def _called(
    point: EntryPoint,
    name: str,
    call: Callable[..., Any],
    check: Callable[..., str | None],
    allowed: tuple[type[Exception], ...],
    *given: Any,
) -> Any:
    try:
        made = call(*given)
        wrong = check(made, *given)
    except allowed:
        raise
    except (Exception, SystemExit) as error:
        raise PluginError(point, f"{name} failed ({_said(error)})") from error
    if wrong is not None:
        raise PluginError(point, f"{name} {wrong}")
    return made


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")[:_LONGEST]
