"""The live view over real sockets: its addresses, its bad guests, and the page in a real browser while a run goes
on.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.live import server
from plimsoll.harness.live.live_view import LiveView
from plimsoll.harness.live.place import Place
from plimsoll.harness.live.server import MOST_CONNECTIONS, MOST_READERS
from plimsoll.harness.live.state import LiveState
from plimsoll.reports.documents.live import RunPart
from plimsoll.slo.objectives.objective import parse
from tests.e2e import plimsoll
from tests.e2e.chromium import CHROMIUM, Tab, chromium
from tests.unit.harness.live_runs import MS, S, beginning, open_plan, status

HERE = Place("127.0.0.1", 0)


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is a coroutine, run in a loop of its own."""

    @wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(test(*arguments, **named))

    return run


class Told:
    """A view with its clock in our hand and what it said."""

    def __init__(self, directory: Path | None = None, place: Place = HERE) -> None:
        self.said: list[str] = []
        self.now = 0
        run = RunPart(scenario="made up", kind="server", url="http://target:1")
        objectives = [parse("p99(latency) <= 50ms")]
        self.view = LiveView(place, LiveState(run, objectives), directory, self.said.append, lambda: self.now)

    def begin(self) -> None:
        self.view.begin(beginning(open_plan(100, 60), self.now))

    def go_on(self, seconds: int) -> None:
        for _ in range(seconds * 4):
            done = self.now // (10 * MS)
            self.view.heard(0, status(done, done, in_flight=3, latency=[20 * MS] * 25))
            self.now += S // 4


@asynccontextmanager
async def opened(told: Told) -> AsyncIterator[str]:
    await told.view.open()
    try:
        yield told.view.url
    finally:
        told.view.end()
        await told.view.close()
        for _ in range(50):
            if not told.view.serving:
                break
            await asyncio.sleep(0.05)
        assert not told.view.serving


