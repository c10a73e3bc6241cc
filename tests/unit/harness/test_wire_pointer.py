"""Paths into JSON."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.wire.pointer import MISSING, find, parse, truthy


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
