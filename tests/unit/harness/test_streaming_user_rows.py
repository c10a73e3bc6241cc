"""Rows of streaming users: none is lost between the worker that measured it and the verdict, and what is lost is told.
Streaming users without Locust: how bytes become stamps, how each kind of end is told, and what Locust is shown.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.harness.distributed import streaming_session
from plimsoll.harness.distributed import streaming_user as streaming
from plimsoll.harness.distributed.fleet_messages import rows_problem
from plimsoll.harness.distributed.streaming_session import (
    ROWS,
    STOP,
    About,
    Gathered,
    Kept,
    LaterClock,
    Session,
    prepare,
)
from plimsoll.harness.distributed.streaming_user import Answer, entries
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.run import rundir
from plimsoll.harness.run.judged import judge
from plimsoll.harness.run.promises import Asked, Promises, read_promises
from plimsoll.harness.secrecy.redaction import redact
from plimsoll.slo.records.records import Stamp, Status, TokensFrom

MS = 1_000_000
ABOUT = About("abc", "Reader", "http://user:pw@model.test/v1?key=1", "m", 4, ["locust", "-f", "x.py"])


@pytest.fixture(autouse=True)
def _a_host_that_never_stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever runs beside these tests."""
    end = streaming_session.Vitals.end

    def still(vitals: Any) -> dict[str, Any]:
        found = end(vitals)
        return {**found, "stalls": dict.fromkeys(found["stalls"], 0), "gc": dict.fromkeys(found["gc"], 0)}

    monkeypatch.setattr(streaming_session.Vitals, "end", still)


def never(seconds: float, call: Callable[[], None]) -> None:
    """A loop that never comes round."""


def finished(query_id: int, kept_at: int, ttft_ms: int = 50, error: str | None = None) -> Exchange:
    exchange = Exchange(query_id, 0, -1, kept_at, None)
    exchange.ready_ns = exchange.sent_ns = kept_at
    exchange.first_byte_ns = exchange.first_token_ns = exchange.first_answer_ns = kept_at + ttft_ms * MS
    exchange.chunk_ns.extend([kept_at + ttft_ms * MS, kept_at + (ttft_ms + 10) * MS])
    exchange.n_chunks = exchange.n_out = 2
    exchange.tokens_from = int(TokensFrom.CHUNKS)
    exchange.last_token_ns = exchange.done_ns = exchange.chunk_ns[-1]
    exchange.status = int(Status.OK if error is None else Status.HTTP)
    exchange.error = error
    exchange.stamp = int(Stamp.USER)
    return exchange


def promises(*texts: str) -> Promises:
    made, errors = read_promises(Asked(slo=texts))
    assert not errors
    return made


def kept(index: int, n: int, ttft_ms: int = 50, failed: int = 0) -> list[dict[str, Any]]:
    """All messages of a worker that measured n requests."""
    posted: list[dict[str, Any]] = []
    rows = Kept(index, LaterClock(never), posted.append)
    now = LaterClock.now_ns()
    for number in range(n):
        error = "boom" if number < failed else None
        rows.keep(finished(rows.next_id(number), now + number * MS, ttft_ms, error))
    rows.close()
    rows.close()
    return posted


def gathered(path: Path, workers: list[list[dict[str, Any]]]) -> Gathered:
    whole = Gathered(rundir.create(path))
    for number, messages in enumerate(workers):
        for message in messages:
            whole.take(f"w{number}", message)
    return whole


def test_every_row_of_every_worker_is_in_the_sealed_run(tmp_path: Path) -> None:
    sealed = gathered(tmp_path / "r", [kept(0, 4_500), kept(1, 3)]).seal(ABOUT, promises())
    again = rundir.open_sealed(tmp_path / "r")
    assert len(sealed.records) == len(again.records) == 4_503
    assert np.unique(again.records["worker"], return_counts=True)[1].tolist() == [4_500, 3]
    assert len(np.unique(again.records["query_id"])) == 4_503
    assert (again.records["first_token_ns"] - again.records["sent_ns"] == 50 * MS).all()
    assert (again.facts.open_loop, again.facts.n_workers, again.facts.worker_faults) == (False, 2, ())


def test_what_a_worker_sends_is_what_the_masters_port_lets_in() -> None:
    assert [rows_problem(one) for one in kept(3, 5_000)] == [None] * 5


