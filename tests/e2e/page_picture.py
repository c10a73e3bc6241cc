"""A page as a reader sees it, made small enough to keep: its picture in quarter size and 16 greys, and where its blocks
are. Both are compared with what was kept.

Pictures are compared where a probe finds the fonts of the kept ones. Other fonts give every text another size, and the
blocks are compared instead: their order, left edges and widths, what is drawn in each chart and how high it is, and
whether every text can be read. Never is nothing compared.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from tests.e2e.chromium import Tab

#: Pixels of the page to one of the kept picture, on each side; greys of it.
SMALL, GREYS = 4, 16
#: Tiles of so many kept pixels on each side are compared by their means, in parts of white, each with the picture moved
#: up or down by up to ``MOVED``: a browser that sets letters elsewhere breaks a line more or less. Such a browser moves
#: two means by up to 0.035, a chart without its limit twelve by up to 0.056, a sign that is gone three by 0.14. More
#: tiles than ``TILES`` beyond ``MEAN``, or one beyond twice that, are a difference.
TILE, MEAN, TILES, MOVED = 8, 0.03, 3, 2
#: Pixels by which an edge, a width, or the height of a drawing may differ.
NEAR = 3


@dataclass(frozen=True, slots=True)
class Mode:
    """How the page is looked at."""

    width: int
    dark: bool = False
    media: str = ""


MODES: Mapping[str, Mode] = {
    "light": Mode(1200),
    "dark": Mode(1200, dark=True),
    "phone": Mode(390),
    "print": Mode(794, media="print"),
}

#: What runs off the right side of the window.
OVERFLOW = """[...document.querySelectorAll('body *')].filter((node) => {
  const box = node.getBoundingClientRect();
  return box.right > innerWidth + 1 && box.width && !node.closest('.scroll, svg, pre');
}).map((node) => node.className || node.tagName).slice(0, 5)"""

#: Texts that can't be read on their ground by WCAG 2.1, level AA: 4.5 to 1, of large ones 3 to 1.
CONTRAST = """(() => {
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const linear = (v) => v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const colour = parse(getComputedStyle(node).backgroundColor);
      if (colour.length && colour[3] !== 0) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.data.trim(), node = walker.currentNode.parentElement;
    if (!text || node.closest('script, style') || !node.getClientRects().length) continue;
    const style = getComputedStyle(node), drawn = node.closest('svg'), size = parseFloat(style.fontSize);
    const ink = light(parse(drawn ? style.fill : style.color)), paper = light(ground(drawn?.parentElement ?? node));
    const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    const large = size >= 24 || (size >= 18.6 && style.fontWeight >= 700);
    if (ratio < (large ? 3 : 4.5)) found.push(`${ratio.toFixed(2)} ${node.getAttribute('class')} ${text}`);
  }
  return found.slice(0, 8);
})()"""

#: Widths and heights of a text in the fonts and sizes of the page: whoever sets letters elsewhere is noticed.
_PROBE = """[['span', 400, 15], ['span', 700, 27], ['code', 600, 13.5]].map(([tag, weight, size]) => {
  const node = document.createElement(tag);
  node.textContent = 'p99(ttft) ≤ 120 ms was broken: 0.0048 %, ∞, µs, ✓ ✕';
  Object.assign(node.style, {
    fontSize: `${size}px`, fontWeight: weight, lineHeight: 'normal', position: 'absolute', whiteSpace: 'nowrap',
  });
  document.body.append(node);
  const {width, height} = node.getBoundingClientRect();
  node.remove();
  return [width, height].map((one) => Math.round(one * 10) / 10);
})"""

_BLOCKS = """[...document.querySelectorAll(
    '.hero, h2, .tiles, .tile, .card, .strip, svg:not(.key), .scroll, .pairs, footer')]
  .filter((node) => node.getClientRects().length).map((node) => {
    const box = node.getBoundingClientRect(), drawn = node.tagName === 'svg';
    const seen = (one) => one.checkVisibility({visibilityProperty: true, opacityProperty: true});
    const shapes = drawn ? [...node.querySelectorAll('path, line, rect, circle, text')].filter(seen).length : 0;
    const name = node.tagName === 'H2' ? node.textContent : node.classList[0] || node.tagName.toLowerCase();
    return [name, shapes, ...[box.left, box.width, drawn ? box.height : 0].map(Math.round)];
  })"""


@dataclass(frozen=True, slots=True)
class Look:
    """What is seen of a page. ``picture``: greys; ``blocks``: what each is, how many shapes it draws, its left edge and
    width, and the height of a drawing; ``unread``: texts that can't be read, and what runs off the side.
    """

    picture: npt.NDArray[np.uint8]
    fonts: Sequence[Sequence[float]]
    blocks: Sequence[Sequence[Any]]
    unread: Sequence[str] = ()

    @property
    def png(self) -> bytes:
        """The picture as a file."""
        kept = io.BytesIO()
        Image.fromarray(self.picture * (255 // (GREYS - 1))).quantize(GREYS).save(kept, "PNG", optimize=True)
        return kept.getvalue()


async def look(tab: Tab, path: Path, mode: Mode, planted: str = "", pictured: bool = True) -> Look:
    """The whole page, with or without its picture. ``planted``: rules of a style sheet that spoil it."""
    await tab.open(f"file://{path}", mode.width, 900, mode.dark)
    await tab.until("globalThis.plimsoll")
    scheme = {"name": "prefers-color-scheme", "value": "dark" if mode.dark else "light"}
    await tab.call("Emulation.setEmulatedMedia", media=mode.media, features=[scheme])
    style = f"Object.assign(document.createElement('style'), {{textContent: {json.dumps(planted)}}})"
    await tab.ask(f"void document.head.append({style})")
    width, height = await tab.ask("[document.documentElement.scrollWidth, document.documentElement.scrollHeight]")
    clip = {"x": 0, "y": 0, "width": mode.width, "height": height if pictured else SMALL, "scale": 1}
    taken = await tab.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
    whole = Image.open(io.BytesIO(base64.b64decode(taken["data"]))).convert("L").reduce(SMALL)
    picture = np.round(np.asarray(whole, np.float64) * ((GREYS - 1) / 255)).astype(np.uint8)
    unread = [*await tab.ask(CONTRAST), *(f"runs off the side: {one}" for one in await tab.ask(OVERFLOW))]
    unread += [f"the page is {width} wide"] * (width > mode.width)
    return Look(picture, await tab.ask(_PROBE), await tab.ask(_BLOCKS), unread)


def kept(picture: bytes, told: Mapping[str, Any]) -> Look:
    """What was kept of a look: its picture's file, and its fonts and blocks."""
    greys = np.asarray(Image.open(io.BytesIO(picture)).convert("L")) // (255 // (GREYS - 1))
    return Look(greys.astype(np.uint8), told["fonts"], told["blocks"])


