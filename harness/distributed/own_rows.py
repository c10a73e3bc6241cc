"""The rows of one agent that stay on its host: sealed as a run directory of its part, and asked about.

What is asked, and what it answers, ``plimsoll.slo.parts`` knows. Every verb opens the directory.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from plimsoll.harness.distributed.fleet_messages import COUNTED
from plimsoll.harness.run.rundir import RunDirectory, Sealed, create, make_room, seal
from plimsoll.harness.sealing.accounts import ended, planned
from plimsoll.harness.sealing.labelling import of_payloads
from plimsoll.harness.sealing.plan_file import Share
from plimsoll.harness.sealing.workforce import Member, deaths
from plimsoll.harness.secrecy.redaction import redact
from plimsoll.scenarios.plan import cancellation
from plimsoll.scenarios.plan.blocks import Survey
from plimsoll.scenarios.spec import Scenario
from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.parts.part import Part
from plimsoll.slo.validity.generator import GeneratorFacts


def folder_of(out: Path, run_id: str, name: str) -> RunDirectory:
    """A new folder for an agent's part of one run. Raises HarnessFault."""
    return create(out.absolute() / f"{run_id}-{re.sub(r'[^A-Za-z0-9._-]+', '-', name)}")


def facts_of(scenario: Scenario, plan: Survey, share: Share) -> GeneratorFacts:
    """What is known before the first query of the generator of a part. How long the run is to be is the whole's."""
    found = planned(scenario, share.part(plan.pieces).extent(), share.shards)
    shape = "constant, by lot" if found.process == "constant" else found.process  # a part drawn by lot is not even
    slots = tuple(found.slots[shard] for shard in share.mine) if found.slots else ()
    return replace(found, process=shape, slots=slots, n_workers=len(share.mine), min_queries=0, min_duration_ns=0)


class OwnRows:
    """Made when the workers have ended: seals what they left."""

    def __init__(
        self,
        directory: RunDirectory,
        manifest: Mapping[str, Any],
        public: Mapping[str, Any],
        scenario: Scenario,
        plan: Survey,
        members: Sequence[Member],
    ) -> None:
        share = Share.of(manifest)
        assert share is not None
        facts = ended(facts_of(scenario, plan, share), members)
        faults = map(redact, [*deaths(members), *facts.worker_faults])
        chosen = partial(cancellation.chosen, scenario.cancels, scenario.seed, plan) if scenario.cancel else None
        facts = replace(facts, worker_faults=tuple(faults))
        payloads = of_payloads(scenario, scenario.source_object()) if scenario.labels else None
        given = directory, manifest, public, plan.pieces, members, facts, chosen, share.dealing
        self._sealed: Sealed = seal(*given, payloads=payloads)
        self._part: tuple[tuple[str, ...], Part] | None = None

    @property
    def message(self) -> dict[str, Any]:
        """What the master hears of it."""
        facts = self._sealed.facts
        counts = {name: getattr(facts, name) for name in COUNTED}
        return {"type": "sealed", "folder": str(self._sealed.directory.path), "counts": counts}

    def answer(self, asked: Mapping[str, Any]) -> bytes:
        """The answer to one question. Raises ValueError for what is none."""
        make_room(self._sealed.directory.path)  # each comes in a thread of its own
        objectives = tuple(map(str, asked["objectives"]))
        if self._part is None or self._part[0] != objectives:
            made = Part(self._sealed.records, self._sealed.facts, [parse(text) for text in objectives])
            self._part = objectives, made
        return self._part[1].answer(base64.b64decode(asked["data"]))