def test_pieces_are_bounded_by_rows_and_by_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert max(len(one.get("piece", b"")) for one in kept(0, 5_000)) < 1_500_000
    assert sum("piece" in one for one in kept(0, 5_000)) == 3
    monkeypatch.setattr(streaming_session, "PIECE_CHUNKS", 10)
    assert sum("piece" in one for one in kept(0, 20)) == 4


def test_the_verdict_is_the_usual_one_and_warns_of_coordinated_omission(tmp_path: Path) -> None:
    asked = promises("p99(ttft) <= 200ms", "ratio(error) <= 5%")
    fails = judge(gathered(tmp_path / "f", [kept(0, 400, ttft_ms=300)]).seal(ABOUT, asked), asked)
    assert fails.verdict.outcome == "FAIL"
    failed = judge(gathered(tmp_path / "e", [kept(0, 400, failed=60)]).seal(ABOUT, asked), asked)
    assert [one.outcome for one in failed.verdict.objectives] == ["FAIL", "FAIL"]
    passes = judge(gathered(tmp_path / "p", [kept(0, 400)]).seal(ABOUT, asked), asked)
    assert passes.verdict.outcome == "PASS"
    assert any("coordinated omission" in text for text in passes.warnings)
    few = judge(gathered(tmp_path / "i", [kept(0, 40)]).seal(ABOUT, asked), asked)
    assert few.verdict.outcome == "INCONCLUSIVE"
    assert passes.validity.stamp == "user"


def test_a_worker_that_never_said_its_last_word_makes_the_run_invalid(tmp_path: Path) -> None:
    whole = gathered(tmp_path / "r", [kept(0, 400), kept(1, 400)[:-1]])
    assert whole.awaited == {"w1"}
    judged = judge(whole.seal(ABOUT, promises()), promises())
    assert judged.verdict.outcome == "INVALID"
    assert "w1 went away" in judged.verdict.reasons[0]


def test_a_lost_piece_is_told_by_number_and_by_count(tmp_path: Path) -> None:
    messages = kept(0, 4_500)
    del messages[2]
    sealed = gathered(tmp_path / "r", [messages]).seal(ABOUT, promises())
    assert [text.split(":")[0] for text in sealed.facts.worker_faults] == ["worker 0", "Locust worker w0 sent 4500 rows, of which 2500 came"]  # fmt: skip  # noqa: E501


def test_workers_times_are_joined_by_their_wall_clocks(tmp_path: Path) -> None:
    messages = kept(0, 3)
    whole = gathered(tmp_path / "r", [])
    moved = [{**one, "t0_wall_ns": whole.t0_wall_ns + 7_000 * MS} for one in messages]
    behind = [{**one, "index": 1, "t0_wall_ns": whole.t0_wall_ns - 7_000 * MS} for one in kept(1, 3)]
    for sender, told in (("a", moved), ("b", behind)):
        for one in told:
            whole.take(sender, one)
    records = whole.seal(ABOUT, promises()).records
    first = [int(records["due_ns"][records["worker"] == worker].min()) for worker in (0, 1)]
    assert 7_000 * MS <= first[0] < 8_000 * MS
    assert 0 <= first[1] < 1_000 * MS
    assert (records["connect_ns"] == -1).all()
    assert (records.chunk_ns[::2] - records["due_ns"] == 50 * MS).all()


def test_the_run_directory_holds_no_secret_of_the_url_or_the_command(tmp_path: Path) -> None:
    about = About("abc", "R", ABOUT.url, "m", 1, ["locust", "--host", ABOUT.url, "--api-key", "sk-secret"])
    gathered(tmp_path / "r", [kept(0, 3)]).seal(about, promises())
    texts = "".join((tmp_path / "r" / name).read_text() for name in ("manifest.json", "scenario.yaml", "generator.json"))  # fmt: skip  # noqa: E501
    assert "sk-secret" not in texts
    assert "pw@" not in texts
    assert "key=1" not in texts


class Hook:
    """An event of Locust's."""

    def __init__(self) -> None:
        self.listeners: list[Callable[..., None]] = []
        self.add_listener = self.listeners.append
        self.fired: list[dict[str, Any]] = []

    def fire(self, **meta: Any) -> None:
        self.fired.append(meta)


