"""A protocol's own settings, checked against a pydantic model, with every error at once.

Types are strict (``"no"`` is not a boolean), and an unknown name is refused with the known ones.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from plimsoll.harness.errors import HarnessFault
from plimsoll.scenarios.text.problems import in_words


class Options(BaseModel):
    """What a protocol can be told, and what each part of it holds. docs/protocols*.md says what each option means."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    def mistakes(self) -> list[str]:
        """What is wrong with options that fit the model (a file, a codec), as ``target.options.NAME: what. next
        step``.
        """
        return []


_Model = TypeVar("_Model", bound=BaseModel)


def problems(model: type[BaseModel], options: Mapping[str, Any]) -> list[str]:
    """Every error in ``options`` as ``target.options.NAME: what. next step``; empty when they fit the model."""
    try:
        accept(model, options)
    except HarnessFault as fault:
        return list(fault.errors)
    return []


def accept(model: type[_Model], options: Mapping[str, Any]) -> _Model:
    """The options as the model. Raises HarnessFault with every error."""
    try:
        return model.model_validate(dict(options))
    except ValidationError as invalid:
        known = sorted(model.model_fields)
        raise HarnessFault([_text(dict(error), known) for error in invalid.errors()]) from None


def _text(error: dict[str, Any], known: list[str]) -> str:
    where = ".".join(["target.options", *map(str, error["loc"])])
    if error["type"] == "extra_forbidden":
        near = get_close_matches(str(error["loc"][-1]), known, n=1)
        hint = f"Did you mean {near[0]}? " if near else ""
        return f"{where}: unknown option. {hint}Known ones: {', '.join(known)}"
    if error["type"] == "string_pattern_mismatch":
        return f"{where}: is {error['input']!r}. {in_words(error['ctx']['pattern'])}"
    what = error["msg"].removeprefix("Value error, ")
    if error["type"] == "value_error":
        return f"{where}: {what}"
    return f"{where}: {what[:1].lower()}{what[1:]}. Correct the value {error['input']!r}"
