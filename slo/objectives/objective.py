"""The grammar of objectives: ``p99(ttft) <= 200ms``, ``ratio(good) >= 99.5%``, ``ttft <= 200ms``.

    objective  = [quantifier label ":"] [statistic "("] indicator ["{" selector "}"] [")"] operator threshold
                 ["over" period]
               | "recovered(" objective ")" operator threshold ["after" name]      the time from an event's begin, or a
                                                        phase's end, until the objective is kept again, and goes on so
               | "lost" ["{" selector "}"] "<= 0"          no request failed: max(error) <= 0
               | "time_out_of(" objective ")" operator threshold                   the time that it is not kept in all
    quantifier = each | worst                           one promise for each value of the label; as one verdict
    selector   = class=chat,turn>1 ...                  see ``plimsoll.slo.objectives.selector``
    statistic  = "p" percent | mean | max | min         of an indicator, over the run
               | ratio                                  of good, error, refused or retried requests, of
                                                        degraded answers, of frame_missed
               | rate                                   of good, ok or output_tokens, per second of the run
               | retained                               of good: what a phase got done per second, of the best one's
               | fairness                               of good: the share of the class served worst, of the best's
               | max | mean | min | rate | slope        of what the server says of itself: server.queue,
                                                        host.rss, gpu.power (rate: of its counters; slope: how fast
                                                        host.rss, gpu.memory or server.queue grows)
               | accuracy                               of exact_match, token_match, top1 or wer, against references
    operator   = "<=" | "<" | ">=" | ">"
    threshold  = number [ns | us | ms | s | m | % | /s | kB | MB | GB | KiB | MiB | GiB | W | MHz | GHz | MiB/h]
    indicator  = name | "stage." name                    of docs/reference/metrics.md; of a stage that the server names
    period     = number (h | d | w)                     whose error budget a percentile or a ratio draws on

Without a statistic it is a limit on a single request: one that succeeds and meets all of them is good. Refused, with
the reason: what no run could show, and limits on the side that cannot hurt. Nothing is evaluated here.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from plimsoll.documents import files
from plimsoll.slo.metrics.indicator import Indicator, catalogue
from plimsoll.slo.objectives import selector
from plimsoll.slo.objectives.selector import Selector, SelectorError
from plimsoll.slo.server.canonical import NAMES, Better

#: Factor from each written unit to its base unit, and that base unit.
UNITS = MappingProxyType(
    {
        "ns": (Decimal(1), "ns"),
        "us": (Decimal(1_000), "ns"),
        "ms": (Decimal(1_000_000), "ns"),
        "s": (Decimal(1_000_000_000), "ns"),
        "m": (Decimal(60_000_000_000), "ns"),
        "%": (Decimal("0.01"), "ratio"),
        "/s": (Decimal(1), "per_s"),
        "": (Decimal(1), "1"),
        **{f"{prefix}B": (Decimal(1000**power), "bytes") for power, prefix in enumerate(("", "k", "M", "G"))},
        **{f"{prefix}iB": (Decimal(1024**power), "bytes") for power, prefix in enumerate(("K", "M", "G"), 1)},
        "W": (Decimal(1), "W"),
        "J": (Decimal(1), "J"),
        "MHz": (Decimal(10**6), "Hz"),
        "GHz": (Decimal(10**9), "Hz"),
        **{f"{prefix}B/h": (Decimal(1000**power), "bytes/h") for power, prefix in enumerate(("", "k", "M", "G"))},
        **{f"{prefix}iB/h": (Decimal(1024**power), "bytes/h") for power, prefix in enumerate(("K", "M", "G"), 1)},
        "/h": (Decimal(1), "1/h"),
    }
)
Operator = Literal["<=", "<", ">=", ">"]
_COMPARE: Mapping[Operator, np.ufunc] = MappingProxyType(
    {"<=": np.less_equal, "<": np.less, ">=": np.greater_equal, ">": np.greater}
)
RATIOS = ("good", "error", "frame_missed", "refused", "retried", "degraded", "talked_over")
#: Of these, the shares of which less is better.
BAD_RATIOS = RATIOS[1:]
RATES = ("good", "ok", "output_tokens")
#: What an accuracy run compares; of the word error rate less is better.
ACCURACIES = ("exact_match", "token_match", "top1", "wer")
#: Of these, what each sample alone is right or wrong by: a share with exact bounds. The others are facts about the set.
ACCURACY_SHARES = ("exact_match", "top1")

#: Statistics that are times of the run, in which another objective was not kept.
SPELLS = ("recovered", "time_out_of")

#: Statistics that hold good requests of some rows against those of others, and the label that tells them apart.
BESIDE: Mapping[str, str] = MappingProxyType({"retained": selector.PHASE, "fairness": "class"})

#: No run is long enough for a promise about a smaller share: it takes three over the share without a single bad
#: request.
LEAST_SHARE = Fraction(1, 10**9)

#: What stands in braces, under a name of a group to be filled in.
WHERE = r'\s*(?:\{(?P<%s>(?:"(?:[^"\\]|\\.)*"|[^"{}])*)\})?\s*'
#: The name of a metric; that of a family has dots: ``stage.queue``.
NAME = r"\w+(?:\.[\w-]+)*"
_SHAPE = re.compile(
    r"\s*(?:(?P<each>each|worst)\s+(?P<label>\w+)\s*:\s*)?"
    rf"(?:(?P<statistic>[a-z]+[0-9.]*)\s*\(\s*(?P<of>{NAME}){WHERE % 'where'}\)"
    rf"|(?P<bare>{NAME}){WHERE % 'bare_where'})\s*"
    r"(?P<operator>[<>=!~≤≥]+)\s*(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>[^\s0-9]*)"
    r"(?:\s+over\s+(?P<period>\S+))?\s*"
)
PERIODS = MappingProxyType({"h": 3_600_000_000_000, "d": 86_400_000_000_000, "w": 604_800_000_000_000})
_SPELL = re.compile(
    r"\s*(?P<statistic>recovered|time_out_of)\s*\((?P<of>.*)\)\s*(?P<operator>[<>=!~≤≥]+)\s*(?P<number>[0-9]+(?:\.[0-9]+)?)"
    r"\s*(?P<unit>[^\s0-9]*)(?:\s+after\s+(?P<after>[\w .-]*[\w.-]))?\s*"
)
_LOST = re.compile(rf"((?:\s*(?:each|worst)\s+\w+\s*:)?\s*)lost{WHERE % 'where'}(?:<=|≤)\s*0\s*")
_EXAMPLES = "p99(ttft) <= 200ms, ratio(good) >= 99.5%, rate(good) >= 40/s, max(latency) <= 2s, or ttft <= 200ms"


class ObjectiveError(ValueError):
    """Objectives that can't be used; ``errors`` has one text per mistake, each with the fix."""

    def __init__(self, errors: str | Sequence[str]) -> None:
        self.errors = [errors] if isinstance(errors, str) else list(errors)
        super().__init__("\n".join(self.errors))


