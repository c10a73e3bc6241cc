"""``python -m plimsoll.harness.distributed.site``: one agent's part of a distributed run, in a process of its own that
nobody has patched.

Messages of the master come on stdin and answers go to stdout (``harness/distributed/fleet_messages.py``), through
whatever carries them. The site starts the ordinary crew for its shards and passes on what the workers say; it sends no
query itself and holds no clock that is measured. If stdin closes, the master is gone: the workers are stopped, and what
they measured stays on this host's disk.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from plimsoll.harness.distributed.agents import code_digest
from plimsoll.harness.distributed.fleet_messages import ALIVE_S, IDLE, LIMIT, WINDOW, batches, cut
from plimsoll.harness.distributed.intervals import Merged, marking, rows_of, split
from plimsoll.harness.distributed.own_rows import OwnRows, facts_of, folder_of
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.generator.recorder import FRESH, spreads_of
from plimsoll.harness.generator.segments import dump_segment, load_segment, spilled
from plimsoll.harness.generator.worker import Voice
from plimsoll.harness.host import limits
from plimsoll.harness.host.manifest import build, host_facts, package_version
from plimsoll.harness.process import outlet
from plimsoll.harness.protocols._discovery import protocols
from plimsoll.harness.run.ahead import Ahead
from plimsoll.harness.run.coordinator import worker_spec
from plimsoll.harness.run.crew import Crew
from plimsoll.harness.run.host_check import needed
from plimsoll.harness.run.job import public_scenario, target_of
from plimsoll.harness.run.readiness import reach
from plimsoll.harness.run.rundir import RunDirectory
from plimsoll.harness.sealing.accounts import account_of, planned, start
from plimsoll.harness.sealing.plan_file import Share
from plimsoll.harness.sealing.workforce import Member
from plimsoll.harness.secrecy.redaction import Guarded
from plimsoll.harness.transport.client import Target
from plimsoll.scenarios.plan.blocks import Extent, Survey
from plimsoll.scenarios.samples.payload import payload_digest
from plimsoll.scenarios.spec import Scenario, ScenarioError, parse
from plimsoll.slo.metrics.plugin import PluginError
from plimsoll.slo.records.foreign import one_line
from plimsoll.slo.records.records import Records, Status

# -- what the site sends -------------------------------------------------------------------------------------------


class Courier:
    """Sends sealed files over ``say`` in pieces, a few on their way at a time; ``heard`` takes the master's ``taken``
    and ``again``.

    A file counts as handed over when the master says that it has it; until then it is on this host's disk.
    """

    def __init__(self, say: Callable[[Mapping[str, Any]], None]) -> None:
        self._say = say
        self._window = asyncio.Semaphore(WINDOW)
        self._open: dict[str, Path | bytes] = {}
        self._resend: asyncio.Queue[str] = asyncio.Queue()
        self._changed = asyncio.Event()
        self.sent: set[str] = set()
        #: Files that the master would not take.
        self.rejected: list[str] = []

    async def send(self, name: str, content: Path | bytes) -> None:
        """Send one file; returns when its last piece has left. Raises OSError if it can't be read."""
        self.sent.add(name)
        self._open[name] = content
        await self._pass(name)
        while not self._resend.empty():
            await self._pass(self._resend.get_nowait())

    async def _pass(self, name: str) -> None:
        content = self._open[name]
        data = content if isinstance(content, bytes) else content.read_bytes()
        for piece in cut(name, data):
            await self._window.acquire()
            self._say(piece)

    def heard(self, message: Mapping[str, Any]) -> None:
        """The master's answer to a piece."""
        name = str(message["file"])
        self._window.release()
        if message["type"] == "again":
            self._resend.put_nowait(name)
        elif message["whole"]:
            self._open.pop(name, None)
            if not message["good"]:
                self.rejected.append(name)
        self._changed.set()

    async def settled(self) -> None:
        """Wait until the master has said of every file what became of it."""
        while self._open:
            self._changed.clear()
            while not self._resend.empty():
                await self._pass(self._resend.get_nowait())
            if self._open:
                await self._changed.wait()


