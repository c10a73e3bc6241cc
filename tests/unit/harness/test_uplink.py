"""A bad network before the socket, in virtual time: order, delays, rate, retransmissions, frames lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.generator import native
from plimsoll.harness.run.job import prepare
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.live.player import Player
from plimsoll.harness.transport.uplink import HEADERS, RETRANSMIT_NS, SEGMENT, Uplink, Uplinks
from plimsoll.scenarios import spec
from plimsoll.scenarios.plan.impairment import ImpairSection
from plimsoll.scenarios.text.document import ScenarioError
from tests.virtual_time import VirtualClock

MS = 1_000_000


def links(clock: VirtualClock, live: bool = False, seed: int = 7, **section: Any) -> Uplinks:
    return Uplinks(clock, ImpairSection.model_validate(section).model(seed, live))


def through(links_: Uplinks, clock: VirtualClock, writes: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """(when, bytes) of what reaches the socket."""
    out: list[tuple[int, bytes]] = []
    link = Uplink(links_, lambda data: out.append((clock.now_ns(), data)))
    for at_ns, data in writes:
        clock.run(at_ns)
        link.put(data)
        assert link.held > 0
    clock.run()
    assert link.held == 0
    return out


def test_a_delay_moves_every_write_by_itself() -> None:
    clock = VirtualClock(0)
    out = through(links(clock, delay="50ms"), clock, [(0, b"a"), (10 * MS, b"b"), (200 * MS, b"c")])
    assert out == [(50 * MS, b"a"), (60 * MS, b"b"), (250 * MS, b"c")]


def test_a_line_takes_its_time_for_each_byte_and_its_headers() -> None:
    clock = VirtualClock(0)
    out = through(links(clock, bandwidth="64kbit"), clock, [(0, b"x" * 120), (0, b"y" * (SEGMENT + 10))])
    first = (120 + HEADERS) * 8 * 1_000_000_000 // 64_000
    assert out[0] == (first, b"x" * 120)
    assert [len(data) for _, data in out[1:]] == [SEGMENT, 10]
    assert out[2][0] == first + (SEGMENT + 10 + 2 * HEADERS) * 8 * 1_000_000_000 // 64_000


def test_a_lost_segment_holds_up_what_was_written_behind_it() -> None:
    clock = VirtualClock(0)
    lossy = links(clock, loss=0.3)
    out = through(lossy, clock, [(i * MS, bytes([i])) for i in range(200)])
    assert b"".join(data for _, data in out) == bytes(range(200))
    assert 30 <= lossy.counts["segments_lost"] <= 150
    assert {when % MS for when, _ in out} == {0}
    waited = [when - data[0] * MS for when, data in out]
    assert max(waited) >= RETRANSMIT_NS
    assert 0 in waited


@given(
    st.lists(st.tuples(st.integers(0, 50), st.binary(min_size=1, max_size=4000)), max_size=20), st.integers(0, 2**32)
)
def test_order_and_bytes_are_kept_whatever_happens(writes: list[tuple[int, bytes]], seed: int) -> None:
    clock = VirtualClock(0)
    bad = links(clock, seed=seed, delay="30ms", jitter="30ms", loss=0.2, bandwidth="1mbit")
    at, planned = 0, []
    for gap_ms, data in writes:
        at += gap_ms * MS
        planned.append((at, data))
    out = through(bad, clock, planned)
    assert b"".join(data for _, data in out) == b"".join(data for _, data in writes)
    assert [when for when, _ in out] == sorted(when for when, _ in out)


def test_jitter_is_spread_around_the_delay() -> None:
    clock = VirtualClock(0)
    out = through(links(clock, delay="50ms", jitter="20ms"), clock, [(i * 100 * MS, b"x") for i in range(400)])
    ways = sorted(when - i * 100 * MS for i, (when, _) in enumerate(out))
    assert 30 * MS <= ways[0] < 31 * MS
    assert 69 * MS < ways[-1] <= 70 * MS
    assert 47 * MS < sum(ways) / len(ways) < 53 * MS


def test_of_live_audio_whole_frames_are_lost_or_come_twice_by_query() -> None:
    clock = VirtualClock(0)
    bad = links(clock, live=True, loss="20%", duplicate="10%")
    one, other = Exchange(3, 0, 0, 0, None), Exchange(4, 0, 0, 0, None)
    copies = bad.copies(one, 1000)
    assert copies == links(clock, live=True, loss="20%", duplicate="10%").copies(one, 1000)
    assert copies != bad.copies(other, 1000)
    assert 150 < copies.count(0) < 250
    assert 50 < copies.count(2) < 110
    said: list[tuple[int, bytes]] = []

    def write(data: bytes) -> int:
        said.append((clock.now_ns(), data))
        return clock.now_ns()

    frames = [b"%d" % i for i in range(1000)]
    due_ns = [20 * MS * i for i in range(1000)]
    player = Player(clock, frames, due_ns, 1000, b"end", due_ns[-1], write, lambda: 0, copies=copies)
    player.start(0)
    clock.run()
    wanted = [(due_ns[i], frames[i]) for i in range(1000) for _ in range(copies[i])]
    assert said == [*wanted, (due_ns[-1], b"end")]
    assert (player.lost, player.twice) == (copies.count(0), copies.count(2))
    assert set(player.lag_ns) == {0}
    bad.sent(one, player.lost, player.twice)
    assert one.labels == {"frames_lost": player.lost, "frames_twice": player.twice}
    # Segments of TCP aren't lost beside the frames.
    assert [when for when, _ in through(bad, VirtualClock(0), [])] == []
    assert bad.way_ns() == 0


@pytest.mark.parametrize(
    ("impair", "said"),
    [
        ({}, "impairs nothing"),
        ({"delay": "10ms", "jitter": "20ms"}, "jitter 20ms is above delay 10ms"),
        ({"bandwidth": "64"}, "is no bandwidth"),
        ({"loss": "95%"}, "0.9"),
        ({"rate": 3}, "rate"),
    ],
)
def test_what_is_no_impairment_is_refused(impair: dict[str, Any], said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        spec.parse({"kind": "server", "impair": impair})


def test_a_scenario_says_it_and_its_file_gives_it_back() -> None:
    made = spec.parse({"kind": "server", "impair": {"loss": "1%", "delay": "50ms", "bandwidth": "64kbit"}})
    assert spec.parse(made.to_mapping()) == made
    assert made.notes() == [
        "the client's uplink is impaired: 1 % lost, 50ms late, 64kbit/s a connection. It is part of every latency"
    ]
    assert "impair" not in spec.parse({"kind": "server"}).to_mapping()


def test_the_native_engine_says_why_it_can_not() -> None:
    reason = native.why_not(Target("http://127.0.0.1:1", "http", impair={"loss": 0.1}))
    assert reason is not None
    assert "impair" in reason


@pytest.mark.parametrize(
    ("protocol", "impair", "said"),
    [
        ("openai-chat", {"duplicate": "1%"}, "impair.duplicate: TCP drops what comes twice"),
        ("null", {"loss": "1%"}, "impair: null sends nothing over a network"),
    ],
)
def test_what_can_not_be_honoured_is_refused_before_load(
    protocol: str, impair: Any, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text(f"kind: server\ntarget: {{protocol: '{protocol}'}}\nimpair: {impair}\n")
    with pytest.raises(HarnessFault) as caught:
        prepare("s.yaml", {}, [], [], None)
    assert any(said in text for text in caught.value.errors)
