"""Command-line flags over a scenario file: what each flag changes, and which flags do not go together."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack

from pydantic import ValidationError

from plimsoll.scenarios.plugins import Kind, kinds, sources
from plimsoll.scenarios.scenario import MIX, Scenario, over, parse
from plimsoll.scenarios.text.document import ScenarioError


class Flags(TypedDict, total=False):
    """Every flag; None (or absent) means not given. Durations are texts (``30s``) or seconds."""

    url: str | None
    protocol: str | None
    model: str | None
    headers: Mapping[str, str] | None
    headers_file: str | None
    api_key_env: str | None
    api_key_file: str | None
    options: Mapping[str, Any] | None
    tls_verify: bool | None
    ca_file: str | None
    kind: str | None
    mode: str | None
    reference: str | None
    rate: float | None
    arrival: str | None
    concurrency: int | None
    duration: str | float | None
    queries: int | None
    max_duration: str | float | None
    max_queries: int | None
    trace: str | None
    speed: float | None
    window: str | None
    prehistory: str | None
    spread: bool | None
    load: float | None
    share_depth: int | None
    sessions: str | None
    format: str | None
    time_unit: str | None
    columns: Mapping[str, Any] | None
    cancel: str | None
    prompt_tokens: int | None
    output_tokens: int | None
    seed: int | None
    workers: int | None
    retries: int | None
    keep: str | None
    answers: bool | None
    warmup: str | float | None
    timeout: str | float | None
    connect_timeout: str | float | None
    drain: str | float | None
    objectives: Sequence[str] | None
    name: str | None
    source: str | None
    loads: Mapping[str, float] | None
    of_class: str | None
    part: str | None


_TARGET = (
    *("url", "protocol", "model", "headers", "headers_file", "api_key_env", "api_key_file", "options"),
    *("tls_verify", "ca_file"),
)
_PLAIN = (
    *("name", "mode", "reference", "seed", "workers", "retries", "warmup", "timeout", "connect_timeout", "drain"),
    *("objectives", "cancel", "keep", "answers"),
)
#: How a file is read: the same of its times and of its lengths.
_READING = ("format", "time_unit", "columns")
_REPLAY = ("trace", "speed", "window", "prehistory", "spread", "load", "share_depth", "sessions", "part", *_READING)
_PARAMS = ("rate", "arrival", "concurrency", *_REPLAY)
#: What a description tells of, and the flags that change it.
_LOAD = ("kind", "mode", "params", "source", "stop", "cancel", "warmup")
_LOAD_FLAGS = (
    *("kind", "mode", "rate", "arrival", "concurrency", *_REPLAY, "cancel", "duration", "queries"),
    *("max_duration", "max_queries", "prompt_tokens", "output_tokens", "warmup"),
)
#: Whose errors these are, where there is no file.
COMMAND_LINE = "command line"
_SOURCE = ("prompt_tokens", "output_tokens")


def with_flags(base: Scenario | None = None, **flags: Unpack[Flags]) -> Scenario:
    """``base`` (or a scenario of defaults) with the given flags over it. Raises ``ScenarioError`` with every problem.

    Without base and kind, ``--trace`` means kind replay, ``--concurrency`` kind concurrency and anything else kind
    server. A trace that is a file brings the lengths too, unless the base has samples of its own. Another kind starts
    from that kind's own params. ``--duration`` alone: at least that long; ``--queries`` alone: that many, and in a
    closed loop exactly that many; both: both minima. They replace the file's minima and its max_queries, not
    max_duration. ``headers`` and ``options`` are added to the file's; ``objectives`` replace the file's. ``source`` is
    the kind of source of a scenario that has none (default synthetic_text). ``loads``, of a mix: those of
    classes (``rate{class=chat}``), or of all together, each in its share (``rate``); see ``unmoved`` first.
    """
    given: dict[str, Any] = {key: value for key, value in flags.items() if value is not None}
    for key, between in (("window", ".."), ("cancel", ":")):
        if key in given:
            given[key] = _pair(key, given[key], between)
    if base is not None and base.mix and "trace" in given:
        if "part" not in given:
            return _replayed_mix(base, given)
        if given["part"] not in base.mix:
            told = f"{base.name} is a mix of {', '.join(base.mix)}, and has no class {given['part']}. Name one of them"
            raise ScenarioError([f"--class: {told}."])
        base = base.mix[given["part"]].model_copy(update={"seed": base.seed})
    if base is not None and base.mix:
        return _over_mix(base, given)
    mapping: dict[str, Any] = base.to_mapping() if base is not None else {"name": COMMAND_LINE}
    if base is not None and "workers" not in base.model_fields_set:
        del mapping["workers"]  # nobody gave it yet: harness/run/host_check.py may choose
    labels: dict[str, str] = {}
    errors = _set_kind(mapping, given, labels)
    errors += _set_source(mapping, given, labels)
    _set_target(mapping.setdefault("target", {}), given, labels)
    for key in _PLAIN:
        if key in given:
            mapping[key] = list(given[key]) if key == "objectives" else given[key]
            labels[key] = _flag(key)
    _set_stop(mapping, given, labels)
    if base is None and "name" not in given:
        mapping["name"] = _named(mapping)
    elif base is not None and base.description:
        mapping["description"] = _described(base, mapping, flags)
    return _parsed(mapping, base.name if base is not None else COMMAND_LINE, labels, errors)


def _parsed(mapping: Mapping[str, Any], where: str, labels: Mapping[str, str], errors: Sequence[str]) -> Scenario:
    """The scenario in ``mapping``. Raises ``ScenarioError`` with these errors, and then with its own."""
    try:
        scenario = parse(mapping, where, labels=labels)
    except ScenarioError as error:
        raise ScenarioError([*errors, *error.errors]) from None
    if errors:
        raise ScenarioError(errors)
    return scenario


#: Flags of a run of several classes, and those that each class takes as a scenario does.
_MIX_RUN = ("name", "seed", "retries", "warmup", "objectives", "keep")
_MIX_EACH = ("mode", "reference", "workers", "timeout", "connect_timeout", "drain", "cancel", "answers")


def _over_mix(base: Scenario, given: Mapping[str, Any]) -> Scenario:
    """Flags over a mix: what is the run's, and what every class has. Raises ``ScenarioError`` with every problem."""
    stops = ("duration", "queries", "max_duration", "max_queries")
    meant = (*_TARGET, *_MIX_RUN, *_MIX_EACH, *stops, "loads")
    errors = [
        f"{_flag(key)}: {base.name} is a mix of {', '.join(base.mix)}, and this is of one load. Write it in the file, "
        "in its class under mix."
        for key in given
        if key not in meant
    ]
    elsewhere = [name for name, one in base.mix.items() if one.lot and one.target.url not in (None, base.target.url)]
    if "url" in given and elsewhere == [*base.mix]:
        errors.append(f"--url: {' and '.join(elsewhere)} say where they send. Leave it out, or write one there")
    mapping, labels = base.to_mapping(), dict[str, str]()
    for key in _MIX_RUN:
        if key in given:
            mapping[key], labels[key] = given[key], _flag(key)
    for key, value in given.get("loads", {}).items():
        variable, of_class = split_load(key)
        loads = loads_of(base, variable, of_class)
        for name, load in loads.items():
            own_load = value * load / sum(loads.values())
            mapping[MIX][name]["params"][variable] = own_load if variable == "rate" else round(own_load)
            labels[f"{MIX}.{name}.params.{variable}"] = key
    for name, one in [("", mapping), *mapping[MIX].items()]:
        below, own = (f"{MIX}.{name}." if name else ""), dict[str, str]()
        if name and "objectives" in given:
            one["objectives"] = []
        if name and "workers" not in base.mix[name].model_fields_set:
            del one["workers"]
        theirs = {key: value for key, value in given.items() if key != "url" or name not in elsewhere}
        _set_target(one.setdefault("target", {}), theirs, own)
        for key in _MIX_EACH:
            if key in given:
                one[key], own[key] = given[key], _flag(key)
        if name and "until" not in one:
            _set_stop(one, given, own)
        labels |= {f"{below}{path}": flag for path, flag in own.items()}
    return _parsed(mapping, base.name, labels, errors)


