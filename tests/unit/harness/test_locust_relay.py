"""The two ends of the way, without a transport between them: who is told what, and who is given up when."""

from __future__ import annotations

import os
from typing import Any

import pytest

pytest.importorskip("gevent")

from plimsoll.harness.distributed import relay as relays
from plimsoll.harness.distributed.relay import Office, Relay

HELLO = {"type": "hello", "name": "a", "wall_ns": 1}


class Said(list[Any]):
    """A coordinator's pipe that remembers."""

    waiting = 0

    def say(self, line: dict[str, Any]) -> None:
        self.append({name: value for name, value in line.items() if name != "at_ns"})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Neither greenlets nor time: ``_watch`` is stepped by hand."""
    now = [100.0]
    monkeypatch.setattr(relays.gevent, "spawn", lambda *_: None)
    monkeypatch.setattr(relays.time, "monotonic", lambda: now[0])
    return now


def office(missing: set[str]) -> tuple[Office, list[tuple[str, dict[str, Any]]], Said]:
    sent: list[tuple[str, dict[str, Any]]] = []
    found, said = Office(lambda agent, message: sent.append((agent, message)), missing.__contains__), Said()
    found.attach(said, at="here")  # type: ignore[arg-type]
    return found, sent, said


def test_an_agent_joins_with_its_hello_and_what_it_says_before_is_nobodys(clock: list[float]) -> None:
    post, _, said = office(set())
    post.heard("a", {"type": "alive"})
    post.heard("a", HELLO)
    post.heard("a", {"type": "alive"})
    assert said == [
        {"event": "listening", "at": "here"},
        {"event": "joined", "agent": "a"},
        {"from": "a", "message": HELLO},
        {"from": "a", "message": {"type": "alive"}},
    ]


def test_a_message_to_everybody_reaches_each_and_a_ping_is_stamped_as_it_leaves(clock: list[float]) -> None:
    post, sent, _ = office(set())
    post.heard("a", HELLO)
    post.heard("b", HELLO)
    post.told({"to": "*", "message": {"type": "stop"}})
    assert sent == [("a", {"type": "stop"}), ("b", {"type": "stop"})]
    post.told({"to": "b", "message": {"type": "ping", "number": 0, "sent_ns": 0}})
    assert sent[-1][1]["sent_ns"] > 0


def test_an_agent_that_the_transport_misses_for_a_while_comes_back_and_for_longer_is_lost(clock: list[float]) -> None:
    missing: set[str] = set()
    post, sent, said = office(missing)
    post.heard("a", HELLO)
    for missed, seconds in ((True, 0.0), (True, relays.LOST_S), (False, 1.0), (True, 0.5), (True, relays.LOST_S)):
        (missing.add if missed else missing.discard)("a")
        clock[0] += seconds
        post.look()
    assert not [line for line in said if line.get("event") == "lost"]
    assert not post.reachable
    clock[0] += 0.1
    post.look()
    assert said[-1]["event"] == "lost"
    assert sent[-1] == ("a", {"type": "orphaned", "reason": "the master heard nothing of this agent"})
    post.heard("a", {"type": "alive"})
    assert said[-1]["event"] == "lost"


def test_one_that_leaves_says_so_and_the_next_coordinator_asks_who_is_there(clock: list[float]) -> None:
    post, sent, said = office(set())
    post.heard("a", HELLO)
    post.heard("b", HELLO)
    post.heard("a", {"type": "leaving", "reason": "Locust ended"})
    assert said[-1] == {"event": "lost", "agent": "a", "reason": "Locust ended"}
    post.attach(None)
    assert sent == [("b", {"type": "orphaned", "reason": "the run's coordinator is gone"})]
    post.attach(Said())  # type: ignore[arg-type]
    assert sent[-1] == ("b", {"type": "who"})


def relay() -> tuple[Relay, list[dict[str, Any]], Said]:
    sent: list[dict[str, Any]] = []
    found, site = Relay(sent.append, lambda rows: None, ["true"]), Said()
    found._lines = site  # type: ignore[assignment]
    return found, sent, site


def test_a_ping_is_answered_here_and_anything_else_is_the_sites() -> None:
    found, sent, site = relay()
    found.heard({"type": "ping", "number": 3, "sent_ns": 9})
    found.heard({"type": "go", "t0_ns": 1})
    assert [(sent[0]["type"], sent[0]["number"], sent[0]["sent_ns"])] == [("pong", 3, 9)]
    assert sent[0]["got_ns"] > 0
    assert site == [{"type": "go", "t0_ns": 1}]


def test_a_site_is_told_why_it_stops() -> None:
    found, sent, site = relay()
    site.close = lambda: None  # type: ignore[attr-defined]
    found.heard({"type": "orphaned", "reason": "the master gave this agent up"})
    found.close("it was told to leave (SIGTERM)")
    assert [line["reason"] for line in site] == ["the master gave this agent up", "it was told to leave (SIGTERM)"]
    assert sent == [{"type": "leaving", "reason": "it was told to leave (SIGTERM)"}]


def test_hello_goes_out_once_and_again_when_it_is_asked_for() -> None:
    found, sent, _ = relay()
    found._of_site(HELLO)
    found._of_site({"type": "alive"})
    assert [message["type"] for message in sent] == ["hello", "alive"]
    assert sent[0]["wall_ns"] > HELLO["wall_ns"]  # type: ignore[operator]
    found.heard({"type": "who"})
    assert [message["type"] for message in sent] == ["hello", "alive", "hello"]


def test_lines_over_pipes_come_whole_and_the_end_is_told() -> None:
    (down, up), heard = os.pipe(), []
    lines = relays.Lines(relays.FileObject(down, "rb"), relays.FileObject(up, "wb"), heard.append)
    lines.say({"n": 1, "text": "x" * 300_000})
    lines.say({"n": 2})
    lines.close()
    relays.gevent.sleep(0.05)
    assert [line and line["n"] for line in heard] == [1, 2, None]


def test_what_no_agent_says_and_what_nobody_can_take_any_more_reaches_no_coordinator(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    post, _, said = office(set())
    post.heard("a", HELLO)
    told = [*said]
    wrong: list[Any] = [None, [], {"type": []}, {"type": "go", "t0_ns": 1}, {"type": "ended", "code": "x"}]
    for message in [*wrong, {"type": "workers", "lines": [[0, [1]]]}, {"type": "leaving"}]:
        post.heard("a", message)
    assert said == told
    said.waiting = relays.BACKLOG + 1
    post.heard("a", {"type": "alive"})
    assert said == told
    said.waiting = 0
    post.heard("a", {"type": "leaving", "reason": "\x1b[2J::error::gone"})
    assert said[-1]["reason"] == "\ufffd[2J: :error::gone"
