"""The parts of ``sweep.json``, schema ``plimsoll.sweep/1``, and the curves through its points: what is read off them.

Times are nanoseconds, rates per second, shares 0..1; null is infinite, or a figure of a point that has none. A curve
leaves out a point that was not run or is INVALID; one that did not keep up breaks it, because its latencies are those
of the run's length.
"""

from collections.abc import Callable, Sequence
from operator import not_
from typing import Final, Literal

from pydantic import BaseModel, Field

from plimsoll.reports.models.comparison_parts import FrontPart
from plimsoll.reports.parts.parts import Number, Result, Text
from plimsoll.slo.metrics.indicator import catalogue, in_order
from plimsoll.slo.search.curve import Bracket, Curve, Standing, bracket, knee, linear_crossing, max_distance, through

SCHEMA: Final = "plimsoll.sweep/1"

#: SKIPPED: not run, because the series was saturated already. PENDING: the sweep was stopped before it.
PointOutcome = Literal["PASS", "FAIL", "INCONCLUSIVE", "INVALID", "UNREACHABLE", "SKIPPED", "PENDING"]
Outcome = Literal["FOUND", "HOLDS", "FAIL", "INCONCLUSIVE", "INVALID", "UNREACHABLE", "MEASURED"]
Setting = int | float | str | bool


class MetricPart(BaseModel, frozen=True, extra="forbid"):
    """Percentiles of one indicator at one point: the median over its runs."""

    unit: str = "ns"
    p50: Number = None
    p90: Number = None
    p99: Number = None


class PromisePart(BaseModel, frozen=True, extra="forbid"):
    """One objective at one point; ``observed`` is the median over its runs."""

    objective: Text
    outcome: str
    observed: Number = None
    threshold: Number = None
    unit: str = ""
    indicator: str = ""
    where: str = Field(default="", description="the rows that it is about; absent: all", exclude_if=not_)
    statistic: str = ""
    operator: str = "<="

    @property
    def of_all(self) -> bool:
        return not self.where


class SweepPoint(BaseModel, frozen=True, extra="forbid"):
    """One combination of settings. With several runs every figure is their median, and ``outcome`` is theirs if they
    agree.
    """

    settings: dict[str, Setting]
    x: float
    outcome: PointOutcome
    reasons: list[Text] = Field(default_factory=list)
    unstable: bool = Field(default=False, description="it did not keep up: its latencies depend on the run's length")
    offered_per_s: float | None = None
    achieved_per_s: float | None = Field(default=None, description="requests answered, over the span of the run")
    goodput_per_s: float | None = None
    good_fraction: float | None = None
    output_tokens_per_s: float | None = None
    completion: float | None = Field(default=None, description="share of the requests that were answered")
    pace: float | None = Field(default=None, description="answers over requests, each per second; at most 1")
    requests: int = Field(default=0, description="measured, over all runs")
    achieved_range: tuple[float, float] | None = Field(
        default=None, description="least and greatest run; null: one run"
    )
    metrics: dict[str, MetricPart] = Field(default_factory=dict)
    objectives: list[PromisePart] = Field(default_factory=list)
    server: dict[str, float] = Field(
        default_factory=dict,
        description="what the server said of itself, by quantity; absent: not measured",
        exclude_if=not_,
    )
    runs: list[Text] = Field(default_factory=list, description="run directories, from this document's folder")

    @property
    def measured(self) -> bool:
        """Whether its latencies are those of an endpoint that kept up."""
        return self.outcome in ("PASS", "FAIL", "INCONCLUSIVE") and not self.unstable


class KneePart(BaseModel, frozen=True, extra="forbid"):
    """The greatest load that is answered (99 %), kept up with, and PASS."""

    x: float
    offered_per_s: float | None = None
    achieved_per_s: float | None = None
    goodput_per_s: float | None = None
    output_tokens_per_s: float | None = None
    completion: float | None = None
    most_x: float | None = Field(
        default=None, description="a lower load at which clearly more was answered; null: none"
    )
    most_per_s: float | None = Field(default=None, description="what was answered there")
    failed_below: list[float] = Field(default_factory=list, description="lower loads that fail all the same")


class CrossingPart(BaseModel, frozen=True, extra="forbid"):
    """Where the curve of one objective crosses its limit; null with the reason why nobody can say."""

    objective: Text
    x: float | None
    why: Text = ""


class AttainmentPart(BaseModel, frozen=True, extra="forbid"):
    """Where the share of good requests falls to ``target``, by straight lines between the points, as DistServe reads
    it.
    """

    x: float
    target: float
    method: str = "DistServe: linear interpolation of the attainment curve"


class LinePart(BaseModel, frozen=True, extra="forbid"):
    """Up to where the objectives hold. ``low``..``high`` is what was measured; ``interpolated`` lies in it and is a
    guess.
    """

    low: float | None = Field(description="the greatest load that passes below the first that fails; null: none")
    high: float | None = Field(description="the first load that fails; null: none")
    interpolated: float | None = Field(default=None, description="the first crossing of a limit by monotone cubics")
    by: Text = Field(default="", description="whose limit is crossed there")
    crossings: list[CrossingPart] = Field(default_factory=list)
    attainment: AttainmentPart | None = None
    undecided: list[float] = Field(default_factory=list, description="between low and high, and neither pass nor fail")
    passes_above: list[float] = Field(default_factory=list, description="beyond high, and pass all the same")


