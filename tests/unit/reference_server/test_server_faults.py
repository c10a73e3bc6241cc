"""Faults are parsed strictly and drawn repeatably."""

from __future__ import annotations

import pytest

from plimsoll.reference_server.misfortune.fault import KINDS, parse_fault
from plimsoll.reference_server.misfortune.faults import Faults
from plimsoll.reference_server.values.errors import ConfigError, RequestError

SECOND = 1_000_000_000


def test_an_unknown_fault_lists_all_known_ones() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_fault("explode=1")
    assert all(name in str(caught.value) for name in KINDS)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("stall", "needs for"),
        ("stall=for:2s,colour:red", "unknown key 'colour'"),
        ("stall=for:2", "no duration"),
        ("error_rate=1.5", "between 0 and 1"),
        ("error_rate=p:0.5,status:200", "between 400 and 599"),
        ("slots=0", "between 1"),
        ("cut=p:x", "'x' is not a number"),
    ],
)
def test_a_bad_fault_is_refused_with_its_bad_part(text: str, part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        parse_fault(text)


def test_defaults_fill_in_and_a_bare_value_is_the_main_key() -> None:
    fault = parse_fault("stall=at:5s,for:2s")
    assert (fault.duration_ns("at"), fault.duration_ns("for"), fault.duration_ns("every")) == (
        5 * SECOND,
        2 * SECOND,
        0,
    )
    assert parse_fault("error_rate=0.25").number("p") == 0.25
    assert parse_fault("slow_headers=20ms").duration_ns("by") == 20_000_000


def outcomes(seed: int, *texts: str, n: int = 400) -> list[str]:
    faults = Faults([parse_fault(text) for text in texts], seed=seed)
    faults.first(0)
    seen = []
    for _ in range(n):
        try:
            drawn = faults.draw(1)
        except RequestError as error:
            seen.append(str(error.status))
        else:
            seen.append("cut" if drawn.cut_at >= 0 else "ok")
    return seen


def test_the_same_seed_draws_the_same_faults() -> None:
    assert outcomes(3, "error_rate=0.3") == outcomes(3, "error_rate=0.3") != outcomes(4, "error_rate=0.3")


def test_the_share_of_errors_is_about_what_was_asked_for() -> None:
    assert 80 < outcomes(0, "error_rate=p:0.3,status:502").count("502") < 160


def test_a_rejection_lasts_as_long_as_it_was_given() -> None:
    faults = Faults([parse_fault("reject=at:1s,for:2s,retry_after:1500ms")], seed=0)
    assert faults.first(10 * SECOND)
    assert not faults.first(11 * SECOND)
    faults.draw(11 * SECOND - 1)
    with pytest.raises(RequestError) as caught:
        faults.draw(11 * SECOND)
    assert (caught.value.status, caught.value.retry_after_s) == (503, 2)
    faults.draw(13 * SECOND)
