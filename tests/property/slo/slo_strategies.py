"""Hypothesis strategies for records of honest runs."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from plimsoll.slo.records.records import Phase, Records, Stamp, Status, TokensFrom, from_columns

MS = 1_000_000
step = st.integers(0, 300 * MS)


@st.composite
def row(draw: st.DrawFn) -> dict[str, Any]:
    """One request of any fate: what happened has a stamp in order, what did not has -1."""
    status = draw(st.sampled_from([Status.OK] * 6 + list(Status)))
    due = draw(st.integers(0, 10_000 * MS))
    stamps = dict.fromkeys(
        ("sent_ns", "headers_ns", "first_byte_ns", "first_token_ns", "first_answer_ns", "last_token_ns"), -1
    )
    chunks: list[int] = []
    if status == Status.UNSENT:
        done = -1
    else:
        now = stamps["sent_ns"] = due + draw(step)
        streamed = draw(st.sampled_from([True, True, True, False]))
        if status == Status.OK or draw(st.booleans()):
            now = stamps["first_byte_ns"] = stamps["headers_ns"] = now + draw(step)
            if streamed:
                now = stamps["first_token_ns"] = stamps["first_answer_ns"] = now + draw(step)
                chunks = [now]
                for gap in draw(st.lists(step, max_size=4)):
                    now += gap
                    chunks.append(now)
                stamps["last_token_ns"] = now
        done = now + draw(step)
    n_out = draw(st.sampled_from([-1, 0, 1, 2, 7]))
    return {
        **stamps,
        "due_ns": due,
        "ready_ns": due if status != Status.UNSENT else -1,
        "done_ns": done,
        "n_out": n_out,
        "n_in": draw(st.integers(-1, 5)),
        "connect_ns": draw(st.sampled_from([-1, 0, 5 * MS])),
        "status": int(status),
        "stamp": int(draw(st.sampled_from(Stamp))),
        "phase": int(draw(st.sampled_from([Phase.MEASURE] * 4 + [Phase.WARMUP]))),
        "tokens_from": int(draw(st.sampled_from(TokensFrom))),
        "worker": draw(st.integers(0, 3)),
        "code": draw(st.sampled_from([-1, 200, 503])),
        "chunks": chunks,
        "error": draw(st.sampled_from([None, "timed out", "réfusé", ""])),
        "timing": draw(st.sampled_from([None, "total;dur=3"])),
    }


RAGGED = ("chunk_audio_ns", "chunk_cursor_ns", "word_lag_ns", "frame_lag_ns")


@st.composite
def heard_row(draw: st.DrawFn) -> dict[str, Any]:
    """One speech session of any fate: a text request's stamps, and of its own those that it got to."""
    plain = draw(row())
    start = plain["due_ns"] + draw(step)
    end = start + draw(st.integers(1, 3000)) * MS

    def maybe(at: int, spread: int = 2000) -> int:
        return draw(st.sampled_from([-1, at + draw(st.integers(-100, spread)) * MS])) if at >= 0 else -1

    first = maybe(end)
    chunks = len(plain["chunks"])
    words = draw(st.integers(-1, 6))
    lists = {
        "chunk_audio_ns": draw(st.lists(st.integers(0, 400 * MS), min_size=chunks, max_size=chunks)),
        "chunk_cursor_ns": draw(st.lists(st.integers(-1, 3000 * MS), min_size=chunks, max_size=chunks)),
        "word_lag_ns": draw(st.lists(st.integers(-100 * MS, 900 * MS), max_size=max(words, 0))),
        "frame_lag_ns": draw(st.lists(st.integers(0, 90 * MS), max_size=6)),
    }
    session = {
        "open_ns": maybe(plain["due_ns"], 90), "media_start_ns": draw(st.sampled_from([-1, start])),
        "speech_start_ns": start, "speech_end_ns": draw(st.sampled_from([-1, end, end])), "input_end_ns": end,
        "first_partial_ns": maybe(start), "first_final_ns": maybe(end), "final_ns": maybe(end),
        "endpoint_ns": maybe(end),
        "first_audio_ns": first, "audible_ns": maybe(first), "leading_silence_ns": draw(st.sampled_from([-1, 0,
            30 * MS])),
        "media_out_ns": draw(st.sampled_from([-1, 0, 500 * MS])), "media_ns": draw(st.sampled_from([-1, end - start])),
        "false_endpoints": draw(st.integers(-1, 2)), "n_revised": draw(st.integers(-1, 5)), "words": words,
        "word_errors": draw(st.integers(-1, 8)), "pace": draw(st.integers(-1, 3)), "frame_ns": 20 * MS,
    }  # fmt: skip
    return plain | session | lists


def build(rows: list[dict[str, Any]]) -> Records:
    """Records of rows as ``row`` or ``heard_row`` draw them."""
    rows = [row for row in rows if set(row) == set(rows[0])]
    names = [k for k in (rows[0] if rows else {}) if k not in ("chunks", "error", "timing", *RAGGED)]
    return from_columns(
        len(rows),
        ragged={name: [r[name] for r in rows] for name in RAGGED} if rows and RAGGED[0] in rows[0] else None,
        chunks=[r["chunks"] for r in rows],
        errors=[r["error"] for r in rows],
        timings=[r["timing"] for r in rows],
        **{name: [r[name] for r in rows] for name in names},
    )


rows = st.lists(row(), max_size=12)
records = rows.map(build)
#: The same of speech sessions.
heard = st.lists(heard_row(), max_size=6).map(build)
