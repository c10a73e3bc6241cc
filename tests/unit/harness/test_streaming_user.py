"""Streaming users without Locust: how bytes become stamps, how each kind of end is told, and what Locust is shown."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from plimsoll.harness.distributed import streaming_user as streaming
from plimsoll.harness.distributed.streaming_user import Answer, entries
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.secrecy.redaction import redact
from plimsoll.slo.records.records import Stamp, Status

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
