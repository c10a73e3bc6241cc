"""What a comparison needs of a run: what it was asked to do, and the baseline file, small enough to keep in a
repository.

The file has one value a line with keys in a fixed order, so that a review shows what changed; no record of a single
request and no secret is in it. An infinite value, which is what a failure ranks as, is null; a quantity that a run has
no data for is absent.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from plimsoll.documents import files
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.process.writing import write_json
from plimsoll.scenarios.text.fields import STRICT
from plimsoll.scenarios.text.problems import Place, problems
from plimsoll.slo.comparison.arms import Arm, Reading, RunSample
from plimsoll.slo.comparison.quantity import Quantity, parse, parse_all

SCHEMA = "plimsoll.baseline/1"
#: Keys of a scenario that make the load.
LOAD = ("kind", "params", "source", "stop", "warmup", "timeout", "drain")
#: What of a target changes the answer that is asked for; said, not refused: it may be what is being compared.
_ASKED = ("protocol", "options")
#: Facts of a host that bear on timing. Its name is not one: a container gets a new one each time.
HOST = ("cpu", "cpus_allowed", "machine", "os")
#: Kept besides what was asked for, so that a later comparison may ask for something else.
_STATISTICS = ("p50", "p90", "p95", "p99", "p99.9", "mean", "max")
_INDICATORS = ("ttft", "tpot", "itl", "e2e", "latency", "service_time", "ttfb")
_OTHERS = ("rate(ok)", "rate(good)", "rate(output_tokens)", "ratio(good)", "ratio(error)")
_SIGNIFICANT = 9
#: A file that is damaged throughout is told by its first mistakes.
_MOST_ERRORS = 20

Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class Likeness:
    """What one run was asked to do, and where. ``load`` and ``asked`` are documents without secrets."""

    load: Mapping[str, Any]
    asked: Mapping[str, Any]
    seed: int | None
    workers: int | None
    host: Mapping[str, Any]
    plimsoll: str
    target: str
    model: str

    def fingerprint(self) -> str:
        """SHA-256 of the load: the same for every run that may be compared with this one."""
        return hashlib.sha256(json.dumps(self.load, sort_keys=True).encode()).hexdigest()


def likeness(scenario: Mapping[str, Any], manifest: Mapping[str, Any]) -> Likeness:
    """From a run directory's ``scenario.yaml`` and ``manifest.json``."""
    host, target = manifest.get("host") or {}, manifest.get("target") or {}
    section = scenario.get("target") or {}
    load: dict[str, Any] = {key: scenario.get(key) for key in LOAD}
    if mix := scenario.get("mix"):
        load["mix"] = {name: {key: one.get(key) for key in LOAD} for name, one in mix.items()}
    return Likeness(
        load=json.loads(json.dumps(load)),
        asked=json.loads(json.dumps({key: section.get(key) for key in _ASKED})),
        seed=scenario.get("seed"),
        workers=manifest.get("workers"),
        host={key: host.get(key) for key in HOST},
        plimsoll=str(manifest.get("plimsoll", "")),
        target=str(target.get("url") or ""),
        model=str(target.get("model") or ""),
    )


@dataclass(frozen=True, slots=True)
class Baseline:
    """Some runs of one arm, as a file keeps them. ``limits``: what a request must meet to be good."""

    arm: Arm
    likenesses: tuple[Likeness, ...]
    limits: tuple[str, ...] = ()
    made_at: str = ""


def kept() -> tuple[Quantity, ...]:
    """The quantities that a baseline file holds, whatever was asked for."""
    return parse_all([*(f"{s}({i})" for i in _INDICATORS for s in _STATISTICS), *_OTHERS])


def save(path: Path, baseline: Baseline) -> None:
    """Write the file, whole or not at all. Raises HarnessFault if it can't be written."""
    try:
        write_json(path, document(baseline))
    except OSError as error:
        raise HarnessFault(f"--save-baseline: {path} cannot be written ({error.strerror}). Name another file") from None


def document(baseline: Baseline) -> dict[str, Any]:
    """The file as plain dicts, lists, texts and numbers."""
    first = baseline.likenesses[0]
    return {
        "schema": SCHEMA,
        "name": baseline.arm.name,
        "made_at": baseline.made_at,
        "plimsoll": first.plimsoll,
        "host": dict(first.host),
        "target": {"url": first.target, "model": first.model, **first.asked},
        "load_fingerprint": first.fingerprint(),
        "load": dict(first.load),
        "good_means": list(baseline.limits),
        "runs": [_run(run, like) for run, like in zip(baseline.arm.runs, baseline.likenesses, strict=True)],
    }


def _run(run: RunSample, like: Likeness) -> dict[str, Any]:
    known = {name: reading for name, reading in run.readings.items() if not math.isnan(reading.value)}
    return {
        "run": run.run,
        "seed": like.seed,
        "workers": like.workers,
        "plan": run.plan,
        "requests": run.requests,
        "failed": run.failed,
        "invalid": list(run.reasons),
        "unstable": run.unstable,
        "values": {name: _number(reading.value) for name, reading in known.items()},
        "counts": {_counted(name): {"n": reading.n, "failed": reading.failed} for name, reading in known.items()},
    }


