"""From what a recogniser said to the stamps of a row."""

from __future__ import annotations

import numpy as np

from plimsoll.harness.exchange import Exchange, SessionStamps
from plimsoll.harness.protocols._speech.hearing import Endpoint, Event, Transcript, put_transcripts
from plimsoll.scenarios.samples.clip import Clip, Word
from plimsoll.slo.records.records import Status

MS = 1_000_000
START = 1_000 * MS
CLIP = Clip(
    np.zeros(16_000, np.int16),
    16_000,
    200 * MS,
    800 * MS,
    "one two three",
    (Word("one", 200 * MS, 400 * MS), Word("two", 400 * MS, 600 * MS), Word("three", 600 * MS, 800 * MS)),
)


def heard(*events: Event, clip: Clip | None = CLIP) -> tuple[Exchange, SessionStamps, str]:
    exchange = Exchange(0, 0, 0, 0, None)
    exchange.status = int(Status.OK)
    stamps = exchange.session = SessionStamps()
    stamps.media_start_ns = START
    if clip is not None:
        stamps.speech_start_ns, stamps.speech_end_ns = START + clip.onset_ns, START + clip.offset_ns
    return exchange, stamps, put_transcripts(exchange, clip, events, "basic")


def said(at_ms: int, text: str, final: bool = False, segment: int = 0, cursor_ms: int = -1) -> Transcript:
    return Transcript(START + at_ms * MS, segment, text, final, cursor_ms * MS if cursor_ms >= 0 else -1)


def test_interims_replace_and_finals_add_up_to_the_transcript() -> None:
    exchange, stamps, transcript = heard(
        said(450, "one", cursor_ms=400),
        said(650, "one two", cursor_ms=600),
        said(700, "One two.", final=True),
        said(850, "tree", segment=1),
        said(950, "three", final=True, segment=1),
    )
    assert transcript == "One two. three"
    assert stamps.first_partial_ns == START + 450 * MS
    assert stamps.first_final_ns == START + 700 * MS
    assert stamps.final_ns == START + 950 * MS
    assert (stamps.n_partials, stamps.words, stamps.word_errors) == (3, 3, 0)
    assert exchange.chunk_ns.tolist() == [START + at * MS for at in (450, 650, 700, 850, 950)]
    assert stamps.chunk_cursor_ns.tolist() == [400 * MS, 600 * MS, -1, -1, -1]
    assert exchange.first_token_ns == -1


def test_a_word_counts_from_when_it_stood_for_good_not_from_its_first_guess() -> None:
    _, stamps, _ = heard(said(450, "one"), said(650, "one too"), said(760, "one two"), said(900, "one two three", True))
    assert stamps.word_lag_ns.tolist() == [50 * MS, 160 * MS, 100 * MS]
    assert stamps.n_revised == 1


def test_formatting_is_no_revision() -> None:
    _, stamps, _ = heard(said(700, "one two"), said(900, "One, two."), said(950, "One, two. Three!", True))
    assert stamps.n_revised == 0
    assert stamps.word_lag_ns.tolist() == [300 * MS, 100 * MS, 150 * MS]


def test_words_taken_back_are_revised_words() -> None:
    _, stamps, _ = heard(said(500, "one two four"), said(600, "one"), said(900, "one two three", True))
    assert stamps.n_revised == 2


def test_a_final_that_leaves_words_open_is_not_the_last_one() -> None:
    opened = (said(450, "one", final=True), said(950, "two three", segment=1))
    _, stamps, transcript = heard(*opened)
    assert transcript == "one two three"
    assert (stamps.first_final_ns, stamps.final_ns) == (START + 450 * MS, -1)
    assert heard(*opened, said(990, "", final=True, segment=1))[1].final_ns == START + 450 * MS  # taken back
    assert heard(*opened, said(990, "two three", final=True, segment=1))[1].final_ns == START + 990 * MS


