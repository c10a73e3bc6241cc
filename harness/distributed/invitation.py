"""What an agent is told of a run, and whether what it answers is what the master has. Pure.

No secret travels: a scenario that holds one in the clear is refused here, and each agent resolves references (``${env:NAME}``,
``api_key_env``, ``api_key_file``) from its own environment and files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any
from urllib.parse import urlsplit

from plimsoll.harness.distributed.agents import Agent
from plimsoll.harness.distributed.fleet_messages import LIMIT, line
from plimsoll.harness.secrecy.redaction import redact
from plimsoll.harness.secrecy.secrets import IMPLICIT_KEY, sensitive_values, url_secrets

#: How often an agent sends news of its workers, unless there are so many agents that this made more than ``STATUS_PER_S`` messages a second.
STATUS_NS = 250_000_000
STATUS_PER_S = 1000


def invitations(spec: Mapping[str, Any], agents: Sequence[Agent]) -> tuple[list[dict[str, Any]], list[str]]:
    """The ``plan`` message for each agent, from the spec of any one worker; or why there can be none, in sentences."""
    scenario = deepcopy(dict(spec["scenario"]))
    scenario["target"] = {**scenario["target"], "url": spec["target"]["url"], "model": spec["target"]["model"]}
    if _implied(
        spec["target"], scenario["target"]
    ):  # so that an agent without it says so, and does not ask without a key
        scenario["target"]["api_key_env"] = IMPLICIT_KEY
    message = {
        "type": "plan",
        "scenario": scenario,
        "where": spec["where"],
        "run_id": spec["run_id"],
        "shards": spec["shards"],
        "dealing": spec["dealing"],
        "status_ns": max(STATUS_NS, len(agents) * 1_000_000_000 // STATUS_PER_S),
    }
    faults = literals(scenario["target"])
    if redact(str(spec["target"]["model"])) != spec["target"]["model"]:
        faults.append(
            "target.model: a credential stands in it (a server may name its model so), and would travel to every agent. Give --model"
        )
    size = len(line(message))
    if size > LIMIT // 2:  # the other half is for the list of shards
        faults.append(
            f"the scenario is {size} bytes long, and at most {LIMIT // 2} travel to an agent. Put its data into a file that every agent "
            "has, and name that"
        )
    return [{**message, "mine": list(agent.shards)} for agent in agents], faults


def _implied(resolved: Mapping[str, Any], written: Mapping[str, Any]) -> bool:
    """The master's Authorization header comes from ``IMPLICIT_KEY``: nothing in the scenario gives one."""
    named = written.get("api_key_env") or written.get("api_key_file") or written.get("headers_file")
    named = named or any(name.lower() == "authorization" for name in written.get("headers") or ())
    return not named and any(name.lower() == "authorization" for name, _ in resolved.get("headers", ()))


def literals(target: Mapping[str, Any]) -> list[str]:
    """Which credentials a scenario's target holds in the clear, by where they are."""
    places = {"target.headers": target.get("headers")}
    places |= {f"target.options.{name}": (target.get("options") or {}).get(name) for name in ("headers", "metadata")}
    found = [
        f"{place}.{name}: a credential stands there in the clear, and would travel to every agent. Write ${{env:NAME}}, and set NAME on "
        "each agent"
        for place, pairs in places.items()
        if isinstance(pairs, Mapping)
        for name, value in pairs.items()
        if "${" not in str(value) and sensitive_values([(str(name), str(value))])
    ]
    url = str(target.get("url") or "")
    if url_secrets(url) or urlsplit(url).password:
        found.append(
            "target.url: a credential stands in it, and would travel to every agent. Write it as a header with ${env:NAME}, and set "
            "NAME on each agent"
        )
    return found


def differences(agents: Sequence[Agent], fingerprint: str, payloads: str) -> list[str]:
    """Who computed another plan than the master did, or has other data."""
    found = []
    for agent in agents:
        said = agent.ready or {}
        if {*said.get("fingerprints", {}).values()} - {fingerprint}:
            found.append(
                f"agent {agent} computed another plan than the master. Do both have the same libraries and files?"
            )
        elif said.get("payloads") != payloads:
            found.append(
                f"agent {agent} has other data for this scenario than the master (the digests of its payloads differ). Copy the "
                "master's files there"
            )
    return found