def _counted(name: str) -> str:
    """What a quantity is a statistic of: all quantiles of an indicator are of the same values."""
    statistic, _, rest = name.partition("(")
    return name if statistic in ("rate", "ratio") else rest.rstrip(")")


def _number(value: float) -> float | int | None:
    if math.isinf(value):
        return None
    short = float(f"{value:.{_SIGNIFICANT}g}")
    return int(short) if short.is_integer() else short


def is_baseline(path: Path) -> bool:
    """The file says of itself that it is one, of whatever version."""
    try:
        with files.opened(path) as file:
            return re.search(rb'"schema"\s*:\s*"plimsoll\.baseline/', file.read(200)) is not None
    except OSError:
        return False


class _Counted(BaseModel):
    model_config = STRICT
    n: Count
    failed: Count


class _Target(BaseModel):
    model_config = ConfigDict(**{**STRICT, "extra": "allow"})
    url: str
    model: str


class _Run(BaseModel):
    model_config = STRICT
    run: Annotated[str, Field(min_length=1)]
    seed: int | None
    workers: int | None
    plan: str
    requests: Count
    failed: Count
    invalid: tuple[str, ...]
    unstable: str | None
    values: dict[str, float | None]
    counts: dict[str, _Counted]

    @field_validator("values")
    @classmethod
    def _possible(cls, values: dict[str, float | None]) -> dict[str, float | None]:
        """A value that no run can have would pass for a very good or a very bad one."""
        for name, value in values.items():
            scale, infinite = parse(name).scale, value is None
            if name.startswith(("rate(", "ratio(")) and infinite:
                raise ValueError(f"{name} is null, which is infinite: only times can be")
            if value is not None and (value < 0 or (scale == "difference" and value > 1)):
                raise ValueError(f"{name} is {value:g}: a share lies in 0..1, anything else is at least 0")
        return values

    @model_validator(mode="after")
    def _all_counted(self) -> _Run:
        missing = sorted({_counted(name) for name in self.values} - set(self.counts))
        if missing:
            raise ValueError(f"counts of {', '.join(missing)} are missing")
        return self


class _File(BaseModel):
    """The file, as strictly as it was written."""

    model_config = STRICT
    schema_: str = Field(alias="schema")
    name: Annotated[str, Field(min_length=1)]
    made_at: str
    plimsoll: str
    host: dict[str, Any]
    target: _Target
    load_fingerprint: str
    load: dict[str, Any]
    good_means: tuple[str, ...]
    runs: tuple[_Run, ...]


def load(path: Path) -> Baseline:
    """Read a baseline file. Raises HarnessFault with everything that is wrong with it."""
    remedy = "Restore it, or make it again with --save-baseline"
    try:
        text = files.read_text(path, files.DATA)
        schema = json.loads(text)["schema"]
        if schema != SCHEMA:
            raise HarnessFault(f"{path}: schema {schema!r} is not {SCHEMA}. Make the baseline again with this version")
        found = _File.model_validate_json(text)
    except ValidationError as error:
        said = [what for _, what in problems(error, _File, Place(str(path)))]
        raise HarnessFault([*said[:_MOST_ERRORS], f"{path}: this baseline file is damaged. {remedy}"]) from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise HarnessFault(f"{path}: this baseline file is damaged ({error!r}). {remedy}") from None
    if not found.runs:
        raise HarnessFault(f"{path}: this baseline file holds no run. Make it again with --save-baseline")
    baseline = _baseline(found)
    if baseline.likenesses[0].fingerprint() != found.load_fingerprint:
        raise HarnessFault(
            f"{path}: load and load_fingerprint do not belong together, so one of them was edited. Make the baseline "
            "again"
        )
    return baseline


def _baseline(found: _File) -> Baseline:
    likenesses = tuple(
        Likeness(
            load=found.load,
            asked=found.target.model_extra or {},
            seed=run.seed,
            workers=run.workers,
            host=found.host,
            plimsoll=found.plimsoll,
            target=found.target.url,
            model=found.target.model,
        )
        for run in found.runs
    )
    return Baseline(Arm(found.name, tuple(map(_sample, found.runs))), likenesses, found.good_means, found.made_at)


def _sample(run: _Run) -> RunSample:
    readings: dict[str, Reading] = {}
    for name, value in run.values.items():
        count = run.counts[_counted(name)]
        readings[name] = Reading(math.inf if value is None else value, count.n, count.failed)
    return RunSample(
        run=run.run,
        readings=readings,
        plan=run.plan,
        reasons=run.invalid,
        unstable=run.unstable,
        requests=run.requests,
        failed=run.failed,
    )


def without(names: Sequence[str], baseline: Baseline) -> list[str]:
    """Quantities that were asked for and that no run of the baseline holds."""
    return [name for name in names if not any(name in run.readings for run in baseline.arm.runs)]
