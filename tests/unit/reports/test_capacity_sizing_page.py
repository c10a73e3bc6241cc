"""Every format of a capacity plan says the answer and what it rests on; the page escapes and draws both quantiles."""

from __future__ import annotations

import json

from rich.console import Console

from plimsoll.reports.documents import capacity as say
from plimsoll.reports.documents.capacity import (  # fmt: skip
    FORMATS,
    AgainstPart,
    CapacityPart,
    CapacityReport,
    CostPart,
    LittlePart,
    LoadPart,
    QueuePart,
    RowPart,
    SafePart,
    SizedPart,
)

MS = 1e6


def plan() -> CapacityReport:
    sized = SizedPart(
        capacity_per_s=120, replicas=12, by_headroom=12, by_one_down=11, binding="headroom", utilisation=0.694, one_down=0.758,  # noqa: E501
        per_hour=43.2,
    )  # fmt: skip
    against = [AgainstPart(model="M/M/1", utilisation=1.2, p50=None, p99=None)]
    loads = [
        LoadPart(run="a", rate_per_s=50, n=100, failed=0, stable=True, pin=True, p50_ns=8 * MS, p99_ns=20 * MS),
        LoadPart(run="<b>", rate_per_s=150, n=100, failed=3, stable=True, pin=False, p50_ns=9 * MS, p99_ns=None, against=against),  # noqa: E501
    ]  # fmt: skip
    return CapacityReport(
        outcome="SIZED", exit_code=0, folder="s", kind="search", name="chat <x>", objectives=["p99(ttft) <= 200ms"],
        capacity=CapacityPart(low=120, best=125, high=130), target_per_s=1000, headroom=0.7, one_down=0.85,
        safe=SafePart(per_s=84), sized=sized, sized_high=sized.model_copy(update={"replicas": 11, "per_hour": 39.6}),
        rows=[RowPart(replicas=12, utilisation=0.694, one_down=0.758, headroom_kept=True, one_down_kept=True, per_hour=43.2)],  # noqa: E501
        price_per_hour=3.6, currency="USD",
        costs=[CostPart(per="requests", full=11.9, full_range=(11.0, 11.9), target=12.0, target_range=None)],
        laws=[LittlePart(run="a", view="response", mean=1.0, product=2.0, bound=0.1, wrong="L and lambda W are 1 apart")],  # noqa: E501
        loads=loads, queues=[QueuePart(model="M/M/1", servers=1, service_ns=8 * MS, limit_per_s=125, curve=[(50, 8e6, 3e7)])],  # noqa: E501
    )  # fmt: skip


def test_every_format_gives_the_fleet_the_rule_and_the_cost() -> None:
    found = {name: " ".join(render(plan()).decode().split()) for name, render in FORMATS.items()}
    dated = plan().model_copy(update={"started_at": "2026-11-21T12:00:00+00:00"})
    assert "2026-11-21 12:00:00 UTC" in FORMATS["html"](dated).decode()
    assert set(found) == {"annotations", "csv", "html", "json", "junit", "markdown", "text"}
    for name in ("html", "markdown", "text"):
        assert "12 replicas for 1,000/s" in found[name]
        assert "the first decides" in found[name]
        assert "costs up to 1 replica, 3.60 USD an hour" in found[name]
        assert "12.00" in found[name]
        assert "USD" in found[name]
        assert "do not trust these logs" in found[name]
    assert json.loads(found["json"])["capacity"]["low"] == 120


def test_no_number_of_the_costs_is_cut_short_at_80_columns() -> None:
    costs = [
        CostPart(per=per, full=0.0285, full_range=(0.0142, 0.0285), target=12345.67, target_range=(1166.67, 12345.67))
        for per in ("requests", "good_requests", "output_tokens", "input_tokens")
    ]
    console = Console(width=80)
    with console.capture() as printed:
        console.print(FORMATS.terminal(plan().model_copy(update={"costs": costs}), 80))
    text = printed.get()
    assert text.count("0.0142 to 0.0285") == 4
    assert text.count(say.cost_range((1166.67, 12345.67))) == 4
    assert "…" not in text


def test_a_model_that_could_not_carry_what_was_carried_is_named() -> None:
    text = " ".join(FORMATS["text"](plan()).decode().split())
    assert "M/M/1 is full at 125/s, and the endpoint kept up with 150/s: it is no such queue" in text
    assert "has no steady state" in text
    assert "no gate" in text


def test_the_page_escapes_and_draws_both_quantiles() -> None:
    page = FORMATS["html"](plan()).decode()
    assert "Latency, p50" in page
    assert "Latency, p99" in page
    assert "chat &lt;x&gt;" in page
    assert "<x>" not in page
    assert "<b>:" not in page
    assert "Little's law is violated" in page.replace("&#39;", "'")


def test_no_capacity_is_said_in_every_format() -> None:
    nothing = CapacityReport(
        outcome="NONE", exit_code=3, reasons=["the search ended NONE"], folder="s", kind="search", name="chat", target_per_s=10,  # noqa: E501
        headroom=0.7, one_down=0.85,
    )  # fmt: skip
    for name, render in FORMATS.items():
        assert "the search ended NONE" in render(nothing).decode(), name
