"""Hypothesis strategies for records of honest runs."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from slo.records import Phase, Records, Stamp, Status, TokensFrom, from_columns

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


def build(rows: list[dict[str, Any]]) -> Records:
    """Records of rows as ``row`` draws them."""
    names = [k for k in (rows[0] if rows else {}) if k not in ("chunks", "error", "timing")]
    return from_columns(
        len(rows),
        chunks=[r["chunks"] for r in rows],
        errors=[r["error"] for r in rows],
        timings=[r["timing"] for r in rows],
        **{name: [r[name] for r in rows] for name in names},
    )


rows = st.lists(row(), max_size=12)
records = rows.map(build)
