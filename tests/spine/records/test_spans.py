"""Spans of servers as stages of requests: which request, how long, and what is wrong with a file."""

from __future__ import annotations

import gzip
import json
from typing import Any

import numpy as np
import pytest

from plimsoll.slo.metrics.anatomy import parse
from plimsoll.slo.records import spans as spans_module
from plimsoll.slo.records.records import Phase, Records, from_columns
from plimsoll.slo.records.spans import MOST, SpansError, joined, read, stages
from plimsoll.slo.records.trace_ids import TraceIds

IDS = TraceIds.of("run", 1.0)
T0 = 1_795_466_986_000_000_000
VLLM = {
    "gen_ai.latency.time_in_queue": 0.25,
    "gen_ai.latency.time_in_model_prefill": 0.125,
    "gen_ai.latency.time_in_model_decode": 1,
    "gen_ai.latency.e2e": 1.375,
}


def span(trace: str, ident: str, parent: str, name: str, begin: int, end: int, **told: float) -> dict[str, Any]:
    """As OTLP's JSON has it: whole numbers of 64 bits are texts."""
    values = [
        {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"doubleValue": value}}
        for key, value in told.items()
    ]
    times = {"startTimeUnixNano": str(T0 + begin), "endTimeUnixNano": str(T0 + end)}
    return {"traceId": trace, "spanId": ident, "parentSpanId": parent, "name": name, **times, "attributes": values}


def otlp(*spans: dict[str, Any]) -> bytes:
    return json.dumps({"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": [*spans]}]}]}).encode()


def trace_of(query: int) -> str:
    return IDS.header(query, 0, False)[3:35].decode()


def rows(n: int = 3, **columns: Any) -> Records:
    return from_columns(n, **({"query_id": np.arange(n), "due_ns": np.arange(n)} | columns))


def test_the_spans_of_a_trace_are_the_stages_of_its_request_and_of_no_other() -> None:
    one, other = trace_of(1), trace_of(2)
    data = b"\n".join(
        [
            otlp(span(one, "b", "a", "queue wait", 10, 4_010), span(other, "z", "ours", "handle", 0, 77)),
            otlp(span(one, "d", "c", "lookup", 5_000, 5_500), span(one, "a", "ours", "POST /v1", 0, 90_000)),
            otlp(span(one, "c", "a", "v1.route", 4_500, 6_000), span("ab" * 16, "x", "", "foreign", 0, 9)),
        ]
    )
    found, n, _ = joined(rows(timings=["queue;dur=9", None, None]), IDS, read(data))
    assert n == 2
    told = found.texts("server_timing")
    assert told[0] == "queue;dur=9"
    assert parse(str(told[1])) == {"queue_wait": 4_000, "v1_route": 1_500, "v1_route.lookup": 500}
    assert parse(str(told[2])) == {"handle": 77}  # nothing is within it


def test_a_span_that_was_exported_twice_counts_once_and_one_that_happened_twice_twice() -> None:
    trace = "ab" * 16
    queue, again = span(trace, "b", "A", "queue", 10, 4_010), span(trace, "c", "a", "queue", 5_000, 5_500)
    root = span(trace, "a", "ours", "POST", 0, 90_000)
    (found,) = read(b"\n".join([otlp(root, queue), otlp(queue, again), otlp(root, queue)])).values()
    assert parse(stages(found)[0]) == {"queue": 4_500}  # whichever way ids are written


@pytest.mark.parametrize("offset_s", [-3600, 0, 7])
def test_another_clock_and_a_parent_that_nobody_exported_change_no_length(offset_s: int) -> None:
    trace, off = "ab" * 16, offset_s * 10**9
    spans = [
        span(trace, "a", "gone", "POST", 0, 90_000),
        span(trace, "b", "a", "queue", off, off + 4_000),
        span(trace, "c", "lost too", "sidecar", off, off + 700),
        span(trace, "d", "a", "backwards", off + 9, off),
    ]
    assert parse(stages(read(otlp(*spans))[trace])[0]) == {"queue": 4_000, "sidecar": 700, "backwards": 0}


