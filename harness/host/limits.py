"""What this host can hold open (file descriptors, local ports): a check before the run and an explanation after it.

A limit that the plan is sure to hit is an error before any load; one that it may hit is a warning. Nothing is changed
here: workers raise their own soft limit, everything else is the administrator's.
"""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from plimsoll.harness.transport.held import RESERVED_FILES

#: A closed connection may keep its port this long (TIME_WAIT, fixed in Linux).
TIME_WAIT_S = 60
#: An open loop is warned when answers that take this long would use everything up: a common time for a long stream.
PLAUSIBLE_S = 10.0
_PORTS = "net.ipv4.ip_local_port_range"
_WIDER = f'widen the range (`sysctl -w {_PORTS}="1024 65535"`)'


@dataclass(frozen=True, slots=True)
class HostLimits:
    """Hard limit of open files per process and of the whole host, the local port range, and net.ipv4.tcp_tw_reuse."""

    open_files: int
    all_files: int
    ports: tuple[int, int]
    tw_reuse: int

    @property
    def n_ports(self) -> int:
        """Connections that one address of an endpoint can have from this host."""
        return self.ports[1] - self.ports[0] + 1


@dataclass(frozen=True, slots=True)
class Connections:
    """What a plan needs: ``sure`` connections per worker, or None where it depends on how long answers take.

    ``rate_per_s``: of the whole open loop; ``ceiling``: no more than this many connections at once, all workers
    together.
    """

    workers: int
    sure: int | None = None
    rate_per_s: float = 0.0
    ceiling: int = 1 << 30
    timeout_s: float = 60.0


def _sysctl(name: str) -> str:
    return Path("/proc/sys", name.replace(".", "/")).read_text()


def raise_file_limit() -> None:
    """Use all the file descriptors that we are allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def read(sysctl: Callable[[str], str] = _sysctl, hard: int | None = None) -> HostLimits:
    """The limits of this host. What can't be read counts as the kernel's default."""

    def numbers(name: str, default: tuple[int, ...]) -> tuple[int, ...]:
        try:
            found = tuple(int(word) for word in sysctl(name).split())
        except (OSError, ValueError):
            return default
        return found if len(found) == len(default) else default

    if hard is None:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    low, high = numbers(_PORTS, (32768, 60999))
    return HostLimits(
        open_files=hard if hard != resource.RLIM_INFINITY else 1 << 62,
        all_files=numbers("fs.file-max", (1 << 62,))[0],
        ports=(low, high),
        tw_reuse=numbers("net.ipv4.tcp_tw_reuse", (0,))[0],
    )


def check(need: Connections, host: HostLimits) -> tuple[list[str], list[str]]:
    """(errors, warnings): what is sure to run out, and what runs out when answers are slow."""
    if need.sure is not None:
        return _sure(need, need.sure, host), []
    return [], _possible(need, host)


def _sure(need: Connections, each: int, host: HostLimits) -> list[str]:
    errors = []
    total = each * need.workers
    files = host.open_files - RESERVED_FILES
    ask = f"this run keeps {total:,} connections open in {_workers(need.workers)}"
    if each > files:
        errors.append(
            f"{ask}, and a process may open {host.open_files:,} files here (hard limit, `ulimit -Hn`; "
            f"{RESERVED_FILES} are needed for other things). {_more_workers(total, files)}raise the limit "
            "(`ulimit -n` as root, limits.conf, LimitNOFILE=), or set target.options.max_connections"
        )
    if total > host.all_files:
        errors.append(
            f"{ask}, and the whole host may open {host.all_files:,} files (fs.file-max); more workers don't help. "
            "Raise it with `sysctl -w fs.file-max=N`, or lower the concurrency"
        )
    if total > host.n_ports:
        low, high = host.ports
        errors.append(
            f"{ask}, and this host has {host.n_ports:,} local ports for connections to one address ({_PORTS} is "
            f"{low} {high}); more workers don't help. Lower the concurrency, {_WIDER}, or send from another host too"
        )
    return errors


def _possible(need: Connections, host: HostLimits) -> list[str]:
    if need.rate_per_s <= 0:
        return []
    files = max(1, host.open_files - RESERVED_FILES) * need.workers
    most = min(files, host.n_ports)
    enough_s = most / need.rate_per_s
    if need.ceiling <= most or enough_s >= min(PLAUSIBLE_S, need.timeout_s):
        return []
    if files < host.n_ports:
        what = f"files that {_workers(need.workers)} may open (`ulimit -Hn` is {host.open_files:,})"
        step = f"Raise that limit, {_add_workers(need.workers)}"
    else:
        what = f"local ports for one address ({_PORTS} is {host.ports[0]} {host.ports[1]})"
        step = f"{_WIDER[0].upper()}{_WIDER[1:]}"
    return [
        f"at {need.rate_per_s:,.0f} requests/s the {most:,} {what} are used up as soon as answers take "
        f"{enough_s:.2g} s, and the run would be INVALID. {step}, or set target.options.max_connections"
    ]


def exhaustion(found: Mapping[str, int], opened: int, seconds: float, host: HostLimits) -> list[str]:
    """The connections that failed on this host (their number by reason), each with the arithmetic that explains it.

    ``opened`` counts every try of every worker, in ``seconds``.
    """
    seconds = max(seconds, 1e-9)
    return [
        f"{count} connections failed on this host, not at the endpoint: "
        f"{text}{_why(text, opened - count, seconds, host)}"
        for text, count in found.items()
    ]


def _why(text: str, opened: int, seconds: float, host: HostLimits) -> str:
    if not text.startswith(os.strerror(errno.EADDRNOTAVAIL)):
        return ""
    per_s = opened / seconds
    sustained = host.n_ports / TIME_WAIT_S
    if opened <= host.n_ports or per_s <= sustained:
        return f". {opened:,} connections had been opened, and {host.n_ports:,} ports are all that one address can have"
    return (
        f". {opened:,} connections had been opened in {seconds:.0f} s ({per_s:,.0f}/s): nearly every request had a new "
        f"one. A closed connection may keep its port for {TIME_WAIT_S} s (TIME_WAIT), so {host.n_ports:,} ports are "
        f"sure to last for {sustained:,.0f} new connections/s (net.ipv4.tcp_tw_reuse is {host.tw_reuse}; 1 lets ports "
        "be used sooner)"
    )


def _workers(n: int) -> str:
    return "one worker" if n == 1 else f"{n} workers"


def _more_workers(total: int, files: int) -> str:
    return f"Use --workers {-(-total // files)}, " if files > 0 else "Lower the concurrency, "


def _add_workers(n: int) -> str:
    return f"use more than {_workers(n)}"
