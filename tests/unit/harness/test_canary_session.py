"""What ``plimsoll canary`` asks before it sends anything, and what it makes of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from plimsoll.harness.series.comparison.canary_session import _decided, _late
from plimsoll.harness.verbs.cli import command_line
from plimsoll.slo.comparison.canary import LOOKS, Canary, Question, Step, follow
from plimsoll.slo.comparison.quantity import parse_all
from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.promises import Promises
from plimsoll.slo.records.records import Records, Status, from_columns

LOAD = {"name": "chat", "kind": "server", "params": {"rate": 80}, "target": {"protocol": "openai-chat"}}


def asked(folder: Path, *flags: str, load: Any = LOAD) -> Result:
    (folder / "chat.yaml").write_text(yaml.safe_dump(load))
    words = ["canary", str(folder / "chat.yaml"), *flags, "--out", str(folder / "out")]
    return CliRunner().invoke(command_line("canary"), words)


def errors(found: Result) -> Sequence[str]:
    assert found.exception is not None
    return list(getattr(found.exception, "errors", [str(found.exception)]))


def test_every_mistake_is_told_at_once_and_nothing_is_made(tmp_path: Path) -> None:
    found = errors(
        asked(tmp_path, "--steps", "50%,25%", "--metric", "mean(ttft)", "--metric", "p99(nosuch)", "--abort", "if")
    )
    said = "\n".join(found)
    assert "--steps: 50%,25% does not rise" in said
    assert "nosuch is not known here" in said
    assert "--abort: /bin/sh can't read it" in said
    assert "--canary: where is it?" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--steps", "5,25"), "is no list of shares"),
        (("--steps", "10%,100%"), "at 100% no base is beside it, so objectives judge it"),
        (("--metric", "mean(ttft)"), "a canary compares ratios, and percentiles"),
        (("--metric", "p99(itl)"), "a canary compares ratios, and percentiles"),
        (("--step-time", "0s"), "--step-time 0s: nothing takes no time"),
        (("--step-time", "soon"), "--step-time: 'soon' is not a duration"),
    ],
)
def test_what_a_canary_cannot_do_is_refused(flags: tuple[str, ...], said: str, tmp_path: Path) -> None:
    found = errors(asked(tmp_path, "--url", "http://127.0.0.1:9", "--canary", "http://127.0.0.1:8", *flags))
    assert any(said in text for text in found), found


def test_arms_of_other_names_are_refused(tmp_path: Path) -> None:
    arms = {"old": {"share": "50%"}, "new": {"share": "50%"}}
    assert "has the arms base and canary" in errors(asked(tmp_path, load={**LOAD, "arms": arms}))[-1]


def test_an_endpoint_that_is_not_there_is_told_with_its_arm(tmp_path: Path) -> None:
    found = asked(tmp_path, "--url", "http://127.0.0.1:9", "--canary", "http://127.0.0.1:9", "--step-time", "1s")
    assert getattr(found.exception, "code", None) == 5
    assert "base, canary" in errors(found)[0]


S = 1_000_000_000


def rows(slow_from_s: float = 1e9, by: int = 40) -> Records:
    """100 a second for two minutes, of 20 ms each, and from then on ``by`` times as long."""
    due = np.arange(12_000) * (S // 100)
    took = np.random.default_rng(by).lognormal(0, 0.1, 12_000) * 20_000_000
    done = due + (took * np.where(due >= slow_from_s * S, by, 1)).astype(np.int64)
    return from_columns(12_000, due_ns=due, sent_ns=due, done_ns=done, status=int(Status.OK))


def decided(found: Canary, canary: Records, *checks: tuple[str, str, str], interrupted: bool = False) -> Any:
    """``checks``: name, cause and detail of each that is not kept."""
    broken = [SimpleNamespace(name=name, cause=cause, detail=detail, ok=False) for name, cause, detail in checks]
    report: Any = SimpleNamespace(validity=SimpleNamespace(checks=broken))
    promises = Promises(objectives=(parse("p99(latency) <= 100ms"),))
    return _decided(found, canary, report, promises, interrupted)


def promoted() -> Canary:
    """By its first step; the canary has all of the second."""
    steps = (Step(0.5, 0, 60 * S), Step(1.0, 60 * S, 120 * S))
    found = follow(Question(parse_all(["p50(latency)"]), (0.1,), steps), rows(by=1), rows(by=2), 120 * S)
    assert found.outcome == "PROMOTE"
    return found


def test_with_all_of_the_load_objectives_judge_the_canary() -> None:
    word, reasons = decided(promoted(), rows())
    assert (word, reasons[0][:29]) == ("PROMOTE", "p50(latency) is no worse than")
    word, reasons = decided(promoted(), rows(slow_from_s=60))
    assert word == "ABORT"
    assert reasons[0].startswith("with all of the load p99(latency) <= 100ms: ")


def test_a_run_that_the_generator_spoilt_promotes_nothing_and_an_abort_stands() -> None:
    lost = ("workers", "generator", "class base: worker faults: one")
    assert decided(promoted(), rows(), lost) == ("INVALID", [lost[2]])
    steps = (Step(0.5, 0, 60 * S),)
    slow = follow(Question(parse_all(["p50(latency)"]), (0.1,), steps), rows(by=1), rows(0, by=2), 60 * S)
    assert decided(slow, rows(0, by=2), lost)[0] == "ABORT"
    assert decided(Canary(slow.question), rows(), interrupted=True)[0] == "INTERRUPTED"


def test_a_canary_that_alone_does_not_keep_up_is_aborted() -> None:
    canary, base = (("steady", "endpoint", f"class {name}: the backlog grew") for name in ("canary", "base"))
    assert decided(promoted(), rows(), canary)[0] == "ABORT"
    assert decided(promoted(), rows(), canary, base)[0] == "INVALID", "two queues that grow say nothing"


@pytest.mark.parametrize(("lag_ms", "late"), [(0, False), (1, False), (8, True)])
def test_lateness_that_decides_is_taken_off_the_arm_that_looked_worse_by_it(lag_ms: int, late: bool) -> None:
    """A canary of 20 ms that is sent too late looks slower than it is."""
    due = np.arange(6_000) * (S // 100)
    took = (np.random.default_rng(5).lognormal(0, 0.1, 6_000) * 20_000_000).astype(np.int64)

    def arm(took: Any, lag_ns: int) -> Records:
        sent = due + lag_ns
        return from_columns(
            6_000, due_ns=due, ready_ns=sent, sent_ns=sent, first_byte_ns=sent + took, done_ns=sent + took,
            status=int(Status.OK),
        )  # fmt: skip

    canary = arm(took * (2 if lag_ms < 8 else 1), lag_ms * 1_000_000)
    arms = [arm(took, 0), canary]
    steps = (Step(0.5, 0, 60 * S),)
    found = follow(Question(parse_all(["p50(latency)"]), (0.1,), steps), arms[0], arms[1], 60 * S)
    assert found.outcome == "ABORT"
    assert _late(found, arms[0], arms[1]) is late
    found = follow(found.question, arms[0], arms[1], 60 * S, _late)
    assert found.outcome == "ABORT"
    assert (found.last[-1].look == LOOKS - 1) is late, "what lateness decides, the next look decides"
