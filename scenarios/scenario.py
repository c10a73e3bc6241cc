"""Scenario: everything one run is asked to do, validated and frozen; and ``parse``, which makes one of a mapping.

It builds plans and payload sources. It sends nothing, holds no secret and doesn't read objectives: their grammar
belongs to the judge. Durations are whole nanoseconds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    Field,
    InstanceOf,
    SerializeAsAny,
    ValidationError,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from plimsoll.scenarios.loops import accuracy_plan
from plimsoll.scenarios.plan.arrival import MAX_QUERIES
from plimsoll.scenarios.plan.blocks import Blocks
from plimsoll.scenarios.plan.cancellation import Cancel, CancelSection, Section
from plimsoll.scenarios.plan.habits import AGAIN, ClientSection
from plimsoll.scenarios.plan.impairment import ImpairSection
from plimsoll.scenarios.plan.lots import LotSection, bounds_at, by_lot, shares_of
from plimsoll.scenarios.plan.plan import IntArray, Plan, Stop
from plimsoll.scenarios.plan.seeds import SEED_MAX, child
from plimsoll.scenarios.plugins import Frame, Kind, Source, Warmup, kinds, sources
from plimsoll.scenarios.samples.payload import PayloadSource
from plimsoll.scenarios.text import events as happenings
from plimsoll.scenarios.text.document import Document, ScenarioError
from plimsoll.scenarios.text.events import EventSection, Name, PhaseSection
from plimsoll.scenarios.text.fields import MAX_NS, STRICT, Duration, FileName, Keep, format_duration
from plimsoll.scenarios.text.labels import ALWAYS, OF_CALLERS, OF_CLIENT, OF_UPLINK, Fallback, Labels, of_source
from plimsoll.scenarios.text.problems import Loc, Place, problems, unknown

#: Larger plans are refused before anything is allocated: more than due times hold.
MAX_SAMPLES = MAX_QUERIES
_SECRET_HEADERS = ("authorization", "proxy-authorization", "cookie", "api-key", "x-api-key", "x-goog-api-key")
_REFERENCE = re.compile(r"\$\{(env|file):[^}]+\}")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

NonEmpty = Annotated[str, Field(min_length=1)]

#: The ``kind`` of a scenario of several classes, which have kinds of their own.
MIX = "mix"
#: What a class of a mix may not have: it is the run's. And what of the top of the file it doesn't inherit.
OF_RUN = ("name", "description", "seed", "warmup", "retries", "keep", "budget", "mix", "events", "phases")
_OF_CLASS = ("kind", "params", "source", "objectives")
#: Keys that no file has where nobody gave them, and what they are then.
_ABSENT: Mapping[str, Any] = {
    **dict.fromkeys(("labels", "lot", "client", "impair", "degraded")), **dict.fromkeys(("answers", "copied"), False),
    "events": [], "phases": {},
}  # fmt: skip
_CLASS_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")


class TargetSection(BaseModel):
    """Where to send. Secrets stay out of scenario files: name the variable or file that holds them."""

    model_config = STRICT
    url: str | None = Field(default=None, description="Origin plus optional base path; null: the bundled server.")
    protocol: NonEmpty = Field(default="openai-chat", description="Name of a client.")
    model: str = Field(default="", description="Model name to ask for; empty: the server's only or first one.")
    headers: dict[str, str] = Field(default_factory=dict, description="Extra request headers; no secrets.")
    headers_file: FileName | None = Field(default=None, description="File of `Name: value` lines; may hold secrets.")
    api_key_env: NonEmpty | None = Field(default=None, description="Environment variable that holds the API key.")
    api_key_file: FileName | None = Field(default=None, description="File that holds the API key.")
    options: dict[str, Any] = Field(default_factory=dict, description="The protocol's own options.")
    tls_verify: bool = Field(default=True, description="Check the server's certificate.")
    ca_file: FileName | None = Field(default=None, description="Extra certificate authorities, PEM.")

    @field_validator("url")
    @classmethod
    def _whole_url(cls, url: str | None) -> str | None:
        if url is None:
            return None
        parts = urlsplit(url)
        if not parts.scheme or not parts.netloc or any(c.isspace() for c in url):
            shown = url.partition("?")[0].rpartition("@")[2]  # what is left out may be a credential
            raise ValueError(f"{shown!r} is not a URL. Write scheme, host and port: http://127.0.0.1:8000")
        if parts.username or parts.password:
            raise ValueError("the URL holds a user or password. Take it out and use api_key_env or headers_file")
        return url

    @field_validator("headers")
    @classmethod
    def _sendable(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if name.lower() in _SECRET_HEADERS and not _REFERENCE.search(value):
                raise ValueError(
                    f"header {name!r} would put a secret into every report. Write its value as ${{env:NAME}} or "
                    "${file:PATH}, or use api_key_env or headers_file"
                )
            if not _HEADER_NAME.fullmatch(name) or any(ord(c) < 32 and c != "\t" for c in value):
                raise ValueError(f"header {name!r} is not a valid HTTP header. Remove spaces and line breaks")
        return headers

    @model_validator(mode="after")
    def _one_key(self) -> TargetSection:
        if self.api_key_env is not None and self.api_key_file is not None:
            raise ValueError("api_key_env and api_key_file are both given. Keep one of them")
        return self


class StopSection(BaseModel):
    """When to stop issuing: both minima must be met, maxima cut off. Defaults: LoadGen's."""

    model_config = STRICT
    min_queries: int = Field(default=100, ge=1, description="At least this many queries.")
    min_duration_ns: Duration = Field(default=10_000_000_000, alias="min_duration", description="At least this long.")
    max_duration_ns: Duration | None = Field(default=None, alias="max_duration", description="Issue nothing after it.")
    max_queries: int | None = Field(default=None, ge=1, description="Issue exactly this many at most.")

    @model_validator(mode="after")
    def _possible(self) -> StopSection:
        if self.max_queries is not None and self.max_queries < self.min_queries:
            raise ValueError(
                f"max_queries {self.max_queries} is below min_queries {self.min_queries}. Lower the minimum"
            )
        if self.max_duration_ns is not None and 0 < self.max_duration_ns <= self.min_duration_ns:
            most, least = format_duration(self.max_duration_ns), format_duration(self.min_duration_ns)
            raise ValueError(
                f"max_duration {most} is not above min_duration {least}, which alone ends a run (with the first query "
                "due after it). Raise the maximum or drop it"
            )
        if self.max_duration_ns == 0:
            raise ValueError("max_duration is 0: nothing would be sent. Give a time, or drop it")
        return self

    def stop(self) -> Stop:
        """As a plan holds it."""
        return Stop(self.min_queries, self.min_duration_ns, self.max_duration_ns, self.max_queries)


