"""What a host can hold open: foreseen from the plan, explained when it happens. The sysctls are made up."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping

from plimsoll.harness.host.limits import Connections, HostLimits, check, exhaustion, read
from plimsoll.harness.transport.endpoint import explain

HOST = HostLimits(open_files=20_064, all_files=1_000_000, ports=(32768, 60999), tw_reuse=2)
USUAL = {"net.ipv4.ip_local_port_range": "32768\t60999\n", "net.ipv4.tcp_tw_reuse": "2\n", "fs.file-max": "1000000\n"}


def host(sysctls: Mapping[str, str], hard: int = 20_064) -> HostLimits:
    def sysctl(name: str) -> str:
        if name not in sysctls:
            raise FileNotFoundError(name)
        return sysctls[name]

    return read(sysctl, hard)


def test_the_limits_are_read_and_what_is_missing_or_garbled_is_the_kernels_default() -> None:
    assert host(USUAL) == HOST
    assert host(USUAL).n_ports == 28_232
    bare = host({"net.ipv4.ip_local_port_range": "all of them"})
    assert (bare.n_ports, bare.tw_reuse) == (28_232, 0)
    assert bare.all_files > 1 << 60
    assert read().n_ports > 0


def test_a_load_that_fits_is_neither_refused_nor_warned_about() -> None:
    assert check(Connections(1, sure=20_000), HOST) == ([], [])
    assert check(Connections(1, rate_per_s=100, timeout_s=60), HOST) == ([], [])


def test_more_slots_than_files_in_one_worker_is_refused_and_says_how_many_workers_would_do() -> None:
    (error,), warnings = check(Connections(1, sure=20_001), HOST)
    for part in ("20,001 connections", "one worker", "20,064 files", "ulimit -Hn", "--workers 2", "max_connections"):
        assert part in error
    assert warnings == []
    assert check(Connections(2, sure=10_001), HOST) == ([], [])


def test_the_files_of_the_whole_host_are_not_helped_by_more_workers() -> None:
    tight = HostLimits(open_files=1 << 20, all_files=5_000, ports=(1024, 65535), tw_reuse=2)
    (error,), _ = check(Connections(10, sure=501), tight)
    assert "fs.file-max" in error
    assert "more workers don't help" in error
    assert check(Connections(10, sure=500), tight) == ([], [])


def test_more_connections_than_local_ports_is_refused_with_the_numbers() -> None:
    (error,), _ = check(Connections(4, sure=7_059), HOST)
    for part in ("28,236 connections", "28,232 local ports", "32768 60999", "more workers don't help", "1024 65535"):
        assert part in error
    assert check(Connections(4, sure=7_058), HOST) == ([], [])


def test_an_open_loop_is_warned_only_when_plausible_answers_would_use_the_ports_up() -> None:
    many = HostLimits(open_files=1 << 20, all_files=1 << 20, ports=(32768, 60999), tw_reuse=2)
    errors, (warning,) = check(Connections(1, rate_per_s=5_000, timeout_s=60), many)
    assert errors == []
    for part in ("5,000 requests/s", "28,232 local ports", "5.6 s", "INVALID", "max_connections"):
        assert part in warning
    assert check(Connections(1, rate_per_s=5_000, timeout_s=5), many) == ([], [])  # given up before
    assert check(Connections(1, rate_per_s=5_000, ceiling=28_232), many) == ([], [])  # never that many
    assert check(Connections(1, rate_per_s=2_000), many) == ([], [])  # answers would have to take 14 s


def test_an_open_loop_that_may_run_out_of_files_is_told_about_workers() -> None:
    _, (warning,) = check(Connections(1, rate_per_s=4_000), HOST)
    assert "20,000 files that one worker may open" in warning
    assert "more than one worker" in warning


def test_ports_that_ran_out_one_connection_a_request_are_explained_with_the_arithmetic() -> None:
    text = explain(OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL)))
    (said,) = exhaustion({text: 40}, opened=40_040, seconds=40.0, host=HOST)
    for part in (
        "40 connections failed on this host, not at the endpoint",
        "40,000 connections had been opened in 40 s (1,000/s)",
        "28,232 ports",
        "471 new connections/s",
        "TIME_WAIT",
        "keep connections alive",
        "tcp_tw_reuse is 2",
    ):
        assert part in said


def test_ports_that_are_all_in_use_at_once_are_not_blamed_on_closed_connections() -> None:
    text = explain(OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL)))
    (said,) = exhaustion({text: 3}, opened=19, seconds=1.0, host=host({"net.ipv4.ip_local_port_range": "40000 40015"}))
    assert "16 connections had been opened, and 16 ports" in said
    assert "new connections/s" not in said


def test_other_shortages_keep_their_own_next_step() -> None:
    text = explain(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
    (said,) = exhaustion({text: 7}, opened=20_007, seconds=1.0, host=HOST)
    assert said == f"7 connections failed on this host, not at the endpoint: {text}"
    assert "ulimit -n" in said
