"""Comparisons as Markdown: pure, from figures to text. It says "no" where a target is missed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tests.bench.rounds import Comparison, Ratio

#: A server this busy is the limit: requests/s then say nothing of the client.
SERVER_LIMIT = 0.95
#: A client that got less of its core, in a closed loop that never waits, shared it with somebody.
OWN_CORE = 0.9
#: The transport prototype's cost that the full engine is held to, and the allowance.
BUDGET_US, BUDGET_EVENTS, ALLOWANCE = 6.7, 680_000, 1.5
WANTED_EVENTS, WANTED_WRK, WANTED_AIOHTTP = 500_000, 0.9, 1 / 8

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"

SMALL_COLUMNS = (
    "server", "client", "requests/s", "v. wrk", "CPU µs a request", "CPU v. wrk", "CPU v. aiohttp", "client's core",
    "server's core",
)  # fmt: skip
SSE_COLUMNS = (
    "server writes", "client", "token events/s", "events per CPU-second", "v. aiohttp", "v. wrk", "server's core",
)  # fmt: skip
ISSUE_COLUMNS = ("scenario", "issuer", "queries/s issued", "v. LoadGen", "CPU µs a query, all of it")
TARGET_COLUMNS = ("target", "measured", "kept")
COLUMNS = (TARGET_COLUMNS, SMALL_COLUMNS, SSE_COLUMNS, ISSUE_COLUMNS)

_SERVERS = {"small": "oracle", "small-nginx": "nginx"}
_WRITES = {
    "sse-paced": "an event every 10 ms, 1,000 streams",
    "sse-full": "an event a write, no pause, 64 streams",
    "sse-whole": "a whole stream a write, 16 streams",
}
_SCENARIOS = {"issue-single": "SingleStream", "issue-server": "Server, 2,000,000/s asked"}


def render(comparisons: Sequence[Comparison], facts: Sequence[str]) -> str:
    """All that stands between the markers."""
    by_key = {one.key: one for one in comparisons}
    rounds = max((len(taken) for one in comparisons for taken in one.rounds.values()), default=0)
    repeated = sum(one.repeated for one in comparisons)
    left_out = list(dict.fromkeys(text for one in comparisons for text in one.left_out))
    parts = [
        "\n".join(f"- {fact}" for fact in [*facts, f"medians of {rounds} rounds; {repeated} rounds repeated"]),
        _grid(TARGET_COLUMNS, targets(by_key)),
        _grid(SMALL_COLUMNS, [row for key in _SERVERS if key in by_key for row in _small(by_key[key])]),
        _grid(SSE_COLUMNS, [row for key in _WRITES if key in by_key for row in _sse(by_key[key])]),
        _grid(ISSUE_COLUMNS, [row for key in _SCENARIOS if key in by_key for row in _issue(by_key[key])]),
        *(f"Left out: {text}." for text in left_out),
    ]
    return "\n\n".join(parts)


def _grid(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _count(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _micros(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _times(ratio: Ratio | None) -> str:
    return "-" if ratio is None else f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"


def _against(one: Comparison, who: str, other: str, figure: str) -> str:
    return "1" if who == other else _times(one.ratio(who, other, figure))


def _small(one: Comparison) -> list[list[str]]:
    return [
        [
            _SERVERS[one.key],
            who,
            _count(one.median(who, "requests_per_s")),
            _against(one, who, "wrk", "requests_per_s"),
            _micros(one.median(who, "cpu_us")),
            _against(one, who, "wrk", "cpu_us"),
            _against(one, who, "aiohttp", "cpu_us"),
            _share(_busy(one, who)),
            _share(one.median(who, "server")),
        ]
        for who in one.rounds
    ]


def _sse(one: Comparison) -> list[list[str]]:
    return [
        [
            _WRITES[one.key],
            who,
            _count(one.median(who, "events_per_s")),
            _count(one.median(who, "events_per_cpu_s")),
            _against(one, who, "aiohttp", "events_per_cpu_s"),
            _against(one, who, "wrk", "events_per_cpu_s"),
            _share(one.median(who, "server")),
        ]
        for who in one.rounds
    ]


def _issue(one: Comparison) -> list[list[str]]:
    return [
        [
            _SCENARIOS[one.key],
            who,
            _count(one.median(who, "queries_per_s")),
            _against(one, who, "LoadGen", "queries_per_s"),
            _micros(one.median(who, "cpu_us")),
        ]
        for who in one.rounds
    ]


# -- targets --------------------------------------------------------------------------------------------------------


def targets(by_key: Mapping[str, Comparison]) -> list[list[str]]:
    """What was promised, what came out, and whether that keeps it. A target without its peers has no row."""
    rows: list[list[str]] = []

    def add(target: str, measured: str, kept: bool) -> None:
        rows.append([target, measured, "yes" if kept else "**no**"])

    for key in ("small", "small-nginx"):
        if key in by_key:
            _small_targets(by_key[key], add)
    for key, writes in _WRITES.items():
        events = by_key[key].median("Plimsoll", "events_per_cpu_s") if key in by_key else None
        if events is not None:
            said = f"{events:,.0f}, {writes}"
            add(f"SSE: at least {WANTED_EVENTS:,} token events per CPU-second", said, events >= WANTED_EVENTS)
            floor = BUDGET_EVENTS / ALLOWANCE
            said = f"{BUDGET_EVENTS / events:.2f} times, {writes}"
            wanted = f"SSE: at most {ALLOWANCE} times the transport prototype's cost ({BUDGET_EVENTS:,} events per CPU-second)"  # noqa: E501
            add(wanted, said, events >= floor)
    return rows


def _doubt(one: Comparison) -> str | None:
    """Why requests/s say nothing of the client, or None."""
    for who in ("Plimsoll", "wrk"):
        if (one.median(who, "server") or 0) >= SERVER_LIMIT:
            return "the server was the limit"
        if (_busy(one, who) or 0) < OWN_CORE:
            return "the client's core was shared"
    return None


def _busy(one: Comparison, who: str) -> float | None:
    """The share of its core that the client used."""
    rate, cpu = one.median(who, "requests_per_s"), one.median(who, "cpu_us")
    return rate * cpu / 1e6 if rate is not None and cpu is not None else None


def _small_targets(one: Comparison, add: Callable[[str, str, bool], None]) -> None:
    where = _SERVERS[one.key]
    rate, cpu = one.ratio("Plimsoll", "wrk", "requests_per_s"), one.ratio("Plimsoll", "wrk", "cpu_us")
    if rate is not None and cpu is not None:
        doubt = _doubt(one)
        found = rate if doubt is None else cpu.inverse()
        how = "by requests/s" if doubt is None else f"by CPU a request: {doubt}"
        wanted = f"small JSON: at least {WANTED_WRK} of wrk"
        add(wanted, f"{_times(found)} {how}, {where}", found.value >= WANTED_WRK)
    python = one.ratio("Plimsoll", "aiohttp", "cpu_us")
    if python is not None:
        said = f"1/{1 / python.value:.1f}, {where}"
        add("small JSON: CPU a request at most 1/8 of aiohttp's", said, python.value <= WANTED_AIOHTTP)
    micros = one.median("Plimsoll", "cpu_us")
    if micros is not None and one.key == "small":
        wanted = f"small JSON: at most {ALLOWANCE} times the transport prototype's cost ({BUDGET_US} µs a request)"
        add(wanted, f"{micros / BUDGET_US:.2f} times", micros <= ALLOWANCE * BUDGET_US)


def replace_between_markers(page: str, text: str) -> str:
    """The page with new text between its markers. Raises ValueError if it has none."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} ... {END}. Put them where the table belongs")
    return f"{head}{BEGIN}\n\n{text}\n\n{END}{tail}"