class Scenario(BaseModel):
    """One run, described. Made by ``spec.load``, ``spec.parse`` or ``spec.with_flags``."""

    model_config = STRICT
    name: str = Field(
        default="scenario",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]*$",
        max_length=100,
        description="Letters, digits, - . _",
    )
    description: str = Field(default="", description="One line: what this load stands for.")
    kind: str = Field(description="How queries are issued.")
    mode: Literal["performance", "accuracy"] = Field(
        default="performance", description="accuracy: each sample once, answers kept and compared."
    )
    reference: FileName | None = Field(default=None, description="Accuracy mode: JSON Lines of id and expected answer.")
    params: SerializeAsAny[Annotated[InstanceOf[BaseModel], WithJsonSchema({"type": "object"})]]
    target: TargetSection = Field(default_factory=TargetSection)
    source: SerializeAsAny[Annotated[InstanceOf[BaseModel], WithJsonSchema({"type": "object"})]]
    seed: int = Field(default=42, ge=0, le=SEED_MAX, description="Everything random comes from it.")
    stop: StopSection = Field(default_factory=StopSection)
    warmup_given_ns: Duration = Field(
        default=0, alias="warmup", description="Load before the measured run, not judged."
    )
    timeout_ns: Duration = Field(
        default=60_000_000_000, alias="timeout", gt=0, description="Per request, from sending."
    )
    connect_timeout_ns: Duration = Field(default=10_000_000_000, alias="connect_timeout", gt=0)
    drain_given_ns: Duration | None = Field(
        default=None, alias="drain", description="Wait for answers after the last query; null: as long as timeout."
    )
    cancel: Cancel | None = Field(
        default=None,
        description="Queries to drop after a delay: {share: 0.1, after: 500ms}; recorded: as they were; null: none.",
    )
    client: ClientSection | None = Field(
        default=None, description="Its habits: {retry: {budget: 10%}, hedge: {after: p95}, patience: 10s}; null: none."
    )
    impair: ImpairSection | None = Field(
        default=None, description="A bad network before it: {loss: 1%, delay: 50ms, jitter: 20ms, bandwidth: 64kbit}."
    )
    objectives: tuple[NonEmpty, ...] = Field(default=(), strict=False, description='For example "p99(ttft) <= 200ms".')
    budget: dict[NonEmpty, NonEmpty] = Field(
        default_factory=dict,
        description="What each hop may take, in order: {queue: 20ms, decode: 50ms/token}. It explains, not promises.",
    )
    workers: int = Field(default=1, ge=1, le=1024, description="Load-generating processes.")
    retries: int = Field(
        default=0, ge=0, le=100, description="So often is a run repeated that is INVALID by the generator alone."
    )
    keep: Keep = Field(
        default="all", description="Chunk times and answers that stay after the verdict: all, tail, sample:1% or none."
    )
    answers: bool = Field(default=False, description="Keep the answers, to hold another run's against them.")
    mix: Annotated[dict[str, InstanceOf[Scenario]], WithJsonSchema({"type": "object"})] = Field(
        default_factory=dict, description="Classes of traffic in one run, by name, instead of kind, params and source."
    )

    lot: LotSection | None = Field(default=None, description="Of a class that is an arm: written by arms.")

    copied: bool = Field(default=False, description="Of a class: sent beside the others, and never judged.")
    labels: Labels | None = Field(
        default=None, description="What rows are told apart by: {backend: header x-served-by, tenant: source tenant}."
    )

    degraded: Fallback | None = Field(
        default=None, description="What tells degraded answers: header x-fallback, or body $.model = small-model."
    )
    events: tuple[EventSection, ...] = Field(
        default=(), strict=False, description="What happens during the run: [{at: 30s, name: deploy, run: COMMAND}]."
    )
    phases: dict[Name, PhaseSection] = Field(
        default_factory=dict, description="Parts of the run by name, {spike: {from: 20s, to: 30s}}, instead of events'."
    )

    @model_validator(mode="after")
    def _accuracy_has_its_own_times(self) -> Scenario:
        if self.mode == "accuracy" and self.kind == "replay":
            raise ValueError(
                "mode accuracy sends each sample once, and kind replay repeats a recording. Use another kind"
            )
        return self

    @model_validator(mode="after")
    def _cancels_what_lives(self) -> Scenario:
        if isinstance(self.cancel, CancelSection) and self.cancel.least_ns() >= self.timeout_ns:
            least, most = format_duration(self.cancel.least_ns()), format_duration(self.timeout_ns)
            raise ValueError(
                f"cancel.after {least} is not below timeout {most}: no request lives that long. Shorten it"
            )
        if self.cancel is not None and self.kind in kinds() and kinds()[self.kind].one_query:
            raise ValueError(
                f"cancel drops whole queries, and kind {self.kind} has one. Use another kind, or leave cancel out"
            )
        if self.cancel is not None and self.mode == "accuracy":
            raise ValueError("cancel takes answers away that mode accuracy compares. Leave one of them out")
        return self

    @model_validator(mode="after")
    def _copies_of_its_load(self) -> Scenario:
        load, depth = (getattr(self.params, name, None) for name in ("load", "share_depth"))
        found = tuple(getattr(self.source, name, None) for name in ("copies", "share_depth"))
        if load is not None and None not in found and found != (needed := (math.ceil(load), depth)):
            raise ValueError(
                f"source has copies {found[0]} and share_depth {found[1]}, and params.load and params.share_depth need "
                f"{needed[0]} and {needed[1]}. Write these, or give --load and --share-depth, which set both"
            )
        return self

    @model_validator(mode="after")
    def _one_warmup(self) -> Scenario:
        broken = isinstance(self.params, StopSection)
        if self.warmup_given_ns and self.kind in kinds() and not broken and kinds()[self.kind].lead(self.params):
            raise ValueError("params.prehistory is the warm-up already, and warmup is given too. Leave one of them out")
        return self

    @property
    def warmup_ns(self) -> int:
        """Load before the measured run, not judged."""
        led = [kinds()[one.kind].lead(one.params) for one in self.classes.values()]
        return self.warmup_given_ns or max(led)

    @property
    def drain_ns(self) -> int:
        """How long to wait for outstanding answers after the last query was issued."""
        return self.timeout_ns if self.drain_given_ns is None else self.drain_given_ns

    @property
    def classes(self) -> Mapping[str, Scenario]:
        """What is sent, by class: of a scenario that is no mix, itself, whose class has no name."""
        return self.mix or {"": self}

    @property
    def endless(self) -> bool:
        """A class that goes on until every other one has ended (``until: others``)."""
        return self.stop.min_duration_ns == MAX_NS

    @property
    def open_loop(self) -> bool:
        """Queries do not wait for answers."""
        return all(kinds()[one.kind].open_loop(one.params) for one in self.classes.values())

    @property
    def frame(self) -> Frame | None:
        """When queries come at a fixed interval with a deadline each (``multi_stream`` with ``frame_interval``)."""
        return kinds()[self.kind].frame(self.params)

    def notes(self) -> Sequence[str]:
        """What a reader of its report should know of the load. Raises ``ScenarioError``."""
        found = [text for one in self.classes.values() for text in kinds()[one.kind].notes(one.params, one.seed)]
        bad = {name: one.impair.said() for name, one in self.classes.items() if one.impair is not None}
        return [*found, *(f"{name}: {text}" if name else text for name, text in bad.items())]

    def originals(self) -> Iterator[Mapping[str, IntArray]] | None:
        """What each of its samples was like when it was recorded, in the plan's order; None: nobody knows."""
        return None if self.mix else kinds()[self.kind].originals(self.params, self.stop.stop(), self.seed)

    @property
    def cancels(self) -> Section | None:
        """Which queries are dropped, and when. Raises ValueError where ``recorded`` finds nothing recorded."""
        if self.cancel != "recorded":
            return self.cancel
        return kinds()[self.kind].gave_up(self.params, self.seed)

    @property
    def judged(self) -> dict[str, Scenario]:
        """The classes that the verdict is about: all but copies."""
        return {name: one for name, one in self.mix.items() if not one.copied}

    @property
    def keeps_answers(self) -> bool:
        """Answers stay, to be compared with references or with another run's."""
        return self.answers or self.mode == "accuracy"

    def told_apart_by(self) -> dict[str, tuple[str, ...]]:
        """The labels that its rows will have, beside those of every run; with their values, where it knows them."""
        found: dict[str, tuple[str, ...]] = {"class": tuple(self.judged)} if self.mix else {}
        if self.events or self.phases:
            found["phase"] = tuple(self.phases) or happenings.phases_of(self.events)
        for one in self.classes.values():
            names = [*kinds()[one.kind].labels(one.params), *(one.labels or {}), *ALWAYS]
            names += ["arm"] if one.lot is not None else []
            names += OF_CLIENT if one.client is not None else ()
            names += OF_UPLINK if one.impair is not None and getattr(one.source, "kind", "") == "audio" else ()
            names += ["degraded"] if one.degraded is not None else []
            names += OF_CALLERS if getattr(one.params, "barge_in", None) is not None else ()
            found |= dict.fromkeys(names, ())
        return found | ({"arm": tuple(self.judged)} if "arm" in found else {})

    def build(self, n_samples: int) -> Plan:
        """The whole plan over a payload source of ``n_samples``. Raises ``ScenarioError``."""
        return self.blocks(n_samples).whole()

    def blocks(self, n_samples: int) -> Blocks:
        """The same, in pieces; raises when it is iterated."""
        return Blocks(partial(self._pieces, kinds()[self.kind], n_samples))

    def _pieces(self, kind: Kind, n_samples: int) -> Iterator[Plan]:
        stop = self.stop.stop()
        try:
            _ = self.cancels
            if self.mode == "accuracy":
                yield accuracy_plan(kind, self.params, stop, n_samples, self.seed)
            else:
                pieces = kind.blocks(kind.settled(self.params, self.source_object), stop, n_samples, self.seed)
                yield from pieces if self.lot is None else by_lot(pieces, self.name, self.lot.parts)
        except ScenarioError:
            raise
        except ValueError as error:
            raise ScenarioError([f"{self.name}: {error}."]) from error

    def build_warmup(self, n_samples: int) -> Plan | Blocks | None:
        """The plan before t0, or None. Its query ids start at 0 again. Raises ``ScenarioError``."""
        if not self.warmup_ns:
            return None
        warmup = Warmup(self.warmup_ns, n_samples, child(self.seed, "warmup"), self.workers, self.seed)
        try:
            return kinds()[self.kind].warmup(self.params, warmup)
        except ScenarioError:
            raise
        except ValueError as error:
            raise ScenarioError([f"{self.name}: warmup: {error}."]) from error

    def source_object(self) -> PayloadSource:
        """The payload source, its files read. Raises ``ScenarioError`` with every problem of those files."""
        source = sources()[getattr(self.source, "kind")]  # noqa: B009
        keys = {*of_source(self.labels or {}).values()}
        if keys and source.labelled is not None:
            made = source.labelled(self.source, self.seed, keys)
        else:
            made = source.build(self.source, self.seed)
        return kinds()[self.kind].sourced(self.params, made)

    def to_mapping(self) -> dict[str, Any]:
        """The scenario as its file would say it, with every default; ``parse`` gives an equal one back."""
        found = self.model_dump(mode="json", by_alias=True, exclude={"mix"})
        for name, empty in _ABSENT.items():  # files of runs without stay as they were
            if found[name] == empty:
                del found[name]
        if self.mix:
            found = {key: value for key, value in found.items() if key not in _OF_CLASS or key == "objectives"}
            found["mix"] = {name: one._as_class(self) for name, one in self.mix.items()}
        return found

    def _as_class(self, run: Scenario) -> dict[str, Any]:
        alike = [name for name in ("mode", "reference") if getattr(self, name) == getattr(run, name)]
        found = {key: value for key, value in self.to_mapping().items() if key not in (*OF_RUN, *alike)}
        if self.endless:
            found["until"] = "others"
            del found["stop"]
        return found