#: A load, of a mix perhaps that of one class.
_LOAD_OF = re.compile(r"(rate|concurrency)(?:\{class=([A-Za-z0-9_-]+)\})?")


def split_load(text: str) -> tuple[str, str]:
    """``rate`` or ``concurrency``, "" for anything else, and the class that it is of ("": none is named)."""
    said = _LOAD_OF.fullmatch(text)
    return (said[1], said[2] or "") if said else ("", "")


def _replayed_mix(base: Scenario, given: Mapping[str, Any]) -> Scenario:
    """Each class of a run of several repeats its own part of it. Raises ``ScenarioError`` with every problem."""
    mapping, rest, labels = base.to_mapping(), dict(given), dict[str, str]()
    kind, flags = rest.pop("kind", "replay"), {key: rest.pop(key) for key in _REPLAY if key in rest}
    for name, one in mapping[MIX].items():
        own, said = {**one, "stop": {}}, dict[str, str]()
        own.pop("until", None)
        mine = {key: value for key, value in flags.items() if key != "sessions" or base.mix[name].kind == "sessions"}
        errors = _set_kind(own, {**mine, "kind": kind, "part": name}, said)
        if errors:
            raise ScenarioError(errors)
        mapping[MIX][name] = own
        labels |= {f"{MIX}.{name}.{path}": flag for path, flag in said.items()}
    return _over_mix(parse(mapping, base.name, labels=labels), rest)


