"""``python -m tests.bench.agents [AGENTS ...]``: what 10, 100 and 1,000 agents cost the master of a distributed run.

One real agent sends a small load over the ``null`` protocol to a real master, through a proxy that keeps what it says.
Then its messages are played for every agent at once, from four light processes, to another real master: Locust's own
(``client_ready``, a heartbeat and a report a second) and ours, each with the agent's own name, shard and rows, at the
time after t0 at which the recorded one was said. No load is sent. Processor time and memory are of the master's two
processes: the coordinator, and Locust's master.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import zmq

from plimsoll.harness.distributed.fleet_messages import cut, pong
from plimsoll.harness.distributed.site import Statuses
from plimsoll.harness.generator.segments import dump_segment, segment_name
from plimsoll.scenarios.plan.blocks import Blocks
from plimsoll.scenarios.plan.plan import Plan
from plimsoll.scenarios.spec import load
from plimsoll.slo.records.records import IntArray
from plimsoll.slo.validity.accounts import digests
from tests.bench.sealing import recorded

RATE, SECONDS, PLAYERS = 10, 20, 4
TICKS = os.sysconf("SC_CLK_TCK")
#: Said by a timer of the agent, whatever happens.
STEADY = ("heartbeat", "stats", "alive")


def scenario_text(agents: int) -> str:
    return (
        f"name: agents\nkind: server\nparams: {{rate: {RATE * agents}, arrival: poisson}}\n"
        f"stop: {{min_duration: {SECONDS}s}}\nsource: {{kind: synthetic_text, count: 1}}\n"
        'target: {protocol: "null"}\nworkers: 1\nwarmup: 0s\nseed: 7\n'
    )


def planned(folder: Path) -> Blocks:
    scenario = load(folder / "agents.yaml")
    return scenario.blocks(len(scenario.source_object()))


def master(folder: Path, agents: int, port: int) -> subprocess.Popen[bytes]:
    words = ["run", str(folder / "agents.yaml"), "--locust-master", f"127.0.0.1:{port}", "--out", str(folder / "run")]
    words += ["--expect-workers", str(agents)]
    with (folder / "master.log").open("wb") as log:
        return subprocess.Popen([sys.executable, "-m", "plimsoll", *words], stdout=log, stderr=log)


# -- one agent's messages ------------------------------------------------------------------------------------------


def kind_of(message: Any) -> str:
    return str(message[1]["type"] if message[0] == "plimsoll" else message[0])


def record(folder: Path, port: int) -> list[tuple[int, Any]]:
    """(monotonic time, (type, data, node)) of all that one agent says in a run, in order."""
    (folder / "agents.yaml").write_text(scenario_text(1))
    said: list[tuple[int, Any]] = []
    with zmq.Context() as context, context.socket(zmq.ROUTER) as near, context.socket(zmq.DEALER) as far:
        near.bind(f"tcp://127.0.0.1:{port + 1}")
        near.linger = far.linger = 0
        run = master(folder, 1, port)
        words = ["agent", "--locust-worker", f"127.0.0.1:{port + 1}", "--name", "a", "--once"]
        agent = subprocess.Popen([sys.executable, "-m", "plimsoll", *words], stderr=subprocess.DEVNULL)
        who = b""
        poller = zmq.Poller()
        poller.register(near, zmq.POLLIN)
        poller.register(far, zmq.POLLIN)
        while agent.poll() is None:
            for socket, _ in poller.poll(200):
                if socket is far:
                    near.send_multipart([who, far.recv()])
                    continue
                sender, data = near.recv_multipart()
                if not who:
                    who = far.identity = sender
                    far.connect(f"tcp://127.0.0.1:{port}")
                said.append((time.monotonic_ns(), msgpack.loads(data, strict_map_key=False)))
                far.send(data)
        run.wait()
    return said


# -- many agents ---------------------------------------------------------------------------------------------------


class Part:
    """What one agent says after t0, as bytes: (seconds after t0, bytes), and its last word."""

    def __init__(
        self, said: list[tuple[int, Any]], plan: Plan, owners: IntArray, index: int, fingerprint: str, every: float
    ) -> None:
        self.name, self.index = f"a{index:04d}", index
        ours = [(at, data) for at, (kind, data, _) in said if kind == "plimsoll"]
        self.first = {data["type"]: data for _, data in ours}
        self.steady = {kind_of(one): self.wrapped(*one[:2]) for _, one in said if kind_of(one) in STEADY}
        t0 = min(at for at, data in ours if data["type"] == "workers") - 250_000_000
        self.pieces = 0
        self.says: list[tuple[float, bytes]] = []
        statuses = Statuses()
        for at, data in ours:
            after = (at - t0) / 1e9
            if data["type"] == "workers":
                for _, line in data["lines"]:
                    statuses.add(index, line)
                if after % every < 0.25:
                    self.says += [(after, self.ours(type="workers", lines=lines)) for lines in statuses.take(1 << 17)]
            elif data["type"] == "intervals":
                self.says.append((after, self.ours(**data)))
        self._rows(plan, owners)
        ready, prints = self.first["ready"], {str(index): fingerprint}
        self.ready = self.ours(**{**ready, "fingerprints": prints})
        self.says.sort(key=lambda pair: pair[0])

    def wrapped(self, kind: str, data: Any) -> bytes:
        """A message as Locust sends it (``locust.rpc.Message.serialize``)."""
        return bytes(msgpack.dumps((kind, data, self.name)))

    def ours(self, **data: Any) -> bytes:
        return self.wrapped("plimsoll", data)

    def _rows(self, plan: Plan, owners: IntArray) -> None:
        """A segment a second of its own shard, and the account of them."""
        mine = owners == self.index
        rows = recorded(plan.query_id[mine], plan.due_ns[mine], self.index, 0)
        second, digest, segments = rows["due_ns"] // 1_000_000_000, sum(digests(rows).values()) % (1 << 64), 0
        for now in np.unique(second).tolist():
            dump_segment(buffer := BytesIO(), rows.select(second == now))
            for piece in cut(segment_name(self.index, segments), buffer.getvalue()):
                self.says.append((now + 1.3, self.ours(**piece)))
                self.pieces += 1
            segments += 1
        (done,) = self.first["finished"]["done"].values()
        counts = {"sent": len(rows), "rows": len(rows), "digest": digest, "segments": segments}
        done = {**done, "account": {**done["account"], **counts}}
        self.finished = self.ours(**{**self.first["finished"], "done": {str(self.index): done}})


class Agent:
    """One agent on its socket, from ``client_ready`` to ``bye``."""

    def __init__(self, part: Part, socket: Any, happened: dict[str, list[float]]) -> None:
        self.part, self.socket, self.happened = part, socket, happened
        self.over, self.taken = False, 0

    def run(self) -> None:
        while not self.over:
            kind, data, _ = msgpack.loads(self.socket.recv(), strict_map_key=False)
            if kind == "ack":
                hello = {**self.part.first["hello"], "name": self.part.name, "wall_ns": time.time_ns()}
                self.socket.send(self.part.ours(**hello))
                gevent.spawn(self.steady)
            elif kind == "plimsoll":
                self.told(data["type"], data)

    def told(self, kind: str, data: dict[str, Any]) -> None:
        self.happened.setdefault(kind, []).append(time.monotonic())
        if kind == "ping":
            self.socket.send(self.part.ours(**pong(data, time.monotonic_ns(), time.time_ns())))
        elif kind == "plan":
            assert data["mine"] == [self.part.index], "shards are dealt in another order"
            self.socket.send(self.part.ready)
        elif kind == "go":
            gevent.spawn(self.say, int(data["t0_ns"]) / 1e9)
        elif kind == "taken":
            self.taken += 1
        elif kind in ("bye", "refused", "orphaned"):
            self.socket.send(self.part.ours(type="ended", code=0))
            self.over = True

    def steady(self) -> None:
        while not self.over:
            gevent.sleep(1.0)
            for data in self.part.steady.values():
                self.socket.send(data)

    def say(self, t0_s: float) -> None:
        for after, data in self.part.says:
            gevent.sleep(max(0.0, t0_s + after - time.monotonic()))
            self.socket.send(data)
        while self.taken < self.part.pieces and not self.over:
            gevent.sleep(0.05)
        self.happened.setdefault("finished", []).append(time.monotonic())
        self.socket.send(self.part.finished)


def play(folder: Path, first: int, last: int, agents: int, port: int) -> None:
    """Agents ``first`` to ``last`` (not included). Says ``prepared``, waits for a line, and says when what happened."""
    said = msgpack.loads((folder / "said").read_bytes(), strict_map_key=False)
    plan = planned(folder).whole()
    every, fingerprint = max(0.25, agents / 1000), plan.fingerprint()
    owners = plan.owners(agents, "lots")
    parts = [Part(said, plan, owners, index, fingerprint, every) for index in range(first, last)]
    print("prepared", flush=True)
    sys.stdin.readline()
    happened: dict[str, list[float]] = {"began": [time.monotonic()]}
    context = green.Context()
    sockets = []
    for part in parts:
        sockets.append(socket := context.socket(zmq.DEALER))
        socket.identity = part.name.encode()
        socket.connect(f"tcp://127.0.0.1:{port}")
        socket.send(part.wrapped("client_ready", said[0][1][1]))
    live = [gevent.spawn(Agent(part, socket, happened).run) for part, socket in zip(parts, sockets, strict=True)]
    gevent.joinall(live, raise_error=True)
    happened["cpu"] = [sum(os.times()[:2])]
    print(json.dumps(happened), flush=True)
    context.destroy(linger=1000)


# -- the master ----------------------------------------------------------------------------------------------------


def tree(pid: int) -> list[int]:
    """The coordinator and Locust's master below it."""
    return [pid, *(int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


def used(pid: int) -> tuple[float, float]:
    """(CPU seconds, peak MB) so far."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    peak = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return (int(words[11]) + int(words[12])) / TICKS, int(peak.split()[1]) / 1024


def measure(folder: Path, agents: int, port: int) -> None:
    (folder / "agents.yaml").write_text(scenario_text(agents))
    bounds = [agents * number // PLAYERS for number in range(PLAYERS + 1)]
    here = [sys.executable, "-m", "tests.bench.agents", "play", str(folder)]
    players = [
        subprocess.Popen(
            [*here, *map(str, (first, last, agents, port))], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for first, last in pairwise(bounds)
    ]
    for player in players:
        assert player.stdout is not None
        assert player.stdout.readline() == "prepared\n"
    run = master(folder, agents, port)
    while "waiting for" not in (folder / "master.log").read_text():
        time.sleep(0.05)
        assert run.poll() is None, (folder / "master.log").read_text()
    for player in players:
        assert player.stdin is not None
        player.stdin.write("\n")
        player.stdin.flush()
    seen: list[tuple[float, list[tuple[float, float]]]] = []
    while run.poll() is None:
        try:
            seen.append((time.monotonic(), [used(pid) for pid in tree(run.pid)]))
        except (OSError, StopIteration):  # it is ending
            break
        time.sleep(0.1)
    code = run.wait()
    happened: dict[str, list[float]] = {}
    for player in players:
        for name, times in json.loads(player.communicate()[0]).items():
            happened.setdefault(name, []).extend(times)
    assert "finished" in happened, (folder / "master.log").read_text()
    say(folder, agents, code, seen, happened)


def say(folder: Path, agents: int, code: int, seen: list[Any], happened: dict[str, list[float]]) -> None:
    began, go, done = min(happened["began"]), max(happened["go"]), max(happened["finished"])

    def cpu(at_s: float, which: int) -> float:
        return float(next(use[which][0] for at, use in seen if at >= at_s and len(use) > which))

    figures = [f"{agents} agents, exit code {code}: told the plan after {max(happened['plan']) - began:.1f} s"]
    figures += [f"t0 said after {go - began:.1f} s", f"{done - go:.1f} s to the last word, of {SECONDS} s of load"]
    for which, name in enumerate(("coordinator", "Locust's master")):
        during = cpu(done, which) - cpu(go, which)
        peak = max(use[which][1] for _, use in seen if len(use) > which)
        figures.append(
            f"{name}: {cpu(go, which):.1f} CPU-s before t0, {1e6 * during / agents / SECONDS:.0f} us an "
            f"agent-second of load after it ({during / SECONDS:.2f} cores), peak {peak:.0f} MB"
        )
    report = json.loads((folder / "run" / "report.json").read_text())
    manifest = json.loads((folder / "run" / "manifest.json").read_text())
    worst = max(agent["clock"]["error_ns"] for agent in manifest["agents"]) / 1e6
    figures.append(f"sealed and judged {seen[-1][0] - max(happened['bye']):.1f} s after the last bye")
    figures.append(
        f"clocks known to {worst:.2f} ms, {manifest['handed_over']}, players {sum(happened['cpu']):.0f} CPU-s"
    )
    figures.append(
        f"{report['counts']['ok']} of {report['validity']['planned']} rows; {str(report['validity']['reasons'])[:200]}"
    )
    print("\n  ".join(figures), flush=True)


def main() -> int:
    """Record one agent, then play 10, 100 and 1,000 of it."""
    with tempfile.TemporaryDirectory() as path:
        folder, port = Path(path), 20_000 + os.getpid() % 10_000
        (folder / "said").write_bytes(msgpack.dumps(record(folder, port)))
        (folder / "run").rename(folder / "run-of-1")
        for agents in [int(text) for text in sys.argv[1:]] or [10, 100, 1000]:
            measure(folder, agents, port)
            (folder / "run").rename(folder / f"run-of-{agents}")
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["play"]:
        import gevent
        import zmq.green as green

        play(Path(sys.argv[2]), *map(int, sys.argv[3:7]))
    else:
        sys.exit(main())
