"""The manifests of docs/examples at work: their commands as processes, asked as Argo Rollouts and Flagger ask. 30 s."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.plimsoll import ROOT, begin, only_late, plimsoll, server, wait_for
from tests.unit.test_rollout_examples import documents, pod

pytestmark = pytest.mark.e2e

SCRIPTED = ("--model", "scripted", "--itl", "1ms")
#: What makes the manifests' scenario short. Its own objectives take 299 requests.
SHORT = {
    "params": {"rate": 40},
    "source": {"kind": "synthetic_text", "prompt_tokens": 8, "output_tokens": 4},
    "stop": {"min_queries": 40, "min_duration": "1s"},
    "warmup": "0s",
    "retries": 2,
    "objectives": ["p50(ttft) <= 500ms"],
}


def typed(document: dict[str, Any], folder: Path, more: Mapping[str, Any], **args: str) -> list[str]:
    """The words after ``plimsoll`` of a manifest's container, its paths below ``folder``, the scenario made short."""
    scenario = yaml.safe_load(documents("rollout-hook.yaml")[0]["data"]["chat.yaml"])
    (folder / "scenarios").mkdir()
    (folder / "scenarios" / "chat.yaml").write_text(yaml.safe_dump({**scenario, **SHORT, **more}))
    words = [str(word) for word in pod(document)["containers"][0]["args"]]
    for name, value in args.items():
        words = [word.replace(f"{{{{args.{name}}}}}", value) for word in words]
    return [word.replace("/scenarios", f"{folder}/scenarios").replace("/runs", f"{folder}/runs") for word in words]


def post(url: str, body: Mapping[str, Any], headers: Mapping[str, str], timeout: float) -> tuple[int, str]:
    data = json.dumps(body).encode()
    asked = urllib.request.Request(url, data, {"Content-Type": "application/json", **headers}, method="POST")
    try:
        with urllib.request.urlopen(asked, timeout=timeout) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def flagger(address: str, number: int, checksum: str, **metadata: str) -> tuple[int, str]:
    """A webhook of the manifest as Flagger calls it (pkg/controller/webhook.go): status and text. Up to 202 is go."""
    hook = documents("rollout-flagger.yaml")[0]["spec"]["analysis"]["webhooks"][number]
    body = {"name": "chat", "namespace": "prod", "phase": "Progressing", "checksum": checksum}
    return post(f"{address}/flagger", {**body, "metadata": {**hook["metadata"], **metadata}}, {}, 60)


def argo(address: str, timeout: float | None = None, **args: str) -> str:
    """The phase of a measurement of the manifest's metric (metricproviders/webmetric and utils/evaluate of Argo)."""
    metric = documents("rollout-argo-web.yaml")[0]["spec"]["metrics"][0]
    text = json.dumps(metric["provider"]["web"])
    for name, value in args.items():
        text = text.replace(f"{{{{args.{name}}}}}", value)
    web = json.loads(text)
    assert "{{" not in text
    headers = {one["key"]: one["value"] for one in web["headers"]}
    try:
        status, said = post(f"{address}/argo", web["jsonBody"], headers, timeout or web["timeoutSeconds"])
    except TimeoutError:
        return "Error"
    if not 200 <= status < 300:
        return "Error"
    name = web["jsonPath"].removeprefix("{$.").removesuffix("}")
    result = {"result": json.loads(said)[name]}
    if eval(metric["failureCondition"], {}, result):  # such an expression is one of Python's, too
        return "Failed"
    return "Successful" if eval(metric["successCondition"], {}, result) else "Inconclusive"


