"""What a cold start makes of its repeats: outcome, exit code, going on, and everything that is refused before a
start.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.secrecy.redaction import learn
from plimsoll.harness.secrecy.secrets import public_shell
from plimsoll.harness.series.coldstart import coldstart_flags as cold
from plimsoll.harness.series.coldstart import coldstart_session as session
from plimsoll.harness.series.coldstart.coldstart_flags import Wanted
from plimsoll.harness.series.coldstart.coldstart_session import Attempt, Ran, thinned
from plimsoll.harness.series.ledger import Session
from plimsoll.reports.documents.coldstart import RepeatPart
from tests.unit.harness.sealed_runs import Full

S = 1_000_000_000
URL = "http://127.0.0.1:9"


def wanted(repeats: int = 3, **changed: Any) -> Wanted:
    goals, errors = cold.goals(changed.pop("slo", ()))
    assert not errors
    fields: dict[str, Any] = {
        "start": "serve", "stop": "", "between": "", "scenario": None, "flags": {"url": URL, "protocol": "openai-chat"},
        "curve": cold.curve_flags(None, None, None), "repeats": repeats, "ready_timeout_ns": S, "path": None,
        "cooldown_ns": 0,
        "stop_timeout_ns": S, "goals": goals, "command": ("plimsoll",), **changed,
    }  # fmt: skip
    return Wanted(**fields)


def repeat(number: int, ready: float = 2.0, **changed: Any) -> RepeatPart:
    fields: dict[str, Any] = {
        "number": number, "complete": True, "port_ns": S, "ready_ns": int(ready * S), "route": "/health",
        "first_status": "OK",
        "first_ttft_ns": S // 10, "first_latency_ns": S // 5, "first_answer_ns": int((ready + 0.1) * S),
        "steady_after": 1,
        "steady_ns": int((ready + 0.2) * S), "steady_level_ns": S // 100, "excess_ns": S // 6, "requests": 121,
        "curve": [(1, S // 5), (2, S // 100)], "stop_forced": False, "stop_ns": 1,
    }  # fmt: skip
    return RepeatPart(**{**fields, **changed})


def document(ran: Ran, **changed: Any) -> dict[str, Any]:
    found: dict[str, Any] = session.document(wanted(**changed), ran).document()
    return found


def test_repeats_without_objectives_are_measured_and_with_them_judged_each() -> None:
    made = tuple(repeat(number, 2 + number / 10) for number in (1, 2, 3))
    found = document(Ran(made, interrupted=False))
    assert (found["outcome"], found["exit_code"]) == ("MEASURED", 0)
    ready = next(part for part in found["spreads"] if part["quantity"] == "ready")
    assert (ready["median"], ready["least"], ready["greatest"], ready["interval"]) == (2.2e9, 2.1e9, 2.3e9, None)
    judged = document(Ran(made, interrupted=False), slo=["ready <= 2.25s", "steady < 3s"])
    assert (judged["outcome"], judged["exit_code"]) == ("FAIL", 1)
    assert [(goal["outcome"], goal["kept"], goal["worst"]) for goal in judged["goals"]] == [
        ("FAIL", 2, 2_300_000_000), ("PASS", 3, 2_500_000_000),
    ]  # fmt: skip


def test_a_quantity_that_a_repeat_does_not_have_keeps_no_objective() -> None:
    made = (repeat(1), repeat(2, steady_ns=None, steady_after=None, unsettled="still changing"))
    found = document(Ran(made, interrupted=False), slo=["steady <= 1h"])
    assert found["goals"][0]["outcome"] == "FAIL"
    assert found["goals"][0]["worst"] is None
    assert any("no steady state found: still changing" in text for text in found["warnings"])


def test_a_warning_names_every_start_that_it_is_true_of() -> None:
    never = {"steady_ns": None, "steady_after": None}
    made = (repeat(1, unsettled="x", **never), repeat(2, unsettled="x", **never), repeat(3, unsettled="y", **never))
    said = [text for text in document(Ran(made, interrupted=False))["warnings"] if "no steady state" in text]
    assert said == ["repeats 1, 2: no steady state found: x", "repeat 3: no steady state found: y"]


def test_a_failed_first_request_and_an_invalid_curve_have_their_exit_codes() -> None:
    failed = repeat(
        1, first_status="HTTP", first_ttft_ns=None, first_latency_ns=None, notes=["the first request failed"]
    )
    assert document(Ran((failed,), interrupted=False))["exit_code"] == 1
    late = repeat(1, invalid=["generator lag"])
    assert document(Ran((late,), interrupted=False))["exit_code"] == 4


def test_what_was_cut_short_is_shown_and_counts_nowhere() -> None:
    cut = RepeatPart(number=2, complete=False, ready_ns=9 * S, notes=["interrupted"])
    found = document(Ran((repeat(1), cut), interrupted=True), slo=["ready <= 3s"])
    assert (found["outcome"], found["exit_code"]) == ("INTERRUPTED", 130)
    assert len(found["repeats"]) == 2
    assert {part["n"] for part in found["spreads"]} == {1}
    assert found["goals"][0]["of"] == 1
    dead = HarnessFault("it died", ExitCode.UNREACHABLE)
    ended = document(Ran((cut,), interrupted=False, fault=dead))
    assert (ended["outcome"], ended["exit_code"]) == ("UNREACHABLE", 5)
    ours = document(Ran((repeat(1),), interrupted=False, fault=HarnessFault("--between: ended with exit code 1")))
    assert (ours["outcome"], ours["exit_code"]) == ("STOPPED", 2)


def test_a_first_start_unlike_the_others_is_told_and_so_is_a_server_that_had_to_be_killed() -> None:
    made = (repeat(1, 9.0), repeat(2, 2.0), repeat(3, 2.1, stop_forced=True), repeat(4, 2.05, excess_ns=-5))
    warnings = document(Ran(made, interrupted=False))["warnings"]
    assert any("the first start took 9.00 s" in text and "--between" in text for text in warnings)
    assert any("repeat 3" in text and "killed" in text for text in warnings)
    assert any("repeat 4" in text and "no warm-up" in text for text in warnings)


def test_a_port_is_no_word_on_readiness() -> None:
    warnings = document(Ran((repeat(1, route=""),), interrupted=False))["warnings"]
    assert any("no health route" in text for text in warnings)


def test_a_scenario_is_read_once_and_a_changed_one_is_no_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, limits = tmp_path / "ed.yaml", list[object]()
    file.write_text("kind: server\ntimeout: 5s\n")

    def measure(wanted: Wanted, out: Path, *_: object) -> Ran:
        file.write_text("kind: server\ntimeout: 7s\n")
        limits.append(wanted.rest(tmp_path / "run").job.scenario.timeout_ns)
        return Ran((repeat(1),), interrupted=True)

    monkeypatch.setattr(session, "measure", measure)
    session.coldstart(wanted(scenario=str(file)), tmp_path / "c", (), Session(as_json=True))
    assert limits == [5 * S]
    with pytest.raises(HarnessFault, match=r"scenario: '\S+ed.yaml \(sha256 \w+\)' there, "):
        session.coldstart(wanted(scenario=str(file)), tmp_path / "c", (), Session(resume=True))


def test_going_on_takes_the_whole_repeats_and_refuses_another_measurement(tmp_path: Path) -> None:
    out = tmp_path / "c"
    cut = RepeatPart(number=3, complete=False)
    out.mkdir()
    found = document(Ran((repeat(1), repeat(2), cut), interrupted=True))
    (out / "coldstart.json").write_text(json.dumps(found))
    assert [part.number for part in session.begin(wanted(), out, resume=True)] == [1, 2]
    with pytest.raises(HarnessFault, match=r"start: 'serve' there, 'other' now\n[^\n]*load: "):
        session.begin(wanted(start="other", curve=cold.curve_flags(5, None, None)), out, resume=True)
    with pytest.raises(HarnessFault, match=r"holds a cold start with 2 of 3 repeats made\. Add --resume"):
        session.begin(wanted(), out, resume=False)
    (out / "coldstart.json").write_text("{}")
    with pytest.raises(HarnessFault, match="damaged or from another version"):
        session.begin(wanted(), out, resume=True)
    assert session.begin(wanted(), tmp_path / "new", resume=False) == ()


@pytest.mark.parametrize(("full_in", "outcome"), [(2, "STOPPED"), (3, "MEASURED")])
def test_a_full_disk_costs_no_repeat(
    full_in: int, outcome: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "c"
    disk = Full(str(out), monkeypatch)

    def one(_wanted: Wanted, number: int, *_: object) -> Attempt:
        disk.full = number >= full_in
        return Attempt(repeat(number))

    monkeypatch.setattr(session, "_one", one)
    monkeypatch.setattr(session, "raise_if_answered", lambda *_: None)
    assert session.coldstart(wanted(), out, (), Session(as_json=True)) == ExitCode.USAGE
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert (found["outcome"], len(found["repeats"]), found["exit_code"]) == (outcome, full_in, ExitCode.USAGE)
    assert f"{out}/coldstart.json could not be written (No space left on device); make room; the same" in said.err
    assert len(json.loads((out / "coldstart.json").read_text())["repeats"]) == full_in - 1

    def no_room(*_: object) -> Attempt:
        raise OSError(28, "No space left on device", str(out / "repeats" / "003"))

    disk.full = False
    monkeypatch.setattr(session, "_one", no_room)
    assert session.coldstart(wanted(), out, (), Session(resume=True, as_json=True)) == ExitCode.USAGE
    said = capsys.readouterr()
    assert len(json.loads(said.out)["repeats"]) == full_in - 1
    assert "error: --out: " in said.err
    assert "repeats/003 cannot be written (No space left on device). Make room" in said.err


def test_only_the_missing_repeats_are_made_and_each_is_written_down_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def measure(_wanted: Wanted, out: Path, before: tuple[RepeatPart, ...], keep: Any, staff: object) -> Ran:
        parts = before
        for number in range(len(before) + 1, 4):
            made.append(number)
            parts = (*parts, repeat(number))
            keep(parts)
            assert len(json.loads((out / "coldstart.json").read_text())["repeats"]) == number
        return Ran(parts, interrupted=False)

    monkeypatch.setattr(session, "measure", measure)
    out = tmp_path / "c"
    out.mkdir()
    (out / "coldstart.json").write_text(json.dumps(document(Ran((repeat(1),), interrupted=True))))
    assert session.coldstart(wanted(), out, (), Session(resume=True, as_json=True)) == 0
    assert made == [2, 3]
    assert b"Each start" in (out / "coldstart.html").read_bytes()


def test_every_mistake_is_told_before_anything_is_started() -> None:
    with pytest.raises(HarnessFault) as caught:
        cold.check(wanted(0, start=" ", path="health", flags={"url": "nonsense", "protocol": "foo"}), ["--x: wrong"])
    said = "\n".join(caught.value.errors)
    for part in ("--x: wrong", "--start", "--repeats 0", "--path health", "--url"):
        assert part in said
    goals, errors = cold.goals(["redy <= 1s", "ready <= soon", "ready >= 1s"])
    assert not goals
    assert len(errors) == 3


def test_a_credential_in_the_command_is_written_nowhere() -> None:
    command = "HF_TOKEN=abcdef123 CUDA_VISIBLE_DEVICES=0 serve --api-key 'sekrit-42' --port 8000"
    shown = public_shell(command)
    assert "abcdef123" not in shown
    assert "sekrit-42" not in shown
    assert "--port 8000" in shown
    assert "CUDA_VISIBLE_DEVICES=0" in shown


@pytest.mark.parametrize(
    "command",
    [
        "docker run -e HF_TOKEN=sekrit-42 image",
        "docker run -e 'HF_TOKEN=sekrit-42' image",
        'docker run --env="HF_TOKEN=sekrit-42" image',
        "curl -H 'Authorization: Bearer sekrit-42' host && serve",
        'curl -H "X-Api-Key: sekrit-42" host && serve',
        "fetch https://me:sekrit-42@host/model && serve",
        "export PASSWORD='sekrit-42 and more'; serve",
    ],
)
def test_a_credential_is_masked_however_a_shell_is_given_it(command: str) -> None:
    shown = public_shell(command)
    assert "sekrit-42" not in shown
    assert "[redacted]" in shown
    assert "sekrit-42" not in json.dumps(document(Ran((), interrupted=True), start=command, between=command))


def test_what_a_reference_stands_for_is_masked_in_the_command() -> None:
    learn(["quiet-value-7"])
    assert public_shell("serve --accept quiet-value-7") == "serve --accept [redacted]"


def test_the_name_of_a_variable_is_no_secret() -> None:
    assert public_shell('docker run -e HF_TOKEN="$MY_TOKEN" image') == 'docker run -e HF_TOKEN="$MY_TOKEN" image'


def test_a_long_curve_is_thinned_where_little_happens_and_its_beginning_never() -> None:
    import numpy as np

    values = np.arange(1.0, 50_001.0)
    values[4] = np.inf
    kept = thinned(values)
    assert [number for number, _ in kept[:200]] == list(range(1, 201))
    assert kept[4] == (5, None)
    assert kept[-1][0] == 50_000
    assert len(kept) <= 500
