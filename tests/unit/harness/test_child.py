"""A process of ours runs our code whatever lies in the current directory, and says why it could not begin."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.process import child, writing
from plimsoll.harness.run.crew import Crew

ROOT = Path(child.__file__).parents[3]
#: Names of ours and of the standard library, one of each kind that was executed or broke a start.
NAMES = (
    "json.py",
    "secrets.py",
    "typing.py",
    "scenarios.py",
    "slo/__init__.py",
    "harness/__init__.py",
    "plimsoll/__init__.py",
    "asyncio.py",
)
#: Whoever started the tests may have left SIGINT ignored, as a shell does for what it puts into the background.
LISTENS = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from plimsoll.harness.process import interrupts"
)
SAYS = "import sys; sys.stderr.write('executed: ' + __file__); sys.exit(9)\n"


def ran(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Python that runs ``code`` and finds ours, and what is in ``folder``."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"},
        capture_output=True,
        text=True,
        timeout=15,
        check=False,
    )


@pytest.fixture
def trapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current directory full of files with our names."""
    for name in NAMES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(SAYS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("installed", [False, True])
def test_a_child_is_ours_in_any_directory(installed: bool, trapped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if installed:
        monkeypatch.setattr("site.getsitepackages", lambda: [str(ROOT)])
        monkeypatch.setenv("PYTHONPATH", str(ROOT))  # which stands for site-packages
    else:
        monkeypatch.delenv("PYTHONPATH", raising=False)
    assert ("-m" in child.command("plimsoll.harness.generator.worker")) == installed
    code = (
        "import json, secrets, sys; from plimsoll import harness, scenarios, slo; print(*sys.argv, __name__);"
        "print(json.__file__, secrets.__file__, *(m.__path__[0] for m in (scenarios, slo, harness)), sep='\\n')"
    )
    (trapped / "mine").mkdir()
    (trapped / "mine" / "show_paths.py").write_text(code)
    path = f"{ROOT}:{trapped / 'mine'}" if installed else str(trapped / "mine")
    done = subprocess.run(
        child.command("show_paths", "a", "b c"), capture_output=True, text=True, timeout=30, check=False,
        env={"PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, *files = done.stdout.splitlines()
    assert first.endswith("show_paths.py a b c __main__")
    assert not [name for name in files if Path(name).is_relative_to(trapped)]
    assert str(ROOT / "plimsoll" / "harness") in files


def test_the_command_by_its_module_looks_past_files_with_our_names(tmp_path: Path) -> None:
    (tmp_path / "rich.py").write_text(SAYS)
    (tmp_path / "secrets.py").write_text(SAYS)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "plimsoll", "run", "--protocol", "null", "--kind", "concurrency"),
            *("--concurrency", "1", "--queries", "3", "--slo", "p50(latency) <= 10s", "--out", "r"),
        ],
        capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert "executed" not in done.stderr + done.stdout
    assert (tmp_path / "r" / "requests.parquet").is_file(), done.stderr


def test_workers_that_can_t_begin_say_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import os, sys; sys.stdin.readline(); os.write(2, b'no module named this\\n'); sys.exit(1)"  # in one write: two share a log  # noqa: E501
    monkeypatch.setattr(child, "command", lambda *words: [sys.executable, "-c", script])

    async def start() -> None:
        with writing.log(tmp_path / "worker.log") as log:
            await Crew().start([{"shard": 0}, {"shard": 1}], log, _nothing)

    with pytest.raises(HarnessFault) as caught:
        asyncio.run(start())
    assert caught.value.errors == [
        "nothing was sent: workers 0, 1 ended with exit code 1",
        "worker.log ends: no module named this no module named this",
    ]


def test_a_host_that_has_no_room_for_a_worker_is_one_clear_error_and_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, begun = asyncio.create_subprocess_exec, list[asyncio.subprocess.Process]()

    async def one_only(*words: str, **how: Any) -> asyncio.subprocess.Process:
        if begun:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        begun.append(await real(*words, **how))
        return begun[0]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", one_only)
    monkeypatch.setattr(child, "command", lambda *words: ["sleep", "60"])

    async def start() -> None:
        with writing.log(tmp_path / "worker.log") as log:
            await Crew().start([{"shard": 0}, {"shard": 1}], log, _nothing)

    with pytest.raises(
        HarnessFault, match=r"could not be started \(Resource temporarily unavailable\): nothing was sent. Free"
    ) as caught:
        asyncio.run(start())
    assert caught.value.code == ExitCode.USAGE
    assert begun[0].returncode == -signal.SIGKILL


def _nothing(member: Any, message: Any) -> None:
    """Hears status lines."""


def test_no_process_of_ours_is_started_in_another_way() -> None:
    """``sys.executable`` stands in the one module that knows how."""
    found = [path for path in (ROOT / "harness").rglob("*.py") if "sys.executable" in path.read_text(encoding="utf-8")]
    assert {str(path.relative_to(ROOT)) for path in found} == {"harness/process/child.py", "harness/verbs/serve.py"}


def test_an_interrupt_in_the_making_of_a_dataclass_ends_with_the_exit_code_that_was_chosen(tmp_path: Path) -> None:
    """A KeyboardInterrupt that leaves ``exec`` makes CPython end by SIGINT, whatever ``sys.exit`` said, unless
    cleared.
    """
    (tmp_path / "started.py").write_text(
        "import os, signal, sys, types\n"
        "import plimsoll.__main__ as entry\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # else ignored below a background job\n"
        "def command_line():\n"
        "    try:\n"
        "        exec('os.kill(os.getpid(), signal.SIGINT)')\n"
        "    except KeyboardInterrupt:\n"
        "        sys.exit(130)\n"
        "sys.modules['plimsoll.harness.verbs.cli'] = types.SimpleNamespace(main=command_line)\n"
        "entry.main()\n"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run([sys.executable, "-m", "started"], env={**os.environ, "PYTHONPATH": path}, check=False)
    assert done.returncode == 130


def test_an_interrupt_that_a_library_swallows_while_it_is_imported_comes_again(tmp_path: Path) -> None:
    (tmp_path / "greedy.py").write_text(
        "import os, signal\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    import this_is_not_there\n"
        "except BaseException as error:\n"
        "    print(type(error).__name__)\n"
    )
    went_on = "import greedy, time; time.sleep(20); print('went on')"
    code = f"{LISTENS}; interrupts.install(); {went_on}"
    done = ran(code, tmp_path)
    assert done.stdout == "KeyboardInterrupt\n"
    assert done.returncode == -signal.SIGINT
    assert done.stderr.strip().endswith("KeyboardInterrupt")


def test_an_interrupt_within_an_import_is_raised_where_the_next_one_begins(tmp_path: Path) -> None:
    (tmp_path / "half.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nprint('whole')\n")
    code = (
        f"{LISTENS}; interrupts.install()\n"
        "try:\n    import half\n    import json\nexcept KeyboardInterrupt:\n    interrupts.settle()\n    import json\n"
    )
    done = ran(code, tmp_path)
    assert (done.stdout, done.stderr, done.returncode) == ("whole\n", "", 0)


def test_an_interrupt_that_waits_for_an_import_kills_no_process_that_ends(tmp_path: Path) -> None:
    """Python gives signals back before it takes its last objects apart: the alarm ended it then."""
    (tmp_path / "half.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    code = (
        f"{LISTENS}; interrupts.install()\nimport time\n"
        "class Slow:\n    def __del__(self, sleep=time.sleep):\n        sleep(0.6)\n"
        "slow = Slow()\nimport half\n"
    )
    done = ran(code, tmp_path)
    assert (done.stderr, done.returncode) == ("", 0)


def test_an_interrupt_of_which_a_library_makes_an_error_is_an_interrupt(tmp_path: Path) -> None:
    """As pydantic does where one comes while it calls back."""
    code = (
        "import sys\nfrom plimsoll.harness.verbs import cli\n"
        "def verb():\n    try:\n        raise KeyboardInterrupt\n"
        "    except BaseException as error:\n        raise ValueError('in a serializer') from error\n"
        "cli.command_line = lambda name: verb\ncli.main()\n"
    )
    done = ran(code, tmp_path)
    assert (done.stderr, done.returncode) == ("error: interrupted\n", 130)