# -- a mapping becomes a Scenario, or a list of everything that is wrong with it -----------------------------------

M = TypeVar("M", bound=BaseModel)

#: Sections that may be written with nothing below them.
_SECTIONS = ("params", "target", "stop")


def parse(
    mapping: Mapping[str, Any],
    where: str = "scenario",
    *,
    folder: Path | None = None,
    labels: Mapping[str, str] | None = None,
) -> Scenario:
    """The scenario in ``mapping``. Raises ``ScenarioError`` with every problem, each ``where:key.path: what. next
    step.``, or ``where:line: key.path: ...`` where it was read from a file.

    Relative file names start at ``folder`` (default: stay as they are). ``labels`` renames key paths in messages.

    Which fields ``params`` and ``source`` may have depends on the kinds found on disk: each part is validated by its
    own model, and the errors are put together.
    """
    place = Place(where, labels or {}, mapping.lines if isinstance(mapping, Document) else {})
    if not isinstance(mapping, Mapping):
        raise ScenarioError([place.say((), "not a mapping. Give key: value pairs, starting with name and kind")])
    wrong: list[str] = []
    if "arms" in mapping:
        mapping, place, wrong = _with_arms(mapping, place)
    try:
        found = (_parse_mix if MIX in mapping else _parse_one)(mapping, place, folder)
    except ScenarioError as error:
        raise ScenarioError([*wrong, *error.errors]) from None
    if wrong:
        raise ScenarioError(wrong)
    return found


