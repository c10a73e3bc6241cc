"""The server's own figures: read beside a run by a process of its own, whole or not at all, and held against ours."""

from __future__ import annotations

import gzip
import json
import os
import resource
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import pytest

from plimsoll.harness.scraping.scraper import one_process, opened
from plimsoll.harness.scraping.scraping import startup
from plimsoll.harness.scraping.sources import MOST_BYTES, Page, Process, Source, Unread
from plimsoll.harness.scraping.statistics import Statistics
from plimsoll.harness.transport.client import Target
from tests.e2e.plimsoll import PLIMSOLL, ROOT, plimsoll, plimsoll_here, server

pytestmark = pytest.mark.e2e
PAGE = b'# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{engine="0"} 3\n'
LOAD = ["--protocol", "openai-chat", "--model", "scripted", "--rate", "20", "--duration", "2500ms", "--queries", "1"]
SECOND = 1_000_000_000
STATISTICS = '{model="embedder",version="1"}'
Answer = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def pages(answer: Answer) -> Iterator[str]:
    """A server that does that with every request; its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            answer(self)

        def log_message(self, *_: Any) -> None:
            return

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            return  # whoever reads no more hangs up

    with Server(("127.0.0.1", 0), Handler) as held:
        threading.Thread(target=held.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{held.server_port}/metrics"
        held.shutdown()


def said(data: bytes, status: int = 200, length: int | None = None, **headers: str) -> Answer:
    def answer(to: BaseHTTPRequestHandler) -> None:
        to.send_response(status)
        to.send_header("Content-Length", str(len(data) if length is None else length))
        for name, value in headers.items():
            to.send_header(name.replace("_", "-"), value)
        to.end_headers()
        to.wfile.write(data)
        to.close_connection = length is not None

    return answer


def drip(to: BaseHTTPRequestHandler) -> None:
    to.send_response(200)
    to.send_header("Content-Length", str(len(PAGE)))
    to.end_headers()
    for at in range(len(PAGE)):
        to.wfile.write(PAGE[at : at + 1])
        time.sleep(0.2)


def no_end_of_head(to: BaseHTTPRequestHandler) -> None:
    for _ in range(30):
        to.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        time.sleep(0.1)


def chatter(to: BaseHTTPRequestHandler) -> None:
    to.send_response(500, "\x1b[31m" + "A" * 10_000)
    to.send_header("Content-Length", "0")
    to.end_headers()


def endless(to: BaseHTTPRequestHandler) -> None:
    to.send_response(200)
    to.end_headers()
    for _ in range(50):
        to.wfile.write(b'a{b="c"} 1\n' * (1 << 17))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (drip, "no whole page within 1 s"),
        (no_end_of_head, "no whole page within 1 s"),
        (chatter, "^it answered 500 \ufffd\\[31mA{60,80}…$"),
        (said(b'{"model_stats": [{"name": "m", "inference_count": 1' + b"0" * 400 + b"}]}"), "can't be read"),
        (said(b'{"model_stats": [{"name": "m", "batch_stats": [{}]}]}'), "can't be read \\(KeyError"),
        (said(b"a " + b"x" * 1_000_000 + b"\n"), "^.{60,130}…$"),
        (said(b"gone\n", 404), "it answered 404"),
        (said(b"", 302, Location="http://127.0.0.1:1/metrics"), "it answered 302"),
        (said(b"<html><body>Sign in</body></html>"), "it is HTML"),
        (said(b'{"a": 1}'), "JSON, of a kind that is not known"),
        (said(PAGE[:40], length=len(PAGE)), "its page was cut off"),
        (said(PAGE[:-1]), "it was cut off"),
        (said(PAGE, Content_Type="application/openmetrics-text; version=1.0.0"), "it was cut off"),
        (said(gzip.compress(PAGE)[:-9], Content_Encoding="gzip"), "cut off"),
        (said(b"nonsense", Content_Encoding="gzip"), "can't be read"),
        (said(gzip.compress(b"#" * (MOST_BYTES + 1)), Content_Encoding="gzip"), "more than 16 MiB"),
        (endless, "more than 16 MiB"),
        (said(b"\xff\xfe 1\n"), "can't be read"),
        (said(b""), "no metrics"),
    ],
)
def test_what_is_no_whole_page_is_a_reason_and_no_value(answer: Answer, reason: str) -> None:
    """A page of 70 MB is read up to 16 MiB and not held: memory grows by less than it has."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pages(answer) as url, pytest.raises(Unread, match=reason):
        Page(url, url).read(1.0)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


