"""A few bytes of silence decode to minutes of it: what a server can make us decode is bounded, and said."""

from __future__ import annotations

import numpy as np
import pytest

import plimsoll.harness.protocols._speech.codecs
from plimsoll.harness.protocols._speech.codecs import BrokenAudio, decoder, file_bytes, opus_packets

SILENCE = np.zeros(48_000, np.int16)


def test_opus_packets_without_end_are_given_up_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plimsoll.harness.protocols._speech.codecs, "MAX_SAMPLES", 100_000)
    packet = opus_packets(SILENCE, 48_000, 5760)[3]
    play = decoder("opus", 48_000)
    heard = sum(len(play.feed(packet)) for _ in range(100_000 // 5760))
    assert heard == 100_000 // 5760 * 5760
    with pytest.raises(BrokenAudio, match="decodes to more than 100000 samples"):
        play.feed(packet)


def test_one_piece_of_flac_that_holds_minutes_is_given_up_inside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plimsoll.harness.protocols._speech.codecs, "MAX_SAMPLES", 100_000)
    data = file_bytes("flac", np.zeros(48_000 * 60, np.int16), 48_000)
    play = decoder("flac", 48_000)

    def heard() -> int:
        return len(play.feed(data)) + len(play.finish())

    with pytest.raises(BrokenAudio, match="decodes to more than 100000 samples"):
        heard()