class BendPart(BaseModel, frozen=True, extra="forbid"):
    """The point furthest from the chord of a curve's ends: information, never a limit."""

    x: float
    of: str


class SeriesPart(BaseModel, frozen=True, extra="forbid"):
    """One curve: everything but x is fixed by ``settings``."""

    label: Text
    settings: dict[str, Setting]
    points: list[SweepPoint]
    knee: KneePart | None = None
    line: LinePart | None = Field(default=None, description="null: no objective was given")
    bend: BendPart | None = None
    saturated_at: float | None = Field(
        default=None, description="the first of two loads in a row at which it fell behind"
    )


class SweepReport(Result, frozen=True):
    """The whole sweep."""

    schema_: Literal["plimsoll.sweep/1"] = Field(default=SCHEMA, alias="schema")
    name: Text
    outcome: Outcome
    variables: dict[str, list[Setting]]
    x: str
    objectives: list[Text] = Field(default_factory=list)
    repeats: int = 1
    series: list[SeriesPart]
    fronts: list[FrontPart] = Field(default_factory=list)
    warnings: list[Text] = Field(default_factory=list)
    exit_code: int
    plimsoll: Text = ""
    command: Text = ""
    started_at: Text = ""

    @property
    def points(self) -> list[SweepPoint]:
        """Of all series."""
        return [point for series in self.series for point in series.points]


#: What DistServe asks of its attainment, where the objectives name no share of good requests.
_ATTAINMENT = 0.9
#: Variables of which more is harder, so that a greatest one that holds means something.
RISING = ("rate", "concurrency", "speed", "prompt_tokens", "output_tokens")


def kind_of(x: str) -> str:
    """``rate`` of ``rate{class=chat}``: what of a class varies, in place of the whole run's."""
    return x.partition("{")[0]


_JUDGED = ("PASS", "FAIL", "INCONCLUSIVE", "INVALID")

#: A lower load that is answered this much faster than the knee is worth a word: two runs of one load differ by less.
CLEARLY = 1.1

Reading = Callable[[SweepPoint], float | None]


def of_metric(name: str, quantile: str) -> Reading:
    """Reads a percentile of an indicator, None where it is infinite or absent."""

    def read(point: SweepPoint) -> float | None:
        metric = point.metrics.get(name)
        return None if metric is None else getattr(metric, quantile)

    return read


def curve_of(points: Sequence[SweepPoint], read: Reading) -> Curve:
    """The curve of one figure over x."""
    shown = [point for point in points if point.measured or point.unstable]
    return through([p.x for p in shown], [None if p.unstable else read(p) for p in shown])


def times_of(points: Sequence[SweepPoint]) -> list[str]:
    """The indicators that are worth a chart, those of the objectives first."""
    there = dict.fromkeys(name for point in points if point.measured for name in point.metrics)
    promised = [p.indicator for point in points for p in point.objectives if p.indicator in there]
    known = catalogue()
    shown = [name for name in in_order(there) if name in known]
    usual = [name for name in shown if known[name].group == "answer" and known[name].drawn]
    rest = shown if not usual and not promised else []
    return list(dict.fromkeys([*promised, *usual, *rest[:1]]))[:4]


def standings(points: Sequence[SweepPoint]) -> list[Standing]:
    """The points as the knee takes them; those that were not run are none."""
    return [
        Standing(p.x, p.outcome, p.completion or 0.0, p.unstable, 1.0 if p.pace is None else p.pace)
        for p in points
        if p.outcome in ("PASS", "FAIL", "INCONCLUSIVE", "INVALID")
    ]


def knee_of(points: Sequence[SweepPoint]) -> KneePart | None:
    """The greatest load that is carried."""
    stood = standings(points)
    found = knee(stood)
    if found is None:
        return None
    at = next(point for point in points if point.x == found.x)
    most = max(
        (p for p in points if p.x < at.x and p.measured and p.achieved_per_s),
        key=lambda p: p.achieved_per_s or 0.0,
        default=at,
    )
    less = (at.achieved_per_s or 0.0) * CLEARLY < (most.achieved_per_s or 0.0)
    return KneePart(
        x=at.x,
        offered_per_s=at.offered_per_s,
        achieved_per_s=at.achieved_per_s,
        goodput_per_s=at.goodput_per_s,
        output_tokens_per_s=at.output_tokens_per_s,
        completion=at.completion,
        most_x=most.x if less else None,
        most_per_s=most.achieved_per_s if less else None,
        failed_below=[one.x for one in stood if one.outcome == "FAIL" and one.x < at.x],
    )


