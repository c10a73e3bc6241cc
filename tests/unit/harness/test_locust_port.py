"""What reaches Locust's master: messages of agents, and nothing else that somebody sends to its port. The door before
Locust's page, and whose browser may ask: what a page of another site can do is nothing.
"""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlencode

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table
from rich.text import Text

from plimsoll.harness.distributed.fleet_messages import problem
from plimsoll.harness.distributed.page import FORM_LIMIT, Door
from plimsoll.harness.distributed.port import MOST_AGENTS, OURS, Guard, bounded
from plimsoll.harness.generator.recorder import FRESH
from plimsoll.harness.live.visitors import VARIABLE, Visitors
from plimsoll.slo.records.foreign import cleaned, one_line, printable

ENTRY = {
    "name": "/v1", "method": "POST", "last_request_timestamp": 1.5, "start_time": 1.0, "num_requests": 1,
    "num_none_requests": 0,
    "num_failures": 0, "total_response_time": 3, "max_response_time": 3, "min_response_time": None,
    "total_content_length": 0,
    "response_times": {3: 1}, "num_reqs_per_sec": {7: 1}, "num_fail_per_sec": {},
}  # fmt: skip
ERROR = {"method": "POST", "name": "/v1", "error": "x", "occurrences": 2, "first_seen": 1.0, "last_seen": None}
USERS = {"user_classes_count": {"A": 1}, "user_count": 1}
STATUS: dict[str, Any] = {
    **dict.fromkeys(("sent", "done", "failed", "measured", "bad", "in_flight"), 3),
    **{name: {"0": 1, "640": 2, "2016": 1} for name in FRESH},
}
#: What watchers of a run would fall over, then or at its end.
WRONG: list[dict[str, Any]] = [
    {"sent": "x"}, {"done": 9e300}, {"failed": -1}, {"in_flight": None}, {"ttft": {"99999999999": 1}},
    {"ttft": {"x": 1}},
    {"ttft": {"-5": 1}}, {"latency": {"5": -10}}, {"latency": {"5": 0.5}}, {"tpot": []}, {"tpot": {"2099": 1}},
    {"ttft": {"٣": 1}},
]  # fmt: skip
ROWS = {"index": 0, "t0_wall_ns": 1}
TIMES = {"p99_ns": 1, "max_ns": 1, "total_ns": 1, "count": 1}
VITALS = {"stalls": TIMES, "gc": {**TIMES, "p99_ns": 0}, "cpu": 0.5, "core_wanted": 0.0, "watched_ns": 9}
LAST = {"sent": 3, "rows": 3, "vitals": VITALS, "host": "h"}
GOOD: list[tuple[str, Any]] = [
    ("client_ready", "2.47.0"),
    ("client_ready", -1),
    ("heartbeat", {"state": "running", "current_cpu_usage": 3.5, "current_memory_usage": 7}),
    ("spawning", None),
    ("spawning_complete", USERS),
    ("stats", {"stats": [ENTRY], "stats_total": ENTRY, "errors": {"k": ERROR}, **USERS, "custom": 1}),
    ("logs", {"worker_id": "w_1", "logs": ["a line"]}),
    ("exception", {"msg": "boom", "traceback": "File x\n"}),
    ("client_stopped", None),
    ("quit", None),
    ("plimsoll", {"type": "alive"}),
    ("plimsoll", {"type": "workers", "lines": [[0, STATUS]]}),
    ("plimsoll-rows", ROWS),
    ("plimsoll-rows", {**ROWS, "number": 3, "piece": b"\x00"}),
    ("plimsoll-rows", {**ROWS, **LAST}),
]
DEEP: Any = 1
for _ in range(50):
    DEEP = [DEEP]
