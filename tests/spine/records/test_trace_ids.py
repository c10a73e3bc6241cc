"""The trace context of a request: as W3C writes it, the same wherever it is computed, sampled as often as asked."""

from __future__ import annotations

import re

import numpy as np
import pytest

from plimsoll.slo.records import records as rec
from plimsoll.slo.records.records import Phase
from plimsoll.slo.records.trace_ids import TraceIds, address_error, again

W3C = re.compile(rb"00-([0-9a-f]{32})-([0-9a-f]{16})-(0[01])")


def rows(queries: list[int], samples: list[int], warmup: list[bool]) -> rec.Records:
    phase = [Phase.WARMUP if before else Phase.MEASURE for before in warmup]
    blank = rec.empty()
    columns = {name: np.zeros(len(queries), blank.columns[name].dtype) for name in blank.columns}
    columns |= {"query_id": np.array(queries), "sample_ix": np.array(samples), "phase": np.array(phase, np.int8)}
    return rec.Records(columns, None, np.zeros(len(queries) + 1, np.int64))


def test_the_column_is_what_each_header_said() -> None:
    queries, samples = [0, 1, 1, 5, 10**12, 7], [0, 0, 3, 0, 2, 0]
    warmup = [False, False, False, True, False, True]
    held = rows(queries, samples, warmup)
    ids = TraceIds.of("9f1c2d3e4a", 0.5)
    sent = [ids.header(*row) for row in zip(queries, samples, warmup, strict=True)]
    found = [W3C.fullmatch(header) for header in sent]
    assert all(found)
    assert ids.texts(held) == [match[1].decode() for match in found if match]
    assert ids.column(held).to_pylist() == ids.texts(held)
    assert [match[3] == b"01" for match in found if match] == [ids.sampled(one) for one in ids.texts(held)]
    assert TraceIds.of("another", 0.5).texts(held) != ids.texts(held)
    assert ids.texts(rows([], [], [])) == []


def test_no_two_requests_of_a_run_share_a_trace() -> None:
    ids = TraceIds.of("run", 0.01)
    number, sample = np.meshgrid(np.arange(20_000, dtype=np.uint64), np.arange(10, dtype=np.uint64))
    warmup = np.zeros_like(number)
    halves = [ids.words(number, sample, warmup), ids.words(number, sample, warmup + np.uint64(1))]
    high, low = (np.concatenate([half[at].ravel() for half in halves]) for at in (0, 1))
    assert len(np.unique(np.stack([high, low]), axis=1)[0]) == 400_000
    # Each bit is set in half of them: 6 standard deviations of 400,000 draws.
    for half in (high, low):
        shares = [float(np.mean((half >> np.uint64(bit)) & np.uint64(1))) for bit in range(64)]
        assert max(abs(share - 0.5) for share in shares) < 6 * 0.5 / 400_000**0.5


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 1.0])
def test_the_share_that_is_sampled_is_the_share_that_was_asked_for(share: float) -> None:
    n, ids = 20_000, TraceIds.of("run", share)
    sampled = sum(ids.header(query, 0, False).endswith(b"-01") for query in range(n))
    assert abs(sampled / n - share) <= 5 * (share * (1 - share) / n) ** 0.5


def test_a_larger_share_samples_what_a_smaller_one_does_too() -> None:
    few, more = (TraceIds.of("run", share) for share in (0.1, 0.2))
    for query in range(2_000):
        assert few.header(query, 0, False)[-1:] == b"0" or more.header(query, 0, False)[-1:] == b"1"


def test_an_attempt_is_another_span_of_the_same_trace() -> None:
    first = TraceIds.of("run", 1.0).header(4, 0, False)
    spans = [first, again(first, 1), again(first, 2)]
    assert all(W3C.fullmatch(header) for header in spans)
    assert {header[:36] for header in spans} == {first[:36]}
    assert {header[52:] for header in spans} == {b"-01"}
    assert len({header[36:52] for header in spans}) == 3
    assert again(b"", 1) == b""


def test_an_address_of_traces_names_the_trace() -> None:
    assert address_error("") is None
    assert address_error("https://grafana/explore?left={{trace_id}}&q={trace_id}") is None
    for wrong in ("http://jaeger/trace/", "javascript:alert('{trace_id}')", 7):
        assert "Write for example http" in str(address_error(wrong))


def test_a_class_of_a_mix_has_the_traces_that_its_requests_were_sent_with() -> None:
    whole = {"run_id": "r", "traceparent": 0.5}
    run, own = TraceIds.told(whole), TraceIds.told({**whole, "first_query_id": 1 << 40})
    assert run is not None
    assert own is not None
    assert own.header(3, 1, False) == run.header((1 << 40) + 3, 1, False)
    assert TraceIds.told({"run_id": "r"}) is None
