"""Records of good speech sessions, all alike: one that listened and answered, one that was sent a file, one that only
spoke.
"""

from __future__ import annotations

from typing import Any

from plimsoll.slo.records.records import PACE_CAPTURE, PACE_FILE, Records, from_columns

MS = 1_000_000


def listened(n: int = 1, **columns: Any) -> Records:
    """Live audio at 1x, 3 s from 100 ms on, speech from 300 to 2800 ms; transcripts at 1000, 2000, 2700 (final 2900) ms
    that lag by 200, 400, 500 ms; endpoint at 2950; two chunks of 100 ms of audio at 3000 and 3150 ms, whose first 10 ms
    are silent.
    """
    given: dict[str, Any] = {
        "due_ns": 0, "ready_ns": 0, "sent_ns": 0, "first_byte_ns": 10 * MS, "done_ns": 3300 * MS, "media_ns": 3000 * MS,
        "open_ns": 50 * MS, "media_start_ns": 100 * MS, "speech_start_ns": 300 * MS, "speech_end_ns": 2800 * MS,
        "input_end_ns": 3100 * MS, "first_partial_ns": 1000 * MS, "first_final_ns": 2900 * MS, "final_ns": 2900 * MS,
        "endpoint_ns": 2950 * MS, "first_audio_ns": 3000 * MS, "audible_ns": 3000 * MS, "leading_silence_ns": 10 * MS,
        "media_out_ns": 200 * MS, "false_endpoints": 0, "n_partials": 3, "n_revised": 1, "words": 10, "word_errors": 2,
        "unsent_bytes": 640, "frame_ns": 20 * MS, "pace": PACE_CAPTURE, "bytes_out": 96_000,
        "chunks": [[1000 * MS, 2000 * MS, 2700 * MS, 2900 * MS, 3000 * MS, 3150 * MS]] * n,
        "ragged": {
            "chunk_audio_ns": [[0, 0, 0, 0, 100 * MS, 100 * MS]] * n,
            "chunk_cursor_ns": [[700 * MS, 1500 * MS, 2100 * MS, -1, -1, -1]] * n,
            "word_lag_ns": [[200 * MS, 300 * MS]] * n,
            "frame_lag_ns": [[0, 1 * MS, 2 * MS]] * n,
        },
    }  # fmt: skip
    return from_columns(n, **(given | columns))


def uploaded(n: int = 1, **columns: Any) -> Records:
    """4 s of audio in one request, answered whole after 1 s."""
    given: dict[str, Any] = {
        "due_ns": 0, "ready_ns": 0, "sent_ns": 0, "first_byte_ns": 900 * MS, "done_ns": 1000 * MS,
        "media_ns": 4000 * MS,
        "pace": PACE_FILE, "words": 10, "word_errors": 2,
    }  # fmt: skip
    return from_columns(n, **(given | columns))


def spoke(n: int = 1, **columns: Any) -> Records:
    """Text whose last piece was written at 100 ms; 300 ms of audio in three chunks at 300, 350 and 550 ms, 20 ms of it
    silent.
    """
    given: dict[str, Any] = {
        "due_ns": 0, "ready_ns": 0, "sent_ns": 0, "first_byte_ns": 250 * MS, "done_ns": 600 * MS,
        "input_end_ns": 100 * MS, "first_audio_ns": 300 * MS, "audible_ns": 300 * MS, "leading_silence_ns": 20 * MS,
        "media_out_ns": 300 * MS, "chunks": [[300 * MS, 350 * MS, 550 * MS]] * n,
        "ragged": {"chunk_audio_ns": [[100 * MS] * 3] * n},
    }  # fmt: skip
    return from_columns(n, **(given | columns))
