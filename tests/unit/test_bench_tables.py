"""The benchmark's tables are arithmetic on rounds: tested on figures made up here, without any load."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.bench import batch_windows, table
from tests.bench.rounds import Comparison, Ratio, Round, alternate

PAGE = Path(__file__).parent.parent.parent / "docs" / "evidence" / "performance.md"


def small(rates: dict[str, list[float]], server: float = 0.5, key: str = "small") -> Comparison:
    """A core's worth of requests at each rate."""
    rounds = {
        who: [{"requests_per_s": rate, "cpu_us": 1e6 / rate, "server": server} for rate in each]
        for who, each in rates.items()
    }
    return Comparison(key, rounds)


def cells(text: str, columns: tuple[str, ...]) -> list[list[str]]:
    """The rows of the table with these columns."""
    lines = text.split(f"| {' | '.join(columns)} |\n", 1)[1].split("\n\n", 1)[0].splitlines()[1:]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


def test_a_ratio_is_of_medians_and_its_spread_of_single_rounds() -> None:
    one = small({"Plimsoll": [100.0, 90.0, 10.0], "wrk": [100.0, 120.0, 100.0]})
    assert one.ratio("Plimsoll", "wrk", "requests_per_s") == Ratio(0.9, 0.1, 1.0)


def test_a_ratio_with_somebody_who_is_not_there_is_none() -> None:
    assert small({"Plimsoll": [1.0]}).ratio("Plimsoll", "wrk", "requests_per_s") is None
    assert small({"Plimsoll": [1.0]}).median("Plimsoll", "queries_per_s") is None


def test_the_inverse_of_a_ratio_turns_its_spread_round() -> None:
    assert Ratio(2.0, 1.0, 4.0).inverse() == Ratio(0.5, 0.25, 1.0)


def test_contestants_take_turns_and_a_broken_round_is_taken_again_once() -> None:
    order: list[str] = []

    def contestant(name: str, breaks_at: int) -> Round:
        order.append(name)
        if len(order) == breaks_at:
            raise RuntimeError("a hiccup")
        return {"requests_per_s": 1.0}

    said: list[str] = []
    both = {"a": lambda: contestant("a", 1), "b": lambda: contestant("b", 99)}
    one = alternate("small", both, 2, ["c is not installed"], said.append)
    assert order == ["a", "a", "b", "a", "b"]
    assert (one.repeated, [len(taken) for taken in one.rounds.values()]) == (1, [2, 2])
    assert "a hiccup" in said[0]


def test_a_round_that_breaks_twice_ends_the_benchmark() -> None:
    def broken() -> Round:
        raise RuntimeError("no server")

    with pytest.raises(RuntimeError, match="no server"):
        alternate("small", {"a": broken}, 1, [], lambda text: None)


def test_requests_decide_only_where_the_client_was_the_limit() -> None:
    rates = {"wrk": [200_000.0] * 5, "Plimsoll": [190_000.0] * 5}
    free = table.targets({"small": small(rates)})[0]
    assert free[1:] == ["0.95 (0.95 to 0.95) by requests/s, oracle", "yes"]
    limited = table.targets({"small": small(rates, server=0.99)})[0]
    assert limited[1:] == ["0.95 (0.95 to 0.95) by CPU a request: the server was the limit, oracle", "yes"]
    shared = {
        who: [{**one, "cpu_us": one["cpu_us"] / 2} for one in taken] for who, taken in small(rates).rounds.items()
    }
    found = table.targets({"small": Comparison("small", shared)})[0]
    assert found[1] == "0.95 (0.95 to 0.95) by CPU a request: the client's core was shared, oracle"


def test_a_missed_target_says_no_and_a_kept_one_yes() -> None:
    rates = {"wrk": [200_000.0] * 5, "Plimsoll": [100_000.0] * 5, "aiohttp": [12_600.0] * 5}
    found = {row[0]: row[1:] for row in table.targets({"small": small(rates)})}
    assert found["small JSON: at least 0.9 of wrk"][1] == "**no**"
    assert found["small JSON: CPU a request at most 1/8 of aiohttp's"] == ["1/7.9, oracle", "**no**"]
    assert found["small JSON: at most 1.5 times the transport prototype's cost (6.7 µs a request)"][1] == "yes"


def test_events_are_held_to_both_their_target_and_the_prototypes_budget() -> None:
    events = Comparison("sse-full", {"Plimsoll": [{"events_per_s": 4e5, "events_per_cpu_s": 460_000.0, "server": 1.0}]})
    wanted, budget = table.targets({"sse-full": events})
    assert (wanted[2], budget[2]) == ("**no**", "yes")
    assert "460,000" in wanted[1]
    assert "1.48 times" in budget[1]


def test_the_text_has_every_table_the_facts_and_who_was_left_out() -> None:
    loops = {"LoadGen": [{"queries_per_s": 4e5, "cpu_us": 3.0}], "Plimsoll": [{"queries_per_s": 2e5, "cpu_us": 8.0}]}
    lost = Comparison("small-nginx", {}, ("nginx is not installed: get it",), repeated=1)
    taken = small({"wrk": [2e5, 2e5], "Plimsoll": [1e5, 1e5], "aiohttp": [1e4, 1e4]})
    text = table.render([taken, lost, Comparison("issue-single", loops)], ["processor: of a test"])
    assert "- processor: of a test\n- medians of 2 rounds; 1 rounds repeated" in text
    assert "Left out: nginx is not installed: get it." in text
    assert cells(text, table.SMALL_COLUMNS)[1] == [
        "oracle", "Plimsoll", "100,000", "0.50 (0.50 to 0.50)", "10.00", "2.00 (2.00 to 2.00)", "0.10 (0.10 to 0.10)",
        "100%", "50%",
    ]  # fmt: skip
    assert cells(text, table.ISSUE_COLUMNS)[1] == ["SingleStream", "Plimsoll", "200,000", "0.50 (0.50 to 0.50)", "8.00"]
    assert cells(text, table.SSE_COLUMNS) == []


def test_the_page_keeps_everything_outside_the_markers() -> None:
    page = f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n"
    new = table.replace_between_markers(page, "new")
    assert new == f"before\n{table.BEGIN}\n\nnew\n\n{table.END}\nafter\n"
    assert table.replace_between_markers(new, "new") == new
    with pytest.raises(ValueError, match="has no"):
        table.replace_between_markers("no markers", "new")


def test_the_performance_page_has_markers_every_table_and_its_date() -> None:
    text = PAGE.read_text(encoding="utf-8")
    kept = text.partition(table.BEGIN)[2].partition(table.END)[0]
    for columns in table.COLUMNS:
        assert cells(kept, columns), columns
    assert re.search(r"^- date: \d{4}-\d\d-\d\d$", kept, re.MULTILINE)
    assert "<!-- bench" not in kept


def test_the_table_of_batch_windows_is_that_of_its_bench() -> None:
    """500/s, whose p99 is 21.6 ms with a window of 10 ms."""
    page = (PAGE.parent.parent / "guide" / "fleet.md").read_text(encoding="utf-8")
    made = batch_windows.row(500)
    assert "15.0; 21.6" in made
    assert made in page