class Promise(Protocol):
    """What a verdict is about: an objective of this grammar, or one of an OpenSLO document. ``str()`` is its text.

    ``statistic`` of ``indicator`` (``p99``, ``mean``, ``ratio`` ...; None: a limit on a single request) stands to
    ``threshold``, in ``unit`` (``ns``, ``ratio`` as 0..1, ``per_s`` or ``1``), as ``operator`` says. ``allowed``: the
    share of entries that may break it, exactly; None where it promises none.
    """

    @property
    def indicator(self) -> str: ...
    @property
    def statistic(self) -> str | None: ...
    @property
    def operator(self) -> Operator: ...
    @property
    def threshold(self) -> float: ...
    @property
    def unit(self) -> str: ...
    @property
    def allowed(self) -> Fraction | None: ...


@dataclass(frozen=True, slots=True)
class Objective:
    """One promise. ``str()`` gives its canonical text, and parsing that gives it back.

    ``statistic``: ``p99``, ``mean``, ``max``, ``min``, ``ratio``, ``rate``, or None for a limit on a single
    request. ``quantile``: 99/100 for p99, else None. ``threshold`` is in the base ``unit`` (``ns``,
    ``ratio`` as 0..1, ``per_s`` or ``1``); ``threshold_text`` and ``period`` (empty: none) are what was written.
    ``where``: the rows that it is about, all if it is empty. ``each``: (``each`` or ``worst``, label) of a promise for
    every value of a label, ``expanded`` before it is judged. ``of``: of a recovery what is to be kept again, and
    ``after``: the event or phase that it is counted from ("": the run's only one).
    """

    indicator: str
    statistic: str | None
    quantile: Fraction | None
    operator: Operator
    threshold: float
    threshold_text: str
    unit: str
    period: str = ""
    where: Selector = ()
    each: tuple[Literal["each", "worst"], str] | None = None
    of: Objective | None = None
    after: str = ""

    def __str__(self) -> str:
        over = f" over {self.period}" if self.period else f" after {self.after}" if self.after else ""
        each = f"{self.each[0]} {self.each[1]}: " if self.each else ""
        return f"{each}{self.left} {self.operator} {self.threshold_text}{over}"

    @property
    def left(self) -> str:
        """What stands before the operator: ``p99(ttft{class=chat})``."""
        of = str(self.of) if self.of is not None else self.indicator + selector.text(self.where)
        return f"{self.statistic}({of})" if self.statistic else of

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that it reads, each once."""
        if self.of is not None:
            return self.of.labels
        named = [one.label for one in self.where if one.operator]
        beside = BESIDE.get(self.statistic or "", "")
        return tuple(dict.fromkeys([*named, *([beside] if beside else []), *([self.each[1]] if self.each else [])]))

    @property
    def of_server(self) -> bool:
        """It is about what the server says of itself, and not about requests."""
        return self.indicator in NAMES and self.of is None

    @property
    def about(self) -> str:
        """The rows that it is about, "" for all: ``{class=chat}``, ``worst backend``."""
        each = " ".join(self.each) if self.each else ""
        return f"{each} {selector.text(self.where)}".strip()

    @property
    def of_all(self) -> bool:
        """It is about all rows, as one."""
        return not self.where and self.each is None and self.of is None and self.statistic not in BESIDE

    @property
    def worst(self) -> bool:
        """It is about the worst value of a label, as one."""
        return self.each is not None and self.each[0] == "worst"

    def narrowed(self, where: Selector) -> Objective:
        """The same promise about the rows that are also in ``where``; of a value of its label, if it is for each."""
        if self.of is not None:
            return replace(self, of=self.of.narrowed(where))
        return replace(self, where=tuple(sorted({*self.where, *where})), each=None)

    @property
    def period_ns(self) -> int | None:
        """The period of its error budget in ns, None where none was written."""
        return int(self.period[:-1]) * PERIODS[self.period[-1]] if self.period else None

    @property
    def scope(self) -> Literal["request", "run"]:
        """``request``: a limit on a single request; ``run``: on a statistic of all of them."""
        return "run" if self.statistic else "request"

    @property
    def exact_threshold(self) -> Fraction:
        """The threshold in its base unit as it was written, free of binary rounding."""
        number, unit = _split(self.threshold_text)
        return Fraction(Decimal(number) * UNITS[unit][0])

    @property
    def allowed(self) -> Fraction | None:
        """The share of values or entries that may break the limit; None for a fact or a limit on single requests."""
        share = self.quantile
        if self.statistic == "ratio" or (self.statistic == "accuracy" and self.indicator in ACCURACY_SHARES):
            share = 1 - self.exact_threshold
        return None if share is None else 1 - share if self.operator in ("<=", "<") else share

    def met_by(self, values: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Which values, in the base unit, keep the promise: bool of the same shape, for a number one bool."""
        met: npt.NDArray[np.bool_] = _COMPARE[self.operator](values, self.threshold)
        return met