def differences(now: Look, was: Look) -> list[str]:
    """What a reader would see differ; nothing where the page looks as it did."""
    same = np.array_equal(np.array(now.fonts), np.array(was.fonts))
    return [*now.unread, *(of_pictures(now.picture, was.picture) if same else of_blocks(now.blocks, was.blocks))]


def of_pictures(now: npt.NDArray[np.uint8], was: npt.NDArray[np.uint8]) -> list[str]:
    """Where tiles differ, in pixels of the page."""
    if now.shape[1] != was.shape[1] or abs(len(now) - len(was)) > MOVED:
        sizes = [f"{one.shape[1] * SMALL} x {len(one) * SMALL}" for one in (now, was)]
        return [f"the page is {sizes[0]} and was {sizes[1]}"]
    rows, columns = min(len(now), len(was)) // TILE, now.shape[1] // TILE

    def means(picture: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
        tiles = picture[: rows * TILE, : columns * TILE].reshape(rows, TILE, columns, TILE)
        return np.asarray(tiles.mean((1, 3)) / (GREYS - 1))

    moved = [np.abs(means(np.roll(now, by, 0)) - means(was)) for by in range(-MOVED, MOVED + 1)]
    far = np.min(moved, axis=0)
    found = np.argwhere(far > MEAN) * TILE * SMALL
    return [f"differs at x {x}, y {y}" for y, x in found.tolist()] if len(found) > TILES or far.max() > 2 * MEAN else []


def of_blocks(now: Sequence[Sequence[Any]], was: Sequence[Sequence[Any]]) -> list[str]:
    """The first block that is another, and each that stands elsewhere."""
    found = []
    for one, other in zip_longest(now, was):
        if one is None or other is None or list(one[:2]) != list(other[:2]):
            return [*found, f"{one} stands where {other} was"]
        if any(abs(a - b) > NEAR for a, b in zip(one[2:], other[2:], strict=True)):
            found.append(f"{one} was {other}")
    return found