def loads_of(mix: Scenario, variable: str, name: str = "") -> dict[str, float]:
    """The loads of the classes that have such a load, each one number; ``name``: of this class alone. One of mode
    accuracy sends each sample once, at no chosen load.
    """
    moved = {part: one for part, one in mix.mix.items() if name in ("", part) and one.mode != "accuracy"}
    found = {part: getattr(one.params, variable, None) for part, one in moved.items()}
    return {part: float(load) for part, load in found.items() if isinstance(load, int | float)}


def unmoved(base: Scenario, flag: str, variable: str, name: str) -> list[str]:
    """Why this load of a scenario can't be moved; ``name``: the class whose it is, "" for all together."""
    if not base.mix:
        return [f"{flag}: {base.name} is no mix, and has no classes. Leave {{class={name}}} out"] if name else []
    if name and name not in base.mix:
        return [f"{flag}: {base.name} has no class {name}. Give one of {', '.join(base.mix)}"]
    if not loads_of(base, variable, name):
        whose = f"class {name} has" if name else "its classes have"
        kind = "server" if variable == "rate" else variable
        return [f"{flag}: {whose} no {variable} that is one number. Name a class of kind {kind}"]
    if variable == "concurrency" and not name:
        return [f"{flag}: slots of several classes have no sum. Name one: 'concurrency{{class=NAME}}'"]
    return []


def _set_target(target: dict[str, Any], given: Mapping[str, Any], labels: dict[str, str]) -> None:
    for key in _TARGET:
        if key in given:
            merged = isinstance(given[key], Mapping)
            target[key] = over(target.get(key, {}), given[key]) if merged else given[key]
            labels[f"target.{key}"] = _flag(key)


def _named(mapping: Mapping[str, Any]) -> str:
    """What a load without a file is called: whom it speaks to, and how much it sends."""
    protocol, params = mapping["target"].get("protocol", "openai-chat"), mapping.get("params", {})
    rate, slots = params.get("rate"), params.get("concurrency")
    load = str(mapping["kind"])
    if isinstance(rate, int | float) and load == "server":
        load = f"at {rate:g} per s"
    elif isinstance(slots, int) and load == "concurrency":
        load = f"{slots} in flight"
    elif "trace" in params:
        load = f"replay of {Path(str(params['trace'])).name}"
    return re.sub(r"[^A-Za-z0-9 ._-]+|^[ ._-]+", "-", f"{protocol} {load}").lstrip("-") or COMMAND_LINE


def _described(base: Scenario, mapping: Mapping[str, Any], flags: Mapping[str, Any]) -> str:
    """The file's own words, unless flags made it another load: then which they are."""
    before = base.to_mapping()
    if all(before.get(key) == mapping.get(key) for key in _LOAD):
        return base.description
    words = [f"{_flag(key)} {flags[key]}" for key in _LOAD_FLAGS if flags.get(key) is not None]
    return f"{base.name} with {' '.join(words)}" if words else base.description


def _pair(key: str, text: str, between: str) -> dict[str, Any] | str:
    """``10m..20m`` (either side may be empty) and ``10%:500ms`` as the mappings that a file would hold."""
    if text.strip() == "recorded" and key == "cancel":
        return "recorded"
    first, found, second = (part.strip() for part in text.partition(between))
    if not found:
        shape = {"window": "10m..20m", "cancel": "10%:500ms"}[key]
        raise ScenarioError([f"--{key}: {text!r} has no {between!r} in it. Write it like {shape}."])
    if key == "window":
        return {"start": first or "0s", "end": second or None}
    try:
        return {"share": float(first.removesuffix("%")) / (100 if first.endswith("%") else 1), "after": second}
    except ValueError:
        raise ScenarioError([f"--cancel: {first!r} is not a share. Write it like 10%:500ms."]) from None


def _flag(key: str) -> str:
    odd = {"objectives": "--slo", "headers": "--header", "options": "--option", "columns": "--column"}
    return {**odd, "format": "--trace-format", "part": "--class"}.get(key, "--" + key.replace("_", "-"))


