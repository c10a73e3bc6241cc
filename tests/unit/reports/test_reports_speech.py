"""What a report says of speech: the same words and numbers in every format, and nothing at all of a run without
audio.
"""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import numpy as np
import pytest
from made_reports import built, every, records, report

from plimsoll.reports.blocks.document import Block, Sentence, Table, Tiles
from plimsoll.reports.documents import words
from plimsoll.reports.documents.pictures import curve_charts
from plimsoll.reports.documents.run import document
from plimsoll.reports.format import formats
from plimsoll.reports.report import Report
from plimsoll.reports.sections.speech import Speech, facts, word_table
from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.records.records import PACE_CAPTURE, PACE_FILE, Records, Status, concat, from_columns
from plimsoll.slo.validity.generator import GeneratorFacts

MS = 1_000_000
SECOND = 1000 * MS
NORMALISER = "whisper-english: whisper-normalizer 0.1.15"


def sessions(n: int = 40, **columns: Any) -> Records:
    """Live sessions of 3 s, one every 100 ms, that each answer with 200 ms of audio whose second half is 50 ms late."""
    due = np.arange(n) * 100 * MS
    at: dict[str, Any] = {
        name: due + ms * MS
        for name, ms in {
            "due_ns": 0, "ready_ns": 0, "sent_ns": 0, "first_byte_ns": 40, "open_ns": 50, "media_start_ns": 100,
            "speech_start_ns": 300, "speech_end_ns": 2800, "input_end_ns": 3100, "first_partial_ns": 900,
            "first_final_ns": 2900, "final_ns": 2900, "endpoint_ns": 2950, "first_audio_ns": 3000,
            "audible_ns": 3000, "done_ns": 3200,
        }.items()
    }  # fmt: skip
    chunks = [[t + 900 * MS, t + 2900 * MS, t + 3000 * MS, t + 3150 * MS] for t in due.tolist()]
    given: dict[str, Any] = at | {
        "media_ns": 3 * SECOND, "media_out_ns": 200 * MS, "leading_silence_ns": 10 * MS, "false_endpoints": [0,
            1] * (n // 2),
        "n_partials": 1, "n_revised": 1, "words": 10, "word_errors": [0, 2] * (n // 2), "unsent_bytes": 640,
        "frame_ns": 20 * MS, "bytes_out": 96_000, "pace": PACE_CAPTURE, "slices": ["clean", "noisy"] * (n // 2),
        "chunks": chunks,
        "ragged": {
            "chunk_audio_ns": [[0, 0, 100 * MS, 100 * MS]] * n,
            "chunk_cursor_ns": [[600 * MS, -1, -1, -1]] * n,
            "word_lag_ns": [[200 * MS, 300 * MS]] * n,
            "frame_lag_ns": [[0, MS]] * n,
        },
    }  # fmt: skip
    return from_columns(n, **(given | columns))


def made(rows: Records, *objectives: str, **manifest: Any) -> Report:
    known = {"run_id": "r", "normaliser": NORMALISER} | manifest
    facts_ = GeneratorFacts(open_loop=False, planned=len(rows))
    return built(known, {"name": "calls"}, rows, facts_, [parse(text) for text in objectives])


def part(rows: Records, **manifest: Any) -> Speech:
    found = made(rows, **manifest).speech
    assert found is not None
    return found


def test_the_part_has_what_only_the_whole_run_has() -> None:
    found = part(sessions())
    assert (found.sessions, found.paces) == (40, {"1x as captured": 40})
    assert found.wer is not None
    assert (found.wer.errors, found.wer.words, found.wer.rate, found.wer.mean) == (40, 400, 0.1, 0.1)
    assert [(one.name, one.wer.rate) for one in found.slices] == [("clean", 0.0), ("noisy", 0.2)]
    assert found.normaliser == NORMALISER
    assert found.false_endpoints == 0.5
    assert found.outside_rtf == 40
    # 40 sessions of 3 s in, 0.2 s out, over 3.9 s of dues and 3.2 s of the last one.
    assert found.audio_in_per_s == pytest.approx(120 / 7.1)
    assert found.audio_out_per_s == pytest.approx(8 / 7.1)


def test_playback_is_told_under_several_buffers_from_the_same_arrivals() -> None:
    found = part(sessions()).playback
    assert found is not None
    assert [one.prebuffer_ns // MS for one in found.buffers] == [0, 100, 200, 400]
    assert [one.without_stall for one in found.buffers] == [0.0, 0.0, 1.0, 1.0]
    assert found.buffers[0].stall_ratio == pytest.approx(50 / 250)
    assert (found.n, found.startup_delay_ns.max) == (40, 50 * MS)


def test_failed_sessions_are_in_the_words_and_not_in_the_playback() -> None:
    rows = sessions(status=[0, int(Status.TIMEOUT)] * 20)
    found = part(rows)
    assert found.wer is not None
    assert found.playback is not None
    assert (found.wer.failed, found.wer.errors, found.playback.n) == (20, 200, 20)
    assert found.audio_in_per_s == pytest.approx(60 / 7.1)


def test_every_page_says_the_same() -> None:
    whole = made(sessions())
    for name in ("text", "markdown", "html"):
        page = formats()[name].render(whole).decode().replace("\\", "").replace("\n", " ")
        for word in (
            "Speech",
            "Word error rate",
            "noisy",
            "20 %",
            "whisper-normalizer 0.1.15",
            "Playback",
            "False endpoints",
        ):
            assert word in page, (name, word)
    document = json.loads(formats()["json"].render(whole))
    assert document["speech"]["wer"]["rate"] == 0.1
    assert document["metrics"]["finalization"]["p99"] == 100 * MS
    table = {
        row["rows"]: row
        for row in csv.DictReader(io.StringIO(formats()["csv"].render(whole).decode()))
        if row["metric"] == "accuracy(wer)"
    }
    assert {name: (row["n"], row["failed"], row["mean"]) for name, row in table.items()} == {
        "all": ("400", "40", "0.1"), "slice clean": ("200", "0", "0.0"), "slice noisy": ("200", "40", "0.2"),
    }  # fmt: skip
    exposition = formats()["openmetrics"].render(whole).decode()
    assert f'plimsoll_word_error_ratio{{normaliser="{NORMALISER}",slice="noisy"}} 0.2' in exposition
    assert "plimsoll_audio_in_per_second 16.9" in exposition
    for one in formats().values():
        assert one.render(whole)


def test_the_metrics_of_speech_stand_in_the_order_of_a_session() -> None:
    names = list(made(sessions()).metrics)
    wanted = [
        "session_ready",
        "first_partial",
        "word_emission",
        "endpointing",
        "finalization",
        "voice_to_voice",
        "stall_ratio",
        "wer",
    ]
    assert [name for name in names if name in wanted] == wanted


def tiles(whole: Report) -> list[str]:
    (found,) = every(document(whole).blocks, Tiles)
    return [one.name for one in found.tiles]


def test_charts_and_tiles_of_live_speech_are_of_what_is_waited_for_and_not_of_the_time_that_somebody_spoke() -> None:
    whole = made(sessions())
    assert [one.title for one in curve_charts(whole)] == ["Live speech by percentile", "First sound by percentile"]
    assert tiles(whole) == [
        "Completed", "First partial p99", "Finalization p99", "Voice to voice p99", "First audible p99", "Failed",
    ]  # fmt: skip
    assert whole.charts.heatmap is not None
    assert whole.charts.heatmap.metric == "voice_to_voice"
    assert whole.charts.timeline is not None
    assert "latency" not in whole.charts.timeline.bands
    assert list(words.shown(whole))[:2] == ["session_ready", "first_partial"]


def test_charts_of_audio_sent_as_files_are_of_the_latency() -> None:
    whole = made(sessions(pace=PACE_FILE, first_audio_ns=-1, audible_ns=-1, media_out_ns=-1))
    assert [chart.title for chart in curve_charts(whole)] == ["Latency by percentile"]
    assert "Latency p99" in tiles(whole)


def test_an_objective_on_the_pooled_rate_is_judged_beside_the_others() -> None:
    whole = made(sessions(), "p95(finalization) <= 800ms", "accuracy(wer) <= 5%")
    outcomes = {one.objective: one.outcome for one in whole.verdict.objectives}
    assert outcomes == {"p95(finalization) <= 800ms": "INCONCLUSIVE", "accuracy(wer) <= 5%": "FAIL"}
    assert b"accuracy(wer)" in formats()["text"].render(whole)


def test_late_audio_makes_the_run_invalid_and_the_page_says_whose_fault_it_is() -> None:
    late = sessions(ragged={"frame_lag_ns": [[0, 100 * MS]] * 40})
    whole = made(late)
    assert whole.verdict.outcome == "INVALID"
    assert whole.speech is not None
    assert whole.speech.sent is not None
    assert whole.speech.sent.late == 40
    page = formats()["text"].render(whole).decode()
    assert any("late audio in 40 of 40 sessions" in reason for reason in whole.validity.reasons)
    assert "40 of 40, by this host" in page


def test_files_have_a_real_time_factor_and_live_audio_is_counted_as_having_none() -> None:
    upload = from_columns(
        2, due_ns=0, ready_ns=0, sent_ns=0, first_byte_ns=0, done_ns=SECOND, media_ns=4 * SECOND, pace=PACE_FILE
    )
    found = made(concat([sessions(2), upload]))
    assert found.speech is not None
    assert (found.speech.outside_rtf, found.metrics["rtf"].n, found.metrics["rtf"].missing) == (2, 2, 2)
    assert found.speech.paces == {"file or burst": 2, "1x as captured": 2}
    assert ("No real-time factor", "2 paced sessions: see lag_slope") in facts(found.speech)


def said(blocks: list[Block]) -> str:
    return " ".join(one.text for one in every(blocks, Sentence))


def test_an_unknown_normaliser_is_said_to_be_unknown() -> None:
    found = part(sessions(), normaliser="")
    assert found.normaliser == ""
    assert found.wer is not None
    assert "normaliser not stated" in said(word_table(found, found.wer, 0.95))


def test_slice_names_are_escaped_and_the_page_shows_those_of_most_words() -> None:
    rows = sessions(60, slices=[f"<b>|`{i}" for i in range(60)], words=list(range(10, 70)))
    whole = made(rows)
    assert whole.speech is not None
    assert len(whole.speech.slices) == 60
    assert whole.speech.wer is not None
    shown = word_table(whole.speech, whole.speech.wer, 0.95)
    assert [len(table.rows) for table in every(shown, Table)] == [25]
    assert "36 more slices in the JSON" in said(shown)
    assert b"<b>|" not in formats()["html"].render(whole)
    assert formats()["markdown"].render(whole)


def test_a_run_without_audio_has_no_such_part_and_its_pages_no_such_word() -> None:
    plain = report(records(200))
    assert plain.speech is None
    assert plain.document()["speech"] is None
    for name in ("text", "markdown", "html", "csv", "openmetrics"):
        page = formats()[name].render(plain)
        assert b"Speech" not in page, name
        assert b"Word error" not in page, name


def test_transcripts_and_audio_are_no_tokens() -> None:
    whole = made(sessions())
    assert not {"itl", "tpot", "ttft", "fluidity", "reader_idle", "reader_stalls", "reader_in_time"} & set(
        whole.metrics
    )
    assert not [name for name in whole.peers if "itl" in name or "icl" in name or "etalon" in name]
    assert whole.charts.timeline is not None
    assert whole.charts.timeline.output_tokens_per_s is None
