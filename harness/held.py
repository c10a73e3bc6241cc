"""What the answers in flight of one worker may hold together: a budget, and who pays for it.

One body is bounded where it is read; here is the bound of all of them. Whenever so many bytes have come, the answers in
flight are weighed: everything that was read of them, so headers, trailers and unfinished messages too. While they are over
the budget the biggest is given up. The compiled engine does the same (``engine/pool.c``).
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Callable, Iterable
from pathlib import Path

from harness.exchange import Exchange
from slo.records import Status

#: The budget, in bytes, where there is memory for it. Else a quarter of what this process may have.
MOST = 1 << 30
SHARE = 4
#: The answers are weighed whenever so many bytes have come.
WEIGH_EVERY = 8 << 20
_MEMORY_MAX = Path("/sys/fs/cgroup/memory.max")


def budget() -> int:
    """In bytes: by the host's memory, this process's limits (``ulimit -v``, ``-d``) and its container's."""
    limits = [resource.getrlimit(which)[0] for which in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    memory = [limit for limit in limits if limit != resource.RLIM_INFINITY]
    memory.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with contextlib.suppress(OSError, ValueError):  # no cgroup, or "max"
        memory.append(int(_MEMORY_MAX.read_text(encoding="ascii")))
    return min(MOST, *(limit // SHARE for limit in memory))


def too_much(limit: int) -> str:
    """The error of an answer that was given up."""
    return (
        f"the answers in flight held more than {limit >> 20} MiB together, and this one the most of it: it was given up. "
        "Lower the concurrency, or add workers, if answers of this size are right"
    )


def relieve(flying: Iterable[Exchange], give_up: Callable[[Exchange, int, str], None], limit: int) -> None:
    """While the answers of ``flying`` hold more than ``limit`` bytes, give up the biggest, without what came of it."""
    sizes = {exchange: exchange.bytes_in + 16 * len(exchange.mark_end) for exchange in flying}
    held = sum(sizes.values())
    while held > limit:
        biggest = max(sizes, key=sizes.__getitem__)
        held -= sizes.pop(biggest)
        give_up(biggest, int(Status.PROTOCOL), too_much(limit))
        biggest.body.clear()  # whoever still has it
        del biggest.mark_ns[:], biggest.mark_end[:]
