"""The page of a run that broke a promise looks as it did, in light, in dark, on a telephone and on paper: its picture
is compared with a kept one, and each kind of defect is planted to show that it would be seen. ``--update-golden``
keeps the pictures of today.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import GOLDEN
from tests.e2e.chromium import CHROMIUM, chromium
from tests.e2e.page_picture import MODES, Look, differences, kept, look, of_blocks, of_pictures
from tests.unit.reports.made_reports import rendered

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="NO CHROMIUM ON THIS HOST: NOBODY LOOKED AT THE PAGE")
PAGES = GOLDEN / "pages"
MOST_BYTES = 45_000

#: A defect, the mode in which somebody would meet it, and who sees it where the fonts are others.
DEFECTS = {
    "a section is gone": ("light", "section:nth-of-type(4) {display: none}", "blocks"),
    "a section is empty": ("print", "section:nth-of-type(4) > div {visibility: hidden}", "blocks"),
    "tiles run off a telephone": ("phone", ".tiles {width: 700px}", "blocks"),
    "a table pushes the page": ("phone", ".scroll {overflow: visible} .scroll table {width: 900px}", "unread"),
    "cards overlap": ("light", ".charts > * {margin-right: -90px}", "blocks"),
    "dark text on a dark ground": ("dark", ":root {--ink: #20242a}", "unread"),
    "soft text is too soft": ("dark", ":root {--soft: #3a4048}", "unread"),
    "pale text on paper": ("print", ":root {--soft: #c8c8c8; --ink: #aaa}", "unread"),
    "charts lost their lines": ("light", "path.line {display: none}", "blocks"),
    "a limit is not drawn": ("light", ".limit {visibility: hidden}", "blocks"),
    "the verdict's sign is gone": ("phone", ".seal {visibility: hidden}", ""),
    "a column of figures is gone": ("print", ".metrics td:nth-child(4) {visibility: hidden}", ""),
}  # fmt: skip
#: Fonts of a host with others: narrow and with serifs, and wide.
FONTS = {"narrow": "Liberation Serif, Times New Roman, serif", "wide": "DejaVu Sans Mono, Courier New, monospace"}


def _kept(mode: str) -> Look:
    told = json.loads((PAGES / "fail.json").read_text())
    return kept((PAGES / f"fail-{mode}.png").read_bytes(), told[mode])


def _look(folder: Path, asked: Mapping[str, tuple[str, str]], pictured: bool = True) -> dict[str, Look]:
    """By name, what is seen in a mode with rules planted."""
    path = folder / "page.html"
    path.write_bytes(rendered("fail", "html"))

    async def see() -> dict[str, Look]:
        async with chromium() as tab:
            return {name: await look(tab, path, MODES[mode], css, pictured) for name, (mode, css) in asked.items()}

    return asyncio.run(see())


def test_the_page_looks_as_it_did(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    seen = _look(tmp_path, {mode: (mode, "") for mode in MODES})
    if request.config.getoption("--update-golden"):
        PAGES.mkdir(exist_ok=True)
        told: dict[str, Any] = {mode: {"fonts": one.fonts, "blocks": one.blocks} for mode, one in seen.items()}
        (PAGES / "fail.json").write_text(json.dumps(told, ensure_ascii=False).replace("], [", "],\n[") + "\n")
        for mode, one in seen.items():
            (PAGES / f"fail-{mode}.png").write_bytes(one.png)
    found = {}
    for mode, one in seen.items():
        (tmp_path / f"{mode}.png").write_bytes(one.png)
        if told_of := differences(one, _kept(mode)):
            found[mode] = told_of[:8]
    assert found == {}, f"what is seen now: {tmp_path}; look at it, then keep it with --update-golden"
    assert all(len(one.png) <= MOST_BYTES for one in seen.values())


def test_planted_defects_are_seen(tmp_path: Path) -> None:
    seen = _look(tmp_path, {name: (mode, css) for name, (mode, css, _) in DEFECTS.items()})
    for name, (mode, _, elsewhere) in DEFECTS.items():
        now, was = seen[name], _kept(mode)
        assert differences(now, was), name
        assert of_pictures(now.picture, was.picture), name
        if elsewhere:
            assert of_blocks(now.blocks, was.blocks) if elsewhere == "blocks" else now.unread, name


def test_a_host_with_other_fonts_compares_blocks(tmp_path: Path) -> None:
    rules = {name: f"* {{font-family: {fonts} !important}}" for name, fonts in FONTS.items()}
    asked = {(name, mode): (mode, css) for name, css in rules.items() for mode in MODES}
    defect = DEFECTS["tiles run off a telephone"][1]
    more = {"bad": ("phone", rules["narrow"] + defect)}
    seen = _look(tmp_path, {" ".join(key): value for key, value in asked.items()} | more, pictured=False)
    for name, mode in asked:
        now, was = seen[f"{name} {mode}"], _kept(mode)
        assert now.fonts != was.fonts
        assert differences(now, was) == []
    assert differences(seen["bad"], _kept("phone"))
