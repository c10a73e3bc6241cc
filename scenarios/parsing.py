"""A mapping becomes a Scenario, or a list of everything that is wrong with it.

Which fields ``params`` and ``source`` may have depends on the kinds found on disk, so each part is validated
by its own model and the errors are put together.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from plimsoll.scenarios.discovery import kinds, sources
from plimsoll.scenarios.kind import Kind
from plimsoll.scenarios.plan.arrival import MAX_QUERIES
from plimsoll.scenarios.scenario import Scenario, StopSection, TargetSection
from plimsoll.scenarios.text.document import Document
from plimsoll.scenarios.text.errors import ScenarioError
from plimsoll.scenarios.text.problems import Loc, Place, problems, unknown

M = TypeVar("M", bound=BaseModel)
Found = list[tuple[Loc, str]]

#: Sections that may be written with nothing below them.
_SECTIONS = ("params", "target", "stop")


def parse(
    mapping: Mapping[str, Any],
    where: str = "scenario",
    *,
    folder: Path | None = None,
    labels: Mapping[str, str] | None = None,
) -> Scenario:
    """The scenario in ``mapping``. Raises ``ScenarioError`` with every problem, each ``where:key.path: what.
    next step.``, or ``where:line: key.path: ...`` where it was read from a file.

    Relative file names start at ``folder`` (default: stay as they are). ``labels`` renames key paths in
    messages.
    """
    place = Place(where, labels or {}, mapping.lines if isinstance(mapping, Document) else {})
    if not isinstance(mapping, Mapping):
        raise ScenarioError([place.say((), "not a mapping. Give key: value pairs, starting with name and kind")])
    raw = {key: {} if value is None and key in _SECTIONS else value for key, value in mapping.items()}
    context = {"folder": folder}
    found: Found = []
    kind, params = _params(raw, place, context, found)
    source = _source(raw.get("source", {"kind": "synthetic_text"}), place, context, found)
    _cross_check(kind, params, raw, place, found)
    # A stand-in where a part is broken, so that the rest is still looked at.
    whole = {**raw, "params": params or StopSection(), "source": source or StopSection()}
    if kind is None:
        whole["kind"] = "?"
    scenario = _validated(Scenario, whole, place, context, (), found)
    if found or scenario is None:
        order = list(_file_keys())
        found.sort(key=lambda item: order.index(str(item[0][0])) if item[0] and item[0][0] in order else len(order))
        raise ScenarioError([text for _, text in found])
    return scenario


def _file_keys() -> list[str]:
    return [item.alias or name for name, item in Scenario.model_fields.items()]


def _validated(
    model: type[M], raw: Any, place: Place, context: Mapping[str, Any], below: Loc, found: Found
) -> M | None:
    try:
        return model.model_validate(raw, context=dict(context))
    except ValidationError as error:
        found += problems(error, model, place, below, _belongs)
        return None


#: What people call it at the top of a file, and what it is.
_MEANT = {
    "duration": "stop.min_duration: it sends for at least this long (stop.max_duration ends it, whatever else)",
    "queries": "stop.min_queries: it sends at least so many (stop.max_queries ends it at so many)",
    "requests": "stop.min_queries: it sends at least so many (stop.max_queries ends it at so many)",
    "slo": "objectives, a list such as ['p99(ttft) <= 200ms']",
    "slos": "objectives, a list such as ['p99(ttft) <= 200ms']",
}


def _belongs(loc: Loc) -> str:
    """Where a key that is unknown at ``loc`` belongs; "" for one that is known nowhere."""
    key = loc[-1] if loc else None
    if not isinstance(key, str):
        return ""
    if len(loc) == 1:
        if key in _MEANT:
            return f"Write it as {_MEANT[key]}"
        for name, model in (("stop", StopSection), ("target", TargetSection)):
            if key in {item.alias or field for field, item in model.model_fields.items()}:
                return f"It belongs under {name}, as {name}.{key}"
    of_kinds = [kind.name for kind in kinds().values() if key in kind.params.model_fields]
    of_sources = [source.name for source in sources().values() if key in source.params.model_fields and key != "kind"]
    if loc[0] == "params" and len(loc) == 2 and of_kinds:
        return f"It belongs to kind {' or '.join(of_kinds)}. Change kind, or take it out"
    if loc[0] == "source" and len(loc) == 2 and of_sources:
        return f"It belongs to source {' or '.join(of_sources)}. Change source.kind, or take it out"
    if len(loc) == 1 and of_kinds:
        return f"It belongs under params, of kind {' or '.join(of_kinds)}"
    if len(loc) == 1 and of_sources:
        return f"It belongs under source, of kind {' or '.join(of_sources)}"
    return ""


def _params(
    raw: Mapping[str, Any], place: Place, context: Mapping[str, Any], found: Found
) -> tuple[Kind | None, BaseModel | None]:
    known = kinds()
    name = raw.get("kind")
    if name is None:
        found.append((("kind",), place.say(("kind",), f"is missing. Give one of {', '.join(sorted(known))}")))
        return None, None
    kind = known.get(name) if isinstance(name, str) else None
    if kind is None:
        found.append((("kind",), place.say(("kind",), unknown(name, known, "scenario kind"))))
        return None, None
    return kind, _validated(kind.params, raw.get("params", {}), place, context, ("params",), found)


def _source(raw: Any, place: Place, context: Mapping[str, Any], found: Found) -> BaseModel | None:
    known = sources()
    if not isinstance(raw, Mapping) or "kind" not in raw:
        text = f"does not say its kind. Write source: {{kind: ...}} with one of {', '.join(sorted(known))}"
        found.append((("source",), place.say(("source",), text)))
        return None
    source = known.get(raw["kind"]) if isinstance(raw["kind"], str) else None
    if source is None:
        found.append((("source",), place.say(("source", "kind"), unknown(raw["kind"], known, "payload source"))))
        return None
    return _validated(source.params, raw, place, context, ("source",), found)


def _cross_check(
    kind: Kind | None, params: BaseModel | None, raw: Mapping[str, Any], place: Place, found: Found
) -> None:
    """What no single section can know: more workers than slots, and plans too large to be meant."""
    if kind is None or params is None:
        return
    slots, workers = kind.slots(params), raw.get("workers", 1)
    if slots is not None and isinstance(workers, int) and workers > slots:
        plural = "s" if slots > 1 else ""
        text = f"{workers} workers cannot share {slots} slot{plural} of kind {kind.name}. Use at most {slots}"
        found.append((("workers",), place.say(("workers",), text)))
    try:
        stop = StopSection.model_validate(raw.get("stop", {})).stop()
    except ValidationError:
        return  # reported with the whole
    size = kind.size(params, stop)
    if size > MAX_QUERIES:
        text = f"this plan would hold about {size:,} samples, more than {MAX_QUERIES:,}. Lower rate or minima"
        found.append((("stop",), place.say(("stop",), text)))
