"""A part of a run that is brushed in the page is judged as Python would: the same percentiles to the last digit, the
same counts, bounds and verdicts, of pages that hold every request and of pages that hold counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plimsoll.reports.format import formats
from plimsoll.reports.parts import window as columns
from plimsoll.reports.parts.window import Window
from plimsoll.reports.report import build
from plimsoll.reports.wording import units
from plimsoll.slo.judge import judge
from plimsoll.slo.objectives.objective import Objective, parse
from plimsoll.slo.objectives.objective_verdict import ObjectiveVerdict, beyond
from plimsoll.slo.promises import Promises
from plimsoll.slo.records.labels import LabelTable
from plimsoll.slo.records.records import FloatArray, Records
from plimsoll.slo.statistics import share
from plimsoll.slo.statistics.distance import Distance
from plimsoll.slo.statistics.distribution import quantile
from plimsoll.slo.statistics.memory import LEAST, blocks_of, independent
from plimsoll.slo.statistics.order import Entries
from tests.e2e.chromium import CHROMIUM, Tab, chromium
from tests.memory_held import memory_held
from tests.unit.reports.made_reports import MANIFEST, SCENARIO, facts, records

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
GOALS = (
    "p99(ttft) <= 200ms",
    "p50(latency) <= 300ms",
    "p90(ttft) <= 3s",
    "ratio(good) >= 97%",
    "ratio(error) <= 1%",
    "ttft <= 250ms",
)


def page(made: Records, goals: Sequence[str], path: Path, held: bool = False) -> Window:
    """The page of these records, written to a file, and what is in it."""
    with memory_held() if held else nullcontext():
        told = judge(made, facts(made), Promises(tuple(parse(text) for text in goals)))
    report = build(MANIFEST, SCENARIO, made, told)
    path.write_bytes(formats()["html"].render(report))
    assert report.window is not None
    return report.window


def inside(window: Window, name: str, begin: int, end: int, group: int = 0) -> FloatArray:
    """What the requests due in some buckets of the timeline had, in order of due time; ``group``: those of one value of
    the label.
    """
    one = next(one for one in window._series if one.name == name)
    timeline = window.timeline
    place = np.clip((window.records["due_ns"] - timeline.start_ns) // timeline.bucket_ns, 0, len(timeline.due) - 1)
    chosen = ((place >= begin) & (place < end) & ((window._group == group) | (group == 0)))[one.row]
    order = np.argsort(window._order[one.row[chosen]], kind="stable")
    return one.values[chosen][order]


def expected(
    window: Window, one: ObjectiveVerdict, begin: int, end: int, group: int = 0
) -> tuple[share.ShareTest, Any, float]:
    """(the test, the bounds and the observed value) of an objective in a part, with the memory of the whole run."""
    objective = one.objective
    assert isinstance(objective, Objective)
    assert one.memory is not None
    assert objective.allowed is not None
    values = inside(window, objective.indicator, begin, end, group)
    growing = window.judged.validity.unstable is not None
    if objective.indicator == "error":
        test = share.weigh(share.counted(values > 0, growing), objective.allowed)
        return test, test.interval, test.bad / test.n
    n = len(values)
    memory = replace(one.memory, requests=n) if n >= LEAST else independent(n)
    lost = np.isinf(values)
    laid = share.Series(
        Entries((values, None)),
        None,
        np.ones(n, np.int64),
        memory,
        growing,
        blocks_of(lost) if lost.any() else None,
    )
    if objective.statistic == "ratio":
        seen = laid.beyond(share.Beyond(">", 1.0), laid.errors)
        test = share.weigh(seen, objective.allowed, far=Distance(laid.entries.ordered, memory))
        low, high = test.interval
        return test, (1 - high, 1 - low), 1 - test.bad / test.n
    far = Distance(np.asarray(laid.entries.ordered) / objective.threshold, memory)
    test = share.weigh(laid.beyond(beyond(objective), laid.errors), objective.allowed, far=far)
    p = objective.quantile
    assert p is not None
    return test, share.bounds(laid, p, scaled=True), quantile(laid.entries.ordered, p)


def cut(n: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """The whole run, its first bucket, its last ones and some others."""
    pairs = [sorted(rng.choice(n + 1, 2, replace=False).tolist()) for _ in range(8)]
    return [(0, n), (0, 1), (n - 3, n), *((int(a), int(b)) for a, b in pairs)]


async def looked_at(path: Path, ask: Sequence[str]) -> list[Any]:
    async with chromium() as tab:
        await opened(tab, path)
        found = [await tab.ask(text) for text in ask]
        assert tab.problems == []
        return found


async def opened(tab: Tab, path: Path, width: int = 1200) -> None:
    await tab.open(f"file://{path}", width, 900)
    await tab.until("globalThis.plimsoll")


#: Infinite numbers are no JSON.
_ASK = "JSON.parse(JSON.stringify({0}, (k, v) => v === Infinity ? 'inf' : v))"


@pytest.mark.parametrize(
    ("held", "n", "rows", "fail_every", "queue_s"),
    [
        (False, 3_000, None, 70, 0),
        (True, 3_000, None, 70, 0),
        (False, 900, None, 0, 0),
        (True, 60_000, 1_000, 400, 0),
        (False, 2_000, None, 300, 2),
    ],
    ids=["every request", "independent", "none failed", "counts", "a backlog that grows"],
)
def test_a_part_is_judged_in_the_page_as_in_python(
    held: bool, n: int, rows: int | None, fail_every: int, queue_s: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if rows is not None:
        monkeypatch.setattr(columns, "ROWS", rows)
    made = records(n, rate=n / 60, fail_every=fail_every, slow=1.3, lag_ns=0, queue_ns=queue_s * 10**9)
    window = page(made, GOALS, tmp_path / "page.html", held)
    width = columns.BUCKET if rows else 0.0
    parts = cut(len(window.timeline.due), np.random.default_rng(7))
    asked = [_ASK.format(f"[plimsoll.judge({a}, {b}), plimsoll.measure({a}, {b})]") for a, b in parts]
    found = asyncio.run(looked_at(tmp_path / "page.html", asked))
    outcomes = set()
    for (begin, end), (goals, metrics) in zip(parts, found, strict=True):
        if not len(inside(window, "error", begin, end)):  # nothing was due: nothing is known, and nothing passes
            assert {one["outcome"] for one in goals} == {"INCONCLUSIVE"}
            continue
        for one in metrics:
            values = inside(window, one["name"], begin, end)
            step = next(told["step"] for told in window.block["series"] if told["name"] == one["name"])
            assert one["n"] == len(values)
            for p, told in zip(("0.5", "0.9", "0.99", "0.999"), one["p"], strict=True):
                exactly = quantile(np.sort(values), p)
                shown = float(told)
                if rows is None and np.isfinite(exactly):
                    assert shown == np.ceil(np.round(exactly / step, 6)) * step
                else:
                    assert exactly == shown or exactly <= shown <= exactly * (1 + width) + 2 * step
        tests = [expected(window, one, begin, end) for one in window.judged.verdict.objectives]
        fails = sorted(test.p_fail for test, _, _ in tests)
        for goal, (test, bounds, observed) in zip(goals, tests, strict=True):
            assert "why" not in goal, goal
            assert (goal["n"], goal["bad"]) == (test.n, test.bad)
            near = 0.02 if rows else 1e-4
            assert goal["many"] == pytest.approx(test.p_fail, rel=near, abs=1e-9)
            assert goal["few"] == pytest.approx(test.p_pass, rel=near if not rows else 0.2, abs=1e-9)
            ends = [float(value) for value in (goal["observed"], *goal["interval"])]
            assert ends == pytest.approx([observed, *bounds], rel=near, abs=2e-3 if goal["ratio"] else 2_000)
            stands = all(p * (len(fails) - place) <= 0.05 for place, p in enumerate(fails) if p <= test.p_fail)
            wanted = "INCONCLUSIVE" if test.outcome == "FAIL" and not stands else test.outcome
            close = min(abs(test.p_pass - 0.05), abs(test.p_fail - 0.05)) < 1e-3
            assert goal["outcome"] == wanted or (rows and close)
            outcomes.add(goal["outcome"])
    assert len(outcomes) > 1


@pytest.mark.parametrize("rows", [None, 500], ids=["every request", "counts"])
def test_a_class_is_judged_in_the_page_as_in_python(
    rows: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if rows is not None:
        monkeypatch.setattr(columns, "ROWS", rows)
    n = 4_000
    goals = ("p90(latency{class=chat}) <= 300ms", "p50(latency) <= 300ms", "ratio(error{class=batch}) <= 5%")
    names = ["batch" if i % 3 == 0 else "chat" for i in range(n)]
    made = records(n, rate=100, fail_every=90, lag_ns=0).labelled(LabelTable.of({"class": names}))
    window = page(made, (*goals, "p50(ttft{prompt_tokens>=100}) <= 10s"), tmp_path / "page.html", held=True)
    assert window.block["values"] == ["batch", "chat"]
    parts = [(0, len(window.timeline.due)), (3, 11), (20, 21)]
    asked = [_ASK.format(f"plimsoll.judge({a}, {b}, {group})") for a, b in parts for group in (0, 2)]
    found = iter(asyncio.run(looked_at(tmp_path / "page.html", asked)))
    for begin, end in parts:
        for group in (0, 2):
            chat, both, batch, turns = next(found)
            assert "doesn't tell apart" in turns["why"]
            told = [(chat, 2), (both, group), *([] if group else [(batch, 1)])]
            for place, (goal, about) in enumerate(told):
                test, _, observed = expected(window, window.judged.verdict.objectives[place], begin, end, about)
                assert (goal["n"], goal["bad"]) == (test.n, test.bad)
                assert goal["many"] == pytest.approx(test.p_fail, rel=0.02 if rows else 1e-4, abs=1e-9)
                assert float(goal["observed"]) == pytest.approx(observed, rel=0.01 if rows else 1e-4)
            assert not group or "not about chat" in batch["why"]


def test_a_fail_stands_in_the_page_only_where_it_does_among_all_objectives(tmp_path: Path) -> None:
    made = records(3_000, fail_every=90, lag_ns=0)
    goals = ["ratio(error) <= 0.75%", *(f"p95(ttft) < {900 + i}ms" for i in range(6))]
    found = []
    for some in (goals[:1], goals):
        window = page(made, some, tmp_path / "page.html", held=True)
        asked = f"plimsoll.judge(0, {len(window.timeline.due)})"
        ((goal, *others),) = asyncio.run(looked_at(tmp_path / "page.html", [_ASK.format(asked)]))
        assert all("why" in one for one in others)
        assert goal["many"] == pytest.approx(window.judged.verdict.objectives[0].p_fail, rel=1e-4)
        found.append((goal["outcome"], window.judged.verdict.objectives[0].outcome))
    assert found == [("FAIL", "FAIL"), ("INCONCLUSIVE", "INCONCLUSIVE")]


def test_numbers_are_written_in_the_page_as_everywhere(tmp_path: Path) -> None:
    page(records(200), (), tmp_path / "page.html")
    rng = np.random.default_rng(3)
    times = [0, 1, 999, 1_125_000, 999_500, 1_125_000_000, 2_500, 600_000_000_000, 5_400_000_000_000]
    times += np.round(10 ** rng.uniform(0, 13, 400)).astype(int).tolist()
    shares = [0.0, 1.0, 0.99996, 0.0012345, *rng.uniform(0, 1, 200).tolist(), *(10 ** rng.uniform(-6, 0, 100)).tolist()]
    asked = [f"{times}.map(plimsoll.words.duration)", f"{shares}.map(plimsoll.words.percent)"]
    assert asyncio.run(looked_at(tmp_path / "page.html", asked)) == [
        [units.duration(one) for one in times],
        [units.percent(one) for one in shares],
    ]


def test_a_window_is_dragged_over_a_chart_kept_in_the_address_and_cleared(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    page(records(2_000, fail_every=90), GOALS, path)
    shown = "document.querySelector('#window h3').textContent"

    async def play() -> None:
        async with chromium() as tab:
            await opened(tab, path)
            assert await tab.ask(shown) == "The whole run"
            await tab.ask("document.querySelector('.brushable.wide').scrollIntoView({block: 'center'})")
            box = await tab.ask(
                "(({left, top, width}) => [left, top, width])"
                "(document.querySelector('.brushable.wide svg').getBoundingClientRect())"
            )
            for kind, at in (("mousePressed", 0.3), ("mouseMoved", 0.5), ("mouseReleased", 0.5)):
                place = {"x": box[0] + at * box[2], "y": box[1] + 60}
                await tab.call("Input.dispatchMouseEvent", type=kind, button="left", buttons=1, clickCount=1, **place)
            assert " to " in await tab.ask(shown)
            chosen = await tab.ask("location.hash")
            assert chosen.startswith("#t=")
            assert await tab.ask("document.querySelectorAll('#window .chip').length") == len(GOALS) - 1
            told = await tab.ask("document.querySelector('#window').innerText")
            await opened(tab, Path(f"{path}{chosen}"))  # as somebody does who was sent the address
            assert await tab.ask("document.querySelector('#window').innerText") == told
            await tab.ask("document.querySelector('#window button').click()")
            assert await tab.ask(shown) == "The whole run"
            assert await tab.ask("location.hash") == ""
            node = "document.querySelector('.brushable.wide')"
            await tab.ask(f"{node}.dispatchEvent(new KeyboardEvent('keydown', {{key: 'ArrowRight', shiftKey: true}}))")
            assert (await tab.ask("location.hash")) == "#t=0-1"
            assert tab.problems == []

    asyncio.run(play())


_KEYS = {"Tab": 9, "ArrowLeft": 37, "ArrowRight": 39, "Escape": 27}


async def _press(tab: Tab, key: str, shift: bool = False) -> None:
    for kind in ("rawKeyDown", "keyUp"):
        more = {"key": key, "code": key, "windowsVirtualKeyCode": _KEYS[key], "modifiers": 8 * shift}
        await tab.call("Input.dispatchKeyEvent", type=kind, **more)


def test_whoever_has_keys_only_chooses_a_part_and_a_class_and_keeps_the_place(tmp_path: Path) -> None:
    names = ["<b>batch</b>" if i % 3 == 0 else "chat" for i in range(2_000)]
    path = tmp_path / "page.html"
    page(records(2_000, fail_every=90).labelled(LabelTable.of({"class": names})), GOALS, path)
    at, shown = "document.activeElement", "document.querySelector('#window h3').textContent"

    async def play() -> None:
        async with chromium() as tab:
            await opened(tab, path)
            await tab.ask("document.body.focus()")
            for _ in range(60):  # to the first chart over the run's time
                await _press(tab, "Tab")
                if await tab.ask(f"{at}.classList.contains('brushable')"):
                    break
            for _ in range(3):
                await _press(tab, "ArrowRight", shift=True)
            assert await tab.ask("location.hash") == "#t=0-3"
            await _press(tab, "ArrowLeft", shift=True)
            assert await tab.ask("location.hash") == "#t=0-2"
            await _press(tab, "Escape")
            assert await tab.ask(shown) == "The whole run"
            at_0 = int(await tab.ask(f"{at}.querySelector('svg').dataset.at"))
            for _ in range(6):
                await _press(tab, "ArrowRight")
            assert await tab.ask("location.hash") == ""
            for _ in range(2):  # from where the read-out stands
                await _press(tab, "ArrowRight", shift=True)
            assert await tab.ask("location.hash") == f"#t={at_0 + 6}-{at_0 + 9}"
            assert "requests due" in await tab.ask("document.querySelector('#said').textContent")
            await _press(tab, "Escape")
            await tab.ask("document.querySelector('#window select').focus()")
            for place in (1, 2):
                await tab.ask(f"{at}.value = '{place}', {at}.dispatchEvent(new Event('change'))")
                assert await tab.ask(f"{at}.tagName") == "SELECT"  # a new one, and the keys go on there
            assert await tab.ask(shown) == "The whole run, class chat"
            address = await tab.ask("location.hash")
            assert address.endswith(",2")
            await tab.ask("location.hash = '#t=1-3,1'")  # as a link in a chat does, or the way back
            await tab.until(f"{shown}.endsWith('class <b>batch</b>')")
            told = await tab.ask("document.querySelector('#window').innerText")
            await opened(tab, Path(f"{path}#t=1-3,1"))
            assert await tab.ask("document.querySelector('#window').innerText") == told
            await tab.ask("document.querySelector('#window button').focus()")
            await tab.ask(f"{at}.click()")
            assert await tab.ask(f"{at}.tagName") == "SELECT"
            for wrong in ("#t=9-1", "#t=0-0,99", "#t=99999-999999", "#t=-1-5", "#t=1-3,", "#nothing"):
                await opened(tab, Path(f"{path}{wrong}"))
                assert await tab.ask(shown) == "The whole run", wrong
            assert tab.problems == []

    asyncio.run(play())


def test_the_same_run_gives_the_same_page(tmp_path: Path) -> None:
    for name in ("one", "two"):
        page(records(2_000, fail_every=90), GOALS, tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