class Stats:
    """Locust's statistics: what was logged under which name and type."""

    def __init__(self) -> None:
        self.logged: list[tuple[str, str, float]] = []

    def get(self, name: str, kind: str) -> Any:
        return SimpleNamespace(log=lambda value, length: self.logged.append((name, kind, value)))


class Runner:
    """Of Locust's master or worker, as far as a session knows it."""

    worker_index = 3

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []
        self.listening: dict[str, Callable[..., None]] = {}
        self.clients = SimpleNamespace(all=[SimpleNamespace(id="w0", state="running")])
        self.final_user_classes_count = {"Reader": 4}
        self.stopped = 0

    def register_message(self, name: str, listener: Callable[..., None], concurrent: bool = False) -> None:
        self.listening[name] = listener

    def send_message(self, name: str, data: Any = None) -> None:
        self.sent.append((name, data))

    def stop(self) -> None:
        self.stopped += 1


def environment(**options: Any) -> Any:
    names = ("test_start", "test_stopping", "test_stop", "quitting", "report_to_master", "request")
    kind = type("Reader", (), {"host": None, "model": "m"})
    return SimpleNamespace(
        parsed_options=SimpleNamespace(**{"slo": None, "plimsoll_out": None, "plimsoll_run": "", **options}),
        events=SimpleNamespace(**{name: Hook() for name in names}),
        stats=Stats(),
        runner=Runner(),
        user_classes=[kind],
        host="http://model.test",
        stop_timeout=0.0,
        process_exit_code=None,
    )


def session(given: Any, role: streaming_session.Role, *slo: str) -> Session:
    return prepare(given, role, slo, never)


def test_without_workers_the_verdict_becomes_the_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = environment(plimsoll_out=str(tmp_path / "r"))
    one = session(given, "local", "p50(ttft) <= 20ms")
    one.on_start()
    now = LaterClock.now_ns()
    for n in range(60):
        number, request_id = one.next_id()
        one.report(finished(number, now + n * MS), "chat", url="u")
    one.on_stop()
    assert given.process_exit_code == 1
    assert request_id == f"{given.parsed_options.plimsoll_run}-{number}-0"
    assert "p50(ttft)" in capsys.readouterr().out
    assert (tmp_path / "r" / "report.json").is_file()
    assert len(rundir.open_sealed(tmp_path / "r").records) == 60
    one.on_quitting()
    assert given.runner.stopped == 0


def test_a_pass_leaves_an_exit_code_that_the_locustfile_has_set_and_replaces_an_older_verdict() -> None:
    given = environment()
    one = session(given, "local", "p50(ttft) <= 80ms")

    def test_of(error: str | None = None) -> None:
        one.on_start()
        now = LaterClock.now_ns()
        for n in range(60):
            number, _ = one.next_id()
            one.report(finished(number, now + n * MS, error=error), "chat")
        one.on_stop()

    test_of("boom")
    assert given.process_exit_code == 1
    test_of()
    assert given.process_exit_code == 0, "a pass after a fail of ours"
    given.process_exit_code = 7
    test_of()
    assert given.process_exit_code == 7, "a check of the user's own had failed"


def test_the_lines_beside_a_request_stay_out_of_locusts_total() -> None:
    given = environment()
    one = session(given, "local")
    one.report(finished(1, 0), "chat")
    one.report(finished(2, 0, error="boom"), "chat")
    fired = given.events.request.fired
    assert [(meta["request_type"], meta["response_time"]) for meta in fired] == [("POST", 60.0)] * 2
    assert [str(meta["exception"]) for meta in fired] == ["None", "boom"]
    assert given.stats.logged[:3] == [("chat", "TTFT", 50.0), ("chat", "TPOT", 10.0), ("chat", "ITL", 10.0)]
    assert [kind for _, kind, _ in given.stats.logged[3:]] == ["TTFT", "ITL"]