def _split(threshold_text: str) -> tuple[str, str]:
    number = re.match(r"[0-9.]+", threshold_text)
    assert number is not None
    return number[0], threshold_text[number.end() :]


def parse(text: str) -> Objective:
    """The objective that ``text`` states. Raises ``ObjectiveError`` that names the bad part and what is allowed."""
    if (lost := _LOST.fullmatch(text)) is not None:
        return parse(f"{lost[1]}max(error{'' if lost['where'] is None else '{' + lost['where'] + '}'}) <= 0")
    if (spell := _SPELL.fullmatch(text)) is not None:
        return _spell(spell, text)
    found = _SHAPE.fullmatch(text)
    if found is None:
        raise ObjectiveError(f"{text!r}: not an objective. Write it like {_EXAMPLES}")
    try:
        return _build(found)
    except ObjectiveError as error:
        raise ObjectiveError(f"{text.strip()!r}: {error}") from None


def _spell(found: re.Match[str], text: str) -> Objective:
    of, statistic = parse(found["of"]), found["statistic"]
    try:
        if of.of is not None or of.allowed is None or of.each or of.period or of.statistic == "accuracy":
            raise ObjectiveError(f"{statistic} is of a percentile or a ratio, such as {statistic}(p95(ttft) <= 200ms)")
        if of.statistic != "ratio" and catalogue()[of.indicator].scope != "request":
            raise ObjectiveError(f"{statistic} takes a metric with one value a request, and {of.indicator} has several")
        if found["operator"] not in ("<=", "<", "≤"):
            raise ObjectiveError(f"of {statistic}, lower is better; write {statistic}({of}) <= 30s")
        if found["after"] and statistic == "time_out_of":
            raise ObjectiveError(f"time_out_of is of the whole run; leave out after {found['after']}")
        threshold_text, threshold = _threshold(found["number"], found["unit"].replace("µ", "u"), "ns")
    except ObjectiveError as error:
        raise ObjectiveError(f"{text.strip()!r}: {error}") from None
    operator: Operator = "<" if found["operator"] == "<" else "<="
    return Objective(
        of.indicator, statistic, None, operator, threshold, threshold_text, "ns", of=of, after=found["after"] or ""
    )


