"""The player of arrays against a player of one chunk at a time, and what must hold whatever comes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.slo.metrics.speech import Playback, simulate

chunk = st.tuples(st.integers(0, 200), st.integers(0, 120))
session = st.lists(chunk, max_size=8)
sessions = st.lists(session, max_size=6)
settings_ = st.fixed_dictionaries(
    {name: st.sampled_from([0, 1, 20, 150]) for name in ("startup_delay_ns", "prebuffer_ns", "eps_ns")}
)


def arrays(drawn: list[list[tuple[int, int]]]) -> tuple[list[list[tuple[int, int]]], Playback]:
    """Gaps become arrivals."""
    placed = []
    for one in drawn:
        at = np.cumsum([gap for gap, _ in one]).tolist()
        placed.append([(t, audio) for t, (_, audio) in zip(at, one, strict=True)])
    return placed, run(placed)


def run(placed: list[list[tuple[int, int]]], **given_: int) -> Playback:
    flat = [part for one in placed for part in one]
    times = np.array([t for t, _ in flat], np.int64)
    audio = np.array([d for _, d in flat], np.int64)
    return simulate(times, audio, np.cumsum([0] + [len(one) for one in placed]), **given_)


def one_by_one(
    chunks: list[tuple[int, int]], startup_delay_ns: int, prebuffer_ns: int, eps_ns: int
) -> tuple[int, int, int, int] | None:
    chunks = [(t, d) for t, d in chunks if d > 0]
    if not chunks:
        return None
    gathered, begin = 0, chunks[-1][0]
    for t, d in chunks:
        gathered += d
        if gathered >= prebuffer_ns:
            begin = t
            break
    start, before, stalled, underruns, longest = begin + startup_delay_ns, 0, 0, 0, 0
    required = 0
    for t, d in chunks:
        late = max(0, t - (start + before + stalled))
        if late > eps_ns:
            underruns, stalled, longest = underruns + 1, stalled + late, max(longest, late)
        required = max(required, t - chunks[0][0] - before)
        before += d
    return stalled, underruns, longest, required


@given(drawn=sessions, how=settings_)
def test_it_is_the_player_that_takes_one_chunk_at_a_time(
    drawn: list[list[tuple[int, int]]], how: dict[str, int]
) -> None:
    placed, _ = arrays(drawn)
    found = run(placed, **how)
    for i, chunks in enumerate(placed):
        expected = one_by_one(chunks, **how)
        assert found.valid[i] == (expected is not None)
        seen = (found.stalled_ns[i], found.underruns[i], found.longest_ns[i], found.required_ns[i])
        assert seen == (expected or (0, 0, 0, 0))


@given(drawn=session)
def test_with_the_delay_that_it_requires_nothing_stalls_and_with_less_something_does(
    drawn: list[tuple[int, int]],
) -> None:
    placed, found = arrays([drawn])
    needed = int(found.required_ns[0])
    assert run(placed, startup_delay_ns=needed, eps_ns=0).stalled_ns.tolist() == [0]
    if needed:
        assert run(placed, startup_delay_ns=needed - 1, eps_ns=0).stalled_ns[0] > 0


@given(drawn=session, at=st.integers(0, 7), more=st.integers(1, 300))
def test_a_slower_server_never_stalls_less(drawn: list[tuple[int, int]], at: int, more: int) -> None:
    """Everything from some chunk after the first on comes later: without tolerance it stops for longer, or as long."""
    slower = [(gap + (more if i == max(at, 1) else 0), d) for i, (gap, d) in enumerate(drawn)]
    # The first chunk with audio starts the player, so the delay must come after it.
    if not any(d > 0 for _, d in drawn[: max(at, 1)]):
        return
    placed, _ = arrays([drawn])
    later, _ = arrays([slower])
    before, after = run(placed, eps_ns=0), run(later, eps_ns=0)
    assert after.stalled_ns[0] >= before.stalled_ns[0]
    assert after.required_ns[0] >= before.required_ns[0]
