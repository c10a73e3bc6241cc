"""An outlook for people: what each objective takes, and whether the scenario as written gets there."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table as Grid
from rich.text import Text

from plimsoll.harness.outlook.outlook import Need, Outlook, Pace, clock
from plimsoll.reports.wording import units
from plimsoll.slo.objectives.ledger import window_text
from plimsoll.slo.statistics.confidence import Sample

_DASH = units.NOTHING


def tables(found: Outlook) -> list[RenderableType]:
    """The parts of the page, in order."""
    parts: list[RenderableType] = [_load(found)]
    bounded = [(need, need.sample) for need in found.needs if need.sample is not None]
    if bounded:
        parts.append(_counts(found, bounded))
        parts.append(_times(found, [need for need, _ in bounded]))
    notes = _notes(found)
    if notes:
        parts.append(Text("\n".join(f"- {note}" for note in notes)))
    parts.append(_answer(found, bool(bounded)))
    return parts


def _load(found: Outlook) -> Text:
    title = Text(f"{found.name} ({found.kind})", style="bold")
    for pace in found.paces:
        at = "as written" if pace.latency_ns is None else f"as written, at a latency of {_latency(pace)}"
        title.append(
            f"\n{at}: {units.many(pace.requests, 'request')} in about {clock(pace.duration_ns)}", style="not bold"
        )
    return title


def _counts(found: Outlook, needs: list[tuple[Need, Sample]]) -> Grid:
    given = found.assumptions
    grid = _grid(f"Requests for a PASS with {units.percent(float(found.confidence))} confidence")
    grid.add_column("objective", overflow="fold", min_width=16)
    for name in ("may break it", "none bad", "assumed bad", f"passes {units.percent(float(given.power))}"):
        grid.add_column(name, justify="right", no_wrap=True)
    grid.add_column("LoadGen 99 %", justify="right", no_wrap=True)
    for need, sample in needs:
        grid.add_row(
            Text(need.objective),
            units.percent(float(sample.limit)),
            _count(need, need.requests, sample.least),
            units.percent(float(sample.assumed)),
            _count(need, need.requests_with_bad, sample.with_bad),
            _DASH
            if need.entry == "slice"
            else f"{units.count(sample.loadgen)} / {units.count(sample.loadgen_estimate)}",
        )
    return grid


def _times(found: Outlook, needs: list[Need]) -> Grid:
    grid = _grid("Time that takes, and what the scenario as written can do")
    grid.add_column("objective", overflow="fold", min_width=16)
    if not found.open_loop:
        grid.add_column("latency", justify="right", no_wrap=True)
    for name in ("none bad", "with bad", "can pass"):
        grid.add_column(name, justify="right", no_wrap=True)
    grid.add_column("chance, if the share is as assumed", justify="right")
    for need in needs:
        for i, pace in enumerate(found.paces):
            latency = [] if found.open_loop else [_latency(pace)]
            grid.add_row(
                Text(need.objective if i == 0 else ""),
                *latency,
                _time(need.durations_ns[i]),
                _time(need.durations_with_bad_ns[i]),
                Text("yes" if need.reached[i] else "NO", style="" if need.reached[i] else "yellow"),
                _chance(need.chance[i]),
            )
    return grid


def _notes(found: Outlook) -> list[str]:
    notes = [f"{need.objective}: {need.note}" for need in found.needs if need.note]
    given = found.assumptions
    if any(need.sample for need in found.needs):
        share = "half of what the objective allows" if given.bad_share is None else f"{float(given.bad_share):.6g}"
        notes.append(
            f"assumed bad: the true share of requests that break the limit, {share}; another with --bad-share. The "
            "count after it passes with the probability above it"
        )
        if given.design_effect == 1:
            notes.append(
                "requests are taken as independent; an earlier report's design effect goes in by --design-effect"
            )
        else:
            notes.append(
                f"each count is multiplied by a design effect of {given.design_effect:g}: requests are dependent"
            )
        notes.append("LoadGen 99 %: queries that MLPerf's early stopping asks for, none over / for an estimate")
    seen, unseen = (", ".join(map(window_text, lengths)) for lengths in found.windows_ns)
    if unseen:
        notes.append(
            f"burn-rate alerts: windows of {unseen} are longer than the run" + (f"; {seen} fit" if seen else "")
        )
    if not found.open_loop:
        notes.append("a closed loop has no rate of its own: times are for assumed latencies, others with --latency")
    return notes


def _answer(found: Outlook, any_bounded: bool) -> Text:
    lines = [f"Needs {line}" for line in found.advice]
    beyond = [need.objective for need in found.needs if need.sample and need.sample.assumed >= need.sample.limit]
    if beyond:
        lines += [] if lines else ["The scenario as written has enough requests to pass if none of them is bad."]
        lines.append(
            f"If the true share is as assumed, no number of requests is likely to pass {', '.join(beyond)}: assume a "
            "lower --bad-share, or loosen the objective."
        )
    if lines:
        return Text("\n".join(lines), style="yellow")
    if not any_bounded:
        return Text("Every objective is judged as observed: any run decides it.")
    return Text("The scenario as written has enough requests for every objective.", style="green")


def _grid(title: str) -> Grid:
    return Grid(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2))


def _latency(pace: Pace) -> str:
    return _DASH if pace.latency_ns is None else units.duration(pace.latency_ns).replace(".00 ", " ")


def _count(need: Need, requests: int | None, entries: int | None) -> str:
    if entries is None:
        return _DASH
    if need.entry == "slice":
        return f"{units.count(entries)} slices"
    return units.count(requests or 0)


def _time(time_ns: int | None) -> str:
    return _DASH if time_ns is None else clock(time_ns)


def _chance(chance: float | None) -> str:
    """Never 0 or 100 %: it is an estimate."""
    if chance is None:
        return _DASH
    if chance < 0.01:
        return "< 1 %"
    return "> 99 %" if chance > 0.99 else f"{chance * 100:.0f} %"
