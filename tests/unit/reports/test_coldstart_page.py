"""Every format says what the document holds, escapes what is the user's, and draws even where there is nearly
nothing.
"""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

from plimsoll.reports.documents.coldstart import FORMATS, ColdstartReport, GoalPart, RepeatPart, SpreadPart

S = 1_000_000_000


def repeat(number: int, **changed: object) -> RepeatPart:
    fields: dict[str, object] = {
        "number": number, "complete": True, "port_ns": S, "ready_ns": 2 * S, "first_status": "OK",
        "first_ttft_ns": S // 10,
        "first_latency_ns": S // 5, "first_answer_ns": 2 * S + S // 10, "steady_ns": 3 * S, "steady_after": 7,
        "steady_level_ns": S // 100, "curve": [(1, S // 5), (2, None), (3, S // 100)], "requests": 3, "failed": 1,
    }  # fmt: skip
    return RepeatPart.model_validate({**fields, **changed})


def report(*repeats: RepeatPart, spreads: bool = True) -> ColdstartReport:
    ready = SpreadPart(
        quantity="ready", n=2, median=2e9, least=2e9, greatest=3e9, first=3e9, later=2e9, first_differs=True,
        interval=None,
        range_confidence=0.5,
    )  # fmt: skip
    return ColdstartReport(
        outcome="MEASURED", exit_code=0, start="serve <model> | tee log", url="http://127.0.0.1:1", wanted=2,
        repeats=list(repeats),
        spreads=[ready] if spreads else [], warnings=["beware of <this>"],
    )  # fmt: skip


def test_every_format_says_when_it_was_ready_and_how_sure_that_is() -> None:
    found = {name: render(report(repeat(1), repeat(2))).decode() for name, render in FORMATS.items()}
    assert set(found) == {"annotations", "csv", "html", "json", "junit", "markdown", "text"}
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


def test_an_objective_that_was_broken_is_a_case_an_annotation_and_in_the_banner() -> None:
    goals = [
        GoalPart(objective="ready <= 1ms", outcome="FAIL", worst=3e9, kept=0, of=2),
        GoalPart(objective="first_ttft <= 10s", outcome="PASS", worst=1e8, kept=2, of=2),
    ]
    made = report(repeat(1), repeat(2)).model_copy(update={"goals": goals, "outcome": "FAIL", "exit_code": 1})
    cases = ET.fromstring(FORMATS["junit"](made)).findall(".//testcase")
    assert [case.get("name") for case in cases] == ["ready <= 1ms", "first_ttft <= 10s"]
    assert [[child.tag for child in case] for case in cases] == [["failure"], []]
    lines = FORMATS["annotations"](made).decode().splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["::error", "::notice"]
    assert "ready <= 1ms: kept in 0 of 2 starts, worst 3.00 s" in " ".join(FORMATS["text"](made).decode().split())
    stopped = made.model_copy(update={"outcome": "UNREACHABLE"})
    assert ET.fromstring(FORMATS["junit"](stopped)).get("errors") == "1", "greener than the whole"


def test_markdown_has_the_starts_the_url_and_the_command() -> None:
    made = report(repeat(1), repeat(2)).model_copy(update={"command": "plimsoll coldstart --slo 'ready <= 1s'"})
    text = FORMATS["markdown"](made).decode()
    assert "first TTFT" in text
    assert "127.0.0.1:1" in text
    assert "`plimsoll coldstart --slo 'ready <= 1s'`" in text


def test_phases_that_a_server_tells_of_are_over_the_complete_starts_that_have_them() -> None:
    told = {"weights": S, "warm_up": S // 4}
    made = report(
        repeat(1, phases=told), repeat(2, phases={"weights": S // 2}), repeat(3, phases=told, complete=False), repeat(4)
    )
    text = FORMATS["text"](made).decode()
    rows = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.startswith(("weights", "warm_up"))}
    assert " ".join(rows["weights"]) == "750 ms 500 ms 1.00 s 38 %"
    assert " ".join(rows["warm_up"]) == "250 ms 250 ms 250 ms 12 %"
    assert json.loads(FORMATS["json"](made))["repeats"][0]["phases"] == told
    bare = {name: render(report(repeat(1))) for name, render in FORMATS.items()}
    assert b"Inside the server" not in bare["text"]
    assert b'"phases"' not in bare["json"]
