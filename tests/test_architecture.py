"""The architecture, enforced: who may import whom, who owns which library, and how big a file may be."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("documents", "scenarios", "slo", "reports", "harness", "reference_server")

#: package -> packages of ours that it may import.
ALLOWED = {
    "documents": {"documents"},
    "scenarios": {"scenarios", "documents"},
    "slo": {"slo", "documents"},
    "reports": {"reports", "slo"},
    "harness": {"harness", "scenarios", "slo", "reports", "documents"},
    "reference_server": {"reference_server"},
}

#: library -> the only files (or folders) that may import it.
OWNERS = {
    "hdrh": {"slo/distribution.py"},
    "torch": {"reference_server/torch_runner.py", "reference_server/models", "reference_server/device"},
    "httptools": {"harness/wire/http1.py"},
    "uvloop": {"harness/worker.py", "reference_server/server.py"},
    "yaml": {"documents/text.py", "harness", "slo/presets"},
    "typer": {"harness/cli.py", "harness/cli_doc.py", "harness/verbs"},
    "jinja2": {"reports/formats", "harness/body_template.py"},
    "aiohttp": {
        "harness/dashboard/server.py",
        "reference_server/frontends/http",
        "reference_server/frontends/websocket",
    },
    "prometheus_client": {"reference_server/metrics.py"},
    "pytest": {"harness/pytest_plugin"},
    "locust": {"harness/distributed/locust_.py"},
    "pandas": {"reports/frame.py"},
    "grpc": {"harness/rpc/official.py", "reference_server/frontends/grpc_"},
    "google.protobuf": {"harness/protos", "reference_server/frontends/grpc_"},
    "hpack": {"harness/wire/hpack_blocks.py"},
    "grpc_health": {"reference_server/frontends/grpc_"},
    "grpc_reflection": {"reference_server/frontends/grpc_"},
    "grpc_tools": {
        "harness/protos/descriptors.py",
        "harness/protos/generate.py",
        "reference_server/frontends/grpc_/generate.py",
    },
    "PIL": {"reference_server/images.py", "scenarios/picture/decoding.py"},
    "av": {"harness/speech/av_.py"},
    "soundfile": {"scenarios/sound/reading.py"},
    "msgpack": {"harness/clients/kyutai.py"},
    "whisper_normalizer": {"slo/wer.py"},
    "jiwer": set(),
    "h2": set(),
    "safetensors": {"reference_server/models"},
    "tokenizers": {"reference_server/text.py"},
    "transformers": set(),
    "openai": set(),
    "websockets": {"harness/live/websocket.py", "harness/live/session.py"},
    "tritonclient": set(),
    "deepgram": set(),
    "socket": {
        "harness/stream.py",
        "harness/endpoint.py",
        "harness/manifest.py",
        "reference_server/frontends",
        "reference_server/oracle",
    },
}

#: Modules of the reference server that only decide or compute: the same arguments give the same answer. No loop, no thread, no clock.
PURE = (
    "admission",
    "batch_queue",
    "kv_blocks",
    "scheduler",
    "tensors",
    "tokenizer",
    "truth",
    "words",
    "model_statistics",
    "frontends/raw_tensors",
    "frontends/http/fields",
    "frontends/http/kserve_binary",
    "frontends/http/kserve_wire",
    "frontends/http/multipart",
    "frontends/http/ndjson_wire",
    "frontends/http/openai_audio",
    "frontends/http/openai_responses",
    "frontends/http/openai_wire",
    "frontends/http/text_request",
    "frontends/websocket/conversation",
    "frontends/websocket/input_audio",
    "frontends/websocket/query",
    "frontends/websocket/realtime_settings",
    "frontends/websocket/turns",
    "frontends/websocket/words",
    "frontends/grpc_/contents",
    "misfortune/fate",
    "misfortune/fault",
    "misfortune/kinds",
    "misfortune/window",
    "models/llama_config",
    "models/presets",
    "speech/alphabet",
    "speech/audio",
    "speech/certain_words",
    "speech/decode",
    "speech/resample",
    "speech/tones",
    "speech/transcript",
    "speech/wav",
)
IMPURE_LIBRARIES = {
    "asyncio",
    "threading",
    "concurrent",
    "time",
    "socket",
    "subprocess",
    "random",
    "logging",
    "torch",
    "aiohttp",
    "grpc",
}
#: room of the reference server -> rooms and root modules that it may import, where that says something.
SERVER_ROOMS = {
    "models": {
        "models",
        "speech",
        "config",
        "errors",
        "images",
        "stages",
        "tensors",
        "tokenizer",
        "torch_runner",
        "words",
    },
    "device": {"device", "models", "runner", "startup"},
    "speech": {"speech", "errors", "stages", "startup"},
    "oracle": {"oracle", "durations"},
}
#: front-end -> what it may take from another front-end.
BETWEEN_FRONT_ENDS = {
    "grpc_": {"http.fields", "http.stream"},
    "http": {"websocket.routes", "websocket.deepgram_wire"},
    "websocket": {
        "http.calls",
        "http.fields",
        "http.openai_wire",
        "http.ordeal",
        "http.stream",
    },
}

#: Modules of the hot path: no parsing, no logging, no model validation.
HOT = (
    "clock",
    "stream",
    "exchange",
    "issuer",
    "live/player",
    "live/flights",
    "http/pool",
    "live/websocket",
    "live/session",
    "rpc/pool",
    "rpc/channel",
    "rpc/stream",
    "wire/http1",
    "wire/http2",
    "wire/http2_frames",
    "wire/grpc_messages",
)
COLD_LIBRARIES = {"json", "orjson", "logging", "pydantic", "re", "rich", "yaml"}

#: Rooms in which the same arguments give the same answer: no loop, no thread, no clock, no socket. What arrived and when is handed to them.
PURE_ROOMS = ("scenarios/picture", "scenarios/sound", "scenarios/sources", "harness/speech", "harness/wire")
#: room of the harness -> rooms and root modules that it may import. None knows a protocol (``clients``) or a command.
HARNESS_ROOMS = {
    "wire": {"wire", "exchange"},
    "speech": {"speech", "http", "errors", "exchange", "live", "options", "outcome", "wire"},
    "live": {
        "live", "client", "clock", "http", "endpoint", "errors", "exchange", "held", "options", "origin", "outcome",
        "redaction", "speech", "stream", "wire", "vitals",
    },
    "protos": {"protos", "body_template", "client", "errors", "exchange", "exit_codes", "redaction", "rpc", "wire"},
    "rpc": {
        "rpc", "client", "clock", "endpoint", "errors", "exchange", "live", "options", "origin", "outcome", "protos",
        "speech", "stream", "vitals", "wire",
    },
}  # fmt: skip
#: transport -> who may import it: a protocol asks for a client, and listing protocols loads no transport.
TRANSPORTS = {
    "harness.live.websocket": {"harness/live/client.py"},
    "harness.live.session": {"harness/live/websocket.py"},
    "harness.rpc.pool": {"harness/rpc/options.py"},
    "harness.rpc.official": {"harness/rpc/options.py"},
}

JUNK_DRAWERS = {"utils", "util", "common", "core", "base", "helpers", "helper", "manager", "misc"}
MAX_FILE_LINES = 700
MAX_FUNCTION_LINES = 50


def files() -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted((ROOT / package).rglob("*.py"))


@cache
def imports(path: Path) -> set[str]:
    """Dotted names of every module imported anywhere in a file."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {str(node.module)} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def c_files() -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted(path for path in (ROOT / package).rglob("*.[ch]"))


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_only_what_the_design_allows(package: str) -> None:
    for path in files():
        relative = path.relative_to(ROOT)
        if relative.parts[0] == package:
            ours = {name.split(".")[0] for name in imports(path)} & set(PACKAGES)
            assert ours <= ALLOWED[package], f"{relative} imports {sorted(ours - ALLOWED[package])}"