BAD: list[Any] = [
    ("client_ready", "", "w_1"),
    ("client_ready", ["2", "4"], "w_1"),
    ("client_ready", "2\x1b[2J", "w_1"),
    ("heartbeat", None, "w_1"),
    ("heartbeat", {"state": "running"}, "w_1"),
    ("heartbeat", {"state": ["running"], "current_cpu_usage": 1}, "w_1"),
    ("heartbeat", {"state": "gone", "current_cpu_usage": 1}, "w_1"),
    ("heartbeat", {"state": "ready", "current_cpu_usage": "high"}, "w_1"),
    ("heartbeat", {"state": "ready", "current_cpu_usage": float("nan")}, "w_1"),
    ("stats", {}, "w_1"),
    ("stats", {"stats": [{"name": "x"}], "stats_total": ENTRY, "errors": {}, **USERS}, "w_1"),
    ("stats", {"stats": [], "stats_total": {**ENTRY, "response_times": {"a": 1}}, "errors": {}, **USERS}, "w_1"),
    ("stats", {"stats": [], "stats_total": ENTRY, "errors": {"k": {}}, **USERS}, "w_1"),
    ("stats", {"stats": [], "stats_total": ENTRY, "errors": [], **USERS}, "w_1"),
    ("spawning_complete", {"user_classes_count": 3, "user_count": 1}, "w_1"),
    ("logs", {"worker_id": "w_2", "logs": []}, "w_1"),
    ("logs", ["x"], "w_1"),
    ("exception", {"msg": 1, "traceback": "x"}, "w_1"),
    ("locustfile", {"version": "2.47.0"}, "w_1"),
    ("locustfile", None, "w_1"),
    ("nobody-knows", {}, "w_1"),
    ("::error::", {}, "w_1"),
    (7, {}, "w_1"),
    (["heartbeat"], None, "w_1"),
    ("quit", None, "w_2"),
    ("quit", None, None),
    ("quit", DEEP, "w_1"),
    ("plimsoll", {"type": "piece", "file": 7}, "w_1"),
    *(("plimsoll", {"type": "workers", "lines": [[0, {**STATUS, **wrong}]]}, "w_1") for wrong in WRONG),
    ("plimsoll", {"type": "workers", "lines": [[0, {"sent": 1}]]}, "w_1"),
    ("plimsoll", {"type": "alive", "more": b"no JSON"}, "w_1"),
    ("plimsoll", {"type": "alive", "more": "x" * OURS}, "w_1"),
    ("plimsoll", None, "w_1"),
    ("plimsoll-rows", None, "w_1"),
    ("plimsoll-rows", [], "w_1"),
    ("plimsoll-rows", {"t0_wall_ns": 1}, "w_1"),
    ("plimsoll-rows", {**ROWS, "index": "../../x"}, "w_1"),
    ("plimsoll-rows", {**ROWS, "index": 1 << 40}, "w_1"),
    ("plimsoll-rows", {**ROWS, "piece": b""}, "w_1"),
    ("plimsoll-rows", {**ROWS, "number": 0, "piece": "text"}, "w_1"),
    ("plimsoll-rows", {**ROWS, **LAST, "rows": None}, "w_1"),
    ("plimsoll-rows", {**ROWS, **LAST, "vitals": {}}, "w_1"),
    ("plimsoll-rows", {**ROWS, **LAST, "vitals": {**VITALS, "stalls": {"count": 1}}}, "w_1"),
    ("plimsoll-rows", {**ROWS, **LAST, "vitals": {**VITALS, "cpu": float("nan")}}, "w_1"),
    ("plimsoll", {"type": "workers", "lines": [[0, {"sent": "many"}]]}, "w_1"),
    ("plimsoll", {"type": "workers", "lines": [[0, {"rate": float("inf")}]]}, "w_1"),
    {"no": "tuple"},
    "abc",
    [],
    3,
]


class Message:
    """As Locust's."""

    def __init__(self, kind: Any, data: Any, node_id: Any) -> None:
        self.type, self.data, self.node_id = kind, data, node_id


def guard(**known: Any) -> Guard:
    made = Guard(lambda frame: Message(*msgpack.loads(frame, strict_map_key=False)))
    environment = SimpleNamespace(stats=SimpleNamespace(entries={}, errors={}), parsed_locustfiles=None)
    made.runner = SimpleNamespace(
        clients={}, exceptions={}, custom_messages={"plimsoll-rows": 1}, environment=environment, **known
    )
    return made


def sent(to: Guard, message: Any, sender: bytes = b"w_1") -> Any:
    return to.take([sender, msgpack.dumps(message)])


def test_what_agents_and_locusts_own_workers_say_goes_through_unchanged() -> None:
    door = guard()
    for kind, data in GOOD:
        found = sent(door, (kind, data, "w_1"))
        assert found is not None, kind
        assert (found[0], found[1].type, found[1].data) == ("w_1", kind, data)
    assert door.strangers.dropped == 0


@pytest.mark.parametrize("message", BAD, ids=lambda one: repr(one)[:40])
def test_what_locust_would_die_of_or_what_nobody_sends_is_dropped_and_the_next_is_heard(message: Any) -> None:
    door = guard()
    sent(door, ("client_ready", "2.47.0", "w_1"))
    assert sent(door, message) is None
    assert door.strangers.dropped == 1
    assert sent(door, ("quit", None, "w_1")) is not None


