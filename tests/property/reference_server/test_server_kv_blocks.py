"""Random traces of opening, growing, publishing and closing: no block is lost, none has two owners unless shared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.reference_server.engine.kv_blocks import KvBlocks, OutOfBlocks

ACTIONS = st.lists(
    st.tuples(st.sampled_from(["open", "grow", "publish", "close"]), st.integers(0, 7), st.integers(1, 40)), max_size=80
)


def owners_of(blocks: KvBlocks, live: dict[int, list[int]]) -> dict[int, list[int]]:
    owners: dict[int, list[int]] = {}
    for owner in live:
        for block in blocks.table(owner):
            owners.setdefault(block, []).append(owner)
    return owners


def apply(blocks: KvBlocks, live: dict[int, list[int]], action: str, owner: int, size: int) -> None:
    if action == "open" and owner not in live:
        tokens = [owner % 2] * size  # two families of prompts, so that prefixes do coincide
        cached = blocks.open(owner, tokens)
        assert cached < len(tokens)
        live[owner] = tokens
    elif action == "grow" and owner in live:
        grown = live[owner] + list(range(size))
        blocks.grow(owner, len(grown))
        live[owner] = grown
    elif action == "publish" and owner in live:
        blocks.publish(owner, live[owner], min(size, len(live[owner])))
    elif action == "close" and owner in live:
        blocks.close(owner)
        del live[owner]


@given(actions=ACTIONS, n_blocks=st.integers(1, 24), block_size=st.integers(1, 8), reuse=st.booleans())
def test_no_block_is_leaked_or_owned_twice(
    actions: list[tuple[str, int, int]], n_blocks: int, block_size: int, reuse: bool
) -> None:
    blocks = KvBlocks(n_blocks, block_size, reuse_prefixes=reuse)
    live: dict[int, list[int]] = {}
    for action, owner, size in actions:
        before = (blocks.available, {o: list(blocks.table(o)) for o in live})
        try:
            apply(blocks, live, action, owner, size)
        except OutOfBlocks:
            assert (blocks.available, {o: list(blocks.table(o)) for o in live}) == before
        owners = owners_of(blocks, live)
        assert len(owners) == blocks.used == n_blocks - blocks.available
        for block, holders in owners.items():
            assert blocks.references(block) == len(holders)
            assert reuse or len(holders) == 1
        for owner_, tokens in live.items():
            assert len(blocks.table(owner_)) == blocks.blocks_for(len(tokens))
    for owner in list(live):
        blocks.close(owner)
    assert blocks.available == n_blocks


@given(
    first=st.lists(st.integers(0, 1), min_size=1, max_size=40),
    second=st.lists(st.integers(0, 1), min_size=1, max_size=40),
    size=st.integers(1, 5),
)
def test_only_whole_blocks_of_equal_beginnings_are_shared(first: list[int], second: list[int], size: int) -> None:
    blocks = KvBlocks(100, size, reuse_prefixes=True)
    blocks.open("a", first)
    blocks.publish("a", first, len(first))
    cached = blocks.open("b", second)
    equal = 0
    while equal < min(len(first), len(second)) and first[equal] == second[equal]:
        equal += 1
    assert cached == min(equal, len(second) - 1) // size * size
    shared = set(blocks.table("a")) & set(blocks.table("b"))
    assert len(shared) == cached // size


def test_a_block_with_other_contents_is_never_found_again() -> None:
    blocks = KvBlocks(2, 2, reuse_prefixes=True)
    blocks.open("a", [1, 1, 1])
    blocks.publish("a", [1, 1, 1], 3)
    blocks.close("a")
    blocks.open("b", [2, 2, 2, 2])  # needs both blocks, so what "a" left must go
    blocks.publish("b", [2, 2, 2, 2], 4)
    blocks.close("b")
    assert blocks.open("c", [1, 1, 1]) == 0


def test_opening_twice_and_closing_a_stranger_are_refused() -> None:
    blocks = KvBlocks(4, 4)
    blocks.open("a", [1])
    with pytest.raises(ValueError, match="already owns"):
        blocks.open("a", [1])
    with pytest.raises(KeyError):
        blocks.close("b")


@given(
    n_blocks=st.integers(1, 12),
    size=st.integers(1, 4),
    held=st.integers(1, 20),
    wanted=st.integers(1, 20),
    reserve=st.integers(0, 8),
    reuse=st.booleans(),
)
def test_a_reserve_is_left_or_nothing_is_changed(
    n_blocks: int, size: int, held: int, wanted: int, reserve: int, reuse: bool
) -> None:
    blocks = KvBlocks(n_blocks, size, reuse_prefixes=reuse)
    if blocks.blocks_for(held) <= n_blocks:
        blocks.open("held", [1] * held)
        blocks.publish("held", [1] * held, held)
    before = blocks.available
    shared = min(held, wanted - 1) // size if reuse and before < n_blocks else 0
    fresh = blocks.blocks_for(wanted) - shared
    if fresh + reserve <= before:
        assert blocks.open("new", [1] * wanted, reserve=reserve) == shared * size
        assert blocks.available == before - fresh >= reserve
    else:
        with pytest.raises(OutOfBlocks):
            blocks.open("new", [1] * wanted, reserve=reserve)
        assert blocks.available == before
