"""No document breaks the reader, and nothing that makes a request worse makes an OpenSLO verdict better."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st
from slo_strategies import build, rows

from plimsoll.slo.objectives import openslo
from plimsoll.slo.objectives.objective import ObjectiveError
from plimsoll.slo.objectives.objective import parse as limit
from plimsoll.slo.objectives.openslo.counting import Component, Empty, Method, Requests, Terms, Values
from plimsoll.slo.objectives.openslo.judging import slice_mean
from plimsoll.slo.objectives.openslo.promise import Slo
from plimsoll.slo.records.records import Phase, Records, Status, concat
from tests.memory_held import memory_held

MS = 1_000_000
ORDER = {"PASS": 0, "INCONCLUSIVE": 1, "FAIL": 2}

# -- reading --------------------------------------------------------------------------------------------------

DOCUMENTS = list(yaml.safe_load_all(openslo.starter()))
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.floats(),
    st.sampled_from(["1m", "1M", "plimsoll", "lte", "Timeslices", "2022-01-01 12:00:00", "", "x" * 1100, "ttft <= 1s"]),
    st.text(max_size=12),
)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(scalars, inner, max_size=3))


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] + [found for key, item in inside for found in places(item, (*path, key))]


def changed(value: Any, path: tuple[Any, ...], new: Any, remove: bool) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    if len(path) == 1 and remove:
        del copy[path[0]]
    else:
        copy[path[0]] = changed(value[path[0]], path[1:], new, remove)
    return copy


@st.composite
def mutated(draw: st.DrawFn) -> str:
    documents: list[Any] = DOCUMENTS
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from([path for path in places(documents) if path]))
        documents = changed(documents, path, draw(values), draw(st.booleans()))
    return yaml.safe_dump_all(documents, allow_unicode=True)


def read(text: str) -> None:
    """Read it; the only thing that may come instead is a list of reasons, each with its place."""
    slos: tuple[Slo, ...] = ()
    reasons = ["f.yaml: read"]
    try:
        slos = openslo.parse(text, "f.yaml").slos
    except ObjectiveError as error:
        reasons = error.errors
    assert reasons
    assert all(line.startswith("f.yaml:") for line in reasons)
    assert all(slo.judge(concat([]))[0].outcome == "INCONCLUSIVE" for slo in slos)


@given(text=mutated())
def test_a_mutated_document_is_read_or_refused_with_reasons(text: str) -> None:
    read(text)


@given(cut=st.integers(0, 10_000), text=st.text(max_size=8), skip=st.integers(0, 40))
def test_a_torn_file_is_read_or_refused_with_reasons(cut: int, text: str, skip: int) -> None:
    whole = openslo.starter()
    at = cut % len(whole)
    read(whole[:at] + text + whole[at + skip :])


@given(text=st.text())
def test_any_text_is_read_or_refused_with_reasons(text: str) -> None:
    read(text)


# -- judging --------------------------------------------------------------------------------------------------

limits = st.sampled_from(["ttft <= 200ms", "latency <= 700ms", "tpot <= 50ms", "itl <= 100ms", "e2e < 1s"]).map(limit)
events = st.one_of(
    st.builds(Values, limits), st.builds(lambda some: Requests(tuple(some)), st.lists(limits, max_size=2))
)
shares = st.sampled_from(["0.3", "0.5", "0.7", "0.9", "0.99"]).map(Fraction)
components = st.builds(
    Component, st.just("part"), events, shares, st.sampled_from([Fraction(1, 2), Fraction(1)]), shares
)


@st.composite
def promises(draw: st.DrawFn) -> Slo:
    method: Method = draw(st.sampled_from(["Occurrences", "Timeslices", "RatioTimeslices"]))
    parts = draw(st.lists(components, min_size=1, max_size=2))
    if len(parts) == 1 or method != "Occurrences":
        weight = Fraction(1) if len(parts) == 1 else None
        parts = [
            Component("part", p.events, parts[0].target, weight or p.weight, p.slice_target) for p in parts
        ]  # slices of a composite have one target
    empty: Empty = draw(st.sampled_from(["exclude", "good", "bad"]))
    window = 0 if method == "Occurrences" else draw(st.sampled_from([300, 1000, 4000])) * MS
    return Slo("p", "p", "s", "x", Terms(method, tuple(parts), window, empty), "a day", 86_400_000 * MS)


def outcome(some: Records, slo: Slo) -> int:
    with memory_held():
        return ORDER[slo.judge(some, "0.8")[0].outcome]


def with_column(some: Records, **columns: np.ndarray) -> Records:
    return Records({**some.columns, **columns}, some.chunk_ns, some.chunk_offsets, some.errors, some.timings)


@given(rows=rows, times=st.integers(1, 40), slo=promises(), at=st.integers(0, 479), fate=st.sampled_from(Status))
def test_failing_or_not_sending_a_request_never_improves_the_outcome(
    rows: list[dict[str, object]], times: int, slo: Slo, at: int, fate: Status
) -> None:
    some = concat([build(rows)] * times)
    assume(len(some) and fate != Status.OK)
    status = some.columns["status"].copy()
    status[at % len(some)] = fate
    assert outcome(with_column(some, status=status), slo) >= outcome(some, slo)


@given(rows=rows, times=st.integers(1, 40), slo=promises(), at=st.integers(0, 479), delay=st.integers(1, 900 * MS))
def test_making_a_request_slower_never_improves_the_outcome(
    rows: list[dict[str, object]], times: int, slo: Slo, at: int, delay: int
) -> None:
    some = concat([build(rows)] * times)
    assume(len(some))
    row = at % len(some)
    late = {}
    for name, by in (("first_token_ns", 1), ("last_token_ns", 2), ("done_ns", 2)):
        column = some.columns[name].copy()
        if column[row] != -1:
            column[row] += by * delay
        late[name] = column
    assert outcome(with_column(some, **late), slo) >= outcome(some, slo)


@given(rows=rows, slo=promises())
def test_warm_up_never_matters(rows: list[dict[str, object]], slo: Slo) -> None:
    some = build(rows)
    warm = with_column(some, phase=np.full(len(some), int(Phase.WARMUP), np.int8))
    assert repr(slo.judge(some)) == repr(slo.judge(concat([some, warm])))


@given(rows=rows, times=st.integers(1, 40), slo=promises())
def test_verdict_and_ledger_tell_the_same_story(rows: list[dict[str, object]], times: int, slo: Slo) -> None:
    some = concat([build(rows)] * times)
    (found,) = slo.judge(some)
    ledger = slo.ledger(some)
    assert all((np.diff(account.at_ns) >= 0).all() for account in ledger.accounts)
    if not np.isnan(found.observed) and 0 < found.observed < 1:
        burn = sum(float(account.weight / account.allowed) * float(account.bad.mean()) for account in ledger.accounts)
        assert np.isclose(1 - found.observed, burn * float(1 - slo.target))
    if found.outcome == "INCONCLUSIVE":
        assert found.n_needed is None or found.n_needed > found.n
    else:
        assert found.n_needed == 0


@given(
    sizes=st.lists(st.integers(1, 50), min_size=1, max_size=40),
    bad=st.data(),
    allowed=st.sampled_from([Fraction(1, 100), Fraction(1, 10), Fraction(1, 2)]),
)
def test_one_more_bad_event_never_makes_a_mean_over_slices_surer(
    sizes: list[int], bad: st.DataObject, allowed: Fraction
) -> None:
    total = np.array(sizes)
    counts = np.array([bad.draw(st.integers(0, n)) for n in sizes])
    at = bad.draw(st.integers(0, len(sizes) - 1))
    assume(counts[at] < total[at])
    more = counts.copy()
    more[at] += 1
    used = np.ones(len(sizes), bool)
    before, after = slice_mean(used, counts / total, total), slice_mean(used, more / total, total)
    assert after.p_few(allowed) >= before.p_few(allowed) - 1e-12
    assert after.p_many(allowed) <= before.p_many(allowed) + 1e-12
