"""The recorder: every finished exchange becomes one row, whatever the disk or a client's parser does."""

from __future__ import annotations

import errno
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.harness.exchange import Exchange, SessionStamps
from plimsoll.harness.generator import recorder, segments
from plimsoll.harness.generator.recorder import FRESH, Fresh, Recorder, shown_timing, spread, spread_quantile
from plimsoll.harness.generator.segments import SegmentWriter, read_segment, read_segments, write_segment
from plimsoll.harness.secrecy.redaction import learn
from plimsoll.slo.records.labels import LabelTable
from plimsoll.slo.records.records import PACE_CAPTURE, PACE_FILE, Records, Status, TokensFrom, concat
from plimsoll.slo.validity.accounts import contradictions
from tests.virtual_time import VirtualClock

MS = 1_000_000


def finished(query_id: int, t0: int, *, due_ms: int = 0, chunks: int = 0, error: str | None = None) -> Exchange:
    due = t0 + due_ms * MS
    exchange = Exchange(query_id, 0, 0, due, None)
    exchange.ready_ns = exchange.sent_ns = due
    exchange.headers_ns = exchange.first_byte_ns = due + MS
    exchange.done_ns = due + 9 * MS
    exchange.status = int(Status.OK if error is None else Status.PROTOCOL)
    exchange.error = error
    exchange.chunk_ns.extend(range(due + MS, due + MS + chunks))
    exchange.n_chunks = chunks
    if chunks:
        exchange.first_token_ns = exchange.first_answer_ns = exchange.chunk_ns[0]
        exchange.last_token_ns = exchange.chunk_ns[-1]
    return exchange


class Desk:
    """A recorder in virtual time that keeps its segments in a list."""

    def __init__(self, next_due_ns: int = 1 << 62) -> None:
        self.clock = VirtualClock()
        self.settled: list[int] = []
        self.segments: list[Records] = []
        self.next_due_ns = next_due_ns
        self.recorder = Recorder(self.clock, self._settle, lambda: self.next_due_ns, self.segments.append, worker=3)
        self.recorder.t0_ns = self.clock.now_ns()

    def _settle(self, exchange: Exchange) -> None:
        self.settled.append(exchange.query_id)
        self.clock.spend(100_000)

    def records(self) -> Records:
        self.recorder.flush()
        return concat(self.segments)


def test_each_finished_exchange_is_one_row_with_times_relative_to_t0() -> None:
    desk = Desk()
    t0 = desk.recorder.t0_ns
    for k in range(5):
        desk.recorder.finished(finished(k, t0, due_ms=k, chunks=k))
    desk.clock.run()
    records = desk.records()
    assert records["query_id"].tolist() == [0, 1, 2, 3, 4]
    assert (records["due_ns"] == np.arange(5) * MS).all()
    assert set(records["worker"].tolist()) == {3}
    assert np.diff(records.chunk_offsets).tolist() == [0, 1, 2, 3, 4]
    assert contradictions(records) == []


def test_a_prompt_that_no_server_counted_has_the_plans_length_and_says_so() -> None:
    columns = recorder.Columns()
    for query_id, (n_in, n_in_from) in enumerate([(480, 0), (791, int(TokensFrom.USAGE)), (-1, 0)]):
        exchange = finished(query_id, 1000)
        exchange.n_in, exchange.n_in_from = n_in, n_in_from
        columns.append(exchange)
    rows = columns.to_records(1000, 0)
    assert rows["n_in_from"].tolist() == [TokensFrom.PLAN, TokensFrom.USAGE, TokensFrom.NONE]


def test_what_did_not_happen_stays_minus_one_and_warm_up_times_are_negative() -> None:
    desk = Desk()
    exchange = Exchange(0, 0, 0, desk.recorder.t0_ns - 5 * MS, None)
    exchange.phase = 1
    desk.recorder.finished(exchange)
    desk.clock.run()
    records = desk.records()
    assert records["due_ns"].tolist() == [-5 * MS]
    assert records["sent_ns"].tolist() == [-1]
    assert records["status"].tolist() == [Status.UNFINISHED]