def test_a_word_put_in_front_of_others_leaves_them_standing() -> None:
    _, stamps, _ = heard(said(650, "two"), said(850, "two three"), said(950, "one two three", True))
    assert stamps.n_revised == 0
    assert stamps.word_lag_ns.tolist() == [550 * MS, 50 * MS, 50 * MS]


def test_a_word_is_matched_with_itself_and_not_with_its_like_behind_a_misheard_one() -> None:
    texts = ("she", "ran", "home")
    words = tuple(Word(text, i * 100 * MS, (i + 1) * 100 * MS) for i, text in enumerate(texts))
    clip = Clip(np.zeros(16_000, np.int16), 16_000, 0, 300 * MS, " ".join(texts), words)
    _, stamps, _ = heard(said(250, "she home"), said(400, "she home home", True), clip=clip)
    assert stamps.word_errors == 1
    assert stamps.word_lag_ns.tolist() == [150 * MS, 100 * MS]


def test_an_endpoint_with_a_position_inside_speech_is_false_whenever_it_comes() -> None:
    at = {"late": (1100, 500), "faded": (1200, 700), "true": (1300, 1000)}
    ends = {name: Endpoint(START + t * MS, cursor * MS) for name, (t, cursor) in at.items()}
    assert [heard(end)[1].false_endpoints for end in ends.values()] == [1, 0, 0]
    _, stamps, _ = heard(ends["late"], ends["true"])
    assert (stamps.false_endpoints, stamps.endpoint_ns) == (1, START + 1300 * MS)


def test_a_word_that_was_never_heard_has_no_lag_and_is_an_error() -> None:
    _, stamps, _ = heard(said(900, "one three", True))
    assert (stamps.words, stamps.word_errors) == (3, 1)
    assert stamps.word_lag_ns.tolist() == [500 * MS, 100 * MS]


def test_empty_transcripts_are_no_partials_and_silence_is_heard_as_all_words_missing() -> None:
    exchange, stamps, transcript = heard(said(300, ""), said(950, " ", True))
    assert (transcript, exchange.n_chunks, stamps.n_partials) == ("", 0, 0)
    assert (stamps.first_partial_ns, stamps.final_ns) == (-1, -1)
    assert (stamps.words, stamps.word_errors) == (3, 3)


def test_an_endpoint_inside_speech_is_false_and_the_first_one_after_it_counts() -> None:
    _, stamps, _ = heard(
        Endpoint(START + 100 * MS), Endpoint(START + 500 * MS), Endpoint(START + 990 * MS), Endpoint(START + 1500 * MS)
    )
    assert stamps.false_endpoints == 1
    assert stamps.endpoint_ns == START + 990 * MS


def test_without_a_reference_only_times_are_kept() -> None:
    bare = Clip(np.zeros(16_000, np.int16), 16_000)
    _, stamps, transcript = heard(said(450, "anything", True), clip=bare)
    assert transcript == "anything"
    assert (stamps.words, stamps.word_errors, len(stamps.word_lag_ns)) == (-1, -1, 0)
    assert heard(said(450, "x"), clip=None)[1].first_partial_ns == START + 450 * MS


def test_words_without_end_that_all_change_are_not_compared_without_end() -> None:
    """Two messages of 200 KB each took 335 MB and 5 s to compare, and of 4 MB each more than any machine has."""
    exchange, stamps, transcript = heard(said(450, "a " * 50_000), said(650, "b " * 50_000, final=True))
    assert exchange.status == Status.PROTOCOL
    assert "too many words that change from one message to the next" in str(exchange.error)
    assert (stamps.words, stamps.n_partials, len(transcript)) == (3, 1, 99_999)
    long = [f"w{i}" for i in range(9_000)]
    exchange, stamps, _ = heard(*(said(450 + n, " ".join(long[:n])) for n in range(8_990, 9_000)), said(700, "x", True))
    assert (exchange.status, stamps.n_revised) == (Status.OK, 8_999), "an hour of speech that goes on is no such thing"