def _with_arms(mapping: Mapping[str, Any], place: Place) -> tuple[dict[str, Any], Place, list[str]]:
    """A mix, each class of which sends by lot its share of the one load, and what is wrong with the shares: then they
    are equal. Raises ``ScenarioError``.
    """
    arms, wrong = mapping["arms"], list[str]()
    if not isinstance(arms, Mapping) or len(arms) < 2 or MIX in mapping:
        wrong.append(place.say(("arms",), f"takes two arms or more, {{base: {{share: 90%}}, ...}}, and no {MIX}"))
        raise ScenarioError(wrong)
    own = {key: mapping[key] for key in ("kind", "params", "source") if key in mapping}
    shares: dict[str, dict[int, Fraction]] = {}
    beside = [name for name, arm in arms.items() if isinstance(arm, Mapping) and arm.get("share") == "copy"]
    for name in [one for one in arms if one not in beside]:
        try:
            shares[name] = shares_of(arms[name].get("share") if isinstance(arms[name], Mapping) else None)
        except ValueError as error:
            wrong.append(place.say(("arms", str(name), "share"), str(error)))
    times = sorted({0, *(time for one in shares.values() for time in one)})
    bounds = {time: bounds_at(time, shares) for time in times if not wrong}
    for time, found in bounds.items():
        if (total := max((high for _, high in found.values()), default=0)) != 1:
            when = f" from {format_duration(time)} on" if len(times) > 1 else ""
            wrong.append(place.say(("arms",), f"has shares of {float(total * 100):g} % together{when}. Give 100 %"))
    if wrong:
        times, bounds = [0], {0: bounds_at(0, {name: {0: Fraction(1, len(arms))} for name in arms})}
    classes = {}
    for name, arm in ((name, arm if isinstance(arm, Mapping) else {}) for name, arm in arms.items()):
        (low, high), *rest = (map(float, bounds[time].get(name, (0, 1))) for time in times)
        later = [[format_duration(time), *lot] for time, lot in zip(times[1:], rest, strict=True)]
        lot = {"from": low, "to": high, **({"later": later} if later else {})}
        mine = {"lot": lot, **({"copied": True} if name in beside else {})}
        classes[name] = {**own, **{key: value for key, value in arm.items() if key != "share"}, **mine}
    below = {("arms", name, *loc): line for name in arms for loc, line in place.lines.items() if loc and loc[0] in own}
    made = {**{key: mapping[key] for key in mapping if key not in (*own, "arms")}, MIX: classes}
    return made, replace(place, lines={**place.lines, **below}, renamed={MIX: "arms"}), wrong


