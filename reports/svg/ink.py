"""Ink: SVG elements as escaped text. The only place that writes angle brackets, so that nothing escapes escaping."""

from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape

Point = tuple[float, float]


def element(tag: str, content: str | Markup = "", **attributes: str | float | None) -> Markup:
    """``<tag ...>content</tag>``; ``class_`` is class, ``stroke_width`` is stroke-width; None attributes are left out.

    Plain strings are escaped; ``Markup`` content is taken as it is.
    """
    parts = [
        f'{name.rstrip("_").replace("_", "-")}="{escape(_number(value))}"'
        for name, value in attributes.items()
        if value is not None
    ]
    head = " ".join([tag, *parts])
    return Markup(f"<{head}>{escape(content)}</{tag}>") if content else Markup(f"<{head}/>")


def join(parts: Iterable[Markup]) -> Markup:
    """The parts one after the other."""
    return Markup("").join(parts)


def _number(value: str | float) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.1f}".rstrip("0").rstrip(".")


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def text(x: float, y: float, content: str, class_: str = "", anchor: str | None = None) -> Markup:
    """A piece of text; ``anchor`` is start, middle or end."""
    return element("text", content, x=x, y=y, class_=class_ or None, text_anchor=anchor)


def path(points: Sequence[Point | None], class_: str, step: bool = False) -> Markup:
    """A line through the points, broken at None; ``step`` holds each value until the next x. Lone points get a dot."""
    commands: list[str] = []
    dots: list[Markup] = []
    for run in _runs(points):
        if len(run) == 1:
            dots.append(element("circle", cx=run[0][0], cy=run[0][1], r=2.2, class_=f"{class_} dot"))
            continue
        commands.append(f"M{_number(run[0][0])} {_number(run[0][1])}")
        for x, y in run[1:]:
            commands.append(f"H{_number(x)}V{_number(y)}" if step else f"L{_number(x)} {_number(y)}")
    drawn = element("path", d="".join(commands), class_=f"{class_} line") if commands else Markup("")
    return drawn + join(dots)


def area(upper: Sequence[Point | None], lower: Sequence[Point | None], class_: str) -> Markup:
    """The surface between two lines over the same x, broken where either is None."""
    shapes: list[str] = []
    pairs = [(u, low) if u is not None and low is not None else None for u, low in zip(upper, lower, strict=True)]
    run: list[tuple[Point, Point]] = []
    for pair in [*pairs, None]:
        if pair is not None:
            run.append(pair)
            continue
        if len(run) > 1:
            outline = [u for u, _ in run] + [low for _, low in reversed(run)]
            shapes.append("M" + "L".join(f"{_number(x)} {_number(y)}" for x, y in outline) + "Z")
        run = []
    return element("path", d="".join(shapes), class_=f"{class_} area") if shapes else Markup("")


def _runs(points: Sequence[Point | None]) -> list[list[Point]]:
    runs: list[list[Point]] = [[]]
    for point in points:
        if point is None:
            runs.append([])
        else:
            runs[-1].append(point)
    return [run for run in runs if run]


def text_width(content: str, size: float) -> float:
    """A guess, on the wide side, of how wide ``content`` is in a system sans-serif font of ``size`` pixels."""
    return len(content) * size * 0.6


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions as near to ``wanted`` as can be with ``gap`` between neighbours, inside ``low``..``high``.

    Keeps the order of ``wanted``'s values; labels at line ends use it so that they never overlap.
    """
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    placed = [0.0] * len(wanted)
    floor = low
    for index in order:
        placed[index] = max(wanted[index], floor)
        floor = placed[index] + gap
    ceiling = high
    for index in reversed(order):
        placed[index] = min(placed[index], ceiling)
        ceiling = placed[index] - gap
    return placed
