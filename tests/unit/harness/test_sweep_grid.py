"""The grid of a sweep: what ``--vary`` means, which series it makes, and everything that is refused at once."""

from __future__ import annotations

import pytest

from plimsoll.harness.series.sweep.grid import Grid, arms_of, read_grid


def grid(*texts: str) -> Grid:
    found, errors = read_grid(texts)
    assert errors == []
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("rate=10,1,5", (1, 5, 10)),
        ("concurrency=1..64*2", (1, 2, 4, 8, 16, 32, 64)),
        ("concurrency=1..10*1.5", (1, 2, 3, 5, 8)),
        ("rate=10..100+30", (10, 40, 70, 100)),
        ("rate=0.5..2*2", (0.5, 1, 2)),
        ("rate=1,2,10..20+5", (1, 2, 10, 15, 20)),
        ("rate=1e3,20", (20, 1000)),
        ("rate=0.1..0.3+0.1", (0.1, 0.2, 0.3)),
    ],
)
def test_values_are_lists_and_ranges_in_ascending_order(text: str, values: tuple[float, ...]) -> None:
    assert grid(text).variables[0].values == values


def test_curves_run_along_the_rate_else_the_concurrency_else_the_first_number() -> None:
    assert grid("prompt_tokens=1,2", "rate=1,2").x == "rate"
    assert grid("prompt_tokens=1,2", "concurrency=1,2").x == "concurrency"
    assert grid("model=a,b", "output_tokens=1,2", "prompt_tokens=1,2").x == "output_tokens"
    # A rate of one value is a setting; the curve runs along what varies.
    assert grid("rate=5", "prompt_tokens=1,2").x == "prompt_tokens"


def test_loads_become_levels_and_settings_of_the_server_become_arms() -> None:
    made = grid("rate=1,2", "prompt_tokens=16,32", "server.max_batch=1,4", "server.ttft=20ms", "option.a.b=1")
    assert [level.label for level in made.levels(False)] == [
        "prompt_tokens-16-rate-1",
        "prompt_tokens-16-rate-2",
        "prompt_tokens-32-rate-1",
        "prompt_tokens-32-rate-2",
    ]
    assert made.levels(False)[0].flags == {"kind": "server", "rate": 1, "prompt_tokens": 16}
    assert "kind" not in made.levels(True)[0].flags
    arms, errors = arms_of(made, bundled=True)
    assert errors == []
    assert [(arm.name, arm.server.max_batch, arm.server.ttft, arm.options) for arm in arms] == [
        ("max_batch-1", 1, "20ms", {"a": {"b": 1}}),
        ("max_batch-4", 4, "20ms", {"a": {"b": 1}}),
    ]
    assert len(made.series()) == 4
    assert made.points == 8


def test_settings_too_long_for_a_folder_are_numbered() -> None:
    arms, _ = arms_of(grid("rate=1,2", f"model={'m' * 60},{'n' * 60}"), bundled=False)
    assert [arm.name for arm in arms] == ["endpoint-001", "endpoint-002"]
    assert [arm.model for arm in arms] == ["m" * 60, "n" * 60]


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ((), "nothing varies"),
        (("rate",), "no values"),
        (("rate=",), "no values"),
        (("speeed=1,2",), "can't be varied. Known: rate"),
        (("server.speed=1",), "has no 'speed'. Known: ttft"),
        (("rate=1..5",), "is no range"),
        (("rate=5..1*2",), "never gets"),
        (("rate=1..5*1",), "never gets"),
        (("rate=0,1",), "above 0"),
        (("rate=fast,1",), "above 0"),
        (("rate=1,,2",), "an empty value"),
        (("rate=1,1",), "given twice"),
        (("concurrency=1.5,2",), "whole numbers"),
        (("rate=1,2", "rate=3"), "varied twice"),
        (("rate=1,2", "concurrency=1,2"), "Vary one of them"),
        (("model=a,b",), "no number to draw a curve along"),
        (("rate=1..200+1", "prompt_tokens=1..100+1"), "more than 10,000"),
        (("rate=1..1000000+1",), "more than 10,000"),
    ],
)
def test_what_makes_no_grid_is_refused_with_what_to_write(texts: tuple[str, ...], words: str) -> None:
    found, errors = read_grid(texts)
    assert found is None
    assert any(words in text for text in errors), errors


def test_every_mistake_is_told_at_once() -> None:
    assert len(read_grid(["rate=", "speeed=1", "concurrency=0.5,1"])[1]) == 3


def test_settings_of_a_server_that_is_not_ours_are_refused() -> None:
    _, errors = arms_of(grid("rate=1,2", "server.max_batch=1,4"), bundled=False)
    assert "Leave --url out" in errors[0]


def test_a_setting_that_the_server_refuses_is_named() -> None:
    _, errors = arms_of(grid("rate=1,2", "server.max_batch=0,4"), bundled=True)
    assert "max_batch" in errors[0]
