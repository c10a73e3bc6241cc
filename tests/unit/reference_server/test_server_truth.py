"""The truth keeps what it was told, within its bounds."""

from __future__ import annotations

from plimsoll.reference_server.seams.truth import Truth


def test_the_oldest_requests_are_forgotten_first() -> None:
    truth = Truth(max_requests=3)
    for number in range(5):
        truth.open(f"r{number}", "scripted", number)
    assert [row.request_id for row in truth.since(0)] == ["r2", "r3", "r4"]
    assert truth.get("r0") is None


def test_stamps_are_bounded_too() -> None:
    truth = Truth(max_stamps=10)
    for number in range(4):
        row = truth.open(f"r{number}", "scripted", number)
        for stamp in range(2):
            row.before_ns.append(stamp)
            row.after_ns.append(stamp)
        truth.close(row, "ok", number)
    assert [row.request_id for row in truth.since(0)] == ["r2", "r3"]


def test_a_repeated_id_replaces_the_row_and_a_late_end_of_the_old_one_harms_nothing() -> None:
    truth = Truth(max_stamps=4)
    old = truth.open("r", "scripted", 1)
    old.before_ns.extend([1, 2, 3])
    old.after_ns.extend([1, 2, 3])
    new = truth.open("r", "scripted", 2)
    truth.close(old, "cancelled", 3)
    assert truth.get("r") is new
    assert (new.outcome, len(truth)) == ("open", 1)


def test_the_first_ending_counts() -> None:
    truth = Truth()
    row = truth.open("r", "scripted", 1)
    truth.close(row, "cut", 5)
    truth.close(row, "ok", 6)
    assert (row.outcome, row.done_ns) == ("cut", 5)


def test_since_selects_by_arrival() -> None:
    truth = Truth()
    for number in range(4):
        truth.open(f"r{number}", "scripted", number * 10)
    assert [row.request_id for row in truth.since(15)] == ["r2", "r3"]
    truth.clear()
    assert list(truth.since(0)) == []