def test_modules_form_a_dag() -> None:
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in files()}
    graph = {name: {dep for dep in imports(path) if dep in modules and dep != name} for name, path in modules.items()}
    state: dict[str, int] = {}

    def visit(name: str, trail: tuple[str, ...]) -> None:
        if state.get(name) == 2:
            return
        assert state.get(name) != 1, "import cycle: " + " -> ".join((*trail[trail.index(name) :], name))
        state[name] = 1
        for dependency in sorted(graph[name]):
            visit(dependency, (*trail, name))
        state[name] = 2

    for name in sorted(graph):
        visit(name, ())


@pytest.mark.parametrize("library", sorted(OWNERS))
def test_each_library_is_imported_only_where_it_belongs(library: str) -> None:
    for path in files():
        relative = path.relative_to(ROOT).as_posix()
        if any(name == library or name.startswith(library + ".") for name in imports(path)):
            allowed = any(relative == owner or relative.startswith(owner + "/") for owner in OWNERS[library])
            assert allowed, f"{relative} imports {library}; only {sorted(OWNERS[library])} may"


@pytest.mark.parametrize("module", HOT)
def test_the_hot_path_parses_and_logs_nothing(module: str) -> None:
    tops = {name.split(".")[0] for name in imports(ROOT / "harness" / f"{module}.py")}
    assert not tops & COLD_LIBRARIES