def test_a_request_that_began_and_has_no_row_makes_the_run_invalid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = environment(plimsoll_out=str(tmp_path / "r"))
    one = session(given, "local", "p50(ttft) <= 80ms")
    one.on_start()
    now = LaterClock.now_ns()
    numbers = [one.next_id()[0] for _ in range(61)]
    for n, number in enumerate(numbers[:60]):
        one.report(finished(number, now + n * MS), "chat")
    one.on_stop()
    assert given.process_exit_code == 4
    facts = rundir.open_sealed(tmp_path / "r").facts
    assert (facts.sent, facts.recorded, facts.lost) == (61, 60, 1)
    assert facts.account_faults == ("worker 0 sent 61 requests and recorded 60",)
    assert "lost 1" in capsys.readouterr().out


def test_rows_that_vanish_on_the_masters_disk_are_missed_and_its_times_are_on_its_own_clock(tmp_path: Path) -> None:
    began = LaterClock.now_ns()
    whole = gathered(tmp_path / "r", [kept(0, 4_500), kept(7, 30)])
    path = sorted(whole.directory.segments.glob("w000-*.seg"))[1]
    path.unlink()
    sealed = whole.seal(ABOUT, promises())
    assert sealed.facts.account_faults == ("worker 0 recorded 4,500 rows, of which 2,500 came: 2,000 are gone",)
    assert began <= sealed.manifest["t0_monotonic_ns"] <= LaterClock.now_ns()


def test_without_an_objective_nothing_is_kept_and_locusts_exit_code_stands() -> None:
    given = environment()
    one = session(given, "local")
    one.on_start()
    one.report(finished(1, 0), "chat")
    one.on_stop()
    one.on_quitting()
    assert given.process_exit_code is None


def test_a_worker_sends_its_rows_and_the_master_judges_them(capsys: pytest.CaptureFixture[str]) -> None:
    far, near = environment(), environment(slo=["p50(ttft) <= 200ms"])
    worker, master = session(far, "worker"), session(near, "master", "p50(ttft) <= 1ms")
    master.on_start()
    worker.on_start()
    now = LaterClock.now_ns()
    for n in range(60):
        worker.report(finished(worker.next_id()[0], now + n * MS), "chat")
        if n == 30:
            worker._flush(worker._kept)
    far.runner.listening[STOP]()  # Locust would fire test_stop from stop()
    assert far.runner.stopped == 1
    worker.on_stop()
    assert {name for name, _ in far.runner.sent} == {ROWS}
    for _, data in far.runner.sent:
        near.runner.listening[ROWS](msg=SimpleNamespace(node_id="w0", data=data))
    master.on_stopping()
    master.on_stop()
    assert near.runner.sent == [(STOP, None)]
    assert near.process_exit_code == 0
    assert "p50(ttft) ≤ 200ms" in capsys.readouterr().out


