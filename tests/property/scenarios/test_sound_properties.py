"""Sound over generated inputs: labels lie inside clips, detectors inside recordings, and no file makes more than one
kind of trouble.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plimsoll.scenarios import spec
from plimsoll.scenarios.media.pictures import jpeg_bytes
from plimsoll.scenarios.media.recordings import Unreadable, probe, samples_of, speech_span
from plimsoll.scenarios.media.sound import (
    NotWav,
    alaw_decoded,
    alaw_encoded,
    mulaw_decoded,
    mulaw_encoded,
    parse_header,
    resample,
    wav_bytes,
)
from plimsoll.scenarios.samples.clip import Clip
from plimsoll.scenarios.sources.audio import assigned

slices = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "noise_db": st.floats(-30, 60),
            "gain_db": st.floats(-60, 40),
            "speed": st.floats(0.25, 4),
            "share": st.floats(0.01, 100),
        },
    ),
    max_size=3,
)


@settings(max_examples=20, deadline=None)
@given(
    rate=st.sampled_from([8000, 11_025, 16_000, 44_100]), words=st.integers(1, 3), conditions=slices,
    lead=st.integers(0, 400), trail=st.integers(0, 400), seed=st.integers(0, 2**64 - 1), paired=st.booleans(),
)  # fmt: skip
def test_labels_of_synthetic_clips_lie_in_order_inside_the_clip(
    rate: int, words: int, conditions: list[dict[str, Any]], lead: int, trail: int, seed: int, paired: bool
) -> None:
    named = [{"name": f"s{i}", **condition} for i, condition in enumerate(conditions)]
    given_: dict[str, Any] = {
        "kind": "audio", "rate": rate, "words": words, "count": 3, "slices": named, "lead": f"{lead}ms",
        "trail": f"{trail}ms", "paired": paired and bool(named),
    }  # fmt: skip
    made = spec.parse({"kind": "server", "seed": seed, "source": given_}).source_object()
    for i in range(len(made)):
        payload = made.payload(i)
        clip: Clip = payload.data["clip"]
        assert payload == made.payload(i)
        edges = [clip.onset_ns, *(ns for word in clip.words for ns in (word.start_ns, word.end_ns)), clip.offset_ns]
        assert edges == sorted(edges)
        assert edges[0] >= 0
        assert edges[-1] <= clip.duration_ns + 1
        assert abs(clip.onset_ns - lead * 1_000_000) <= 1e9 / rate
        assert clip.duration_ns - clip.offset_ns == pytest.approx(trail * 1e6, abs=2e9 / rate)
        assert len(clip.words) == words


@given(data=st.data(), rate=st.sampled_from([8000, 22_050]))
def test_the_detector_stays_inside_the_recording(data: st.DataObject, rate: int) -> None:
    levels = data.draw(st.lists(st.floats(0, 1), max_size=30))
    signs = np.resize([1.0, -1.0], len(levels) * 100)
    samples = np.repeat(levels, 100) * signs
    found = speech_span(samples, rate)
    if found is None:
        assert not (np.abs(samples) > 1e-100).any()
    else:
        assert 0 <= found[0] < found[1] <= len(samples)
        assert samples[slice(*found)].any()


@given(
    data=st.binary(max_size=200),
    start=st.sampled_from([b"", b"RIFF", b"RIFF\0\0\0\0WAVE", wav_bytes(np.zeros(3, np.int16), 8000)[:30]]),
)
def test_a_header_is_parsed_or_refused(data: bytes, start: bytes) -> None:
    try:
        header = parse_header(start + data)
    except NotWav:
        return
    assert header is None or (header.frame_bytes > 0 and header.rate > 0)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(
    data=st.binary(max_size=300),
    start=st.sampled_from([b"", b"fLaC", b"OggS", b"ID3\4", wav_bytes(np.zeros(9, np.int16), 8000)[:44]]),
)
def test_a_file_of_any_bytes_is_read_or_refused_in_one_line(tmp_path: Path, data: bytes, start: bytes) -> None:
    path = tmp_path / "any.wav"
    path.write_bytes(start + data)
    try:
        found = probe(path)
        assert len(samples_of(path)) <= found.n_samples
    except Unreadable as error:
        assert "\n" not in str(error)  # noqa: PT017 - being read is as good


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    lines=st.lists(
        st.text(max_size=60)
        | st.builds(
            lambda value: '{"file": "a.wav", "words": ' + value + ', "start": ' + value + "}",
            st.text('[]{}0123,.ntruefals" ', max_size=12),
        ),
        max_size=5,
    )
)
def test_a_manifest_of_any_lines_is_read_or_every_error_is_worded(tmp_path: Path, lines: list[str]) -> None:
    (tmp_path / "a.wav").write_bytes(wav_bytes(np.zeros(99, np.int16), 8000))
    (tmp_path / "m").write_text("\n".join(lines), encoding="utf-8", errors="replace")
    scenario = spec.parse({"kind": "server", "source": {"kind": "audio", "manifest": str(tmp_path / "m")}})
    try:
        assert len(scenario.source_object()) >= 1
    except spec.ScenarioError as error:
        assert all(text.endswith(".") for text in error.errors)  # noqa: PT017 - being read is as good


@given(values=st.lists(st.integers(-32768, 32767), min_size=1, max_size=50))
def test_companding_keeps_order_and_sign(values: list[int]) -> None:
    pcm = np.sort(np.array(values, np.int16))
    for made in (mulaw_decoded(mulaw_encoded(pcm)), alaw_decoded(alaw_encoded(pcm))):
        assert (np.diff(made.astype(int)) >= 0).all()
        assert (made[pcm > 16] > 0).all()
        assert (made[pcm < -16] < 0).all()


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 4000), rate=st.sampled_from([8000, 16_000, 22_050, 44_100]),
    to_rate=st.sampled_from([8000, 16_000, 24_000, 48_000]), speed=st.sampled_from([0.25, 0.9, 1.0, 1.1, 4.0]),
)  # fmt: skip
def test_a_resampled_recording_is_as_long_as_its_time(n: int, rate: int, to_rate: int, speed: float) -> None:
    got = resample(np.random.default_rng(n).uniform(-1, 1, n), rate, to_rate, speed)
    assert len(got) == pytest.approx(n * to_rate / rate / speed, abs=1.01)
    assert np.isfinite(got).all()


@given(
    n=st.integers(1, 200),
    shares=st.lists(st.floats(0.01, 1000), min_size=1, max_size=8),
    seed=st.integers(0, 2**64 - 1),
)
def test_every_slice_has_a_clip_and_every_clip_a_slice(n: int, shares: list[float], seed: int) -> None:
    if n < len(shares):
        with pytest.raises(ValueError, match="can't be spread"):
            assigned(shares, n, seed)
        return
    counts = np.bincount(assigned(shares, n, seed), minlength=len(shares))
    assert counts.sum() == n
    assert counts.min() >= 1
    ideal = 1 + np.array(shares) / sum(shares) * (n - len(shares))
    assert np.abs(counts - ideal).max() < 1 + 1e-6


@settings(max_examples=30, deadline=None)
@given(
    width=st.integers(1, 40), height=st.integers(1, 40), quality=st.integers(1, 100), seed=st.integers(0, 9999),
    contrast=st.booleans(),
)  # fmt: skip
def test_any_pixels_make_a_jpeg_that_others_can_read(
    width: int, height: int, quality: int, seed: int, contrast: bool
) -> None:
    pillow = pytest.importorskip("PIL.Image", reason="the server extra isn't installed")
    import io

    pixels = np.random.default_rng(seed).integers(0, 2 if contrast else 256, (height, width, 3)).astype(np.uint8)
    pixels = pixels * 255 if contrast else pixels
    found = pillow.open(io.BytesIO(jpeg_bytes(pixels, quality)))
    found.load()
    assert found.size == (width, height)
    if quality == 100:
        assert np.abs(np.asarray(found).astype(int) - pixels).mean() < 2.5
