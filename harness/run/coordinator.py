"""The coordinator: check the target, start n workers, agree t0, supervise, gather, seal.

A local run is shard 0 of 1 of the same plan that forty processes would share. Nothing here is timed: the workers hold
the clocks. Whatever happens after t0 (Ctrl-C, a killed worker, a full disk, a dead endpoint), what was measured is
sealed and reported.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar
from urllib.parse import urlsplit

import numpy as np

from plimsoll.harness.clock import LoopClock
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.generator import native
from plimsoll.harness.host import limits
from plimsoll.harness.host import manifest as manifest_file
from plimsoll.harness.host.calibration_table import engine_of
from plimsoll.harness.process import writing
from plimsoll.harness.protocols._clients import first_model
from plimsoll.harness.protocols._discovery import protocols
from plimsoll.harness.run import bundled as bundled_server
from plimsoll.harness.run import happenings, mixture, originals
from plimsoll.harness.run.ahead import Ahead
from plimsoll.harness.run.crew import Crew
from plimsoll.harness.run.readiness import reach
from plimsoll.harness.run.rundir import RunDirectory, Sealed, join, open_sealed, seal, write_scenario
from plimsoll.harness.run.token_calibration import measured, unmeasurable
from plimsoll.harness.run.watcher import Beginning, Watcher
from plimsoll.harness.sealing.accounts import ended, planned, start
from plimsoll.harness.sealing.labelling import of_payloads
from plimsoll.harness.sealing.workforce import Member, Workforce, deaths
from plimsoll.harness.secrecy.redaction import redact
from plimsoll.harness.transport.client import Target
from plimsoll.scenarios.plan import cancellation
from plimsoll.scenarios.plan.blocks import Extent, together
from plimsoll.scenarios.plan.plan import Dealing
from plimsoll.scenarios.samples.payload import payload_digest
from plimsoll.scenarios.samples.reference import references
from plimsoll.scenarios.spec import Scenario
from plimsoll.scenarios.text.events import beyond
from plimsoll.scenarios.text.problems import Place
from plimsoll.slo.metrics.indicator import live_ones
from plimsoll.slo.metrics.word_errors import normaliser
from plimsoll.slo.peers.loadgen import QUANTILES
from plimsoll.slo.records.records import IntArray, Status
from plimsoll.slo.statistics.distribution import quantile
from plimsoll.slo.validity.generator import GeneratorFacts

#: The probe of the host's timer: sleeps of this length, so many of them, and never for longer than this.
SLEEP_NS = 1_000_000
SLEEPS = 200
LIMIT_NS = 400_000_000
#: Measured with 30 % of both cores stolen: 200 us awake cost nothing against 50, 1 ms made one request in five late
#: (docs/decisions/generator.md).
MOST_NS = 200_000
_QUANTILES = (("p50", "0.5"), ("p90", "0.9"), ("p99", "0.99"), ("max", "1"))
#: Each seals what was measured: Ctrl-C, a polite kill, a closed terminal.
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: After Ctrl-C, how long answers in flight are waited for.
GRACE_NS = 5_000_000_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Job:
    """One run, fully checked: nothing in here can be wrong any more. ``classes``: of a mix, each of them as a run."""

    scenario: Scenario
    public: Mapping[str, Any]  # the scenario without secrets: what is written down
    target: Target
    directory: RunDirectory
    command: Sequence[str]
    bundled: Sequence[str] | None = None
    foreseen: Mapping[str, Any] = field(default_factory=dict)  # for the manifest: see harness/run/host_check.py
    calibrate_tokens: bool = False
    run_id: str = field(default_factory=lambda: secrets.token_hex(5))
    classes: Mapping[str, Job] = field(default_factory=dict)
    serving: int | None = None  # the process of the bundled server, where it was started before
    events: Sequence[happenings.Event] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The sealed directory, whether the user interrupted the run, and why a watcher did (None: none did)."""

    sealed: Sealed
    interrupted: bool
    enough: str | None = None


