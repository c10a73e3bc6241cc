"""A broken plug-in of an outside package is one error that names it, and stops nobody who doesn't need it."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import plimsoll.harness.protocols._discovery as protocols
from plimsoll.reports import format as formats
from plimsoll.reports.blocks import section
from plimsoll.slo.metrics import indicator, plugin
from tests.e2e.plimsoll import PLIMSOLL, ROOT, plimsoll, plimsoll_here
from tests.unit.harness.sealed_runs import sealed_run

OUTSIDE = ROOT / "tests" / "outside" / "broken"
SLO = ("--slo", "p50(ttft) <= 100ms")
NULL = ("run", "--protocol", "null", "--kind", "server", "--rate", "100", "--queries", "60", "--duration", "0s")
Install = Callable[..., dict[str, str]]


def _forget() -> None:
    for found in (plugin.every, indicator.catalogue, protocols.outside, formats._outside, section.sections):
        found.cache_clear()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """``install(group, "name = value", ...)``: an outside package, for this process and, by what it returns, others."""
    folder = tmp_path / "installed"

    def made(group: str, *lines: str, **modules: str) -> dict[str, str]:
        information = folder / "acme_outside-2.dist-info"
        information.mkdir(parents=True)
        (information / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-outside\nVersion: 2\n")
        (information / "entry_points.txt").write_text("\n".join([f"[plimsoll.{group}]", *lines, ""]))
        for name, text in modules.items():
            (folder / f"{name}.py").write_text(text)
        for path in (folder, OUTSIDE):
            monkeypatch.syspath_prepend(str(path))
        importlib.invalidate_caches()
        _forget()
        return {"PYTHONPATH": f"{folder}:{OUTSIDE}:{ROOT}"}

    yield made
    monkeypatch.undo()
    for name in ("acme_outside", "outside_broken"):
        sys.modules.pop(name, None)
    _forget()


def one_error(done: subprocess.CompletedProcess[str], *said: str) -> None:
    """Exit code 2 and one line, which names the package and says what to do."""
    assert done.returncode == 2, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert "Traceback" not in done.stderr
    assert "bug in Plimsoll" not in done.stderr
    for text in (*said, "package acme-outside 2", "Mend or uninstall the package"):
        assert text in line, line


# -- metrics ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "module", "said"),
    [
        ("acme_outside:INDICATOR", "import nothing_of_the_kind", "ModuleNotFoundError: No module named"),
        ("acme_outside:INDICATOR", "raise ValueError('on Mondays')", "can't be imported (ValueError: on Mondays)"),
        ("acme_outside:INDICATOR", "def (", "can't be imported (SyntaxError: "),
        ("acme_outside:INDICATOR", "import sys; sys.exit(0)", "can't be imported (SystemExit: 0)"),
        ("acme_outside:INDICATOR", "", "has no attribute 'INDICATOR'"),
        ("outside_broken:NUMBER", "", "exports 3, no INDICATOR"),
        ("outside_broken:SECOND_TTFT", "", "ttft exists already"),
        ("outside_broken:STRANGE_GROUP", "", "the group of headers is 'nonsense'; choose one of 'answer'"),
        *(
            ("acme_outside:ONE", f"from outside_broken import *\nONE = replace(METRIC, {given})", said)
            for given, said in (
                ("on_failure='worst'", "its on_failure is 'worst'; give it a value of OnFailure"),
                ("title=5", "its title is 5; give it a value of str"),
                ("rank='x'", "its rank is 'x'; give it a value of int"),
                ("needs=None", "the needs of headers are None"),
                ("needs=('nope',)", "the needs of headers are ('nope',)"),
                ("outside=5", "the outside of headers is no function"),
            )
        ),
    ],
)
def test_a_broken_metric_is_one_error_before_anything_is_sent(
    value: str, module: str, said: str, install: Install, tmp_path: Path
) -> None:
    run = sealed_run(tmp_path / "r")
    install("indicators", f"mine = {value}", acme_outside=module)
    place = f"plug-in mine = {value} of group plimsoll.indicators"
    one_error(plimsoll_here("metrics", cwd=tmp_path), said, place)
    one_error(plimsoll_here("gate", str(run), *SLO, cwd=tmp_path), said, place)
    one_error(plimsoll_here("report", str(run), cwd=tmp_path), said, place)
    one_error(plimsoll_here(*NULL, "--out", "sent", cwd=tmp_path), said, place)
    assert not (tmp_path / "sent").exists()


def test_a_metric_that_fails_at_judging_is_missing_with_a_warning_and_the_others_are_judged(
    install: Install, tmp_path: Path
) -> None:
    run = sealed_run(tmp_path / "r")
    install("indicators", "mine = outside_broken:RAISES", "other = outside_broken:SHORT")
    done = plimsoll_here("gate", str(run), *SLO, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert not {"raises", "short"} & report["metrics"].keys()
    (first, second) = [text for text in report["warnings"] if "acme-outside" in text]
    assert first.startswith("raises has no value: plug-in mine = outside_broken:RAISES")
    assert "compute of raises failed (ZeroDivisionError: one of many)" in first
    assert "compute of short returned no float64[40] and bool[40]" in second


def test_all_metrics_that_fail_on_made_up_rows_are_told_at_once_before_anything_is_sent(
    install: Install, tmp_path: Path
) -> None:
    install("indicators", "a = outside_broken:RAISES", "b = outside_broken:SHORT", "fine = outside_broken:METRIC")
    done = plimsoll_here(*NULL, "--out", "sent", cwd=tmp_path)
    assert done.returncode == 2
    assert [line for line in done.stderr.splitlines() if "compute of raises failed (ZeroDivisionError" in line]
    assert [line for line in done.stderr.splitlines() if "compute of short returned no float64[3]" in line]
    assert not (tmp_path / "sent").exists()


def test_all_broken_plug_ins_are_told_at_once(install: Install, tmp_path: Path) -> None:
    information = "acme_outside:NONE", "outside_broken:NUMBER", "outside_broken:SECOND_TTFT"
    lines = [f"mine{i} = {value}" for i, value in enumerate(information)]
    install("indicators", *lines, "[plimsoll.sections]", "part = outside_broken:NUMBER", acme_outside="")
    done = plimsoll_here(*NULL, "--out", "sent", cwd=tmp_path)
    assert done.returncode == 2
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: plug-in ")]
    assert [line.split()[2] for line in errors] == ["mine0", "mine1", "mine2", "part"], done.stderr


def test_an_objective_on_a_metric_that_fails_is_an_error_and_the_records_are_kept(
    install: Install, tmp_path: Path
) -> None:
    env = install("indicators", "mine = outside_broken:RAISES_LATE")
    done = plimsoll(*NULL, "--slo", "p50(raises) <= 1s", "--out", "r", cwd=tmp_path, env=env)
    one_error(done, "compute of raises failed", "the records are whole in r: then `plimsoll report r` judges them")
    assert json.loads((tmp_path / "r" / "manifest.json").read_text())["plugins"] == {"acme-outside": "2"}
    again = plimsoll_here("gate", "r", "--slo", "p50(latency) <= 10s", cwd=tmp_path)
    assert again.returncode in (0, 4), again.stderr  # 4: the machine was too busy
    one_error(plimsoll_here("gate", "r", "--slo", "p50(raises) <= 1s", cwd=tmp_path), "compute of raises failed")


def test_who_lacks_the_package_of_a_runs_plug_in_is_told_its_name(tmp_path: Path) -> None:
    run = sealed_run(tmp_path / "r")
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**manifest, "plugins": {"acme-outside": "2"}}))
    done = plimsoll_here("gate", str(run), "--slo", "p50(waited) <= 1s", cwd=tmp_path)
    assert done.returncode == 2
    assert "indicator waited is not known" in done.stderr
    assert "error: the run was made with plug-ins of acme-outside 2, not installed here" in done.stderr
    report = json.loads(plimsoll_here("gate", str(run), *SLO, "--json", cwd=tmp_path).stdout)
    assert [text for text in report["warnings"] if "acme-outside 2, not installed here" in text]


# -- formats ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "module", "name", "said"),
    [
        ("html = outside_broken:SHOUT", "", "html", "exports no FORMAT named 'html'"),
        ("json = acme_outside:FORMAT", "from outside_broken import *\nFORMAT = type(SHOUT)('json', '', '', len)",
         "json", "Plimsoll has a format 'json' itself"),
        ("shout = acme_outside:FORMAT", "raise ValueError('on Mondays')", "shout", "(ValueError: on Mondays)"),
        ("shout = outside_broken:NUMBER", "", "shout", "exports no FORMAT named 'shout', but 3"),
        ("loud = outside_broken:SHOUT", "", "loud", "exports no FORMAT named 'loud'"),
    ],
)  # fmt: skip
def test_a_broken_format_stops_only_who_asks_for_it(
    line: str, module: str, name: str, said: str, install: Install, tmp_path: Path
) -> None:
    run, other = sealed_run(tmp_path / "r"), sealed_run(tmp_path / "other", seed=43)
    install("formats", line, acme_outside=module)
    for command in (("gate", str(run), *SLO), ("report", str(run)), ("compare", str(run), str(other), "--json")):
        done = plimsoll_here(*command, cwd=tmp_path)
        assert done.returncode in (0, 3), done.stderr
        assert "error:" not in done.stderr
        one_error(plimsoll_here(*command, "--format", f"{name}=out", cwd=tmp_path), said, line)
    one_error(plimsoll_here(*NULL, "--out", "sent", "--format", f"{name}=out", cwd=tmp_path), said)
    assert not (tmp_path / "sent").exists()
    unknown = plimsoll_here("gate", str(run), *SLO, "--format", "shoot=out", cwd=tmp_path)
    assert unknown.returncode == 2
    assert "'shoot' is no format" in unknown.stderr


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("outside_broken:RENDER_RAISES", "its render failed (ZeroDivisionError: one of many)"),
        ("outside_broken:RENDER_TEXT", "its render returned str, not bytes"),
    ],
)
def test_a_format_that_fails_costs_its_own_file_alone(value: str, said: str, install: Install, tmp_path: Path) -> None:
    env = install("formats", f"shout = {value}")
    both = ("--format", "shout=shout.txt", "--format", "markdown=report.md")
    done = plimsoll(*NULL, "--out", "r", *both, cwd=tmp_path, env=env)
    code = json.loads((tmp_path / "r" / "report.json").read_text())["exit_code"]
    assert done.returncode == (code or 2), done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert said in line
    assert "shout.txt" in line
    assert "Traceback" not in done.stderr
    assert (tmp_path / "report.md").stat().st_size
    assert (tmp_path / "r" / "report.html").stat().st_size
    assert not (tmp_path / "shout.txt").exists()
    pair = (str(sealed_run(tmp_path / "a")), str(sealed_run(tmp_path / "b", seed=43)))
    compared = plimsoll_here("compare", *pair, "--format", "shout=shout.txt", "--json", cwd=tmp_path)
    assert said.replace("render", "document") in compared.stderr
    assert json.loads(compared.stdout)


# -- protocols ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "module", "said"),
    [
        ("acme_outside:PROTOCOLS", "import nothing_of_the_kind", "ModuleNotFoundError: No module named"),
        ("acme_outside:PROTOCOLS", "raise ValueError('on Mondays')", "can't be imported (ValueError: on Mondays)"),
        ("outside_broken:NUMBER", "", "exports 3, not a ProtocolSpec"),
        *(
            ("acme_outside:ONE", f"from outside_broken import *\nONE = replace(ACME, {given})", said)
            for given, said in (
                ("name=5", "its name is 5; give it a value of str"),
                ("build=None", "its build is None; give it a function"),
                ("options=dict", "the options of acme are <class 'dict'>; give it a model"),
            )
        ),
    ],
)
def test_a_broken_protocol_stops_only_who_asks_for_it(
    value: str, module: str, said: str, install: Install, tmp_path: Path
) -> None:
    env = install("protocols", f"acme = {value}", acme_outside=module)
    one_error(plimsoll_here("run", "--protocol", "acme", "--out", "r", cwd=tmp_path), said, f"acme = {value}")
    unknown = plimsoll_here("run", "--protocol", "acmee", "--out", "r", cwd=tmp_path)
    assert unknown.returncode == 2
    assert "'acmee' is unknown" in unknown.stderr
    (warning,) = [line for line in unknown.stderr.splitlines() if line.startswith("warning: ")]
    assert said in warning
    done = plimsoll(*NULL, "--out", "r", cwd=tmp_path, env=env)
    assert done.returncode in (0, 4), done.stderr  # 4: the machine was too busy
    assert "acme" not in done.stderr


def test_a_protocol_that_is_ours_already_is_refused_where_it_is_asked_for(install: Install, tmp_path: Path) -> None:
    env = install("protocols", "acme = outside_broken:SECOND_CHAT")
    said = "the protocol 'openai-chat' is already defined by plimsoll.harness.protocols.openai"
    one_error(plimsoll_here("run", "--out", "r", cwd=tmp_path), said)
    done = plimsoll(*NULL, "--out", "r", cwd=tmp_path, env=env)
    assert done.returncode in (0, 4), done.stderr


# -- sections -----------------------------------------------------------------------------------------------------


def test_a_broken_section_is_one_error_and_one_that_fails_is_a_warning(install: Install, tmp_path: Path) -> None:
    run = sealed_run(tmp_path / "r")
    install("sections", "mine = outside_broken:PART_RAISES")
    done = plimsoll_here("gate", str(run), *SLO, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "part of broken failed (ZeroDivisionError: one of many)" in "".join(json.loads(done.stdout)["warnings"])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "exports 3, no SECTION"),
        ("order='x'", "its order is 'x'; give it a value of int"),
        ("name=5", "its name is 5; give it a value of str"),
        ("part=None", "its part is None; give it a function"),
        ("model=5", "its model is 5; give it a class of pydantic models"),
    ],
)
def test_a_section_that_can_not_be_loaded_stops_a_run_before_it_sends(
    given: str | None, said: str, install: Install, tmp_path: Path
) -> None:
    module = f"from outside_broken import *\nONE = replace(PART_RAISES, {given})"
    name = "outside_broken:NUMBER" if given is None else "acme_outside:ONE"
    install("sections", f"mine = {name}", acme_outside="" if given is None else module)
    one_error(plimsoll_here(*NULL, "--out", "sent", cwd=tmp_path), said)
    assert not (tmp_path / "sent").exists()


@pytest.mark.parametrize(
    ("part", "blocks", "said"),
    [
        ("Part.model_construct(x=float('nan'))", "()", "Out of range float values"),
        ("Part()", "(Sentence(5),)", "in which 5 is no text"),
        ("Part()", "(Sentence('\\ud800'),)", "is no text"),
    ],
)
def test_what_no_report_can_hold_is_a_warning_that_names_the_package(
    part: str, blocks: str, said: str, install: Install, tmp_path: Path
) -> None:
    module = (
        "from outside_broken import *\nfrom pydantic import BaseModel\n"
        "from plimsoll.reports.blocks.document import Sentence\n"
        "class Part(BaseModel):\n    x: float = 0.0\n"
        f"ONE = ReportSection('broken', 125, lambda run: {part}, lambda part, report: {blocks}, Part)\n"
    )
    install("sections", "mine = acme_outside:ONE", acme_outside=module)
    done = plimsoll_here("report", str(sealed_run(tmp_path / "r")), *SLO, "--format", "markdown=r.md", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert said in (tmp_path / "r.md").read_text() + done.stderr + done.stdout


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("build=lambda *_: 3", "build of acme returned 3, no client"),
        ("build=lambda *_: 1 / 0", "build of acme failed (ZeroDivisionError: division by zero)"),
        ("name='other'", "its protocol is 'other': ask for that"),
    ],
)
def test_a_protocol_that_can_not_make_its_client_is_told_by_its_package(
    given: str, said: str, install: Install, tmp_path: Path
) -> None:
    module = f"from outside_broken import *\nONE = replace(ACME, {given})"
    env = install("protocols", "acme = acme_outside:ONE", acme_outside=module)
    done = plimsoll(*NULL, "--protocol", "acme", "--out", "sent", cwd=tmp_path, env=env)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


# -- live ---------------------------------------------------------------------------------------------------------


def test_an_outside_metric_reaches_the_live_page_of_a_run(install: Install, tmp_path: Path) -> None:
    """The page, its numbers and /metrics while the run goes on; one that fails is left out there."""
    env = install("indicators", "waited = outside_broken:WAITED", "raises = outside_broken:RAISES_LATE")
    words = [*NULL[:-4], "--queries", "800", "--duration", "0s", "--out", "r", "--live", "0"]
    with subprocess.Popen(
        [*PLIMSOLL, *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, **env},
    ) as process:
        assert process.stderr is not None
        try:
            begun = next(line for line in process.stderr if line.startswith("live view: "))
            url = begun.split()[2].rstrip("/")
            page, exposed = (_shown(f"{url}/{path}", process) for path in ("", "metrics"))
            state = json.loads(_read(f"{url}/state.json"))
        finally:
            process.kill()
    assert "Time waited" in page
    assert "raises" not in exposed
    assert "waited" in json.dumps(state)


def _shown(url: str, process: subprocess.Popen[str]) -> str:
    """What is there as soon as it has the metric; the last of it when the run is over."""
    text = ""
    while "waited" not in text and process.poll() is None:
        time.sleep(0.2)
        with contextlib.suppress(OSError):
            text = _read(url)
    assert "waited" in text
    return text


def _read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())
