"""Accuracy mode from the command line: every sample once, answers kept by both engines, compared, judged, and judged
again.

The server is a script of a few lines that answers by the prompt. About half a minute, real time.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from plimsoll.harness.generator import native
from tests.e2e.plimsoll import plimsoll_here, plimsoll_valid

pytestmark = pytest.mark.e2e

ENGINES = ["python", *(["native"] if native.available() else [])]
CAPITALS = {"France": "Paris", "Norway": "Oslo", "Peru": "Lima", "Chad": "N'Djamena"}


class Answers(BaseHTTPRequestHandler):
    """Capitals by the name of the country in the prompt; the broken one gets a 500, the wrong one another city."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path.endswith("/infer"):
            place = int(body["inputs"][0]["data"][0]) % 3
            logits = [float(i == place) for i in range(3)]
            output = {"name": "y", "datatype": "FP32", "shape": [1, 3], "data": logits}
            self._say(json.dumps({"outputs": [output]}).encode(), "application/json")
            return
        prompt = body["messages"][0]["content"] if "messages" in body else body["prompt"]
        if "broken" in prompt:
            self._say(b"no", "text/plain", 500)
            return
        city = "Atlantis" if "wrong" in prompt else next(city for name, city in CAPITALS.items() if name in prompt)
        if self.path.endswith("/generate"):
            self._say(json.dumps({"text": city}).encode(), "application/json")
            return
        pieces = [{"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in (city[:2], city[2:])]
        pieces.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        stream = b"".join(b"data: %s\n\n" % json.dumps(piece).encode() for piece in pieces)
        self._say(stream + b"data: [DONE]\n\n", "text/event-stream")

    def _say(self, body: bytes, media: str, code: int = 200) -> None:
        self.send_response(code)
        self.send_header("content-type", media)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Crowded(ThreadingHTTPServer):
    """Takes all requests of an offline run at once: of a backlog of 5, the default, the kernel drops connections, and
    four of 30 hung until their time-out when the server was late to accept.
    """

    request_queue_size = 128


@contextmanager
def answering() -> Iterator[str]:
    server = Crowded(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with answering() as found:
        yield found


def questions(folder: Path, n: int, **odd: str) -> Path:
    """A scenario of n questions with references; ``odd`` says what is the matter with some (``_3="wrong"``)."""
    countries = list(CAPITALS)
    rows = [
        {"prompt": f"{odd.get(f'_{i}', '')} {countries[i % 4]}", "id": f"q{i}", "reference": CAPITALS[countries[i % 4]]}
        for i in range(n)
    ]
    (folder / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = folder / "s.yaml"
    path.write_text("kind: server\nparams: {rate: 200}\nmode: accuracy\nsource: {kind: jsonl, path: q.jsonl}\n")
    return path


def engine_options(engine: str) -> list[str]:
    return ["--option", f"engine={engine}"]


@pytest.mark.parametrize("engine", ENGINES)
def test_answers_are_kept_compared_and_judged_again(engine: str, url: str, tmp_path: Path) -> None:
    scenario = questions(tmp_path, 60)
    slo = ["--slo", "accuracy(exact_match) >= 90%", "--slo", "accuracy(wer) <= 5%"]
    ran = plimsoll_here(
        "run", str(scenario), "--url", url, "--out", "r", "--json", *slo, *engine_options(engine), cwd=tmp_path
    )
    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout)
    assert report["accuracy"]["samples"] == report["accuracy"]["answered"] == 60
    assert report["accuracy"]["scores"]["exact_match"]["right"] == 60
    assert report["accuracy"]["scores"]["wer"] == {"value": 0, "right": None, "of": 60, "errors": 0, "interval": None}
    rows = pq.read_table(tmp_path / "r" / "outputs.parquet").to_pylist()
    assert sorted(row["payload_ix"] for row in rows) == list(range(60))
    assert all(json.loads(row["expected"]) == row["text"] for row in rows)
    log = json.loads((tmp_path / "r" / "mlperf_log_accuracy.json").read_text())
    assert {bytes.fromhex(entry["data"]).decode() for entry in log} == set(CAPITALS.values())


def test_in_a_mix_answers_of_a_class_are_held_against_references_while_the_others_are_load(
    url: str, tmp_path: Path
) -> None:
    """Each class that keeps answers is compared by its own; a selector tells them apart."""
    questions(tmp_path, 40, _3="wrong")
    labels = [{"prompt": "France", "id": f"l{i}", "reference": i} for i in range(10)]
    (tmp_path / "l.jsonl").write_text("".join(json.dumps(row) + "\n" for row in labels))
    (tmp_path / "m.yaml").write_text(
        "name: m\nstop: {min_queries: 20, min_duration: 1s}\n"
        "mix:\n"
        "  chat: {kind: server, params: {rate: 100}, mode: accuracy, source: {kind: jsonl, path: q.jsonl}}\n"
        "  load: {kind: server, params: {rate: 20}, source: {kind: jsonl, path: q.jsonl}}\n"
        "  label: {kind: server, params: {rate: 20}, mode: accuracy, source: {kind: jsonl, path: l.jsonl}}\n"
    )
    texts = [f"accuracy(exact_match{{class={name}}}) >= 90%" for name in ("chat", "label")]
    slo = [word for text in ["accuracy(wer{class=chat}) <= 5%", *texts] for word in ("--slo", text)]
    given = ["--url", url, "--out", "r", "--keep", "tail", "--json", *slo]
    ran = plimsoll_here("run", "m.yaml", *given, cwd=tmp_path)
    told = json.loads(ran.stdout)
    seen = {one["objective"]: (one["outcome"], one["n"], one["bad"]) for one in told["verdict"]["objectives"]}
    assert seen["accuracy(wer{class=chat}) <= 5%"] == ("PASS", 40, None), told["verdict"]["reasons"]
    assert seen["accuracy(exact_match{class=chat}) >= 90%"][1:] == (40, 1)
    assert seen["accuracy(exact_match{class=label}) >= 90%"] == ("FAIL", 10, 10)
    assert told["accuracy"]["samples"] == 50, "the load is not compared"
    assert {*told["accuracy"]["scores"]} == {"exact_match"}, "of all together what all their references allow"
    rows = pq.read_table(tmp_path / "r" / "classes" / "chat" / "outputs.parquet").to_pylist()
    ids = {row["request_id"] for row in pq.read_table(tmp_path / "r" / "requests.parquet").to_pylist()}
    assert 0 < len(rows) < 40
    assert {row["request_id"] for row in rows} <= ids
    assert not (tmp_path / "r" / "classes" / "load" / "outputs.parquet").exists()
    again = json.loads(plimsoll_here("report", "r", "--json", cwd=tmp_path).stdout)
    assert again["accuracy"] == told["accuracy"]
    slo = ["--slo", "accuracy(wer{class=load}) <= 5%", "--slo", "each class: accuracy(exact_match) >= 9%"]
    wrong = plimsoll_here("run", "m.yaml", "--url", url, *slo, cwd=tmp_path)
    assert wrong.returncode == 2
    assert "accuracy(wer{class=load}) <= 5%: the run keeps no answers" in wrong.stderr
    assert "class load keeps no answers. Give it mode: accuracy" in wrong.stderr


@pytest.mark.parametrize(("kept", "left"), [("none", 0), ("tail", 3)])
def test_answers_that_were_not_kept_were_compared(kept: str, left: int, url: str, tmp_path: Path) -> None:
    """One of 60 fails; of the others the slowest by latency stay. An answer in one piece has no time to first token."""
    scenario = questions(tmp_path, 60, _7="wrong", _9="broken")
    given = ["--url", url, "--out", "r", "--slo", "accuracy(exact_match) >= 80%", "--keep", kept, "--json"]
    ran = plimsoll_here("run", str(scenario), *given, cwd=tmp_path)
    told = json.loads(ran.stdout)
    assert told["accuracy"]["scores"]["exact_match"]["right"] == 58
    rows = pq.read_table(tmp_path / "r" / "outputs.parquet").num_rows
    assert (rows > 0) == (left > 0)
    assert rows <= left
    assert not (tmp_path / "r" / "mlperf_log_accuracy.json").exists()
    assert json.loads(plimsoll_here("report", "r", "--json", cwd=tmp_path).stdout) == told
    again = plimsoll_here("gate", "r", "--slo", "p99(latency) <= 10s", "--json", cwd=tmp_path)
    assert json.loads(again.stdout)["accuracy"] == told["accuracy"]
    refused = plimsoll_here("gate", "r", "--slo", "accuracy(exact_match) >= 99%", cwd=tmp_path)
    assert refused.returncode == 2
    assert "it needs chunk times or answers that this run dropped" in refused.stderr


def test_the_run_directory_alone_is_judged_again(url: str, tmp_path: Path) -> None:
    scenario = questions(tmp_path, 60, _7="wrong")
    given = ["--url", url, "--out", "r", "--slo", "accuracy(exact_match) >= 80%"]
    assert plimsoll_here("run", str(scenario), *given, cwd=tmp_path).returncode == 0
    assert plimsoll_here("gate", "r", cwd=tmp_path).returncode == 0
    stricter = plimsoll_here(
        "gate", "r", "--slo", "accuracy(wer) <= 1%", "--slo", "accuracy(exact_match) >= 99%", cwd=tmp_path
    )
    assert stricter.returncode == 1
    assert "accuracy(wer) ≤ 1%" in stricter.stdout


@pytest.mark.parametrize("engine", ENGINES)
def test_wrong_and_failed_answers_count_as_wrong(engine: str, url: str, tmp_path: Path) -> None:
    scenario = questions(tmp_path, 40, **{f"_{i}": "wrong" for i in range(10)}, _20="broken")
    slo = ["--slo", "accuracy(exact_match) >= 95%"]
    ran = plimsoll_here(
        "run", str(scenario), "--url", url, "--out", "r", "--json", *slo, *engine_options(engine), cwd=tmp_path
    )
    assert ran.returncode == 1, ran.stderr
    found = json.loads(ran.stdout)["accuracy"]
    assert (found["samples"], found["answered"], found["scores"]["exact_match"]["right"]) == (40, 39, 29)
    assert found["scores"]["wer"]["value"] is None


@pytest.mark.parametrize(
    ("kind", "workers"), [("single_stream", 1), ("multi_stream", 1), ("offline", 2), ("concurrency", 2)]
)
def test_every_kind_asks_every_sample_once(kind: str, workers: int, url: str, tmp_path: Path) -> None:
    scenario = questions(tmp_path, 21)
    slo = ["--slo", "accuracy(exact_match) >= 50%"]
    engine = engine_options(ENGINES[workers % len(ENGINES)])
    given = ["--kind", kind, "--workers", str(workers), "--url", url, "--out", "r", "--json", *slo, *engine]
    ran = plimsoll_here("run", str(scenario), *given, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr + ran.stdout[-800:]
    report = json.loads(ran.stdout)
    assert report["accuracy"]["answered"] == report["counts"]["ok"] == 21
    assert (report["mlperf"] or {}).get("mode", "AccuracyOnly") == "AccuracyOnly"


@pytest.mark.parametrize("engine", ENGINES)
def test_a_plain_http_answer_is_kept_too(engine: str, url: str, tmp_path: Path) -> None:
    """Its success needs no settling, so the compiled engine would otherwise not hand it over."""
    scenario = questions(tmp_path, 20)
    options = ["--option", "path=/generate", "--option", "body='{\"prompt\": {{ prompt | tojson }}}'"]
    ran = plimsoll_here(
        "run", str(scenario), "--url", url, "--protocol", "http", "--out", "r", "--json",
        "--slo", "accuracy(exact_match) >= 50%", *options, *engine_options(engine), cwd=tmp_path,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr + ran.stdout[-800:]
    assert json.loads(ran.stdout)["accuracy"]["scores"]["exact_match"]["right"] == 20


def test_tensors_are_judged_by_their_top1_label_from_a_file_of_references(url: str, tmp_path: Path) -> None:
    rows = [{"data": {"inputs": [{"name": "x", "shape": [1], "datatype": "INT64", "data": [i]}]}} for i in range(30)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "s.yaml").write_text("kind: offline\nsource: {kind: jsonl, path: t.jsonl}\n")
    (tmp_path / "e.jsonl").write_text("".join(json.dumps({"id": i, "expected": i % 3}) + "\n" for i in range(30)))
    ran = plimsoll_valid(
        "run", "s.yaml", "--url", url, "--protocol", "kserve-v2", "--model", "m", "--json",
        "--mode", "accuracy", "--reference", "e.jsonl", "--slo", "accuracy(top1) >= 90%",
        "--format", "mlperf=summary.txt", cwd=tmp_path,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr + ran.stdout[-800:]
    assert json.loads(ran.stdout)["accuracy"]["scores"]["top1"]["right"] == 30
    assert "No errors encountered" in (tmp_path / "summary.txt").read_text()
    assert "Result is" not in (tmp_path / "summary.txt").read_text()


def test_references_that_are_deleted_during_the_run_were_read_before_it(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario, known, answer = questions(tmp_path, 4), tmp_path / "e.jsonl", Answers.do_POST
    known.write_text("".join(json.dumps({"id": f"q{i}", "expected": "Oslo"}) + "\n" for i in range(4)))

    def deleting(self: Answers) -> None:
        known.unlink(missing_ok=True)
        answer(self)

    monkeypatch.setattr(Answers, "do_POST", deleting)
    ran = plimsoll_here(
        "run", str(scenario), "--url", url, "--reference", str(known), "--out", "r", "--json", cwd=tmp_path
    )
    assert not known.exists()
    assert json.loads(ran.stdout)["accuracy"]["scores"]["exact_match"]["right"] == 1, ran.stderr


def test_performance_mode_keeps_no_answer(url: str, tmp_path: Path) -> None:
    scenario = questions(tmp_path, 4)
    given = ["--mode", "performance", "--queries", "50", "--duration", "0s", "--url", url, "--out", "r", "--json"]
    ran = plimsoll_here("run", str(scenario), *given, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["accuracy"] is None
    assert not [*(tmp_path / "r").glob("outputs*"), *(tmp_path / "r").glob("mlperf_log*")]
    assert plimsoll_here("gate", "r", "--slo", "accuracy(exact_match) >= 50%", cwd=tmp_path).returncode == 3


def test_bad_input_is_told_at_once_and_nothing_is_sent(tmp_path: Path) -> None:
    scenario = questions(tmp_path, 4)
    (tmp_path / "e.jsonl").write_text('{"id": "q0", "expected": "Paris"}\n')
    given = ["--url", "http://127.0.0.1:9", "--slo", "accuracy(exact_match) >= 50%"]
    lacking = plimsoll_here(
        "run", str(scenario), *given, "--reference", "e.jsonl", "--slo", "p99(tfft) <= 1s", cwd=tmp_path
    )
    assert lacking.returncode == 2
    for said in ("sample q1 has no reference", "sample q3 has no reference", "indicator tfft is not known"):
        assert said in lacking.stderr
    wrong_mode = plimsoll_here("run", str(scenario), *given, "--mode", "performance", cwd=tmp_path)
    assert wrong_mode.returncode == 2
    assert "Add --mode accuracy" in wrong_mode.stderr
    nothing = plimsoll_here("run", "--mode", "accuracy", *given, cwd=tmp_path)
    assert nothing.returncode == 2
    assert "nothing to compare with" in nothing.stderr