def _set_kind(mapping: dict[str, Any], given: Mapping[str, Any], labels: dict[str, str]) -> list[str]:
    """Kind and its params. Returns errors about flags that do not fit the kind."""
    known = kinds()
    meant = "replay" if "trace" in given else "concurrency" if "concurrency" in given else "server"
    name = given.get("kind") or mapping.get("kind") or meant
    if name != mapping.get("kind") or "trace" in given:  # a new recording has no speed or window yet
        mapping["params"] = _of_run(mapping, given) if "trace" in given else {}
    mapping["kind"] = name
    if "kind" in given:
        labels["kind"] = "--kind"
    if name not in known:
        return []  # parse says so
    errors = []
    for key in _PARAMS:
        if key not in given:
            continue
        field = known[name].aliases.get(key, key)
        if field in known[name].params.model_fields:
            mapping["params"] = {**mapping["params"], field: given[key]}
            labels[f"params.{field}"] = _flag(key)
        else:
            fits = [kind.name for kind in known.values() if key in kind.params.model_fields]
            own = sorted(set(_PARAMS) & set(known[name].params.model_fields))
            instead = f" or use {', '.join(map(_flag, own))}" if own else " or leave it out"
            errors.append(f"{_flag(key)}: kind {name} has no {key}. Add --kind {' or '.join(fits)},{instead}.")
    return errors


def _of_run(mapping: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """What the replay of a run of sessions keeps of its params."""
    params = mapping.get("params") or {}
    if mapping.get("kind") not in ("sessions", "replay") or not Path(given["trace"]).is_dir():
        return {}
    data, waits = params.get("turns") == "data", given.get("sessions") == "turns"
    names = ["turns"] * data + ["history"] * (data or waits) + ["affinity", "on_failure"] * waits
    recorded = {"barge_in": "recorded"} if waits and params.get("barge_in") else {}
    return {name: params[name] for name in names if params.get(name) is not None} | recorded


def _set_source(mapping: dict[str, Any], given: Mapping[str, Any], labels: dict[str, str]) -> list[str]:
    """Lengths, and what a sweep varies. Returns errors about flags that the source has no use for."""
    source = mapping.setdefault("source", {"kind": given.get("source", "synthetic_text")})
    if "trace" in given and source["kind"] in ("synthetic_text", "trace") and not Path(given["trace"]).is_dir():
        source = mapping["source"] = {"kind": "trace", "path": given["trace"]}
        labels["source.path"] = "--trace"
    if source["kind"] == "trace":
        copies = {"copies": math.ceil(given["load"])} if 0 < given.get("load", 0) <= 1000 else {}
        same = {key: given[key] for key in ("share_depth", *_READING) if key in given}
        source |= copies | same
        labels |= {"source.copies": "--load", **{f"source.{key}": _flag(key) for key in same}}
    model = sources()[source["kind"]].params
    errors = []
    for key in _SOURCE:
        if key in given and key in model.model_fields:
            source[key] = given[key]
            labels[f"source.{key}"] = _flag(key)
        elif key in given:
            errors.append(f"{_flag(key)}: source {source['kind']} has no {key}. Leave it out, or use synthetic_text.")
    for key in given:  # of a sweep: source.count, source.shared.groups
        first, _, path = key.partition(".")
        if first == "source" and path:
            *rooms, last = path.split(".")
            place = source
            for room in rooms:
                place[room] = place = dict(place.get(room) or {})
            place[last] = given[key]
            labels[key] = key
    return errors


def _set_stop(mapping: dict[str, Any], given: Mapping[str, Any], labels: dict[str, str]) -> None:
    stop = mapping.setdefault("stop", {})
    if "max_duration" in given:
        stop["max_duration"] = given["max_duration"]
        labels["stop.max_duration"] = "--max-duration"
    if "max_queries" in given:
        stop["max_queries"] = given["max_queries"]
        most = max(given["max_queries"], 1)  # an impossible one is one error
        stop["min_queries"] = min(int(stop.get("min_queries", most)), most)
        labels["stop.max_queries"] = "--max-queries"
    duration, queries = given.get("duration"), given.get("queries")
    if duration is None and queries is None:
        return
    labels |= {"stop.min_duration": "--duration", "stop.min_queries": "--queries", "stop.max_queries": "--queries"}
    stop["min_duration"] = 0 if duration is None else duration
    stop["min_queries"] = 1 if queries is None else queries
    kind = kinds().get(mapping["kind"])
    params = mapping.get("params", {})
    if queries is not None and kind is not None and kind.one_query and params.get("samples") is not None:
        mapping["params"] = {**params, "samples": queries}  # the one query has this many samples
    exactly = duration is None and kind is not None and not _open_loop(kind, mapping["params"])
    stop["max_queries"] = queries if exactly and queries and queries > 0 else None


def _open_loop(kind: Kind, params: Mapping[str, Any]) -> bool:
    """Whether these params make an open loop, or the defaults where these are wrong, which ``parse`` reports."""
    try:
        return kind.open_loop(kind.params.model_validate(params))
    except ValidationError:
        return kind.open_loop(kind.params())
