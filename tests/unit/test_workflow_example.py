"""The example workflow does what docs/guide/ci.md says of exit codes; its scripts run in bash -e, as the runner runs
them.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.test_docs import ROOT, read_command

WORKFLOW = ROOT / "docs" / "examples" / "workflow.yml"


def steps() -> dict[str, str]:
    document: dict[str, Any] = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    return {step.get("name", step["run"]): step["run"] for step in document["jobs"]["gate"]["steps"] if "run" in step}


def run(script: str, folder: Path, *codes: int) -> tuple[int, list[str]]:
    """The exit code of a step, and the command lines that a stand-in for plimsoll was called with."""
    answers = folder / "codes"
    answers.write_text("\n".join(map(str, codes)))
    fake = folder / "plimsoll"
    fake.write_text(
        f'#!/bin/sh\necho "$@" >> {folder}/calls\n'
        f"code=$(head -n 1 {answers}); tail -n +2 {answers} > {answers}.rest; mv {answers}.rest {answers}; exit "
        f"${{code:-0}}\n"
    )
    fake.chmod(0o755)
    env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "GITHUB_STEP_SUMMARY": str(folder / "summary")}
    done = subprocess.run(["bash", "-e", "-c", script], cwd=folder, env=env, timeout=20, check=False)
    return done.returncode, (folder / "calls").read_text().splitlines()


@pytest.mark.parametrize(("answer", "code"), [(0, 0), (1, 0), (3, 0), (4, 0), (2, 2), (5, 5), (70, 70), (130, 130)])
def test_plimsoll_itself_measures_again_and_verdicts_are_left_to_the_gate(
    answer: int, code: int, tmp_path: Path
) -> None:
    found, calls = run(steps()["Send the load"], tmp_path, answer)
    assert (found, len(calls)) == (code, 1)
    assert "--retries 2" in calls[0]


@pytest.mark.parametrize("code", [0, 1, 3, 4])
def test_the_gates_exit_code_is_the_steps(code: int, tmp_path: Path) -> None:
    assert run(steps()["Gate"], tmp_path, code)[0] == code


def test_every_command_in_it_can_be_typed(tmp_path: Path) -> None:
    typed = 0
    for script in steps().values():
        for line in script.replace("\\\n", " ").splitlines():
            if line.strip().startswith("plimsoll "):
                read_command(shlex.split(line)[1:])
                typed += 1
    assert typed == 3
