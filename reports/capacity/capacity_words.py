"""What a capacity plan says in words, the same in every format."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from plimsoll.reports.capacity.capacity_parts import CapacityReport, CostPart, LoadPart, QueuePart, SizedPart
from plimsoll.reports.wording import units

PER = MappingProxyType(
    {
        "requests": "requests",
        "good_requests": "good requests",
        "output_tokens": "output tokens",
        "input_tokens": "input tokens",
    }
)
#: The lowest load may have a hundred answers, and their mean is a tenth off then.
_OFF = 1.1
BATCHING = (
    "A sanity check and no gate: servers that batch violate all of these, for their rate grows with what they hold. A run far below a "
    "curve at high load is what batching looks like, or was too short for its queue to grow, which takes long near saturation; far "
    "above it, something else is shared."
)


def headline(report: CapacityReport) -> str:
    """The answer in a sentence or two."""
    if report.sized is None or report.capacity is None:
        return f"No validated capacity: {'; '.join(report.reasons) or 'nothing was shown to hold'}."
    sized = report.sized
    what = f"{units.many(sized.replicas, 'replica')} for {units.rate(report.target_per_s)}"
    each = f"each carries {units.rate(report.capacity.low)} within its objectives"
    return f"{what}: {each}, and is used to {units.percent(sized.utilisation, 3)} of it."


def capacity(report: CapacityReport) -> str:
    """The interval, and which end is used."""
    found = report.capacity
    if found is None:
        return units.NOTHING
    if found.high is None:
        return f"{units.rate(found.low)} (used); nobody has seen where it fails"
    return f"{units.rate(found.low)} (used) to {units.rate(found.high)}"


def binding(sized: SizedPart, report: CapacityReport) -> str:
    """Which rule decides."""
    shares = units.percent(report.headroom, 3), units.percent(report.one_down, 3)
    rules = (
        f"at most {shares[0]} full: {sized.by_headroom}",
        f"at most {shares[1]} full with one down: {sized.by_one_down}",
    )
    decides = {"headroom": "the first decides", "one down": "the second decides", "both": "they agree"}[sized.binding]
    return f"{rules[0]}; {rules[1]}; {decides}"


def sensitivity(report: CapacityReport) -> str:
    """What the width of the interval costs."""
    low, high = report.sized, report.sized_high
    if low is None:
        return ""
    if high is None:
        return "The upper end of the capacity is not known, so what the uncertainty costs is not known either."
    if low.replicas == high.replicas:
        return f"At the upper end of the capacity it would be {high.replicas} as well: the uncertainty costs nothing."
    extra = low.replicas - high.replicas
    money = ""
    if low.per_hour is not None and high.per_hour is not None:
        money = f", {money_of(low.per_hour - high.per_hour, report)} an hour"
    return (
        f"At the upper end of the capacity it would be {high.replicas}: the uncertainty costs up to "
        f"{units.many(extra, 'replica')}{money}. A longer search narrows it."
    )


def amount(value: float | int | None) -> str:
    """An amount of money, without its currency."""
    if value is None:
        return units.NOTHING
    return f"{value:,.2f}" if abs(value) >= 1 else units.significant(value, 3)


def money_of(value: float | int | None, report: CapacityReport) -> str:
    """An amount with its currency."""
    return units.NOTHING if value is None else f"{amount(value)} {report.currency}".strip()


def cost_range(values: tuple[float, float] | None) -> str:
    """From the upper end of the capacity to the lower."""
    return units.NOTHING if values is None else f"{amount(values[0])} to {amount(values[1])}"


def cost_name(cost: CostPart) -> str:
    """A million of what."""
    return f"a million {PER[cost.per]}"


def fitted(queue: QueuePart) -> str:
    """A queue and its service time."""
    servers = f", c = {queue.servers}" if queue.servers > 1 else ""
    return f"{queue.model}{servers}: service time {units.duration(queue.service_ns)}, full at {units.rate(queue.limit_per_s)}"


def beyond(loads: Sequence[LoadPart], queues: Sequence[QueuePart]) -> list[str]:
    """Loads that the endpoint carried and the model could not, by more than its service time may well be off."""
    said = []
    for queue in queues:
        carried = [load.rate_per_s for load in loads if load.stable and load.rate_per_s > _OFF * queue.limit_per_s]
        if carried:
            said.append(
                f"{queue.model} is full at {units.rate(queue.limit_per_s)}, and the endpoint kept up with {units.rate(max(carried))}: "
                "it is no such queue. It batches, serves several at a time, or its times are spread otherwise"
            )
    return said


def laws(report: CapacityReport) -> str:
    """Little's law in a sentence."""
    wrong = [law for law in report.laws if law.wrong]
    runs = len({law.run for law in report.laws})
    if not report.laws:
        return "Little's law was not checked: there is no valid run whose records can be read."
    if wrong:
        return f"Little's law is violated in {units.many(len({law.run for law in wrong}), 'run')} of {runs}: do not trust these logs."
    return f"Little's law holds in {units.many(runs, 'run')}, by response and by service times."
