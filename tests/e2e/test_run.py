"""The main job, end to end: a scenario drives a server in another process and a verdict comes out.

Real time; each test states its load, none takes more than about ten seconds.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plimsoll.scenarios.spec import load
from plimsoll.slo.records import tables
from plimsoll.slo.records.records import Records, Status
from plimsoll.slo.validity.accounts import contradictions
from tests.e2e.plimsoll import (
    FILES,
    PLIMSOLL,
    ROOT,
    Server,
    begin,
    children,
    only_late,
    plimsoll,
    plimsoll_here,
    plimsoll_valid,
    server,
    wait_for,
)

pytestmark = pytest.mark.e2e

STAGES = ("preprocess", "queue", "inference", "postprocess")
CHAT = ("--protocol", "openai-chat", "--kind", "server", "--output-tokens", "16")
#: The lag a run may have follows from its tightest latency objective: this one leaves room for a busy machine in tests
#: that are not about timing.
EASY = ("--slo", "p50(latency) <= 10s")


@pytest.fixture(scope="module")
def served() -> Iterator[Server]:
    with server("--model", "scripted", "--ttft", "30ms", "--itl", "1ms") as running:
        yield running


def records_of(path: Path) -> Records:
    records = tables.load(path)
    assert contradictions(records) == []
    return records


def request_ids(path: Path) -> list[str]:
    import pyarrow.parquet as pq

    return list(pq.read_table(path / "requests.parquet", columns=["request_id"])["request_id"].to_pylist())


def server_timings(path: Path) -> list[str]:
    import pyarrow.parquet as pq

    column = pq.read_table(path / "requests.parquet", columns=["server_timing"])["server_timing"]
    return list(column.to_pylist())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--rate", "-3"), ["rate"]),
        (("--kind", "servr"), ["servr", "server"]),
        (("--protocol", "openai-chatt"), ["openai-chatt", "openai-chat"]),
        (("--duration", "5 parsecs"), ["parsecs"]),
        (("--slo", "p99(tftf) <= 3ms", "--slo", "p99(ttft) <= 200"), ["tftf", "p99(ttft) <= 200"]),
        (("--slo", "ttft <= 200ms"), ["ratio(good)"]),
        (("--format", "pdf=x.pdf"), ["pdf", "junit"]),
        (("--format", "json=/nowhere/x.json"), ["/nowhere/x.json"]),
        (("--api-key-env", "NO_SUCH_VARIABLE"), ["NO_SUCH_VARIABLE"]),
        (("--option", "temprature=1"), ["temprature"]),
        (("--url", "ftp://x"), ["ftp"]),
        (("--header", "no colon here"), ["NAME: VALUE"]),
        (("no-such-scenario",), ["no-such-scenario"]),
    ],
)
def test_bad_input_is_one_clear_error_and_nothing_is_sent(
    arguments: tuple[str, ...], said: list[str], tmp_path: Path
) -> None:
    done = plimsoll_here("run", "--url", "http://127.0.0.1:1", *arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    for text in said:
        assert text in done.stderr
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize("moment", ["imports", "server", "plan"])
def test_ctrl_c_before_the_first_query_sends_nothing_and_exits_130(moment: str, tmp_path: Path) -> None:
    """The interrupt falls into imports, into the seconds in which the bundled transformer starts, or behind the
    plan.
    """
    process = begin("run", "smoke", "--warmup", "8s", "--out", "r", cwd=tmp_path)
    until = time.monotonic() + 60
    while time.monotonic() < until and not (
        (moment == "imports" and "_multiarray_umath" in Path(f"/proc/{process.pid}/maps").read_text())
        or (moment == "server" and children(process.pid, "reference_server"))
        or (moment == "plan" and (tmp_path / "r" / "plan.npz").exists())
    ):
        time.sleep(0.01)
    offspring = children(process.pid, "reference_server")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert bool(offspring) == (moment != "imports")
    assert not [pid for pid in offspring if Path(f"/proc/{pid}").exists()]
    # Behind the plan the warm-up may have begun: then what was measured is sealed.
    sealed = (tmp_path / "r" / "requests.parquet").exists()
    assert not (sealed and "nothing was sent" in err)
    assert moment == "plan" or not sealed


def test_three_workers_send_the_schedule_that_one_would(served: Server, tmp_path: Path) -> None:
    for workers in ("1", "3"):
        done = plimsoll_here(
            "run", "--url", served.url, *CHAT, *EASY, "--rate", "160", "--queries", "160", "--workers", workers,
            "--seed", "7",
            "--out", workers, cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode in (0, 4), done.stderr  # 4: three workers on two cores may be late
    one, three = records_of(tmp_path / "1"), records_of(tmp_path / "3")
    for column in ("query_id", "due_ns", "payload_ix"):
        assert (one[column] == three[column]).all()
    assert set(three["worker"].tolist()) == {0, 1, 2}
    prints = [json.loads((tmp_path / d / "manifest.json").read_text())["plan_fingerprint"] for d in ("1", "3")]
    assert prints[0] == prints[1]


@pytest.mark.parametrize(
    ("kind", "flags", "rows", "in_flight"),
    [
        ("single_stream", ("--queries", "12"), 12, 1),
        ("multi_stream", ("--queries", "4"), 32, 8),
        ("concurrency", ("--queries", "24", "--concurrency", "6"), 24, 6),
        ("offline", ("--queries", "1200", "--timeout", "30s"), 1200, 512),
    ],
)
def test_every_closed_kind_runs(
    kind: str, flags: tuple[str, ...], rows: int, in_flight: int, served: Server, tmp_path: Path
) -> None:
    done = plimsoll_valid(
        "run", "--url", served.url, "--protocol", "openai-chat", "--kind", kind, *flags, *EASY, "--output-tokens", "4",
        "--json", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    records = records_of(tmp_path / "r")
    assert len(records) == rows
    order = np.argsort(np.concatenate([records["sent_ns"], records["done_ns"]]), kind="stable")
    steps = np.concatenate([np.ones(rows), -np.ones(rows)])[order]
    assert np.cumsum(steps).max() == in_flight


def test_warm_up_rows_are_kept_and_not_measured(served: Server, tmp_path: Path) -> None:
    done = plimsoll_valid(
        "run", "--url", served.url, *CHAT, *EASY, "--rate", "50", "--queries", "50", "--warmup", "1s", "--json",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    records = records_of(tmp_path / "r")
    warm = records["phase"] == 1
    assert warm.sum() > 20
    assert records["due_ns"][warm].max() < 0 <= records["due_ns"][~warm].min()
    assert json.loads(done.stdout)["validity"]["planned"] == 50 == (~warm).sum()


def test_secrets_reach_the_server_and_no_file_of_the_run(served: Server, tmp_path: Path) -> None:
    secret = "sk-very-secret-0123456789"
    done = plimsoll_here(
        "run", "--url", served.url, *CHAT, *EASY, "--rate", "20", "--queries", "10", "--api-key-env", "THE_KEY",
        "--header",
        "X-Team-Token: ${env:THE_KEY}", "--out", "r", cwd=tmp_path, env={"THE_KEY": secret},
    )  # fmt: skip
    assert done.returncode == 0 or only_late(tmp_path / "r"), done.stderr
    written = [path for path in (tmp_path / "r").rglob("*") if path.is_file()]
    assert len(written) == len(FILES)
    assert not [path.name for path in written if secret.encode() in path.read_bytes()]
    assert secret not in done.stdout + done.stderr


def test_an_error_under_200_a_cut_and_a_load_shed_are_told_apart(tmp_path: Path) -> None:
    # A share, whose clusters are those of the failures: a host's drift by a per mille is a memory of latencies.
    promise = ("--slo", "ratio(error) <= 50%")
    with server("--model", "scripted", "--ttft", "5ms", "--itl", "1ms", "--fault", "cut=p:0.3,at:3") as target:
        done = plimsoll_valid(
            "run", "--url", target.url, *CHAT, *promise, "--rate", "100", "--queries", "300", "--json", cwd=tmp_path
        )
    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert 60 < report["counts"]["by_status"]["PROTOCOL"] < 120
    assert report["counts"]["ok"] + report["counts"]["failed"] == 300
    assert report["metrics"]["latency"]["p99"] is None
    assert report["metrics"]["latency"]["of_ok"]["p99"] > 0


def test_a_library_scenario_runs_against_the_bundled_server_which_is_stopped_afterwards(tmp_path: Path) -> None:
    done = plimsoll_here("run", "smoke", "--model", "scripted", "--queries", "8", "--json", cwd=tmp_path)
    run = next((tmp_path / "runs").glob("*/manifest.json")).parent
    assert done.returncode in (0, 3) or only_late(run), done.stdout + done.stderr
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["target"]["bundled"]["models"] == ["scripted"]
    port = manifest["target"]["url"].rsplit(":", 1)[1]
    after = plimsoll_here("readiness", f"http://127.0.0.1:{port}", "--timeout", "0", cwd=tmp_path)
    assert after.returncode == 5


def test_the_null_protocol_measures_our_own_overhead(tmp_path: Path) -> None:
    done = plimsoll_here(
        "run", "--protocol", "null", "--kind", "server", "--rate", "500", "--queries", "1000", "--out", "r", "--json",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode in (0, 4), done.stderr  # 4: the machine was too busy to keep the schedule
    report = json.loads(done.stdout)
    assert report["validity"]["stamp"] == "user"
    assert report["metrics"]["service_time"]["p50"] < 1_000_000


@pytest.mark.parametrize("name", ["recommendation", "embeddings"])
def test_a_scenario_of_fixed_outputs_brings_its_model_and_says_where_the_time_went(name: str, tmp_path: Path) -> None:
    """Ten requests or so; the bundled server serves the model that the scenario names."""
    done = plimsoll_here(
        "run", name, "--queries", "10", "--duration", "0s", "--warmup", "0s", "--json", "--out", "r", cwd=tmp_path
    )
    # 3: ten requests are too few to judge a p99.
    assert done.returncode in (0, 3) or only_late(tmp_path / "r"), done.stderr
    report = json.loads(done.stdout)
    assert set(report["counts"]["by_status"]) == {"OK"}, report["counts"]
    assert all(f"{stage};dur=" in timing for timing in server_timings(tmp_path / "r") for stage in STAGES)


def test_every_library_scenario_loads_and_names_objectives_that_parse() -> None:
    from plimsoll.harness.run.job import promised
    from plimsoll.harness.run.promises import of_scenario
    from plimsoll.scenarios.spec import library

    for name in library():
        promises, errors = of_scenario(name, promised(load(name)))
        assert not errors, (name, errors)
        assert promises.objectives or load(name).kind != "server" or name in ("ramp", "spike")


def test_kill_9_of_plimsoll_itself_leaves_no_process_behind(tmp_path: Path) -> None:
    process = begin("run", "smoke", "--model", "scripted", "--duration", "60s", "--out", "r", cwd=tmp_path)
    wait_for(tmp_path / "r" / "segments" / "w*.seg")
    offspring = children(process.pid, "plimsoll.harness.generator.worker") + children(process.pid, "reference_server")
    assert len(offspring) == 2
    process.kill()
    process.communicate(timeout=10)
    until = time.monotonic() + 15
    while time.monotonic() < until and any(Path(f"/proc/{pid}").exists() for pid in offspring):
        time.sleep(0.1)
    assert not [pid for pid in offspring if Path(f"/proc/{pid}").exists()]


def test_a_full_disk_loses_no_row_and_says_where_the_run_is(tmp_path: Path) -> None:
    """The run directory is on a 300 kB disk of its own (a mount namespace: needs root)."""
    disk = tmp_path / "disk"
    disk.mkdir()
    (tmp_path / "tmp").mkdir()
    inside = 'mount -t tmpfs -o size=300k tmpfs "$1" && cd "$1" && shift && exec "$@"'
    run = [
        "run",
        "--protocol",
        "null",
        "--kind",
        "server",
        "--rate",
        "2000",
        "--queries",
        "8000",
        *EASY,
        "--out",
        "r",
        "--json",
    ]
    if subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("mount namespaces need root, which this user is not")
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", inside, "sh", str(disk), *PLIMSOLL, *run],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path / "tmp")},
    )
    assert done.returncode in (0, 4), done.stderr
    report = json.loads(done.stdout)
    assert report["counts"]["by_status"] == {"OK": 8000}
    assert any("No space left" in warning for warning in report["warnings"])
    where = next((tmp_path / "tmp").glob("plimsoll-run-*"))
    assert str(where) in done.stderr
    assert len(tables.load(where)) == 8000
    assert "Traceback" not in done.stderr


def test_where_no_disk_takes_anything_the_run_is_judged_from_memory(tmp_path: Path) -> None:
    """``ulimit -f 1``: no file may be longer than 1 KiB, in no folder, so every row comes through the pipe."""
    run = ("run", "--protocol", "null", "--kind", "server", "--rate", "200", "--queries", "200", *EASY, "--out", "r")
    done = subprocess.run(
        ["bash", "-c", 'ulimit -f 1; "$@"', "bash", *PLIMSOLL, *run, "--json"],
        capture_output=True, text=True, timeout=60, cwd=tmp_path, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 4, done.stderr
    report = json.loads(done.stdout)
    assert report["counts"]["by_status"] == {"OK": 200}
    (reason,) = [text for text in report["verdict"]["reasons"] if "judged from memory" in text]
    assert "could not be sealed in r (File too large), nor in" in reason
    assert "/dev/shm (File too large)" in reason
    assert "is left in r/segments" in reason
    assert (tmp_path / "r" / "segments").is_dir()
    assert not [*tmp_path.glob("plimsoll-run-*"), *tmp_path.rglob("*.partial")]
    assert "Traceback" not in done.stderr


def test_where_no_disk_takes_anything_for_long_the_run_ends_with_what_it_has(tmp_path: Path) -> None:
    run = ("run", "--protocol", "null", "--kind", "server", "--rate", "20000", "--duration", "60s", "--out", "r")
    done = subprocess.run(
        ["bash", "-c", 'ulimit -f 1; "$@"', "bash", *PLIMSOLL, *run, "--json"],
        capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert done.returncode == 4, done.stderr
    report = json.loads(done.stdout)
    counts = report["counts"]["by_status"]
    assert 80_000 < counts["OK"] < 600_000
    assert {*counts} == {"OK", "UNSENT"}  # every request has an end
    assert "worker 0 ended the run: no disk takes its rows (File too large)" in report["verdict"]["reasons"][0]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("ends", ["| head -c 1", "2>&1 | head -c 1", ">&- 2>&- <&-"])
def test_a_run_that_nobody_reads_is_sealed_and_exits_by_its_verdict(ends: str, tmp_path: Path) -> None:
    run = "run --protocol null --kind server --rate 50 --queries 60 --slo 'p50(latency) <= 10s' --out r"
    shell = f"{' '.join(PLIMSOLL)} {run} {ends}; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", shell], capture_output=True, timeout=60, cwd=tmp_path, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert (tmp_path / "r" / "report.html").is_file(), done.stderr
    assert done.returncode == json.loads((tmp_path / "r" / "report.json").read_text())["exit_code"]
    assert done.returncode in (0, 4)  # 4: a busy machine
    assert len(tables.load(tmp_path / "r")) == 60


def test_our_own_lack_of_descriptors_is_our_failure_not_the_endpoints(tmp_path: Path) -> None:
    with server("--model", "scripted", "--ttft", "1s", "--itl", "1ms") as target:
        command = [
            "run",
            "--url",
            target.url,
            *CHAT,
            *EASY,
            "--rate",
            "100",
            "--queries",
            "200",
            "--out",
            "r",
            "--json",
        ]
        done = subprocess.run(
            ["sh", "-c", 'ulimit -n 60 && exec "$@"', "sh", *PLIMSOLL, *command],
            capture_output=True, text=True, timeout=60, cwd=tmp_path, check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    assert done.returncode == 4, done.stderr
    reasons = json.loads(done.stdout)["validity"]["reasons"]
    assert any("out of file descriptors" in reason and "on this host" in reason for reason in reasons)


def test_a_stray_print_in_a_worker_breaks_nothing(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "usercustomize.py").write_text("")
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import atexit, sys, threading\n"
        "if 'plimsoll.harness.generator.worker' in ' '.join(sys.orig_argv):\n"
        "    threading.Timer(2.0, lambda: print('a stray line')).start()\n"
    )
    path = f"{ROOT}{os.pathsep}{tmp_path / 'site'}"
    done = plimsoll_here(
        "run", "--protocol", "null", "--kind", "server", "--rate", "20", "--duration", "3s", *EASY, cwd=tmp_path,
        env={"PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_worker_that_hangs_can_be_given_up_with_a_third_ctrl_c(tmp_path: Path) -> None:
    process = begin(
        "run", "--protocol", "null", "--kind", "server", "--rate", "20", "--duration", "60s", "--out", "r", cwd=tmp_path
    )
    wait_for(tmp_path / "r" / "segments" / "w*.seg")
    os.kill(children(process.pid, "plimsoll.harness.generator.worker")[0], signal.SIGSTOP)
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130, err
    records = records_of(tmp_path / "r")
    assert (records["status"] == Status.OK).any()
    assert (records["status"] == Status.UNFINISHED).any()


def test_an_offline_run_that_was_interrupted_goes_on_with_what_it_did_not_send(tmp_path: Path) -> None:
    def scenario(name: str, **params: Any) -> str:
        document = {
            "kind": "offline", "params": {"max_in_flight": 8, **params}, "target": {"model": "scripted"},
            "source": {"kind": "synthetic_text", "output_tokens": 2, "count": 240},
            "stop": {"min_queries": 1, "min_duration": "0s"}, "seed": 1,
        }  # fmt: skip
        (tmp_path / name).write_text(json.dumps(document))
        return name

    with server("--ttft", "100ms", "--itl", "1ms") as target:
        process = begin("run", scenario("all.yaml", samples=240), "--url", target.url, "--out", "all", cwd=tmp_path)
        wait_for(tmp_path / "all" / "segments" / "w*.seg")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
        assert process.returncode == 130, err
        again = plimsoll(
            "run", scenario("rest.yaml", rest_of="all"), "--url", target.url, "--out", "rest", cwd=tmp_path
        )
    assert again.returncode == 0, again.stderr
    first, second = (
        rows.select(rows["status"] == Status.OK) for rows in map(records_of, (tmp_path / "all", tmp_path / "rest"))
    )
    assert 0 < len(first) < 240
    both = np.concatenate([first["payload_ix"], second["payload_ix"]])
    assert sorted(both.tolist()) == list(range(240)), "each sample was answered once"


def test_the_verdicts_exit_code_survives_a_reader_that_has_had_enough(tmp_path: Path) -> None:
    done = plimsoll_here(
        "run",
        "--protocol",
        "null",
        "--kind",
        "server",
        "--rate",
        "50",
        "--queries",
        "60",
        *EASY,
        "--out",
        "r",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    for slo, code in (("p50(latency) <= 10s", 0), ("p50(latency) <= 1ns", 4), ("p99.9(latency) <= 10s", 3)):
        command = f"{' '.join(PLIMSOLL)} gate r --slo '{slo}' | true; exit ${{PIPESTATUS[0]}}"
        piped = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert piped.returncode == code, piped.stderr
        assert "Traceback" not in piped.stderr


def test_the_model_lookup_follows_no_redirect_with_our_key(tmp_path: Path) -> None:
    import http.server
    import threading

    seen: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith("/stolen"):
                seen.append(str(self.headers.get("Authorization")))
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.1:{thief.server_port}/stolen")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_POST = do_GET  # noqa: N815 - the name the library calls

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    with (
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as front,
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as thief,
    ):
        for each in (front, thief):
            threading.Thread(target=each.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{front.server_port}"
        done = plimsoll_here(
            "run", "--url", url, *CHAT, "--rate", "20", "--queries", "3", "--api-key-env", "K", "--out", "r",
            cwd=tmp_path, env={"K": "sk-0123456789"},
        )  # fmt: skip
        for each in (front, thief):
            each.shutdown()
    assert "Traceback" not in done.stderr
    assert seen == []
    assert tables.load(tmp_path / "r")["code"].tolist() == [302, 302, 302]


def test_a_run_in_which_nothing_worked_does_not_pass_for_want_of_an_objective(served: Server, tmp_path: Path) -> None:
    done = plimsoll_here(
        "run", "--url", served.url, *CHAT, "--model", "no-such-model", "--rate", "20", "--queries", "8", "--out", "r",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode in (1, 4), done.stdout
    if done.returncode == 1:
        assert "no-such-model" in done.stdout.split("Metrics")[0]


def test_a_closed_terminal_seals_what_was_measured(tmp_path: Path) -> None:
    process = begin(
        "run", "--protocol", "null", "--kind", "server", "--rate", "50", "--duration", "60s", "--out", "r", cwd=tmp_path
    )
    wait_for(tmp_path / "r" / "segments" / "w*.seg")
    process.send_signal(signal.SIGHUP)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert (records_of(tmp_path / "r")["status"] == Status.OK).sum() > 20


def test_a_stdout_that_cannot_draw_or_is_full_keeps_the_verdict(tmp_path: Path) -> None:
    run = ("run", "--protocol", "null", "--kind", "server", "--rate", "50", "--queries", "60", *EASY, "--out", "r")
    ascii_only = {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    done = plimsoll(*run, cwd=tmp_path, env=ascii_only)
    assert done.returncode == 0, done.stderr
    assert "PASS" in done.stdout
    with Path("/dev/full").open("w") as full:
        again = subprocess.run(
            [*PLIMSOLL, "gate", "r"], stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path, timeout=60,
            check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    assert again.returncode == 0, again.stderr
    assert "could not be printed" in again.stderr
    unwritten = plimsoll_here("gate", "r", "--format", "csv=/dev/full", cwd=tmp_path)
    assert unwritten.returncode == 2
    assert "Traceback" not in done.stderr + again.stderr + unwritten.stderr


def test_a_scenario_file_is_checked_in_every_part_without_sending(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"data": {"x": 1}}\n')
    (tmp_path / "s.yaml").write_text(
        "kind: server\nsource: {kind: jsonl, path: rows.jsonl}\ntarget: {options: {sream: true}}\n"
        "objectives: ['p99(ttft) <= 200']\n"
    )
    done = plimsoll_here("scenarios", "check", "s.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert "sream" in done.stderr
    assert "bare number" in done.stderr
    (tmp_path / "s.yaml").write_text("kind: server\nsource: {kind: jsonl, path: rows.jsonl}\n")
    assert plimsoll_here("scenarios", "check", "s.yaml", cwd=tmp_path).returncode == 2
    for name in ("demo", "smoke", "offline-batch"):
        assert plimsoll_here("scenarios", "check", name, cwd=tmp_path).returncode == 0


def test_a_run_that_keeps_no_chunk_time_says_for_ever_what_it_measured(served: Server, tmp_path: Path) -> None:
    """Answers of 16 tokens, 1 ms apart."""
    own = ("--slo", "p50(itl) <= 500ms", *EASY)
    done = plimsoll_valid(
        "run", "--url", served.url, *CHAT, "--rate", "20", "--queries", "60", "--duration", "1s", *own,
        "--keep", "none", "--json", cwd=tmp_path,
    )  # fmt: skip
    told = json.loads(done.stdout)
    assert told["run"]["kept"].startswith("chunk times of 0 of 60 requests (keep none); 960 of 960 times were dropped")
    assert told["metrics"]["itl"]["n"] == 900
    assert 0 <= told["metrics"]["itl"]["p50"] < 50_000_000
    assert len(tables.load(tmp_path / "r").chunk_ns) == 0
    assert "keep: none" in (tmp_path / "r" / "scenario.yaml").read_text()
    assert json.loads(plimsoll_here("report", "r", "--json", cwd=tmp_path).stdout) == told
    assert plimsoll_here("gate", "r", cwd=tmp_path).returncode == done.returncode
    assert plimsoll_here("gate", "r", "--slo", "p50(ttft) <= 10s", cwd=tmp_path).returncode == done.returncode
    refused = plimsoll_here("gate", "r", "--slo", "p99(itl) <= 5s", cwd=tmp_path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "p99(itl) <= 5s: it needs chunk times or answers that this run dropped" in refused.stderr


def test_a_run_without_a_disk_for_it_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    plan = ("--protocol", "null", "--kind", "server", "--rate", "20000", "--duration", "1000s")  # 3.2 GB
    inside = 'mount -t tmpfs -o size=1g tmpfs "$1" && cd "$1" && shift && exec "$@"'
    if subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("mount namespaces need root, which this user is not")
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", inside, "sh", str(tmp_path), *PLIMSOLL, "run", *plan, "--out", "r"],
        capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 2
    assert "take about 2.98 GiB of disk in r" in done.stderr
    assert "1024 MiB are free. Nothing was sent. Make room, name a larger disk, or send less" in done.stderr
