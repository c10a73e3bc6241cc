"""An agent under real Locust stays for every run of every verb that makes several. About a minute."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.plimsoll import PLIMSOLL, Server, only_late, server
from tests.e2e.test_locust_agents import Host, free_port

pytestmark = pytest.mark.e2e
SHORT = ("--duration", "1s", "--workers", "1", "--warmup", "0s")
#: What each verb is given besides its folder, and how many runs come of it.
VERBS = {
    "sweep": (("--url", "{url}", "--vary", "rate=20,30", "--cooldown", "0s", *SHORT), 2),
    "search": (
        ("--url", "{url}", "--start", "20", "--lowest", "20", "--highest", "20", "--slo", "p50(latency) <= 9s",
         "--probe", "1s", "--cooldown", "0s", "--no-confirm", "--workers", "1"), 1,
    ),
    "compare": (
        ("--interleave", "smoke", "--arm", "a={url}", "--arm", "b={url}", "--repeats", "1", "--cooldown", "0s", *SHORT),
        2,
    ),
    "bakeoff": (("b.yaml",), 2),
    "coldstart": (
        ("--start", f"{sys.executable} -m plimsoll.reference_server --http-port {{port}} --model scripted", "--url",
         "http://127.0.0.1:{port}", "--repeats", "1", "--requests", "5"), 2,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    found = Host(tmp_path_factory.mktemp("series"))
    found.agent("a")
    yield found
    found.end()


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Server]:
    with server("--model", "scripted") as found:
        yield found


def runs_of(folder: Path) -> list[dict[str, object]]:
    return [json.loads(path.read_text()) for path in sorted(folder.rglob("manifest.json"))]


@pytest.mark.parametrize("verb", VERBS)
def test_an_agent_sends_every_run(verb: str, host: Host, endpoint: Server) -> None:
    words, count = VERBS[verb]
    arms = "".join(f"  - {{name: {name}, url: '{endpoint.url}'}}\n" for name in "ab")
    load = "load: {kind: server, rate: 20, duration: 1s, workers: 1}\n"
    (host.path / "b.yaml").write_text(f"arms:\n{arms}{load}repeats: 1\ncooldown: 0s\n")
    port = free_port()
    given = [word.format(url=endpoint.url, port=port) for word in words]
    out = f"{verb}-{port}"  # a second try has a folder of its own
    shared = ("--locust-master", f"127.0.0.1:{host.port}", "--live", "--retries", "1", "--out", out)
    made = host.start(out, *PLIMSOLL, verb, *given, *shared)
    made.wait(100)
    found = runs_of(host.path / out)
    assert len(found) >= count, host.said(out)
    assert all([agent["name"] for agent in run["agents"]] == ["a"] for run in found), host.said(out)  # type: ignore[attr-defined]
    assert host.said(out).count("live view: ") >= count
    late = all(only_late(path.parent) for path in (host.path / out).rglob("manifest.json"))
    assert made.returncode in (0, 3) or (made.returncode == 4 and late), host.said(out)  # a busy machine, twice
