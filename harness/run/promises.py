"""What a run is judged against, from the command line to a file beside its records and back.

A promise is an expression or a file of the short grammar, an OpenSLO document, vLLM's goodput limits or a published
preset, and how sure the verdict must be. Nothing is judged here.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, Field

from plimsoll.documents import files
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.host.manifest import absent
from plimsoll.harness.process.writing import write_json
from plimsoll.harness.run.rundir import RunDirectory, Sealed
from plimsoll.slo import promises
from plimsoll.slo.objectives import objective
from plimsoll.slo.objectives.objective import Objective, ObjectiveError
from plimsoll.slo.objectives.presets import Preset, UnknownPresetError, preset
from plimsoll.slo.objectives.selector import Condition
from plimsoll.slo.promises import DEFAULT_CONFIDENCE
from plimsoll.slo.statistics.distribution import exact

if TYPE_CHECKING:
    from plimsoll.slo.objectives.openslo import Loaded, Slo

SCHEMA = "plimsoll.promises/1"
FILE = "promises.json"


@dataclass(frozen=True, slots=True)
class Promises(promises.Promises):
    """All promises of one run: what it is judged against, and where that came from.

    ``documents``: the text of the OpenSLO documents. ``presets``: where some of the objectives came from.
    """

    documents: tuple[str, ...] = ()
    presets: tuple[Preset, ...] = ()

    @property
    def texts(self) -> list[str]:
        """The objectives of the short grammar, as text."""
        return [str(one) for one in self.objectives]

    def to_json(self) -> dict[str, object]:
        """As ``promises.json`` holds them."""
        return {
            "schema": SCHEMA,
            "objectives": self.texts,
            "openslo": list(self.documents),
            "confidence": self.confidence,
            "production_per_s": self.production_per_s,
            "presets": [one.name for one in self.presets],
        }


@dataclass(frozen=True, slots=True)
class Asked:
    """The flags as given: ``--slo``, ``--goodput``, ``--preset``, ``--confidence``, ``--production-rate``.

    ``where``: what errors name as the place of ``slo``, the flag or a section of a file. ``limits_alone``: limits on
    single requests need no other objective, for they say what good means in rates that are shown or compared.
    ``served``: the server is asked how it is. ``held``: what was read from them before, with its errors.
    """

    slo: Sequence[str] = ()
    goodput: str | None = None
    preset: Sequence[str] = ()
    confidence: str | None = None
    production_per_s: float | None = None
    where: str = "--slo"
    limits_alone: bool = False
    served: bool = False
    held: tuple[Promises, tuple[str, ...]] | None = field(default=None, repr=False)

    def hold(self) -> Asked:
        """With its files as they are now: a series reads them once, so that every run of it is judged alike."""
        promises, errors = read_promises(self)
        return replace(self, held=(promises, tuple(errors)))

    @property
    def any_objective(self) -> bool:
        """Whether the flags name what to judge against; then the scenario's own objectives don't count."""
        return bool(self.slo or self.goodput or self.preset)


def read_promises(asked: Asked) -> tuple[Promises, list[str]]:
    """The promises that flags make, and every error in them, each with its flag."""
    if asked.held is not None:
        return asked.held[0], list(asked.held[1])
    found: list[Objective] = []
    slos: list[Slo] = []
    documents: list[str] = []
    notes: list[str] = []
    errors: list[str] = []
    for text in asked.slo:
        try:
            if not _is_file(text):
                found.append(objective.parse(text))
                continue
            from plimsoll.slo.objectives import openslo  # rare, and 30 ms to load

            if not openslo.recognise(Path(text)):
                found += objective.load_file(Path(text))
                continue
            loaded = openslo.load(Path(text))
            if loaded.text in documents:
                continue  # the same promises again
            errors += _twice(asked.where, loaded, slos)
            slos += loaded.to_judge()
            documents.append(loaded.text)
            notes += loaded.warnings
        except ObjectiveError as error:
            errors += [f"{asked.where} {line}" for line in error.errors]
        except OSError as error:
            errors.append(
                f"{asked.where} {text}: cannot be read ({error.strerror}). Give an objective or a file of them"
            )
    presets = _presets(asked.preset, found, errors)
    if presets and not found and not slos and not errors:
        names = ", ".join(one.name for one in presets)
        errors.append(f"--preset {names}: no latency limit, so there is nothing to judge. Leave it out, or add a --slo")
    confidence = asked.confidence or max((one.confidence for one in presets), key=exact, default=DEFAULT_CONFIDENCE)
    errors += _check(asked, confidence)
    errors += [] if errors or asked.limits_alone else objective.check(found)
    if asked.goodput is not None:  # says when a request is good; how many must be is another objective's business
        try:
            found += objective.from_goodput(asked.goodput)
        except ObjectiveError as error:
            errors += [f"--goodput {line}" for line in error.errors]
    made = Promises(
        objectives=tuple(dict.fromkeys(found)),
        slos=tuple(slos),
        documents=tuple(documents),
        confidence=confidence,
        production_per_s=asked.production_per_s,
        presets=tuple(presets),
        notes=tuple(notes),
    )
    return made, errors


def of_scenario(name: str, objectives: Sequence[str], asked: Asked | None = None) -> tuple[Promises, list[str]]:
    """The promises that a scenario makes, judged as ``asked`` says, and every error in them."""
    return read_promises(replace(asked or Asked(), slo=objectives, where=f"{name}:objectives:", held=None))


def _is_file(text: str) -> bool:
    # isfile, not is_file: a text of 5,000 letters is no name, and no reason to fall.
    return Path(text).suffix in (".yaml", ".yml") or ("(" not in text and os.path.isfile(text))  # noqa: PTH113


def _twice(where: str, loaded: Loaded, before: Sequence[Slo]) -> list[str]:
    """Two promises of one name could not be told apart in the report."""
    names = {one.name for one in before}
    return [
        f"{where} {one.source}: there is an SLO of this name in another file already. Rename one of them"
        for one in loaded.slos
        if one.name in names
    ]


def _presets(names: Sequence[str], found: list[Objective], errors: list[str]) -> list[Preset]:
    presets = []
    for name in names:
        try:
            presets.append(preset(name))
            found += [objective.parse(text) for text in presets[-1].objectives]
        except UnknownPresetError as error:
            errors.append(f"--preset {error}")
    return presets


def _check(asked: Asked, confidence: str) -> list[str]:
    errors = []
    try:
        if not Fraction(1, 2) <= exact(confidence) < 1:
            raise ValueError
    except ValueError:
        errors.append(f"--confidence {confidence}: not a number from 0.5 to below 1. Write 0.95 or 0.99")
    rate = asked.production_per_s
    if rate is not None and not 1e-9 <= rate <= 1e12:
        errors.append(
            f"--production-rate {rate}: not a number from 1e-9 to 1e12. Give the requests per second in production"
        )
    return errors


def keep(promises: Promises, directory: RunDirectory) -> None:
    """Write the promises beside the records, so that the run can be judged again by them. Raises OSError."""
    write_json(directory.file(FILE), promises.to_json())


def kept(sealed: Sealed) -> Promises:
    """The promises that a run was made with; of a run without their file, the objectives of its scenario.

    Raises HarnessFault for a file that can't be read.
    """
    path = sealed.directory.file(FILE)
    if not path.is_file():
        made, errors = read_promises(Asked(slo=_said(sealed.scenario)))
    else:
        try:
            data = files.read_bytes(path)
            digest = hashlib.sha256(data).hexdigest()
            if sealed.manifest.get("promises_sha256", digest) != digest:
                raise HarnessFault(
                    f"{path}: is not the one that the run was sealed with (promises_sha256 in manifest.json). Put it "
                    "back, or give the objectives with --slo"
                )
            made, errors = _from_json(data.decode()), []
        except ObjectiveError as error:
            made, errors = Promises(), error.errors
        except (OSError, ValueError) as error:
            what = " ".join(str(error).split())[:200]
            raise HarnessFault(
                f"{path}: damaged or from another version ({what}). Give the objectives with --slo"
            ) from None
    if errors:
        raise HarnessFault([f"{sealed.directory.path}: {text}" for text in [*errors, *absent(sealed.manifest)]])
    return made


def _said(scenario: Mapping[str, Any]) -> list[str]:
    """The objectives of a scenario as it is kept, those of its classes about each class alone."""
    found = list(scenario.get("objectives") or ())
    for label, key in (("class", "mix"), ("phase", "phases")):
        for name, one in (scenario.get(key) or {}).items():
            found += [part for text in one.get("objectives") or () for part in about(text, name, label)]
    return found


def about(text: str, name: str, label: str = "class") -> list[str]:
    """An objective, or those of a file, about one class or phase alone. What can't be read stays as it is."""
    try:
        held = [objective.parse(text)] if not _is_file(text) else objective.load_file(Path(text))
        return [str(one.narrowed((Condition(label, "=", (name,)),))) for one in held]
    except (ObjectiveError, OSError):
        return [text]