def test_settling_waits_while_a_query_is_about_to_be_due() -> None:
    desk = Desk()
    desk.next_due_ns = desk.clock.now_ns() + 50_000
    desk.recorder.finished(finished(0, desk.recorder.t0_ns))
    desk.clock.run(desk.next_due_ns - 1)
    assert desk.settled == []
    due, desk.next_due_ns = desk.next_due_ns, 1 << 62
    desk.clock.run(due + MS)
    assert desk.settled == [0]


def test_a_long_queue_is_settled_in_slices_that_let_the_loop_breathe() -> None:
    desk = Desk()
    for k in range(100):
        desk.recorder.finished(finished(k, desk.recorder.t0_ns))
    begun = desk.clock.now_ns()
    seen: list[int] = []
    desk.clock.wake_at(begun, lambda: seen.append(len(desk.settled)))
    desk.clock.run()
    assert len(desk.settled) == 100
    assert seen[0] < 100


def test_with_a_large_backlog_memory_comes_before_the_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "BACKLOG", 10)
    desk = Desk()
    desk.next_due_ns = desk.clock.now_ns() + 100_000
    for k in range(20):
        desk.recorder.finished(finished(k, desk.recorder.t0_ns))
    desk.clock.run(desk.clock.now_ns() + 50_000)
    assert desk.settled


def test_a_loop_that_has_no_time_to_settle_settles_as_it_sends_and_cuts_its_segments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recorder, "BACKLOG", 10)
    monkeypatch.setattr(recorder, "SEGMENT_ROWS", 15)
    desk = Desk()
    for k in range(100):
        desk.recorder.finished(finished(k, desk.recorder.t0_ns))
        assert k + 1 - len(desk.settled) <= 20
    assert [len(part) for part in desk.segments] == [16] * 5  # two at a time
    assert desk.records()["query_id"].tolist() == [*range(100)]
    assert [len(part) for part in desk.segments] == [16] * 5 + [15, 5]  # at the end, too, none is larger


def test_a_bug_in_a_clients_parser_costs_the_parsing_not_the_row() -> None:
    desk = Desk()

    def broken(exchange: Exchange) -> None:
        raise KeyError("choices")

    desk.recorder._settle = broken
    desk.recorder.finished(finished(7, desk.recorder.t0_ns))
    desk.clock.run()
    records = desk.records()
    assert records["status"].tolist() == [Status.PROTOCOL]
    assert "KeyError" in str(records.texts("error")[0])
    assert "query 7" in desk.recorder.faults[0]


def test_a_segment_is_cut_every_second_and_when_it_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "SEGMENT_ROWS", 4)
    desk = Desk()
    for k in range(4):
        desk.recorder.finished(finished(k, desk.recorder.t0_ns))
    desk.clock.run()
    assert [len(part) for part in desk.segments] == [4]
    desk.recorder.finished(finished(4, desk.recorder.t0_ns))
    desk.clock.run()
    desk.clock.run(desk.clock.now_ns() + 1_100 * MS)
    desk.recorder.finished(finished(5, desk.recorder.t0_ns))
    desk.clock.run()
    assert [len(part) for part in desk.segments] == [4, 2]


def test_the_last_row_before_a_silence_is_on_its_way_to_disk_within_the_second() -> None:
    """Whoever is killed then has it: a worker ticks fifty times a second, whether or not anything ends."""
    desk = Desk()
    desk.recorder.finished(finished(0, desk.recorder.t0_ns))
    desk.clock.run()
    for _ in range(49):
        desk.clock.run(desk.clock.now_ns() + 20 * MS)
        desk.recorder.tick()
    assert [len(part) for part in desk.segments] == [1]


