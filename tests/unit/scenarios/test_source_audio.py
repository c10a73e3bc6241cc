"""The audio source: exact labels for synthetic speech, honest ones for recordings, and every bad file before the
load.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plimsoll.scenarios import spec
from plimsoll.scenarios.media.sound import speak, to_int16, wav_bytes
from plimsoll.scenarios.samples.clip import Clip
from plimsoll.scenarios.samples.payload import PayloadSource
from plimsoll.scenarios.samples.words import WORDS

MS = 1_000_000


def source(folder: Path | None = None, seed: int = 5, **params: Any) -> PayloadSource:
    given = {"kind": "server", "seed": seed, "source": {"kind": "audio", **params}}
    return spec.parse(given, "t", folder=folder).source_object()


def errors_of(folder: Path | None = None, **params: Any) -> list[str]:
    with pytest.raises(spec.ScenarioError) as caught:
        source(folder, **params)
    return caught.value.errors


def clip(made: PayloadSource, index: int = 0) -> Clip:
    found: Clip = made.payload(index).data["clip"]
    return found


def record(path: Path, text: str = "turn left now", rate: int = 16_000, lead: int = 4000, trail: int = 8000) -> int:
    """Tone speech as a file; its length in samples."""
    speech = speak(text, rate).samples
    path.write_bytes(wav_bytes(to_int16(np.concatenate([np.zeros(lead), speech, np.zeros(trail)])), rate))
    return len(speech)


def manifest(folder: Path, *entries: Any) -> str:
    path = folder / "m.jsonl"
    path.write_text("\n".join(each if isinstance(each, str) else json.dumps(each) for each in entries) + "\n")
    return "m.jsonl"


# -- synthetic --------------------------------------------------------------------------------------------------


def test_a_payload_holds_the_clip_its_playing_time_and_what_is_said() -> None:
    payload = source(words=7).payload(3)
    made = payload.data["clip"]
    assert payload.media_ns == made.duration_ns == len(made.pcm) * 62_500
    assert payload.reference == made.transcript
    assert payload.id == "clip 3"
    assert len(made.transcript.split()) == 7
    assert set(made.transcript.split()) <= set(WORDS)
    assert (made.labels, made.slice, made.rate) == ("synthetic", "", 16_000)
    assert [word.text for word in made.words] == made.transcript.split()


@pytest.mark.parametrize("rate", [8000, 16_000, 22_050, 24_000, 44_100, 48_000])
def test_speech_begins_and_ends_at_the_very_samples_that_the_labels_say(rate: int) -> None:
    made = clip(source(rate=rate, lead="300ms", trail="0.4s", count=2))
    sounding = np.flatnonzero(made.pcm)
    onset, offset = (round(ns * rate / 1e9) for ns in (made.onset_ns, made.offset_ns))
    assert (made.onset_ns, len(made.pcm) - offset) == (300 * MS, round(0.4 * rate))
    assert 0 <= sounding[0] - onset <= rate * 0.001
    assert 0 <= offset - 1 - sounding[-1] <= rate * 0.001
    assert made.words[0].start_ns == made.onset_ns
    assert made.words[-1].end_ns == made.offset_ns


def test_silences_have_defaults_and_can_be_nothing() -> None:
    assert clip(source()).onset_ns == 200 * MS
    bare = clip(source(lead=0, trail=0))
    assert (bare.onset_ns, bare.offset_ns) == (0, bare.duration_ns)


def test_lengths_may_be_random_and_clips_differ() -> None:
    made = source(words={"dist": "uniform", "min": 2, "max": 9}, count=40)
    lengths = {len(str(made.payload(i).reference).split()) for i in range(40)}
    assert lengths <= set(range(2, 10))
    assert len(lengths) > 4
    assert len({made.payload(i).reference for i in range(40)}) == 40
    assert source(seed=6).payload(0).reference != source(seed=5).payload(0).reference


def test_the_rate_changes_no_word() -> None:
    assert clip(source(rate=8000), 2).transcript == clip(source(rate=48_000), 2).transcript


def test_a_clip_of_hours_is_refused() -> None:
    assert errors_of(words=5000) == ["source.words: a clip would have 5,000 words. Give at most 3,000."]


# -- slices -----------------------------------------------------------------------------------------------------

SLICES: list[dict[str, Any]] = [
    {"name": "clean"},
    {"name": "street", "noise_db": 10},
    {"name": "far", "gain_db": -30},
    {"name": "fast", "speed": 2.0},
]


def by_slice(made: PayloadSource) -> dict[str, list[Clip]]:
    found: dict[str, list[Clip]] = {}
    for i in range(len(made)):
        found.setdefault(clip(made, i).slice, []).append(clip(made, i))
    return found


def test_shares_of_the_clips_go_through_their_conditions() -> None:
    found = by_slice(source(count=24, words=4, slices=SLICES))
    assert {name: len(clips) for name, clips in found.items()} == {"clean": 6, "street": 6, "far": 6, "fast": 6}
    assert not any(each.pcm[:3000].any() for each in found["clean"])
    assert all(each.pcm[:3000].any() for each in found["street"])
    assert all(np.abs(each.pcm).max() < 1200 for each in found["far"])


def test_paired_clips_say_the_same_under_every_condition() -> None:
    made = source(count=3, words=4, slices=SLICES, paired=True)
    assert len(made) == 12
    clean, street, far, fast = (clip(made, i) for i in range(4, 8))
    assert clean.transcript == street.transcript == far.transcript == fast.transcript
    assert [each.slice for each in (clean, street, far, fast)] == ["clean", "street", "far", "fast"]
    spoken = slice(round(clean.onset_ns * 16e-6), round(clean.offset_ns * 16e-6))
    speech, noise = clean.pcm.astype(float), street.pcm.astype(float) - clean.pcm
    assert 10 * np.log10(np.mean(speech[spoken] ** 2) / np.mean(noise**2)) == pytest.approx(10, abs=0.2)
    assert np.abs(far.pcm).max() == pytest.approx(np.abs(clean.pcm).max() * 10**-1.5, abs=1)


def test_said_faster_words_are_shorter_and_the_silences_are_not() -> None:
    made = source(count=1, words=6, slices=[{"name": "a"}, {"name": "b", "speed": 2.0}], paired=True)
    slow, fast = clip(made, 0), clip(made, 1)
    assert fast.onset_ns == slow.onset_ns
    assert fast.duration_ns - fast.offset_ns == pytest.approx(500 * MS, abs=MS)
    assert fast.offset_ns - fast.onset_ns == pytest.approx((slow.offset_ns - slow.onset_ns) / 2, abs=4 * MS)
    assert fast.words[-1].end_ns == fast.offset_ns


def test_mistakes_in_slices_are_told() -> None:
    assert "slices has 'a' twice" in errors_of(slices=[{"name": "a"}, {"name": "a"}])[0]
    assert "can't be spread over 4 slices" in errors_of(slices=SLICES, count=2)[0]
    assert "paired without slices" in errors_of(paired=True)[0]
    assert (
        "slices[0].nois_db: unknown key. Did you mean noise_db?" in errors_of(slices=[{"name": "a", "nois_db": 3}])[0]
    )
    assert "slices[0].speed" in errors_of(slices=[{"name": "a", "speed": 9}])[0]


# -- recordings -------------------------------------------------------------------------------------------------


def test_a_file_without_labels_gets_its_ends_from_the_detector_and_says_so(tmp_path: Path) -> None:
    n = record(tmp_path / "a.wav")
    payload = source(tmp_path, files=["a.wav"]).payload(0)
    made = payload.data["clip"]
    assert (made.labels, made.transcript, made.words) == ("vad", None, ())
    assert made.onset_ns == pytest.approx(250 * MS, abs=10 * MS)
    assert made.offset_ns == pytest.approx((4000 + n) * 62_500, abs=10 * MS)
    assert (payload.reference, payload.id) == (None, "a.wav")


def test_a_plain_file_at_its_own_rate_goes_out_bit_for_bit(tmp_path: Path) -> None:
    pcm = np.random.default_rng(1).integers(-32768, 32767, 4000).astype(np.int16)
    (tmp_path / "a.wav").write_bytes(wav_bytes(pcm, 16_000))
    assert np.array_equal(clip(source(tmp_path, files=["a.wav"])).pcm, pcm)


def test_a_silent_file_has_no_speech(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(wav_bytes(np.zeros(8000, np.int16), 16_000))
    made = clip(source(tmp_path, files=["a.wav"], lead="1s"))
    assert (made.onset_ns, made.offset_ns, made.labels) == (-1, -1, "")


def test_patterns_name_files_in_their_order_and_count_takes_the_first(tmp_path: Path) -> None:
    for name in ("b.wav", "a.wav", "c.txt"):
        record(tmp_path / name)
    made = source(tmp_path, files=["*.wav", "c.txt"])
    assert [made.payload(i).id for i in range(len(made))] == ["a.wav", "b.wav", "c.txt"]
    assert len(source(tmp_path, files=["*.wav"], count=1)) == 1


def test_a_manifest_gives_the_labels(tmp_path: Path) -> None:
    (tmp_path / "wavs").mkdir()
    record(tmp_path / "wavs" / "a.wav")
    words = [{"text": "turn", "start": 0.25, "end": 0.5}, {"text": "left", "start": 0.55, "end": 0.8}]
    path = manifest(
        tmp_path,
        {"file": "wavs/a.wav", "text": "turn left", "start": 0.2, "end": 0.9, "words": words, "id": 7},
        "",
        {"file": "wavs/a.wav", "words": words, "slice": "street"},
        {"file": "wavs/a.wav", "text": ""},
    )
    made = source(tmp_path, manifest=path, lead="100ms")
    one, two, three = (made.payload(i) for i in range(3))
    assert (one.reference, one.id, two.reference, three.reference) == ("turn left", "7", "turn left", "")
    clips = [clip(made, i) for i in range(3)]
    assert [each.labels for each in clips] == ["labels", "labels", "vad"]
    assert (clips[0].onset_ns, clips[0].offset_ns) == (300 * MS, 1000 * MS)
    assert (clips[1].onset_ns, clips[1].offset_ns) == (350 * MS, 900 * MS)
    assert [(word.text, word.start_ns, word.end_ns) for word in clips[0].words] == [
        ("turn", 350 * MS, 600 * MS),
        ("left", 650 * MS, 900 * MS),
    ]
    assert [each.slice for each in clips] == ["", "street", ""]


def test_resampled_and_played_faster_the_labels_move_along(tmp_path: Path) -> None:
    n = record(tmp_path / "a.wav", rate=44_100, lead=44_100, trail=44_100)
    path = manifest(tmp_path, {"file": "a.wav", "start": 1.0, "end": 1 + n / 44_100})
    made = clip(source(tmp_path, manifest=path, rate=16_000, slices=[{"name": "fast", "speed": 1.25}]))
    assert made.onset_ns == pytest.approx(800 * MS, abs=0.1 * MS)
    assert made.offset_ns == pytest.approx((1 + n / 44_100) * 800 * MS, abs=0.1 * MS)
    loud = np.flatnonzero(np.abs(made.pcm.astype(int)) > 300)
    assert loud[0] / 16_000 * 1e9 == pytest.approx(made.onset_ns, abs=3 * MS)
    assert loud[-1] / 16_000 * 1e9 == pytest.approx(made.offset_ns, abs=3 * MS)


def test_a_slice_named_in_the_manifest_is_made_as_the_scenario_says(tmp_path: Path) -> None:
    record(tmp_path / "a.wav")
    path = manifest(tmp_path, {"file": "a.wav", "slice": "far"}, {"file": "a.wav"})
    made = source(tmp_path, manifest=path, slices=[{"name": "far", "gain_db": -30}])
    assert [clip(made, i).slice for i in range(2)] == ["far", "far"]
    assert np.abs(clip(made).pcm).max() < 1200
    errors = errors_of(tmp_path, manifest=path, slices=[{"name": "near"}])
    assert errors == ["source.slices: the manifest says slice 'far', which isn't among near. Add it."]


def test_every_bad_file_is_told_at_once(tmp_path: Path) -> None:
    record(tmp_path / "good.wav")
    (tmp_path / "text.wav").write_text("not sound at all, really")
    (tmp_path / "cut.wav").write_bytes((tmp_path / "good.wav").read_bytes()[:5000])
    (tmp_path / "empty.wav").write_bytes(wav_bytes(np.zeros(0, np.int16), 16_000))
    errors = errors_of(tmp_path, files=["good.wav", "text.wav", "gone.wav", "cut.wav", "empty.wav", "none*.wav"])
    assert len(errors) == 5
    told = "\n".join(errors)
    for name, says in (("text", "isn't"), ("gone", "does not exist"), ("cut", "cut short"), ("empty", "no samples")):
        assert any(f"{name}.wav" in error and says in error for error in errors), told
    assert any("nothing is called" in error for error in errors)


def test_every_bad_line_of_a_manifest_is_told_at_once(tmp_path: Path) -> None:
    record(tmp_path / "a.wav")
    bad: list[Any] = [
        "{",
        "[]",
        {"text": "x"},
        {"file": "a.wav", "txt": "x"},
        {"file": "a.wav", "start": 1},
        {"file": "a.wav", "start": 2, "end": 1},
        {"file": "a.wav", "start": -1, "end": 1},
        {"file": "a.wav", "start": 0.1, "end": 99},
        {"file": "a.wav", "words": [{"text": "x", "start": 0}]},
        {"file": "a.wav", "words": [{"text": "b", "start": 1, "end": 1.1}, {"text": "a", "start": 0, "end": 0.1}]},
        {"file": "a.wav", "start": 0.5, "end": 0.6, "words": [{"text": "b", "start": 0.1, "end": 0.2}]},
        {"file": "gone.wav"},
        {"file": 3},
    ]
    errors = errors_of(tmp_path, manifest=manifest(tmp_path, {"file": "a.wav"}, *bad))
    assert sorted(int(error.split("m.jsonl:")[1].split(":")[0]) for error in errors) == list(range(2, 15))
    assert any("Did you mean text?" in error for error in errors)
    assert all(error.endswith(".") and "\n" not in error for error in errors)


def test_a_missing_or_empty_manifest_is_told(tmp_path: Path) -> None:
    assert "source.manifest: " in errors_of(tmp_path, manifest="no.jsonl")[0]
    assert "no recordings in it" in errors_of(tmp_path, manifest=manifest(tmp_path, ""))[0]


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"files": ["a.wav"], "manifest": "m"}, "both given"),
        ({"files": ["a.wav"], "words": 3}, "words is for synthetic speech"),
        ({"files": []}, "source.files: is empty"),
        ({"rate": 16_001}, "Allowed: 8000"),
        ({"lead": "11m"}, "above 10m"),
    ],
)
def test_choices_that_do_not_go_together_are_refused(params: dict[str, Any], says: str) -> None:
    assert says in errors_of(**params)[0]


def test_a_file_that_breaks_after_it_was_checked_is_still_one_clear_error(tmp_path: Path) -> None:
    record(tmp_path / "a.wav")
    made = source(tmp_path, files=["a.wav"])
    (tmp_path / "a.wav").unlink()
    with pytest.raises(spec.ScenarioError, match=r"a\.wav: can't be read \(No such file"):
        made.payload(0)


def test_a_scenario_with_recordings_goes_to_a_file_and_back(tmp_path: Path) -> None:
    record(tmp_path / "a.wav")
    given = {"kind": "server", "source": {"kind": "audio", "files": ["a.wav"], "slices": SLICES[:1], "lead": "1s"}}
    one = spec.parse(given, "t", folder=tmp_path)
    assert spec.parse(one.to_mapping(), "again") == one
