"""Perfetto itself opens our timelines: the processor of its page, asked in SQL. What the second reader of the quick
tests (tests/trace_events.py) says of a file it says too; and of a real run it says what its rows and its report say.

Bound: 60 s for one process that reads all files, 15 s for a run of two seconds with 60 requests a second.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plimsoll.slo.records import tables
from plimsoll.slo.records.records import Records, empty, from_columns
from tests.e2e.plimsoll import ROOT, plimsoll_here
from tests.trace_events import read
from tests.unit.reports.made_timelines import attempts, failed, rendered, sessions, streams

PYTHON = ROOT / ".venv-peers" / "bin" / "python"
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not PYTHON.exists(), reason="needs .venv-peers: make .venv-peers/.installed"),
]
Asking = Callable[..., dict[str, list[Any]]]
_SLICES = (
    "select s.ts, s.dur, s.name, s.depth, p.ts as since, p.name as parent, pid, tid, thread.name as lane, process.name"
    " as of from slice s left join slice p on s.parent_id = p.id"
)
#: Of each table a question to Perfetto, and to the second reader.
TABLES = {
    "slices": (
        f"{_SLICES} left join thread_track t on s.track_id = t.id left join thread using (utid)"
        " left join process using (upid)",
        f"{_SLICES.replace('pid, tid', 's.pid, s.tid')} left join thread using (tid)"
        " left join process on s.pid = process.pid",
    ),
    "args": (
        "select ts, depth, substr(key, 6) as name, display_value from slice join args using (arg_set_id)"
        " where key glob 'args.*'",
        "select ts, depth, key, cast(value as text) from args join slice on slice.id = slice_id",
    ),
    "counters": (
        "select ts, name, value from counter c join counter_track t on c.track_id = t.id",
        "select ts, name, value from counter",
    ),
    "arrows": 2 * (
        "select a.ts, a.name, b.ts as later, b.name as into_ from flow join slice a on a.id = slice_out"
        " join slice b on b.id = slice_in",
    ),
}  # fmt: skip
REAL = {name: real for name, (real, _) in TABLES.items()}
#: What was dropped or doubted. Of a file without a fault it holds how long reading took, and no more.
STATS = "select name, value from stats where value > 0 and name not glob '*_duration_ns'"


@pytest.fixture(scope="module")
def perfetto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asking]:
    node = shutil.which("node")
    if node is None:
        pytest.skip("Perfetto's processor is WebAssembly and needs Node.js: install the package nodejs")
    command = [PYTHON, ROOT / "tests" / "peers" / "perfetto_sql.py", node]
    made = tmp_path_factory.mktemp("perfetto") / "timeline.json"
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        words, answers = process.stdin, process.stdout

        def ask(data: bytes | Path, **questions: str) -> dict[str, list[Any]]:
            file = data if isinstance(data, Path) else made
            if isinstance(data, bytes):
                file.write_bytes(data)
            print(json.dumps([str(file), {"stats": STATS, **questions}]), file=words, flush=True)
            answer: dict[str, Any] = json.loads(answers.readline())
            error = answer.pop("error")
            assert not error, error
            return {name: [tuple(row) for row in rows] for name, rows in answer.items()}

        yield ask
        words.close()
        assert process.wait(10) == 0


def anything(seed: int) -> Records:
    """Requests and attempts with any stamps in any order, many at the same instant."""
    draw, n = np.random.default_rng(seed), 80
    stamps = ("ready_ns", "sent_ns", "first_byte_ns", "first_token_ns", "first_answer_ns", "last_token_ns", "done_ns")
    columns = {name: draw.integers(-1, 900, n) for name in (*stamps, "connect_ns")}
    columns |= {"due_ns": draw.integers(0, 500, n), "status": draw.integers(0, 10, n), "phase": draw.integers(0, 4, n)}
    return from_columns(n, query_id=draw.integers(0, 30, n), **columns)


SAID = "queue;dur=1.5, prefill;dur=1, prefill.pad;dur=0.5, decode;dur=6, post;dur=0.1"
EXAMPLES: dict[str, Callable[[], Records]] = {
    "streams": lambda: streams([0, 5, 10.5, 12], [10, 30, 4, 1]),
    "stages of the server": lambda: streams([0], [12], timings=[SAID], connect_ns=[4_000]),
    "failed": failed,
    "attempts": attempts,
    "sessions": sessions,
    "a week": lambda: streams([0, 7 * 86_400e3], [10, 10]),
    "none": empty,
    **{f"anything, seed {seed}": (lambda seed=seed: anything(seed)) for seed in range(8)},
}


def shown(one: Any) -> Any:
    """Perfetto shows a text without a quote as it stands in the file, its backslashes doubled."""
    return json.dumps(one, ensure_ascii=False)[1:-1] if isinstance(one, str) and '"' not in one else one


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_has_the_same_slices_values_counters_and_arrows_as_the_second_reader(name: str, perfetto: Asking) -> None:
    data = rendered(EXAMPLES[name]())
    found, db = perfetto(data, **REAL), read(data)
    assert found["stats"] == []
    for table, (_, second) in TABLES.items():
        expected = [tuple(map(shown, row)) for row in db.execute(second)]
        assert sorted(found[table], key=repr) == sorted(expected, key=repr), table


def test_it_says_what_it_drops(perfetto: Asking) -> None:
    """Or no other test here could fail."""
    whole = json.loads(rendered(streams([0], [10])))["traceEvents"]
    at = next(number for number, one in enumerate(whole) if one.get("name") == "tokens")
    place = {"pid": 2, "tid": 1000, "ts": 1.0}
    for event, name in (
        ({"ph": "B", "name": "no time", "pid": 2, "tid": 1000}, "json_tokenizer_failure"),
        ({"ph": "X", **place, "dur": 1e9, "name": "longer than what it is in"}, "misplaced_end_event"),
        ({"ph": "f", **place, "bp": "e", "id": 3, "cat": "session", "name": "nowhere"}, "flow_end_without_start"),
    ):
        damaged = {"traceEvents": [*whole[:at], event, *whole[at:]]}
        assert (name, 1) in perfetto(json.dumps(damaged).encode())["stats"]
    whole[at]["name"] += "\\"  # as no text of ours ends
    with pytest.raises(AssertionError, match="JSON"):
        perfetto(json.dumps({"traceEvents": whole}).encode())


def test_it_has_all_of_the_largest_file(perfetto: Asking) -> None:
    n, most = 25_000, 20_000
    data = rendered(streams([2.0 * at for at in range(n)], np.random.default_rng(5).uniform(5, 500, n).tolist()))
    found = perfetto(
        data,
        slices="select name, count(*), min(dur) >= 0 from slice group by name order by name",
        outside="select count(*) from slice s join slice p on s.parent_id = p.id"
        " where s.ts < p.ts or s.ts + s.dur > p.ts + p.dur",
        lanes="select count(distinct track_id) from slice",
    )
    names = ("generator late", "request", "to the end", "to the first token", "tokens", "waits for a connection")
    assert found == {
        "stats": [], "slices": [(name, most, 1) for name in names], "outside": [(0,)],
        "lanes": [(data.count(b'"thread_name"'),)],
    }  # fmt: skip


def test_of_a_real_run_it_says_what_its_rows_and_its_report_say(tmp_path: Path, perfetto: Asking) -> None:
    (tmp_path / "chat.yaml").write_text(
        "name: chat\nkind: server\nparams: {rate: 60}\ntarget: {protocol: openai-chat, model: scripted}\n"
        "source: {kind: synthetic_text, prompt_tokens: 8, output_tokens: 4, count: 64}\n"
        "stop: {min_queries: 1, min_duration: 2s}\ntimeout: 10s\n"
        "events: [{at: 800ms, name: half time, note: a mark}]\n"
    )
    done = plimsoll_here("run", "chat.yaml", "--out", "run", "--format", "perfetto=run.json.gz", "--json", cwd=tmp_path)
    report = json.loads(done.stdout)
    (guides,) = re.findall(r"```sql\n(.*?);\n```", (ROOT / "docs" / "guide" / "traces.md").read_text(), re.DOTALL)
    found = perfetto(tmp_path / "run.json.gz", **REAL, guides=guides)
    assert found["stats"] == []
    rows = tables.load(tmp_path / "run")
    rows = rows.select(rows.planned)
    due, sent, first, last, over = (
        rows[f"{name}_ns"].tolist() for name in ("due", "sent", "first_token", "last_token", "done")
    )
    for name, since, until in (("request", due, over), ("to the first token", sent, first), ("tokens", first, last)):
        slices = sorted(row[:2] for row in found["slices"] if row[2] == name)
        assert slices == sorted((at, end - at) for at, end in zip(since, until, strict=True) if end > at), name
    lanes, counters = defaultdict(list), defaultdict(list)
    for at, took, name, *_, lane, _ in sorted(found["slices"], key=lambda row: row[0]):
        if name == "request":
            lanes[lane].append((at, at + took))
    assert all(end <= begin for spans in lanes.values() for (_, end), (begin, _) in pairwise(spans))
    assert len(lanes) == max(sum(at <= now < end for at, end in zip(due, over, strict=True)) for now in due)
    waits = sorted(((end - at) / 1e6 for at, end in zip(sent, first, strict=True)), reverse=True)
    told = list(dict.fromkeys(row[1] for row in found["guides"]))  # a row for each stage that the server told
    assert told == waits[: len(told)]
    assert {"server: preprocess", "server: prefill"} == {row[2] for row in found["guides"]}
    (event,) = report["events"]
    instants = [(row[0], row[2]) for row in found["slices"] if row[6] is None]
    assert sorted(instants) == [(event["begun_ns"], "half time"), (event["begun_ns"], "phase after")]
    for at, name, value in sorted(found["counters"]):
        counters[name].append((at, value))
    for at, flying in counters["requests in flight"]:
        assert flying == sum(one <= at for one in sent) - sum(one <= at for one in over)
    timeline = report["charts"]["timeline"]
    for name, unit in (("host.rss", "bytes"), ("host.cpu", "s")):
        for bucket, value in enumerate(report["server"]["names"][name]["by_bucket"]):
            start = timeline["start_ns"] + bucket * timeline["bucket_ns"]
            known = [known for at, known in counters[f"{name} {unit}"] if at <= start] or [None]
            assert known[-1] == (value and pytest.approx(value, abs=1e-6)), (name, bucket)