def test_a_row_that_has_waited_for_a_pause_in_the_schedule_is_settled_before_it_is_a_second_old() -> None:
    desk = Desk()
    desk.recorder._next_due_ns = lambda: desk.clock.now_ns() + 90_000  # there is always one about to be due
    desk.recorder.finished(finished(0, desk.recorder.t0_ns))
    desk.clock.run(desk.recorder.t0_ns + 600 * MS)
    assert desk.settled == []
    desk.clock.run(desk.recorder.t0_ns + 800 * MS)
    assert desk.settled == [0]


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from([None, "a", "b é"])), max_size=12))
def test_a_segment_reads_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, str]]) -> None:
    desk = Desk()
    for k, (chunks, error) in enumerate(rows):
        desk.recorder.finished(finished(k, desk.recorder.t0_ns, chunks=chunks, error=error))
    desk.clock.run()
    before = desk.records()
    path = tmp_path_factory.mktemp("s") / "w000-000000.seg"
    write_segment(path, before)
    after = read_segment(path)
    assert after.errors == before.errors
    assert after.texts("error") == [error for _, error in rows]
    assert (after.chunk_ns == before.chunk_ns).all()
    for name in before.columns:
        assert (after[name] == before[name]).all()


def one_row() -> Records:
    desk = Desk()
    desk.recorder.finished(finished(0, desk.recorder.t0_ns, chunks=3))
    desk.clock.run()
    return desk.records()


def test_a_full_disk_sends_segments_to_another_folder_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = segments.write_segment

    def full(path: Path, records: Records) -> None:
        if path.parent == tmp_path:
            raise OSError(errno.ENOSPC, "No space left on device")
        original(path, records)

    monkeypatch.setattr(segments, "write_segment", full)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "elsewhere"))
    writer = SegmentWriter(tmp_path, 0)
    writer.put(one_row())
    writer.put(one_row())
    writer.close()
    parts, faults = read_segments([Path(folder) for folder in writer.folders])
    assert (len(parts), faults) == (2, [])
    assert "No space left" in writer.notes[0]
    assert len(writer.notes) == 1
    assert not writer.unwritten


def test_with_no_disk_at_all_rows_stay_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, records: Records) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(segments, "write_segment", full)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    writer = SegmentWriter(tmp_path, 0)
    writer.put(one_row())
    writer.close()
    assert [len(part) for part in writer.unwritten] == [1]


def test_rows_in_memory_have_an_end_at_which_whoever_sends_is_told_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, records: Records) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(segments, "write_segment", full)
    monkeypatch.setattr(segments, "MOST_UNWRITTEN", 1000)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for rows, ended in ((4, False), (6, True)):
        writer = SegmentWriter(tmp_path, 3)
        for _ in range(rows):
            writer.put(one_row())
        writer.close()
        assert (writer.full, len(writer.unwritten)) == (ended, rows)
        assert len(writer.faults) == ended
    assert "worker 3 ended the run: no disk takes its rows (No space left on device)" in writer.faults[0]


