"""The bake-off file: one scenario, N endpoints, the loads to sweep, the repeats and what is promised.

Read strictly: unknown keys are refused and every error of the file is reported at once, each with the key and the
fix. An API key is never in it; it names the variable or the file that holds one. Nothing is sent here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.run.promises import Asked, of_scenario
from plimsoll.harness.series.comparison.arms import Arm, Positive, Whole, twice
from plimsoll.harness.series.comparison.rounds import Contest, Level
from plimsoll.scenarios.spec import library
from plimsoll.scenarios.text.document import Document, ScenarioError, read_file
from plimsoll.scenarios.text.fields import STRICT, Duration
from plimsoll.scenarios.text.problems import Place, problems
from plimsoll.slo.comparison.quantity import QuantityError, parse_all

#: Flags of a scenario that a bake-off may set for all arms alike.
_LOAD_FLAGS = (
    "kind", "rate", "arrival", "concurrency", "duration", "queries", "max_duration", "prompt_tokens", "output_tokens",
    "seed", "workers", "warmup", "timeout", "connect_timeout", "protocol", "model",
)  # fmt: skip


class Sweep(BaseModel):
    """The loads at which every arm runs: rates, or concurrencies."""

    model_config = STRICT
    rates: tuple[Positive, ...] = Field(default=(), strict=False, description="Requests per second (open loop).")
    concurrencies: tuple[Whole, ...] = Field(default=(), strict=False, description="Requests in flight (closed loop).")

    @model_validator(mode="after")
    def _one_of_them(self) -> Sweep:
        if bool(self.rates) == bool(self.concurrencies):
            raise ValueError("give either rates or concurrencies, with at least one load")
        given = self.rates or self.concurrencies
        if len(set(given)) < len(given):
            raise ValueError("a load is given twice. Give each once")
        return self

    def levels(self) -> tuple[Level, ...]:
        """One per load, lowest first."""
        if self.rates:
            return tuple(Level(f"rate-{rate:g}", {"kind": "server", "rate": rate}) for rate in sorted(self.rates))
        return tuple(
            Level(f"concurrency-{n}", {"kind": "concurrency", "concurrency": n}) for n in sorted(self.concurrencies)
        )


class Bakeoff(BaseModel):
    """A bake-off, described."""

    model_config = STRICT
    name: str = Field(default="bake-off", min_length=1, max_length=100)
    scenario: str | None = Field(
        default=None, description="A scenario file (from this file's folder) or a library name."
    )
    load: dict[str, Any] = Field(default_factory=dict, description="Flags of `plimsoll run` over the scenario.")
    arms: Annotated[tuple[Arm, ...], Field(strict=False, description="The endpoints, two or more.")]
    sweep: Sweep | None = Field(default=None, description="The loads; absent: the scenario's own.")
    repeats: int = Field(default=5, ge=1, le=1000, description="Runs of each arm at each load.")
    cooldown_ns: Duration = Field(default=2_000_000_000, alias="cooldown", description="Silence between two runs.")
    objectives: tuple[str, ...] = Field(default=(), strict=False, description="What is promised; says what good means.")
    metrics: tuple[str, ...] = Field(default=(), strict=False, description="What arms are compared and ranked by.")
    tolerance: float = Field(default=0.05, ge=0, lt=1, description="Differences up to this are of no interest.")
    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    currency: str = Field(default="USD", min_length=1, max_length=10, description="Of every price_per_hour.")

    @field_validator("load")
    @classmethod
    def _known_flags(cls, load: dict[str, Any]) -> dict[str, Any]:
        unknown = [key for key in load if key not in _LOAD_FLAGS]
        if unknown:
            raise ValueError(f"unknown: {', '.join(unknown)}. Known keys here: {', '.join(_LOAD_FLAGS)}")
        return load

    @field_validator("arms")
    @classmethod
    def _several(cls, arms: tuple[Arm, ...]) -> tuple[Arm, ...]:
        if len(arms) < 2:
            raise ValueError("one endpoint has nobody to be ranked against. Give two or more")
        return arms

    @model_validator(mode="after")
    def _all_or_none_priced(self) -> Bakeoff:
        priced = [arm.name for arm in self.arms if arm.price_per_hour is not None]
        if priced and len(priced) < len(self.arms):
            missing = ", ".join(arm.name for arm in self.arms if arm.price_per_hour is None)
            raise ValueError(f"price_per_hour is missing for {missing}. Price every arm or none: a cost is compared")
        return self

    def contest(self) -> Contest:
        """What is to be run."""
        return Contest(
            scenario=self.scenario,
            flags=self.load,
            asked=Asked(slo=self.objectives, limits_alone=True),
            arms=self.arms,
            repeats=self.repeats,
            cooldown_ns=self.cooldown_ns,
            levels=self.sweep.levels() if self.sweep is not None else (Level(),),
        )


def load(path: Path) -> Bakeoff:
    """Read a bake-off file. Raises HarnessFault with every error of it."""
    try:
        mapping = read_file(path, str(path), "Give a YAML file; `plimsoll bakeoff --init` writes one")
    except ScenarioError as error:
        raise HarnessFault(error.errors) from None
    if "arms" not in mapping and {"kind", "params"} & mapping.keys():
        raise HarnessFault(
            f"{path}: is a scenario, not a bake-off. Name it under scenario: in a bake-off file; `plimsoll bakeoff "
            "--init` writes one"
        )
    return parse(mapping, str(path), path.resolve().parent)


def parse(mapping: Mapping[str, Any], where: str, folder: Path | None = None) -> Bakeoff:
    """The bake-off in ``mapping``; relative file names start at ``folder``. Raises HarnessFault with every error."""
    lines = mapping.lines if isinstance(mapping, Document) else {}
    place = Place(where, lines=lines)
    errors: list[str] = []
    found: Bakeoff | None = None
    raw = dict(mapping)
    if isinstance(raw.get("scenario"), str) and raw["scenario"] not in library() and folder is not None:
        raw["scenario"] = str(folder / raw["scenario"])
    try:
        found = Bakeoff.model_validate(raw, context={"folder": folder})
    except ValidationError as error:
        errors += [text for _, text in problems(error, Bakeoff, place)]
    errors += _of_other_grammars(raw, where)
    if found is not None:
        errors += twice(found.arms, f"{where}:arms")
    if isinstance(mapping, Document):
        errors = mapping.placed(errors)
    if errors or found is None:
        raise HarnessFault(errors)
    return found


def _of_other_grammars(raw: Mapping[str, Any], where: str) -> list[str]:
    """Errors in objectives and metrics, whatever else is wrong with the file."""
    errors: list[str] = []
    objectives, metrics = raw.get("objectives"), raw.get("metrics")
    if isinstance(objectives, list):
        texts = [text for text in objectives if isinstance(text, str)]
        errors += of_scenario(where, texts, Asked(limits_alone=True))[1]
    if isinstance(metrics, list):
        try:
            parse_all([text for text in metrics if isinstance(text, str)])
        except QuantityError as error:
            errors += [f"{where}:metrics: {text}" for text in error.errors]
    return errors


STARTER = """\
# A bake-off: the same load to every endpoint, in turn, several times, and a ranking that says when there is none.
#   plimsoll bakeoff FILE --out DIR
name: chat endpoints

