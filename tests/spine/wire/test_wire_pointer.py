"""Paths into JSON."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.harness.wire import pointer
from plimsoll.harness.wire.pointer import MISSING, find, parse, truthy


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("a", ("a",)),
        ("$.a.b", ("a", "b")),
        ("$", ()),
        ("choices[0].delta.content", ("choices", 0, "delta", "content")),
        ("$[0][-1]", (0, -1)),
        ('a["b.c"].d', ("a", "b.c", "d")),
        ("a['x y'][2]", ("a", "x y", 2)),
        ("$ref", ("$ref",)),
    ],
)
def test_a_path_is_read_as_steps(text: str, steps: tuple[str | int, ...]) -> None:
    assert parse(text) == steps


@pytest.mark.parametrize("text", ["", " ", ".a", "a..b", "a.", "a[", "a[x]", "a[*]", "a[0]b", "$..a", "a[1:2]"])
def test_what_is_not_a_path_is_refused_with_the_part_that_is_wrong(text: str) -> None:
    with pytest.raises(ValueError, match=r"Write it like|can't read"):
        parse(text)


def test_null_is_something_and_absence_is_not() -> None:
    assert find({"a": None}, ("a",)) is None
    assert find({}, ("a",)) is MISSING
    assert find([1], (1,)) is MISSING
    assert find([1, 2], (-1,)) == 2
    assert find("text", (0,)) is MISSING
    assert not truthy({"a": ""}, ("a",))
    assert not truthy({}, ("a",))
    assert truthy({"a": 1}, ("a",))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(json_values, st.lists(st.sampled_from(["a", "b", 0, -1, 5]), max_size=4))
def test_find_never_raises_on_data(value: object, steps: list[str | int]) -> None:
    find(value, tuple(steps))


def test_a_number_after_a_dot_indexes_an_array_and_names_a_key_of_an_object() -> None:
    assert find({"choices": [{"t": "a"}, {"t": "b"}]}, parse("choices.1.t")) == "b"
    assert find({"choices": {"1": "k"}}, parse("choices.1")) == "k"
    assert find({"choices": []}, parse("choices.0")) is MISSING


# -- selectors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "event", "found"),
    [
        ("a.b", {"a": {"b": 1}}, 1),
        ("a if t == x", {"a": 1, "t": "x"}, 1),
        ("a if t == x", {"a": 1, "t": "y"}, None),
        ("a if t == x", {"a": 1}, None),
        ("a if t != x", {"a": 1}, 1),
        ('a if t == "x y"', {"a": 1, "t": "x y"}, 1),
        ("a if t == x y", {"a": 1, "t": "x y"}, 1),
        ("a if t == 1", {"a": 1, "t": 1}, 1),
        ("a if t == 1", {"a": 1, "t": "1"}, 1),
        ("a if t == 1", {"a": 1, "t": True}, None),
        ("a if t == true", {"a": 1, "t": True}, 1),
        ("a if t == null", {"a": 1, "t": None}, 1),
        ("a if t == null", {"a": 1}, None),
        ("a if t", {"a": 1, "t": [1]}, 1),
        ("a if not t", {"a": 1, "t": []}, 1),
        ("a if not t", {"a": 1, "t": 1}, None),
        ("a if t == x and u.v", {"a": 1, "t": "x", "u": {"v": 2}}, 1),
        ("a if t == x and u.v", {"a": 1, "t": "x", "u": 2}, None),
        ("a if @event == e", {"a": 1}, 1),
        ("a if @event == f", {"a": 1}, None),
        ("$ if t == x", {"t": "x"}, {"t": "x"}),
        ('["a if b"]', {"a if b": 1}, 1),
        ('["a if b"] if t', {"a if b": 1, "t": 1}, 1),
    ],
)
def test_a_selector_leads_somewhere_only_where_its_conditions_hold(text: str, event: Any, found: Any) -> None:
    value = pointer.select(event, pointer.parse_selector(text), b"e")
    assert (None if value is pointer.MISSING else value) == found


@pytest.mark.parametrize("text", ["", "a if ", "a if == x", "a if b..c", "a.. if b"])
def test_a_selector_that_can_not_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="path"):
        pointer.parse_selector(text)