def test_a_hundred_thousand_spans_packed_by_gzip_are_read() -> None:
    n = 25_000
    made = [
        span(trace_of(at), f"{at}{part}", f"{at}a" if part != "a" else "", part, at, at + 5_000_000)
        for at in range(n)
        for part in ("a", "queue", "prefill", "decode")
    ]
    data = b"\n".join(otlp(*made[at : at + 1_000]) for at in range(0, len(made), 1_000))
    parts = [gzip.compress(data[: len(data) // 2]), gzip.compress(data[len(data) // 2 :])]
    traces = read(b"".join(parts))  # as `cat` joins two of them
    found, known, _ = joined(rows(n), IDS, traces)
    assert known == n
    whole = {"queue": 5_000_000, "prefill": 5_000_000, "decode": 5_000_000}
    assert parse(str(found.texts("server_timing")[n - 1])) == whole


def test_what_is_packed_otherwise_or_cut_or_without_end_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = gzip.compress(otlp(span("ab" * 16, "a", "", "n", 0, 1)) * 50)
    for data, said in (
        (packed[:-9], "gzip can't unpack it"),
        (packed[:20] + b"\0" + packed[21:], "gzip can't unpack it"),
        (b"\x28\xb5\x2f\xfd123", "packed by zstd"),
    ):
        with pytest.raises(SpansError, match=said):
            read(data)
    monkeypatch.setattr(spans_module, "MOST_BYTES", 1 << 20)
    with pytest.raises(SpansError, match="more than 1 MiB"):
        read(gzip.compress(b" " * (2 << 20)))


def test_a_header_gives_way_to_spans_and_warm_ups_and_attempts_have_none() -> None:
    phases = [Phase.MEASURE, Phase.ATTEMPT, Phase.WARMUP]
    mixed = rows(3, query_id=[1, 1, 1], phase=phases, timings=["queue;dur=9"] * 3)
    found, n, _ = joined(mixed, IDS, read(otlp(span(trace_of(1), "a", "", "work", 0, 5_000_000))))
    assert n == 1
    assert [parse(str(text)) for text in found.texts("server_timing")] == [
        {"work": 5_000_000}, {"queue": 9_000_000}, {"queue": 9_000_000},
    ]  # fmt: skip
    assert mixed.texts("server_timing") == ["queue;dur=9"] * 3


@pytest.mark.parametrize("parent", ["ours", "gateway"])
def test_a_span_that_tells_its_stages_stands_for_them(parent: str) -> None:
    spans = [span("ab" * 16, "v", parent, "llm_request", 0, 10**9, **VLLM), span("ab" * 16, "gateway", "", "in", 0, 9)]
    (trace,) = read(otlp(*spans[: 1 + (parent == "gateway")])).values()
    assert parse(stages(trace)[0]) == {"queue": 250_000_000, "prefill": 125_000_000, "decode": 10**9}


def test_spans_in_a_circle_and_very_many_of_them_end() -> None:
    trace = "ab" * 16
    round_ = [
        span(trace, "a", "b", "one", 0, 5),
        span(trace, "b", "a", "two", 0, 5),
        span(trace, "c", "c", "own", 0, 5),
    ]
    assert parse(stages(read(otlp(*round_))[trace])[0]) == {"own": 5}
    many = [span(trace, f"{i}", "root", f"s{i}", i, i + 5) for i in range(90)] + [span(trace, "root", "", "r", 0, 99)]
    assert list(parse(stages(read(otlp(*many))[trace])[0])) == [f"s{i}" for i in range(MOST)]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"{}", "line 1: no OTLP traces in JSON"),
        (b"[1]", "line 1: no OTLP traces in JSON"),
        (b'{"resourceSpans": []}\nnot json', "line 2: no JSON"),
        (otlp(span("q" * 32, "a", "", "n", 0, 1)), "is not 32 hexadecimal digits"),
        (otlp({"traceId": "ab" * 16, "spanId": "a", "name": "n"}), "startTimeUnixNano"),
        (b"\xff\xfe", "line 1: no JSON"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_line(data: bytes, said: str) -> None:
    with pytest.raises(SpansError, match=said):
        read(data)


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 1_000_000,
        b"[" * 1_000_000 + b"]" * 1_000_000,
        otlp() + b"\n" + b'{"a":' * 1_000_000,
        otlp(span("ab" * 16, "a", "", "work", 0, 9)).replace(f'"{T0 + 9}"'.encode(), b"1e999"),
        otlp(span("ab" * 16, "v", "", "w", 0, 9, **VLLM)).replace(b"0.25", b"1e308"),
        otlp(span("ab" * 16, "v", "", "w", 0, 9, **VLLM)).replace(b"0.25", b"1" + b"0" * 400),
    ],
)
def test_depths_and_numbers_without_end_are_errors_and_no_tracebacks(data: bytes) -> None:
    with pytest.raises(SpansError, match="Give"):
        read(data)


def test_ids_that_stand_there_many_times_chains_and_cycles_end() -> None:
    """Ten levels of ten spans of one id each would be ten thousand million paths."""
    many = [
        span("ab" * 16, str(at), str(at - 1) if at else "", f"s{at}", at, 99 + i) for at in range(10) for i in range(10)
    ]
    chain = [span("cd" * 16, str(at), str(at - 1), "x" * 9_000, at, 10**400) for at in range(5_000)]
    cycle = [span("ef" * 16, str(at), str((at + 1) % 3), "c", at, 99) for at in range(3)]
    found = [stages(trace)[0] for trace in read(otlp(*many, *chain, *cycle)).values()]
    assert [len(text.split(", ")) for text in found] == [MOST, MOST, 1]
    assert max(map(len, found)) < 150_000
    assert found[2] == ""


def test_a_span_that_begins_after_the_answer_is_no_stage_and_is_counted() -> None:
    one = trace_of(1)
    spans = [span(one, "a", "ours", "POST", 0, 90_000), span(one, "b", "a", "route", 10, 40_000)]
    late = [span(one, "c", "a", "audit", 90_001, 10**9), span(one, "d", "c", "audit.write", 90_002, 10**9)]
    found, n, after = joined(rows(), IDS, read(otlp(*spans, *late)))
    assert (n, after) == (1, 2)
    assert parse(str(found.texts("server_timing")[1])) == {"route": 39_990}
