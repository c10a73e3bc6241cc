"""An event that does not end is ended with what it started, and keeps nobody: neither the run nor the process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from plimsoll.harness.run.happenings import OUTPUT, Done, Happenings, prepared
from plimsoll.harness.run.job import _masked
from plimsoll.harness.secrecy.redaction import Redactor
from plimsoll.harness.secrecy.secrets import public_output
from plimsoll.scenarios import spec


def done(folder: Path, *, wait_s: float, interrupts: int = 0, **event: Any) -> Done:
    """One event at t0, in a run that is over after ``wait_s`` at the latest."""
    load = {"kind": "server", "params": {"rate": 20}, "stop": {"min_duration": "90s"}}
    events, errors = prepared(spec.parse({**load, "events": [{"at": "0s", "name": "it", **event}]}, "f.yaml"), "f.yaml")
    assert not errors

    async def run() -> Done:
        held = Happenings(events, folder, lambda _: None, cuts=True)
        held.begin(time.monotonic_ns(), "http://127.0.0.1:1", None, lambda _: None)
        over = time.monotonic() + wait_s
        while held.done[0].ended_ns < 0 and time.monotonic() < over:
            await asyncio.sleep(0.02)
        for _ in range(interrupts):
            held.interrupt()
            await asyncio.sleep(0.1)
        await held.end()
        return held.done[0]

    return asyncio.run(run())


def test_events_of_one_moment_begin_in_the_order_of_the_file(tmp_path: Path) -> None:
    """Or chance says which of them has a phase."""
    events = [{"at": "100ms", "name": f"e{place}", "note": "x"} for place in range(8)]
    load = {"kind": "server", "params": {"rate": 20}, "stop": {"min_duration": "90s"}, "events": events}
    made, errors = prepared(spec.parse(load, "f.yaml"), "f.yaml")
    assert not errors

    async def run() -> list[int]:
        held = Happenings(made, tmp_path, lambda _: None, cuts=True)
        held.begin(time.monotonic_ns(), "http://127.0.0.1:1", None, lambda _: None)
        await asyncio.sleep(0.2)
        await held.end()
        return [one.begun_ns for one in held.done]

    for _ in range(5):
        begun = asyncio.run(run())
        assert begun == sorted(begun)
        assert min(begun) >= 100_000_000


def gone(file: Path) -> bool:
    """Whether the process whose number stands in the file ends within a second; a zombie has. No other test has it."""
    pid = int(file.read_text())
    for _ in range(50):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] in "ZX":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    return False


@pytest.mark.parametrize("interrupts", [0, 2])
@pytest.mark.parametrize(
    "command",
    [
        "trap '' TERM; echo $$ > pid; while :; do sleep 1; done",
        # The shell goes at SIGTERM; what it started does not.
        "sh -c 'trap \"\" TERM; echo $$ > pid; while :; do sleep 1; done' & wait",
    ],
)
def test_what_ignores_sigterm_is_killed_though_the_run_was_interrupted_twice(
    command: str, interrupts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    begun = time.monotonic()
    found = done(tmp_path, wait_s=0.5, interrupts=interrupts, run=command)
    assert time.monotonic() - begun < 5
    assert found.fault == "was ended: the run was over before it was done"
    assert gone(tmp_path / "pid")


def test_a_command_that_writes_without_end_is_ended_in_time_and_keeps_the_end_of_what_it_said(tmp_path: Path) -> None:
    found = done(tmp_path, wait_s=20, run="yes \"$(printf '\\033[31m<b>')\"", timeout="500ms")
    assert found.fault == "was ended after 0.5 s (timeout)"
    assert len(found.output) < 2100


def test_a_call_whose_answer_drips_is_ended_by_its_timeout_and_the_process_waits_for_no_thread(tmp_path: Path) -> None:
    """A byte each 0.1 s: no single read takes as long as the timeout."""
    script = """
        import socket, sys, threading, time
        from pathlib import Path
        from tests.unit.harness.test_happenings import done

        def drip(held):
            connection = held.accept()[0]
            connection.recv(65_536)
            connection.sendall(b"HTTP/1.1 200 OK\\r\\n\\r\\n")
            while True:
                connection.sendall(b"x")
                time.sleep(0.1)

        held = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=drip, args=(held,), daemon=True).start()
        url = f"http://127.0.0.1:{held.getsockname()[1]}/"
        print(done(Path(sys.argv[1]), wait_s=20, http={"url": url}, timeout="1s").fault)
        print(done(Path(sys.argv[1]), wait_s=0.5, http={"url": url}).fault)
    """
    words = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=30, env=dict(os.environ), check=False)
    assert ran.stdout.splitlines() == [
        "was ended after 1 s (timeout)",
        "was ended: the run was over before it was done",
    ]
    assert ran.stderr == ""


def test_the_shell_that_a_command_leaves_behind_with_its_output_open_says_nothing_on_our_stderr(tmp_path: Path) -> None:
    script = """
        import sys
        from pathlib import Path
        from tests.unit.harness.test_happenings import done

        print(done(Path(sys.argv[1]), wait_s=20, run="sleep 30 & echo $! > " + sys.argv[1] + "/pid; echo left").output)
    """
    words = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=30, env=dict(os.environ), check=False)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert (ran.stdout, ran.stderr) == ("left\n", "")


def test_what_a_command_says_loses_the_credentials_of_its_environment_and_keeps_no_event_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEPLOY_TOKEN", "quiet-sea-4711")
    said = done(
        tmp_path, wait_s=20, run="echo $DEPLOY_TOKEN | base64; env | grep DEPLOY; echo it was $DEPLOY_TOKEN"
    ).output
    assert said == "[redacted]\nDEPLOY_TOKEN=[redacted]\nit was [redacted]"
    # While this is read by the redactor, the loop does no other event: one is late after 1 s.
    begun = time.process_time()
    for filler in ("a", "-a", "a=", "a: ", 'a" ', 'a":"a', "a\\"):
        assert len(public_output(filler.encode() * 16_000, OUTPUT)) <= OUTPUT + 4
    assert time.process_time() - begun < 0.5


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ({"url": "http://127.0.0.1:99999/"}, ".url: has a port outside 1 to 65535"),
        ({"url": "http://127.0.0.1:9/he alth"}, ".url: has a port outside 1 to 65535, white space"),
        ({"url": "http://127.0.0.1:${env:PLACE}/"}, ".url: has a port outside 1 to 65535"),
        ({"headers": {"a\r\nb": "x"}}, ".headers: header 'a\\r\\nb': not a header name"),
        ({"headers": {"a": "${env:PLACE}"}}, ".headers: header 'a': its value holds a line end"),
    ],
)
def test_a_call_that_cannot_be_sent_is_refused_before_the_load(
    call: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLACE", "9\r\nx: y")
    load = {"kind": "server", "params": {"rate": 20}, "stop": {"min_duration": "90s"}}
    http = {"url": "http://127.0.0.1:9/ok?a=b", "headers": {"Host": "there"}}
    refused = [
        prepared(spec.parse({**load, "events": [{"at": "0s", "http": one}]}, "f.yaml"), "f.yaml")[1]
        for one in (http, {**http, **call})
    ]
    assert refused[0] == []
    assert len(refused[1]) == 1
    assert refused[1][0].startswith(f"f.yaml:events[0].http{says}")
    assert "x: y" not in refused[1][0]


def test_events_of_one_instant_begin_in_the_order_of_the_file(tmp_path: Path) -> None:
    """Else it is chance which of them names the phase that follows."""
    load = {"kind": "server", "params": {"rate": 20}, "stop": {"min_duration": "90s"}}
    given = [{"at": "20ms", "note": "x"} if place % 2 else {"at": "20ms", "run": ":"} for place in range(20)]
    events = prepared(spec.parse({**load, "events": [*given, {"at": "0s", "note": "y"}]}, "f.yaml"), "f.yaml")[0]
    begun: list[str] = []

    async def run() -> None:
        held = Happenings(events, tmp_path, lambda _: None, cuts=True)
        held.begin(time.monotonic_ns(), "", None, lambda one: begun.append(one.name) if one.ended_ns < 0 else None)
        while len(begun) < 21:
            await asyncio.sleep(0.01)
        await held.end()

    asyncio.run(asyncio.wait_for(run(), 20))
    assert begun == ["event 21", *(f"event {number}" for number in range(1, 21))]


def test_a_password_in_the_json_of_a_call_is_written_down_nowhere() -> None:
    plain = '{"password": "quiet-sea-4712", "model": "small"}'
    load = {"kind": "server", "params": {"rate": 20}, "stop": {"min_duration": "90s"}}
    call = {"url": "http://127.0.0.1:9", "body": plain}
    shell = f"curl -d '{plain}' -d {json.dumps(plain.replace('4712', '4713'))} there"
    scenario = spec.parse({**load, "events": [{"at": "0s", "http": call}, {"at": "0s", "run": shell}]}, "f.yaml")
    written = json.dumps(_masked(scenario.to_mapping(), Redactor()))
    assert "quiet-sea" not in written
    assert written.count("small") == 3
