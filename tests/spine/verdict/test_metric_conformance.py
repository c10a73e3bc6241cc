"""The tables of docs/reference/metrics.md against the bytes: every cell, exact to the nanosecond, by both ways to read
a stream.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.protocols._discovery import protocols
from plimsoll.harness.protocols.http import HttpDialect
from plimsoll.harness.transport.client import Target
from plimsoll.harness.wire import fold
from plimsoll.slo.metrics.indicator import Indicator, catalogue, measure
from plimsoll.slo.objectives.goodput import held
from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.records.labels import label_of
from plimsoll.slo.records.records import Phase, Records, Status, TokensFrom
from plimsoll.slo.validity.accounts import contradictions
from tests.finished import finished
from tests.metric_cases import ANSWERS, ENDS, FAILURES, MS, SPECIFICATION, Case, exchange, recorded
from tests.unit.harness.test_clients_conformance import PAYLOAD

CASES = {**ANSWERS, **FAILURES}
#: What the words above the last table say of every failed request.
WORST = (
    *("ttfb", "ttft", "ttft_answer", "tpot", "e2e", "latency", "service_time", "reader_idle", "reader_stalls"),
    *("bytes_out", "bytes_in"),
)
NOTHING = ("fluidity", "reader_in_time", "output_rate", "output_tokens")
#: Cases that are not about the OpenAI API's own ways to say things.
ANYWHERE = (
    *("plain", "role_only", "empty_chunk", "keep_alive", "no_choices", "several_tokens", "one_read", "reasoning_first"),
    *(
        "reasoning_only",
        "usage_says_more",
        "usage_says_none",
        "usage_missing",
        "usage_on_each",
        "one_token",
        "one_chunk",
    ),
    *(
        "zero_tokens",
        "cancelled",
        "timed_out",
        "cut",
        "cut_cleanly",
        "error_event",
        "http_error",
        "refused",
        "unfinished",
    ),
)


def tables() -> list[dict[str, dict[str, str]]]:
    """The four tables: case or protocol -> column -> cell."""
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", SPECIFICATION, re.MULTILINE):
        lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in block.splitlines()]
        head, rows = lines[0], lines[2:]
        found.append({row[0].strip("`"): dict(zip(head[1:], row[1:], strict=True)) for row in rows})
    return found


TIMES, TOKENS, FAILED, WHOLE = tables()
#: Those of any request. Speech has its own cases in tests/unit/slo/test_indicators_speech.py, queries of several
#: samples theirs; of labels an answer says nothing.
CATALOGUE = {
    name: one
    for name, one in catalogue().items()
    if not one.live and one.scope != "query" and not any(map(label_of, one.needs))
}
METRICS = frozenset(CATALOGUE)


def limit(indicator: Indicator) -> str:
    """A limit on a single request that any value keeps."""
    lower = indicator.better == "lower"
    rate, number = ("1000000/s", "1000000") if lower else ("0/s", "0")
    unit = {"ns": "1000000s", "per_s": rate, "1": number, "bytes": "1000000GiB"}[indicator.unit]
    return f"{indicator.name} {'<=' if lower else '>='} {unit}"


def cell(records: Records, row: int, indicator: Indicator) -> str | list[float]:
    """What the tables say of one row: its values in ms, or why there is none."""
    found = measure(indicator, records)
    values = found.values[found.row == row]
    if len(values):
        size = MS if indicator.unit == "ns" else 1
        return [float(value) / size for value in values.tolist()]
    return "free" if held(parse(limit(indicator)), records)[0][row] else "-"


def expected(text: str) -> str | list[float]:
    return text if text in ("-", "free") else [float(part) for part in text.split(",")]


def rows_of(case: Case) -> Records:
    """The case beside a plain answer, so that every metric applies to the run."""
    records = recorded(exchange(ANSWERS["plain"], 0), exchange(case, 1))
    assert contradictions(records) == []
    return records


@pytest.fixture(params=["folded", "one by one"], autouse=True)
def reading(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams are read by templates where the extension is there, and event by event; both must say the same."""
    if request.param == "one by one":
        monkeypatch.setattr(fold, "load_fold", lambda: None)


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer(name: str) -> None:
    records = rows_of(ANSWERS[name])
    assert records["status"].tolist() == [Status.OK, Status.OK]
    always = {"lag": "2", "generator_lag": "1", "error": "0", "connect": "free", "cached_share": "-"}
    always |= {"bytes_out": "300", "bytes_in": "900"}
    said = {**TIMES[name], **TOKENS[name], **always}
    assert set(said) - {"what comes", "tokens", "counted from"} == METRICS
    for metric, indicator in CATALOGUE.items():
        assert cell(records, 1, indicator) == expected(said[metric]), metric
    counted = {"usage": TokensFrom.USAGE, "chunks": TokensFrom.CHUNKS, "nothing": TokensFrom.NONE}[said["counted from"]]
    assert (records["n_out"][1], records["tokens_from"][1]) == (
        -1 if said["tokens"] == "-" else int(said["tokens"]),
        counted,
    )


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure(name: str) -> None:
    records = rows_of(FAILURES[name])
    said = FAILED[name]
    assert records["status"].tolist() == [Status.OK, Status[said["status"]]]
    assert records.texts("error")[1]
    cells = {**dict.fromkeys(WORST, "inf"), **dict.fromkeys(NOTHING, "0"), "error": "1", "cached_share": "-", **said}
    for metric, indicator in CATALOGUE.items():
        assert cell(records, 1, indicator) == expected(cells[metric]), metric
        assert not held(parse(limit(indicator)), records)[0][1], metric
    assert records["n_out"][1] == (-1 if said["tokens"] == "-" else int(said["tokens"]))


