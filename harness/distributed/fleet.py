"""The workforce of a distributed run: workers on other hosts, each agent with some shards of one plan.

It waits for the agents, tells each its shards, compares what they computed, measures their clocks, says t0 to each in
its own time, takes in what they measure, and says what went wrong. How messages travel is the bridge's; nothing here
knows Locust, sends a query or judges a result.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from plimsoll.harness.distributed import intervals, left
from plimsoll.harness.distributed.agents import (
    NAMED,
    PINGS,
    Agent,
    Echo,
    Roster,
    code_digest,
    deal,
    many,
    named,
    wall_error,
)
from plimsoll.harness.distributed.fleet_messages import LIMIT, SILENCE_S, Assembly, Bridge, Damaged, line, shard_of
from plimsoll.harness.distributed.intervals import Merged
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.generator.segments import load_segment
from plimsoll.harness.host.manifest import package_version
from plimsoll.harness.process.writing import whole
from plimsoll.harness.run.crew import split_workers
from plimsoll.harness.run.rundir import RunDirectory, Sealed
from plimsoll.harness.sealing.workforce import Member, OnStatus
from plimsoll.harness.secrecy.redaction import redact
from plimsoll.harness.secrecy.secrets import IMPLICIT_KEY, sensitive_values, url_secrets
from plimsoll.scenarios.plan.blocks import Blocks, Survey
from plimsoll.scenarios.plan.plan import Dealing
from plimsoll.scenarios.samples.payload import payload_digest
from plimsoll.scenarios.spec import Scenario, parse
from plimsoll.slo.records.foreign import NAME, cleaned, one_line
from plimsoll.slo.records.records import Records, empty
from plimsoll.slo.validity.generator import GeneratorFacts

#: How long agents are waited for before the run.
PATIENCE_S = 120.0
#: From the last "ready" to t0, besides the longest round trip.
LEAD_NS = 1_000_000_000
#: The longest that a measurement of the clocks may take.
PINGS_S = 10.0
#: How long an answer about rows that stay with an agent may take.
ANSWER_S = 600.0
#: Agents that are pinged at once. The path takes some 50 us a message: with a thousand at once each would wait for the
#: others' pings, and their clocks would be known to 25 ms instead of 1.
ABREAST = 32
#: What holds no word for a reader.
_BULK = ("piece", "intervals")
#: What an agent says that nobody waits for.
_PASSING = ("workers", "piece", "intervals", "alive")


class Fleet:
    """All agents of a run (``plimsoll.harness.sealing.workforce.Workforce``). The bridge is open already and is closed
    by who opened it.

    ``expected``: how many agents to wait for, ``patience_s`` at most; ``silence_s``: after so long without a word one
    is lost; ``lead_ns``: see ``LEAD_NS``; ``leave``: rows stay with the agents, who are asked about them.
    """

    def __init__(
        self,
        bridge: Bridge,
        expected: int,
        patience_s: float = PATIENCE_S,
        silence_s: float = SILENCE_S,
        lead_ns: int = LEAD_NS,
        leave: bool = False,
    ) -> None:
        self.members: list[Member] = []
        self._leave, self._questions = leave, 0
        self._bridge = bridge
        self._expected = expected
        self._patience_s, self._silence_s, self._lead_ns = patience_s, silence_s, lead_ns
        self._roster = Roster(package_version(), code_digest(), expected)
        self._plan: Survey | None = None
        self._scenario: Scenario | None = None
        self._notice: Callable[[str], None] = lambda text: None
        self._on_status: OnStatus = lambda member, message: None
        self._intake: Intake | None = None
        self._intervals = Merged()
        self._folder = Path()
        self._t0_ns = self._t0_wall_ns = 0
        self._stopped: str | None = None
        self._faults: list[str] = []
        self._told = 0  # refusals that the user knows of
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def dealing(self) -> Dealing:
        """Their clocks are known to within an error."""
        return "lots"

    @property
    def lead_ns(self) -> int:
        """Time for one message to every agent and on to its workers: the longest way there and back is in it."""
        return self._lead_ns + max((a.before.round_trip_ns for a in self._agents if a.before is not None), default=0)

    @property
    def _agents(self) -> list[Agent]:
        return self._roster.accepted

    # -- before the run -----------------------------------------------------------------------------------------

    async def gather(self, plan: Survey, wanted: int, notice: Callable[[str], None]) -> int:
        """Wait until enough agents are there; ``wanted`` is how many workers an agent has that does not say."""
        self._plan, self._notice = plan, notice
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._watch())]
        self._tasks[0].add_done_callback(self._deaf)
        notice(f"waiting for {many(self._expected, 'agent')} ...")
        await self._until(lambda: len(self._agents) >= self._expected, self._patience_s)
        there = self._agents
        await self._or_end(self._gone())
        if len(there) < self._expected:
            text = (
                f"--expect-workers {self._expected}: {self._patience_s:g} s went by and {many(len(there), 'agent')} "
                f"came{named(there)}. Nothing was sent. Start the others (plimsoll agent), or expect fewer"
            )
            await self._or_end([text, *self._roster.refusals()])
        self._roster.begun = True
        offers = [agent.workers or wanted for agent in there]
        shards = split_workers(plan, sum(offers))
        for agent, mine in zip(there, deal(shards, offers), strict=True):
            agent.shards = mine
            notice(f"agent {agent}: {many(len(mine), 'worker')}")
        self.members += [Member(index) for index in range(shards)]
        return shards

    async def start(self, specs: Sequence[Mapping[str, Any]], stderr: Any, heard: OnStatus) -> None:
        """Tell every agent its shards; wait until all are ready; compare; measure the clocks."""
        self._on_status = heard
        self._folder = Path(specs[0]["segments"])
        self._intake = Intake(self._folder, lambda shard, records: self.members[shard].segments.append(records))
        messages, faults = invitations(specs[0], self._agents)
        await self._or_end(faults)
        for agent, message in zip(self._agents, messages, strict=True):
            self._say(agent, {**message, "leave": self._leave})
        self._scenario = scenario = parse(specs[0]["scenario"], specs[0]["where"])
        payloads = await asyncio.to_thread(lambda: payload_digest(scenario.source_object()))
        await self._until(lambda: all(agent.ready or agent.faults or agent.lost for agent in self._agents))
        faults = [*(text for agent in self._agents for text in agent.faults), *self._gone()]
        if not faults and self._plan is not None:
            faults = differences(self._agents, self._plan.fingerprint, payloads)
        if not faults:
            await self._measure_clocks()
            faults = self._gone()
            for agent in self._agents:
                agent.before = agent.clock()
                if agent.before is None and not agent.lost:
                    faults.append(
                        f"agent {agent} answered no ping for {PINGS_S:g} s. Is its host overloaded? Nothing was sent"
                    )
        await self._or_end(faults)

    def _gone(self) -> list[str]:
        found = [f"agent {agent} {agent.lost}. Nothing was sent" for agent in self._agents if agent.lost]
        if self._stopped:
            found.append(f"stopped before the first query ({self._stopped}): nothing was sent")
        return found

    async def _or_end(self, faults: Sequence[str]) -> None:
        """Nothing begins with a fault: everybody goes home, and the user is told all of them."""
        if faults:
            await self.kill()
            code = next((agent.fault_code for agent in self._agents if agent.fault_code), ExitCode.USAGE)
            raise HarnessFault(list(dict.fromkeys(faults)), ExitCode(ExitCode.INTERRUPTED if self._stopped else code))

    async def _measure_clocks(self) -> None:
        """Ping everybody, ``ABREAST`` at a time, each ``PINGS`` times, one ping after the other."""
        agents = self._agents
        for first in range(0, len(agents), ABREAST):
            some = agents[first : first + ABREAST]
            for agent in some:
                agent.echoes = []
                self._ping(agent)
            await self._until(partial(_echoed, some), PINGS_S)

    def _ping(self, agent: Agent) -> None:
        self._say(agent, {"type": "ping", "number": len(agent.echoes), "sent_ns": time.monotonic_ns()})

    # -- the run ------------------------------------------------------------------------------------------------

    def go(self, t0_ns: int) -> None:
        """t0 to each agent on its own clock."""
        self._t0_ns = t0_ns
        self._t0_wall_ns = time.time_ns() + t0_ns - time.monotonic_ns()
        for agent in self._agents:
            if agent.before is not None:
                self._say(agent, {"type": "go", "t0_ns": t0_ns + agent.before.offset_ns})

    def tell(self, message: Mapping[str, Any]) -> None:
        """The same message to everybody."""
        for agent in self._agents:
            self._say(agent, message)

    async def finished(self) -> None:
        """Wait until every agent has handed everything over or is lost; measure the clocks again; let them go."""
        await self._until(lambda: all(agent.settled for agent in self._agents))
        if self._tasks[0].done():
            self._tasks[0].result()
        else:
            await self._measure_clocks()
        for agent in self._agents:
            agent.after = None if agent.lost else agent.clock()
            if not agent.lost and agent.part is None:  # whoever was keeps its rows
                self._say(agent, {"type": "bye"})
        if not self._there():
            await self._hush()
        if self._intake is not None:
            self._faults += self._intake.faults
        try:
            await asyncio.to_thread(self._write_intervals)
        except OSError as error:
            self._notice(f"warning: {intervals.FILE} could not be written ({error.strerror}); the records are whole")

    def _there(self) -> list[Agent]:
        """Who has sealed its rows and can be asked."""
        return [agent for agent in self._agents if agent.part is not None and not agent.lost]

    async def concluded(
        self, folder: Path, manifest: Mapping[str, Any], public: Mapping[str, Any], plan: Blocks, facts: GeneratorFacts
    ) -> bool:
        """Have the agents' rows judged where they are, and write the run directory; False: nobody kept rows."""
        run = Sealed(RunDirectory(folder), manifest, public, empty(), facts)
        try:
            return await left.concluded(run, plan, self._agents, self._ask)
        finally:
            for agent in self._there():
                self._say(agent, {"type": "bye"})
            await self._hush()

    async def _ask(self, question: bytes, objectives: Sequence[str]) -> list[bytes]:
        """What each agent that is there answers. Raises HarnessFault where one is lost meanwhile, or can't."""
        self._questions += 1
        there, file = self._there(), f"answer-{self._questions}"
        message = {"type": "ask", "file": file, "objectives": list(objectives)}
        assert self._intake is not None
        answers = self._intake.expect(file)
        for agent in there:
            self._say(agent, {**message, "data": base64.b64encode(question).decode()})
        await self._until(lambda: all(str(agent) in answers or agent.lost or agent.faults for agent in there), ANSWER_S)
        if spoilt := [agent for agent in there if agent.lost or str(agent) not in answers]:
            for agent in spoilt:
                agent.lost = agent.lost or next(iter(agent.faults), f"gave no answer for {ANSWER_S:g} s")
            raise HarnessFault([f"agent {agent} {agent.lost}, as it was asked" for agent in spoilt])
        return [answers[str(agent)] for agent in there]

    def _write_intervals(self) -> None:
        merged = self._intervals
        spoiled = self._faults or any(agent.lost for agent in self._agents)
        plan, scenario = self._plan, self._scenario
        if spoiled and plan is not None and scenario is not None:
            kept = [records for member in self.members for records in member.segments]
            merged = intervals.counted(self._folder, kept, intervals.marking(scenario, plan))
        intervals.write(merged, self._t0_wall_ns, self._folder.parent)

    def kill_unfinished(self) -> None:
        """The user won't wait: who has not handed everything over is given up."""
        self.tell({"type": "kill"})
        for agent in self._agents:
            if not agent.settled:
                self._lose(agent, "did not end when asked to and was given up")

    async def kill(self) -> None:
        """End every agent's part now."""
        for agent in self._agents:
            self._say(agent, {"type": "kill"})
            self._say(agent, {"type": "bye"})
        await self._hush()

    async def _hush(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def faults(self) -> Sequence[str]:
        """Lost agents are in the members' deaths; here is what else they spoiled."""
        found = list(self._faults)
        if self._stopped is not None:
            found.append(f"it was stopped before its end ({self._stopped})")
        return [*found, *(text for agent in self._agents if (text := agent.clock_fault()))]

    def facts(self) -> Mapping[str, Any]:
        """``agents`` (offsets and errors of their clocks included), ``refused_agents``, and what came over."""
        intake = self._intake
        return {
            "agents": [agent.fact() for agent in self._agents],
            "dealing": self.dealing,
            "refused_agents": list(self._roster.refused),
            **({"leave_rows": True} if self._leave else {}),
            "handed_over": {"files": intake.files, "bytes": intake.bytes} if intake is not None else {},
        }

    # -- what agents say ----------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        while (envelope := await self._bridge.hear()) is not None:
            try:
                self._take(envelope)
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
                if len(self._faults) < NAMED:  # one is enough to know
                    who = one_line(envelope.get("from"), NAME)
                    self._faults.append(
                        f"a message that can't be read came from agent {who}: {one_line(repr(error), 200)}"
                    )
            if envelope.get("message", {}).get("type") not in _PASSING:
                self._changed.set()

    def _deaf(self, listening: asyncio.Task[None]) -> None:
        """The transport has ended, or what an agent said broke something of ours (which ``finished`` raises)."""
        if not listening.cancelled():
            for agent in self._agents:
                self._lose(agent, "was cut off: the transport between master and agents ended")
            self._changed.set()

    def _take(self, envelope: Mapping[str, Any]) -> None:
        event = envelope.get("event")
        if event == "stop":
            self._stopped = one_line(envelope.get("reason", "stop was pressed"))
            self.tell({"type": "stop"})
        elif event == "lost":
            agent = self._roster[str(envelope["agent"])]
            if agent is not None:
                self._lose(agent, f"was lost: {one_line(envelope.get('reason', 'it left'))}")
        elif "from" in envelope:
            key, message = str(envelope["from"]), envelope["message"]
            if message["type"] not in _BULK:  # their texts reach a terminal, a log and the manifest
                message = cleaned(message)
            agent = self._roster[key]
            if message["type"] == "hello":
                self._hello(key, message)
            elif agent is not None and not agent.lost:
                agent.heard_s = time.monotonic()
                self._hear(agent, message, int(envelope.get("at_ns") or time.monotonic_ns()))

    def _hello(self, key: str, message: Mapping[str, Any]) -> None:
        found = self._roster.hello(key, message, time.monotonic())
        if isinstance(found, Agent):
            self._ping(found)  # its answer tells about the wall clock
        else:
            self._refuse(key, found)

    def _refuse(self, key: str, reason: str) -> None:
        known, self._told = self._told, len(self._roster.refused)
        if known < self._told <= NAMED:
            self._notice(f"warning: agent {self._roster.refused[-1]['agent']} was refused: {reason}")
        refused = {"type": "refused", "reason": reason, "late": reason == self._roster.closed}
        self._bridge.say({"to": key, "message": refused})

    def _hear(self, agent: Agent, message: Mapping[str, Any], at_ns: int) -> None:
        kind = message["type"]
        if kind == "pong":
            self._pong(agent, message, at_ns)
        elif kind == "workers":
            for shard, status in message["lines"]:
                member = self._member(agent, shard)
                member.status = status
                self._on_status(member, status)
        elif kind == "piece" and self._intake is not None:
            self._say(agent, self._intake.take(str(agent), agent.shards, message))
            if self._questions:
                self._changed.set()
        elif kind == "intervals":
            self._intervals.add(message["rows"])
        elif kind == "ready":
            agent.ready = message
            for shard, fingerprint in message["fingerprints"].items():
                self._member(agent, int(shard)).fingerprint = fingerprint
        elif kind == "fault":
            agent.faults += [f"agent {agent}: {text}" for text in message["errors"]]
            agent.fault_code = int(message["code"]) if message["code"] in set(ExitCode) else ExitCode.USAGE
        elif kind == "sealed" and self._leave:
            agent.part = message
        elif kind == "finished":
            agent.hand_in(message, self.members, self._t0_ns, time.monotonic_ns())
        elif kind == "ended" and not agent.settled:
            code = int(message["code"])
            self._lose(agent, f"was lost: its process {'was killed' if code < 0 else 'ended'} ({code})")

    def _pong(self, agent: Agent, message: Mapping[str, Any], back_ns: int) -> None:
        echo = Echo(int(message["sent_ns"]), int(message["got_ns"]), back_ns)
        if int(message["number"]) != len(agent.echoes) or echo.round_trip_ns < 0:
            return  # of a measurement that was given up
        agent.echoes.append(echo)
        if not agent.accepted:
            late_ns = time.monotonic_ns() - back_ns
            error = wall_error(int(message["wall_ns"]), time.time_ns() - late_ns, echo.round_trip_ns)
            reason = self._roster.admit(agent, error)
            if reason is None:
                self._say(agent, {"type": "accepted"})
            else:
                self._refuse(agent.key, reason)
        elif len(agent.echoes) < PINGS:
            self._ping(agent)

    def _lose(self, agent: Agent, reason: str) -> None:
        """It is gone: its workers die with the reason, what it handed over stays, the others go on."""
        if agent.settled:
            if agent.part is not None:  # it is needed until it was asked everything
                agent.lost = agent.lost or reason
                self._changed.set()
            return
        if not self._t0_ns and agent.ready is None and not agent.shards:
            self._notice(f"agent {agent} {reason}")
            self._roster.forget(agent)
            return
        after = f" {(time.monotonic_ns() - self._t0_ns) / 1e9:.1f} s after t0" if self._t0_ns else ""
        first, colon, rest = reason.partition(":")
        agent.lost = f"{first}{after}{colon}{rest}"
        # It may only have been away: it must not go on.
        self._say(agent, {"type": "orphaned", "reason": "the master gave this agent up"})
        if self._t0_ns:
            kept = f"; rows that it had not handed over are in {agent.ready['folder']} there" if agent.ready else ""
            self._notice(f"warning: agent {agent} {agent.lost}{kept}. The others go on; the run will be INVALID")
            for shard in agent.shards:
                self.members[shard].death = f"ended with agent {agent}, which {agent.lost}{kept}"
                self.members[shard].died_ns = time.monotonic_ns()
        self._changed.set()

    async def _watch(self) -> None:
        """Find those who say nothing any more. Where it is we who did not listen, nobody is blamed."""
        tick_s = self._silence_s / 15
        expected_s = time.monotonic() + tick_s
        while True:
            await asyncio.sleep(tick_s)
            now_s = time.monotonic()
            asleep, expected_s = now_s > expected_s + tick_s, now_s + tick_s
            for agent in self._agents:
                if asleep:
                    agent.heard_s = now_s
                elif now_s - agent.heard_s > self._silence_s:
                    self._lose(agent, f"was lost: it said nothing for {now_s - agent.heard_s:.3g} s")

    # -- small things -------------------------------------------------------------------------------------------

    def _member(self, agent: Agent, shard: int) -> Member:
        if shard not in agent.shards:
            raise ValueError(f"shard {shard} is not one of agent {agent}")
        return self.members[shard]

    def _say(self, agent: Agent, message: Mapping[str, Any]) -> None:
        self._bridge.say({"to": agent.key, "message": message})

    async def _until(self, reached: Callable[[], bool], patience_s: float | None = None) -> None:
        """Wait until ``reached()``, the time is up, or the user stopped what has not begun."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                while not reached() and not (self._stopped and not self._t0_ns):
                    self._changed.clear()
                    await self._changed.wait()


def _echoed(agents: Sequence[Agent]) -> bool:
    return all(len(agent.echoes) >= PINGS or agent.lost for agent in agents)


# -- what an agent is told, and whether its answer is the master's -------------------------------------------------

#: How often an agent sends news of its workers, unless there are so many agents that this made more than
#: ``STATUS_PER_S`` messages a second.
STATUS_NS = 250_000_000
STATUS_PER_S = 1000


def invitations(spec: Mapping[str, Any], agents: Sequence[Agent]) -> tuple[list[dict[str, Any]], list[str]]:
    """The ``plan`` message for each agent, from the spec of any one worker; or why there can be none, in sentences.

    No secret travels: each agent resolves references (``${env:NAME}``, ``api_key_env``, ``api_key_file``) from its own
    environment and files.
    """
    scenario = deepcopy(dict(spec["scenario"]))
    scenario["target"] = {**scenario["target"], "url": spec["target"]["url"], "model": spec["target"]["model"]}
    # So that an agent without the key says so, and does not ask without one.
    if _implied(spec["target"], scenario["target"]):
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
            "target.model: a credential stands in it (a server may name its model so), and would travel to every "
            "agent. Give --model"
        )
    size = len(line(message))
    if size > LIMIT // 2:  # the other half is for the list of shards
        faults.append(
            f"the scenario is {size} bytes long, and at most {LIMIT // 2} travel to an agent. Put its data into a file "
            "that every agent has, and name that"
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
        f"{place}.{name}: a credential stands there in the clear, and would travel to every agent. Write "
        f"${{env:NAME}}, and set NAME on each agent"
        for place, pairs in places.items()
        if isinstance(pairs, Mapping)
        for name, value in pairs.items()
        if "${" not in str(value) and sensitive_values([(str(name), str(value))])
    ]
    url = str(target.get("url") or "")
    if url_secrets(url) or urlsplit(url).password:
        found.append(
            "target.url: a credential stands in it, and would travel to every agent. Write it as a header with "
            "${env:NAME}, and set NAME on each agent"
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
                f"agent {agent} has other data for this scenario than the master (the digests of its payloads differ). "
                "Copy the master's files there"
            )
    return found


# -- files that agents send ----------------------------------------------------------------------------------------

#: So many files that could not be taken are named.
MOST_FAULTS = 100


class Intake:
    """The receiving end of all agents: each file is put together, checked, and written whole into the run directory or
    not at all. An answer to a question stays in memory.

    ``keep(shard, records)``: for rows that the disk did not take. A file that stays damaged after a second try is a
    fault, and stays with its agent.
    """

    def __init__(self, folder: Path, keep: Callable[[int, Records], None]) -> None:
        self._folder = folder
        self._keep = keep
        #: Of each agent the file that it began last: they come one after the other.
        self._open: dict[str, tuple[str, Assembly]] = {}
        self._again: set[str] = set()
        self._expected, self._answers = "", dict[str, bytes]()
        self.faults: list[str] = []
        self.bytes = 0
        self.files = 0

    def expect(self, file: str) -> Mapping[str, bytes]:
        """Where answers of this name will be, by who gave them."""
        self._expected, self._answers = file, {}
        return self._answers

    def take(self, who: str, shards: Collection[int], piece: Mapping[str, Any]) -> dict[str, Any]:
        """Take one ``piece`` of an agent and return the answer to it: ``taken`` or ``again``."""
        name, number = str(piece["file"]), int(piece["piece"])
        last = number == int(piece["pieces"]) - 1
        shard = shard_of(name)
        asked = bool(self._expected) and name.startswith("answer-")
        if not asked and (shard is None or shard not in shards):
            self._fault(f"agent {who} sent a file that is none of its segments ({name[:80]!r})")
            return _taken(name, number, whole=last, good=False)
        try:
            if number == 0:
                self._open[who] = name, Assembly(piece)
            begun, assembly = self._open.get(who, ("", None))
            assembly = assembly if begun == name else None
            data = assembly.take(piece) if assembly is not None else None
        except Damaged as damage:
            del self._open[who]
            data, problem = None, str(damage)
        else:
            problem = "its first pieces did not come" if assembly is None else ""
        if not last:
            return _taken(name, number, whole=False, good=not problem)
        if assembly is not None:
            self._open.pop(who, None)
        if data is not None and asked:
            if name == self._expected:  # else of a question that was given up
                self._answers[who] = data
            return _taken(name, number, whole=True, good=True)
        if data is not None and shard is not None:
            return _taken(name, number, whole=True, good=self._write(who, shard, name, data))
        if (again := f"{who}/{name}" if asked else name) not in self._again:
            self._again.add(again)
            return {"type": "again", "file": name}
        self._fault(f"{name} of agent {who} came damaged twice ({problem}): its rows are missing")
        return _taken(name, number, whole=True, good=False)

    def _write(self, who: str, shard: int, name: str, data: bytes) -> bool:
        path = self._folder / name
        self.files += 1
        self.bytes += len(data)
        try:
            whole(path, data)  # no fsync: the agent has its own until the run is over
        except OSError as error:
            if not name.endswith(".seg"):
                self._fault(f"{name} of agent {who} could not be written to {self._folder} ({error.strerror})")
                return False
            try:
                self._keep(shard, load_segment(data))
            except (ValueError, KeyError) as damage:
                self._fault(f"{name} of agent {who} is no segment ({damage}): its rows are missing")
                return False
        return True

    def _fault(self, text: str) -> None:
        """What is missing is counted when the run is sealed; here the first faults say why."""
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(text)


def _taken(name: str, number: int, *, whole: bool, good: bool) -> dict[str, Any]:
    return {"type": "taken", "file": name, "piece": number, "whole": whole, "good": good}
