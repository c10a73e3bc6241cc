"""What an agent tells the person in front of it, and when it ends."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.harness.distributed.bridge import Address, Standby
from plimsoll.harness.exit_codes import ExitCode


def after(last: dict[str, Any], once: bool, *before: dict[str, Any]) -> tuple[ExitCode | None, list[str]]:
    said: list[str] = []
    standby = Standby(Address("10.0.0.1", 5557), [], once, said.append)
    for event in before:
        standby._say(event)
    return standby._after(last, 0), said


WHOLE = {"event": "ended", "code": 0, "whole": True, "greeted": True, "ran": True}
GONE = {"event": "gone", "reason": "the master ended", "ran": True}


@pytest.mark.parametrize(
    ("last", "once", "code"),
    [
        (WHOLE, True, ExitCode.PASS),
        (WHOLE, False, None),
        ({**WHOLE, "ran": False}, True, ExitCode.INVALID),
        ({**WHOLE, "ran": False}, False, None),
        ({**WHOLE, "code": 4}, True, ExitCode.INVALID),
        ({**WHOLE, "code": 4}, False, None),
        ({"event": "go"}, True, ExitCode.INVALID),
        ({"event": "go"}, False, None),
        ({**WHOLE, "code": -9, "whole": False}, True, ExitCode.INVALID),
        ({**WHOLE, "code": -9, "whole": False}, False, None),
        ({"event": "refused", "late": False}, False, ExitCode.USAGE),
        ({"event": "refused", "late": True}, True, ExitCode.USAGE),
        ({"event": "refused", "late": True}, False, None),
        ({"event": "ended", "code": 2, "whole": False, "greeted": False}, False, ExitCode.USAGE),
        (GONE, True, ExitCode.INVALID),
        ({**GONE, "ran": False}, True, None),
        (GONE, False, None),
        ({"event": "broken"}, True, None),
    ],
)
def test_an_agent_waits_for_the_next_run_unless_it_was_refused_or_has_had_its_one(
    last: dict[str, Any], once: bool, code: ExitCode | None
) -> None:
    assert after(last, once)[0] == code


def test_that_nobody_answers_is_said_once_until_somebody_does() -> None:
    _, said = after(
        WHOLE, False, {"event": "waiting"}, {"event": "waiting"}, {"event": "connected"}, {"event": "waiting"}
    )
    assert [text.split(" ")[0] for text in said] == ["nobody", "connected", "nobody", "the"]


def test_a_master_that_never_answered_is_not_gone() -> None:
    assert after({**GONE, "ran": False}, False)[1] == []
    assert "is gone (the master ended)" in after(GONE, False, {"event": "connected"})[1][-1]


def test_once_ends_with_the_master_that_left_before_its_run_began() -> None:
    code, said = after({**GONE, "ran": False}, True, {"event": "connected"})
    assert code == ExitCode.INVALID
    assert said[-1].endswith("is gone (the master ended); nothing more is waited for (--once)")
    assert after({**GONE, "ran": False}, False, {"event": "connected"})[0] is None


def test_a_run_that_was_called_off_is_not_called_over() -> None:
    assert "nothing was sent from here" in after({**WHOLE, "ran": False}, False)[1][-1]
    assert "nothing was sent from here" in after({**WHOLE, "code": 4}, False)[1][-1]
