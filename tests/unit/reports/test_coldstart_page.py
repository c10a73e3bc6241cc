"""Every format says what the document holds, escapes what is the user's, and draws even where there is nearly nothing."""

from __future__ import annotations

import json

from plimsoll.reports.documents.coldstart import FORMATS
from plimsoll.reports.models.coldstart_parts import ColdstartReport, RepeatPart, SpreadPart

S = 1_000_000_000


def repeat(number: int, **changed: object) -> RepeatPart:
    fields: dict[str, object] = {
        "number": number, "complete": True, "port_ns": S, "ready_ns": 2 * S, "first_status": "OK", "first_ttft_ns": S // 10,
        "first_latency_ns": S // 5, "first_answer_ns": 2 * S + S // 10, "steady_ns": 3 * S, "steady_after": 7,
        "steady_level_ns": S // 100, "curve": [(1, S // 5), (2, None), (3, S // 100)], "requests": 3, "failed": 1,
    }  # fmt: skip
    return RepeatPart.model_validate({**fields, **changed})


def report(*repeats: RepeatPart, spreads: bool = True) -> ColdstartReport:
    ready = SpreadPart(
        quantity="ready", n=2, median=2e9, least=2e9, greatest=3e9, first=3e9, later=2e9, first_differs=True, interval=None,
        range_confidence=0.5,
    )  # fmt: skip
    return ColdstartReport(
        outcome="MEASURED", exit_code=0, start="serve <model> | tee log", url="http://127.0.0.1:1", wanted=2, repeats=list(repeats),
        spreads=[ready] if spreads else [], warnings=["beware of <this>"],
    )  # fmt: skip


def test_every_format_says_when_it_was_ready_and_how_sure_that_is() -> None:
    found = {name: render(report(repeat(1), repeat(2))).decode() for name, render in FORMATS.items()}
    assert set(found) == {"annotations", "html", "json", "junit", "markdown", "text"}
    for name in ("html", "markdown", "text"):
        assert "2.00 s" in found[name]
        assert "takes 6 repeats" in " ".join(found[name].split())
    assert json.loads(found["json"])["spreads"][0]["first_differs"]


def test_the_users_command_is_escaped_and_the_page_fetches_nothing() -> None:
    page = FORMATS["html"](report(repeat(1), repeat(2))).decode()
    assert "serve &lt;model&gt;" in page
    assert "<model>" not in page
    assert "<this>" not in page
    assert "src=" not in page
    assert "<b>3.00 s</b>" in page  # the first start lies beyond the others
    assert "steady from request 8" in page


def test_one_start_that_was_cut_short_still_makes_a_page() -> None:
    bare = RepeatPart(number=1, complete=False)
    for render in FORMATS.values():
        assert render(report(bare, spreads=False))
    failed = repeat(1, curve=[(1, None)], steady_after=None, steady_level_ns=None, steady_ns=None, first_answer_ns=None)
    assert b"Latency by request" not in FORMATS["html"](report(failed))
