"""Before the first query: is this run more than this host can hold, or than this machine was calibrated for?

What is sure to fail is refused, what may be too much is a warning. Warnings and calibration go into the manifest, so
that a report made later on another machine says the same. Sends nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.host import calibration_table, limits
from plimsoll.harness.protocols._discovery import protocols
from plimsoll.harness.run.coordinator import Job
from plimsoll.harness.run.crew import split_workers
from plimsoll.harness.transport.client import Target
from plimsoll.reports.wording.units import human
from plimsoll.scenarios.plan.blocks import Extent
from plimsoll.scenarios.plan.lengths import Fixed, Spread, Uniform
from plimsoll.scenarios.spec import Scenario
from plimsoll.scenarios.text.fields import sampled

#: Peaks of the rate are looked for in windows of this length.
WINDOW_NS = 5_000_000_000
#: Bytes of a row and of a chunk time, measured with answers that stream: in segments, and in the files of a sealed run.
_IN_SEGMENTS, _SEALED = (120, 8), (40, 4)
#: The share of chunk times in the tail, where few requests break a limit.
_TAIL = 0.02
#: Fewer bytes than this go to other folders where this one is full; more than ``_MUCH`` are told of.
_LITTLE, _MUCH = 20_000_000, 1 << 30
#: So many requests for each prompt are worth a word.
_AGAIN = 4
#: A window this much above the mean is a peak; less is what a Poisson process does anyway.
CLEARLY = 1.2


@dataclass(frozen=True, slots=True)
class HostCheck:
    """Warnings, what the manifest keeps, and how many workers to take if the user did not say (None: as it is)."""

    warnings: tuple[str, ...]
    manifest: Mapping[str, Any]
    workers: int | None = None


def check_host(job: Job, host: limits.HostLimits | None = None, plan: Extent | None = None) -> HostCheck:
    """Compare the plan with this host's limits and with its calibration, which also says how many workers an unsaid
    number is. ``plan``: its extent, where somebody knows it.

    Raises HarnessFault (exit 2) for what can't work.
    """
    scenario, target = job.scenario, job.target
    if not protocols()[target.protocol].needs_url:
        return HostCheck((), {})
    plan = plan or extent_of(scenario)
    habitual = scenario.client is not None and scenario.client.habitual
    engine = calibration_table.engine_of(target, plan.hurried, habitual)
    host_now = calibration_table.this_host(engine)
    found = calibration_table.find(host_now, datetime.now(UTC), calibration_table.table_path())
    chosen = None
    if found.table is not None and "workers" not in scenario.model_fields_set:
        chosen = calibration_table.workers_for(found.table, demand(scenario, plan, 1))
    workers = split_workers(plan, chosen or scenario.workers)
    errors, warnings = limits.check(needed(plan, target, workers), host or limits.read())
    if errors:
        raise HarnessFault([f"{scenario.name}: {text}" for text in errors])
    over: list[str] = []
    table: dict[str, Any] | None = None
    if found.table is not None:
        over = calibration_table.beyond(found.table, demand(scenario, plan, workers))
        table = found.table.model_dump(mode="json")
    warnings += [*over, *again_and_again(scenario, plan)]
    calibration = {"table": table, "note": found.note, "beyond": over}
    return HostCheck(tuple(warnings), {"foreseen": warnings, "calibration": calibration}, chosen)


def again_and_again(scenario: Scenario, plan: Extent) -> list[str]:
    """A run of made-up prompts that sends each of them several times: a cache of prefixes or answers is warm then."""
    count, bust = getattr(scenario.source, "count", None), getattr(scenario.source, "bust", None)
    requests = plan.n_samples if not plan.cyclic else (plan.stop.max_queries or 0) * plan.widest
    if bust is None or count is None or requests < _AGAIN * count:  # bust: of texts only
        return []
    return [
        f"source.count: {count:,} prompts for {requests:,} requests: each is sent {requests / count:.0f} times, so "
        "that caches of prefixes and of answers are warm, which real traffic may not find. Give more prompts, or say "
        "with source.repeat how many repeat"
    ]


def extent_of(scenario: Scenario) -> Extent:
    """Of its plan: when, not what, because the payloads may be long to read."""
    return scenario.blocks(1).extent()


def check_disk(job: Job, free: int | None = None, plan: Extent | None = None) -> str | None:
    """What the run takes of its disk, in words, where that is much; None: it is little, or nobody knows how many
    requests there will be (a closed loop that ends by time).

    Sealed files lie beside the workers' for a moment, whatever is kept afterwards. Raises HarnessFault (exit 2) for a
    run that has no room there; ``free``: bytes, ``plan`` as above.
    """
    scenario, path = job.scenario, job.directory.path
    plan = plan or extent_of(scenario)
    rows = plan.n_samples if not plan.cyclic else (plan.stop.max_queries or 0) * plan.widest
    streaming = protocols()[scenario.target.protocol].streams(scenario.target.options)
    chunks = int(rows * (output_tokens(scenario) or 0)) if streaming else 0
    during, after = (row * rows + chunk * chunks for row, chunk in (_IN_SEGMENTS, _SEALED))
    free = shutil.disk_usage(path).free if free is None else free
    if during + after <= max(_LITTLE, min(_MUCH, free // 2)):
        return None
    share = sampled(scenario.keep) or {"all": 1, "tail": _TAIL}.get(scenario.keep, 0)
    stays = after - _SEALED[1] * chunks * (1 - share)
    needs, left, there = (human(float(size), "bytes") for size in (during + after, stays, free))
    said = (
        f"{rows:,} requests with {chunks:,} chunk times take about {needs} of disk in {path} until they "
        f"are sealed and judged, and {left} from then on (keep {scenario.keep}); {there} are free"
    )
    if during + after > free:
        raise HarnessFault(f"--out: {said}. Nothing was sent. Make room, name a larger disk, or send less")
    return said


def needed(plan: Extent, target: Target, workers: int) -> limits.Connections:
    """The connections that a plan takes."""
    most = target.max_connections or 1 << 30
    timeout_s = target.timeout_ns / 1e9
    if plan.max_in_flight is not None:
        slots = -(-plan.max_in_flight // workers) * (plan.widest if plan.cyclic else 1)
        if not plan.cyclic:
            slots = min(slots, -(-plan.n_samples // workers))
        return limits.Connections(workers, sure=min(slots, most), timeout_s=timeout_s)
    ceiling = min(target.max_outstanding, plan.n_samples, most * workers)
    return limits.Connections(workers, rate_per_s=peak_per_s(plan), ceiling=ceiling, timeout_s=timeout_s)


def demand(scenario: Scenario, plan: Extent, workers: int) -> calibration_table.Demand:
    """What a plan asks of the generator, as far as it can be known before the answers come."""
    streaming = protocols()[scenario.target.protocol].streams(scenario.target.options)
    if plan.cyclic:
        return calibration_table.Demand(workers, streams=(plan.max_in_flight or 1) * plan.widest if streaming else None)
    if plan.n_queries < 2:
        return calibration_table.Demand(workers)
    rate = peak_per_s(plan)
    tokens = output_tokens(scenario) if streaming else None
    return calibration_table.Demand(
        workers, rate_per_s=rate, token_events_per_s=None if tokens is None else rate * tokens
    )


def peak_per_s(plan: Extent) -> float:
    """Samples per second of an open plan: its mean, or the busiest window's where that is clearly higher."""
    span = plan.last_ns - plan.first_ns
    if not span:
        return 0.0
    mean = (plan.n_samples - 1) / (span / 1e9)
    window = min(WINDOW_NS, span)
    busiest = plan.timeline.busiest(window) / (window / 1e9)
    return busiest if busiest > CLEARLY * mean else mean


def output_tokens(scenario: Scenario) -> float | None:
    """Tokens asked for in an answer, on average, where the source makes the lengths up."""
    asked = getattr(scenario.source, "output_tokens", None)
    if isinstance(asked, Uniform):
        return (asked.min + asked.max) / 2
    if isinstance(asked, Spread):
        return asked.mean
    if isinstance(asked, Fixed):
        return float(asked.value)
    return float(asked) if isinstance(asked, int) else None
