"""The manifests of docs/examples are what the controllers' published schemas take, and their commands can be typed.

tests/e2e/test_rollout.py runs them.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from plimsoll.scenarios.spec import parse
from tests.test_docs import ROOT, read_command
from tests.unit.test_workflow_example import run

EXAMPLES = ROOT / "docs" / "examples"
PUBLISHED = Path(__file__).parent / "published"


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((EXAMPLES / name).read_text(encoding="utf-8")))


def published(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((PUBLISHED / name).read_text(encoding="utf-8"))
    return found


def strict(schema: Any, inside: bool = False) -> Any:
    """As ``kubectl apply`` is strict: a field that the schema does not know is an error, not dropped.

    ``inside``: of ``oneOf`` and the like, which say more about an object that is described elsewhere.
    """
    if isinstance(schema, list):
        return [strict(one, inside) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: strict(value, inside or key in ("oneOf", "anyOf", "allOf", "not")) for key, value in schema.items()}
    known = isinstance(schema.get("properties"), dict) and schema.get("type") == "object"
    if known and not inside and not schema.get("x-kubernetes-preserve-unknown-fields"):
        found.setdefault("additionalProperties", False)
    return found


def errors(schema: Any, document: Any) -> list[str]:
    return [f"{one.json_path}: {one.message}" for one in Draft7Validator(schema).iter_errors(document)]


KINDS = [
    ("rollout-argo-job.yaml", "argo-analysis-template.json"),
    ("rollout-argo-web.yaml", "argo-analysis-template.json"),
    ("rollout-flagger.yaml", "flagger-canary.json"),
]


@pytest.mark.parametrize(("name", "schema"), KINDS)
def test_a_manifest_is_what_the_published_schema_takes(name: str, schema: str) -> None:
    (document,) = documents(name)
    assert errors(strict(published(schema)), document) == []


@pytest.mark.parametrize(("name", "schema"), KINDS)
def test_a_misspelt_field_of_a_manifest_would_be_found(name: str, schema: str) -> None:
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    for field in ("backoffLimit", "containers", "jsonPath", "timeoutSeconds", "webhooks", "threshold", "timeout"):
        if f"{field}:" in text:
            assert errors(strict(published(schema)), yaml.safe_load(text.replace(f"{field}:", f"{field}s:", 1))), field


@pytest.mark.parametrize("name", ["rollout-github.yml", "workflow.yml"])
def test_a_workflow_is_what_the_published_schema_takes(name: str) -> None:
    (document,) = documents(name)
    document["on"] = document.pop(True)  # YAML 1.1 reads the key as a truth value; GitHub reads 1.2
    assert errors(published("github-workflow.json"), document) == []
    del document["jobs"]
    assert errors(published("github-workflow.json"), document)


def pod(document: dict[str, Any]) -> dict[str, Any]:
    """The pod of a Deployment or of a Job's metric."""
    spec = document["spec"]
    if "metrics" in spec:
        spec = spec["metrics"][0]["provider"]["job"]["spec"]
    found: dict[str, Any] = spec["template"]["spec"]
    return found


def test_the_hooks_pod_is_one_its_scenario_is_one_and_the_others_ask_at_its_address() -> None:
    scenario, deployment, service = documents("rollout-hook.yaml")
    metric = published("argo-analysis-template.json")["properties"]["spec"]["properties"]["metrics"]["items"]
    job = metric["properties"]["provider"]["properties"]["job"]["properties"]["spec"]["properties"]["template"]
    assert errors(strict(job["properties"]["spec"]), pod(deployment)) == []
    assert parse(yaml.safe_load(scenario["data"]["chat.yaml"]), "chat.yaml").objectives
    assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"]
    address = "http://{name}.{namespace}/".format(**service["metadata"])
    (web,), (canary,) = documents("rollout-argo-web.yaml"), documents("rollout-flagger.yaml")
    asked = [hook["url"] for hook in canary["spec"]["analysis"]["webhooks"]]
    assert asked == [f"{address}flagger"] * 2
    assert web["spec"]["metrics"][0]["provider"]["web"]["url"] == f"{address}argo"


@pytest.mark.parametrize(("name", "index"), [("rollout-hook.yaml", 1), ("rollout-argo-job.yaml", 0)])
def test_a_containers_command_can_be_typed(name: str, index: int) -> None:
    (container,) = pod(documents(name)[index])["containers"]
    assert container["command"] == ["plimsoll"]
    read_command(container["args"])


@pytest.mark.parametrize("code", [0, 1, 2, 4, 5])
def test_the_workflows_canary_ends_as_plimsoll_does(code: int, tmp_path: Path) -> None:
    (workflow,) = documents("rollout-github.yml")
    (script,) = [step["run"] for step in workflow["jobs"]["canary"]["steps"] if step.get("name") == "Canary"]
    found, calls = run(script, tmp_path, code)
    assert found == code
    assert len(calls) == 1
    read_command(shlex.split(script.replace("\\\n", " "))[1:])