@pytest.mark.parametrize("frames", [[], [b"w_1"], [b"w_1", b"\xc1"], [b"\xff", b"\x90"], [b"w_1", b"", b""]])
def test_frames_that_are_none_are_dropped(frames: list[bytes]) -> None:
    door = guard()
    assert door.take(frames) is None
    assert door.strangers.dropped == 1


@pytest.mark.parametrize("sender", [b"\x1b[2J", b"::error::x", b"a b", b"", b"\xe2\x80\xae", b"x" * 300])
def test_a_name_that_a_terminal_would_obey_is_no_agents(sender: bytes) -> None:
    assert sent(guard(), ("client_ready", "2.47.0", sender.decode()), sender) is None


def test_texts_that_locust_shows_are_printable() -> None:
    door = guard()
    sent(door, ("client_ready", "2.47.0", "w_1"))
    _, found = sent(door, ("exception", {"msg": "\x1b]0;owned\x07", "traceback": "a\n::error::b\n"}, "w_1"))
    assert found.data == {"msg": "\ufffd]0;owned\ufffd", "traceback": "a\n: :error::b\n"}


def test_a_stranger_is_no_worker_and_fills_no_table() -> None:
    door = guard()
    assert sent(door, ("plimsoll-rows", ROWS, "w_1")) is None
    report = {"stats": [ENTRY], "stats_total": ENTRY, "errors": {}, **USERS}
    assert sent(door, ("stats", report, "w_1")) is None
    door.runner.clients = dict.fromkeys(range(MOST_AGENTS))
    assert sent(door, ("client_ready", "2.47.0", "w_1")) is None
    door.runner.clients = {}
    assert sent(door, ("client_ready", "2.47.0", "w_1")) is not None
    assert sent(door, ("stats", report, "w_1")) is not None
    door.runner.environment.stats.entries = dict.fromkeys((str(n), "GET") for n in range(10_000))
    assert sent(door, ("stats", report, "w_1")) is None
    door.runner.exceptions = dict.fromkeys(range(1000))
    assert sent(door, ("exception", {"msg": "", "traceback": ""}, "w_1")) is None


def test_a_flood_is_counted_and_said_a_few_times(caplog: pytest.LogCaptureFixture) -> None:
    door = guard()
    with caplog.at_level(logging.WARNING):
        for number in range(20_000):
            door.take([f"\x1b[31m{number}".encode(), b"\xc1"])
    assert door.strangers.dropped == 20_000
    assert len(caplog.records) == 5
    assert "speaks no Locust" in caplog.text
    assert "10000 messages were dropped so far" in caplog.text
    assert "\x1b" not in caplog.text


ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9) | st.integers(0, 9), inner, max_size=3)
    ),
    max_leaves=12,
)
KINDS = st.sampled_from(sorted({kind for kind, _ in GOOD} | {"locustfile"}))


@given(st.tuples(KINDS | ANY, ANY, st.just("w_1") | ANY) | ANY)
def test_no_message_breaks_the_guard(message: Any) -> None:
    door = guard()
    sent(door, ("client_ready", -1, "w_1"))
    found = door.take([b"w_1", msgpack.dumps(message)])
    assert found is None or found[1].node_id == "w_1"
    assert problem(message) is None or isinstance(problem(message), str)


@given(st.text())
def test_foreign_text_is_one_line_that_steers_nothing(text: str) -> None:
    shown = one_line(text, 50)
    assert len(shown) <= 50
    assert all(char.isprintable() or char.isspace() or not char.isascii() for char in shown)
    assert not set(shown) & set("\n\r\x1b\x07\u202e\u2066\u200f\u2028")


def test_workflow_commands_are_broken_and_ordinary_colons_are_not() -> None:
    assert printable("::error::x\n  ::add-mask::y\na ::error::z") == ": :error::x\n  : :add-mask::y\na : :error::z"
    assert printable("a ::Error line=1\ntitle::z ::any-name::") == "a : :Error line=1\ntitle::z : :any-name::"
    assert printable("at::native::foo std::vector::at") == "at::native::foo std::vector::at"
    assert one_line("::warning file=a::b") == ": :warning file=a::b"
    assert one_line("##[error]x ##vso[task]y") == "# #[error]x # #vso[task]y"
    assert one_line("##teamcity[buildStop]") == "# #teamcity[buildStop]"
    assert one_line("::1 and a::b") == "::1 and a::b"
    assert cleaned({"a\x1b": ["b\nc", 1, None]}) == {"a\ufffd": ["b c", 1, None]}


def test_what_is_nested_too_deep_or_too_long_is_found() -> None:
    assert not bounded(DEEP)
    assert not bounded([0] * 600_000)
    assert bounded({"a": [1, {"b": 2}]})
    assert not bounded({"a": b""}, plain=True)