def test_a_page_that_is_packed_or_came_on_a_kept_connection_is_the_same() -> None:
    calls = []

    def answer(to: BaseHTTPRequestHandler) -> None:
        calls.append(to.client_address)
        packed = len(calls) == 2
        data = gzip.compress(PAGE) if packed else PAGE
        said(data, **({"Content_Encoding": "gzip"} if packed else {}))(to)
        to.close_connection = len(calls) == 2  # a connection that is gone by the next time is opened again

    with pages(answer) as url:
        page = Page(url, url)
        found = [page.read(2.0) for _ in range(3)]
        page.close()
    assert [one.values for one in found] == [{("vllm:num_requests_waiting", '{engine="0"}'): 3.0}] * 3
    assert all(one.sent_ns < one.first_ns < one.end_ns for one in found)
    assert len(set(calls)) == 2


def test_a_first_byte_is_when_it_came() -> None:
    """Held against the server's own clock, which is ours: it writes its head, waits 80 ms, and writes the rest."""
    wrote: list[int] = []

    def answer(to: BaseHTTPRequestHandler) -> None:
        wrote.append(time.monotonic_ns())
        time.sleep(0.08)
        to.send_response(200)
        to.send_header("Content-Length", str(len(PAGE)))
        wrote.append(time.monotonic_ns())
        to.end_headers()
        to.wfile.flush()
        time.sleep(0.08)
        wrote.append(time.monotonic_ns())
        to.wfile.write(PAGE)

    with pages(answer) as url:
        page = Page(url, url)
        found = page.read(5.0)
        page.close()
    heard, head, rest = wrote
    assert found.sent_ns < heard < head < found.first_ns < rest < found.end_ns


def test_tritons_statistics_over_grpc_are_those_over_http() -> None:
    """Of a server whose model has no page of its own; both are one server's, so one of them is enough."""
    with server("--model", "embedder", "--grpc-port", "0") as held:
        body = json.dumps({"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": ["hello"]}]}).encode()
        urllib.request.urlopen(urllib.request.Request(f"{held.url}/v2/models/embedder/infer", body), timeout=20).close()
        source, page = Statistics(f"grpc://{held.grpc}", "a"), Page(f"{held.url}/v2/models/stats", "b")
        over_grpc, over_http = source.read(5.0), page.read(5.0)
        also = {key: value for key, value in over_grpc.values.items() if "cache_" not in key[0]}
        assert also == over_http.values
        assert over_grpc.values["triton_statistics_inference_stats_success_count", STATISTICS] == 1
        assert over_grpc.sent_ns <= over_grpc.first_ns <= over_grpc.end_ns
        assert one_process(over_grpc.values, over_http.values)
        spec = {"pages": [], "pids": [], "places": ["/v2/models/stats"]}
        assert closed(opened({**spec, "auto": [f"grpc://{held.grpc}"]})) == [f"grpc://{held.grpc}"]
        held.kill()
        for _ in range(2):
            with pytest.raises(Unread, match="refused"):
                source.read(2.0)
    closed([("a", source), ("b", page)])


