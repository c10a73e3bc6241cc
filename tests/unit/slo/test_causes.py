"""Reasons of an INVALID run: one cause is one text with one remedy, and nothing that was seen is lost."""

from __future__ import annotations

import itertools

import pytest

from plimsoll.slo.validity.generator import Check, reasons

LATE = ("lag p99", "lag max", "rate", "arrival process", "loop stalls")


def checks(*broken: str) -> list[Check]:
    names = ("finished", "not aborted", "workers", "records agree", "all sent", "min_queries", *LATE, "generator CPU")
    names = (*names, "gc pauses", "stamps", "live audio", "clocks")
    return [Check(name, name not in broken, f"saw {name}", f"mend {name}") for name in names]


def test_a_kept_promise_is_no_reason() -> None:
    assert reasons(checks()) == ()


def test_five_promises_broken_by_one_stolen_core_are_one_reason_with_one_remedy() -> None:
    (reason,) = reasons(checks(*LATE, "generator CPU"))
    assert reason.startswith("this host did not give the generator the time that it takes: saw lag p99; saw lag max; ")
    assert reason.endswith(". Free the host, add workers (--workers) on cores of their own, or lower the rate")
    assert all(f"saw {name}" in reason for name in (*LATE, "generator CPU"))
    assert "mend" not in reason


def test_what_a_cut_run_did_not_send_follows_from_the_cut() -> None:
    (reason,) = reasons(checks("finished", "all sent", "min_queries"))
    assert reason == "saw finished: saw all sent; saw min_queries. mend finished"
    (worker,) = reasons(checks("finished", "workers", "all sent"))
    assert worker.endswith("mend finished"), "who was interrupted or killed takes the workers along"
    (alone,) = reasons(checks("workers", "all sent"))
    assert alone == "the run did not come to its own end: saw workers; saw all sent. mend workers"


def test_a_collector_that_stops_the_loop_is_no_busy_host() -> None:
    (reason,) = reasons(checks("gc pauses", "loop stalls", "lag max"))
    assert reason.endswith("mend gc pauses")
    assert "a plug-in takes" in reason


def test_different_causes_are_different_reasons_in_the_order_of_the_checks() -> None:
    found = reasons(checks("records agree", "lag p99", "lag max", "stamps"))
    assert [one.partition(":")[0] for one in found] == [
        "saw records agree. mend records agree",
        "this host did not give the generator the time that it takes",
        "saw stamps. mend stamps",
    ]


@pytest.mark.parametrize("name", [check.name for check in checks()])
def test_a_check_that_is_broken_alone_says_its_own(name: str) -> None:
    assert reasons(checks(name)) == (f"saw {name}. mend {name}",)


def test_nothing_that_was_seen_is_lost_or_said_twice() -> None:
    names = [check.name for check in checks()]
    for broken in itertools.combinations(names, 4):
        text = " | ".join(reasons(checks(*broken)))
        assert all(text.count(f"saw {name}") == 1 for name in broken), (broken, text)