class Part:
    """What one plan of a run needs: who sends it and what is sealed of it. A mix has one for each class, ``name``."""

    def __init__(self, run: Job, name: str, workforce: Workforce, notice: Callable[[str], None]) -> None:
        self.job = replace(run.classes[name], run_id=run.run_id) if name else run
        self._run = run
        self.workforce, self.name = workforce, name
        self._notice = partial(_of_class, name, notice) if name else notice
        self._place = list(run.classes).index(name) if name else 0
        self.ahead = Ahead(self.job.directory, "the coordinator", notice)
        self.first = self.shards = self._n_samples = 0
        self.failed: tuple[str, ...] = ()
        self.manifest: dict[str, Any] = {}

    async def prepare(self, target: Target, server: bundled_server.Bundled | None, first: int) -> None:
        """Plan, and be written down. ``first``: the number of its first worker among those of the run."""
        job, workforce, self.target, self.first = self.job, self.workforce, target, first
        self.source = job.scenario.source_object()
        n_samples, scenario = len(self.source), job.scenario
        # Now: whoever changes a file later does not lose the run.
        self._expected = references(self.source, scenario.reference) if scenario.mode == "accuracy" else None
        self.plan = await asyncio.to_thread(job.scenario.blocks(n_samples).held().survey)
        self.shards = await workforce.gather(self.plan, job.scenario.workers, self._notice)
        await self._look_around()
        tuning: dict[str, Any] = {}
        if not workforce.facts():
            self.target, tuning = await tuned(target, self.plan, self.shards)
        self.manifest = manifest_file.build(
            run_id=job.run_id,
            command=job.command,
            scenario=job.public,
            target_url=target.url,
            model=target.model,
            traceparent=target.traceparent,
            bundled=server.facts if server is not None else None,
            fingerprint=self.plan.fingerprint,
            workers=self.shards,
        )  # without t0, which is not known yet
        self.manifest |= {**job.foreseen, **tuning, "source_samples": n_samples}
        if job.scenario.keeps_answers:
            self.manifest["payloads_sha256"] = await asyncio.to_thread(payload_digest, self.source)
        phases = happenings.phases_at(self._run.scenario)
        self.manifest |= {"phases": phases} if phases else {}
        if self.name:
            self.manifest |= {"class": self.name, "first_query_id": self._place * mixture.IDS, "first_worker": first}
        try:
            await asyncio.to_thread(originals.leave, job.directory.path, scenario)
        except OSError as error:
            self._notice(f"warning: {originals.NAME} could not be written ({error.strerror}): no latencies as recorded")
        self.ahead.prepare(self.manifest, job.public, self.plan.pieces, self._planned(), workforce.dealing)

    async def _look_around(self) -> None:
        """An agent on another host has another 127.0.0.1. Raises HarnessFault where the bundled server is on ours."""
        far = elsewhere(self.workforce.facts(), manifest_file.host_facts()["hostname"])
        if far and self.job.bundled is not None:
            await self.workforce.kill()
            raise HarnessFault(
                "the bundled server listens on 127.0.0.1 of this host only, and there are agents elsewhere: "
                f"{', '.join(far)}. Nothing was "
                "sent. Start `plimsoll serve --host` with an address that they reach, and name it with --url"
            )
        if far and loopback(self.target.url):
            url = manifest_file.public_url(self.target.url)
            self._notice(f"warning: target.url is {url}, and each agent asks that of its own host: {', '.join(far)}")

    async def count_tokens(self, target: Target) -> None:
        """Have lengths in the endpoint's own tokens from now on, where it has any. Raises HarnessFault."""
        if unmeasurable(self.job.scenario):
            return  # a class beside one that is measured
        job, said = self.job, await measured(self.job.scenario, target)
        self._notice(
            f"a word has {said['tokens_per_word']:g} tokens here, {said['factor']:g} times what was assumed, and each "
            f"prompt {said['added_tokens']:g} more"
        )
        known = {name: said[name] for name in ("tokens_per_word", "added_tokens")}
        source = job.scenario.source.model_copy(update=known)
        self.job = replace(
            job,
            scenario=job.scenario.model_copy(update={"source": source}),
            public={**job.public, "source": {**job.public["source"], **known}},
            foreseen={**job.foreseen, "token_calibration": said},
        )

    def _planned(self, force: Mapping[str, Any] = MappingProxyType({})) -> GeneratorFacts:
        return planned(self.job.scenario, self.plan, self.shards, force)

    async def start(self, log: Any, heard: Callable[[Part, Member, dict[str, Any]], None]) -> None:
        """Have the workers make ready. Raises HarnessFault."""
        job, workforce = self.job, self.workforce
        told = {"first_query": self._place * mixture.IDS} if self.name else {}
        share = partial(worker_spec, job.scenario, self.target, job.run_id, job.directory.segments)
        shards, dealing = self.shards, workforce.dealing
        specs = [share(index=index, shards=shards, dealing=dealing) | told for index in range(shards)]
        await workforce.start(specs, log, partial(heard, self))

    def go(self, t0_ns: int) -> None:
        """t0 is known."""
        facts = self.workforce.facts()
        known = {**start(t0_ns), **facts}
        self.ahead.announce(known, self._planned(facts))
        self.manifest |= known
        self.workforce.go(t0_ns)
        self._t0_ns = t0_ns

    def happened(self, found: happenings.Happenings) -> None:
        """Events so far, and the phases that they cut."""
        self.manifest |= found.known
        self.ahead.announce(found.known)
        self.failed = found.faults

    def conclude(self, aborted: str | None, interrupted: bool) -> tuple[GeneratorFacts, Callable[[Path], None] | None]:
        """What its workers' accounts say, and what writes its answers, where it keeps them."""
        scenario = self.job.scenario
        self.manifest |= self.workforce.facts()
        if getattr(scenario.source, "kind", "") == "audio":  # word error rates are of one normaliser
            self.manifest["normaliser"] = _stated_normaliser(self.target.options)
        answers = self._gather_outputs() if scenario.keeps_answers else None
        members = self.workforce.members
        facts = ended(self._planned(self.workforce.facts()), members)
        faults = [*deaths(members), *self.workforce.faults(), *facts.worker_faults]
        faults += _exhausted(members, self.workforce.facts(), (time.monotonic_ns() - self._t0_ns) / 1e9)
        facts = replace(facts, worker_faults=tuple(map(redact, faults)), interrupted=interrupted)
        failed = self.failed if self._place == 0 else ()
        return replace(facts, aborted=aborted or facts.aborted, event_faults=failed), answers

    def _gather_outputs(self) -> Callable[[Path], None] | None:
        from plimsoll.harness.generator.outputs import gather  # what reads answers, which no other run keeps

        job = self.job
        try:
            mlperf = job.scenario.mode == "accuracy" and job.scenario.kind in QUANTILES
            first = int(self.manifest.get("first_query_id", 0))
            return gather(job.directory.segments, self.plan.pieces.whole(), job.run_id, self._expected, mlperf, first)
        except OSError as error:
            self._notice(f"warning: the answers in {job.directory.segments} could not be read ({error.strerror})")
            return None

    async def seal(self, aborted: str | None, interrupted: bool) -> Sealed:
        """The rows in their place, with what they mean."""
        facts, answers = self.conclude(aborted, interrupted)
        job, plan, workforce, cancel = self.job, self.plan, self.workforce, self.job.scenario.cancel
        if await workforce.concluded(job.directory.path, self.manifest, job.public, plan.pieces, facts):
            return open_sealed(job.directory.path, left=True)
        chosen = partial(cancellation.chosen, job.scenario.cancels, job.scenario.seed, plan) if cancel else None
        payloads = of_payloads(job.scenario, self.source)
        members, dealing, pieces = workforce.members, workforce.dealing, plan.pieces
        held = job.directory, self.manifest, job.public, pieces, members, facts, chosen, dealing, answers, payloads
        return seal(*held, self.source)


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
        self._parts = [Part(job, name, workforce or Crew(), notice) for name in job.classes or [""]]
        self._watchers = tuple(watchers)
        self._happenings = happenings.Happenings(
            job.events, job.directory.path, notice, bool(job.events) and not job.scenario.phases
        )
        self._enough: str | None = None
        self._interrupts = 0
        self._t0_ns = 0
        self._over = False
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
            if self._job.bundled is not None:
                self._notice("starting the bundled reference server ...")
                server = await bundled_server.start(self._job.bundled, self._job.directory.server_log)
            asked = [_reached(part.job, server) for part in self._parts]
            targets = self._all_well(await asyncio.gather(*asked, return_exceptions=True))
            if self._job.calibrate_tokens:
                await self._count_tokens(targets)
            pid = self._job.serving if server is None else server.process.pid
            for watcher in self._watchers:
                await watcher.ready([target.url for target in targets], pid)
            sealed = await self._measure(targets, server)
        except asyncio.CancelledError:
            await self._kill()
            raise HarnessFault("interrupted before the first query: nothing was sent", ExitCode.INTERRUPTED) from None
        finally:
            for part in self._parts:
                part.ahead.close()
            for watcher in self._watchers:
                await watcher.close()
            if server is not None:
                await bundled_server.stop(server.process)
            for number in _STOP_SIGNALS:
                loop.remove_signal_handler(number)
        return Outcome(sealed, bool(self._interrupts), self._enough)

    async def _count_tokens(self, targets: Sequence[Target]) -> None:
        """Have every class count in its endpoint's tokens, and write that down. Raises HarnessFault."""
        counts = [part.count_tokens(target) for part, target in zip(self._parts, targets, strict=True)]
        self._all_well(await asyncio.gather(*counts, return_exceptions=True))
        if (job := self._job).classes:
            mix = {
                part.name: {**job.public["mix"][part.name], "source": part.job.public["source"]} for part in self._parts
            }
            self._job = replace(job, public={**job.public, "mix": mix})

    async def _measure(self, targets: Sequence[Target], server: bundled_server.Bundled | None) -> Sealed:
        job, parts, first = self._job, self._parts, 0
        for part, target in zip(parts, targets, strict=True):
            await part.prepare(target, server if part.job.bundled is not None else None, first)
            first += part.shards
        self._in_time()
        if job.classes:
            write_scenario(job.directory, job.public)
        with writing.log(job.directory.worker_log) as log:
            await self._start(log)
            lead_ns = max(part.workforce.lead_ns for part in parts)
            self._t0_ns = time.monotonic_ns() + lead_ns + job.scenario.warmup_ns
            for part in parts:
                part.go(self._t0_ns)
            plan, dealing = together([part.plan for part in parts]), parts[0].workforce.dealing
            for watcher in self._watchers:
                watcher.begin(Beginning(job.run_id, job.scenario, plan, self._t0_ns, first, dealing))
            pid = server.process.pid if server is not None else None
            self._happenings.begin(self._t0_ns, targets[0].url, pid, self._happened)
            await self._finished()
        self._over = True
        await self._happenings.end(bool(self._interrupts))
        for part in parts if job.events else []:
            part.happened(self._happenings)
        for watcher in self._watchers:
            watcher.end()
        sealed = [await part.seal(self._enough, bool(self._interrupts)) for part in parts]
        classes = dict(zip(job.classes, sealed, strict=False))
        whole = join(job.directory, job.public, classes) if classes else sealed[0]
        await asyncio.sleep(0.005)  # sealing lets the loop wait: a signal that came meanwhile is heard here
        return whole

    async def _start(self, log: Any) -> None:
        """Every worker is ready. Raises HarnessFault with everything that went wrong; no worker is left then."""
        ready = [part.start(log, self._on_status) for part in self._parts]
        try:
            self._all_well(await asyncio.gather(*ready, return_exceptions=True))
        except BaseException:
            await self._kill()
            raise

    def _all_well(self, found: Sequence[T | BaseException]) -> list[T]:
        """What was found of each part. Raises HarnessFault with everything that went wrong, and in which class."""
        faults = {}
        for part, one in zip(self._parts, found, strict=True):
            if isinstance(one, HarnessFault):
                faults[part.name] = one
            elif isinstance(one, BaseException):
                raise one
        if faults:
            raise mixture.fault_of(faults)
        return [one for one in found if not isinstance(one, BaseException)]

    async def _finished(self) -> None:
        """Every worker is done or dead; classes without an end of their own are ended by the others'."""
        rest = [part.workforce for part in self._parts if part.job.scenario.endless]
        await asyncio.gather(*(part.workforce.finished() for part in self._parts if part.workforce not in rest))
        for workforce in rest if len(rest) < len(self._parts) else []:
            workforce.tell({"type": "stop"})
        await asyncio.gather(*(workforce.finished() for workforce in rest))

    def _in_time(self) -> None:
        """Events and phases begin while something is sent. Raises HarnessFault; nothing was sent."""
        scenario, plan = self._job.scenario, together([part.plan for part in self._parts])
        closed = None if scenario.mix else scenario.stop.max_duration_ns or scenario.stop.min_duration_ns
        late = beyond(scenario.events, scenario.phases, plan.last_ns if scenario.open_loop else closed)
        if late:
            raise HarnessFault([f"{scenario.name}:{Place('').at(loc)[1:]}: {text}" for loc, text in late])

    def _happened(self, done: happenings.Done) -> None:
        for part in self._parts:
            part.happened(self._happenings)
        for watcher in self._watchers:
            watcher.happened(asdict(done))

    def _tell(self, message: Mapping[str, Any]) -> None:
        for part in self._parts:
            part.workforce.tell(message)

    async def _kill(self) -> None:
        for part in self._parts:
            await part.workforce.kill()

    def _on_status(self, part: Part, member: Member, message: Mapping[str, Any]) -> None:
        part.ahead.alive()
        for watcher in self._watchers:
            watcher.heard(part.first + member.index, message)
        if self._enough is None and not self._interrupts:
            self._enough = next((reason for watcher in self._watchers if (reason := watcher.enough())), None)
            if self._enough is not None:
                self._tell({"type": "stop"})

    def _interrupt(self) -> None:
        self._interrupts += 1
        self._happenings.interrupt()
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
            self._tell({"type": "stop"})
            asyncio.get_running_loop().call_later(GRACE_NS / 1e9, self._drop)
        elif self._interrupts == 2:
            self._drop()
        else:
            for part in self._parts:
                part.workforce.kill_unfinished()

    def _drop(self) -> None:
        self._tell({"type": "drop", "status": int(Status.UNFINISHED), "error": "interrupted by the user"})


