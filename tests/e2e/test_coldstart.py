"""``plimsoll coldstart`` against servers whose start is known, and against commands that misbehave. About 10 s."""

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

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.series.coldstart.coldstart_session import _between
from plimsoll.harness.series.coldstart.warden import Served
from tests.e2e.plimsoll import ROOT, begin, plimsoll_here, wait_for
from tests.unit.harness.test_coldstart_session import wanted

pytestmark = pytest.mark.e2e

#: Listens, says 503 for a while, then 200; the first requests are slow, more so than a stolen moment of the host makes
#: a later one. Writes its own stamps, on the same clock, to its log.
SERVER = """
import os, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
answered = []
class Handler(BaseHTTPRequestHandler):
    protocol_version, wbufsize = "HTTP/1.1", 4096
    def answer(self, code):
        self.send_response(code); self.send_header("content-length", "2"); self.end_headers(); self.wfile.write(b"ok")
    def do_GET(self):
        self.answer(200 if time.monotonic() >= ready else 503)
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        answered.append(1); time.sleep(0.5 if len(answered) <= 3 else 0.004); self.answer(200)
    def log_message(self, *_): pass
time.sleep(0.3)
http = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
listening = time.monotonic(); ready = listening + 0.5
ticks = int(open("/proc/self/stat").read().rsplit(")", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")  # since boot
forked = ticks - time.clock_gettime(time.CLOCK_BOOTTIME) + time.monotonic()
print(forked, listening, ready, flush=True)
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
    done = plimsoll_here(
        "coldstart", "--start", f"exec {sys.executable} {script} {port}", "--url", f"http://127.0.0.1:{port}",
        "--protocol", "http",
        "--option", "path=/x", "--repeats", "1", "--requests", "100", "--slo", "ready <= 30s", "--out", "cold",
        "--json", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode in (0, 4), done.stderr
    report = json.loads(done.stdout)
    late = any(part["invalid"] for part in report["repeats"])  # a busy machine, and no matter of the start
    assert (report["outcome"], done.returncode) == (("INVALID", 4) if late else ("PASS", 0))
    assert report == json.loads((tmp_path / "cold" / "coldstart.json").read_text())
    assert [goal["outcome"] for goal in report["goals"]] == ["PASS"]
    for part in report["repeats"]:
        log = (tmp_path / "cold" / part["folder"] / "server.log").read_text()
        forked, listening, ready = (float(text) for text in log.split())
        # What each saw may differ by the polls' own error, which is stated, and by a tick of the kernel.
        late = part["port_late_ns"] / 1e9 + 0.1
        assert part["port_ns"] / 1e9 == pytest.approx(listening - forked, abs=late)
        measured = (part["ready_ns"] - part["port_ns"]) / 1e9
        slack = (part["ready_late_ns"] + part["port_late_ns"]) / 1e9 + 0.1
        assert measured == pytest.approx(ready - listening, abs=slack)
        assert part["ready_late_ns"] < 0.5e9
        assert part["port_ns"] > 0.3e9
        assert part["route"] == "/health"
        assert part["first_latency_ns"] > 0.5e9
        assert part["steady_after"] >= 3
        assert 0.004e9 <= part["steady_level_ns"] < 0.1e9
        assert part["excess_ns"] > 3 * 0.4e9
        # Nothing in flight is left out: spawned, ready, and then the slow ones one after the other.
        assert part["steady_ns"] - part["ready_ns"] >= 3 * 0.5e9
        assert part["failed"] == 0
        assert not part["stop_forced"]
    assert b"Latency by request" in (tmp_path / "cold" / "coldstart.html").read_bytes()
    assert not alive(str(script))


def test_the_bundled_servers_slow_start_is_in_the_time_to_ready(tmp_path: Path) -> None:
    port = free_port()
    start = (
        f"cd {ROOT} && exec {sys.executable} -m plimsoll.reference_server --model scripted --http-port {port} --ttft "
        "5ms --itl 1ms --fault slow_start=weights:600ms"
    )
    done = plimsoll_here(
        "coldstart", "--start", start, "--url", f"http://127.0.0.1:{port}", "--repeats", "1", "--requests", "20",
        "--output-tokens",
        "4", "--slo", "ready <= 600ms", "--out", "cold", "--json", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr  # nobody is ready before it is
    (part,) = json.loads(done.stdout)["repeats"]
    # It listens before it loads: 600 ms and the model itself, which is nothing to speak of.
    assert 0.6e9 <= part["ready_ns"] - part["port_ns"] + part["port_late_ns"] <= 2.6e9
    assert part["first_answer_ns"] == part["ready_ns"] + part["first_ttft_ns"]
    assert "too few" in part["unsettled"]
    assert part["phases"]["weights"] >= 0.6e9
    assert sum(part["phases"].values()) <= part["ready_ns"]  # none lies within another
    assert b"Inside the server" in (tmp_path / "cold" / "coldstart.html").read_bytes()


def test_a_command_that_dies_is_exit_5_with_the_end_of_its_log(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    done = plimsoll_here(
        "coldstart", "--start", "echo no such model >&2; exit 7", "--url", url, "--out", "c", cwd=tmp_path
    )
    assert done.returncode == 5
    assert "exit code 7" in done.stderr
    assert "no such model" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_server_that_runs_already_is_exit_2_and_nothing_is_started(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as there:
        url = f"http://127.0.0.1:{there.getsockname()[1]}"
        done = plimsoll_here("coldstart", "--start", "touch started", "--url", url, "--out", "c", cwd=tmp_path)
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


def test_what_starts_others_in_sessions_of_their_own_is_asked_before_it_is_killed(tmp_path: Path) -> None:
    marker = f"{6_000_000 + os.getpid()}.5"
    nested = Served(
        f"setsid sh -c 'setsid sleep {marker} & touch {tmp_path}/on; sleep {marker}'", "", tmp_path / "log", 20.0
    )
    wait_for(tmp_path / "on")
    stopped = nested.stop()
    assert not stopped.forced
    assert stopped.took_ns < 10e9
    assert gone(marker)


def test_a_log_of_any_size_has_its_end_told(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        log.truncate(1 << 40)  # a terabyte of nothing, and on no disk
    served = Served("echo no such model; exit 7", "", tmp_path / "log", 5.0)
    try:
        with pytest.raises(HarnessFault, match="exit code 7") as caught:
            look_until_it_ends(served)
    finally:
        served.stop()
        os.truncate(tmp_path / "log", 0)
    assert str(caught.value).endswith("no such model")


def look_until_it_ends(served: Served) -> None:
    until = time.monotonic() + 10
    while time.monotonic() < until:
        served.raise_if_ended()
        time.sleep(0.02)


def test_what_between_leaves_running_holds_nothing_up(tmp_path: Path) -> None:
    began = time.monotonic()
    _between(wanted(between="sleep 3 & echo there"))
    assert time.monotonic() - began < 2.5
    with pytest.raises(HarnessFault, match=r"--between: ended with exit code 4 \(no such thing\)"):
        _between(wanted(between="echo no such thing; exit 4"))


def test_the_warden_killed_takes_the_command_with_it(tmp_path: Path) -> None:
    marker = f"{9_000_000 + os.getpid()}.5"
    served = Served(f"touch {tmp_path}/on; exec sleep {marker}", "", tmp_path / "log", 5.0)
    wait_for(tmp_path / "on")
    served._warden.kill()
    assert gone(marker)
    served.stop()