def undivided(where: str, selector: str, text: str) -> list[str]:
    """Why what a class or phase promises, ``where`` in the file, can't be about it alone."""
    from plimsoll.slo.objectives import openslo

    if not _is_file(text) or not openslo.recognise(Path(text)):
        return []
    return [
        f"{where}.objectives: {text}: an OpenSLO document says itself which requests it is about. Move it to the "
        f"objectives at the top, and write where: {selector} beside its indicator"
    ]


def again(asked: Asked, sealed: Sealed) -> tuple[Promises, list[str]]:
    """What to judge a sealed run by: what the flags name, else what it was made with, and the errors in the flags."""
    made, errors = read_promises(asked)
    if asked.any_objective or errors:
        return made, [*errors, *(absent(sealed.manifest) if errors else [])]
    own = kept(sealed)
    return replace(
        own,
        confidence=asked.confidence or own.confidence,
        production_per_s=asked.production_per_s or own.production_per_s,
    ), []


class _Stored(BaseModel, extra="forbid"):
    schema_: Literal["plimsoll.promises/1"] = Field(alias="schema")
    objectives: list[str]
    openslo: list[str]
    confidence: str
    production_per_s: float | None
    presets: list[str]


def _from_json(text: str) -> Promises:
    stored = _Stored.model_validate_json(text)
    errors = _check(Asked(production_per_s=stored.production_per_s), stored.confidence)
    if errors:
        raise ValueError("; ".join(errors))
    return Promises(
        objectives=tuple(objective.parse(one) for one in stored.objectives),
        slos=tuple(slo for document in stored.openslo for slo in _slos(document)),
        documents=tuple(stored.openslo),
        confidence=stored.confidence,
        production_per_s=stored.production_per_s,
        presets=tuple(preset(name) for name in stored.presets),
    )


def _slos(document: str) -> tuple[Slo, ...]:
    from plimsoll.slo.objectives import openslo

    return openslo.parse(document, FILE).to_judge()
