"""The error budgets of a report: what each SLO's budget is, what the run spent of it, and which alerts would have fired.

Where something was not to be seen, the value is null and a text beside it says why; nothing here extrapolates, judges or formats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, Field

from plimsoll.reports.parts.parts import Number, Text, part
from plimsoll.slo.objectives.budgets.alerts import Budgeted
from plimsoll.slo.objectives.budgets.budget import Spending


class BurnWindow(BaseModel, frozen=True, extra="forbid"):
    """The worst of one look-back window, of all places where it lies inside the run."""

    window_ns: int
    observable: bool = Field(description="false: longer than the run, so nothing is said about it")
    max_burn: float | None = Field(default=None, description="the highest burn rate; null when not observable")
    max_at_ns: int | None = Field(default=None, description="end of the window that had it, after t0")


class AlertPart(BaseModel, frozen=True, extra="forbid"):
    """One alert: fires while the burn rates over both windows are on the wrong side of ``factor``.

    ``observable``: ``yes``: the run is as long as the long window; ``truncated``: as long as the short one, and the
    long one is cut at t0; ``no``: shorter than both, nothing was evaluated. ``fired``: true: it fires even if there
    were only good requests, as many per second as in the run, before t0; false (only where observable is ``yes``): it
    can't have fired while both windows were seen; null: not observable.
    """

    name: Text
    severity: Text
    factor: float
    operator: Literal[">", ">=", "<", "<="] = ">"
    long_ns: int
    short_ns: int = Field(description="equal to long_ns: a rule of one window")
    after_ns: int = Field(default=0, description="how long the condition must last before it fires")
    observable: Literal["yes", "truncated", "no"]
    reason: Text = Field(default="", description="why it is not observable, or what can be said nevertheless")
    fired: bool | None = None
    first_fired_at_ns: int | None = Field(default=None, description="after t0")
    resolved_at_ns: int | None = Field(default=None, description="null when it fired and did not end in the run")
    fired_alone_at_ns: int | None = Field(
        default=None, description="when it fires on a service that got no request before t0 (the long window cut there)"
    )
    held_back: bool = Field(
        default=False, description="the short window was seen whole and never crossed the factor: no alert since then"
    )
    max_burn_long: float | None = Field(default=None, description="cut at t0 where truncated")
    max_burn_short: float | None = Field(default=None, description="of whole short windows")
    detection_ns: int | None = Field(
        default=None, description="from the start of a constant error ratio like the run's to the alert; null: never"
    )


class BurnTimeline(BaseModel, frozen=True, extra="forbid"):
    """The run in equal parts, at most 300: ``burn[i]`` is the burn rate of the entries due in the part that ends at
    ``end_ns[i]`` (null: there were none), ``spent[i]`` the share of the period's budget that is spent by then.
    """

    start_ns: int = 0
    end_ns: list[int] = Field(default_factory=list)
    burn: list[float | None] = Field(default_factory=list)
    spent: list[float] = Field(default_factory=list)


class BudgetPart(BaseModel, frozen=True, extra="forbid"):
    """The error budget of one SLO: ``allowed`` bad entries of all over ``period_ns``.

    ``burn`` 1 spends exactly the budget in the period. A number is null where there was no data, and ``reason`` says so.
    """

    name: Text
    objective: Text = Field(description="the text under which the verdict judges it")
    target: float = Field(description="the good share that is promised")
    allowed: float = Field(description="the bad share that is allowed: 1 - target")
    period_ns: int
    budget_ns: int = Field(description="the budget as time: allowed * period_ns")
    entry: Literal["request", "gap", "word", "frame", "interim", "query", "slice"] = Field(
        description="what one entry is"
    )
    n: int = Field(description="entries")
    bad: float = Field(description="bad entries; not whole where an entry can be bad in part")
    span_ns: int = Field(description="the run: from t0 to the last due or done")
    covered_ns: int = Field(description="from t0 to the last entry: how long windows could look back")
    confidence: float = Field(description="of each bound of the intervals alone, one-sided")
    interval_method: Literal["Clopper-Pearson", "Chernoff-Hoeffding", "as the verdict", "none"]
    sli: float | None = Field(default=None, description="the good share in the run")
    sli_interval: tuple[Number, Number] = (None, None)
    burn: float | None = None
    burn_interval: tuple[Number, Number] = (None, None)
    spent_by_time: float | None = Field(default=None, description="share of the budget: burn * span_ns / period_ns")
    spent_by_events: float | None = Field(
        default=None, description="share of the budget: bad / (allowed * events of production in the period)"
    )
    production_per_s: float | None = Field(default=None, description="events per second in production, as given")
    no_events_reason: Text = Field(default="", description="why spent_by_events is null")
    remaining: float | None = Field(default=None, description="1 - spent_by_time; negative when overspent")
    exhausted_in_ns: int | None = Field(
        default=None, description="from a full budget, were production like the run: period_ns / burn; null: never"
    )
    affordable_share: float | None = Field(
        default=None, description="share of the period that may be like the run if the rest, as busy, has no bad entry"
    )
    policy: Text = Field(default="", description="where the alerts come from: the SLO, or a policy by name")
    timeline: BurnTimeline = BurnTimeline()
    windows: list[BurnWindow] = Field(default_factory=list)
    alerts: list[AlertPart] = Field(default_factory=list)
    reason: Text = Field(default="", description="why there is no SLI and no burn rate")


def budgets_part(found: Sequence[Budgeted]) -> list[BudgetPart]:
    """The budget of every SLO, in order."""
    return [_budget(one) for one in found]


def _budget(one: Budgeted) -> BudgetPart:
    seen = one.budget
    return part(
        BudgetPart,
        one,
        seen,
        interval_method=seen.method,
        sli_interval=seen.sli_interval or (None, None),
        burn_interval=seen.burn_interval or (None, None),
        timeline=_timeline(one.spending),
        windows=[part(BurnWindow, window, observable=window.max_burn is not None) for window in one.alerts.windows],
        alerts=[part(AlertPart, alert, alert.rule) for alert in one.alerts.alerts],
    )


def _timeline(seen: Spending) -> BurnTimeline:
    return BurnTimeline(
        end_ns=seen.end_ns.tolist(),
        burn=[None if burn != burn else float(f"{burn:.6g}") for burn in seen.burn.tolist()],
        spent=[float(f"{spent:.6g}") for spent in seen.spent.tolist()],
    )
