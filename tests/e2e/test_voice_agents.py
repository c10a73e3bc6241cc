"""Calls of several spoken turns against the bundled server, held against its own log of what it heard and when it
stopped.

Real sockets, about forty seconds; two calls at once.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvloop
import yaml
from aiohttp import web

from plimsoll.harness.clock import LoopClock
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.protocols._discovery import protocols
from plimsoll.harness.transport.client import Target
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.slo.records import tables
from plimsoll.slo.records.records import Records, Status
from tests.e2e.plimsoll import Server, plimsoll, server

pytestmark = pytest.mark.e2e

MS = 1_000_000
SPOKEN = ("--model", "recogniser", "--model", "synthesiser")


def call(folder: Path, url: str, options: Mapping[str, Any] | None = None, **params: Any) -> tuple[Records, int]:
    """The rows of two calls of three turns, of which later ones interrupt 400 ms into the answer, and t0."""
    barge_in = {"share": 1.0, "after": "400ms"}
    spoken = {
        "name": "calls", "kind": "sessions", "seed": 3, "timeout": "20s",
        "params": {
            "rate": 1.0, "arrival": "constant", "turns": 3, "think": "300ms", "barge_in": barge_in, **params,
        },
        "target": {
            "url": url, "protocol": "openai-realtime", "model": "recogniser",
            "options": {"mode": "conversation", **(options or {})},
        },
        "source": {"kind": "audio", "words": 2, "count": 4},
        "stop": {"min_queries": 6, "min_duration": "1s"},
    }  # fmt: skip
    path = folder / "calls.yaml"
    path.write_text(yaml.safe_dump(spoken))
    done = plimsoll("run", str(path), "--out", "r", cwd=folder)
    assert done.returncode in (0, 4), done.stderr[-2000:]  # frames late on a busy host make no stamp untrue
    manifest = json.loads((folder / "r" / "manifest.json").read_text())
    return tables.load(folder / "r"), int(manifest["t0_monotonic_ns"])


def heard(running: Server, t0_ns: int) -> list[list[list[int]]]:
    """When the server heard the callers of the run begin and had stopped, call by call; earlier runs were no good."""
    return [row["talk"] for row in running.truth().values() if row["received_ns"] > t0_ns]


def before(records: Records) -> np.ndarray[Any, Any]:
    """The row of the turn before each; -1 of a first one."""
    session, turn = records.label("session"), records.label("turn")
    return np.array(
        [
            next((row for row in range(len(records)) if session[row] == s and turn[row] == t - 1), -1)
            for s, t in zip(session, turn, strict=True)
        ]
    )


def test_turns_follow_each_other_on_one_connection_once_an_answer_has_been_heard(tmp_path: Path) -> None:
    with server(*SPOKEN) as running:
        records, t0_ns = call(tmp_path, running.url, barge_in=None)
        assert len(heard(running, t0_ns)) == 2  # connections
    assert records["status"].tolist() == [Status.OK] * 6
    first = records.label("turn") == 1
    assert ((records["connect_ns"] >= 0) == first).all()
    later = np.flatnonzero(~first)
    assert (records["due_ns"][later] == records["done_ns"][before(records)[later]] + 300 * MS).all()
    # Heard out: the answer came at once and plays as long as it is.
    played = records["done_ns"] - records["first_audio_ns"]
    assert (np.abs(played - records["media_out_ns"]) < 60 * MS).all()
    assert (records["media_out_ns"] > 800 * MS).all()
    assert records.label("overlap").tolist() == records.label("talked_over").tolist() == [0] * 6
    assert (records.label("barge_in_stop") == -1).all()
    assert "barge_in" not in (records.labels.columns if records.labels is not None else {})


@pytest.mark.parametrize("slow_ms", [0, 300])
def test_a_barge_in_lasts_until_the_server_has_stopped(slow_ms: int, tmp_path: Path) -> None:
    """Without the fault the whole answer has come by then, and the server's word that it hears speech ends it."""
    fault = ("--fault", f"slow_stop={slow_ms}ms") if slow_ms else ()
    with server(*SPOKEN, *fault) as running:
        records, t0_ns = call(tmp_path, running.url)
        talks = heard(running, t0_ns)
    assert records["status"].tolist() == [Status.OK] * 6
    assert [len(talk) for talk in talks] == [3, 3]
    later = np.flatnonzero(records.label("turn") > 1)
    rows = before(records)
    onset = records["speech_start_ns"]
    assert (records.label("barge_in")[later] == 400 * MS).all()
    # The caller's first sound comes 400 ms after the answer's, to what the clock's own lateness makes of it.
    late = onset[later] - records["first_audio_ns"][rows[later]] - 400 * MS
    assert (late >= -1000).all()
    assert (late < 50 * MS).all()
    assert (records["due_ns"][later] == records["done_ns"][rows[later]]).all()
    silent = onset + records.label("barge_in_stop") + t0_ns
    for talk in talks:
        for heard_ns, stopped_ns in talk[1:]:
            true_ns = stopped_ns if slow_ms else heard_ns
            assert np.abs(silent[later] - true_ns).min() < 20 * MS
            assert (stopped_ns - heard_ns) // (10 * MS) * 10 * MS == slow_ms * MS if slow_ms else stopped_ns == -1
    assert (records.label("barge_in_stop")[later] >= slow_ms * MS).all()
    both = records.label("barge_in_stop") - records.label("overlap")  # audio at 1x that comes late leaves gaps
    assert ((both[later] >= 0) & (both[later] < (50 * MS if slow_ms else 1))).all()
    assert records.label("talked_over").tolist() == [0] * 6
    cut = rows[later]
    assert (records["done_ns"][cut] - records["first_audio_ns"][cut] < 400 * MS).all()