class Statuses:
    """What each worker said since the last ``take``."""

    def __init__(self) -> None:
        self._held: dict[int, dict[str, Any]] = {}

    def add(self, shard: int, message: Mapping[str, Any]) -> None:
        """One worker's ``status`` line."""
        before = self._held.get(shard)
        self._held[shard] = dict(message)
        if before is not None:
            known = dict(spreads_of(before))
            sums = {name: Counter(known.get(name, {})) + Counter(bins) for name, bins in spreads_of(message)}
            self._held[shard] |= {name: sums.pop(name) for name in FRESH}
            others = {**before.get("others", {}), **sums}
            self._held[shard] |= {"others": others} if others else {}

    def take(self, room: int) -> Iterator[list[tuple[int, dict[str, Any]]]]:
        """(shard, line) of every worker that said something, in lists whose JSON stays below ``room`` bytes.

        A line alone is bounded: a histogram has at most some 1,500 bins (32 an octave, from 1 ns to an hour) of 16
        bytes.
        """
        held, self._held = self._held, {}
        return batches(
            ((pair, 256 + 16 * sum(len(bins) + 8 for _, bins in spreads_of(pair[1]))) for pair in sorted(held.items())),
            room,
        )


# -- the site ------------------------------------------------------------------------------------------------------

#: The environment variable with this host's region, for agents that Locust's own command line starts.
REGION = "PLIMSOLL_REGION"
#: How often the folder of segments is looked at.
LOOK_S = 0.2
#: When the master is gone, how long the workers have to write what they measured.
ORPHAN_S = 10.0
#: A line from the master is short but for the plan.
_STDIN_LIMIT = 1 << 22