def _build(found: re.Match[str]) -> Objective:
    statistic, name = found["statistic"], found["of"] or found["bare"]
    operator = next((known for known in _COMPARE if known == found["operator"]), None)
    if operator is None:
        raise ObjectiveError(f"operator {found['operator']} is none of {', '.join(_COMPARE)}")
    quantile = None
    if statistic and re.fullmatch(r"p[0-9].*", statistic):
        quantile = _quantile(statistic)
        statistic = f"p{_plain(statistic[1:])}"
    indicator, base, better = _meaning(statistic, name)
    unit = found["unit"].replace("µ", "u").replace("μ", "u")
    if base == "per_s" and name in NAMES and not unit and not Decimal(found["number"]):
        unit = "/s"  # none at all, per whatever
    threshold_text, threshold = _threshold(found["number"], unit, base, name not in NAMES)
    asked = Objective(
        name, statistic, quantile, operator, threshold, threshold_text, base, "", _where(found), _each(found)
    )
    if asked.of_server and (asked.where or asked.each):
        raise ObjectiveError(f"the server does not tell our requests apart; write {statistic}({name}) for all of them")
    of_phase = any(one.label == selector.PHASE and one.operator == "=" for one in asked.where)
    if statistic in BESIDE and (asked.each or (statistic == "retained" and not of_phase)):
        raise ObjectiveError(f"{statistic} is of a phase by its name; write {statistic}(good{{phase=NAME}}) >= 80%")
    _direction(asked, better, indicator)
    if found["period"]:
        asked = replace(asked, period=_period(asked, found["period"]))
    return asked


def _where(found: re.Match[str]) -> Selector:
    written = found["where"] if found["where"] is not None else found["bare_where"]
    if written is None:
        return ()
    try:
        return selector.parse(written)
    except SelectorError as error:
        raise ObjectiveError(str(error)) from None


def _each(found: re.Match[str]) -> tuple[Literal["each", "worst"], str] | None:
    label = found["label"]
    if label is None:
        return None
    if selector.NAME.fullmatch(label) is None:
        raise ObjectiveError(f"label {label!r}: write lower-case letters, digits and _, a letter first")
    if not found["statistic"]:
        raise ObjectiveError(
            f"{found['each']} {label}: takes a promise over the run, such as p99(...) or ratio(...); a limit on single "
            f"requests holds for every {label} anyway"
        )
    return ("each" if found["each"] == "each" else "worst"), label


