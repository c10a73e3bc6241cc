"""What a run keeps once it is judged: the figures to the last digit, and of the chunk times what was asked for.

One folder of segments is sealed again and again, so that nothing but ``keep`` differs.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.generator import outputs
from plimsoll.harness.generator.segments import write_segment
from plimsoll.harness.run import retention
from plimsoll.harness.run.judged import conclude, judge
from plimsoll.harness.run.promises import Asked, Promises, keep
from plimsoll.harness.run.rundir import Sealed, create, open_sealed, seal
from plimsoll.harness.run.salvage import gathered
from plimsoll.harness.sealing.workforce import Member
from plimsoll.harness.series.comparison.replications import find, read
from plimsoll.harness.series.search.probe import _of_the_part
from plimsoll.harness.verbs.gate import _judge_again
from plimsoll.reports.format import formats
from plimsoll.reports.report import Report
from plimsoll.scenarios.flags import with_flags
from plimsoll.scenarios.scenario import parse as parse_scenario
from plimsoll.slo.comparison.quantity import parse_all
from plimsoll.slo.metrics.indicator import catalogue, measure
from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.records import tables
from plimsoll.slo.records.records import Phase, Records, Status, from_columns
from plimsoll.slo.validity.accounts import contradictions
from plimsoll.slo.validity.generator import GeneratorFacts
from tests.spine.records.test_salvage import cut_off
from tests.unit.harness.sealed_runs import HOST, MS

N = 400
OWN = ("p99(itl) <= 20ms", "p90(ttft) <= 60ms", "ttft <= 70ms", "ratio(good) >= 50%", "p1(fluidity) >= 0.1")
#: Formats that name the folder are compared without it.
TOLD = ("text", "markdown", "csv", "junit", "openmetrics")


def promised(*texts: str) -> Promises:
    return Promises(objectives=tuple(map(parse, texts)))


def streamed(speech: bool = False) -> Records:
    """400 answers of 2 to 9 chunks, one after the other; every 40th times out, and 20 came before t0.

    ``speech``: the odd ones are sessions, whose chunks hold 20 ms of audio each.
    """
    draw = np.random.default_rng(7)
    due = np.arange(N + 20) * 100 * MS
    first = due + (50 * MS * draw.lognormal(0, 0.2, N + 20)).astype(np.int64)
    chunks = [[int(at), *(int(at) + np.cumsum(draw.integers(0, 9 * MS, draw.integers(1, 9)))).tolist()] for at in first]
    status = np.where(np.arange(N + 20) % 40 == 3, int(Status.TIMEOUT), int(Status.OK))
    columns: dict[str, Any] = {}
    if speech:
        odd = [list(row) if at % 2 else [] for at, row in enumerate(chunks)]
        columns = {
            "first_audio_ns": [row[0] if row else -1 for row in odd],
            "media_out_ns": [20 * MS * len(row) if row else -1 for row in odd],
            "ragged": {"chunk_audio_ns": [[20 * MS] * len(row) for row in odd], "frame_lag_ns": odd},
        }
    return from_columns(
        N + 20, query_id=np.append(np.arange(N), np.arange(20)), due_ns=due, ready_ns=due, sent_ns=due,
        phase=np.append(np.zeros(N), np.full(20, int(Phase.WARMUP))), first_byte_ns=first, first_token_ns=first,
        last_token_ns=[row[-1] for row in chunks], done_ns=[row[-1] for row in chunks], status=status,
        n_out=[len(row) for row in chunks], n_in=9, tokens_from=1, n_in_from=1, chunks=chunks, **columns,
    )  # fmt: skip


def run(
    path: Path, kept: str, records: Records | None = None, own: Promises | None = None, **scenario: Any
) -> tuple[Sealed, Report]:
    """The run in ``path``, sealed from segments on disk, and judged."""
    own, records = promised(*OWN) if own is None else own, streamed() if records is None else records
    asked = with_flags(None, kind="concurrency", concurrency=1, queries=N, keep=kept)
    asked = parse_scenario(asked.to_mapping() | scenario)
    plan, directory = asked.build(1), create(path)
    for number, some in enumerate(np.array_split(np.random.default_rng(1).permutation(len(records)), 3)):
        write_segment(directory.segments / f"w000-{number:06d}.seg", records.select(some))
    manifest = {
        "schema": "plimsoll.manifest/1", "run_id": "r", "t0_wall_ns": 1, "t0_monotonic_ns": 0, "plimsoll": "1",
        "started_at": "2026-11-21T10:00:00+00:00", "host": HOST, "seed": 42, "workers": 1,
        "target": {"url": "http://127.0.0.1:1", "model": "m"}, "plan_fingerprint": plan.fingerprint(),
    }  # fmt: skip
    facts = GeneratorFacts(open_loop=False, planned=N, planned_queries=N, min_queries=N, kernel_reads=N)
    keep(own, directory)
    done = {"folders": [str(directory.segments)], "client": {}}
    sealed = seal(directory, manifest, asked.to_mapping(), plan, [Member(0, done=done)], facts)
    return sealed, conclude(sealed, own)


def figures(report: Report) -> dict[str, Any]:
    """The report without its folder and without what it says was kept."""
    document = report.document()
    for name in ("directory", "kept"):
        document["run"].pop(name, None)
    return document


def again(path: Path, *texts: str) -> Report:
    """The run in ``path`` judged again, by its own promises or these."""
    return judge(open_sealed(path), promised(*(texts or OWN)))


# -- the figures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("speech", [False, True])
@pytest.mark.parametrize("kept", ["none", "tail", "sample:1%"])
def test_every_figure_is_that_of_a_run_that_kept_all_and_so_it_is_when_judged_again(
    kept: str, speech: bool, tmp_path: Path
) -> None:
    given = streamed(speech)
    _, whole = run(tmp_path / "all", "all", given)
    sealed, report = run(tmp_path / "run", kept, given)
    assert figures(report) == figures(whole) == figures(again(tmp_path / "all"))
    assert again(tmp_path / "run") == report
    for name in TOLD:
        assert formats()[name].render(again(tmp_path / "run")) == formats()[name].render(report)
    assert open_sealed(tmp_path / "run").facts == sealed.facts
    held = [tables.load(tmp_path / name) for name in ("all", "run")]
    for column in held[0].columns:
        assert np.array_equal(held[0].columns[column], held[1].columns[column])
    assert len(held[1].chunk_ns) < 0.6 * len(held[0].chunk_ns)
    if speech:
        assert report.metrics["startup_delay"] == whole.metrics["startup_delay"]
        sizes = [len(rows.ragged(name)[0]) for name in ("chunk_audio_ns", "frame_lag_ns") for rows in held]
        assert sizes[1] < 0.6 * sizes[0]  # it goes with the chunk times
        assert sizes[2] == sizes[3] > 0  # it does not


def test_the_gaps_of_a_run_without_them_are_those_that_were_recorded(tmp_path: Path) -> None:
    given = streamed()
    run(tmp_path / "r", "none", given)
    ok = (given["status"] == Status.OK) & given.in_measure
    rows = [given.chunk_ns[a:b] for a, b in zip(given.chunk_offsets[:-1], given.chunk_offsets[1:], strict=True)]
    gaps, own = (
        sorted(int(gap) for row, here in zip(rows, which, strict=True) if here for gap in np.diff(row))
        for which in (ok, given.in_measure & ~ok)
    )
    longest = max(len(row) - 1 for row, good in zip(rows, ok, strict=True) if good)
    # A failed request has as many gaps as the longest answer, and those that never came are infinite.
    every = sorted([*gaps, *own]) + [math.inf] * (longest * int((given.in_measure & ~ok).sum()) - len(own))
    metric = again(tmp_path / "r").metrics["itl"]
    assert (metric.n, metric.failed) == (len(every), every.count(math.inf))
    assert (metric.p50, metric.p90) == (every[math.ceil(len(every) * 0.5) - 1], every[math.ceil(len(every) * 0.9) - 1])
    assert metric.of_ok is not None
    assert (metric.of_ok.n, metric.of_ok.max) == (len(gaps), gaps[-1])
    assert metric.of_ok.mean == pytest.approx(sum(gaps) / len(gaps))


@pytest.mark.parametrize("kept", ["tail", "none"])
def test_whoever_reads_the_files_gets_no_metric_of_the_chunk_times_that_happen_to_be_left(
    kept: str, tmp_path: Path
) -> None:
    run(tmp_path / "r", kept)
    left = tables.load(tmp_path / "r")
    for rows in (
        left,
        left.select(left.in_measure),
        left.with_columns(worker=left["worker"] + 1),
        left.select(slice(5, 200)),
    ):
        assert measure(catalogue()["itl"], rows).n == 0
        assert measure(catalogue()["fluidity"], rows, judged=True).n == 0
        assert measure(catalogue()["ttft"], rows).n > 0
        assert contradictions(rows) == []


def test_a_directory_that_moved_says_where_it_is(tmp_path: Path) -> None:
    run(tmp_path / "a", "none")
    (tmp_path / "a").rename(tmp_path / "b")
    assert again(tmp_path / "b").run.directory == str(tmp_path / "b")


# -- other promises ----------------------------------------------------------------------------------------------------

REQUESTS = ("p99(latency) <= 200ms", "mean(tpot) <= 9ms", "ttft <= 55ms", "ratio(good) >= 80%", "ratio(error) <= 5%")


def test_times_of_whole_requests_can_be_judged_anew_and_the_rest_stays_as_it_was(tmp_path: Path) -> None:
    run(tmp_path / "all", "all")
    run(tmp_path / "none", "none")
    whole, left = (figures(again(tmp_path / name, *REQUESTS)) for name in ("all", "none"))
    assert left.pop("peers") == {}  # half of them are of the limits, and half of the gaps
    assert whole.pop("peers") != {}
    assert left == whole
    same = again(tmp_path / "none", "p90(ttft) <= 50ms", *OWN[2:4])
    assert same.peers == {} or "vllm.ttft" in same.peers


def test_what_is_said_of_merged_chunks_is_said_again(tmp_path: Path) -> None:
    given = streamed()
    times = given.chunk_ns.copy()
    second = given.chunk_offsets[:-1][np.diff(given.chunk_offsets) > 2] + 1
    times[second] = times[second - 1]
    given = Records(given.columns, times, given.chunk_offsets, given.errors, given.timings)
    run(tmp_path / "all", "all", given)
    run(tmp_path / "none", "none", given)
    whole, left = (again(tmp_path / name, *REQUESTS) for name in ("all", "none"))
    assert any("came in one read with a later one" in text for text in whole.warnings)
    assert left.warnings == whole.warnings
    assert left.validity == whole.validity


@pytest.mark.parametrize(
    "text", ["p99(itl) <= 30ms", "itl <= 1s", "p50(fluidity) >= 0.5", "longest_stall <= 1s", "accuracy(top1) >= 90%"]
)
def test_a_new_promise_on_what_was_dropped_is_refused_and_says_what_to_do(text: str, tmp_path: Path) -> None:
    run(tmp_path / "r", "tail")
    before = (tmp_path / "r" / "report.json").exists()
    with pytest.raises(HarnessFault) as fault:
        again(tmp_path / "r", "p90(ttft) <= 60ms", text)
    assert fault.value.code == 2
    (said,) = fault.value.errors
    assert said.startswith(f"{tmp_path / 'r'}: {text}: it needs chunk times or answers that this run dropped")
    assert "keep tail" in said
    assert "measure again with --keep all" in said
    assert (tmp_path / "r" / "report.json").exists() == before


def test_a_comparison_is_refused_only_where_what_good_means_was_dropped(tmp_path: Path) -> None:
    run(tmp_path / "a", "none")
    side, wanted = find([str(tmp_path / "a")]), parse_all(["p99(ttft)", "p99(itl)", "rate(good)"])
    (found,) = read(side, wanted, promised("ttft <= 60ms", "p99(itl) <= 1ms").objectives)
    ttft, itl, good = (found.arm.values(one) for one in wanted)
    assert ttft[0] == again(tmp_path / "a").metrics["ttft"].p99 or math.isinf(ttft[0])
    assert not np.isfinite(itl).any()
    assert good[0] > 0
    with pytest.raises(HarnessFault, match=r"/a: itl <= 30ms: it needs chunk times .* that this run dropped"):
        read(side, wanted, promised("ttft <= 60ms", "itl <= 30ms").objectives)


def test_a_search_that_goes_on_does_not_judge_half_a_probe_by_gaps_that_are_gone(tmp_path: Path) -> None:
    run(tmp_path / "r", "tail")
    opened = open_sealed(tmp_path / "r")
    assert _of_the_part(opened, promised("p99(itl) <= 1ms")) == ([], None)
    (shown,), _ = _of_the_part(opened, promised("p50(ttft) <= 10s"))
    assert shown.n == N


def test_rows_of_an_agent_do_not_join_a_run_that_dropped_something(tmp_path: Path) -> None:
    run(tmp_path / "r", "none")
    agent = cut_off(tmp_path / "a", workers=2, agent="a")
    with pytest.raises(HarnessFault, match="it has dropped chunk times, so no rows can join it"):
        gathered(tmp_path / "r", [agent.path], None)


# -- what stays --------------------------------------------------------------------------------------------------------


def stays(path: Path) -> set[int]:
    """Queries of the measured phase of which chunk times are there."""
    left = tables.load(path)
    rows = np.flatnonzero(np.diff(left.chunk_offsets) > 0)
    assert not (left["phase"][rows] == Phase.WARMUP).any()
    assert np.array_equal(np.diff(left.chunk_offsets)[rows], left["n_chunks"][rows])  # of a row all or nothing
    return {*left["query_id"][rows].tolist()}


def test_the_tail_is_who_failed_broke_a_limit_or_was_among_the_slowest(tmp_path: Path) -> None:
    given = streamed()
    _, report = run(tmp_path / "r", "tail", given, promised("p90(ttft) <= 60ms", "itl <= 8ms", "ratio(good) >= 1%"))
    mine = given.select(given.in_measure)
    ttft, latency = (mine[name] - mine["due_ns"] for name in ("first_token_ns", "done_ns"))
    gaps = [np.diff(mine.chunk_ns[a:b]).max() for a, b in zip(mine.chunk_offsets, mine.chunk_offsets[1:], strict=False)]
    failed = mine["status"] != Status.OK
    wanted = failed | (ttft > 60 * MS) | (np.array(gaps) > 8 * MS)
    for values in (ttft, latency):  # failed ones rank before every other
        wanted[np.argsort(-np.where(failed, np.inf, values), kind="stable")[:4]] = True
    assert stays(tmp_path / "r") == {*mine["query_id"][wanted].tolist()}
    assert report.run.kept.startswith(f"chunk times of {int(wanted.sum())} of 400 requests (keep tail: failed, beyond")


def test_without_failures_and_limits_the_tail_is_the_slowest_of_each_hundred(tmp_path: Path) -> None:
    given = streamed()
    given = given.with_columns(status=np.zeros(len(given)))
    run(tmp_path / "r", "tail", given, promised("ratio(error) <= 1%", "mean(itl) <= 1ns"))
    mine = given.select(given.in_measure)
    slowest = [
        mine["query_id"][np.argsort(mine["due_ns"] - mine[name])[:4]].tolist() for name in ("done_ns", "first_token_ns")
    ]
    assert stays(tmp_path / "r") == {*slowest[0], *slowest[1]}


def test_a_sample_is_of_the_seed_grows_with_its_share_and_has_every_failure(tmp_path: Path) -> None:
    given = streamed()
    drawn = {}
    for share in ("1%", "10%", "50%"):
        run(tmp_path / share, f"sample:{share}", given)
        drawn[share] = stays(tmp_path / share)
    failed = {*given["query_id"][given.in_measure & ~given.ok].tolist()}
    assert failed <= drawn["1%"] < drawn["10%"] < drawn["50%"]
    assert 170 < len(drawn["50%"] - failed) < 220
    others = retention.rows_to_keep("sample:50%", given, promised(), 43)
    assert {*given["query_id"][others].tolist()} != drawn["50%"]


def test_nothing_is_nothing_not_even_of_what_failed(tmp_path: Path) -> None:
    _, report = run(tmp_path / "r", "none")
    assert stays(tmp_path / "r") == set()
    times = len(streamed().chunk_ns)
    said = f"chunk times of 0 of 400 requests (keep none); {times:,} of {times:,} times were dropped after every figure"
    assert report.run.kept.startswith(said)
    for name in ("text", "html", "markdown", "json"):
        assert said.partition(" (")[0] in " ".join(formats()[name].render(report).decode().split())


def test_a_run_that_keeps_all_says_nothing_of_it(tmp_path: Path) -> None:
    _, report = run(tmp_path / "r", "all")
    assert "kept" not in report.document()["run"]
    assert not (tmp_path / "r" / retention.FILE).exists()


def test_answers_go_with_the_chunk_times(tmp_path: Path) -> None:
    given = streamed()
    asked = parse_scenario({"kind": "offline", "mode": "accuracy", "source": {"kind": "tensors", "count": N}}, "f")
    (tmp_path / "s").mkdir()
    lines = [json.dumps({"query_id": 0, "sample_ix": at, "text": f"a {at}"}) for at in range(N)]
    (tmp_path / "s" / "outputs-w000.jsonl").write_text("\n".join(lines))
    outputs.gather(tmp_path / "s", asked.build(N), "r", ["a"] * N, mlperf=True)(tmp_path)
    before = outputs.scores_of(tmp_path)
    assert before is not None
    offline = given.with_columns(query_id=np.zeros(len(given)), sample_ix=np.arange(len(given)))
    import pyarrow.parquet as pq

    outputs.leave(tmp_path / retention.ANSWERS, tmp_path, offline.select(np.array([5, 7])))
    assert pq.read_table(tmp_path / outputs.FILE).num_rows == N, "until the chunk times are dropped"
    retention.forget(tmp_path)
    assert not (tmp_path / retention.ANSWERS).exists()
    retention.forget(tmp_path)
    assert pq.read_table(tmp_path / outputs.FILE)["text"].to_pylist() == ["a 5", "a 7"]
    assert not (tmp_path / outputs.MLPERF_FILE).exists()


def test_answers_that_a_killed_run_had_no_time_to_forget_are_forgotten_by_the_next_report(tmp_path: Path) -> None:
    run(tmp_path / "r", "none")
    for name in (outputs.FILE, outputs.MLPERF_FILE):
        (tmp_path / "r" / name).write_text("all")
    (tmp_path / "r" / retention.ANSWERS).write_text("some")
    conclude(open_sealed(tmp_path / "r"), promised(*OWN))
    assert (tmp_path / "r" / outputs.FILE).read_text() == "some"
    assert not (tmp_path / "r" / outputs.MLPERF_FILE).exists()


# -- what goes wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("texts", [(), ("p90(ttft) <= 1us",), ("p90(itl) <= 1us",)])
def test_facts_that_are_not_those_that_it_was_judged_by_make_a_run_invalid(
    texts: tuple[str, ...], tmp_path: Path
) -> None:
    """Once every objective was left out instead, and the run passed."""
    run(tmp_path / "r", "tail")
    file = tmp_path / "r" / "generator.json"
    held = json.loads(file.read_text())
    held["facts"]["loop_stall_max_ns"] = 1
    file.write_text(json.dumps(held))
    report = again(tmp_path / "r", *texts)
    assert (report.verdict.outcome, report.exit_code) == ("INVALID", 4)
    assert any("kept.json was made from another generator.json" in text for text in report.verdict.reasons)


def test_a_word_of_another_version_is_said_to_be_one(tmp_path: Path) -> None:
    sealed, _ = run(tmp_path / "r", "all")
    with pytest.raises(HarnessFault, match=r"scenario\.yaml is damaged or from another version"):
        conclude(replace(sealed, scenario={**sealed.scenario, "keep": "foo bar"}), promised(*OWN))


def test_killed_before_the_chunk_times_were_dropped_a_run_has_them_and_the_next_report_drops_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = pytest.raises(KeyboardInterrupt)
    monkeypatch.setattr(tables, "write_chunks", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with killed:
        run(tmp_path / "r", "none")
    monkeypatch.undo()
    assert (tmp_path / "r" / retention.FILE).is_file()
    opened = open_sealed(tmp_path / "r")
    assert opened.kept is None
    _, whole = run(tmp_path / "all", "all")
    assert figures(judge(opened, promised(*OWN))) == figures(whole)
    _judge_again(tmp_path / "r", Asked(slo=["p99(ttft) <= 1s"]), [], as_json=True)
    _judge_again(tmp_path / "r", Asked(confidence="0.99"), [], as_json=True, rewrite=True)
    assert open_sealed(tmp_path / "r").kept is None  # neither gate nor other promises decide what a run can say later
    _judge_again(tmp_path / "r", Asked(), [], as_json=True, rewrite=True)
    assert stays(tmp_path / "r") == set()
    assert figures(again(tmp_path / "r")) == figures(whole)


def test_half_files_of_killed_writers_go_when_the_run_is_reported_again(tmp_path: Path) -> None:
    run(tmp_path / "r", "all")
    for name in ("report.html", "chunks.parquet"):
        (tmp_path / "r" / f"{name}.0123456789abcdef.partial").write_bytes(b"half")
    _judge_again(tmp_path / "r", Asked(), [], as_json=True)
    assert len([*(tmp_path / "r").glob("*.partial")]) == 2, "gate changes nothing"
    _judge_again(tmp_path / "r", Asked(), [], as_json=True, rewrite=True)
    assert not [*(tmp_path / "r").glob("*.partial")]


def test_a_disk_without_room_for_the_rest_keeps_everything_and_the_report_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tables, "write_chunks", full)
    _, report = run(tmp_path / "r", "none")
    monkeypatch.undo()
    assert any("everything is still there" in text and "No space left" in text for text in report.warnings)
    assert report.run.kept == ""
    assert not (tmp_path / "r" / retention.FILE).exists()
    assert not [*(tmp_path / "r").glob("*.partial")]
    assert len(tables.load(tmp_path / "r").chunk_ns) == len(streamed().chunk_ns)
    assert open_sealed(tmp_path / "r").kept is None


def test_what_is_left_can_not_be_exchanged_unseen(tmp_path: Path) -> None:
    run(tmp_path / "r", "tail")
    left = tables.load(tmp_path / "r")
    mark = tables.kept_mark(tmp_path / "r")
    moved = left.keeping(left["query_id"] != min(stays(tmp_path / "r")))
    with (tmp_path / "r" / "chunks.parquet").open("wb") as file:
        tables.write_chunks([moved], mark, file)
    report = again(tmp_path / "r")
    assert report.verdict.outcome == "INVALID"
    assert "chunk_ns of requests.parquet or chunks.parquet were changed" in report.verdict.reasons[0]


@pytest.mark.parametrize("wrong", [lambda text: text.replace('"p99": ', '"p99": 1'), None])
def test_other_figures_than_those_of_then_are_no_figures(wrong: Callable[[str], str] | None, tmp_path: Path) -> None:
    run(tmp_path / "r", "none")
    file = tmp_path / "r" / retention.FILE
    if wrong is None:
        file.unlink()
    else:
        file.write_text(wrong(file.read_text()))
    with pytest.raises(HarnessFault, match=r"damaged.*kept\.json"):
        open_sealed(tmp_path / "r")


@pytest.mark.parametrize("text", ["[]", "{}", '{"schema": "plimsoll.kept/2"}', "[" * 100_000, "\x00"])
def test_a_file_of_another_version_is_said_to_be_that(text: str, tmp_path: Path) -> None:
    run(tmp_path / "r", "none")
    (tmp_path / "r" / retention.FILE).write_text(text)
    left = tables.load(tmp_path / "r")
    with (tmp_path / "r" / "chunks.parquet").open("wb") as file:
        tables.write_chunks([left], hashlib.sha256(text.encode()).hexdigest().encode(), file)
    with pytest.raises(HarnessFault, match="damaged or from another version"):
        open_sealed(tmp_path / "r")


def test_rows_that_were_changed_make_no_figures_of_then_valid(tmp_path: Path) -> None:
    run(tmp_path / "r", "none")
    held = tables.load(tmp_path / "r")
    late = held.with_columns(done_ns=held["done_ns"] + 1)
    table = tables.to_tables(late, tables.request_ids("r", late))[0]
    import pyarrow.parquet as pq

    pq.write_table(table, tmp_path / "r" / "requests.parquet")
    report = again(tmp_path / "r")
    assert report.verdict.outcome == "INVALID"
    assert "the rows are not those that were sealed" in report.verdict.reasons[0]


@pytest.mark.parametrize("wrong", ["foo", "", "sample", "sample:0%", "sample:100%", "sample:-1%", "sample:1", "ALL"])
def test_what_is_no_share_of_a_run_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"--keep: .* is none of all, tail, none and sample:P% .*Write sample:1%"):
        with_flags(None, keep=wrong)
