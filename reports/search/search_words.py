"""A search in words and numbers for people; shared by its renderers. Decides nothing: outcomes come from the document."""

from __future__ import annotations

from types import MappingProxyType

from plimsoll.reports.search.search_parts import AnswerPart, ObjectivePart, ProbePart, SearchReport
from plimsoll.reports.wording import units

SYMBOLS = MappingProxyType(
    {
        "FOUND": "✓",
        "NONE": "✕",
        "OPEN": "↑",
        "INCONCLUSIVE": "?",
        "INVALID": "!",
        "UNREACHABLE": "⌀",
        "INTERRUPTED": "‖",
        "PASS": "✓",
        "FAIL": "✕",
    }
)


def load(report: SearchReport, value: float | None) -> str:
    """``412/s``, or ``32 in flight``."""
    if value is None:
        return units.NOTHING
    # Enough digits to tell the two ends of a fine interval apart, and none that nobody asked for.
    number = f"{value:,.2f}".rstrip("0").rstrip(".") if value >= 10 else units.significant(value, 4)
    if "." in number:
        number = number.rstrip("0").rstrip(".")
    return f"{number}/s" if report.variable == "rate" else f"{number} in flight"


def observed(part: ObjectivePart) -> str:
    """What was seen, or "no data"."""
    return "no data" if part.n == 0 and part.observed is None else units.human(part.observed, part.unit, 4)


def against(part: ObjectivePart) -> str:
    """``p99(ttft) 187 ms of 200 ms``."""
    name = part.objective.partition(" ")[0]
    return f"{name} {observed(part)}, limit {units.limit(part.threshold, part.unit)}"


def why(probe: ProbePart) -> str:
    """Why a probe ended as it did, in a few words: what failed, what is undecided, or what comes nearest to its limit."""
    failed = [part for part in probe.objectives if part.outcome == "FAIL"]
    if probe.outcome == "FAIL" and failed:
        return "; ".join(map(against, failed)) + (" (past hope before its end)" if probe.cut else "")
    if probe.outcome == "FAIL" and probe.unstable:
        return "it does not keep up: the backlog grew to the end"
    if probe.outcome in ("FAIL", "INVALID") and probe.reasons:
        return probe.reasons[0]
    if probe.outcome == "INCONCLUSIVE":
        open_ = [part for part in probe.objectives if part.outcome == "INCONCLUSIVE"]
        more = f"; about {units.count(probe.n_needed)} values would decide" if probe.n_needed else ""
        return "; ".join(map(against, open_)) + more
    return "; ".join(map(against, probe.objectives))


def at(report: SearchReport, value: float | None, outcome: str) -> ProbePart | None:
    """The last probe at a load that ended so."""
    found = [p for p in report.probes if value is not None and abs(p.load - value) < 1e-9 and p.outcome == outcome]
    return found[-1] if found else None


def sure(report: SearchReport) -> str:
    return f"{units.percent(report.confidence)} confidence"


def headline(report: SearchReport) -> str:
    """The answer in one sentence, or why there is none."""
    best, (low, high) = report.found.best, report.found.interval
    fails = at(report, high, "FAIL")
    because = f": {why(fails)}" if fails is not None else ""
    if report.outcome == "FOUND" and best is not None:
        end = f"fails at {load(report, high)}{because}" if high is not None else "and no higher load was to be tried"
        return f"Holds at {load(report, best)} ({sure(report)}), {end}.{_together(report)}"
    if report.outcome == "NONE":
        return f"It does not hold even at the lowest load tried, {load(report, high)}{because}."
    if report.outcome == "OPEN" and best is not None:
        return f"Holds at {load(report, best)} ({sure(report)}), and no load at which it fails was reached."
    said = f" {_sentence(report.reasons[0])}" if report.reasons else ""
    if best is None and high is None:
        return f"No answer yet.{said}"
    known = [f"holds at {load(report, low if low is not None else best)}"] if best is not None else []
    known += [f"fails at {load(report, high)}{because}"] if high is not None else []
    return f"No answer yet: it {', '.join(known)}.{said}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?", "!")) else ".")


def unsaid(report: SearchReport) -> list[str]:
    """The reasons that the headline does not give."""
    said = headline(report)
    return [text for text in report.reasons if text[1:] not in said]


def _together(report: SearchReport) -> str:
    sure_of = report.interval_confidence
    if sure_of is None:
        return " No fresh run confirmed it."
    return (
        f" Both ends are right with at least {units.percent(sure_of)} confidence." if report.found.interval[1] else ""
    )


def next_step(report: SearchReport) -> str:
    """What to do now; empty where the answer needs nothing."""
    if report.out_of_time:
        return "Give the same command with --resume and a longer --budget: what was measured is kept."
    best = report.found.best
    higher = "" if best is None else f" --start {best:g}"
    if report.hurried and report.outcome in ("OPEN", "INCONCLUSIVE"):
        near = "" if best is None else f" and{higher}"
        return f"Search into a new folder with a longer --budget{near}: time was short."
    return {
        "FOUND": "",
        "NONE": "Lower --lowest, loosen the objective, or ask why so little load is too much: the probe's report says where time went.",
        "OPEN": f"Search into a new folder with{higher} and a higher --highest, or with longer probes (--longest) where some decided nothing.",
        "INCONCLUSIVE": "Search into a new folder with longer probes: raise --longest or --probe.",
        "INVALID": "Put right what the reason names (more --workers, a quieter machine), then give the same command with --resume.",
        "UNREACHABLE": "Start the endpoint again, then give the same command with --resume: what was measured is kept.",
        "INTERRUPTED": "The same command with --resume goes on; finished probes are not repeated.",
    }[report.outcome]


def facts(report: SearchReport) -> list[tuple[str, str]]:
    """What the answer is worth, by name: throughput, goodput, per GPU, MLPerf."""
    answer = report.answer
    if answer is None:
        return []
    found = [("answered", units.rate(answer.requests_per_s))]
    if answer.goodput_per_s is not None:
        share = "" if answer.good_fraction is None else f" ({units.percent(answer.good_fraction)} good)"
        found.append(("goodput", f"{units.rate(answer.goodput_per_s)}{share}"))
    if answer.output_tokens_per_s is not None:
        found.append(("output tokens", units.rate(answer.output_tokens_per_s)))
    if answer.gpus:
        found += _per_gpu(answer, answer.gpus)
    if answer.mlperf_server is not None:
        found.append(("MLPerf Server", mlperf(answer)))
    return found


def _per_gpu(answer: AnswerPart, gpus: int) -> list[tuple[str, str]]:
    found = []
    if answer.best_rate_per_gpu is not None:
        found.append((f"rate per GPU (of {gpus})", units.rate(answer.best_rate_per_gpu)))
    if answer.goodput_per_s_per_gpu is not None:
        found.append((f"goodput per GPU (of {gpus})", units.rate(answer.goodput_per_s_per_gpu)))
    return found


def mlperf(answer: AnswerPart) -> str:
    """LoadGen's own answer at this rate."""
    part = answer.mlperf_server
    if part is None:
        return ""
    done = "" if part.completed_per_s is None else f", {units.rate(part.completed_per_s)} completed"
    tokens = "" if part.tokens_per_s is None else f", {units.rate(part.tokens_per_s)} tokens"
    short = f"; {'; '.join(part.reasons)}" if part.reasons else ""
    if part.valid:
        return f"VALID at a target of {units.rate(part.target_per_s)}{done}{tokens}{short}"
    return f"INVALID{done}{short}"
