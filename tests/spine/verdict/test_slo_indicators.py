"""The conformance kit of indicators (a new file in slo/indicators is tested here unnamed), and each formula. What
holds for every indicator on any records.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import subprocess
import sys
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.slo import metrics_doc
from plimsoll.slo.metrics.indicator import ENTRIES, Indicator, OnFailure, catalogue, entry_rows, measure
from plimsoll.slo.records.labels import LabelTable, label_of
from plimsoll.slo.records.queries import with_deadline
from plimsoll.slo.records.records import COLUMNS, RAGGED, SESSION_COLUMNS, Records, Status, concat, from_columns
from tests.exact_summary import summary
from tests.property.slo.slo_strategies import heard, records
from tests.unit.slo.made_sessions import listened, spoke, uploaded

MS = 1_000_000
FAILURES = [status for status in Status if status is not Status.OK]


def streamed(n: int = 1, **columns: object) -> Records:
    """n good streamed requests: due 0, ready 1, sent 2, first byte 10, chunks 20 24 34, done 40 ms; 3 tokens."""
    good: dict[str, object] = {
        "due_ns": 0, "ready_ns": 1 * MS, "sent_ns": 2 * MS, "headers_ns": 10 * MS, "first_byte_ns": 10 * MS,
        "first_token_ns": 20 * MS, "first_answer_ns": 24 * MS, "last_token_ns": 34 * MS, "done_ns": 40 * MS,
        "connect_ns": 500_000, "bytes_out": 300, "bytes_in": 900, "n_out": 3, "n_in": 5,
        "chunks": [[20 * MS, 24 * MS, 34 * MS]] * n,
        "labels": {
            "tries": [3] * n, "hedges": [1] * n, "hedge": [1] * n, "wasted_tokens": [7] * n, "cached_tokens": [2] * n,
            "degraded": [1] * n, "barge_in_stop": [9] * n, "overlap": [8] * n, "talked_over": [1] * n,
        },
    }  # fmt: skip
    return from_columns(n, **(good | columns))  # type: ignore[arg-type]


def framed(n: int = 1, **columns: object) -> Records:
    """n good frames of one sample, 100 ms apart, each given 50 ms."""
    return with_deadline(streamed(n, **columns), 50 * MS)


def talked(n: int = 1, **columns: object) -> Records:
    """n good sessions of one turn."""
    return streamed(n, **columns).labelled(LabelTable.of({"session": [*range(n)], "turn": [1] * n}))


def suited(indicator: Indicator, n: int, **columns: object) -> Records:
    """n good requests of the first kind that the indicator has values for."""
    for made in (streamed, listened, uploaded, spoke, framed, talked):
        if indicator.compute(made(3))[1].any():
            return made(n, **columns)
    raise AssertionError(f"no kind of request has a value of {indicator.name}")


def module_of(indicator: Indicator) -> ModuleType:
    return importlib.import_module(f"plimsoll.slo.indicators.{indicator.name}")


@pytest.mark.parametrize("indicator", catalogue().values(), ids=lambda i: i.name)
class TestConformance:
    def test_every_field_is_filled_and_known(self, indicator: Indicator) -> None:
        for name in ("name", "formula", "source", "summary"):
            assert getattr(indicator, name).strip()
        assert indicator.name.isidentifier()
        assert indicator.name.islower()
        assert indicator.unit in ("ns", "per_s", "1", "bytes")
        assert indicator.better in ("lower", "higher")
        assert indicator.scope in ENTRIES
        assert indicator.needs
        known = {*COLUMNS, *SESSION_COLUMNS, *RAGGED, "chunk_ns"}
        assert all(need in known or label_of(need) for need in indicator.needs)
        assert len(inspect.getdoc(module_of(indicator)) or "") > 100

    def test_it_is_named_like_its_file(self, indicator: Indicator) -> None:
        assert module_of(indicator).INDICATOR is indicator

    def test_no_records_give_no_values(self, indicator: Indicator) -> None:
        found = measure(indicator, from_columns(0))
        assert (found.n, found.missing, found.failed) == (0, 0, 0)

    def test_values_and_validity_are_aligned_and_finite(self, indicator: Indicator) -> None:
        some = suited(indicator, 4)
        values, valid = indicator.compute(some)
        assert (values.dtype, valid.dtype) == (np.float64, np.bool_)
        assert values.shape == valid.shape == entry_rows(indicator.scope, some).shape
        assert valid.any()
        assert np.isfinite(values[valid]).all()
        assert (values[valid] >= 0).all()

    def test_successes_without_the_stamps_are_missing_and_never_zero(self, indicator: Indicator) -> None:
        bare = from_columns(1, query_id=9, due_ns=0)
        needs_a_stamp = not set(indicator.needs) <= {"status"}
        if needs_a_stamp:
            from plimsoll.slo.records.records import concat

            found = measure(indicator, concat([suited(indicator, 3), bare]))
            assert found.missing == 1 + (indicator.name == "frame_jitter")  # the first frame has none before it
            free = indicator.outside is not None and bool(indicator.outside(bare)[0])
            assert found.values[found.row == 3].tolist() == ([np.inf] if indicator.awaited and not free else [])

    def test_it_does_not_apply_when_no_request_has_the_stamps(self, indicator: Indicator) -> None:
        if indicator.needs != ("status",):
            found = measure(indicator, from_columns(5, due_ns=0, status=[0, 0, 0, 3, 9]))
            assert (found.n, found.failed, found.missing) == (0, 0, 3)

    def test_warm_up_is_not_measured(self, indicator: Indicator) -> None:
        found = measure(indicator, suited(indicator, 3, phase=[0, 1, 0]))
        first = {0} if indicator.name == "frame_jitter" else set()  # it has none before it
        assert set(found.row.tolist()) | first == {0, 2}

    @pytest.mark.parametrize("status", FAILURES)
    def test_failed_requests_rank_as_worst(self, indicator: Indicator, status: Status) -> None:
        found = measure(indicator, suited(indicator, 3, status=[0, int(status), 0]))
        last = found.values[found.row == 1]
        if indicator.on_failure is OnFailure.WORST:
            assert indicator.worst in last
            assert found.failed == (2 if indicator.name == "frame_jitter" else 1), "two spacings have that end"
        else:
            assert len(last) >= 1
            assert np.isfinite(last).all()

    def test_all_failed_is_not_the_same_as_not_applicable(self, indicator: Indicator) -> None:
        nothing = from_columns(4, due_ns=0, status=int(Status.UNSENT))
        found = measure(indicator, nothing, judged=indicator.live)
        if indicator.on_failure is OnFailure.AS_IS or indicator.scope == "query":  # the plan says what a query is
            assert found.failed == 0
        else:
            assert (found.n, found.failed) == (4, 4)
            assert (found.values == indicator.worst).all()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("latency", [40 * MS]), ("service_time", [38 * MS]), ("ttfb", [10 * MS]), ("ttft", [20 * MS]),
        ("ttft_answer", [24 * MS]), ("tpot", [7 * MS]), ("itl", [4 * MS, 10 * MS]), ("e2e", [34 * MS]),
        ("lag", [2 * MS]), ("generator_lag", [1 * MS]), ("connect", [500_000]), ("output_tokens", [3]),
        ("error", [0]), ("output_rate", [75.0]), ("fluidity", [1.0]), ("reader_idle", [0]), ("reader_stalls", [0]),
        ("reader_in_time", [1.0]), ("attempts_per_request", [3]), ("retried", [1]), ("hedge_wins", [1]),
        ("wasted_tokens", [7]), ("cached_share", [0.4]), ("degraded", [1]), ("bytes_out", [300]), ("bytes_in", [900]),
        ("barge_in_stop", [9]), ("overlap", [8]), ("talked_over", [1]),
    ],
)  # fmt: skip
def test_each_formula_on_one_request(name: str, expected: list[float]) -> None:
    assert measure(catalogue()[name], streamed()).values.tolist() == pytest.approx(expected)


def test_every_indicator_has_its_formula_tested_above() -> None:
    """Those of speech are in test_indicators_speech, those of queries in test_slo_queries."""
    marks = test_each_formula_on_one_request.pytestmark  # type: ignore[attr-defined]
    assert {case[0] for case in marks[0].args[1]} == {
        name for name, one in catalogue().items() if not one.live and one.scope != "query"
    }


def test_a_cached_share_is_of_those_that_say_it_and_never_above_one() -> None:
    some = streamed(4, n_in=[5, 0, 4, -1], labels={"cached_tokens": [0, 1, 9, 3]})
    found = measure(catalogue()["cached_share"], some)
    assert (found.values.tolist(), found.missing) == ([0, 1], 2)
    assert measure(catalogue()["cached_share"], some.labelled(None)).n == 0


def test_a_one_token_answer_is_outside_tpot() -> None:
    found = measure(catalogue()["tpot"], streamed(3, n_out=[3, 1, 0]))
    assert (found.n, found.missing) == (1, 2)


def test_tpot_is_never_negative_where_loadgen_makes_it_so() -> None:
    for n_out in (-1, 0, 1):
        assert measure(catalogue()["tpot"], streamed(2, n_out=[n_out, 5])).values.tolist() == [3.5 * MS]


def test_a_failed_request_adds_its_gaps_and_one_infinite_gap() -> None:
    found = measure(catalogue()["itl"], streamed(2, status=[0, 3]))
    assert found.values.tolist() == [4 * MS, 10 * MS, 4 * MS, 10 * MS, np.inf]
    assert found.row.tolist() == [0, 0, 1, 1, 1]


def test_gaps_do_not_run_from_one_request_to_the_next() -> None:
    some = from_columns(5, chunks=[[], [5, 9], [2], [], [1, 1, 4]])
    values, _ = catalogue()["itl"].compute(some)
    assert values.tolist() == [4, 0, 3]


def test_a_failed_request_that_was_sent_keeps_its_real_lag_and_an_unsent_one_is_infinitely_late() -> None:
    some = streamed(2, status=[3, 9], sent_ns=[2 * MS, -1], ready_ns=[1 * MS, -1])
    assert measure(catalogue()["lag"], some).values.tolist() == [2 * MS, np.inf]
    assert measure(catalogue()["generator_lag"], some).values.tolist() == [1 * MS, np.inf]


def test_the_last_stream_that_fails_does_not_make_ttft_inapplicable() -> None:
    some = streamed(2, status=[3, 0], first_token_ns=[20 * MS, -1])
    found = measure(catalogue()["ttft"], some)
    assert (found.values.tolist(), found.missing) == ([np.inf, np.inf], 1)


def test_an_empty_answer_is_not_better_than_a_slow_one() -> None:
    """A success that brings no token where others do: otherwise answering nothing would mend a p99."""
    some = streamed(2, first_token_ns=[20 * MS, -1], first_answer_ns=[20 * MS, -1], last_token_ns=[30 * MS, -1])
    for name in ("ttft", "ttft_answer", "e2e"):
        assert measure(catalogue()[name], some).values[1] == np.inf


def test_a_file_without_an_indicator_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import plimsoll.slo.indicators.latency as module

    monkeypatch.delattr(module, "INDICATOR")
    with pytest.raises(LookupError, match=r"latency.py: exports None, no INDICATOR"):
        catalogue.__wrapped__()


def test_a_name_taken_twice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import plimsoll.slo.indicators.ttft as module

    monkeypatch.setattr(module, "INDICATOR", dataclasses.replace(module.INDICATOR, name="latency"))
    with pytest.raises(LookupError, match="latency exists already"):
        catalogue.__wrapped__()


def test_the_metrics_page_is_current() -> None:
    page = metrics_doc.PAGE.read_text(encoding="utf-8")
    assert page == metrics_doc.render(), "run python -m plimsoll.slo.metrics_doc --write"


def test_importing_slo_stays_light() -> None:
    code = (
        "import sys, plimsoll.slo.records.records, plimsoll.slo.metrics.indicator, "
        "plimsoll.slo.objectives.objective, plimsoll.slo.validity.validity, plimsoll.slo.verdict.verdict, "
        "plimsoll.slo.statistics.confidence, plimsoll.slo.statistics.distribution, "
        "plimsoll.slo.judge;plimsoll.slo.metrics.indicator.catalogue(); "
        "plimsoll.slo.objectives.objective.parse('p99(ttft) <= 200ms');print([m for m in ('scipy', 'pyarrow', "
        "'hdrh', 'yaml', 'pandas', 'pydantic') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert out.stdout.strip() == "[]"


def test_a_failed_request_lacks_as_many_gaps_as_the_longest_answer_has() -> None:
    """A stuttering answer of 49 slow gaps must not become better by breaking off at its first chunk."""
    quick, slow = [[0, *range(1, 50)], [0, *range(0, 49 * 10, 10)]]
    some = from_columns(2, chunks=[quick, slow], n_chunks=50, due_ns=0, done_ns=1000, status=[0, 0])
    broken = from_columns(2, chunks=[quick, slow[:1]], n_chunks=[50, 1], due_ns=0, done_ns=1000, status=[0, 3])
    itl = catalogue()["itl"]
    assert measure(itl, some).n == measure(itl, broken).n == 98
    assert np.isinf(measure(itl, broken).values[measure(itl, broken).row == 1]).sum() == 49


def test_an_objective_is_not_taken_away_by_the_failure_of_the_last_request_that_had_the_stamps() -> None:
    ttft = catalogue()["ttft"]
    some = from_columns(3, due_ns=0, status=[0, 0, 3])
    assert measure(ttft, some).n == 0
    assert measure(ttft, some, judged=True).values.tolist() == [np.inf] * 3
    assert measure(ttft, from_columns(3, due_ns=0), judged=True).n == 0  # nothing failed: it streams nothing


# -- any records ----------------------------------------------------------------------------------------------------


@given(some=st.one_of(records, heard), seed=st.integers(0, 2**32 - 1))
def test_the_order_of_rows_does_not_matter(some: Records, seed: int) -> None:
    shuffled = some.select(np.random.default_rng(seed).permutation(len(some)))
    for name, indicator in catalogue().items():
        one, other = measure(indicator, some), measure(indicator, shuffled)
        assert np.array_equal(np.sort(one.values), np.sort(other.values)), name
        assert (one.n, one.missing, one.failed) == (other.n, other.missing, other.failed), name
        if one.n:
            assert summary(one.values) == summary(other.values), name


@given(both=st.one_of(st.tuples(records, records), st.tuples(heard, heard)))
def test_measuring_parts_is_measuring_the_whole(both: tuple[Records, Records]) -> None:
    """Except where a part has successes (or of speech: any rows) but no stamps, and so the indicator does not apply to
    it.

    A failed request has as many gaps as the longest answer beside it, so those of gaps are compared without failures.
    """
    together = concat(both)
    for name, indicator in catalogue().items():
        parts = [measure(indicator, part) for part in both]
        whole = measure(indicator, together)
        assert whole.missing == sum(part.missing for part in parts), name
        if indicator.scope != "request" and whole.failed:
            finite = np.concatenate([part.values[np.isfinite(part.values)] for part in parts])
            assert np.array_equal(whole.values[np.isfinite(whole.values)], finite), name
        elif all(part.n or not (part.missing or indicator.live) for part in parts):
            assert np.array_equal(whole.values, np.concatenate([part.values for part in parts])), name


@given(some=st.one_of(records, heard))
def test_every_measured_request_is_accounted_for(some: Records) -> None:
    ok = set(np.flatnonzero(some.ok & some.in_measure).tolist())
    measured = set(np.flatnonzero(some.in_measure).tolist())
    for name, indicator in catalogue().items():
        found = measure(indicator, some)
        covered = set(found.row.tolist())
        assert found.n == len(found.values) == len(found.row), name
        worst = {row for row in ok & covered if indicator.awaited and np.isinf(found.values[found.row == row]).all()}
        assert len(ok - covered) + len(worst) == found.missing, name
        assert covered <= measured, name
        assert not np.isnan(found.values).any(), name


@given(some=st.one_of(records, heard), at=st.integers(0, 11))
def test_failing_a_request_never_makes_the_share_of_bad_values_smaller(some: Records, at: int) -> None:
    if at >= len(some):
        return
    status = some.columns["status"].copy()
    status[at] = Status.TIMEOUT
    worse = Records(
        {**some.columns, "status": status}, some.chunk_ns, some.chunk_offsets, some.errors, some.timings, some.session
    )
    for name, indicator in catalogue().items():
        before, after = measure(indicator, some), measure(indicator, worse)
        if before.n == 0 or after.n == 0:
            continue
        for limit in np.unique(before.values):
            shares = [
                (v > limit).mean() if indicator.better == "lower" else (v < limit).mean()
                for v in (before.values, after.values)
            ]
            assert shares[1] >= shares[0], (name, limit)
