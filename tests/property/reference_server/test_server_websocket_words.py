"""Words told as they become certain: whatever the partials do, what was told is never taken back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.reference_server.dialects.realtime import Ended, Said, Turns
from plimsoll.reference_server.dialects.realtime_answers import SpokenWords
from plimsoll.reference_server.seams.models import Heard, Word
from plimsoll.reference_server.speech.transcript import CertainWords

WORD = st.sampled_from(["a", "b", "c"])
WORDS = st.lists(WORD, max_size=6)


def deltas(partials: list[list[str]], final: list[str]) -> str:
    certain = CertainWords()
    told = [certain.delta(certain.feed(partial)) for partial in partials]
    return "".join([*told, certain.delta(certain.end(final))])


@given(WORDS)
def test_partials_that_only_grow_are_told_word_by_word_and_make_the_final(final: list[str]) -> None:
    partials = [final[:n] for n in range(1, len(final) + 1)]
    assert deltas(partials, final) == " ".join(final)


@given(st.lists(WORDS, max_size=8), WORDS)
def test_what_is_told_is_the_final_or_stops_where_it_was_revised(partials: list[list[str]], final: list[str]) -> None:
    told = deltas(partials, final).split()
    if told != final:  # some word was revised after two partials had agreed on it
        assert final[: len(told)] != told


@given(st.lists(WORDS, max_size=8))
def test_the_last_word_of_a_partial_is_never_told(partials: list[list[str]]) -> None:
    certain = CertainWords()
    told: list[str] = []
    for partial in partials:
        fresh = certain.feed(partial)
        told += fresh
        assert not fresh or len(told) < len(partial)


@given(st.text(alphabet="ab #\n!", max_size=40), st.data())
def test_spoken_words_do_not_depend_on_how_the_text_is_cut(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]

    def words(given_pieces: list[str]) -> list[str]:
        spoken = SpokenWords()
        return [word for piece in given_pieces for word in spoken.feed(piece)] + spoken.flush()

    assert words(pieces) == words([text])
    assert all(word and " " not in word for word in words(pieces))


@given(st.lists(st.tuples(st.lists(WORD, min_size=1, max_size=4), st.booleans()), max_size=6), st.booleans())
def test_every_turn_ends_once_with_all_of_its_words(finals: list[tuple[list[str], bool]], ended_first: bool) -> None:
    """``True`` beside a final: the utterance was too long, and goes on after it."""
    news: list[Heard] = []
    transcripts: list[list[str]] = [[]]
    for texts, goes_on in finals:
        if not transcripts[-1]:
            news.append(Heard("speech_started", 0, 0))
        transcripts[-1] += texts
        final = Heard("final", 0, 1, tuple(Word(text, 0, 0) for text in texts))
        ended = [] if goes_on else [Heard("speech_ended", 0, 1)]
        news += [*ended, final] if ended_first else [final, *ended]
        if not goes_on:
            transcripts.append([])
    told = [*Turns().feed(news)]
    ends = [event.transcript for event in told if isinstance(event, Ended)]
    assert ends == [" ".join(texts) for texts in transcripts[:-1]]
    assert all(event.delta for event in told if isinstance(event, Said))
