"""Settings that can't be honoured are refused before anything starts, in one line."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from plimsoll.reference_server.__main__ import main
from plimsoll.reference_server.config import ReadyLine, ServerConfig
from plimsoll.reference_server.values.durations import parse_duration_ns
from plimsoll.reference_server.values.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected_ns"),
    [("50ms", 50_000_000), ("1.5s", 1_500_000_000), ("20us", 20_000), ("0.1ms", 100_000), ("2 m", 120_000_000_000)],
)
def test_durations_are_exact(text: str, expected_ns: int) -> None:
    assert parse_duration_ns(text) == expected_ns


@pytest.mark.parametrize("text", ["", "50", "ms", "5 parsecs", "-1ms", "1e3ms"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration"):
        parse_duration_ns(text)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--model", "gpt"], "--model gpt: unknown. Choose from llm, scripted"),
        (["--device", "tpu"], "--device tpu"),
        (["--http-port", "70000"], "--http-port 70000"),
        (["--http-port", "x"], "--http-port: 'x' is no whole number"),
        (["--ttft", "50"], "no duration"),
        (["--max-batch", "0"], "--max-batch: must be at least 1"),
        (["--kv-blocks", "0"], "--kv-blocks: must be at least 1"),
        (["--slots", "0"], "--slots: must be at least 1"),
        (["--service", "uniform"], "--service uniform: unknown. Choose from constant, exponential"),
        (["--service", "5ms*B", "--slots", "2"], "--slots 2: a batch's time leaves no slots"),
        (["--service", "5ms*B", "--fault", "slots=2"], "--fault slots: batches of scripted times have no slots"),
        (["--service", "5ms*C"], "--service 5ms*C: unknown. Choose from constant, exponential, or a sum"),
        (["--window", "wide"], "--window wide: unknown. Choose from none, static"),
        (
            ["--model", "scripted", "--kv-cache", "asked"],
            "--kv-cache asked: only llm has one. Leave it out, or add --model llm",
        ),
        (["--kv-cache", "none"], "--kv-cache none: unknown. Choose from paged, asked, longest"),
        (["--precision", "int4"], "--precision int4: unknown. Choose from float32, int8"),
        (["--precision", "int8"], "--precision int8: only resnet50 takes it"),
        (["--batching", "none"], "--batching none: unknown. Choose from continuous, static"),
        (["--image-side", "8"], "--image-side 8: choose 32 to 512"),
        (["--version", "a b"], "--version a b: letters, digits"),
        (["--route", "random"], "--route: only a fleet takes it. Add --replicas N"),
        (["--replicas", "many"], "--replicas: 'many' is no whole number"),
        (["--replicas", "2", "--replica", "2:--colour red"], "unrecognized arguments: --colour red"),
        (["--model", "dlrm", "--slots", "2"], "--slots: only scripted takes it. Add --model scripted"),
        (["--max-body", "0"], "--max-body: must be at least 1"),
        (["--max-connections", "0"], "--max-connections: must be at least 1"),
        (["--read-timeout", "0s"], "--read-timeout: must be longer than nothing"),
        (["--fault", "nonsense"], "unknown fault"),
        (["--threads", "100000"], "--threads 100000: at most 256"),
        (["--seed", "-1"], "--seed -1: must lie between 0 and"),
        (["--preset", "huge"], "--preset huge: unknown. Choose from tiny"),
        (["--model", "llm", "--weights", "/nowhere"], "--weights /nowhere: no such folder"),
        (["--weights", "/"], "only llm takes weights. Add --model llm"),
        (["--http-port", "7001", "--grpc-port", "7001"], "--grpc-port 7001: that is the HTTP port too"),
        (["--ready-fd", "4711"], "--ready-fd 4711: no such descriptor"),
        (["--host", "256.0.0.1", "--http-port", "0"], "Choose another --host"),
        (["--colour", "red"], "unrecognized arguments"),
    ],
)
def test_a_bad_argument_is_one_line_and_exit_2(
    arguments: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: object = main(arguments)
    except SystemExit as stopped:
        code = stopped.code
    shown = capsys.readouterr()
    assert code == 2
    assert part in shown.err
    assert shown.err.count("\n") == 1
    assert shown.out == ""


def test_all_mistakes_are_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = [
        "--ttft",
        "5",
        "--grpc-port",
        "x",
        "--model",
        "gpt",
        "--device",
        "tpu",
        "--max-batch",
        "0",
        "--preset",
        "huge",
    ]
    assert main([*wrong, "--fault", "nonsense", "--fault", "stall"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert {line.split()[0] for line in lines} == {"error:"}
    named = ["--grpc-port", "--ttft", "--model", "--device", "--preset", "--max-batch", "--fault", "--fault"]
    assert [line.split()[1].rstrip(":") for line in lines] == named


def test_no_model_at_all_is_refused() -> None:
    with pytest.raises(ConfigError, match="name at least one"):
        ServerConfig(models=())


def test_the_ready_line_says_where_the_server_is() -> None:
    line = ReadyLine("http://127.0.0.1:4711", ("scripted",), "cpu")
    assert line.as_json() == (
        '{"ready": true, "url": "http://127.0.0.1:4711", "models": ["scripted"], "device": "cpu", "startup_s": {}}'
    )
    with_grpc = ReadyLine("http://[::1]:80", ("llm",), "cpu", "[::1]:81", {"import": 1.5})
    assert json.loads(with_grpc.as_json())["grpc"] == "[::1]:81"
    assert json.loads(with_grpc.as_json())["startup_s"] == {"import": 1.5}


def test_the_scripted_server_imports_neither_torch_nor_the_load_generator() -> None:
    code = (
        "import sys, plimsoll.reference_server.__main__, plimsoll.reference_server.server, "
        "plimsoll.reference_server.http_server\nbad = {m.split('.')[0] for m in sys.modules} & "
        "{'torch', 'harness', 'scenarios', 'slo', 'reports'}\nsys.exit(str(bad) if bad else 0)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def test_ctrl_c_while_the_server_is_imported_is_no_traceback() -> None:
    code = (
        "import sys\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'plimsoll.reference_server.server':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "from plimsoll.reference_server.__main__ import main\n"
        "sys.exit(main([]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")