@pytest.mark.parametrize("module", PURE)
def test_what_decides_in_the_reference_server_knows_no_loop_no_thread_and_no_clock(module: str) -> None:
    tops = {name.split(".")[0] for name in imports(ROOT / "reference_server" / f"{module}.py")}
    assert not tops & IMPURE_LIBRARIES


@pytest.mark.parametrize("room", PURE_ROOMS)
def test_what_reads_formats_and_sounds_knows_no_loop_no_thread_and_no_clock(room: str) -> None:
    paths = [path for path in files() if path.relative_to(ROOT).as_posix().startswith(f"{room}/")]
    assert paths
    for path in paths:
        tops = {name.split(".")[0] for name in imports(path)}
        assert not tops & IMPURE_LIBRARIES, f"{path.relative_to(ROOT)} imports {sorted(tops & IMPURE_LIBRARIES)}"


@pytest.mark.parametrize("room", sorted(HARNESS_ROOMS))
def test_a_room_of_the_harness_knows_only_what_is_below_it(room: str) -> None:
    modules = {path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".") for path in files()}
    paths = sorted((ROOT / "harness" / room).rglob("*.py"))
    assert paths
    for path in paths:
        known = {name.split(".")[1] for name in imports(path) & modules if name.startswith("harness.")}
        assert known <= HARNESS_ROOMS[room], f"{path.relative_to(ROOT)} imports {sorted(known - HARNESS_ROOMS[room])}"


@pytest.mark.parametrize("transport", sorted(TRANSPORTS))
def test_a_transport_is_known_to_nobody_but_who_makes_its_client(transport: str) -> None:
    assert (ROOT / (transport.replace(".", "/") + ".py")).is_file()
    found = {path.relative_to(ROOT).as_posix() for path in files() if transport in imports(path)}
    assert found
    assert found <= TRANSPORTS[transport]


def server_imports(folder: str) -> Iterator[tuple[str, str]]:
    """Files of a folder of the reference server, and the modules of the reference server that each imports, without the package's name."""
    modules = {
        ".".join(path.relative_to(ROOT / "reference_server").with_suffix("").parts)
        for path in files()
        if "reference_server" in path.parts
    }
    for path in sorted((ROOT / "reference_server" / folder).rglob("*.py")):
        for name in imports(path):
            module = name.removeprefix("reference_server.")
            if module != name and module in modules:
                yield path.relative_to(ROOT).as_posix(), module


@pytest.mark.parametrize("room", sorted(SERVER_ROOMS))
def test_a_room_of_the_reference_server_knows_only_what_is_below_it(room: str) -> None:
    for path, module in server_imports(room):
        assert module.split(".")[0] in SERVER_ROOMS[room], f"{path} imports {module}"


def test_models_and_engines_do_not_know_the_front_ends() -> None:
    for path, module in server_imports("."):
        if not path.startswith(("reference_server/frontends/", "reference_server/server.py")):
            assert not module.startswith("frontends."), f"{path} imports {module}"


def test_front_ends_take_from_each_other_only_what_is_shared() -> None:
    for path, module in server_imports("frontends"):
        own = path.split("/")[2]
        parts = module.split(".")
        if own in BETWEEN_FRONT_ENDS and parts[0] == "frontends" and parts[1] in BETWEEN_FRONT_ENDS.keys() - {own}:
            assert ".".join(parts[1:]) in BETWEEN_FRONT_ENDS[own], f"{path} imports {module}"


