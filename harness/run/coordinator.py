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
from typing import Any
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
from plimsoll.harness.run.accounts import ended, planned, start
from plimsoll.harness.run.ahead import Ahead
from plimsoll.harness.run.crew import Crew
from plimsoll.harness.run.labelling import of_payloads
from plimsoll.harness.run.readiness import preflight
from plimsoll.harness.run.rundir import RunDirectory, Sealed, open_sealed, seal
from plimsoll.harness.run.token_calibration import measured
from plimsoll.harness.run.watcher import Beginning, Watcher
from plimsoll.harness.run.workforce import Member, Workforce, deaths
from plimsoll.harness.secrecy.redaction import redact
from plimsoll.harness.transport.client import Target
from plimsoll.scenarios.plan import cancellation
from plimsoll.scenarios.plan.blocks import Extent, Survey
from plimsoll.scenarios.plan.plan import Dealing
from plimsoll.scenarios.samples.reference import Expected, references
from plimsoll.scenarios.spec import Scenario
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
    calibrate_tokens: bool = False
    run_id: str = field(default_factory=lambda: secrets.token_hex(5))


@dataclass(frozen=True, slots=True)
class Outcome:
    """The sealed directory, whether the user interrupted the run, and why a watcher did (None: none did)."""

    sealed: Sealed
    interrupted: bool
    enough: str | None = None


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
            if protocol.lists_models and not target.model:
                target = replace(target, model=await first_model(target) or "")
            if self._job.calibrate_tokens:
                await self._count_tokens(target)
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

    async def _count_tokens(self, target: Target) -> None:
        """Have lengths in the endpoint's own tokens from now on."""
        job, said = self._job, await measured(self._job.scenario, target)
        self._notice(
            f"a word has {said['tokens_per_word']:g} tokens here, {said['factor']:g} times what was assumed, and each "
            f"prompt {said['added_tokens']:g} more"
        )
        known = {name: said[name] for name in ("tokens_per_word", "added_tokens")}
        source = job.scenario.source.model_copy(update=known)
        self._job = replace(
            job,
            scenario=job.scenario.model_copy(update={"source": source}),
            public={**job.public, "source": {**job.public["source"], **known}},
            foreseen={**job.foreseen, "token_calibration": said},
        )

    async def _measure(self, target: Target, server: bundled_server.Bundled | None) -> Sealed:
        job = self._job
        scenario = job.scenario
        source = scenario.source_object()
        n_samples = len(source)
        plan = await asyncio.to_thread(scenario.blocks(n_samples).held().survey)
        workforce = self._workforce
        shards = await workforce.gather(plan, scenario.workers, self._notice)
        await self._look_around(target)
        target, tuning = await tuned(target, plan, shards) if not workforce.facts() else (target, {})
        run_id = job.run_id
        manifest = self._manifest(run_id, target, server, plan, shards)
        manifest |= {**job.foreseen, **tuning, "source_samples": n_samples}
        self._ahead.prepare(manifest, job.public, plan.pieces, planned(scenario, plan, shards), workforce.dealing)
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
            manifest["normaliser"] = _stated_normaliser(target.options)
        answers = None
        if scenario.mode == "accuracy":
            answers = self._gather_outputs(plan, run_id, references(source, scenario.reference))
        chosen = partial(cancellation.chosen, scenario.cancel, scenario.seed, plan) if scenario.cancel else None
        facts = self._facts(plan, shards)
        members, dealing = workforce.members, workforce.dealing
        if await workforce.concluded(job.directory.path, manifest, job.public, plan.pieces, facts):
            return open_sealed(job.directory.path, left=True)
        held = job.directory, manifest, job.public, plan.pieces, members, facts, chosen, dealing, answers
        sealed = seal(*held, of_payloads(scenario, source), source)
        await asyncio.sleep(0.005)  # sealing lets the loop wait: a signal that came meanwhile is heard here
        return sealed

    def _manifest(
        self, run_id: str, target: Target, server: bundled_server.Bundled | None, plan: Survey, shards: int
    ) -> dict[str, Any]:
        """Without t0, which is not known yet."""
        return manifest_file.build(
            run_id=run_id,
            command=self._job.command,
            scenario=self._job.public,
            target_url=target.url,
            model=target.model,
            bundled=server.facts if server is not None else None,
            fingerprint=plan.fingerprint,
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
        self, plan: Survey, run_id: str, expected: Sequence[Expected] | None
    ) -> Callable[[Path], None] | None:
        from plimsoll.harness.generator.outputs import gather  # what reads answers, which no other run keeps

        job = self._job
        try:
            return gather(job.directory.segments, plan.pieces.whole(), run_id, expected, job.scenario.kind in QUANTILES)
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

    def _facts(self, plan: Extent, shards: int) -> GeneratorFacts:
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


def _aim(target: Target, server: bundled_server.Bundled) -> Target:
    url = f"grpc://{server.facts['grpc']}" if protocols()[target.protocol].grpc else server.url
    return replace(target, url=url, model=target.model or server.models[0])


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
    paced = plan.open_loop and plan.n_queries > 1
    return paced and target.spin_ns is None and protocols()[target.protocol].needs_url and engine_of(target) == "native"


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
