"""A bad uplink against the bundled server: what its own log says came, how late, and what a recogniser makes of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import trustme

from plimsoll.harness.exchange import Exchange
from plimsoll.scenarios.plan.impairment import ImpairSection
from plimsoll.slo.records.records import Status
from tests.e2e.plimsoll import Server, plimsoll_here, server
from tests.e2e.test_labels import rows
from tests.e2e.test_transport import Bench, play, scripted, server_context

pytestmark = pytest.mark.e2e

MS = 1_000_000
SPEECH = (
    "kind: server\nparams: {{rate: 12, arrival: constant}}\n"
    "stop: {{min_queries: 12, min_duration: 0, max_queries: 12}}\n"
    "target: {{url: '{url}', protocol: {protocol}, model: recogniser}}\ntimeout: 20s\n"
    "source: {{kind: audio, words: {{dist: uniform, min: 3, max: 4}}, count: 12}}\nimpair: {impair}\n"
)


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with server(
        "--model", "recogniser", "--model", "scripted", "--ttft", "20ms", "--itl", "2ms", "--grpc-port", "0"
    ) as one:
        yield one


def run(folder: Path, text: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    (folder / "s.yaml").write_text(text)
    done = plimsoll_here("run", "s.yaml", "--out", "r", "--json", cwd=folder)
    report = json.loads(done.stdout)  # VALID or not is this host's affair
    return report, [row for row in rows(folder / "r") if row["phase"] == "measure"]


def played_by(folder: Path) -> list[int]:
    """How many frames each session's player had on its way."""
    chunks = [row for row in pq.read_table(folder / "chunks.parquet").to_pylist() if row["phase"] == "measure"]
    return [len(row["frame_lag_ns"]) for row in chunks]


@pytest.mark.parametrize("protocol", ["deepgram-listen", "plimsoll-speech"])
def test_frames_that_are_lost_never_reach_the_recogniser_which_misses_words(
    protocol: str, running: Server, tmp_path: Path
) -> None:
    impair = "{loss: 25%, duplicate: 10%, delay: 60ms, jitter: 20ms}"
    url = running.url if protocol == "deepgram-listen" else f"grpc://{running.grpc}"
    report, found = run(tmp_path, SPEECH.format(url=url, protocol=protocol, impair=impair))
    truth, lost, twice = running.truth(), 0, 0
    t0_ns = json.loads((tmp_path / "r/manifest.json").read_text())["t0_monotonic_ns"]
    for row, played in zip(found, played_by(tmp_path / "r"), strict=True):
        gone, again = row["label_frames_lost"], row["label_frames_twice"]
        heard = truth[row["request_id"]]["heard"]
        assert truth[row["request_id"]]["outcome"] == "ok"  # the last words of the session came too
        assert len(heard) == played - gone + again
        assert heard[0][0] >= t0_ns + row["media_start_ns"] + 40 * MS
        lost, twice = lost + gone, twice + again
    assert lost > 30
    assert twice > 5
    assert report["metrics"]["wer"]["mean"] > 0.05
    client = json.loads((tmp_path / "r/generator.json").read_text())["clients"][0]["uplink"]
    assert (client["frames_lost"], client["frames_twice"]) == (lost, twice)
    assert any(
        "uplink is impaired" in text for text in json.loads((tmp_path / "r/manifest.json").read_text())["foreseen"]
    )


def test_requests_reach_the_server_as_late_as_asked_and_the_schedule_is_not_blamed(
    running: Server, tmp_path: Path
) -> None:
    report, found = run(
        tmp_path,
        "kind: server\nparams: {rate: 40}\nstop: {min_queries: 100, min_duration: 0}\ntimeout: 20s\n"
        f"target: {{url: '{running.url}', protocol: openai-chat, model: scripted}}\n"
        "source: {kind: synthetic_text, prompt_tokens: 500, output_tokens: 2}\n"
        "impair: {delay: 80ms, jitter: 10ms, bandwidth: 1mbit}\n",
    )
    truth = running.truth()
    t0_ns = json.loads((tmp_path / "r/manifest.json").read_text())["t0_monotonic_ns"]
    ways = []
    for row in found:
        line_ns = row["bytes_out"] * 8_000
        ways.append(truth[row["request_id"]]["received_ns"] - t0_ns - row["sent_ns"] - line_ns)
    assert 70 * MS <= min(ways) < 110 * MS
    assert min(row["first_token_ns"] - row["due_ns"] for row in found) >= 90 * MS
    assert report["validity"]["lag_ns"]["p50"] < 60 * MS


LATE = ImpairSection.model_validate({"delay": "60ms"}).model(1, live=False)
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


def test_the_handshake_of_tls_takes_the_same_way(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))

    async def twice(bench: Bench) -> None:
        first, second = await bench.get(), await bench.get()
        assert (first.status, second.status) == (Status.OK, Status.OK)
        assert first.connect_ns >= 60 * MS  # its first flight
        assert first.done_ns - first.ready_ns >= 120 * MS
        assert 60 * MS <= second.done_ns - second.sent_ns < first.done_ns - first.ready_ns
        assert bench.client.stats()["uplink"]["writes"] >= 4

    play(twice, scripted(OK), tls=server_context(authority), ca_file=str(tmp_path / "ca.pem"), impair=LATE)


def test_what_is_under_way_still_comes_when_its_user_leaves() -> None:
    came: list[bytes] = []

    async def script(request: bytes, reader: Any, writer: Any, number: int) -> None:
        came.append(request)

    async def leave(bench: Bench) -> None:
        done: list[Exchange] = []
        exchange = Exchange(0, 0, 0, bench.clock.now_ns(), bench.request)
        exchange.on_done, exchange.ready_ns = done.append, bench.clock.now_ns()
        bench.client.send(exchange, b"run-0-0")
        await asyncio.sleep(0.02)
        bench.client.cancel(exchange, int(Status.CANCELLED), "left")
        assert (len(done), len(bench.client.readers.closing), came) == (1, 1, [])
        await asyncio.sleep(0.15)
        assert (len(came), len(bench.client.readers.closing)) == (1, 0)

    play(leave, script, impair=LATE)
