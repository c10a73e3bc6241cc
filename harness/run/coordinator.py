"""The coordinator: check the target, start n workers, agree t0, supervise, gather, seal.

A local run is shard 0 of 1 of the same plan that forty processes would share. Nothing here is timed; the workers hold
the clocks. Whatever happens after t0 (Ctrl-C, a killed worker, a full disk, a dead endpoint), what was measured is
sealed and reported.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import signal
import ssl
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.generator.outputs import gather
from plimsoll.harness.host import limits
from plimsoll.harness.host import manifest as manifest_file
from plimsoll.harness.process import writing
from plimsoll.harness.protocols._discovery import protocols
from plimsoll.harness.protocols._http.model_name import first_model
from plimsoll.harness.protocols._speech.sending import stated_normaliser
from plimsoll.harness.run import bundled as bundled_server
from plimsoll.harness.run import timer
from plimsoll.harness.run.accounts import check_account
from plimsoll.harness.run.ahead import Ahead
from plimsoll.harness.run.crew import Crew
from plimsoll.harness.run.rundir import RunDirectory, Sealed, seal
from plimsoll.harness.run.watcher import Beginning, Watcher
from plimsoll.harness.run.workforce import Member, Workforce, deaths
from plimsoll.harness.secrecy.redaction import redact
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.endpoint import CLEARTEXT, locate
from plimsoll.scenarios.plan import cancellation
from plimsoll.scenarios.plan.plan import Dealing, Plan
from plimsoll.scenarios.samples.reference import Expected, references
from plimsoll.scenarios.spec import Scenario
from plimsoll.slo.peers.loadgen import QUANTILES
from plimsoll.slo.records.records import Status
from plimsoll.slo.validity.generator import GeneratorFacts

#: Each seals what was measured: Ctrl-C, a polite kill, a closed terminal.
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: After Ctrl-C, how long answers in flight are waited for.
GRACE_NS = 5_000_000_000


@dataclass(frozen=True, slots=True)
class Job:
    """One run, fully checked: nothing in here can be wrong any more."""

    scenario: Scenario
    public: Mapping[str, Any]  # the scenario without secrets: what is written down
    target: Target
    directory: RunDirectory
    command: Sequence[str]
    bundled: Sequence[str] | None = None
    foreseen: Mapping[str, Any] = field(default_factory=dict)  # for the manifest: see harness/run/host_check.py
    run_id: str = field(default_factory=lambda: secrets.token_hex(5))


@dataclass(frozen=True, slots=True)
class Outcome:
    """The sealed directory, whether the user interrupted the run, and why a watcher did (None: none did)."""

    sealed: Sealed
    interrupted: bool
    enough: str | None = None


async def preflight(target: Target) -> None:
    """One connection, opened and closed, before anything else. Raises HarnessFault (exit 5) if there is none."""
    endpoint = await locate(target)
    try:
        _, writer = await asyncio.wait_for(
            asyncio.open_connection(endpoint.host, endpoint.port, ssl=endpoint.tls), target.connect_timeout_ns / 1e9
        )
    except (OSError, TimeoutError) as error:
        reason = str(error) or f"no answer within {target.connect_timeout_ns / 1e9:g} s"
        if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
            reason = (
                f"it does not speak TLS; without it the URL begins with {CLEARTEXT[urlsplit(target.url).scheme]}://"
            )
        raise HarnessFault(
            f"target.url: cannot connect to {manifest_file.public_url(target.url)} ({reason}). Nothing was sent. Is "
            "the server "
            "running, and is the address right?",
            ExitCode.UNREACHABLE,
        ) from None
    # Not a polite close: a TLS server that doesn't answer it would hold us for 30 s.
    writer.transport.abort()
    await asyncio.sleep(0)


class Coordinator:
    """Runs one job: ``workforce`` sends (processes of this host by default), ``watchers`` look on."""

    def __init__(
        self,
        job: Job,
        notice: Callable[[str], None],
        watchers: Sequence[Watcher] = (),
        workforce: Workforce | None = None,
    ) -> None:
        self._job = job
        self._notice = notice
        self._workforce: Workforce = Crew() if workforce is None else workforce
        self._watchers = tuple(watchers)
        self._enough: str | None = None
        self._interrupts = 0
        self._t0_ns = 0
        self._over = False
        self._ahead = Ahead(job.directory, "the coordinator", notice)
        self._task: asyncio.Task[Any] | None = None

    async def run(self) -> Outcome:
        """Run the job to its sealed directory.

        Raises HarnessFault before t0 (bad target, bad payloads); after t0 nothing is raised for what went wrong.
        """
        loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        for number in _STOP_SIGNALS:
            loop.add_signal_handler(number, self._interrupt)
        server = None
        try:
            for watcher in self._watchers:
                await watcher.open()
            target = self._job.target
            if self._job.bundled is not None:
                self._notice("starting the bundled reference server ...")
                server = await bundled_server.start(self._job.bundled, self._job.directory.server_log)
                target = _aim(target, server)
            protocol = protocols()[target.protocol]
            if protocol.needs_url:
                await preflight(target)
            if protocol.prepare is not None:
                target = await protocol.prepare(target)
            if not target.model and target.protocol.startswith("openai-") and target.protocol != "openai-realtime":
                target = replace(target, model=await first_model(target) or "")
            sealed = await self._measure(target, server)
        except asyncio.CancelledError:
            await self._workforce.kill()
            raise HarnessFault("interrupted before the first query: nothing was sent", ExitCode.INTERRUPTED) from None
        finally:
            self._ahead.close()
            if server is not None:
                await bundled_server.stop(server.process)
            for watcher in self._watchers:
                await watcher.close()
            for number in _STOP_SIGNALS:
                loop.remove_signal_handler(number)
        return Outcome(sealed, bool(self._interrupts), self._enough)

    async def _measure(self, target: Target, server: bundled_server.Bundled | None) -> Sealed:
        job = self._job
        scenario = job.scenario
        source = scenario.source_object()
        n_samples = len(source)
        plan = scenario.build(n_samples)
        workforce = self._workforce
        shards = await workforce.gather(plan, scenario.workers, self._notice)
        await self._look_around(target)
        target, tuning = await timer.tuned(target, plan, shards) if not workforce.facts() else (target, {})
        run_id = job.run_id
        manifest = self._manifest(run_id, target, server, plan, shards)
        manifest |= {**job.foreseen, **tuning, "source_samples": n_samples}
        self._ahead.prepare(manifest, job.public, plan, planned(scenario, plan, shards), workforce.dealing)
        folder = job.directory.segments
        share = partial(worker_spec, scenario, target, run_id, folder, shards=shards, dealing=workforce.dealing)
        specs = [share(index) for index in range(shards)]
        with writing.log(job.directory.worker_log) as log:
            await workforce.start(specs, log, self._on_status)
            self._t0_ns = time.monotonic_ns() + workforce.lead_ns + scenario.warmup_ns
            known = {**start(self._t0_ns), **workforce.facts()}
            self._ahead.announce(known, planned(scenario, plan, shards, workforce.facts()))
            manifest |= known
            workforce.go(self._t0_ns)
            for watcher in self._watchers:
                watcher.begin(Beginning(run_id, scenario, plan, self._t0_ns, shards, workforce.dealing))
            await workforce.finished()
        self._over = True
        for watcher in self._watchers:
            watcher.end()
        manifest |= workforce.facts()
        if getattr(scenario.source, "kind", "") == "audio":  # word error rates are of one normaliser
            manifest["normaliser"] = stated_normaliser(target.options)
        answers = None
        if scenario.mode == "accuracy":
            answers = self._gather_outputs(plan, run_id, references(source, scenario.reference))
        chosen = partial(cancellation.chosen, scenario.cancel, scenario.seed, plan) if scenario.cancel else None
        facts = self._facts(plan, shards)
        members, dealing = workforce.members, workforce.dealing
        return seal(job.directory, manifest, job.public, plan, members, facts, chosen, dealing, answers)

    def _manifest(
        self, run_id: str, target: Target, server: bundled_server.Bundled | None, plan: Plan, shards: int
    ) -> dict[str, Any]:
        """Without t0, which is not known yet."""
        return manifest_file.build(
            run_id=run_id,
            command=self._job.command,
            scenario=self._job.public,
            target_url=target.url,
            model=target.model,
            bundled=server.facts if server is not None else None,
            fingerprint=plan.fingerprint(),
            workers=shards,
        )

    async def _look_around(self, target: Target) -> None:
        """An agent on another host has another 127.0.0.1. Raises HarnessFault where the bundled server is on ours."""
        far = elsewhere(self._workforce.facts(), manifest_file.host_facts()["hostname"])
        if far and self._job.bundled is not None:
            await self._workforce.kill()
            raise HarnessFault(
                "the bundled server listens on 127.0.0.1 of this host only, and there are agents elsewhere: "
                f"{', '.join(far)}. Nothing was "
                "sent. Start `plimsoll serve --host` with an address that they reach, and name it with --url"
            )
        if far and loopback(target.url):
            url = manifest_file.public_url(target.url)
            self._notice(f"warning: target.url is {url}, and each agent asks that of its own host: {', '.join(far)}")

    def _gather_outputs(
        self, plan: Plan, run_id: str, expected: Sequence[Expected] | None
    ) -> Callable[[Path], None] | None:
        job = self._job
        try:
            return gather(job.directory.segments, plan, run_id, expected, job.scenario.kind in QUANTILES)
        except OSError as error:
            self._notice(f"warning: the answers in {job.directory.segments} could not be read ({error.strerror})")
            return None

    def _on_status(self, member: Member, message: Mapping[str, Any]) -> None:
        self._ahead.alive()
        for watcher in self._watchers:
            watcher.heard(member.index, message)
        if self._enough is None and not self._interrupts:
            self._enough = next((reason for watcher in self._watchers if (reason := watcher.enough())), None)
            if self._enough is not None:
                self._workforce.tell({"type": "stop"})

    def _interrupt(self) -> None:
        self._interrupts += 1
        if not self._t0_ns:
            self._notice("interrupted: stopping before the first query ...")
            if self._task is not None and self._interrupts == 1:
                self._task.cancel()
            return
        if self._over:
            self._notice("interrupted: every query is over; sealing the run ...")
            return
        if self._interrupts == 1:
            self._notice(
                "interrupted: no more queries; waiting up to 5 s for answers in flight (Ctrl-C again: at once)"
            )
            self._workforce.tell({"type": "stop"})
            asyncio.get_running_loop().call_later(GRACE_NS / 1e9, self._drop)
        elif self._interrupts == 2:
            self._drop()
        else:
            self._workforce.kill_unfinished()

    def _drop(self) -> None:
        self._workforce.tell({"type": "drop", "status": int(Status.UNFINISHED), "error": "interrupted by the user"})

    def _facts(self, plan: Plan, shards: int) -> GeneratorFacts:
        members = self._workforce.members
        facts = ended(planned(self._job.scenario, plan, shards, self._workforce.facts()), members)
        faults = [*deaths(members), *self._workforce.faults(), *facts.worker_faults]
        faults += _exhausted(members, self._workforce.facts(), (time.monotonic_ns() - self._t0_ns) / 1e9)
        return replace(
            facts,
            aborted=self._enough or facts.aborted,
            worker_faults=tuple(map(redact, faults)),
            interrupted=bool(self._interrupts),
        )


def planned(
    scenario: Scenario, plan: Plan, shards: int, force: Mapping[str, Any] = MappingProxyType({})
) -> GeneratorFacts:
    """What is known before the first query. ``force``: the facts of the workforce."""
    stop, frame = plan.stop, scenario.frame
    return GeneratorFacts(
        open_loop=plan.open_loop,
        process=_arrival_process(scenario),
        planned=0 if plan.cyclic else plan.n_samples,
        planned_queries=0 if plan.cyclic else plan.n_queries,
        min_queries=stop.min_queries if plan.cyclic else min(stop.min_queries, plan.n_queries),
        min_duration_ns=stop.min_duration_ns,
        no_endpoint=not protocols()[scenario.target.protocol].needs_url,
        n_workers=shards,
        slots=_slots(plan, shards),
        **_clocks(force),
        frame_interval_ns=frame.interval_ns if frame is not None else 0,
        frame_deadline_ns=frame.deadline_ns if frame is not None else 0,
    )


def ended(known: GeneratorFacts, members: Sequence[Member]) -> GeneratorFacts:
    """The facts with what the workers that came to their end say of it."""
    done = [member.done for member in members if member.done is not None]
    return replace(
        known,
        **vitals_of(done),
        aborted=next((report["aborted"] for report in done if report["aborted"]), None),
        worker_faults=tuple(text for report in done for text in report["faults"]),
        max_duration_hit=any(report["max_duration_hit"] for report in done),
        disk_notes=tuple(text for report in done for text in report["disk_notes"]),
    )


def last_words(said: object) -> dict[str, Any] | None:
    """A worker's last message that comes from elsewhere, a file or another host, if all that is read of it can be;
    None: it can't.

    The folders that it names are left out: whoever seals a run reads and removes those.
    """
    if not isinstance(said, dict):
        return None
    words = {**said, "folders": []}
    member = Member(0, done=words)
    try:
        told = ended(GeneratorFacts(open_loop=False, planned=0), [member]).to_json()
        GeneratorFacts.from_json(json.loads(json.dumps(told, allow_nan=False)))
        client = words.setdefault("client", {})
        json.dumps(client, allow_nan=False)
        Counter(client.get("exhausted", {})).total()
        int(client.get("connections_opened", 0))
        check_account(member)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError):
        return None
    return words


def start(t0_ns: int) -> dict[str, Any]:
    """t0 as the manifest has it, from this host's monotonic clock."""
    t0_wall_ns = time.time_ns() + t0_ns - time.monotonic_ns()
    started = datetime.fromtimestamp(t0_wall_ns / 1e9, UTC).isoformat(timespec="milliseconds")
    return {"started_at": started, "t0_wall_ns": t0_wall_ns, "t0_monotonic_ns": t0_ns}