def test_a_server_that_does_not_give_way_is_heard_to_the_end_of_its_answer(tmp_path: Path) -> None:
    with server(*SPOKEN) as running:
        records, _ = call(tmp_path, running.url, {"interrupt_response": False})
    assert records["status"].tolist() == [Status.OK] * 6
    later = np.flatnonzero(records.label("turn") > 1)
    rows = before(records)[later]
    ends = records["first_audio_ns"][rows] + records["media_out_ns"][rows]
    stop = records["speech_start_ns"][later] + records.label("barge_in_stop")[later]
    assert (np.abs(stop - ends) < 60 * MS).all()
    assert (records.label("talked_over")[later] == (stop >= records["speech_end_ns"][later])).all()
    assert records.label("talked_over").any()


class Agent:
    """Answers a text with ``pieces`` of 60 ms of audio, ``every_s``; ``hangs_up``: so long after its first answer."""

    def __init__(self, hangs_up: float | None = None, pieces: int = 1, every_s: float = 0.0) -> None:
        self.hangs_up, self.pieces, self.every_s = hangs_up, pieces, every_s
        self.calls = self.settings = 0
        self.gone = asyncio.Event()

    async def talk(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.calls += 1
        async for message in socket:
            kind = json.loads(message.data)["type"]
            if kind == "session.update":
                self.settings += 1
                await socket.send_json({"type": "session.updated"})
            if kind == "response.create":
                audio = base64.b64encode(bytes(2 * 24 * 60)).decode()
                await socket.send_json({"type": "response.created", "response": {"id": "r"}})
                for _ in range(self.pieces):
                    await socket.send_json({"type": "response.output_audio.delta", "delta": audio})
                    await asyncio.sleep(self.every_s)
                await socket.send_json({"type": "response.done", "response": {"status": "completed"}})
                if self.hangs_up is not None and self.calls == 1:
                    await asyncio.sleep(self.hangs_up)
                    await socket.close(code=1001, message=b"bye")
        self.gone.set()
        return socket


async def talked(agent: Agent, turns: int, cut_ns: int = -1) -> list[Exchange]:
    """So many turns of one conversation, 250 ms apart, each settled; the second one speaks over the first."""
    app = web.Application()
    app.router.add_get("/v1/realtime", agent.talk)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    loop = asyncio.get_running_loop()
    clock = LoopClock(loop)
    options = {"mode": "conversation"}
    client: Any = protocols()["openai-realtime"].build(
        Target(f"http://127.0.0.1:{port}", "openai-realtime", options=options), clock
    )
    await client.open(0)
    request, over = client.encode(Payload(prompt="hello", n_in=1)), []
    try:
        for number in range(turns):
            following = client.follow(request, over[-1] if over else None, -1 if over else cut_ns)
            exchange = Exchange(number, 0, 0, clock.now_ns(), following)
            done: asyncio.Future[Exchange] = loop.create_future()
            exchange.on_done, exchange.ready_ns = done.set_result, clock.now_ns()
            client.send(exchange, b"run-%d" % number)
            over.append(await asyncio.wait_for(done, 10))
            client.settle(over[-1])
            await asyncio.sleep(0.25)
        assert not agent.gone.is_set() or agent.hangs_up is not None
        client.leave(over[-1])
        await asyncio.wait_for(agent.gone.wait(), 5)
    finally:
        await client.close()
        clock.close()
        await runner.cleanup()
    return over


def test_the_settings_are_sent_once_and_leaving_closes_the_connection() -> None:
    agent = Agent()
    over = uvloop.run(talked(agent, 3))
    assert [one.status for one in over] == [Status.OK] * 3
    assert (agent.calls, agent.settings) == (1, 1)
    for one in over:
        assert one.session is not None
        assert one.done_ns - one.session.first_audio_ns == 60 * MS  # to the nanosecond: when it has been played


@pytest.mark.parametrize("hangs_up", [0.0, 0.15], ids=["while its answer is heard", "after it was heard"])
def test_a_connection_that_ends_after_an_answer_fails_the_next_turn_and_the_one_after_has_a_new_one(
    hangs_up: float,
) -> None:
    agent = Agent(hangs_up)
    over = uvloop.run(talked(agent, 3))
    assert over[0].session is not None
    assert over[0].done_ns - over[0].session.first_audio_ns == 60 * MS
    assert [one.status for one in over] == [Status.OK, Status.PROTOCOL, Status.OK]
    assert over[1].error == "the server closed the session: 1001 bye (between two turns)"
    assert (over[1].sent_ns, over[1].bytes_out) == (-1, 0)
    assert (agent.calls, agent.settings) == (2, 2)
    assert over[2].connect_ns > 0


def test_what_comes_between_a_turn_that_was_cut_short_and_the_next_one_is_not_lost() -> None:
    agent = Agent(pieces=10, every_s=0.01)
    over = uvloop.run(talked(agent, 2, cut_ns=35 * MS))
    first, second = over
    assert [one.status for one in over] == [Status.OK] * 2
    assert first.session is not None
    assert second.session is not None
    assert first.session.cut
    assert first.done_ns - first.session.first_audio_ns == 35 * MS
    assert second.session.under_way
    delta = b"response.output_audio.delta"
    assert 0 < first.body.count(delta) < 10
    assert first.body.count(delta) + second.body.count(delta) == 20
    assert second.n_chunks == 10