def line_of(points: Sequence[SweepPoint], promised: bool) -> LinePart | None:
    """Up to where the objectives hold: the measured bracket, and where the curves cross the limits in it.

    Where nothing is ``promised`` of the whole run, only how far most requests are good; None where no limit says what
    good is.
    """
    if not promised:
        share = _attainment(points)
        return None if share is None else LinePart(low=None, high=None, attainment=share)
    between = bracket(standings(points))
    crossings = _crossings(points, between)
    first = min((c for c in crossings if c.x is not None), key=lambda c: c.x or 0.0, default=None)
    return LinePart(
        low=between.low,
        high=between.high,
        interpolated=None if first is None else first.x,
        by="" if first is None else first.objective,
        crossings=crossings,
        attainment=_attainment(points),
        undecided=list(between.undecided),
        passes_above=list(between.passes_above),
    )


def _crossings(points: Sequence[SweepPoint], between: Bracket) -> list[CrossingPart]:
    low, high = between.low, between.high
    if low is None or high is None:
        return []
    inside = [point for point in points if point.measured and low <= point.x <= high]
    passing, last = next(p for p in points if p.x == low), inside[-1] if inside else None
    if last is None or last.x == low:
        why = "the first point that fails did not keep up: its figures depend on the length of the run"
        return [CrossingPart(objective=p.objective, x=None, why=why) for p in passing.objectives]
    made = []
    for index, promise in enumerate(passing.objectives):
        if promise.threshold is None or all(_holds(point, index) for point in inside):
            continue
        at = curve_of(points, _observed(index)).crossing(float(promise.threshold), low, last.x)
        why = "" if at is not None else "a point between has no finite figure, so the curve has a gap"
        made.append(CrossingPart(objective=promise.objective, x=at, why=why))
    return made


def _observed(index: int) -> Reading:
    return lambda point: point.objectives[index].observed if len(point.objectives) > index else None


def _holds(point: SweepPoint, index: int) -> bool:
    """Whether the figure itself keeps the limit, however sure that is."""
    if index >= len(point.objectives):
        return False
    promise = point.objectives[index]
    if promise.observed is None or promise.threshold is None:
        return False
    met = promise.observed <= promise.threshold
    return bool(met if promise.operator in ("<=", "<") else promise.observed >= promise.threshold)


def _attainment(points: Sequence[SweepPoint]) -> AttainmentPart | None:
    target = next(
        (
            float(p.threshold)
            for point in points
            for p in point.objectives
            if (p.statistic, p.indicator) == ("ratio", "good") and p.of_all and p.threshold is not None
        ),
        _ATTAINMENT,
    )
    shares = [p.good_fraction if p.outcome in _JUDGED else None for p in points]
    below = next((i for i, share in enumerate(shares) if share is not None and share < target), 0)
    # Where the endpoint did not keep up the share falls the longer the run lasts: a straight line to it may end above
    # saturation. Across a point that says nothing it may fall anywhere.
    if not below or points[below].unstable or shares[below - 1] is None:
        return None
    known = [(point.x, share) for point, share in zip(points, shares, strict=True) if share is not None]
    at = linear_crossing([x for x, _ in known], [share for _, share in known], target)
    return None if at is None else AttainmentPart(x=at, target=target)


def bend_of(points: Sequence[SweepPoint], x_name: str) -> BendPart | None:
    """The point of greatest distance: of throughput over a concurrency, else of a p99 over what grows."""
    kept = [point for point in points if point.measured]
    if kind_of(x_name) not in RISING:
        return None
    if kind_of(x_name) == "concurrency":
        known = [(p.x, p.achieved_per_s) for p in kept if p.achieved_per_s is not None]
        at = max_distance([x for x, _ in known], [y for _, y in known], "concave")
        return None if at is None else BendPart(x=at, of="requests/s")
    for name in times_of(points)[:1]:
        read = of_metric(name, "p99")
        values = [(p.x, y) for p in kept if (y := read(p)) is not None]
        at = max_distance([x for x, _ in values], [y for _, y in values], "convex")
        return None if at is None else BendPart(x=at, of=f"p99({name})")
    return None


def setting(name: str, value: Setting) -> str:
    """One setting of a series: ``max_batch 4``."""
    shown = f"{value:g}" if isinstance(value, float) else str(value)
    return f"{name.removeprefix('server.').removeprefix('option.')} {shown}"


def number(value: float) -> str:
    """A load in four digits, no zeros behind the point: 20, 12.5, 24.63."""
    return f"{value:.4g}" if abs(value) < 10_000 else f"{value:,.0f}"


def at(x: str, value: float) -> str:
    """One load: ``20/s``, ``8 in flight``, ``prompt_tokens 128``."""
    kind, brace, of_class = x.partition("{")
    if brace:
        return f"{at(kind, value)} {brace}{of_class}"
    if x == "rate":
        return f"{number(value)}/s"
    return f"{number(value)} in flight" if x == "concurrency" else setting(x, float(number(value).replace(",", "")))


def good(point: SweepPoint) -> float | None:
    """Its goodput, where limits say what a good request is."""
    return None if point.good_fraction is None else point.goodput_per_s