async def _reached(job: Job, server: bundled_server.Bundled | None) -> Target:
    """Where a load goes, tried out."""
    target = job.target
    if job.bundled is not None and server is not None:
        target = aim(target, server, job.bundled[1])
    protocol = protocols()[target.protocol]
    if protocol.needs_url:
        await reach(target, job.scenario.client)
    if protocol.prepare is not None:
        target = await protocol.prepare(target)
    if protocol.lists_models and not target.model:
        target = replace(target, model=await first_model(target) or "")
    return target


def worker_spec(
    scenario: Scenario, target: Target, run_id: str, segments: Path, index: int, shards: int, dealing: Dealing
) -> dict[str, Any]:
    """What one worker is told (``harness/generator/worker.py``), shard ``index`` of ``shards``. May hold secrets."""
    return {
        "type": "spec",
        "scenario": {key: value for key, value in scenario.to_mapping().items() if key not in ("events", "phases")},
        "where": scenario.name,
        "target": {**asdict(target), "options": dict(target.options)},
        "run_id": run_id,
        "shard": index,
        "shards": shards,
        "dealing": dealing,
        "segments": str(segments),
        "drain_ns": scenario.drain_ns,
        "max_outstanding": max(1, target.max_outstanding // shards),
        "live": live_ones(),
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


def _of_class(name: str, notice: Callable[[str], None], text: str) -> None:
    begin = "warning: " * text.startswith("warning: ")
    notice(f"{begin}class {name}: {text.removeprefix(begin)}")


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


def _stated_normaliser(options: Mapping[str, Any]) -> str:
    """Name and version of the normaliser that a protocol's options ask for, as reports state it."""
    audio = options.get("audio")
    name = options.get("normaliser") or (audio.get("normaliser") if isinstance(audio, Mapping) else None) or "basic"
    return normaliser(str(name)).text


def aim(target: Target, server: bundled_server.Bundled, model: str) -> Target:
    """The target at the bundled server, which was started for this model among others."""
    url = f"grpc://{server.facts['grpc']}" if protocols()[target.protocol].grpc else server.url
    own = model if model in server.models else server.models[0]
    return replace(target, url=url, model=target.model or own)


async def lateness(sleeps: int = SLEEPS, limit_ns: int | None = None) -> IntArray:
    """How late each of so many sleeps of 1 ms was, ascending; fewer where ``limit_ns`` is over before."""
    clock = LoopClock(asyncio.get_running_loop())
    over = asyncio.Event()
    late: list[int] = []
    due_ns = clock.now_ns() + SLEEP_NS
    until_ns = clock.now_ns() + limit_ns if limit_ns is not None else None

    def fire() -> None:
        nonlocal due_ns
        now = clock.now_ns()
        late.append(now - due_ns)
        due_ns = clock.now_ns() + SLEEP_NS
        if len(late) == sleeps or (until_ns is not None and now > until_ns):
            over.set()
        else:
            clock.wake_at(due_ns, fire)

    clock.wake_at(due_ns, fire)
    await over.wait()
    clock.close()
    return np.sort(np.array(late, dtype=np.int64))


def matters(target: Target, plan: Extent) -> bool:
    """Whether what the probe finds would change anything for this load, sent by workers of this host."""
    paced = plan.open_loop and plan.n_queries > 1 and protocols()[target.protocol].needs_url
    return paced and target.spin_ns is None and engine_of(target, plan.hurried) == "native"


def chosen(late: IntArray, plan: Extent, workers: int) -> dict[str, Any]:
    """What was found and what follows from it, as the manifest keeps it. ``late`` ascending, not empty."""
    ordered = late.astype(np.float64)
    found = {name: int(quantile(ordered, q)) for name, q in _QUANTILES}
    wanted = min(max(found["p90"], native.SPIN_NS), MOST_NS)
    spin_ns = native.spin_of(plan, wanted, workers)
    gap_ns = workers * (plan.last_ns - plan.first_ns) / plan.n_queries
    return {
        "late_ns": found,
        "sleeps": len(late),
        "spin_ns": spin_ns,
        "core_share": round(spin_ns / gap_ns, 6) if gap_ns else 0.0,
    }


async def tuned(target: Target, plan: Extent, workers: int) -> tuple[Target, dict[str, Any]]:
    """The target with its spin chosen, and what the manifest keeps of that; both unchanged where it does not matter.

    The spin is the p90 of the lateness found, so that nine of ten wake-ups are hidden: at least what is stayed awake
    for without a probe, at most ``MOST_NS``, and never more than a quarter of a core at the planned rate. What is later
    than ``MOST_NS`` is not the timer but somebody else on the cores, and against that no waiting awake helps.
    """
    if not matters(target, plan):
        return target, {}
    found = chosen(await lateness(limit_ns=LIMIT_NS), plan, workers)
    return replace(target, spin_ns=found["spin_ns"]), {"timer": found}
