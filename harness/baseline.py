"""The baseline file: what a comparison needs of some runs, small enough to keep in a repository.

Versioned, one value a line, keys in a fixed order, so that a change of it can be read in a review. It holds each run's values, the
load they were measured under and the host, no record of a single request and no secret. An infinite value, which is what
a failure ranks as, is null; a quantity that a run has no data for is absent.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import HarnessFault
from harness.likeness import Likeness
from slo.arms import Arm, Reading, RunSample
from slo.quantity import Quantity, parse_all

SCHEMA = "plimsoll.baseline/1"
#: Kept besides what was asked for, so that a later comparison may ask for something else.
_STATISTICS = ("p50", "p90", "p95", "p99", "p99.9", "mean", "max")
_INDICATORS = ("ttft", "tpot", "itl", "e2e", "latency", "service_time", "ttfb")
_OTHERS = ("rate(ok)", "rate(good)", "rate(output_tokens)", "ratio(good)", "ratio(error)")
_SIGNIFICANT = 9


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
    text = json.dumps(document(baseline), indent=1, allow_nan=False) + "\n"
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
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
        with path.open(encoding="utf-8") as file:
            return '"schema": "plimsoll.baseline/' in file.read(200)
    except (OSError, UnicodeDecodeError):
        return False


def load(path: Path) -> Baseline:
    """Read a baseline file. Raises HarnessFault that says what is wrong with it."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict) or found.get("schema") != SCHEMA:
            schema = found.get("schema") if isinstance(found, dict) else None
            raise HarnessFault(f"{path}: schema {schema!r} is not {SCHEMA}. Make the baseline again with this version")
        baseline = _baseline(found)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise HarnessFault(
            f"{path}: this baseline file is damaged ({error!r}). Restore it, or make it again with --save-baseline"
        ) from None
    if not baseline.arm.runs:
        raise HarnessFault(f"{path}: this baseline file holds no run. Make it again with --save-baseline")
    if baseline.likenesses[0].fingerprint() != found["load_fingerprint"]:
        raise HarnessFault(
            f"{path}: load and load_fingerprint do not belong together, so one of them was edited. Make the baseline again"
        )
    return baseline


def _baseline(found: Mapping[str, Any]) -> Baseline:
    target = found["target"]
    likenesses: list[Likeness] = []
    runs: list[RunSample] = []
    for run in found["runs"]:
        likenesses.append(
            Likeness(
                load=found["load"],
                asked={key: target[key] for key in target if key not in ("url", "model")},
                seed=run["seed"],
                workers=run["workers"],
                host=found["host"],
                plimsoll=found["plimsoll"],
                target=target["url"],
                model=target["model"],
            )
        )
        runs.append(_sample(run))
    arm = Arm(str(found["name"]), tuple(runs))
    return Baseline(arm, tuple(likenesses), tuple(found["good_means"]), str(found["made_at"]))


def _sample(run: Mapping[str, Any]) -> RunSample:
    readings: dict[str, Reading] = {}
    for name, value in run["values"].items():
        count = run["counts"][_counted(name)]
        number = float("inf") if value is None else float(value)
        if math.isnan(number):
            raise ValueError(f"{name} is not a number")
        readings[name] = Reading(number, int(count["n"]), int(count["failed"]))
    return RunSample(
        run=str(run["run"]),
        readings=readings,
        plan=str(run["plan"]),
        reasons=tuple(run["invalid"]),
        unstable=run["unstable"],
        requests=int(run["requests"]),
        failed=int(run["failed"]),
    )


def without(names: Sequence[str], baseline: Baseline) -> list[str]:
    """Quantities that were asked for and that no run of the baseline holds."""
    return [name for name in names if not any(name in run.readings for run in baseline.arm.runs)]