def _parse_one(mapping: Mapping[str, Any], place: Place, folder: Path | None) -> Scenario:
    reading = _Reading(place, {"folder": folder})
    raw = {key: {} if value is None and key in _SECTIONS else value for key, value in mapping.items()}
    kind, params = reading.kind(raw)
    source = reading.source(raw.get("source", {"kind": "synthetic_text"}))
    if kind is not None and params is not None:
        reading.cross_check(kind, params, raw)
    # A stand-in where a part is broken, so that the rest is still looked at.
    whole = {**raw, "params": params or StopSection(), "source": source or StopSection()}
    if kind is None:
        whole["kind"] = "?"
    elif params is not None and kind.again(params) and isinstance(client := raw.get("client"), Mapping | None):
        whole["client"] = {**(client or {}), "retry": (client or {}).get("retry") or AGAIN}
    scenario = reading.validated(Scenario, whole, ())
    if scenario is not None:
        reading.check_events(scenario)
    if scenario is not None and source is not None:
        reading.check_labels(scenario.labels or {}, sources()[getattr(source, "kind")])  # noqa: B009
    if scenario is not None and params is not None:
        reading.check_client(scenario)
    return reading.result(scenario)


def _parse_mix(mapping: Mapping[str, Any], place: Place, folder: Path | None) -> Scenario:
    """A scenario of several classes. What stands at the top, of what a class may say, is each one's that doesn't."""
    reading = _Reading(place, {"folder": folder})
    shared = {key: value for key, value in mapping.items() if key not in (*OF_RUN, *_OF_CLASS)}
    own = ("kind", "params", "source")
    reading.not_here(mapping, own, "does not go with mix. Write it in each class, as mix.NAME")
    run = {key: value for key, value in mapping.items() if key not in own}
    stand_in = {"kind": MIX, "params": _Nothing(), "source": _Nothing()}
    found = reading.validated(Scenario, {**run, **stand_in, "mix": {}}, ())
    if found is not None:
        reading.check_events(found)
    given = mapping[MIX]
    if not isinstance(given, Mapping) or not given:
        reading.say((MIX,), "names no classes. Write NAME: {kind: ..., params: {...}, source: {...}} for each below it")
        given = {}
    classes: dict[str, Scenario] = {}
    for name, own in given.items():
        if not (isinstance(name, str) and _CLASS_NAME.fullmatch(name)):
            said = "is no name of a class. Use letters, digits, _ and -, begin with a letter or a digit, at most 40"
            reading.say((MIX, str(name)), said)
        elif not isinstance(own, Mapping):
            reading.say((MIX, name), "is no mapping. Write kind, params, source and what else the class has below it")
        else:
            run_seed = 0 if found is None else found.seed
            # As files of a run hold it; arms send one load.
            seed = run_seed if "lot" in own else child(run_seed, "class", name) >> 1
            try:
                one = _class_of(own, shared, reading, name)
                warmup = {"warmup": mapping["warmup"]} if "warmup" in mapping else {}
                inside = replace(place, below=(MIX, name), above=frozenset({*shared, *warmup}) - set(own))
                made = classes[name] = _parse_one({**one, **warmup, "name": name, "seed": seed}, inside, folder)
                if made.endless and (made.open_loop or kinds()[made.kind].one_query):
                    said = f"others is of a class that has no end of its own, and kind {made.kind} as it is has one"
                    reading.say((MIX, name, "until"), f"{said}. Use kind concurrency, or give stop")
            except ScenarioError as error:
                reading.wrong += [((MIX, name), text) for text in error.errors]
    return reading.result(None if found is None else found.model_copy(update={"mix": classes}))