def _meaning(statistic: str | None, name: str) -> tuple[Indicator | None, str, str]:
    """The indicator (None for a ratio or a rate), the threshold's base unit, and the better direction."""
    known = catalogue()
    if name in NAMES:
        return None, *of_server(statistic, name)
    if statistic == "ratio":
        if name not in RATIOS:
            raise ObjectiveError(f"ratio({name}) is not known; ratio is of {' or '.join(RATIOS)}")
        return None, "ratio", "lower" if name in BAD_RATIOS else "higher"
    if statistic == "rate":
        if name not in RATES:
            raise ObjectiveError(f"rate({name}) is not known; rate is of {', '.join(RATES)}")
        return None, "per_s", "higher"
    if statistic in BESIDE:
        if name != "good":
            raise ObjectiveError(f"{statistic} is of good requests; write {statistic}(good) >= 80%")
        return None, "ratio", "higher"
    if statistic == "accuracy":
        if name not in ACCURACIES:
            raise ObjectiveError(f"accuracy({name}) is not known; accuracy is of {', '.join(ACCURACIES)}")
        return None, "ratio", "lower" if name == "wer" else "higher"
    if name == "good":
        raise ObjectiveError("good takes ratio or rate; write ratio(good) >= 99.5% or rate(good) >= 40/s")
    if statistic and not (statistic in ("mean", "max", "min") or re.fullmatch(r"p[0-9.]+", statistic)):
        raise ObjectiveError(
            f"statistic {statistic} is not known; choose p99 (any percentile), mean, max, min, ratio, rate, "
            "retained, fairness"
        )
    if name not in known:
        raise ObjectiveError(f"indicator {name} is not known; {one_of(name, known)}")
    indicator = known[name]
    return indicator, indicator.unit, indicator.better


def one_of(name: str, known: Iterable[str]) -> str:
    """What an unknown ``name`` may have meant, and all of its kind: of ``server.x`` those that servers say."""
    room = name.partition(".")[0]
    known = [one for one in NAMES if one.startswith(f"{room}.")] or list(known)
    near = difflib.get_close_matches(name, dict.fromkeys([*known, *NAMES]), 3)
    return (f"did you mean {' or '.join(near)}? All of them: " if near else "choose one of ") + ", ".join(known)


def of_server(statistic: str | None, name: str) -> tuple[str, Better]:
    """The base unit and the better direction of what the server says of itself. Raises ``ObjectiveError``."""
    about = NAMES[name]
    wanted = ("rate",) if about.counted else ("max", "mean", "min")
    if about.better == "lower" and about.unit in ("bytes", "1"):
        wanted = (*wanted, "slope")
        if statistic == "slope":
            return f"{about.unit}/h", about.better
    if statistic not in wanted:
        what = f"{statistic}({name}) is not known" if statistic else f"{name} is no limit on a single request"
        raise ObjectiveError(f"{what}; write {' or '.join(f'{one}({name})' for one in wanted)}")
    return {"s": "1", "J": "W"}.get(about.unit, about.unit), about.better