# A library scenario (plimsoll scenarios list) or a file beside this one. `load` holds flags of `plimsoll run` over it.
scenario: interactive-chat
load:
  duration: 60s
  output_tokens: 128

# Each arm gets the same schedule and the same prompts. API keys stay out of this file: name where they are.
arms:
  - name: ours
    url: http://127.0.0.1:8000
    # model: my-model
    # api_key_env: OURS_API_KEY
    price_per_hour: 4.10      # of the whole endpoint; gives cost per million tokens
    gpus: 1
  - name: theirs
    url: http://127.0.0.1:8001
    # options: {stream: true}
    # headers: {X-Tenant: "${env:TENANT}"}
    price_per_hour: 2.95
    gpus: 1

# Every arm at every load. One of: rates (open loop, requests/s), concurrencies (closed loop). Leave it out for one \
load.
sweep:
  rates: [2, 5, 10]

repeats: 5          # runs of each arm at each load; fewer than 5 can rarely tell arms apart
cooldown: 2s        # silence between two runs

# Limits on a single request say what "good" means, hence goodput. Every run is judged by all of them.
objectives:
  - ttft <= 500ms
  - tpot <= 50ms
  - ratio(good) >= 99%

# What the ranking compares; leave it out for the usual ones.
# metrics: [p99(ttft), p99(tpot), rate(output_tokens)]
tolerance: 0.05     # differences up to this are of no interest
currency: USD
"""
