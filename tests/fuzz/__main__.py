"""Reads N damaged inputs with one reader and exits 1 with the first that raises what the command line does not expect.

``python -m tests.fuzz scenario --inputs 10000 --seed 1``; ``--only 731`` reads that one input and shows what it says.
Each input may take 1 s of processor time and 200 MB more memory than the reader needed for its undamaged files.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import resource
import sys
import tempfile
import time
import traceback
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from plimsoll.documents.text import written
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.scenarios.text.document import ScenarioError
from tests.fuzz import mutations

ROOT = Path(__file__).parents[2]
MOST_S, MOST_KB = 1.0, 200_000
Files = dict[str, bytes]


@dataclass(frozen=True)
class Reader:
    """``bases``: folders of files that are right; ``damaged``: one of them, changed; ``read``: as the verb does."""

    bases: Callable[[Path], list[Files]]
    damaged: Callable[[random.Random, list[Files]], Files]
    read: Callable[[Path], object]


# -- documents that people write -----------------------------------------------------------------------------------


def _of(*patterns: str) -> list[bytes]:
    return [path.read_bytes() for pattern in patterns for path in sorted(ROOT.glob(pattern))]


def _documents(bases: list[bytes]) -> list[Files]:
    return [{"input.yaml": data} for data in bases]


def _text(rng: random.Random, bases: list[Files]) -> Files:
    """Half of the time its text is changed, half of the time values in what it says."""
    every = [one["input.yaml"] for one in bases]
    data = rng.choice(every)
    if rng.random() < 0.5:
        parts = _parsed(data)
        at = rng.randrange(len(parts))
        return {"input.yaml": b"\n---\n".join(mutations.values(rng,
            part) if i == at else json.dumps(part).encode() for i, part in enumerate(parts))}  # fmt: skip
    return {"input.yaml": mutations.text(rng, data, every)}


_PARSED: dict[bytes, list[Any]] = {}


def _parsed(data: bytes) -> list[Any]:
    if data not in _PARSED:
        _PARSED[data] = [one.value for one in written(data.decode())]
    return _PARSED[data]


def _scenario(folder: Path) -> object:
    from plimsoll.harness.run.job import check_file

    return check_file(str(folder / "input.yaml"), encode=False)


def _slo(folder: Path) -> object:
    from plimsoll.harness.run.promises import Asked, read_promises
    from plimsoll.slo.objectives import openslo
    from plimsoll.slo.objectives.objective import ObjectiveError, load_file

    path = folder / "input.yaml"
    try:
        found: object = openslo.load(path) if openslo.recognise(path) else load_file(path)
    except ObjectiveError as error:
        raise HarnessFault(error.errors) from None
    _, errors = read_promises(Asked(slo=[str(path)]))
    return found, errors


def _bakeoff(folder: Path) -> object:
    from plimsoll.harness.series.comparison.bakeoff_file import load

    return load(folder / "input.yaml").contest()


def _objectives() -> list[bytes]:
    lists = [
        b"objectives:\n  - p99(ttft) <= 200ms\n  - ratio(error) <= 0.1% over 28d\n",
        b"objectives: [ttft <= 1s, ratio(good) >= 99%]\n",
    ]
    return [*lists, *_of("docs/examples/openslo*.yaml", "slo/objectives/openslo/starter.yaml")]


def _bakeoffs() -> list[bytes]:
    from plimsoll.harness.series.comparison.bakeoff_file import STARTER

    return [STARTER.encode(), *_of("docs/examples/bakeoff.yaml")]


# -- recorded load ---------------------------------------------------------------------------------------------------

_TRACES = (
    b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n",  # noqa: E501
    b'{"timestamp": 0, "input_length": 700, "output_length": 5, "hash_ids": [0, 1]}\n'
    b'{"timestamp": 3000, "input_length": 513, "output_length": 9, "hash_ids": [0, 2]}\n',
    b'{"time": 1.5, "input_tokens": 7, "output_tokens": 8}\n\n{"time": 0.25, "input_tokens": 3, "output_tokens": 4}\n',
    b"time,input_tokens,output_tokens\r\n2026-01-31T12:00:01.75Z,7,8\r\n2026-01-31 12:00:00.5,3,4\r\n",
)


def _trace_bases(_: Path) -> list[Files]:
    return [{"input.jsonl": data} for data in _TRACES]


def _trace_damaged(rng: random.Random, bases: list[Files]) -> Files:
    data = rng.choice(_TRACES)
    lines = data.splitlines(keepends=True)
    if data.startswith(b"{") and rng.random() < 0.6:
        at = rng.choice([i for i, line in enumerate(lines) if line.strip()])
        lines[at] = mutations.values(rng, json.loads(lines[at])) + b"\n"
        return {"input.jsonl": b"".join(lines)}
    return {"input.jsonl": mutations.text(rng, data, list(_TRACES))}


def _trace(folder: Path) -> object:
    from plimsoll.scenarios.flags import with_flags

    scenario = with_flags(None, trace=str(folder / "input.jsonl"))
    source = scenario.source_object()
    return [source.payload(i) for i in range(min(len(source), 3))], scenario.build(len(source))


# -- run directories -------------------------------------------------------------------------------------------------


def _runs(folder: Path) -> list[Files]:
    from plimsoll.harness.generator.segments import dump_segment
    from plimsoll.slo.records.records import from_columns
    from tests.unit.harness.capacity_folders import md1, sealed
    from tests.unit.harness.sealed_runs import records, sealed_run

    due, done = md1(50.0, 30, 1)
    sealed(folder / "open", due - due[0], done - due[0], 50.0)
    sealed_run(folder / "closed", failed=3, objectives=["p99(ttft) <= 200ms"])
    made = [{path.name: path.read_bytes() for path in sorted((folder / name).iterdir())} for name in ("open", "closed")]
    live = {"open_ns": [5, 6], "slices": ["a", None], "ragged": {"chunk_audio_ns": [[1, 2], []]}}
    texts: dict[str, Any] = {"errors": [None, "reset"], "timings": ["a;dur=1", None]}
    for held in (records(8, 50.0, 2), from_columns(2, chunks=[[1, 2], []], status=[0, 4], **texts, **live)):
        out = io.BytesIO()
        dump_segment(out, held)
        made.append({"w000-000000.seg": out.getvalue()})
    return made


def _run_damaged(rng: random.Random, bases: list[Files]) -> Files:
    whole = dict(rng.choice(bases))
    name = rng.choice(list(whole))
    whole[name] = _damaged_file(rng, name, whole[name])
    return whole


def _damaged_file(rng: random.Random, name: str, data: bytes) -> bytes:
    if rng.random() < 0.25:
        return mutations.raw(rng, data)
    if name.endswith(".parquet"):
        return mutations.parquet(rng, data)
    if name.endswith(".npz"):
        return mutations.npz(rng, data)
    if name.endswith(".seg"):
        return _segment(rng, data)
    if name.endswith(".yaml"):
        return mutations.text(rng, data, [data]) if rng.random() < 0.5 else mutations.values(rng, yaml.safe_load(data))
    return mutations.values(rng, json.loads(data))


def _segment(rng: random.Random, data: bytes) -> bytes:
    """A segment with another header, or other columns, and the checksum of it."""
    magic = data.index(b"\n") + 1
    end = magic + 8 + int.from_bytes(data[magic : magic + 8], "little")
    header, body = data[magic + 8 : end], data[end:-4]
    if rng.random() < 0.7:
        header = (
            mutations.text(rng, header, [header]) if rng.random() < 0.2 else mutations.values(rng, json.loads(header))
        )
    else:
        body = mutations.raw(rng, body)
    size = len(header) if rng.random() < 0.98 else rng.choice((0, 2**63, 2**64 - 1))
    made = data[:magic] + size.to_bytes(8, "little") + header + body
    return made + zlib.crc32(made).to_bytes(4, "little")


def _run(folder: Path) -> object:
    from plimsoll.harness.generator.segments import read_segments
    from plimsoll.harness.run.judged import judge
    from plimsoll.harness.run.promises import Asked, again
    from plimsoll.harness.run.rundir import open_sealed
    from plimsoll.scenarios.samples.traces import read as read_trace
    from plimsoll.slo.records import records, tables

    if not (folder / "requests.parquet").is_file():
        parts, faults = read_segments([folder])
        whole = records.concat(parts)
        return faults, tables.to_tables(whole, [""] * len(whole))
    try:
        read_trace(folder, "source.path")
    except ScenarioError as error:
        _expected(error.errors)
    sealed = open_sealed(folder)
    promises, errors = again(Asked(), sealed)
    if errors:
        raise HarnessFault(errors)
    return judge(sealed, promises).model_dump_json()


#: In the order in which two processes end at about the same time: ``run`` takes as long as the others but one.
READERS = {
    "run": Reader(_runs, _run_damaged, _run),
    "trace": Reader(_trace_bases, _trace_damaged, _trace),
    "scenario": Reader(lambda _: _documents(_of("scenarios/library/*.yaml")), _text, _scenario),
    "slo": Reader(lambda _: _documents(_objectives()), _text, _slo),
    "bakeoff": Reader(lambda _: _documents(_bakeoffs()), _text, _bakeoff),
}


# -- the loop ----------------------------------------------------------------------------------------------------------


def _expected(errors: list[str]) -> None:
    """Refusals are texts for people: there is one, and none is endless."""
    assert errors, "refused without a word"
    assert all(text and len(text) < 8000 for text in errors), "a message is empty or endless"


def inputs(name: str, seed: int, bases: list[Files], numbers: range) -> Iterator[tuple[int, Files]]:
    """The damaged inputs of these numbers: the same for the same seed, whichever are asked for."""
    for number in numbers:
        yield number, READERS[name].damaged(random.Random(f"{name}-{seed}-{number}"), bases)


def attempt(reader: Reader, folder: Path) -> list[str]:
    """What the command would say; raises what it would not expect."""
    try:
        reader.read(folder)
    except (HarnessFault, ScenarioError) as refused:
        _expected(refused.errors)
        code = refused.code if isinstance(refused, HarnessFault) else ExitCode.USAGE
        assert code in set(ExitCode), f"exit code {code} is not in the table"
        return refused.errors
    return []


def _lay_out(folder: Path, held: Files) -> None:
    for path in folder.iterdir():
        path.unlink()
    for name, data in held.items():
        (folder / name).write_bytes(data)


def _peak_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> int:
    """Exit 0: all refused or read within bounds."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("reader", choices=READERS)
    parser.add_argument("--inputs", type=int, default=int(os.environ.get("PLIMSOLL_FUZZ_INPUTS", "300")))
    parser.add_argument("--seed", type=int, default=15)
    parser.add_argument("--only", type=int)
    given = parser.parse_args()
    reader = READERS[given.reader]
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))  # a runaway ends here, not the machine
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="plimsoll-fuzz-") as scratch:
        made, folder = Path(scratch, "bases"), Path(scratch, "input")
        made.mkdir()
        folder.mkdir()
        bases = reader.bases(made)
        for base in bases:
            _lay_out(folder, base)
            if said := attempt(reader, folder):
                raise AssertionError(f"the undamaged input is refused: {said}")
        numbers = range(given.inputs) if given.only is None else range(given.only, given.only + 1)
        peak_kb = _peak_kb()
        for number, held in inputs(given.reader, given.seed, bases, numbers):
            _lay_out(folder, held)
            began = time.process_time()
            try:
                said = attempt(reader, folder)
                took_s, more_kb = time.process_time() - began, _peak_kb() - peak_kb
                peak_kb += max(0, more_kb - MOST_KB) and more_kb
                assert took_s < MOST_S, f"took {took_s:.2f} s"
                assert more_kb < MOST_KB, f"took {more_kb >> 10} MiB"
            except (Exception, RecursionError):  # noqa: BLE001 - whatever it is, it would be a traceback
                wrong += 1
                print(f"--- {given.reader} input {number} of seed {given.seed}", file=sys.stderr)
                traceback.print_exc(limit=-6)
                if wrong == 20:
                    break
            if given.only is not None:
                print(*said, sep="\n")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