@pytest.mark.parametrize("error", [TypeError("no"), MemoryError(), RecursionError("deep"), SystemExit(3)])
def test_whatever_ends_the_writing_of_a_segment_is_a_fault_and_nobody_waits_for_ever(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = segments.write_segment

    def broken(path: Path, records: Records) -> None:
        if path.name == "w000-000001.seg":
            raise error
        original(path, records)

    monkeypatch.setattr(segments, "write_segment", broken)
    writer = SegmentWriter(tmp_path, 0)
    for _ in range(3):
        writer.put(one_row())
    writer.close()
    parts, _ = read_segments([tmp_path])
    assert len(parts) == (2 if isinstance(error, Exception) else 1)
    assert len(writer.faults) == 1
    assert type(error).__name__ in writer.faults[0]
    assert (
        "w000-000001.seg with 1 rows" in writer.faults[0] or "the thread that writes segments ended" in writer.faults[0]
    )


def test_a_damaged_segment_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    write_segment(tmp_path / "w000-000000.seg", one_row())
    write_segment(tmp_path / "w000-000001.seg", one_row())
    data = (tmp_path / "w000-000000.seg").read_bytes()
    (tmp_path / "w000-000000.seg").write_bytes(data[: len(data) // 2])
    parts, faults = read_segments([tmp_path])
    assert len(parts) == 1
    assert "w000-000000.seg" in faults[0]


@given(st.lists(st.integers(1, 10**11), min_size=1, max_size=200), st.sampled_from([0.5, 0.9, 0.99]))
def test_the_live_histogram_is_within_its_bin_of_the_exact_quantile(values: list[int], p: float) -> None:
    exact = sorted(values)[max(0, -int(-p * len(values) // 1) - 1)]
    live = spread_quantile(spread(values), p)
    assert exact / 1.05 <= live <= exact * 1.05


def spoken(pace: int) -> Exchange:
    exchange = finished(0, 0)
    stamps = exchange.session = SessionStamps()
    stamps.pace, stamps.speech_start_ns, stamps.speech_end_ns = pace, 2 * MS, 5 * MS
    stamps.first_partial_ns, stamps.final_ns, stamps.first_audio_ns, stamps.audible_ns = 3 * MS, 7 * MS, 8 * MS, 9 * MS
    return exchange


def test_of_live_speech_the_display_gets_what_is_waited_for_and_not_the_time_that_somebody_spoke() -> None:
    fresh = Fresh()
    fresh.add(spoken(PACE_CAPTURE))
    assert {name: list(getattr(fresh, name)) for name in FRESH if len(getattr(fresh, name))} == {
        "first_partial": [MS],
        "finalization": [2 * MS],
        "voice_to_voice": [4 * MS],
    }


def test_of_speech_that_nobody_speaks_live_the_display_gets_the_first_audio_and_the_latency() -> None:
    fresh = Fresh()
    fresh.add(spoken(PACE_FILE))
    assert (list(fresh.first_audio), list(fresh.latency)) == ([8 * MS], [9 * MS])
    assert not len(fresh.first_partial)


def test_server_timings_are_redacted_and_cut_to_whole_entries_of_1_kib_at_most() -> None:
    learn(["sk-0123456789abcdef"])
    assert shown_timing('a;dur=1;desc="sk-0123456789abcdef"') == 'a;dur=1;desc="[redacted]"'
    long = ", ".join(f"stage{i};dur={i * 1111}" for i in range(2000))
    shown = shown_timing(long)
    assert long.startswith(shown + ",")
    assert (len(shown) <= 1024, shown.count(",")) == (True, 31)
    assert shown_timing("x" * 5000 + ";dur=1") == ""
    assert shown_timing('q;desc="' + "d" * 2000 + '";dur=7') == "q"
    across = "a;dur=1," + "b" * 1005 + ";d=sk-0123456789abcdef;dur=1"
    assert shown_timing(across) == "a;dur=1"


def test_huge_server_timings_cost_a_bounded_table(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    desk.recorder.timing_chars = 100_000
    for k in range(400):
        exchange = finished(k, desk.recorder.t0_ns)
        exchange.server_timing = ", ".join(f"s{k}x{i};dur={i}" for i in range(4000))  # 48 KB, each another
        desk.recorder.finished(exchange)
        desk.clock.run()
        if k % 50 == 49:
            desk.recorder.flush()
    records = desk.records()
    assert len(records) == 400
    assert 90_000 < sum(map(len, records.timings)) < 200_000
    (note,) = desk.recorder.notes
    assert "Server-Timing" in note


def test_an_error_text_is_redacted_before_it_is_cut() -> None:
    learn(["sk-0123456789abcdef"])
    desk = Desk()
    for k, text in enumerate(("bad sk-0123456789abcdef", "x" * 1015 + " sk-0123456789abcdef")):
        desk.recorder.finished(finished(k, desk.recorder.t0_ns, error=text))
    desk.clock.run()
    assert desk.records().errors == ("bad [redacted]", "x" * 1015 + " [redacte")


def test_different_error_texts_are_kept_up_to_a_number_and_a_length_of_the_run_and_the_rest_is_one_text() -> None:
    desk = Desk()
    desk.recorder.said.share(100)  # a hundredth of the run's: 100 texts
    for k in range(300):
        desk.recorder.finished(finished(k, desk.recorder.t0_ns, error=f"hold {k % 150} is full"))
        desk.clock.run()
        if k % 70 == 69:
            desk.recorder.flush()
    records = desk.records()
    texts = records.texts("error")
    assert len(set(texts)) == 101
    assert [text == recorder.OTHER for text in texts] == [k % 150 >= 100 for k in range(300)]
    assert sum("error texts of some failed requests were not kept" in note for note in desk.recorder.notes) == 1
    long = Desk()
    long.recorder.said.share(1 << 10)  # 4,096 characters
    for k in range(9):
        long.recorder.finished(finished(k, long.recorder.t0_ns, error=f"{k}" * 1000))
    long.clock.run()
    assert len(set(long.records().texts("error"))) == 6


def heavy(query_id: int, t0: int, body: bytes) -> Exchange:
    exchange = finished(query_id, t0)
    exchange.body += body
    exchange.bytes_in = len(body)
    exchange.mark_ns.append(t0)
    exchange.mark_end.append(len(body))
    return exchange


def test_answers_that_wait_with_more_bytes_than_they_may_are_settled_whatever_is_due() -> None:
    desk = Desk()
    desk.recorder._waiting = 10_000
    desk.next_due_ns = desk.clock.now_ns() + 1000  # no time for settling before that
    for k in range(50):
        desk.recorder.finished(heavy(k, desk.recorder.t0_ns, bytes(1000)))
    desk.recorder._work()
    assert len(desk.settled) == 40, "in one go, and no further than that"


def test_an_answer_that_could_cost_too_much_is_not_taken_apart_unless_its_client_sees_to_that() -> None:
    for cost, status in ((recorder.text_cost, Status.PROTOCOL), (None, Status.OK)):
        desk = Desk()
        desk.recorder.cost = cost
        desk.recorder._reading, desk.recorder._small = 20_000, 100
        for k, body in enumerate((b"a" * 1000, b"{}," * 300)):
            desk.recorder.finished(heavy(k, desk.recorder.t0_ns, body))
        desk.clock.run()
        assert desk.settled == [0, 1]
        assert desk.records()["status"].tolist() == [Status.OK, status]


def crafted(
    path: Path, change: Callable[[dict[str, Any]], Any], *, body: bytes | None = None, row: Records | None = None
) -> Path:
    """A segment with another header, and the right checksum of it."""
    write_segment(path, one_row() if row is None else row)
    data = path.read_bytes()
    magic = data.index(b"\n") + 1
    end = magic + 8 + int.from_bytes(data[magic : magic + 8], "little")
    header = json.loads(data[magic + 8 : end])
    changed = change(header)
    text = changed if isinstance(changed, bytes) else json.dumps(header if changed is None else changed).encode()
    made = data[:magic] + len(text).to_bytes(8, "little") + text + (data[end:-4] if body is None else body)
    path.write_bytes(made + zlib.crc32(made).to_bytes(4, "little"))
    return path


def laid_out(column: str, **changes: Any) -> Callable[[dict[str, Any]], None]:
    """The layout of one column, with other parts: name, dtype, count, length."""

    def change(header: dict[str, Any]) -> None:
        (entry,) = (one for one in header["arrays"] if one[0] == column)
        for place, name in enumerate(("name", "dtype", "count", "length")):
            entry[place] = changes.get(name, entry[place])

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (laid_out("due_ns", count=1, length=10**15), "has 1 values for 1000000000000000 rows"),
        (laid_out("due_ns", count=0, length=5), "has 0 values for 5 rows"),
        (laid_out("due_ns", count=10**9, length=10**9), "goes on after the end"),
        (laid_out("due_ns", count=1, length=3), "of different lengths"),
        (laid_out("due_ns", count=-1, length=-1), "is not laid out"),
        (laid_out("due_ns", count=[1]), "is not laid out"),
        (laid_out("due_ns", dtype="|O"), "is not laid out"),
        (laid_out("due_ns", dtype=["<i8"]), "is not laid out"),
        (laid_out("due_ns", name="dew_ns"), "its columns are not those"),
        (lambda header: header | {"arrays": header["arrays"][:-1]}, "its columns are not those"),
        (lambda header: {**header, "arrays": None}, "its columns are not those"),
        (lambda header: {"arrays": header["arrays"], "timings": []}, "errors is no list of texts"),
        (lambda header: header | {"errors": [1]}, "errors is no list of texts"),
        (lambda header: header | {"slices": []}, "its columns are not those"),
        (lambda header: [], "its header is no mapping"),
        (lambda header: b"[" * 100_000, "its header is nested too deep"),
        (lambda header: b"{", "Expecting"),
    ],
)  # fmt: skip
def test_a_segment_of_other_content_with_a_right_checksum_is_unreadable_and_the_rest_is_read(
    change: Callable[[dict[str, Any]], Any], says: str, tmp_path: Path
) -> None:
    crafted(tmp_path / "w000-000000.seg", change)
    write_segment(tmp_path / "w000-000001.seg", one_row())
    parts, faults = read_segments([tmp_path])
    assert len(concat(parts)) == 1
    (fault,) = faults
    assert "w000-000000.seg is unreadable" in fault
    assert says in fault
    assert fault.endswith("its rows are missing")


def test_codes_and_indices_that_mean_nothing_make_a_segment_unreadable(tmp_path: Path) -> None:
    row = one_row()
    for name, value in (("status", 99), ("phase", -1), ("error", 7), ("done_ns", 2**62)):
        column = np.full(1, value, row.columns[name].dtype)
        write_segment(
            tmp_path / f"w000-{name}.seg", Records({**row.columns, name: column}, row.chunk_ns, row.chunk_offsets)
        )
    offsets = np.array([0, 99])
    write_segment(tmp_path / "w000-lists.seg", Records(row.columns, row.chunk_ns, offsets))
    write_segment(tmp_path / "w001-000001.seg", row)
    parts, faults = read_segments([tmp_path])
    assert (len(concat(parts)), len(faults)) == (1, 5)


def test_columns_of_one_value_stand_for_their_rows(tmp_path: Path) -> None:
    many = concat([one_row()] * 500)
    write_segment(tmp_path / "w000-000000.seg", many)
    assert (tmp_path / "w000-000000.seg").stat().st_size < 40_000
    found = read_segment(tmp_path / "w000-000000.seg")
    assert all((found[name] == many[name]).all() for name in many.columns)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda header: header["labels"].update(backend=[]), "label_backend points at a text that is not there"),
        (lambda header: header["labels"].update(backend=[1]), "backend is no list of texts"),
        (lambda header: header.update(labels=[]), "labels is no mapping of texts"),
        (lambda header: header.pop("labels"), "its columns are not those"),
        (laid_out("label.hits", name="label.Hits"), "its labels are none that a worker writes"),
        (laid_out("label.hits", name="label.backend"), "its columns are not those"),
        (laid_out("label.hits", length=7), "of different lengths"),
    ],
)
def test_labels_of_a_segment_read_back_and_are_held_to_its_rows(
    change: Callable[[dict[str, Any]], Any], says: str, tmp_path: Path
) -> None:
    row = one_row().labelled(LabelTable.of({"backend": ["a"], "hits": [3]}))
    write_segment(tmp_path / "w000-000000.seg", row)
    table = read_segment(tmp_path / "w000-000000.seg").labels
    assert table is not None
    assert {name: column.tolist() for name, column in table.columns.items()} == {"backend": [0], "hits": [3]}
    assert table.texts == {"backend": ("a",)}

    def altered(header: dict[str, Any]) -> None:
        change(header)

    crafted(tmp_path / "w000-000000.seg", altered, row=row)
    parts, (fault,) = read_segments([tmp_path])
    assert not parts
    assert says in fault