async def get(url: str) -> tuple[int, str, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, answer.headers.get("Content-Type", ""), await answer.text()


@in_a_loop
async def test_every_address_answers_in_its_own_form() -> None:
    told = Told()
    async with opened(told) as url:
        told.begin()
        told.go_on(5)
        code, kind, page = await get(url)
        assert (code, kind) == (200, "text/html; charset=utf-8")
        assert len(re.findall(r'<path d="M[^"]+L[^"]+" class="s s-sent line"', page)) == 2
        code, kind, state = await get(url + "state.json")
        assert (code, kind) == (200, "application/json; charset=utf-8")
        found = json.loads(state)
        assert (found["schema"], found["stage"], found["sent"]) == ("plimsoll.live/1", "running", 475)
        code, kind, scraped = await get(url + "metrics")
        assert (code, kind) == (200, "application/openmetrics-text; version=1.0.0; charset=utf-8")
        samples = {s.name: s.value for f in text_string_to_metric_families(scraped) for s in f.samples}  # type: ignore[no-untyped-call]
        assert samples["plimsoll_live_sent_total"] == 475
        assert samples["plimsoll_live_latency_seconds_count"] == 500
        assert (await get(url + "healthz"))[::2] == (200, "ok\n")
        assert (await get(url + "nowhere"))[0] == 404
        assert "unsafe-eval" not in (await _headers(url))["Content-Security-Policy"]
    assert told.said == [f"live view: {url}"]


async def _headers(url: str) -> dict[str, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return dict(answer.headers)


@in_a_loop
async def test_pictures_are_pushed_and_the_last_one_has_the_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "PICTURE_S", 0.1)
    told = Told(tmp_path)
    async with aiohttp.ClientSession() as session, opened(told) as url:
        told.begin()
        told.go_on(3)
        async with session.get(url + "events") as answer:
            assert answer.headers["Content-Type"] == "text/event-stream"
            first = await _picture(answer)
            told.go_on(1)
            second = await _picture(answer)
            assert (first != second, "RUNNING" in first, "RUNNING" in second) == (True, True, True)
            told.view.end()
            await told.view.close()
            over = await _picture(answer)
            assert "it is being judged" in over.lower()
            _judge(tmp_path)
            last = over
            async for line in answer.content:
                if line.startswith(b"data: "):
                    last = json.loads(line[6:])
            assert "FAIL" in last
            assert str(tmp_path / "report.html") in last


def _judge(folder: Path) -> None:
    (folder / "report.html").write_text("<html>")
    verdict = {"outcome": "FAIL", "reasons": ["slow"], "objectives": [{}]}
    (folder / "report.json").write_text(json.dumps({"verdict": verdict, "validity": {"reasons": []}}))


async def _picture(answer: aiohttp.ClientResponse) -> str:
    async with asyncio.timeout(10):
        while not (line := await answer.content.readline()).startswith(b"data: "):
            assert line
        return str(json.loads(line[6:]))


@in_a_loop
async def test_bad_guests_are_sent_away_and_the_others_served(capfd: pytest.CaptureFixture[str]) -> None:
    told = Told()
    async with opened(told) as url:
        told.begin()
        told.go_on(3)
        host, port = url.removeprefix("http://").strip("/").split(":")
        kept = []
        for garbage in (b"\x16\x03\x01\x00", b"GET / HTTP/9.9\r\n\r\n", b"GET /" + b"a" * 100_000, b"\r\n" * 5000, b""):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(garbage)
            kept.append((reader, writer))
        for method in ("POST", "PUT", "DELETE"):
            async with (
                aiohttp.ClientSession() as session,
                session.request(method, url + "metrics", data=b"x" * 5000) as answer,
            ):
                assert answer.status == 405
        for headers in (
            {"Host": "rebound.example"},
            {"Origin": "http://evil.example"},
            {"Sec-Fetch-Site": "cross-site"},
        ):
            for path in ("", "state.json", "events", "metrics"):
                async with aiohttp.ClientSession() as session, session.get(url + path, headers=headers) as answer:
                    assert (answer.status, "sent" in await answer.text()) == (403, False), (headers, path)
        assert (await get(url + "healthz"))[0] == 200
        await _hang_up([writer for _, writer in kept])
        told.go_on(1)
        assert json.loads((await get(url + "state.json"))[2])["sent"] == 375
    assert capfd.readouterr().err == ""


@in_a_loop
async def test_readers_and_connections_are_bounded() -> None:
    told = Told()
    async with opened(told) as url:
        told.begin()
        told.go_on(2)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:
            readers = [await session.get(url + "events") for _ in range(MOST_READERS)]
            assert {answer.status for answer in readers} == {200}
            assert (await get(url + "events"))[0] == 503
            assert (await get(url + "healthz"))[0] == 200
            readers[0].close()  # a browser that goes away
            async with asyncio.timeout(10):
                while (answer := await session.get(url + "events")).status != 200:
                    answer.close()
                    told.go_on(1)
                    await asyncio.sleep(0.1)
            for each in (answer, *readers):
                each.close()
            await asyncio.sleep(0.05)
        host, port = url.removeprefix("http://").strip("/").split(":")
        crowd = [await asyncio.open_connection(host, int(port)) for _ in range(MOST_CONNECTIONS)]
        for _, writer in crowd:
            writer.write(b"GET /events HTTP/1.1\r\nHost: here\r\n\r\n")
        async with asyncio.timeout(10):  # who is refused is also hung up on, and leaves room
            heard = [asyncio.create_task(reader.read()) for reader, _ in crowd]
            while sum(one.done() for one in heard) < MOST_CONNECTIONS - MOST_READERS:
                await asyncio.sleep(0.02)
        assert (await get(url + "healthz"))[0] == 200
        for one in heard:
            one.cancel()
        await _hang_up([writer for _, writer in crowd])
        pipes = [await asyncio.open_connection(host, int(port)) for _ in range(MOST_CONNECTIONS + 10)]
        ends = [asyncio.create_task(_ended(reader)) for reader, _ in pipes]
        try:
            async with asyncio.timeout(10):
                while sum(task.done() for task in ends) < 10:
                    await asyncio.sleep(0.05)
            assert sum(not task.done() for task in ends) > MOST_CONNECTIONS // 2
        finally:
            for task in ends:
                task.cancel()
            await _hang_up([writer for _, writer in pipes])


@in_a_loop
async def test_connections_that_ask_nothing_keep_nobody_out_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SLOW_S", 0.3)
    told = Told()
    async with opened(told) as url:
        told.begin()
        told.go_on(2)
        host, port = url.removeprefix("http://").strip("/").split(":")
        async with aiohttp.ClientSession() as session, session.get(url + "events") as reader:
            pipes = [await asyncio.open_connection(host, int(port)) for _ in range(MOST_CONNECTIONS)]
            for _, writer in pipes:
                writer.write(b"GET / HT")  # and never more
            async with asyncio.timeout(10):
                await asyncio.gather(*(_ended(end) for end, _ in pipes))
                assert (await get(url + "healthz"))[0] == 200
            await _hang_up([writer for _, writer in pipes])
            assert "RUNNING" in await _picture(reader)  # whoever asked may stay as long as it likes


async def _hang_up(writers: list[asyncio.StreamWriter]) -> None:
    for writer in writers:
        writer.transport.abort()
    await asyncio.sleep(0.05)


async def _ended(reader: asyncio.StreamReader) -> None:
    """Return when the other side has hung up."""
    with suppress(ConnectionError):
        await reader.read(1)


@in_a_loop
async def test_a_port_that_is_taken_is_one_error_before_anything_is_sent() -> None:
    async with opened(first := Told()) as url:
        port = int(url.rstrip("/").rsplit(":", 1)[1])
        second = Told(place=Place("127.0.0.1", port))
        with pytest.raises(
            HarnessFault, match=rf"--live: 127\.0\.0\.1:{port} can't be listened on .* Nothing was sent"
        ) as fault:
            await second.view.open()
        assert fault.value.code == 2
        await second.view.close()
        assert not second.view.serving
    assert first.said == [f"live view: {url}"]


@in_a_loop
async def test_the_next_run_can_have_the_same_place_and_an_open_page_goes_over_to_it(tmp_path: Path) -> None:
    first = Told(tmp_path)  # nobody ever judges it
    async with opened(first) as url:
        first.begin()
        first.go_on(2)
        first.view.end()
        await first.view.close()
        first.view.stop()
        assert not first.view.serving
        second = Told(place=Place("127.0.0.1", int(url.rstrip("/").rsplit(":", 1)[1])))
        async with opened(second) as again:
            assert again == url
            assert (await get(url + "healthz"))[0] == 200


@in_a_loop
async def test_a_host_that_others_reach_is_warned_of() -> None:
    told = Told(place=Place("0.0.0.0", 0))
    async with opened(told) as url:
        assert url.startswith("http://127.0.0.1:")
    assert told.said[1].startswith("warning: --live 0.0.0.0: whoever reaches this host may look on")


SLO = ("--slo", "p99(ttft) <= 2s", "--slo", "ratio(error) <= 5%", "--slo", "max(latency) <= 60s")


@contextmanager
def going_on(folder: Path, duration: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A real run with ``--live``, and its page's address."""
    command = (
        "run", "--kind", "server", "--protocol", "openai-chat", "--rate", "15", "--duration", duration, "--queries",
        "30",
        "--prompt-tokens", "8", "--output-tokens", "3", "--model", "scripted", "--live", "0", "--json", "--out",
        str(folder / "r"), "--server-metrics", "auto", *SLO,
    )  # fmt: skip
    process = plimsoll.begin(*command, cwd=folder)
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        found = re.fullmatch(r"live view: (http://127\.0\.0\.1:\d+/)\n", said)
        assert found, said + process.stderr.read()
        yield process, found[1]
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=30)


def _ask(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return json.loads(answer.read())


@dataclass
class Watched:
    """One real run, read by a program all the time and by a browser where there is one."""

    report: dict[str, Any]
    last: dict[str, Any]
    url: str
    #: What the browser saw in the end, or why it is not what should be seen.
    seen: str | Exception | None


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    return asyncio.run(_watch(tmp_path_factory.mktemp("live")))


async def _watch(folder: Path) -> Watched:
    async with chromium() if CHROMIUM else nullcontext() as tab:
        with going_on(folder, "5s") as (process, url):
            reading = asyncio.create_task(asyncio.to_thread(_read_on, process, url))
            seen: str | Exception | None = None
            try:
                seen = await _look_on(tab, url, str(folder / "r" / "report.html")) if tab else None
            except (AssertionError, TimeoutError) as error:
                seen = error
            last = await reading
            out, _ = process.communicate(timeout=30)
    return Watched(json.loads(out), last, url, seen)


def _read_on(process: subprocess.Popen[str], url: str) -> dict[str, Any]:
    last: dict[str, Any] = {}
    while process.poll() is None:
        try:
            last = _ask(url + "state.json")
        except (urllib.error.URLError, ConnectionError):
            break
        time.sleep(0.1)
    return last


def test_a_browser_sees_the_run_go_on_and_end_with_its_verdict(watched: Watched) -> None:
    if CHROMIUM is None:
        pytest.skip("NO CHROMIUM ON THIS HOST: THE LIVE PAGE WAS NOT SEEN BY A BROWSER")
    if isinstance(watched.seen, Exception):
        raise watched.seen
    assert watched.report["verdict"]["outcome"] == watched.seen


async def _look_on(tab: Tab, url: str, report: str) -> str:
    points = "(document.querySelector('.wide path.s-sent.line')?.getAttribute('d').match(/[ML]/g) || []).length"
    await tab.open(url)
    await tab.until(f"{points} >= 2 && document.querySelector('.word').textContent === 'RUNNING'", 20)
    before = await tab.ask(points)
    await tab.until(f"{points} > {before}", 5)  # pushed: nobody loaded the page again
    titles = "[...document.querySelectorAll('.strip figcaption')].map((node) => node.innerText).join()"
    await tab.until(f"{titles}.includes('Memory of the server')", 5)
    for width in (400, 1200):
        await tab.resize(width, 1000)
        assert await tab.ask("document.documentElement.scrollWidth") <= width
        shown = "[...document.querySelectorAll('.strip .drawing')].filter(d => d.offsetWidth).map(d => d.className)"
        assert {"narrow" if width == 400 else "wide"} == {name.split()[1] for name in await tab.ask(shown)}
    await tab.until("document.querySelector('[data-part=top]').dataset.final === 'yes'", 30)
    assert await tab.ask("document.querySelector('.story code').textContent") == report
    await tab.until("document.getElementById('link').textContent === 'over'")
    assert await tab.ask(points) >= 4  # the last picture stays
    assert [text for text in tab.problems if "ERR_CONNECTION_REFUSED" not in text] == []
    word = str(await tab.ask("document.querySelector('.word').textContent"))
    await tab.until("document.getElementById('report').protocol === 'blob:'")
    await tab.ask("document.getElementById('report').click()")  # nobody answers any more, and the report is there
    await tab.until("document.querySelector('h1') && globalThis.plimsoll", 10)
    assert await tab.ask("document.querySelector('.word').textContent") == word
    return word


def test_the_last_state_of_a_real_run_agrees_with_its_report(watched: Watched) -> None:
    last, report = watched.last, watched.report
    with pytest.raises(urllib.error.URLError):
        _ask(watched.url + "state.json")  # over is over
    assert last["stage"] == "over"
    assert last["verdict"]["outcome"] == report["verdict"]["outcome"]
    assert last["run"]["id"] == report["run"]["id"]
    assert last["done"] == report["counts"]["ok"] + report["counts"]["failed"]
    for name in ("ttft", "latency"):
        assert last["metrics"][name]["n"] == report["metrics"][name]["n"]
        assert last["metrics"][name]["p50"] == pytest.approx(report["metrics"][name]["p50"], rel=0.012)
        assert last["metrics"][name]["p99"] == pytest.approx(report["metrics"][name]["p99"], rel=0.012)
    served = [value for value in last["intervals"]["served"]["host.rss"] if value is not None]
    assert len(served) >= 3
    assert max(served) == pytest.approx(report["server"]["names"]["host.rss"]["max"], rel=0.2)
    assert last["unfollowed"] == ["max(latency) <= 60s"]
    assert {one["objective"] for one in last["objectives"]} == {"p99(ttft) <= 2s", "ratio(error) <= 5%"}


def test_a_bad_place_is_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    live = "127.0.0.1:99999"
    done = plimsoll.plimsoll_here("run", "--live", live, "--out", "r", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: --live {live}: not [HOST:]PORT")
    assert done.stderr.count("not [HOST:]PORT") == 1
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "r").exists()