def test_auto_leaves_what_is_gone_once_it_was_read() -> None:
    rows = b'[{"iter": 1, "numActiveRequests": 3, "numQueuedRequests": 2}]'
    with pages(said(rows)) as url:
        assert closed(opened({"pages": [], "pids": [], "auto": [url], "places": ["/metrics"]})) == []
        named = {"pages": [{"name": "a", "url": url, "where": url}], "pids": [], "auto": []}
        ((_, page),) = opened({**named, "places": []})
        assert page.read(2.0).values["trtllm_iteration_numQueuedRequests", ""] == 2
        page.close()


def test_a_process_and_what_it_started_are_one_and_one_that_is_gone_is_a_reason() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 60 & wait"], start_new_session=True) as started:
        until(lambda: len(found := _resident(started.pid)) == 2 and all(value > 0 for value in found.values()))
        os.killpg(started.pid, signal.SIGKILL)
        started.wait()
    with pytest.raises(Unread, match="gone"):
        Process(started.pid).read(1.0)


def _resident(pid: int) -> dict[str, float]:
    values = Process(pid).read(1.0).values
    return {labels: value for (family, labels), value in values.items() if family == "proc_resident_bytes"}


def closed(sources: Sequence[tuple[str, Source]]) -> list[str]:
    for _, source in sources:
        source.close()
    return [source.where for _, source in sources]


def test_auto_takes_the_servers_own_pages_and_no_other_servers() -> None:
    """On one host: the target, another server, a GPU exporter, and a program that only tells of its own process."""
    gpus, other = b"DCGM_FI_DEV_GPU_UTIL 5\n", b"tgi_queue_size 7\n"
    program = said(b"process_resident_memory_bytes 5\n")
    with pages(said(PAGE)) as own, pages(said(other)) as beside, pages(said(gpus)) as exporter, pages(program) as url:
        ports = [f"{urlsplit(one).port}/metrics" for one in (beside, exporter, url)]
        spec = {"pages": [], "pids": [], "auto": [own, ""], "places": [*ports, "/metrics", "/none"]}
        found, alone = closed(opened(spec)), closed(opened({**spec, "auto": [url]}))
    assert found == [own, exporter]
    assert alone == [beside, exporter]  # the target shows nothing: whatever serves there is taken


BORN = b"""vllm:request_success_total 7
vllm:request_success_created 1795469092.357717
process_start_time_seconds 1795469080.11
"""


def test_a_page_that_was_named_is_not_taken_once_more_by_auto() -> None:
    """It is known by when its series were begun, whichever way leads to it; a replica's were begun at another time."""
    replica = BORN.replace(b"357717", b"357718")
    with pages(said(BORN)) as own, pages(said(BORN)) as proxy, pages(said(replica)) as other:
        named = {"name": "a", "url": proxy, "where": proxy}
        spec = {"pages": [named], "pids": [], "auto": [own], "places": ["/metrics"]}
        alone, both = closed(opened(spec)), closed(opened({**spec, "auto": [other]}))
    assert alone == [proxy]
    assert both == [proxy, other]


def test_one_process_under_two_names_is_an_error_and_its_twin_of_another_start_is_not(tmp_path: Path) -> None:
    twin = BORN.replace(b"080.11", b"080.12")
    with pages(said(BORN)) as own, pages(said(BORN)) as proxy, pages(said(twin)) as other:
        words = ["run", *LOAD, "--server-metrics", f"a={own}", "--server-metrics", f"b={other}"]
        again = ["--server-metrics", f"c={proxy}", "--server-metrics", "d=http://127.0.0.1:9"]
        done = plimsoll_here(*words, *again, "--out", "r", cwd=tmp_path)
    assert done.returncode == 2
    assert "a and c are pages of one process: all that it counts would count twice" in done.stderr
    assert "d: http://127.0.0.1:9/metrics gave no metrics" in done.stderr
    assert done.stderr.count("pages of one process") == 1


def until(true: Callable[[], bool]) -> None:
    """Wait for it. Bounded at 20 s."""
    over = time.monotonic() + 20
    while not true():
        assert time.monotonic() < over
        time.sleep(0.05)