@pytest.mark.parametrize("late", [True, False])
def test_a_worker_that_has_said_nothing_yet_is_waited_for_and_missed(
    late: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On a host without time a worker's first message came after the test: its requests were in no row, and nobody said
    so.
    """
    monkeypatch.setattr(streaming_session, "GRACE_S", 0.3)
    near = environment(plimsoll_out=str(tmp_path / "r"))
    near.runner.clients.all.append(SimpleNamespace(id="w1", state="ready"))
    master = session(near, "master", "p50(ttft) <= 1s")
    near.stop_timeout = 0.0
    master.on_start()
    rows = near.runner.listening[ROWS]

    def says(sender: str, index: int) -> None:
        for data in kept(index, 30):
            rows(msg=SimpleNamespace(node_id=sender, data=data))

    says("w0", 0)
    if late:
        monkeypatch.setattr(time, "sleep", lambda seconds: says("w1", 1))
    master.on_stopping()
    master.on_stop()
    sealed = rundir.open_sealed(tmp_path / "r")
    assert len(sealed.records) == (60 if late else 30)
    missed = () if late else ("Locust worker w1 sent nothing: its rows are missing",)
    assert sealed.facts.worker_faults == missed


def test_a_message_that_cannot_be_sent_costs_no_user_its_task(caplog: pytest.LogCaptureFixture) -> None:
    given = environment()

    def broken(name: str, data: Any = None) -> None:
        raise RuntimeError("no master")

    given.runner.send_message = broken
    one = session(given, "worker")
    one.on_start()
    one.report(finished(1, 0), "chat")
    one.on_stop()
    assert "no master" in caplog.text


def test_locust_waits_for_answers_in_flight_unless_told_how_long() -> None:
    given = environment()
    session(given, "local")
    assert given.stop_timeout == streaming_session.DRAIN_S
    given.stop_timeout = 2.0
    session(given, "local")
    assert given.stop_timeout == 2.0


def test_wrong_objectives_and_a_taken_folder_are_told_before_any_load(tmp_path: Path) -> None:
    with pytest.raises(HarnessFault) as told:
        session(environment(slo=["p99(ttf) <= 1s", "nonsense"]), "local")
    assert len(told.value.errors) == 2
    (tmp_path / "x").write_text("")
    with pytest.raises(HarnessFault, match="not empty"):
        session(environment(plimsoll_out=str(tmp_path)), "local")


# -- without Locust -------------------------------------------------------------------------------------------------

URL = "http://model.test"
READER = streaming.chat_reader(URL, {"authorization": "Bearer sk-secret"})
SSE = {"Content-Type": "text/event-stream"}


def event(text: str = "", finish: str | None = None, **more: Any) -> bytes:
    delta = {"content": text} if text else {}
    return (
        b"data: " + orjson.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}) + b"\n\n"
    )


END = event(finish="stop") + b"data: [DONE]\n\n"


def test_headers_that_came_after_the_user_are_known_before_an_error_repeats_them() -> None:
    sent = [("authorization", "Basic bWU6bGV0bWVpbi05OQ=="), ("x-quiet", "login-token-1")]
    assert streaming.known((), URL, sent) is sent
    assert redact("Basic bWU6bGV0bWVpbi05OQ== letmein-99 login-token-1") == "[redacted] [redacted] [redacted]"


class Clock:
    """Time that a script moves."""

    def __init__(self) -> None:
        self.ns = 1_000_000_000

    def __call__(self) -> int:
        return self.ns


class Wire:
    """A response whose body arrives in reads at given times (ms), and may then break."""

    def __init__(
        self,
        clock: Clock,
        reads: list[tuple[int, bytes]],
        *,
        status: int = 200,
        headers: dict[str, str] | None = None,
        breaks: BaseException | None = None,
        error: BaseException | None = None,
    ) -> None:
        self._clock, self._reads, self._breaks = clock, list(reads), breaks
        self._start = clock.ns
        self._buffer = b""
        self.status_code = status
        self.headers = headers if headers is not None else SSE
        self.error = error
        self.content: bytes | None = b"".join(data for _, data in reads)

    @property
    def stream(self) -> Wire:
        return self

    def readline(self, sep: bytes = b"\r\n") -> bytes:
        while sep not in self._buffer:
            if not self._reads:
                if self._breaks is not None:
                    raise self._breaks
                return b""
            at_ms, data = self._reads.pop(0)
            self._clock.ns = self._start + at_ms * 1_000_000
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(sep)
        return line + sep

    def read(self) -> bytes:
        rest, self._buffer = self._buffer, b""
        return rest


def asked(*reads: tuple[int, bytes], reader: streaming.Reader = READER, **wire: Any) -> Exchange:
    clock = Clock()
    exchange = streaming.begin(7, b"{}", clock())
    streaming.ask(exchange, reader, lambda: Wire(clock, list(reads), **wire), clock)
    return exchange


def answer(*reads: tuple[int, bytes], **wire: Any) -> Answer:
    return Answer(asked(*reads, **wire), lambda _: None)


def test_tokens_are_stamped_when_their_event_arrived_and_durations_count_from_the_send() -> None:
    seen = answer((40, event()), (50, event("a")), (60, event("b")), (75, event("c")), (76, END))
    assert (seen.ok, seen.ttft_ms, seen.itl_ms, seen.ttlb_ms) == (True, 50.0, [10.0, 15.0], 76.0)
    assert (seen.output_tokens, seen.tokens_from, seen.tpot_ms) == (3, "chunks", 12.5)
    assert seen.exchange.stamp == Stamp.USER
    assert seen.exchange.due_ns == seen.exchange.ready_ns == seen.exchange.sent_ns


def test_the_servers_usage_counts_tokens_where_it_says_so() -> None:
    usage = {"usage": {"prompt_tokens": 5, "completion_tokens": 6}}
    seen = answer((50, event("two words")), (100, event("more", finish="stop", **usage)), (100, b"data: [DONE]\n\n"))
    assert (seen.output_tokens, seen.tokens_from, seen.tpot_ms) == (6, "usage", 10.0)


def test_an_event_split_over_reads_has_the_time_of_the_read_that_ended_it() -> None:
    whole = event("a")
    seen = answer((50, whole[:9]), (58, whole[9:-1]), (60, whole[-1:]), (70, END))
    assert seen.ttft_ms == 60.0


def test_chunks_of_one_read_share_its_time() -> None:
    assert answer((50, event("a") + event("b")), (60, END)).itl_ms == [0.0]


def test_a_last_line_without_its_end_is_read_too() -> None:
    assert answer((50, event("a")), (60, event(finish="stop") + b"data: [DONE]")).ok


@pytest.mark.parametrize(
    ("wire", "status", "words"),
    [
        ({"status": 500, "error": RuntimeError("x"), "reads": [(5, b'{"error": "boom"}')]}, Status.HTTP, "HTTP 500"),
        ({"status": 429, "error": RuntimeError("x"), "reads": []}, Status.REFUSED, "HTTP 429"),
        ({"status": 302, "headers": {"location": "/x"}, "reads": []}, Status.HTTP, "redirects are not followed"),
        ({"reads": [(50, event("a"))]}, Status.PROTOCOL, "stream cut after 1 chunks: neither finish_reason"),
        ({"reads": [(50, event("a")), (60, event("b")[:20])]}, Status.PROTOCOL, "inside an event"),
        ({"reads": [(50, b'data: {"error": {"message": "gone"}}\n\n')]}, Status.HTTP, "gone"),
        ({"reads": [(50, event("a"))], "breaks": ConnectionResetError(104, "reset")}, Status.PROTOCOL, "after 1 events (reset)"),  # noqa: E501
        ({"reads": [(50, event("a"))], "breaks": TimeoutError("timed out")}, Status.TIMEOUT, "network_timeout"),
        ({"status": 0, "error": ConnectionRefusedError(111, "refused"), "reads": []}, Status.CONNECT, "no answer: refused"),  # noqa: E501
        ({"status": 0, "error": ValueError("nonsense"), "reads": []}, Status.PROTOCOL, "no answer: nonsense"),
    ],
)  # fmt: skip
def test_each_kind_of_end_has_a_status_and_clear_words(wire: dict[str, Any], status: Status, words: str) -> None:
    seen = answer(*wire.pop("reads"), **wire)
    assert (seen.exchange.status, seen.ok) == (status, False)
    assert words in (seen.error or "")


def test_the_words_come_from_the_error_that_the_client_wrapped() -> None:
    outer = RuntimeError("URL http://model.test: 0, original=timed out")
    outer.original = TimeoutError("timed out")  # type: ignore[attr-defined]
    assert answer(status=0, error=outer).exchange.status == Status.TIMEOUT


def test_a_cut_stream_keeps_what_came_and_has_no_mean() -> None:
    cut = answer((50, event("a")), (60, event("b")), breaks=ConnectionResetError(104, "reset"))
    assert entries(cut) == [("TTFT", 50.0), ("ITL", 10.0)]


def test_a_success_shows_ttft_tpot_and_every_gap() -> None:
    whole = answer((50, event("a")), (60, event("b")), (80, event("c")), (81, END))
    assert entries(whole) == [("TTFT", 50.0), ("TPOT", 15.0), ("ITL", 10.0), ("ITL", 20.0)]


def test_an_error_text_never_repeats_a_secret() -> None:
    refused = answer((5, b"bad key sk-secret"), status=401, error=RuntimeError("x"))
    assert "sk-secret" not in (refused.error or "")
    assert "HTTP 401" in (refused.error or "")


def test_a_user_stopped_in_the_middle_leaves_a_row_and_goes_on_stopping() -> None:
    clock = Clock()
    exchange = streaming.begin(1, b"{}", clock())
    with pytest.raises(KeyboardInterrupt):
        streaming.ask(exchange, READER, lambda: Wire(clock, [(50, event("a"))], breaks=KeyboardInterrupt()), clock)
    assert exchange.status == Status.UNFINISHED
    assert exchange.n_chunks == 1
    assert "--stop-timeout" in (exchange.error or "")


def test_any_json_stream_is_read_by_the_path_of_its_text() -> None:
    reader = streaming.stream_reader(URL, {}, {"framing": "ndjson", "text_path": "token.text", "done_path": "done"})
    lines = [(20, b'{"token": {"text": "a"}}\n'), (30, b'{"token": {"text": "b"}}\n'), (31, b'{"done": true}\n')]
    seen = answer(*lines, reader=reader, headers={})
    assert (seen.ok, seen.ttft_ms, seen.itl_ms) == (True, 20.0, [10.0])
    assert "never came" in (answer(*lines[:2], reader=reader, headers={}).error or "")


def test_a_stream_is_server_sent_events_unless_told_otherwise() -> None:
    reader = streaming.stream_reader(URL, {}, {"text_path": "text"})
    assert reader.accept == "text/event-stream"
    assert answer((5, b'data: {"text": "a"}\n\ndata: [DONE]\n\n'), reader=reader).ttft_ms == 5.0


def test_every_wrong_option_of_a_stream_is_told_at_once() -> None:
    with pytest.raises(HarnessFault) as told:
        streaming.stream_reader(URL, {}, {"framing": "ndjsn", "text_pth": "a"})
    assert len(told.value.errors) == 2
    with pytest.raises(HarnessFault, match="can't be read by lines"):
        streaming.stream_reader(URL, {}, {"framing": "chunks"})


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("http://a:1", "http://a:1/v1/chat/completions"),
        ("http://a:1/v1", "http://a:1/v1/chat/completions"),
        ("https://a/base", "https://a/base/v1/chat/completions"),
    ],
)
def test_a_host_may_end_at_the_version(host: str, url: str) -> None:
    assert streaming.endpoint(host, streaming.CHAT) == url


def test_a_chat_streams_and_asks_for_usage_and_fields_have_the_last_word() -> None:
    body = orjson.loads(streaming.chat_body("m", "hi", {"max_tokens": 4}))
    assert body == {
        "model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True,
        "stream_options": {"include_usage": True}, "max_tokens": 4,
    }  # fmt: skip
    assert "stream_options" not in orjson.loads(streaming.chat_body("", [{"role": "user"}], {"stream": False}))
    with pytest.raises(HarnessFault, match="JSON"):
        streaming.json_body({"a": object()})


def test_an_assertion_in_the_block_is_a_failure_and_another_error_goes_on() -> None:
    reported: list[Exchange] = []
    good = asked((50, event("a")), (60, END))
    with Answer(good, reported.append) as one:
        raise AssertionError("too short")
    assert (one.ok, one.error) == (False, "too short")
    with pytest.raises(KeyError), Answer(asked((50, event("a")), (60, END)), reported.append) as two:
        raise KeyError("x")
    assert two.ok
    assert len(reported) == 2


def test_an_answer_is_reported_once_and_may_be_called_a_success() -> None:
    reported: list[Exchange] = []
    with Answer(asked(status=404, error=RuntimeError("x")), reported.append) as one:
        one.success()
    one.report()
    assert (one.ok, one.error, len(reported)) == (True, None, 1)


BODY = event() + b": comment\n\n" + event("a") + event("b").replace(b"\n\n", b"\r\n\r\n") + event("c") + END


@given(st.lists(st.integers(1, len(BODY) - 1), unique=True, max_size=30))
def test_any_split_of_the_bytes_gives_the_same_answer(cuts: list[int]) -> None:
    bounds = [0, *sorted(cuts), len(BODY)]
    reads = [(i + 1, BODY[bounds[i] : bounds[i + 1]]) for i in range(len(bounds) - 1)]
    clock = Clock()
    exchange = streaming.begin(1, b"", clock())
    streaming.ask(exchange, READER, lambda: Wire(clock, reads, headers=SSE), clock)
    assert exchange.status == Status.OK
    assert (bytes(exchange.body), exchange.n_chunks) == (BODY, 3)
    came = {end: exchange.sent_ns + at_ms * 1_000_000 for (at_ms, _), end in zip(reads, bounds[1:], strict=True)}
    for token, ns in zip((b'"a"', b'"b"', b'"c"'), exchange.chunk_ns, strict=True):
        end = BODY.index(b"\n", BODY.index(token)) + 2  # the line, and the first byte of the blank line
        assert ns >= min(at for bound, at in came.items() if bound >= end)