def worker_spec(
    scenario: Scenario, target: Target, run_id: str, segments: Path, index: int, shards: int, dealing: Dealing
) -> dict[str, Any]:
    """What one worker is told (``harness/generator/worker.py``), shard ``index`` of ``shards``. May hold secrets."""
    return {
        "type": "spec",
        "scenario": scenario.to_mapping(),
        "where": scenario.name,
        "target": {**asdict(target), "options": dict(target.options)},
        "run_id": run_id,
        "shard": index,
        "shards": shards,
        "dealing": dealing,
        "segments": str(segments),
        "drain_ns": scenario.drain_ns,
        "max_outstanding": max(1, target.max_outstanding // shards),
    }


def _exhausted(members: Sequence[Member], facts: Mapping[str, Any], seconds: float) -> list[str]:
    """What the hosts ran out of; of agents' hosts without the arithmetic, because their limits are not ours."""
    parts = [(f" (agent {agent['name']})", agent["shards"]) for agent in facts.get("agents", ())]
    found = []
    for whose, shards in parts or [("", range(len(members)))]:
        reports = [report for shard in shards if (report := members[shard].done) is not None]
        failed: Counter[str] = Counter()
        for report in reports:
            failed.update(report["client"].get("exhausted", {}))
        if parts:
            found += [
                f"{count} connections failed on their host{whose}, not at the endpoint: {text}"
                for text, count in failed.items()
            ]
        else:
            opened = sum(int(report["client"].get("connections_opened", 0)) for report in reports)
            found += limits.exhaustion(failed, opened, seconds, limits.read())
    return found


def _slots(plan: Plan, shards: int) -> tuple[int, ...]:
    """Requests that each worker keeps in flight; empty where nothing waits for another's answer."""
    if plan.max_in_flight is None or not (plan.cyclic or plan.n_queries == 1):
        return ()
    return tuple(len(range(index, plan.max_in_flight, shards)) for index in range(shards))


def loopback(url: str) -> bool:
    """Its server is on the host that asks."""
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def elsewhere(facts: Mapping[str, Any], hostname: str) -> list[str]:
    """The agents that are on another host than ``hostname``."""
    return [
        f"{agent['name']} ({agent['host']['hostname']})"
        for agent in facts.get("agents", ())
        if agent["host"].get("hostname") != hostname
    ]


def _clocks(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Of agents on other hosts: how many had a part, and how well the worst clock of them is known."""
    took_part = [agent for agent in facts.get("agents", ()) if agent["shards"]]
    errors = [agent["clock"]["error_ns"] for agent in took_part if "clock" in agent]
    return {"agents": len(took_part), "clock_error_ns": max(errors, default=0)}


def vitals_of(done: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Facts from the ``done`` messages: of a count the sum over workers, of a time the worst worker's."""

    def worst(part: str, key: str) -> int:
        return max((report.get(part, {}).get(key, 0) for report in done), default=0)

    def total(part: str, key: str) -> int:
        return sum(report.get(part, {}).get(key, 0) for report in done)

    return {
        "loop_stall_p99_ns": worst("stalls", "p99_ns"),
        "loop_stall_max_ns": worst("stalls", "max_ns"),
        "loop_stall_total_ns": worst("stalls", "total_ns"),
        "loop_stall_count": total("stalls", "count"),
        "gc_pause_max_ns": worst("gc", "max_ns"),
        "gc_pause_total_ns": worst("gc", "total_ns"),
        "gc_pause_count": total("gc", "count"),
        "watched_ns": max((report.get("watched_ns", 0) for report in done), default=0),
        "worker_cpu": tuple(report["cpu"] for report in done),
        "core_wanted": tuple(report["core_wanted"] for report in done if report.get("core_wanted")),
        "engine_cpu": tuple(report["engine_cpu"] for report in done if report.get("engine_cpu") is not None),
        "worker_rss_kb": tuple(report["max_rss_kb"] for report in done if report.get("max_rss_kb")),
        "pool_waits": total("client", "pool_waits"),
        "pool_wait_p99_ns": worst("client", "pool_wait_p99_ns"),
        "stream_waits": total("client", "stream_waits"),
        "clock_steps": total("client", "clock_steps"),
        "stamps_refused": total("client", "stamps_refused"),
        "kernel_reads": total("client", "kernel_reads"),
        "user_reads": total("client", "user_reads"),
        "retried": total("client", "retried_on_stale_connection") + total("client", "calls_refused_and_retried"),
    }


def _aim(target: Target, server: bundled_server.Bundled) -> Target:
    url = f"grpc://{server.facts['grpc']}" if protocols()[target.protocol].grpc else server.url
    return replace(target, url=url, model=target.model or server.models[0])


def _arrival_process(scenario: Scenario) -> str | None:
    """The arrival process whose shape can be tested: only a constant rate has one."""
    if scenario.frame is not None:
        return "constant"
    params = scenario.params.model_dump()
    if not isinstance(params.get("rate"), int | float):
        return None
    arrival = params.get("arrival", "poisson")
    name = arrival["process"] if isinstance(arrival, Mapping) else arrival
    return "poisson" if name == "loadgen" else str(name)