#: Who may open a file for writing: the writer, and what makes files of this repository.
WRITERS = {
    "harness/writing.py",
    "harness/cli_doc.py",
    "harness/protos/generate.py",
    "reference_server/frontends/grpc_/generate.py",
    "slo/metrics_doc.py",
}
_WRITE = {"write_text", "write_bytes", "touch", "mkstemp", "NamedTemporaryFile", "copyfile", "copy2", "tofile"}


def opens_for_writing(call: ast.Call) -> bool:
    """``path.open("w")``, ``open(path, "ab")``, ``os.open(...)``, ``path.write_text(...)`` and their like."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    owner = getattr(call.func.value, "id", "") if isinstance(call.func, ast.Attribute) else ""
    if name in _WRITE or (owner, name) == ("shutil", "copy"):
        return True
    if name != "open" or owner == "av":  # a container in memory
        return False
    modes = [a.value for a in (*call.args, *(k.value for k in call.keywords)) if isinstance(a, ast.Constant)]
    texts = [mode for mode in modes if isinstance(mode, str) and re.fullmatch(r"[rwaxbt+]{1,3}", mode)]
    return owner == "os" or any(set(mode) & set("wax+") for mode in texts)


def test_files_are_written_in_one_place() -> None:
    """It knows how: whole or not at all, never through a link."""
    found = {
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in files()
        if path.relative_to(ROOT).as_posix() not in WRITERS
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and opens_for_writing(node)
    }
    assert {place.split(":")[0] for place in found} <= {
        "harness/outlet.py",  # /dev/null
        "documents/files.py",  # opens to read, without waiting
        "harness/segments.py",  # opens a folder, to lock it
    }, found
    written = ['p.open("x")', 'open(p, mode="ab")', 'open("a", "w")', "p.write_text(t)", "os.open(p, f)"]
    read = ["p.open()", 'p.open("rb")', 'open(p, "r")', "pool.open(4)", 'p.open(encoding="utf-8")']
    for text, writes in [*((text, True) for text in written), *((text, False) for text in read)]:
        call = ast.parse(text, mode="eval").body
        assert isinstance(call, ast.Call)
        assert opens_for_writing(call) == writes, text


def test_no_file_is_a_junk_drawer() -> None:
    assert not [path for path in files() if path.stem in JUNK_DRAWERS or path.parent.name in JUNK_DRAWERS]


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        path
        for path in files()
        if path.read_text(encoding="utf-8").strip()
        and not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not silent


def test_files_and_functions_fit_in_a_head() -> None:
    too_long = []
    for path in files():
        source = path.read_text(encoding="utf-8")
        if len(source.splitlines()) > MAX_FILE_LINES:
            too_long.append(f"{path.relative_to(ROOT)}: {len(source.splitlines())} lines")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > MAX_FUNCTION_LINES and not is_command(node):
                    too_long.append(f"{path.relative_to(ROOT)}:{node.name}: {lines} lines")
    assert not too_long


def test_c_files_say_what_they_are_for_and_fit_in_a_head() -> None:
    paths = [*c_files()]
    assert paths
    silent = [path.name for path in paths if not re.match(r"/\* [A-Z]", path.read_text(encoding="utf-8"))]
    assert not silent
    lengths = {path.relative_to(ROOT): len(path.read_text(encoding="utf-8").splitlines()) for path in paths}
    assert not {path: n for path, n in lengths.items() if n > MAX_FILE_LINES}
    assert not [path for path in paths if path.stem in JUNK_DRAWERS]


def test_c_code_of_one_package_includes_nothing_of_another() -> None:
    """The oracle and the engine share a wire, never code: neither may take a header from outside its folder."""
    for path in c_files():
        for name in re.findall(r'^#include "(.+)"', path.read_text(encoding="utf-8"), re.MULTILINE):
            assert "/" not in name, f"{path.relative_to(ROOT)} includes {name}"
            assert (path.parent / name).is_file(), f"{path.relative_to(ROOT)} includes {name}"


def is_command(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """A command-line verb's length is its list of flags, not its logic."""
    return any("command" in ast.dump(decorator) for decorator in node.decorator_list) or "typer" in ast.dump(node.args)


def test_import_slo_is_light() -> None:
    """A notebook or a gate that only reads records loads numpy and nothing heavier."""
    code = (
        "import sys, slo.records, slo.indicator, slo.objective, slo.verdict; "
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'pandas','pyarrow','scipy','pydantic','torch','rich'}))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.strip() == "[]"