class Site:
    """One run's part. ``say`` reaches the master, ``tell`` the person at this host; rows that stay go into ``out``."""

    def __init__(
        self, say: Callable[[Mapping[str, Any]], None], tell: Callable[[str], None], name: str, out: Path = Path("runs")
    ) -> None:
        self._say = say
        self._tell = tell
        self._name, self._out = name, out
        self._crew = Crew()
        self._courier = Courier(say)
        self._statuses = Statuses()
        self._intervals = Merged()
        self._directory: RunDirectory | None = None
        self._run_id = ""
        self._manifest: dict[str, Any] = {}
        self._ahead: Ahead | None = None
        self._mine: list[int] = []
        self._status_ns = 0
        self._t0_ns = 0
        self._cpu_s = 0.0
        self._orphaned = False
        self._seal: Callable[[], OwnRows] | None = None
        self._rows: OwnRows | None = None
        self._turn = asyncio.Lock()
        self._chosen: Callable[[Records], Records] = lambda records: records
        self._tasks: list[asyncio.Task[None]] = []
        self.over = asyncio.Event()
        self.code = 0

    # -- what the master says -----------------------------------------------------------------------------------

    def told(self, message: Mapping[str, Any]) -> None:
        """One message of the master's."""
        kind = message["type"]
        if kind == "accepted":
            self._tell("the master has taken this agent in")
        elif kind == "refused":
            self._tell(f"the master refused this agent: {one_line(message['reason'])}")
            self._end(int(ExitCode.USAGE))
        elif kind == "plan":
            self._begin(self._prepare(message))
        elif kind == "go" and self._ahead is not None:
            self._t0_ns = int(message["t0_ns"])
            self._manifest |= start(self._t0_ns)
            self._ahead.announce(start(self._t0_ns))
            self._cpu_s = time.process_time()
            self._crew.go(self._t0_ns)
            self._begin(self._run())
        elif kind in ("stop", "drop"):
            self._crew.tell(message)
        elif kind in ("taken", "again"):
            self._courier.heard(message)
        elif kind == "ask":
            self._begin(self._answer(message))
        elif kind == "kill":
            self._crew.kill_unfinished()
        elif kind == "orphaned":
            self._begin(self.orphaned(one_line(message.get("reason") or "the master is gone")))
        elif kind == "bye":
            self._begin(self._leave())

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.append(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:  # the workers stop as this process ends, and the master hears that it did
            self._tell("".join(traceback.format_exception(error)))
            self._keep_folder()
            self._end(1)

    async def orphaned(self, reason: str) -> None:
        """Master gone, agent given up, or told to leave: stop sending, keep what there is, and say where. Once."""
        if self._orphaned:  # told so again: what it does about it is under way
            await self.over.wait()
            return
        self._orphaned = True
        if self._directory is None or self.over.is_set():
            self._end(0)
            return
        self._tell(f"{reason}: stopping")
        self._crew.tell({"type": "drop", "status": int(Status.UNFINISHED), "error": f"the agent stopped: {reason}"})
        if self._t0_ns:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._crew.finished(), ORPHAN_S)
        await self._crew.kill()
        self._keep_folder()
        self._end(int(ExitCode.INTERRUPTED))

    async def alive(self) -> None:
        """Say so, until the end."""
        while True:
            await asyncio.sleep(ALIVE_S)
            self._say({"type": "alive"})
            if self._ahead is not None:
                self._ahead.alive()

    # -- before t0 ----------------------------------------------------------------------------------------------

    async def _prepare(self, plan: Mapping[str, Any]) -> None:
        try:
            await self._ready(plan)
        except HarnessFault as fault:
            self._say({"type": "fault", "errors": fault.errors, "code": int(fault.code)})
        except (ScenarioError, PluginError) as error:
            self._say({"type": "fault", "errors": error.errors, "code": int(ExitCode.USAGE)})
        except OSError as error:
            self._say({"type": "fault", "errors": [f"this agent has trouble: {error}"], "code": int(ExitCode.USAGE)})

    async def _ready(self, message: Mapping[str, Any]) -> None:
        scenario = parse(message["scenario"], message["where"])
        target = target_of(scenario)
        protocol = protocols()[target.protocol]
        if protocol.needs_url:
            await reach(target, scenario.client)
        if protocol.prepare is not None:
            target = await protocol.prepare(target)
        payloads, plan, samples = await asyncio.to_thread(_study, scenario)
        self._chosen = marking(scenario, plan)
        self._mine = [int(shard) for shard in message["mine"]]
        run_id, shards, dealing = str(message["run_id"]), int(message["shards"]), message["dealing"]
        self._run_id = run_id
        if protocol.needs_url:
            mine, host = len(self._mine), limits.read()
            errors, warnings = await asyncio.to_thread(host_limits, plan, target, shards, mine, host)
            for text in warnings:
                self._tell(f"warning: {text}")
            if errors:
                raise HarnessFault(errors)
        self._status_ns = int(message["status_ns"])
        if message.get("leave"):
            self._directory = directory = folder_of(self._out, run_id, self._name)
        else:
            self._directory = directory = RunDirectory(Path(tempfile.mkdtemp(prefix=f"plimsoll-agent-{run_id}-")))
            directory.segments.mkdir()
        await self._write_ahead(message, scenario, target, plan, samples)
        folder = directory.segments
        specs = [worker_spec(scenario, target, run_id, folder, shard, shards, dealing) for shard in self._mine]
        await self._crew.start(specs, None, self._heard)
        self._say(
            {
                "type": "ready",
                "fingerprints": {str(member.index): member.fingerprint for member in self._crew.members},
                "payloads": payloads,
                "folder": str(directory.path),
            }
        )

    async def _write_ahead(
        self, message: Mapping[str, Any], scenario: Scenario, target: Target, plan: Survey, samples: int
    ) -> None:
        """What `plimsoll report --agent-folder` needs, should nobody take these rows in."""
        assert self._directory is not None
        public, shards = public_scenario(scenario), int(message["shards"])
        manifest = build(
            run_id=str(message["run_id"]),
            command=["plimsoll", "agent"],
            scenario=public,
            target_url=target.url,
            model=target.model,
            traceparent=target.traceparent,
            bundled=None,
            fingerprint=plan.fingerprint,
            workers=shards,
        )
        manifest["source_samples"] = samples
        self._ahead = Ahead(self._directory, f"agent {self._name}", self._tell)
        facts, mine = planned(scenario, plan, shards), tuple(self._mine)
        if message.get("leave"):
            share = Share(mine, shards, message["dealing"])
            facts = await asyncio.to_thread(facts_of, scenario, plan, share)
            manifest["share"] = {"agent": self._name, **asdict(share), "mine": [*mine]}
            directory = self._directory
            self._seal = lambda: OwnRows(directory, manifest, public, scenario, plan, self._crew.members)
        self._manifest = manifest
        self._ahead.prepare(manifest, public, plan.pieces, facts, message["dealing"], self._name, mine)

    def _heard(self, member: Member, message: Mapping[str, Any]) -> None:
        self._statuses.add(member.index, message)

    # -- from t0 on ---------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        news = asyncio.create_task(self._pass_on())
        finished = asyncio.create_task(self._crew.finished())
        while not finished.done():
            await asyncio.wait([finished], timeout=LOOK_S)
            await self._hand_over(last=finished.done())
        finished.result()  # a defect of the crew's is a defect of the site's
        await self._hand_over(last=True)
        await self._courier.settled()
        news.cancel()
        self._send_news()
        members = self._crew.members
        if self._seal is not None:
            self._rows = await asyncio.to_thread(self._seal)
            self._say(self._rows.message)
        if any(folder.glob("w*.seg") for folder in self._folders()) and self._courier.rejected:
            self._tell(f"the master could not keep {', '.join(self._courier.rejected)}")
        self._say(
            {
                "type": "finished",
                "done": {str(member.index): _without_folders(member) for member in members},
                "deaths": {str(member.index): member.death for member in members if member.death},
                "died_ns": {str(member.index): member.died_ns - self._t0_ns for member in members if member.died_ns},
                "cpu_s": time.process_time() - self._cpu_s,
            }
        )

    async def _pass_on(self) -> None:
        while True:
            await asyncio.sleep(self._status_ns / 1e9)
            self._send_news()

    def _send_news(self) -> None:
        for lines in self._statuses.take(LIMIT * 3 // 4):
            self._say({"type": "workers", "lines": lines})
        for rows in split(self._intervals.take(), LIMIT * 3 // 4):
            self._say({"type": "intervals", "rows": rows})

    def _folders(self) -> list[Path]:
        """Where the workers write; one that was killed has not said that it wrote elsewhere."""
        if self._directory is None:
            return []
        segments, members = self._directory.segments, self._crew.members
        named = [Path(name) for member in members for name in (member.done or {}).get("folders", ())]
        died = any(member.done is None and member.died_ns is not None for member in members)
        return list(dict.fromkeys([segments, *named, *(spilled(segments, self._run_id) if died else ())]))

    async def _hand_over(self, last: bool) -> None:
        """Send every sealed segment that has not been sent; at the end the answers and what no disk took, too."""
        patterns = ("w*.seg", "outputs-w*.jsonl") if last else ("w*.seg",)
        for folder in self._folders():
            for path in sorted(path for pattern in patterns for path in folder.glob(pattern)):
                if path.name not in self._courier.sent:
                    if path.suffix == ".seg":
                        self._count(path.read_bytes())
                    await self._carry(path.name, path)
        for member in self._crew.members if last else ():
            for number, records in enumerate(member.segments):
                buffer = io.BytesIO()
                dump_segment(buffer, records)
                name = f"w{member.index:03d}-{900_000_000 + number}.seg"  # beyond any that was written
                if name not in self._courier.sent:
                    self._count(buffer.getvalue())
                    await self._carry(name, buffer.getvalue())

    async def _carry(self, name: str, content: Path | bytes) -> None:
        if self._seal is None:
            await self._courier.send(name, content)
        else:
            self._courier.sent.add(name)

    async def _answer(self, asked: Mapping[str, Any]) -> None:
        """A question of the master's about rows that stay here: its answer travels as a file."""
        async with self._turn:
            try:
                if self._rows is None:
                    raise ValueError("its rows are not sealed yet")
                data = await asyncio.to_thread(self._rows.answer, asked)
            except (KeyError, TypeError, ValueError) as error:
                self._say({"type": "fault", "errors": [f"a question was not answered: {error}"], "code": 2})
                return
            await self._courier.send(str(asked["file"]), data)
            await self._courier.settled()

    def _count(self, data: bytes) -> None:
        with contextlib.suppress(ValueError, KeyError):  # the master says what is damaged
            self._intervals.add(rows_of(self._chosen(load_segment(data))))

    # -- the end ------------------------------------------------------------------------------------------------

    async def _leave(self) -> None:
        await self._crew.kill()
        if self._courier.rejected or self._rows is not None:
            self._keep_folder()
        else:
            for folder in self._folders():
                shutil.rmtree(folder, ignore_errors=True)
            if self._directory is not None:
                shutil.rmtree(self._directory.path, ignore_errors=True)
        sent = any((account_of(member) or member.status).get("sent") for member in self._crew.members)
        self._end(IDLE if self._t0_ns and not sent else 0)

    def _keep_folder(self) -> None:
        if self._directory is None:
            return
        if self._rows is not None:
            self._tell(f"the rows of this agent are in {self._rows.message['folder']}")
        elif (self._seal and self._t0_ns) or any(any(folder.glob("*.seg")) for folder in self._folders()):
            self._tell(
                f"rows that the master may not have are in {self._directory.path}: add them to its run directory with "
                f"`plimsoll report RUN --agent-folder {self._directory.path}`"
            )
        else:
            shutil.rmtree(self._directory.path, ignore_errors=True)

    def _end(self, code: int) -> None:
        if not self.over.is_set():
            self.code = code
            self.over.set()


def _study(scenario: Scenario) -> tuple[str, Survey, int]:
    """Digest of the payloads, the whole plan, and how many payloads there are."""
    source = scenario.source_object()
    return payload_digest(source), scenario.blocks(len(source)).held().survey(), len(source)


def host_limits(
    plan: Extent, target: Target, shards: int, mine: int, host: limits.HostLimits
) -> tuple[list[str], list[str]]:
    """(errors, warnings): what ``mine`` of so many shards are sure to use up here, and what they may."""
    whole = needed(plan, target, shards)
    rate, ceiling = whole.rate_per_s * mine / shards, -(-whole.ceiling * mine // shards)
    return limits.check(replace(whole, workers=mine, rate_per_s=rate, ceiling=ceiling), host)


def _without_folders(member: Member) -> dict[str, Any] | None:
    """A worker's last message as the master may have it: folders of this host are none of the master's."""
    return None if member.done is None else {**member.done, "folders": []}


async def _main(say: Callable[[Mapping[str, Any]], None], hello: Mapping[str, Any], out: Path) -> int:
    reader = asyncio.StreamReader(_STDIN_LIMIT)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    site = Site(
        say,
        lambda text: print(f"plimsoll agent {hello['name']}: {text}", file=sys.stderr, flush=True),
        hello["name"],
        out,
    )
    say(hello)

    async def listen() -> None:
        while line := await reader.readline():
            site.told(json.loads(line))
        await site.orphaned("the master is gone")

    tasks = [asyncio.create_task(listen()), asyncio.create_task(site.alive())]
    over = asyncio.create_task(site.over.wait())
    done, _ = await asyncio.wait([*tasks, over], return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()  # a defect of ours is seen, and ends the site
    return site.code


def main() -> int:
    """Entry point: ``--name NAME --workers N --region NAME --out DIR``."""
    parser = argparse.ArgumentParser(prog="python -m plimsoll.harness.distributed.site")
    parser.add_argument("--name", default=None)
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--region", default=os.environ.get(REGION))
    parser.add_argument("--out", type=Path, default=Path("runs"))
    given = parser.parse_args()
    outlet.install()
    say, host = Voice(), host_facts()
    sys.stderr = Guarded(sys.stderr)
    hello = {
        "type": "hello",
        "name": given.name or f"{host['hostname']}-{os.getpid()}",
        "version": package_version(),
        "code": code_digest(),
        "workers": given.workers,
        "region": given.region or None,
        "host": host,
    }
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        return asyncio.run(_main(say, hello, given.out))
    return int(ExitCode.INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main())
