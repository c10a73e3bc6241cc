"""The pytest plugin, as a team would use it: real pytest runs in a folder of their own. Bound: 60 s in all."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.e2e

#: No endpoint, no network: the null protocol answers at once.
RUN = 'plimsoll.run(kind="concurrency", concurrency=2, queries=400, protocol="null")'


def test(pytester: pytest.Pytester, body: str, *arguments: str) -> pytest.RunResult:
    pytester.makepyfile(body)
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments, timeout=50)


test.__test__ = False  # type: ignore[attr-defined]


def test_objectives_decide_the_test_and_stand_in_the_output(pytester: pytest.Pytester) -> None:
    done = test(
        pytester,
        f"""
        import pytest

        def test_kept(plimsoll):
            report = {RUN}.assert_slo("p90(latency) <= 10s", "ratio(error) <= 1%")
            assert report.verdict.outcome == "PASS"

        def test_broken(plimsoll):
            {RUN}.assert_slo("rate(ok) >= 99999999/s")

        def test_too_few(plimsoll):
            {RUN}.assert_slo("p99.9(latency) <= 10s")

        def test_nothing_promised(plimsoll):
            {RUN}.assert_slo()

        @pytest.mark.plimsoll(kind="concurrency", concurrency=2, queries=300, protocol="null")
        def test_flags_of_the_marker(plimsoll):
            run = plimsoll.run(slo="ratio(error) <= 5%")
            assert len(run.records) == 300
            run.assert_slo()
            again = plimsoll.open(run.directory).assert_slo()
            assert (run.directory / "report.html").is_file()
            assert again.verdict.objectives[0].objective == "ratio(error) <= 5%"
        """,
        "--strict-markers",
        "--junit-xml=out.xml",
    )
    done.assert_outcomes(passed=2, failed=3)
    out = done.stdout.str()
    assert "service-level objectives" in out
    for line in (
        "PASS p90(latency) <= 10s",
        "FAIL rate(ok) >= 99999999/s",
        "INCONCLUSIVE p99.9(latency) <= 10s",
        "no objective to assert",
        "2,995 in all would decide",
    ):
        assert line in out, line
    assert "Traceback" not in out
    assert "session.py" not in out  # a verdict is no stack trace
    properties = ET.parse(pytester.path / "out.xml").findall(".//property[@name='plimsoll']")
    assert len(properties) == 6


def test_mistakes_fail_the_test_with_all_of_them_at_once(pytester: pytest.Pytester) -> None:
    done = test(
        pytester,
        f"""
        import pytest

        def test_flags(plimsoll):
            plimsoll.run("no-such-scenario", slo=["p99(tftt) <= 2ms", "p99(ttft) <= 2"])

        def test_objectives(plimsoll):
            {RUN}.assert_slo("p99(tftt) <= 2ms", "p99(ttft) <= 2")

        def test_dead_port(plimsoll):
            plimsoll.run("smoke", url="http://127.0.0.1:9")

        def test_misspelt_flags(plimsoll):
            plimsoll.run("smoke", durration="1s", colour="red")

        @pytest.mark.plimsoll("http://127.0.0.1:9")
        def test_url_without_its_keyword(plimsoll):
            plimsoll.run("smoke")

        async def run_inside(plimsoll):
            {RUN}

        def test_in_a_loop(plimsoll):
            import asyncio
            asyncio.run(run_inside(plimsoll))
        """,
    )
    done.assert_outcomes(failed=5, errors=1)
    out = done.stdout.str()
    assert out.count("indicator tftt is not known") >= 2
    assert out.count("a bare number does not fit") >= 2
    assert "no-such-scenario" in out
    assert "cannot connect to http://127.0.0.1:9" in out
    assert "plain test function" in out
    assert "durration: no flag of `plimsoll run`. Did you mean duration?" in out
    assert "colour: no flag" in out
    assert "takes keywords only" in out
    assert "During handling" not in out
    assert "session.py" not in out


def test_options_of_the_command_line_and_the_ini_file_count(pytester: pytest.Pytester, tmp_path: Path) -> None:
    pytester.makeini("[pytest]\nplimsoll_inconclusive = skip\n")
    body = f"""
        def test_too_few(plimsoll):
            {RUN}.assert_slo("p99.9(latency) <= 10s")

        def test_url(plimsoll):
            plimsoll.run("smoke")
        """
    done = test(pytester, body, "--plimsoll-url=http://127.0.0.1:9", f"--plimsoll-out={tmp_path / 'kept'}", "-rs")
    done.assert_outcomes(skipped=1, failed=1)
    assert "http://127.0.0.1:9" in done.stdout.str()
    assert list((tmp_path / "kept").glob("*test_too_few/run-1/requests.parquet"))


def test_a_wrong_setting_is_refused(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nplimsoll_inconclusive = pass\n")
    assert "write fail or skip" in test(pytester, "def test_x(): pass").stderr.str()


def test_the_plugin_costs_a_project_without_load_tests_nothing(pytester: pytest.Pytester) -> None:
    done = test(
        pytester,
        """
        import sys

        def test_nothing_is_loaded():
            assert not {"plimsoll.harness.series.one_run", "plimsoll.slo.records.records", "pyarrow", "scipy", "rich.console"} & set(sys.modules)
        """,  # noqa: E501
    )
    done.assert_outcomes(passed=1)
    assert "service-level objectives" not in done.stdout.str()