@pytest.mark.parametrize("name", ENDS)
def test_an_answer_without_its_protocols_reason_to_end_was_cut(name: str) -> None:
    protocol, end = name.split(" ")[0], ENDS[name]

    def settled(body: bytes, **more: Any) -> Exchange:
        options = {**dict(end.options), **more}
        client = protocols()[protocol].build(Target("http://h:1", protocol, "m", options=options), None)
        found = finished([body], 200, end.media)
        found.request = client.encode(PAYLOAD)
        client.settle(found)
        return found

    whole, cut = settled(end.whole), settled(end.cut)
    assert (whole.status, whole.error) == (Status.OK, None)
    assert cut.status == Status.PROTOCOL, cut.error
    if WHOLE[protocol]["option"] == "yes":
        assert "ended without a finish reason" in (cut.error or "")
        assert "finish_reason: optional" in (cut.error or "")
        assert settled(end.cut, finish_reason="optional").status == Status.OK
        assert settled(end.whole, finish_reason="optional").status == Status.OK
    else:
        assert "finish_reason" not in (protocols()[protocol].options or BaseModel).model_fields


def test_every_protocol_with_a_reason_to_end_stands_in_the_table() -> None:
    optional = {
        name for name, spec in protocols().items() if spec.options and "finish_reason" in spec.options.model_fields
    }
    assert optional == {name for name, row in WHOLE.items() if row["option"] == "yes"}
    assert optional <= {name.split(" ")[0] for name in ENDS}
    assert set(WHOLE) <= set(protocols())


@pytest.mark.parametrize("name", ANYWHERE)
def test_any_event_stream_is_read_alike(name: str) -> None:
    """Protocol ``http`` with the paths of a chat stream says the same as protocol ``openai-chat``."""
    options = {
        "body_text": "x",
        "framing": "sse",
        "text_path": "choices.0.delta.content",
        "reasoning_path": "choices.0.delta.reasoning_content",
        "output_tokens_path": "usage.completion_tokens",
        "done": "[DONE]",
    }
    settle = HttpDialect(Target("http://h:1", "http", options=options)).settle
    both = [recorded(exchange(CASES[name]), settle=way) for way in (None, settle)]
    for column in ("status", "n_out", "tokens_from", "n_chunks", "first_token_ns", "first_answer_ns", "last_token_ns"):
        assert both[0][column].tolist() == both[1][column].tolist(), column
    assert np.array_equal(both[0].chunk_ns, both[1].chunk_ns)


@pytest.mark.parametrize("code", [429, 503])
def test_both_ways_to_refuse(code: int) -> None:
    busy = Case(((60, b"busy"),), code=code, media="text/plain")
    assert rows_of(busy)["status"][1] == Status.REFUSED


@pytest.mark.parametrize("name", CASES)
def test_a_request_of_the_warm_up_has_no_value(name: str) -> None:
    records = recorded(exchange(ANSWERS["plain"], 0), exchange(CASES[name], 1, Phase.WARMUP))
    for metric, indicator in CATALOGUE.items():
        found = measure(indicator, records)
        assert 1 not in found.row, metric
        assert found.missing == (metric in ("connect", "cached_share")), metric


def test_every_case_has_its_row_and_every_row_its_case() -> None:
    assert list(TIMES) == list(TOKENS) == list(ANSWERS)
    assert list(FAILED) == list(FAILURES)
    named = {*WORST, *NOTHING, "error"}
    assert named | {"itl", "lag", "generator_lag", "connect", "cached_share"} == METRICS


def test_tpot_of_the_tables_is_what_its_formula_gives() -> None:
    """The tables were not filled in from the code: a second opinion on the column that others get wrong."""
    for name, tokens in TOKENS.items():
        if TIMES[name]["tpot"] not in ("-", "free"):
            first, last = (Fraction(TIMES[name][column]) for column in ("ttft", "e2e"))
            assert (last - first) / (int(tokens["tokens"]) - 1) == Fraction(TIMES[name]["tpot"]), name


def test_an_event_has_arrived_when_its_last_byte_has() -> None:
    """Each event's bytes split over two reads: the second one counts."""
    split: list[tuple[float, bytes]] = []
    for at, data in ANSWERS["plain"].reads:
        split += [(at - 5, data[:-3]), (at, data[-3:])]
    records = recorded(exchange(Case(tuple(split))))
    assert np.array_equal(records.chunk_ns, np.array([20, 30, 50]) * MS)
    assert records["last_token_ns"][0] == 50 * MS