@pytest.mark.parametrize(
    "text", ["y ::error::pwned " * 40, "x" * 61 + "::error::pwned" * 40, "y ::stop-commands::now " * 20]
)
@pytest.mark.parametrize("width", [40, 80, 100])
def test_no_line_is_a_workflow_command_however_a_text_is_folded(text: str, width: int) -> None:
    console = Console(width=width, file=io.StringIO())
    table = Table.grid()
    table.add_row("HTTP 500", Text(printable(text), overflow="fold"))
    with console.capture() as shown:
        console.print(table)
    assert not [line for line in shown.get().splitlines() if re.match(r"\s*::[a-z-]+.*::", line)]


# -- Locust's page --------------------------------------------------------------------------------------------------

HERE = "127.0.0.1:8089"
GIVEN = {"plimsoll_slo": "slo.yaml", "plimsoll_flags": "--seed 7", "plimsoll_rate": "40", "web_base_path": ""}


class Page:
    """A page behind its door; ``reached``: what Locust saw."""

    def __init__(self, **given: Any) -> None:
        self.reached: list[tuple[str, str, dict[str, list[str]]]] = []
        self.door = Door(self._locust, Visitors("127.0.0.1"), {**GIVEN, **given}, "http://endpoint:8000")

    def _locust(self, environ: dict[str, Any], begin: Any) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)).decode()
        self.reached.append((environ["REQUEST_METHOD"], environ["PATH_INFO"], parse_qs(body, keep_blank_values=True)))
        begin("200 OK", [("Content-Type", "text/html; charset=utf-8"), ("Access-Control-Allow-Origin", "*")])
        return [b"page"]

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, dict[str, str], str]:
        said: list[Any] = []
        environ = {
            "REQUEST_METHOD": method, "PATH_INFO": path, "SERVER_PORT": "8089", "wsgi.input": io.BytesIO(body), "HTTP_HOST": HERE,  # noqa: E501
            "CONTENT_LENGTH": str(len(body)), "CONTENT_TYPE": "application/x-www-form-urlencoded", **headers,
        }  # fmt: skip
        text = b"".join(self.door(environ, lambda status, fields: said.extend((status, fields)))).decode()
        return int(said[0][:3]), dict(said[1]), text

    def cookie(self) -> str:
        return self.ask("GET", "/")[1]["Set-Cookie"].partition(";")[0]

    def start(self, **fields: str) -> dict[str, list[str]] | str:
        """What of a form reaches Locust, or why none of it does."""
        cookie = self.cookie()
        before = len(self.reached)
        code, _, text = self.ask(
            "POST", "/swarm", urlencode(fields).encode(), HTTP_COOKIE=cookie, HTTP_ORIGIN=f"http://{HERE}"
        )
        assert code == 200
        return self.reached[-1][2] if len(self.reached) > before else str(json.loads(text)["message"])


@pytest.mark.parametrize("path", ["/swarm", "/stop", "/stats/reset", "/login"])
@pytest.mark.parametrize(
    "headers",
    [
        {"HTTP_ORIGIN": "http://evil.example"},
        {"HTTP_ORIGIN": "null"},
        {"HTTP_ORIGIN": "http://127.0.0.1:3000"},
        {"HTTP_HOST": "evil.example:8089", "HTTP_ORIGIN": "http://evil.example:8089"},
        {"HTTP_SEC_FETCH_SITE": "cross-site"},
        {"HTTP_COOKIE": ""},
        {"HTTP_COOKIE": "plimsoll-page-8089=guessed"},
    ],
)
def test_nothing_is_changed_for_another_site_or_without_the_pages_token(path: str, headers: dict[str, str]) -> None:
    page = Page()
    own = {"HTTP_COOKIE": page.cookie(), "HTTP_ORIGIN": f"http://{HERE}"}
    del page.reached[:]
    assert page.ask("POST", path, b"user_count=1", **{**own, **headers})[0] == 403
    assert page.reached == []
    assert page.ask("POST", path, b"user_count=1", **own)[0] == 200
    assert page.reached


def test_other_ways_to_change_something_are_closed() -> None:
    page = Page()
    own = {"HTTP_COOKIE": page.cookie()}
    del page.reached[:]
    assert [page.ask(method, "/", **own)[0] for method in ("PUT", "DELETE", "OPTIONS", "PATCH")] == [403] * 4
    assert page.ask("POST", "/user", b"{}", **own)[0] == 403
    assert page.reached == []


