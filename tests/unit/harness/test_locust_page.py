"""The door before Locust's page, and whose browser may ask: what a page of another site can do is nothing."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qs, urlencode

import pytest

from plimsoll.harness.distributed.page import FORM_LIMIT, Door
from plimsoll.harness.live.visitors import VARIABLE, Visitors

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
