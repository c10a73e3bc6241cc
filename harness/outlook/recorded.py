"""``plimsoll replay FILE --describe``: what a recording is, and what replaying it would be; and ``plimsoll import``:
the same in our own format. Both send nothing.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from plimsoll.documents import files
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.host import calibration_table
from plimsoll.harness.host.manifest import package_version
from plimsoll.harness.process import outlet, writing
from plimsoll.harness.transport.client import Target
from plimsoll.reports.documents.recording import FORMATS, CensusPart, RecordingReport
from plimsoll.reports.wording import units
from plimsoll.scenarios.formats import plimsoll
from plimsoll.scenarios.kinds import replay
from plimsoll.scenarios.samples.census import Census, census
from plimsoll.scenarios.samples.recording import Recording
from plimsoll.scenarios.samples.reshaping import clock
from plimsoll.scenarios.scenario import Scenario
from plimsoll.scenarios.spec import with_flags
from plimsoll.scenarios.text.document import ScenarioError

#: What a recording may know of its requests, and what it is called where it does not.
_MISSING = {
    "session": "sessions",
    "status": "how requests ended",
    "latency_ns": "original latencies",
    "ttft_ns": "original times to the first token",
}
#: Bytes of a key, at least.
_KEY = 16
#: What of the params changes when and what is sent.
_SHAPING = ("speed", "window", "spread", "load", "prehistory")


def describe(flags: Mapping[str, Any], formats: Sequence[str], as_json: bool) -> None:
    """Print what is in the recording that the flags name, and write it as they say.

    Raises HarnessFault and ``ScenarioError`` with every problem.
    """
    outputs, problems = writing.formats_of(formats, FORMATS, "a recording")
    problems += writing.one_on_stdout(formats, as_json)
    try:
        report = described(with_flags(None, **{"kind": "replay", **flags}))
    except ScenarioError as error:
        raise HarnessFault([*problems, *error.errors]) from None
    if problems:
        raise HarnessFault(problems)
    written = [writing.result(one.path, partial(one.render, report), "name another file") for one in outputs]
    if as_json:
        outlet.say(FORMATS["json"](report).decode())
    elif not any(one.path == writing.STDOUT for one in outputs):
        outlet.draw(lambda width: FORMATS.terminal(report, width))
    if not all(written):
        raise HarnessFault("--format: not every file could be written, as said above")


def described(scenario: Scenario) -> RecordingReport:
    """What is in the recording that a scenario of kind replay names. Raises ``ScenarioError``."""
    params = scenario.params
    assert isinstance(params, replay.ReplayParams)
    recording = replay.recording_of(params)
    found, ticking = census(recording), clock(recording)
    after = None
    given = params.model_fields_set & {*_SHAPING}
    if given and recording.timed:
        try:
            shape, parts = replay.parts(params, scenario.seed)
        except ValueError as error:
            raise error if isinstance(error, ScenarioError) else ScenarioError([f"{scenario.name}: {error}."]) from None
        after = _part(recording, census(recording, shape, parts))
    busiest = (after or _part(recording, found)).peak
    return RecordingReport(
        **_part(recording, found).model_dump(),
        path=str(params.trace),
        format=recording.form,
        instants=ticking.instants,
        grain_ns=ticking.grain_ns,
        ticks=ticking.ticks,
        missing=_missing(recording, found),
        notes=list(scenario.notes()) if recording.timed else [],
        replayed=after,
        limits=_limits(busiest) if recording.timed else "",
        plimsoll=package_version(),
    )


def write_trace(name: str, reading: Mapping[str, Any], out: Path, key_file: Path | None) -> str:
    """Write the recording ``name`` to ``out``, ids of blocks under a key that is not in it. Returns what was done.

    Raises HarnessFault and ``ScenarioError`` with every problem.
    """
    problems = []
    key = secrets.token_bytes(32)
    try:
        key = key if key_file is None else files.read_bytes(key_file)
        if len(key) < _KEY:
            problems.append(f"--key-file: {key_file} has {len(key)} bytes, and {_KEY} are needed. Write it with: "
                            f"head -c 32 /dev/urandom > {key_file}")  # fmt: skip
    except OSError as error:
        problems.append(
            f"--key-file: {key_file} can't be read ({files.why(error)}). Give a file of {_KEY} bytes or more"
        )
    try:
        writing.check(out)
        if out.exists() and Path(name).exists() and out.samefile(name):
            problems.append(f"--out: {out} is the recording itself; its ids would be gone for good. Name another")
    except OSError as error:
        problems.append(f"--out: {out} cannot be written ({error.strerror}). Name another file")
    try:
        scenario = with_flags(None, **{"kind": "replay", "trace": name, **reading})
        assert isinstance(scenario.params, replay.ReplayParams)
        recording = replay.recording_of(scenario.params)
    except ScenarioError as error:
        raise HarnessFault([*problems, *error.errors]) from None
    if problems:
        raise HarnessFault(problems)

    def hidden(block: int) -> int:
        said = hmac.digest(key, block.to_bytes(16, "little", signed=True), "sha256")
        return int.from_bytes(said[:8], "little") >> 1

    try:
        writing.whole(out, lambda file: plimsoll.write(recording, file, hidden), named=True)
    except ValueError as error:
        raise HarnessFault(f"{name}: {error}") from None
    except OSError as error:
        raise HarnessFault(
            f"--out: {out} cannot be written ({error.strerror}). Make room, or name another file"
        ) from None
    whose = "a random key that nobody has now" if key_file is None else f"the key in {key_file}"
    hid = f"; ids of blocks are hidden by {whose}" if recording.blocks else ""
    return f"{out}: {units.many(len(recording), 'request')} of {name} (format {recording.form}){hid}"


def _part(recording: Recording, found: Census) -> CensusPart:
    told = asdict(found)
    return CensusPart.model_validate(
        {
            **{name: told[name] for name in ("duration_ns", "rate_per_s", "dispersion", "peak")},
            "rows": found.requests,
            "input_tokens": told["n_in"],
            "output_tokens": told["n_out"],
            "sessions": found.sessions if recording.knows("session") else None,
            "prefix_hit_share": found.hit_share,
        }
    )


def _missing(recording: Recording, found: Census) -> list[str]:
    texts = [] if recording.timed else ["times: give a kind with arrivals of its own"]
    for name, lengths in (("prompt", found.n_in), ("answer", found.n_out)):
        if lengths is None:
            texts.append(f"{name} lengths")
        elif lengths.unknown:
            texts.append(f"{name} lengths of {units.many(lengths.unknown, 'request')}")
    texts += [] if found.hit_share is not None else ["ids of blocks: prompts would share nothing"]
    return texts + [words for name, words in _MISSING.items() if not recording.knows(name)]


def _limits(peak: int) -> str:
    target = Target("http://127.0.0.1:1", "openai-chat")
    host = calibration_table.this_host(calibration_table.engine_of(target))
    found = calibration_table.find(host, datetime.now(UTC), calibration_table.table_path())
    if found.table is None or not (most := found.table.requests_per_s):
        return found.note or "this machine kept no rate when it was calibrated"
    said = (
        f"the busiest second has {units.many(peak, 'request')}, and a worker of this machine keeps {most:,.0f} a second"
    )
    over = calibration_table.beyond(found.table, calibration_table.Demand(1, rate_per_s=float(peak)))
    return " ".join([f"{said} (calibrated {found.table.day})", *over])