def _plain(number: str) -> str:
    """``99.90`` as ``99.9``, ``099`` as ``99``: one text for one number."""
    text = format(Decimal(number), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _quantile(statistic: str) -> Fraction:
    if not re.fullmatch(r"p[0-9]+(\.[0-9]+)?", statistic):
        raise ObjectiveError(f"percentile {statistic} is not a number; write p99 or p99.9")
    value = Fraction(statistic[1:]) / 100
    if value >= 1:
        raise ObjectiveError(f"{statistic} is not a percentile below p100; for the largest value write max(...)")
    if value <= 0:
        raise ObjectiveError(f"{statistic} is not a percentile above p0; for the smallest value write min(...)")
    if not LEAST_SHARE <= value <= 1 - LEAST_SHARE:
        raise ObjectiveError(f"{statistic} is nearer to the end than any run can show; write max(...) or min(...)")
    return value


def _threshold(number: str, unit: str, base: str, strict: bool = True) -> tuple[str, float]:
    """``strict``: of a share of requests, of which no run shows all or nothing."""
    allowed = [written for written, (_, of) in UNITS.items() if of == base]
    if unit not in UNITS or UNITS[unit][1] != base:
        own = {"ns": "ms", "ratio": "%", "per_s": "/s", "1": "", "bytes": "GiB", "Hz": "MHz", "bytes/h": "MiB/h"}
        fix = number + own.get(base, base)
        what = f"unit {unit}" if unit else "a bare number"
        if base == "1":
            raise ObjectiveError(f"{what} does not fit: this has no unit; write {fix}")
        raise ObjectiveError(f"{what} does not fit; write one of {', '.join(allowed)}, like {fix}")
    value = Decimal(number) * UNITS[unit][0]
    if base == "ns" and value == 0:
        raise ObjectiveError("a time of 0 can't be kept by anything; write a longer one")
    if base == "ratio" and strict and not LEAST_SHARE <= value <= 1 - LEAST_SHARE:
        raise ObjectiveError(
            f"{_plain(number)}% is more than a finite run can show, or nothing at all; write one between, "
            "or max(error) <= 0 for no error at all in this run"
        )
    return _plain(number) + unit, float(value)


def _period(asked: Objective, text: str) -> str:
    text = text.lstrip("0")
    if not re.fullmatch(rf"[0-9]{{1,5}}[{''.join(PERIODS)}]", text):
        raise ObjectiveError(f"period {text} is not a number of hours, days or weeks; write over 28d")
    if asked.quantile is None and asked.statistic != "ratio":
        raise ObjectiveError(
            f"{asked.left} has no error budget, so no period: only a percentile or a ratio has. Leave out over {text}"
        )
    return text


def _direction(asked: Objective, better: str, indicator: Indicator | None) -> None:
    """Refuse a limit on the side that can't hurt: then getting worse would turn a FAIL into a PASS."""
    upper = asked.operator in ("<=", "<")
    left = asked.left
    if better and upper != (better == "lower"):
        right = ("<=" if better == "lower" else ">=") + " " + asked.threshold_text
        raise ObjectiveError(
            f"of {left}, {better} is better, so {asked.operator} promises nothing; write {left} {right}"
        )
    if indicator is not None and asked.quantile is not None and better == "higher" and asked.quantile > Fraction(1, 2):
        low = _plain(str(100 - Decimal(asked.statistic[1:] if asked.statistic else "0")))
        raise ObjectiveError(
            f"{left} is one of the best values, since more is better; to promise it to nearly all requests "
            f"write p{low}({asked.indicator}{selector.text(asked.where)}) {asked.operator} {asked.threshold_text}"
        )


def parse_all(texts: Iterable[str]) -> tuple[tuple[Objective, ...], list[str]]:
    """Every objective that could be read, and every error, including those of the set as a whole."""
    objectives: list[Objective] = []
    errors: list[str] = []
    for text in texts:
        try:
            objectives.append(parse(text))
        except ObjectiveError as error:
            errors += error.errors
    return tuple(objectives), errors + ([] if errors else check(objectives))


def check(objectives: Sequence[Objective]) -> list[str]:
    """What is wrong with objectives that are each fine: limits on single requests that nothing uses."""
    limits = [str(o) for o in objectives if o.scope == "request"]
    if limits and not any(o.indicator == "good" for o in objectives):
        return [
            f"{', '.join(limits)}: says when a request is good, but nothing says how many must be. "
            "Add ratio(good) >= 99% or rate(good) >= 10/s, or write a percentile such as p99(...)"
        ]
    return []


def read_text(path: Path) -> str:
    """What stands in a file of objectives. Raises ``ObjectiveError``."""
    try:
        return files.read_text(path)
    except OSError as error:
        raise ObjectiveError(f"{path}: can't be read ({files.why(error)}). Give an existing file") from error
    except UnicodeDecodeError as error:
        raise ObjectiveError(f"{path}: is not UTF-8 ({error.reason}). Save it as plain UTF-8 text") from error


def other_than_objectives(value: object) -> str:
    """What a file is instead, where it is plainly a scenario or a bake-off; "" for anything else."""
    if not isinstance(value, dict) or {"apiVersion", "metadata", "spec"} & value.keys():
        return ""
    if "arms" in value:
        return "is a bake-off file, not one of objectives. Check it with: plimsoll bakeoff FILE --check"
    if {"params", "source", "stop", "target", "warmup"} & value.keys():
        return (
            "is a scenario, not a file of objectives. Check it with: plimsoll scenarios check FILE. It brings its "
            "own objectives along when it is run; for another run copy that list into a file of its own"
        )
    return ""


def load_file(path: Path) -> tuple[Objective, ...]:
    """Objectives of a YAML file: a mapping with the one key ``objectives``, a list of texts. Read by the strict rules
    of ``plimsoll.documents.text``: a key given twice or an alias that multiplies is an error.

    Raises ``ObjectiveError`` with every mistake, each with the file and the place in it.
    """
    from plimsoll.documents.text import written

    documents = list(written(read_text(path)))
    errors = [f"{path}:{mistake.line}: {mistake.what}" for one in documents for mistake in one.errors]
    if errors:
        raise ObjectiveError(errors)
    document = documents[0].value if len(documents) == 1 else None
    if other := other_than_objectives(document):
        raise ObjectiveError(f"{path}: {other}")
    if not isinstance(document, dict) or not isinstance(document.get("objectives"), list):
        raise ObjectiveError(f"{path}: no list under the key objectives. Write objectives: ['p99(ttft) <= 200ms']")
    line = documents[0].line
    errors += [
        f"{path}:{line((key,))}: key {key!r} is not known. Remove it; the only key is objectives"
        for key in document
        if key != "objectives"
    ]
    objectives: list[Objective] = []
    for place, text in enumerate(document["objectives"]):
        try:
            if not isinstance(text, str):
                raise ObjectiveError(f"{text!r:.60} is not a text. Write it in quotes, like 'p99(ttft) <= 200ms'")
            objectives.append(parse(text))
        except ObjectiveError as error:
            where = f"{path}:{line(('objectives', place))}: objectives[{place}]"
            errors += [f"{where}: {what}" for what in error.errors]
    if not errors and not objectives:
        errors.append(f"{path}: the list objectives is empty. Add one, like 'p99(ttft) <= 200ms'")
    if not errors:
        errors += [f"{path}:{line(('objectives',))}: {what}" for what in check(objectives)]
    if errors:
        raise ObjectiveError(errors)
    return tuple(objectives)


_GOODPUT_KEYS = MappingProxyType({"ttft": "ttft", "tpot": "tpot", "e2el": "e2e"})


def from_goodput(text: str) -> tuple[Objective, ...]:
    """vLLM's ``--goodput`` argument as limits on a request: ``ttft:200 tpot:50``, milliseconds.

    Keys ttft, tpot and e2el (which is ``e2e`` here), separated by spaces or commas. Raises ``ObjectiveError``.
    """
    objectives: list[Objective] = []
    errors: list[str] = []
    for part in text.replace(",", " ").split():
        key, _, number = part.partition(":")
        if key not in _GOODPUT_KEYS or not re.fullmatch(r"[0-9]+(\.[0-9]+)?", number):
            errors.append(f"{part!r}: not KEY:MILLISECONDS with one of {', '.join(_GOODPUT_KEYS)}. Write ttft:200")
            continue
        objectives.append(parse(f"{_GOODPUT_KEYS[key]} <= {number}ms"))
    if not errors and not objectives:
        errors.append("no goodput limits given. Write them like ttft:200 tpot:50")
    if errors:
        raise ObjectiveError(errors)
    return tuple(objectives)


#: Of a base unit the larger ones, largest first.
_SHOWN: Mapping[str, Sequence[tuple[float, str]]] = MappingProxyType(
    {
        "ns": ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1, "ns")),
        "bytes": ((2.0**30, "GiB"), (2.0**20, "MiB"), (1, "B")),
        "Hz": ((1e9, "GHz"), (1e6, "MHz"), (1, "Hz")),
        "W": ((1, "W"),),
    }
)


def show(value: float, unit: str) -> str:
    """A value in a base unit for people: ``show(2.5e6, "ns")`` is ``2.5 ms``; four significant digits."""
    if value != value:
        return "no value"
    if value in (float("inf"), float("-inf")):
        return "infinite" if unit == "ns" else str(value)
    if unit == "ratio":
        return f"{value * 100:.6g} %"
    if unit == "per_s":
        return f"{value:.4g}/s"
    if unit.endswith("/h"):
        return f"{show(value, unit.removesuffix('/h'))}/h"
    for size, name in _SHOWN.get(unit, ()):
        if abs(value) >= size or size == 1:
            return f"{value / size:.4g} {name}"
    return f"{value:.4g}"
