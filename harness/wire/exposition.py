"""The text in which servers expose their metrics (Prometheus 0.0.4, OpenMetrics 1), as series and values.

A page is taken whole or not at all: one with a line that is none, or that was cut off, raises ``NotMetrics`` and has no
values. Types and help texts are left out, since names are known by their engines.
"""

from __future__ import annotations

import re

#: A series as it is written: its name and its labels in braces, "" for none.
Written = tuple[str, str]

_LABELS = r'\{(?:[^"{}\n]++|"(?:[^"\\\n]++|\\.)*+")*+\}'
_STAMP = r"(?:[ \t]+[-+0-9.eE]+)?"
_EXEMPLAR = r"(?:[ \t]+#[ \t][^\n]*)?"
_SAMPLE = re.compile(
    rf"^[ \t]*+([a-zA-Z_:][a-zA-Z0-9_:]*+)(?:[ \t]*+({_LABELS})[ \t]*+|[ \t]++)([^\s_#]+){_STAMP}{_EXEMPLAR}[ \t\r]*$",
    re.MULTILINE,
)
_LINE = re.compile(r"^[ \t]*+[^#\s]", re.MULTILINE)
_LABEL = re.compile(r'[\s,]*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")
_TYPE = re.compile(r"^#[ \t]+TYPE[ \t]+(\S+)[ \t]+(?:counter|histogram|summary)\b", re.MULTILINE)


class NotMetrics(ValueError):
    """What came is no page of metrics, or not a whole one."""


def samples(page: str, open_metrics: bool = False) -> dict[Written, float]:
    """Every series of a page with its value, the first where it stands there twice. Raises NotMetrics where the page
    is none. ``open_metrics``: it says that it is, and so ends with ``# EOF``.
    """
    found = _SAMPLE.findall(page)
    if len(found) != len(_LINE.findall(page)):
        raise NotMetrics(_what(page))
    if not found:
        raise NotMetrics("it holds no metrics")
    if not page.endswith("\n") or (open_metrics and not page.rstrip().endswith("# EOF")):
        raise NotMetrics("it was cut off: its last line has no end")
    try:
        values = [float(value) for _, _, value in found]
    except ValueError as error:
        raise NotMetrics(f"a value is none ({error})") from None
    return {(name, labels): value for (name, labels, _), value in zip(found[::-1], values[::-1], strict=True)}


def _what(page: str) -> str:
    """What is wrong with a page of which a line is no sample."""
    if page.lstrip()[:1] == "<":
        return "it is HTML"
    if page.lstrip()[:1] in ("[", "{"):
        return "it is JSON"
    good = {found.start() for found in _SAMPLE.finditer(page)}
    bad = next(found.start() for found in _LINE.finditer(page) if found.start() not in good)
    if page.find("\n", bad) < 0:
        return "it was cut off: its last line has no end"
    return f"line {page.count(chr(10), 0, bad) + 1} is no metric"


def declared(page: str) -> set[str]:
    """The counters of which a page says that it has them, under every name that their samples may have: one of which
    nothing was counted yet has no series.
    """
    return {name + end for name in _TYPE.findall(page) for end in ("", "_total", "_sum", "_count")}


def labels_of(written: str) -> dict[str, str]:
    """The labels in braces, by name, their escapes undone."""
    return {name: _ESCAPE.sub(_char, value) for name, value in _LABEL.findall(written[1:-1])}


def _char(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]


def quoted(**labels: object) -> str:
    """Labels as they are written, of what is no page."""
    escaped = {
        name: str(value).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for name, value in labels.items()
    }
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped.items()) + "}"
