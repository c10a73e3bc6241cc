"""Start and Stop of Locust as a coordinator of its own, with neither Locust nor a process."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("gevent")

from plimsoll.harness.distributed import relay
from plimsoll.harness.distributed.relay import StartButton
from plimsoll.harness.process import child


class Hook:
    """One of Locust's event hooks."""

    def add_listener(self, listener: Any) -> None:
        self.listener = listener


class Coordinator:
    """A process that ends when it is told how."""

    def __init__(self, command: list[str], **_: Any) -> None:
        self.command, self.signals, self.code = command, list[int](), 0

    def send_signal(self, number: int) -> None:
        self.signals.append(number)

    def wait(self) -> int:
        return self.code


class Bench:
    """A button and everything that it is connected to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, headless: bool, **options: Any) -> None:
        self.over: list[Any] = []
        self.calls: list[str] = []
        monkeypatch.setattr(relay.gevent, "spawn", lambda *call: self.over.append(call))
        monkeypatch.setattr(relay.subprocess, "Popen", Coordinator)
        monkeypatch.setattr(relay, "Lines", lambda *_: SimpleNamespace(close=lambda: None))
        monkeypatch.setattr(relay, "FileObject", lambda number, mode: relay.os.close(number))
        events = SimpleNamespace(test_start=Hook(), test_stop=Hook(), quitting=Hook())
        parsed = SimpleNamespace(headless=headless, autostart=False, autoquit=-1, csv_prefix="", **options)
        self.environment = SimpleNamespace(events=events, parsed_options=parsed, host=None, process_exit_code=None)
        runner = SimpleNamespace(quit=lambda: self.calls.append("quit"), stop=lambda: self.calls.append("stop"))
        self.office = SimpleNamespace(attach=lambda lines, **_: None, reachable=2)
        self.button = StartButton(self.environment, runner, self.office, lambda: 2)  # type: ignore[arg-type]

    @property
    def process(self) -> Coordinator:
        found = self.button._process
        assert isinstance(found, Coordinator)
        return found

    def end(self, code: int) -> None:
        if self.button._process is not None:
            self.process.code = code
        work, *arguments = self.over.pop()
        work(*arguments)


@pytest.mark.parametrize(("headless", "then"), [(True, "quit"), (False, "stop")])
def test_the_exit_code_is_the_coordinators(monkeypatch: pytest.MonkeyPatch, headless: bool, then: str) -> None:
    bench = Bench(monkeypatch, headless, plimsoll_scenario="smoke")
    bench.button.start()
    words = child.command("plimsoll", "run", "smoke")
    assert bench.process.command[: len(words)] == words
    bench.end(4)
    assert (bench.environment.process_exit_code, bench.calls) == (4, [then])


def test_a_coordinator_that_was_killed_has_the_shells_code(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, True)
    bench.button.start()
    bench.end(-9)
    assert bench.environment.process_exit_code == 137


def test_stop_is_one_ctrl_c_and_none_when_locust_stops_because_nobody_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, True)
    bench.button.start()
    bench.office.reachable = 0
    bench.button.stop()
    assert bench.process.signals == []
    bench.office.reachable = 1
    bench.button.stop()
    bench.button.stop()
    assert bench.process.signals == [signal.SIGINT]


def test_a_second_start_is_refused_until_the_first_has_its_verdict(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(monkeypatch, False)
    bench.button.start()
    first = bench.process
    bench.button.start()
    assert bench.process is first
    assert "not sealed yet" in caplog.text
    bench.end(0)
    bench.button.start()
    assert bench.process is not first
    assert bench.process.signals == []


def test_words_that_make_no_command_are_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(monkeypatch, True, plimsoll_flags="--option 'a")
    bench.button.start()
    assert "--plimsoll-flags" in caplog.text
    bench.end(0)
    assert (bench.environment.process_exit_code, bench.calls) == (2, ["quit"])


def test_a_start_takes_from_the_form_what_is_the_forms_and_the_rest_from_the_command_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(monkeypatch, False, plimsoll_scenario="smoke", plimsoll_rate="40", plimsoll_flags="--seed 7")
    options = bench.environment.parsed_options
    options.plimsoll_rate, options.plimsoll_flags, options.plimsoll_out = "80", "--format html=/etc/x", "/etc/y"
    bench.environment.host = "http://evil.example"
    bench.button.start()
    words = bench.process.command[bench.process.command.index("run") :]
    assert words[:5] == ["run", "smoke", "--rate=80", "--seed", "7"]
    assert not [word for word in words if "etc" in word or "evil" in word]
    bench.end(0)
    options.plimsoll_rate = "${env:HOME}"
    bench.button.start()
    assert "nothing that the start form takes" in caplog.text
    bench.end(0)


def test_an_exit_code_0_is_no_warning(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    for code, level in ((0, "INFO"), (4, "WARNING")):
        bench = Bench(monkeypatch, True)
        bench.button.start()
        bench.end(code)
        assert (caplog.records[-1].levelname, caplog.records[-1].getMessage()) == (
            level,
            f"the run ended with exit code {code}",
        )
