"""What a reader sees of a run's page: nothing runs off a telephone or a sheet of paper, the first screen holds what
decides, every text can be read on its ground, and no script is needed for any of it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from plimsoll.reports.format import formats
from plimsoll.slo.records.labels import LabelTable
from tests.e2e.chromium import CHROMIUM, Tab, chromium
from tests.e2e.page_picture import CONTRAST, OVERFLOW
from tests.unit.reports.made_reports import GOOD, records, rendered, report

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
CASES = ("pass", "fail", "invalid", "inconclusive", "latency_only", "all_failed", "nothing")


#: Tables wider than the box that they scroll in.
_CUT = """[...document.querySelectorAll('.scroll')].filter((node) => node.scrollWidth > node.clientWidth + 1)
  .map((node) => node.innerText.slice(0, 80))"""


async def _opened(tab: Tab, path: Path, width: int, height: int = 900, dark: bool = False) -> None:
    await tab.open(f"file://{path}", width, height, dark)
    await asyncio.sleep(0.15)


def _pages(folder: Path) -> dict[str, Path]:
    made = {}
    for name in CASES:
        made[name] = folder / f"{name}.html"
        made[name].write_bytes(rendered(name, "html"))
    made["classes"] = folder / "classes.html"
    classes = LabelTable.of({"class": ["batch" if i % 3 else "chat" for i in range(2000)]})
    made["classes"].write_bytes(formats()["html"].render(report(records(fail_every=90).labelled(classes), GOOD)))
    return made


def test_nothing_runs_off_a_telephone_a_tablet_or_a_sheet_of_paper(tmp_path: Path) -> None:
    async def look() -> None:
        async with chromium() as tab:
            for name, path in _pages(tmp_path).items():
                for width in (360, 768, 1200):
                    await _opened(tab, path, width)
                    if name != "nothing":
                        await tab.until("globalThis.plimsoll")
                        await tab.ask("plimsoll.select(0, 1)")
                    assert await tab.ask("document.documentElement.scrollWidth") <= width, (name, width)
                    assert await tab.ask(OVERFLOW) == [], (name, width)
                await tab.resize(794, 1123)
                await tab.call("Emulation.setEmulatedMedia", media="print")
                assert await tab.ask("document.documentElement.scrollWidth") <= 794, name
                for gone in (".window", ".brush"):  # a part that was brushed, and its mark
                    assert await tab.ask(f"document.querySelector('{gone}')?.getClientRects().length ?? 0") == 0, name
                assert await tab.ask(_CUT) == [], name  # nobody can scroll on paper
                await tab.call("Emulation.setEmulatedMedia", media="")

    asyncio.run(look())


def test_the_first_screen_holds_the_verdict_the_key_figures_and_what_was_broken(tmp_path: Path) -> None:
    async def look() -> dict[str, Any]:
        async with chromium() as tab:
            await _opened(tab, _pages(tmp_path)["fail"], 1200, 800)
            names = ("#verdict", ".tiles", ".broken")
            return {
                name: await tab.ask(f"document.querySelector('{name}').getBoundingClientRect().bottom")
                for name in names
            }

    found = asyncio.run(look())
    assert found["#verdict"] < found[".tiles"] < found[".broken"] < 800
    assert b"Where p99(ttft) \xe2\x89\xa4 120ms was broken" in rendered("fail", "html")
    assert b" was broken</span>" not in rendered("pass", "html")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_text_can_be_read_on_its_ground(dark: bool, tmp_path: Path) -> None:
    async def look() -> None:
        async with chromium() as tab:
            for name, path in _pages(tmp_path).items():
                await _opened(tab, path, 1200, 900, dark)
                if name != "nothing":
                    await tab.until("globalThis.plimsoll")
                    await tab.ask("plimsoll.select(0, 2)")
                assert await tab.ask(CONTRAST) == [], name

    asyncio.run(look())


def test_without_scripts_the_page_has_its_charts_and_no_empty_panel(tmp_path: Path) -> None:
    async def look() -> None:
        async with chromium() as tab:
            await tab.call("Emulation.setScriptExecutionDisabled", value=True)
            await _opened(tab, _pages(tmp_path)["fail"], 1200)
            assert await tab.ask("document.querySelector('#window').getClientRects().length") == 0
            assert await tab.ask("document.querySelectorAll('.strip svg').length") > 8

    asyncio.run(look())
