"""``plimsoll coldstart`` against servers whose start is known, and against commands that misbehave. About 15 s."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from harness.coldstart.served import Served
from harness.errors import HarnessFault
from tests.e2e.plimsoll import ROOT, begin, plimsoll, wait_for

pytestmark = pytest.mark.e2e

#: Listens, says 503 for a while, then 200; the first requests are slow. Writes its own stamps, on the same clock, to its log.
SERVER = """
import sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
answered = []
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self, code):
        self.send_response(code); self.send_header("content-length", "2"); self.end_headers(); self.wfile.write(b"ok")
    def do_GET(self):
        self.answer(200 if time.monotonic() >= ready else 503)
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        answered.append(1); time.sleep(0.1 if len(answered) <= 3 else 0.004); self.answer(200)
    def log_message(self, *_): pass
time.sleep(0.3)
http = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
listening = time.monotonic(); ready = listening + 0.5
print(listening, ready, flush=True)
http.serve_forever()
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def alive(marker: str) -> list[int]:
    """Processes with ``marker`` in their command line, the warden that hands it on not counted."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if marker.encode() in b" ".join(words) and b"harness" not in words and int(path.parent.name) != os.getpid():
            found.append(int(path.parent.name))
    return found


def gone(marker: str, within_s: float = 10.0) -> bool:
    until = time.monotonic() + within_s
    while alive(marker) and time.monotonic() < until:
        time.sleep(0.05)
    return not alive(marker)


def test_a_start_of_known_length_is_measured_and_each_slow_first_request_is_found(tmp_path: Path) -> None:
    script, port = tmp_path / "server.py", free_port()
    script.write_text(SERVER)
    done = plimsoll(
        "coldstart", "--start", f"exec {sys.executable} {script} {port}", "--url", f"http://127.0.0.1:{port}", "--protocol", "http",
        "--option", "path=/x", "--repeats", "1", "--requests", "100", "--slo", "ready <= 30s", "--out", "cold", "--json", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode in (0, 4), done.stderr
    report = json.loads(done.stdout)
    late = any(part["invalid"] for part in report["repeats"])  # a busy machine, and no matter of the start
    assert (report["outcome"], done.returncode) == (("INVALID", 4) if late else ("PASS", 0))
    assert report == json.loads((tmp_path / "cold" / "coldstart.json").read_text())
    assert [goal["outcome"] for goal in report["goals"]] == ["PASS"]
    for part in report["repeats"]:
        log = (tmp_path / "cold" / part["folder"] / "server.log").read_text()
        listening, ready = (float(text) for text in log.split())
        # Spawn is known to us only, the rest to both: what each saw may differ by the polls' own error, which is stated.
        measured = (part["ready_ns"] - part["port_ns"]) / 1e9
        slack = (part["ready_late_ns"] + part["port_late_ns"]) / 1e9 + 0.1
        assert measured == pytest.approx(ready - listening, abs=slack)
        assert part["ready_late_ns"] < 0.5e9
        assert part["port_ns"] > 0.3e9
        assert part["route"] == "/health"
        assert part["first_latency_ns"] > 0.1e9
        assert part["steady_after"] >= 3
        assert part["steady_level_ns"] < 0.1e9
        assert part["excess_ns"] > 3 * 0.05e9
        assert part["failed"] == 0
        assert not part["stop_forced"]
    assert b"Latency by request" in (tmp_path / "cold" / "coldstart.html").read_bytes()
    assert not alive(str(script))


def test_the_bundled_servers_slow_start_is_in_the_time_to_ready(tmp_path: Path) -> None:
    port = free_port()
    start = (
        f"cd {ROOT} && exec {sys.executable} -m reference_server --model scripted --http-port {port} --ttft 5ms --itl 1ms "
        "--fault slow_start=weights:600ms"
    )
    done = plimsoll(
        "coldstart", "--start", start, "--url", f"http://127.0.0.1:{port}", "--repeats", "1", "--requests", "20", "--output-tokens",
        "4", "--slo", "ready <= 600ms", "--out", "cold", "--json", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr  # nobody is ready before it is
    (part,) = json.loads(done.stdout)["repeats"]
    # It listens before it loads: 600 ms and the model itself, which is nothing to speak of.
    assert 0.6e9 <= part["ready_ns"] - part["port_ns"] + part["port_late_ns"] <= 2.6e9
    assert part["first_answer_ns"] == part["ready_ns"] + part["first_ttft_ns"]
    assert "too few" in part["unsettled"]


def test_a_command_that_dies_is_exit_5_with_the_end_of_its_log(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    done = plimsoll("coldstart", "--start", "echo no such model >&2; exit 7", "--url", url, "--out", "c", cwd=tmp_path)
    assert done.returncode == 5
    assert "exit code 7" in done.stderr
    assert "no such model" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_server_that_runs_already_is_exit_2_and_nothing_is_started(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as there:
        url = f"http://127.0.0.1:{there.getsockname()[1]}"
        done = plimsoll("coldstart", "--start", "touch started", "--url", url, "--out", "c", cwd=tmp_path)
    assert done.returncode == 2
    assert "answers there already" in done.stderr
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_child_is_left_behind_however_we_end(tmp_path: Path, number: signal.Signals) -> None:
    marker = f"{7_000_000 + os.getpid()}.{int(number)}"  # an argument of sleep that nobody else has
    start = f"setsid sleep {marker} & touch started; exec sleep {marker}"
    process = begin(
        "coldstart", "--start", start, "--url", f"http://127.0.0.1:{free_port()}", "--out", "c", cwd=tmp_path
    )
    wait_for(tmp_path / "started")
    assert len(alive(marker)) >= 1
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else -signal.SIGKILL), said
    assert gone(marker)
    if number == signal.SIGINT:
        report: dict[str, Any] = json.loads((tmp_path / "c" / "coldstart.json").read_text())
        assert report["outcome"] == "INTERRUPTED"
        assert [part["complete"] for part in report["repeats"]] == [False]


def test_what_ignores_sigterm_is_killed_and_what_went_into_the_background_is_found(tmp_path: Path) -> None:
    marker = f"{8_000_000 + os.getpid()}.5"
    stubborn = Served(f"trap '' TERM; sleep {marker} & touch {tmp_path}/on; wait", "", tmp_path / "log", 0.2)
    wait_for(tmp_path / "on")
    assert stubborn.stop().forced
    assert gone(marker)
    background = Served(f"setsid sleep {marker} &", "", tmp_path / "log", 5.0)
    time.sleep(0.3)
    background.raise_if_ended()  # it ended well and left something running
    assert not background.stop().forced
    assert gone(marker)
    elsewhere = Served("true", f"touch {tmp_path}/stopped", tmp_path / "log", 5.0)
    time.sleep(0.3)
    elsewhere.raise_if_ended()  # somebody else was asked to serve, and a command stops that
    elsewhere.stop()
    assert (tmp_path / "stopped").exists()
    ended = Served("true", "", tmp_path / "log", 5.0)
    time.sleep(0.3)
    with pytest.raises(HarnessFault, match="--stop"):
        ended.raise_if_ended()
    ended.stop()


def test_the_warden_killed_takes_the_command_with_it(tmp_path: Path) -> None:
    marker = f"{9_000_000 + os.getpid()}.5"
    served = Served(f"touch {tmp_path}/on; exec sleep {marker}", "", tmp_path / "log", 5.0)
    wait_for(tmp_path / "on")
    served._warden.kill()
    assert gone(marker)
    served.stop()