@contextmanager
def hook(folder: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The Deployment's process, at a free port of this host."""
    words = typed(documents("rollout-hook.yaml")[1], folder, {})
    words[words.index("--port=8080")] = "--port=0"
    process = begin(*words, "--host=127.0.0.1", cwd=folder, env={"HOOK_TOKEN": "YOUR_TOKEN"})
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["flagger"].removesuffix("/flagger"), process
    finally:
        process.kill()
        process.communicate()


def runs(folder: Path) -> list[Path]:
    return sorted((folder / "runs").iterdir())


def test_the_manifests_of_flagger_and_argo_get_the_verdict_of_one_run_each(tmp_path: Path) -> None:
    with (
        server(*SCRIPTED, "--ttft", "20ms") as quick,
        server(*SCRIPTED, "--ttft", "700ms") as slow,
        hook(tmp_path) as (address, process),
        ThreadPoolExecutor(2) as two,
    ):
        assert flagger(address, 0, "v1", token="another")[0] == 401
        assert flagger(address, 0, "v1", cmd="touch owned")[0] == 400
        first, second = two.map(lambda _: flagger(address, 0, "v1", url=quick.url), range(2))
        assert first[0] == 200, first
        assert first[1].startswith("PASS p50(ttft) <= 500ms")
        assert second == first
        assert len(runs(tmp_path)) == 1

        assert argo(address, 0.5, hash="v2", url=slow.url, token="YOUR_TOKEN") == "Error", "it gave up waiting"
        assert flagger(address, 0, "v3", url=quick.url)[0] == 429
        assert argo(address, hash="v2", url=slow.url, token="YOUR_TOKEN") == "Failed"
        assert argo(address, hash="v2", url=slow.url, token="YOUR_TOKEN") == "Failed"
        assert len(runs(tmp_path)) == 2
        few = flagger(address, 1, "v3", url="http://127.0.0.1:9")
        assert few[0] == 502
        assert "cannot connect" in few[1]

        waiting = two.submit(flagger, address, 1, "v4", url=slow.url, rate="2")
        wait_for(wait_for(tmp_path / "runs" / "*v4*") / "segments" / "*")
        process.send_signal(signal.SIGINT)
        assert waiting.result()[0] == 503
        assert process.wait(20) == 130
    kept = json.loads((runs(tmp_path)[-1] / "report.json").read_text())
    assert "interrupted" in kept["verdict"]["reasons"][0]


def test_the_job_of_argo_fails_without_evidence_and_passes_with_it(tmp_path: Path) -> None:
    (job,) = documents("rollout-argo-job.yaml")
    with server(*SCRIPTED, "--ttft", "20ms") as there:
        for queries, code, outcome in ((3, 1, "INCONCLUSIVE"), (40, 0, "PASS")):
            folder = tmp_path / outcome
            folder.mkdir()
            stop = {"stop": {"min_queries": queries, "min_duration": "0s"}}
            done = plimsoll(*typed(job, folder, stop, url=there.url), cwd=folder)
            assert done.stdout.startswith(outcome), done.stdout + done.stderr
            assert done.returncode == code
            assert ("exit code 1 by --exit-map; the verdict's own is 3" in done.stderr) == (code == 1)


def test_the_canary_of_the_workflow_rolls_back_what_fails(tmp_path: Path) -> None:
    (workflow,) = documents("rollout-github.yml")
    (script,) = [step["run"] for step in workflow["jobs"]["canary"]["steps"] if step.get("name") == "Canary"]
    scenario = {**SHORT, "name": "chat", "kind": "server", "params": {"rate": 80}, "objectives": []}
    (tmp_path / "chat.yaml").write_text(yaml.safe_dump(scenario))
    for name in ("promote", "rollback"):
        (tmp_path / f"{name}.sh").write_text(f"#!/bin/sh\ntouch {name}.ran\n")
        (tmp_path / f"{name}.sh").chmod(0o755)
    command = shlex.join([sys.executable, "-m", "plimsoll"])
    with (
        server(*SCRIPTED, "--ttft", "20ms") as old,
        server(*SCRIPTED, "--ttft", "20ms", "--fault", "error_rate=0.9") as new,
    ):
        for _ in range(3):  # again where nothing but the generator was late, as its message asks for
            done = subprocess.run(
                ["bash", "-e", "-c", f'plimsoll() {{ {command} "$@"; }}\n{script.replace("10m", "15s")}'],
                cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
                env={**os.environ, "PYTHONPATH": str(ROOT), "BASE_URL": old.url, "CANARY_URL": new.url,
                     "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")},
            )  # fmt: skip
            if done.returncode != 4 or not only_late(tmp_path / "canary"):
                break
            shutil.rmtree(tmp_path / "canary")
    assert done.returncode == 1, done.stderr
    assert (tmp_path / "rollback.ran").exists()
    assert not (tmp_path / "promote.ran").exists()
    assert "ABORT" in (tmp_path / "summary.md").read_text()
    assert "::error" in done.stdout
