"""A run whose rows stay with its agents: judged by what they answer, and written down without rows.

What can't be judged so is refused before the load. Questions and answers are bytes here; ``ask`` carries them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from plimsoll.harness.distributed.agents import Agent
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import OF_OUTCOME, ExitCode
from plimsoll.harness.protocols._discovery import protocols
from plimsoll.harness.run.job import Prepared
from plimsoll.harness.run.judged import exiting, notes
from plimsoll.harness.run.promises import Promises, kept
from plimsoll.harness.run.rundir import Sealed, write_left
from plimsoll.reports.report import Report
from plimsoll.reports.report_of_parts import build
from plimsoll.scenarios.plan.blocks import Blocks
from plimsoll.slo.parts.judge_parts import Send, judge_parts, unjudgeable
from plimsoll.slo.parts.part import Part
from plimsoll.slo.records import records as rec
from plimsoll.slo.records.foreign import one_line
from plimsoll.slo.validity.generator import GeneratorFacts

#: What sums of anything that agents may say can end in.
_NONSENSE = (ArithmeticError, AssertionError, LookupError, TypeError, ValueError)
Ask = Callable[[bytes, Sequence[str]], Coroutine[Any, Any, list[bytes]]]


def check(prepared: Prepared) -> None:
    """Raises HarnessFault where rows of this run can't stay with its agents, and leaves no folder of it then."""
    scenario = prepared.job.scenario
    reasons = unjudgeable(prepared.promises)
    reasons += ["mode accuracy, or answers that are kept"] if scenario.keeps_answers else []
    spoken = protocols().get(scenario.target.protocol)
    if getattr(scenario.source, "kind", "") == "audio" or (spoken and (spoken.sessions or spoken.source == "audio")):
        reasons.append(f"sessions or speech (protocol {scenario.target.protocol})")
    elif scenario.kind == "replay" and scenario.blocks(1).extent().widest > 1:
        reasons.append("queries of several samples (this recording has some)")
    reasons += [f"kind {scenario.kind}"] if scenario.kind in ("offline", "multi_stream") else []
    reasons += ["cancel"] if scenario.cancel else []
    reasons += [f"keep {scenario.keep}"] if scenario.keep != "all" else []
    reasons += ["retries"] if scenario.retries else []
    reasons += ["events or phases"] if scenario.events or scenario.phases else []
    reasons += [f"objectives on the server ({one})" for one in prepared.promises.objectives if one.of_server]
    if reasons:
        prepared.job.directory.segments.rmdir()
        prepared.job.directory.path.rmdir()
        raise HarnessFault(
            f"--leave-rows: a run whose rows stay with its agents can't have {'; '.join(reasons)}. Leave out the one "
            "or the other"
        )


async def concluded(run: Sealed, plan: Blocks, agents: Sequence[Agent], ask: Ask) -> bool:
    """Judge what stays with the agents, and write the run directory; False: nothing stays with anybody.

    An agent that is lost meanwhile makes the run INVALID, and the others are asked again. Raises HarnessFault where the
    rows can't be judged there, or no disk takes the verdict: they can be brought together all the same.
    """
    if not any(agent.part for agent in agents):
        return False
    promises, loop, gone = kept(run), asyncio.get_running_loop(), list[str]()

    def send(question: bytes) -> Sequence[bytes]:
        return asyncio.run_coroutine_threadsafe(ask(question, promises.texts), loop).result()

    while True:
        there = [agent for agent in agents if agent.part and not agent.lost]
        facts = _summed(run.facts, there, gone)
        try:
            told = replace(run, manifest={**run.manifest, "left": _where(agents)}, facts=facts)
            report = await asyncio.to_thread(_judged, told, promises, send if there else _nobody(facts, promises))
            break
        except HarnessFault as fault:
            gone += fault.errors
        except _NONSENSE as error:
            raise _stuck(told, f"they can't be judged there: {one_line(error, 300)}") from None
    try:
        write_left(told, plan, {"facts": facts.to_json(), "promises": promises.to_json(), "report": report.document()})
    except OSError as error:
        raise _stuck(told, f"the verdict could not be written ({error.strerror}). Make room") from None
    return True


def _nobody(facts: GeneratorFacts, promises: Promises) -> Send:
    """Answers where everybody is lost: of no rows."""
    part = Part(rec.empty(), facts, promises.objectives)
    return lambda question: [part.answer(question)]


def _stuck(run: Sealed, why: str) -> HarnessFault:
    path = run.directory.path
    return HarnessFault(
        f"the rows are whole with the agents ({_places(run)}), and {why.rstrip('.')}. Copy those folders here and "
        f"bring them together: plimsoll report {path} --agent-folder DIR, once for each",
        ExitCode.INVALID,
    )


def _places(run: Sealed) -> str:
    return ", ".join(f"{one['folder']} of {one['name']}" for one in run.manifest["left"])


def _judged(run: Sealed, promises: Promises, send: Send) -> Report:
    told = replace(promises, notes=notes(run, promises))
    found = judge_parts(send, run.facts, told)
    manifest = {**run.manifest, "directory": str(run.directory.path)}
    said = f"rows stayed with the agents ({_places(run)}); charts and sections that need them are left out"
    report = build(manifest, run.scenario, found, run.facts, told, said)
    return exiting(report, OF_OUTCOME[report.verdict.outcome])


def _summed(facts: GeneratorFacts, there: Sequence[Agent], gone: Sequence[str]) -> GeneratorFacts:
    """The facts with what the agents counted in their rows."""
    counts = [agent.part["counts"] for agent in there if agent.part]
    totals = {name: sum(one[name] for one in counts) for name in ("sent", "recorded", "lost")}
    for name in ("planned", "planned_queries"):
        totals[name] = getattr(facts, name) or sum(one[name] for one in counts)
    longest = max((one["elapsed_ns"] for one in counts), default=0)
    return replace(facts, **totals, elapsed_ns=longest, worker_faults=(*facts.worker_faults, *gone))


def _where(agents: Sequence[Agent]) -> list[dict[str, Any]]:
    return [
        {
            "name": agent.name,
            "folder": str((agent.part or agent.ready or {}).get("folder", "")),
            "shards": list(agent.shards),
            "lost": agent.lost,
        }
        for agent in agents
        if agent.shards
    ]