def reported(path: Path) -> dict[str, Any]:
    return dict(json.loads((path / "report.json").read_text())["server"])


def test_the_books_of_a_run_agree_to_the_last_token(tmp_path: Path) -> None:
    """The bundled server counts what we sent, warm-up included; its samples surround the run on the run's clock."""
    done = plimsoll_here("run", *LOAD, "--warmup", "500ms", "--server-metrics", "auto", "--out", "r", cwd=tmp_path)
    assert done.returncode in (0, 4), done.stderr  # 4: the host was busy
    found = reported(tmp_path / "r")
    books = {one["what"]: one for one in found["books"]}
    assert books["requests"]["difference"] == books["generated tokens"]["difference"] == 0
    assert books["requests"]["ours"] > 40
    rows = pq.read_table(tmp_path / "r" / "requests.parquet", columns=["sent_ns", "done_ns"]).to_pydict()
    table = pq.read_table(tmp_path / "r" / "server.parquet").to_pydict()
    stamps = zip(table["source"], table["sent_ns"], table["first_ns"], table["end_ns"], strict=True)
    assert all(a < b < c for name, a, b, c in stamps if not name.startswith("pid-"))  # /proc has no first byte
    assert min(table["end_ns"]) < min(rows["sent_ns"])
    assert max(table["sent_ns"]) > max(rows["done_ns"])
    gaps = [b - a for a, b in zip(sorted({*table["sent_ns"]}), sorted({*table["sent_ns"]})[1:], strict=False)]
    assert max(gaps) < 2 * SECOND
    assert found["names"]["server.running"]["samples"] >= 3
    first = found["first_token"]
    assert 49e6 < first["theirs_ns"] < first["ours_ns"] == first["theirs_ns"] + first["between_ns"]
    assert found["names"]["server.failures"]["total"] == 0
    assert "--model llm" in found["absent"]["server.kv_usage"]
    assert not (tmp_path / "r" / "server.samples").exists()
    assert "server itself" in done.stdout
    again = plimsoll("report", "r", "--json", cwd=tmp_path)
    assert json.loads(again.stdout)["server"] == found


def test_the_books_agree_over_retries_too(tmp_path: Path) -> None:
    """Each attempt is a request of the server's, those of the warm-up as well; tokens are of answers alone."""
    scenario = {
        "name": "again", "kind": "server", "params": {"rate": 40}, "stop": {"min_queries": 1, "min_duration": "3s"},
        "source": {"kind": "synthetic_text", "prompt_tokens": 8, "output_tokens": 8}, "target": {"model": "scripted"},
        "client": {"retry": {"on": [503], "max": 3, "backoff": "50ms..400ms"}},
    }  # fmt: skip
    (tmp_path / "again.yaml").write_text(json.dumps(scenario))
    storm = ["--ttft", "30ms", "--itl", "2ms", "--fault", "retry_storm=limit:2,cost:5ms"]
    with server("--model", "scripted", *storm) as held:
        words = ["again.yaml", "--warmup", "500ms", "--url", held.url, "--server-metrics", "auto", "--out", "r"]
        done = plimsoll_here("run", *words, cwd=tmp_path)
    assert done.returncode in (0, 4), done.stderr
    found = reported(tmp_path / "r")
    assert found["names"]["server.failures"]["total"] > 20
    assert [one["difference"] for one in found["books"]] == [0, 0]