def _class_of(own: Mapping[str, Any], shared: Mapping[str, Any], reading: _Reading, name: str) -> dict[str, Any]:
    """What a class is, with what it takes from the top of the file."""
    reading.not_here(own, OF_RUN, "is the run's. Write it at the top of the file", (MIX, name))
    one = {**shared, **{key: value for key, value in own.items() if key not in (*OF_RUN, "until")}}
    for key in ("target", "labels"):
        if isinstance(shared.get(key), Mapping) and isinstance(own.get(key), Mapping):
            one[key] = over(shared[key], own[key])
    until = own.get("until", "own")
    if until not in ("own", "others"):
        reading.say((MIX, name, "until"), f"is {until!r:.60}. Write others, or leave it out")
    elif until == "others":
        if one.get("mode") == "accuracy":
            reading.say((MIX, name, "until"), "others does not go with mode accuracy, which ends with its last sample")
        if own.get("stop"):
            reading.say((MIX, name, "stop"), "does not go with until: others, which ends the class. Keep one of them")
        one["stop"] = {"min_queries": 1, "min_duration": format_duration(MAX_NS)}
    return one


def over(base: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """``given`` over ``base``, mappings inside mappings too."""
    both = {key for key in given if isinstance(given[key], Mapping) and isinstance(base.get(key), Mapping)}
    return {**base, **given, **{key: over(base[key], given[key]) for key in both}}


class _Nothing(BaseModel):
    """Stands in a mix for what its classes have."""

    model_config = STRICT


def _place_in(order: Sequence[str], loc: Loc) -> int:
    return order.index(str(loc[0])) if loc and loc[0] in order else len(order)


class _Reading:
    """One mapping on its way: ``wrong`` has the place and the text of each problem so far."""

    def __init__(self, place: Place, context: Mapping[str, Any]) -> None:
        self._place, self._context = place, dict(context)
        self.wrong: list[tuple[Loc, str]] = []

    def say(self, loc: Loc, what: str) -> None:
        """This is wrong there."""
        self.wrong.append((loc, self._place.say(loc, what)))

    def not_here(self, raw: Mapping[str, Any], keys: Sequence[str], why: str, below: Loc = ()) -> None:
        """Say of each of these keys that is there why it may not be."""
        for key in keys:
            if key in raw:
                self.say((*below, key), why)

    def result(self, scenario: Scenario | None) -> Scenario:
        """The scenario. Raises ``ScenarioError`` with everything that was wrong, in the order of a scenario's keys."""
        if self.wrong or scenario is None:
            order = [item.alias or name for name, item in Scenario.model_fields.items()]
            told = [text for _, text in sorted(self.wrong, key=lambda one: _place_in(order, one[0]))]
            raise ScenarioError([*dict.fromkeys(told)])
        return scenario

    def validated(self, model: type[M], raw: Any, below: Loc) -> M | None:
        """``raw`` as ``model`` has it; None: it is wrong."""
        try:
            return model.model_validate(raw, context=self._context)
        except ValidationError as error:
            self.wrong += problems(error, model, self._place, below, _belongs)
            return None

    def kind(self, raw: Mapping[str, Any]) -> tuple[Kind | None, BaseModel | None]:
        """The kind and its params; None for each that is wrong."""
        known, name = kinds(), raw.get("kind")
        if name is None:
            self.say(("kind",), f"is missing. Give one of {', '.join(sorted(known))}")
            return None, None
        kind = known.get(name) if isinstance(name, str) else None
        if kind is None:
            self.say(("kind",), unknown(name, known, "scenario kind"))
            return None, None
        return kind, self.validated(kind.params, raw.get("params", {}), ("params",))

    def source(self, raw: Any) -> BaseModel | None:
        """The source's params; None: they are wrong."""
        known = sources()
        if not isinstance(raw, Mapping) or "kind" not in raw:
            self.say(
                ("source",),
                f"does not say its kind. Write source: {{kind: ...}} with one of {', '.join(sorted(known))}",
            )
            return None
        source = known.get(raw["kind"]) if isinstance(raw["kind"], str) else None
        if source is None:
            self.say(("source", "kind"), unknown(raw["kind"], known, "payload source"))
            return None
        return self.validated(source.params, raw, ("source",))

    def check_labels(self, labels: Mapping[str, str], source: Source) -> None:
        """Whether the data set can have them."""
        for name in of_source(labels) if source.labelled is None else ():
            able = " or ".join(other.name for other in sources().values() if other.labelled is not None)
            self.say(("labels", name), f"source {source.name} has no keys to take it from. Use source {able}")

    def check_events(self, scenario: Scenario) -> None:
        """Events and phases that overlap, are called alike, or come when nothing is sent any more."""
        wrong = happenings.mistakes(scenario.events, scenario.phases, scenario.stop.max_duration_ns)
        for loc, text in wrong:
            self.say(loc, text)

    def check_client(self, scenario: Scenario) -> None:
        """Habits that the rest of the scenario forbids."""
        slots = kinds()[scenario.kind].slots(scenario.params)
        for key, text in scenario.client.mistakes(scenario.timeout_ns, slots) if scenario.client else ():
            self.say(("client", *key.split(".")), text)

    def cross_check(self, kind: Kind, params: BaseModel, raw: Mapping[str, Any]) -> None:
        """What no single section can know: more workers than slots, and plans too large to be meant."""
        slots, workers = kind.slots(params), raw.get("workers", 1)
        if slots is not None and isinstance(workers, int) and workers > slots:
            plural = "s" if slots > 1 else ""
            text = f"{workers} workers cannot share {slots} slot{plural} of kind {kind.name}. Use at most {slots}"
            self.say(("workers",), text)
        try:
            stop = StopSection.model_validate(raw.get("stop", {})).stop()
        except ValidationError:
            return  # reported with the whole
        size = kind.size(params, stop)
        if size > MAX_SAMPLES:
            told = f"this plan would hold about {size:,} samples, more than {MAX_SAMPLES:,}"
            self.say(("stop",), f"{told}. Lower rate or minima, or send it as several runs")


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