def test_what_locust_shows_is_for_no_other_site_and_no_frame() -> None:
    page = Page()
    assert page.ask("GET", "/stats/requests", HTTP_ORIGIN="http://evil.example")[0] == 403
    assert page.ask("GET", "/logs", HTTP_HOST="rebound.example")[0] == 403
    code, headers, _ = page.ask("GET", "/", HTTP_SEC_FETCH_SITE="cross-site", HTTP_SEC_FETCH_MODE="navigate")
    assert code == 200, "a link to the page may be followed"
    assert not [name for name in headers if name.startswith("Access-Control")]
    assert headers["X-Frame-Options"] == "DENY"
    assert re.search(r"; HttpOnly; SameSite=Strict$", headers["Set-Cookie"])


def test_of_the_form_a_load_goes_through_and_nothing_else() -> None:
    found = Page().start(
        user_count="3", spawn_rate="1.5", run_time="", host="http://endpoint:8000/", plimsoll_rate="80", plimsoll_duration="1m 30s",  # noqa: E501
        plimsoll_slo="p99(ttft) <= 1s; ratio(error) <= 1%", plimsoll_flags="--seed 7", html_file="/etc/x", csv_prefix="x", tags="a",  # noqa: E501
    )  # fmt: skip
    assert isinstance(found, dict)
    assert sorted(found) == [
        "plimsoll_duration",
        "plimsoll_rate",
        "plimsoll_slo",
        "run_time",
        "spawn_rate",
        "user_count",
    ]
    assert found["plimsoll_rate"] == ["80"]
    assert isinstance(Page().start(user_count="1", spawn_rate="1", plimsoll_slo="slo.yaml"), dict), (
        "the command line's own"
    )


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("plimsoll_flags", "--format html=/etc/cron.d/x", "flags is the command line's"),
        ("plimsoll_url", "http://evil.example", "url is the command line's"),
        ("plimsoll_scenario", "/etc/passwd", "scenario is the command line's"),
        ("plimsoll_out", "/tmp/x", "out is the command line's"),
        ("host", "http://evil.example", "the host is the command line's"),
        ("plimsoll_slo", "/etc/passwd", "nothing that the start form takes"),
        ("plimsoll_slo", "p99(ttft) <= 1s; ${file:/etc/passwd}", "nothing that the start form takes"),
        ("plimsoll_rate", "${env:HOME}", "nothing that the start form takes"),
        ("plimsoll_rate", "1 --out=x", "nothing that the start form takes"),
        ("plimsoll_concurrency", "-1", "nothing that the start form takes"),
        ("plimsoll_duration", "1h; x", "nothing that the start form takes"),
        ("user_count", "10000000", "nothing that the start form takes"),
        ("spawn_rate", "inf", "nothing that the start form takes"),
    ],
)
def test_no_path_no_reference_no_flag_and_no_host_comes_from_a_form(field: str, value: str, why: str) -> None:
    page = Page()
    assert why in page.start(**{"user_count": "1", "spawn_rate": "1", field: value})
    assert not [one for one in page.reached if one[1] == "/swarm"]


@pytest.mark.parametrize(
    "changed",
    [
        {"CONTENT_TYPE": "multipart/form-data; boundary=x"},
        {"CONTENT_LENGTH": str(FORM_LIMIT + 1)},
        {"CONTENT_LENGTH": "-1"},
        {"CONTENT_LENGTH": "x"},
    ],
)
def test_a_form_of_another_shape_is_not_read(changed: dict[str, str]) -> None:
    page = Page()
    _, _, text = page.ask("POST", "/swarm", b"user_count=1", **{"HTTP_COOKIE": page.cookie(), **changed})
    assert "the start form can't be read" in text
    assert not [one for one in page.reached if one[1] == "/swarm"]


@pytest.mark.parametrize(
    ("host", "mine"),
    [
        ("localhost:8089", True), ("LOCALHOST", True), ("127.0.0.1", True), ("[::1]:8089", True), ("10.1.2.3:80", True), ("bound:1", True),  # noqa: E501
        ("proxy.corp", True), ("evil.example", False), ("localhost.evil.example", False), ("127.0.0.1.evil.example", False),  # noqa: E501
        ("", False), ("a@localhost", False), ("localhost/x", False), ("localhost:x", False), ("[::1", False), ("127.1", False),  # noqa: E501
    ],
)  # fmt: skip
def test_names_of_this_host_are_ours_and_others_are_not(host: str, mine: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "proxy.corp, other")
    refusal = Visitors("bound").refusal({"Host": host}.get)
    assert (refusal is None) is mine
    assert mine or "another name" in str(refusal)