def test_the_first_token_is_told_from_the_attempt_that_was_answered(tmp_path: Path) -> None:
    """A wait between two attempts is neither the network nor anything that stands before the engine."""
    scenario = {
        "name": "again", "kind": "server", "params": {"rate": 20}, "stop": {"min_queries": 1, "min_duration": "3s"},
        "source": {"kind": "synthetic_text", "prompt_tokens": 8, "output_tokens": 8}, "target": {"model": "scripted"},
        "client": {"retry": {"on": [503], "max": 9, "backoff": "800ms..1s", "jitter": "none"}},
    }  # fmt: skip
    (tmp_path / "again.yaml").write_text(json.dumps(scenario))
    with server("--model", "scripted", "--ttft", "10ms", "--fault", "error_rate=p:0.4,status:503") as held:
        words = ["again.yaml", "--url", held.url, "--server-metrics", "auto", "--out", "r"]
        done = plimsoll_here("run", *words, cwd=tmp_path)
    assert done.returncode in (0, 4), done.stderr
    found = reported(tmp_path / "r")["first_token"]
    assert found["between_ns"] < 200_000_000  # 400 ms and more, if the waits were in it


def test_books_are_not_compared_once_nobody_asks(tmp_path: Path) -> None:
    """The process that asks is killed in the middle: what the server counted after that is unknown."""
    with server("--model", "scripted") as held:
        words = ["run", *LOAD, "--duration", "5s", "--url", held.url, "--server-metrics", "auto", "--out", "r"]
        with subprocess.Popen(
            [*PLIMSOLL, *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as run:
            samples = tmp_path / "r" / "server.samples"
            until(lambda: samples.is_file() and samples.read_bytes().count(b'"is":"sample"') >= 6)
            (asker,) = [pid for pid in children(run.pid) if b"scraper" in Path(f"/proc/{pid}/cmdline").read_bytes()]
            os.kill(asker, signal.SIGKILL)
            out = run.communicate(timeout=30)[0]
        assert run.returncode in (0, 4)
    books = reported(tmp_path / "r")["books"]
    assert books
    assert all(one["theirs"] is None and "last asked at" in one["why"] for one in books), books
    assert "of ours it does not count" not in out
    assert "the server's books are not known: it was last asked at" in out


def children(pid: int) -> list[int]:
    return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class Dying:
    """Metrics of a server that goes away for a second and begins anew."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self, to: BaseHTTPRequestHandler) -> None:
        at = time.monotonic() - self._began
        if 1.5 < at < 2.7:
            said(b"starting\n", 503)(to)
            return
        start, count = (1000, int(10 * at)) if at < 2 else (2000, int(10 * (at - 2)))
        text = f"process_start_time_seconds {start}\nvllm:request_success_total {count}\nvllm:num_requests_waiting 1\n"
        said(text.encode())(to)


def test_a_server_that_restarts_is_told_of_and_what_it_counted_then_is_unknown(tmp_path: Path) -> None:
    with server("--model", "scripted") as held, pages(Dying()) as url:
        load = [*LOAD, "--duration", "4500ms", "--url", held.url]
        done = plimsoll_here("run", *load, "--server-metrics", f"engine={url}", "--out", "r", cwd=tmp_path)
    assert done.returncode in (0, 4), done.stderr  # 4: the host was busy
    found = reported(tmp_path / "r")
    (restart,) = found["restarts"]
    assert restart["source"] == "engine"
    assert restart["before_ns"] - restart["after_ns"] > 1.5 * SECOND
    (gap,) = found["sources"]["engine"]["gaps"]
    assert gap["reason"] == "it answered 503 Service Unavailable"
    assert found["names"]["server.requests"]["unknown"] == 1
    (book,) = found["books"]
    assert book["theirs"] is None
    assert book["why"] == "it restarted"
    assert found["names"]["server.queue"]["max"] == 1
    assert found["names"]["server.queue"]["min"] == 1


def test_a_server_that_takes_long_is_asked_less_often_and_the_report_says_so(tmp_path: Path) -> None:
    def answer(to: BaseHTTPRequestHandler) -> None:
        time.sleep(0.1)
        said(PAGE)(to)

    with server("--model", "scripted") as held, pages(answer) as url:
        load = [*LOAD, "--duration", "4s", "--url", held.url]
        done = plimsoll_here("run", *load, "--server-metrics", url, "--out", "r", cwd=tmp_path)
    assert done.returncode in (0, 4), done.stderr  # 4: the host was busy
    (source,) = reported(tmp_path / "r")["sources"].values()
    assert 1.9 * SECOND < source["slowed_ns"] < 3 * SECOND
    assert "slowed down to" in done.stdout


def test_what_gives_no_metrics_ends_the_run_before_it_begins(tmp_path: Path) -> None:
    """All of it at once, with exit code 2, and not one request is sent."""
    with server("--model", "scripted") as held, pages(said(b"<html>", 200)) as url:
        flags = ["--server-metrics", f"web={url}", "--server-metrics", "old=http://127.0.0.1:9/metrics"]
        done = plimsoll_here("run", *LOAD, "--url", held.url, *flags, "--out", "r", cwd=tmp_path)
        assert not held.truth()
    assert done.returncode == 2
    assert "web" in done.stderr
    assert "it is HTML" in done.stderr
    assert "old" in done.stderr
    assert "Connection refused" in done.stderr
    assert not (tmp_path / "r").exists()


def test_wrong_flags_are_errors_together(tmp_path: Path) -> None:
    flags = ["--server-metrics", "localhost", "--server-pid", "4194305", "--rate", "0"]
    flags += ["--server-metrics", "a=http://h/x", "--server-metrics", "a=http://h/y"]
    flags += ["--option", "traceparent=maybe", "--format", "csv", "--expect-workers", "2"]
    done = plimsoll_here("run", *flags, "--out", "r", cwd=tmp_path)
    assert done.returncode == 2
    of_server = ("number 1: not an address", "--server-pid 4194305", "two sources are called a")
    for what in (*of_server, "--rate: is 0", "traceparent: 'maybe'", "--format csv: no file", "--expect-workers: only"):
        assert what in done.stderr, what
    assert not (tmp_path / "r").exists()


def test_a_secret_in_an_address_is_nowhere_though_the_page_repeats_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []

    def answer(to: BaseHTTPRequestHandler) -> None:
        heard.append(f"{to.path} {to.headers['Authorization']}")
        echo = f'echo{{of="{to.path}",user="{to.headers["Authorization"]}",key="sk-of-the-target-0815"}} 1\n'.encode()
        said(PAGE + echo if len(heard) != 2 else b"<html>")(to)

    monkeypatch.setenv("PLIMSOLL_API_KEY", "sk-of-the-target-0815")
    with server("--model", "scripted") as held, pages(answer) as url:
        secret = url.replace("http://", "http://scout:hunter2secret@") + "?api_key=abcdef0123456789"
        done = plimsoll("run", *LOAD, "--url", held.url, "--server-metrics", secret, "--out", "r", cwd=tmp_path)
    assert done.returncode in (0, 4), done.stderr  # 4: the host was busy
    assert heard[0] == "/metrics?api_key=abcdef0123456789 Basic c2NvdXQ6aHVudGVyMnNlY3JldA=="
    written = [path.read_bytes() for path in (tmp_path / "r").rglob("*") if path.is_file()]
    unpacked = [str(pq.read_table(path).to_pydict()).encode() for path in (tmp_path / "r").glob("server.parquet")]
    assert b"echo" in unpacked[0]
    for text in [*written, *unpacked, done.stdout.encode(), done.stderr.encode()]:
        for part in (b"hunter2secret", b"abcdef0123456789", b"scout", b"c2NvdXQ6aHVudGVyMnN", b"sk-of-the-target"):
            assert part not in text


def test_half_a_character_in_a_name_costs_no_samples(tmp_path: Path) -> None:
    stats = b'{"model_stats": [{"name": "\\ud800", "inference_count": 5, "execution_count": 2}]}'
    with server("--model", "scripted") as held, pages(said(stats)) as url:
        done = plimsoll("run", *LOAD, "--url", held.url, "--server-metrics", url, "--out", "r", cwd=tmp_path)
    assert "can't be read" not in done.stdout
    labels = pq.read_table(tmp_path / "r/server.parquet").column("labels").to_pylist()
    assert '{"model": "?", "version": ""}' in labels


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_cut_off_keeps_every_sample_until_then(tmp_path: Path, number: int) -> None:
    """Whoever is killed: the process that asks ends by itself, and what it wrote is made into the file."""
    with server("--model", "scripted") as held:
        words = ["run", *LOAD, "--duration", "20s", "--url", held.url, "--server-metrics", "auto", "--out", "r"]
        with subprocess.Popen(
            [*PLIMSOLL, *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as run:
            samples = tmp_path / "r" / "server.samples"
            until(lambda: samples.is_file() and samples.read_bytes().count(b'"is":"sample"') >= 8)
            run.send_signal(number)
            run.wait(20)
        if number == signal.SIGKILL:
            size = -1
            while size != samples.stat().st_size:  # until the process that asks is gone
                size = samples.stat().st_size
                time.sleep(1.2)
            assert plimsoll("report", "r", cwd=tmp_path).returncode in (0, 3, 4)
    found = reported(tmp_path / "r")
    (source,) = [one for name, one in found["sources"].items() if "v2" not in name]
    assert source["samples"] >= 4
    assert found["names"]["server.running"]["max"] > 0


def test_a_server_of_our_own_is_watched_without_a_word(tmp_path: Path) -> None:
    """Its process alone, at idle and at its peak: nobody gave a flag, and objectives on it can be judged."""
    done = plimsoll_here("run", *LOAD, "--slo", "max(host.rss) <= 64GiB", "--out", "r", cwd=tmp_path)
    assert done.returncode in (0, 4), done.stderr
    found = reported(tmp_path / "r")
    (source,) = found["sources"]
    assert source.startswith("pid-")
    memory, cores = found["names"]["host.rss"], found["names"]["host.cpu"]
    assert 10e6 < memory["idle"] <= memory["max"] < 1e9
    assert 0 <= cores["idle"] < 1
    assert cores["max"] > 0
    assert "before the first request" in done.stdout


def test_an_objective_on_what_nobody_asks_is_refused_though_the_server_is_ours(tmp_path: Path) -> None:
    done = plimsoll_here(
        "run", *LOAD, "--slo", "max(server.queue) <= 5", "--slo", "max(host.rss) <= 1GiB", cwd=tmp_path
    )
    assert done.returncode == 2
    assert "max(server.queue) <= 5: nobody asks the server" in done.stderr
    assert "host.rss" not in done.stderr


def test_how_busy_a_server_was_is_its_load(tmp_path: Path) -> None:
    """One slot, 20 requests a second of 20 ms each: busy for 40 % of the time, give or take what Poisson gave."""
    with server("--model", "scripted", "--ttft", "20ms", "--slots", "1") as held:
        words = ["--rate", "20", "--output-tokens", "1", "--model", "scripted", "--url", held.url, "--out", "r"]
        asked = ["--server-metrics", "auto", "--slo", "mean(server.busy) >= 20%", "--json"]
        done = plimsoll_here("run", *words, "--duration", "6s", *asked, cwd=tmp_path)
    assert done.returncode in (0, 4), done.stderr
    report = json.loads(done.stdout)
    sent_per_s = report["server"]["names"]["server.requests"]["per_s"]
    assert report["server"]["names"]["server.busy"]["mean"] == pytest.approx(0.02 * sent_per_s, rel=0.1)
    assert report["verdict"]["objectives"][0]["outcome"] == "PASS"


@pytest.mark.parametrize(("fault", "outcome"), [(["--fault", "memory_leak=per:1MiB,cap:512MiB"], "FAIL"), ([], "PASS")])
def test_a_soak_finds_a_leak_and_nothing_where_there_is_none(fault: list[str], outcome: str, tmp_path: Path) -> None:
    """Two hours shortened to 24 s, and the promise widened to 1 GiB an hour: the leak is 17.6, 1 MiB a request."""
    with server("--model", "scripted", "--ttft", "5ms", "--itl", "1ms", *fault) as held:
        short = ["--model", "scripted", "--duration", "24s", "--queries", "1", "--warmup", "3s", "--json", "--out", "r"]
        promise = ["--slo", "slope(host.rss) <= 1GiB/h", "--server-metrics", "auto", "--url", held.url]
        done = plimsoll_here("run", "soak", *short, *promise, cwd=tmp_path)
    assert done.returncode in (1 if fault else 0, 4), done.stderr
    report = json.loads(done.stdout)
    (verdict,) = report["verdict"]["objectives"]
    assert verdict["outcome"] == outcome, verdict
    grown = report["server"]["names"]["host.rss"]["slope"]
    if fault:
        sent_per_h = 3600 * report["throughput"]["requests_per_s"]
        assert grown["per_h"] == pytest.approx(sent_per_h * 2**20, rel=0.3)
    assert grown["low"] <= grown["per_h"] <= grown["high"]


@pytest.mark.parametrize(
    ("lines", "phases"),
    [
        (
            'sglang:startup_latency_breakdown_seconds_max{context="load_model"} 12.5\nsglang:num_queue_reqs 0\n',
            {"load_model": 12_500_000_000},
        ),
        (
            ':tensorflow:cc:saved_model:load_latency{model_path="/models/a/1"} 54436\n',
            {"/models/a/1": 54_436_000},
        ),
        (
            "".join(
                f'sglang:startup_latency_breakdown_seconds_max{{context="{at}"}} {value}\n'
                for at, value in enumerate(["NaN", "+Inf", "1e308", "-3", "2"])
            ),
            {"4": 2_000_000_000},
        ),
        (PAGE.decode(), {}),
        ("no page of metrics\n", {}),
    ],
)
def test_a_start_is_told_by_the_pages_that_tell_it(lines: str, phases: dict[str, int]) -> None:
    with pages(said(lines.encode())) as url:
        assert startup(Target(url.removesuffix("/metrics"), "http")) == phases
    assert startup(Target("http://127.0.0.1:9", "http")) == {}


def test_one_model_by_json_and_by_binary_tensors_costs_what_is_on_the_wire(tmp_path: Path) -> None:
    """39 numbers a click: as text, of which small ones are short, or as 13 x 4 + 26 x 8 bytes behind a head that says
    so, always as many. Binary is the larger one here, which nobody would guess. And its batches have sizes.
    """
    seen = {}
    with server("--model", "dlrm") as held:
        for binary in ("false", "true"):
            words = ["recommendation", "--url", held.url, "--rate", "40", "--duration", "2s", "--queries", "1"]
            more = ["--option", f"binary={binary}", "--server-metrics", "auto", "--json", "--out", binary]
            done = plimsoll_here("run", *words, *more, cwd=tmp_path)
            assert done.returncode in (0, 3, 4), done.stderr
            seen[binary] = json.loads(done.stdout)
    text, binary_ = (seen[name]["metrics"]["bytes_out"] for name in ("false", "true"))
    assert binary_["max"] - binary_["min"] <= 3  # the digits of the request's number
    assert text["max"] - text["min"] > 3
    assert 13 * 4 + 26 * 8 < text["p50"] < binary_["p50"]
    rows = pq.read_table(tmp_path / "true" / "requests.parquet", columns=["bytes_out"]).to_pydict()
    assert binary_["p50"] in rows["bytes_out"]
    report = seen["true"]
    (counted,) = report["server"]["batches"]  # its statistics in Triton's way tell of the same batches
    assert counted["exact"]
    samples = sum(high * count for _, high, count in counted["sizes"])
    assert samples >= report["counts"]["ok"]  # and those of the last second of the warm-up
